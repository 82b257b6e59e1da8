# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest set of stages that may be restarted for what is due."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _plan, _scope, _walk

from ..fleet import evidence_up_to, plan_of, record

HEALING: dict[str, Any] = {
    "version": "0.5.23",
    "transfer_version": "1.4.0",
    "settings": {"model_path": "/m", "transfer_backend": "nixl"},
}


def records(
    prefill: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
    router: dict[str, Any] | None = None,
    engine: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return a healthy cluster of versions that heal, with changes by role."""
    of_engine = dict(HEALING, **(engine or {}))
    return [
        record("prefill", "p", member=of_engine, **(prefill or {})),
        record("decode", "d", member=of_engine, **(decode or {})),
        record("router", "r", **(router or {})),
    ]


def due_plan(given: list[dict[str, Any]], opted_in: bool = True) -> dict[str, Any]:
    return plan_of(given, when=_plan.WHEN_DUE, stages=[], decode_alone=opted_in)


def actions(plan: dict[str, Any]) -> list[str]:
    return [member["action"] for member in plan["members"]]


OLD = {"running": "old"}


@pytest.mark.parametrize(
    "router",
    [OLD, {"active_state": "failed"}, {"ledger": {"incarnation": "before"}}, {"running": ""}],
    ids=["settings", "down", "restarted by hand", "unknown"],
)
def test_where_only_routers_are_due_they_restart_alone(router: dict[str, Any]) -> None:
    plan = due_plan(records(router=router), opted_in=False)
    assert actions(plan)[:2] == ["none", "none"]
    assert plan["scope"]["rule"] == _scope.ROUTER_ALONE
    assert "scope    router alone: only routers are due" in "\n".join(_plan.describe(plan))


@pytest.mark.parametrize(
    ("phase", "rule"), [(_ledger.STARTED, _scope.ROUTER_ALONE), (_ledger.HEALTHY, _scope.WHOLE_CHAIN)]
)
def test_a_router_that_failed_its_gate_may_go_alone_and_one_that_failed_the_proof_may_not(
    phase: str, rule: str
) -> None:
    failed = {"ledger": {"outcome": _ledger.FAILED, "reason": "why", "phase": phase, "generation": 2}}
    assert due_plan(records(router=failed))["scope"]["rule"] == rule


def test_a_router_run_that_died_is_finished_by_the_routers_alone() -> None:
    cut = {"ledger": {"outcome": "", "generation": 2, "phase": _ledger.STARTED}}
    assert due_plan(records(router=cut))["scope"]["rule"] == _scope.ROUTER_ALONE


@pytest.mark.parametrize(
    "given",
    [
        {"prefill": OLD},
        {"prefill": OLD, "decode": OLD},
        {"prefill": OLD, "router": OLD},
        {"prefill": {"active_state": "failed"}},
        {"decode": {"ledger": {"outcome": _ledger.FAILED, "reason": "why"}}, "router": OLD},
        {"decode": {"ledger": {"outcome": ""}}},
    ],
)
def test_anything_else_takes_the_whole_chain(given: dict[str, Any]) -> None:
    plan = due_plan(records(**given))
    assert actions(plan).count("none") == 0
    assert plan["scope"]["rule"] == _scope.WHOLE_CHAIN


@pytest.mark.parametrize("router", [{}, OLD])
def test_decode_settings_restart_decode_and_router_where_the_cluster_opted_in(router: dict[str, Any]) -> None:
    plan = due_plan(records(decode=OLD, router=router))
    assert actions(plan) == ["none", "restart", "restart"]
    assert plan["scope"]["rule"] == _scope.DECODE_ALONE
    words = "\n".join(_plan.describe(plan))
    assert "scope    decode and router alone: the cluster opted in (pd_co_restart_decode_alone)" in words
    assert "sgl-project/sglang#33789" in words, "the evidence is in the plan's output"
    assert _walk.decide("stop_decode", plan, evidence_up_to("stop_decode", plan)) == (_walk.RUN, "")


def test_R2_without_opting_in_a_decode_takes_its_prefills_along_and_the_plan_says_why() -> None:
    plan = due_plan(records(decode=OLD), opted_in=False)
    assert actions(plan) == ["restart"] * 3
    assert "has not opted in (pd_co_restart_decode_alone)" in plan["scope"]["reason"]


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"version": "0.5.16"}, "sglang 0.5.16 with nixl 1.4.0"),
        ({"version": "0.5.24"}, "sglang 0.5.24"),
        ({"version": "0.5.23rc1"}, "sglang 0.5.23rc1"),
        ({"version": ""}, "sglang unknown"),
        ({"transfer_version": "1.3.2"}, "nixl 1.3.2"),
        ({"transfer_version": ""}, "nixl of unknown version"),
        ({"settings": {"transfer_backend": "mooncake"}}, "mooncake 1.4.0"),
        ({"settings": {}}, "unnamed transfer backend"),
    ],
)
def test_R3_versions_that_are_not_on_the_list_take_the_whole_chain(engine: dict[str, Any], words: str) -> None:
    plan = due_plan(records(decode=OLD, engine=engine))
    assert actions(plan) == ["restart"] * 3
    assert "not known to heal: sglang-c-prefill.service is" in plan["scope"]["reason"]
    assert words in plan["scope"]["reason"]


@pytest.mark.parametrize("version", ["0.5.23", "0.5.23.post1", "0.5.23+cu129"])
@pytest.mark.parametrize("transfer", ["1.4", "1.5.2", "2.0"])
def test_versions_on_the_list(version: str, transfer: str) -> None:
    engine = {"version": version, "transfer_version": transfer}
    assert due_plan(records(decode=OLD, engine=engine))["scope"]["rule"] == _scope.DECODE_ALONE


@pytest.mark.parametrize(
    "decode",
    [
        {"active_state": "failed"},
        {"ledger": {"incarnation": "before"}},
        {"running": "old", "ledger": {"incarnation": "before"}},
        {"running": ""},
    ],
    ids=["died", "restarted by hand", "changed and restarted by hand", "unknown"],
)
def test_R16_a_decode_that_died_or_was_replaced_takes_the_whole_chain_also_where_versions_heal(
    decode: dict[str, Any],
) -> None:
    """One that vanished in the middle of transfers wedges the prefill on every version."""
    plan = due_plan(records(decode=decode))
    assert plan["scope"]["rule"] == _scope.WHOLE_CHAIN
    assert "not only by a change of its settings" in plan["scope"]["reason"]


def test_scope_is_chosen_only_when_nobody_chose_stages() -> None:
    given = records(decode=OLD)
    assert actions(plan_of(given, when=_plan.WHEN_DUE, decode_alone=True)) == ["restart"] * 3
    assert actions(plan_of(given, stages=[], decode_alone=True)) == ["restart"] * 3
    refused = plan_of(given, when=_plan.WHEN_DUE, stages=["decode", "router"], decode_alone=True)
    assert refused["decision"] == "refused"


def test_R2_a_plan_that_only_claims_the_rule_is_refused_at_the_step() -> None:
    plan = due_plan(records(decode=OLD))
    for member in plan["members"]:
        member["version"] = "0.5.16"
    assert _walk.decide("stop_decode", plan, evidence_up_to("stop_decode", plan))[0] == _walk.REFUSE


def test_the_proof_of_a_decode_alone_has_at_least_eight_requests_and_every_pair() -> None:
    given = records(decode=OLD)
    options = dict(due_plan(given)["options"], requests=2, verify={"parts": []})
    proof = plan_of(given, when=_plan.WHEN_DUE, stages=[], decode_alone=True, options=options)["options"]
    assert proof["requests"] == _scope.DECODE_ALONE_REQUESTS
    assert proof["verify"]["parts"] == ["pairs"]
    assert plan_of(given, options=options)["options"] == options


def test_prefills_that_were_left_alone_are_looked_at_again() -> None:
    plan = due_plan(records(decode=OLD))
    again = _walk.rechecked_members("stop_decode_ranks", plan, "p")
    assert [member["role"] for member in again] == ["prefill"]
    assert _walk.gated_incarnation(again[0], {}) == "i1", "the incarnation that the plan saw"
    assert _walk.rechecked_members(_walk.SETTLE, plan, "p") == again


def test_after_a_decode_alone_nothing_is_due_and_after_an_override_a_co_restart_is() -> None:
    ahead: dict[str, Any] = {"ledger": {"generation": 2, "scope": _scope.DECODE_ALONE}}
    assert due_plan(records(decode=ahead, router=ahead))["decision"] == "nothing"
    further = {"ledger": {"generation": 3, "scope": _scope.ROUTER_ALONE}}
    assert due_plan(records(decode=ahead, router=further))["decision"] == "nothing"
    by_override: dict[str, Any] = {"ledger": {"generation": 2, "scope": "stages by name"}}
    assert "different generations" in due_plan(records(decode=by_override, router=by_override))["due"][0]
    assert "different generations" in due_plan(records(decode=ahead))["due"][0], "its router stayed behind"


def test_a_unit_without_an_incarnation_gave_up_no_workers() -> None:
    # As after a reboot: systemd knows of no incarnation, and the ledger of none that was closed.
    fence = {"generation": 1, "run": {"id": "r1"}, "closed": ""}
    down = record("prefill", "p", {"fence": fence}, active_state="inactive", invocation_id="")
    found = _scope.findings([down, record("decode", "d"), record("router", "r")])
    assert [one["kind"] for one in found] == [_scope.DOWN]
