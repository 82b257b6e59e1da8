# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of a co-restart: which step may run, on which hosts, given what came before.

Pure. The playbook walks :data:`STEPS`; both halves of the ``co_restart`` plugin (on the
controller and on the host) ask :func:`decide` before they act. So a step out of order, a
stage whose predecessor gave no evidence, a decode without its prefills are refused
whatever the way in: tags, ``--limit``, ``--start-at-task``, a task of the user's own.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _scope, _topology
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER

LOCK = "lock"
RESTORE = "restore"
CLOSE = "close"
DRAIN = "drain"
REQUESTS = "requests"
VERIFY = "verify"
SETTLE = "settle"
RECORD = "record"
UNLOCK = "unlock"

#: The steps of a co-restart, in the order in which they are walked. Files of an older
#: revision are put in place while everything still serves. Rank 0 of a
#: multi-node engine stops before the other ranks, because those ignore SIGTERM until
#: rank 0 tells them; all ranks start in one step, because they rendezvous.
STEPS = (
    LOCK,
    RESTORE,
    CLOSE,
    DRAIN,
    "stop_prefill",
    "stop_prefill_ranks",
    "start_prefill",
    "stop_decode",
    "stop_decode_ranks",
    "start_decode",
    "restart_router",
    REQUESTS,
    VERIFY,
    SETTLE,
    RECORD,
    UNLOCK,
)
_STAGE_OF = {
    "stop_prefill": PREFILL,
    "stop_prefill_ranks": PREFILL,
    "start_prefill": PREFILL,
    "stop_decode": DECODE,
    "stop_decode_ranks": DECODE,
    "start_decode": DECODE,
    "restart_router": ROUTER,
}
#: These two are walked whatever became of the steps before.
ALWAYS = (RECORD, UNLOCK)

RUN = "run"
SKIP = "skip"
REFUSE = "refuse"

#: Outcomes of a step on a host, as evidence carries them.
OK = "ok"
FAILED = "failed"
UNREACHABLE = "unreachable"


def members_of_step(step: str, plan: dict[str, Any], host: str) -> list[dict[str, Any]]:
    """Return the planned members on a host that take part in a step."""
    here = [m for m in plan["members"] if m["host"] == host]
    stage = _STAGE_OF.get(step)
    if stage is not None:
        here = [m for m in here if m["role"] == stage and m["action"] != "none"]
        if step.startswith("stop_"):
            others = step.endswith("_ranks")
            # One that was down when the plan was made may run by now: it is stopped like the others.
            here = [m for m in here if m["action"] in ("restart", "start") and (m["node_rank"] > 0) == others]
    elif step in (DRAIN, SETTLE):
        here = [m for m in here if m["role"] != ROUTER and m["node_rank"] == 0]
    elif step == REQUESTS:
        here = [m for m in here if m["role"] == ROUTER]
    elif step == VERIFY:
        # From one host, as inferops.sglang_pd.verify does.
        first = next(m for m in plan["members"] if m["role"] == ROUTER)
        here = [m for m in here if (m["host"], m["unit"]) == (first["host"], first["unit"])]
    elif step == RESTORE:
        here = [m for m in here if m["unit"] in restores(plan, host)]
    elif step in (LOCK, UNLOCK):
        here = here if host == plan["lock_host"] else []
    return here


def verifies(step: str, plan: dict[str, Any], host: str) -> bool:
    """Tell whether what a verification needs of a host must be there: at its own step, and before anything stops."""
    return bool(step in (CLOSE, VERIFY) and plan["options"]["verify"]["parts"] and members_of_step(VERIFY, plan, host))


def restores(plan: dict[str, Any], host: str) -> dict[str, int]:
    """Return the revisions that a plan puts in place on a host, by unit; none where it is no rollback."""
    found: dict[str, int] = (plan.get("restore") or {"units": {}})["units"].get(host, {})
    return found


def rechecked_members(step: str, plan: dict[str, Any], host: str) -> list[dict[str, Any]]:
    """Return the members on a host that must still be the incarnations that passed their gate.

    A gate is a moment. The prefills are looked at once more just before decodes start, and
    everything before the proof is accepted: what died or was replaced since was never proven.
    """
    roles = {"stop_decode_ranks": (PREFILL,), SETTLE: _topology.STAGES}.get(step, ())
    # Prefills that decodes were restarted without must be the ones that the plan saw.
    untouched = (PREFILL,) if plan["scope"]["rule"] == _scope.DECODE_ALONE else ()
    return [
        m
        for m in plan["members"]
        if m["host"] == host and m["role"] in roles and (m["action"] != "none" or m["role"] in untouched)
    ]


