# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things are in the pictures of a report, also for samples that no engine should give."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _latency
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import pictures
from hypothesis import given, settings
from hypothesis import strategies as st

from ..verification import sample

NOW = 1_796_000_000.0


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def unit(role: str, *ages: float, ends: tuple[float, ...] = (), runs: bool = True) -> dict[str, Any]:
    return {
        "name": role,
        "role": role,
        "runs": runs,
        "started_at": NOW - ages[-1],
        "starts": [NOW - age for age in ages],
        "ends": [{"at": NOW - age, "how": "signal 9"} for age in ends],
    }


# -- numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (17, "17"),
        (52.36, "52.4"),
        (1164.2, "1164"),
        (12345, "12.3 k"),
        (2.5e6, "2.5 M"),
        (3e12, "3 T"),
        (1e20, "1e+20"),
        (math.inf, "1e+30"),
        (math.nan, "0"),
        (-5, "0"),
        (None, "0"),
        ("17", "0"),
        (True, "0"),
    ],
)
def test_numbers_are_short(value: Any, text: str) -> None:
    assert pictures.number(value) == text


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (1, 1), (1.5, 2), (17, 20), (23, 50), (50, 50), (99, 100), (1e30, 1e30)]
)
def test_an_axis_ends_at_a_round_number(most: float, top: float) -> None:
    assert pictures.top_of(most) == pytest.approx(top)


def test_seconds_are_as_exact_as_they_are_short() -> None:
    assert [pictures.seconds(value) for value in (None, 0.5912, 35.04, 1e9)] == ["", "0.591 s", "35.0 s", "1 G s"]


# -- curves ----------------------------------------------------------------------------------


def test_no_sample_is_no_curve() -> None:
    picture = pictures.curves([], 0, 0)
    assert (picture["held"], picture["gauges"], picture["gaps"], picture["throughput"]["lines"]) == ([], [], [], [])
    assert picture["words"] == "no sample was taken"


def test_one_sample_is_wide_enough_to_see() -> None:
    picture = pictures.curves([sample(7, running=8)], 7, 7)
    xs = [x for x, _y in points(picture["held"][0]["areas"][0])]
    assert max(xs) - min(xs) == pictures.ONE_SAMPLE
    assert picture["words"] == "1 sample, 8 requests held at most"


def test_what_is_held_is_stacked_and_named_only_where_it_was_not_always_0() -> None:
    picture = pictures.curves([sample(0), sample(10, running=3, prefill_inflight=2)], 0, 10)
    assert [(layer["words"], layer["most"]) for layer in picture["held"]] == [
        ("running", "3"),
        ("prefill inflight", "2"),
    ]
    assert picture["held_top"] == "5"
    running, inflight = (points(layer["areas"][0]) for layer in picture["held"])
    assert (1000.0, 40.0) in running and (1000.0, 100.0) in running
    assert (1000.0, 0.0) in inflight and (1000.0, 40.0) in inflight


def test_a_sample_that_could_not_be_read_is_a_gap_and_no_0() -> None:
    samples = [sample(0, running=1), sample(1, running=1), {"at": 2, "trouble": "refused"}, sample(3, running=1)]
    picture = pictures.curves(samples, 0, 3)
    first, second = (points(area) for area in picture["held"][0]["areas"])
    assert max(x for x, _y in first) < 667 < min(x for x, _y in second)
    assert [(round(gap["left"]), gap["why"]) for gap in picture["gaps"]] == [(67, "refused")]
    assert picture["words"] == "4 samples, 1 not readable, 1 requests held at most"


def test_H2_gauges_are_drawn_where_the_live_source_tells_otherwise() -> None:
    stale = {"prefill_inflight": 1}
    assert pictures.curves([sample(0, gauges=stale), sample(1, gauges=stale)], 0, 1)["gauges"] == ["0,0 1000,0"]
    same = sample(0, prefill_inflight=1, gauges=stale)
    assert pictures.curves([same, dict(same, at=1)], 0, 1)["gauges"] == []
    assert "may be stale" in pictures.curves([sample(0, live=False)], 0, 0)["words"]


_ANYTHING = st.one_of(st.floats(), st.integers(), st.sampled_from([None, True, "17", ""]))


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"at": st.floats(0, 1e6), "live": st.booleans()},
            optional={
                **dict.fromkeys((*pictures.HELD, "throughput"), _ANYTHING),
                "trouble": st.sampled_from(["", "refused"]),
            },
        ),
        max_size=6,
    )
)
def test_whatever_was_sampled_is_drawn_within_the_picture(samples: list[dict[str, Any]]) -> None:
    samples.sort(key=lambda one: one["at"])
    moments = [one["at"] for one in samples] or [0.0]
    picture = pictures.curves(samples, moments[0], moments[-1])
    lines = [area for layer in picture["held"] for area in layer["areas"]]
    for x, y in [
        place for line in lines + picture["gauges"] + picture["throughput"]["lines"] for place in points(line)
    ]:
        assert 0 <= x <= pictures.BOX[0] and 0 <= y <= pictures.BOX[1]
    assert all(0 <= gap["left"] <= 99 for gap in picture["gaps"])


