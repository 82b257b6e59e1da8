# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk one step of a co-restart from the controller; documented in plugins/modules/co_restart.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _steps, _walk
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_files
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.slices import SlicedCall

display = Display()

CONCLUDE = "conclude"
VERDICT = "verdict"

NO_PLAN = (
    "There is no plan, so nothing was done: walk the whole playbook inferops.sglang_pd.co_restart, not a part of it "
    "by --start-at-task or --tags [rule: the order is kept whatever the way in]"
)

_DOES = {
    "restore": "put back an older revision of",
    "stop_prefill": "stop",
    "stop_prefill_ranks": "stop",
    "start_prefill": "start and gate",
    "stop_decode": "stop",
    "stop_decode_ranks": "stop",
    "start_decode": "start and gate",
    "restart_router": "restart and gate",
}


class ActionModule(ActionBase):
    """Decide with the pure core, run the step on the host in slices, show progress."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the step's result for the clusters of this host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, given = self.validate_argument_spec(
            argument_spec={
                "step": {"type": "str", "required": True, "choices": [*_walk.STEPS, CONCLUDE, VERDICT]},
                "plan": {"type": "dict", "required": True},
                "evidence": {"type": "str", "default": "pd_step_"},
                "rollback": {
                    "type": "str",
                    "choices": [_attempts.NEVER, _attempts.ON_FAILURE],
                    "default": _attempts.NEVER,
                },
                "attempts": {"type": "dict", "default": {}},
                "roll": {"type": "str", "default": ""},
                "wave": {"type": "int", "default": 0},
            }
        )
        if "plans" not in given["plan"]:
            return dict(result, failed=True, msg=NO_PLAN)
        step, plans = given["step"], given["plan"]["plans"]
        if step == CONCLUDE:
            return dict(result, **self._conclude(given, task_vars["hostvars"]))
        if step == VERDICT:
            return dict(result, **self._verdict(given, task_vars["hostvars"]))
        if step == _walk.UNLOCK:
            # A cluster that gets another attempt stays locked until that is over.
            plans = {name: plan for name, plan in plans.items() if name not in given["attempts"].get("next", {})}
        host = task_vars["inventory_hostname"]
        mine = {name: plan for name, plan in plans.items() if host in _walk.hosts_of_step(step, plan)}
        if self._task.check_mode:
            would = _would(step, mine, host)
            if step == _walk.RESTORE and any(_walk.restores(plan, host) for plan in mine.values()):
                would.update(self._would_restore(mine, host, task_vars))
            return dict(result, **would)
        walks = [
            _ClusterStep(
                step,
                plan,
                host,
                evidence_of(plan, task_vars["hostvars"], given["evidence"]),
                given["roll"],
                given["wave"],
            )
            for plan in mine.values()
        ]
        # Clusters on one host take turns, so that none waits for another's whole stage.
        while any(walk.result is None for walk in walks):
            for walk in walks:
                if walk.result is None:
                    walk.take(
                        self._execute_module(
                            "inferops.sglang_pd.co_restart_step", module_args=walk.arguments(), task_vars=task_vars
                        )
                    )
        return dict(result, **_summary({walk.plan["cluster"]: walk.result for walk in walks if walk.result}))

    def _would_restore(self, plans: dict[str, Any], host: str, task_vars: Any) -> dict[str, Any]:
        """Ask the host what files a restoration would change; with --diff, how."""
        diff: list[dict[str, Any]] = []
        for plan in plans.values():
            step = _ClusterStep(_walk.RESTORE, plan, host, {})
            given = self._execute_module(
                "inferops.sglang_pd.co_restart_step", module_args=step.arguments(), task_vars=task_vars
            )
            if given.get("failed"):
                return {"failed": True, "msg": given.get("msg", "")}
            diff += given.get("files", [])
        return {"diff": _diff(diff)} if diff else {}

    def _conclude(self, given: dict[str, Any], hostvars: Any) -> dict[str, Any]:
        """Return what the attempts on each cluster came to so far, and what follows in this run."""
        if self._task.check_mode:
            return {"attempts": {}, "next": {}, "changed": False}
        attempts, following = conclusions(
            given["plan"], given["attempts"].get("attempts", {}), hostvars, given["evidence"], given["rollback"]
        )
        for name, what in following.items():
            lines = [*attempts[name][-1]["lines"], "  next     {what}: {why}".format(**what)]
            display.display("\n".join(lines))
        return {"attempts": attempts, "next": following, "changed": False}

    def _verdict(self, given: dict[str, Any], hostvars: Any) -> dict[str, Any]:
        """Return the end of the run: what became of each cluster, failed when one failed."""
        lines, failed = [], False
        plan = given["plan"]
        for name, refusals in plan.get("refused", {}).items():
            failed = True
            lines.append("cluster {0}: REFUSED, nothing was stopped: {1}".format(name, "; ".join(refusals)))
        for name, why in plan.get("nothing", {}).items():
            lines.append("cluster {0}: nothing to do, {1}".format(name, why))
        for name, one in plan.get("plans", {}).items():
            if self._task.check_mode:
                lines.append("cluster {0}: would be co-restarted, generation {1}".format(name, one["generation"]))
                continue
            # Those of this run only: another play of the same ansible-playbook leaves its own.
            attempts = [
                attempt
                for attempt in given["attempts"].get("attempts", {}).get(name, [])
                if attempt["run"] == one["run"]["id"]
            ]
            attempts = attempts or [_attempt(one, evidence_of(one, hostvars, given["evidence"]), _attempts.NEVER)]
            came_to = _attempts.verdict(attempts)
            failed = failed or came_to in (_attempts.FAILED, _attempts.ROLLED_BACK)
            lines += [line for attempt in attempts for line in attempt["lines"]]
            lines += _closing_words(name, came_to, attempts)
        if failed:
            return {"failed": True, "msg": "\n".join(lines), "changed": False}
        display.display("\n".join(lines))
        return {"lines": lines, "changed": False}


class _ClusterStep(SlicedCall):
    """One step of one cluster on one host, run in slices until it has a result; a roll is told of it."""

    def __init__(
        self, step: str, plan: dict[str, Any], host: str, evidence: dict[str, Any], roll: str = "", wave: int = 0
    ):
        super().__init__(
            "{0} [{1}]".format(plan["cluster"], host),
            {"step": step, "plan": plan, "host": host, "evidence": evidence},
        )
        self.plan = plan
        self._roll = roll
        self._of = {"wave": wave, "cluster": plan["cluster"], "host": host, "step": step}
        verb, why = _walk.decide(step, plan, evidence)
        if verb != _walk.RUN:
            outcome = _steps.REFUSED if verb == _walk.REFUSE else _steps.SKIPPED
            self.result = {"outcome": outcome, "message": why, "changed": False}
        else:
            self._tell("step_began")

    def take(self, given: dict[str, Any]) -> None:
        """Take what a slice gave."""
        super().take(given)
        if self.result is None:
            self._tell("waiting", message=given["message"])
        else:
            self._tell("step_ended", outcome=self.result["outcome"], message=self.result["message"])

    def _tell(self, event: str, **more: Any) -> None:
        if self._roll:
            roll_files.tell(self._roll, event, **self._of, **more)


def evidence_of(plan: dict[str, Any], hostvars: Any, prefix: str) -> dict[str, dict[str, Any]]:
    """Return what the steps gave for a cluster, by step and host, from the registered results."""
    evidence: dict[str, dict[str, Any]] = {}
    for host in sorted({member["host"] for member in plan["members"]}):
        for step in _walk.STEPS:
            registered = hostvars[host].get(prefix + step)
            given = _of_cluster(registered, plan["cluster"]) if registered else None
            if given is not None:
                evidence.setdefault(step, {})[host] = given
    return evidence


def _of_cluster(registered: dict[str, Any], cluster: str) -> dict[str, Any] | None:
    if registered.get("unreachable"):
        return {"outcome": _walk.UNREACHABLE, "message": str(registered.get("msg", "unreachable")).strip()}
    if "clusters" in registered:
        one = registered["clusters"].get(cluster)
        return dict(one) if one else None
    if registered.get("failed"):
        return {"outcome": _walk.FAILED, "message": str(registered.get("msg", ""))}
    return None


def _summary(clusters: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a task result for the clusters' results."""
    if not clusters:
        return {"skipped": True, "changed": False, "skip_reason": "no member here takes part in this step"}
    if all(one["outcome"] == _steps.SKIPPED for one in clusters.values()):
        reasons = "; ".join(one["message"] for one in clusters.values())
        return {"skipped": True, "changed": False, "skip_reason": reasons, "clusters": clusters}
    bad = [one["message"] for one in clusters.values() if one["outcome"] in (_steps.FAILED, _steps.REFUSED)]
    # The evidence of a failure is shown once, as the task's message; others need its first line.
    short = {
        name: {
            key: value for key, value in dict(one, message=one["message"].split("\n", 1)[0]).items() if key != "files"
        }
        for name, one in clusters.items()
    }
    result = {"clusters": short, "changed": any(one["changed"] for one in clusters.values())}
    files = [item for one in clusters.values() for item in one.get("files", [])]
    if files:
        result["diff"] = _diff(files)
    messages = bad or [one["message"] for one in clusters.values() if one["message"]]
    if bad:
        result["failed"] = True
    if messages:
        result["msg"] = "\n".join(messages)
    return result


