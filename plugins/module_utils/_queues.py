# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a series of samples says of an engine's queues. Pure.

One sample proves nothing: verdicts are read off a window.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _metrics

DRAINED = "drained"
FLOWING = "flowing"
STUCK = "stuck"
UNKNOWN = "unknown"
WATCHING = "watching"

#: So many empty samples in a row make "drained": a request between two queues is in neither.
EMPTY_SAMPLES = 2


def verdict(series: list[dict[str, Any]], stall_seconds: float, over: bool) -> str:
    """Return what a series of samples says so far.

    :param series: samples with ``at`` (seconds, monotonic), ``live`` (from /v1/loads),
        None values where nothing could be read are left out by the caller.
    :param stall_seconds: requests that are held this long without any sign of work
        are stuck.
    :param over: True when the caller waits no longer: no "watching" any more.
    """
    if not series:
        return UNKNOWN if over else WATCHING
    last = series[-EMPTY_SAMPLES:]
    if len(last) == EMPTY_SAMPLES and all(_metrics.pending(sample) == 0 for sample in last):
        return DRAINED
    moved_at = series[0]["at"]
    for before, after in zip(series, series[1:]):
        if _moved(before, after):
            moved_at = after["at"]
    if series[-1]["at"] - moved_at >= stall_seconds and _metrics.pending(series[-1]) > 0:
        return STUCK
    if not over:
        return WATCHING
    if _metrics.pending(series[-1]) == 0:
        return DRAINED
    return FLOWING if moved_at > series[0]["at"] else STUCK


def _moved(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Tell whether work got done between two samples.

    Requests that come in or are given up by their clients move numbers too; only a
    counter of finished work or tokens that flow count. A failed transfer is no work.
    """
    if after["throughput"] > 0 and after["running"] > 0:
        return True
    return "progress" in before and "progress" in after and after["progress"] > before["progress"]
