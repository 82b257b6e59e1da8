# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll plan, and what a roll came to, as a comment on a merge request. Pure."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import comment, pictures, roll_account
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

#: Rows of the settings, and of the restarts, of one cluster.
ROWS = 40

_DECIDED = {
    words.GO: "✅ **go**: clusters restart",
    words.NOTHING: "✅ **nothing to do**: what runs is what should run",
    words.REFUSED: "❌ **refused**: nothing is touched",
}
_LEFT_OUT = "{0} more left out here; `plan.json` has all of them."
_LEFT_OUT_OF_RESULT = "{0} more left out here; `result.json` has all of them."


def plan_markdown(plan: dict[str, Any], most: int = comment.MOST) -> str:
    """Return a plan as Markdown.

    :param plan: what ``plan.json`` holds.
    :param most: bytes; what does not fit is counted.
    """
    plan = words.whole(plan)
    page = comment.Comment(most)
    page.add("## Roll plan {0}\n\n".format(comment.code(plan["roll"])))
    page.add(comment.head(["", ""]) + "".join(map(comment.row, _summary(plan))) + "\n")
    page.add_some([_problem(one) for one in plan["problems"]], 0.5, _LEFT_OUT, "### Refused because\n\n")
    page.add_some(
        ["- {0}\n".format(comment.prose(one)) for one in plan["warnings"]], 0.2, _LEFT_OUT, "### Warnings\n\n"
    )
    columns = ["wave", "kind", "clusters", "capacity taken away", "lasts", "soak"]
    page.add_some([_wave(one) for one in plan["waves"]], 0.3, _LEFT_OUT, "### Waves\n\n" + comment.head(columns))
    # Those that restart matter most, but must leave room for why others do not.
    rolled = [_cluster(name, one) for name, one in words.in_order(plan)]
    page.add_some(rolled, 0.8, _LEFT_OUT, "### Clusters that restart\n\n")
    alone = [_alone(*one) for one in words.left_alone(plan)]
    columns = ["clusters", "", "why", "which"]
    page.add_some(
        alone,
        0.9,
        "Clusters for {0} more reasons left out here; `plan.json` has all of them.",
        ("### Clusters that do not restart\n\n" + comment.head(columns)),
    )
    return page.text()


def _summary(plan: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("decision", _DECIDED.get(plan["decision"], comment.prose(plan["decision"]))),
        ("for", comment.prose(plan["purpose"])),
        ("by", comment.code(plan["owner"])),
        ("made", comment.prose(words.utc(plan["made_at"]))),
        ("clusters", comment.prose(words.counts(plan))),
        ("lasts", comment.prose(words.expected(plan["expected_seconds"])) if plan["waves"] else ""),
        ("bounds", comment.some(words.chosen(plan["options"]), 12)),
    ]
    return [row for row in rows if row[1]]


def _problem(one: dict[str, Any]) -> str:
    where = [("host", one["host"]), ("variable", one["variable"]), ("rule", one["rule"])]
    named = ", ".join("{0} {1}".format(what, comment.code(value)) for what, value in where if value)
    return "- ❌ {0}{1}\n".format(comment.prose(one["message"], 2000), " ({0})".format(named) if named else "")


def _wave(one: dict[str, Any]) -> str:
    return comment.row(
        [
            comment.prose(one["number"]),
            comment.prose(one["kind"]) + (", then a pause" if one["pause_after"] else ""),
            comment.some(one["clusters"]),
            comment.prose("; ".join(words.capacity(one))),
            comment.prose(words.expected(one["expected_seconds"])),
            words.span(one["soak_seconds"]),
        ]
    )


def _cluster(name: str, one: dict[str, Any]) -> str:
    lasts = words.expected(one["expected_seconds"]) if words.span(one["expected_seconds"]) else ""
    about = [
        "wave {0}".format(one["wave"]),
        words.stages(one),
        "" if one["generation"] is None else "generation {0}".format(one["generation"]),
        lasts,
        "" if one["condition"] == "serves" else "condition: {0}".format(words.plain(one["condition"])),
    ]
    summary = "<b>{0}</b>: {1}".format(comment.as_html(name), comment.as_html(", ".join(filter(None, about))))
    return comment.details(summary, "".join(_inside(one)))


def _inside(one: dict[str, Any]) -> list[str]:
    facts = [
        ("why", one["why"] or "; ".join(map(str, one["due"]))),
        ("scope", "{0}: {1}".format(one["scope"].get("rule", ""), one["scope"].get("reason", ""))),
        (one["condition"], "" if one["condition"] == "serves" else one["evidence"]),
        *(("warning", text) for text in one["warnings"]),
    ]
    if not one["scope"]:
        del facts[1]
    found = ["- {0}: {1}\n".format(comment.prose(what), comment.prose(text)) for what, text in facts if text]
    settings = words.alike(one["settings"])
    columns = ["setting", "carrier", "deployed", "running", "state", "where"]
    found += _table(columns, [_setting(row) for row in settings])
    columns = ["stage", "unit", "host", "action", "reason"]
    return found + _table(columns, [_restart(row) for row in one["restarts"]])


def _table(columns: list[str], rows: list[str]) -> list[str]:
    if not rows:
        return []
    more = ["\n*{0}*\n".format(_LEFT_OUT.format(len(rows) - ROWS))] if len(rows) > ROWS else []
    return ["\n", comment.head(columns), *rows[:ROWS], *more]


