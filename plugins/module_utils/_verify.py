# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One verification of a cluster, run in slices; the effects are behind ``host`` (see :class:`Host`).

A slice begins requests for some seconds, lets those that run come to their end, and returns a
``state`` with which the next slice goes on: so the controller can show progress, and a
verification whose controller died ends within a slice and one request's limit. All the while
every engine is sampled at an interval. Before anything is sent, after an abort storm and at the
end the queues are watched until they have a verdict: never for a fixed time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _answers,
    _baseline,
    _latency,
    _metrics,
    _profiles,
    _series,
    _topology,
)

OK, FAILED, WAITING, SKIPPED = "ok", "failed", "waiting", "skipped"

BEFORE, SEND, RECOVER, AFTER, DONE = "before", "send", "recover", "after", "done"

#: Samples before anything is sent: what the cluster holds anyway.
SAMPLES_BEFORE = 2
#: Samples kept of each engine; older ones are thinned out.
SERIES_LENGTH = 240
#: Samples of gauges alone that still show requests when a nudge is sent.
SAMPLES_BEFORE_NUDGE = 3
NUDGE_TOKENS = 8
#: Failures that are told of each part.
FAILURES_SHOWN = 5
#: Characters of a session's answer that go into its next request.
ANSWER_KEPT = 4000


class Exchange(Protocol):
    """What became of one chat request."""

    #: HTTP status, None where there was no answer.
    status: int | None
    #: Body of an answer that was not streamed.
    body: bytes
    stream: _answers.Stream
    seconds: float
    #: Seconds until the first event of a stream, None where there was none.
    first_seconds: float | None
    error: str
    #: True where this client left before the end, as it was asked to.
    dropped: bool
    #: What the prefill's leg of a pair ended with where that is not well, or "".
    other_leg: str


class Host(Protocol):
    """What a verification needs of the machine that it runs on."""

    def monotonic(self) -> float:
        """Return seconds of a clock that goes on between slices."""

    async def wait(self, seconds: float) -> None:
        """Let time pass."""

    async def chat(self, request: dict[str, Any], body: dict[str, Any], limit_seconds: float) -> Exchange:
        """Send a chat request to where ``request`` says; never raises for what a server does."""

    async def sample(self, engine: str) -> dict[str, Any]:
        """Return a sample of an engine as in :mod:`_series`, without ``at`` and ``nudges``."""


def new_state() -> dict[str, Any]:
    """Return the state of a verification that has not begun."""
    return {
        "phase": BEFORE,
        "part": 0,
        "lanes": {},
        "records": {},
        "series": {},
        "held_before": 0,
        "nudges": 0,
        "failures": [],
        "recovery": {},
    }


async def run_slice(
    members: list[dict[str, Any]], options: dict[str, Any], state: dict[str, Any], host: Host, slice_seconds: float
) -> tuple[str, str, dict[str, Any]]:
    """Go on with a verification for about so long.

    :param members: of the cluster.
    :param options: see :func:`_profiles.plan`; also ``model``, ``request_limit_seconds``,
        ``sample_seconds``, ``stall_seconds``, ``settle_limit_seconds``,
        ``abort_limit_seconds``, ``recovery_limit_seconds``.
    :param state: of the slice before, {} for the first.
    :return: ``waiting`` or ``done``, what is awaited in words, the state.
    """
    run = _Run(members, options, state or new_state(), host, host.monotonic() + slice_seconds)
    sampler = asyncio.ensure_future(run.sample_on())
    try:
        await run.go()
    finally:
        sampler.cancel()
        await asyncio.gather(sampler, return_exceptions=True)
    return (DONE if run.state["phase"] == DONE else WAITING), run.words(), run.state


