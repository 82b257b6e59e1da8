# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a roll stands, from its plan and its events. Pure: no clock, no files.

A roll writes one JSON object a line to ``events.jsonl`` (docs/rolling.md). Readers of all kinds, a
terminal while it runs and a report after it, ask :func:`state_of`. One that follows a roll keeps a
:class:`Roll` and gives it events as they come.

One directory holds one roll, which may be walked by several processes, one after the other: each
``roll_began`` is a *run* of it, with a plan and waves of its own. What a cluster came to in an
earlier run counts until a later one has it in a wave again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _walk

SOAK = "soak"

#: States of a cluster: in no wave; its wave is to come, or its steps are; its steps are walked; they went well, and it
#: is watched for a while; it came to an outcome; its run ended before it came to one.
NONE, PLANNED, WORKING, SOAKING, ENDED, LEFT = "none", "planned", "working", "soaking", "ended", "left"

#: Outcomes of a cluster.
DONE, FAILED, ROLLED_BACK, REFUSED, NOTHING = "done", "failed", "rolled_back", "refused", "nothing"
#: Outcomes of a roll beside DONE, FAILED, REFUSED and NOTHING.
STOPPED, PAUSED = "stopped", "paused"
#: What a roll is that told of no end.
RUNNING, INTERRUPTED = "running", "interrupted"
#: Event of whoever started the playbook and saw it end without ``roll_ended``; more: ``why``.
ROLL_INTERRUPTED = "roll_interrupted"

#: Seconds without an event after which a roll is taken for dead where nobody can look for its process. A step
#: that waits tells so every few seconds.
SILENT_SECONDS = 120.0

_STAGES = {
    "stop_prefill": "prefill",
    "stop_prefill_ranks": "prefill",
    "start_prefill": "prefill",
    "stop_decode": "decode",
    "stop_decode_ranks": "decode",
    "start_decode": "decode",
    "restart_router": "router",
}
_ORDER = {step: number for number, step in enumerate((*_walk.STEPS, SOAK))}


