# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people read of a roll: lines, rows, and the words at its end. Pure."""

from __future__ import annotations

import datetime
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events, _walk
from ansible_collections.inferops.sglang_pd.plugins.module_utils._roll_events import (
    DONE,
    ENDED,
    FAILED,
    INTERRUPTED,
    LEFT,
    NOTHING,
    PAUSED,
    REFUSED,
    ROLLED_BACK,
    RUNNING,
    SOAKING,
    STOPPED,
    WORKING,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words

#: Seconds between two lines of what a cluster waits for.
WAITING_SECONDS = 30.0

#: Exit codes.
EXIT_OK, EXIT_ERROR, EXIT_CHANGES, EXIT_REFUSED, EXIT_FAILED, EXIT_EARLY = 0, 1, 2, 3, 4, 5
EXIT_CODES = {
    DONE: EXIT_OK,
    NOTHING: EXIT_OK,
    REFUSED: EXIT_REFUSED,
    FAILED: EXIT_FAILED,
    STOPPED: EXIT_EARLY,
    PAUSED: EXIT_EARLY,
}
EXIT_OF_DECISION = {"nothing": EXIT_OK, "go": EXIT_CHANGES, "refused": EXIT_REFUSED}

#: What a step is part of, for people; stages are called as everywhere.
_PHASES = {
    _walk.LOCK: "lock",
    _walk.RESTORE: "restore",
    _walk.CLOSE: "drain",
    _walk.DRAIN: "drain",
    _walk.REQUESTS: "proof",
    _walk.VERIFY: "proof",
    _walk.SETTLE: "proof",
    _walk.RECORD: "record",
    _walk.UNLOCK: "record",
}
#: Phases that are over in a moment: no line of their own.
_QUIET_PHASES = ("lock", "restore", "record")

#: How a row looks.
GOOD, BAD, BUSY, QUIET = "good", "bad", "busy", "quiet"

#: Clusters that are named in one line.
MOST_NAMES = 12


def utc(at: float) -> str:
    """Return a moment as logs have it: ``2026-11-30T17:00:03Z``."""
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: float) -> str:
    """Return a duration in whole seconds or more: ``45 s``, ``2 min 5 s``, ``1 h 3 min``."""
    return roll_words.span(max(0, round(seconds)))


def names(given: list[str]) -> str:
    """Return names in one line; of many, the first ones and how many more."""
    return roll_words.some(given, MOST_NAMES)


def phase(step: str) -> str:
    """Return what a step is part of: a stage, or ``drain``, ``proof`` and so on."""
    if step in _PHASES:
        return _PHASES[step]
    for stage in ("prefill", "decode", "router"):
        if stage in step:
            return stage
    return step


def first_line(message: str) -> str:
    """Return the first line of a message, which may come from a host: without what a terminal would obey."""
    return roll_words.plain(message.strip().split("\n", 1)[0])


# -- plain lines -----------------------------------------------------------------------------


