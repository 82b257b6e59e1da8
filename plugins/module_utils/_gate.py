# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a member counts as healthy: the gate between two stages.

Pure: a watch (a plain dict, so that it can travel between host and controller)
and an observation go in, the next watch comes out. The clock is a number that
the caller gives.

The rule (rule 2 of the design): a member passes after ``consecutive`` good
answers that all came from one and the same incarnation, and that incarnation is
not the one from before the restart.
"""

from __future__ import annotations

from typing import Any

WAITING = "waiting"
PASSED = "passed"
FAILED = "failed"

#: An incarnation that changes this often while it is watched is a crash loop.
RESTARTS_THAT_MAKE_A_CRASH_LOOP = 3


def new_watch(before: str, now: float) -> dict[str, Any]:
    """Return the watch of a member that was just started.

    :param before: InvocationID that ran before the restart, "" where none ran.
        Answers while systemd still reports this one are answers of the old
        process and never count.
    :param now: seconds, any monotonic clock of the host.
    """
    return {
        "before": before,
        "incarnation": "",
        "good_answers": 0,
        "restarts": 0,
        "began": now,
        "healthy_since": None,
        "outcome": WAITING,
        "why": "just started",
    }


def observe(
    watch: dict[str, Any],
    observation: dict[str, Any],
    now: float,
    limit_seconds: float,
    consecutive: int,
) -> dict[str, Any]:
    """Return the watch after one observation of the member.

    :param observation: ``unit`` is the unit's state as :mod:`host.systemd`
        gives it (``active_state``, ``sub_state``, ``result``, ``exit_status``,
        ``invocation_id``, ``job``), read before *and* unchanged after the probes;
        ``probes`` is a list of ``{"name", "good", "detail"}``, empty where the
        unit was not worth probing; ``same_incarnation`` is False where the
        incarnation changed while the probes ran.
    :param limit_seconds: how long the member may take from its start.
    :param consecutive: good answers wanted in a row from one incarnation.
    """
    if watch["outcome"] != WAITING:
        return watch
    unit = observation["unit"]
    state = dict(watch)
    incarnation = unit["invocation_id"]
    is_new = bool(incarnation) and incarnation != watch["before"]

    if is_new and incarnation != watch["incarnation"]:
        if watch["incarnation"]:
            state["restarts"] += 1
        state["incarnation"] = incarnation
        state["good_answers"] = 0
        state["healthy_since"] = None

    if unit["active_state"] == "failed":
        return _end(
            state,
            FAILED,
            "the unit failed (result {result}, exit status {exit_status})".format(**unit),
        )
    if unit["active_state"] == "inactive" and is_new:
        return _end(state, FAILED, "the process ended (exit status {exit_status})".format(**unit))
    if unit["active_state"] == "inactive" and not unit["job"]:
        # systemctl takes such a start without a word; the reason is in the unit's journal.
        return _end(state, FAILED, "systemd did not start it: a condition or an assertion of the unit does not hold")
    if state["restarts"] >= RESTARTS_THAT_MAKE_A_CRASH_LOOP:
        return _end(
            state,
            FAILED,
            "the unit was started {0} times while it was watched: crash loop".format(state["restarts"] + 1),
        )

    bad = _what_is_bad(unit, is_new, observation)
    if bad:
        state["good_answers"] = 0
        state["healthy_since"] = None
        state["why"] = bad
    else:
        state["good_answers"] += 1
        if state["healthy_since"] is None:
            state["healthy_since"] = now
        state["why"] = "{0} of {1} good answers".format(state["good_answers"], consecutive)
        if state["good_answers"] >= consecutive:
            return _end(state, PASSED, "healthy")

    if now - state["began"] >= limit_seconds:
        return _end(
            state,
            FAILED,
            "not healthy after {0:.0f} s (limit {1:.0f} s): {2}".format(
                now - state["began"], limit_seconds, state["why"]
            ),
        )
    return state


def _what_is_bad(unit: dict[str, Any], is_new: bool, observation: dict[str, Any]) -> str:
    if not is_new:
        return "still the old incarnation"
    if unit["active_state"] != "active":
        return "the unit is {active_state} ({sub_state})".format(**unit)
    if not observation["same_incarnation"]:
        return "the incarnation changed while it was probed"
    for probe in observation["probes"]:
        if not probe["good"]:
            return "{name}: {detail}".format(**probe)
    return ""


def _end(state: dict[str, Any], outcome: str, why: str) -> dict[str, Any]:
    state["outcome"] = outcome
    state["why"] = why
    return state
