# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a roll came to: one outcome for every cluster, and evidence for what failed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _scope
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_account

from .. import rolled
from ..rolls import MADE_AT, Story, plan_of


def account(plan: dict[str, Any] | None, events: list[dict[str, Any]], now: float | None = None) -> dict[str, Any]:
    return roll_account.account(plan, events, now)


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found["clusters"]}


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["outcome"] for one in found["clusters"]}


def test_every_cluster_of_plan_and_events_has_one_outcome() -> None:
    of, events = rolled.fleet(7, {"c2": "failed", "c3": "nothing", "c4": "refused"}, size=3, alone=2)
    found = account(of, events)
    assert outcomes(found) == {
        "c1": "done",
        "c2": "failed",
        "c3": "nothing",
        "c4": "refused",
        "c5": "remains",
        "c6": "remains",
        "c7": "remains",
        "x0": "maintenance",
        "x1": "skipped",
    }
    assert found["outcome"] == "failed" and found["remaining"] == ["c5", "c6", "c7"]
    assert roll_account.title(found) == "1 failed, 1 refused, 1 of 7 clusters restarted"


def test_durations_and_downtime_are_those_of_the_events() -> None:
    one = by_name(account(*rolled.fleet(1)))["c1"]
    # With its soak, which only who passed it is done after.
    assert one["seconds"] == pytest.approx(186.5)
    # From the first close to the last router, as the requests after it were good.
    assert one["downtime"]["seconds"] == pytest.approx(88.5) and not one["downtime"]["open"]
    assert roll_account.downtime_of(one) == "1 min 28 s"


def test_stages_have_bars_from_their_first_step_to_their_last() -> None:
    (attempt,) = by_name(account(*rolled.fleet(1)))["c1"]["attempts"]
    bars = [(bar["stage"], round(bar["ended_at"] - bar["began_at"], 1)) for bar in attempt["bars"]]
    assert bars == [("drain", 8.5), ("prefill", 40.5), ("decode", 35.5), ("router", 4.0), ("proof", 36.0)]
    assert not [bar for bar in attempt["bars"] if bar["failed"] or bar["open"]]


def test_stages_that_are_not_in_the_scope_have_no_bar() -> None:
    of, events = rolled.fleet(1)
    of["clusters"]["c1"]["stages"] = ["router"]
    (attempt,) = by_name(account(of, events))["c1"]["attempts"]
    assert [bar["stage"] for bar in attempt["bars"]] == ["drain", "router", "proof"]


def test_a_step_that_was_skipped_has_no_bar() -> None:
    story = Story().begin().wave(1, "a").step(1, "a", "close").step(1, "a", "stop_prefill", "skipped")
    found = account(plan_of(["a"]), story.events)
    assert [bar["stage"] for bar in by_name(found)["a"]["attempts"][0]["bars"]] == ["drain"]


def test_a_failure_has_its_step_and_what_it_says_once() -> None:
    (failure,) = account(*rolled.fleet(2, {"c2": "failed"}))["failures"]
    assert (failure["name"], failure["wave"], failure["outcome"], failure["open"]) == ("c2", 2, "failed", True)
    assert "CUDA error: out of memory" in failure["message"] and failure["evidence"] == []


def test_evidence_that_the_message_lacks_is_there_with_its_place() -> None:
    story = Story().begin().wave(1, "a").step(1, "a", "requests", "failed", message="8 of 8 requests failed")
    story.tell("hook_ended", wave=1, cluster="a", hook="on_failure", outcome="failed", message="exit status 7")
    story.tell("hook_ended", wave=1, cluster="a", hook="after_verify", outcome="ok", message="fine")
    story.end_cluster(1, "a", "failed", message="it failed").end("failed")
    (failure,) = account(plan_of(["a"]), story.events)["failures"]
    assert failure["evidence"] == [
        {"where": "step requests on h-a", "message": "8 of 8 requests failed"},
        {"where": "hook on_failure", "message": "exit status 7"},
    ]


def test_a_cluster_that_failed_its_soak_is_one_failure() -> None:
    story = rolled.Story(rolled.plan([["a", "b"]]))
    story.begin()
    story.wave(1, {}, soak="failed")
    story.end("failed", "the failure budget is spent")
    (failure,) = account(story.plan, story.events)["failures"]
    assert failure["name"] == "a" and "it failed its soak: request 3: no answer within 35 s" in failure["message"]
    assert "whether it serves is not proven" in roll_account.state_after(failure)


