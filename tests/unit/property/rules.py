# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a co-restart as invariants over what really happened in the world.

Each effect of a run is judged at the moment at which it is done, by processes, probes and
requests of the world. What the core believes or reports is used only where the rule is
about just that: a verdict, a resumption, a record.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _scope, _walk

from .world import BAD, STUCK_QUEUE, KilledError, Listener, Unit, World, ports

#: What each invariant says; the names are those of the rules in the design.
INVARIANTS = {
    "1 order": "no decode is stopped or started before each prefill of its cluster was "
    "restarted in the same chain, passed its gate and still ran when that was last checked",
    "1 scope": "decodes restart alone by the rule only where the cluster opted in, its versions heal, "
    "only settings of decodes and routers changed, and the prefills are gated and stay the same; "
    "routers alone only where every engine is as a chain left it",
    "1 override": "a decode that is started alone has the reason of the override in its ledger",
    "2 gate": "a member passes on k good answers in a row of one incarnation, new in its chain",
    "2 stage": "no router is stopped or started before each engine that the plan moves passed",
    "3 proof": "ok only where each router answered all requests of the run, each pair its own, with the "
    "incarnations that were gated and in the order of the stages, and no queue is stuck",
    "4 failure": "after a failed task nothing more is stopped or started for that cluster",
    "4 closed": "a run that stopped nothing leaves no router without its workers",
    "4 record": "the outcome is in every ledger of the generation that can be reached",
    "4 others": "what is not planned is not touched",
    "5 resume": "only an interrupted run is resumed; only what it left in good order is kept",
    "5 twice": "what an interrupted run left in good order is not restarted again",
    "5 due": "a half-done co-restart is never 'nothing to do'",
    "6 lock": "a lock within its deadline is not taken without a reason",
    "6 unlock": "a run that comes to its end leaves no lock of its own behind",
    "6 fence": "after a successor announced itself on a host the old run begins nothing there, "
    "and what it has under way writes no ledger",
    "7 ports": "nothing is started on a port that somebody else holds",
    "8 revision": "a revision is kept only of what runs, and only after requests were served with it",
    "8 restore": "only what was kept is put back, under the lock, before anything is stopped; after a "
    "failure, what was kept last",
    "8 rollback": "a change that fails its proof is rolled back where that is asked for, and then the cluster serves; "
    "a scope that fails its proof is widened",
    "14 ranks": "other ranks are stopped after rank 0",
    "live": "without a fault, a co-restart is ok",
    "ends": "every run ends",
    "plan": "planning changes nothing",
}


class ViolationError(AssertionError):
    """A rule was broken; the message carries the last events of the world."""

    def __init__(self, rule: str, what: str, world: World):
        self.rule = rule
        lines = ["{}: {}".format(rule, INVARIANTS[rule]), "broken: " + what, "events:"]
        super().__init__("\n".join(lines + world.log[-120:]))


class Slice(NamedTuple):
    """A call of a step on a host that is under way."""

    plan: dict[str, Any]
    step: str
    host: str
    began: int


class Truth:
    """What one run did to one cluster, as the world saw it."""

    def __init__(self, plan: dict[str, Any]):
        self.plan = plan
        self.run: str = plan["run"]["id"]
        self.cluster: str = plan["cluster"]
        self.locked = 0
        self.locked_at = 0.0
        self.origin = 0
        self.announced: dict[str, int] = {}
        self.failed_task = -1
        self.task = -1
        self.passes: dict[tuple[str, str], tuple[str, int]] = {}
        self.slices: dict[tuple[str, str], int] = {}
        self.tasks: dict[str, int] = {}
        self.asked: dict[tuple[str, str], list[bool]] = {}
        #: By host and unit of a prefill: whether it answered with each decode.
        self.verified: dict[tuple[str, str], list[bool]] = {}
        #: Outcomes in the ledgers, by host and unit.
        self.recorded: dict[tuple[str, str], str] = {}
        self.last_effect = -1.0
        self.moved = False
        self.dead = False
        self.over = False

    def is_over(self) -> bool:
        """Tell whether the hosts know the run's end: one failure, or success everywhere."""
        moved = [m for m in self.plan["members"] if m["action"] != "none"]
        return "failed" in self.recorded.values() or len(self.recorded) == len(moved)