def gated_incarnation(member: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> str:
    """Return the incarnation in which a member passed its gate in this run, or "".

    For one that this run leaves alone: the incarnation that the plan saw.
    """
    if member["action"] == "none":
        return str(member["before"])
    for step, stage in _STAGE_OF.items():
        if stage == member["role"] and step.startswith(("start_", "restart_")):
            given = evidence.get(step, {}).get(member["host"], {})
            return str(given.get("members", {}).get(member["unit"], {}).get("incarnation", ""))
    return ""


def hosts_of_step(step: str, plan: dict[str, Any]) -> list[str]:
    """Return the hosts that take part in a step: those of its members, and the lock's.

    The lock's host takes part in every step: it renews the lease, and finds out when
    another run took the lock over.
    """
    hosts = [plan["lock_host"]]
    for member in plan["members"]:
        host = member["host"]
        if host not in hosts and (members_of_step(step, plan, host) or rechecked_members(step, plan, host)):
            hosts.append(host)
    return hosts


def decide(step: str, plan: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Return whether a step runs, is skipped or is refused, and why.

    :param evidence: by step and host, what the step gave there: ``outcome`` (ok,
        failed, unreachable), ``message``, ``generation``, ``run``, and for ``start_*``
        and ``restart_*`` ``members`` by unit with ``outcome``, ``incarnation``,
        ``healthy_since``. A step that was not walked on a host has no entry.
    """
    if step == UNLOCK:
        # The lock itself says whose it is; only its owner's run takes it away.
        return RUN, ""
    if step == RECORD:
        lock = evidence.get(LOCK, {}).get(plan["lock_host"])
        if lock is None or lock["outcome"] != OK or _not_shown(LOCK, plan, plan["lock_host"], lock):
            return SKIP, "the cluster was never locked by this run"
        return RUN, ""
    refusal = _breaks_rule_one(step, plan)
    if refusal:
        return REFUSE, refusal
    for earlier in STEPS[: STEPS.index(step)]:
        for host in hosts_of_step(earlier, plan):
            given = evidence.get(earlier, {}).get(host)
            if given is None:
                return REFUSE, (
                    "step {0} wants the evidence of step {1} from host {2}, and there is none: walk the whole "
                    "playbook inferops.sglang_pd.co_restart over the whole cluster {3}"
                ).format(step, earlier, host, plan["cluster"])
            if given["outcome"] != OK:
                return SKIP, "cluster {0} stopped at step {1} on {2}".format(plan["cluster"], earlier, host)
            missing = _not_shown(earlier, plan, host, given)
            if missing:
                return REFUSE, missing
    return RUN, ""


def _breaks_rule_one(step: str, plan: dict[str, Any]) -> str:
    """Return why a step would restart decodes without their prefills, or ""."""
    if _STAGE_OF.get(step) != DECODE or plan["override"] or _scope.may_leave_prefills(plan):
        return ""
    prefills = [m for m in plan["members"] if m["role"] == PREFILL]
    decodes = [m for m in plan["members"] if m["role"] == DECODE and m["action"] in ("restart", "start")]
    if decodes and (not prefills or any(m["action"] == "none" for m in prefills)):
        return ALONE.format(stage=DECODE, units=", ".join(m["unit"] for m in decodes), cluster=plan["cluster"])
    return ""


ALONE = (
    "restarting {stage} alone ({units}) is refused: transfers between it and engines that keep running fail "
    "silently while every health check stays green. Restart the whole chain: "
    "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters={cluster}. "
    "Where you know better, say why: -e pd_co_restart_override='REASON' (recorded on the hosts)"
)


def _not_shown(step: str, plan: dict[str, Any], host: str, given: dict[str, Any]) -> str:
    """Return what a host's evidence for a step fails to show, or ""."""
    if given.get("generation") != plan["generation"] or given.get("run") != plan["run"]["id"]:
        return "the evidence of step {0} on {1} is that of run {2}, generation {3}, not of this run".format(
            step, host, given.get("run"), given.get("generation")
        )
    if not step.startswith(("start_", "restart_")):
        return ""
    for member in members_of_step(step, plan, host):
        shown = given.get("members", {}).get(member["unit"], {})
        if shown.get("outcome") != "passed" or not shown.get("incarnation"):
            return "step {0} on {1} does not show {2} healthy in its new incarnation".format(step, host, member["unit"])
    return ""


def failure(plan: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> tuple[str, str] | None:
    """Return the step at which a cluster failed and the reason, None where it did not."""
    for step in STEPS[: STEPS.index(RECORD)]:
        for host in hosts_of_step(step, plan):
            given = evidence.get(step, {}).get(host)
            if given is None:
                return step, "step {0} was not walked on {1}".format(step, host)
            if given["outcome"] != OK:
                return step, "step {0} on {1}: {2}".format(step, host, given["message"])
            missing = _not_shown(step, plan, host, given)
            if missing:
                return step, missing
    return None


def outcome(plan: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Return the cluster's outcome ("ok" or "failed") and the reason of a failure."""
    failed = failure(plan, evidence)
    return (FAILED, failed[1]) if failed else (OK, "")


def was_anything_stopped(plan: dict[str, Any], evidence: dict[str, dict[str, Any]]) -> bool:
    """Tell whether the run reached the first step that stops a unit."""
    first = STEPS.index("stop_prefill")

    def was_walked(given: dict[str, Any]) -> bool:
        # Another play of the same ansible-playbook, and an attempt before this one, leave
        # their results registered.
        mine = given.get("run", plan["run"]["id"]) == plan["run"]["id"]
        mine = mine and given.get("generation", plan["generation"]) == plan["generation"]
        return mine and given.get("outcome") in (OK, FAILED, UNREACHABLE)

    # A host that was lost at a step is unreachable for every cluster in the play, also for
    # those that had stopped before and had nothing to do there.
    return any(
        was_walked(evidence.get(step, {}).get(host, {}))
        for step in STEPS[first : STEPS.index(REQUESTS)]
        if decide(step, plan, evidence)[0] == RUN
        for host in hosts_of_step(step, plan)
    )


def stages_restarted(plan: dict[str, Any]) -> list[str]:
    """Return the stages in which the plan restarts or starts a member."""
    return [
        stage
        for stage in _topology.STAGES
        if any(m["role"] == stage and m["action"] in ("restart", "start") for m in plan["members"])
    ]
