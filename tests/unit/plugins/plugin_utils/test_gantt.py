# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the bars of a roll are, whatever its events say."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import gantt, roll_account
from hypothesis import given, settings
from hypothesis import strategies as st

from .. import rolled
from ..rolls import MADE_AT, Story, plan_of


def picture(plan: dict[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    return gantt.gantt(roll_account.account(plan, events))


def row_of(drawn: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [row for row in drawn["rows"] if row["name"] == name]
    return dict(row)


def test_a_row_has_its_stages_one_after_the_other_and_then_the_soak() -> None:
    drawn = picture(*rolled.fleet(3, size=2))
    bars = row_of(drawn, "c2")["bars"]
    assert [bar["kind"] for bar in bars] == ["drain", "prefill", "decode", "router", "proof", "soak"]
    for bar, following in zip(bars, bars[1:]):
        assert bar["left"] < following["left"] and bar["left"] + bar["width"] <= following["left"] + 0.5
    assert drawn["kinds"] == [bar["kind"] for bar in bars]
    assert row_of(drawn, "c2")["note"] == "✓ done, down 1 min 28 s"


def test_a_soak_is_drawn_for_who_had_one_and_marked_for_who_failed_it() -> None:
    story = rolled.Story(rolled.plan([["a", "b", "c"]]))
    story.begin()
    story.wave(1, {"c": "failed"}, soak="failed")
    story.end("failed", "the failure budget is spent")
    drawn = picture(story.plan, story.events)
    soaks = {row["name"]: [bar["failed"] for bar in row["bars"] if bar["kind"] == "soak"] for row in drawn["rows"]}
    assert soaks == {"a": [True], "b": [False], "c": []}


def test_a_second_is_as_wide_in_one_wave_as_in_another() -> None:
    drawn = picture(*rolled.fleet(3, size=2))
    widths = [row_of(drawn, name)["bars"][1]["width"] for name in ("c1", "c2", "c3")]
    assert max(widths) - min(widths) <= 0.02


def test_downtime_is_from_the_first_close_to_the_last_router() -> None:
    row = row_of(picture(*rolled.fleet(1)), "c1")
    (down,) = row["downs"]
    router = row["bars"][3]
    assert down["left"] == row["bars"][0]["left"]
    assert down["right"] == pytest.approx(router["left"] + router["width"], abs=0.05)
    assert not down["open"] and down["words"] == "without service 1 min 28 s"


def test_a_cluster_that_failed_is_marked_where_it_failed_and_down_from_then_on() -> None:
    drawn = picture(*rolled.fleet(2, {"c2": "failed"}))
    row = row_of(drawn, "c2")
    assert [bar["kind"] for bar in row["bars"] if bar["failed"]] == ["decode"]
    assert row["downs"][0]["open"] and (row["look"], row["note"][:8]) == ("bad", "✗ failed")
    assert drawn["failed"] and drawn["still"] and not drawn["again"]
    assert [wave["look"] for wave in drawn["waves"]] == ["quiet", "bad"]


@pytest.mark.parametrize("outcome", ["widened", "rolled_back"])
def test_a_second_attempt_has_a_number_where_it_begins(outcome: str) -> None:
    drawn = picture(*rolled.fleet(1, {"c1": outcome}))
    row = row_of(drawn, "c1")
    (attempt,) = row["attempts"]
    kinds = [bar["kind"] for bar in row["bars"]]
    again = len(kinds) - 1 - kinds[::-1].index("drain")
    assert attempt["number"] == 2 and attempt["left"] <= row["bars"][again]["left"]
    assert attempt["left"] >= row["bars"][again - 1]["left"]
    assert drawn["again"] and ("whole chain" if outcome == "widened" else "rollback") in attempt["words"]


def test_rows_are_below_their_wave_and_within_the_picture() -> None:
    drawn = picture(*rolled.fleet(9, size=4))
    places = sorted(
        [(wave["y"], wave["short"]) for wave in drawn["waves"]] + [(r["y"], r["name"]) for r in drawn["rows"]]
    )
    assert [name for _y, name in places] == [
        "wave 1, canary: 1 done",
        "c1",
        "wave 2, batch: 4 done",
        "c2",
        "c3",
        "c4",
        "c5",
        "wave 3, batch: 4 done",
        "c6",
        "c7",
        "c8",
        "c9",
    ]
    assert places[-1][0] + gantt.ROW <= drawn["height"]
    for wave in drawn["waves"]:
        assert 0 <= wave["band"]["left"] <= wave["band"]["left"] + wave["band"]["width"] <= 100.3


def test_a_night_between_two_runs_is_a_mark_not_most_of_the_picture() -> None:
    of, events = rolled.resumed()
    drawn = picture(of, events)
    (gap,) = drawn["breaks"]
    assert gap["words"] == "55 min 55 s without any work"
    assert row_of(drawn, "c3")["bars"][1]["width"] > 5
    texts = [wave["short"] for wave in drawn["waves"]]
    assert texts[0] == "run 1, wave 1, canary: 1 done" and "run 1, wave 2, batch: taken up again" in texts


def test_the_axis_has_few_moments_that_do_not_meet() -> None:
    for count, size in ((1, 1), (3, 2), (40, 4)):
        axis = picture(*rolled.fleet(count, size=size))["axis"]
        places = [one["left"] for one in axis]
        assert places[0] == 0 and len(places) >= 2
        assert all(after - before >= 15 for before, after in zip(places, places[1:])) and places[-1] <= 93


def test_the_axis_tells_the_day_where_there_are_several() -> None:
    words = [one["words"] for one in picture(*rolled.fleet(1000, size=1))["axis"]]
    assert words[0] == "30 Nov 00:53" and "01 Dec 00:00" in words


def test_a_large_fleet_has_rows_for_waves_and_for_what_went_wrong() -> None:
    outcomes = {"c0077": "failed", "c0078": "failed", "c0500": "rolled_back", "c0600": "widened"}
    drawn = picture(*rolled.fleet(1000, outcomes, size=25, budget=9))
    assert [row["name"] for row in drawn["rows"]] == ["c0077", "c0078", "c0500"]
    assert len(drawn["waves"]) <= 3 * gantt.WAVE_ROWS and drawn["height"] < 3000
    texts = [wave["words"] for wave in drawn["waves"]]
    assert "wave 5, batch: 2 failed, 23 done" in texts
    assert sum(int(text.rsplit(" ", 2)[1]) for text in texts if text.endswith(" done")) == 997
    (wave,) = [wave for wave in drawn["waves"] if wave["words"].startswith("wave 5,")]
    assert wave["curve"]["words"] == "25 clusters without service at a time at most, 2 still"
    assert wave["curve"]["points"]


def test_a_large_fleet_that_fails_as_a_whole_has_a_bound() -> None:
    outcomes = dict.fromkeys(rolled.names(1000), "failed")
    drawn = picture(*rolled.fleet(1000, outcomes, size=2, budget=2000))
    assert len(drawn["rows"]) == gantt.BAD_ROWS and drawn["rest"] == 1000 - gantt.BAD_ROWS
    assert len(drawn["waves"]) <= gantt.WAVE_ROWS + 1


def test_where_nothing_happened_there_is_nothing_to_draw() -> None:
    for plan in (rolled.refused(), rolled.plan([["a"]]), {}):
        drawn = picture(plan, [])
        assert (drawn["waves"], drawn["rows"], drawn["axis"]) == ([], [], [])


def test_names_are_as_long_as_a_phone_has_room_for() -> None:
    name = "a" * 90
    drawn = picture(*rolled.fleet(1))
    assert drawn["rows"][0]["name"] == "c1"
    story = Story().begin().wave(1, name).walk(1, name).end_cluster(1, name).end()
    (row,) = picture(plan_of([name]), story.events)["rows"]
    assert len(row["name"]) == gantt.NAME and row["words"].startswith(name)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["roll_began", "wave_began", "step_began", "step_ended", "soak_began", "soak_ended", "cluster_ended"]
        ),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["close", "start_prefill", "start_decode", "restart_router", "requests", "unlock"]),
        st.sampled_from(["ok", "failed", "skipped"]),
        st.sampled_from([0.0, 0.3, 7.0, 400.0, 90_000.0, 1e9, 1e300, -1e12]),
    ),
    max_size=30,
)


