# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cluster main on one box, whose settings, patches and versions the tests change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster import SMALL_LIMITS, Cluster


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


@pytest.fixture
def main(cluster, deploy, co_restart) -> Iterator[Cluster]:
    """Cluster main, and as the inventory has it again after the test."""
    yield cluster("main")
    cluster("main").clear_faults()
    done = deploy()
    assert done.rc == 0, done
    done = co_restart()
    assert done.rc == 0, done
