# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What samples over time say of a cluster's engines: idle, drained, flowing, stuck, stale gauge, unknown. Pure.

A *sample* of an engine is a dict with ``at`` (seconds, monotonic). Where it could be read it
has what :mod:`_metrics` gives (queues, ``running``, ``waiting``, ``throughput``; ``failed`` and
``progress`` where ``/metrics`` was read too), ``live`` (True: queues from ``/v1/loads``, False:
gauges) and, beside live values, ``gauges`` (the queues as ``/metrics`` shows them). Where it
could not be read it has ``trouble``. ``nudges`` counts the requests that were sent and answered
for the sake of fresh gauges before it.

Facts that this rests on: gauges are written on prefill batches, every 40 decode steps, or every
30 s when an engine is wholly idle, and freeze while requests are held; a prefill that computes
prompts over and over does no work when no decode gets them.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _metrics

IDLE = "idle"
DRAINED = "drained"
FLOWING = "flowing"
STUCK = "stuck"
STALE_GAUGE = "stale gauge"
UNKNOWN = "unknown"
#: Verdicts of a cluster in order.
GOOD = (IDLE, DRAINED, FLOWING, STALE_GAUGE)

#: An idle engine writes its gauges every 30 s: what stands longer than this is no stale gauge.
GAUGE_SECONDS = 35.0

COUNTED, RESET = "counted", "reset"

PREFILL, DECODE = "prefill", "decode"