def test_a_step_that_began_at_the_last_moment_is_seen() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "close")
    (bar,) = row_of(picture(plan_of(["a"]), story.events), "a")["bars"]
    assert bar["width"] > 0 and bar["left"] + bar["width"] <= 100


@settings(deadline=None, max_examples=60)
@given(EVENTS)
def test_whatever_was_written_down_is_drawn_within_the_picture(told: list[tuple[str, str, str, str, float]]) -> None:
    at, events = MADE_AT, []
    for event, cluster, step, outcome, seconds in told:
        at += seconds
        about = {"wave": 1, "kind": "batch", "clusters": ["a", "b"], "cluster": cluster, "host": "h", "step": step}
        about.update(seconds=60, outcome="done" if event == "cluster_ended" else outcome)
        events.append({"at": at, "roll": "r", "event": event, **about})
    drawn = picture(plan_of(["a", "b"]), events)
    for row in drawn["rows"]:
        assert 0 < row["y"] < drawn["height"]
        for bar in row["bars"]:
            assert bar["left"] >= 0 and bar["left"] + bar["width"] <= 100.01 and bar["width"] > 0
        for down in row["downs"]:
            assert 0 <= down["left"] <= down["right"] <= 100
    assert all(0 <= one["left"] <= 100 for one in (*drawn["axis"], *drawn["breaks"]))
