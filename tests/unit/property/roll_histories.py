# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Histories of rolls: plain data that say what a fleet looks like and what becomes of it.

Drawn by hypothesis (:func:`histories`) for a handful of clusters, or from seeded chance
(:func:`campaign`) for a fleet of a thousand; played by :class:`Player`.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _plan
from hypothesis import strategies as st

from . import roll_real
from .histories import Mend, Pause
from .roll_process import Process, Stage
from .roll_world import FAULTS, SOAK, Cluster, Fleet, Shape

#: What befalls a cluster past all rolls.
BEFALLS = ("restart", "restart and wedge", "crash", "wedge", "power off", "configure", "configure badly")
BY_HAND = ("co-restart", "co-restart, taking over")
OF_HOSTS = ("cut", "join", "maintenance", "end of maintenance")


@dataclasses.dataclass(frozen=True)
class Act:
    """Something happens to a cluster: one of the words above."""

    what: str
    cluster: int = 0


@dataclasses.dataclass(frozen=True)
class Deploy:
    """Something new is deployed on clusters, every ``each``-th from ``first`` on."""

    what: str = "configure"
    first: int = 0
    each: int = 1


@dataclasses.dataclass(frozen=True)
class Roll:
    """One process of a roll, with what befalls it.

    :param resumes: goes on with the last roll.
    :param selected: numbers of the clusters that are selected, none for all.
    :param canary: numbers of the canaries that are named.
    :param faults: what the next co-restart of a cluster runs into.
    :param lives: the moments that the controller has to live, None for all.
    :param full: the moments at which its disk is full.
    :param meanwhile: what happens after some yield of the process.
    :param cancelled_at: the yield after which somebody cancels.
    :param second: another process that begins after some yield of this one, with turns.
    """

    resumes: bool = False
    selected: tuple[int, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    canary: tuple[int, ...] = ()
    faults: tuple[tuple[int, str], ...] = ()
    here: bool = True
    rolls_back: bool = False
    lives: int | None = None
    full: tuple[int, int] | None = None
    meanwhile: tuple[tuple[int, Act], ...] = ()
    cancelled_at: int | None = None
    second: Roll | None = None
    second_at: int = 0
    turns: tuple[int, ...] = (0, 1)


@dataclasses.dataclass(frozen=True)
class History:
    """A fleet and what becomes of it; all its clusters run well when it begins."""

    shapes: tuple[Shape, ...]
    acts: tuple[Act | Deploy | Pause | Mend | Roll, ...]


class Player:
    """Plays one history; ``seen`` counts what it came to."""

    def __init__(self, stage: Stage, seen: Counter[str]):
        self.stage = stage
        self.fleet = stage.fleet
        self.seen = seen
        self.clusters = list(self.fleet.clusters.values())
        self.last: Process | None = None
        #: The rolls that have not come to their end, by id: the process that walked them last.
        self.open: dict[str, Process] = {}
        self.by_hand = 0

    def play(self, acts: tuple[Act | Deploy | Pause | Mend | Roll, ...]) -> None:
        """Play acts, then mend everything, wait for all leases, and demand that all rolls are resumed to their end."""
        for act in acts:
            self.one(act)
        self.fleet.mend()
        self.fleet.clock += 100000
        for cluster in self.clusters:
            # The requests of the look would find it, and it would be repaired; here somebody did that.
            if cluster.wedged and not cluster.closed:
                self.fleet.outside(cluster, "heal")
            wanted = [p.options["clusters"] for p in self.open.values()]
            whole = cluster.is_as_wanted() and cluster.name not in self.stage.rules.meddled
            if self.open and not whole and not any(not names or cluster.name in names for names in wanted):
                self.co_restart_by_hand(cluster, "")
        for _attempt in range(4):
            for roll_id in list(self.open):
                self.resume_mended(roll_id)
        for roll_id, process in self.open.items():
            self.stage.rules.broken("live", "{} comes to {} again and again", roll_id, process.outcome)

    def one(self, act: Act | Deploy | Pause | Mend | Roll) -> None:
        """Play one act."""
        self.seen[type(act).__name__] += 1
        if isinstance(act, Roll):
            self.roll(act)
        elif isinstance(act, Act):
            self.act(act)
        elif isinstance(act, Deploy):
            for cluster in self.clusters[act.first % len(self.clusters) :: act.each]:
                self.fleet.outside(cluster, act.what)
        elif isinstance(act, Pause):
            self.fleet.clock += act.seconds
        else:
            self.fleet.mend()

    def act(self, act: Act) -> None:
        """Let something happen to a cluster or its hosts."""
        fleet, cluster = self.fleet, self.clusters[act.cluster % len(self.clusters)]
        if act.what in BY_HAND:
            self.co_restart_by_hand(cluster, "because" if act.what.endswith("over") else "")
        elif act.what in OF_HOSTS:
            fleet.happens("{}: {}", cluster.name, act.what)
            host = {cluster.hosts[-1]}
            if act.what == "cut":
                fleet.unreachable |= host
            elif act.what == "join":
                fleet.unreachable -= host
            elif act.what == "maintenance":
                fleet.maintenance |= host
            else:
                fleet.maintenance -= host
        else:
            fleet.outside(cluster, act.what)

    def co_restart_by_hand(self, cluster: Cluster, take_over: str) -> None:
        """Run the playbook ``co_restart`` for one cluster, from another controller."""
        self.by_hand += 1
        came_to = self.fleet.co_restart(cluster, "by-hand-{}".format(self.by_hand), take_over)
        self.fleet.happens("{}: co-restart by hand: {}", cluster.name, came_to)
        self.seen["co-restarts by hand"] += came_to == "ok"
        if came_to == "ok":
            self.stage.rules.meddled.discard(cluster.name)

    # -- processes of rolls ------------------------------------------------------------

    def process(self, act: Roll) -> Process:
        """Return the process of an act."""
        names = [cluster.name for cluster in self.clusters]
        options = dict(
            act.options,
            clusters=sorted({names[number % len(names)] for number in act.selected}),
            canary=sorted({names[number % len(names)] for number in act.canary}),
        )
        if options["clusters"]:
            options["canary"] = [name for name in options["canary"] if name in options["clusters"]]
        roll_id = self.last.observed.roll if act.resumes and self.last else ""
        if roll_id and self.last:
            # What a roll is about stays; how it goes on may change.
            former = self.last.options
            options.update(clusters=former["clusters"], restart_when=former["restart_when"])
            options["canary"] = former["canary"]
        for number, fault in act.faults:
            self.clusters[number % len(names)].faults.append(fault)
        # Elsewhere it could not know that another process walks the same roll; it has no files of it either.
        here = self.last.here if roll_id and self.last and self.last.observed.is_alive() else act.here
        given = {"here": here, "lives": act.lives, "full": act.full, "rolls_back": act.rolls_back}
        self.seen["resumed" if roll_id else "new"] += 1
        self.seen["rolls"] += 1
        return self.stage.process(options, roll_id, **given)

    def roll(self, act: Roll) -> None:
        """Play a process, and the one that meets it."""
        first = self.process(act)
        if act.second is None:
            number = 0
            while self.go_on(first, act, number):
                number += 1
            self.over(first)
            return
        number, alive = 0, True
        while alive and number < act.second_at:
            alive = self.go_on(first, act, number)
            number += 1
        self.last = first
        second = self.process(act.second)
        self.seen["two at a time"] += alive
        going = [(first, act), (second, act.second)]
        is_alive, counts, turn = [alive, True], [number, 0], 0
        while any(is_alive):
            which = act.turns[turn % len(act.turns)] if act.turns else turn % 2
            which = which if is_alive[which] else 1 - which
            is_alive[which] = self.go_on(*going[which], counts[which])
            counts[which] += 1
            turn += 1
        self.over(first)
        self.over(second)

    def go_on(self, process: Process, act: Roll | None, number: int) -> bool:
        """Let a process go on, with what befalls it; False when it is over."""
        if act is not None:
            if act.cancelled_at == number:
                self.stage.cancel(process)
            for at, what in act.meanwhile:
                if at == number:
                    self.act(what)
        return self.stage.go_on(process)

    def over(self, process: Process) -> None:
        """Note what a process came to."""
        observed = process.observed
        self.last = process
        self.seen[observed.ended or "killed"] += 1
        self.seen["waves"] += len(observed.waves)
        self.seen["moments"] += process.ticks
        self.seen["clusters put back after a soak"] += len(observed.put_back)
        for outcome in observed.came_to.values():
            self.seen["clusters " + outcome] += 1
        for kind in {wave["kind"] for wave in observed.plan.get("waves", [])[: len(observed.waves)]}:
            self.seen["waves of kind " + kind] += 1
        planned = sum(len(wave["clusters"]) for wave in observed.plan.get("waves", []))
        self.seen["most clusters in a roll"] = max(self.seen["most clusters in a roll"], planned)
        for cluster in self.clusters:
            cluster.faults.clear()
        if observed.roll not in self.stage.files.plans:
            return
        if observed.ended in ("done", "nothing"):
            self.open.pop(observed.roll, None)
        else:
            self.open[observed.roll] = process

    def resume_mended(self, roll_id: str) -> None:
        """Resume a roll now that nothing is in its way; where it ends well, all of it must serve as wanted."""
        former = self.open[roll_id]
        options = dict(former.options, repair=True, pause="never", canary=[])
        process = self.stage.process(options, roll_id)
        self.fleet.clock += 100
        while self.stage.go_on(process):
            pass
        self.over(process)
        if roll_id in self.open:
            return
        for name in options["clusters"] or self.fleet.clusters:
            if not self.fleet.clusters[name].is_as_wanted():
                self.stage.rules.broken("live", "{} does not serve as wanted at the end of {}", name, roll_id)
        self.seen["resumed to the end"] += 1


def start_all(fleet: Fleet) -> None:
    """Let one co-restart have passed over each cluster, as after the first deployment."""
    for cluster in fleet.clusters.values():
        assert fleet.co_restart(cluster, "first", "") == "ok" and cluster.is_as_wanted(), cluster.name


# -- a fleet of a thousand -----------------------------------------------------------------

MODELS, RACKS = 20, 40


def large_fleet(clusters: int) -> list[Shape]:
    """Return clusters of ten engines each, dealt out over models and racks; some have their routers on common hosts."""
    return [
        Shape(
            name="c{:04}".format(number),
            model="model{}".format(number % MODELS),
            domain="rack{}".format(number % RACKS),
            prefills=5,
            decodes=5,
            edge="edge{}".format(number % 100 // 4) if number % 100 < 12 else "",
        )
        for number in range(clusters)
    ]


class Campaign:
    """Rolls of all kinds over one large fleet, one after the other, from seeded chance."""

    def __init__(self, seed: int, player: Player):
        self.chance = random.Random(seed)
        self.player = player
        self.many = len(player.clusters)

    def play(self, rolls: int) -> None:
        """Play so many processes of rolls, a roll of the whole fleet, and then the end of them all."""
        player, chance = self.player, self.chance
        while player.seen["rolls"] < rolls:
            for act in self.before():
                player.one(act)
            player.one(self.roll())
            for _again in range(3):
                if player.last and player.last.observed.roll in player.open and chance.random() < 0.6:
                    player.one(self.roll(resumes=True))
        self.whole_fleet()
        player.play(())

    def whole_fleet(self) -> None:
        """Roll all clusters; the controller is killed three times amid that, and then somebody cancels."""
        player = self.player
        player.one(Mend())
        player.one(Pause(100000))
        player.one(Deploy())
        options = {"max_unavailable": "10%", "batch": "5%", "repair": True, "failure_budget": "2%"}
        for number in range(5):
            lives = self.chance.randrange(10 * self.many, 20 * self.many) if number < 3 else None
            # It yields once for each cluster that it reserves, and then some 20 times a cluster.
            cancelled_at = 2 * self.many if number == 3 else None
            more = {"lives": lives, "cancelled_at": cancelled_at}
            player.one(Roll(resumes=number > 0, options=tuple(options.items()), **more))

    def before(self) -> list[Any]:
        """Return what happens before a new roll."""
        chance, acts = self.chance, []
        if chance.random() < 0.3:
            acts.append(Mend())
        if chance.random() < 0.3:
            acts.append(Pause(chance.choice([60.0, 5000.0, 100000.0])))
        for _change in range(chance.choice([1, 1, 2])):
            what = chance.choice(["configure"] * 6 + ["configure badly", "configure router"])
            acts.append(Deploy(what, chance.randrange(self.many), chance.choice([MODELS, RACKS, 97, 211])))
        acts += [self.befalls() for _one in range(chance.choice([0, 0, 1, 3]))]
        return acts

    def befalls(self) -> Act:
        """Return something that happens to some cluster."""
        return Act(self.chance.choice([*BEFALLS, *BY_HAND, *OF_HOSTS]), self.chance.randrange(self.many))

    def selection(self) -> tuple[int, ...]:
        """Return the clusters of a roll."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.2:
            return ()
        if kind < 0.7:
            return tuple(range(chance.randrange(MODELS), self.many, MODELS))
        return tuple(chance.sample(range(self.many), chance.choice([5, 20, 60])))

    def options(self) -> tuple[tuple[str, Any], ...]:
        """Return the options of a roll."""
        chance = self.chance
        return (
            ("max_unavailable", chance.choice(["1", "2", "10%", "25%"])),
            ("max_unavailable_per_domain", chance.choice(["", "", "1", "2", "20%"])),
            ("batch", chance.choice(["1", "3", "10%", "25%", "100%"])),
            ("canaries_per_model", chance.choice([1, 1, 0, 2])),
            ("failure_budget", chance.choice(["0", "1", "10%", "50%"])),
            ("repair", chance.random() < 0.6),
            ("pause", chance.choice(["never", "never", "never", "after_canary", "after_each_wave"])),
            ("restart_when", chance.choice([_plan.WHEN_DUE] * 9 + [_plan.ALWAYS])),
            ("take_over", chance.choice(["", "", "the operator says so"])),
        )

    def roll(self, resumes: bool = False, second: bool = True) -> Roll:
        """Return a process of a roll."""
        chance = self.chance
        moments = chance.randrange(5, 2500)
        lives, full, cancelled_at, other = None, None, None, None
        fate = chance.random()
        if fate < 0.3:
            lives = moments
        elif fate < 0.4:
            cancelled_at = chance.randrange(1500)
        elif fate < 0.45:
            full = (moments, moments + chance.randrange(50))
        elif fate < 0.6 and second:
            other = self.roll(chance.random() < 0.2, second=False)
        return Roll(
            resumes=resumes,
            selected=self.selection(),
            options=self.options(),
            faults=tuple(
                (chance.randrange(self.many), chance.choice(FAULTS)) for _one in range(chance.choice([0, 5, 40]))
            ),
            here=chance.random() < 0.7,
            rolls_back=chance.random() < 0.5,
            lives=lives,
            full=full,
            cancelled_at=cancelled_at,
            meanwhile=tuple((chance.randrange(1500), self.befalls()) for _one in range(chance.choice([0, 0, 3]))),
            second=other,
            second_at=chance.randrange(200),
            turns=tuple(chance.choices([0, 1], k=chance.randrange(1, 10))),
        )


def play_campaign(seed: int, clusters: int, rolls: int, seen: Counter[str]) -> None:
    """Play a campaign; raise :class:`roll_rules.ViolationError` where a rule is broken."""
    fleet = Fleet(large_fleet(clusters))
    start_all(fleet)
    with Stage(fleet) as stage:
        Campaign(seed, Player(stage, seen)).play(rolls)
    seen["engines"] = sum(unit.role != "router" for cluster in fleet.clusters.values() for unit in cluster.units)


def play(history: History, seen: Counter[str] | None = None) -> None:
    """Play a history; raise :class:`roll_rules.ViolationError` where a rule is broken."""
    fleet = Fleet(history.shapes)
    start_all(fleet)
    with Stage(fleet) as stage:
        Player(stage, Counter() if seen is None else seen).play(history.acts)


# -- drawing a few clusters ----------------------------------------------------------------

SMALL = st.integers(0, 7)
#: A process has some 20 yields and 150 moments for each cluster.
LATE = st.integers(0, 120)
MOMENTS = st.integers(0, 700)


SHAPES = st.lists(
    st.tuples(st.sampled_from("mmmn"), st.sampled_from(["", "r1", "r2"]), st.sampled_from(["", "", "edge"])),
    min_size=2,
    max_size=7,
).map(lambda drawn: tuple(Shape("c{}".format(number), *one[:2], edge=one[2]) for number, one in enumerate(drawn)))

BOUNDS = st.sampled_from(["1", "1", "2", "50%", "3"])
ALL_OPTIONS = st.fixed_dictionaries(
    {
        "max_unavailable": BOUNDS,
        "max_unavailable_per_domain": st.sampled_from(["", "", "1", "2"]),
        "batch": st.sampled_from(["1", "2", "25%", "50%", "100%"]),
        "canaries_per_model": st.sampled_from([1, 1, 0, 2]),
        "failure_budget": st.sampled_from(["0", "0", "1", "30%", "5"]),
        "repair": st.booleans(),
        "pause": st.sampled_from(["never", "never", "after_canary", "after_each_wave"]),
        "restart_when": st.sampled_from([_plan.WHEN_DUE, _plan.WHEN_DUE, _plan.ALWAYS]),
    }
).map(lambda given: tuple(sorted(given.items())))
TROUBLES = st.lists(st.tuples(SMALL, st.sampled_from(FAULTS)), max_size=2).map(tuple)
ACTS = st.builds(Act, what=st.sampled_from([*BEFALLS, *BY_HAND, *OF_HOSTS]), cluster=SMALL)
MEANWHILE = st.lists(st.tuples(LATE, ACTS), min_size=1, max_size=3).map(tuple)
COMMON: dict[str, Any] = {
    "options": ALL_OPTIONS,
    "selected": st.one_of(st.just(()), st.just(()), st.lists(SMALL, min_size=1, max_size=5).map(tuple)),
    "canary": st.one_of(st.just(()), st.just(()), st.lists(SMALL, min_size=1, max_size=2).map(tuple)),
    "rolls_back": st.booleans(),
}
CALM = st.builds(Roll, faults=TROUBLES, **COMMON)
RESUMED = st.builds(Roll, resumes=st.just(True), faults=TROUBLES, **COMMON)
DYING = st.builds(Roll, resumes=st.booleans(), faults=TROUBLES, lives=MOMENTS, here=st.booleans(), **COMMON)
CANCELLED = st.builds(Roll, resumes=st.booleans(), faults=TROUBLES, cancelled_at=LATE, **COMMON)
DISTURBED = st.builds(Roll, resumes=st.booleans(), faults=TROUBLES, meanwhile=MEANWHILE, **COMMON)
FULL = st.builds(
    Roll,
    resumes=st.booleans(),
    full=st.tuples(MOMENTS, st.integers(0, 40)).map(lambda given: (given[0], given[0] + given[1])),
    **COMMON,
)
TAKE_OVER = st.sampled_from(["", "", "the operator says so"])


def _two(first: st.SearchStrategy[tuple[int, ...]], second: st.SearchStrategy[tuple[int, ...]], resumes: Any) -> Any:
    """Return two processes that meet, with the clusters that each selects."""
    its = st.builds(
        Roll,
        resumes=resumes,
        options=st.tuples(ALL_OPTIONS, TAKE_OVER).map(lambda given: (*given[0], ("take_over", given[1]))),
        selected=second,
        faults=TROUBLES,
        here=st.booleans(),
        lives=st.one_of(st.none(), st.none(), MOMENTS),
    )
    return st.builds(
        Roll,
        faults=TROUBLES,
        second=its,
        second_at=LATE,
        turns=st.lists(st.integers(0, 1), min_size=1, max_size=10).map(tuple),
        lives=st.one_of(st.none(), st.none(), MOMENTS),
        **dict(COMMON, selected=first),
    )


#: Two that may be of the same clusters, and two that may have only models, domains and hosts in common.
TWO = st.one_of(
    _two(COMMON["selected"], COMMON["selected"], st.booleans()),
    _two(st.just((0, 2, 4, 6)), st.just((1, 3, 5, 7)), st.just(False)),
    _two(st.just((0, 2, 4, 6)), st.just((1, 3, 5, 7)), st.just(False)),
)
#: Two rolls over one model, each of which would fill the bound alone.
ONE_BY_ONE = st.just((("max_unavailable", "1"), ("batch", "1")))
RIVALS = st.builds(
    Roll,
    options=ONE_BY_ONE,
    selected=st.just((0, 2, 4)),
    second=st.builds(Roll, options=ONE_BY_ONE, selected=st.just((1, 3)), here=st.booleans()),
    second_at=st.integers(0, 25),
    turns=st.lists(st.integers(0, 1), min_size=2, max_size=10).map(tuple),
)
OF_ONE_MODEL = st.integers(3, 6).map(lambda many: tuple(Shape("c{}".format(number)) for number in range(many)))
CHANGES = st.one_of(
    st.builds(Deploy, what=st.just("configure"), first=SMALL, each=st.sampled_from([1, 1, 2])),
    st.builds(Deploy, what=st.sampled_from(["configure badly", "configure router"]), first=SMALL, each=st.just(1)),
)
GOOD_CHANGE = st.just(Deploy())
#: Things that a roll repairs where it is asked to.
HURT = st.builds(Act, what=st.sampled_from(["restart", "restart", "crash", "wedge", "power off"]), cluster=SMALL)
REPAIRS = st.builds(
    Roll,
    faults=TROUBLES,
    **dict(COMMON, options=ALL_OPTIONS.map(lambda given: (*given, ("repair", True)))),
)
PAUSES = st.builds(Pause, seconds=st.sampled_from([5.0, 300.0, 4000.0, 90000.0]))
BETWEEN = st.one_of(ACTS, ACTS, PAUSES, st.just(Mend()))

#: What a family of histories is about: the acts of which it is made.
FAMILIES: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "failures": st.one_of(
        st.tuples(CHANGES, CALM),
        st.tuples(CHANGES, CALM, RESUMED),
        st.tuples(CHANGES, ACTS, CALM, st.just(Mend()), RESUMED),
        st.tuples(CHANGES, CALM, BETWEEN, RESUMED, RESUMED),
    ),
    "deaths": st.one_of(
        st.tuples(GOOD_CHANGE, DYING, RESUMED),
        st.tuples(GOOD_CHANGE, DYING, PAUSES, RESUMED),
        st.tuples(CHANGES, DYING, BETWEEN, RESUMED),
        st.tuples(GOOD_CHANGE, DYING, DYING, RESUMED),
        st.tuples(GOOD_CHANGE, DYING, CALM, RESUMED),
    ),
    "disturbed": st.one_of(
        st.tuples(GOOD_CHANGE, DISTURBED, RESUMED),
        st.tuples(CHANGES, DISTURBED, CANCELLED, RESUMED),
        st.tuples(GOOD_CHANGE, CANCELLED, CANCELLED, RESUMED),
        st.tuples(GOOD_CHANGE, FULL, RESUMED),
        st.tuples(GOOD_CHANGE, ACTS, ACTS, CALM),
    ),
    "repairs": st.one_of(
        st.tuples(HURT, HURT, HURT, REPAIRS, RESUMED),
        st.tuples(GOOD_CHANGE, HURT, HURT, REPAIRS, RESUMED),
        st.tuples(CHANGES, HURT, REPAIRS, HURT, RESUMED),
    ),
    "soaks": st.tuples(
        GOOD_CHANGE,
        st.builds(
            Roll,
            faults=st.just(((0, SOAK),)),
            rolls_back=st.just(True),
            # The last moments are those about the end of the wave in which the first canary goes back.
            lives=st.one_of(st.none(), st.integers(30, 90)),
        ),
        RESUMED,
    ),
    "rivals": st.tuples(GOOD_CHANGE, RIVALS),
    "two": st.one_of(
        st.tuples(GOOD_CHANGE, TWO),
        st.tuples(GOOD_CHANGE, TWO, RESUMED),
        st.tuples(GOOD_CHANGE, DYING, TWO),
        st.tuples(CHANGES, BETWEEN, TWO),
    ),
}


def histories(family: str) -> st.SearchStrategy[History]:
    """Return the histories of a family."""
    return st.builds(History, shapes=OF_ONE_MODEL if family == "rivals" else SHAPES, acts=FAMILIES[family])


def play_real(history: History, seen: Counter[str] | None = None) -> None:
    """Play a history with real steps; raise :class:`roll_rules.ViolationError` or :class:`rules.ViolationError`."""
    fleet: Any = roll_real.Fleet(history.shapes)
    start_all(fleet)
    with Stage(fleet, roll_real.RealProcess) as stage:
        Player(stage, Counter() if seen is None else seen).play(history.acts)