def _would(step: str, plans: dict[str, Any], host: str) -> dict[str, Any]:
    """Return what a step would do, for check mode."""
    words = []
    for plan in plans.values():
        for member in _walk.members_of_step(step, plan, host):
            if step in _DOES and not (step.startswith("stop_") and member["action"] == "start"):
                words.append("would {0} {1} ({2})".format(_DOES[step], member["unit"], member["reason"]))
    if not words:
        return {"skipped": True, "changed": False, "skip_reason": "nothing would be changed by this step here"}
    for line in words:
        display.display("  [{0}] {1}".format(host, line))
    return {"changed": True, "msg": "; ".join(words)}


def _success(plan: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "cluster {0}: OK, generation {1}, stages {2}".format(
            plan["cluster"], plan["generation"], ", ".join(_walk.stages_restarted(plan)) or "none"
        )
    ]
    for step, title in (
        (_walk.RESTORE, "back"),
        (_walk.DRAIN, "cut"),
        (_walk.REQUESTS, "proof"),
        (_walk.VERIFY, "verify"),
        (_walk.SETTLE, "queues"),
        (_walk.RECORD, "note"),
    ):
        for host, given in sorted(evidence.get(step, {}).items()):
            if given.get("message"):
                lines.append("  {0:<6} {1}: {2}".format(title, host, given["message"]))
    return lines


