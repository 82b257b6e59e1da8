# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Histories: plain data that say what a fleet looks like and what becomes of it.

A history is drawn by hypothesis (:func:`histories`), played by :func:`play`, and shrinks well
because everything in it is small numbers whose zero is harmless.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections import Counter
from collections.abc import Generator
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _plan
from hypothesis import strategies as st

from .controller import STEPS, TASKS, Controller, Outage, asked
from .rules import Rules
from .world import (
    BAD,
    BEHAVIOURS,
    HEALTHY_LIMIT_SECONDS,
    STOP_LIMIT_SECONDS,
    KilledError,
    World,
    ports,
)

FULL = ("prefill", "decode", "router")
#: What a run may be asked for: stages, override, when.
REQUESTS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "full": (FULL, "", _plan.ALWAYS),
    "when due": ((), "", _plan.WHEN_DUE),
    "when due, or back": ((), "", _plan.WHEN_DUE),
    "full, or back": (FULL, "", _plan.ALWAYS),
    "router, or back": (("router",), "", _plan.ALWAYS),
    "back": (FULL, "", _plan.ALWAYS),
    "first start": (FULL, "", _plan.FIRST_START),
    "router": (("router",), "", _plan.ALWAYS),
    "decode": (("decode",), "", _plan.ALWAYS),
    "prefill": (("prefill",), "", _plan.ALWAYS),
    "decode and router": (("decode", "router"), "", _plan.ALWAYS),
    "decode, override": (("decode",), "I know better", _plan.ALWAYS),
    "full, override": (FULL, "I know better", _plan.ALWAYS),
}
#: Rule 1: these must be refused whatever the state of the cluster.
NEVER_GRANTED = ("decode", "prefill", "decode and router")

#: These put the last good revision in place where they fail, or at once.
OR_BACK = ("when due, or back", "full, or back", "router, or back")
BACK = ("back",)
CALM_REQUESTS = tuple(name for name in REQUESTS if name not in (*OR_BACK, *BACK))

HUMAN = ("restart", "stop", "start", "configure", "wedge", "hold port", "power off", "reach")


@dataclasses.dataclass(frozen=True)
class Shape:
    """A cluster: numbers of engines and routers, and which stage has one of two ranks."""

    prefills: int = 1
    decodes: int = 1
    routers: int = 1
    two_ranks: str = ""


@dataclasses.dataclass(frozen=True)
class Human:
    """Somebody does something to a unit, past the collection."""

    what: str
    unit: int


@dataclasses.dataclass(frozen=True)
class Pause:
    """Time goes by."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Mend:
    """All faults are mended."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of the playbook, with what befalls it.

    :param faults: what the next start of a unit comes to, by unit's number.
    :param dies_at: the slice at which the controller is gone, None for never.
    :param dies_in_call: the writing call on a host in which it is gone.
    :param outage: host's number, first and last task, and whether it breaks late.
    :param meanwhile: what a human does at some slice of the run.
    :param skips: tasks that are left out.
    :param same_process: the results of the run before are still registered.
    :param second: a second run that starts at some slice of this one, with turns: 1 lets the
        second go on, 0 this one.
    """

    asked: str = "full"
    whole_fleet: bool = True
    cluster: int = 0
    take_over: bool = False
    knows_the_dead: bool = False
    slice_seconds: float = 2.0
    rotation: int = 0
    resume_limit_seconds: int = 3600
    faults: tuple[tuple[int, str], ...] = ()
    dies_at: int | None = None
    dies_in_call: int | None = None
    outage: tuple[int, int, int, bool] | None = None
    meanwhile: tuple[tuple[int, Human], ...] = ()
    skips: tuple[str, ...] = ()
    same_process: bool = False
    second: Run | None = None
    second_at: int = 0
    turns: tuple[int, ...] = (0, 1)
    lease_ends: bool = False


@dataclasses.dataclass(frozen=True)
class History:
    """A fleet and what becomes of it."""

    shapes: tuple[Shape, ...]
    hosts: int
    lenient: bool
    #: Prefills wedge when a decode restarts without them.
    fragile: bool
    #: The clusters opted in to decodes restarting alone; their versions are known to heal.
    decode_alone: bool
    listed: bool
    acts: tuple[Human | Pause | Mend | Run, ...]


def members_of(history: History) -> list[dict[str, Any]]:
    """Return the members of a history's fleet, dealt out over its hosts."""
    members: list[dict[str, Any]] = []
    numbers = itertools.count()
    for index, shape in enumerate(history.shapes):
        cluster = "c{}".format(index)
        counts = {"prefill": shape.prefills, "decode": shape.decodes, "router": shape.routers}
        for role, count in counts.items():
            for engine in range(count):
                ranks = 2 if role == shape.two_ranks and engine == 0 else 1
                for rank in range(ranks):
                    number = next(numbers)
                    unit = "{}-{}-{}{}.service".format(
                        cluster, role, engine, "-rank{}".format(rank) if ranks > 1 else ""
                    )
                    members.append(
                        _member(history, number, cluster, role, unit, ranks, rank, "{}{}".format(role, engine))
                    )
    return members


