# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a roll came to, for programs: ``result.json``, and test results as Jenkins and GitLab read them. Pure."""

from __future__ import annotations

import time
from typing import Any
from xml.etree import ElementTree

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events, _topology
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_account
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

FORMAT = 1
#: Characters of a failure's text.
MOST = 20_000


def result(plan: dict[str, Any] | None, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what ``result.json`` holds.

    :param plan: what ``plan.json`` holds, None where it is gone.
    :param events: what :func:`_roll_events.read` gave.
    :return: see :func:`result_of`.
    """
    return result_of(roll_account.account(plan, events))


def result_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return what ``result.json`` holds.

    :param found: see :func:`roll_account.account`.
    :return: ``format``, ``roll``, ``purpose``, ``owner``, ``outcome`` (done, nothing, refused, failed, stopped, paused,
        interrupted, planned), ``why``, ``began_at``, ``ended_at`` (of the last event where nothing ended it),
        ``seconds``, ``runs``, ``totals`` (clusters by outcome), ``problems``, ``waves`` (``number``, ``run``, ``kind``,
        ``clusters``, ``began_at``, ``ended_at``, ``failed``, ``soak``), ``clusters`` by name (``outcome``, ``wave``,
        ``run``, ``seconds``, ``downtime_seconds``, ``downtime_open`` (it served nobody when it was last heard of),
        ``latency``, ``message``, ``generation``, ``stopped``, ``attempts``), ``remaining``, ``commands`` (what helps).
    """
    keys = ("roll", "purpose", "owner", "outcome", "why", "began_at", "ended_at", "seconds", "runs")
    return _clean(
        {
            "format": FORMAT,
            **{key: found[key] for key in keys},
            "totals": roll_account.tally(found),
            "problems": found["problems"],
            "waves": [_wave(one) for one in found["waves"]],
            "clusters": {one["name"]: _cluster(one) for one in found["clusters"]},
            "remaining": found["remaining"],
            "commands": [one["command"] for one in found["helps"] if one["command"]],
        }
    )


def _wave(one: dict[str, Any]) -> dict[str, Any]:
    keys = ("number", "run", "kind", "clusters", "began_at", "ended_at", "failed", "soak")
    return {key: one[key] for key in keys}


def _cluster(one: dict[str, Any]) -> dict[str, Any]:
    downtime = one["downtime"]
    return {
        **{key: one[key] for key in ("outcome", "wave", "run", "seconds")},
        "downtime_seconds": round(downtime["seconds"], 3) if downtime else 0.0,
        "downtime_open": bool(downtime and downtime["open"]),
        **{key: one[key] for key in ("latency", "message", "generation", "stopped")},
        "attempts": len(one["attempts"]),
    }


def _clean(value: Any) -> Any:
    """Return a value without what looks like a secret in any of its texts."""
    if isinstance(value, dict):
        return {words.lines(key): _clean(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return words.lines(value) if isinstance(value, str) else value


# -- JUnit -----------------------------------------------------------------------------------


def junit(plan: dict[str, Any] | None, events: list[dict[str, Any]]) -> str:
    """Return a roll as test results (JUnit XML): a suite for each wave, a case for each cluster.

    Failed and rolled back: a failure, what was wanted does not run. Refused and cut off: an error, nobody knows
    whether it would work. Skipped: nothing was due, it is in maintenance, its turn never came.
    """
    return junit_of(roll_account.account(plan, events))


def junit_of(found: dict[str, Any]) -> str:
    """Return a roll as test results.

    :param found: see :func:`roll_account.account`.
    """
    root = ElementTree.Element("testsuites", name=words.plain("roll " + found["roll"]), time=_time(found["seconds"]))
    for place, wave in enumerate(found["waves"]):
        mine = [one for one in found["clusters"] if (one["run"], one["wave"]) == (wave["run"], wave["number"])]
        cases = [_case(found, one) for one in mine] + _soak(found, wave)
        if cases:
            _suite(root, place, roll_account.wave_name(found, wave), wave, cases)
    alone = [one for one in found["clusters"] if not one["wave"]]
    cases = ([_refusal(found)] if found["outcome"] == _roll_events.REFUSED else []) + [
        _case(found, one) for one in alone
    ]
    if cases or not len(root):
        _suite(root, len(root), "in no wave", None, cases)
    # No schema knows how many of all are skipped.
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(
    root: ElementTree.Element, place: int, name: str, wave: dict[str, Any] | None, cases: list[ElementTree.Element]
) -> None:
    about = {"name": name, "id": str(place), "tests": str(len(cases))}
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        about[count] = str(sum(case.find(tag) is not None for case in cases))
    began_at, ended_at = (wave["began_at"], wave["ended_at"]) if wave else (None, None)
    about["time"] = _time(None if began_at is None or ended_at is None else ended_at - began_at)
    if began_at is not None:
        about["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began_at))
    ElementTree.SubElement(root, "testsuite", about).extend(cases)


def _case(found: dict[str, Any], one: dict[str, Any]) -> ElementTree.Element:
    case = _new_case(found, one["name"], one["seconds"])
    outcome, message = one["outcome"], one["message"]
    failure = next((row for row in found["failures"] if row["name"] == one["name"]), None)
    if failure is not None:
        tag = "failure" if outcome in (_roll_events.FAILED, _roll_events.ROLLED_BACK) else "error"
        text = "\n\n".join([message, *("{where}:\n{message}".format(**row) for row in failure["evidence"])])
        _add(case, tag, roll_account.state_after(failure), outcome, text)
    elif outcome == _roll_events.REFUSED:
        _add(case, "error", "refused, nothing was touched: {0}".format(message), outcome)
    elif outcome != _roll_events.DONE:
        reason = roll_account.in_words(outcome)
        if outcome == roll_account.REMAINS and found["why"]:
            message = found["why"]
        _add(case, "skipped", "{0}: {1}".format(reason, message) if message else reason)
    told = _told(one)
    if told:
        ElementTree.SubElement(case, "system-out").text = told
    return case


def _told(one: dict[str, Any]) -> str:
    """Return what else is known of a cluster, as lines."""
    lines = []
    if one["generation"] is not None and one["attempts"]:
        lines.append("generation {0}".format(one["generation"]))
    if one["downtime"]:
        lines.append("without service {0}".format(roll_account.downtime_of(one)))
    numbers = roll_account.latencies(one)
    for what in ("median", "p95"):
        before, after = numbers[what + "_before"], numbers[what + "_after"]
        if before is not None and after is not None:
            lines.append("{0} {1:.3f} s before, {2:.3f} s after".format(what, before, after))
    for hook in one["hooks"]:
        lines.append("hook {0}: {1} {2}".format(hook["hook"], hook["outcome"], hook["message"]).rstrip())
    return words.lines("\n".join(lines), MOST)


def _soak(found: dict[str, Any], wave: dict[str, Any]) -> list[ElementTree.Element]:
    """Return a case for a soak that failed without a cluster that did."""
    soak = wave["soak"]
    if not any(not one["name"] and one["wave"] == wave["number"] for one in found["failures"]):
        return []
    case = ElementTree.Element("testcase", name="soak of wave {0}".format(wave["number"]), classname="roll")
    _add(case, "failure", words.plain(soak["message"]) or "failed", _roll_events.FAILED, soak["message"])
    return [case]


def _refusal(found: dict[str, Any]) -> ElementTree.Element:
    case = _new_case(found, "plan", None)
    problems = found["problems"]
    text = "\n".join(_topology.describe_problem(one) for one in problems)
    _add(case, "error", "refused, nothing was touched: {0}".format(found["why"] or text), "refused", text)
    return case


def _new_case(found: dict[str, Any], name: str, seconds: float | None) -> ElementTree.Element:
    about = {"name": words.plain(name), "classname": "roll.{0}".format(words.plain(found["roll"]))}
    return ElementTree.Element("testcase", dict(about, time=_time(seconds)))


def _add(case: ElementTree.Element, tag: str, message: str, kind: str = "", text: str = "") -> None:
    about = {"message": words.plain(message, 2000)}
    if kind:
        about["type"] = words.plain(kind)
    ElementTree.SubElement(case, tag, about).text = words.lines(text, MOST) or None


def _time(seconds: float | None) -> str:
    return "{0:.3f}".format(max(seconds or 0.0, 0.0))
