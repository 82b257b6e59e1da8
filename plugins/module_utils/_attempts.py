# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows in the same run on an attempt that failed, and what the run comes to.

Pure. A run has at most three attempts on a cluster: the smallest scope, the whole chain where
that scope failed its proof, and the last good revision where that is asked for.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _scope, _walk
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import ROUTER, STAGES

NEVER = "never"
ON_FAILURE = "on_failure"

WIDEN = "widen"
ROLL_BACK = "roll back"

#: Steps after the gates of the engines. A failure there may be the transfer channel's, which
#: the whole chain heals; before them it is the engine's own, which a wider scope does not help.
_PROOF = ("restart_router", _walk.REQUESTS, _walk.VERIFY, _walk.SETTLE)

#: What a cluster of a run comes to.
OK = "ok"
WIDENED = "widened"
ROLLED_BACK = "rolled back"
FAILED = "failed"
REFUSED = "refused"


def conclude(plan: dict[str, Any], evidence: dict[str, dict[str, Any]], roll_back: str) -> dict[str, Any]:
    """Return what an attempt came to and what follows on it.

    :param roll_back: ``never`` or ``on_failure``.
    :return: ``run``, ``generation``, ``scope`` (its rule), ``restore`` (the generation that it went
        back to, 0 for none), ``automatic`` (whether that followed on a failure), ``outcome``,
        ``reason``, and ``next``: None, or ``what`` (widen, roll back), ``why``, ``stages``.
    """
    failed = _walk.failure(plan, evidence)
    found: dict[str, Any] = {
        "run": plan["run"]["id"],
        "generation": plan["generation"],
        "scope": plan["scope"]["rule"],
        "restore": plan["restore"]["generation"] if plan["restore"] else 0,
        "automatic": bool(plan["restore"] and plan["restore"]["automatic"]),
        "outcome": FAILED if failed else OK,
        "reason": failed[1] if failed else "",
        "next": None,
    }
    if failed is None or _is_lost(evidence) or not _walk.was_anything_stopped(plan, evidence):
        return found
    step = failed[0]
    if plan["scope"]["rule"] == _scope.DECODE_ALONE and step in _PROOF:
        why = "{0} failed its proof".format(_scope.DECODE_ALONE)
        return dict(found, next={"what": WIDEN, "why": why, "stages": list(STAGES)})
    if roll_back == ON_FAILURE and plan["restore"] is None:
        # Engines that this run never touched need no restart for routers that go back.
        routers_only = _walk.stages_restarted(plan) == [ROUTER]
        why = "it failed at step {0} and pd_co_restart_rollback is {1}".format(step, ON_FAILURE)
        return dict(found, next={"what": ROLL_BACK, "why": why, "stages": [ROUTER] if routers_only else list(STAGES)})
    return found


def _is_lost(evidence: dict[str, dict[str, Any]]) -> bool:
    """Tell whether another run took the cluster over: then this one leaves it alone."""
    return any(given.get("lost") for hosts in evidence.values() for given in hosts.values())


def failed_soak(attempt: dict[str, Any], why: str, roll_back: str) -> dict[str, Any]:
    """Return an attempt that ended well, as one that failed in the soak of its roll.

    The ledgers keep that it ended well: the soak is the roll's.

    :param roll_back: ``never`` or ``on_failure``.
    """
    found = dict(attempt, outcome=FAILED, reason=why)
    if roll_back == ON_FAILURE and not attempt["restore"]:
        reason = "it failed its soak and pd_co_restart_rollback is {0}".format(ON_FAILURE)
        found["next"] = {"what": ROLL_BACK, "why": reason, "stages": list(STAGES)}
    return found


def following(plan: dict[str, Any], attempt: dict[str, Any]) -> dict[str, Any]:
    """Return what ``co_restart_plan`` needs to plan what follows on an attempt.

    :param attempt: one with ``next``.
    """
    return dict(attempt["next"], run=plan["run"], follows=attempt["generation"], options=plan["options"])


def verdict(attempts: list[dict[str, Any]]) -> str:
    """Return what the attempts on a cluster came to, the last one of which was refused or walked."""
    last = attempts[-1]
    if last["outcome"] != OK:
        return FAILED
    if last["automatic"]:
        return ROLLED_BACK
    return WIDENED if len(attempts) > 1 else OK
