# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one step of a co-restart does on one host.

The rules are here, the effects are behind ``host`` (see :class:`Host`): the real one is
:class:`host.machine.Machine`, the property tests bring a simulated one. Every step may be
called again after it was cut off at any point; it looks at unit and ledger and does what
is missing. A step that has to wait returns ``waiting`` with a ``state`` after a slice of
time, and is called again with it: so the controller can show progress, and a step whose
controller died ends by itself within a slice.
"""

from __future__ import annotations

from typing import Any, Protocol

from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _gate,
    _ledger,
    _lock,
    _metrics,
    _queues,
    _topology,
    _walk,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import ROUTER

OK = _walk.OK
FAILED = _walk.FAILED
WAITING = "waiting"
SKIPPED = "skipped"
REFUSED = "refused"

#: Seconds between two looks at what is awaited.
POLL_SECONDS = 0.3
#: Seconds between two samples of an engine's queues; /v1/loads is refreshed every 0.05 s.
SAMPLE_SECONDS = 0.5
#: Seconds that a lease outlives the limit of the step it was renewed for.
LEASE_MARGIN_SECONDS = 120
#: Failed requests that end the proof: each may take its full limit.
FAILED_REQUESTS_ALLOWED = 1
#: Why a member that an interrupted run left in good order fails its gate.
KEPT_AND_REPLACED = (
    "an interrupted run had left it in good order, but it was replaced since the plan was made: run the same again"
)
#: Journal lines in a failure's message.
JOURNAL_LINES = 15
#: Samples that are kept between slices: enough for a window of two minutes.
SERIES_LENGTH = 240


class Host(Protocol):
    """What the steps need of a host."""

    def now(self) -> float:
        """Return seconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds of the host's monotonic clock."""

    def wait(self, seconds: float) -> None:
        """Let time pass between two looks."""

    def unit(self, name: str) -> dict[str, Any]:
        """Return a unit's state."""

    def stop(self, name: str) -> None:
        """Ask systemd to stop a unit, without waiting."""

    def start(self, name: str) -> str:
        """Clear failures and ask systemd to start a unit; return what it refused with, or ""."""

    def restart(self, name: str) -> None:
        """Ask systemd to restart a unit, without waiting."""

    def running_configuration(self, name: str) -> str:
        """Return the configuration hash that a unit's incarnation was started with, or ""."""

    def listeners(self, ports: list[int]) -> list[dict[str, Any]]:
        """Return who listens on the ports: ``port``, ``pid``, ``command``, ``unit``."""

    def journal(self, name: str, lines: int) -> list[str]:
        """Return the last journal lines of a unit since its stage began, secrets removed."""

    def ledger(self, unit: str) -> dict[str, Any]:
        """Return a unit's ledger."""

    def write_ledger(self, ledger: dict[str, Any]) -> None:
        """Write a unit's ledger atomically."""

    def change_lock(self, cluster: str, change: Any) -> Any:
        """Read, change and write a cluster's lock as one step; return the change's message.

        ``change`` takes the lock or None and gives (lock or None to leave, message);
        the lock ``{}`` removes it.
        """

    def probe(self, member: dict[str, Any], plan: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the probes of a member: ``name``, ``good``, ``detail``."""

    def sample(self, member: dict[str, Any]) -> dict[str, Any] | None:
        """Return a sample of an engine's queues with ``live``, None where there is none."""

    def close_router(self, member: dict[str, Any]) -> tuple[int, str]:
        """Take all workers from a router; return how many, and what went wrong or ""."""

    def ask(self, member: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
        """Send one chat request through a router; return the verdict of :mod:`_answers`."""

    def verify(self, plan: dict[str, Any], here: str, state: dict[str, Any], slice_seconds: float) -> dict[str, Any]:
        """Run one slice of the plan's verification of the whole cluster, see :mod:`_verify`.

        :param here: inventory name of this host.
        :return: ``outcome`` (waiting, ok, failed), ``message`` (what is awaited, what was proved,
            or the failures and below them the evidence), ``state`` for the next slice.
        """

    def keep_revision(self, unit: str, generation: int) -> str:
        """Keep what is deployed of a unit, where that is what runs; return what went wrong, or ""."""

    def restore(self, units: dict[str, int]) -> tuple[list[dict[str, str]], str]:
        """Put revisions of units in place and tell systemd.

        :return: ``path``, ``before`` and ``after`` of each file that changed, and what went wrong
            or "". All revisions are looked at before the first file is written.
        """


def run(
    step: str,
    plan: dict[str, Any],
    host_name: str,
    evidence: dict[str, dict[str, Any]],
    state: dict[str, Any],
    host: Host,
    slice_seconds: float,
) -> dict[str, Any]:
    """Run one slice of one step on one host; see the module's text for the contract.

    :param state: ``state`` of the slice before, {} for the first.
    :param slice_seconds: how long this call may wait.
    :return: ``outcome`` (ok, failed, waiting, skipped, refused), ``message``, ``changed``,
        ``members`` (evidence by unit), ``state``, ``generation``, ``run``.
    """
    verb, why = _walk.decide(step, plan, evidence)
    if verb == _walk.REFUSE:
        return _result(plan, REFUSED, why)
    if verb == _walk.SKIP:
        return _result(plan, SKIPPED, why)
    lost = _lost_to_another_run(step, plan, host_name, host)
    if lost:
        return _result(plan, FAILED, lost, lost=True)
    context = _Step(step, plan, host_name, evidence, state, host, host.monotonic() + slice_seconds)
    try:
        return context.run()
    except LostError as lost_meanwhile:
        return _result(plan, FAILED, str(lost_meanwhile), lost=True)


class LostError(Exception):
    """Another run announced itself on this host while a slice of this one was at work."""


def _check_fence(ledger: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return a ledger that is still this run's to write.

    :raises LostError: where another run came after this one.
    """
    successor = _ledger.fenced_off_by(ledger, plan["generation"], plan["run"]["id"])
    if successor:
        raise LostError("run {id} of {owner} ({purpose}) came after this one and goes on".format(**successor))
    return ledger


def _result(plan: dict[str, Any], outcome: str, message: str = "", **more: Any) -> dict[str, Any]:
    return dict(
        {"changed": False, "members": {}, "state": {}},
        outcome=outcome,
        message=message,
        generation=plan["generation"],
        run=plan["run"]["id"],
        **more,
    )


def limit_of_step(step: str, plan: dict[str, Any]) -> float:
    """Return how many seconds a step may take at most, for the lock's lease."""
    options = plan["options"]
    stop = max(m["stop_limit_seconds"] for m in plan["members"])
    start = max(m["healthy_limit_seconds"] for m in plan["members"])
    limits = {
        _walk.DRAIN: options["drain_limit_seconds"],
        _walk.REQUESTS: options["requests"] * options["request_limit_seconds"],
        # Of one slice, which is all that runs on when the controller is gone.
        _walk.VERIFY: 2 * options["request_limit_seconds"],
        _walk.SETTLE: options["settle_limit_seconds"],
        "restart_router": stop + start,
    }
    if step.startswith("stop_"):
        return float(stop)
    if step.startswith("start_"):
        return float(start)
    return float(limits.get(step, 0))


def _lost_to_another_run(step: str, plan: dict[str, Any], host_name: str, host: Host) -> str:
    """Return why this run may not go on, or "": its lock or a ledger is another run's."""
    if step in (_walk.LOCK, _walk.UNLOCK):
        return ""
    run_id = plan["run"]["id"]
    for member in plan["members"]:
        if member["host"] != host_name:
            continue
        try:
            _check_fence(host.ledger(member["unit"]), plan)
        except LostError as lost:
            return str(lost)
    if host_name != plan["lock_host"]:
        return ""

    def renew(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
        if held is None:
            return None, "the lock of cluster {0} is gone from {1}".format(plan["cluster"], host_name)
        if held["run"]["id"] != run_id:
            return None, "the lock of cluster {0} was taken over by {1}".format(plan["cluster"], _lock.describe(held))
        return _lock.renew(held, limit_of_step(step, plan) + LEASE_MARGIN_SECONDS, host.now()), ""

    return str(host.change_lock(plan["cluster"], renew))


class _Step:
    """One slice of one step: what is given to all its parts."""

    def __init__(
        self,
        step: str,
        plan: dict[str, Any],
        host_name: str,
        evidence: dict[str, dict[str, Any]],
        state: dict[str, Any],
        host: Host,
        until: float,
    ):
        self.step = step
        self.plan = plan
        self.host_name = host_name
        self.evidence = evidence
        self.state = state
        self.host = host
        self.until = until
        self.options = plan["options"]
        self.members = _walk.members_of_step(step, plan, host_name)

    def run(self) -> dict[str, Any]:
        """Run the slice; both before and after it the gated members must be what was gated."""
        replaced = self.replaced()
        if replaced:
            return replaced
        result = self.do()
        return (result["outcome"] == OK and self.replaced()) or result

    def replaced(self) -> dict[str, Any] | None:
        """Return the failure for a member here that is no more what passed its gate, or None."""
        for member in _walk.rechecked_members(self.step, self.plan, self.host_name):
            gated = _walk.gated_incarnation(member, self.evidence)
            unit = self.host.unit(member["unit"])
            if unit["active_state"] != "active" or unit["invocation_id"] != gated:
                return self.failure(
                    member, "it passed its gate as incarnation {0} and is not that any more".format(gated or "unknown")
                )
        return None

    def do(self) -> dict[str, Any]:
        if self.step == "restart_router":
            stopped = self.stop()
            return stopped if stopped["outcome"] != OK else self.start()
        if self.step.startswith("stop_"):
            return self.stop()
        if self.step.startswith("start_"):
            return self.start()
        result: dict[str, Any] = getattr(self, self.step)()
        return result

    def result(self, outcome: str, message: str = "", **more: Any) -> dict[str, Any]:
        return _result(self.plan, outcome, message, **more)

    def slice_is_over(self) -> bool:
        return self.host.monotonic() >= self.until

    def elapsed(self) -> float:
        """Return how long the step lasts already, over all its slices."""
        self.state.setdefault("began", self.host.monotonic())
        return float(self.host.monotonic() - self.state["began"])

    # -- lock, fence, drain ------------------------------------------------------------

    def lock(self) -> dict[str, Any]:
        wanted = {
            "run": self.plan["run"],
            "generation": self.plan["generation"],
            "lease_seconds": LEASE_MARGIN_SECONDS,
        }
        granted: list[bool] = []

        def acquire(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
            lock, message = _lock.acquire(held, wanted, self.host.now(), self.plan["take_over"])
            granted.append(lock is not None)
            return lock, message

        message = self.host.change_lock(self.plan["cluster"], acquire)
        if not granted[0]:
            return self.result(
                FAILED,
                "cluster {0} is locked by {1}; two co-restarts of one cluster at a time are refused".format(
                    self.plan["cluster"], message
                ),
            )
        return self.result(OK, message, changed=True)

    def unlock(self) -> dict[str, Any]:
        def release(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
            if held is None or held["run"]["id"] != self.plan["run"]["id"]:
                return None, ""
            return {}, "unlocked"

        message = self.host.change_lock(self.plan["cluster"], release)
        return self.result(OK, str(message), changed=bool(message))

    def restore(self) -> dict[str, Any]:
        """Put the files of an older revision in place; nothing was stopped yet."""
        units = _walk.restores(self.plan, self.host_name)
        if not units:
            return self.result(OK)
        changed, trouble = self.host.restore(units)
        words = ", ".join("{0} to revision {1}".format(unit, revision) for unit, revision in sorted(units.items()))
        if trouble:
            return self.result(
                FAILED,
                "{0} on {1} cannot be put back: {2}. Nothing was stopped; files of other hosts may be of that "
                "revision already: run the same again, or inferops.sglang_pd.deploy".format(
                    words, self.host_name, trouble
                ),
                changed=bool(changed),
                files=changed,
            )
        return self.result(OK, "{0} on {1}".format(words, self.host_name), changed=bool(changed), files=changed)

    def close(self) -> dict[str, Any]:
        """Announce the run in every ledger of the host; take the workers from its routers."""
        for member in self.members:
            ledger = self.host.ledger(member["unit"])
            self.host.write_ledger(_ledger.announce(ledger, self.plan["generation"], self.plan["run"]))
        notes = []
        if self.restarts_engines():
            for member in self.members:
                unit = self.host.unit(member["unit"])
                # A router that is not restarted afterwards would stay without workers.
                if member["role"] == ROUTER and member["action"] == "restart" and unit["active_state"] == "active":
                    ledger = self.host.ledger(member["unit"])
                    self.host.write_ledger(_ledger.close(ledger, unit["invocation_id"]))
                    closed, trouble = self.host.close_router(member)
                    notes.append(
                        "{0}: {1}".format(member["unit"], trouble or "takes no new work ({0} workers)".format(closed))
                    )
        return self.result(OK, "; ".join(notes), changed=True)

    def restarts_engines(self) -> bool:
        return any(m["action"] == "restart" and m["role"] != ROUTER for m in self.plan["members"])

    def drain(self) -> dict[str, Any]:
        if not self.restarts_engines():
            return self.result(OK)
        limit = self.options["drain_limit_seconds"]
        verdicts, waiting = self.watch_queues(limit, self.options["drain_stall_seconds"])
        if waiting:
            return self.result(WAITING, "running work: " + waiting, state=self.state)
        cut = [
            "{0}: {1} after {2:.0f} s ({3}), will be cut".format(unit, verdict, self.elapsed(), words)
            for unit, (verdict, words) in verdicts.items()
            if verdict in (_queues.STUCK, _queues.FLOWING)
        ]
        return self.result(OK, "; ".join(cut))

    def settle(self) -> dict[str, Any]:
        """Judge the queues after the routed requests: a stuck request fails the cluster."""
        verdicts, waiting = self.watch_queues(
            self.options["settle_limit_seconds"], self.options["settle_stall_seconds"]
        )
        if waiting:
            return self.result(WAITING, "queues: " + waiting, state=self.state)
        bad = [
            "{0}: {1} ({2})".format(unit, verdict, words)
            for unit, (verdict, words) in verdicts.items()
            if verdict in (_queues.STUCK, _queues.UNKNOWN)
        ]
        if bad:
            return self.result(
                FAILED, "requests were answered, but the queues do not tell of health: " + "; ".join(bad)
            )
        return self.result(OK, "; ".join("{0}: {1}".format(unit, v) for unit, (v, _words) in verdicts.items()))

    def watch_queues(self, limit: float, stall: float) -> tuple[dict[str, tuple[str, str]], str]:
        """Sample the engines' queues until each has a verdict.

        :return: verdict and last sample in words by unit, and what is still awaited or "".
        """
        self.elapsed()
        series: dict[str, list[dict[str, Any]]] = self.state.setdefault("series", {})
        while True:
            over = self.elapsed() >= limit
            verdicts: dict[str, tuple[str, str]] = {}
            waiting = []
            for member in self.members:
                unit = member["unit"]
                samples = series.setdefault(unit, [])
                state = self.host.unit(unit)["active_state"]
                if state != "active":
                    verdicts[unit] = (_queues.DRAINED, "the unit is " + state)
                    continue
                sample = self.host.sample(member)
                if sample is not None:
                    samples.append(dict(sample, at=self.host.monotonic()))
                    del samples[:-SERIES_LENGTH]
                words = _metrics.describe(samples[-1]) if samples else "no answer from /v1/loads and /metrics"
                # Gauges that are not live are written every 30 s on an idle engine.
                patience = stall if not samples or samples[-1]["live"] else max(stall, 35)
                verdicts[unit] = (_queues.verdict(samples, patience, over), words)
                if verdicts[unit][0] == _queues.WATCHING:
                    waiting.append("{0} {1}".format(unit, words))
            if not waiting:
                return verdicts, ""
            if self.slice_is_over():
                return verdicts, "{0}, {1:.0f} s of {2:.0f} s".format("; ".join(waiting), self.elapsed(), limit)
            self.host.wait(SAMPLE_SECONDS)

    # -- stages ------------------------------------------------------------------------

    def stop(self) -> dict[str, Any]:
        changed = False
        for member in self.members:
            if member["action"] == "keep" or self.phase(member) not in ("", _ledger.STOPPING):
                continue
            unit = self.host.unit(member["unit"])
            self.write_begin(member, unit["invocation_id"])
            if unit["active_state"] not in ("inactive", "failed"):
                changed = True
                if unit["active_state"] != "deactivating":
                    self.host.stop(member["unit"])
        self.elapsed()
        while True:
            waiting = []
            for member in self.members:
                if self.phase(member) != _ledger.STOPPING:
                    continue
                active_state = self.host.unit(member["unit"])["active_state"]
                if active_state in ("inactive", "failed"):
                    self.write_phase(member, _ledger.STOPPED)
                else:
                    waiting.append("{0} is {1}".format(member["unit"], active_state))
                    if self.elapsed() > member["stop_limit_seconds"]:
                        return self.failure(
                            member, "did not stop within {0:.0f} s".format(member["stop_limit_seconds"])
                        )
            if not waiting:
                return self.result(OK, changed=changed)
            if self.slice_is_over():
                message = "stopping: {0}, {1:.0f} s".format(", ".join(waiting), self.elapsed())
                return self.result(WAITING, message, state=self.state, changed=changed)
            self.host.wait(POLL_SECONDS)

    def start(self) -> dict[str, Any]:
        watches: dict[str, dict[str, Any]] = self.state.setdefault("watches", {})
        for member in self.members:
            if member["unit"] in watches:
                continue
            refused = self.begin_member(member)
            if refused:
                return self.failure(member, refused)
            before = "" if member["action"] == "keep" else self.host.ledger(member["unit"])["before"]
            watches[member["unit"]] = _gate.new_watch(before, self.host.monotonic())
        while True:
            for member in self.members:
                unit = member["unit"]
                if watches[unit]["outcome"] != _gate.WAITING:
                    continue
                watches[unit] = _gate.observe(
                    watches[unit],
                    self.look(member, watches[unit]),
                    self.host.monotonic(),
                    member["healthy_limit_seconds"],
                    self.options["consecutive"],
                )
                trouble = self.note(member, watches[unit])
                if trouble:
                    return self.failure(member, trouble)
            waiting = [
                "{0} ({1}, {2:.0f} s of {3:.0f} s)".format(
                    m["unit"],
                    watches[m["unit"]]["why"],
                    self.host.monotonic() - watches[m["unit"]]["began"],
                    m["healthy_limit_seconds"],
                )
                for m in self.members
                if watches[m["unit"]]["outcome"] == _gate.WAITING
            ]
            if not waiting:
                return self.result(
                    OK,
                    changed=any(m["action"] != "keep" for m in self.members),
                    members={unit: _shown(watch) for unit, watch in watches.items()},
                )
            if self.slice_is_over():
                return self.result(WAITING, "waiting for " + ", ".join(waiting), state=self.state, changed=True)
            self.host.wait(POLL_SECONDS)

    def begin_member(self, member: dict[str, Any]) -> str:
        """Bring a member to a start; return why that is not possible, or ""."""
        ledger = self.host.ledger(member["unit"])
        if member["action"] == "keep":
            if self.host.unit(member["unit"])["invocation_id"] != member["before"]:
                return KEPT_AND_REPLACED
            self.host.write_ledger(_ledger.adopt(ledger, self.plan["generation"], self.plan["run"]))
            return ""
        if self.phase(member) in (_ledger.STARTED, _ledger.HEALTHY):
            return ""
        unit = self.host.unit(member["unit"])
        if self.phase(member) == _ledger.STARTING and unit["invocation_id"] != ledger["before"]:
            # Cut off between the start and its record: it was this run that started it.
            self.write_phase(member, _ledger.STARTED, incarnation=unit["invocation_id"])
            return ""
        if self.phase(member) == "":
            self.write_begin(member, unit["invocation_id"])
        taken = [
            item
            for item in self.host.listeners(list(_topology.ports_of(member).values()))
            if item["unit"] != member["unit"]
        ]
        if taken:
            return "port {port} is held by pid {pid} ({command}), which is not of this unit; end that process".format(
                **taken[0]
            )
        self.write_phase(member, _ledger.STARTING)
        refused = self.host.start(member["unit"])
        return "systemd refuses to start it: " + refused if refused else ""

    def look(self, member: dict[str, Any], watch: dict[str, Any]) -> dict[str, Any]:
        """Return one observation: the unit, and its probes where these can say something."""
        unit = self.host.unit(member["unit"])
        observation = {"unit": unit, "probes": [], "same_incarnation": True}
        if unit["active_state"] == "active" and unit["invocation_id"] != watch["before"]:
            observation["probes"] = self.host.probe(member, self.plan)
            after = self.host.unit(member["unit"])
            observation["same_incarnation"] = after["invocation_id"] == unit["invocation_id"]
            observation["unit"] = after
        return observation

    def note(self, member: dict[str, Any], watch: dict[str, Any]) -> str:
        """Record in the ledger what a watch came to; return the failure's reason or ""."""
        if member["action"] == "keep" and watch["incarnation"] not in ("", member["before"]):
            return KEPT_AND_REPLACED
        ledger = self.host.ledger(member["unit"])
        if watch["incarnation"] and ledger["incarnation"] != watch["incarnation"]:
            self.write_phase(member, _ledger.STARTED, incarnation=watch["incarnation"])
        if watch["outcome"] == _gate.FAILED:
            return str(watch["why"])
        if watch["outcome"] == _gate.PASSED:
            configuration = self.host.running_configuration(member["unit"])
            if configuration != member["configuration"]:
                return "it runs configuration {0}, but {1} is deployed".format(
                    configuration or "unknown", member["configuration"]
                )
            self.write_phase(member, _ledger.HEALTHY, configuration=configuration, healthy_at=self.host.now())
        return ""

    def phase(self, member: dict[str, Any]) -> str:
        """Return how far the member is in this generation, "" where it has not begun."""
        ledger = self.host.ledger(member["unit"])
        return str(ledger["phase"]) if ledger["generation"] == self.plan["generation"] else ""

    def write_begin(self, member: dict[str, Any], before: str) -> None:
        ledger = _check_fence(self.host.ledger(member["unit"]), self.plan)
        self.host.write_ledger(
            _ledger.begin(
                ledger,
                self.plan["generation"],
                self.plan["run"],
                self.plan["override"],
                before,
                self.host.now(),
                self.plan["scope"]["rule"],
            )
        )

    def write_phase(self, member: dict[str, Any], phase: str, **facts: Any) -> None:
        # A slice whose controller is gone may still be at work when the next run begins.
        ledger = _check_fence(self.host.ledger(member["unit"]), self.plan)
        self.host.write_ledger(_ledger.advance(ledger, phase, **facts))

    def failure(self, member: dict[str, Any], why: str) -> dict[str, Any]:
        """Return a failed result that carries the evidence of the member."""
        unit = self.host.unit(member["unit"])
        lines = [
            "{0} on {1}: {2}".format(member["unit"], self.host_name, why),
            "unit: {active_state} ({sub_state}), result {result}, exit status {exit_status}, "
            "started again {restarts} times".format(**unit),
        ]
        if member["role"] != ROUTER and unit["active_state"] == "active":
            sample = self.host.sample(member)
            lines.append("queues: " + (_metrics.describe(sample) if sample else "no answer"))
        journal = self.host.journal(member["unit"], JOURNAL_LINES)
        lines += ["journal:"] + ["  " + line for line in journal] if journal else ["journal: no lines"]
        return self.result(FAILED, "\n".join(lines), changed=True, members={member["unit"]: {"outcome": FAILED}})

    # -- proof and record --------------------------------------------------------------

    def requests(self) -> dict[str, Any]:
        answers: dict[str, list[dict[str, Any]]] = self.state.setdefault("answers", {})
        wanted = self.options["requests"]
        for member in self.members:
            given = answers.setdefault(member["unit"], [])
            while len(given) < wanted:
                given.append(self.host.ask(member, self.plan))
                bad = [answer for answer in given if not answer["good"]]
                if len(bad) > FAILED_REQUESTS_ALLOWED or (bad and len(given) == wanted):
                    failed = self.failure(
                        member,
                        "{0} of {1} requests were not served: {2}".format(len(bad), len(given), bad[-1]["why"]),
                    )
                    return dict(failed, answers=answers)
                if self.slice_is_over() and len(given) < wanted:
                    message = "{0}: {1} of {2} requests".format(member["unit"], len(given), wanted)
                    return self.result(WAITING, message, state=self.state)
        words = [
            "{0}: {1}/{1} requests answered, {2} s".format(
                unit, len(given), " ".join("{0:.3f}".format(answer["seconds"]) for answer in given)
            )
            for unit, given in answers.items()
        ]
        return self.result(OK, "; ".join(words), answers=answers)

    def verify(self) -> dict[str, Any]:
        """Prove every pair of prefill and decode, and what else the profile has."""
        if not self.members or not self.options["verify"]["parts"]:
            return self.result(OK)
        # What is left of the slice; at least something, so that each call comes further.
        seconds = max(1.0, self.until - self.host.monotonic())
        given = self.host.verify(self.plan, self.host_name, self.state, seconds)
        return self.result(given["outcome"], given["message"], state=given["state"])

    def record(self) -> dict[str, Any]:
        """Write the cluster's outcome into every ledger of the host."""
        outcome, reason = _walk.outcome(self.plan, self.evidence)
        troubles = []
        first_line = reason.split("\n", 1)[0]
        for member in self.members:
            ledger = self.host.ledger(member["unit"])
            announced = _ledger.announce(ledger, self.plan["generation"], self.plan["run"])
            ledger = dict(announced, fence=dict(announced["fence"], outcome=outcome, reason=first_line))
            if ledger["generation"] == self.plan["generation"]:
                ledger = _ledger.end(ledger, outcome, first_line, self.host.now())
            self.host.write_ledger(ledger)
            if outcome == OK:
                trouble = self.host.keep_revision(member["unit"], self.plan["generation"])
                if trouble:
                    troubles.append("no revision of {0} was kept: {1}".format(member["unit"], trouble))
            if (
                outcome != OK
                and member["role"] == ROUTER
                and self.restarts_engines()
                and not _walk.was_anything_stopped(self.plan, self.evidence)
            ):
                # Its workers were taken for a drain that led to nothing: it reads them again.
                self.host.restart(member["unit"])
        return self.result(OK, "; ".join(troubles), changed=True)


def _shown(watch: dict[str, Any]) -> dict[str, Any]:
    return {
        "outcome": watch["outcome"],
        "incarnation": watch["incarnation"],
        "healthy_since": watch["healthy_since"],
        "good_answers": watch["good_answers"],
    }