def readable(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the samples that could be read."""
    return [sample for sample in samples if not sample.get("trouble")]


def increase(samples: list[dict[str, Any]], counter: str) -> tuple[str, float]:
    """Return how a counter rose over a series: ``counted`` and by how much; ``reset`` (the process
    was started anew: it fell) and what it rose by since; ``unknown`` where it was read less than twice.

    A sample that could not be read is no 0; a counter that is absent beside other series of its
    engine is one (:func:`_metrics.metrics_sample`).
    """
    values = [(sample[counter], sample.get("invocation", "")) for sample in readable(samples) if counter in sample]
    if len(values) < 2:
        return UNKNOWN, 0.0
    how, rise = COUNTED, 0.0
    for (before, old), (after, new) in zip(values, values[1:]):
        if after < before or (old and new and old != new):
            how, rise = RESET, float(after)
        else:
            rise += after - before
    return how, rise


def judge(series: dict[str, dict[str, Any]], stall_seconds: float) -> dict[str, dict[str, Any]]:
    """Return the verdict on each engine of one cluster.

    :param series: by unit ``role`` and ``samples``.
    :param stall_seconds: requests held this long without any work of the cluster's decodes
        (for a prefill) or of its own (for a decode) are stuck.
    :return: by unit ``verdict`` and ``why``.
    """
    decodes = [one["samples"] for one in series.values() if one["role"] == DECODE]
    verdicts = {}
    for unit, one in series.items():
        # What a prefill holds moves when decodes get it: its own counters also rise
        # while clients try again in vain.
        workers = decodes if one["role"] == PREFILL and any(readable(d) for d in decodes) else [one["samples"]]
        verdict, why = _judge_engine(one["samples"], workers, stall_seconds)
        verdicts[unit] = {"verdict": verdict, "why": why}
    return verdicts


def _judge_engine(
    samples: list[dict[str, Any]], workers: list[list[dict[str, Any]]], stall_seconds: float
) -> tuple[str, str]:
    read = readable(samples)
    if len(read) < 2:
        return UNKNOWN, _unread(samples)
    if len(samples) >= 2 and all(sample.get("trouble") for sample in samples[-2:]):
        return UNKNOWN, "no sample since {0:.0f} s: {1}".format(
            samples[-1]["at"] - read[-1]["at"], samples[-1]["trouble"]
        )
    last = read[-1]
    held = _metrics.pending(last)
    most = max(_metrics.pending(sample) for sample in read)
    if held == 0:
        return _judge_empty(read, most)
    if not last["live"] and _own_nudge(last):
        return STALE_GAUGE, (
            "the gauges show {0}, which is what the last batch left: a request sent just before was "
            "answered and shows there".format(_metrics.describe(last))
        )
    since = _held_since(read)
    worked = max((_worked_at(worker) for worker in workers), default=None, key=lambda at: -1.0 if at is None else at)
    quiet = last["at"] - max(since, since if worked is None else worked)
    patience = stall_seconds if last["live"] else max(stall_seconds, GAUGE_SECONDS)
    failures = _failures(read)
    if quiet >= patience:
        return STUCK, "{0} for {1:.0f} s without any work done{2}".format(_held(last), quiet, failures)
    if worked is not None and worked > read[0]["at"]:
        return FLOWING, "{0} while work gets done{1}".format(_held(last), failures)
    if not last["live"] and last["at"] - read[0]["at"] < GAUGE_SECONDS:
        return UNKNOWN, "the gauges show {0}, which may be stale: watched for {1:.0f} s, {2:.0f} s are needed".format(
            _metrics.describe(last), last["at"] - read[0]["at"], GAUGE_SECONDS
        )
    return UNKNOWN, "{0}, watched for {1:.0f} s only: {2:.0f} s without work make it stuck".format(
        _held(last), last["at"] - read[0]["at"], patience
    )


def _judge_empty(read: list[dict[str, Any]], most: float) -> tuple[str, str]:
    gauges = {name: value for name, value in read[-1].get("gauges", {}).items() if value}
    if gauges:
        shown = ", ".join("{0} {1:g}".format(name.replace("_", " "), value) for name, value in sorted(gauges.items()))
        return STALE_GAUGE, "the gauges show {0}, /v1/loads shows nothing: what the last batch left".format(shown)
    if most > 0:
        return DRAINED, "{0:g} requests at most, now none{1}".format(most, _failures(read))
    how, rise = increase(read, "progress")
    if how != UNKNOWN and rise > 0:
        return DRAINED, "worked between the samples, holds nothing{0}".format(_failures(read))
    return IDLE, "no request in any sample{0}".format(_failures(read))


def _unread(samples: list[dict[str, Any]]) -> str:
    trouble = next((sample["trouble"] for sample in reversed(samples) if sample.get("trouble")), "")
    if trouble:
        return "no sample: {0}".format(trouble)
    return "one sample proves nothing" if samples else "no sample was taken"


def _own_nudge(sample: dict[str, Any]) -> bool:
    """Tell whether gauges show no more than an answered nudge: one request in one queue."""
    return bool(sample.get("nudges")) and _metrics.pending(sample) <= 1


def _held(sample: dict[str, Any]) -> str:
    return "holds requests ({0})".format(_metrics.describe({k: v for k, v in sample.items() if k != "failed"}))


def _held_since(read: list[dict[str, Any]]) -> float:
    """Return when the requests that the last sample shows began to be held without a break."""
    since = read[-1]["at"]
    for sample in reversed(read):
        if _metrics.pending(sample) == 0:
            break
        since = sample["at"]
    return float(since)


def _worked_at(samples: list[dict[str, Any]]) -> float | None:
    """Return when an engine was last seen to have done work, None for never."""
    at = None
    read = readable(samples)
    for before, after in zip(read, read[1:]):
        flows = after["throughput"] > 0 and after["running"] > 0
        # Frozen gauges go on showing the last throughput: without a live source it must change.
        if flows and not after["live"]:
            flows = after["throughput"] != before["throughput"]
        if flows or ("progress" in before and "progress" in after and after["progress"] > before["progress"]):
            at = float(after["at"])
    return at


def _failures(read: list[dict[str, Any]]) -> str:
    how, rise = increase(read, "failed")
    if how == RESET:
        return "; the process was started anew meanwhile"
    return "; {0:g} transfers failed meanwhile".format(rise) if how == COUNTED and rise > 0 else ""


def restarted(samples: list[dict[str, Any]]) -> bool:
    """Tell whether an engine was started anew within a series: by its label, else by a counter that fell."""
    incarnations = {sample["invocation"] for sample in readable(samples) if sample.get("invocation")}
    return len(incarnations) > 1 or increase(samples, "progress")[0] == RESET


def is_over(series: dict[str, dict[str, Any]], verdicts: dict[str, dict[str, Any]], most: float = 0) -> bool:
    """Tell whether watching longer can change nothing: all engines empty twice in a row, or stuck.

    :param most: requests that may remain: what others sent all the time.
    """
    for unit, one in series.items():
        verdict = verdicts[unit]["verdict"]
        if verdict in (STUCK, STALE_GAUGE):
            continue
        last = one["samples"][-2:]
        if len(last) < 2 or any(s.get("trouble") or _metrics.pending(s) > most for s in last):
            return False
    return True


def thinned(samples: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return at most so many samples: the newer half as it is, every other one of the older half gone."""
    while len(samples) > most:
        half = len(samples) // 2
        samples = samples[:half:2] + samples[half:]
    return samples


def table(samples: list[dict[str, Any]], began: float, lines: int = 8) -> list[str]:
    """Return the samples as lines for people: the first and the last ones, equal neighbours once.

    :param began: the moment that counts as 0 s.
    """
    rows: list[tuple[str, str]] = []
    for sample in samples:
        words = sample.get("trouble") or _metrics.describe(sample)
        if sample.get("throughput"):
            words += ", {0:.1f} tokens/s".format(sample["throughput"])
        if not rows or rows[-1][1] != words:
            rows.append(("{0:6.1f} s".format(sample["at"] - began), words))
    if len(rows) > lines:
        half = lines // 2
        rows = rows[:half] + [("     ...", "{0} more".format(len(rows) - 2 * half))] + rows[-half:]
    return ["{0}  {1}".format(at, words) for at, words in rows]
