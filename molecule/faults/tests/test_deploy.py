# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two clusters on the same hosts, deployed in one run."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("name", ["main", "other"])
def test_first_deploy_starts_each_cluster_in_order(cluster, name):
    found = cluster(name)
    found.assert_started_in_order()
    assert {member.ledger["outcome"] for member in found.members} == {"ok"}
    found.assert_serves(requests=2)