class Narrator:
    """Lines for where there is no terminal: one for each event that matters.

    :param waves: how many there are.
    """

    def __init__(self, waves: int = 0):
        self.waves = waves
        self._phases: dict[str, str] = {}
        self._waited: dict[str, float] = {}

    def tell(self, event: dict[str, Any]) -> list[str]:
        """Return the lines for an event, with its time; none for most."""
        teller = getattr(self, "_tell_" + str(event["event"]), None)
        words = teller(event) if teller else None
        return [] if words is None else ["{0} {1}".format(utc(event["at"]), words)]

    def _tell_roll_began(self, event: dict[str, Any]) -> str:
        self._phases, self._waited = {}, {}
        self.waves = event.get("waves") or 0
        return "roll {0} began: {1} clusters in {2} waves{3}".format(
            event.get("roll", ""),
            event.get("clusters", "?"),
            self.waves,
            " ({0})".format(event["purpose"]) if event.get("purpose") else "",
        )

    def _tell_wave_began(self, event: dict[str, Any]) -> str:
        return "wave {0} of {1} began ({2}): {3}".format(
            event.get("wave"), self.waves or "?", event.get("kind", ""), names(event.get("clusters") or [])
        )

    def _tell_step_began(self, event: dict[str, Any]) -> str | None:
        cluster, now = str(event.get("cluster")), phase(str(event.get("step", "")))
        if self._phases.get(cluster) == now:
            return None
        self._phases[cluster] = now
        # The next line of waiting is that of this phase.
        self._waited[cluster] = event["at"]
        return None if now in _QUIET_PHASES else "{0}: {1}".format(cluster, now)

    def _tell_waiting(self, event: dict[str, Any]) -> str | None:
        cluster = str(event.get("cluster"))
        if event["at"] - self._waited.get(cluster, event["at"] - WAITING_SECONDS) < WAITING_SECONDS:
            return None
        self._waited[cluster] = event["at"]
        return "{0}: {1}, waiting for {2}".format(
            cluster, phase(str(event.get("step", ""))), first_line(str(event.get("message", "")))
        )

    @staticmethod
    def _tell_step_ended(event: dict[str, Any]) -> str | None:
        if event.get("outcome") not in ("failed", "refused", "unreachable"):
            return None
        return "{0}: step {1} on {2} {3}: {4}".format(
            event.get("cluster"),
            event.get("step"),
            event.get("host"),
            str(event["outcome"]).upper(),
            first_line(str(event.get("message", ""))),
        )

    @staticmethod
    def _tell_hook_ended(event: dict[str, Any]) -> str | None:
        if event.get("outcome") == "ok":
            return None
        return "{0}: hook {1} {2}: {3}".format(
            event.get("cluster"),
            event.get("hook"),
            str(event.get("outcome")).upper(),
            first_line(str(event.get("message", ""))),
        )

    @staticmethod
    def _tell_soak_began(event: dict[str, Any]) -> str:
        return "wave {0}: soak of {1} for {2}".format(
            event.get("wave"), names(event.get("clusters") or []), duration(event.get("seconds") or 0)
        )

    @staticmethod
    def _tell_soak_ended(event: dict[str, Any]) -> str | None:
        if event.get("outcome") == "ok":
            return None
        return "wave {0}: soak FAILED: {1}".format(event.get("wave"), first_line(str(event.get("message", ""))))

    @staticmethod
    def _tell_cluster_ended(event: dict[str, Any]) -> str:
        outcome, message = str(event.get("outcome", "")), first_line(str(event.get("message") or ""))
        told = outcome if outcome in (DONE, NOTHING) else _shout(outcome)
        return "{0}: {1}{2}".format(event.get("cluster"), told, ": " + message if message else "")

    @staticmethod
    def _tell_wave_ended(event: dict[str, Any]) -> str:
        failed = event.get("failed") or []
        return "wave {0} ended{1}".format(event.get("wave"), ", FAILED: " + names(failed) if failed else "")

    @staticmethod
    def _tell_roll_ended(event: dict[str, Any]) -> str:
        why = first_line(str(event.get("why") or ""))
        outcome = str(event.get("outcome", ""))
        told = outcome if outcome in (DONE, NOTHING, PAUSED) else outcome.upper()
        return "roll {0} ended: {1}{2}".format(event.get("roll", ""), told, ", " + why if why else "")

    @staticmethod
    def _tell_roll_interrupted(event: dict[str, Any]) -> str:
        return "roll {0} INTERRUPTED: {1}".format(event.get("roll", ""), event.get("why", ""))


def _shout(outcome: str) -> str:
    return outcome.replace("_", " ").upper()


# -- the table -------------------------------------------------------------------------------

COLUMNS = ("cluster", "stage", "waiting for", "elapsed")


def header(state: dict[str, Any], now: float) -> str:
    """Return the line above the table: wave, counts, time and how long it is expected to take."""
    totals = state["totals"]
    until = state["ended_at"] if state["ended_at"] is not None else now
    words = []
    if state["waves"]:
        words.append("wave {0} of {1}".format(state["wave"], len(state["waves"])))
    words.append("{0} done".format(totals[DONE]))
    bad = totals[FAILED] + totals[ROLLED_BACK] + totals[REFUSED]
    words.append("{0} failed".format(bad))
    words.append("{0} remaining".format(totals["remaining"]))
    if state["run_began_at"] is not None:
        elapsed = duration(until - state["run_began_at"])
        expected = state["expected_seconds"]
        words.append(elapsed + (" of about {0}".format(duration(expected)) if expected else ""))
    return ", ".join(words)