def test_a_soak_that_no_cluster_answers_for_is_a_failure_of_its_wave() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").tell("soak_began", wave=1, clusters=["a"], seconds=60)
    story.tell("soak_ended", wave=1, clusters=["a"], outcome="failed", message="nobody could be asked")
    story.end_cluster(1, "a").end("failed")
    (failure,) = account(plan_of(["a"]), story.events)["failures"]
    assert (failure["name"], failure["wave"], failure["message"]) == ("", 1, "nobody could be asked")


def test_a_failure_before_anything_was_stopped_says_so() -> None:
    story = Story().begin().wave(1, "a").step(1, "a", "lock", "failed", message="locked")
    story.end_cluster(1, "a", "failed", message="locked", stopped=False).end("failed")
    (failure,) = account(plan_of(["a"]), story.events)["failures"]
    assert roll_account.state_after(failure) == "failed in wave 1; nothing of it was stopped"


def test_a_failure_of_routers_that_take_requests_again_is_not_called_an_outage() -> None:
    story = (
        Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a", "failed", message="a stuck queue").end("failed")
    )
    (failure,) = account(plan_of(["a"]), story.events)["failures"]
    assert "its routers take requests; whether it serves is not proven" in roll_account.state_after(failure)


@pytest.mark.parametrize(
    ("outcome", "scope", "kind"),
    [
        ("widened", _scope.DECODE_ALONE, roll_account.WIDENED),
        ("widened", _scope.WHOLE_CHAIN, roll_account.WIDENED),
        ("rolled_back", _scope.WHOLE_CHAIN, roll_account.BACK),
        ("rolled_back", _scope.DECODE_ALONE, roll_account.BACK),
    ],
)
def test_a_second_attempt_says_what_it_is(outcome: str, scope: str, kind: str) -> None:
    of, events = rolled.fleet(1, {"c1": outcome})
    of["clusters"]["c1"]["scope"]["rule"] = scope
    attempts = by_name(account(of, events))["c1"]["attempts"]
    assert [one["kind"] for one in attempts] == ["", kind]
    assert attempts[0]["failed"] and not attempts[1]["failed"]


def test_a_failed_second_attempt_after_the_proof_of_a_smaller_scope_is_the_whole_chain() -> None:
    of = plan_of(["a"])
    of["clusters"]["a"]["scope"] = {"rule": _scope.DECODE_ALONE, "reason": ""}
    story = Story().begin().wave(1, "a").step(1, "a", "close").step(1, "a", "requests", "failed", message="x")
    story.step(1, "a", "close").step(1, "a", "verify", "failed", message="y")
    story.step(1, "a", "close").step(1, "a", "start_decode", "failed", message="z")
    story.end_cluster(1, "a", "failed", message="").end("failed")
    found = account(of, story.events)
    assert [one["kind"] for one in by_name(found)["a"]["attempts"]] == ["", roll_account.WIDENED, roll_account.BACK]
    assert [row["where"] for row in found["failures"][0]["evidence"]][2] == "step start_decode on h-a of attempt 3"


def test_a_killed_roll_is_interrupted_and_says_where() -> None:
    of, events = rolled.fleet(4, {"c2": "cut_off"}, size=1)
    found = account(of, events)
    assert (found["outcome"], roll_account.look(found)) == ("interrupted", "bad")
    assert outcomes(found) == {"c1": "done", "c2": "interrupted", "c3": "remains", "c4": "remains"}
    assert by_name(found)["c2"]["message"] == ("cut off at step start_decode on c2-2: not healthy yet, 20 s of 900 s")
    assert found["remaining"] == ["c2", "c3", "c4"]
    assert found["helps"][-1]["command"].endswith("-e pd_roll_id=20261130T170000Z-ab12cd")


def test_a_cluster_whose_steps_were_done_when_the_roll_was_killed_served_then() -> None:
    found = account(*rolled.fleet(3, {"c2": "cut_off"}))
    failures = {one["name"]: roll_account.state_after(one) for one in found["failures"]}
    assert failures == {
        "c2": "cut off in wave 2; it does not serve, as far as is known",
        "c3": "cut off in wave 2; it served when it was last asked",
    }


