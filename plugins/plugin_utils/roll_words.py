# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What terminals, comments, pages and test results say of a roll in the same words. Pure.

Everything of a plan and of events goes through :func:`plain` or :func:`lines` before anybody reads it: hosts say
what they like, and what they say may hold what a terminal obeys or what looks like a secret.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _redact
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import STAGES
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import report

GO, NOTHING, REFUSED = "go", "nothing", "refused"
#: What a plan decides of a cluster.
ROLL, SKIP, MAINTENANCE = "roll", "skip", "maintenance"
DECISIONS = (ROLL, REFUSED, MAINTENANCE, SKIP)
#: Of those that are not restarted, in words.
NOT_RESTARTED = {REFUSED: "refused", MAINTENANCE: "in maintenance", SKIP: "skipped"}

#: What takes a character's place that a terminal would obey, or that no XML may hold.
REPLACED = "\ufffd"
#: Setting or carrier whose value is shown to nobody, whoever let it through.
_SECRET_NAME = re.compile(r"(?:^|[\W_])(?:key|token|password|secret)s?$", re.IGNORECASE)

_PLAN: dict[str, Any] = {
    "roll": "",
    "made_at": None,
    "owner": "",
    "purpose": "",
    "decision": "",
    "problems": [],
    "warnings": [],
    "options": {},
    "expected_seconds": None,
    "waves": [],
    "clusters": {},
}
_PROBLEM = {"rule": "", "message": "", "host": "", "variable": ""}
_WAVE: dict[str, Any] = {
    "number": 0,
    "kind": "batch",
    "clusters": [],
    "hosts": [],
    "soak_seconds": 0,
    "expected_seconds": None,
    "pause_after": False,
    "unavailable": {},
}
_CLUSTER: dict[str, Any] = {
    "model": "",
    "domains": [],
    "hosts": [],
    "condition": "unknown",
    "evidence": "",
    "decision": SKIP,
    "why": "",
    "wave": 0,
    "due": [],
    "stages": [],
    "scope": {},
    "restarts": [],
    "settings": [],
    "generation": None,
    "expected_seconds": None,
    "warnings": [],
}
_RESTART = {"unit": "", "host": "", "role": "", "action": "restart", "reason": ""}
_SETTING = {
    "host": "",
    "unit": "",
    "setting": "",
    "carrier": "",
    "deployed": "",
    "running": "",
    "state": "",
    "evidence": "",
}


# -- plans -----------------------------------------------------------------------------------


def whole(plan: dict[str, Any] | None) -> dict[str, Any]:
    """Return a plan in which every key is there that is documented, also one of another version or none at all."""
    found = _filled(_PLAN, plan)
    found["problems"] = [_filled(_PROBLEM, one) for one in found["problems"]]
    found["waves"] = [_filled(_WAVE, one) for one in found["waves"]]
    found["clusters"] = {name: _cluster(one) for name, one in found["clusters"].items()}
    return found


def _filled(wanted: dict[str, Any], given: Any) -> dict[str, Any]:
    given = given if isinstance(given, dict) else {}
    # None stands for "not known", which of most keys is the same as nothing.
    return {**given, **{key: value if given.get(key) is None else given[key] for key, value in wanted.items()}}


def _cluster(given: Any) -> dict[str, Any]:
    one = _filled(_CLUSTER, given)
    one["restarts"] = [_filled(_RESTART, row) for row in one["restarts"]]
    one["restarts"].sort(key=lambda row: STAGES.index(row["role"]) if row["role"] in STAGES else len(STAGES))
    one["settings"] = [shown_setting(_filled(_SETTING, row)) for row in one["settings"]]
    return one


def shown_setting(row: dict[str, Any]) -> dict[str, Any]:
    """Return a setting that is not live as it may be shown: without the values of what is named like a secret."""
    if not any(_SECRET_NAME.search(str(row[key])) for key in ("setting", "carrier")):
        return row
    hidden = {key: _redact.HIDDEN for key in ("deployed", "running") if row[key] not in ("", None)}
    return dict(row, **hidden)


