# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows in the same run on an attempt that failed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _plan, _walk

from ..fleet import evidence_up_to, plan_of
from .test_revision import back
from .test_revision import records as with_revisions
from .test_scope import OLD, due_plan, records


def failed_at(step: str, plan: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
    """Return the evidence of an attempt that failed at a step, on the first host that took part."""
    evidence = evidence_up_to(_walk.RECORD, plan)
    host = _walk.hosts_of_step(step, plan)[-1]
    evidence[step][host].update({"outcome": _walk.FAILED, "message": "why", **more})
    for later in _walk.STEPS[_walk.STEPS.index(step) + 1 : -2]:
        for given in evidence[later].values():
            given["outcome"] = "skipped"
    return evidence


def following(step: str, plan: dict[str, Any], rollback: str = _attempts.NEVER, **more: Any) -> Any:
    found = _attempts.conclude(plan, failed_at(step, plan, **more), rollback)
    assert found["outcome"] == _attempts.FAILED
    return found["next"] and (found["next"]["what"], found["next"]["stages"])


ALL = ["prefill", "decode", "router"]
STOPPING = ["stop_prefill", "start_prefill", "stop_decode", "start_decode", "restart_router", "requests", "settle"]


def test_nothing_follows_on_success() -> None:
    plan = plan_of()
    found = _attempts.conclude(plan, evidence_up_to(_walk.RECORD, plan), _attempts.ON_FAILURE)
    assert (found["outcome"], found["next"]) == (_attempts.OK, None)


@pytest.mark.parametrize("step", STOPPING)
def test_a_failure_is_rolled_back_only_where_that_is_asked_for(step: str) -> None:
    assert following(step, plan_of()) is None
    assert following(step, plan_of(), _attempts.ON_FAILURE) == (_attempts.ROLL_BACK, ALL)


@pytest.mark.parametrize("step", ["lock", "restore", "close", "drain"])
def test_where_nothing_was_stopped_there_is_nothing_to_roll_back(step: str) -> None:
    assert following(step, plan_of(), _attempts.ON_FAILURE) is None


def test_a_run_that_lost_the_cluster_to_another_one_leaves_it_alone() -> None:
    assert following("requests", plan_of(), _attempts.ON_FAILURE, lost=True) is None


def test_a_rollback_is_not_rolled_back() -> None:
    plan = back(with_revisions(([7], "good")))
    assert following("requests", plan, _attempts.ON_FAILURE) is None


def test_routers_that_were_restarted_alone_go_back_alone() -> None:
    plan = plan_of(stages=["router"])
    assert following("restart_router", plan, _attempts.ON_FAILURE) == (_attempts.ROLL_BACK, ["router"])
    assert following("restart_router", plan) is None, "no engine was touched: a whole chain would cure nothing"


@pytest.mark.parametrize("step", ["restart_router", "requests", "settle"])
def test_R1_decodes_restarted_alone_that_fail_the_proof_get_the_whole_chain(step: str) -> None:
    plan = due_plan(records(decode=OLD))
    assert following(step, plan) == (_attempts.WIDEN, ALL)
    assert following(step, plan, _attempts.ON_FAILURE) == (_attempts.WIDEN, ALL), "first what it needs, then back"


@pytest.mark.parametrize("step", ["stop_decode", "start_decode"])
def test_a_decode_that_does_not_start_is_not_helped_by_a_wider_scope(step: str) -> None:
    plan = due_plan(records(decode=OLD))
    assert following(step, plan) is None
    assert following(step, plan, _attempts.ON_FAILURE) == (_attempts.ROLL_BACK, ALL)


def attempt(outcome: str, automatic: bool = False) -> dict[str, Any]:
    return {"outcome": outcome, "automatic": automatic}


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([attempt("ok")], _attempts.OK),
        ([attempt("failed")], _attempts.FAILED),
        ([attempt("failed"), attempt("ok")], _attempts.WIDENED),
        ([attempt("failed"), attempt("ok", True)], _attempts.ROLLED_BACK),
        ([attempt("failed"), attempt("failed"), attempt("ok", True)], _attempts.ROLLED_BACK),
        ([attempt("failed"), attempt("failed", True)], _attempts.FAILED),
        ([attempt("failed"), attempt("refused")], _attempts.FAILED),
    ],
)
def test_what_a_run_comes_to(attempts: list[dict[str, Any]], expected: str) -> None:
    assert _attempts.verdict(attempts) == expected


def test_evidence_of_the_attempt_before_is_not_that_of_this_one() -> None:
    """Results of all steps stay registered; a step of the next attempt that was not walked shows."""
    first = plan_of()
    evidence = evidence_up_to(_walk.RECORD, first)
    second = dict(first, generation=first["generation"] + 1)
    verb, why = _walk.decide("stop_decode", second, evidence)
    assert verb == _walk.REFUSE
    assert "not of this run" in why
    assert not _walk.was_anything_stopped(second, evidence)
    assert _plan.describe(first)