def test_a_roll_that_goes_on_is_in_work() -> None:
    of, events = rolled.fleet(4, {"c2": "cut_off"}, size=1)
    found = account(of, events, now=events[-1]["at"] + 5)
    assert (found["outcome"], outcomes(found)["c2"], found["helps"]) == ("running", "working", [])
    assert roll_account.title(found) == "In work: 1 of 4 clusters restarted"
    assert account(of, events, now=events[-1]["at"] + 500)["outcome"] == "interrupted"


def test_a_resumed_roll_keeps_what_its_first_run_did() -> None:
    found = account(*rolled.resumed())
    assert (found["outcome"], found["runs"]) == ("done", 2)
    assert outcomes(found) == {"c1": "done", "c2": "done", "c3": "done", "c4": "done"}
    clusters = by_name(found)
    assert (clusters["c1"]["run"], clusters["c1"]["wave"]) == (1, 1)
    assert (clusters["c2"]["run"], clusters["c2"]["wave"]) == (2, 1)
    assert roll_account.outcome_of(clusters["c2"]) == "done, resumed"
    # It served nobody from the first close on, in whichever run that was.
    assert clusters["c2"]["downtime"]["seconds"] > 3000 and clusters["c2"]["seconds"] < 200


@pytest.mark.parametrize(
    ("plan", "outcome", "title", "look"),
    [
        (rolled.refused(), "refused", "Refused, nothing was touched", "bad"),
        (rolled.plan([], {"a": rolled.left("skip", "nothing is due")}), "nothing", "Nothing to do", "good"),
        (rolled.plan([["a"]]), "planned", "Planned, not begun", "note"),
    ],
)
def test_a_roll_without_events_is_what_its_plan_decided(
    plan: dict[str, Any], outcome: str, title: str, look: str
) -> None:
    found = account(plan, [])
    assert (found["outcome"], roll_account.title(found), roll_account.look(found)) == (outcome, title, look)
    assert found["failures"] == [] and found["helps"] == [] and found["seconds"] is None


def test_a_roll_that_was_stopped_is_something_to_note() -> None:
    of = plan_of(["a"], ["b"])
    story = Story().begin().wave(1, "a").walk(1, "a").end_cluster(1, "a").end("stopped", "maintenance window", ("b",))
    found = account(of, story.events)
    assert roll_account.look(found) == "note"
    assert roll_account.title(found) == "Stopped: 1 of 2 clusters restarted"
    assert [one["words"] for one in found["helps"]] == ["Go on with 1 cluster:"]


def test_a_cluster_that_was_rolled_back_asks_to_mend_the_inventory() -> None:
    found = account(*rolled.fleet(1, {"c1": "rolled_back"}))
    assert "The inventory still has what c1 was rolled back from" in found["helps"][0]["words"]


def test_names_in_commands_are_quoted() -> None:
    story = Story().begin().wave(1, "a b;c").end_cluster(1, "a b;c", "failed", message="x").end("failed")
    found = account(plan_of(["a b;c"]), story.events)
    assert found["helps"][0]["command"].endswith("pd_diagnose_clusters='a b;c'")


def test_a_short_latency_that_doubles_by_chance_is_not_slower() -> None:
    assert not roll_account.slower(0.02, 0.05)
    assert not roll_account.slower(None, 3.0) and not roll_account.slower(0.5, None)
    assert roll_account.slower(0.5, 0.8) and not roll_account.slower(2.0, 2.9)


def test_who_was_without_service_longest_and_who_still_is() -> None:
    found = account(*rolled.fleet(3, {"c3": "failed"}))
    assert roll_account.longest_downtime(found) == (
        "1 min 28 s at most (c1); for 3 min 5 s or longer, and still, as far as is known: c3"
    )
    assert roll_account.longest_downtime(account(rolled.refused(), [])) == ""


def test_events_that_are_not_known_and_keys_that_lack_change_nothing() -> None:
    of, events = rolled.fleet(2)
    more = [{"at": MADE_AT, "event": "telemetry", "cluster": "c1"}, {"at": MADE_AT + 1, "event": "wave_ended"}]
    assert outcomes(account(of, [*more, *events])) == outcomes(account(of, events))


def test_an_outcome_that_nobody_knows_is_looked_at_first() -> None:
    story = Story().begin().wave(1, "a", "b").end_cluster(1, "a").end_cluster(1, "b", "exploded").end("done")
    found = account(plan_of(["a", "b"]), story.events)
    assert outcomes(found)["b"] == "exploded"
    assert sorted(outcomes(found).values(), key=roll_account.rank) == ["exploded", "done"]
