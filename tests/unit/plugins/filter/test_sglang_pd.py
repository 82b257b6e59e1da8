# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the filters add to the pure core."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.filter import sglang_pd
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import problem


def test_a_problem_that_several_members_of_a_host_have_is_told_once() -> None:
    unknown, port = problem("known", "--x is unknown", "box1"), problem("ports", "port 22 is held", "box1")
    said = sglang_pd.describe_problems([unknown, unknown, port]).splitlines()
    assert said == ["- --x is unknown (host box1) [rule: known]", "- port 22 is held (host box1) [rule: ports]"]


def test_hosts_of_a_cluster_are_those_that_name_it() -> None:
    groups = {"pd_prefill": ["p", "both"], "pd_decode": ["d", "both"], "pd_router": ["r"], "other": ["x"]}
    variables: dict[str, dict[str, Any]] = {
        "p": {"pd_cluster": "one"},
        "both": {"pd_cluster": ["two", "one", "one"]},
        "d": {"pd_cluster": "two"},
        "r": {},
        "x": {"pd_cluster": "one"},
    }
    by_cluster = sglang_pd.hosts_by_cluster(groups, variables)
    asked = {name: sglang_pd.cluster_hosts(by_cluster, name) for name in ("one", "two", "three", "")}
    assert asked == {"one": ["both", "p"], "two": ["both", "d"], "three": [], "": []}
    assert sglang_pd.cluster_hosts(by_cluster, ["two", "one"]) == ["both", "d", "p"]
