# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations of rolls, on the files of one host."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files
from ansible_collections.inferops.sglang_pd.plugins.modules import cluster_lock

WEEKLY = {"id": "r1", "owner": "ops@ci pid 7", "purpose": "weekly"}
OTHER = {"id": "r2", "owner": "dev@desk pid 8", "purpose": "by hand"}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep locks and reservations in a folder of the test."""
    monkeypatch.setattr(files, "LOCKS", str(tmp_path / "lock"))
    monkeypatch.setattr(files, "RESERVATIONS", str(tmp_path / "roll"))
    monkeypatch.setattr(files, "MEMBERS", str(tmp_path / "members"))
    return tmp_path


def ask(run: dict[str, str], *clusters: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of the module."""
    return {"clusters": list(clusters), "run": run, "lease_seconds": 60.0, "reason": "", **more}


def reserved() -> dict[str, str]:
    """Return whose the reservations are."""
    return {name: held["run"]["id"] for name, held in files.locks(files.RESERVATIONS).items()}


def test_R7_a_roll_gets_all_clusters_of_a_host_or_none() -> None:
    assert cluster_lock.reserve(ask(WEEKLY, "b"), True)["refused"] == {}
    given = cluster_lock.reserve(ask(OTHER, "a", "b"), True)
    assert "ops@ci pid 7 (weekly, run r1)" in given["refused"]["b"]
    assert (given["changed"], reserved()) == (False, {"b": "r1"})


def test_a_roll_that_is_resumed_has_its_clusters_still() -> None:
    for _ in range(2):
        assert cluster_lock.reserve(ask(WEEKLY, "a"), True)["refused"] == {}
    assert cluster_lock.renew(ask(WEEKLY, "a"), True)["refused"] == {}


def test_a_reservation_that_ran_out_is_anybodys(folder: Path) -> None:
    cluster_lock.reserve(ask(WEEKLY, "a", lease_seconds=-1.0), True)
    given = cluster_lock.reserve(ask(OTHER, "a"), True)
    assert "taken over: its deadline passed" in given["messages"][0]
    assert cluster_lock.renew(ask(WEEKLY, "a"), True)["refused"] == {"a": "dev@desk pid 8 (by hand, run r2)"}


def test_renewing_moves_the_deadline_and_never_reserves_anew() -> None:
    cluster_lock.reserve(ask(WEEKLY, "a"), True)
    before = files.locks(files.RESERVATIONS)["a"]["deadline"]
    cluster_lock.renew(ask(WEEKLY, "a", lease_seconds=600.0), True)
    assert files.locks(files.RESERVATIONS)["a"]["deadline"] > before + 500
    cluster_lock.release(ask(WEEKLY, "a"), True)
    assert "unlocked by force" in cluster_lock.renew(ask(WEEKLY, "a"), True)["refused"]["a"]
    assert reserved() == {}


def test_nobody_releases_what_another_roll_has() -> None:
    cluster_lock.reserve(ask(WEEKLY, "a"), True)
    assert cluster_lock.release(ask(OTHER, "a"), True)["changed"] is False
    assert reserved() == {"a": "r1"}


def test_a_roll_that_ends_takes_the_locks_of_its_dead_processes_along(folder: Path) -> None:
    (folder / "lock").mkdir()
    for cluster, run in (("a", "r1.2.ab"), ("b", "r17.2.ab")):
        lock = {"run": dict(WEEKLY, id=run), "generation": 3, "since": 1.0, "deadline": 2.0}
        (folder / "lock" / f"{cluster}.json").write_text(json.dumps(lock))
    assert cluster_lock.release(ask(WEEKLY, "a", "b"), True)["changed"] is True
    assert set(files.locks(files.LOCKS)) == {"b"}


def test_force_takes_lock_and_reservation_whoever_has_them(folder: Path) -> None:
    cluster_lock.reserve(ask(WEEKLY, "a"), True)
    lock = {"run": OTHER, "generation": 3, "since": time.time(), "deadline": time.time() + 60}
    (folder / "lock").mkdir()
    (folder / "lock" / "a.json").write_text(json.dumps(lock))
    given = cluster_lock.unlock(ask(OTHER, "a", reason="runner 17 is gone"), True)
    assert "dev@desk pid 8 (by hand, run r2) and of ops@ci pid 7 (weekly, run r1)" in given["messages"][0]
    assert (reserved(), files.locks(files.LOCKS)) == ({}, {})
    assert cluster_lock.unlock(ask(OTHER, "a", reason="again"), True)["changed"] is False


def test_check_mode_changes_nothing() -> None:
    assert cluster_lock.reserve(ask(WEEKLY, "a"), False)["changed"] is True
    assert reserved() == {}
    cluster_lock.reserve(ask(WEEKLY, "a"), True)
    for do in (cluster_lock.release, cluster_lock.unlock):
        assert do(ask(WEEKLY, "a", reason="why"), False)["changed"] is True
        assert reserved() == {"a": "r1"}
