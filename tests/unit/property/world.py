# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated fleet: hosts, systemd units, engines, routers, ledgers, locks, and a clock.

Nothing here knows the rules of a co-restart; it only behaves as hosts do. What happens is
told to an observer (see :mod:`rules`), which judges it by what really ran, never by what
the core believes.
"""

from __future__ import annotations

import heapq
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _revision

INACTIVE = "inactive"
ACTIVATING = "activating"
ACTIVE = "active"
DEACTIVATING = "deactivating"
FAILED = "failed"

#: A configuration with this in it starts and is healthy, and no request is served with it.
BAD = "x"
#: Revisions that a simulated host keeps of a unit.
KEPT_REVISIONS = 3

#: What the next start of a unit can come to.
NORMAL = "normal"
SLOW = "slow"
NEVER_HEALTHY = "never healthy"
DIES_AT_START = "dies at start"
ENDS_AT_START = "ends at start"
REFUSED = "systemd refuses"
NOT_STARTED = "a condition does not hold"
FLAPS_TWICE = "flaps twice"
FLAPS = "flaps for ever"
DIES_LATER = "healthy, dies later"
REPLACED_LATER = "healthy, replaced by systemd later"
STUCK_QUEUE = "holds a request for ever"
STUBBORN = "takes its time to stop"
UNDYING = "ignores SIGTERM"
BEHAVIOURS = (
    SLOW,
    NEVER_HEALTHY,
    DIES_AT_START,
    ENDS_AT_START,
    REFUSED,
    NOT_STARTED,
    FLAPS_TWICE,
    FLAPS,
    DIES_LATER,
    REPLACED_LATER,
    STUCK_QUEUE,
    STUBBORN,
    UNDYING,
)

STOP_LIMIT_SECONDS = 6
HEALTHY_LIMIT_SECONDS = 25
QUEUES = ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer")


class KilledError(Exception):
    """The controller, and with it the module on the host, was killed at this very call."""


class UnreachableError(Exception):
    """The host does not answer the controller."""


class Unit:
    """A systemd unit with the process behind it."""

    def __init__(self, member: dict[str, Any]):
        self.member = member
        self.name: str = member["unit"]
        self.host: str = member["host"]
        self.role: str = member["role"]
        self.cluster: str = member["cluster"]
        self.state = INACTIVE
        self.result = "success"
        self.exit_status = 0
        self.restarts = 0
        self.invocation = ""
        self.deployed: str = member["configuration"]
        self.running = ""
        self.ready_at = math.inf
        self.stopped_at = -1.0
        self.started_at = -1.0
        self.started_event = 0
        self.started_by = ""
        self.stubborn = ""
        self.behaviour = NORMAL
        self.next_behaviours: list[str] = []
        self.flaps_left = 0
        self.timer = 0
        self.closed = False
        self.closed_by = ""
        self.wedged = False


class World:
    """All hosts and their clock. ``listener`` hears of what happens, see :class:`Listener`."""

    def __init__(self, members: list[dict[str, Any]], lenient: bool, fragile: bool = False):
        self.units = {(m["host"], m["unit"]): Unit(m) for m in members}
        self.hosts = sorted({m["host"] for m in members})
        self.clusters = sorted({m["cluster"] for m in members})
        #: True for a stack that serves whatever the order of starts was.
        self.lenient = lenient
        #: True for a stack whose prefills wedge when a decode restarts without them.
        self.fragile = fragile
        self.clock = 1000.0
        #: Number of the last event; orders what happens at one moment.
        self.event = 0
        self.ledgers: dict[tuple[str, str], str] = {}
        self.locks: dict[tuple[str, str], str] = {}
        #: Of rolls; by host, then by cluster.
        self.reservations: dict[str, dict[str, Any]] = {}
        #: By host and unit, newest first; what a host keeps, files and all.
        self.revisions: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.foreign: dict[tuple[str, int], str] = {}
        self.skew = {host: 7.0 * number for number, host in enumerate(self.hosts)}
        #: By incarnation: the events of its start and of its end.
        self.starts: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        #: By cluster: the last event that no controller brought about.
        self.outside: dict[str, int] = {}
        self.on_wait: Callable[[], None] = lambda: None
        self.log: list[str] = []
        self._timers: list[tuple[float, int, Unit, int, Callable[[Unit], None]]] = []
        self._numbers = itertools.count(1)

    # -- time and events ---------------------------------------------------------------

    def happens(self, text: str, *words: Any) -> int:
        """Log an event; return its number."""
        self.event += 1
        if len(self.log) > 4000:
            del self.log[:2000]
        self.log.append("{:5d} {:9.1f} {}".format(self.event, self.clock, text.format(*words)))
        return self.event

    def advance(self, seconds: float) -> None:
        """Let time pass, and what was due in it happen."""
        until = self.clock + seconds
        while self._timers and self._timers[0][0] <= until:
            at, _number, unit, timer, action = heapq.heappop(self._timers)
            if unit.timer == timer:
                self.clock = max(self.clock, at)
                action(unit)
        self.clock = until

    def _later(self, unit: Unit, seconds: float, action: Callable[[Unit], None]) -> None:
        unit.timer += 1
        item = (self.clock + seconds, next(self._numbers), unit, unit.timer, action)
        heapq.heappush(self._timers, item)

    # -- processes ---------------------------------------------------------------------

    def of_cluster(self, cluster: str, *roles: str) -> list[Unit]:
        """Return the units of a cluster, of some roles or of all."""
        return [u for u in self.units.values() if u.cluster == cluster and (not roles or u.role in roles)]

    def launch(self, unit: Unit, behaviour: str, who: str) -> None:
        """Start a unit's process as a new incarnation."""
        unit.behaviour = behaviour
        unit.invocation = "i{}".format(next(self._numbers))
        unit.running = unit.deployed
        unit.state = ACTIVATING
        unit.result, unit.exit_status = "success", 0
        unit.started_by = who
        unit.started_at = self.clock
        unit.ready_at = math.inf
        unit.closed = unit.wedged = False
        if self.fragile and unit.role == "decode":
            for prefill in self.of_cluster(unit.cluster, "prefill"):
                # It talked to the incarnation before this one.
                if prefill.state == ACTIVE and prefill.started_event < unit.started_event:
                    prefill.wedged = True
        unit.stubborn = behaviour if behaviour in (STUBBORN, UNDYING) else ""
        unit.started_event = self.happens(
            "{} on {} starts as {} ({}), by {}",
            unit.name,
            unit.host,
            unit.invocation,
            behaviour,
            who,
        )
        self.starts[unit.invocation] = unit.started_event
        if who in ("systemd", "a human"):
            self.outside[unit.cluster] = self.event
        self._later(unit, 0.2, self._is_active)

    def _is_active(self, unit: Unit) -> None:
        unit.state = ACTIVE
        held = any((unit.host, port) in self.foreign for port in ports(unit.member))
        if held or unit.behaviour == DIES_AT_START:
            self._later(unit, 0.7, self._dies)
        elif unit.behaviour == ENDS_AT_START:
            self._later(unit, 0.7, self._ends)
        elif unit.behaviour != NEVER_HEALTHY:
            quick = unit.behaviour in (FLAPS, FLAPS_TWICE) and unit.restarts > 0
            seconds = 6.0 if unit.behaviour == SLOW else 0.05 if quick else 1.0
            self._later(unit, seconds, self._is_ready)

    def _is_ready(self, unit: Unit) -> None:
        unit.ready_at = self.clock
        if unit.behaviour in (FLAPS, FLAPS_TWICE):
            # Long enough for a good answer or two, not for three in a row.
            self._later(unit, 0.7, self._is_replaced)
        elif unit.behaviour == DIES_LATER:
            self._later(unit, 4.0, self._dies)
        elif unit.behaviour == REPLACED_LATER:
            self._later(unit, 4.0, self._is_replaced)

    def _dies(self, unit: Unit) -> None:
        self.outside[unit.cluster] = self.happens("{} on {} dies", unit.name, unit.host)
        unit.state, unit.result, unit.exit_status = FAILED, "exit-code", 1
        self._is_gone(unit)

    def _ends(self, unit: Unit) -> None:
        self.outside[unit.cluster] = self.happens("{} on {} ends", unit.name, unit.host)
        unit.state = INACTIVE
        self._is_gone(unit)

    def _is_gone(self, unit: Unit) -> None:
        unit.timer += 1
        unit.running = ""
        unit.ready_at = math.inf
        unit.closed = unit.wedged = False
        unit.stopped_at = self.clock
        self.event += 1
        self.ends.setdefault(unit.invocation, self.event)

    def _is_replaced(self, unit: Unit) -> None:
        behaviour = unit.behaviour
        unit.restarts += 1
        if behaviour == REPLACED_LATER or (behaviour == FLAPS_TWICE and unit.restarts >= 2):
            behaviour = NORMAL
        self._is_gone(unit)
        self.launch(unit, behaviour, "systemd")

    def _stops(self, unit: Unit) -> None:
        if unit.member["node_rank"] > 0 and self._rank_zero(unit).state in (ACTIVATING, ACTIVE):
            # It waits for rank 0 to tell it.
            self._later(unit, 1.0, self._stops)
            return
        self.happens("{} on {} has stopped", unit.name, unit.host)
        unit.state = INACTIVE
        self._is_gone(unit)

    def ask_to_stop(self, unit: Unit) -> None:
        """Do what ``systemctl stop`` does."""
        if unit.state in (INACTIVE, FAILED, DEACTIVATING):
            return
        unit.state = DEACTIVATING
        seconds = {STUBBORN: 3.0, UNDYING: 30.0}.get(unit.stubborn, 0.4)
        self._later(unit, seconds, self._stops)

    def ask_to_start(self, unit: Unit, who: str) -> str:
        """Do what ``systemctl start`` does; return what it refuses with, or ""."""
        if unit.state in (ACTIVE, ACTIVATING):
            return ""
        behaviour = unit.next_behaviours.pop(0) if unit.next_behaviours else NORMAL
        if behaviour == REFUSED:
            return "Unit {} has a bad unit file setting.".format(unit.name)
        if behaviour == NOT_STARTED:
            # systemctl is content, and nothing happens.
            return ""
        unit.restarts = 0
        self.launch(unit, behaviour, who)
        return ""

    def restart_at_once(self, unit: Unit, who: str) -> None:
        """Do what ``systemctl restart`` does with a process that stops at once."""
        self._is_gone(unit)
        unit.state = INACTIVE
        self.ask_to_start(unit, who)

    def stop_at_once(self, unit: Unit) -> None:
        """Stop a unit without any delay."""
        if unit.state not in (INACTIVE, FAILED):
            self.outside[unit.cluster] = self.happens("{} is stopped by a human", unit.name)
            unit.state = INACTIVE
            self._is_gone(unit)

    def power_off(self, host: str) -> None:
        """Lose a host: its processes are gone, and systemd remembers none after the boot."""
        self.happens("host {} loses power", host)
        for unit in self.units.values():
            if unit.host == host:
                self.outside[unit.cluster] = self.event
                self._is_gone(unit)
                unit.state = INACTIVE
                unit.invocation = ""

    def _rank_zero(self, unit: Unit) -> Unit:
        engine = unit.member["engine"]
        return next(
            u
            for u in self.of_cluster(unit.cluster, unit.role)
            if u.member["engine"] == engine and u.member["node_rank"] == 0
        )

    # -- what can be seen of a process -------------------------------------------------

    def is_healthy(self, unit: Unit) -> bool:
        """Tell whether an engine or a router would answer its health probes with 200."""
        if unit.state != ACTIVE or self.clock < unit.ready_at:
            return False
        if unit.member["nnodes"] > 1:
            zero = self._rank_zero(unit)
            ranks = [u for u in self.of_cluster(unit.cluster, unit.role) if u.member["engine"] == unit.member["engine"]]
            # Ranks rendezvous once: each must be of the time after rank 0 last went.
            return all(u.state == ACTIVE and u.started_at >= zero.stopped_at for u in ranks)
        return True

    def knows_its_workers(self, router: Unit) -> bool:
        """Tell whether a router has all engines of its cluster as healthy workers."""
        return not router.closed and all(
            self.is_healthy(u)
            for u in self.of_cluster(router.cluster, "prefill", "decode")
            if u.member["node_rank"] == 0
        )

    def serves(self, router: Unit) -> bool:
        """Tell whether a request through a router would be answered."""
        if not self.is_healthy(router) or not self.knows_its_workers(router):
            return False
        if any(BAD in u.running for u in self.of_cluster(router.cluster)):
            return False
        prefills = self.of_cluster(router.cluster, "prefill")
        if any(u.wedged for u in prefills):
            return False
        last = max(u.started_event for u in prefills)
        decodes = self.of_cluster(router.cluster, "decode")
        return self.lenient or all(u.started_event > last for u in decodes)

    def pairs_serve(self, prefill: Unit) -> bool:
        """Tell whether a prefill serves with each decode, without a router."""
        decodes = self.of_cluster(prefill.cluster, "decode")
        engines = [prefill, *(u for u in decodes if u.member["node_rank"] == 0)]
        if prefill.wedged or any(BAD in u.running or not self.is_healthy(u) for u in engines):
            return False
        return self.lenient or all(u.started_event > prefill.started_event for u in decodes)

    def mend(self) -> None:
        """Take all faults away. Processes stay as they are."""
        self.foreign.clear()
        for unit in self.units.values():
            if BAD in unit.deployed:
                unit.deployed = unit.deployed.replace(BAD, "")
                self.outside[unit.cluster] = self.event
            unit.next_behaviours.clear()
            unit.stubborn = ""
            if unit.state == ACTIVE and self.clock >= unit.ready_at:
                unit.timer += 1
            if unit.behaviour != NEVER_HEALTHY:
                unit.behaviour = NORMAL