def _member(
    history: History,
    number: int,
    cluster: str,
    role: str,
    unit: str,
    ranks: int,
    rank: int,
    engine: str,
) -> dict[str, Any]:
    host = "h{}".format(number % history.hosts)
    return {
        "cluster": cluster,
        "role": role,
        "unit": unit,
        "host": host,
        "engine": "{} {}".format(cluster, engine),
        "nnodes": ranks,
        "node_rank": rank,
        "dist_init_addr": "",
        "address": host,
        "listen": "127.0.0.1",
        "port": 30000 + number,
        "bootstrap_port": 8000 + number if role == "prefill" else None,
        "metrics_port": 29000 + number if role == "router" else None,
        "url": "http://{}:{}".format(host, 30000 + number),
        "gpus": [],
        "settings": {"model_path": "/models/m", "transfer_backend": "nixl"},
        "version": "0.5.23",
        "transfer_version": "1.5.1" if history.listed else "1.3.2",
        "configuration": "a",
        "stop_limit_seconds": STOP_LIMIT_SECONDS,
        "healthy_limit_seconds": HEALTHY_LIMIT_SECONDS,
    }


class Player:
    """Plays one history; ``seen`` counts what it came to, for the generator's own test."""

    def __init__(self, history: History, seen: Counter[str]):
        self.history = history
        self.world = World(members_of(history), history.lenient, history.fragile)
        self.rules = Rules(self.world)
        self.rules.listed = history.listed
        self.seen = seen
        self.numbers = itertools.count(1)
        self.dead: list[str] = []
        self.last: Controller | None = None
        self.wanted: dict[str, dict[str, list[str]]] = {}
        for unit in self.world.units.values():
            roles = self.wanted.setdefault(unit.cluster, {})
            if unit.host not in roles.setdefault(unit.role, []):
                roles[unit.role].append(unit.host)
        self.units = [self.world.units[key] for key in sorted(self.world.units)]

    def play(self) -> None:
        """Play all acts, then mend everything and demand that a co-restart heals the fleet."""
        for act in self.history.acts:
            self.seen[type(act).__name__] += 1
            if isinstance(act, Run):
                self.one_or_two_runs(act)
            elif isinstance(act, Human):
                self.human(act)
            elif isinstance(act, Pause):
                self.world.advance(act.seconds)
            else:
                self.world.mend()
        self.world.mend()
        self.world.happens("everything is mended")
        self.world.advance(2000.0)
        for host_cluster in list(self.world.locks):
            self.seen["lock left behind"] += 1
            self.world.happens("lock left: {}", host_cluster)
        healing = self.controller(Run(knows_the_dead=True))
        self.drive(healing.walk(), None)
        if any(plan.get("resumes") for plan in healing.all_found):
            # What a dead run had left in good order may have lost its KV path since; the proof
            # finds that, and after a recorded failure the whole chain is restarted.
            healing = self.controller(Run(asked="full" if "failed" in healing.outcomes.values() else "when due"))
            self.drive(healing.walk(), None)
            healing.outcomes = {c: o for c, o in healing.outcomes.items() if o != "nothing"}
        self.must_be_ok(healing)
        again = self.controller(Run(asked="when due"))
        self.drive(again.walk(), None)
        if set(again.outcomes.values()) != {"nothing"}:
            self.rules.broken("live", "after the co-restart another one is due: {}", again.outcomes)

    def must_be_ok(self, controller: Controller) -> None:
        """Demand that a run without any trouble is ok."""
        for name, outcome in controller.outcomes.items():
            if outcome != "ok":
                self.rules.broken("live", "{} of {}: {}", controller.run, name, outcome)

    def controller(self, run: Run) -> Controller:
        """Return the controller of a run."""
        stages, override, when = REQUESTS[run.asked]
        name = "run{}".format(next(self.numbers))
        clusters = self.world.clusters
        wanted = asked(
            run={"id": name, "owner": "owner of " + name, "purpose": "test"},
            clusters=clusters if run.whole_fleet else [clusters[run.cluster % len(clusters)]],
            stages=list(stages),
            override=override,
            when=when,
            take_over="the operator says so" if run.take_over else "",
            resume_limit_seconds=run.resume_limit_seconds,
            gone_owners=["owner of " + dead for dead in self.dead] if run.knows_the_dead else [],
            decode_alone=self.history.decode_alone,
            restore={"generation": 0, "automatic": False} if run.asked in BACK else None,
        )
        outages: tuple[Outage, ...] = ()
        if run.outage:
            host, first, last, late = run.outage
            hosts = self.world.hosts
            outages = (Outage(hosts[host % len(hosts)], first, max(first, last), late),)
        if run.dies_in_call is not None:
            self.rules.calls_to_live[name] = run.dies_in_call
        self.last = Controller(
            self.world,
            self.rules,
            self.wanted,
            wanted,
            run.slice_seconds,
            outages,
            run.rotation,
            run.skips,
            copy.deepcopy(self.last.registered) if run.same_process and self.last else None,
            _attempts.ON_FAILURE if run.asked in OR_BACK else _attempts.NEVER,
        )
        return self.last

    def one_or_two_runs(self, act: Run) -> None:
        """Play a run, and the second one that meets it."""
        for number, behaviour in act.faults:
            self.units[number % len(self.units)].next_behaviours.append(behaviour)
        first = self.controller(act)
        expected = {c: self.expected(act, c) for c in first.asked["clusters"]}
        walk = first.walk()
        done = False
        if act.second is None:
            self.drive(walk, act)
        else:
            for number in range(act.second_at):
                done = done or not self.one_slice(walk, act, number, first.run)
            if act.lease_ends:
                self.world.happens("{} is frozen for a long time", first.run)
                self.world.advance(400.0)
            second = self.controller(act.second)
            self.interleave([(walk, act, first), (second.walk(), act.second, second)], act, done)
            self.judge(act.second, second)
        self.judge(act, first)
        for cluster, wanted in expected.items():
            if not wanted:
                continue
            came_to = str(first.outcomes.get(cluster))
            self.seen["demanded ok" if wanted == ("ok",) else "demanded " + ", ".join(wanted)] += 1
            if came_to not in wanted:
                rule = "live" if wanted == ("ok",) else "8 rollback"
                self.rules.broken(rule, "{} is {}, not {}", cluster, came_to, wanted)
            if came_to in ("ok", "widened", "rolled back"):
                self.serves(cluster)

    def serves(self, cluster: str) -> None:
        """Demand that requests are served by what is deployed."""
        for unit in self.world.of_cluster(cluster):
            if BAD in unit.deployed or (unit.role == "router" and not self.world.serves(unit)):
                self.rules.broken("8 rollback", "{} does not serve", unit.name)

    def expected(self, act: Run, cluster: str) -> tuple[str, ...]:
        """Return what a run of which nothing stands in the way may come to, () where that is not known."""
        if not self.is_undisturbed(act, cluster):
            return ()
        units = self.world.of_cluster(cluster)
        if any(unit.running != unit.deployed and BAD in unit.deployed and unit.running for unit in units):
            if act.asked not in OR_BACK:
                return ()
            moved = ["router"] if act.asked == "router, or back" else ["prefill", "decode", "router"]
            stale = [u for u in units if BAD in u.deployed and u.role not in moved]
            revisions = [self.world.revisions.get((u.host, u.name), []) for u in units]
            known = set.intersection(*({n for one in its for n in one["generations"]} for its in revisions))
            healthy = all(BAD not in u.running and u.state == "active" and not u.wedged for u in units)
            return ("rolled back",) if known and healthy and not stale else ()
        if any(BAD in unit.deployed for unit in units):
            return ()
        if act.asked in ("full", "full, or back"):
            return ("ok",)
        return ("ok", "widened", "nothing") if act.asked in ("when due", "when due, or back") else ()

    def judge(self, act: Run, controller: Controller) -> None:
        """Count what became of a run, and demand what its request demands."""
        for outcome in controller.outcomes.values():
            self.seen["{}: {}".format(act.asked, outcome)] += 1
            if act.asked in NEVER_GRANTED and outcome != "refused":
                self.rules.broken("1 order", "{} alone is {}", act.asked, outcome)
        self.seen["attempts: {}".format(controller.attempts)] += 1
        for plan in controller.all_found:
            if plan["decision"] == "go":
                self.seen["scope: {}".format(plan["scope"]["rule"])] += 1
                self.seen["restores"] += bool(plan["restore"] and plan["restore"]["units"])
                self.seen["resumes"] += bool(plan["resumes"])
                kept = {m["role"] for m in plan["members"] if m["action"] == "keep"}
                self.seen["keeps {}".format(" ".join(sorted(kept)))] += bool(kept)
                self.seen["takes over"] += bool(plan["take_over"])

    def is_undisturbed(self, act: Run, cluster: str) -> bool:
        """Tell whether nothing at all stands in the way of a cluster's full co-restart.

        What befalls another cluster of the same run does not count: it must not matter.
        """
        alone = act.dies_at is None and act.dies_in_call is None and act.second is None
        by_name = "full, or back", "when due", "when due, or back", "router, or back"
        if act.asked not in ("full", *by_name) or not alone or act.skips:
            return False
        units = [unit for unit in self.units if unit.cluster == cluster]
        hosts = {unit.host for unit in units}
        touched = [self.units[human.unit % len(self.units)] for _at, human in act.meanwhile]
        if any(unit.host in hosts for unit in touched):
            return False
        if act.outage and self.world.hosts[act.outage[0] % len(self.world.hosts)] in hosts:
            return False
        return not any(
            unit.next_behaviours
            or unit.stubborn
            # It may die yet.
            or unit.behaviour.startswith(("healthy", "flaps"))
            or any((unit.host, port) in self.world.foreign for port in ports(unit.member))
            or (unit.host, cluster) in self.world.locks
            for unit in units
        )

    def drive(self, walk: Generator[None, None, None], act: Run | None) -> None:
        """Run one controller to its end."""
        number = 0
        while self.one_slice(walk, act, number, ""):
            number += 1

    def one_slice(self, walk: Generator[None, None, None], act: Run | None, number: int, run: str) -> bool:
        """Run one slice of a controller, with what befalls it; False when it is over."""
        if act is not None:
            if act.dies_at == number:
                walk.close()
                self.bury(run)
                return False
            for at, human in act.meanwhile:
                if at == number:
                    self.human(human)
        try:
            next(walk)
        except StopIteration:
            return False
        except KilledError as killed:
            self.bury(str(killed))
            return False
        return True

    def bury(self, run: str) -> None:
        """Note the death of a controller."""
        name = run or "run{}".format(max(int(t[0][3:]) for t in self.rules.truths or [("run0", "")]))
        self.seen["died"] += 1
        self.dead.append(name)
        self.rules.died(name)

    def interleave(
        self,
        walks: list[tuple[Generator[None, None, None], Run, Controller]],
        act: Run,
        first_is_done: bool,
    ) -> None:
        """Let two controllers go on by turns; also within the waits of the first one's slices."""
        turns = itertools.cycle(act.turns or (0, 1))
        alive = [not first_is_done, True]
        counts = [act.second_at, 0]
        busy = [False, False]

        def go_on(which: int) -> None:
            walk, its_act, controller = walks[which]
            busy[which] = True
            try:
                alive[which] = self.one_slice(walk, its_act, counts[which], controller.run)
            finally:
                busy[which] = False
            counts[which] += 1

        def on_wait() -> None:
            if alive[1] and busy[0] and not busy[1] and next(turns) == 2:
                go_on(1)

        self.world.on_wait = on_wait
        try:
            while any(alive):
                wanted = 1 if next(turns) else 0
                go_on(wanted if alive[wanted] else 1 - wanted)
        finally:
            self.world.on_wait = lambda: None

    def human(self, act: Human) -> None:
        """Do what somebody does past the collection."""
        world, unit = self.world, self.units[act.unit % len(self.units)]
        world.happens("a human does: {} {} on {}", act.what, unit.name, unit.host)
        if act.what == "restart":
            world.restart_at_once(unit, "a human")
        elif act.what == "stop":
            world.stop_at_once(unit)
        elif act.what == "start":
            world.ask_to_start(unit, "a human")
        elif act.what == "configure":
            unit.deployed += "b"
            world.outside[unit.cluster] = world.event
        elif act.what == "configure badly":
            unit.deployed += BAD
            world.outside[unit.cluster] = world.event
        elif act.what == "wedge":
            for prefill in world.of_cluster(unit.cluster, "prefill"):
                prefill.wedged = True
        elif act.what == "hold port":
            # A process that the unit left behind.
            world.stop_at_once(unit)
            world.foreign[unit.host, unit.member["port"]] = ""
        elif act.what == "power off":
            world.power_off(unit.host)


