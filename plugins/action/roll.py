# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk a roll from the controller; documented in plugins/modules/roll.py."""

from __future__ import annotations

import secrets
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _roll
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_files, roll_report

display = Display()

STEPS = (
    "reserve",
    "confirm",
    "keep",
    "release",
    "waves",
    "begin",
    "hook",
    "ready",
    "walked",
    "soaked",
    "end",
    "conclude",
)
#: Steps that run on each host that holds locks of the roll's clusters; the others once.
ON_HOSTS = {"reserve": "reserved", "keep": "renewed", "release": "released"}

BEFORE_DRAIN, AFTER_VERIFY, ON_FAILURE = "before_drain", "after_verify", "on_failure"


class ActionModule(ActionBase):
    """Keep the roll's events, decide with the pure core, reserve and release on the hosts."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the step's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        text, names = {"type": "str", "default": ""}, {"type": "dict", "default": {}}
        _unused, given = self.validate_argument_spec(
            argument_spec={
                "step": {"type": "str", "required": True, "choices": list(STEPS)},
                "roll": {"type": "dict", "required": True},
                "wave": {"type": "int", "default": 0},
                "clusters": {"type": "list", "elements": "str", "default": []},
                "plan": names,
                "attempts": names,
                "reserved": dict(text, default="pd_roll_reserved"),
                "proof": dict(text, default="pd_roll_after"),
                "rollback": {
                    "type": "str",
                    "choices": [_attempts.NEVER, _attempts.ON_FAILURE],
                    "default": _attempts.NEVER,
                },
                "take_over": text,
                "lease_seconds": {"type": "float", "default": 43200},
                "hook": {"type": "str", "choices": [BEFORE_DRAIN, AFTER_VERIFY, ON_FAILURE]},
                "message": text,
            }
        )
        roll = given["roll"]
        if given["step"] in ON_HOSTS:
            return dict(result, **self._lock(given, task_vars))
        try:
            return dict(
                result, changed=False, **getattr(self, "_" + given["step"])(given, roll["directory"], task_vars)
            )
        except (OSError, ValueError) as trouble:
            return dict(result, failed=True, msg="The files of the roll cannot be used: {0}".format(trouble))

    def _lock(self, given: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Reserve or release the clusters whose locks are on this host."""
        clusters = given["roll"]["reserve"].get(task_vars["inventory_hostname"], [])
        if not clusters:
            return {"skipped": True, "skip_reason": "no lock of a cluster of this roll is here"}
        found: dict[str, Any] = self._execute_module(
            "inferops.sglang_pd.cluster_lock",
            module_args={
                "clusters": clusters,
                "state": ON_HOSTS[given["step"]],
                "run": given["roll"]["run"],
                "reason": given["take_over"],
                "gone": given["roll"].get("gone", []),
                "lease_seconds": given["lease_seconds"],
            },
            task_vars=task_vars,
        )
        return found

    @staticmethod
    def _confirm(given: dict[str, Any], directory: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Begin the roll where all of its clusters are reserved."""
        roll = roll_files.plan(directory)
        roll_files.tell(
            directory,
            "roll_began",
            owner=roll["owner"],
            purpose=roll["purpose"],
            waves=len(roll["waves"]),
            clusters=sum(1 for row in roll["clusters"].values() if row["wave"]),
        )
        for name, one in roll.get("before", {}).items():
            if not one["told"]:
                message = "so its hosts tell: the process of this roll that did it was gone before it came to that"
                _tell_end(
                    directory, 0, name, _Ending(one["outcome"], message, roll["clusters"][name]["on_record"], True)
                )
        if roll["decision"] == _roll.REFUSED:
            why = "; ".join(item["message"] for item in roll["problems"])
            return _end_of_roll(directory, roll, _roll.REFUSED, why)
        refused = []
        for host in given["roll"]["reserve"]:
            registered = task_vars["hostvars"][host].get(given["reserved"]) or {}
            if registered.get("failed") or registered.get("unreachable") or "refused" not in registered:
                refused.append("{0} cannot be asked: {1}".format(host, registered.get("msg", "no answer")))
            for cluster, holder in registered.get("refused", {}).items():
                refused.append("cluster {0} is in roll {1}".format(cluster, holder))
            for cluster, latest in registered.get("announced", {}).items():
                if latest != roll["clusters"][cluster]["announced"]:
                    refused.append(
                        "cluster {0} was co-restarted by another run while this roll was planned: plan it again".format(
                            cluster
                        )
                    )
        if refused:
            return _end_of_roll(directory, roll, _roll.REFUSED, "; ".join(refused))
        return {"go": roll["decision"] == "go", "over": False}

    @staticmethod
    def _waves(_given: dict[str, Any], directory: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the waves of the hosts of this batch."""
        roll = roll_files.plan(directory)
        here = set(task_vars["ansible_play_batch"])
        mine: list[int] = next((one["waves"] for one in roll["batches"] if here & set(one["hosts"])), [])
        waves = []
        for wave in roll["waves"]:
            if wave["number"] in mine:
                inventory = {name: roll["inventory"][name] for name in wave["clusters"]}
                of_roll = {"roll": roll["roll"], "purpose": roll["purpose"], "restart_when": _when(roll, wave)}
                waves.append(dict(wave, inventory=inventory, **of_roll))
        return {"waves": waves}

    @staticmethod
    def _begin(given: dict[str, Any], directory: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Begin a wave, or end the roll; leave out clusters that do not serve any more."""
        roll, number = roll_files.plan(directory), given["wave"]
        outcome, why = _roll.may_begin(roll, roll_files.events(directory), number, roll_files.cancelled(directory))
        wave = roll["waves"][number - 1]
        lost = "" if outcome else _lost(wave, given["reserved"], task_vars)
        if outcome or lost:
            return _end_of_roll(directory, roll, outcome or _roll.STOPPED, why or lost)
        roll_files.tell(directory, "wave_began", wave=number, kind=wave["kind"], clusters=wave["clusters"])
        display.display(
            "wave {0} of {1} ({2}): {3}".format(number, len(roll["waves"]), wave["kind"], ", ".join(wave["clusters"]))
        )
        chosen = []
        for name in wave["clusters"]:
            proof = _proof_of(name, wave, given["proof"], task_vars)
            if wave["kind"] == _roll.REPAIR or (proof and proof["outcome"] == "ok"):
                chosen.append(name)
                continue
            why = "; ".join(proof["failures"]) if proof else "no requests were sent to it"
            message = (
                "it stopped serving before its turn, and was not touched: {0}. Ask why: inferops.sglang_pd.diagnose; "
                "then co-restart it, or roll with pd_roll_repair=true".format(why)
            )
            _tell_end(directory, number, name, _Ending(_roll.REFUSED, message))
        run_id = _roll.run_id_of(roll["roll"], number, secrets.token_hex(2))
        return {"over": False, "clusters": chosen, "run_id": run_id}

    @staticmethod
    def _hook(given: dict[str, Any], directory: str, _task_vars: dict[str, Any]) -> dict[str, Any]:
        """Note what a hook came to."""
        outcome = "failed" if given["message"] else "ok"
        for name in given["clusters"]:
            roll_files.tell(
                directory,
                "hook_ended",
                wave=given["wave"],
                cluster=name,
                hook=given["hook"],
                outcome=outcome,
                message=given["message"],
            )
        return {}

    @staticmethod
    def _ready(given: dict[str, Any], directory: str, _task_vars: dict[str, Any]) -> dict[str, Any]:
        """Leave out the clusters whose hook before the drain failed."""
        chosen = []
        failed = _roll.failed_hooks(roll_files.events(directory), given["wave"], BEFORE_DRAIN)
        for name in given["clusters"]:
            if name in failed:
                message = "its hook before the drain failed, and it was not touched: {0}".format(failed[name])
                _tell_end(directory, given["wave"], name, _Ending(_roll.FAILED, message))
            else:
                chosen.append(name)
        return {"clusters": chosen}

    @staticmethod
    def _walked(given: dict[str, Any], directory: str, _task_vars: dict[str, Any]) -> dict[str, Any]:
        """Return the clusters of which the co-restart ended well."""
        seconds = roll_files.plan(directory)["options"]["soak_seconds"]
        endings = {name: _ending(name, given["plan"], given["attempts"]) for name in given["clusters"]}
        done = [name for name, ending in endings.items() if ending.outcome == _roll.DONE]
        if done:
            roll_files.tell(directory, "soak_began", wave=given["wave"], clusters=done, seconds=seconds)
        return {"clusters": done}

    @staticmethod
    def _soaked(given: dict[str, Any], directory: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Judge the soak; return the attempts, with those that go back for it where that is asked for."""
        number = given["wave"]
        wave = roll_files.plan(directory)["waves"][number - 1]
        attempts = dict(given["attempts"].get("attempts", {}))
        following, bad = {}, []
        for name in given["clusters"]:
            why = _soak_failure(name, wave, given["proof"], task_vars)
            if not why:
                continue
            bad.append("{0}: {1}".format(name, why))
            last = dict(_attempts.failed_soak(attempts[name][-1], why, given["rollback"]), lines=[why])
            attempts[name] = [*attempts[name][:-1], last]
            if last["next"]:
                following[name] = _attempts.following(given["plan"]["plans"][name], last)
                display.display("cluster {0}: {1}\n  next     {what}: {why}".format(name, why, **last["next"]))
        if given["clusters"]:
            roll_files.tell(
                directory,
                "soak_ended",
                wave=number,
                clusters=given["clusters"],
                outcome="failed" if bad else "ok",
                message="; ".join(bad),
            )
        return {"attempts": attempts, "next": following}

    @staticmethod
    def _end(given: dict[str, Any], directory: str, task_vars: dict[str, Any]) -> dict[str, Any]:
        """End a wave: what became of each cluster, and whether the next wave follows."""
        roll, number = roll_files.plan(directory), given["wave"]
        wave = roll["waves"][number - 1]
        for name in given["clusters"]:
            ending = _ending(name, given["plan"], given["attempts"])
            ending.before = _latency(_proof_of(name, wave, "pd_roll_before", task_vars))
            ending.after = _latency(_proof_of(name, wave, given["proof"], task_vars))
            _tell_end(directory, number, name, ending)
        events = roll_files.events(directory)
        came_to = {name: outcome for name, outcome in _roll.outcomes(events).items() if name in wave["clusters"]}
        failed = sorted(name for name, outcome in came_to.items() if outcome in _roll.BAD)
        roll_files.tell(directory, "wave_ended", wave=number, failed=failed)
        clusters = {
            "good": sorted(set(came_to) - set(failed)),
            "failed": failed,
        }
        outcome, why = _roll.over_after(roll, events, number, roll_files.cancelled(directory))
        if outcome and outcome != _roll.DONE:
            return dict(_end_of_roll(directory, roll, outcome, why), clusters=clusters)
        return {"over": False, "clusters": clusters}

    @staticmethod
    def _conclude(_given: dict[str, Any], directory: str, _task_vars: dict[str, Any]) -> dict[str, Any]:
        """Say what the roll came to; fails where it did not do what was wanted."""
        roll = roll_files.plan(directory)
        ended = _roll.end_of(roll_files.events(directory))
        if ended is None:
            _end_of_roll(directory, roll, *_roll.conclusion(roll, roll_files.events(directory)))
            ended = _roll.end_of(roll_files.events(directory)) or {}
        lines = _roll.summary(roll, roll_files.events(directory))
        lines += ["  {0}".format(path) for path in roll_report.write_all(directory)]
        result = {"outcome": ended["outcome"], "remaining": ended["remaining"]}
        if ended["outcome"] in (_roll.FAILED, _roll.REFUSED, _roll.STOPPED):
            # One message: the lines would say it all again.
            return dict(result, failed=True, msg="\n".join(lines))
        display.display("\n".join(lines))
        return dict(result, lines=lines)


class _Ending:
    """What became of a cluster in its wave."""

    def __init__(self, outcome: str, message: str, generation: int = 0, stopped: bool = False):
        self.outcome = outcome
        self.message = message
        self.generation = generation
        self.stopped = stopped
        self.before: dict[str, float] | None = None
        self.after: dict[str, float] | None = None


def _lost(wave: dict[str, Any], registered: str, task_vars: dict[str, Any]) -> str:
    """Return which clusters of a wave's hosts this roll has lost to somebody else, or ""."""
    return "; ".join(
        "cluster {0} is no longer reserved for this roll, but by {1}".format(cluster, holder)
        for host in wave["hosts"]
        for cluster, holder in (task_vars["hostvars"][host].get(registered) or {}).get("refused", {}).items()
    )


def _when(roll: dict[str, Any], wave: dict[str, Any]) -> str:
    """Return when the clusters of a wave restart: those that do not serve do so whatever is due."""
    return "always" if wave["kind"] == _roll.REPAIR else str(roll["restart_when"])


def _proof_of(cluster: str, wave: dict[str, Any], registered: str, task_vars: dict[str, Any]) -> dict[str, Any] | None:
    """Return the verification of a cluster from the host that it was sent from."""
    for host in wave["hosts"]:
        found = ((task_vars["hostvars"][host].get(registered) or {}).get("clusters") or {}).get(cluster)
        if found:
            return dict(found)
    return None


def _soak_failure(cluster: str, wave: dict[str, Any], registered: str, task_vars: dict[str, Any]) -> str:
    """Return how a cluster failed the verification that was its soak, or ""."""
    proof = _proof_of(cluster, wave, registered, task_vars)
    if proof and proof["outcome"] == "ok":
        return ""
    return "it failed its soak: {0}".format("; ".join(proof["failures"]) if proof else "no requests were sent to it")


def _latency(proof: dict[str, Any] | None) -> dict[str, float] | None:
    """Return the latencies of the first part of a verification."""
    parts = proof["parts"] if proof else []
    latency = parts[0]["latency"] if parts else {}
    if not latency.get("count"):
        return None
    return {"median_seconds": latency["median"], "p95_seconds": latency["p95"]}


def _ending(cluster: str, plan: dict[str, Any], attempts: dict[str, Any]) -> _Ending:
    """Return what the co-restart of a cluster came to."""
    if cluster in plan.get("refused", {}):
        return _Ending(_roll.REFUSED, "; ".join(plan["refused"][cluster]))
    if cluster in plan.get("nothing", {}):
        return _Ending(_roll.NOTHING, plan["nothing"][cluster])
    if cluster not in plan.get("plans", {}):
        return _Ending(_roll.FAILED, "it was not planned, and not touched: {0}".format(plan.get("msg", "no plan")))
    run = plan["plans"][cluster]["run"]["id"]
    mine = [one for one in attempts.get("attempts", {}).get(cluster, []) if one["run"] == run]
    if not mine:
        return _Ending(_roll.FAILED, "its co-restart came to no conclusion", stopped=True)
    came_to = _attempts.verdict(mine)
    outcome = {_attempts.FAILED: _roll.FAILED, _attempts.ROLLED_BACK: _roll.ROLLED_BACK}.get(came_to, _roll.DONE)
    lines = [line.strip() for attempt in mine if attempt["outcome"] != _attempts.OK for line in attempt["lines"]]
    stopped = any(attempt["stopped"] for attempt in mine)
    return _Ending(outcome, "\n".join(lines), mine[-1]["generation"], stopped)


def _tell_end(directory: str, wave: int, cluster: str, ending: _Ending) -> None:
    roll_files.tell(
        directory,
        "cluster_ended",
        wave=wave,
        cluster=cluster,
        outcome=ending.outcome,
        message=ending.message,
        generation=ending.generation,
        stopped=ending.stopped,
        latency={"before": ending.before, "after": ending.after},
    )


def _end_of_roll(directory: str, roll: dict[str, Any], outcome: str, why: str) -> dict[str, Any]:
    """Note that the roll ended."""
    left = _roll.remaining(roll, roll_files.events(directory))
    roll_files.tell(directory, "roll_ended", outcome=outcome, why=why, remaining=left)
    return {"over": True, "go": False, "outcome": outcome, "why": why, "clusters": {}}