def ports(member: dict[str, Any]) -> list[int]:
    """Return the ports that a member binds."""
    found = [member["port"], member["bootstrap_port"], member.get("metrics_port")]
    return [port for port in found if port is not None]


class Listener:
    """What is told of a run's doings on hosts. The rules override it."""

    def call(self, run: str, host: str, what: str) -> None:
        """Hear of any call that may write; may raise :class:`KilledError`."""

    def effect(self, host: str, unit: Unit, what: str) -> None:
        """Hear of a stop, start or restart before it is done."""

    def probed(self, unit: Unit, good: bool) -> None:
        """Hear of the probes of a unit."""

    def asked(self, router: Unit, good: bool) -> None:
        """Hear of a request through a router."""

    def verified(self, prefill: Unit, good: bool) -> None:
        """Hear of requests to a prefill with each decode."""

    def wrote_ledger(self, host: str, unit: str, ledger: dict[str, Any]) -> None:
        """Hear of a ledger that was written."""

    def kept(self, unit: Unit, configuration: str) -> None:
        """Hear of a revision that a run keeps."""

    def put_back(self, unit: Unit, configuration: str) -> None:
        """Hear of a revision before it is put back."""

    def changed_lock(
        self, host: str, cluster: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        """Hear of a lock that was changed."""


class SimulatedHost:
    """:class:`_steps.Host` on a simulated host, on behalf of one run."""

    def __init__(self, world: World, name: str, run: str, listener: Listener):
        self._world = world
        self._name = name
        self._run = run
        self._listener = listener

    def _unit(self, name: str) -> Unit:
        return self._world.units[self._name, name]

    def now(self) -> float:
        """Return the host's idea of the time."""
        return self._world.clock + self._world.skew[self._name]

    def monotonic(self) -> float:
        """Return the host's monotonic clock."""
        return self._world.clock

    def wait(self, seconds: float) -> None:
        """Let time pass; meanwhile other controllers may do something."""
        self._world.advance(seconds)
        self._world.on_wait()

    def unit(self, name: str) -> dict[str, Any]:
        """Return a unit's state."""
        return show(self._unit(name))

    def stop(self, name: str) -> None:
        """Queue a stop."""
        self._listener.call(self._run, self._name, "stop " + name)
        self._listener.effect(self._name, self._unit(name), "stop")
        self._world.ask_to_stop(self._unit(name))

    def start(self, name: str) -> str:
        """Queue a start."""
        self._listener.call(self._run, self._name, "start " + name)
        self._listener.effect(self._name, self._unit(name), "start")
        return self._world.ask_to_start(self._unit(name), self._run)

    def restart(self, name: str) -> None:
        """Queue a restart."""
        self._listener.call(self._run, self._name, "restart " + name)
        self._listener.effect(self._name, self._unit(name), "restart")
        self._world.restart_at_once(self._unit(name), self._run)

    def running_configuration(self, name: str) -> str:
        """Return the configuration of a unit's incarnation."""
        return self._unit(name).running

    def listeners(self, wanted: list[int]) -> list[dict[str, Any]]:
        """Return who listens."""
        return listeners(self._world, self._name, wanted)

    def journal(self, name: str, lines: int) -> list[str]:
        """Return journal lines."""
        return ["last words of " + name][:lines]

    def ledger(self, unit: str) -> dict[str, Any]:
        """Return a unit's ledger."""
        text = self._world.ledgers.get((self._name, unit))
        return dict(_ledger.empty(unit), **(json.loads(text) if text else {}))

    def write_ledger(self, ledger: dict[str, Any]) -> None:
        """Write a unit's ledger."""
        self._listener.call(self._run, self._name, "ledger of " + ledger["unit"])
        self._world.ledgers[self._name, ledger["unit"]] = json.dumps(ledger)
        self._listener.wrote_ledger(self._name, ledger["unit"], ledger)

    def change_lock(self, cluster: str, change: Any) -> str:
        """Change a cluster's lock as one step."""
        text = self._world.locks.get((self._name, cluster))
        before = json.loads(text) if text else None
        after, message = change(before)
        if after is None:
            return str(message)
        self._listener.call(self._run, self._name, "lock of " + cluster)
        if after == {}:
            del self._world.locks[self._name, cluster]
        else:
            self._world.locks[self._name, cluster] = json.dumps(after)
        self._listener.changed_lock(self._name, cluster, json.loads(text) if text else None, after)
        return str(message)

    def probe(self, member: dict[str, Any], plan: dict[str, Any]) -> list[dict[str, Any]]:
        """Return a member's probes; none for a rank that is no evidence."""
        unit = self._unit(member["unit"])
        if member["node_rank"] > 0:
            self._listener.probed(unit, unit.state == ACTIVE)
            return []
        good = self._world.is_healthy(unit)
        if good and member["role"] == "router":
            good = self._world.knows_its_workers(unit)
        self._listener.probed(unit, good)
        return [{"name": "/health", "good": good, "detail": "HTTP 200" if good else "HTTP 503"}]

    def sample(self, member: dict[str, Any]) -> dict[str, Any] | None:
        """Return a sample of an engine's queues."""
        unit = self._unit(member["unit"])
        if not self._world.is_healthy(unit):
            return None
        sample: dict[str, Any] = {"running": 0, "waiting": 0, "throughput": 0.0, "live": True}
        sample.update(dict.fromkeys(QUEUES, 0))
        if unit.behaviour == STUCK_QUEUE:
            sample["prefill_inflight"] = 1
        return sample

    def close_router(self, member: dict[str, Any]) -> tuple[int, str]:
        """Take all workers from a router."""
        self._listener.call(self._run, self._name, "close " + member["unit"])
        unit = self._unit(member["unit"])
        if not self._world.is_healthy(unit):
            return 0, "its workers cannot be listed"
        self._listener.effect(self._name, unit, "close")
        unit.closed, unit.closed_by = True, self._run
        return 2, ""

    def verify(self, plan: dict[str, Any], here: str, state: dict[str, Any], slice_seconds: float) -> dict[str, Any]:
        """Ask every prefill with every decode; one slice asks one prefill."""
        self._world.advance(0.2)
        prefills = [u for u in self._world.of_cluster(plan["cluster"], "prefill") if u.member["node_rank"] == 0]
        asked = state.get("asked", 0)
        good = self._world.pairs_serve(prefills[asked])
        self._listener.verified(prefills[asked], good)
        if not good:
            return {"outcome": "failed", "message": "pairs with {} fail".format(prefills[asked].name), "state": {}}
        more = {"asked": asked + 1}
        waits = asked + 1 < len(prefills)
        return {"outcome": "waiting" if waits else "ok", "message": "pairs", "state": more if waits else {}}

    def ask(self, member: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
        """Send a request through a router."""
        self._world.advance(0.1)
        unit = self._unit(member["unit"])
        good = self._world.serves(unit)
        self._listener.asked(unit, good)
        why = "" if good else "HTTP 200 with finish_reason 'abort'"
        return {"good": good, "why": why, "seconds": 0.1, "tokens": 24}

    def keep_revision(self, unit: str, generation: int) -> str:
        """Keep what is deployed, where that is what runs."""
        self._listener.call(self._run, self._name, "revision of " + unit)
        its = self._unit(unit)
        if its.running != its.deployed:
            return ""
        self._listener.kept(its, its.deployed)
        known = self._world.revisions.get((self._name, unit), [])
        new = {"generation": generation, "digest": its.deployed}
        _verb, kept, _dropped = _revision.keep(known, new, KEPT_REVISIONS)
        self._world.revisions[self._name, unit] = kept
        return ""

    def restore(self, units: dict[str, int]) -> tuple[list[dict[str, str]], str]:
        """Put revisions back."""
        for name, generation in units.items():
            self._listener.call(self._run, self._name, "restore " + name)
            unit = self._unit(name)
            kept = self._world.revisions[self._name, name]
            digest = next(one["digest"] for one in kept if one["generation"] == generation)
            self._listener.put_back(unit, digest)
            unit.deployed = digest
        return [], ""


def show(unit: Unit) -> dict[str, Any]:
    """Return a unit as ``systemctl show`` tells of it."""
    return {
        "load_state": "loaded",
        "active_state": unit.state,
        "sub_state": "running" if unit.state == ACTIVE else "dead",
        "result": unit.result,
        "exit_status": unit.exit_status,
        "main_pid": 100 if unit.state == ACTIVE else 0,
        "invocation_id": unit.invocation,
        "restarts": unit.restarts,
        "restart_policy": "no",
        "job": 0,
        "unit_file_state": "enabled",
        "started_at": unit.started_at,
    }


def listeners(world: World, host: str, wanted: list[int]) -> list[dict[str, Any]]:
    """Return who listens on ports of a host."""
    found = [
        {"port": port, "pid": 4711, "command": "an orphan", "unit": world.foreign[host, port]}
        for port in wanted
        if (host, port) in world.foreign
    ]
    for unit in world.units.values():
        if unit.host == host and world.clock >= unit.ready_at:
            found += [
                {"port": port, "pid": 100, "command": "python", "unit": unit.name}
                for port in ports(unit.member)
                if port in wanted and (host, port) not in world.foreign
            ]
    return found


def member_info(world: World, host: str) -> dict[str, Any]:
    """Return what the ``member_info`` module gives on a host."""
    members = []
    for (its_host, name), unit in sorted(world.units.items()):
        if its_host != host:
            continue
        text = world.ledgers.get((host, name))
        members.append(
            {
                "member": dict(unit.member, configuration=unit.deployed),
                "unit": show(unit),
                "ledger": dict(_ledger.empty(name), **(json.loads(text) if text else {})),
                "running_configuration": unit.running,
                "listeners": listeners(world, host, ports(unit.member)),
                "deployed_digest": unit.deployed,
                "revisions": [
                    dict(one, member=dict(unit.member, configuration=one["digest"]), problems=[])
                    for one in world.revisions.get((host, name), [])
                ],
            }
        )
    locks = {cluster: json.loads(text) for (its_host, cluster), text in world.locks.items() if its_host == host}
    rolls = dict(world.reservations.get(host, {}))
    return {"members": members, "locks": locks, "rolls": rolls, "now": world.clock + world.skew[host], "preflight": {}}
