# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a roll, and what ends one."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll

OPTIONS: dict[str, Any] = {
    "max_unavailable": "1",
    "max_unavailable_per_domain": "",
    "canary": [],
    "canaries_per_model": 1,
    "batch": "100%",
    "soak_seconds": 60,
    "failure_budget": "0",
    "repair": False,
    "pause": "never",
}


def cluster(name: str, **given: Any) -> dict[str, Any]:
    """Return the facts of a cluster that serves and is due."""
    plan = {
        "decision": given.pop("decision", "go"),
        "why": "everything runs as it should",
        "due": ["its configuration changed"],
        "problems": given.pop("problems", []),
        "warnings": [],
        "generation": 8,
        "scope": {"stages": ["prefill", "decode", "router"], "rule": "whole chain", "reason": "a prefill is due"},
        "members": [
            {
                "unit": f"sglang-{name}-prefill.service",
                "host": name,
                "role": "prefill",
                "action": "restart",
                "reason": "x",
            },
            {"unit": f"sglang-{name}-router.service", "host": name, "role": "router", "action": "keep", "reason": "y"},
        ],
    }
    return {
        "plan": plan,
        "model": "m",
        "answers": given.get("condition", "serves") == "serves",
        "domains": [],
        "hosts": [name],
        "condition": "serves",
        "evidence": "requests were served",
        "maintenance": "",
        "reserved": "",
        "selected": True,
        "came_to": "",
        "generation": 7,
        "announced": 7,
        "interrupted": False,
        "settings": [],
        "expected_seconds": 90.0,
        **given,
    }


def roll_of(
    clusters: dict[str, dict[str, Any]], before: list[dict[str, Any]] | None = None, **options: Any
) -> dict[str, Any]:
    """Return the plan of a roll.

    :param before: events of the processes that walked it before.
    """
    asked = {"roll": "r", "made_at": 1.0, "owner": "o", "purpose": "p", "options": {**OPTIONS, **options}}
    return _roll.make_roll(clusters, asked, before or [])


def fleet(*names: str, **given: Any) -> dict[str, dict[str, Any]]:
    """Return clusters that are alike."""
    return {name: cluster(name, **dict(given)) for name in names}


