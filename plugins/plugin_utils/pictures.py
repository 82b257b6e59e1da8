# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pictures as numbers: where bars, curves and marks of a report are. Pure; the templates make SVG of it.

Places are in per cent of the picture, so that it is as wide as the page lets it be and its text keeps its
size. Only curves, which SVG does not take in per cent, are in a box of :data:`BOX` that is stretched.
"""

from __future__ import annotations

import math
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _facts, _metrics

#: Width and height of the box that curves are drawn in.
BOX = (1000.0, 100.0)
#: What an engine holds, from the bottom of the picture to the top: what moves, then what waits for a transfer.
HELD = ("running", "waiting", *_metrics.QUEUES)
#: More than any request count, and small enough to be added up.
MOST = 1e30
#: Starts of one unit that are drawn; a crash loop has thousands.
STARTS_DRAWN = 12
#: Width that a single sample gets, of a box's width.
ONE_SAMPLE = 12.0


def finite(value: Any) -> float:
    """Return a number that can be drawn: what is none, or less than none, is 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return 0.0
    return float(min(max(value, 0), MOST))


def number(value: Any) -> str:
    """Return a number in few characters: ``17``, ``52.4``, ``12.3 k``, ``1e+20``."""
    amount = finite(value)
    if amount >= 1e15:
        return "{0:.1g}".format(amount)
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if amount >= size:
            return "{0:.3g}{1}".format(amount / (size if size > 1e4 else 1e3), unit)
    return "{0:.0f}".format(amount) if amount >= 1000 else "{0:.3g}".format(amount)


def seconds(value: Any) -> str:
    """Return seconds as text, "" for none."""
    if value is None:
        return ""
    amount = finite(value)
    return ("{0:.3f} s" if amount < 10 else "{0:.1f} s").format(amount) if amount < 1e4 else number(amount) + " s"


def top_of(most: float) -> float:
    """Return where an axis ends that has room for so much: 1, 2 or 5 times a power of ten."""
    if most <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next((step * power for step in (1, 2, 5) if step * power >= most), 10 * power)


# -- curves ----------------------------------------------------------------------------------


def curves(samples: list[dict[str, Any]], began: float, ended: float) -> dict[str, Any]:
    """Return the picture of one engine's samples.

    :param samples: as in :mod:`_series`.
    :param began, ended: first and last moment of the picture, the same for all engines.
    :return: ``held`` (a layer for each of :data:`HELD` that was not always 0: ``name``, ``most``,
        ``areas``, one for each stretch without a gap), ``held_top`` (end of the axis), ``gauges``
        (lines of what ``/metrics`` showed where a live source showed otherwise), ``throughput``
        (``lines``, ``most``, ``top``), ``gaps`` (``left`` and ``width`` in per cent, ``why``), ``words``.
    """
    drawn = [dict(sample, x=_x(finite(sample.get("at")), began, ended)) for sample in samples]
    read = [sample for sample in drawn if not sample.get("trouble")]
    stretches = _stretches(drawn)
    totals = [sum(finite(sample.get(name)) for name in HELD) for sample in read]
    gauges = [_gauges(sample) for sample in read]
    differ = any(gauge != _gauges(sample, live=True) for gauge, sample in zip(gauges, read) if sample.get("live"))
    held_top = top_of(max([*totals, *(gauges if differ else [])], default=0))
    speeds = [finite(sample.get("throughput")) for sample in read]
    speed_top = top_of(max(speeds, default=0))
    layers = []
    for place, name in enumerate(HELD):
        most = max((finite(sample.get(name)) for sample in read), default=0.0)
        if most > 0:
            below, above = HELD[:place], HELD[: place + 1]
            areas = [_area(stretch, below, above, held_top) for stretch in stretches]
            layers.append({"name": name, "words": name.replace("_", " "), "most": number(most), "areas": areas})
    return {
        "held": layers,
        "held_top": number(held_top),
        "gauges": [_line(stretch, _gauges, held_top) for stretch in stretches] if differ else [],
        "throughput": {
            "lines": [_line(stretch, _throughput, speed_top) for stretch in stretches] if any(speeds) else [],
            "most": number(max(speeds, default=0)),
            "top": number(speed_top),
        },
        "gaps": _gaps(drawn),
        "words": _in_words(samples, read, max(totals, default=0.0)),
    }


def _x(at: float, began: float, ended: float) -> float:
    share = (at - began) / (ended - began) if ended > began else 0.5
    return round(min(max(share, 0.0), 1.0) * BOX[0], 2)


