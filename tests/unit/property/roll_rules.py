# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a roll as invariants over what really happened in a fleet.

The bookkeeping is the observer's own: which cluster answers requests and who took it away, what
became of each cluster, whose canaries sang. What the core says is used only where a rule is about
just that: the plan that it walks, the outcome that it tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .roll_world import Cluster, Fleet, Listener

#: What each invariant says.
INVARIANTS = {
    "bound": "a cluster that answers requests is taken away only where no more clusters of its model, and of its "
    "domain, than the bound are away with it: those in maintenance, those that the roll saw away, and those that a "
    "roll took away; of two rolls the larger bound counts",
    "capacity": "while a cluster of a touched model was seen not to answer, nothing that answers is taken, unless "
    "repairs were asked for, or a killed process of this roll left it so; and then those come first",
    "budget": "no wave begins after more clusters failed or went back than the budget allows",
    "canary": "no wave begins after a canary or a repair failed",
    "canaries first": "of each model with more clusters than canaries, no other cluster that serves is taken before so "
    "many of those were proved and watched; named canaries come before all others",
    "cancel": "no wave begins after the roll was cancelled",
    "pause": "no wave begins after one that wants approval, in the same process",
    "batch": "no wave has more clusters than its batch",
    "hosts": "each host is in one batch, each wave in the batch of its hosts, once, in order",
    "twice": "what a roll did well, and nothing befell since, that roll does not restart again",
    "alone": "two processes do not walk one roll at a time on one controller",
    "plan": "only clusters of the wave are touched, that are selected, due or away, and in no maintenance; not those "
    "that stopped serving before their turn, nor those whose hook failed",
    "refused": "a roll that is refused touches nothing",
    "ledger": "each cluster that was touched has an outcome in all ledgers of that generation",
    "events": "each cluster that was touched has an outcome in the events, and it is what really happened",
    "remaining": "what is said to remain are the clusters of the plan that are not good, in the order of their waves",
    "done": "done only where all clusters of the plan serve, with what is deployed",
    "reservations": "a roll that comes to its end leaves no reservation behind",
    "ends": "every process ends",
    "live": "without a fault, a roll is resumed to its end, and then all that it was to do is done",
}

#: What the observer says of a cluster of a wave.
DONE, NOTHING, FAILED, ROLLED_BACK, REFUSED = "done", "nothing", "failed", "rolled_back", "refused"
GOOD = (DONE, NOTHING)


class ViolationError(AssertionError):
    """A rule was broken; the message carries the last events of the fleet."""

    def __init__(self, rule: str, what: str, fleet: Fleet):
        self.rule = rule
        lines = ["{}: {}".format(rule, INVARIANTS[rule]), "broken: " + what, "events:"]
        super().__init__("\n".join(lines + fleet.log[-150:]))


class Observed:
    """One process of a roll, as the observer sees it: one ``ansible-playbook``.

    :param options: of the roll.
    """

    def __init__(self, number: int, options: dict[str, Any], maintenance: Iterable[str]):
        self.number = number
        self.roll = ""
        self.options = options
        self.maintenance = set(maintenance)
        #: By cluster: the event at which it was asked and did not answer.
        self.saw_away: dict[str, int] = {}
        self.away_at_look: set[str] = set()
        self.plan: dict[str, Any] = {}
        self.wave: dict[str, Any] = {}
        self.waves: list[int] = []
        self.refused_in_wave: set[str] = set()
        #: Clusters of the wave that did not answer when the process came to them.
        self.repairs: set[str] = set()
        self.touched: dict[str, int] = {}
        #: Clusters with a host that could not be reached when the outcome was recorded.
        self.unrecorded: set[str] = set()
        self.came_to: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        #: Clusters that failed while they were watched.
        self.unwatched: set[str] = set()
        #: Those that were put back for it.
        self.put_back: set[str] = set()
        self.began = 0.0
        self.cancelled = False
        self.dead = False
        #: It could not write what it had to tell: its disk was full.
        self.silenced = False
        #: It was killed when it had told already what the roll came to.
        self.told_its_end = False
        self.ended = ""

    def __str__(self) -> str:
        return "process {} of {}".format(self.number, self.roll)

    def is_alive(self) -> bool:
        """Tell whether the process is still there."""
        return not self.dead and not self.ended


