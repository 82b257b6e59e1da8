# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ansible-playbook inferops.sglang_pd.rolling_co_restart`` over a simulated fleet.

The tasks of the real playbook, in its order, with the real actions ``roll_plan`` and ``roll`` and
the real module ``cluster_lock``; only what they reach outside is replaced: hosts, files, clock and
processes of the controller. A process is a generator that yields wherever something else may
happen, and is killed at any moment, also between two of these.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from ansible_collections.inferops.sglang_pd.plugins.action import co_restart_plan, roll, roll_plan
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _plan
from ansible_collections.inferops.sglang_pd.plugins.modules import cluster_lock
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller

from . import roll_rules
from .controller import asked
from .roll_rules import Observed, Rules
from .roll_world import HOOK, LATE_HOOK, NO_SETTINGS, SOAK, SOAK_AND_BACK, Fleet, Walk
from .world import KilledError

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
PROOF: dict[str, Any] = {
    "outcome": "ok",
    "failures": [],
    "parts": [{"latency": {"count": 3, "median": 0.2, "p95": 0.3}}],
}
NO_PROOF: dict[str, Any] = {"outcome": "failed", "failures": ["3 of 3 requests were not served"], "parts": []}

#: More moments than any process can have, per cluster.
TICKS_AT_MOST = 3000

#: Options of a roll that the sketches of histories leave out.
OPTIONS: dict[str, Any] = {
    "clusters": [],
    "restart_when": _plan.WHEN_DUE,
    "max_unavailable": "1",
    "max_unavailable_per_domain": "",
    "canary": [],
    "canaries_per_model": 1,
    "batch": "25%",
    "soak_seconds": 60,
    "failure_budget": "0",
    "repair": False,
    "pause": "never",
    "take_over": "",
}


def tasks_of_playbook() -> list[str]:
    """Return what the real playbook does, by the words of :class:`Process`'s methods."""
    with (PLAYBOOKS / "rolling_co_restart.yml").open(encoding="utf-8") as source:
        plays = yaml.safe_load(source)
    assert [play.get("ignore_errors", False) for play in plays] == [True, True, True, False]
    assert all(play["ignore_unreachable"] for play in plays[:3])
    assert "serial" in plays[1] and not any("serial" in play for play in (plays[0], *plays[2:]))
    return [_what(task) for play in plays for task in play["tasks"]]


def tasks_of_wave() -> list[str]:
    """Return what the real playbook does in a wave."""
    with (PLAYBOOKS / "tasks" / "roll_wave.yml").open(encoding="utf-8") as source:
        return [_what(task) for task in yaml.safe_load(source)]


def _what(task: dict[str, Any]) -> str:
    for name in ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks"):
        if name in task:
            hook = task.get("vars", {}).get("pd_hook", "")
            return Path(task[name]).stem + (" " + hook if hook else "")
    if "inferops.sglang_pd.roll" in task:
        return str(task["inferops.sglang_pd.roll"]["step"])
    if "ansible.builtin.meta" in task:
        return str(task["ansible.builtin.meta"])
    return next(name.rsplit(".", 1)[1] for name in task if name.count(".") == 2)


#: What :meth:`Process.walk` and :meth:`Process.wave` do; a test holds the playbook to it.
TASKS = [
    "roll_look",
    "set_fact",
    "verify",
    "roll_plan",
    "reserve",
    "confirm",
    "set_fact",
    "fail",
    "waves",
    "roll_wave",
    "release",
    "conclude",
]
TASKS_OF_WAVE = [
    "keep",
    "member_info",
    "verify",
    "begin",
    "end_play",
    "roll_hook before_drain",
    "ready",
    "co_restart",
    "walked",
    "member_info",
    "verify",
    "soaked",
    "co_restart_again",
    "end",
    "roll_hook after_verify",
    "roll_hook on_failure",
    "end_play",
]


