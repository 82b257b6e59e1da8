# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a step: evidence from registered results, slices, verdict."""

from __future__ import annotations

import types
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.action import co_restart
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _walk

from ..fleet import evidence_up_to, plan_of, record

PREFIX = "pd_step_"


def registered(plan: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return host variables in which the tasks' results are registered."""
    hostvars: dict[str, dict[str, Any]] = {member["host"]: {} for member in plan["members"]}
    for step, hosts in evidence.items():
        for host, given in hosts.items():
            hostvars[host][PREFIX + step] = {"clusters": {plan["cluster"]: given}, "changed": True}
    return hostvars


class Action(co_restart.ActionModule):
    """The action with its surroundings replaced: arguments, and the module on the host."""

    def __init__(self, arguments: dict[str, Any], answers: list[dict[str, Any]], check_mode: bool = False):
        self._task = types.SimpleNamespace(args=arguments, check_mode=check_mode, async_val=0)
        self.answers = answers
        self.calls: list[dict[str, Any]] = []

    def validate_argument_spec(self, argument_spec: Any = None, **more: Any) -> Any:
        return None, dict(
            {"evidence": PREFIX, "attempts": {}, "rollback": "never", "roll": "", "wave": 0}, **self._task.args
        )

    def _execute_module(self, module_name: Any = None, module_args: Any = None, **more: Any) -> Any:
        self.calls.append(dict(module_args))
        return self.answers.pop(0)


def run(
    monkeypatch: pytest.MonkeyPatch,
    action: Action,
    plan: dict[str, Any],
    evidence: dict[str, dict[str, Any]],
    host: str = "p",
) -> dict[str, Any]:
    monkeypatch.setattr(co_restart.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    return action.run(task_vars={"inventory_hostname": host, "hostvars": registered(plan, evidence)})


def answer(plan: dict[str, Any], outcome: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "message": message,
        "changed": True,
        "members": {},
        "state": {"slice": message},
        "generation": plan["generation"],
        "run": plan["run"]["id"],
        **more,
    }


def step_of(step: str, plan: dict[str, Any]) -> dict[str, Any]:
    return {"step": step, "plan": {"plans": {"c": plan}}}


def test_evidence_is_what_the_tasks_registered() -> None:
    plan = plan_of()
    evidence = evidence_up_to(_walk.RECORD, plan)
    assert co_restart.evidence_of(plan, registered(plan, evidence), PREFIX) == evidence


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"unreachable": True, "msg": "no route"}, "unreachable"),
        ({"failed": True, "msg": "module crashed"}, "failed"),
        ({"skipped": True}, None),
        ({"clusters": {"another": {"outcome": "ok"}}}, None),
        ({"clusters": {"c": {"outcome": "skipped", "message": ""}}, "skipped": True}, "skipped"),
        ({"unreachable": True, "clusters": {"c": {"outcome": "ok"}}}, "unreachable"),
    ],
)
def test_R6_only_a_result_that_tells_of_the_cluster_is_evidence(result: dict[str, Any], outcome: str | None) -> None:
    plan = plan_of()
    found = co_restart.evidence_of(plan, {"p": {PREFIX + "lock": result}, "d": {}, "r": {}}, PREFIX)
    assert found.get("lock", {}).get("p", {}).get("outcome") == outcome


def test_a_step_goes_on_in_slices_with_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    answers = [answer(plan, "waiting", "one"), answer(plan, "waiting", "two"), answer(plan, "ok", "done")]
    action = Action(step_of("drain", plan), answers)
    result = run(monkeypatch, action, plan, evidence_up_to("drain", plan))
    assert [call["state"] for call in action.calls] == [{}, {"slice": "one"}, {"slice": "two"}]
    assert action.calls[0]["slice_seconds"] < action.calls[2]["slice_seconds"]
    assert result["clusters"]["c"]["outcome"] == "ok"
    assert "state" not in result["clusters"]["c"]
    assert not result.get("failed")


def test_R2_a_step_without_evidence_is_refused_before_any_host_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    action = Action(step_of("start_decode", plan), [])
    result = run(monkeypatch, action, plan, {}, "d")
    assert result["failed"]
    assert "walk the whole playbook" in result["msg"]
    assert action.calls == []


