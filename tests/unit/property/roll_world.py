# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated fleet that is cheap enough for ten thousand engines.

Hosts keep real ledgers, locks and revisions, written by the core's own functions; a co-restart is
a generator that walks the stages of a real plan, without probes and queues (:mod:`world` has
those). Whether a cluster answers requests is worked out from what really runs. What happens is
told to a listener (see :mod:`roll_rules`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Generator, Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _lock, _plan, _revision
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import clusters as inventory

from .controller import asked
from .world import BAD

STAGES = ("prefill", "decode", "router")
#: How long a lock outlives the last step that renewed it.
LEASE_SECONDS = 1000
KEPT_REVISIONS = 3
NO_PROBLEMS: dict[str, Any] = {"members": {}}
NO_SETTINGS: dict[str, Any] = {"members": {}}

#: What the next co-restart of a cluster can run into, or what follows on it.
GATE_OF_PREFILL = "a prefill is never healthy"
GATE_OF_DECODE = "a decode is never healthy"
PROOF = "requests are not served, whatever the gates said"
SOAK = "stops serving while it is watched"
SOAK_AND_BACK = "fails requests while it is watched, and serves again"
HOOK = "its hook before the drain fails"
LATE_HOOK = "its hook after the verification fails"
PREFLIGHT = "its host finds a problem"
FAULTS = (GATE_OF_PREFILL, GATE_OF_DECODE, PROOF, SOAK, SOAK_AND_BACK, HOOK, LATE_HOOK, PREFLIGHT)


@dataclasses.dataclass(frozen=True)
class Shape:
    """A cluster of a fleet.

    :param edge: a host that holds the routers of several clusters, "" for none.
    """

    name: str
    model: str = "m"
    domain: str = ""
    prefills: int = 1
    decodes: int = 1
    edge: str = ""


class Unit:
    """A systemd unit, with what its host remembers of it."""

    def __init__(self, member: dict[str, Any]):
        self.member = member
        self.name: str = member["unit"]
        self.host: str = member["host"]
        self.role: str = member["role"]
        self.state = "inactive"
        self.invocation = ""
        self.running = ""
        self.ledger = _ledger.empty(self.name)
        self.revisions: list[dict[str, Any]] = []


class Cluster:
    """A cluster; ``version`` changes with everything that its hosts would tell."""

    def __init__(self, shape: Shape, units: list[Unit]):
        self.name = shape.name
        self.model = shape.model
        self.domain = shape.domain
        self.units = units
        self.hosts = sorted({unit.host for unit in units})
        self.lock_host = min(unit.host for unit in units if unit.role == "prefill")
        self.on_lock_host = [unit for unit in units if unit.host == self.lock_host]
        self.deployed = dict.fromkeys(STAGES, "a")
        self.closed = False
        self.wedged = False
        self.faults: list[str] = []
        self.version = 0
        self._records: tuple[int, dict[str, list[dict[str, Any]]]] = (-1, {})
        self._answers: tuple[int, bool] = (-1, False)

    def answers(self) -> bool:
        """Tell whether requests through its routers are served."""
        if self._answers[0] != self.version:
            running = all(u.state == "active" and BAD not in u.running for u in self.units)
            self._answers = self.version, running and not self.closed and not self.wedged
        return self._answers[1]

    def is_as_wanted(self) -> bool:
        """Tell whether it serves with what is deployed."""
        return self.answers() and all(u.running == self.deployed[u.role] for u in self.units)

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Return its members by host, as ``member_info`` gives them; they are not to be changed."""
        if self._records[0] != self.version:
            found: dict[str, list[dict[str, Any]]] = {}
            for unit in self.units:
                found.setdefault(unit.host, []).append(self._record(unit))
            self._records = self.version, found
        return self._records[1]

    def _record(self, unit: Unit) -> dict[str, Any]:
        deployed = self.deployed[unit.role]
        return {
            "member": dict(unit.member, configuration=deployed),
            "unit": {
                "load_state": "loaded",
                "active_state": unit.state,
                "sub_state": "running",
                "invocation_id": unit.invocation,
                "restart_policy": "no",
                "restarts": 0,
                "result": "success",
                "exit_status": 0,
            },
            "ledger": unit.ledger,
            "running_configuration": unit.running,
            "listeners": [],
            "deployed_digest": deployed,
            "revisions": [
                dict(one, member=dict(unit.member, configuration=one["digest"]), problems=[]) for one in unit.revisions
            ],
        }

    def touched(self) -> None:
        """Forget what was worked out from its state."""
        self.version += 1


class Listener:
    """What is told of what happens in a fleet. The rules override it."""

    def before(self, cluster: Cluster, cause: Any, what: str) -> None:
        """Hear of an effect of a co-restart before it is done."""

    def after(self, cluster: Cluster, cause: Any, answered: bool) -> None:
        """Hear that a cluster changed; ``answered``: whether it served until now."""

    def back(self, cluster: Cluster) -> None:
        """Hear that a cluster answers again, as was awaited."""


class Maintained:
    """What a fleet has of its inventory, and who works on its hosts."""

    clusters: dict[str, Any]
    variables: dict[str, dict[str, Any]]
    maintenance: set[str]

    def host_variables(self, host: str) -> dict[str, Any]:
        """Return the inventory's variables of a host."""
        variables = dict(self.variables[host])
        if host in self.maintenance:
            variables["pd_maintenance"] = "new fans"
        return variables

    def in_maintenance(self) -> set[str]:
        """Return the clusters with a host in maintenance."""
        return {name for name, cluster in self.clusters.items() if self.maintenance.intersection(cluster.hosts)}


class Fleet(Maintained):
    """All clusters, their hosts, and one clock."""

    def __init__(self, shapes: Iterable[Shape]):
        self.listener = Listener()
        self.clusters: dict[str, Cluster] = {}
        self.variables: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, list[str]] = {"pd_prefill": [], "pd_decode": [], "pd_router": []}
        #: By host, then by cluster.
        self.locks: dict[str, dict[str, Any]] = {}
        self.reservations: dict[str, dict[str, Any]] = {}
        self.unreachable: set[str] = set()
        self.maintenance: set[str] = set()
        self.clock = 1000.0
        self.event = 0
        self.log: list[str] = []
        self._numbers = itertools.count(1)
        self._on_host: dict[str, list[Cluster]] = {}
        for shape in shapes:
            self._add(shape)
        self.hosts = sorted(self.variables)
        self.wanted, homeless = inventory.inventory_clusters(self.groups, self.variables)
        assert not homeless

    def _add(self, shape: Shape) -> None:
        units = []
        roles = ["prefill"] * shape.prefills + ["decode"] * shape.decodes + ["router"]
        for number, role in enumerate(roles):
            host = "{}-{}".format(shape.name, number)
            if role == "router":
                # Beside the first prefill, where it has no host for many.
                host = shape.edge or "{}-0".format(shape.name)
            port = 30000 + len(self._on_host.get(host, [])) * 20 + number
            units.append(Unit(_member(shape, role, number, host, port)))
            group = self.groups["pd_" + role]
            if host not in self.variables or host not in group:
                group.append(host)
            variables = self.variables.setdefault(host, {"pd_engine_served_model_name": shape.model})
            names = variables.setdefault("pd_cluster", [])
            if shape.name not in names:
                names.append(shape.name)
            if shape.domain and host != shape.edge:
                variables["pd_failure_domain"] = shape.domain
        cluster = Cluster(shape, units)
        self.clusters[shape.name] = cluster
        for host in cluster.hosts:
            self._on_host.setdefault(host, []).append(cluster)

    # -- time and events ---------------------------------------------------------------

    def happens(self, text: str, *words: Any) -> int:
        """Log an event; return its number."""
        self.event += 1
        if len(self.log) > 1000:
            del self.log[:500]
        self.log.append("{:5d} {:9.1f} {}".format(self.event, self.clock, text.format(*words)))
        return self.event

    # -- what hosts tell ---------------------------------------------------------------

    def member_info(self, host: str) -> dict[str, Any]:
        """Return what the ``member_info`` module gives on a host."""
        if host in self.unreachable:
            return {"unreachable": True, "msg": "no route to host"}
        its = self._on_host[host]
        members = its[0].records()[host]
        if len(its) > 1:
            members = [record for cluster in its for record in cluster.records()[host]]
        locks, rolls = self.locks.get(host), self.reservations.get(host)
        return {
            "members": members,
            "locks": dict(locks) if locks else {},
            "rolls": dict(rolls) if rolls else {},
            "now": self.clock,
        }

    def preflight(self, host: str) -> dict[str, Any]:
        """Return what the ``preflight`` module gives on a host."""
        if not any(cluster.faults for cluster in self._on_host[host]):
            return NO_PROBLEMS
        members = {}
        for cluster in self._on_host[host]:
            if PREFLIGHT in cluster.faults:
                problem = {"rule": "flags are known", "message": "--tpsize is unknown", "host": "", "variable": ""}
                members.update({u.name: {"problems": [problem]} for u in cluster.units if u.host == host})
        return {"members": members}

    def members_on(self, host: str) -> list[dict[str, Any]]:
        """Return the members on a host."""
        return [unit.member for cluster in self._on_host[host] for unit in cluster.units if unit.host == host]

    def ledger(self, host: str, name: str) -> dict[str, Any]:
        """Return the ledger of a unit."""
        its = (unit for cluster in self._on_host[host] for unit in cluster.units if unit.host == host)
        return next(unit.ledger for unit in its if unit.name == name)

    def write_ledger(self, host: str, ledger: dict[str, Any]) -> None:
        """Write the ledger of a unit."""
        for cluster in self._on_host[host]:
            for unit in cluster.units:
                if (unit.host, unit.name) == (host, ledger["unit"]):
                    unit.ledger = ledger
                    cluster.touched()

    def keep(self, directory: str, host: str, cluster: str, lock: dict[str, Any]) -> None:
        """Keep a lock or a reservation on a host; ``{}`` takes it away."""
        kept: dict[str, dict[str, Any]] = getattr(self, directory)
        if lock:
            kept.setdefault(host, {})[cluster] = lock
        else:
            del kept[host][cluster]

    # -- what is done to hosts ---------------------------------------------------------

    def acquire(self, cluster: Cluster, plan: dict[str, Any]) -> str:
        """Take a cluster's lock for the run of a plan; return who has it, or ""."""
        locks = self.locks.setdefault(cluster.lock_host, {})
        wanted = {"run": plan["run"], "generation": plan["generation"], "lease_seconds": LEASE_SECONDS}
        lock, message = _lock.acquire(locks.get(cluster.name), wanted, self.clock, plan["take_over"])
        if lock is None:
            return message
        locks[cluster.name] = lock
        cluster.touched()
        return ""

    def unlock(self, cluster: Cluster, run_id: str) -> None:
        """Take a lock of a run away."""
        locks = self.locks.get(cluster.lock_host, {})
        held = locks.get(cluster.name)
        if held and held["run"]["id"] == run_id:
            del locks[cluster.name]
            cluster.touched()

    def is_lost(self, cluster: Cluster, plan: dict[str, Any]) -> bool:
        """Tell whether another run came to a cluster; renew the lease where none did."""
        run_id = plan["run"]["id"]
        # The lock's host takes part in every step.
        if any(_ledger.fenced_off_by(unit.ledger, plan["generation"], run_id) for unit in cluster.on_lock_host):
            return True
        locks = self.locks.get(cluster.lock_host, {})
        held = locks.get(cluster.name)
        if held is None or held["run"]["id"] != run_id:
            return True
        locks[cluster.name] = _lock.renew(held, LEASE_SECONDS, self.clock)
        return False

    def start(self, unit: Unit, deployed: str) -> None:
        """Start a unit as a new incarnation."""
        unit.state, unit.running = "active", deployed
        unit.invocation = "i{}".format(next(self._numbers))

    def stop(self, unit: Unit, state: str = "inactive") -> None:
        """Stop a unit."""
        unit.state, unit.running = state, ""

    # -- what people and chance do -----------------------------------------------------

    def outside(self, cluster: Cluster, what: str) -> None:
        """Let something happen to a cluster that no co-restart brings about."""
        answered = cluster.answers()
        self.happens("{}: {}", cluster.name, what)
        decodes = [unit for unit in cluster.units if unit.role == "decode"]
        if what == "restart":
            self.start(decodes[-1], cluster.deployed["decode"])
        elif what == "restart and wedge":
            self.start(decodes[-1], cluster.deployed["decode"])
            cluster.wedged = True
        elif what == "crash":
            self.stop(decodes[0], "failed")
        elif what == "wedge":
            cluster.wedged = True
        elif what == "heal":
            cluster.wedged = False
        elif what in ("configure", "configure badly"):
            word = BAD if what == "configure badly" else "b"
            cluster.deployed = {role: config + word for role, config in cluster.deployed.items()}
        elif what == "configure router":
            cluster.deployed = dict(cluster.deployed, router=cluster.deployed["router"] + "r")
        elif what == "power off":
            for unit in cluster.units:
                if unit.host == cluster.lock_host:
                    self.stop(unit)
                    unit.invocation = ""
        else:
            raise AssertionError(what)
        cluster.touched()
        self.listener.after(cluster, what, answered)

    def co_restart(self, cluster: Cluster, run_id: str, take_over: str) -> str:
        """Run the playbook ``co_restart`` for one cluster, from another controller; return what it came to."""
        hosts = [host for host in cluster.hosts if host not in self.unreachable]
        seen = {host: dict(self.member_info(host), preflight={}) for host in hosts}
        run = {"id": run_id, "owner": "somebody", "purpose": "by hand"}
        wish = asked(run=run, stages=list(STAGES), take_over=take_over, resume_limit_seconds=0)
        plan = _plan.make_plan(cluster.name, self.wanted[cluster.name], seen, wish)
        if plan["decision"] != "go":
            return str(plan["decision"])
        walk = Walk(self, plan, run_id, lambda seconds: None)
        for _step in walk.steps():
            pass
        self.unlock(cluster, run_id)
        return walk.result.outcome

    def mend(self) -> None:
        """Take all faults and bad configurations away. Processes stay as they are."""
        self.happens("everything is mended")
        self.unreachable.clear()
        self.maintenance.clear()
        for cluster in self.clusters.values():
            cluster.faults.clear()
            if any(BAD in config for config in cluster.deployed.values()):
                cluster.deployed = {role: config.replace(BAD, "") for role, config in cluster.deployed.items()}
                cluster.touched()
                self.listener.after(cluster, "configure", cluster.answers())