class Files:
    """``roll_files`` in memory; each event is a moment at which the process may die, or the disk be full."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self.plans: dict[str, list[dict[str, Any]]] = {}
        self.told: dict[str, list[dict[str, Any]]] = {}
        #: How many events there were when somebody cancelled.
        self.cancels: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("roll_files.{} is not simulated".format(name))

    PLAN_FOR_PEOPLE = "plan.md"

    def write(self, directory: str, name: str, _text: str) -> str:
        """Write a file that nobody reads here."""
        self.stage.moment(writes=True)
        return directory + "/" + name

    def directory_of(self, _rolls: str, roll_id: str) -> str:
        """Return the directory of a roll: its id."""
        return roll_id

    def write_plan(self, directory: str, plan: dict[str, Any]) -> str:
        """Keep a plan; a cancel before the last event was meant for the part before."""
        if self.cancels.get(directory, 0) < len(self.events(directory)):
            self.cancels.pop(directory, None)
        self.stage.moment(writes=True)
        self.plans.setdefault(directory, []).append(plan)
        return directory

    def plan(self, directory: str) -> dict[str, Any]:
        """Return the last plan."""
        if directory not in self.plans:
            raise FileNotFoundError(directory)
        return self.plans[directory][-1]

    def events(self, directory: str) -> list[dict[str, Any]]:
        """Return the events of a roll."""
        return self.told.get(directory, [])

    def tell(self, directory: str, event: str, **more: Any) -> None:
        """Append an event."""
        self.stage.moment(writes=True)
        self.told.setdefault(directory, []).append(dict(more, event=event, roll=directory, at=self.stage.fleet.clock))

    def cancel_file(self, directory: str) -> str:
        """Return the file that ends a roll."""
        return directory + "/cancel"

    def cancelled(self, directory: str) -> str:
        """Return why a roll is to end."""
        return "enough" if directory in self.cancels else ""


class LockFiles:
    """The files of ``cluster_lock`` on one simulated host."""

    LOCKS = "locks"
    RESERVATIONS = "reservations"
    FileError = OSError

    def __init__(self, stage: Stage, host: str):
        self.stage = stage
        self.host = host

    def change_lock(self, cluster: str, change: Callable[[Any], Any], directory: str = LOCKS) -> str:
        """Change a lock or a reservation."""
        self.stage.moment()
        fleet = self.stage.fleet
        after, message = change(getattr(fleet, directory).get(self.host, {}).get(cluster))
        if after is not None:
            fleet.keep(directory, self.host, cluster, after)
        return str(message)

    def members(self) -> list[dict[str, Any]]:
        """Return the members on the host."""
        return self.stage.fleet.members_on(self.host)

    def ledger(self, name: str) -> dict[str, Any]:
        """Return the ledger of a unit."""
        return self.stage.fleet.ledger(self.host, name)

    def write_ledger(self, ledger: dict[str, Any]) -> None:
        """Write the ledger of a unit."""
        self.stage.moment()
        self.stage.fleet.write_ledger(self.host, ledger)

    def locks(self) -> dict[str, Any]:
        """Return the locks of co-restarts."""
        return self.stage.fleet.locks.get(self.host, {})


class CachingFleet(roll_plan._Fleet):
    """The action's view of the fleet, which does not work out anew what was seen before just like this."""

    fleet: Fleet
    #: By cluster: what was seen and asked, and the facts.
    cache: dict[str, tuple[list[Any], dict[str, Any]]]

    def cluster(self, name: str, selected: bool) -> dict[str, Any]:
        """Return the facts of one cluster."""
        one = self.fleet.clusters[name]
        seen = [self.seen.get(host, {"unreachable": True}) for host in one.hosts]
        if any("unreachable" in what or what["locks"] or what["rolls"] or what["preflight"] for what in seen):
            return super().cluster(name, selected)
        records = [record for what in seen for record in what["members"]]
        mine = any(str(record["ledger"]["run"].get("id", "")).startswith(self.run["id"] + ".") for record in records)
        if mine or any(self.variables[host].get("pd_maintenance") for host in one.hosts):
            return super().cluster(name, selected)
        about = [*map(id, records), self.given["restart_when"], self.asked_well(name)]
        if name not in self.cache or self.cache[name][0] != about:
            # The records are kept, so that no other one gets the same id.
            self.cache[name] = about, dict(super().cluster(name, selected), records=records)
        return dict(self.cache[name][1], selected=selected)

    def asked_well(self, name: str) -> bool:
        """Tell whether the cluster answered when it was asked."""
        proofs = (self.proof(host, name) for host in self.fleet.clusters[name].hosts)
        return any(proof and proof["outcome"] == "ok" for proof in proofs)


