# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine says of its queues: ``/v1/loads`` and ``/metrics`` read into one sample.

Pure, apart from the parser that is handed in (``prometheus_client`` where the collection
runs). Facts that this rests on: gauges are stale by design and freeze while requests
are stuck in a PD queue, ``/v1/loads`` is live; every reporting rank has a series of its
own, and ranks may repeat the same fact; the empty ``priority`` is the total; a labelled
counter does not exist before its first increment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Callable

#: Queues of a PD engine, by their name in a sample: name in ``/v1/loads``, gauge.
QUEUES = {
    "prefill_bootstrap": ("prefill_bootstrap_queue_reqs", "sglang:num_prefill_bootstrap_queue_reqs"),
    "prefill_inflight": ("prefill_inflight_queue_reqs", "sglang:num_prefill_inflight_queue_reqs"),
    "decode_prealloc": ("decode_prealloc_queue_reqs", "sglang:num_decode_prealloc_queue_reqs"),
    "decode_transfer": ("decode_transfer_queue_reqs", "sglang:num_decode_transfer_queue_reqs"),
}
#: Those that ``/v1/loads`` counts among its waiting requests; the gauge of waiting requests does not.
WAITING_QUEUES = ("prefill_bootstrap", "decode_prealloc", "decode_transfer")
#: What the name of each series of an engine begins with.
PREFIX = "sglang:"
RUNNING_GAUGE = "sglang:num_running_reqs"
WAITING_GAUGE = "sglang:num_queue_reqs"
THROUGHPUT_GAUGE = "sglang:gen_throughput"
FAILED_COUNTER = "sglang:num_transfer_failed_reqs_total"
BOOTSTRAP_FAILED_COUNTER = "sglang:num_bootstrap_failed_reqs_total"
ABORTED_COUNTER = "sglang:num_aborted_requests_total"
GENERATED_COUNTER = "sglang:generation_tokens_total"
#: Counts the transfers that a prefill completed.
TRANSFERRED_COUNTER = "sglang:kv_transfer_latency_ms_count"
#: Counts tokens batch by batch; other counters rise when requests end. In :func:`totals` its name is followed by how
#: the tokens came about: those of prompts that were computed (cached ones are no work), those that were generated.
BATCH_COUNTER = "sglang:realtime_tokens_total"
COMPUTED, DECODED = BATCH_COUNTER + " prefill_compute", BATCH_COUNTER + " decode"
#: Requests in places that ``/v1/loads`` does not count: their grammar is compiled, or somebody paused the engine.
HELD_GAUGES = ("sglang:num_grammar_queue_reqs", "sglang:num_paused_reqs")
#: Requests that the HTTP side holds: it writes them as they come and go, unlike the scheduler's gauges.
ACTIVE_GAUGE = "sglang:http_requests_active"
COMPLETIONS = ("/v1/chat/completions", "/v1/completions", "/generate")
#: Name in :func:`totals` of those that want tokens.
ACTIVE_COMPLETIONS = ACTIVE_GAUGE + " for tokens"
LATENCY_BUCKETS = "sglang:e2e_request_latency_seconds_bucket"
#: Counters that rise when work gets done, whichever the engine's role.
PROGRESS_COUNTERS = ("sglang:prompt_tokens_total", GENERATED_COUNTER, "sglang:num_requests_total")

#: Characters of a ``/metrics`` body, and of one line of it; a large engine writes a few hundred kB.
TEXT_LIMIT, LINE_LIMIT = 4 * 1024 * 1024, 8 * 1024
#: What counters and gauges stay below.
NUMBER_LIMIT = 1e18


def loads_sample(body: bytes) -> dict[str, Any] | None:
    """Return the live part of a sample from a ``/v1/loads`` body, None where it is none.

    :return: ``running``, ``waiting`` (requests), ``throughput`` (tokens/s) and each of
        :data:`QUEUES` (requests), summed over data parallel ranks.
    """
    try:
        loads = json.loads(body)["loads"]
        sample: dict[str, Any] = {"running": 0, "waiting": 0, "throughput": 0.0}
        sample.update(dict.fromkeys(QUEUES, 0))
        for load in loads:
            sample["running"] += int(_number(load["num_running_reqs"]))
            sample["throughput"] += _number(load.get("gen_throughput") or 0)
            queues = {name: int(_number(load["disaggregation"][key])) for name, (key, _gauge) in QUEUES.items()}
            for name, number in queues.items():
                sample[name] += number
            among = sum(queues[name] for name in WAITING_QUEUES)
            sample["waiting"] += max(0, int(_number(load["num_waiting_reqs"])) - among)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return sample if loads else None


def _number(value: Any) -> float:
    """Return a number that an engine may show.

    :raises ValueError: for what is none, infinite, or beyond all that is counted.
    """
    number = float(value)
    if not abs(number) < NUMBER_LIMIT:
        raise ValueError("no number of requests or tokens: {0!r}".format(value))
    return number