def _member(shape: Shape, role: str, number: int, host: str, port: int) -> dict[str, Any]:
    unit = "sglang-{}-{}-{}.service".format(shape.name, role, number)
    return {
        "cluster": shape.name,
        "role": role,
        "unit": unit,
        "host": host,
        "engine": "{} {}".format(role, number),
        "nnodes": 1,
        "node_rank": 0,
        "dist_init_addr": "",
        "address": host,
        "listen": "0.0.0.0",
        "port": port,
        "bootstrap_port": port + 10000 if role == "prefill" else None,
        "metrics_port": port + 20000 if role == "router" else None,
        "url": "http://{}:{}".format(host, port),
        "gpus": [],
        "settings": {"model_path": "/models/" + shape.model, "served_model_name": shape.model},
        "version": "0.5.23",
        "stop_limit_seconds": 90,
        "healthy_limit_seconds": 900,
    }


# -- a co-restart ------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    """What an attempt on a cluster came to."""

    outcome: str = "ok"
    reason: str = ""
    stopped: bool = False
    lost: bool = False
    #: A host could not be reached when the outcome was recorded.
    unrecorded: bool = False


class Walk:
    """One attempt on one cluster: what the steps of a real plan do to ledgers and units.

    ``tick`` is called before every write: it lets time pass, and may raise :class:`world.KilledError`.
    """

    def __init__(self, fleet: Fleet, plan: dict[str, Any], cause: Any, tick: Any):
        self.fleet = fleet
        self.plan = plan
        self.cause = cause
        self.tick = tick
        self.cluster = fleet.clusters[plan["cluster"]]
        self.actions = {member["unit"]: member["action"] for member in plan["members"]}
        self.before = {member["unit"]: member["before"] for member in plan["members"]}
        self.result = Result()
        self.locked = False

    def steps(self) -> Generator[None, None, None]:
        """Walk up to the record; :attr:`result` says what it came to."""
        yield from self.lock()
        if self.failed():
            return
        for stages in (self.restore, self.close, *(self.stage_of(role) for role in STAGES), self.proof):
            yield from stages()
            if self.failed():
                break
        yield from self.record()

    def failed(self) -> bool:
        """Tell whether the attempt is over; another run may have come to the cluster."""
        if self.result.outcome == "ok" and self.locked and self.fleet.is_lost(self.cluster, self.plan):
            self.result.outcome, self.result.lost = "failed", True
            self.result.reason = "another run came after this one"
        return self.result.outcome != "ok"

    def effect(self, what: str, seconds: float = 1.0) -> bool:
        """Announce an effect; False where the attempt may not go on."""
        self.tick(seconds)
        if self.failed():
            return False
        self.fleet.listener.before(self.cluster, self.cause, what)
        return True

    def done(self, answered: bool, text: str) -> None:
        """Note that an effect was done."""
        self.cluster.touched()
        self.fleet.happens("{}: {} ({})", self.cluster.name, text, self.cause)
        self.fleet.listener.after(self.cluster, self.cause, answered)

    def fail(self, reason: str) -> None:
        """End the attempt."""
        if self.result.outcome == "ok":
            self.result.outcome, self.result.reason = "failed", reason

    def cut_off(self) -> bool:
        """Tell whether a host of the cluster cannot be reached now, and fail where so."""
        gone = sorted(self.fleet.unreachable & set(self.cluster.hosts))
        if gone:
            self.fail("{} cannot be reached".format(gone[0]))
        return bool(gone)

    def lock(self) -> Generator[None, None, None]:
        self.tick(1.0)
        if not self.cut_off():
            held = self.fleet.acquire(self.cluster, self.plan)
            if held:
                self.fail("locked by " + held)
            else:
                self.locked = True
        yield

    def restore(self) -> Generator[None, None, None]:
        if self.plan["restore"] and not self.cut_off() and self.effect("restore"):
            answered = self.cluster.answers()
            units = {unit.name: unit for unit in self.cluster.units}
            for its in self.plan["restore"]["units"].values():
                for name, generation in its.items():
                    kept = next(one for one in units[name].revisions if one["generation"] == generation)
                    self.cluster.deployed = dict(self.cluster.deployed, **{units[name].role: kept["digest"]})
            self.done(answered, "puts back {}".format(self.cluster.deployed))
        yield

    def close(self) -> Generator[None, None, None]:
        if self.cut_off():
            yield
            return
        engines = any(m["action"] == "restart" and m["role"] != "router" for m in self.plan["members"])
        for unit in self.cluster.units:
            self.tick(0.1)
            unit.ledger = _ledger.announce(unit.ledger, self.plan["generation"], self.plan["run"])
            self.cluster.touched()
        yield
        if engines and self.effect("close"):
            answered = self.cluster.answers()
            for unit in self.cluster.units:
                if unit.role == "router" and unit.state == "active" and self.actions[unit.name] == "restart":
                    unit.ledger = _ledger.close(unit.ledger, unit.invocation)
                    self.cluster.closed = True
            self.done(answered, "closes its routers")
        yield

    def stage_of(self, role: str) -> Any:
        def stage() -> Generator[None, None, None]:
            mine = [u for u in self.cluster.units if u.role == role and self.actions[u.name] != "none"]
            moved = [u for u in mine if self.actions[u.name] != "keep"]
            if not mine or self.cut_off():
                yield
                return
            if any(u.invocation != self.before[u.name] for u in mine if self.actions[u.name] == "keep"):
                self.fail("what was kept is not there any more")
                return
            yield from self.stop(role, moved)
            yield from self.start(role, moved)
            fault = {"prefill": GATE_OF_PREFILL, "decode": GATE_OF_DECODE}.get(role, "")
            if fault in self.cluster.faults:
                self.cluster.faults.remove(fault)
                self.fail(fault)
                return
            for unit in mine:
                if self.effect("gate", 0.1):
                    kept = _ledger.adopt(unit.ledger, self.plan["generation"], self.plan["run"])
                    ledger = unit.ledger if unit in moved else kept
                    unit.ledger = _ledger.advance(
                        ledger, _ledger.HEALTHY, configuration=unit.running, healthy_at=self.fleet.clock
                    )
                    self.cluster.touched()
            yield

        return stage

    def stop(self, role: str, moved: list[Unit]) -> Generator[None, None, None]:
        for unit in moved:
            if not self.effect("stop", 0.5):
                return
            answered = self.cluster.answers()
            self.result.stopped = True
            ledger = _ledger.begin(
                unit.ledger,
                self.plan["generation"],
                self.plan["run"],
                "",
                unit.invocation,
                self.fleet.clock,
                self.plan["scope"]["rule"],
            )
            self.fleet.stop(unit)
            unit.ledger = _ledger.advance(ledger, _ledger.STOPPED)
            self.done(answered, "stops {}".format(unit.name))
        yield

    def start(self, role: str, moved: list[Unit]) -> Generator[None, None, None]:
        for unit in moved:
            if not self.effect("start", 0.5):
                return
            answered = self.cluster.answers()
            self.fleet.start(unit, self.cluster.deployed[role])
            unit.ledger = _ledger.advance(unit.ledger, _ledger.STARTED, incarnation=unit.invocation)
            if role == "router":
                self.cluster.closed = False
            if role == "prefill":
                self.cluster.wedged = False
            self.done(answered, "starts {}".format(unit.name))
            yield
        self.tick(20.0)
        yield

    def proof(self) -> Generator[None, None, None]:
        self.tick(5.0)
        if PROOF in self.cluster.faults:
            self.cluster.faults.remove(PROOF)
            answered = self.cluster.answers()
            self.cluster.wedged = True
            self.done(answered, "the KV path is dead")
        if not self.cut_off() and not self.cluster.answers():
            self.fail("requests were not served")
        yield

    def record(self) -> Generator[None, None, None]:
        """Write the outcome into every ledger."""
        if not self.locked or self.result.lost:
            yield
            return
        for number, unit in enumerate(self.cluster.units):
            self.tick(0.1)
            if unit.host in self.fleet.unreachable:
                self.result.unrecorded = True
                continue
            if self.fleet.is_lost(self.cluster, self.plan):
                self.fail("another run came after this one")
                self.result.lost = True
                return
            announced = _ledger.announce(unit.ledger, self.plan["generation"], self.plan["run"])
            fence = dict(announced["fence"], outcome=self.result.outcome, reason=self.result.reason)
            ledger = dict(announced, fence=fence)
            if ledger["generation"] == self.plan["generation"]:
                ledger = _ledger.end(ledger, self.result.outcome, self.result.reason, self.fleet.clock)
            unit.ledger = ledger
            if self.result.outcome == "ok" and unit.running == self.cluster.deployed[unit.role]:
                new = {"generation": self.plan["generation"], "digest": unit.running}
                unit.revisions = _revision.keep(unit.revisions, new, KEPT_REVISIONS)[1]
            self.cluster.touched()
            if number == 0:
                yield
        if self.result.outcome != "ok" and not self.result.stopped and self.cluster.closed:
            answered = self.cluster.answers()
            for unit in self.cluster.units:
                if unit.role == "router":
                    self.fleet.start(unit, unit.running)
            self.cluster.closed = False
            self.done(answered, "opens its routers again")
        self.fleet.happens("{}: {} {} ({})", self.cluster.name, self.result.outcome, self.result.reason, self.cause)
        yield