class Stage:
    """Everything outside of the actions: a fleet, the controller's files, its processes."""

    def __init__(self, fleet: Fleet, kind: type[Process] | None = None):
        self.fleet = fleet
        self.kind = kind or Process
        self.rules = Rules(fleet)
        self.files = Files(self)
        self.current: Process | None = None
        self.processes: dict[int, Process] = {}
        self._numbers = itertools.count(1)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Stage:
        quiet = types.SimpleNamespace(display=lambda *words: None)
        clock = types.SimpleNamespace(time=lambda: self.fleet.clock)
        view = type("View", (CachingFleet,), {"fleet": self.fleet, "cache": {}})
        replaced: list[tuple[Any, str, Any]] = [
            (roll.ActionBase, "run", lambda *given, **named: {}),
            (roll, "roll_files", self.files),
            (roll, "display", quiet),
            (roll, "secrets", types.SimpleNamespace(token_hex=lambda size: "m{}".format(next(self._numbers)))),
            (roll_plan, "roll_files", self.files),
            (roll_plan, "display", quiet),
            (roll_plan, "time", clock),
            (roll_plan, "_Fleet", view),
            (roll, "roll_report", types.SimpleNamespace(write_all=lambda directory: [])),
            (roll_plan, "roll_text", types.SimpleNamespace(plan_text=lambda plan: [])),
            (roll_plan, "roll_markdown", types.SimpleNamespace(plan_markdown=lambda plan: "")),
            (controller, "identity", self.controller),
            (controller, "process_start", self.process_start),
            (co_restart_plan, "new_run", self.new_run),
            (cluster_lock, "time", clock),
        ]
        for where, name, what in replaced:
            self._stack.enter_context(mock.patch.object(where, name, what))
        return self

    def __exit__(self, *_unused: Any) -> None:
        self._stack.close()

    def new_run(self, run_id: str, purpose: str) -> dict[str, Any]:
        """Do what ``co_restart_plan.new_run`` does, for the process at work."""
        process = self.current
        number = process.observed.number if process else 0
        return {
            "id": run_id or "R{}".format(number),
            "owner": "ops@{} pid {}".format("here" if process and process.here else "elsewhere", number),
            "purpose": purpose,
            "controller": self.controller(),
            "pid": number,
            "pid_started": "start of {}".format(number),
        }

    def controller(self) -> str:
        """Return the controller of the process at work."""
        return "this controller" if self.current and self.current.here else "another controller"

    def process_start(self, number: int) -> str:
        """Return the mark of a process that is alive."""
        process = self.processes.get(number)
        return "start of {}".format(number) if process and process.observed.is_alive() else ""

    def process(self, options: dict[str, Any], roll_id: str = "", **more: Any) -> Process:
        """Return a new process of a roll."""
        number = next(self._numbers)
        observed = Observed(number, dict(OPTIONS, **options), self.fleet.in_maintenance())
        observed.began = self.fleet.clock
        process = self.processes[number] = self.kind(self, observed, roll_id, **more)
        self.rules.began(observed)
        return process

    def moment(self, seconds: float = 0.01, writes: bool = False) -> None:
        """Let a moment pass in the process at work: it may be its last."""
        if self.current:
            self.current.tick(seconds, writes)

    def go_on(self, process: Process) -> bool:
        """Let a process go on to its next yield; False when it is over."""
        before, self.current = self.current, process
        try:
            next(process.generator)
        except StopIteration:
            return False
        except KilledError:
            process.killed()
            self.rules.died(process.observed, self.files.events(process.observed.roll))
            return False
        finally:
            self.current = before
        return True

    def cancel(self, process: Process) -> None:
        """Ask for the end of a process's roll, where there is a folder of it yet."""
        roll_id = process.observed.roll
        if roll_id in self.files.plans:
            self.files.cancels[roll_id] = len(self.files.events(roll_id))
            process.observed.cancelled = True
            self.fleet.happens("{} is cancelled", process.observed)


