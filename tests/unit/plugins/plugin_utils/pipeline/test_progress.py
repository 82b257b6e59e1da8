# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people read of a roll."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import progress

from ...rolls import MADE_AT, ROLL, STEPS, Story, plan_of

PLAN = plan_of(["a"], ["b", "c"], skipped=("d",))


def state_of(story: Story, plan: dict[str, Any] = PLAN) -> dict[str, Any]:
    return _roll_events.state_of(plan, story.events)


def lines_of(story: Story) -> list[str]:
    narrator = progress.Narrator()
    return [line for event in story.events for line in narrator.tell(event)]


def without_times(lines: list[str]) -> list[str]:
    return [line.split(" ", 1)[1] for line in lines]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (7384, "2 h 3 min"),
        (-5, "0 s"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert progress.duration(seconds) == words


# -- lines -----------------------------------------------------------------------------------


def test_a_line_for_each_event_that_matters_with_its_time_in_utc() -> None:
    story = Story().begin(waves=2, clusters=3).wave(1, "a", kind="canary").walk(1, "a")
    story.tell("soak_began", wave=1, clusters=["a"], seconds=60)
    story.tell("soak_ended", wave=1, clusters=["a"], outcome="ok", message="")
    story.end_cluster(1, "a").tell("wave_ended", wave=1, failed=[]).end()
    lines = lines_of(story)
    assert lines[0].startswith("2026-11-30T00:53:20Z roll ")
    assert without_times(lines) == [
        f"roll {ROLL} began: 3 clusters in 2 waves (weekly roll)",
        "wave 1 of 2 began (canary): a",
        "a: drain",
        "a: prefill",
        "a: decode",
        "a: router",
        "a: proof",
        "wave 1: soak of a for 1 min",
        "a: done",
        "wave 1 ended",
        f"roll {ROLL} ended: done",
    ]


def test_waiting_is_told_every_half_minute_and_not_more_often() -> None:
    story = Story().begin_step(1, "a", "start_prefill")
    for _second in range(100):
        which = {"wave": 1, "cluster": "a", "host": "h-a", "step": "start_prefill"}
        story.tell("waiting", **which, message="prefill-0: loading\nmore")
    told = [line for line in lines_of(story) if "waiting for" in line]
    assert without_times(told) == ["a: prefill, waiting for prefill-0: loading"] * 3


def test_each_cluster_has_its_own_half_minute() -> None:
    story = Story()
    for _second in range(40):
        for name in ("a", "b"):
            story.tell("waiting", wave=1, cluster=name, host="h", step="drain", message="1 request")
    told = without_times([line for line in lines_of(story) if "waiting for" in line])
    assert sorted(set(told)) == ["a: drain, waiting for 1 request", "b: drain, waiting for 1 request"]
    assert len(told) == 6


def test_failures_are_told_with_their_first_line() -> None:
    story = Story().begin(waves=1).wave(1, "a").step(1, "a", "start_decode", "failed", message="never healthy\njournal")
    story.tell("hook_ended", wave=1, cluster="a", hook="on_failure", outcome="failed", message="no pager")
    story.tell("soak_ended", wave=1, clusters=["a"], outcome="failed", message="stuck")
    story.end_cluster(1, "a", "rolled_back", message="back to 6").tell("wave_ended", wave=1, failed=["a"])
    story.end("failed", "the failure budget is spent").tell("roll_interrupted", why="killed")
    assert without_times(lines_of(story))[3:] == [
        "a: step start_decode on h-a FAILED: never healthy",
        "a: hook on_failure FAILED: no pager",
        "wave 1: soak FAILED: stuck",
        "a: ROLLED BACK: back to 6",
        "wave 1 ended, FAILED: a",
        f"roll {ROLL} ended: FAILED, the failure budget is spent",
        f"roll {ROLL} INTERRUPTED: killed",
    ]


def test_events_of_tomorrow_are_passed_over() -> None:
    assert lines_of(Story().tell("coffee_ready", cluster="a")) == []


def test_many_names_are_cut() -> None:
    told = without_times(lines_of(Story().wave(1, *(f"c{number}" for number in range(40)))))
    assert told[0].endswith("c10, c11 and 28 more")


# -- the table -------------------------------------------------------------------------------


def test_header_has_the_wave_the_counts_and_the_time() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a").tell("wave_ended", wave=1, failed=[])
    story.wave(2, "b", "c")
    assert progress.header(state_of(story), MADE_AT + 125) == (
        "wave 2 of 2, 1 done, 0 failed, 2 remaining, 2 min 5 s of about 3 min 20 s"
    )


def test_a_row_for_each_cluster_of_the_wave_in_work() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a").wave(2, "b", "c")
    began = story.at
    story.begin_step(2, "b", "close").step(2, "c", "lock").begin_step(2, "b", "start_prefill")
    story.tell("waiting", wave=2, cluster="b", host="h-b", step="start_prefill", message="b-prefill: loading")
    story.end_cluster(2, "c", "failed", message="lost\nits host")
    assert progress.rows(state_of(story), began + 90) == [
        ("busy", "b", "prefill", "b-prefill: loading", "1 min 30 s"),
        ("bad", "c", "failed", "lost", "4 s"),
    ]


def test_soak_tells_how_long_it_still_takes() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").tell("soak_began", wave=1, clusters=["a"], seconds=60)
    (row,) = progress.rows(state_of(story), story.at + 19)
    assert row[:4] == ("busy", "a", "soak", "requests go on, 40 s left")


def test_where_there_is_no_room_failures_and_work_go_first() -> None:
    found = [("good", f"g{number}", "", "", "") for number in range(10)]
    found += [("bad", "x", "", "", ""), ("busy", "y", "", "", "")]
    shown, others = progress.most_rows(found, 4)
    assert [row[1] for row in shown] == ["x", "y", "g0"]
    assert others == "and 9 more: 9 done"
    assert progress.most_rows(found, 12) == (found, "")


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert progress.table([("busy", "cluster-1", "decode", "x", "3 s")]) == [
        "CLUSTER    STAGE   WAITING FOR  ELAPSED",
        "cluster-1  decode  x            3 s",
    ]


# -- the end ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standing", "asked", "began", "code"),
    [
        ("done", False, True, 0),
        ("nothing", False, False, 0),
        ("refused", False, False, 3),
        ("failed", False, True, 4),
        ("failed", True, True, 4),
        ("stopped", False, True, 5),
        ("paused", False, True, 5),
        ("interrupted", True, True, 5),
        ("interrupted", False, True, 4),
        ("interrupted", False, False, 1),
    ],
)
def test_exit_codes(standing: str, asked: bool, began: bool, code: int) -> None:
    assert progress.exit_code(standing, asked, began) == code


