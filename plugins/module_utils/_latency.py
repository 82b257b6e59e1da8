# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Latencies as numbers and as a picture of one line. Pure."""

from __future__ import annotations

import math
from typing import Any

#: Bars from empty to full.
BARS = " ▁▂▃▄▅▆▇█"
BUCKETS = 12


def summary(seconds: list[float]) -> dict[str, Any]:
    """Return count, minimum, median, p95 and maximum of latencies in seconds; None where there are none.

    The 95th percentile is the nearest rank: a latency that was seen, not one in between.
    """
    if not seconds:
        return {"count": 0, "minimum": None, "median": None, "p95": None, "maximum": None}
    ordered = sorted(seconds)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    rank = math.ceil(0.95 * len(ordered)) - 1
    values = {"minimum": ordered[0], "median": median, "p95": ordered[rank], "maximum": ordered[-1]}
    return dict({name: round(value, 4) for name, value in values.items()}, count=len(ordered))


def histogram(seconds: list[float], buckets: int = BUCKETS) -> list[dict[str, Any]]:
    """Return buckets of equal width between the least and the greatest latency.

    :return: for each ``from_seconds``, ``to_seconds`` and ``count``; [] for no latencies.
    """
    if not seconds:
        return []
    least, width = min(seconds), (max(seconds) - min(seconds)) / buckets
    if width <= 0:
        return [{"from_seconds": round(least, 4), "to_seconds": round(least, 4), "count": len(seconds)}]
    counts = [0] * buckets
    for value in seconds:
        counts[min(int((value - least) / width), buckets - 1)] += 1
    return [
        {
            "from_seconds": round(least + number * width, 4),
            "to_seconds": round(least + (number + 1) * width, 4),
            "count": count,
        }
        for number, count in enumerate(counts)
    ]


def picture(seconds: list[float]) -> str:
    """Return the histogram as one bar a bucket; any count that is not zero shows."""
    counts = [bucket["count"] for bucket in histogram(seconds)]
    full = len(BARS) - 1
    return "".join(BARS[math.ceil(count / max(counts) * full)] for count in counts)


def describe(numbers: dict[str, Any]) -> str:
    """Return a summary as words: ``median 0.585 s, p95 0.595 s, max 1.177 s``."""
    if not numbers["count"]:
        return "no latency"
    return "median {median:.3f} s, p95 {p95:.3f} s, max {maximum:.3f} s".format(**numbers)