def play(history: History, seen: Counter[str] | None = None) -> None:
    """Play a history; raise :class:`rules.ViolationError` where a rule is broken."""
    Player(history, Counter() if seen is None else seen).play()


# -- drawing ---------------------------------------------------------------------------

SMALL = st.integers(0, 11)
SHAPES = st.builds(
    Shape,
    prefills=st.integers(1, 3),
    decodes=st.integers(1, 3),
    routers=st.integers(1, 2),
    two_ranks=st.sampled_from(["", "", "", "prefill", "decode"]),
)
HUMANS = st.builds(Human, what=st.sampled_from(HUMAN[:-1]), unit=SMALL)
MAYBE_FAULTS = st.one_of(
    st.just(()),
    st.lists(st.tuples(SMALL, st.sampled_from(BEHAVIOURS)), min_size=1, max_size=2).map(tuple),
)
#: Runs have some 60 to 250 slices and calls that write.
LATE = st.integers(0, 220)
OUTAGES = st.tuples(SMALL, st.integers(0, TASKS - 1), st.integers(0, TASKS + 4), st.booleans())
SLICES = st.sampled_from([2.0, 0.0, 5.0])
COMMON: dict[str, Any] = {"slice_seconds": SLICES, "rotation": st.integers(0, 3)}

CALM = st.builds(
    Run,
    asked=st.sampled_from(CALM_REQUESTS),
    whole_fleet=st.booleans(),
    cluster=st.integers(0, 1),
    knows_the_dead=st.booleans(),
    faults=MAYBE_FAULTS,
    **COMMON,
)
DYING = st.one_of(
    st.builds(
        Run,
        asked=st.sampled_from(["full", "full", "full", "router", "decode, override"]),
        take_over=st.booleans(),
        faults=st.one_of(st.just(()), MAYBE_FAULTS),
        dies_at=LATE,
        **COMMON,
    ),
    st.builds(
        Run,
        asked=st.sampled_from(["full", "full", "full", "router", "decode, override"]),
        take_over=st.booleans(),
        dies_in_call=LATE,
        **COMMON,
    ),
)
#: Before anything was stopped, or just after.
DYING_EARLY = st.builds(Run, dies_at=st.integers(0, 40), **COMMON)
#: While decodes or routers start, or after that.
DYING_LATE = st.builds(Run, dies_at=st.integers(40, 120), **COMMON)
#: Replaces something between the plan and the stage that it is in.
MEDDLED = st.builds(
    Run,
    take_over=st.just(True),
    meanwhile=st.tuples(st.tuples(st.integers(1, 40), st.builds(Human, what=st.just("restart"), unit=SMALL))),
    **COMMON,
)
RERUN = st.builds(
    Run,
    asked=st.sampled_from(["full", "full", "when due", "router"]),
    take_over=st.just(True),
    resume_limit_seconds=st.sampled_from([3600, 3600, 20]),
    faults=st.one_of(st.just(()), MAYBE_FAULTS),
    **COMMON,
)
CUT_OFF = st.builds(
    Run,
    asked=st.sampled_from(["full", "full", "router"]),
    outage=OUTAGES,
    faults=MAYBE_FAULTS,
    **COMMON,
)
DISTURBED = st.builds(
    Run,
    asked=st.sampled_from(["full", "full", "full", "router", "when due"]),
    take_over=st.just(True),
    meanwhile=st.lists(st.tuples(LATE, HUMANS), min_size=1, max_size=2).map(tuple),
    faults=st.one_of(st.just(()), MAYBE_FAULTS),
    **COMMON,
)
PARTLY = st.builds(
    Run,
    asked=st.sampled_from(["full", "full", "router", "decode, override"]),
    take_over=st.just(True),
    skips=st.lists(st.sampled_from(STEPS), min_size=1, max_size=4, unique=True).map(tuple),
    same_process=st.booleans(),
    **COMMON,
)
TURNS = st.lists(st.integers(0, 2), min_size=2, max_size=12).map(tuple)


