# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a roll stands, from its events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events
from hypothesis import given, settings
from hypothesis import strategies as st

from ..rolls import MADE_AT, PROOF, STEPS, Story, plan_of

PLAN = plan_of(["a"], ["b", "c"], skipped=("d",))


def state_of(story: Story, plan: dict[str, Any] | None = PLAN) -> dict[str, Any]:
    return _roll_events.state_of(plan, story.events)


def test_lines_that_are_no_events_are_left_out() -> None:
    good = json.dumps({"at": 1.0, "roll": "r", "event": "roll_began"})
    lines = [good, "", "[1]", '{"event": "x"}', '{"at": 1, "event": 3}', '{"at": true, "event": "x"}', good[:-5]]
    assert _roll_events.read(lines) == [json.loads(good)]


def test_before_the_first_event_all_is_planned() -> None:
    state = state_of(Story())
    assert (state["run"], state["wave"], state["outcome"]) == (0, 0, "")
    assert {name: one["state"] for name, one in state["clusters"].items()} == {
        "a": "planned",
        "b": "planned",
        "c": "planned",
        "d": "none",
    }
    assert state["remaining"] == ["a", "b", "c"]
    assert [wave["state"] for wave in state["waves"]] == ["planned", "planned"]


def test_a_cluster_in_work_tells_stage_step_and_whom_it_awaits() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS[:4]).begin_step(1, "a", "start_prefill")
    story.tell("waiting", wave=1, cluster="a", host="h-a", step="start_prefill", message="prefill-0: loading, 3 s")
    one = state_of(story)["clusters"]["a"]
    assert (one["state"], one["stage"], one["step"]) == ("working", "prefill", "start_prefill")
    assert one["waiting"] == "prefill-0: loading, 3 s"
    story.tell("step_ended", wave=1, cluster="a", host="h-a", step="start_prefill", outcome="ok", message="")
    assert state_of(story)["clusters"]["a"]["waiting"] == ""


def test_of_several_hosts_that_wait_the_newest_message_is_told_and_all_are_there() -> None:
    story = Story().begin().wave(1, "a")
    for host in ("h1", "h2"):
        story.begin_step(1, "a", "drain", host=host)
        story.tell("waiting", wave=1, cluster="a", host=host, step="drain", message="of " + host)
    one = state_of(story)["clusters"]["a"]
    assert one["waiting"] == "of h2"
    assert [what["message"] for what in one["waits"].values()] == ["of h1", "of h2"]


def test_a_roll_that_went_well() -> None:
    latency = {"before": {"median_seconds": 1.0, "p95_seconds": 2.0}, "after": None}
    story = Story().begin().wave(1, "a", kind="canary").walk(1, "a")
    story.tell("soak_began", wave=1, clusters=["a"], seconds=60)
    assert state_of(story)["waves"][0]["state"] == "soaking"
    assert state_of(story)["clusters"]["a"]["state"] == "soaking"
    story.wait(60).tell("soak_ended", wave=1, clusters=["a"], outcome="ok", message="")
    story.end_cluster(1, "a", latency=latency).tell("wave_ended", wave=1, failed=[])
    story.wave(2, "b", "c").walk(2, "b").walk(2, "c").end_cluster(2, "b").end_cluster(2, "c")
    story.tell("wave_ended", wave=2, failed=[]).end()
    state = state_of(story)
    assert (state["outcome"], state["remaining"], state["wave"]) == ("done", [], 2)
    assert state["totals"] == {
        "clusters": 4,
        "planned": 3,
        "done": 3,
        "failed": 0,
        "rolled_back": 0,
        "refused": 0,
        "nothing": 0,
        "working": 0,
        "remaining": 0,
    }
    assert state["clusters"]["a"]["latency"] == latency
    assert state["clusters"]["d"]["state"] == "none"
    assert [wave["state"] for wave in state["waves"]] == ["ended", "ended"]
    assert state["waves"][0]["soak"]["outcome"] == "ok"