def read(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the events in the lines of ``events.jsonl``; what is none, like a line that was cut off, is left out."""
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str) and _is_number(event.get("at")):
            events.append(event)
    return events


def state_of(plan: dict[str, Any] | None, events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return where a roll stands.

    :param plan: the roll's ``plan.json``, the newest one; None where there is none.
    :param events: all of the roll, in their order.
    :returns: what :meth:`Roll.state` tells.
    """
    roll = Roll(plan)
    for event in events:
        roll.take(event)
    return roll.state()


def standing(state: dict[str, Any], lives: bool | None, now: float) -> str:
    """Return the outcome of a roll, or what it is without one: ``running`` or ``interrupted``.

    :param lives: whether the roll's process does; None where that cannot be known from here.
    """
    if state["outcome"]:
        return str(state["outcome"])
    if state["interrupted"]:
        return INTERRUPTED
    if lives is None:
        last = state["last_at"] if state["last_at"] is not None else state["made_at"]
        lives = last is not None and now - last <= SILENT_SECONDS
    return RUNNING if lives else INTERRUPTED


def as_interrupted(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state in which nothing is in work: of a roll that :func:`standing` calls interrupted."""
    clusters = {
        name: dict(one, state=LEFT, waiting="", waits={}) if one["state"] in (WORKING, SOAKING) else one
        for name, one in state["clusters"].items()
    }
    return dict(state, clusters=clusters, totals=dict(state["totals"], **{WORKING: 0}))


class Roll:
    """A roll whose events are taken one by one.

    :ivar plan: may be replaced at any time: a roll that is resumed has a new one.
    """

    def __init__(self, plan: dict[str, Any] | None = None):
        self.plan: dict[str, Any] = plan or {}
        self._runs: list[dict[str, Any]] = []
        self._clusters: dict[str, _Cluster] = {}
        self._waves: dict[int, dict[str, Any]] = {}
        self._past_waves: list[dict[str, Any]] = []
        self._first_at: float | None = None
        self._last_at: float | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Take the next event; one that is not known is passed over."""
        at = float(event["at"])
        self._first_at = at if self._first_at is None else self._first_at
        self._last_at = at
        name = str(event["event"])
        if name == "roll_began":
            self._begin(at, event)
        elif name == "roll_ended":
            self._run().update(
                ended_at=at,
                outcome=str(event.get("outcome", "")),
                why=str(event.get("why", "")),
                remaining=_names(event.get("remaining")),
            )
        elif name == ROLL_INTERRUPTED:
            self._run().update(ended_at=at, why=str(event.get("why", "")), interrupted=True)
        elif name in ("wave_began", "wave_ended", "soak_began", "soak_ended"):
            self._take_of_wave(name, at, event)
        elif event.get("cluster"):
            cluster = self._cluster(str(event["cluster"]))
            # A cluster knows its wave also where the plan is gone.
            cluster.take(name, at, dict(event, run=len(self._runs)))

    def state(self) -> dict[str, Any]:
        """Return where the roll stands, as a dict that is made anew and can be written as JSON.

        ``roll``, ``decision``, ``owner``, ``purpose``, ``made_at``, ``expected_seconds``
            of the plan ("" or None where it is gone).
        ``run``
            number of ``roll_began``; 0 before the first.
        ``began_at``, ``run_began_at``, ``ended_at``, ``last_at``
            of the roll's first event, of this run's begin, of its end, of the last event; or None.
        ``outcome``, ``why``
            of ``roll_ended``; "" while there is none for this run. :func:`standing` names what it is then.
        ``interrupted``
            True where somebody saw this run end without telling so.
        ``wave``
            number of the wave in work, or of the last one; 0 before the first.
        ``waves``
            those of this run, planned ones too: ``number``, ``kind``, ``clusters``, ``state`` (``planned``,
            ``working``, ``soaking``, ``ended``), ``began_at``, ``ended_at``, ``failed``, ``expected_seconds``,
            ``run``, ``soak`` (None, or ``clusters``, ``began_at``, ``seconds``, ``ended_at``, ``outcome``,
            ``message``).
        ``past_waves``
            those that earlier runs began, alike.
        ``clusters``
            by name, see :meth:`_Cluster.state`.
        ``totals``
            how many: ``clusters`` of the plan, ``planned`` (to be co-restarted by this roll), ``done``, ``failed``,
            ``rolled_back``, ``refused``, ``nothing``, ``working``, ``remaining``.
        ``remaining``
            names of the planned clusters that came to no outcome, in the order of the waves.
        """
        run = self._runs[-1] if self._runs else {}
        waves = self._current_waves()
        wave_of = {name: wave for wave in waves for name in wave["clusters"]}
        clusters = self._cluster_states(wave_of)
        ordered = [name for wave in waves for name in wave["clusters"]]
        remaining = [name for name in dict.fromkeys(ordered) if not clusters[name]["outcome"]]
        if run.get("remaining") is not None:
            remaining = run["remaining"]
        begun = [wave["number"] for wave in waves if wave["began_at"] is not None]
        plan = self.plan
        return {
            "roll": str(plan.get("roll") or run.get("roll") or ""),
            "decision": str(plan.get("decision", "")),
            "owner": run.get("owner") or str(plan.get("owner", "")),
            "purpose": run.get("purpose") or str(plan.get("purpose", "")),
            "made_at": plan.get("made_at"),
            "expected_seconds": plan.get("expected_seconds"),
            "run": len(self._runs),
            "began_at": self._first_at,
            "run_began_at": run.get("began_at"),
            "ended_at": run.get("ended_at"),
            "last_at": self._last_at,
            "outcome": run.get("outcome", ""),
            "why": run.get("why", ""),
            "interrupted": run.get("interrupted", False),
            "wave": max(begun, default=0),
            "waves": waves,
            "past_waves": [dict(wave) for wave in self._past_waves],
            "clusters": clusters,
            "totals": _totals(plan, clusters, remaining),
            "remaining": list(remaining),
        }

    def _begin(self, at: float, event: dict[str, Any]) -> None:
        self._past_waves += [self._waves[number] for number in sorted(self._waves)]
        self._waves = {}
        self._runs.append(
            {
                "roll": str(event.get("roll", "")),
                "owner": str(event.get("owner", "")),
                "purpose": str(event.get("purpose", "")),
                "began_at": at,
                "ended_at": None,
                "outcome": "",
                "why": "",
                "interrupted": False,
                "remaining": None,
            }
        )
        for cluster in self._clusters.values():
            cluster.interrupt()

    def _run(self) -> dict[str, Any]:
        if not self._runs:
            # Its first line was lost.
            self._begin(self._first_at or 0.0, {})
        return self._runs[-1]

    def _cluster(self, name: str) -> _Cluster:
        if name not in self._clusters:
            self._clusters[name] = _Cluster()
        return self._clusters[name]

    def _take_of_wave(self, name: str, at: float, event: dict[str, Any]) -> None:
        number = event.get("wave")
        if not isinstance(number, int):
            return
        wave = self._waves.setdefault(number, dict(_wave(number), run=len(self._runs)))
        if name == "wave_began":
            wave.update(
                state=WORKING, began_at=at, kind=str(event.get("kind", "")), clusters=_names(event.get("clusters"))
            )
        elif name == "wave_ended":
            wave.update(state=ENDED, ended_at=at, failed=_names(event.get("failed")))
        elif name == "soak_began":
            seconds = event.get("seconds") if _is_number(event.get("seconds")) else None
            soak = dict(_soak(), began_at=at, seconds=seconds, clusters=_names(event.get("clusters")))
            wave.update(state=SOAKING, soak=soak)
        else:
            soak = dict(wave["soak"] or _soak(), ended_at=at)
            soak.update(outcome=str(event.get("outcome", "")), message=str(event.get("message", "")))
            wave.update(state=WORKING, soak=soak)

    def _current_waves(self) -> list[dict[str, Any]]:
        """Return the waves of this run, those of the plan that are to come too."""
        found = {}
        for planned in self.plan.get("waves") or []:
            number = planned["number"]
            found[number] = dict(
                _wave(number),
                kind=str(planned.get("kind", "")),
                clusters=_names(planned.get("clusters")),
                expected_seconds=planned.get("expected_seconds"),
                run=len(self._runs),
            )
        for number, wave in self._waves.items():
            expected = found.get(number, wave)["expected_seconds"]
            clusters = wave["clusters"] or found.get(number, wave)["clusters"]
            found[number] = dict(wave, expected_seconds=expected, clusters=clusters)
        return [found[number] for number in sorted(found)]

    def _cluster_states(self, wave_of: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        planned = self.plan.get("clusters") or {}
        names = dict.fromkeys([*planned, *wave_of, *self._clusters])
        run, over = len(self._runs), bool(self._runs and self._runs[-1]["ended_at"] is not None)
        return {
            name: self._clusters.get(name, _Cluster()).state(
                name, planned.get(name) or {}, wave_of.get(name), run, over
            )
            for name in names
        }


class _Cluster:
    """What happened to one cluster."""

    def __init__(self) -> None:
        #: Of each walk through the steps: the steps in the order in which they began, by step and host.
        self.walks: list[dict[tuple[str, str], dict[str, Any]]] = []
        self.hooks: list[dict[str, Any]] = []
        self.waiting: dict[str, dict[str, Any]] = {}
        self.end: dict[str, Any] | None = None
        self.ended_at: float | None = None
        self.wave = 0
        self.run = 0
        self.last_at: float | None = None
        self._goes_on = False

    def take(self, name: str, at: float, event: dict[str, Any]) -> None:
        """Take an event of this cluster."""
        self.last_at = at
        if name == "step_began":
            self._begin_step(at, event)
        elif name == "step_ended":
            self._end_step(at, event)
        elif name == "waiting":
            self.waiting[str(event.get("host", ""))] = {"at": at, "message": str(event.get("message", ""))}
        elif name == "hook_ended":
            self.hooks.append({"at": at, **{key: str(event.get(key, "")) for key in ("hook", "outcome", "message")}})
        elif name == "cluster_ended":
            self.end, self.ended_at, self.waiting, self._goes_on = event, at, {}, False
        else:
            return
        self.run = event["run"]
        self.wave = event["wave"] if isinstance(event.get("wave"), int) else self.wave

    def interrupt(self) -> None:
        """Another run of the roll begins: what this one waits for, nobody does any more."""
        self.waiting, self._goes_on = {}, False

    def _begin_step(self, at: float, event: dict[str, Any]) -> None:
        step, host = str(event.get("step", "")), str(event.get("host", ""))
        self.waiting.pop(host, None)
        if step != SOAK:
            order = _ORDER.get(step, len(_ORDER))
            behind = any(_ORDER.get(other, 0) > order for other, _host in self.walks[-1]) if self.walks else True
            if not self._goes_on or behind:
                self.walks.append({})
            self.end, self._goes_on = None, True
        self._walk()[(step, host)] = _walked(step, host, at, event["run"])

    def _end_step(self, at: float, event: dict[str, Any]) -> None:
        step, host = str(event.get("step", "")), str(event.get("host", ""))
        self.waiting.pop(host, None)
        walked = self._walk().setdefault((step, host), _walked(step, host, at, event["run"]))
        walked.update(ended_at=at, outcome=str(event.get("outcome", "")), message=str(event.get("message", "")))

    def _walk(self) -> dict[tuple[str, str], dict[str, Any]]:
        if not self.walks:
            self.walks.append({})
        return self.walks[-1]

    def state(
        self, name: str, planned: dict[str, Any], wave: dict[str, Any] | None, run: int, over: bool
    ) -> dict[str, Any]:
        """Return where the cluster stands.

        ``wave``, ``run``
            number of its wave (0: in none) in which run of the roll.
        ``state``
            ``none``, ``planned``, ``working``, ``soaking``, ``ended``, ``left`` (its run ended before it did).
        ``stage``, ``step``, ``host``
            ``prefill``, ``decode``, ``router`` or ""; the step in work, or the last one that was; where it began last.
        ``waiting``, ``waits``
            the newest message of what it waits for; all, by host: ``at``, ``message``.
        ``began_at``, ``step_began_at``, ``ended_at``
            seconds since the epoch, or None.
        ``outcome``, ``message``, ``generation``, ``stopped``, ``latency``
            of ``cluster_ended``; "" or None before it.
        ``downtime``
            None where its routers were never closed, else ``began_at``, ``ended_at``, ``seconds``, ``open`` (True: it
            serves not yet, as far as is known) and ``intervals``, all of them. ``seconds`` adds them up.
        ``walks``
            a list of steps for each walk through them, in their order: ``step``, ``host``, ``began_at``,
            ``ended_at``, ``outcome``, ``message``, ``run``. More than one after a failure that was followed by the
            whole chain or a rollback, or where the roll was resumed.
        ``hooks``
            ``at``, ``hook``, ``outcome``, ``message``.
        ``expected_seconds``
            of the plan.
        """
        again = wave is not None and self.run < run
        end = {} if again or self.end is None else self.end
        steps = list(self.walks[-1].values()) if self.walks else []
        now = steps[-1] if steps and not again else {}
        newest = max(self.waiting.values(), key=lambda one: float(one["at"])) if self.waiting else {}
        latency = end.get("latency")
        return {
            "wave": wave["number"] if wave else self.wave if self.run == run else 0,
            "run": self.run,
            "state": self._name(name, end, again, wave, over),
            "stage": _STAGES.get(now.get("step", ""), ""),
            "step": now.get("step", ""),
            "host": now.get("host", ""),
            "waiting": newest.get("message", ""),
            "waits": {host: dict(one) for host, one in self.waiting.items()},
            "began_at": steps[0]["began_at"] if steps and not again else None,
            "step_began_at": min(one["began_at"] for one in steps if one["step"] == now["step"]) if now else None,
            "ended_at": self.ended_at if end else None,
            "outcome": str(end.get("outcome", "")),
            "message": str(end.get("message", "")),
            "generation": end.get("generation", planned.get("generation")),
            "stopped": bool(end["stopped"]) if "stopped" in end else None,
            "latency": latency if isinstance(latency, dict) else None,
            "downtime": self.downtime(),
            "walks": [[dict(one) for one in walk.values()] for walk in self.walks],
            "hooks": [dict(one) for one in self.hooks],
            "expected_seconds": planned.get("expected_seconds"),
        }

    def _name(self, name: str, end: dict[str, Any], again: bool, wave: dict[str, Any] | None, over: bool) -> str:
        if wave and wave["state"] == SOAKING and name in wave["soak"]["clusters"] and not over:
            return SOAKING
        if end:
            return ENDED
        if self.walks and not again:
            return WORKING if self._goes_on and not over else LEFT
        return PLANNED if wave else NONE

    def downtime(self) -> dict[str, Any] | None:
        """Return how long the cluster served nobody, from its events."""
        intervals: list[dict[str, Any]] = []
        for walk in self.walks:
            closed = [one["began_at"] for (step, _host), one in walk.items() if step == _walk.CLOSE]
            if closed and not (intervals and intervals[-1]["ended_at"] is None):
                intervals.append({"began_at": min(closed), "ended_at": None})
            back = _serves_again(walk)
            if back is not None and intervals and intervals[-1]["ended_at"] is None:
                intervals[-1]["ended_at"] = back
        if not intervals:
            return None
        last = intervals[-1]
        known = self.last_at if last["ended_at"] is None else last["ended_at"]
        seconds = sum(
            (one["ended_at"] if one["ended_at"] is not None else known) - one["began_at"] for one in intervals
        )
        return {
            "began_at": intervals[0]["began_at"],
            "ended_at": last["ended_at"],
            "seconds": seconds,
            "open": last["ended_at"] is None,
            "intervals": intervals,
        }


def _serves_again(walk: dict[tuple[str, str], dict[str, Any]]) -> float | None:
    """Return when a cluster served again in a walk: its routers did, and real requests proved it."""
    proofs = [one for (step, _host), one in walk.items() if step == _walk.REQUESTS]
    started = [one for (step, _host), one in walk.items() if step.startswith(("start_", "restart_"))]
    if not proofs or any(one["outcome"] != _walk.OK for one in (*proofs, *started)):
        return None
    # Routers are the last ones to be restarted; a walk that was told to leave them ends with another stage.
    return max(float(one["ended_at"]) for one in started or proofs)


def _totals(plan: dict[str, Any], clusters: dict[str, dict[str, Any]], remaining: list[str]) -> dict[str, int]:
    count = {
        name: sum(one["outcome"] == name for one in clusters.values())
        for name in (DONE, FAILED, ROLLED_BACK, REFUSED, NOTHING)
    }
    return {
        "clusters": len(plan.get("clusters") or clusters),
        "planned": sum(bool(one["wave"] or one["outcome"] not in ("", NOTHING)) for one in clusters.values()),
        **count,
        WORKING: sum(one["state"] == WORKING for one in clusters.values()),
        "remaining": len(remaining),
    }


def _walked(step: str, host: str, at: float, run: int) -> dict[str, Any]:
    return {"step": step, "host": host, "began_at": at, "ended_at": None, "outcome": "", "message": "", "run": run}


def _wave(number: int) -> dict[str, Any]:
    return {
        "number": number,
        "kind": "",
        "clusters": [],
        "state": PLANNED,
        "began_at": None,
        "ended_at": None,
        "failed": [],
        "expected_seconds": None,
        "soak": None,
    }


def _soak() -> dict[str, Any]:
    return {"clusters": [], "began_at": None, "seconds": None, "ended_at": None, "outcome": "", "message": ""}


def _names(given: Any) -> list[str]:
    return [str(one) for one in given] if isinstance(given, list) else []


def _is_number(given: Any) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool)
