# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ansible-playbook inferops.sglang_pd.co_restart`` over a simulated world.

Walks the tasks of the real playbook as the linear strategy does: each task ends on every
host before the next begins, errors and unreachable hosts are ignored, results are
registered by host. A run is a generator that yields between two slices, so that runs can be
interleaved, and given up for dead, at any of these points.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.inferops.sglang_pd.plugins.action import co_restart, co_restart_plan
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _plan, _steps, _walk

from .rules import Rules, Slice
from .world import SimulatedHost, UnreachableError, World, member_info

PLAYBOOK = Path(__file__).parents[3] / "playbooks" / "co_restart.yml"
TASKS_OF_ONE = "tasks/co_restart.yml"
STEP_TASKS = "co_restart_steps.yml"
AGAIN_TASKS = "co_restart_again.yml"
INCLUDE = "ansible.builtin.include_tasks"
IMPORT = "ansible.builtin.import_tasks"
ACTION = "inferops.sglang_pd.co_restart"

#: The first one, and those that the playbook includes.
ATTEMPTS_AT_MOST = 3
#: More slices than any run can need.
SLICES_AT_MOST = 4000


def steps_of_playbook() -> list[str]:
    """Return the steps that an attempt of the real playbook walks, in its order, without the verdict."""
    with PLAYBOOK.open(encoding="utf-8") as source:
        (play,) = yaml.safe_load(source)
    assert play["ignore_errors"] is True
    assert play["ignore_unreachable"] is True
    assert "strategy" not in play
    # Imported, not included: --start-at-task and --list-tasks see the steps.
    attempt = ["co_restart_plan", STEP_TASKS, co_restart.CONCLUDE, _walk.UNLOCK]
    assert [_what(task) for task in play["tasks"]] == [TASKS_OF_ONE, co_restart.VERDICT]
    assert play["tasks"][-1]["ignore_errors"] is False
    tasks = _tasks(Path(TASKS_OF_ONE).name)
    done = [_what(task) for task in tasks]
    assert done[:6] == ["member_info", "preflight", *attempt]
    assert done[6:] == [AGAIN_TASKS, AGAIN_TASKS, "settings_info", "debug"]
    assert all("length > 0" in task["when"] for task in tasks if INCLUDE in task)
    again = _tasks(AGAIN_TASKS)
    assert [_what(task) for task in again] == ["member_info", *attempt]
    steps = _tasks(STEP_TASKS)
    for task in steps:
        assert task["register"] == "pd_step_" + _what(task)
    return [_what(task) for task in steps] + [_walk.UNLOCK]


def _tasks(name: str) -> list[dict[str, Any]]:
    with (PLAYBOOK.parent / "tasks" / name).open(encoding="utf-8") as source:
        tasks: list[dict[str, Any]] = yaml.safe_load(source)
    return tasks


def _what(task: dict[str, Any]) -> str:
    """Return what a task does: its step, the module it calls or the file it brings in."""
    if ACTION in task:
        return str(task[ACTION]["step"])
    if INCLUDE in task or IMPORT in task:
        return str(task.get(INCLUDE) or task[IMPORT])
    return next(name.rsplit(".", 1)[1] for name in task if name.count(".") == 2)


#: Limits that a simulated clock comes to soon.
STEP_OPTIONS: dict[str, Any] = {
    "drain_limit_seconds": 3,
    "drain_stall_seconds": 1,
    "consecutive": 3,
    "health_timeout_seconds": 25,
    "requests": 3,
    "request_limit_seconds": 5,
    "settle_limit_seconds": 4,
    "settle_stall_seconds": 2,
    "verify": {"parts": ["pairs"]},
}


def asked(**more: Any) -> dict[str, Any]:
    """Return what is asked of a co-restart, see :func:`_plan.make_plan`: as by default but for what is given."""
    return {
        "stages": [],
        "override": "",
        "when": _plan.ALWAYS,
        "take_over": "",
        "accepted": [],
        "resume_limit_seconds": 3600,
        "gone_owners": [],
        "decode_alone": False,
        "options": STEP_OPTIONS,
        "restore": None,
        "follows": None,
        **more,
    }


STEPS = steps_of_playbook()
#: Tasks of a run: member_info, plan, the steps.
TASKS = 2 + len(STEPS)


