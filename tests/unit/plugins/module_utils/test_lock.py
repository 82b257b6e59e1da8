# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may co-restart a cluster."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _lock

WANTED: dict[str, Any] = {"run": {"id": "2", "owner": "b", "purpose": "roll"}, "generation": 5, "lease_seconds": 120}


def held(deadline: float) -> dict[str, Any]:
    run = {"id": "1", "owner": "ops@ci pid 7", "purpose": "nightly"}
    return {"run": run, "generation": 4, "since": 10.0, "deadline": deadline, "taken_over_from": None}


def test_a_free_lock_is_granted_for_its_lease() -> None:
    lock, message = _lock.acquire(None, WANTED, 100.0, "")
    assert lock is not None
    assert (lock["deadline"], lock["generation"], message) == (220.0, 5, "")


def test_R7_a_held_lock_is_refused_and_its_holder_named() -> None:
    lock, message = _lock.acquire(held(160.0), WANTED, 100.0, "")
    assert lock is None
    assert message == "ops@ci pid 7 (nightly, run 1), since 90 s, for at most 60 s more"


def test_R7_a_lock_past_its_deadline_is_taken_over_with_a_message() -> None:
    lock, message = _lock.acquire(held(90.0), WANTED, 100.0, "")
    assert lock is not None
    assert lock["taken_over_from"]["id"] == "1"
    assert message == "lock of ops@ci pid 7 (nightly, run 1) taken over: its deadline passed 10 s ago"


def test_a_reason_takes_a_lock_over() -> None:
    lock, message = _lock.acquire(held(160.0), WANTED, 100.0, "burnt down")
    assert lock is not None
    assert message.endswith("taken over: burnt down")


def test_ones_own_lock_is_granted_again() -> None:
    assert _lock.acquire(dict(held(160.0), run=WANTED["run"]), WANTED, 100.0, "")[0] is not None
