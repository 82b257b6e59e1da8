# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verification or a diagnosis of one cluster as one HTML page, which needs no network and no script.

A page is made of named fields only, never of all that was seen; everything on it is escaped, since it comes
from hosts or from a bundle of anywhere. The templates are in ``report_page``.
"""

from __future__ import annotations

import functools
import os
import time
import urllib.parse
from typing import Any

import jinja2
from ansible.errors import AnsibleActionFail
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _baseline,
    _diagnosis,
    _facts,
    _hypotheses,
    _ledger,
    _metrics,
    _profiles,
    _redact,
    _series,
    _verify,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER, STAGES
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import pictures
from markupsafe import Markup

#: How a row of a table, or the page's verdict, looks.
GOOD, BAD, NOTE, QUIET = "good", "bad", "note", "quiet"

_STATES = {
    _diagnosis.HOLDS: BAD,
    _diagnosis.FOLLOWS: NOTE,
    _diagnosis.OPEN: NOTE,
    _diagnosis.RULED_OUT: QUIET,
}
_OUTCOMES = {_verify.OK: GOOD, _verify.FAILED: BAD, _verify.SKIPPED: NOTE}


# -- files -----------------------------------------------------------------------------------


def file_name(kind: str, cluster: str, ending: str) -> str:
    """Return the name of a report's file; a bundle may give its cluster any name."""
    return "{0}-{1}.{2}".format(kind, urllib.parse.quote(cluster, safe=" "), ending)


def write(directory: str, files: dict[str, str], variable: str) -> list[str]:
    """Write files on the controller, each at once or not at all; return their paths.

    :param files: content by name.
    :param variable: that named the directory.
    """
    paths = []
    try:
        os.makedirs(directory, exist_ok=True)
        for name, text in files.items():
            path = os.path.join(directory, name)
            # Half a character, which JSON of a host may hold, is none of UTF-8.
            with open(path + ".new", "w", encoding="utf-8", errors="replace") as target:
                target.write(text)
            os.replace(path + ".new", path)
            paths.append(path)
    except OSError as trouble:
        raise AnsibleActionFail("{0} {1} cannot be written: {2}".format(variable, directory, trouble)) from trouble
    return paths


# -- incarnations ----------------------------------------------------------------------------


def incarnation(
    cluster: str,
    member: dict[str, Any],
    state: dict[str, Any] | None,
    ledger: dict[str, Any] | None,
    history: Any = None,
) -> dict[str, Any]:
    """Return what a page tells of the incarnation of a member.

    :param member: ``unit``, ``host``, ``role``.
    :param state: of the unit.
    :param history: its ``starts`` and ``ends`` in the journal, None where nobody looked.
    """
    state, ledger, history = state or {}, ledger or {}, history or {}
    unit = member["unit"]
    name = unit[: -len(".service")] if unit.endswith(".service") else unit
    prefix = "sglang-{0}-".format(cluster)
    name = name[len(prefix) :] if name.startswith(prefix) else name
    invocation = str(state.get("invocation_id") or "")
    generation = ledger.get("generation") or None
    return {
        "unit": unit,
        "host": member["host"],
        "name": "{0} on {1}".format(name, member["host"]) if member["host"] else name,
        "role": member["role"] if member["role"] in STAGES else "other",
        "active_state": str(state.get("active_state") or "unknown"),
        "runs": state.get("active_state") in ("active", "activating", "reloading"),
        "started_at": state.get("started_at") or None,
        "invocation_id": invocation,
        "generation": generation,
        # None where no co-restart is on record.
        "on_record": ledger.get("incarnation") == invocation if generation else None,
        "outcome": str(ledger.get("outcome") or "not at its end"),
        "starts": [one["at"] for one in history.get("starts", [])],
        "ends": history.get("ends", []),
    }