def count(text: str, total: int, at_least: int) -> int:
    """Return what a bound comes to; the observer's own reading of the documentation."""
    if text.endswith("%"):
        return max(at_least, total * int(text[:-1]) // 100)
    return max(at_least, int(text))


class Rules(Listener):
    """Watches a fleet and its rolls; raises :class:`ViolationError` as soon as a rule is broken."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        fleet.listener = self
        self.processes: list[Observed] = []
        self.alive: list[Observed] = []
        #: By cluster that does not answer: who or what took it away, and at which event.
        self.away_by: dict[str, tuple[Any, int]] = {}
        #: By roll: the clusters that it did well, and nothing befell since.
        self.good: dict[str, set[str]] = {}
        #: By roll: the clusters that served before it, that it did well and watched to the end.
        self.proved: dict[str, set[str]] = {}
        #: Who co-restarted a cluster last.
        self.last_touch: dict[str, Any] = {}
        #: Clusters to which something happened since the last co-restart that ended well, besides new settings.
        self.meddled: set[str] = set()
        self.groups: dict[tuple[str, str], list[str]] = {}
        for cluster in fleet.clusters.values():
            for group in groups_of(cluster):
                self.groups.setdefault(group, []).append(cluster.name)
            if not cluster.answers():
                self.away_by[cluster.name] = "nobody started it", 0

    def began(self, process: Observed) -> None:
        """Note that a process was started."""
        self.processes.append(process)
        self.alive.append(process)

    def broken(self, rule: str, what: str, *words: Any) -> None:
        """Raise the violation of a rule."""
        raise ViolationError(rule, what.format(*words), self.fleet)

    # -- what a process tells ----------------------------------------------------------

    def asked(self, process: Observed, cluster: str, good: bool, look: bool = False) -> None:
        """Note that a process sent requests to a cluster, or could not."""
        if good:
            process.saw_away.pop(cluster, None)
            return
        process.saw_away[cluster] = self.fleet.event
        if look:
            process.away_at_look.add(cluster)

    def planned(self, process: Observed, plan: dict[str, Any]) -> None:
        """Judge a plan by itself."""
        process.plan = plan
        self.fleet.happens(
            "{}: plan: {} {} {}",
            process,
            plan["decision"],
            [
                (wave["kind"], wave["clusters"], wave["hosts"] if len(wave["hosts"]) < 9 else "")
                for wave in plan["waves"]
            ]
            if len(plan["waves"]) < 30
            else len(plan["waves"]),
            [item["message"] for item in plan["problems"]][:3],
        )
        hosts = [host for batch in plan["batches"] for host in batch["hosts"]]
        if len(hosts) != len(set(hosts)):
            self.broken("hosts", "a host is in two batches: {}", plan["batches"])
        numbers = [number for batch in plan["batches"] for number in batch["waves"]]
        if numbers != list(range(1, len(plan["waves"]) + 1)):
            self.broken("hosts", "waves of the batches are {}", numbers)
        where = {number: set(batch["hosts"]) for batch in plan["batches"] for number in batch["waves"]}
        named: list[str] = []
        for wave in plan["waves"]:
            named += wave["clusters"]
            its = {host for name in wave["clusters"] for host in self.fleet.clusters[name].hosts}
            if its - where[wave["number"]]:
                self.broken("hosts", "wave {} is in a batch without {}", wave["number"], its - where[wave["number"]])
        if len(named) != len(set(named)):
            self.broken("hosts", "a cluster is in two waves: {}", named)
        size = count(process.options["batch"], len(named), 1)
        if any(len(wave["clusters"]) > size or not wave["clusters"] for wave in plan["waves"]):
            self.broken("batch", "{}, at most {}", [wave["clusters"] for wave in plan["waves"]], size)

    def wave_begins(self, process: Observed, wave: dict[str, Any]) -> None:
        """Judge that a wave begins now."""
        fleet = self.fleet
        fleet.happens("{}: wave {} begins: {} {}", process, wave["number"], wave["kind"], wave["clusters"])
        if process.waves and wave["number"] != process.waves[-1] + 1:
            self.broken("hosts", "wave {} after {}", wave["number"], process.waves)
        if process.cancelled:
            self.broken("cancel", "wave {} of {}", wave["number"], process)
        failed = self._failures(process)
        kinds = {name: kind for its in self.of_roll(process.roll) for name, kind in its.kinds.items()}
        first = [name for name in failed if kinds[name] in ("canary", "repair")]
        if first:
            self.broken("canary", "wave {} of {} after {}", wave["number"], process, first)
        rolling = sum(len(one["clusters"]) for one in process.plan["waves"])
        if len(failed) > count(process.options["failure_budget"], rolling, 0):
            self.broken("budget", "wave {} of {} after {}", wave["number"], process, sorted(failed))
        pause = process.options["pause"]
        if process.wave and (pause == "after_each_wave" or (pause, process.wave["kind"]) == ("after_canary", "canary")):
            self.broken("pause", "wave {} of {}", wave["number"], process)
        self._canaries_sang(process, wave)
        process.wave = wave
        process.waves.append(wave["number"])
        process.refused_in_wave = set()
        process.repairs = set()
        process.kinds.update(dict.fromkeys(wave["clusters"], wave["kind"]))

    def of_roll(self, roll: str) -> list[Observed]:
        """Return the processes of a roll."""
        return [process for process in self.processes if process.roll == roll]

    def _failures(self, process: Observed) -> set[str]:
        """Return what failed in this process, and before it while nobody decided to go on.

        Going on after an end that was told is a decision; after a killed controller it is not. What the
        plan does once more counts by what becomes of it now.
        """
        again = {name for wave in process.plan["waves"] for name in wave["clusters"]}
        failed = {name for name, outcome in process.came_to.items() if outcome not in GOOD}
        good = self.good.get(process.roll, set())
        for earlier in reversed(self.of_roll(process.roll)):
            if earlier is process or earlier.ended == "refused":
                continue
            if earlier.ended or earlier.told_its_end or earlier.is_alive():
                break
            failed |= {
                name
                for name, outcome in earlier.came_to.items()
                if outcome not in GOOD and name in earlier.touched and self.is_last(process, name)
                if name not in again and name not in good
            }
        return failed

    def is_last(self, process: Observed, name: str) -> bool:
        """Tell whether nobody but its roll co-restarted a cluster since."""
        last = self.last_touch.get(name)
        return isinstance(last, Observed) and last.roll == process.roll

    def _canaries_sang(self, process: Observed, wave: dict[str, Any]) -> None:
        options = process.options
        serving = [name for name in wave["clusters"] if name not in process.away_at_look]
        serving = [name for name in serving if name not in self.meddled]
        proved = self.proved.get(process.roll, set())
        if options["canary"]:
            left = [
                name
                for one in process.plan["waves"]
                for name in one["clusters"]
                if name in options["canary"] and process.came_to.get(name) not in GOOD
            ]
            others = [name for name in serving if name not in options["canary"]]
            if left and others:
                self.broken("canaries first", "{} before {}", others, left)
            return
        wanted = options["canaries_per_model"]
        for model in {self.fleet.clusters[name].model for name in serving}:
            mine = [name for name in serving if self.fleet.clusters[name].model == model]
            planned = {
                name
                for one in process.plan["waves"]
                for name in one["clusters"]
                if self.fleet.clusters[name].model == model
            }
            sang = [name for name in proved if self.fleet.clusters[name].model == model]
            done = [name for name in planned if process.came_to.get(name) == NOTHING]
            too_many = len(mine) > wanted
            if len(planned | set(sang)) > wanted and too_many and len(sang) + len(done) < wanted:
                self.broken("canaries first", "{} of {}, and {} sang", mine, model, sang)

    def refused_its_turn(self, process: Observed, cluster: str) -> None:
        """Note that a cluster of the wave must not be touched."""
        process.refused_in_wave.add(cluster)

    def came_to(self, process: Observed, cluster: str, outcome: str) -> None:
        """Note what became of a cluster in its wave, up to its co-restart."""
        self.fleet.happens("{}: {} came to {}", process, cluster, outcome)
        process.came_to[cluster] = outcome
        if outcome == DONE:
            self.meddled.discard(cluster)
        if outcome == DONE and self.fleet.clusters[cluster].is_as_wanted():
            self.good.setdefault(process.roll, set()).add(cluster)

    def watched(self, process: Observed, cluster: str, good: bool) -> None:
        """Note how the watch over a cluster ended."""
        self.asked(process, cluster, good)
        proved = self.proved.setdefault(process.roll, set())
        if good:
            if process.kinds[cluster] != "repair":
                proved.add(cluster)
        else:
            self.fleet.happens("{}: {} failed its soak", process, cluster)
            proved.discard(cluster)
            process.came_to[cluster] = FAILED
            process.unwatched.add(cluster)
            self.good.get(process.roll, set()).discard(cluster)

    def went_back(self, process: Observed, cluster: str) -> None:
        """Note that a cluster that failed its soak was put back."""
        self.fleet.happens("{}: {} went back", process, cluster)
        process.came_to[cluster] = ROLLED_BACK
        process.unwatched.discard(cluster)
        process.put_back.add(cluster)

    # -- what the fleet tells ----------------------------------------------------------

    def before(self, cluster: Cluster, cause: Any, what: str) -> None:
        """Judge an effect of a co-restart."""
        self.last_touch[cluster.name] = cause
        if not isinstance(cause, Observed):
            return
        name = cluster.name
        if not cause.is_alive():
            self.broken("ends", "{} of {} by {}, which is over", what, name, cause)
        if cause.plan["decision"] != "go":
            self.broken("refused", "{} of {} by {}", what, name, cause)
        if name not in cause.wave.get("clusters", ()) or name in cause.refused_in_wave or name in cause.maintenance:
            self.broken("plan", "{} of {} by {}", what, name, cause)
        selected = cause.options["clusters"]
        if selected and name not in selected:
            self.broken("plan", "{} of {}, which is not selected", what, name)
        if what == "stop" and name in self.good.get(cause.roll, ()):
            self.broken("twice", "{} by {}", name, cause)
        for other in self.alive:
            if other is not cause and other.roll == cause.roll and other.waves:
                self.broken("alone", "{} and {}", cause, other)
        if name not in cause.touched and not cluster.answers():
            cause.repairs.add(name)
        cause.touched.setdefault(name, self.fleet.event)
        for roll, its in self.good.items():
            if roll != cause.roll:
                its.discard(name)

    def after(self, cluster: Cluster, cause: Any, answered: bool) -> None:
        """Keep book of what is away, and judge what a roll took."""
        name = cluster.name
        if not isinstance(cause, Observed):
            for its in self.good.values():
                its.discard(name)
            if not cause.startswith("configure"):
                self.meddled.add(name)
        answers = cluster.answers()
        if answers:
            self.away_by.pop(name, None)
        elif answered or name not in self.away_by:
            self.away_by[name] = cause, self.fleet.event
            if answered and isinstance(cause, Observed) and name not in cause.repairs:
                self._within_bounds(cause, cluster)
                self._is_repaired_first(cause, cluster)

    def back(self, cluster: Cluster) -> None:
        """Keep book of what is back."""
        self.away_by.pop(cluster.name, None)

    def bound_of(self, process: Observed, group: tuple[str, str]) -> int | None:
        """Return how many clusters of a group a process may leave away, None for any number."""
        text = process.options["max_unavailable" if group[0] == "model" else "max_unavailable_per_domain"]
        return count(text, len(self.groups[group]), 1) if text else None

    def _within_bounds(self, process: Observed, taken: Cluster) -> None:
        for group in groups_of(taken):
            bound = self.bound_of(process, group)
            if bound is None:
                continue
            for other in self.alive:
                if other is not process and other.waves:
                    its = self.bound_of(other, group)
                    bound = max(bound, len(self.groups[group]) if its is None else its)
            away = [name for name in self.groups[group] if self._counts(process, name)]
            if len(away) > bound:
                self.broken(
                    "bound", "{} takes {}: {} of {} are away, at most {}", process, taken.name, away, group, bound
                )

    def _counts(self, process: Observed, name: str) -> bool:
        """Tell whether a cluster is away as far as a process can know."""
        if name in process.maintenance:
            return True
        if name not in self.away_by:
            return False
        cause, event = self.away_by[name]
        return isinstance(cause, Observed) or event <= process.saw_away.get(name, -1)

    def _is_repaired_first(self, process: Observed, taken: Cluster) -> None:
        for name in self.groups["model", taken.model]:
            if name in process.maintenance or name not in process.away_at_look or name not in self.away_by:
                continue
            if self.away_by[name][1] > process.saw_away.get(name, -1):
                continue
            cause = self.away_by[name][0]
            its_own = isinstance(cause, Observed) and cause.roll == process.roll and cause.dead
            if not process.options["repair"] and not its_own:
                self.broken("capacity", "{} takes {} while {} is away", process, taken.name, name)
            planned = any(name in wave["clusters"] for wave in process.plan["waves"])
            if planned and name not in process.came_to and name not in process.wave["clusters"]:
                self.broken("capacity", "{} takes {} before {} is repaired", process, taken.name, name)

    # -- the end of a process ----------------------------------------------------------

    def died(self, process: Observed, events: list[dict[str, Any]]) -> None:
        """Note that a process was killed.

        How a watch ended is on no host: where it was not told yet, nobody knows.
        """
        self.fleet.happens("{}: killed", process)
        process.dead = True
        self.alive.remove(process)
        # What it was amid is not as a co-restart leaves it, whether it answers or not.
        self.meddled |= {name for name in process.touched if process.came_to.get(name) not in GOOD}
        told = [event for event in events if event["at"] >= process.began]
        process.told_its_end = any(event["event"] == "roll_ended" for event in told)
        ended = {event["cluster"] for event in told if event["event"] == "cluster_ended"}
        for name in process.unwatched - ended:
            process.came_to[name] = DONE

    def ended(self, process: Observed, told: dict[str, Any], events: list[dict[str, Any]]) -> None:
        """Judge the end of a process.

        :param told: ``outcome`` and ``remaining``.
        :param events: of the whole roll.
        """
        process.ended = told["outcome"]
        self.alive.remove(process)
        self.fleet.happens("{}: {}, remaining {}", process, told["outcome"], told["remaining"])
        self._is_recorded(process)
        if not process.silenced:
            self._is_told(process, events)
        left = [
            name for wave in process.plan["waves"] for name in wave["clusters"] if process.came_to.get(name) not in GOOD
        ]
        remaining = told["remaining"]
        # What could not be written counts as not done.
        as_told = set(left) <= set(remaining) if process.silenced else left == remaining
        if told["outcome"] != "refused" and not as_told:
            self.broken("remaining", "{} is told, {} is true", remaining, left)
        if told["outcome"] in ("done", "nothing"):
            if left:
                self.broken("done", "{} are not", left)
            for name, outcome in process.came_to.items():
                good = name in self.good.get(process.roll, ())
                if outcome == DONE and good and not self.fleet.clusters[name].is_as_wanted():
                    self.broken("done", "{} does not serve as wanted", name)
        for held in self.fleet.reservations.values():
            for name, lock in held.items():
                mine = lock["run"]["id"] == process.roll and lock["run"]["pid"] == process.number
                if mine:
                    self.broken("reservations", "{} leaves that of {}", process, name)

    def _is_recorded(self, process: Observed) -> None:
        for name in process.touched:
            cluster = self.fleet.clusters[name]
            if name in process.unrecorded:
                continue
            ledgers = [unit.ledger for unit in cluster.units]
            latest = max(ledger["generation"] for ledger in ledgers)
            its = [ledger for ledger in ledgers if ledger["generation"] == latest]
            mine = all(str(ledger["run"].get("id", "")).startswith(process.roll + ".") for ledger in its)
            # An attempt that failed before it came to a unit is on record where it announced itself.
            if mine and any(not ledger["outcome"] and not ledger["fence"].get("outcome") for ledger in its):
                self.broken("ledger", "{} of {} has no outcome", name, process)

    def _is_told(self, process: Observed, events: list[dict[str, Any]]) -> None:
        told = {event["cluster"]: event["outcome"] for event in events if event["event"] == "cluster_ended"}
        whole = process.ended in ("done", "nothing")
        for earlier in self.of_roll(process.roll) if whole else [process]:
            for name in earlier.touched:
                # Whoever came since has an end of his own for it.
                if self.is_last(process, name) and name not in told:
                    self.broken("events", "{} of {} has none", name, earlier)
        for name, outcome in process.came_to.items():
            if told.get(name) != outcome:
                self.broken("events", "{} is {}, it came to {}", name, told.get(name), outcome)


def groups_of(cluster: Cluster) -> list[tuple[str, str]]:
    """Return what a cluster's absence counts against."""
    return [("model", cluster.model)] + ([("domain", cluster.domain)] if cluster.domain else [])
