# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From inventory and registered results to what the plan is made of."""

from __future__ import annotations

import os
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.action import co_restart_plan
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import clusters


def test_clusters_come_from_groups_and_pd_cluster() -> None:
    groups = {"pd_prefill": ["a", "b"], "pd_decode": ["a", "c"], "pd_router": ["r"]}
    hostvars = {"a": {"pd_cluster": "x"}, "b": {"pd_cluster": "y"}, "c": {"pd_cluster": ["x", "y"]}, "r": {}}
    wanted, homeless = clusters.inventory_clusters(groups, hostvars)
    assert wanted == {"x": {"prefill": ["a"], "decode": ["a", "c"]}, "y": {"prefill": ["b"], "decode": ["c"]}}
    assert homeless == ["r"]


def test_engines_of_a_list_name_their_own_clusters() -> None:
    hostvars = {"a": {"pd_cluster": ["x", "y", "z"], "pd_decode_engines": [{"cluster": "x"}, {"cluster": "y"}]}}
    wanted, homeless = clusters.inventory_clusters({"pd_decode": ["a"]}, hostvars)
    assert wanted == {"x": {"decode": ["a"]}, "y": {"decode": ["a"]}}
    assert homeless == []


def test_R6_a_host_that_was_asked_in_vain_is_unreachable_and_one_outside_the_play_is_unseen() -> None:
    answer = {"members": [], "locks": {}, "rolls": {}, "now": 1.0}
    hostvars: dict[str, Any] = {
        "a": {"m": answer},
        "b": {"m": {"unreachable": True, "msg": "no route\n"}},
        "c": {"m": {"failed": True, "msg": "ledger cannot be read"}},
        "d": {},
        "e": {"m": answer, "p": {"members": {"u": {"problems": []}}}},
        "f": {"m": answer, "p": {"failed": True, "msg": "no such user"}},
    }
    hosts = co_restart_plan.seen_of(list(hostvars), hostvars, "m", "p")
    assert {host: {key: what[key] for key in sorted(what) if key != "preflight"} for host, what in hosts.items()} == {
        "a": answer,
        "b": {"unreachable": "no route"},
        "c": {"unreachable": "ledger cannot be read"},
        "e": answer,
        "f": {"unreachable": "no such user"},
    }
    assert hosts["e"]["preflight"] == {"u": {"problems": []}}


def test_a_wrong_selection_is_refused_with_what_there_is() -> None:
    wanted = {"x": {"prefill": ["a"]}}
    assert co_restart_plan.wrong_selection(["x"], wanted, []) == ""
    assert "Unknown cluster y" in co_restart_plan.wrong_selection(["y"], wanted, [])
    assert "No cluster is selected" in co_restart_plan.wrong_selection([], wanted, [])
    assert "pd_cluster" in co_restart_plan.wrong_selection(["x"], wanted, ["h"])


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({}, False),
        ({"pid_started": "1"}, True),
        ({"pid": 4194305}, True),
        ({"pid": 4194305, "controller": "elsewhere"}, False),
    ],
)
def test_R7_only_a_process_of_this_controller_is_known_to_be_gone(change: dict[str, Any], gone: bool) -> None:
    run = co_restart_plan.new_run("", "test")
    assert run["pid"] == os.getppid()
    seen = {"p": {"locks": {"c": {"run": dict(run, **change)}}}, "d": {"unreachable": "x"}}
    assert (co_restart_plan.gone_owners(seen, "locks") == [run["owner"]]) is gone


def test_runs_have_names_of_their_own() -> None:
    assert co_restart_plan.new_run("given", "p")["id"] == "given"
    assert co_restart_plan.new_run("", "p")["id"] != co_restart_plan.new_run("", "p")["id"]


@pytest.mark.parametrize(
    ("values", "opted_in", "warned"),
    [
        ([True, "true", "yes"], True, False),
        ([False, None, "no"], False, False),
        ([True, True, False], False, True),
        ([True, None, "perhaps"], False, True),
    ],
)
def test_a_cluster_opts_in_only_with_all_its_hosts(values: list[Any], opted_in: bool, warned: bool) -> None:
    hostvars = {host: {} if value is None else {"v": value} for host, value in zip("pdr", values)}
    roles = {"prefill": ["p"], "decode": ["d"], "router": ["r"]}
    found, warning = co_restart_plan.opted_in_to("v", roles, hostvars)
    assert (found, bool(warning)) == (opted_in, warned)
    if warned:
        assert "it counts only where all hosts of the cluster have it" in warning


def test_a_rollback_takes_a_number_or_the_last_good_one() -> None:
    assert co_restart_plan._restore("") is None
    assert co_restart_plan._restore("last_good") == {"generation": 0, "automatic": False}
    assert co_restart_plan._restore("12") == {"generation": 12, "automatic": False}
    for right in ("", "last_good", "12"):
        assert co_restart_plan._wrong_generation(right) == ""
    for wrong in ("0", "-1", "yesterday", "1.5"):
        assert "pd_rollback_generation is {!r}".format(wrong) in co_restart_plan._wrong_generation(wrong)


def test_the_attempt_that_follows_is_of_the_same_run_and_asks_for_nothing_else() -> None:
    given = {"what": "roll back", "stages": ["router"], "run": {"id": "r", "purpose": "p"}, "follows": 4, "options": {}}
    asked = co_restart_plan._next_attempt(given)
    assert asked["run"] == {"id": "r", "purpose": "p: roll back"}
    assert (asked["follows"], asked["stages"]) == (4, ["router"])
    assert asked["restore"] == {"generation": 0, "automatic": True}
    assert co_restart_plan._next_attempt(dict(given, what="widen"))["restore"] is None
    assert co_restart_plan._next_attempt(None) == {}