def _stretches(drawn: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the samples that were read, cut where one could not be."""
    found: list[list[dict[str, Any]]] = [[]]
    for sample in drawn:
        if not sample.get("trouble"):
            found[-1].append(sample)
        elif found[-1]:
            found.append([])
    # A single sample would have no width.
    return [_widened(stretch) if len(stretch) == 1 else stretch for stretch in found if stretch]


def _widened(stretch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = min(max(stretch[0]["x"] - ONE_SAMPLE / 2, 0.0), BOX[0] - ONE_SAMPLE)
    return [dict(stretch[0], x=left), dict(stretch[0], x=left + ONE_SAMPLE)]


def _area(stretch: list[dict[str, Any]], below: tuple[str, ...], above: tuple[str, ...], top: float) -> str:
    upper = [(sample["x"], _y(sum(finite(sample.get(name)) for name in above), top)) for sample in stretch]
    lower = [(sample["x"], _y(sum(finite(sample.get(name)) for name in below), top)) for sample in stretch]
    return _points([*upper, *reversed(lower)])


def _line(stretch: list[dict[str, Any]], value: Any, top: float) -> str:
    return _points([(sample["x"], _y(value(sample), top)) for sample in stretch])


def _y(value: float, top: float) -> float:
    return BOX[1] * (1 - value / top)


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join("{0:g},{1:g}".format(round(x, 1), round(y, 1)) for x, y in places)


def _gauges(sample: dict[str, Any], live: bool = False) -> float:
    """Return how many requests a sample's queues hold: by its gauges, or by its live source."""
    shown = sample if live or not sample.get("gauges") else sample["gauges"]
    return sum(finite(shown.get(name)) for name in _metrics.QUEUES)


def _throughput(sample: dict[str, Any]) -> float:
    return finite(sample.get("throughput"))


def _gaps(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"left": round(min(sample["x"] / BOX[0] * 100, 99), 2), "width": 1, "why": sample["trouble"]}
        for sample in drawn
        if sample.get("trouble")
    ]


def _in_words(samples: list[dict[str, Any]], read: list[dict[str, Any]], most: float) -> str:
    if not samples:
        return "no sample was taken"
    words = "{0} sample{1}".format(len(samples), "" if len(samples) == 1 else "s")
    if len(read) < len(samples):
        words += ", {0} not readable".format(len(samples) - len(read))
    if not read:
        return words
    words += ", {0} requests held at most".format(number(most)) if most else ", no request held in any"
    stale = [sample for sample in read if not sample.get("live")]
    return words + ("; gauges of /metrics, which may be stale" if stale else "")


# -- incarnations ----------------------------------------------------------------------------


def timeline(incarnations: list[dict[str, Any]], now: float) -> dict[str, Any]:
    """Return the picture of who was started when.

    Time is compressed: a gap is drawn as wide as its logarithm, so that the order of starts that are
    seconds apart shows beside hours.

    :param incarnations: of the members whose start is known, see :func:`report.incarnation`.
    :param now: seconds since the epoch.
    :return: ``rows`` (``rank`` among all by start, ``role``, ``name``, ``age``, ``bars`` with ``left``,
        ``width``, ``kind`` and ``words``, ``ends`` with ``left`` and ``words``) and ``last_prefill`` (where
        the newest prefill was started, None for no prefill).
    """
    known = [one for one in incarnations if one["started_at"] is not None]
    spans = {id(one): _spans(one, now) for one in known}
    moments = sorted({moment for of_one in spans.values() for span in of_one for moment in span[:2]} | {now})
    places = _places(moments)
    ranked = sorted(known, key=lambda one: one["started_at"])
    rows = []
    for one in known:
        bars, ends = [], []
        for began, ended, how in spans[id(one)]:
            current = began == one["started_at"]
            kind = "past" if not current else "current" if one["runs"] else "ended"
            words = "started {0} ago".format(ago(now - began)) + (
                ", ended by itself ({0}) {1} ago".format(how, ago(now - ended)) if how else ""
            )
            bars.append(
                {
                    "left": places[began],
                    "width": round(max(places[ended] - places[began], 0.8), 2),
                    "kind": kind,
                    "words": words,
                }
            )
            if how:
                ends.append({"left": places[ended], "words": words})
        rows.append(
            {
                "rank": ranked.index(one) + 1,
                "role": one["role"],
                "name": one["name"],
                "age": ago(now - one["started_at"]),
                "at": places[one["started_at"]],
                "bars": bars,
                "ends": ends,
            }
        )
    prefills = [places[one["started_at"]] for one in known if one["role"] == "prefill"]
    return {"rows": rows, "last_prefill": max(prefills, default=None)}