def test_R4_after_a_failed_step_the_rest_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    evidence = evidence_up_to("stop_decode", plan)
    evidence["start_prefill"]["p"].update(outcome="failed", message="it died")
    result = run(monkeypatch, Action(step_of("stop_decode", plan), []), plan, evidence, "d")
    assert result["skipped"]
    assert result["clusters"]["c"]["outcome"] == "skipped"


def test_R4_a_module_that_crashed_is_a_failed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    action = Action(step_of("drain", plan), [{"failed": True, "msg": "no requests library"}])
    result = run(monkeypatch, action, plan, evidence_up_to("drain", plan))
    assert result["failed"]
    assert result["clusters"]["c"]["outcome"] == "failed"
    assert "no requests library" in result["msg"]


def test_a_walk_without_a_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Action({"step": "lock", "plan": {}}, []), plan_of(), {})
    assert result["failed"]
    assert "no plan" in result["msg"]


@pytest.mark.parametrize("step", _walk.STEPS)
def test_check_mode_calls_no_host(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    plan = plan_of()
    action = Action(step_of(step, plan), [], check_mode=True)
    for host in ("p", "d", "r"):
        result = run(monkeypatch, action, plan, {}, host)
        assert not result.get("failed")
        words = result.get("msg", "")
        assert ("would" in words) == bool(result["changed"])
    assert action.calls == []


def test_check_mode_says_which_unit_would_be_restarted_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    result = run(monkeypatch, Action(step_of("stop_prefill", plan), [], check_mode=True), plan, {})
    assert result["msg"] == "would stop sglang-c-prefill.service (the chain restarts as a whole)"


def test_verdict_is_ok_only_after_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    evidence = evidence_up_to(_walk.RECORD, plan)
    result = run(monkeypatch, Action(step_of("verdict", plan), []), plan, evidence)
    assert not result.get("failed")
    assert result["lines"][0] == "cluster c: OK, generation 2, stages prefill, decode, router"
    del evidence[_walk.SETTLE]
    result = run(monkeypatch, Action(step_of("verdict", plan), []), plan, evidence)
    assert result["failed"]
    assert "step settle was not walked" in result["msg"]


def test_R5_a_failed_verdict_says_how_far_it_came_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    evidence = evidence_up_to("restart_router", plan)
    evidence["start_decode"]["d"] = answer(plan, "failed", "out of memory")
    result = run(monkeypatch, Action(step_of("verdict", plan), []), plan, evidence)
    assert result["failed"]
    for words in ("half-restarted", "out of memory", "sglang-c-prefill.service", "pd_co_restart_clusters=c"):
        assert words in result["msg"]
    nothing = {"lock": {"p": answer(plan, "failed", "held")}}
    result = run(monkeypatch, Action(step_of("verdict", plan), []), plan, nothing)
    assert "Nothing was stopped" in result["msg"]


def test_one_refused_cluster_fails_the_verdict_beside_a_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    action = Action({"step": "verdict", "plan": {"plans": {"c": plan}, "refused": {"b": ["locked"]}}}, [])
    result = run(monkeypatch, action, plan, evidence_up_to(_walk.RECORD, plan))
    assert result["failed"]
    assert "cluster b: REFUSED, nothing was stopped: locked" in result["msg"]
    assert "cluster c: OK" in result["msg"]


def test_summary_of_several_clusters_fails_with_the_words_of_the_failed_one() -> None:
    good = {"outcome": "ok", "message": "fine", "changed": True}
    bad = {"outcome": "failed", "message": "first line\nevidence", "changed": True}
    result = co_restart._summary({"a": good, "b": bad})
    assert result["failed"]
    assert result["msg"] == "first line\nevidence"
    assert result["clusters"]["b"]["message"] == "first line"
    assert result["clusters"]["a"] == good
    assert co_restart._summary({})["skipped"]


def test_check_mode_stops_nothing_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of([record("prefill", "p"), record("decode", "d", active_state="failed"), record("router", "r")])
    stop, start = [Action(step_of(step, plan), [], check_mode=True) for step in ("stop_decode", "start_decode")]
    assert run(monkeypatch, stop, plan, {}, "d")["skipped"]
    assert "would start" in run(monkeypatch, start, plan, {}, "d")["msg"]


# -- attempts ----------------------------------------------------------------------------


def conclude(
    monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any], evidence: dict[str, Any], **arguments: Any
) -> dict[str, Any]:
    return run(monkeypatch, Action(dict(step_of("conclude", plan), **arguments), []), plan, evidence)


