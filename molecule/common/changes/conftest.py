# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cluster main on one box, whose settings, patches and versions the tests change. Scenarios link to this file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import SMALL_LIMITS, Cluster, Member


@pytest.fixture
def deploy(run_playbook):
    """Deploy with other variables than the inventory's."""

    def run(*args: str, **variables: object):
        return run_playbook("deploy", *args, extra_vars={**SMALL_LIMITS, **variables})

    return run


@pytest.fixture
def co_restart(run_playbook):
    """Co-restart where it is due."""

    def run(*args: str):
        return run_playbook("co_restart", *args, extra_vars={**SMALL_LIMITS, "pd_co_restart_when": "when_due"})

    return run


#: What is deployed, and with which of it the processes were started.
DEPLOYED = (
    "find /etc/sglang-pd /etc/systemd/system /var/lib/sglang-pd/patches /run/sglang-main-*.service -type f "
    "-exec sha256sum {} + | sort"
)


def is_settled(member: Member) -> bool:
    """Tell whether a process is the one that the last co-restart left, and proved."""
    return member.is_active and (member.ledger["outcome"], member.ledger["incarnation"]) == ("ok", member.incarnation)


@pytest.fixture(scope="session")
def as_in_the_inventory() -> dict[str, str]:
    """What was found on the host when it was last as the inventory has it."""
    return {}


@pytest.fixture
def main(cluster, deploy, co_restart, as_in_the_inventory) -> Iterator[Cluster]:
    """Cluster main, and as the inventory has it again after the test."""
    its = cluster("main")
    yield its
    its.clear_faults()
    box = its.one("prefill").on
    if all(map(is_settled, its.members)) and box.check_output(DEPLOYED) == as_in_the_inventory.get("deployed"):
        return
    done = deploy()
    assert done.rc == 0, done
    done = co_restart()
    assert done.rc == 0, done
    as_in_the_inventory["deployed"] = box.check_output(DEPLOYED)
