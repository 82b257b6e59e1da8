# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations of rolls on a host: all or none, and what a reservation that changes hands leaves behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files
from ansible_collections.inferops.sglang_pd.plugins.modules import cluster_lock

UNIT = "sglang-a-prefill.service"


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with the prefill of cluster a, of which generation 4 is on record."""
    for name in ("MEMBERS", "LEDGERS", "LOCKS", "RESERVATIONS"):
        monkeypatch.setattr(files, name, str(tmp_path / name))
    files.write_json(f"{files.MEMBERS}/{UNIT}.json", {"cluster": "a", "unit": UNIT})
    files.write_ledger(dict(_ledger.empty(UNIT), generation=4))


def given(roll: str, *clusters: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of the module."""
    run = {"id": roll, "owner": "owner of " + roll, "purpose": "weekly"}
    return {"clusters": list(clusters or "a"), "run": run, "lease_seconds": 60.0, "reason": "", "gone": [], **more}


def co_restart(owner: str) -> None:
    """Let a co-restart of cluster a be under way."""
    lock = {"run": {"id": "R1.2.ab", "owner": owner, "purpose": "weekly"}, "deadline": time.time() + 60}
    files.change_lock("a", lambda held: (lock, ""))


def holder(cluster: str = "a") -> str:
    """Return the roll that has a cluster, or ""."""
    held = files.locks(files.RESERVATIONS).get(cluster)
    return held["run"]["id"] if held else ""


def test_R7_all_of_the_clusters_are_reserved_or_none() -> None:
    assert cluster_lock.reserve(given("R1", "b"), True)["refused"] == {}
    found = cluster_lock.reserve(given("R2", "a", "b", "c"), True)
    assert list(found["refused"]) == ["b"]
    assert (found["changed"], holder("a"), holder("b"), holder("c")) == (False, "", "R1", "")


def test_R7_a_reservation_tells_the_generation_that_was_announced_last() -> None:
    assert cluster_lock.reserve(given("R1"), True)["announced"] == {"a": 4}
    files.write_ledger(_ledger.announce(files.ledger(UNIT), 5, {"id": "other"}))
    assert cluster_lock.reserve(given("R1"), True)["announced"] == {"a": 5}


def test_R7_a_roll_whose_reservation_was_taken_over_meets_a_fence() -> None:
    cluster_lock.reserve(given("R1"), True)
    assert _ledger.fenced_off_by(files.ledger(UNIT), 5, "R1.2.ab") is None
    found = cluster_lock.reserve(given("R2", reason="R1 is dead"), True)
    assert (found["refused"], found["announced"], holder()) == ({}, {"a": 4}, "R2")
    # Planned before that, and about to begin.
    assert _ledger.fenced_off_by(files.ledger(UNIT), 5, "R1.2.ab")["id"] == "R2"


def test_R7_a_cluster_amid_its_co_restart_is_not_taken_over() -> None:
    cluster_lock.reserve(given("R1"), True)
    co_restart("owner of R1")
    found = cluster_lock.reserve(given("R2", reason="I want it"), True)
    assert "is being co-restarted" in found["refused"]["a"]
    assert holder() == "R1", "it is at work"
    # That of a process that the controller knows to be gone is.
    assert cluster_lock.reserve(given("R2", gone=["owner of R1"]), True)["refused"] == {}
    assert holder() == "R2"


def test_R6_what_a_dead_process_of_this_controller_reserved_is_had_at_once() -> None:
    cluster_lock.reserve(given("R1"), True)
    assert cluster_lock.reserve(given("R2", gone=["somebody else"]), True)["refused"] != {}
    assert cluster_lock.reserve(given("R2", gone=["owner of R1"]), True)["refused"] == {}


def test_a_roll_that_is_resumed_has_its_clusters_still() -> None:
    for _ in range(2):
        assert cluster_lock.reserve(given("R1"), True)["refused"] == {}
    assert cluster_lock.renew(given("R1"), True)["refused"] == {}


def test_a_reservation_that_ran_out_is_anybodys() -> None:
    cluster_lock.reserve(given("R1", lease_seconds=-1.0), True)
    found = cluster_lock.reserve(given("R2"), True)
    assert "taken over: its deadline passed" in found["messages"][0]
    assert cluster_lock.renew(given("R1"), True)["refused"] == {"a": "owner of R2 (weekly, run R2)"}


def test_renewing_moves_the_deadline_and_never_reserves_anew() -> None:
    cluster_lock.reserve(given("R1"), True)
    before = files.locks(files.RESERVATIONS)["a"]["deadline"]
    cluster_lock.renew(given("R1", lease_seconds=600.0), True)
    assert files.locks(files.RESERVATIONS)["a"]["deadline"] > before + 500
    cluster_lock.release(given("R1"), True)
    assert "unlocked by force" in cluster_lock.renew(given("R1"), True)["refused"]["a"]
    assert holder() == ""


def test_nobody_releases_what_another_roll_has() -> None:
    cluster_lock.reserve(given("R1"), True)
    assert cluster_lock.release(given("R2"), True)["changed"] is False
    assert holder() == "R1"


def test_a_roll_that_ends_takes_the_locks_of_its_dead_processes_along() -> None:
    co_restart("owner of R1")
    assert cluster_lock.release(given("R17"), True)["changed"] is False
    assert cluster_lock.release(given("R1"), True)["changed"] is True
    assert files.locks() == {}


def test_force_takes_lock_and_reservation_whoever_has_them() -> None:
    cluster_lock.reserve(given("R1"), True)
    co_restart("dev@desk")
    found = cluster_lock.unlock(given("R2", reason="runner 17 is gone"), True)
    assert "dev@desk (weekly, run R1.2.ab) and of owner of R1 (weekly, run R1)" in found["messages"][0]
    assert (holder(), files.locks()) == ("", {})
    assert files.ledger(UNIT)["unlocks"][-1]["reason"] == "runner 17 is gone"
    assert cluster_lock.unlock(given("R2", reason="again"), True)["changed"] is False


def test_check_mode_changes_nothing() -> None:
    assert cluster_lock.reserve(given("R1"), False)["changed"]
    assert holder() == ""
    cluster_lock.reserve(given("R1"), True)
    for do in (cluster_lock.release, cluster_lock.unlock):
        assert do(given("R1", reason="why"), False)["changed"] is True
        assert holder() == "R1"
