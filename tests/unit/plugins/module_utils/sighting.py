# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A look at a small cluster, made by hand: the items that the hosts would give, a healthy one to begin with."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _bundle, _diagnosis, _observations
from prometheus_client.parser import text_string_to_metric_families

from ..fleet import member, unit_state

NOW = 1_796_000_000.0
HOUR = 3600.0
UNITS = {role: f"sglang-c-{role}.service" for role in ("prefill", "decode", "router")}
INFO = {
    "model_path": "/m",
    "page_size": 1,
    "kv_cache_dtype": "auto",
    "version": "0.5.23",
    "disaggregation_transfer_backend": "nixl",
    "disable_overlap_schedule": True,
}
QUEUES = ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer")
COUNTERS = {
    "failed": "num_transfer_failed_reqs_total",
    "bootstrap_failed": "num_bootstrap_failed_reqs_total",
    "aborted": "num_aborted_requests_total",
    "generated": "generation_tokens_total",
    "computed": 'realtime_tokens_total{mode="prefill_compute"}',
    "decoded": 'realtime_tokens_total{mode="decode"}',
    "cached": 'realtime_tokens_total{mode="prefill_cache"}',
    "compiling": "num_grammar_queue_reqs",
    "paused": "num_paused_reqs",
    "active": 'http_requests_active{endpoint="/v1/chat/completions",method="POST"}',
    "transferred": "kv_transfer_latency_ms_count",
}


class Sighting:
    """What was seen of a cluster c with a prefill on host p, a decode on d and a router on r.

    Engines were started hours ago, prefill first, by co-restart 4; requests were served since then.
    """

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, Any]] = {role: {} for role in UNITS}
        self.http: dict[tuple[str, str], tuple[int | None, Any]] = {}
        self.machines: dict[str, dict[str, Any]] = {"p": {}, "d": {}, "r": {}}
        self.unreachable: dict[str, str] = {}
        #: Numbers of each round by role; a number is the same in all rounds, a list gives one to each.
        self.numbers: dict[str, dict[str, Any]] = {
            "prefill": {"generated": 500, "transferred": 500},
            "decode": {"generated": 9000},
        }
        self.rounds, self.interval_seconds, self.loads = 3, 6.0, True
        self.nudge: dict[str, Any] | None = None
        for role, age in (("prefill", 5 * HOUR), ("decode", 5 * HOUR - 60), ("router", 5 * HOUR - 90)):
            self.started(role, age)
            self.http[role, "health"] = (200, "")
        for role in ("prefill", "decode"):
            self.http[role, "server_info"] = (200, {**INFO, "disaggregation_mode": role})
        self.workers()

    def started(self, role: str, *ages: float, generation: int = 4, by_hand: bool = False, **state: Any) -> None:
        """Say how many seconds ago a unit was started, its last start at the end."""
        self.facts[role]["unit"] = unit_state(invocation_id=f"{role}-{ages[-1]}", started_at=NOW - ages[-1], **state)
        self.facts[role]["starts"] = {"starts": [{"at": NOW - age} for age in ages], "ends": []}
        incarnation = "another" if by_hand else f"{role}-{ages[-1]}"
        self.facts[role]["ledger"] = {"generation": generation, "incarnation": incarnation, "outcome": "ok"}

    def ended(self, role: str, age: float, how: str = "signal 9") -> None:
        """Say that a process of a unit ended by itself so many seconds ago."""
        self.facts[role]["starts"]["ends"].append({"at": NOW - age, "how": how})

    def workers(self, **changed: dict[str, Any]) -> None:
        """Say what the router lists, by role; None for a worker that it lacks."""
        listed = []
        for role, host, port in (("prefill", "p", 30000), ("decode", "d", 30002)):
            worker = {"url": f"http://{host}:{port}", "worker_type": role, "is_healthy": True, "model_id": "m"}
            if changed.get(role, {}) is not None:
                listed.append({**worker, **changed.get(role, {})})
        self.http["router", "workers"] = (200, {"workers": listed})

    def breaker(self, role: str) -> None:
        """Say that the router's breaker for an engine is open."""
        url = {"prefill": "http://p:30000", "decode": "http://d:30002"}[role]
        self.http["router", "metrics"] = (200, f'smg_worker_cb_state{{worker="{url}"}} 1\n')

    def items(self) -> list[dict[str, Any]]:
        """Return it as the hosts would."""
        found = []
        for role, unit in UNITS.items():
            host = role[0]
            deployed = member(role, host)
            facts = {"member": deployed, "settings": [], "listeners": None, "journal": None, **self.facts[role]}
            for name, content in facts.items():
                if content is not None:
                    endpoint = name if name == "journal" else f"{name}.json"
                    found.append(_bundle.item(endpoint, content, host, unit, NOW))
            for (of_role, endpoint), (status, body) in self.http.items():
                if of_role == role:
                    found.append(_answer(endpoint, status, body, host, unit, NOW))
            if role == "router":
                if self.nudge is not None:
                    found.append(_bundle.item(_bundle.NUDGE, self.nudge, host, unit, NOW))
                continue
            if self.http.get((role, "health"), (200, ""))[0] is not None:
                found += self._series(role, host, unit)
        for host, content in self.machines.items():
            if host not in self.unreachable:
                found.append(_bundle.item(_bundle.MACHINE, content, host, at=NOW))
        for host, why in self.unreachable.items():
            found = [one for one in found if one["host"] != host]
            found.append(_bundle.item(_bundle.UNREACHABLE, {"why": why}, host, at=NOW))
        return found

    def _series(self, role: str, host: str, unit: str) -> list[dict[str, Any]]:
        found = []
        for turn in range(self.rounds):
            at = NOW - (self.rounds - 1 - turn) * self.interval_seconds
            now = {k: v[turn] if isinstance(v, list) else v for k, v in self.numbers[role].items()}
            if self.loads:
                found.append(_answer("v1_loads", 200, {"loads": [_load(now)]}, host, unit, at))
            found.append(_answer("metrics", 200, _metrics(now), host, unit, at))
        return found

    def diagnose(self, hunch: str = "") -> dict[str, Any]:
        """Return the diagnosis."""
        return diagnose(self.items(), hunch)