def _setting(row: dict[str, Any]) -> str:
    state = comment.prose(row["state"])
    return comment.row(
        [
            comment.code(row["setting"]),
            comment.code(row["carrier"]),
            comment.code(row["deployed"]) or "nothing",
            comment.code(row["running"]) or "nothing",
            state + (": " + comment.prose(row["evidence"]) if row["evidence"] else ""),
            comment.some(row["where"], 2),
        ]
    )


def _restart(row: dict[str, Any]) -> str:
    names = [comment.prose(row["role"]), comment.code(row["unit"]), comment.code(row["host"])]
    return comment.row([*names, comment.prose(row["action"]), comment.prose(row["reason"])])


def _alone(decision: str, why: str, names: list[str]) -> str:
    decided = words.NOT_RESTARTED.get(decision, decision)
    reason = comment.prose(why or "the plan does not say why")
    return comment.row(["{0:,}".format(len(names)), comment.prose(decided), reason, comment.some(names)])


# -- what it came to -------------------------------------------------------------------------


def summary_markdown(plan: dict[str, Any] | None, events: list[dict[str, Any]], most: int = comment.MOST) -> str:
    """Return what a roll came to as Markdown.

    :param plan: what ``plan.json`` holds, None where it is gone.
    :param events: what :func:`_roll_events.read` gave.
    :param most: bytes; what does not fit is counted.
    """
    return summary_of(roll_account.account(plan, events), most)


def summary_of(found: dict[str, Any], most: int = comment.MOST) -> str:
    """Return what a roll came to as Markdown.

    :param found: see :func:`roll_account.account`.
    """
    page = comment.Comment(most)
    sign = {"good": "✅", "bad": "❌"}.get(roll_account.look(found), "⚠️")
    page.add("## {0} {1}\n\n".format(sign, comment.prose(roll_account.title(found))))
    page.add(comment.head(["", ""]) + "".join(map(comment.row, _facts(found))) + "\n")
    for one in found["helps"]:
        page.add("{0}\n\n".format(comment.prose(one["words"], 2000)))
        page.add(comment.fenced(one["command"]) + "\n" if one["command"] else "")
    page.add_some([_problem(one) for one in found["problems"]], 0.4, _LEFT_OUT, "### Refused because\n\n")
    page.add_some([_failure(one) for one in found["failures"]], 0.5, _LEFT_OUT_OF_RESULT, "### What failed\n\n")
    columns = ["cluster", "wave", "outcome", "took", "without service", "median before", "after", "p95 before", "after"]
    told = [_told(one) for one in _telling(found)]
    page.add_some(told, 0.8, _LEFT_OUT_OF_RESULT, "### Clusters\n\n" + (comment.head(columns)))
    remaining = [comment.code(name) for name in found["remaining"]]
    page.add_some(
        _joined(remaining),
        0.9,
        _LEFT_OUT_OF_RESULT,
        ("### Remaining: {0}\n\n".format(words.number_of(len(remaining), "cluster"))),
    )
    return page.text()


def _joined(names: list[str]) -> list[str]:
    return [name + ("" if place == len(names) else ",\n") for place, name in enumerate(names, start=1)]


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    counted = [
        "{0:,} {1}".format(count, roll_account.in_words(one)) for one, count in roll_account.tally(found).items()
    ]
    began, ended = words.utc(found["began_at"]), words.utc(found["ended_at"])
    rows = [
        ("roll", comment.code(found["roll"])),
        ("for", comment.prose(found["purpose"])),
        ("by", comment.code(found["owner"])),
        ("why", comment.prose(found["why"], 2000)),
        ("clusters", comment.prose(", ".join(counted))),
        ("when", comment.prose("{0} to {1}, {2}".format(began, ended, words.span(found["seconds"]))) if began else ""),
        ("without service", comment.prose(roll_account.longest_downtime(found))),
    ]
    return [row for row in rows if row[1]]


def _failure(one: dict[str, Any]) -> str:
    where = comment.as_html(one["name"]) if one["name"] else "the soak of wave {0}".format(one["wave"])
    summary = "❌ <b>{0}</b>: {1}".format(where, comment.as_html(roll_account.state_after(one)))
    parts = [comment.fenced(one["message"])] if one["message"] else []
    for row in one["evidence"][:10]:
        parts.append("{0}:\n\n{1}".format(comment.prose(row["where"]), comment.fenced(row["message"], 2000)))
    return comment.details(summary, "\n".join(parts))


def _telling(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the clusters that have something to tell, those first that somebody wants to know of."""
    quiet = (roll_account.REMAINS, roll_account.SKIPPED, roll_account.MAINTENANCE)
    told = [one for one in found["clusters"] if one["outcome"] not in quiet]
    return sorted(told, key=lambda one: roll_account.rank(one["outcome"]))


def _told(one: dict[str, Any]) -> str:
    latencies = roll_account.latencies(one)
    numbers = [pictures.seconds(latencies[key]) for key in ("median_before", "median_after", "p95_before", "p95_after")]
    return comment.row(
        [
            comment.code(one["name"]),
            str(one["wave"] or ""),
            comment.prose(roll_account.outcome_of(one)),
            words.span(one["seconds"]),
            comment.prose(roll_account.downtime_of(one)),
            *numbers,
        ]
    )
