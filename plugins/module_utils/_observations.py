# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the items of a collection (:mod:`_bundle`) to one observation of a cluster. Pure.

Live collections and bundles come through here alike. Nothing is judged yet: see :mod:`_facts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Callable

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _bundle, _metrics
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER, STAGES

TEXT, NUMBER, TRUTH, ANY = "text", "number", "truth", "any"
#: What is kept of each kind of item. A bundle may come from anywhere: what has another type is left out.
_DEPLOYED = {
    "cluster": TEXT,
    "role": TEXT,
    "url": TEXT,
    "node_rank": NUMBER,
    "bootstrap_port": NUMBER,
    "healthy_limit_seconds": NUMBER,
    "gpus": ANY,
}
_UNIT = {
    "active_state": TEXT,
    "sub_state": TEXT,
    "result": TEXT,
    "exit_status": NUMBER,
    "invocation_id": TEXT,
    "restarts": NUMBER,
    "started_at": NUMBER,
}
_LEDGER = {"generation": NUMBER, "incarnation": TEXT, "outcome": TEXT}
_START = {"at": NUMBER, "how": TEXT}
_SETTING = {"setting": TEXT, "carrier": TEXT, "deployed": TEXT, "running": TEXT, "state": TEXT, "evidence": TEXT}
_LISTENER = {"port": NUMBER, "pid": NUMBER, "command": TEXT, "unit": TEXT}
_REACH = {"url": TEXT, "good": TRUTH, "detail": TEXT}
_NUDGE = {"good": TRUTH, "why": TEXT, "seconds": NUMBER}
_GPU = {"index": NUMBER, "utilization_percent": NUMBER, "power_watts": NUMBER}

Parse = Callable[[str], Iterable[Any]]

BREAKER_GAUGE = "smg_worker_cb_state"
#: Value of :data:`BREAKER_GAUGE` for a breaker that lets nothing through.
BREAKER_OPEN = 1


def clusters(items: list[dict[str, Any]], parse: Parse, scenario: str = "") -> dict[str, dict[str, Any]]:
    """Return the observation of each cluster that the items tell of.

    :param parse: ``prometheus_client.parser.text_string_to_metric_families``.
    :param scenario: name of the one cluster of items that do not say which cluster they are of.
    :return: by cluster: ``cluster``, ``members`` (see :func:`_member`), ``machines`` (facts of whole
        hosts by host), ``unreachable`` (why, by host), ``unseen`` (workers of routers that nobody
        looked at: ``role``, ``url``).
    """
    by_unit: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in items:
        by_unit.setdefault((one["host"], one["unit"]), []).append(one)
    machines: dict[str, dict[str, Any]] = {}
    unreachable: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for (host, unit), of_unit in sorted(by_unit.items()):
        if unit == _bundle.WHOLE_HOST:
            for one in of_unit:
                if one["endpoint"] == _bundle.MACHINE:
                    machines[host] = _machine(_object(one))
                elif one["endpoint"] == _bundle.UNREACHABLE:
                    unreachable[host] = str(_object(one).get("why", "no answer"))
            continue
        member = _member(host, unit, of_unit, parse)
        cluster = str(member["deployed"].get("cluster") or scenario or "unnamed")
        found.setdefault(cluster, {"cluster": cluster, "members": []})["members"].append(member)
    for observation in found.values():
        # One whose role is not known comes last.
        order = [*STAGES, ""]
        observation["members"].sort(key=lambda m: (order.index(m["role"]), m["where"]))
        observation["machines"] = machines
        observation["unreachable"] = unreachable
        observation["unseen"] = _unseen(observation["members"])
    return found


def _member(host: str, unit: str, items: list[dict[str, Any]], parse: Parse) -> dict[str, Any]:
    """Return one member as it was seen.

    :return: ``answers`` is the last item of each endpoint; ``samples`` the queues over time, with ``at``
        (seconds since the epoch) and ``live``; ``totals`` all counters and gauges of the last
        ``/metrics``, ``totals_at_first`` those of the first, None where that is the same one; None and empty
        where nothing was seen.
    """
    items = sorted(items, key=lambda one: one["at"] or 0)
    answers = {one["endpoint"]: one for one in items}
    deployed = _shaped(_object(answers.get(_bundle.MEMBER)), _DEPLOYED)
    info = _object(answers.get("server_info") or answers.get("get_server_info"))
    role = next((word for word in (deployed.get("role"), unit) if word in STAGES), "")
    scrapes = [] if role == ROUTER else [_totals(one, parse) for one in items if one["endpoint"] == "metrics"]
    totals = [total for total in scrapes if total is not None]
    url = str(deployed.get("url") or "")
    if not url and _is(info.get("port"), NUMBER):
        url = "http://{0}:{1:.0f}".format(info.get("host") or "127.0.0.1", info["port"])
    journal = answers.get(_bundle.JOURNAL)
    return {
        "host": host,
        "unit": unit,
        "where": "{0} on {1}".format(unit, host) if host else unit,
        "role": role,
        "url": url,
        "node_rank": int(deployed.get("node_rank") or 0),
        "deployed": deployed,
        "answers": answers,
        "state": _shaped(_object(answers.get(_bundle.UNIT)), _UNIT) or None,
        "ledger": _shaped(_object(answers.get(_bundle.LEDGER)), _LEDGER) or None,
        "history": _history(_object(answers.get(_bundle.STARTS))),
        "settings": _rows(_json(answers.get(_bundle.SETTINGS)), _SETTING),
        "listeners": _rows(_json(answers.get(_bundle.LISTENERS)), _LISTENER),
        "reach": _rows(_json(answers.get(_bundle.REACH)), _REACH),
        "nudge": _shaped(_object(answers.get(_bundle.NUDGE)), _NUDGE) or None,
        "journal": journal["body"].splitlines() if journal else [],
        "info": info,
        "workers": _workers(answers.get("workers")) if role == ROUTER else None,
        "breakers": _breakers(answers.get("metrics"), parse) if role == ROUTER else {},
        "samples": _samples(items, parse) if role in (PREFILL, DECODE) else [],
        "totals": totals[-1] if totals else None,
        "totals_at_first": totals[0] if len(totals) > 1 else None,
    }


def _samples(items: list[dict[str, Any]], parse: Parse) -> list[dict[str, Any]]:
    """Return a sample for each round: live numbers where there are any, counters from the scrape beside them.

    Of an engine that has live numbers, rounds without them are left out: gauges are of another time.
    """
    rounds: dict[float, dict[str, dict[str, Any]]] = {}
    for one in items:
        if one["endpoint"] in ("v1_loads", "metrics"):
            rounds.setdefault(one["at"] or 0.0, {})[one["endpoint"]] = one
    samples = []
    for at, of_round in sorted(rounds.items()):
        total = _totals(of_round["metrics"], parse) if "metrics" in of_round else None
        loads = of_round.get("v1_loads")
        live = _metrics.loads_sample(loads["body"].encode()) if loads and loads["status"] == 200 else None
        gauges = _metrics.sample_of(total) or {}
        if live is None and not gauges:
            continue
        stale = {name: gauges[name] for name in _metrics.QUEUES} if gauges else {}
        samples.append(dict(gauges, **(live or {}), at=at, live=live is not None, gauges=stale))
    return [sample for sample in samples if sample["live"]] or samples


def _totals(one: dict[str, Any], parse: Parse) -> dict[str, float] | None:
    if one["status"] != 200:
        return None
    # The host that scraped it may have read it already.
    if one.get("totals") is not None:
        return dict(one["totals"])
    return _metrics.totals(one["body"], parse)


def _workers(one: dict[str, Any] | None) -> list[dict[str, Any]] | None:
    """Return a router's workers, None where it does not list them."""
    listed = _object(one).get("workers")
    if not isinstance(listed, list):
        return None
    return [
        {
            "url": str(worker.get("url", "")),
            "role": str(worker.get("worker_type", "")),
            "healthy": bool(worker.get("is_healthy")),
            "model": "" if worker.get("model_id") in (None, "unknown") else str(worker["model_id"]),
        }
        for worker in listed
        if isinstance(worker, dict)
    ]


def _breakers(one: dict[str, Any] | None, parse: Parse) -> dict[str, bool]:
    """Return for each worker whether its circuit breaker is open."""
    if not one or one["status"] != 200:
        return {}
    if one.get("breakers") is not None:
        return dict(one["breakers"])
    return breakers_of(one["body"], parse)


def breakers_of(text: str, parse: Parse) -> dict[str, bool]:
    """Return for each worker of a router's ``/metrics`` whether its circuit breaker is open."""
    found: dict[str, bool] = {}
    if not _metrics.readable(text):
        return found
    try:
        for family in parse(text):
            for sample in family.samples:
                if sample.name == BREAKER_GAUGE and "worker" in sample.labels:
                    found[sample.labels["worker"]] = sample.value == BREAKER_OPEN
    except ValueError:
        return {}
    return found


def _unseen(members: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the workers of routers of which nothing else was seen."""
    engines = [m for m in members if m["role"] in (PREFILL, DECODE)]
    unseen: dict[str, dict[str, str]] = {}
    if not engines:
        # Only a router was looked at: that says nothing of engines.
        return []
    for router in members:
        for worker in router["workers"] or []:
            if engine_of(engines, worker) is None:
                unseen[worker["url"]] = {"url": worker["url"], "role": worker["role"]}
    return list(unseen.values())


def engine_of(members: list[dict[str, Any]], worker: dict[str, Any]) -> dict[str, Any] | None:
    """Return the engine that a router's worker is, None for one that was not looked at."""
    of_role = [m for m in members if m["role"] == worker["role"]]
    for member in of_role:
        # A recording by hand has no URLs where an engine did not answer: one of the role is that one.
        if member["url"] == worker["url"] or (not member["url"] and len(of_role) == 1):
            return member
    return None


def _object(one: dict[str, Any] | None) -> dict[str, Any]:
    content = _json(one)
    return content if isinstance(content, dict) else {}


def _shaped(content: dict[str, Any], kinds: dict[str, str]) -> dict[str, Any]:
    """Return what is wanted of an object and has the right type."""
    return {name: content[name] for name, kind in kinds.items() if name in content and _is(content[name], kind)}


def _is(value: Any, kind: str) -> bool:
    if kind == NUMBER:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15
    return kind == ANY or isinstance(value, str if kind == TEXT else bool)


def _rows(content: Any, kinds: dict[str, str]) -> list[dict[str, Any]] | None:
    if not isinstance(content, list):
        return None
    return [_shaped(row, kinds) for row in content if isinstance(row, dict)]


def _history(content: dict[str, Any]) -> dict[str, list[dict[str, Any]]] | None:
    """Return ``starts`` and ``ends`` of a unit, each with ``at``; None where nobody looked."""
    if not isinstance(content.get("starts"), list):
        return None
    return {
        name: [dict({"how": ""}, **row) for row in _rows(content.get(name), _START) or [] if "at" in row]
        for name in ("starts", "ends")
    }


def _machine(content: dict[str, Any]) -> dict[str, Any]:
    gpus = _rows(content.get("gpus"), _GPU) or []
    return dict(_shaped(content, {"booted_at": NUMBER}), gpus=gpus)


def _json(one: dict[str, Any] | None) -> Any:
    if not one or one["status"] is None:
        return None
    try:
        return json.loads(one["body"])
    except (ValueError, RecursionError):
        return None
