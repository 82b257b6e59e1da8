# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Latencies: numbers, histogram, baselines and regressions."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _baseline, _latency
from hypothesis import given
from hypothesis import strategies as st

#: The founding proof without its cold first answer.
FOUNDING = [0.595, 0.585, 0.592, 0.588, 0.577, 0.591, 0.591]


def test_the_founding_proof_in_numbers() -> None:
    numbers = _latency.summary(FOUNDING)
    assert numbers == {"count": 7, "minimum": 0.577, "median": 0.591, "p95": 0.595, "maximum": 0.595}
    assert _latency.describe(numbers) == "median 0.591 s, p95 0.595 s, max 0.595 s"


def test_no_latency_is_no_number() -> None:
    assert _latency.summary([])["median"] is None
    assert (_latency.histogram([]), _latency.picture([])) == ([], "")
    assert _latency.describe(_latency.summary([])) == "no latency"


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=200))
def test_every_latency_is_in_one_bucket_and_the_numbers_are_in_order(seconds: list[float]) -> None:
    numbers = _latency.summary(seconds)
    assert numbers["minimum"] <= numbers["median"] <= numbers["maximum"]
    assert numbers["minimum"] <= numbers["p95"] <= numbers["maximum"]
    buckets = _latency.histogram(seconds)
    assert sum(bucket["count"] for bucket in buckets) == len(seconds)
    assert [bar == " " for bar in _latency.picture(seconds)] == [bucket["count"] == 0 for bucket in buckets]


def parts(*seconds: float, name: str = "sequential 8 x 24 tokens") -> dict[str, dict[str, Any]]:
    return {name: _latency.summary(list(seconds))}


def compare(store: dict[str, Any], revision: str, now: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return _baseline.compare(store, revision, now, 1.5, 0.25)


def test_a_revision_is_told_by_what_every_member_runs() -> None:
    members = [{"host": host, "unit": "u", "configuration": host} for host in ("a", "b")]
    assert _baseline.revision_of(members) == _baseline.revision_of(reversed(members))
    assert _baseline.revision_of(members) != _baseline.revision_of([members[0], dict(members[1], configuration="x")])


def test_a_regression_is_reported_with_its_numbers() -> None:
    store = _baseline.update({}, "r1", parts(*FOUNDING), 100, False)
    (row,) = compare(store, "r1", parts(*[2 * value for value in FOUNDING]))
    assert row["regression"] and row["same_revision"]
    assert _baseline.describe(row) == (
        "sequential 8 x 24 tokens: REGRESSION against this revision: median 1.182 s, was 0.591 s, "
        "p95 1.190 s, was 0.595 s"
    )


def test_a_short_latency_that_doubles_is_no_regression() -> None:
    store = _baseline.update({}, "r1", parts(0.02, 0.03), 100, False)
    (row,) = compare(store, "r1", parts(0.04, 0.06))
    assert not row["regression"]
    assert "no regression against this revision: median 0.050 s (was 0.025 s)" in _baseline.describe(row)


def test_a_new_revision_is_compared_with_the_newest_other_one() -> None:
    store = _baseline.update({}, "old", parts(9, 9), 100, False)
    store = _baseline.update(store, "newer", parts(1, 1), 200, False)
    (row,) = compare(store, "now", parts(2, 2))
    assert (row["against"], row["same_revision"], row["regression"]) == ("newer", False, True)


def test_another_shape_is_not_compared() -> None:
    store = _baseline.update({}, "r1", parts(1, 1, name="concurrent 30 at a time"), 100, False)
    assert compare(store, "r1", parts(9, 9, name="concurrent 1000 at a time")) == []


def test_the_first_good_verification_stays_the_baseline_until_renewed() -> None:
    store = _baseline.update({}, "r1", parts(1, 1), 100, False)
    assert _baseline.update(store, "r1", parts(2, 2), 200, False) == store
    added = _baseline.update(store, "r1", parts(3, 3, name="pairs"), 200, False)
    assert set(added["revisions"]["r1"]["parts"]) == {"pairs", "sequential 8 x 24 tokens"}
    assert _baseline.stored_part(_baseline.update(added, "r1", parts(2, 2), 300, True), "r1", "pairs")
    renewed = _baseline.update(store, "r1", parts(2, 2), 300, True)
    assert renewed["revisions"]["r1"]["stored_at"] == 300
    assert _baseline.stored_part(renewed, "r1", "sequential 8 x 24 tokens")["median"] == 2  # type: ignore[index]


def test_old_revisions_are_dropped() -> None:
    store: dict[str, Any] = {}
    for number in range(30):
        store = _baseline.update(store, f"r{number}", parts(1), number, False)
    assert sorted(store["revisions"], key=lambda one: int(one[1:])) == [f"r{number}" for number in range(10, 30)]


def test_one_slow_answer_is_told_against_the_slowest_of_the_baseline() -> None:
    then = _latency.summary(FOUNDING)
    assert not _baseline.slow(0.8, then, 1.5, 0.25)
    assert _baseline.slow(1.2, then, 1.5, 0.25)
    assert not _baseline.slow(99, None, 1.5, 0.25)