class Outage:
    """A host that cannot be reached during some tasks of a run.

    :param late: the connection breaks after the module did its work.
    """

    def __init__(self, host: str, first: int, last: int, late: bool):
        self.host, self.first, self.last, self.late = host, first, last, late


class Controller:
    """One run of the playbook."""

    def __init__(
        self,
        world: World,
        rules: Rules,
        wanted: dict[str, dict[str, list[str]]],
        asked: dict[str, Any],
        slice_seconds: float = 2.0,
        outages: tuple[Outage, ...] = (),
        rotation: int = 0,
        skips: tuple[str, ...] = (),
        registered: dict[str, dict[str, Any]] | None = None,
        rollback: str = _attempts.NEVER,
    ):
        self.world = world
        self.rules = rules
        self.wanted = wanted
        self.asked = asked
        self.run: str = asked["run"]["id"]
        self.slice_seconds = slice_seconds
        self.outages = outages
        turn = rotation % len(world.hosts)
        self.hosts = world.hosts[turn:] + world.hosts[:turn]
        #: Tasks that tags or --start-at-task leave out.
        self.skips = skips
        self.rollback = rollback
        #: Results by host; another play of the same ansible-playbook leaves its own here.
        self.registered: dict[str, dict[str, Any]] = registered or {h: {} for h in world.hosts}
        #: Plans of the last attempt, and of all.
        self.found: dict[str, dict[str, Any]] = {}
        self.all_found: list[dict[str, Any]] = []
        #: What the playbook registers of the first plan and of all attempts.
        self.first_found: dict[str, dict[str, Any]] = {}
        self.concluded: dict[str, list[dict[str, Any]]] = {}
        self.attempts = 0
        self.outcomes: dict[str, str] = {}
        self.task = 0
        self.slices = 0

    def is_out(self, host: str, late: bool) -> bool:
        """Tell whether a host cannot be reached before, or no more after, its module ran."""
        return any(o.host == host and o.first <= self.task <= o.last and o.late == late for o in self.outages)

    def walk(self) -> Generator[None, None, None]:
        """Run the playbook."""
        follows: dict[str, Any] = {}
        attempts: dict[str, list[dict[str, Any]]] = {}
        first: dict[str, dict[str, Any]] = {}
        for number in range(ATTEMPTS_AT_MOST):
            plans, refused = yield from self.planned(follows)
            first = first or plans
            self.first_found = self.first_found or self.found
            if not first:
                return
            yield from self.attempt(plans)
            for plan in plans.values():
                evidence = self.evidence(plan)
                self.rules.verdict(plan, _walk.outcome(plan, evidence)[0], evidence)
            attempts, follows = co_restart.conclusions(
                {"plans": plans, "refused": refused}, attempts, self.registered, "pd_step_", self.rollback
            )
            attempts, follows = _round_trip(attempts), _round_trip(follows)
            self.concluded = attempts
            yield from self.step(_walk.UNLOCK, {n: p for n, p in first.items() if n not in follows})
            self.attempts = number + 1
            if not follows:
                break
        if follows:
            self.rules.broken("ends", "{} wants yet another attempt: {}", self.run, follows)
        for name in first:
            self.outcomes[name] = _attempts.verdict(attempts[name])
            self.rules.ended(first[name], self.outcomes[name], bool(self.outages or self.skips))

    def planned(
        self, follows: dict[str, Any]
    ) -> Generator[None, None, tuple[dict[str, dict[str, Any]], dict[str, list[str]]]]:
        """Ask the hosts and plan an attempt."""
        for host in self.hosts:
            self.registered[host]["pd_members"] = (
                {"unreachable": True, "msg": "no route to host"}
                if self.is_out(host, False) or self.is_out(host, True)
                else _round_trip(member_info(self.world, host))
            )
        self.task += 1
        # What is seen is judged at once; the plan ages from here on.
        plans = self.plan(follows)
        yield
        self.task += 1
        refused = {name: ["refused"] for name in follows if self.found[name]["decision"] == "refused"}
        return plans, refused

    def attempt(self, plans: dict[str, dict[str, Any]]) -> Generator[None, None, None]:
        """Walk the steps up to the record."""
        for step in STEPS[:-1]:
            if step not in self.skips:
                yield from self.step(step, plans)
            self.task += 1

    def step(self, step: str, plans: dict[str, dict[str, Any]]) -> Generator[None, None, None]:
        """Walk one step on all hosts."""
        if step in self.skips:
            return
        self.rules.task_begins(self.run, plans, self.task, step)
        waiting = {host: self.on_host(step, host, plans) for host in self.hosts}
        while waiting:
            for host in list(waiting):
                try:
                    next(waiting[host])
                except StopIteration as end:
                    self.registered[host]["pd_step_" + step] = _round_trip(end.value)
                    del waiting[host]
                self.world.advance(0.2)
                yield

    def plan(self, follows: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Do what the co_restart_plan action does."""
        hostvars = self.registered
        seen = co_restart_plan.seen_of(self.world.hosts, hostvars, "pd_members", "pd_preflight")
        before = copy.deepcopy(seen), dict(self.world.ledgers), dict(self.world.locks)
        self.found = {}
        for name in list(follows) or self.asked["clusters"]:
            asked = dict(self.asked, **co_restart_plan._next_attempt(follows.get(name)))
            self.found[name] = _plan.make_plan(name, self.wanted[name], seen, asked)
            _plan.describe(self.found[name])
        if before != (seen, self.world.ledgers, self.world.locks):
            self.rules.broken("plan", "the plan of {}", self.run)
        plans = {}
        for name, plan in self.found.items():
            self.world.happens(
                "{}: plan of {}: {} {} {}",
                self.run,
                name,
                plan["decision"],
                plan["why"],
                [problem["message"] for problem in plan["problems"]],
            )
            if not follows:
                self.outcomes[name] = plan["decision"]
            self.all_found.append(plan)
            if plan["decision"] == "go":
                plans[name] = _round_trip(plan)
                self.rules.planned(plans[name], self.asked["resume_limit_seconds"], self.asked["decode_alone"])
            elif plan["decision"] == "nothing" and self.asked["when"] == _plan.WHEN_DUE:
                self.rules.nothing_to_do(name)
        return plans

    def evidence(self, plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the evidence as the action reads it off the registered results."""
        return co_restart.evidence_of(plan, self.registered, "pd_step_")

    def on_host(self, step: str, host: str, plans: dict[str, dict[str, Any]]) -> Generator[None, None, dict[str, Any]]:
        """Do what the co_restart action does for one task on one host."""
        clusters: dict[str, Any] = {}
        try:
            walks = {
                name: self.in_slices(step, plan, host)
                for name, plan in plans.items()
                if host in _walk.hosts_of_step(step, plan)
            }
            # Clusters on one host take turns.
            while walks:
                for name in list(walks):
                    try:
                        next(walks[name])
                    except StopIteration as end:
                        clusters[name] = end.value
                        del walks[name]
                if walks:
                    yield
        except UnreachableError:
            for plan in plans.values():
                if host in _walk.hosts_of_step(step, plan):
                    self.rules.result(plan, step, host, {"outcome": "unreachable"})
            return {"unreachable": True, "msg": "connection lost"}
        return co_restart._summary(clusters)

    def in_slices(self, step: str, plan: dict[str, Any], host: str) -> Generator[None, None, dict[str, Any]]:
        """Do what the action's ``_walk_step`` does."""
        evidence = _round_trip(self.evidence(plan))
        verb, why = _walk.decide(step, plan, evidence)
        if verb != _walk.RUN:
            outcome = _steps.REFUSED if verb == _walk.REFUSE else _steps.SKIPPED
            given: dict[str, Any] = {"outcome": outcome, "message": why, "changed": False}
            self.rules.result(plan, step, host, given)
            return given
        state: dict[str, Any] = {}
        machine = SimulatedHost(self.world, host, self.run, self.rules)
        truth = self.rules.truths[self.run, plan["cluster"]]
        while True:
            self.slices += 1
            if self.slices > SLICES_AT_MOST:
                self.rules.broken("ends", "{} is at {} on {}", self.run, step, host)
            if self.is_out(host, False):
                raise UnreachableError
            truth.slices[step, host] = self.world.event
            self.rules.slices.append(Slice(plan, step, host, self.world.event))
            try:
                given = _steps.run(step, plan, host, evidence, state, machine, self.slice_seconds)
            finally:
                self.rules.slices.pop()
            if self.is_out(host, True):
                raise UnreachableError
            if given["outcome"] != _steps.WAITING:
                self.rules.result(plan, step, host, given)
                return {key: value for key, value in given.items() if key != "state"}
            state = _round_trip(given["state"])
            yield


def _round_trip(value: Any) -> Any:
    return json.loads(json.dumps(value))