def test_downtime_is_from_close_to_the_last_router_that_requests_proved() -> None:
    story = Story().begin().wave(1, "a").step(1, "a", "lock")
    closed = story.at
    story.walk(1, "a", *STEPS[1:-1])
    story.step(1, "a", "restart_router", host="h1").step(1, "a", "restart_router", host="h2")
    serves = story.at - 1
    assert state_of(story)["clusters"]["a"]["downtime"]["open"] is True
    story.wait(30).walk(1, "a", *PROOF).end_cluster(1, "a")
    downtime = state_of(story)["clusters"]["a"]["downtime"]
    assert (downtime["began_at"], downtime["ended_at"], downtime["open"]) == (closed, serves, False)
    assert downtime["seconds"] == serves - closed


def test_downtime_of_a_failed_cluster_is_open_until_what_is_known() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS[:4]).wait(50)
    story.step(1, "a", "start_prefill", "failed", message="never healthy").end_cluster(1, "a", "failed")
    downtime = state_of(story)["clusters"]["a"]["downtime"]
    assert downtime["open"] is True
    assert downtime["seconds"] == story.events[-1]["at"] - downtime["began_at"]


def test_requests_that_failed_end_no_downtime() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS).step(1, "a", "requests", "failed")
    assert state_of(story)["clusters"]["a"]["downtime"]["open"] is True
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS)
    story.step(1, "a", "requests", host="h1").begin_step(1, "a", "requests", host="h2")
    assert state_of(story)["clusters"]["a"]["downtime"]["open"] is True


def test_a_second_walk_in_the_same_run_closes_the_downtime_that_the_first_one_opened() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS[:4]).step(1, "a", "start_prefill", "failed")
    began = story.events[4]["at"]
    story.step(1, "a", "record").walk(1, "a").end_cluster(1, "a", "rolled_back")
    one = state_of(story)["clusters"]["a"]
    assert len(one["walks"]) == 2
    assert (one["downtime"]["began_at"], one["downtime"]["open"]) == (began, False)
    assert len(one["downtime"]["intervals"]) == 1


def test_where_nothing_was_closed_there_is_no_downtime() -> None:
    story = Story().begin().wave(1, "a").step(1, "a", "lock", "refused").end_cluster(1, "a", "refused", stopped=False)
    one = state_of(story)["clusters"]["a"]
    assert one["downtime"] is None
    assert (one["outcome"], one["stopped"]) == ("refused", False)


def test_what_an_early_end_names_as_remaining_is_told() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a").tell("wave_ended", wave=1, failed=[])
    story.end("stopped", "cancelled: maintenance window over", ("b", "c"))
    state = state_of(story)
    assert (state["outcome"], state["remaining"]) == ("stopped", ["b", "c"])
    assert state["why"] == "cancelled: maintenance window over"


def test_a_cluster_that_the_roll_left_in_the_middle_is_not_in_work() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "drain").end("failed", "", ("a", "b", "c"))
    assert state_of(story)["clusters"]["a"]["state"] == "left"


def test_a_resumed_roll_keeps_what_was_done_and_plans_the_rest_anew() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a").tell("wave_ended", wave=1, failed=[])
    story.wave(2, "b", "c").walk(2, "b", *STEPS[:4]).walk(2, "c", *STEPS[:5])
    closed = next(one["at"] for one in story.events if one.get("cluster") == "b" and one.get("step") == "close")
    story.wait(500).begin(owner="ops@ci pid 18")
    plan = plan_of(["b", "c"], skipped=("a", "d"))
    state = state_of(story, plan)
    assert (state["run"], state["owner"], state["wave"]) == (2, "ops@ci pid 18", 0)
    assert {name: one["state"] for name, one in state["clusters"].items()} == {
        "b": "planned",
        "c": "planned",
        "a": "ended",
        "d": "none",
    }
    assert (state["remaining"], state["totals"]["done"]) == (["b", "c"], 1)
    assert [wave["number"] for wave in state["past_waves"]] == [1, 2]
    story.wave(1, "b", "c").walk(1, "b")
    one = state_of(story, plan)["clusters"]["b"]
    assert (one["state"], one["downtime"]["began_at"], one["downtime"]["open"]) == ("working", closed, False)


