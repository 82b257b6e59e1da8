# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll as one HTML page, and all files that tell what a roll came to.

As the pages of :mod:`report`: of named fields only, escaped, without network and script.
"""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events, _topology
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import (
    gantt,
    pictures,
    report,
    roll_account,
    roll_markdown,
    roll_result,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

PLAN, EVENTS = "plan.json", "events.jsonl"
#: Failures that are shown with all their evidence, the characters of one text, and those of the others.
FULL, TEXT, SHORT = 30, 4000, 300
#: Failures, and waves, that are on the page at all.
MOST_FAILURES, MOST_WAVES = 300, 60
#: Rows of a table that are shown unfolded.
UNFOLDED = 40
#: Facts of one kind at the top.
FACTS = 5

_LOOKS = {
    _roll_events.DONE: report.GOOD,
    _roll_events.NOTHING: report.QUIET,
    roll_account.WORKING: report.NOTE,
    roll_account.REMAINS: report.NOTE,
    roll_account.MAINTENANCE: report.QUIET,
    roll_account.SKIPPED: report.QUIET,
}


def write_all(directory: str) -> list[str]:
    """Write what a roll came to: ``result.json``, ``summary.md``, ``junit.xml``, ``report.html``; return their paths.

    Each of them at once or not at all. Also for a roll that was killed, whose events have no end.

    :param directory: of the roll, with ``plan.json`` and ``events.jsonl``.
    """
    plan = _read_plan(os.path.join(directory, PLAN))
    found = roll_account.account(plan, _read_events(os.path.join(directory, EVENTS)))
    files = {
        "result.json": json.dumps(roll_result.result_of(found), indent=1) + "\n",
        "summary.md": roll_markdown.summary_of(found),
        "junit.xml": roll_result.junit_of(found),
        "report.html": page_of(plan, found),
    }
    return report.write(directory, files, "pd_roll_dir")


def _read_plan(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as source:
            plan = json.load(source)
    except (OSError, ValueError) as trouble:
        raise AnsibleActionFail("no plan of a roll can be read from {0}: {1}".format(path, trouble)) from trouble
    if not isinstance(plan, dict):
        raise AnsibleActionFail("no plan of a roll can be read from {0}: it holds no object".format(path))
    return plan


def _read_events(path: str) -> list[dict[str, Any]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return _roll_events.read(source)
    except FileNotFoundError:
        # A plan that was refused, or nothing to do.
        return []
    except OSError as trouble:
        raise AnsibleActionFail("the events of a roll cannot be read from {0}: {1}".format(path, trouble)) from trouble


# -- the page --------------------------------------------------------------------------------


def page(plan: dict[str, Any] | None, events: list[dict[str, Any]]) -> str:
    """Return the page of a roll.

    :param plan: what ``plan.json`` holds, None where it is gone.
    :param events: what :func:`_roll_events.read` gave.
    """
    return page_of(plan, roll_account.account(plan, events))


def page_of(plan: dict[str, Any] | None, found: dict[str, Any]) -> str:
    """Return the page of a roll.

    :param found: see :func:`roll_account.account`.
    """
    plan = words.whole(plan)
    told = (_roll_events.DONE, _roll_events.NOTHING)
    walked = [one for one in found["clusters"] if one["attempts"] or one["outcome"] in told]
    walked.sort(key=lambda one: roll_account.rank(one["outcome"]))
    return report.render(
        "roll.html.j2",
        roll=words.plain(found["roll"]),
        purpose=words.plain(found["purpose"], SHORT),
        owner=words.plain(found["owner"], SHORT),
        look=roll_account.look(found),
        unsure="!",
        title=roll_account.title(found),
        written=report.utc(found["ended_at"] or plan["made_at"]),
        facts=_facts(found),
        helps=found["helps"],
        failures=[
            _failure(one, TEXT if place < FULL else SHORT)
            for place, one in enumerate(found["failures"][:MOST_FAILURES])
        ],
        failures_left=_left_out(len(found["failures"]) - MOST_FAILURES, "failure"),
        picture=gantt.gantt(found),
        clusters=_parts([(_row(one), one["outcome"] != _roll_events.DONE) for one in walked], "that went well"),
        latencies=_parts([_latency(one) for one in walked if one["latency"]], "that are no slower"),
        alone=_alone(found),
        waves=[_wave(one) for one in plan["waves"][:MOST_WAVES]],
        waves_left=_left_out(len(plan["waves"]) - MOST_WAVES, "wave"),
    )


def _left_out(count: int, what: str) -> str:
    text = "{0}: result.json and plan.json have all of them."
    return text.format(words.number_of(count, "more " + what)) if count > 0 else ""


def _facts(found: dict[str, Any]) -> list[dict[str, str]]:
    """Return what somebody wants to know first."""
    facts = [(report.BAD, words.plain(_topology.describe_problem(one), TEXT)) for one in found["problems"][:FACTS]]
    facts += [(report.BAD, _left_out(len(found["problems"]) - FACTS, "problem"))]
    named = [one for one in found["failures"] if one["name"]]
    facts += [
        (report.BAD, "{0} {1}.".format(words.plain(one["name"], SHORT), roll_account.state_after(one)))
        for one in named[:FACTS]
    ]
    facts += [(report.BAD, _left_out(len(named) - FACTS, "cluster"))]
    facts += [
        (report.BAD, "The soak of wave {0} failed: {1}".format(one["wave"], words.plain(one["message"], SHORT)))
        for one in found["failures"]
        if not one["name"]
    ]
    facts += [(report.NOTE, words.plain(found["why"], TEXT))]
    slow = [one["name"] for one in found["clusters"] if roll_account.latencies(one)["slower"]]
    facts += [(report.NOTE, "Slower than before: {0}.".format(words.some(slow)) if slow else "")]
    facts += [(report.NOTE, words.plain(text, SHORT)) for text in found["warnings"][:FACTS]]
    counted = roll_account.tally(found)
    counts = ["{0:,} {1}".format(count, roll_account.in_words(one)) for one, count in counted.items()]
    # Where all came to the same, the title says so.
    facts += [(report.QUIET, "Clusters: {0}.".format(", ".join(counts)) if len(counts) > 1 else "")]
    in_runs = " in {0} runs".format(found["runs"]) if found["runs"] > 1 else ""
    took = "Last heard of after {0}{1}." if found["outcome"] == roll_account.INTERRUPTED else "Took {0}{1}."
    facts += [(report.QUIET, took.format(words.span(found["seconds"]), in_runs) if found["seconds"] else "")]
    longest = roll_account.longest_downtime(found)
    facts += [(report.QUIET, "Without service: {0}.".format(longest) if longest else "")]
    return [{"look": look, "words": text} for look, text in facts if text]


def _failure(one: dict[str, Any], most: int) -> dict[str, Any]:
    evidence = one["evidence"][:10] if most == TEXT else []
    return {
        "name": words.plain(one["name"], SHORT) or "soak of wave {0}".format(one["wave"]),
        "outcome": roll_account.in_words(one["outcome"]),
        "state": roll_account.state_after(one),
        "message": words.lines(one["message"], most),
        "evidence": [
            {"where": words.plain(row["where"], SHORT), "message": words.lines(row["message"], most)}
            for row in evidence
        ],
    }


def _parts(rows: list[tuple[dict[str, Any], bool]], quiet: str) -> list[dict[str, Any]]:
    """Return rows as tables; of many, those that nobody asks for are folded away.

    :param rows: and whether somebody wants to see each one.
    """
    if not rows:
        return []
    if len(rows) <= UNFOLDED:
        ranked = sorted(rows, key=lambda row: not row[1])
        return [
            {
                "folded": False,
                "caption": "In all, those first that are to be looked at",
                "rows": [row for row, _ in ranked],
            }
        ]
    parts = []
    for wanted in (True, False):
        mine = [row for row, one in rows if one is wanted]
        caption = "{0} {1}".format(words.number_of(len(mine), "cluster"), "to look at" if wanted else quiet)
        if mine:
            parts.append({"folded": not wanted, "caption": caption, "rows": mine})
    return parts


def _row(one: dict[str, Any]) -> dict[str, Any]:
    about = [
        "wave {0}".format(one["wave"]) if one["wave"] else "",
        words.plain(one["model"], SHORT),
        "generation {0}".format(one["generation"]) if one["generation"] else "",
        "attempts: {0}".format(len(one["attempts"])) if len(one["attempts"]) > 1 else "",
    ]
    return {
        "name": words.plain(one["name"], SHORT),
        "outcome": roll_account.outcome_of(one),
        "look": _LOOKS.get(one["outcome"], report.BAD),
        "about": ", ".join(filter(None, about)),
        "took": words.span(one["seconds"]),
        "downtime": roll_account.downtime_of(one),
    }


def _latency(one: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    numbers = roll_account.latencies(one)
    cells = []
    for what in ("median", "p95"):
        before, after = numbers[what + "_before"], numbers[what + "_after"]
        change = ""
        if before and after is not None:
            change = "{0:+.0f} %".format((after - before) / before * 100)
        cells.append(
            {
                "after": pictures.seconds(after) or "not measured",
                "before": "before {0}".format(pictures.seconds(before) or "not measured"),
                "change": change,
                "look": report.BAD if what in numbers["slower"] else report.QUIET,
            }
        )
    return {"name": words.plain(one["name"], SHORT), "cells": cells}, bool(numbers["slower"])


def _alone(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the clusters that were not restarted, those together that were left alone for the same reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found["clusters"]:
        if one["attempts"] or one["outcome"] in (_roll_events.NOTHING, _roll_events.DONE):
            continue
        why = one["message"] or (found["why"] if one["outcome"] == roll_account.REMAINS else "")
        groups.setdefault((one["outcome"], words.plain(why, TEXT)), []).append(one["name"])
    ranked = sorted(groups.items(), key=lambda group: roll_account.rank(group[0][0]))
    rows = [
        {
            "outcome": roll_account.in_words(outcome),
            "look": _LOOKS.get(outcome, report.BAD),
            "count": words.number_of(len(names), "cluster"),
            "names": words.some(names, 12),
            "why": why or "its turn never came",
        }
        for (outcome, why), names in ranked
    ]
    return rows[:MOST_WAVES]


def _wave(one: dict[str, Any]) -> dict[str, Any]:
    soak = ", then {0} of soak".format(words.span(one["soak_seconds"])) if one["soak_seconds"] else ""
    return {
        "name": "{0}, {1}: {2}".format(
            one["number"], words.plain(one["kind"], SHORT), words.number_of(len(one["clusters"]), "cluster")
        ),
        "clusters": words.some(one["clusters"]),
        "capacity": "; ".join(words.plain(text, SHORT) for text in words.capacity(one)),
        "lasts": words.expected(one["expected_seconds"]) + soak + (", then a pause" if one["pause_after"] else ""),
    }
