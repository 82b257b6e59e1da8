# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolls over the simulated fleet of :mod:`world`: its units, probes and queues, and the real steps.

For a handful of clusters. The co-restarts of a wave are walked by :class:`controller.Controller`, so
the rules of a co-restart are judged beside those of a roll, and a killed controller leaves any step
behind half done.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.action import co_restart_plan
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _ledger, _plan
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import clusters as inventory

from . import histories, roll_world, rules, world
from .controller import Controller, asked
from .roll_process import LockFiles, Process, Stage, _as_registered
from .roll_rules import Observed
from .roll_world import Shape

#: How a fault of a co-restart comes about: the role of the unit, and what its next start comes to.
BEHAVIOURS = {
    roll_world.GATE_OF_PREFILL: ("prefill", world.NEVER_HEALTHY),
    roll_world.GATE_OF_DECODE: ("decode", world.DIES_AT_START),
    roll_world.PROOF: ("prefill", world.STUCK_QUEUE),
}


class Cluster:
    """A cluster of the world, as the process of a roll and its rules look at it."""

    def __init__(self, fleet: Fleet, shape: Shape):
        self.name = shape.name
        self.model = shape.model
        self.domain = shape.domain
        self.faults: list[str] = []
        self._world = fleet.world
        self._units = fleet.world.of_cluster(shape.name)
        self.hosts = sorted({unit.host for unit in self._units})
        self.lock_host = min(unit.host for unit in self._units if unit.role == "prefill")

    @property
    def units(self) -> list[Any]:
        """Return the units with their ledgers."""
        return [_Remembered(self._world, unit) for unit in self._units]

    @property
    def wedged(self) -> bool:
        """Tell whether a prefill is wedged."""
        return any(unit.wedged for unit in self._units)

    @property
    def closed(self) -> bool:
        """Tell whether a router gave up its workers."""
        return any(unit.closed for unit in self._units)

    def answers(self) -> bool:
        """Tell whether requests through its routers are served."""
        return all(self._world.serves(unit) for unit in self._units if unit.role == "router")

    def is_as_wanted(self) -> bool:
        """Tell whether it serves with what is deployed."""
        return self.answers() and all(unit.running == unit.deployed for unit in self._units)


class _Remembered:
    """A unit's ledger."""

    def __init__(self, its_world: world.World, unit: world.Unit):
        self.role = unit.role
        self.ledger = _ledger_of(its_world, unit.host, unit.name)


def _ledger_of(its_world: world.World, host: str, unit: str) -> dict[str, Any]:
    text = its_world.ledgers.get((host, unit))
    return dict(_ledger.empty(unit), **(json.loads(text) if text else {}))


class Watched(rules.Rules):
    """The rules of a co-restart, which also tell those of a roll what is done; a call may be a process's last."""

    def __init__(self, its_world: world.World):
        super().__init__(its_world)
        self.fleet: Fleet | None = None
        #: By id of a run: the process of the roll that walks it.
        self.process_of: dict[str, RealProcess] = {}

    def call(self, run: str, host: str, what: str) -> None:
        """Let a moment pass in the process that makes this call."""
        super().call(run, host, what)
        if run in self.process_of:
            self.process_of[run].tick(0.0)

    def effect(self, host: str, unit: world.Unit, what: str) -> None:
        """Judge an effect by both kinds of rules."""
        super().effect(host, unit, what)
        process = self.process_of.get(self.slices[-1].plan["run"]["id"])
        assert self.fleet is not None
        if process:
            self.fleet.listener.before(self.fleet.clusters[unit.cluster], process.observed, what)