def rows(state: dict[str, Any], now: float, every: bool = False) -> list[tuple[str, ...]]:
    """Return the rows of the clusters of the wave in work: look, cluster, stage, waiting for, elapsed.

    :param every: those of all waves that were begun.
    """
    wave = next((one for one in state["waves"] if one["number"] == state["wave"]), None)
    chosen = list(wave["clusters"]) if wave else []
    if every:
        chosen = [name for name, one in state["clusters"].items() if one["outcome"] or one["began_at"] is not None]
    return [_row(name, state["clusters"][name], wave, now) for name in chosen]


def _row(name: str, one: dict[str, Any], wave: dict[str, Any] | None, now: float) -> tuple[str, ...]:
    began = one["began_at"]
    if one["state"] == WORKING:
        return (BUSY, name, phase(one["step"]), first_line(one["waiting"]), duration(now - began))
    if one["state"] == SOAKING:
        soak = (wave or {}).get("soak") or {"began_at": now, "seconds": 0}
        left = soak["began_at"] + (soak["seconds"] or 0) - now
        words = "requests go on, {0} left".format(duration(left)) if left > 0 else "its verdict"
        return (BUSY, name, "soak", words, duration(now - began) if began is not None else "")
    if one["state"] == ENDED:
        look = GOOD if one["outcome"] in (DONE, NOTHING) else BAD
        took = duration(one["ended_at"] - began) if began is not None else ""
        word = one["outcome"].replace("_", " ")
        return (look, name, word, first_line(one["message"]) if look == BAD else "", took)
    if one["state"] == LEFT:
        return (BAD, name, phase(one["step"]), "nobody: left in step {0}".format(one["step"]), "")
    return (QUIET, name, "", "", "")


def most_rows(found: list[tuple[str, ...]], most: int) -> tuple[list[tuple[str, ...]], str]:
    """Return as many rows as there is room for, those that matter first, and words for the others."""
    if len(found) <= most:
        return found, ""
    order = {BAD: 0, BUSY: 1, QUIET: 2, GOOD: 3}
    chosen = sorted(found, key=lambda row: order[row[0]])
    shown, others = chosen[: max(1, most - 1)], chosen[max(1, most - 1) :]
    count = {look: sum(row[0] == look for row in others) for look in order}
    words = {BAD: "failed", BUSY: "in work", QUIET: "to come", GOOD: "done"}
    return shown, "and {0} more: {1}".format(
        len(others), ", ".join("{0} {1}".format(number, words[look]) for look, number in count.items() if number)
    )


def table(found: list[tuple[str, ...]]) -> list[str]:
    """Return rows as lines with columns."""
    cells = [tuple(column.upper() for column in COLUMNS), *(row[1:] for row in found)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]


# -- the end ---------------------------------------------------------------------------------


def exit_code(standing: str, asked_to_end: bool, began: bool) -> int:
    """Return the exit code of a roll.

    :param standing: its outcome, or ``interrupted``.
    :param asked_to_end: by a signal to this command.
    :param began: a wave did.
    """
    if standing in EXIT_CODES:
        return EXIT_CODES[standing]
    if asked_to_end:
        return EXIT_EARLY
    return EXIT_FAILED if began else EXIT_ERROR