def _two(second: st.SearchStrategy[Run]) -> st.SearchStrategy[Run]:
    return st.builds(
        Run,
        asked=st.sampled_from(["full", "full", "router"]),
        take_over=st.booleans(),
        second=second,
        second_at=LATE,
        turns=TURNS,
        lease_ends=st.booleans(),
        dies_at=st.one_of(st.none(), LATE),
        **COMMON,
    )


TWO = _two(
    st.builds(
        Run,
        asked=st.sampled_from(["full", "full", "when due", "router", "decode, override"]),
        take_over=st.booleans(),
        dies_at=st.one_of(st.none(), LATE),
        **COMMON,
    )
)
#: A change, good or bad, and a run that may go back.
CHANGES = st.builds(Human, what=st.sampled_from(["configure", "configure", "configure badly"]), unit=SMALL)
CAREFUL = st.builds(
    Run,
    asked=st.sampled_from(["when due", "when due", *OR_BACK, *OR_BACK, *BACK]),
    whole_fleet=st.booleans(),
    cluster=st.integers(0, 1),
    knows_the_dead=st.booleans(),
    **COMMON,
)
#: A small scope that fails its proof, the whole chain that does, too, and the way back.
GONE_WRONG = st.builds(Human, what=st.just("configure badly"), unit=SMALL)
BACK_WHERE_DUE = st.builds(Run, asked=st.just("when due, or back"), **COMMON)
CAREFUL_AND_HIT = st.one_of(
    st.builds(
        Run,
        asked=st.sampled_from([*OR_BACK, *BACK, "when due"]),
        take_over=st.just(True),
        faults=MAYBE_FAULTS,
        outage=st.one_of(st.none(), OUTAGES),
        **COMMON,
    ),
    st.builds(
        Run,
        asked=st.sampled_from([*OR_BACK, *BACK, "when due"]),
        take_over=st.just(True),
        dies_at=st.one_of(st.none(), st.integers(0, 500)),
        dies_in_call=st.one_of(st.none(), st.integers(0, 500)),
        meanwhile=st.lists(st.tuples(LATE, HUMANS), max_size=1).map(tuple),
        **COMMON,
    ),
)
#: Settings of decodes changed in a cluster that lets them restart alone; what else befalls it.
CONFIGURED = st.builds(Human, what=st.just("configure"), unit=SMALL)
BY_HAND = st.builds(Human, what=st.sampled_from(["restart", "stop"]), unit=SMALL)
ALONE = st.builds(Run, asked=st.just("when due"), take_over=st.just(True), **COMMON)
ALONE_AND_MEDDLED = st.builds(
    Run,
    asked=st.just("when due"),
    take_over=st.just(True),
    meanwhile=st.tuples(st.tuples(st.integers(1, 100), BY_HAND)),
    **COMMON,
)
PAUSES = st.builds(Pause, seconds=st.sampled_from([5.0, 30.0, 300.0, 4000.0]))
FIRST = st.just(Run())
BETWEEN = st.one_of(HUMANS, HUMANS, PAUSES, st.just(Mend()))