def words_of(story: Story, standing: str = "", plan: dict[str, Any] = PLAN) -> list[str]:
    state = state_of(story, plan)
    return progress.last_words(state, standing or state["outcome"], plan, f"sglang-pd resume {ROLL}")


def test_after_a_good_end_there_is_one_line() -> None:
    story = Story().begin()
    for wave, name in ((1, "a"), (2, "b"), (2, "c")):
        story.end_cluster(wave, name)
    story.at = MADE_AT + 240
    assert words_of(story.end()) == [f"roll {ROLL}: done, 3 of 3 clusters done in 4 min"]


def test_after_a_failure_the_cluster_the_remaining_and_the_command_are_told() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS).end_cluster(1, "a", "failed", message="no proof\nlong")
    assert words_of(story.end("failed", "the failure budget is spent", ("b", "c"))) == [
        f"roll {ROLL}: FAILED (the failure budget is spent), 0 of 3 clusters done",
        "  a: FAILED: no proof",
        "  remaining: b, c",
        f"  to go on: sglang-pd resume {ROLL} -e pd_roll_repair=true    (once mended: what may not serve goes first)",
    ]


def test_a_refusal_tells_each_problem_once_with_its_rule() -> None:
    problems = [{"rule": "all serve", "message": "cluster d does not serve", "host": "", "variable": ""}]
    plan = plan_of(decision="refused", problems=problems)
    assert words_of(Story().begin().end("refused", "cluster d does not serve"), plan=plan) == [
        f"roll {ROLL}: REFUSED, nothing was touched",
        "  cluster d does not serve [rule: all serve]",
    ]
    lines = words_of(Story().begin().end("refused", "cluster a is in roll X"), plan=PLAN)
    assert lines[1:] == ["  cluster a is in roll X"]


def test_what_was_left_in_the_middle_is_named_with_its_step() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "start_decode").tell("roll_interrupted", why="SIGTERM")
    lines = words_of(story, "interrupted")
    assert lines[0] == f"roll {ROLL}: INTERRUPTED (SIGTERM), 0 of 3 clusters done"
    assert lines[1].startswith("  a: LEFT in step start_decode; its lock and its ledgers on the hosts say")
    assert lines[2] == "  remaining: a, b, c"
    # It goes first by itself.
    assert lines[3] == f"  to go on: sglang-pd resume {ROLL}"


def test_a_pause_asks_for_no_repair() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a").end("paused", "after the canary", ("b", "c"))
    assert words_of(story) == [
        f"roll {ROLL}: paused (after the canary), 1 of 3 clusters done",
        "  remaining: b, c",
        f"  to go on: sglang-pd resume {ROLL}",
    ]


def test_status_of_a_roll_that_runs() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "drain")
    lines = progress.status_lines(state_of(story), "running", "pid 1, lives", story.at, "enough", "sglang-pd resume X")
    assert lines[:6] == [
        f"roll {ROLL} (weekly roll)",
        "owner    ops@ci pid 17",
        "began    2026-11-30T00:53:20Z",
        "process  pid 1, lives",
        "state    running",
        "cancel   asked for: enough; the wave in work is finished, no other begins",
    ]
    assert lines[-1] == "to come: b, c"


def test_status_of_a_roll_that_ended_says_how_to_go_on() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "drain")
    lines = progress.status_lines(state_of(story), "interrupted", "gone", story.at, "", "sglang-pd resume X")
    assert any("sglang-pd resume X" in line for line in lines)


def test_what_hosts_say_is_nothing_that_a_terminal_obeys() -> None:
    story = Story().begin(waves=1).wave(1, "a").end_cluster(1, "a", "failed", message="\x1b[2Jgone\x07")
    assert "\x1b" not in "".join(lines_of(story)) and "gone" in lines_of(story)[-1]
    assert "\x1b" not in "".join("".join(row) for row in progress.rows(state_of(story), story.at))
