# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge an observation by the rule set of :mod:`_hypotheses`, and say it in words. Pure."""

from __future__ import annotations

import difflib
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _facts, _hypotheses, _metrics
from ansible_collections.inferops.sglang_pd.plugins.module_utils._facts import Fact
from ansible_collections.inferops.sglang_pd.plugins.module_utils._hypotheses import HYPOTHESES, Hypothesis

#: What became of a hypothesis.
HOLDS = "holds"
#: It holds, as the consequence of another one.
FOLLOWS = "follows"
RULED_OUT = "ruled out"
#: What it needs was not seen.
OPEN = "open"

#: Points from which on a hypothesis that holds is called so.
CONFIDENCES = ((4, "certain"), (2, "likely"), (0, "possible"))


def diagnose(observation: dict[str, Any], hunch: str = "") -> dict[str, Any]:
    """Return the diagnosis of one cluster.

    :param observation: see :mod:`_observations`.
    :param hunch: what the operator suspects, in their words; it is answered by name.
    :return: ``cluster``, ``verdict`` (name), ``title``, ``confidence``, ``healthy``, ``evidence_for``,
        ``evidence_against``, ``remedy``, ``command``, ``hunch`` (``asked``, ``answer``), ``hypotheses``
        (all, each with ``name``, ``title``, ``state``, ``confidence``, ``evidence_for``,
        ``evidence_against``, ``why``, ``remedy``), ``members`` (what was seen of each, as lines).
    """
    facts = _facts.facts_of(observation)
    judged = [_judge(one, facts, observation["cluster"]) for one in HYPOTHESES]
    _mark_consequences(judged)
    holding = [one for one in judged if one["state"] == HOLDS]
    verdict = holding[0] if holding else _unknown(observation, facts)
    return {
        "cluster": observation["cluster"],
        "verdict": verdict["name"],
        "title": verdict["title"],
        "confidence": verdict["confidence"],
        "healthy": verdict["name"] == _hypotheses.HEALTHY,
        "evidence_for": verdict["evidence_for"],
        "evidence_against": verdict["evidence_against"],
        "remedy": verdict["remedy"],
        "command": verdict["command"],
        "hunch": {"asked": hunch, "answer": _answer(hunch, judged, facts)},
        "hypotheses": judged,
        "members": [_shown(observation, member) for member in observation["members"]],
    }


def _judge(one: Hypothesis, facts: dict[str, Fact], cluster: str) -> dict[str, Any]:
    missing = [facts[name] for name in (*one.needs, *one.not_without) if facts[name].holds is False]
    excluding = [facts[name] for name in one.excluded_by if facts[name].holds]
    unseen = [facts[name] for name in one.needs if facts[name].holds is None]
    supporting = [name for name, _weight in one.speaks_for if facts[name].holds]
    opposing = [name for name, _weight in one.speaks_against if facts[name].holds]
    points = sum(weight for name, weight in one.speaks_for if facts[name].holds)
    points -= sum(weight for name, weight in one.speaks_against if facts[name].holds)
    if missing or excluding:
        state, why = RULED_OUT, _joined([*excluding, *missing])
    elif unseen:
        state, why = OPEN, _joined(unseen)
    else:
        state, why = HOLDS, ""
    subject = next((facts[name].subject for name in one.needs if facts[name].subject), "")
    return {
        "name": one.name,
        "title": one.title,
        "state": state,
        "confidence": next(word for least, word in CONFIDENCES if max(points, 0) >= least),
        "evidence_for": _words([*one.needs, *supporting], facts) if state == HOLDS else [],
        "evidence_against": _words(opposing, facts) if state == HOLDS else [],
        "why": why,
        "remedy": one.remedy,
        "command": one.command.format(cluster=cluster, subject=subject).replace(
            "UNIT", subject.split(" ")[0] if subject else "UNIT"
        ),
    }


def _words(names: list[str], facts: dict[str, Fact]) -> list[str]:
    """Return the words of facts, each once: facts share evidence."""
    found: list[str] = []
    for name in names:
        words = facts[name].words
        if words and not any(words in other for other in found):
            found = [other for other in found if other not in words] + [words]
    return found


def _joined(facts: list[Fact]) -> str:
    return "; ".join(dict.fromkeys(fact.words for fact in facts if fact.words))


def _mark_consequences(judged: list[dict[str, Any]]) -> None:
    by_name = {one["name"]: one for one in judged}
    for hypothesis in HYPOTHESES:
        one = by_name[hypothesis.name]
        causes = [name for name in hypothesis.explained_by if by_name[name]["state"] in (HOLDS, FOLLOWS)]
        if one["state"] == HOLDS and causes:
            one["state"] = FOLLOWS
            one["why"] = "a consequence of: {0}".format(by_name[causes[0]]["title"])