def diagnose(items: list[dict[str, Any]], hunch: str = "", scenario: str = "") -> dict[str, Any]:
    """Return the diagnosis of the one cluster that items tell of."""
    (observation,) = _observations.clusters(items, text_string_to_metric_families, scenario).values()
    return _diagnosis.diagnose(observation, hunch)


def _answer(endpoint: str, status: int | None, body: Any, host: str, unit: str, at: float) -> dict[str, Any]:
    one = _bundle.item(endpoint, "" if status is None else body, host, unit, at)
    one.update(status=status, error=str(body) if status is None else "", seconds=0.5)
    return one


def _load(now: dict[str, Any]) -> dict[str, Any]:
    # Engines count those that wait for bootstrap or KV among the waiting ones.
    waiting = sum(now.get(name, 0) for name in ("waiting", "prefill_bootstrap", "decode_prealloc", "decode_transfer"))
    return {
        "num_running_reqs": now.get("running", 0),
        "num_waiting_reqs": waiting,
        "gen_throughput": now.get("throughput", 0.0),
        "disaggregation": {f"{name}_queue_reqs": now.get(name, 0) for name in QUEUES},
    }


def _metrics(now: dict[str, Any]) -> str:
    """Return a scrape; ``gauge_inflight`` is what the gauge says where it is stale."""
    lines = {
        "num_running_reqs": now.get("running", 0),
        "num_queue_reqs": now.get("waiting", 0),
        "gen_throughput": now.get("throughput", 0.0),
        **{f"num_{name}_queue_reqs": now.get(name, 0) for name in QUEUES},
        **{COUNTERS[name]: now[name] for name in COUNTERS if name in now},
    }
    if "gauge_inflight" in now:
        lines["num_prefill_inflight_queue_reqs"] = now["gauge_inflight"]
    for le, number in now.get("latencies", {}).items():
        lines[f'e2e_request_latency_seconds_bucket{{le="{le}"}}'] = number
    return "".join(f"sglang:{name} {value}\n" for name, value in lines.items())


__all__ = ["HOUR", "INFO", "NOW", "Sighting", "diagnose"]
