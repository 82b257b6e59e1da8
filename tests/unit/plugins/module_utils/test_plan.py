# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans: what is refused, what is due, what is resumed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _plan

from ..fleet import WANTED, asked, healthy, plan_of, record, seen

LOCK = {
    "run": {"id": "r9", "owner": "other@there pid 7", "purpose": "co-restart"},
    "generation": 2,
    "since": 990.0,
    "deadline": 1100.0,
    "taken_over_from": None,
}
#: The ledger of a member that an interrupted run restarted.
CUT: dict[str, Any] = {"generation": 2, "run": {"id": "r-dead"}, "outcome": ""}


def actions(plan: dict[str, Any]) -> list[str]:
    return [member["action"] for member in plan["members"]]


def rules(plan: dict[str, Any]) -> list[str]:
    return [problem["rule"] for problem in plan["problems"]]


def test_whole_chain_restarts_in_walking_order() -> None:
    plan = plan_of()
    assert plan["decision"] == "go"
    assert [m["role"] for m in plan["members"]] == ["prefill", "decode", "router"]
    assert actions(plan) == ["restart"] * 3
    assert plan["generation"] == 2
    assert plan["lock_host"] == "p"


@pytest.mark.parametrize("stages", [["decode"], ["prefill"], ["decode", "router"], ["prefill", "decode"]])
def test_R2_some_stages_alone_are_refused_with_reason_and_command(stages: list[str]) -> None:
    plan = plan_of(stages=stages)
    assert plan["decision"] == "refused"
    (problem,) = plan["problems"]
    assert "fail silently" in problem["message"]
    assert "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters=c" in problem["message"]
    assert "pd_co_restart_override" in problem["message"]


def test_R2_an_override_grants_decode_alone_and_says_so() -> None:
    plan = plan_of(stages=["decode"], override="A/B test")
    assert actions(plan) == ["none", "restart", "none"]
    assert plan["override"] == "A/B test"
    assert any("OVERRIDE of rule 1" in line and "A/B test" in line for line in _plan.describe(plan))


def test_router_alone_is_allowed_where_its_workers_run() -> None:
    assert actions(plan_of(stages=["router"])) == ["none", "none", "restart"]
    records = [record("prefill", "p"), record("decode", "d", active_state="failed"), record("router", "r")]
    assert rules(plan_of(records, stages=["router"])) == ["a router starts after its workers"]


def test_R5_a_recorded_failure_starts_the_whole_chain_again() -> None:
    failed = {"generation": 2, "outcome": "failed", "reason": "decode did not start"}
    records = [record("prefill", "p", failed), record("decode", "d", failed), record("router", "r")]
    plan = plan_of(records)
    assert not plan["resumes"]
    assert actions(plan) == ["restart"] * 3
    assert "generation 2 failed: decode did not start" in plan["due"]
    assert plan_of(records, when=_plan.WHEN_DUE)["decision"] == "go"


def test_R6_what_an_interrupted_run_left_in_good_order_is_kept() -> None:
    plan = plan_of([record("prefill", "p", CUT), record("decode", "d"), record("router", "r")])
    assert plan["resumes"] == "r-dead"
    assert actions(plan) == ["keep", "restart", "restart"]
    assert plan["generation"] == 3


