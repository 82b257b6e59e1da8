# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll plan as lines for a terminal: what is decided, wave by wave, and why. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _topology
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

#: Waves, clusters and problems that are described one by one.
MOST = 12
#: Characters of one line's text.
LINE = 600

_DECIDED = {
    words.GO: "GO",
    words.NOTHING: "nothing to do",
    words.REFUSED: "REFUSED, nothing is touched",
}


def plan_text(plan: dict[str, Any], most: int = MOST) -> list[str]:
    """Return a plan as lines for people.

    :param plan: what ``plan.json`` holds.
    :param most: how many waves, clusters, problems are described one by one; the others are counted.
    """
    plan = words.whole(plan)
    found = [
        "roll {0}: {1}".format(words.plain(plan["roll"]), _DECIDED.get(plan["decision"], words.plain(plan["decision"])))
    ]
    who = [words.plain(plan["purpose"]), "by " + words.plain(plan["owner"]) if plan["owner"] else ""]
    found += _lines("for", ", ".join(one for one in who if one))
    # What a refusal says helps, so all of it is there.
    found += ["  - " + words.plain(_topology.describe_problem(one), 4 * LINE) for one in plan["problems"][:most]]
    found += _left_out(len(plan["problems"]) - most, "problem")
    found += [line for text in plan["warnings"] for line in _lines("warning", text)]
    found += _lines("clusters", words.counts(plan))
    if plan["waves"]:
        found += _lines("lasts", words.expected(plan["expected_seconds"]))
    if plan["decision"] != words.REFUSED:
        found += _lines("bounds", ", ".join(words.chosen(plan["options"])))
    for wave in plan["waves"][:most]:
        found += _wave(wave)
    found += _left_out(len(plan["waves"]) - most, "wave")
    rolled = words.in_order(plan)
    for name, one in rolled[:most]:
        found += _cluster(name, one)
    found += _left_out(len(rolled) - most, "cluster", "restart in the same way, each with reasons of its own")
    return found + _left_alone(plan, most)


def _lines(label: str, text: Any) -> list[str]:
    text = words.plain(text, LINE)
    return ["  {0:<8} {1}".format(label, text)] if text else []


def _left_out(count: int, what: str, they: str = "") -> list[str]:
    if count <= 0:
        return []
    they = " " + they if they else ""
    return ["... and {0}{1}: all of it is in plan.json".format(words.number_of(count, "more " + what), they)]


def _wave(wave: dict[str, Any]) -> list[str]:
    found = ["wave {0}, {1}: {2}".format(wave["number"], words.plain(wave["kind"]), words.some(wave["clusters"]))]
    found += _lines("takes", "; ".join(words.capacity(wave)))
    lasts = [words.expected(wave["expected_seconds"])]
    if wave["soak_seconds"]:
        lasts.append("with {0} of soak".format(words.span(wave["soak_seconds"])))
    if wave["pause_after"]:
        lasts.append("then the roll pauses")
    return found + _lines("lasts", ", ".join(lasts))


def _cluster(name: str, one: dict[str, Any]) -> list[str]:
    head = "cluster {0}, wave {1}: {2}".format(words.plain(name), one["wave"], words.stages(one))
    if one["generation"] is not None:
        head += ", generation {0}".format(one["generation"])
    if words.span(one["expected_seconds"]):
        head += ", " + words.expected(one["expected_seconds"])
    found = [head]
    if one["condition"] != "serves":
        found += _lines(words.plain(one["condition"]), one["evidence"] or "it does not serve")
    for reason in [one["why"]] if one["why"] else one["due"]:
        found += _lines("why", reason)
    if one["scope"]:
        found += _lines("scope", "{0}: {1}".format(one["scope"].get("rule", ""), one["scope"].get("reason", "")))
    for row in one["restarts"]:
        text = "{0:<8} {1:<8} {2}: {3}".format(*map(words.plain, (row["role"], row["action"], words.unit_on(row))), "")
        found.append("  " + text + words.plain(row["reason"], LINE))
    for row in words.alike(one["settings"]):
        found += _lines("setting", setting(row))
    for text in one["warnings"]:
        found += _lines("warning", text)
    return found


def setting(row: dict[str, Any]) -> str:
    """Return a setting that is not live in one line."""
    change = "{0} runs, {1} is deployed".format(row["running"] or "nothing", row["deployed"] or "nothing")
    found = "{0} {1} ({2}): {3}; {4}".format(
        row["state"],
        row["setting"],
        row["carrier"],
        change if row["running"] != row["deployed"] else row["deployed"],
        words.some(row["where"], 3),
    )
    return found + ("; " + row["evidence"] if row["evidence"] else "")


def _left_alone(plan: dict[str, Any], most: int) -> list[str]:
    groups = words.left_alone(plan)
    found = ["not restarted"] if groups else []
    for decision, why, names in groups[:most]:
        text = "{0}: {1}".format(words.NOT_RESTARTED.get(decision, decision), why or "the plan does not say why")
        label = words.number_of(len(names), "cluster")
        found.append("  {0}, {1}: {2}".format(label, words.plain(text, LINE), words.some(names)))
    return found + _left_out(sum(len(names) for _decision, _why, names in groups[most:]), "cluster", "are left alone")