#: What a family of histories is about: the acts of which it is made.
FAMILIES: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "faults": st.tuples(FIRST, BETWEEN, CALM, st.one_of(BETWEEN, CALM), RERUN),
    "deaths": st.one_of(
        st.tuples(FIRST, DYING, RERUN),
        st.tuples(FIRST, DYING, DYING, RERUN),
        st.tuples(DYING, BETWEEN, RERUN),
        st.tuples(FIRST, DYING, BETWEEN, DISTURBED),
        st.tuples(FIRST, DYING, DISTURBED),
        st.tuples(FIRST, DYING, PAUSES, RERUN),
        st.tuples(FIRST, DYING_EARLY, RERUN),
        st.tuples(FIRST, DYING_LATE, MEDDLED),
        st.tuples(FIRST, DYING, BETWEEN, RERUN, RERUN),
    ),
    "cut off": st.one_of(
        st.tuples(FIRST, CUT_OFF, st.one_of(RERUN, CUT_OFF)),
        st.tuples(FIRST, CUT_OFF, BETWEEN, RERUN),
        st.tuples(FIRST, DISTURBED, st.one_of(CUT_OFF, RERUN)),
        st.tuples(DISTURBED, DISTURBED),
    ),
    "tags": st.one_of(
        st.tuples(FIRST, PARTLY, RERUN),
        st.tuples(FIRST, BETWEEN, PARTLY, PARTLY),
    ),
    "attempts": st.one_of(
        st.tuples(FIRST, CHANGES, CAREFUL),
        st.tuples(FIRST, GONE_WRONG, BACK_WHERE_DUE),
        st.tuples(FIRST, CHANGES, CAREFUL, CHANGES, CAREFUL),
        st.tuples(FIRST, CHANGES, CHANGES, CAREFUL, CAREFUL),
        st.tuples(FIRST, CHANGES, BETWEEN, CAREFUL, RERUN),
        st.tuples(FIRST, CHANGES, CAREFUL_AND_HIT, RERUN),
        st.tuples(FIRST, CHANGES, CAREFUL, CHANGES, CAREFUL_AND_HIT, CAREFUL),
    ),
    "decodes alone": st.one_of(
        st.tuples(FIRST, CONFIGURED, ALONE),
        st.tuples(FIRST, CONFIGURED, BY_HAND, ALONE),
        st.tuples(FIRST, CONFIGURED, ALONE_AND_MEDDLED),
    ),
    "two": st.one_of(
        st.tuples(FIRST, TWO),
        st.tuples(FIRST, TWO, RERUN),
        st.tuples(FIRST, DYING, TWO),
    ),
}


def histories(family: str) -> st.SearchStrategy[History]:
    """Return the histories of a family."""
    opted_in = {"attempts": st.booleans(), "decodes alone": st.just(True)}
    return st.builds(
        History,
        shapes=st.lists(SHAPES, min_size=1, max_size=2).map(tuple),
        hosts=st.integers(1, 7),
        lenient=st.booleans(),
        fragile=st.booleans() if family == "attempts" else st.just(False),
        decode_alone=opted_in.get(family, st.just(False)),
        listed=st.sampled_from([True, True, False]) if family == "attempts" else st.just(True),
        acts=FAMILIES[family],
    )