def last_words(state: dict[str, Any], standing: str, plan: dict[str, Any] | None, go_on: str) -> list[str]:
    """Return what a roll came to, what remains, and the command that helps.

    :param go_on: the command that goes on with this roll.
    """
    totals = state["totals"]
    lines = ["roll {0}: {1}".format(state["roll"], _sentence(state, standing))]
    if standing == REFUSED:
        problems = (plan or {}).get("problems") or []
        told = {item["message"] for item in problems}
        lines += ["  {0}{1}".format(roll_words.plain(item["message"]), _rule(item)) for item in problems]
        if state["why"] and not any(message in state["why"] for message in told):
            lines.append("  " + roll_words.plain(state["why"]))
        return lines
    for name, one in state["clusters"].items():
        if one["outcome"] in (FAILED, ROLLED_BACK, REFUSED):
            lines.append("  {0}: {1}: {2}".format(name, _shout(one["outcome"]), first_line(one["message"])))
        elif one["state"] == LEFT:
            lines.append(
                "  {0}: LEFT in step {1}; its lock and its ledgers on the hosts say how far it came".format(
                    name, one["step"]
                )
            )
    if standing in (DONE, NOTHING):
        return lines
    if state["remaining"]:
        lines.append("  remaining: {0}".format(names(state["remaining"])))
    if totals["remaining"] or len(lines) > 1:
        lines.append("  to go on: {0}{1}".format(go_on, _repair(state)))
    return lines


def _sentence(state: dict[str, Any], standing: str) -> str:
    totals = state["totals"]
    done = "{0} of {1} clusters done".format(totals[DONE], totals["planned"])
    why = " ({0})".format(first_line(state["why"])) if state["why"] else ""
    sentences = {
        DONE: "done, {0}{1}".format(done, _took(state)),
        NOTHING: "nothing to do, nothing was restarted",
        REFUSED: "REFUSED, nothing was touched",
        FAILED: "FAILED{0}, {1}".format(why, done),
        STOPPED: "stopped as asked{0}, {1}".format(why, done),
        PAUSED: "paused{0}, {1}".format(why, done),
        INTERRUPTED: "INTERRUPTED{0}, {1}".format(why, done),
        RUNNING: "runs, {0}".format(done),
    }
    return sentences.get(standing, "{0}, {1}".format(standing, done))


def _took(state: dict[str, Any]) -> str:
    if state["run_began_at"] is None or state["ended_at"] is None:
        return ""
    return " in {0}".format(duration(state["ended_at"] - state["run_began_at"]))


def _rule(problem: dict[str, Any]) -> str:
    return " [rule: {0}]".format(problem["rule"]) if problem.get("rule") else ""


def _repair(state: dict[str, Any]) -> str:
    """Return the option that a resumed roll needs, where a cluster failed and may not serve.

    One that was left in the middle goes first by itself.
    """
    stopped = [name for name, one in state["clusters"].items() if one["outcome"] == FAILED and one["stopped"]]
    return " -e pd_roll_repair=true    (once mended: what may not serve goes first)" if stopped else ""


def status_lines(
    state: dict[str, Any], standing: str, process: str, now: float, cancelled: str, go_on: str
) -> list[str]:
    """Return where a roll stands.

    :param process: which process walks it, in words.
    :param cancelled: why it is to end, or "".
    """
    lines = ["roll {0}{1}".format(state["roll"], " ({0})".format(state["purpose"]) if state["purpose"] else "")]
    if state["owner"]:
        lines.append("owner    {0}".format(state["owner"]))
    if state["began_at"] is not None:
        lines.append("began    {0}".format(utc(state["began_at"])))
    lines.append("process  {0}".format(process))
    lines.append("state    {0}".format(standing))
    if cancelled and standing == RUNNING:
        lines.append("cancel   asked for: {0}; the wave in work is finished, no other begins".format(cancelled))
    lines.append("progress {0}".format(header(state, now)))
    found = rows(state, now)
    if found:
        lines += ["", *table(found)]
    if standing == RUNNING:
        waiting = [name for name in state["remaining"] if state["clusters"].get(name, {}).get("state") == "planned"]
        if waiting:
            lines += ["", "to come: {0}".format(names(waiting))]
        return lines
    return [*lines, "", *last_words(state, standing, None, go_on)]


def is_end(event: dict[str, Any]) -> bool:
    """Tell whether an event ends a run of a roll."""
    return event["event"] in ("roll_ended", _roll_events.ROLL_INTERRUPTED)