def test_a_cluster_that_failed_is_planned_again_by_the_run_that_resumes() -> None:
    story = Story().begin().wave(1, "a").step(1, "a", "lock", "failed").end_cluster(1, "a", "failed")
    story.end("failed", "", ("b", "c")).begin()
    state = state_of(story)
    assert (state["outcome"], state["clusters"]["a"]["outcome"]) == ("", "")
    assert state["remaining"] == ["a", "b", "c"]


def test_without_a_plan_events_alone_tell_the_waves() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a", *STEPS[:2])
    state = state_of(story, None)
    assert state["waves"][0]["clusters"] == ["a"]
    assert state["remaining"] == ["a"]


@pytest.mark.parametrize(
    ("lives", "after", "what"),
    [
        (True, 1e6, "running"),
        (False, 1.0, "interrupted"),
        (None, _roll_events.SILENT_SECONDS - 10, "running"),
        (None, _roll_events.SILENT_SECONDS + 10, "interrupted"),
    ],
)
def test_a_roll_without_an_end_runs_or_was_interrupted(lives: bool | None, after: float, what: str) -> None:
    assert _roll_events.standing(state_of(Story().begin()), lives, MADE_AT + after) == what


def test_a_roll_that_somebody_saw_end_was_interrupted_wherever_one_looks_from() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "drain").tell("roll_interrupted", why="SIGTERM")
    state = state_of(story)
    assert _roll_events.standing(state, None, story.at) == "interrupted"
    assert (state["why"], state["outcome"], state["clusters"]["a"]["state"]) == ("SIGTERM", "", "left")
    assert state["remaining"] == ["a", "b", "c"]
    assert _roll_events.standing(state_of(story.begin()), None, story.at) == "running"


def test_of_a_roll_that_is_found_dead_nothing_is_in_work() -> None:
    story = Story().begin().wave(1, "a").begin_step(1, "a", "drain")
    story.tell("waiting", wave=1, cluster="a", host="h-a", step="drain", message="1 request")
    state = _roll_events.as_interrupted(state_of(story))
    assert (state["clusters"]["a"]["state"], state["clusters"]["a"]["waiting"]) == ("left", "")
    assert (state["clusters"]["b"]["state"], state["totals"]["working"]) == ("planned", 0)


def test_a_roll_that_told_its_end_is_what_it_told() -> None:
    assert _roll_events.standing(state_of(Story().begin().end("paused")), True, MADE_AT) == "paused"


EVENTS = st.fixed_dictionaries(
    {
        "event": st.sampled_from(
            "roll_began wave_began step_began waiting step_ended soak_began soak_ended cluster_ended hook_ended "
            "wave_ended roll_ended roll_interrupted something_new".split()
        )
    },
    optional={
        "wave": st.integers(0, 3),
        "cluster": st.sampled_from(["a", "b", "d", "strange"]),
        "clusters": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "host": st.sampled_from(["h1", "h2"]),
        "step": st.sampled_from([*STEPS, *PROOF, "soak", "of_tomorrow"]),
        "outcome": st.sampled_from(["ok", "failed", "done", "skipped"]),
        "failed": st.none() | st.lists(st.just("a"), max_size=1),
        "remaining": st.none() | st.lists(st.just("b"), max_size=1),
    },
)


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, max_size=25), st.booleans())
def test_events_in_any_order_can_be_read_and_told(events: list[dict[str, Any]], with_plan: bool) -> None:
    told = [{**event, "at": MADE_AT + number, "roll": "r"} for number, event in enumerate(events)]
    state = _roll_events.state_of(PLAN if with_plan else None, told)
    assert json.loads(json.dumps(state)) == state
    for one in state["clusters"].values():
        assert one["downtime"] is None or one["downtime"]["seconds"] >= 0