def _spans(one: dict[str, Any], now: float) -> list[tuple[float, float, str]]:
    """Return the incarnations of a unit that are drawn: start, end, and how it ended where that was by itself."""
    last = one["started_at"]
    # The journal tells a start some moments before or after the process has it.
    starts = [*sorted({at for at in one["starts"] if at < last - 5})[1 - STARTS_DRAWN :], last]
    spans = []
    for began, following in zip(starts, [*starts[1:], max(now, last)]):
        ends = [end for end in one["ends"] if began < end["at"] < following]
        ended = min(ends, key=lambda end: float(end["at"]), default=None)
        spans.append((began, ended["at"], ended["how"] or "ended") if ended else (began, following, ""))
    return spans


def _places(moments: list[float]) -> dict[float, float]:
    """Return where each moment is, in per cent of the width."""
    widths = [math.log1p(after - before) for before, after in zip(moments, moments[1:])]
    whole = sum(widths) or 1.0
    places, left = {moments[0]: 0.0}, 0.0
    for moment, width in zip(moments[1:], widths):
        left += width
        places[moment] = left
    # Room for the number at the left, and for a bar at the right.
    return {moment: round(3 + 96 * left / whole, 2) for moment, left in places.items()}


def ago(duration_seconds: float) -> str:
    """Return a duration as the evidence of a diagnosis has it: ``16 h``."""
    return _facts.duration(max(0.0, duration_seconds))


# -- latencies -------------------------------------------------------------------------------


def histogram(buckets: list[dict[str, Any]], marks: dict[str, Any]) -> dict[str, Any]:
    """Return the picture of latencies.

    :param buckets: see :func:`_latency.histogram`.
    :param marks: latencies in seconds by name, such as the median; None for one that is not known.
    :return: ``bars`` (``left``, ``width``, ``height`` in per cent, ``words``), ``marks`` (``left``, ``name``),
        ``first``, ``last``, ``top`` (the ends of the axes as text).
    """
    if not buckets:
        return {"bars": [], "marks": [], "first": "", "last": "", "top": ""}
    least, most = finite(buckets[0]["from_seconds"]), finite(buckets[-1]["to_seconds"])
    known = [finite(value) for value in marks.values() if value is not None]
    least, most = min([least, *known]), max([most, *known])
    highest = max(max(finite(bucket["count"]) for bucket in buckets), 1.0)

    def place(value: float) -> float:
        # Lines at the ends are drawn whole.
        return round(1 + (value - least) / (most - least) * 98, 2) if most > least else 50.0

    bars = []
    for bucket in buckets:
        if not bucket["count"]:
            continue
        left, right = place(finite(bucket["from_seconds"])), place(finite(bucket["to_seconds"]))
        width = max(right - left, 2.0)
        bars.append(
            {
                "left": min(left, 100 - width),
                "width": round(width, 2),
                "height": round(finite(bucket["count"]) / highest * 100, 2),
                "words": "{0} to {1}: {2}".format(
                    seconds(bucket["from_seconds"]), seconds(bucket["to_seconds"]), number(bucket["count"])
                ),
            }
        )
    return {
        "bars": bars,
        "marks": [{"left": place(finite(v)), "name": name} for name, v in marks.items() if v is not None],
        "first": seconds(least),
        "last": seconds(most) if most > least else "",
        "top": _answers(highest),
    }


def _answers(count: float) -> str:
    return "{0} answer{1}".format(number(count), "" if count == 1 else "s")


def steps(counts: list[tuple[str, float]]) -> dict[str, Any]:
    """Return the picture of latencies that were counted in buckets of unequal width: bars of equal width.

    :param counts: for each bucket its upper end as text and how many there are in it.
    :return: ``bars`` as in :func:`histogram`, ``first``, ``last``, ``top``.
    """
    filled = [place for place, (_limit, count) in enumerate(counts) if count > 0]
    if not filled:
        return {"bars": [], "marks": [], "first": "", "last": "", "top": ""}
    shown = counts[filled[0] : filled[-1] + 1]
    highest = max(finite(count) for _limit, count in shown)
    width = 100 / len(shown)
    bars = [
        {
            "left": round(place * width, 2),
            "width": round(width * 0.9, 2),
            "height": round(finite(count) / highest * 100, 2),
            "words": "up to {0}: {1}".format(limit, number(count)),
        }
        for place, (limit, count) in enumerate(shown)
        if count > 0
    ]
    first, last = "up to " + shown[0][0], "up to " + shown[-1][0] if len(shown) > 1 else ""
    return {"bars": bars, "marks": [], "first": first, "last": last, "top": _answers(highest)}