def metrics_sample(text: str, parse: Callable[[str], Iterable[Any]]) -> dict[str, Any] | None:
    """Return a sample from a ``/metrics`` body, None where it carries no series of an engine.

    :param parse: ``prometheus_client.parser.text_string_to_metric_families``.
    :return: the keys of :func:`loads_sample`, ``failed`` (transfers) and ``progress``
        (sum of :data:`PROGRESS_COUNTERS`). The failure counter is 0 where it is absent
        beside other series of the engine.
    """
    return sample_of(totals(text, parse))


def totals(text: str, parse: Callable[[str], Iterable[Any]]) -> dict[str, float] | None:
    """Return the value of each series' name over all ranks, None where the body carries no series of an engine.

    A name that is missing is a counter that never counted, or a gauge of an engine that wrote none yet: a fresh
    decode does so after its first 40 steps, or after 30 idle seconds.
    """
    values: dict[str, dict[str, float]] = {}
    if not readable(text):
        return None
    try:
        for family in parse(text):
            for sample in family.samples:
                _collect(values, sample.name, sample.labels, sample.value)
    except ValueError:
        return None
    if not any(name.startswith(PREFIX) for name in values):
        return None
    return {name: sum(by_rank.values()) for name, by_rank in values.items()}


def readable(text: str) -> bool:
    """Tell whether a ``/metrics`` body may be given to the parser.

    Its time grows with the square of a line's length, and a body of many megabytes is none of an engine or a router.
    """
    return len(text) <= TEXT_LIMIT and all(len(line) <= LINE_LIMIT for line in text.split("\n"))


def sample_of(total: dict[str, float] | None) -> dict[str, Any] | None:
    """Return the sample of :func:`metrics_sample` from the totals of a body, None where they hold no gauges."""
    if total is None or RUNNING_GAUGE not in total:
        return None
    result: dict[str, Any] = {
        "running": total[RUNNING_GAUGE],
        "waiting": total.get(WAITING_GAUGE, 0),
        "throughput": total.get(THROUGHPUT_GAUGE, 0.0),
        "failed": total.get(FAILED_COUNTER, 0),
        "progress": sum(total.get(name, 0) for name in PROGRESS_COUNTERS),
    }
    for name, (_key, gauge) in QUEUES.items():
        result[name] = total.get(gauge, 0)
    return result


def _collect(values: dict[str, dict[str, float]], name: str, labels: dict[str, str], value: float) -> None:
    if labels.get("priority") or not abs(value) < NUMBER_LIMIT:
        return
    if name == BATCH_COUNTER:
        name = "{0} {1}".format(name, labels.get("mode"))
    if name == LATENCY_BUCKETS:
        name = latency_bucket(labels.get("le", ""))
    if name == ACTIVE_GAUGE and labels.get("endpoint") in COMPLETIONS:
        name = ACTIVE_COMPLETIONS
    # Tensor and pipeline ranks repeat the fact of their data parallel rank. Counters of
    # the HTTP side differ by further labels and do add up.
    rank = labels.get("dp_rank", "")
    if name in PROGRESS_COUNTERS or name == ACTIVE_COMPLETIONS or name.startswith(LATENCY_BUCKETS):
        by_rank = values.setdefault(name, {})
        by_rank[rank] = by_rank.get(rank, 0.0) + value
        return
    by_rank = values.setdefault(name, {})
    by_rank[rank] = max(by_rank.get(rank, value), value)


def latency_bucket(le: str) -> str:
    """Return the name in :func:`totals` of how many requests took at most ``le`` seconds."""
    try:
        return "{0} {1:g}".format(LATENCY_BUCKETS, float(le))
    except ValueError:
        return LATENCY_BUCKETS


def pending(sample: dict[str, Any]) -> float:
    """Return how many requests an engine holds in any queue or runs."""
    return float(sample["running"] + sample["waiting"] + sum(sample[name] for name in QUEUES))


def describe(sample: dict[str, Any]) -> str:
    """Return a sample as words: only what is not zero."""
    parts = ["{0} {1:g}".format(name.replace("_", " "), sample[name]) for name in QUEUES if sample[name]]
    for name in ("running", "waiting"):
        if sample[name]:
            parts.append("{0} {1:g}".format(name, sample[name]))
    if sample.get("failed"):
        parts.append("transfers failed {0:g}".format(sample["failed"]))
    return ", ".join(parts) or "nothing pending"


#: Names of all series that a sample is made of.
_SAMPLED = frozenset(
    (RUNNING_GAUGE, WAITING_GAUGE, THROUGHPUT_GAUGE, FAILED_COUNTER)
    + PROGRESS_COUNTERS
    + tuple(gauge for _key, gauge in QUEUES.values())
)


def sampled_lines(text: str) -> str:
    """Return the lines of a ``/metrics`` body that a sample is made of.

    A body has thousands of others, and whoever samples every second beside hundreds of
    streams has no time to parse them.
    """
    return "".join(
        line + "\n" for line in text.split("\n") if line.strip().split("{", 1)[0].split(" ", 1)[0] in _SAMPLED
    )


def invocation_of(text: str) -> str:
    """Return the incarnation that a ``/metrics`` body is labelled with, "" for none."""
    found = _INVOCATION.search(text)
    return found.group(1) if found else ""


_INVOCATION = re.compile(r'[{,]invocation="([^"\\]*)"')