# -- incarnations ----------------------------------------------------------------------------


def test_members_are_numbered_in_the_order_of_their_starts() -> None:
    picture = pictures.timeline([unit("prefill", 61200), unit("decode", 3600), unit("router", 61110)], NOW)
    assert [(row["name"], row["rank"], row["age"]) for row in picture["rows"]] == [
        ("prefill", 1, "17 h"),
        ("decode", 3, "1 h"),
        ("router", 2, "17 h"),
    ]
    prefill, decode, router = (row["at"] for row in picture["rows"])
    assert picture["last_prefill"] == prefill < router < decode
    # 90 s show beside 17 h.
    assert router - prefill > 10


def test_earlier_incarnations_and_how_they_ended_are_drawn() -> None:
    (row,) = pictures.timeline([unit("decode", 7200, 3600, ends=(5000,))], NOW)["rows"]
    past, current = row["bars"]
    assert (past["kind"], current["kind"]) == ("past", "current")
    assert past["left"] + past["width"] < current["left"] == row["at"]
    assert row["ends"] == [{"left": pytest.approx(past["left"] + past["width"], abs=0.01), "words": past["words"]}]
    assert past["words"] == "started 2 h ago, ended by itself (signal 9) 1 h ago"


def test_a_unit_that_does_not_run_is_told_apart() -> None:
    (row,) = pictures.timeline([unit("decode", 600, ends=(300,), runs=False)], NOW)["rows"]
    assert [bar["kind"] for bar in row["bars"]] == ["ended"] and len(row["ends"]) == 1


def test_a_crash_loop_is_drawn_by_its_last_starts() -> None:
    (row,) = pictures.timeline([unit("decode", *range(40_000, 0, -20))], NOW)["rows"]
    assert len(row["bars"]) == pictures.STARTS_DRAWN


def test_no_start_that_is_known_is_no_picture() -> None:
    unknown = dict(unit("decode", 1), started_at=None)
    assert pictures.timeline([unknown], NOW) == {"rows": [], "last_prefill": None}
    assert pictures.timeline([], NOW)["rows"] == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["prefill", "decode"]), st.floats(-100, 1e12)), min_size=1, max_size=5))
def test_whenever_members_were_started_they_are_within_the_picture(members: list[tuple[str, float]]) -> None:
    # A clock ahead of the controller's gives an age below 0.
    for row in pictures.timeline([unit(role, age) for role, age in members], NOW)["rows"]:
        for bar in row["bars"]:
            assert bar["left"] >= 0 and bar["left"] + bar["width"] <= 100


# -- latencies -------------------------------------------------------------------------------


def test_no_latency_is_no_bar() -> None:
    assert pictures.histogram([], {"median": None})["bars"] == []
    assert pictures.steps([])["bars"] == [] and pictures.steps([("1 s", 0)])["bars"] == []


def test_latencies_that_are_all_the_same_are_one_bar() -> None:
    picture = pictures.histogram(_latency.histogram([0.5] * 3), {"median": 0.5})
    assert [(bar["height"], bar["words"]) for bar in picture["bars"]] == [(100.0, "0.500 s to 0.500 s: 3")]
    assert (picture["first"], picture["last"], picture["top"]) == ("0.500 s", "", "3 answers")


def test_a_median_outside_of_the_latencies_is_on_the_picture() -> None:
    picture = pictures.histogram(_latency.histogram([1.0, 2.0]), {"median": 1.5, "median before": 0.5})
    assert [(mark["name"], mark["left"]) for mark in picture["marks"]] == [
        ("median", pytest.approx(66.3, abs=0.1)),
        ("median before", 1.0),
    ]
    assert (picture["first"], picture["last"]) == ("0.500 s", "2.000 s")


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 1e9))
def test_whatever_latencies_are_their_bars_are_within_the_picture(seconds: list[float], median: float) -> None:
    picture = pictures.histogram(_latency.histogram(seconds), {"median": median})
    for bar in picture["bars"]:
        assert 0 <= bar["left"] <= 100 and 0 < bar["height"] <= 100 and bar["left"] + bar["width"] <= 100.01
    assert all(0 <= mark["left"] <= 100 for mark in picture["marks"])


def test_buckets_of_metrics_are_steps_from_the_first_to_the_last_that_is_filled() -> None:
    picture = pictures.steps([("1 s", 0), ("5 s", 4), ("10 s", 0), ("100 s", 2), ("more", 0)])
    assert [(bar["left"], bar["height"], bar["words"]) for bar in picture["bars"]] == [
        (0.0, 100.0, "up to 5 s: 4"),
        (pytest.approx(66.67), 50.0, "up to 100 s: 2"),
    ]
    assert (picture["first"], picture["last"]) == ("up to 5 s", "up to 100 s")
