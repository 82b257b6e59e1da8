# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the steps, and the evidence that each of them wants."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _plan, _walk

from ..fleet import asked, evidence_up_to, healthy, plan_of, record, seen

STEPS = [step for step in _walk.STEPS if step not in (_walk.RECORD, _walk.UNLOCK)]


@pytest.mark.parametrize("step", _walk.STEPS)
def test_each_step_runs_after_good_evidence_of_all_before(step: str) -> None:
    plan = plan_of()
    assert _walk.decide(step, plan, evidence_up_to(step, plan)) == (_walk.RUN, "")


@pytest.mark.parametrize("step", STEPS[1:])
def test_each_step_refuses_where_a_step_before_was_left_out(step: str) -> None:
    plan = plan_of()
    for earlier in STEPS[: STEPS.index(step)]:
        evidence = evidence_up_to(step, plan)
        del evidence[earlier]
        verb, why = _walk.decide(step, plan, evidence)
        assert verb == _walk.REFUSE
        assert "walk the whole playbook" in why


@pytest.mark.parametrize("outcome", [_walk.FAILED, _walk.UNREACHABLE, "skipped", "refused"])
def test_R4_after_a_bad_step_the_cluster_stops(outcome: str) -> None:
    plan = plan_of()
    for bad in STEPS[:-1]:
        for step in STEPS[STEPS.index(bad) + 1 :]:
            evidence = evidence_up_to(step, plan)
            evidence[bad]["p"] = dict(evidence[bad]["p"], outcome=outcome, message="why")
            assert _walk.decide(step, plan, evidence) == (
                _walk.SKIP,
                "cluster c stopped at step {} on p".format(bad),
            )


@pytest.mark.parametrize("change", [{"run": "r1"}, {"generation": 1}])
def test_evidence_of_another_run_is_refused(change: dict[str, Any]) -> None:
    plan = plan_of()
    evidence = evidence_up_to("start_decode", plan)
    evidence["start_prefill"]["p"].update(change)
    verb, why = _walk.decide("start_decode", plan, evidence)
    assert verb == _walk.REFUSE
    assert "not of this run" in why


@pytest.mark.parametrize("shown", [{}, {"outcome": "waiting", "incarnation": "i"}, {"outcome": "passed"}])
def test_R15_every_member_of_the_stage_before_must_be_shown_healthy(shown: dict[str, Any]) -> None:
    plan = plan_of()
    evidence = evidence_up_to("stop_decode", plan)
    evidence["start_prefill"]["p"]["members"]["sglang-c-prefill.service"] = shown
    verb, why = _walk.decide("stop_decode", plan, evidence)
    assert verb == _walk.REFUSE
    assert "does not show sglang-c-prefill.service healthy" in why


def test_R2_a_hand_made_plan_with_decode_alone_is_refused_at_the_step() -> None:
    plan = plan_of(stages=["decode"], override="why")
    assert _walk.decide("stop_decode", plan, evidence_up_to("stop_decode", plan))[0] == _walk.RUN
    plan["override"] = ""
    verb, why = _walk.decide("stop_decode", plan, evidence_up_to("stop_decode", plan))
    assert verb == _walk.REFUSE
    assert "sglang-c-decode.service" in why


def test_record_follows_whatever_happened_but_only_under_the_lock() -> None:
    plan = plan_of()
    evidence = evidence_up_to(_walk.RECORD, plan)
    evidence["start_prefill"]["p"]["outcome"] = _walk.FAILED
    assert _walk.decide(_walk.RECORD, plan, evidence)[0] == _walk.RUN
    assert _walk.decide(_walk.RECORD, plan, {})[0] == _walk.SKIP
    evidence_of_before = {"lock": {"p": dict(evidence["lock"]["p"], run="r1")}}
    assert _walk.decide(_walk.RECORD, plan, evidence_of_before)[0] == _walk.SKIP


def test_unlock_is_always_walked_because_the_lock_says_whose_it_is() -> None:
    assert _walk.decide(_walk.UNLOCK, plan_of(), {}) == (_walk.RUN, "")