class Fleet(roll_world.Maintained):
    """What a process of a roll needs of the world."""

    def __init__(self, shapes: Iterable[Shape]):
        shapes = list(shapes)
        members = [member for shape in shapes for member in _members(shape)]
        self.world = world.World(members, lenient=True)
        self.world_rules = Watched(self.world)
        self.world_rules.fleet = self
        self.listener: Any = roll_world.Listener()
        #: The process of a roll that is amid a co-restart.
        self.at_work: Observed | None = None
        self.unreachable: set[str] = set()
        self.maintenance: set[str] = set()
        self.clusters = {shape.name: Cluster(self, shape) for shape in shapes}
        self.hosts = self.world.hosts
        self.variables: dict[str, dict[str, Any]] = {host: {} for host in self.hosts}
        self.groups: dict[str, list[str]] = {}
        for member in members:
            group = self.groups.setdefault("pd_" + member["role"], [])
            if member["host"] not in group:
                group.append(member["host"])
            names = self.variables[member["host"]].setdefault("pd_cluster", [])
            if member["cluster"] not in names:
                names.append(member["cluster"])
        for shape in shapes:
            for host in self.clusters[shape.name].hosts:
                self.variables[host].setdefault("pd_engine_served_model_name", shape.model)
                if shape.domain and host != shape.edge:
                    self.variables[host]["pd_failure_domain"] = shape.domain
        self.wanted = inventory.inventory_clusters(self.groups, self.variables)[0]
        self._answered = {name: cluster.answers() for name, cluster in self.clusters.items()}

    # -- the same words as those of roll_world.Fleet -----------------------------------

    @property
    def clock(self) -> float:
        """Return the time."""
        return self.world.clock

    @clock.setter
    def clock(self, at: float) -> None:
        self.world.advance(at - self.world.clock)
        self.look()

    @property
    def event(self) -> int:
        """Return the number of the last event."""
        return self.world.event

    @property
    def log(self) -> list[str]:
        """Return the last events."""
        return self.world.log

    @property
    def reservations(self) -> dict[str, dict[str, Any]]:
        """Return the reservations of rolls."""
        return self.world.reservations

    @property
    def locks(self) -> dict[str, dict[str, Any]]:
        """Return the locks of co-restarts by host."""
        found: dict[str, dict[str, Any]] = {}
        for (host, cluster), text in self.world.locks.items():
            found.setdefault(host, {})[cluster] = json.loads(text)
        return found

    def happens(self, text: str, *words: Any) -> int:
        """Log an event."""
        return self.world.happens(text, *words)

    def look(self) -> None:
        """Tell the rules which clusters began or ceased to answer, by themselves or by the process at work."""
        for name, cluster in self.clusters.items():
            before, now = self._answered[name], cluster.answers()
            if before != now:
                self._answered[name] = now
                process = self.at_work
                mine = process is not None and name in process.wave.get("clusters", ())
                if now:
                    self.listener.back(cluster)
                else:
                    self.listener.after(cluster, process if mine else "time", before)

    def member_info(self, host: str) -> dict[str, Any]:
        """Return what the ``member_info`` module gives on a host."""
        if host in self.unreachable:
            return {"unreachable": True, "msg": "no route to host"}
        found: dict[str, Any] = json.loads(json.dumps(world.member_info(self.world, host)))
        return found

    def preflight(self, host: str) -> dict[str, Any]:
        """Return what the ``preflight`` module gives on a host."""
        return {"members": {}}

    def keep(self, directory: str, host: str, cluster: str, lock: dict[str, Any]) -> None:
        """Keep a lock or a reservation on a host; ``{}`` takes it away."""
        if directory == LockFiles.LOCKS:
            if lock:
                self.world.locks[host, cluster] = json.dumps(lock)
            else:
                del self.world.locks[host, cluster]
        elif lock:
            self.world.reservations.setdefault(host, {})[cluster] = lock
        else:
            del self.world.reservations[host][cluster]

    def members_on(self, host: str) -> list[dict[str, Any]]:
        """Return the members on a host."""
        return [unit.member for unit in self.world.units.values() if unit.host == host]

    def ledger(self, host: str, name: str) -> dict[str, Any]:
        """Return the ledger of a unit."""
        return _ledger_of(self.world, host, name)

    def write_ledger(self, host: str, ledger: dict[str, Any]) -> None:
        """Write the ledger of a unit."""
        self.world.ledgers[host, ledger["unit"]] = json.dumps(ledger)

    def outside(self, cluster: Cluster, what: str) -> None:
        """Let something happen to a cluster that no co-restart brings about."""
        its = self.world
        answered = cluster.answers()
        its.outside[cluster.name] = its.happens("{}: {}", cluster.name, what)
        decode = its.of_cluster(cluster.name, "decode")[-1]
        prefills = its.of_cluster(cluster.name, "prefill")
        if what.startswith("restart"):
            its.restart_at_once(decode, "a human")
        if what in ("wedge", "restart and wedge"):
            prefills[0].wedged = True
        elif what == "crash":
            its.stop_at_once(decode)
        elif what == "heal":
            for unit in prefills:
                unit.wedged = False
        elif what in ("configure", "configure badly"):
            for unit in its.of_cluster(cluster.name):
                unit.deployed += world.BAD if what == "configure badly" else "b"
        elif what == "configure router":
            for unit in its.of_cluster(cluster.name, "router"):
                unit.deployed += "r"
        elif what == "power off":
            its.power_off(cluster.lock_host)
        self._answered[cluster.name] = cluster.answers()
        self.listener.after(cluster, what, answered)
        self.look()

    def co_restart(self, cluster: Cluster, run_id: str, take_over: str) -> str:
        """Run the playbook ``co_restart`` for one cluster, by hand."""
        run = {"id": run_id, "owner": "somebody", "purpose": "by hand"}
        controller = self.controller({"run": run, "when": _plan.ALWAYS, "take_over": take_over}, [cluster.name])
        for _slice in controller.walk():
            self.look()
        return controller.outcomes[cluster.name]

    def controller(self, wish: dict[str, Any], clusters: list[str], rollback: str = "never") -> Controller:
        """Return a controller that co-restarts clusters."""
        wish = asked(clusters=clusters, **wish)
        found = Controller(self.world, self.world_rules, self.wanted, wish, slice_seconds=5.0, rollback=rollback)
        found.hosts = sorted({host for name in clusters for host in self.clusters[name].hosts})
        return found

    def mend(self) -> None:
        """Take all faults and bad configurations away. Processes stay as they are."""
        self.happens("everything is mended")
        self.maintenance.clear()
        self.unreachable.clear()
        bad = [n for n in self.clusters if any(world.BAD in u.deployed for u in self.world.of_cluster(n))]
        self.world.mend()
        for name, cluster in self.clusters.items():
            cluster.faults.clear()
            if name in bad:
                self.listener.after(cluster, "configure", cluster.answers())