def failed(plan: dict[str, Any], step: str = "requests") -> dict[str, dict[str, Any]]:
    evidence = evidence_up_to(_walk.RECORD, plan)
    host = _walk.hosts_of_step(step, plan)[-1]
    evidence[step][host].update(outcome="failed", message="not served")
    return evidence


def test_F7_a_failure_is_followed_by_the_last_good_revision_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of()
    found = conclude(monkeypatch, plan, failed(plan), rollback="on_failure")
    assert found["next"]["c"]["what"] == "roll back"
    assert (found["next"]["c"]["follows"], found["next"]["c"]["run"]) == (plan["generation"], plan["run"])
    assert conclude(monkeypatch, plan, failed(plan))["next"] == {}


def test_a_cluster_that_gets_another_attempt_stays_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    attempts = conclude(monkeypatch, plan, failed(plan), rollback="on_failure")
    kept = Action(dict(step_of("unlock", plan), attempts=attempts), [])
    assert run(monkeypatch, kept, plan, {}).get("skipped")
    assert kept.calls == []
    last = Action(step_of("unlock", plan), [answer(plan, "ok", "unlocked")])
    run(monkeypatch, last, plan, {})
    assert [call["step"] for call in last.calls] == ["unlock"]


def rolled_back(monkeypatch: pytest.MonkeyPatch, second: dict[str, Any], evidence: Any) -> dict[str, Any]:
    """Return the verdict after a first attempt that failed and this second one."""
    first = plan_of()
    attempts = conclude(monkeypatch, first, failed(first), rollback="on_failure")
    attempts = conclude(monkeypatch, second, evidence, rollback="on_failure", attempts=attempts)
    assert attempts["next"] == {}
    return run(monkeypatch, Action(dict(step_of("verdict", first), attempts=attempts), []), second, evidence)


RESTORE = {"generation": 1, "reason": "last good", "automatic": True, "units": {}}


def test_F7_rolled_back_and_verified_is_no_success_and_says_so_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    second = dict(plan_of(), generation=3, restore=RESTORE)
    result = rolled_back(monkeypatch, second, evidence_up_to(_walk.RECORD, second))
    assert result["failed"]
    lines = result["msg"].splitlines()
    assert lines[0] == "cluster c: FAILED, generation 2 (whole chain)"
    assert "cluster c: OK, generation 3, stages prefill, decode, router" in lines
    assert "cluster c: ROLLED BACK to generation 1, which is proved. What was wanted is NOT live" in lines


def test_a_rollback_that_fails_as_well_names_both_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    second = dict(plan_of(), generation=3, restore=RESTORE)
    result = rolled_back(monkeypatch, second, failed(second, "start_decode"))
    assert result["failed"]
    for words in ("FAILED, generation 2", "FAILED, generation 3", "half-restarted"):
        assert words in result["msg"]
    assert "ROLLED BACK" not in result["msg"]


def test_a_second_attempt_that_is_refused_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plan_of()
    attempts = conclude(monkeypatch, first, failed(first), rollback="on_failure")
    refused = Action(
        {"step": "conclude", "plan": {"plans": {}, "refused": {"c": ["no revision"]}}, "attempts": attempts}, []
    )
    attempts = run(monkeypatch, refused, first, {})
    assert attempts["next"] == {}
    result = run(monkeypatch, Action(dict(step_of("verdict", first), attempts=attempts), []), first, {})
    assert result["failed"]
    assert "cluster c: the next attempt was REFUSED: no revision" in result["msg"]
    assert "half-restarted" in result["msg"]


def test_attempts_of_another_play_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    attempts = conclude(monkeypatch, plan, evidence_up_to(_walk.RECORD, plan))
    attempts["attempts"]["c"][0]["run"] = "of another play"
    result = run(monkeypatch, Action(dict(step_of("verdict", plan), attempts=attempts), []), plan, {})
    assert result["failed"]
    assert "step lock was not walked" in result["msg"]


def test_check_mode_concludes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    action = Action(dict(step_of("conclude", plan), rollback="on_failure"), [], check_mode=True)
    assert run(monkeypatch, action, plan, {})["next"] == {}