class Process:
    """One ``ansible-playbook``.

    :param here: whether it runs on the controller of the others; what runs elsewhere is not known to be dead.
    :param lives: at how many moments it is still there, None for all.
    :param full: the moments at which the controller's disk is full: first and last.
    :param rolls_back: ``pd_co_restart_rollback``.
    """

    def __init__(
        self,
        stage: Stage,
        observed: Observed,
        roll_id: str,
        here: bool = True,
        lives: int | None = None,
        full: tuple[int, int] | None = None,
        rolls_back: bool = False,
    ):
        self.stage = stage
        self.fleet = stage.fleet
        self.rules = stage.rules
        self.observed = observed
        self.options = observed.options
        self.here = here
        self.lives = lives
        self.full = full
        self.rolls_back = _attempts.ON_FAILURE if rolls_back else _attempts.NEVER
        self.rolls_back_after_a_soak = self.rolls_back
        self.ticks = 0
        self.roll_id = roll_id
        observed.roll = roll_id
        # Whoever resumes a roll wants it to go on.
        stage.files.cancels.pop(roll_id, None)
        #: What a --limit leaves.
        self.play_hosts = self.fleet.hosts
        self.hostvars: dict[str, dict[str, Any]] = {}
        self.pd_roll: dict[str, Any] = {}
        self.outcome = ""
        self.generator = self.walk()

    def tick(self, seconds: float, writes: bool = False) -> None:
        """Let time pass."""
        self.fleet.clock += seconds
        self.ticks += 1
        if self.lives is not None and self.ticks > self.lives:
            raise KilledError
        if self.ticks > TICKS_AT_MOST * (1 + len(self.fleet.clusters)):
            self.rules.broken("ends", "{}", self.observed)
        if writes and self.full and self.full[0] <= self.ticks <= self.full[1]:
            self.observed.silenced = True
            raise OSError("No space left on device")

    def killed(self) -> None:
        """Hear that this process was killed."""

    # -- the actions -------------------------------------------------------------------

    def roll_step(self, step: str, host: str = "", batch: list[str] | None = None, **given: Any) -> dict[str, Any]:
        """Call the real action ``roll``."""
        variables = {"hostvars": self.hostvars, "inventory_hostname": host, "ansible_play_batch": batch or []}
        return _Roll(self, host, step=step, roll=self.pd_roll, **given).run(task_vars=variables)

    def cluster_lock(self, host: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call the real module ``cluster_lock`` on a simulated host."""
        if host in self.fleet.unreachable:
            return {"unreachable": True, "msg": "no route to host"}
        do = {
            "reserved": cluster_lock.reserve,
            "renewed": cluster_lock.renew,
            "released": cluster_lock.release,
        }[arguments["state"]]
        with mock.patch.object(cluster_lock, "files", LockFiles(self.stage, host)):
            return do(arguments, True)

    # -- the plays ---------------------------------------------------------------------

    def walk(self) -> Generator[None, None, None]:
        """Run the playbook."""
        yield from self.look()
        self.pd_roll = _RollPlan(self).run(
            task_vars={
                "groups": self.fleet.groups,
                "hostvars": self.hostvars,
                "ansible_play_hosts_all": self.play_hosts,
            }
        )
        if self.pd_roll.get("failed"):
            # run_once without ignore_errors: the play is over for all hosts, and so is the playbook.
            self.rules.died(self.observed, self.stage.files.events(self.observed.roll))
            return
        self.observed.roll = self.pd_roll["run"]["id"]
        self.rules.planned(self.observed, self.stage.files.plan(self.pd_roll["directory"]))
        yield
        for host in self.pd_roll["reserve"]:
            self.hostvars[host]["pd_roll_reserved"] = self.roll_step(
                "reserve", host, take_over=self.options["take_over"]
            )
            yield
        confirmed = self.roll_step("confirm")
        if confirmed.get("failed"):
            self.rules.died(self.observed, self.stage.files.events(self.observed.roll))
            return
        if confirmed["go"]:
            yield from self.waves()
        for host in self.pd_roll["reserve"]:
            self.roll_step("release", host)
            yield
        concluded = self.roll_step("conclude")
        self.outcome = concluded.get("outcome", "")
        if not self.outcome:
            self.rules.died(self.observed, self.stage.files.events(self.observed.roll))
            return
        self.rules.ended(self.observed, concluded, self.stage.files.events(self.observed.roll))

    def look(self) -> Generator[None, None, None]:
        """Ask all hosts, and then all clusters with requests."""
        fleet = self.fleet
        self.hostvars = {host: fleet.host_variables(host) for host in fleet.hosts}
        yield
        for host in self.play_hosts:
            variables = self.hostvars[host]
            variables["pd_members"] = fleet.member_info(host)
            variables["pd_preflight"] = fleet.preflight(host)
            variables["pd_settings"] = NO_SETTINGS
        self.tick(5.0)
        yield
        self.ask(list(fleet.clusters), "pd_roll_look", look=True)
        self.tick(5.0)
        yield

    def ask(self, clusters: list[str], registered: str, look: bool = False) -> None:
        """Send requests to clusters."""
        for name in clusters:
            cluster = self.fleet.clusters[name]
            for host in cluster.hosts:
                self.hostvars[host].setdefault(registered, {"clusters": {}})["clusters"].pop(name, None)
            reachable = [host for host in cluster.hosts if host not in self.fleet.unreachable]
            good = cluster.answers() and len(reachable) == len(cluster.hosts)
            if reachable:
                found = PROOF if good else NO_PROOF
                self.hostvars[reachable[0]][registered]["clusters"][name] = found
            self.rules.asked(self.observed, name, good, look)

    def waves(self) -> Generator[None, None, None]:
        """Walk the batches of hosts, and in each its waves."""
        begin = 0
        for size in self.pd_roll["batch_sizes"]:
            batch = self.pd_roll["hosts"][begin : begin + size]
            begin += size
            for wave in self.roll_step("waves", batch=batch)["waves"]:
                over = yield from self.wave(wave, batch)
                if over:
                    return

    def wave(self, wave: dict[str, Any], batch: list[str]) -> Generator[None, None, bool]:
        """Walk one wave; True where the play ends with it."""
        observed, number = self.observed, wave["number"]
        for host in batch:
            self.hostvars[host]["pd_roll_reserved"] = self.roll_step("keep", host, wave=number)
        yield
        for name in wave["clusters"]:
            for host in self.fleet.clusters[name].hosts:
                self.hostvars[host]["pd_members"] = self.fleet.member_info(host)
        yield
        self.ask(wave["clusters"], "pd_roll_before")
        yield
        begun = self.roll_step("begin", batch=batch, wave=number, proof="pd_roll_before")
        if begun.get("over", True):
            return True
        self.rules.wave_begins(observed, wave)
        for name in wave["clusters"]:
            if wave["kind"] != "repair" and name in observed.saw_away:
                self.rules.refused_its_turn(observed, name)
                self.rules.came_to(observed, name, roll_rules.REFUSED)
        yield
        yield from self.hook("before_drain", HOOK, begun["clusters"], number)
        ready = self.roll_step("ready", wave=number, clusters=begun["clusters"])
        plan: dict[str, Any] = {}
        attempts: dict[str, Any] = {}
        if ready.get("clusters"):
            plan, attempts = yield from self.co_restart(wave, ready["clusters"], begun["run_id"])
        yield
        given = {"wave": number, "clusters": ready.get("clusters"), "plan": plan, "attempts": attempts}
        walked = self.roll_step("walked", **given) if "clusters" in ready else {}
        yield from self.soak(walked.get("clusters", []))
        if "clusters" in ready:
            # A soak that could not be told goes on as one of which nothing is known.
            judged = self.roll_step(
                "soaked", **dict(given, clusters=walked.get("clusters", []), rollback=self.rolls_back_after_a_soak)
            )
            given["attempts"] = yield from self.put_back(wave, plan, judged)
        ended = self.roll_step("end", proof="pd_roll_after", **given) if "clusters" in ready else {}
        yield
        yield from self.hook("after_verify", LATE_HOOK, ended.get("clusters", {}).get("good", []), number)
        yield from self.hook("on_failure", "", ended.get("clusters", {}).get("failed", []), number)
        return bool(ended.get("over", True))

    def hook(self, hook: str, fault: str, clusters: list[str], number: int) -> Generator[None, None, None]:
        """Run a hook for clusters."""
        for name in clusters:
            self.tick(1.0)
            faults = self.fleet.clusters[name].faults
            failed = fault in faults
            if failed:
                faults.remove(fault)
            told = self.roll_step(
                "hook", wave=number, hook=hook, clusters=[name], message="no answer from the balancer" if failed else ""
            )
            if fault == HOOK and failed and not told.get("failed"):
                self.rules.refused_its_turn(self.observed, name)
                self.rules.came_to(self.observed, name, roll_rules.FAILED)
            yield

    def soak(self, clusters: list[str]) -> Generator[None, None, None]:
        """Watch clusters that were co-restarted."""
        for name in clusters:
            cluster = self.fleet.clusters[name]
            if SOAK in cluster.faults:
                cluster.faults.remove(SOAK)
                self.fleet.outside(cluster, "wedge")
        self.tick(float(self.options["soak_seconds"]))
        yield
        fails = {name for name in clusters if SOAK_AND_BACK in self.fleet.clusters[name].faults}
        for name in fails:
            self.fleet.clusters[name].faults.remove(SOAK_AND_BACK)
            self.fleet.outside(self.fleet.clusters[name], "wedge")
        self.ask(clusters, "pd_roll_after")
        for name in clusters:
            self.rules.watched(self.observed, name, name not in self.observed.saw_away)
        for name in fails:
            self.fleet.outside(self.fleet.clusters[name], "heal")
        yield

    # -- a co-restart of the clusters of a wave ----------------------------------------

    def co_restart(
        self, wave: dict[str, Any], clusters: list[str], run_id: str
    ) -> Generator[None, None, tuple[dict[str, Any], dict[str, Any]]]:
        """Do what ``tasks/co_restart.yml`` does; return what it registers as plan and attempts."""
        run = co_restart_plan.new_run(run_id, wave["purpose"])
        found = yield from self.planned(wave, clusters, {"run": run, "when": wave["restart_when"]})
        plan = _as_registered(found)
        attempts: dict[str, list[dict[str, Any]]] = {}
        results = yield from self.walked(plan["plans"])
        following = {}
        for name, result in results.items():
            attempts[name] = [_attempt(plan["plans"][name], result)]
            if result.outcome != "ok" and result.stopped and not result.lost and self.rolls_back == "on_failure":
                what = {"what": _attempts.ROLL_BACK, "why": "", "stages": ["prefill", "decode", "router"]}
                its = plan["plans"][name]
                following[name] = dict(what, run=run, follows=its["generation"], options=its["options"])
        self.unlock(plan["plans"], run_id, following)
        results.update((yield from self.again(wave, plan, attempts, following)))
        for name in clusters:
            self.judge(name, found[name], results.get(name), name in following)
        return plan, {"attempts": attempts, "next": {}}

    def again(
        self,
        wave: dict[str, Any],
        plan: dict[str, Any],
        attempts: dict[str, list[dict[str, Any]]],
        following: dict[str, Any],
    ) -> Generator[None, None, dict[str, Any]]:
        """Do what ``tasks/co_restart_again.yml`` does; add to the attempts, and return what the new ones came to."""
        if not following:
            return {}
        again = yield from self.planned(wave, list(following), {}, following)
        results: dict[str, Any] = yield from self.walked({n: p for n, p in again.items() if p["decision"] == "go"})
        for name, its in again.items():
            if its["decision"] == "go":
                attempts[name].append(_attempt(its, results[name]))
            else:
                attempts[name].append(dict(attempts[name][-1], outcome=_attempts.REFUSED))
        for one in following.values():
            self.unlock(plan["plans"], one["run"]["id"], {})
        return results

    def put_back(
        self, wave: dict[str, Any], plan: dict[str, Any], judged: dict[str, Any]
    ) -> Generator[None, None, dict[str, Any]]:
        """Put back what failed its soak; return the attempts."""
        attempts = {name: list(found) for name, found in judged.get("attempts", {}).items()}
        results = yield from self.again(wave, plan, attempts, judged.get("next", {}))
        for name, result in results.items():
            if result.outcome == "ok":
                self.rules.went_back(self.observed, name)
        return {"attempts": attempts, "next": {}}

    def planned(
        self,
        wave: dict[str, Any],
        clusters: list[str],
        wish: dict[str, Any],
        following: dict[str, dict[str, Any]] | None = None,
    ) -> Generator[None, None, dict[str, dict[str, Any]]]:
        """Ask the hosts and plan an attempt."""
        hosts = {host for name in clusters for host in self.fleet.clusters[name].hosts}
        for host in hosts:
            self.hostvars[host]["pd_members"] = self.fleet.member_info(host)
            self.hostvars[host]["pd_preflight"] = self.fleet.preflight(host)
        yield
        seen = co_restart_plan.seen_of(sorted(hosts), self.hostvars, "pd_members", "pd_preflight")
        common = {
            "gone_owners": co_restart_plan.gone_owners(seen, "locks"),
            "options": {"requests": 8, "verify": {"parts": ["pairs"]}},
            "roll": "" if following else wave["roll"],
            **wish,
        }
        found = {}
        for name in clusters:
            its = asked(**{**common, **co_restart_plan._next_attempt((following or {}).get(name))})
            opts_in = "pd_co_restart_decode_alone"
            found[name] = co_restart_plan.plan_of(name, wave["inventory"][name], seen, its, opts_in, self.hostvars)
            self.fleet.happens(
                "{}: plan of {}: {} {} {}",
                self.observed,
                name,
                found[name]["decision"],
                found[name]["why"],
                [item["message"] for item in found[name]["problems"]],
            )
        yield
        return found

    def walked(self, plans: dict[str, dict[str, Any]]) -> Generator[None, None, dict[str, Any]]:
        """Walk the steps of all plans side by side."""
        walks = {name: Walk(self.fleet, plan, self.observed, self.tick) for name, plan in plans.items()}
        going = {name: walk.steps() for name, walk in walks.items()}
        while going:
            for name in list(going):
                try:
                    next(going[name])
                except StopIteration:
                    del going[name]
            yield
        for name, walk in walks.items():
            if walk.result.unrecorded:
                self.observed.unrecorded.add(name)
        return {name: walk.result for name, walk in walks.items()}

    def unlock(self, plans: dict[str, Any], run_id: str, following: dict[str, Any]) -> None:
        """Unlock the clusters that get no other attempt."""
        for name in plans:
            if name not in following:
                self.tick(0.1)
                self.fleet.unlock(self.fleet.clusters[name], run_id)

    def judge(self, name: str, plan: dict[str, Any], result: Any, went_back: bool) -> None:
        """Tell the observer what became of a cluster."""
        if plan["decision"] != "go":
            outcome = roll_rules.NOTHING if plan["decision"] == "nothing" else roll_rules.REFUSED
        elif result.outcome == "ok":
            outcome = roll_rules.ROLLED_BACK if went_back else roll_rules.DONE
        else:
            outcome = roll_rules.FAILED
        self.rules.came_to(self.observed, name, outcome)


class _Roll(roll.ActionModule):
    """The action ``roll`` with its arguments, as Ansible would hand them over."""

    def __init__(self, process: Process, host: str, **arguments: Any):
        self.process, self.host, self.arguments = process, host, arguments

    def validate_argument_spec(self, argument_spec: Any = None, **_more: Any) -> Any:
        return None, {name: self.arguments.get(name, one.get("default")) for name, one in argument_spec.items()}

    def _execute_module(self, module_name: Any = None, module_args: Any = None, **_more: Any) -> Any:
        assert module_name == "inferops.sglang_pd.cluster_lock"
        return self.process.cluster_lock(self.host, module_args)


class _RollPlan(roll_plan.ActionModule):
    """The action ``roll_plan`` with its arguments."""

    def __init__(self, process: Process):
        named = ("soak_seconds", "canaries_per_model", "canary", "repair", "clusters")
        options = {name: value if name in named else str(value) for name, value in process.options.items()}
        self.arguments = dict(options, roll_id=process.roll_id, rolls="rolls")

    def validate_argument_spec(self, argument_spec: Any = None, **_more: Any) -> Any:
        unknown = set(self.arguments) - set(argument_spec)
        assert not unknown, unknown
        return None, {name: self.arguments.get(name, one.get("default")) for name, one in argument_spec.items()}


def _as_registered(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return plans as the action ``co_restart_plan`` returns them."""
    return {
        "plans": {name: plan for name, plan in found.items() if plan["decision"] == "go"},
        "refused": {
            name: [item["message"] for item in plan["problems"]]
            for name, plan in found.items()
            if plan["decision"] == "refused"
        },
        "nothing": {name: plan["why"] for name, plan in found.items() if plan["decision"] == "nothing"},
    }


def _attempt(plan: dict[str, Any], result: Any) -> dict[str, Any]:
    """Return what the action ``co_restart`` says of an attempt."""
    return {
        "run": plan["run"]["id"],
        "generation": plan["generation"],
        "scope": plan["scope"]["rule"],
        "restore": plan["restore"]["generation"] if plan["restore"] else 0,
        "automatic": bool(plan["restore"] and plan["restore"]["automatic"]),
        "outcome": _attempts.OK if result.outcome == "ok" else _attempts.FAILED,
        "reason": result.reason,
        "next": None,
        "stopped": result.stopped,
        "healthy": [],
        "lines": [result.reason],
    }