def order(incarnations: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return who is newer than whom, in words: ``look`` and ``words``."""
    lines = []
    known = [one for one in incarnations if one["started_at"] is not None]
    unknown = [one["name"] for one in incarnations if one["started_at"] is None]
    if unknown:
        lines.append((NOTE, "Not known when it was started: {0}.".format(", ".join(unknown))))
    for older, newer in ((PREFILL, DECODE), (DECODE, ROUTER)):
        before = sorted((one for one in known if one["role"] == older), key=lambda one: one["started_at"])
        after = sorted((one for one in known if one["role"] == newer), key=lambda one: one["started_at"])
        if not before or not after:
            continue
        last = before[-1]
        early = [one for one in after if one["started_at"] < last["started_at"]]
        for one in early:
            apart = pictures.ago(last["started_at"] - one["started_at"])
            # A router may be older: it does not hold anything of an engine's incarnation.
            look = BAD if newer == DECODE else QUIET
            lines.append((look, "{0} is {1} older than {2}.".format(one["name"], apart, last["name"])))
        for one in [one for one in after if one not in early][-1:]:
            apart = pictures.ago(one["started_at"] - last["started_at"])
            lines.append((QUIET, "{0} is {1} newer than {2}.".format(one["name"], apart, last["name"])))
    for one in incarnations:
        if one["on_record"] is False:
            words = "{0} is not on record of generation {1}: that did not end, or something else started it."
            lines.append((BAD, words.format(one["name"], one["generation"])))
        elif one["on_record"] and one["outcome"] != _ledger.OK:
            lines.append((NOTE, "{0}: its last co-restart is {1}.".format(one["name"], one["outcome"])))
    generations = sorted({one["generation"] for one in incarnations if one["generation"]})
    if len(generations) > 1:
        # A co-restart of the routers alone makes a generation of theirs.
        lines.append((QUIET, "They are of generations {0}.".format(", ".join(str(one) for one in generations))))
    elif incarnations and all(one["on_record"] and one["outcome"] == _ledger.OK for one in incarnations):
        lines.append((GOOD, "All are as the co-restart of generation {0} left them.".format(generations[0])))
    return [{"look": look, "words": words} for look, words in lines]


def _life(incarnations: list[dict[str, Any]], now: float) -> dict[str, Any]:
    """Return what the page's section on incarnations shows: ``order``, ``picture``, ``rows``."""
    ranked = sorted(incarnations, key=lambda one: (one["started_at"] is None, one["started_at"] or 0))
    rows = []
    for rank, one in enumerate(ranked, start=1):
        started = one["started_at"]
        earlier = ranked[rank - 2]["started_at"] if rank > 1 else None
        generation = "no co-restart on record"
        if one["generation"]:
            words = "generation {0}" if one["on_record"] else "not on record of generation {0}"
            generation = words.format(one["generation"])
        rows.append(
            {
                "rank": rank if started is not None else "",
                "role": one["role"],
                "where": "{0} on {1}".format(one["unit"], one["host"]) if one["host"] else one["unit"],
                "state": one["active_state"],
                "started": utc(started),
                "after": "{0} after number {1}".format(pictures.ago(started - earlier), rank - 1)
                if started is not None and earlier is not None
                else "",
                "generation": generation,
                "invocation": one["invocation_id"][:8],
                "look": BAD if one["on_record"] is False else QUIET,
            }
        )
    return {"order": order(incarnations), "picture": pictures.timeline(incarnations, now), "rows": rows}


def utc(at: float | None) -> str:
    """Return a moment (seconds since the epoch) in UTC as text, "" for none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at)) if at else ""
    except (OverflowError, ValueError, OSError):
        return ""


# -- pages -----------------------------------------------------------------------------------


def verify_page(content: dict[str, Any]) -> str:
    """Return the page of a verification.

    :param content: what ``verify-CLUSTER.json`` holds: the result of :func:`_verify.report`, and
        ``cluster``, ``written_at`` (seconds since the epoch), ``incarnations`` (see :func:`incarnation`).
    """
    good = content["outcome"] == _verify.OK
    # A stream that its client left has no answer.
    answered = [part for part in content["parts"] if part["part"] != _profiles.ABORTS]
    wanted, served = (sum(part[key] for part in answered) for key in ("wanted", "good"))
    engines = [
        dict(one, name=name, look=GOOD if one["verdict"] in _series.GOOD else BAD)
        for name, one in content["series"].items()
    ]
    return render(
        "verify.html.j2",
        cluster=content["cluster"],
        look=GOOD if good else BAD,
        title="It serves" if good else "Verification failed",
        summary="{0} of {1} answers are good. No engine holds a stuck request.".format(served, wanted) if good else "",
        failures=content["failures"],
        command="" if good else _hypotheses.AGAIN.format(cluster=content["cluster"]),
        profile=content["profile"],
        revision=content.get("revision", ""),
        written=utc(content["written_at"]),
        life=_life(content["incarnations"], content["written_at"]),
        rules=_rules_of_verify(content),
        engines=_watched(engines),
        latencies=[_latency_of(part, content["regressions"]) for part in content["parts"]],
        failed=[dict(one, part=part["part"]) for part in content["parts"] for one in part["failed"]],
    )


def _rules_of_verify(content: dict[str, Any]) -> list[dict[str, str]]:
    """Return each thing that had to hold: ``look``, ``state``, ``rule``, ``evidence``."""
    rows = []
    for part in content["parts"]:
        evidence = part["why"] or "{0} of {1} ({2})".format(part["good"], part["wanted"], part["shape"])
        if part["dropped"]:
            evidence += "; {0} left by their client".format(part["dropped"])
        must = "most streams are taken" if part["part"] == _profiles.ABORTS else "every answer is good"
        rule = "{0}: {1}".format(part["part"].replace("_", " "), must)
        rows.append((_OUTCOMES.get(part["outcome"], NOTE), part["outcome"], rule, evidence))
    for name, one in content["series"].items():
        look = GOOD if one["verdict"] in _series.GOOD else BAD
        evidence = one["why"]
        if one.get("transfers_failed"):
            evidence += "; {0:g} transfers failed".format(one["transfers_failed"])
        rows.append((look, one["verdict"], "{0} holds no stuck request".format(name), evidence))
    anew = [name for name, one in content["series"].items() if _series.restarted(one["samples"])]
    if content["series"]:
        rows.append(
            (BAD if anew else GOOD, "failed" if anew else "ok", "no engine was started anew meanwhile", ", ".join(anew))
        )
    if content["recovery"]:
        recovered = content["recovery"]["recovered"]
        evidence = "{0} s after the storm".format(content["recovery"]["seconds"])
        rule = "the queues come back after the abort storm"
        rows.append((GOOD if recovered else BAD, "ok" if recovered else "failed", rule, evidence))
    for row in content["regressions"]:
        state = (NOTE, "slower") if row["regression"] else (GOOD, "ok")
        rule = "{0} is as fast as the baseline".format(row["part"])
        rows.append((*state, rule, _baseline.describe(row).partition(": ")[2]))
    return [dict(zip(("look", "state", "rule", "evidence"), row)) for row in rows]


def _latency_of(part: dict[str, Any], regressions: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = part["latency"]
    key = _baseline.key(part["part"], part["shape"])
    stored: dict[str, Any] = next((row["then"] for row in regressions if row["part"] == key), {})
    marks = {"median": numbers["median"], "p95": numbers["p95"], "median before": stored.get("median")}
    return {
        "name": part["part"].replace("_", " "),
        "count": numbers["count"],
        "numbers": [pictures.seconds(numbers[key]) for key in ("median", "p95", "maximum")],
        "words": [
            words.format(value)
            for words, value in (
                ("first token after {0} (median)", pictures.seconds(part["first_token"]["median"])),
                ("cold, and not among these: {0}", ", ".join(pictures.seconds(one) for one in part["cold_seconds"])),
                ("slower than the baseline's slowest: {0}", part["slow"]),
            )
            if value
        ],
        "picture": pictures.histogram(part["histogram"], marks),
    }


def diagnose_page(report: dict[str, Any], observation: dict[str, Any]) -> str:
    """Return the page of a diagnosis.

    :param report: of :func:`_diagnosis.diagnose`.
    :param observation: what it judged, see :mod:`_observations`.
    """
    cluster, now = report["cluster"], _facts.moment(observation)
    unsure = report["verdict"] in (_hypotheses.UNPROVEN, _hypotheses.UNKNOWN)
    incarnations = [
        incarnation(cluster, member, member["state"], member["ledger"], member["history"])
        for member in observation["members"]
    ]
    engines = [
        {"name": member["where"], "role": member["role"], "samples": member["samples"], "verdict": "", "look": QUIET}
        for member in observation["members"]
        if member["role"] in (PREFILL, DECODE)
    ]
    return render(
        "diagnose.html.j2",
        cluster=cluster,
        look=GOOD if report["healthy"] else NOTE if unsure else BAD,
        title=report["title"][:1].upper() + report["title"][1:],
        report=report,
        confidence="" if unsure else report["confidence"],
        written=utc(now),
        life=_life(incarnations, now),
        rules=_rules_of_diagnosis(report),
        engines=_watched(engines),
        latencies=[one for one in map(_latency_since_start, observation["members"]) if one["count"]],
        unreachable=sorted(observation["unreachable"].items()),
    )


def _rules_of_diagnosis(report: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rules, the verdict first: ``look``, ``state``, ``rule``, ``name``, ``evidence``."""
    places = {state: place for place, state in enumerate(_STATES)}
    rows = []
    for one in sorted(report["hypotheses"], key=lambda one: (one["name"] != report["verdict"], places[one["state"]])):
        holds = one["state"] == _diagnosis.HOLDS
        good = one["name"] == _hypotheses.HEALTHY and holds
        rows.append(
            {
                "look": GOOD
                if good
                else NOTE
                if one["name"] == _hypotheses.UNPROVEN and holds
                else _STATES[one["state"]],
                "state": "not seen" if one["state"] == _diagnosis.OPEN else one["state"],
                "name": one["name"],
                "rule": one["title"],
                "evidence": _because(one, report),
            }
        )
    return rows


def _because(one: dict[str, Any], report: dict[str, Any]) -> str:
    if one["name"] == report["verdict"]:
        return "the verdict; its evidence is above"
    return "; ".join(one["evidence_for"]) if one["state"] == _diagnosis.HOLDS else str(one["why"])


def _latency_since_start(member: dict[str, Any]) -> dict[str, Any]:
    """Return how long requests took since a process was started, by the buckets of its ``/metrics``."""
    limits = {}
    for name, value in (member["totals"] or {}).items():
        if name.startswith(_metrics.LATENCY_BUCKETS + " "):
            limits[float(name.rsplit(" ", 1)[1])] = value
    counts, below = [], 0.0
    for limit in sorted(limits):
        text = "more" if limit == float("inf") else "{0:g} s".format(limit)
        counts.append((text, limits[limit] - below))
        below = limits[limit]
    return {
        "name": member["where"],
        "count": pictures.number(below) if below else "",
        "picture": pictures.steps(counts),
    }


def _watched(engines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the pictures of all engines over the same time.

    :return: ``seconds`` (how long it is, as text, "" for one moment), ``engines``.
    """
    moments = [pictures.finite(sample.get("at")) for one in engines for sample in one["samples"]]
    began, ended = min(moments, default=0.0), max(moments, default=0.0)
    return {
        "seconds": "{0:.0f} s".format(ended - began) if ended > began else "",
        "engines": [dict(one, picture=pictures.curves(one["samples"], began, ended)) for one in engines],
    }


# -- templates -------------------------------------------------------------------------------


def _shown(value: Any) -> Any:
    """Return what is put in place of a template's expression: text without what looks like a secret.

    Secrets were removed on the hosts; this is for what nobody knew to be one.
    """
    return value if isinstance(value, Markup) or not isinstance(value, str) else _redact.redact(value, [])


@functools.lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.join(os.path.dirname(__file__), "report_page")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    """Return a page made from a template in ``report_page``."""
    return _templates().get_template(template).render(**values)
