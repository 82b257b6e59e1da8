# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host remembers of a unit."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger

ONE = {"id": "one", "owner": "o1", "purpose": "p"}
TWO = {"id": "two", "owner": "o2", "purpose": "p"}


def begun(generation: int = 1, run: dict[str, Any] | None = None) -> dict[str, Any]:
    return _ledger.begin(_ledger.empty("u"), generation, run or ONE, "", "i0", 10.0)


@pytest.mark.parametrize(
    ("generation", "run", "successor"),
    [(3, "one", None), (2, "two", None), (2, "one", "two"), (1, "one", "two"), (1, "two", "two")],
)
def test_R7_a_run_meets_the_fence_of_its_successor(generation: int, run: str, successor: str | None) -> None:
    ledger = _ledger.announce(_ledger.empty("u"), 2, TWO)
    found = _ledger.fenced_off_by(ledger, generation, run)
    assert (found and found["id"]) == successor


def test_a_unit_without_a_fence_stops_nobody() -> None:
    assert _ledger.fenced_off_by(_ledger.empty("u"), 1, "one") is None


def test_R6_beginning_again_in_the_same_run_forgets_nothing() -> None:
    further = _ledger.advance(begun(), _ledger.STARTED, incarnation="i1")
    assert _ledger.begin(further, 1, ONE, "", "i1", 20.0) == further


def test_a_new_generation_keeps_the_old_one_in_its_history() -> None:
    old = _ledger.end(_ledger.advance(begun(), _ledger.HEALTHY, incarnation="i1"), _ledger.OK, "", 30.0)
    new = _ledger.begin(old, 2, TWO, "why", "i1", 40.0)
    assert (new["generation"], new["phase"], new["outcome"], new["override"]) == (2, _ledger.STOPPING, "", "why")
    assert [past["incarnation"] for past in new["history"]] == ["i1"]
    for generation in range(3, 60):
        new = _ledger.begin(new, generation, TWO, "", "i", 50.0)
    assert len(new["history"]) == _ledger.HISTORY_LENGTH


def test_an_adopted_member_keeps_its_incarnation_and_its_beginning() -> None:
    old = _ledger.end(_ledger.advance(begun(), _ledger.HEALTHY, incarnation="i1"), _ledger.OK, "", 30.0)
    new = _ledger.adopt(old, 2, TWO)
    assert (new["generation"], new["run"], new["outcome"]) == (2, TWO, "")
    assert (new["incarnation"], new["phase"], new["began_at"]) == ("i1", _ledger.HEALTHY, 10.0)


def test_a_router_that_gave_up_its_workers_stays_marked_through_later_runs() -> None:
    closed = _ledger.close(_ledger.announce(_ledger.empty("u"), 1, ONE), "i1")
    assert _ledger.announce(closed, 2, TWO)["fence"]["closed"] == "i1"