def _unknown(observation: dict[str, Any], facts: dict[str, Fact]) -> dict[str, Any]:
    lacking = [facts[name] for name in ("engines_answer", "router_as_planned") if facts[name].holds is not True]
    words = [fact.words for fact in lacking if fact.words] or [facts["kv_path_suffers"].words]
    return {
        "name": _hypotheses.UNKNOWN,
        "title": "too little was seen for a verdict",
        "confidence": CONFIDENCES[-1][1],
        "evidence_for": words,
        "evidence_against": [],
        "remedy": "Look again on all hosts of the cluster, longer, and with one request:",
        "command": _hypotheses.AGAIN_WITH_REQUEST.format(cluster=observation["cluster"]),
    }


def _answer(hunch: str, judged: list[dict[str, Any]], facts: dict[str, Fact]) -> str:
    """Return what became of what the operator suspects."""
    if not hunch:
        return ""
    name = _named(hunch)
    if name is None:
        known = sorted({word for one in HYPOTHESES for word in (one.name, *one.hunches)})
        near = difflib.get_close_matches(hunch.lower(), known, n=3, cutoff=0.4)
        return "No rule is about that{0}. All rules are listed below.".format(
            "; did you mean {0}?".format(" or ".join(near)) if near else ""
        )
    hypothesis, one = next(pair for pair in zip(HYPOTHESES, judged) if pair[0].name == name)
    words = "{0} ({1}): {2}".format(one["name"], one["title"], one["state"])
    if one["state"] == HOLDS:
        words += ", {0}; {1}".format(one["confidence"], "; ".join(one["evidence_for"]))
    else:
        words += " because: " + one["why"]
    # Somebody who suspects it wants to hear of what speaks against it, whichever way that turned out.
    for fact in [facts[fact] for fact, _weight in hypothesis.speaks_against]:
        if fact.holds is not None and fact.words not in words:
            words += "; " + fact.words
    return words


def _named(hunch: str) -> str | None:
    """Return the hypothesis that the operator's words name best."""
    asked = " ".join(hunch.lower().replace("_", " ").replace("-", " ").split())
    best: tuple[int, str] = (0, "")
    for one in HYPOTHESES:
        for word in (one.name.replace("_", " "), *one.hunches):
            plain = word.replace("-", " ")
            if " {0} ".format(plain) in " {0} ".format(asked) and len(plain) > best[0]:
                best = (len(plain), one.name)
    return best[1] or None


def _shown(observation: dict[str, Any], member: dict[str, Any]) -> str:
    """Return what was seen of a member, as one line."""
    parts = [member["where"]]
    state = member["state"]
    if state:
        parts.append("{0} ({1})".format(state.get("active_state"), state.get("sub_state")))
        if state.get("started_at"):
            age = max(0.0, _facts.moment(observation) - float(state["started_at"]))
            parts.append("started {0} ago".format(_facts.duration(age)))
    for endpoint in ("health", "readiness"):
        answer = member["answers"].get(endpoint)
        if answer is not None:
            parts.append("/{0} {1}".format(endpoint, answer["status"] or answer["error"] or "no answer"))
    if member["samples"]:
        parts.append(_metrics.describe(member["samples"][-1]))
    return ", ".join(parts)


def describe(report: dict[str, Any]) -> list[str]:
    """Return a diagnosis as lines for people: the verdict, the evidence, what to do; then what was ruled out."""
    lines = [
        "cluster {cluster}: {0}{title} ({confidence})".format("" if report["healthy"] else "NOT WELL: ", **report)
        if report["verdict"] not in (_hypotheses.UNPROVEN, _hypotheses.UNKNOWN)
        else "cluster {cluster}: {title}".format(**report)
    ]
    lines += ["  + " + words for words in report["evidence_for"]]
    lines += ["  - " + words for words in report["evidence_against"]]
    lines.append("  What to do: " + report["remedy"])
    lines += ["    " + line for line in report["command"].splitlines()]
    if report["hunch"]["asked"]:
        lines.append("  You suspected {asked!r}: {answer}".format(**report["hunch"]))
    others = [one for one in report["hypotheses"] if one["name"] != report["verdict"]]
    for state, title in (
        (HOLDS, "Holds as well"),
        (FOLLOWS, "Follows from it"),
        (RULED_OUT, "Ruled out, because"),
        (OPEN, "Not seen enough to say"),
    ):
        of_state = [one for one in others if one["state"] == state]
        if of_state:
            lines.append("  {0}:".format(title))
        # What has the same reason is said once.
        by_reason: dict[str, list[str]] = {}
        for one in of_state:
            words = "; ".join(one["evidence_for"]) if state == HOLDS else one["why"]
            by_reason.setdefault(words, []).append(one["name"])
        lines += ["    {0}: {1}".format(", ".join(names), words) for words, names in by_reason.items()]
    lines.append("  Seen:")
    lines += ["    " + line for line in report["members"]]
    return lines