class RealProcess(Process):
    """A process of a roll whose waves are walked by the real steps."""

    fleet: Any

    def __init__(self, stage: Stage, observed: Observed, roll_id: str, **more: Any):
        super().__init__(stage, observed, roll_id, **more)
        # The controller of the real steps walks whole runs, and no further attempt after them.
        self.rolls_back_after_a_soak = _attempts.NEVER
        self.run_id = ""

    def killed(self) -> None:
        """Note the death of the run that was under way."""
        self.fleet.at_work = None
        if self.run_id:
            self.fleet.world_rules.died(self.run_id)

    def co_restart(
        self, wave: dict[str, Any], clusters: list[str], run_id: str
    ) -> Generator[None, None, tuple[dict[str, Any], dict[str, Any]]]:
        """Do what ``tasks/co_restart.yml`` does; return what it registers as plan and attempts."""
        fleet = self.fleet
        for name in clusters:
            for fault in [fault for fault in fleet.clusters[name].faults if fault in BEHAVIOURS]:
                fleet.clusters[name].faults.remove(fault)
                role, behaviour = BEHAVIOURS[fault]
                fleet.world.of_cluster(name, role)[0].next_behaviours.append(behaviour)
        seen = {host: fleet.member_info(host) for name in clusters for host in fleet.clusters[name].hosts}
        wish = {
            "run": co_restart_plan.new_run(run_id, wave["purpose"]),
            "when": wave["restart_when"],
            "roll": wave["roll"],
            "gone_owners": co_restart_plan.gone_owners(seen, "locks"),
        }
        controller = fleet.controller(wish, clusters, self.rolls_back)
        self.run_id = run_id
        fleet.world_rules.process_of[run_id] = self
        fleet.at_work = self.observed
        for _slice in controller.walk():
            fleet.look()
            self.tick(0.0)
            fleet.at_work = None
            yield
            fleet.at_work = self.observed
        fleet.look()
        fleet.at_work = None
        self.run_id = ""
        for name in clusters:
            self.judge_real(controller, name)
        return _as_registered(controller.first_found), {"attempts": controller.concluded, "next": {}}

    def judge_real(self, controller: Controller, name: str) -> None:
        """Tell the observer what became of a cluster, by what runs now."""
        outcome = controller.outcomes[name]
        words = {"ok": "done", "widened": "done", "rolled back": "rolled_back"}
        self.rules.came_to(self.observed, name, words.get(outcome, outcome))
        if outcome in words and not self.fleet.clusters[name].answers():
            self.rules.broken("events", "{} came to {} and does not answer", name, outcome)


def _members(shape: Shape) -> list[dict[str, Any]]:
    """Return the members of a cluster: each engine on a host of its own, the router beside the first prefill."""
    sketch = histories.History((), 1, True, False, False, True, ())
    found = []
    roles = ["prefill"] * shape.prefills + ["decode"] * shape.decodes + ["router"]
    for number, role in enumerate(roles):
        unit = "{}-{}-{}.service".format(shape.name, role, number)
        port = 20 * int(shape.name[1:]) + number
        member = histories._member(sketch, port, shape.name, role, unit, 1, 0, "{}{}".format(role, number))
        host = "{}-{}".format(shape.name, number if role != "router" else 0)
        if role == "router" and shape.edge:
            host = shape.edge
        member.update(host=host, address=host, url="http://{}:{}".format(host, member["port"]))
        settings = {"model_path": "/models/" + shape.model, "served_model_name": shape.model}
        found.append(dict(member, settings=dict(settings, transfer_backend="nixl")))
    return found