def test_R14_rank_0_stops_first_and_all_ranks_start_together() -> None:
    ranks = [
        record("prefill", host, member={"nnodes": 2, "node_rank": rank, "engine": "e", "name": host})
        for rank, host in enumerate(("p", "p2"))
    ]
    wanted = {"prefill": ["p", "p2"], "decode": ["d"], "router": ["r"]}
    plan = _plan.make_plan("c", wanted, seen(*ranks, record("decode", "d"), record("router", "r")), asked())
    assert _walk.hosts_of_step("stop_prefill", plan) == ["p"]
    assert _walk.members_of_step("stop_prefill_ranks", plan, "p") == []
    assert len(_walk.members_of_step("stop_prefill_ranks", plan, "p2")) == 1
    assert _walk.hosts_of_step("start_prefill", plan) == ["p", "p2"]
    assert _walk.members_of_step(_walk.SETTLE, plan, "p2") == []


def test_gated_members_are_looked_at_again_before_decodes_and_at_the_end() -> None:
    plan = plan_of()
    assert [m["role"] for m in _walk.rechecked_members("stop_decode_ranks", plan, "p")] == ["prefill"]
    assert _walk.rechecked_members("start_decode", plan, "p") == []
    assert _walk.hosts_of_step(_walk.SETTLE, plan) == ["p", "d", "r"]
    evidence = evidence_up_to(_walk.SETTLE, plan)
    for member in plan["members"]:
        assert _walk.gated_incarnation(member, evidence) == "new of " + member["unit"]
        assert _walk.gated_incarnation(member, {}) == ""


def test_R5_the_outcome_is_failed_as_soon_as_anything_is_missing() -> None:
    plan = plan_of()
    evidence = evidence_up_to(_walk.RECORD, plan)
    assert _walk.outcome(plan, evidence) == (_walk.OK, "")
    for step in STEPS:
        for host in _walk.hosts_of_step(step, plan):
            bad = {name: dict(given) for name, given in evidence.items()}
            del bad[step][host]
            assert _walk.outcome(plan, bad) == (_walk.FAILED, "step {} was not walked on {}".format(step, host))


def test_skipped_steps_stop_nothing() -> None:
    plan = plan_of()
    evidence = evidence_up_to("start_prefill", plan)
    assert _walk.was_anything_stopped(plan, evidence)
    for step in ("stop_prefill", "stop_prefill_ranks"):
        for given in evidence[step].values():
            given["outcome"] = "skipped"
    assert not _walk.was_anything_stopped(plan, evidence)
    lost = dict(evidence_up_to("stop_prefill", plan), stop_prefill={"p": {"outcome": _walk.UNREACHABLE}})
    assert _walk.was_anything_stopped(plan, lost), "nobody knows whether it was stopped"


def test_R6_a_host_lost_after_its_cluster_had_stopped_stopped_nothing() -> None:
    """Another cluster of the play goes on to a step, and the host is unreachable for both."""
    plan = plan_of()
    evidence = evidence_up_to("stop_prefill", plan)
    evidence[_walk.DRAIN]["p"] = {"outcome": _walk.UNREACHABLE, "message": "no route to host"}
    evidence["restart_router"] = {"p": {"outcome": _walk.UNREACHABLE, "message": "no route to host"}}
    assert not _walk.was_anything_stopped(plan, evidence)


def test_a_healthy_cluster_has_every_stage_to_restart() -> None:
    assert _walk.stages_restarted(plan_of(healthy())) == ["prefill", "decode", "router"]
    assert _walk.stages_restarted(plan_of(stages=["router"])) == ["router"]


def test_a_member_that_was_down_at_planning_is_stopped_where_it_runs_by_now() -> None:
    down = record("decode", "d", active_state="failed")
    plan = plan_of([record("prefill", "p"), down, record("router", "r")])
    (decode,) = _walk.members_of_step("stop_decode", plan, "d")
    assert decode["action"] == "start"