def conclusions(
    plan: dict[str, Any], before: dict[str, list[dict[str, Any]]], hostvars: Any, prefix: str, rollback: str
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """Return the attempts on each cluster, those before included, and what follows by cluster."""
    attempts = {name: list(found) for name, found in before.items()}
    following: dict[str, dict[str, Any]] = {}
    for name, refusals in plan.get("refused", {}).items():
        if name in attempts:
            # It was to have another attempt, and planning that one found a reason against it.
            reason = "; ".join(refusals)
            lines = ["cluster {0}: the next attempt was REFUSED: {1}".format(name, reason)]
            last = attempts[name][-1]
            attempts[name].append(dict(last, outcome=_attempts.REFUSED, reason=reason, lines=lines, next=None))
    for name, one in plan["plans"].items():
        attempt = _attempt(one, evidence_of(one, hostvars, prefix), rollback)
        attempts.setdefault(name, []).append(attempt)
        if attempt["next"]:
            following[name] = _attempts.following(one, attempt)
    return attempts, following


def _attempt(plan: dict[str, Any], evidence: dict[str, dict[str, Any]], rollback: str) -> dict[str, Any]:
    """Return what an attempt came to, with lines for people."""
    attempt = _attempts.conclude(plan, evidence, rollback)
    attempt["stopped"] = _walk.was_anything_stopped(plan, evidence)
    attempt["healthy"] = [
        unit
        for step in ("start_prefill", "start_decode", "restart_router")
        for given in evidence.get(step, {}).values()
        for unit, shown in given.get("members", {}).items()
        if shown.get("outcome") == "passed"
    ]
    attempt["lines"] = (
        _success(plan, evidence) if attempt["outcome"] == _attempts.OK else _failure(plan, attempt["reason"])
    )
    return attempt


def _failure(plan: dict[str, Any], reason: str) -> list[str]:
    return [
        "cluster {0}: FAILED, generation {1} ({2})".format(plan["cluster"], plan["generation"], plan["scope"]["rule"]),
        "  " + reason,
    ]


def _closing_words(cluster: str, came_to: str, attempts: list[dict[str, Any]]) -> list[str]:
    """Return what the last line of a cluster's verdict says: what it is now, and what helps."""
    last = attempts[-1]
    if came_to == _attempts.OK:
        return []
    if came_to == _attempts.WIDENED:
        return [
            "cluster {0}: OK, with a WARNING: {1} failed its proof, the whole chain healed it. Do not rely on {1} "
            "here: take pd_co_restart_decode_alone away".format(cluster, attempts[0]["scope"])
        ]
    if came_to == _attempts.ROLLED_BACK:
        return [
            "cluster {0}: ROLLED BACK to generation {1}, which is proved. What was wanted is NOT live".format(
                cluster, last["restore"]
            ),
            "  The inventory still wants it: mend it before the next inferops.sglang_pd.deploy",
        ]
    lines = []
    if any(attempt["stopped"] for attempt in attempts):
        walked = [attempt for attempt in attempts if attempt["outcome"] != _attempts.REFUSED]
        lines.append("  healthy in this generation: {0}".format(", ".join(walked[-1]["healthy"]) or "none"))
        lines.append("  The cluster is half-restarted. Mend the cause, then run the same playbook again:")
    else:
        lines.append("  Nothing was stopped. Mend the cause, then run the same playbook again:")
    again = "  ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters={0}"
    back = "  ansible-playbook inferops.sglang_pd.rollback -e pd_rollback_clusters={0}"
    lines.append(again.format(cluster))
    if any(attempt["stopped"] for attempt in attempts) and not last["restore"]:
        lines += ["  Or go back to the last generation that ended well:", back.format(cluster)]
    return lines


def _diff(files: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return changed files as Ansible shows them."""
    return [
        {
            "before_header": one["path"],
            "after_header": one["path"],
            "before": one["before"],
            "after": one["after"],
        }
        for one in files
    ]