class _Run:
    def __init__(
        self, members: list[dict[str, Any]], options: dict[str, Any], state: dict[str, Any], host: Host, until: float
    ):
        self.options = options
        self.state = state
        self.host = host
        self.until = until
        self.parts = _profiles.plan(members, options)
        self.engines = {_profiles.name_of(m): m["role"] for m in _topology.serving(members)}
        self.sampled = asyncio.Event()
        self.state.setdefault("began", host.monotonic())
        self.state.setdefault("phase_began", self.state["began"])
        for name, role in self.engines.items():
            self.state["series"].setdefault(name, {"role": role, "samples": []})

    @property
    def series(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.state["series"]
        return found

    def slice_is_over(self) -> bool:
        return self.host.monotonic() >= self.until

    def elapsed(self) -> float:
        """Return how long the phase lasts already, over all its slices."""
        return float(self.host.monotonic() - self.state["phase_began"])

    def enter(self, phase: str) -> None:
        self.state.update(phase=phase, phase_began=self.host.monotonic())

    async def go(self) -> None:
        doing = {BEFORE: self.before, SEND: self.send, RECOVER: self.recover, AFTER: self.after}
        while self.state["phase"] != DONE:
            phase = self.state["phase"]
            await doing[phase]()
            if self.slice_is_over() or (self.state["phase"] == phase and phase != SEND):
                return

    # -- samples -----------------------------------------------------------------------

    async def sample_on(self) -> None:
        """Sample all engines at the interval until cancelled."""
        while True:
            began = self.host.monotonic()
            await asyncio.gather(*[self.sample(name) for name in self.engines])
            self.sampled.set()
            await self.host.wait(max(0.05, self.options["sample_seconds"] - (self.host.monotonic() - began)))

    async def sample(self, name: str) -> None:
        nudges = self.state["nudges"]
        sample = await self.host.sample(name)
        one = self.series[name]
        one["samples"] = _series.thinned(
            [*one["samples"], dict(sample, at=self.host.monotonic(), nudges=nudges)], SERIES_LENGTH
        )

    async def next_sample(self) -> bool:
        """Wait for one more sample of every engine; False where the slice is over."""
        if self.slice_is_over():
            return False
        self.sampled.clear()
        await self.sampled.wait()
        return True

    def verdicts(self) -> dict[str, dict[str, Any]]:
        return _series.judge(self.series, self.options["stall_seconds"])

    def samples_since_phase(self) -> int:
        return min(
            (
                sum(1 for sample in one["samples"] if sample["at"] >= self.state["phase_began"])
                for one in self.series.values()
            ),
            default=0,
        )

    async def watch(self, most: float, limit_seconds: float) -> str:
        """Watch the queues: "over" when nothing is to be awaited, "late" at the limit, "" at the slice's end."""
        while True:
            verdicts = self.verdicts()
            if self.samples_since_phase() >= 2 and _series.is_over(self.series, verdicts, most):
                return "over"
            if self.elapsed() >= limit_seconds:
                return "late"
            await self.nudge()
            if not await self.next_sample():
                return ""

    async def nudge(self) -> None:
        """Send one request for fresh gauges where requests show and no engine has a live source for them."""
        if self.state["nudges"] or self.state.get("nudged") or self.samples_since_phase() < SAMPLES_BEFORE_NUDGE:
            return
        last = [_series.readable(one["samples"])[-1:] for one in self.series.values()]
        if not any(one and not one[0]["live"] and _metrics.pending(one[0]) > 0 for one in last):
            return
        router = next(iter(part["lanes"][0][0]["via"] for part in self.parts if "via" in part["lanes"][0][0]), None)
        if router is None:
            return
        self.state["nudged"] = True
        request = {
            "to": "router",
            "via": router,
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": NUDGE_TOKENS,
            "temperature": 0,
            "stream": False,
        }
        judged = await self.ask(request, [])
        if judged["good"]:
            self.state["nudges"] = 1
        else:
            self.state["failures"].append("the nudge for fresh gauges was not served: {0}".format(judged["why"]))

    # -- phases ------------------------------------------------------------------------

    async def before(self) -> None:
        while self.samples_since_phase() < SAMPLES_BEFORE:
            if not await self.next_sample():
                return
        held = [
            _metrics.pending(sample)
            for one in self.series.values()
            for sample in _series.readable(one["samples"])
            if sample["live"]
        ]
        self.state["held_before"] = max(held, default=0)
        self.enter(SEND if self.parts else AFTER)

    async def send(self) -> None:
        """Send what the current part has left, for this slice."""
        part = self.parts[self.state["part"]]
        skipped = self.why_skip(part)
        if not skipped:
            gate = asyncio.Semaphore(part["at_a_time"])
            await asyncio.gather(*[self.run_lane(part, number, gate) for number in range(len(part["lanes"]))])
            if not self.is_finished(part):
                return
        if part["part"] == _profiles.ABORTS and not skipped:
            self.enter(RECOVER)
        else:
            self.next_part()

    def next_part(self) -> None:
        self.state.update(part=self.state["part"] + 1, lanes={})
        self.enter(SEND if self.state["part"] < len(self.parts) else AFTER)

    def why_skip(self, part: dict[str, Any]) -> str:
        """Return why a part is not sent, or ""; decided from what the parts before gave."""
        before = [record for records in self.state["records"].values() for record in records]
        name = part["part"]
        if name in self.state["records"] and self.state["records"][name]:
            return ""
        why = ""
        if before and not any(record["good"] for record in before):
            why = "nothing is served"
        elif name == _profiles.ABORTS and not all(record["good"] for record in before):
            why = "requests failed before: a storm is for a cluster that serves"
        if why:
            self.state.setdefault("skipped", {})[name] = why
        return why

    def records(self, part: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.state["records"].setdefault(part["part"], [])
        return found

    def may_begin(self, part: dict[str, Any]) -> bool:
        if part["part"] == _profiles.ABORTS and self.elapsed() >= self.options["abort_limit_seconds"]:
            return False
        return sum(1 for record in self.records(part) if not record["good"]) < part["part_failures"]

    def lane_is_finished(self, part: dict[str, Any], number: int) -> bool:
        lane = self.state["lanes"].get(str(number), {"next": 0, "bad": 0})
        return lane["next"] >= len(part["lanes"][number]) or lane["bad"] >= part["lane_failures"]

    def is_finished(self, part: dict[str, Any]) -> bool:
        return not self.may_begin(part) or all(self.lane_is_finished(part, n) for n in range(len(part["lanes"])))

    async def run_lane(self, part: dict[str, Any], number: int, gate: asyncio.Semaphore) -> None:
        if self.lane_is_finished(part, number):
            return
        requests = part["lanes"][number]
        async with gate:
            while not (self.slice_is_over() or self.lane_is_finished(part, number)) and self.may_begin(part):
                lane = self.state["lanes"].setdefault(str(number), {"next": 0, "bad": 0, "messages": []})
                request = requests[lane["next"]]
                if not await self.is_time_for(request):
                    return
                judged = await self.ask(request, lane["messages"])
                record = {
                    "lane": number,
                    "number": lane["next"],
                    "good": judged["good"],
                    "seconds": round(judged["seconds"], 4),
                    "first_seconds": judged["first_seconds"],
                    "tokens": judged["tokens"],
                }
                if not judged["good"]:
                    record["why"] = judged["why"]
                    lane["bad"] += 1
                if judged["dropped"]:
                    record["dropped"] = judged["events"]
                if request.get("session"):
                    lane["messages"] += [
                        *request["messages"],
                        {"role": "assistant", "content": judged["text"][:ANSWER_KEPT]},
                    ]
                lane["next"] += 1
                self.records(part).append(record)

    async def is_time_for(self, request: dict[str, Any]) -> bool:
        """Wait until a request may be sent; False where the slice ends before."""
        left = request.get("after_seconds", 0) - self.elapsed()
        if left > 0:
            await self.host.wait(max(0.0, min(left, self.until - self.host.monotonic())))
        return bool(request.get("after_seconds", 0) <= self.elapsed())

    async def ask(self, request: dict[str, Any], before: list[dict[str, Any]]) -> dict[str, Any]:
        """Send one request and judge its answer strictly."""
        limit = self.options["request_limit_seconds"]
        body = _profiles.body_of(request, before, self.options["model"])
        given = await self.host.chat(request, body, limit)
        expected = _profiles.expected_of(request, self.options)
        if given.dropped:
            judged = {"good": True, "why": "", "seconds": given.seconds, "tokens": given.stream.tokens_seen, "text": ""}
        elif request["stream"]:
            judged = _answers.judge_stream(given.status, given.stream, given.seconds, limit, given.error, expected)
        else:
            judged = _answers.judge(given.status, given.body, given.seconds, limit, given.error, expected)
        if given.other_leg and not given.dropped:
            first = judged["why"] or "decode answered well"
            judged.update(good=False, why="{0}; prefill: {1}".format(first, given.other_leg))
        return dict(
            judged,
            first_seconds=None if given.first_seconds is None else round(given.first_seconds, 4),
            dropped=given.dropped,
            events=given.stream.events,
        )

    async def recover(self) -> None:
        """Watch the queues come back to what they held before, after an abort storm."""
        ended = await self.watch(self.state["held_before"], self.options["recovery_limit_seconds"])
        if not ended:
            return
        stuck = [
            "{0} {1}: {2}".format(name, one["verdict"], one["why"])
            for name, one in self.verdicts().items()
            if one["verdict"] == _series.STUCK
            or (ended == "late" and one["verdict"] in (_series.FLOWING, _series.UNKNOWN))
        ]
        seconds = round(self.elapsed(), 1)
        self.state["recovery"] = {"seconds": seconds, "recovered": not stuck}
        if stuck:
            self.state["failures"].append(
                "the queues did not come back after the abort storm within {0:.0f} s: {1}".format(
                    seconds, "; ".join(stuck)
                )
            )
        self.next_part()

    async def after(self) -> None:
        if await self.watch(0, self.options["settle_limit_seconds"]):
            self.enter(DONE)

    def words(self) -> str:
        """Return what is being done, for progress."""
        phase = self.state["phase"]
        if phase == SEND:
            part = self.parts[self.state["part"]]
            records = self.records(part)
            bad = sum(1 for record in records if not record["good"])
            return "{0}: {1} of {2} requests{3}".format(
                part["part"],
                len(records),
                sum(len(lane) for lane in part["lanes"]),
                ", {0} not served".format(bad) if bad else "",
            )
        held = [
            "{0} {1}".format(name, _metrics.describe(read[-1]))
            for name, read in ((name, _series.readable(one["samples"])) for name, one in self.series.items())
            if read and _metrics.pending(read[-1])
        ]
        title = {BEFORE: "first samples", RECOVER: "queues after the abort storm"}.get(phase, "queues")
        return "{0}: {1}".format(title, "; ".join(held) or "empty")


def report(
    members: list[dict[str, Any]], options: dict[str, Any], state: dict[str, Any], store: dict[str, Any], revision: str
) -> dict[str, Any]:
    """Return the result of a verification that is done; documented as return value of the module ``verify``.

    :param store: stored latencies, see :mod:`_baseline`.
    :param revision: what the cluster's members run, see :func:`_baseline.revision_of`.
    """
    verdicts = _series.judge(state["series"], options["stall_seconds"])
    parts, measured = [], {}
    for planned in _profiles.plan(members, options):
        one = _part_result(planned, state, options, store, revision)
        parts.append(one)
        if one["outcome"] == OK and planned["part"] != _profiles.ABORTS:
            measured[_baseline.key(planned["part"], planned["shape"])] = one["latency"]
    series = {}
    failures = list(state["failures"])
    for one in parts:
        if one["outcome"] == FAILED:
            failures.append("{0}: {1}".format(one["part"], one["why"]))
    for name, watched in state["series"].items():
        one = dict(verdicts[name], role=watched["role"], samples=watched["samples"])
        one["lines"] = _series.table(watched["samples"], state["began"])
        how, rise = _series.increase(watched["samples"], "failed")
        one["transfers_failed"] = None if how == _series.UNKNOWN else rise
        series[name] = one
        if one["verdict"] not in _series.GOOD:
            failures.append("{0} is {1}: {2}".format(name, one["verdict"], one["why"]))
        if _series.restarted(watched["samples"]):
            failures.append("{0} was started anew during the verification".format(name))
    if not parts:
        failures.append("nothing was sent: the cluster has no router or the chosen parts are empty")
    regressions = _baseline.compare(
        store, revision, measured, options["regression_factor"], options["regression_slack_seconds"]
    )
    return {
        "outcome": FAILED if failures else OK,
        "failures": failures,
        "profile": options["profile"],
        "revision": revision,
        "parts": parts,
        "series": series,
        "recovery": state["recovery"],
        "regressions": regressions,
        "measured": measured,
    }


def _part_result(
    part: dict[str, Any], state: dict[str, Any], options: dict[str, Any], store: dict[str, Any], revision: str
) -> dict[str, Any]:
    records = state["records"].get(part["part"], [])
    wanted = sum(len(lane) for lane in part["lanes"])
    good = [record for record in records if record["good"]]
    bad = [record for record in records if not record["good"]]
    cold = [record for record in good if part["cold_first"] and record["number"] == 0]
    steady = [record["seconds"] for record in good if record not in cold and "dropped" not in record]
    first = [record["first_seconds"] for record in good if record["first_seconds"] is not None]
    stored = _baseline.stored_part(store, revision, _baseline.key(part["part"], part["shape"]))
    factor, slack = options["regression_factor"], options["regression_slack_seconds"]
    outcome, why = _part_outcome(part, state, records, wanted)
    return {
        "part": part["part"],
        "shape": part["shape"],
        "outcome": outcome,
        "why": why,
        "wanted": wanted,
        "sent": len(records),
        "good": len(good),
        "tokens": sum(record["tokens"] for record in good),
        "dropped": sum(1 for record in records if "dropped" in record),
        "cold_seconds": [record["seconds"] for record in cold],
        "latency": _latency.summary(steady),
        "first_token": _latency.summary(first),
        "histogram": _latency.histogram(steady),
        "picture": _latency.picture(steady),
        "slow": sum(1 for seconds in steady if _baseline.slow(seconds, stored, factor, slack)),
        "failed": [
            {"request": _where(part, record), "why": record["why"], "seconds": record["seconds"]}
            for record in bad[:FAILURES_SHOWN]
        ],
    }


def _part_outcome(
    part: dict[str, Any], state: dict[str, Any], records: list[dict[str, Any]], wanted: int
) -> tuple[str, str]:
    skipped = state.get("skipped", {}).get(part["part"], "")
    if skipped:
        return SKIPPED, "not sent: {0}".format(skipped)
    bad = [record for record in records if not record["good"]]
    if part["part"] == _profiles.ABORTS:
        # What a storm's own streams get is not the proof: what comes after them is.
        if len(bad) * 2 > wanted:
            return FAILED, "{0} of {1} streams were refused: {2}".format(len(bad), wanted, bad[-1]["why"])
        return OK, ""
    if bad:
        return FAILED, "{0} of {1} requests were not served, {2}: {3}".format(
            len(bad), wanted, _where(part, bad[0]), bad[0]["why"]
        )
    if len(records) < wanted:
        return FAILED, "only {0} of {1} requests were sent".format(len(records), wanted)
    return OK, ""


def _where(part: dict[str, Any], record: dict[str, Any]) -> str:
    request = part["lanes"][record["lane"]][record["number"]]
    if request["to"] == "pair":
        length = "long" if len(request["messages"][0]["content"]) > 500 else "short"
        return "{0} -> {1}, {2} prompt, transfer {3}".format(
            request["prefill"], request["decode"], length, record["number"] + 1
        )
    if request.get("session"):
        return "session {0}, round {1}, through {2}".format(record["lane"] + 1, record["number"] + 1, request["via"])
    return "request {0} through {1}".format(record["lane"] + record["number"] + 1, request["via"])


def in_words(cluster: str, result: dict[str, Any]) -> str:
    """Return a result as one line where it is good, else its failures and below them the table."""
    if result["outcome"] != OK:
        return "\n".join(["; ".join(result["failures"]), *lines_of(cluster, result)])
    words = []
    for one in result["parts"]:
        median = " (median {0:.3f} s)".format(one["latency"]["median"]) if one["latency"]["count"] else ""
        words.append("{0} {1}/{2}{3}".format(one["part"], one["good"], one["wanted"], median))
    slower = [_baseline.describe(row) for row in result["regressions"] if row["regression"]]
    return "; ".join(words + slower)


def lines_of(cluster: str, result: dict[str, Any]) -> list[str]:
    """Return a result as a short table for people."""
    lines = ["cluster {0}: {1}, profile {2}".format(cluster, result["outcome"].upper(), result["profile"])]
    for one in result["parts"]:
        numbers = "{0}/{1}".format(one["good"], one["wanted"])
        line = "  {0:<12} {1:<7} {2:>9}".format(one["part"], one["outcome"], numbers)
        if one["latency"]["count"]:
            line += "  {0}  {1}".format(_latency.describe(one["latency"]), one["picture"])
        if one["cold_seconds"]:
            line += "  cold {0}".format(", ".join("{0:.3f} s".format(seconds) for seconds in one["cold_seconds"]))
        if one["dropped"]:
            line += "  {0} left by their client".format(one["dropped"])
        if one["slow"]:
            line += "  {0} slower than the baseline's slowest".format(one["slow"])
        lines.append(line.rstrip())
        lines += ["    {0}: {1}".format(item["request"], item["why"]) for item in one["failed"]]
        if one["outcome"] == SKIPPED:
            lines.append("    " + one["why"])
    if result["recovery"]:
        lines.append("  recovery     {0} s after the abort storm".format(result["recovery"]["seconds"]))
    for name, one in result["series"].items():
        lines.append("  {0}: {1}: {2}".format(name, one["verdict"], one["why"]))
        if one["verdict"] not in (_series.IDLE, _series.DRAINED):
            lines += ["    " + line for line in one["lines"]]
    lines += ["  " + _baseline.describe(row) for row in result["regressions"]]
    lines += ["  FAILED: " + failure for failure in result["failures"]]
    return lines