def in_order(plan: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the clusters that a plan restarts, by name, in the order of its waves."""
    clusters = plan["clusters"]
    ordered = [name for wave in plan["waves"] for name in wave["clusters"] if name in clusters]
    rolled = [name for name, one in clusters.items() if one["decision"] == ROLL]
    return [(name, clusters[name]) for name in dict.fromkeys([*ordered, *rolled])]


def left_alone(plan: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Return the clusters that a plan does not restart, those together that are left alone for the same reason.

    :return: what the plan decides of them, why, their names; refused ones first, then as many as there are.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name, one in plan["clusters"].items():
        if one["decision"] != ROLL:
            groups.setdefault((one["decision"], str(one["why"])), []).append(name)
    places = {decision: place for place, decision in enumerate(DECISIONS)}
    ranked = sorted(groups.items(), key=lambda one: (places.get(one[0][0], len(places)), -len(one[1])))
    return [(decision, why, names) for (decision, why), names in ranked]


def alike(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return settings with ``where``: one row for all units of a cluster in which the same differs in the same way."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in settings:
        key = tuple(str(row[one]) for one in ("setting", "carrier", "deployed", "running", "state", "evidence"))
        groups.setdefault(key, []).append(row)
    return [dict(rows[0], where=[unit_on(row) for row in rows]) for rows in groups.values()]


def unit_on(row: dict[str, Any]) -> str:
    """Return a unit and its host."""
    return "{0} on {1}".format(row["unit"], row["host"]) if row["host"] else str(row["unit"])


def capacity(wave: dict[str, Any]) -> list[str]:
    """Return what a wave takes away, for each model and each domain: ``deepseek-v4: 1 of 6 clusters, at most 1``."""
    found = []
    for kind, prefix in (("models", ""), ("domains", "domain ")):
        for name, one in (wave["unavailable"].get(kind) or {}).items():
            words = "{0}{1}: {2} of {3} clusters".format(prefix, name, one.get("clusters", "?"), one.get("of", "?"))
            found.append(words + ("" if one.get("most") is None else ", at most {0}".format(one["most"])))
    return found


def chosen(options: dict[str, Any]) -> list[str]:
    """Return the options of a roll that say something: ``max_unavailable 1``, ``canary a, b``."""
    found = []
    for name, value in options.items():
        if value in ("", None, False) or value == []:
            continue
        words = some(value) if isinstance(value, list) else "" if value is True else str(value)
        found.append("{0} {1}".format(name, words).strip())
    return found


def counts(plan: dict[str, Any]) -> str:
    """Return how many clusters a plan restarts and how many it leaves alone, and why, in one line."""
    decisions = [one["decision"] for one in plan["clusters"].values()]
    rolled = decisions.count(ROLL)
    if not decisions:
        return "no cluster"
    words = "{0} of {1} restart{2}".format(
        "{0:,}".format(rolled) if rolled else "none", number_of(len(decisions), "cluster"), "" if rolled > 1 else "s"
    )
    if plan["waves"]:
        words += " in {0}".format(number_of(len(plan["waves"]), "wave"))
    others = ["{0} {1}".format(decisions.count(one), name) for one, name in NOT_RESTARTED.items() if one in decisions]
    return ", ".join([words, *others])


# -- words -----------------------------------------------------------------------------------


def plain(value: Any, most: int = 0) -> str:
    """Return a value as one line: nothing that a terminal obeys, nothing that looks like a secret.

    :param most: characters, 0 for all; what is cut off is counted.
    """
    return _bounded(" ".join(lines(value, 0).split()), most)


def lines(value: Any, most: int = 0) -> str:
    """Return a value as text whose lines are kept, else as :func:`plain` does."""
    text = "" if value is None else str(value)
    text = "".join(one if one.isprintable() or one == "\n" else _instead(one) for one in text.replace("\r\n", "\n"))
    text = _redact.redact(text, [])
    return _bounded(text.strip("\n"), most)


def _instead(character: str) -> str:
    # Other spaces than the usual one are not printable to Python.
    return " " if character == "\t" or unicodedata.category(character) == "Zs" else REPLACED


def _bounded(text: str, most: int) -> str:
    if not most or len(text) <= most:
        return text
    return "{0} … ({1:,} more characters)".format(text[:most].rstrip(), len(text) - most)


def number_of(count: int, what: str) -> str:
    """Return a count and its noun: ``1 cluster``, ``1,000 clusters``."""
    return "{0:,} {1}{2}".format(count, what, "" if count == 1 else "s")


def some(names: Iterable[Any], most: int = 8) -> str:
    """Return names in one line; where there are many, the first ones and how many more."""
    given = [plain(one) for one in names]
    if len(given) <= most + 1:
        return ", ".join(given)
    return "{0} and {1:,} more".format(", ".join(given[:most]), len(given) - most)


def span(seconds: Any) -> str:
    """Return a duration in its two largest units: ``45 s``, ``3 min 10 s``, ``2 h 5 min``, ``3 d 4 h``; "" for none."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e12:
        return ""
    if seconds < 10 and seconds != int(seconds):
        return "{0:.1f} s".format(seconds)
    left = round(seconds)
    for size, unit, smaller, smaller_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if left >= size:
            rest = left % size // smaller
            words = "{0} {1}".format(left // size, unit)
            return words + (" {0} {1}".format(rest, smaller_unit) if rest else "")
    return "{0} s".format(left)


def expected(seconds: Any) -> str:
    """Return how long something is expected to take."""
    return "about " + span(seconds) if span(seconds) else "not known, no past run tells"


def utc(at: Any) -> str:
    """Return a moment (seconds since the epoch) in UTC as text, "" for none."""
    text = report.utc(at if isinstance(at, (int, float)) else None)
    return text + " UTC" if text else ""


def stages(one: dict[str, Any]) -> str:
    """Return which stages of a cluster restart: ``prefill, decode, router restart``."""
    named = ", ".join(map(plain, one["stages"])) or "no stage"
    return "{0} restart{1}".format(named, "" if len(one["stages"]) > 1 else "s")