def waves(roll: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return kind and clusters of each wave."""
    return [(wave["kind"], wave["clusters"]) for wave in roll["waves"]]


def events(*ended: tuple[str, str], began: bool = True) -> list[dict[str, Any]]:
    """Return the events of a roll in which clusters came to something."""
    first = [{"event": "roll_began", "at": 1.0}] if began else []
    return first + [{"event": "cluster_ended", "cluster": name, "outcome": outcome} for name, outcome in ended]


def messages(roll: dict[str, Any]) -> str:
    """Return all problems as text."""
    return "\n".join(f"{item['rule']} | {item['message']} | {item['variable']}" for item in roll["problems"])


def test_F3_a_canary_goes_first_then_batches() -> None:
    roll = roll_of(fleet(*"abcdefgh"), max_unavailable="50%", batch="25%")
    assert waves(roll) == [
        ("canary", ["a"]),
        ("batch", ["b", "c"]),
        ("batch", ["d", "e"]),
        ("batch", ["f", "g"]),
        ("batch", ["h"]),
    ]
    assert roll["clusters"]["d"]["wave"] == 3
    assert roll["expected_seconds"] == 5 * 150.0


def test_canaries_are_of_each_model_that_has_more_or_those_that_were_named() -> None:
    clusters = {**fleet("a", "b", "c", model="m"), **fleet("x", "y", model="n"), **fleet("only", model="o")}
    assert waves(roll_of(clusters, max_unavailable="100%")) == [
        ("canary", ["a", "x"]),
        ("batch", ["b", "c", "only", "y"]),
    ]
    assert waves(roll_of(clusters, max_unavailable="100%", canary=["c"]))[0] == ("canary", ["c"])
    assert waves(roll_of(clusters, max_unavailable="100%", canaries_per_model=0)) == [
        ("batch", ["a", "b", "c", "only", "x", "y"])
    ]
    assert "no cluster z" in messages(roll_of(clusters, canary=["z"]))


def test_no_wave_takes_more_of_a_model_or_a_domain_than_it_may() -> None:
    clusters = {
        **fleet("a", "b", "c", "d", domains=["rack1"]),
        **fleet("e", "f", "g", "h", domains=["rack2"]),
    }
    roll = roll_of(clusters, max_unavailable="3", max_unavailable_per_domain="1", canaries_per_model=0)
    assert waves(roll) == [("batch", [one, two]) for one, two in zip("abcd", "efgh")]
    assert roll["waves"][0]["unavailable"] == {
        "models": {"m": {"of": 8, "most": 3, "clusters": 2}},
        "domains": {"rack1": {"of": 4, "most": 1, "clusters": 1}, "rack2": {"of": 4, "most": 1, "clusters": 1}},
    }


@pytest.mark.parametrize(
    ("bound", "total", "at_least", "count"),
    [("1", 8, 1, 1), ("25%", 8, 1, 2), ("10%", 8, 1, 1), ("0", 8, 1, 1), ("0", 8, 0, 0), ("100%", 3, 1, 3)],
)
def test_a_bound_is_a_number_or_a_percentage_rounded_down(bound: str, total: int, at_least: int, count: int) -> None:
    assert _roll.count_of(bound, total, at_least) == count


@pytest.mark.parametrize("bound", ["some", "-1", "120%", "-5%", "%", "1.5"])
def test_any_other_bound_is_refused_by_its_variable(bound: str) -> None:
    roll = roll_of(fleet("a"), batch=bound)
    assert roll["decision"] == "refused"
    assert "pd_roll_batch" in messages(roll)
    assert roll["waves"] == []


def test_F2_a_fleet_that_is_below_capacity_is_refused_with_what_helps() -> None:
    clusters = fleet("a", "b", "c")
    clusters["b"] = cluster("b", condition="down", evidence="8 of 8 requests failed")
    roll = roll_of(clusters)
    assert roll["decision"] == "refused"
    assert "cluster b of model m does not serve (8 of 8 requests failed)" in messages(roll)
    assert "pd_roll_repair=true" in messages(roll)


def test_F2_repair_begins_with_those_that_do_not_serve() -> None:
    clusters = fleet("a", "b", "c")
    clusters["b"] = cluster("b", condition="down")
    assert waves(roll_of(clusters, repair=True)) == [("repair", ["b"]), ("canary", ["a"]), ("batch", ["c"])]


def test_F2_repair_does_not_take_more_away_while_others_stay_down() -> None:
    clusters = fleet("a", "b", "c")
    clusters["b"] = cluster("b", condition="down", selected=False)
    roll = roll_of(clusters, repair=True)
    assert roll["decision"] == "refused"
    assert "1 of 3 clusters are away already (b: does not serve), and at most 1 may be" in messages(roll)
    assert "pd_roll_max_unavailable" in messages(roll)


def test_F2_what_answers_requests_is_repaired_within_the_bounds_after_what_does_not() -> None:
    # Somebody restarted decodes by hand: nobody knows whether that will do, and so far it does.
    clusters = {
        **fleet("a", "b", "c", "d", condition="down", answers=True),
        **fleet("e"),
        **fleet("f", condition="down"),
    }
    kinds = [("repair", ["f"])] + [("repair", [name]) for name in "abcd"] + [("batch", ["e"])]
    assert waves(roll_of(clusters, repair=True, canaries_per_model=0)) == kinds
    clusters["g"] = cluster("g", maintenance="new fans")
    assert "1 of 7 clusters are away already (g: in maintenance)" in messages(roll_of(clusters, repair=True))


def test_R6_what_a_roll_left_half_done_it_may_finish_without_being_asked_to_repair() -> None:
    clusters = {**fleet("a", "b"), "c": cluster("c", condition="down", interrupted=True)}
    assert waves(roll_of(clusters)) == [("repair", ["c"]), ("canary", ["a"]), ("batch", ["b"])]
    clusters["b"] = cluster("b", condition="down")
    assert "cluster b of model m does not serve" in messages(roll_of(clusters))


def test_a_model_that_the_roll_does_not_touch_may_be_down() -> None:
    clusters = {**fleet("a", "b"), "x": cluster("x", model="other", condition="down", selected=False)}
    assert roll_of(clusters)["decision"] == "go"


def test_a_cluster_of_another_model_may_be_down_in_a_domain_that_has_no_bound() -> None:
    other = cluster("x", model="other", condition="down", selected=False, domains=["rack1"])
    clusters = {**fleet("a", "b", domains=["rack1"]), "x": other}
    assert roll_of(clusters)["decision"] == "go"
    assert "cluster x of model other does not serve" in messages(roll_of(clusters, max_unavailable_per_domain="2"))


def test_a_host_in_maintenance_is_left_alone_and_its_cluster_is_away() -> None:
    clusters = {**fleet("a", "b", "c"), "d": cluster("d", maintenance="h is in maintenance: new fans")}
    roll = roll_of(clusters, max_unavailable="2")
    assert roll["clusters"]["d"]["decision"] == "maintenance"
    assert waves(roll) == [("canary", ["a"]), ("batch", ["b"]), ("batch", ["c"])]
    assert "d: in maintenance" in messages(roll_of(clusters, max_unavailable="1"))


def test_a_cluster_outside_of_the_run_is_unknown_and_so_is_the_capacity() -> None:
    clusters = {**fleet("a"), "b": cluster("b", condition="unknown", evidence="it is not in this run", selected=False)}
    assert "it is not in this run" in messages(roll_of(clusters))


def test_F6_nothing_due_is_nothing_to_do() -> None:
    roll = roll_of(fleet("a", "b", decision="nothing"))
    assert (roll["decision"], roll["waves"], roll["batches"]) == ("nothing", [], [])
    assert roll["clusters"]["a"]["why"] == "everything runs as it should"


def test_F4_one_refused_cluster_refuses_the_roll() -> None:
    problem = {"rule": "whole clusters only", "message": "box2 left out", "host": "", "variable": "--limit"}
    clusters = {**fleet("a"), "b": cluster("b", decision="refused", problems=[problem])}
    roll = roll_of(clusters)
    assert roll["decision"] == "refused"
    assert "whole clusters only | box2 left out | --limit" in messages(roll)


def test_R7_clusters_of_another_roll_are_refused_also_where_only_the_model_is_the_same() -> None:
    clusters = {**fleet("a"), "b": cluster("b", selected=False, reserved="ops@ci (weekly, run 17), since 9 s")}
    assert "cluster b of model m is in roll ops@ci (weekly, run 17)" in messages(roll_of(clusters))
    clusters["b"]["model"] = "other"
    assert roll_of(clusters)["decision"] == "go"


def test_R7_what_a_roll_reserves_is_all_that_counts_against_its_bounds() -> None:
    clusters = {
        **fleet("a", "b", domains=["rack1"]),
        "x": cluster("x", model="other", domains=["rack1"], selected=False),
        "y": cluster("y", model="other", domains=["rack2"], selected=False),
        "z": cluster("z", maintenance="new fans"),
    }
    assert _roll.to_reserve(roll_of(clusters, max_unavailable="3")) == ["a", "b"]
    bound = {"max_unavailable": "3", "max_unavailable_per_domain": "1"}
    assert _roll.to_reserve(roll_of(clusters, **bound)) == ["a", "b", "x"]
    clusters["x"]["reserved"] = "ops@ci (weekly, run 17)"
    assert roll_of(clusters, max_unavailable="3")["decision"] == "go"
    assert "cluster x of domain rack1 is in roll ops@ci" in messages(roll_of(clusters, **bound))


def told(name: str, outcome: str, kind: str = "canary", generation: int = 7, wave: int = 1) -> list[dict[str, Any]]:
    """Return the events of a wave of one cluster."""
    ended = {"event": "cluster_ended", "wave": wave, "cluster": name, "outcome": outcome, "generation": generation}
    return [{"event": "wave_began", "kind": kind, "clusters": [name]}, ended]


ENDED = [{"event": "roll_ended", "outcome": "failed"}]


def resumed(came_to: str, before: list[dict[str, Any]], condition: str = "serves", **options: Any) -> dict[str, Any]:
    """Return the plan of a roll that goes on after a process that walked cluster a."""
    clusters = fleet("a", "b", "c")
    decision = "nothing" if condition == "serves" else "go"
    clusters["a"] = cluster("a", decision=decision, came_to=came_to, condition=condition)
    return roll_of(clusters, before, **options)


def test_what_this_roll_did_already_is_skipped_and_its_canary_sings_no_more() -> None:
    roll = resumed("done", told("a", "done"))
    assert waves(roll) == [("batch", ["b"]), ("batch", ["c"])]
    assert roll["clusters"]["a"]["why"] == "this roll did it already"
    assert roll["before"] == {}


def test_R6_a_canary_whose_watch_nobody_saw_end_is_done_and_another_one_sings() -> None:
    roll = resumed("done", told("a", "done")[:1])
    assert waves(roll) == [("canary", ["b"]), ("batch", ["c"])]
    assert roll["before"] == {"a": {"outcome": "done", "kind": "canary", "told": False}}
    # The process that went on told of it, but could not watch it.
    assert waves(resumed("done", told("a", "done", wave=0)))[0] == ("canary", ["b"])


def test_F7_a_canary_that_failed_its_watch_is_not_done() -> None:
    assert waves(resumed("done", told("a", "failed") + ENDED)) == [("canary", ["b"]), ("batch", ["c"])]
    down = resumed("done", told("a", "failed") + ENDED, condition="down", repair=True)
    assert waves(down) == [("repair", ["a"]), ("canary", ["b"]), ("batch", ["c"])]
    # What was told is of an older generation than what the hosts say.
    assert resumed("done", told("a", "failed", generation=6))["clusters"]["a"]["why"] == "this roll did it already"


def test_R6_what_failed_before_the_controller_died_counts_where_it_is_not_done_again() -> None:
    roll = resumed("rolled_back", told("a", "rolled_back", kind="batch"), canaries_per_model=0)
    assert _roll.may_begin(roll, [], 1, "")[0] == "failed"
    assert _roll.may_begin(dict(roll, options=dict(roll["options"], failure_budget="1")), [], 1, "") == ("", "")
    # Nobody came to tell.
    assert _roll.may_begin(resumed("rolled_back", []), [], 1, "")[0] == "failed"
    canary = resumed("rolled_back", told("a", "rolled_back"), failure_budget="3")
    assert "canary a failed" in _roll.may_begin(canary, [], 1, "")[1]
    # Somebody co-restarted it since.
    assert _roll.may_begin(resumed("", told("a", "failed", generation=6)), [], 1, "") == ("", "")
    # The roll ended and said so: that it goes on is a decision. One that was refused did not go on.
    ended = told("a", "rolled_back")
    assert _roll.may_begin(resumed("rolled_back", ended + ENDED), [], 1, "") == ("", "")
    refused = [{"event": "roll_ended", "outcome": "refused"}]
    assert _roll.may_begin(resumed("rolled_back", ended + refused), [], 1, "")[0] == "failed"


def test_clusters_with_a_common_host_are_walked_in_one_batch_of_hosts() -> None:
    clusters = {
        "a": cluster("a", hosts=["h1"]),
        "b": cluster("b", hosts=["h2", "shared"]),
        "c": cluster("c", hosts=["h3"]),
        "d": cluster("d", hosts=["h4", "shared"]),
    }
    roll = roll_of(clusters, canaries_per_model=0)
    assert [wave["clusters"] for wave in roll["waves"]] == [["a"], ["b"], ["d"], ["c"]]
    assert roll["batches"] == [
        {"waves": [1], "hosts": ["h1"]},
        {"waves": [2, 3], "hosts": ["h2", "shared", "h4"]},
        {"waves": [4], "hosts": ["h3"]},
    ]


def test_a_wave_between_two_that_share_a_host_is_in_their_batch() -> None:
    clusters = {
        "a": cluster("a", hosts=["h1", "shared"]),
        "b": cluster("b", hosts=["h2"]),
        "c": cluster("c", hosts=["h3", "shared"]),
    }
    roll = roll_of(clusters, canary=["b", "a"], canaries_per_model=0)
    hosts = [host for batch in roll["batches"] for host in batch["hosts"]]
    assert sorted(hosts) == sorted(set(hosts))
    assert [wave for batch in roll["batches"] for wave in batch["waves"]] == [1, 2, 3]


def test_the_only_cluster_of_a_model_is_warned_of() -> None:
    assert "its only cluster" in roll_of(fleet("a"))["warnings"][0]


def test_F1_a_failure_ends_the_roll_and_tells_what_remains() -> None:
    roll = roll_of(fleet(*"abcd"))
    so_far = events(("a", "done"), ("b", "failed"))
    outcome, why = _roll.may_begin(roll, so_far, 3, "")
    assert outcome == "failed"
    assert "b failed, and the budget (pd_roll_failure_budget) is 0" in why
    assert _roll.remaining(roll, so_far) == ["b", "c", "d"]


def test_a_roll_of_which_no_event_tells_the_end_is_done_only_where_nothing_remains() -> None:
    roll = roll_of(fleet(*"ab"))
    assert _roll.conclusion(roll, events(("a", "done"), ("b", "nothing"))) == ("done", "")
    outcome, why = _roll.conclusion(roll, events(("a", "done")))
    assert outcome == "failed"
    assert "ended before b" in why
    assert _roll.conclusion(resumed("done", told("a", "done")), events(("b", "done"), ("c", "done"))) == ("done", "")
    nothing = fleet("a", "b", decision="nothing")
    assert _roll.conclusion(roll_of(nothing), events()) == ("nothing", "")
    nothing["a"] = cluster("a", decision="nothing", came_to="rolled_back")
    assert _roll.conclusion(roll_of(nothing), events()) == ("failed", "a failed")


def test_a_failure_budget_lets_the_roll_go_on_while_the_bounds_allow_it() -> None:
    roll = roll_of(fleet(*"abcd"), failure_budget="1", max_unavailable="2", batch="1")
    so_far = events(("a", "done"), ("b", "failed"))
    assert _roll.may_begin(roll, so_far, 3, "") == ("", "")
    roll = roll_of(fleet(*"abcd"), failure_budget="1", max_unavailable="1")
    outcome, why = _roll.may_begin(roll, so_far, 3, "")
    assert outcome == "failed"
    assert "b failed and is away; wave 3 would make it 2 of 4 clusters, and at most 1 may be" in why


def test_F7_a_cluster_that_was_rolled_back_serves_and_counts_as_failed() -> None:
    roll = roll_of(fleet(*"abcd"), failure_budget="1")
    assert _roll.may_begin(roll, events(("a", "done"), ("b", "rolled_back")), 3, "") == ("", "")
    assert (
        _roll.may_begin(roll, events(("a", "done"), ("b", "rolled_back"), ("c", "rolled_back")), 4, "")[0] == "failed"
    )


@pytest.mark.parametrize("outcome", ["failed", "rolled_back", "refused"])
def test_F7_a_canary_that_fails_ends_the_roll_whatever_the_budget(outcome: str) -> None:
    roll = roll_of(fleet(*"abcd"), failure_budget="3", max_unavailable="4")
    came_to, why = _roll.may_begin(roll, events(("a", outcome)), 2, "")
    assert came_to == "failed"
    assert "canary a failed" in why


def test_F5_a_cancelled_roll_begins_no_other_wave() -> None:
    roll = roll_of(fleet(*"ab"))
    assert _roll.may_begin(roll, events(), 1, "SIGTERM") == ("stopped", "SIGTERM")
    assert _roll.over_after(roll, events(("a", "done")), 1, "SIGTERM") == ("stopped", "SIGTERM")
    # Everything is done: there is nothing left to stop.
    assert _roll.over_after(roll, events(("a", "done"), ("b", "done")), 2, "SIGTERM") == ("done", "")


def test_a_roll_pauses_for_approval_and_goes_on_when_it_is_resumed() -> None:
    roll = roll_of(fleet(*"abc"), pause="after_canary")
    outcome, why = _roll.over_after(roll, events(("a", "done")), 1, "")
    assert (outcome, why) == ("paused", "waiting for approval after wave 1 (canary)")
    clusters = fleet(*"abc")
    clusters["a"] = cluster("a", decision="nothing", came_to="done")
    resumed = roll_of(clusters, told("a", "done"), pause="after_canary")
    assert _roll.may_begin(resumed, events(("a", "done")) + events(), 1, "") == ("", "")
    assert _roll.over_after(resumed, events(("a", "done")) + events(("b", "done")), 1, "") == ("", "")


def test_only_what_the_last_process_did_counts() -> None:
    roll = roll_of(fleet(*"bc"))
    assert _roll.may_begin(roll, events(("b", "failed")) + events(("b", "done")), 2, "") == ("", "")


def record(generation: int, began: float | None, ended: float | None, **ledger: Any) -> dict[str, Any]:
    """Return a member of which the hosts say that it is in good order."""
    return {
        "member": {"unit": "u", "host": "h", "role": "prefill", "configuration": "c"},
        "unit": {"active_state": "active", "invocation_id": "i"},
        "running_configuration": "c",
        "ledger": {
            "generation": generation,
            "run": {"id": "r.1.ab"},
            "reason": "",
            "fence": None,
            "incarnation": "i",
            "outcome": "ok",
            "scope": "whole chain",
            "began_at": began,
            "ended_at": ended,
            "history": [],
            **ledger,
        },
    }


def test_expected_seconds_are_the_median_of_what_ended_well() -> None:
    past = [
        {"generation": number, "scope": "whole chain", "outcome": outcome, "began_at": 0.0, "ended_at": seconds}
        for number, (outcome, seconds) in enumerate([("ok", 80.0), ("failed", 5.0), ("ok", 100.0)], 1)
    ]
    assert _roll.expected_seconds([record(4, 10.0, 100.0, history=past)]) == 90.0
    assert _roll.expected_seconds([record(4, 10.0, 100.0, scope="router alone")]) is None
    assert _roll.expected_seconds([]) is None


def test_a_cluster_was_done_by_a_roll_only_while_nothing_happened_to_it_since() -> None:
    assert _roll.came_to([record(4, 0.0, 9.0)], "r") == "done"
    assert _roll.came_to([record(4, 0.0, 9.0)], "r2") == ""
    assert _roll.came_to([record(4, 0.0, 9.0, outcome="failed")], "r") == "failed"
    assert _roll.came_to([record(4, 0.0, None, outcome="")], "r") == ""
    assert _roll.came_to([record(4, 0.0, 9.0, incarnation="other")], "r") == ""
    assert _roll.came_to([], "r") == ""


@pytest.mark.parametrize(
    ("scope", "came_to"),
    [("whole chain", "rolled_back"), ("router alone", "rolled_back"), ("decode and router alone", "done")],
)
def test_F7_a_cluster_that_went_back_was_not_done_and_one_that_was_widened_was(scope: str, came_to: str) -> None:
    failed = {"run": {"id": "r.1.ab"}, "outcome": "failed", "scope": scope}
    assert _roll.came_to([record(4, 0.0, 9.0, history=[failed])], "r") == came_to
    # Another walk of the same wave, before the controller died.
    assert _roll.came_to([record(4, 0.0, 9.0, history=[dict(failed, run={"id": "r.1.cd"})])], "r") == "done"


def test_F7_a_canary_that_went_back_sings_again() -> None:
    roll = resumed("rolled_back", told("a", "rolled_back") + ENDED)
    assert waves(roll) == [("canary", ["b"]), ("batch", ["c"])]


def test_a_roll_died_amid_a_cluster_only_where_nothing_failed_there() -> None:
    assert _roll.was_interrupted([record(4, 0.0, None, outcome="")], "r")
    assert not _roll.was_interrupted([record(4, 0.0, None, outcome="")], "r2")
    assert not _roll.was_interrupted([record(4, 0.0, 9.0, outcome="failed")], "r")
    # It was announced in the ledger, and nothing was stopped yet.
    announced = {"generation": 5, "run": {"id": "r.1.ab"}, "closed": "i"}
    assert _roll.was_interrupted([record(4, 0.0, 9.0, run={"id": "other"}, fence=announced)], "r")
    assert not _roll.was_interrupted([record(4, 0.0, 9.0, fence=dict(announced, generation=4))], "r"), "it was done"
    assert not _roll.was_interrupted([], "r")


def test_a_cluster_that_answers_no_request_is_down_whatever_its_units_say() -> None:
    good = [record(4, 0.0, 9.0)]
    assert _roll.condition(good, None)[0] == "serves"
    assert _roll.condition(good, {"outcome": "failed", "failures": ["3 of 3 failed"]}) == ("down", "3 of 3 failed")
    assert _roll.condition([record(4, 0.0, 9.0, incarnation="other")], None)[0] == "down"
    assert _roll.condition([], None)[0] == "unknown"
