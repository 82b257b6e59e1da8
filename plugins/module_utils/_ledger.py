# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host remembers of a unit: the ledger, one small JSON file per unit.

Pure functions from one ledger to the next; reading and writing is
:mod:`host.ledger_file`'s. systemd stays the truth about processes: the ledger says
which generation an incarnation belongs to, and how far a co-restart had come.

Phases of a member in a generation, in order::

    stopping -> stopped -> starting -> started -> healthy

``outcome`` is "" while the generation is under way. ``fence`` names the newest run
that announced itself on the host.
"""

from __future__ import annotations

from typing import Any

SCHEMA = 1

STOPPING = "stopping"
STOPPED = "stopped"
STARTING = "starting"
STARTED = "started"
HEALTHY = "healthy"

OK = "ok"
FAILED = "failed"

#: Past generations that stay in the ledger.
HISTORY_LENGTH = 20


def empty(unit: str) -> dict[str, Any]:
    """Return the ledger of a unit that no co-restart ever touched."""
    return {
        "schema": SCHEMA,
        "unit": unit,
        "fence": None,
        "generation": 0,
        "run": {},
        "phase": "",
        "before": "",
        "incarnation": "",
        "configuration": "",
        "began_at": None,
        "healthy_at": None,
        "ended_at": None,
        "outcome": "",
        "reason": "",
        "override": "",
        "scope": "",
        "unlocks": [],
        "history": [],
    }


def announce(ledger: dict[str, Any], generation: int, run: dict[str, Any]) -> dict[str, Any]:
    """Return the ledger after a run announced itself: older runs are fenced off from now on."""
    fence = {"generation": generation, "run": run, "closed": (ledger["fence"] or {}).get("closed", "")}
    return dict(ledger, fence=fence)


def close(ledger: dict[str, Any], incarnation: str) -> dict[str, Any]:
    """Return the ledger of a router whose incarnation is about to give up its workers.

    The mark stays until that incarnation is gone, so that a router which a dead run left
    without workers is found although it runs.
    """
    return dict(ledger, fence=dict(ledger["fence"], closed=incarnation))


def fenced_off_by(ledger: dict[str, Any], generation: int, run_id: str) -> dict[str, Any] | None:
    """Return the run that came after (generation, run), or None.

    A run whose lock was taken over may still be alive: each of its steps meets the
    fence of its successor here. Two runs never share a generation on a cluster (the
    lock sees to that), so another run at the same generation is a successor too.
    """
    fence = ledger["fence"]
    if fence is None or fence["generation"] < generation:
        return None
    if fence["generation"] == generation and fence["run"]["id"] == run_id:
        return None
    return dict(fence["run"])


def latest(ledger: dict[str, Any]) -> int:
    """Return the latest generation that a ledger knows of: the one on record, or one that was only announced."""
    return max(int(ledger["generation"]), int(ledger["fence"]["generation"]) if ledger["fence"] else 0)


def begin(
    ledger: dict[str, Any],
    generation: int,
    run: dict[str, Any],
    override: str,
    before: str,
    now: float,
    scope: str = "",
) -> dict[str, Any]:
    """Return the ledger of a member whose stage begins: nothing is stopped yet.

    :param run: ``id``, ``owner`` and ``purpose`` of the run.
    :param override: reason that the operator gave for breaking rule 1, or "".
    :param before: InvocationID that runs now, "" where none does.
    :param now: seconds since the epoch.
    :param scope: rule by which the stages of this generation were chosen, see :mod:`_scope`.
    """
    if ledger["generation"] == generation and ledger["run"].get("id") == run["id"] and ledger["phase"]:
        return ledger
    return dict(
        ledger,
        generation=generation,
        run=run,
        phase=STOPPING,
        before=before,
        incarnation="",
        configuration="",
        began_at=now,
        healthy_at=None,
        ended_at=None,
        outcome="",
        reason="",
        override=override,
        scope=scope,
        history=_history(ledger),
    )


def adopt(ledger: dict[str, Any], generation: int, run: dict[str, Any]) -> dict[str, Any]:
    """Return the ledger of a member that an interrupted run left in good order.

    The new run takes the incarnation over as it is; the phase stays.
    """
    return dict(ledger, generation=generation, run=run, outcome="", reason="", ended_at=None)


def advance(ledger: dict[str, Any], phase: str, **facts: Any) -> dict[str, Any]:
    """Return the ledger in its next phase, with the facts that this phase brings."""
    return dict(ledger, phase=phase, **facts)


def end(ledger: dict[str, Any], outcome: str, reason: str, now: float) -> dict[str, Any]:
    """Return the ledger of a generation that ended for this cluster."""
    return dict(ledger, outcome=outcome, reason=reason, ended_at=now)


def unlocked(ledger: dict[str, Any], by: str, reason: str, held: list[str], now: float) -> dict[str, Any]:
    """Return the ledger after somebody took the cluster's locks away by force.

    :param by: who did.
    :param held: whose locks they were, in words.
    """
    one = {"at": now, "by": by, "reason": reason, "held": held}
    return dict(ledger, unlocks=[*ledger["unlocks"], one][-HISTORY_LENGTH:])


def _history(ledger: dict[str, Any]) -> list[dict[str, Any]]:
    if not ledger["generation"]:
        return []
    past = {
        key: ledger.get(key, "")
        for key in (
            "generation",
            "run",
            "phase",
            "incarnation",
            "configuration",
            "began_at",
            "healthy_at",
            "ended_at",
            "outcome",
            "reason",
            "override",
            "scope",
        )
    }
    return (ledger["history"] + [past])[-HISTORY_LENGTH:]