@pytest.mark.parametrize(
    ("prefill", "why"),
    [
        (record("prefill", "p", dict(CUT, incarnation="other")), "replaced since"),
        (record("prefill", "p", CUT, running="old"), "its configuration changed since"),
        (record("prefill", "p", CUT, active_state="failed"), "dead since"),
        (record("prefill", "p", dict(CUT, began_at=-9000.0)), "too long ago"),
        (record("prefill", "p", dict(CUT, began_at=2000.0)), "clock went backwards"),
        (record("prefill", "p", dict(CUT, override="why")), "it had an override"),
        (record("prefill", "p", dict(CUT, phase="stopping")), "it got nowhere"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_R6_nothing_doubtful_is_resumed(prefill: dict[str, Any], why: str) -> None:
    plan = plan_of([prefill, record("decode", "d"), record("router", "r")])
    assert not plan["resumes"], why
    assert "keep" not in actions(plan)


def test_R6_decodes_of_an_interrupted_run_are_not_kept_without_its_prefills() -> None:
    plan = plan_of([record("prefill", "p"), record("decode", "d", CUT), record("router", "r")])
    assert actions(plan) == ["restart"] * 3


def test_R6_a_unit_on_its_way_up_does_not_undo_the_stages_before() -> None:
    started = dict(CUT, phase="started")
    records = [
        record("prefill", "p", CUT),
        record("decode", "d", CUT),
        record("router", "r", started, active_state="activating"),
    ]
    assert actions(plan_of(records)) == ["keep", "keep", "restart"]


def test_R6_a_run_that_died_while_it_recorded_success_is_resumed() -> None:
    records = [
        record("prefill", "p", dict(CUT, outcome="ok")),
        record("decode", "d", CUT),
        record("router", "r", CUT),
    ]
    assert actions(plan_of(records)) == ["keep"] * 3


def test_R7_a_locked_cluster_is_refused_and_the_holder_named() -> None:
    plan = _plan.make_plan("c", WANTED, seen(*healthy(), c=LOCK), asked())
    assert rules(plan) == ["one co-restart per cluster at a time"]
    assert "other@there pid 7" in plan["problems"][0]["message"]
    assert "pd_co_restart_take_over" in plan["problems"][0]["message"]


def test_R7_the_lock_of_a_dead_owner_is_taken_over() -> None:
    plan = _plan.make_plan("c", WANTED, seen(*healthy(), c=LOCK), asked(gone_owners=["other@there pid 7"]))
    assert plan["decision"] == "go"
    assert "gone" in plan["take_over"]


def test_R7_a_roll_does_not_go_on_with_a_cluster_that_is_reserved_for_it_no_more() -> None:
    mine = {"run": {"id": "R1", "owner": "me", "purpose": "weekly"}}
    other = {"run": {"id": "R2", "owner": "other@there pid 7", "purpose": "nightly"}}
    for reserved, words in (({"c": mine}, ""), ({"c": other}, "other@there pid 7 (nightly"), ({}, "unlocked it")):
        what = seen(*healthy())
        what["p"]["rolls"] = reserved
        plan = _plan.make_plan("c", WANTED, what, asked(roll="R1"))
        assert rules(plan) == (["one roll at a time"] if words else [])
        assert words in "".join(problem["message"] for problem in plan["problems"])
    assert plan_of()["decision"] == "go", "a co-restart by hand asks for no reservation"


def test_R11_a_port_that_a_stranger_holds_is_refused_with_its_pid() -> None:
    records = healthy()
    records[1]["listeners"] = [{"port": 30002, "pid": 4711, "command": "python old", "unit": ""}]
    plan = plan_of(records)
    assert rules(plan) == ["ports are free or our own"]
    assert "4711" in plan["problems"][0]["message"]
    assert "python old" in plan["problems"][0]["message"]


def test_R15_every_member_of_a_large_cluster_is_planned() -> None:
    wanted = {"prefill": ["p", "p2"], "decode": ["d", "d2", "d3"], "router": ["r", "r2"]}
    records = [record(role, host) for role, hosts in wanted.items() for host in hosts]
    plan = _plan.make_plan("c", wanted, seen(*records), asked())
    assert actions(plan) == ["restart"] * 7


def test_S5_and_S6_a_process_older_than_its_configuration_makes_a_co_restart_due() -> None:
    records = [record("prefill", "p"), record("decode", "d", running="old"), record("router", "r")]
    plan = plan_of(records, when=_plan.WHEN_DUE)
    assert plan["due"] == ["sglang-c-decode.service on d runs configuration old, new is deployed"]
    assert actions(plan) == ["restart"] * 3


def test_R1_a_decode_restarted_by_hand_makes_a_co_restart_due() -> None:
    records = [record("prefill", "p"), record("decode", "d", {"incarnation": "before"}), record("router", "r")]
    assert plan_of(records)["due"] == ["sglang-c-decode.service on d was restarted outside of a co-restart"]


def test_a_router_left_without_workers_makes_a_co_restart_due() -> None:
    closed = {"fence": {"generation": 2, "run": {"id": "r-dead"}, "closed": "i1"}}
    records = [record("prefill", "p"), record("decode", "d"), record("router", "r", closed)]
    plan = plan_of(records, when=_plan.WHEN_DUE)
    assert plan["decision"] == "go"
    assert "gave up its workers" in plan["due"][0]


def test_F6_nothing_is_due_where_everything_runs_as_it_should() -> None:
    assert plan_of(when=_plan.WHEN_DUE)["decision"] == "nothing"
    routed = {"generation": 2, "fence": {"generation": 2, "run": {"id": "r"}}}
    alone = [record("prefill", "p"), record("decode", "d"), record("router", "r", routed)]
    assert plan_of(alone, when=_plan.WHEN_DUE)["decision"] == "nothing"


def test_first_start_touches_nothing_that_runs() -> None:
    assert plan_of(when=_plan.FIRST_START)["decision"] == "nothing"
    down = [
        record(role, host, {"generation": 0, "incarnation": ""}, "", active_state="inactive", invocation_id="")
        for role, host in (("prefill", "p"), ("decode", "d"), ("router", "r"))
    ]
    assert actions(plan_of(down, when=_plan.FIRST_START)) == ["start"] * 3


def test_F4_a_cluster_that_is_only_partly_in_the_run_is_refused() -> None:
    plan = _plan.make_plan("c", WANTED, seen(record("prefill", "p"), record("router", "r")), asked())
    assert rules(plan) == ["whole clusters only"]
    assert "d left out" in plan["problems"][0]["message"]


def test_R6_an_unreachable_member_is_refused() -> None:
    what = seen(record("prefill", "p"), record("router", "r"))
    what["d"] = {"unreachable": "no route to host"}
    plan = _plan.make_plan("c", WANTED, what, asked())
    assert rules(plan) == ["every member is reachable"]


def test_members_and_inventory_must_agree() -> None:
    what = seen(record("prefill", "p"), record("router", "r"), record("decode", "d"))
    what["d"]["members"] = []
    assert rules(_plan.make_plan("c", WANTED, what, asked())) == ["deployed before restarted"]
    two = dict(WANTED, decode=["d", "p"])
    assert "deployed before restarted" in rules(_plan.make_plan("c", two, seen(*healthy()), asked()))
    assert "a cluster has every role" in rules(_plan.make_plan("c", {}, {}, asked()))


def test_the_generation_is_above_every_fence() -> None:
    ahead = {"fence": {"generation": 8, "run": {"id": "r-dead"}}}
    assert plan_of([record("prefill", "p"), record("decode", "d", ahead), record("router", "r")])["generation"] == 9


def test_units_that_systemd_restarts_by_itself_are_warned_of() -> None:
    records = [record("prefill", "p", restart_policy="always"), record("decode", "d"), record("router", "r")]
    assert "Restart=always" in plan_of(records)["warnings"][0]


@pytest.mark.parametrize("more", [{}, {"stages": ["decode"]}, {"when": _plan.WHEN_DUE}])
def test_planning_changes_nothing_and_every_plan_has_words(more: dict[str, Any]) -> None:
    what = seen(*healthy())
    before = copy.deepcopy(what)
    plan = _plan.make_plan("c", WANTED, what, asked(**more))
    assert what == before
    assert _plan.describe(plan)


BAD = {"rule": "known to the installed program", "message": "--x is unknown", "host": "d", "variable": "v"}


def found_bad(rule: str, **more: Any) -> dict[str, Any]:
    """The plan where the decode's host finds something wrong with its decode."""
    what = seen(*healthy())
    unit = healthy()[1]["member"]["unit"]
    what["d"]["preflight"] = {unit: {"problems": [dict(BAD, rule=rule)]}}
    return _plan.make_plan("c", WANTED, what, asked(**more))


def test_S1_what_a_host_finds_wrong_is_refused_before_anything_is_stopped() -> None:
    assert rules(found_bad("known to the installed program")) == ["known to the installed program"]


def test_S1_a_member_that_is_left_alone_need_not_be_startable() -> None:
    assert found_bad("known to the installed program", stages=["router"])["decision"] == "go"


def test_what_is_accepted_by_name_is_a_warning() -> None:
    plan = found_bad("room on the host", accepted=["room on the host"])
    assert plan["decision"] == "go"
    assert "accepted by pd_preflight_accept: --x is unknown" in plan["warnings"][0]