class Rules(Listener):
    """Watches a world; raises :class:`ViolationError` as soon as a rule is broken."""

    def __init__(self, world: World):
        self.world = world
        self.truths: dict[tuple[str, str], Truth] = {}
        self.by_cluster: dict[str, list[Truth]] = {name: [] for name in world.clusters}
        self.slices: list[Slice] = []
        #: By run: how many writing calls it still has to live.
        self.calls_to_live: dict[str, int] = {}
        self.first_pass: dict[str, int] = {}
        #: By host and unit: configurations that were kept, the last one at the end.
        self.good: dict[tuple[str, str], list[str]] = {}
        #: Clusters whose versions are known to heal.
        self.listed = True
        self._streaks: dict[tuple[str, str, str], tuple[str, int]] = {}

    def broken(self, rule: str, what: str, *words: Any) -> None:
        """Raise the violation of a rule."""
        raise ViolationError(rule, what.format(*words), self.world)

    # -- what a controller tells of its run --------------------------------------------

    def planned(self, plan: dict[str, Any], resume_limit_seconds: float, opted_in: bool) -> None:
        """Judge a plan that is to be walked."""
        truth = Truth(plan)
        self._scope_is_allowed(plan, opted_in)
        before = self.by_cluster[plan["cluster"]]
        if plan["resumes"]:
            truth.origin = self._resumes(plan, resume_limit_seconds)
        elif any(member["action"] == "keep" for member in plan["members"]):
            self.broken("5 resume", "members are kept, but nothing is resumed")
        if before:
            self._restarts_nothing_twice(plan, before[-1], resume_limit_seconds)
        self.truths[truth.run, truth.cluster] = truth

    def _scope_is_allowed(self, plan: dict[str, Any], opted_in: bool) -> None:
        """Judge a scope that the plan chose for itself, by what runs in the world."""
        rule, reason = plan["scope"]["rule"], plan["scope"]["reason"]
        if plan["override"] or reason == "asked for" or rule == _scope.WHOLE_CHAIN:
            return
        moved = ["router"] if rule == _scope.ROUTER_ALONE else ["decode", "router"]
        if "decode" in moved and not (opted_in and self.listed):
            self.broken("1 scope", "{} without opting in, or with versions that do not heal", rule)
        for member in plan["members"]:
            unit = self.world.units[member["host"], member["unit"]]
            if (member["action"] != "none") != (unit.role in moved):
                self.broken("1 scope", "{} is to {}, by {}", unit.name, member["action"], rule)
            if unit.role == "router":
                continue
            as_it_was = unit.state == "active" and unit.invocation in self.first_pass
            if not as_it_was or (unit.role not in moved and unit.running != unit.deployed):
                self.broken("1 scope", "{} is not as a chain left it, and the scope is {}", unit.name, rule)

    def _resumes(self, plan: dict[str, Any], limit_seconds: float) -> int:
        old = self.truths.get((plan["resumes"], plan["cluster"]))
        if old is None:
            self.broken("5 resume", "run {} is resumed and never was", plan["resumes"])
            return 0
        if old.is_over():
            self.broken("5 resume", "run {} was over and is resumed", old.run)
        if old.plan["override"] or plan["override"]:
            self.broken("5 resume", "a run with an override is resumed")
        if old.moved and self.world.clock - old.last_effect > limit_seconds:
            self.broken("5 resume", "run {} is too old", old.run)
        for member in plan["members"]:
            if member["action"] != "keep":
                continue
            unit = self.world.units[member["host"], member["unit"]]
            if unit.state != "active" or unit.running != unit.deployed:
                self.broken("5 resume", "{} is kept and does not run as it should", unit.name)
            if self.world.starts[unit.invocation] < old.origin:
                self.broken("5 resume", "{} is kept and older than the chain", unit.name)
            if member["role"] == "decode":
                self._is_younger_than_prefills(unit, "5 resume")
        return old.origin

    def _is_younger_than_prefills(self, unit: Unit, rule: str) -> None:
        for prefill in self.world.of_cluster(unit.cluster, "prefill"):
            passed = self.first_pass.get(prefill.invocation)
            if passed is None or self.world.starts[unit.invocation] < passed:
                self.broken(
                    rule,
                    "{} is older than {} ({})",
                    unit.name,
                    prefill.name,
                    "gated at {}".format(passed) if passed else "never gated",
                )

    def _restarts_nothing_twice(self, plan: dict[str, Any], old: Truth, limit_seconds: float) -> None:
        """Demand that a run killed without any other trouble is resumed where it was."""
        world = self.world
        if (
            not old.dead
            or old.failed_task >= 0
            or old.is_over()
            or old.plan["resumes"]
            or old.plan["override"]
            or plan["override"]
            # A rollback begins anew.
            or plan["restore"]
            or world.outside.get(plan["cluster"], 0) > old.locked
            or world.clock - old.locked_at > limit_seconds
            or any(m["action"] == "none" for p in (plan, old.plan) for m in p["members"])
        ):
            return
        good = set()
        for member in plan["members"]:
            key = member["host"], member["unit"]
            unit = world.units[key]
            passed = old.passes.get(key)
            if passed and passed[0] == unit.invocation and unit.running == unit.deployed:
                good.add(key)
        complete = True
        for stage in ("prefill", "decode", "router"):
            members = [m for m in plan["members"] if m["role"] == stage]
            for member in members if complete else []:
                ranks = [m for m in members if m["engine"] == member["engine"]]
                whole_engine = all((m["host"], m["unit"]) in good for m in ranks)
                if whole_engine and member["action"] != "keep":
                    self.broken("5 twice", "{} was good and is restarted", member["unit"])
            complete = complete and all((m["host"], m["unit"]) in good for m in members)

    def task_begins(self, run: str, plans: dict[str, Any], number: int, step: str) -> None:
        """Note that a task of the playbook begins."""
        event = self.world.happens("{}: task {}", run, step)
        for cluster in plans:
            truth = self.truths[run, cluster]
            truth.task = number
            truth.tasks[step] = event

    def result(self, plan: dict[str, Any], step: str, host: str, given: dict[str, Any]) -> None:
        """Judge what a step gave for a cluster on a host."""
        truth = self.truths[plan["run"]["id"], plan["cluster"]]
        self.world.happens(
            "{}: {} {} on {}: {} {}",
            truth.run,
            truth.cluster,
            step,
            host,
            given["outcome"],
            given.get("message", "").split("\n", 1)[0],
        )
        bad = given["outcome"] in ("failed", "unreachable", "refused")
        if bad and truth.failed_task < 0 and step not in (_walk.RECORD, _walk.UNLOCK):
            truth.failed_task = truth.task
        if given["outcome"] != "ok":
            return
        for member in _walk.members_of_step(step, plan, host):
            shown = given.get("members", {}).get(member["unit"])
            if shown and shown["outcome"] == "passed":
                self._passes(truth, self.world.units[host, member["unit"]], shown)

    def _passes(self, truth: Truth, unit: Unit, shown: dict[str, Any]) -> None:
        incarnation, wanted = shown["incarnation"], truth.plan["options"]["consecutive"]
        streak = self._streaks.get((truth.run, unit.host, unit.name), ("", 0))
        if streak[0] != incarnation or streak[1] < wanted:
            self.broken(
                "2 gate",
                "{} passed as {}, good answers in a row: {} of {}",
                unit.name,
                incarnation,
                streak[1],
                streak[0],
            )
        if self.world.starts[incarnation] < (truth.origin or truth.locked):
            self.broken("2 gate", "{} passed as {}, which is old", unit.name, incarnation)
        event = self.world.happens("{}: {} passed as {}", truth.run, unit.name, incarnation)
        truth.passes[unit.host, unit.name] = (incarnation, event)
        self.first_pass.setdefault(incarnation, event)

    def _ledgers(self, truth: Truth, host: str) -> list[dict[str, Any]]:
        found = []
        for unit in self.world.of_cluster(truth.cluster):
            text = self.world.ledgers.get((host, unit.name))
            ledger = json.loads(text) if text and unit.host == host else None
            if ledger and ledger["generation"] == truth.plan["generation"]:
                found.append(ledger)
        return [ledger for ledger in found if ledger["run"]["id"] == truth.run]

    # -- what the world tells of a run's doings ----------------------------------------

    def call(self, run: str, host: str, what: str) -> None:
        """Let a run die at the call that is its last."""
        left = self.calls_to_live.get(run)
        if left is None:
            return
        if left <= 0:
            self.world.happens("{}: killed on {} before: {}", run, host, what)
            raise KilledError(run)
        self.calls_to_live[run] = left - 1

    def effect(self, host: str, unit: Unit, what: str) -> None:
        """Judge a stop, start, restart or close."""
        now = self.slices[-1]
        truth = self.truths[now.plan["run"]["id"], now.plan["cluster"]]
        self.world.happens("{}: {} {} on {} ({})", truth.run, what, unit.name, host, now.step)
        self._is_alone(truth, now, host)
        self._is_planned(truth, now, unit, what)
        if truth.failed_task >= 0 and truth.failed_task < truth.task:
            reopens = now.step == _walk.RECORD and what == "restart" and not truth.moved
            if not reopens:
                self.broken("4 failure", "{} of {} after a failed task", what, unit.name)
        if what == "start" and any((host, p) in self.world.foreign for p in ports(unit.member)):
            self.broken("7 ports", "{} is started", unit.name)
        if what in ("start", "stop") and unit.role == "decode" and not truth.plan["override"]:
            if truth.plan["scope"]["rule"] == _scope.DECODE_ALONE:
                self._prefills_stayed(truth, "stop_decode_ranks" if what == "start" else "")
            else:
                self._prefills_came_first(truth, unit, what)
        alone = what == "start" and unit.role == "decode" and truth.plan["override"]
        if alone and not json.loads(self.world.ledgers[host, unit.name])["override"]:
            self.broken("1 override", "{} has no reason", unit.name)
        if what in ("start", "stop") and unit.role == "router":
            self._engines_came_first(truth, unit)
        if what == "stop" and unit.member["node_rank"] > 0:
            self._rank_zero_is_gone(truth, unit)
        if what != "close" and now.step != _walk.RECORD:
            truth.moved = True
            truth.last_effect = self.world.clock

    def _is_alone(self, truth: Truth, now: Slice, host: str) -> None:
        if not truth.locked:
            self.broken("6 lock", "run {} never had the lock", truth.run)
        for other in self.by_cluster[truth.cluster]:
            if other.locked <= truth.locked:
                continue
            fenced = other.announced.get(host, now.began)
            if host == truth.plan["lock_host"]:
                fenced = min(fenced, other.locked)
            if fenced < now.began:
                self.broken("6 fence", "run {} after {} on {}", truth.run, other.run, host)

    def _is_planned(self, truth: Truth, now: Slice, unit: Unit, what: str) -> None:
        if unit.cluster != truth.cluster:
            self.broken("4 others", "{} is of another cluster", unit.name)
        if what in ("close", "restart"):
            return
        planned = [m["action"] for m in truth.plan["members"] if (m["host"], m["unit"]) == (unit.host, unit.name)]
        if planned not in (["restart"], ["start"]):
            self.broken("4 others", "{} is touched, but its plan is {}", unit.name, planned)

    def _prefills_came_first(self, truth: Truth, unit: Unit, what: str) -> None:
        for prefill in self.world.of_cluster(truth.cluster, "prefill"):
            passed = truth.passes.get((prefill.host, prefill.name))
            if passed is None:
                self.broken("1 order", "{} before {} passed", unit.name, prefill.name)
                return
            checked = truth.slices.get(("stop_decode_ranks", prefill.host), truth.tasks.get("stop_decode_ranks", 0))
            ended = self.world.ends.get(passed[0])
            if what == "start" and ended is not None and ended < checked:
                self.broken("1 order", "{}, but {} is gone", unit.name, prefill.name)

    def _prefills_stayed(self, truth: Truth, step: str) -> None:
        """Demand that the prefills which are left alone are those of the plan, when that was last checked."""
        for member in truth.plan["members"]:
            if member["role"] != "prefill":
                continue
            if truth.plan["scope"]["rule"] != _scope.DECODE_ALONE or member["action"] != "none":
                self.broken("1 scope", "{} is not left alone", member["unit"])
            checked = truth.slices.get((step, member["host"]), truth.tasks.get(step, 0))
            ended = self.world.ends.get(member["before"])
            if ended is not None and ended < checked:
                self.broken("1 scope", "{} is not the one that the plan saw", member["unit"])

    def _engines_came_first(self, truth: Truth, unit: Unit) -> None:
        for member in truth.plan["members"]:
            if member["role"] == "router" or member["action"] == "none":
                continue
            if (member["host"], member["unit"]) not in truth.passes:
                self.broken("2 stage", "{} before {} passed", unit.name, member["unit"])

    def _rank_zero_is_gone(self, truth: Truth, unit: Unit) -> None:
        for other in self.world.of_cluster(unit.cluster, unit.role):
            same = other.member["engine"] == unit.member["engine"]
            if other.started_by == "a human" and other.started_event > truth.locked:
                # Somebody started it again after it was stopped.
                continue
            if same and other.member["node_rank"] == 0 and other.state not in ("inactive", "failed"):
                self.broken("14 ranks", "{} while {} is {}", unit.name, other.name, other.state)

    def probed(self, unit: Unit, good: bool) -> None:
        """Count the good answers in a row of an incarnation, per run."""
        key = self.slices[-1].plan["run"]["id"], unit.host, unit.name
        incarnation, count = self._streaks.get(key, ("", 0))
        count = count + 1 if incarnation == unit.invocation else 1
        self._streaks[key] = (unit.invocation, count if good else 0)

    def asked(self, router: Unit, good: bool) -> None:
        """Note a request through a router."""
        now = self.slices[-1]
        truth = self.truths[now.plan["run"]["id"], now.plan["cluster"]]
        truth.asked.setdefault((router.host, router.name), []).append(good)

    def verified(self, prefill: Unit, good: bool) -> None:
        """Note what a prefill answered with each decode."""
        now = self.slices[-1]
        truth = self.truths[now.plan["run"]["id"], now.plan["cluster"]]
        truth.verified.setdefault((prefill.host, prefill.name), []).append(good)

    def wrote_ledger(self, host: str, unit: str, ledger: dict[str, Any]) -> None:
        """Note where a run announced itself."""
        plan = self.slices[-1].plan
        truth = self.truths[plan["run"]["id"], plan["cluster"]]
        for other in self.by_cluster[truth.cluster]:
            if truth.locked < other.locked and host in other.announced:
                self.broken("6 fence", "run {} writes the ledger of {} after {}", truth.run, unit, other.run)
        if ledger["fence"] and ledger["fence"]["run"]["id"] == truth.run:
            truth.announced.setdefault(host, self.world.event)
        # The generation, too: an attempt writes into ledgers that hold the one before it in the same run.
        of_truth = ledger["run"].get("id") == truth.run and ledger["generation"] == plan["generation"]
        if ledger["outcome"] and of_truth:
            truth.recorded[host, unit] = ledger["outcome"]

    def kept(self, unit: Unit, configuration: str) -> None:
        """Judge a revision that is kept."""
        now = self.slices[-1]
        truth = self.truths[now.plan["run"]["id"], now.plan["cluster"]]
        if truth.failed_task >= 0 or BAD in configuration or configuration != unit.running:
            self.broken("8 revision", "{} of {} is kept", configuration, unit.name)
        self.world.happens("{}: keeps {} of {}", truth.run, configuration, unit.name)
        self.good.setdefault((unit.host, unit.name), []).append(configuration)

    def put_back(self, unit: Unit, configuration: str) -> None:
        """Judge a revision that is put back."""
        now = self.slices[-1]
        truth = self.truths[now.plan["run"]["id"], now.plan["cluster"]]
        good = self.good.get((unit.host, unit.name), [])
        if configuration not in good or not truth.locked or truth.moved:
            self.broken("8 restore", "{} of {}", configuration, unit.name)
        if truth.plan["restore"]["automatic"] and configuration != good[-1]:
            self.broken("8 restore", "{} of {}, and {} was the last", configuration, unit.name, good[-1])
        self._is_alone(truth, now, unit.host)
        self.world.happens("{}: puts back {} of {}", truth.run, configuration, unit.name)
        self.world.outside[unit.cluster] = self.world.event

    def changed_lock(
        self, host: str, cluster: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        """Judge a change of a lock."""
        plan = self.slices[-1].plan
        truth = self.truths[plan["run"]["id"], plan["cluster"]]
        now = self.world.clock + self.world.skew[host]
        if before and before["run"]["id"] != truth.run and before["deadline"] > now and not plan["take_over"]:
            self.broken("6 lock", "{} changes the lock of {}", truth.run, before["run"]["id"])
        if after and not truth.locked:
            truth.locked = self.world.happens("{}: locks {}", truth.run, cluster)
            truth.locked_at = self.world.clock
            truth.origin = truth.origin or truth.locked
            self.by_cluster[cluster].append(truth)

    # -- the end of a run --------------------------------------------------------------

    def died(self, run: str) -> None:
        """Note that a controller was killed."""
        self.world.happens("{}: dead", run)
        for truth in self.truths.values():
            if truth.run == run and not truth.over:
                truth.dead = True

    def verdict(self, plan: dict[str, Any], outcome: str, evidence: dict[str, dict[str, Any]]) -> None:
        """Judge the end of a run for a cluster."""
        truth = self.truths[plan["run"]["id"], plan["cluster"]]
        truth.over = True
        self.world.happens("{}: {}: {}", truth.run, truth.cluster, outcome.upper())
        if outcome == "ok":
            self._is_really_ok(truth)
        elif not truth.moved:
            self._left_routers_open(truth, evidence)
        for host, given in evidence.get(_walk.RECORD, {}).items():
            recorded = given["outcome"] == "ok" and given["run"] == truth.run
            for ledger in self._ledgers(truth, host) if recorded else []:
                if ledger["outcome"] != outcome:
                    self.broken(
                        "4 record",
                        "{} on {} says {!r}, the verdict is {}",
                        ledger["unit"],
                        host,
                        ledger["outcome"],
                        outcome,
                    )

    def ended(self, plan: dict[str, Any], came_to: str, disturbed: bool) -> None:
        """Judge the end of all attempts of a run on a cluster."""
        self.world.happens("{}: {} came to {}", plan["run"]["id"], plan["cluster"], came_to)
        lock = self.world.locks.get((plan["lock_host"], plan["cluster"]))
        if lock and not disturbed and json.loads(lock)["run"]["id"] == plan["run"]["id"]:
            self.broken("6 unlock", "run {} on {}", plan["run"]["id"], plan["cluster"])

    def _is_really_ok(self, truth: Truth) -> None:
        world, plan = self.world, truth.plan
        if not truth.locked or truth.failed_task >= 0:
            self.broken("3 proof", "ok, although a task failed")
        for member in plan["members"]:
            key = member["host"], member["unit"]
            unit = world.units[key]
            if member["role"] == "router":
                answers = truth.asked.get(key, [])
                if len(answers) < plan["options"]["requests"] or not all(answers):
                    self.broken("3 proof", "{} answered {}", unit.name, answers)
            if member["role"] == "prefill" and member["node_rank"] == 0 and truth.verified.get(key, [])[-1:] != [True]:
                self.broken("3 proof", "{} was not asked with each decode, or failed", unit.name)
            if member["action"] == "none":
                continue
            if key not in truth.passes:
                self.broken("3 proof", "{} never passed", unit.name)
            incarnation, _event = truth.passes[key]
            judged = truth.slices.get((_walk.SETTLE, unit.host), truth.tasks[_walk.SETTLE])
            ended = world.ends.get(incarnation)
            if ended is not None and ended < judged:
                self.broken("3 proof", "{} was replaced or is gone", unit.name)
            engine = member["role"] != "router" and member["node_rank"] == 0
            if ended is None and engine and unit.behaviour == STUCK_QUEUE:
                self.broken("3 proof", "{} holds a request", unit.name)
        if plan["override"]:
            return
        if plan["scope"]["rule"] == _scope.DECODE_ALONE:
            self._prefills_stayed(truth, _walk.SETTLE)
        stages = ["prefill", "decode", "router"]
        for member in plan["members"]:
            if member["action"] == "none":
                continue
            incarnation, _event = truth.passes[member["host"], member["unit"]]
            for other in plan["members"]:
                if (
                    other["action"] != "none"
                    and stages.index(other["role"]) < stages.index(member["role"])
                    and self.first_pass[truth.passes[other["host"], other["unit"]][0]] > world.starts[incarnation]
                ):
                    self.broken("3 proof", "{} is older than {}", member["unit"], other["unit"])

    def _left_routers_open(self, truth: Truth, evidence: dict[str, dict[str, Any]]) -> None:
        recorded = evidence.get(_walk.RECORD, {})
        if any(other.locked > truth.locked for other in self.by_cluster[truth.cluster]):
            return
        # Where a step that stops went wrong, nobody knows what was stopped.
        steps = [step for step in evidence if step.startswith("stop_")]
        came_to = {given["outcome"] for step in steps for given in evidence[step].values()}
        if truth.plan["resumes"] or came_to & {"unreachable", "failed"}:
            return
        engines = self.world.of_cluster(truth.cluster, "prefill", "decode")
        if not all(self.world.is_healthy(u) for u in engines if u.member["node_rank"] == 0):
            return
        for unit in self.world.of_cluster(truth.cluster, "router"):
            given = recorded.get(unit.host, {})
            told = given.get("outcome") == "ok" and given["run"] == truth.run
            if told and unit.closed and unit.closed_by == truth.run:
                self.broken("4 closed", "{} has no workers", unit.name)

    def nothing_to_do(self, cluster: str) -> None:
        """Judge the word that nothing is to be done for a cluster."""
        truths = self.by_cluster[cluster]
        if truths and truths[-1].dead and not truths[-1].is_over() and truths[-1].moved:
            self.broken("5 due", "run {} died in it", truths[-1].run)
        for unit in self.world.of_cluster(cluster):
            if unit.state != "active" or unit.running != unit.deployed or unit.closed:
                self.broken("5 due", "{} does not run as it should", unit.name)
