# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened when in a roll, as numbers: a row for each cluster under its wave. Pure; the templates make SVG of it.

Places across are in per cent, as in :mod:`pictures`; places down are in pixels. A fleet of more clusters than
:data:`ROWS` gets a row for each wave instead, with how many clusters served nobody at a time, and rows of their own
only for those that went wrong.
"""

from __future__ import annotations

import math
import time
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import pictures, roll_account
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

#: Clusters that have a row each; waves, or groups of waves, that have one in larger fleets; of these fleets,
#: clusters that went wrong and have a row.
ROWS, WAVE_ROWS, BAD_ROWS = 60, 20, 40
#: Heights in pixels: of the axis, of a wave's line, of a cluster's row, of a curve.
AXIS, HEAD, ROW, CURVE = 22, 26, 46, 40
#: Characters of a cluster's name, and of what is said of a wave, that a phone has room for.
NAME, WAVE = 20, 38
#: A time in which nobody worked is drawn so wide at most, in per cent; all of them together, where they are many.
BREAK, BREAKS = 3.0, 30.0
#: Seconds, and share of the time that was worked, from which on a time is one in which nobody worked.
IDLE_SECONDS, IDLE_SHARE = 120.0, 0.05

_STEPS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000)


def gantt(found: dict[str, Any]) -> dict[str, Any]:
    """Return the picture of a roll.

    :param found: see :func:`roll_account.account`.
    :return: ``height``, ``axis`` (``left``, ``anchor``, ``words``), ``breaks`` (``left``, ``words``), ``waves`` (``y``,
        ``words``, ``short``, ``when``, ``look``, ``band``: ``left``, ``width``, ``top``, ``height``; ``curve``: None or
        ``y``, ``points``, ``words``), ``rows`` (see :func:`_row`), ``rest`` (clusters that went wrong and have no row),
        ``kinds`` (of bars that are drawn), ``failed``, ``again``, ``still`` (whether a bar is marked so, a cluster was
        tried again, a cluster has no service). No ``rows`` and no ``waves`` where nothing happened.
    """
    begun = [wave for wave in found["waves"] if wave["began_at"] is not None]
    scale = _Scale(_spans(found, begun))
    large = len(found["clusters"]) > ROWS
    picture: dict[str, Any] = {"waves": [], "rows": [], "rest": 0, "breaks": scale.breaks(), "axis": scale.axis()}
    groups = _groups(begun, large)
    y = float(AXIS)
    for group in groups:
        numbers = [(wave["run"], wave["number"]) for wave in group]
        mine = [one for one in found["clusters"] if (one["run"], one["wave"]) in numbers]
        drawn = [one for one in mine if one["attempts"] and (not large or one["outcome"] in roll_account.BAD)]
        if large:
            room = BAD_ROWS - len(picture["rows"])
            picture["rest"] += max(0, len(drawn) - room)
            drawn = drawn[:room]
        head = _wave(found, group, mine, scale)
        top = y
        y += HEAD
        if large:
            head["curve"] = dict(_curve(mine, scale), y=y)
            y += CURVE
        for one in drawn:
            picture["rows"].append(_row(one, group, y, scale))
            y += ROW
        head["band"].update(top=top, height=y - top)
        picture["waves"].append(dict(head, y=top))
    bars = [bar for row in picture["rows"] for bar in row["bars"]]
    kinds = {bar["kind"] for bar in bars}
    return dict(
        picture,
        height=y + AXIS,
        kinds=[one for one in (*roll_account.STEPS_OF, roll_account.SOAK) if one in kinds],
        failed=any(bar["failed"] for bar in bars),
        again=any(row["attempts"] for row in picture["rows"]),
        still=any(down["open"] for row in picture["rows"] for down in row["downs"]),
    )


def _groups(waves: list[dict[str, Any]], large: bool) -> list[list[dict[str, Any]]]:
    """Return waves that share a row: in a large fleet those that follow each other and went well."""
    size = math.ceil(len(waves) / WAVE_ROWS) if large else 1
    bad = [bool(wave["failed"]) for wave in waves]
    apart = bad.count(True) <= WAVE_ROWS
    groups: list[list[dict[str, Any]]] = []
    for place, wave in enumerate(waves):
        alike = place > 0 and waves[place - 1]["run"] == wave["run"]
        if apart and (bad[place] or bad[place - 1]):
            alike = False
        if alike and len(groups[-1]) < size:
            groups[-1].append(wave)
        else:
            groups.append([wave])
    return groups


# -- time ------------------------------------------------------------------------------------


def _spans(found: dict[str, Any], begun: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return from when to when somebody worked."""
    spans = [(wave["began_at"], wave["ended_at"]) for wave in begun if wave["ended_at"] is not None]
    spans += [(wave["began_at"], wave["began_at"]) for wave in begun]
    for one in found["clusters"]:
        spans += [(attempt["began_at"], attempt["ended_at"]) for attempt in one["attempts"]]
    moments = [at for at in (found["began_at"], found["ended_at"]) if at is not None]
    return [*spans, *((at, at) for at in moments)]


class _Scale:
    """Where moments are across the picture."""

    def __init__(self, spans: list[tuple[float, float]]):
        worked = _merged(spans, IDLE_SECONDS)
        busy = sum(ended - began for began, ended in worked)
        worked = _merged(worked, max(IDLE_SECONDS, busy * IDLE_SHARE))
        busy = sum(ended - began for began, ended in worked) or 1.0
        gaps = len(worked) - 1
        self._gap = min(BREAK, BREAKS / gaps) if gaps > 0 else 0.0
        share = (100 - self._gap * max(gaps, 0)) / busy
        #: Of each time in which somebody worked: begin, end, place of the begin, per cent a second.
        self._worked, left = [], 0.0
        for began, ended in worked:
            self._worked.append((began, ended, left, share))
            left += (ended - began) * share + self._gap
        self._busy = busy

    def place(self, at: float) -> float:
        """Return where a moment is, in per cent."""
        found = 0.0
        for began, ended, left, share in self._worked:
            if at < began:
                break
            found = left + (min(at, ended) - began) * share
        return round(min(max(found, 0.0), 100.0), 2)

    def breaks(self) -> list[dict[str, Any]]:
        """Return the times that are drawn shorter than they were."""
        found = []
        for (_began, ended, left, share), following in zip(self._worked, self._worked[1:]):
            middle = left + (ended - _began) * share + self._gap / 2
            found.append(
                {"left": round(middle, 2), "words": "{0} without any work".format(words.span(following[0] - ended))}
            )
        return found

    def axis(self) -> list[dict[str, Any]]:
        """Return the moments that are written at the axis, in UTC."""
        if not self._worked:
            return []
        first, last = self._worked[0][0], self._worked[-1][1]
        step = next((one for one in _STEPS if self._busy / one <= 6), _STEPS[-1])
        form = "%H:%M:%S" if step < 60 else "%H:%M"
        if time.gmtime(first)[:3] != time.gmtime(last)[:3]:
            form = "%d %b " + form
        apart = {8: 22.0, 5: 15.0}.get(len(time.strftime(form, time.gmtime(first))), 30.0)
        found: list[dict[str, Any]] = [
            {"left": 0.0, "anchor": "start", "words": time.strftime(form, time.gmtime(first))}
        ]
        for began, ended, _left, _share in self._worked:
            for number in range(math.ceil(began / step), math.floor(ended / step) + 1):
                left = self.place(number * step)
                if left - found[-1]["left"] >= apart and left <= 100 - apart / 2:
                    text = time.strftime(form, time.gmtime(number * step))
                    found.append({"left": left, "anchor": "middle", "words": text})
        return found


def _merged(spans: list[tuple[float, float]], apart: float) -> list[tuple[float, float]]:
    """Return spans as one where less than so many seconds are between them."""
    found: list[tuple[float, float]] = []
    for began, ended in sorted(spans):
        if found and began - found[-1][1] <= apart:
            found[-1] = (found[-1][0], max(found[-1][1], ended))
        else:
            found.append((began, ended))
    return found


# -- rows ------------------------------------------------------------------------------------


def _wave(
    found: dict[str, Any], group: list[dict[str, Any]], mine: list[dict[str, Any]], scale: _Scale
) -> dict[str, Any]:
    first, last = group[0], group[-1]
    name = roll_account.wave_name(found, first)
    if first is not last:
        name = "{0} to {1}".format(name.rpartition(",")[0].replace("wave", "waves"), last["number"])
    counted = roll_account.tally({"clusters": mine})
    bad = any(one in roll_account.BAD for one in counted) or any(_soak_failed(wave) for wave in group)
    said = ["soak failed"] if any(_soak_failed(wave) for wave in group) else []
    said += ["{0:,} {1}".format(count, roll_account.in_words(one)) for one, count in counted.items()]
    ended_at = _end(found, last)
    left, right = scale.place(first["began_at"]), scale.place(ended_at)
    text = "{0}: {1}".format(name, ", ".join(said) or "taken up again")
    return {
        "words": text,
        "short": _short(text, WAVE),
        "when": words.span(ended_at - first["began_at"]),
        "look": "bad" if bad else "quiet",
        "band": {"left": left, "width": round(max(right - left, 0.3), 2)},
        "curve": None,
    }


def _end(found: dict[str, Any], wave: dict[str, Any]) -> float:
    """Return when a wave ended; of one that did not, when it was last worked on."""
    if wave["ended_at"] is not None:
        return float(wave["ended_at"])
    attempts = [attempt for one in found["clusters"] if one["name"] in wave["clusters"] for attempt in one["attempts"]]
    ends = [attempt["ended_at"] for attempt in attempts if attempt["run"] == wave["run"]]
    return float(max([*ends, wave["began_at"]]))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip(" ,") + "…"


def _soak_failed(wave: dict[str, Any]) -> bool:
    return bool(wave["soak"] and wave["soak"]["outcome"] == "failed")


def _row(one: dict[str, Any], group: list[dict[str, Any]], y: float, scale: _Scale) -> dict[str, Any]:
    """Return the row of a cluster.

    :return: ``y``, ``name``, ``words``, ``note``, ``look``, ``bars`` (``kind``, ``left``, ``width``, ``words``,
        ``label``, ``failed``), ``downs`` (``left``, ``right``, ``open``, ``words``), ``attempts`` (of all but the first
        one: ``left``, ``number``, ``words``).
    """
    bars = []
    for attempt in one["attempts"]:
        for bar in attempt["bars"]:
            bars.append(
                _bar(bar["stage"], bar["began_at"], bar["ended_at"], scale, failed=bar["failed"] or bar["open"])
            )
    soak = group[-1]["soak"]
    if soak and soak["began_at"] is not None and one["name"] in soak["clusters"]:
        ended_at = soak["ended_at"] if soak["ended_at"] is not None else soak["began_at"]
        failed = soak["outcome"] == "failed" and one["outcome"] in roll_account.BAD
        bars.append(_bar(roll_account.SOAK, soak["began_at"], ended_at, scale, failed=failed))
    downtime = roll_account.downtime_of(one)
    bad = one["outcome"] in roll_account.BAD
    sign = "✗ " if bad else "✓ " if one["outcome"] == "done" else ""
    name = words.plain(one["name"])
    return {
        "y": y,
        "name": _short(name, NAME),
        "words": "{0}: {1}".format(name, roll_account.outcome_of(one)),
        "note": sign + roll_account.in_words(one["outcome"]) + (", down " + downtime if downtime else ""),
        "look": "bad" if bad else "quiet",
        "bars": bars,
        "downs": _downs(one, scale),
        "attempts": [
            {"left": scale.place(attempt["began_at"]), "number": attempt["number"], "words": _attempt(attempt)}
            for attempt in one["attempts"][1:]
        ],
    }


def _attempt(attempt: dict[str, Any]) -> str:
    return "attempt {0}: {1}".format(attempt["number"], attempt["kind"])


def _bar(kind: str, began_at: float, ended_at: float, scale: _Scale, failed: bool) -> dict[str, Any]:
    left, right = min(scale.place(began_at), 99.7), scale.place(ended_at)
    width = min(max(right - left, 0.3), 100 - left)
    return {
        "kind": kind,
        "left": left,
        "width": round(width, 2),
        "words": "{0} {1}{2}".format(kind, words.span(ended_at - began_at), ", failed or cut off" if failed else ""),
        # Narrower ones have no room for a word.
        "label": kind if width >= 7 else "",
        "failed": failed,
    }


def _downs(one: dict[str, Any], scale: _Scale) -> list[dict[str, Any]]:
    downtime = one["downtime"]
    if not downtime:
        return []
    found = []
    for span in downtime["intervals"]:
        is_open = span["ended_at"] is None
        known = max(one["ended_at"] or 0.0, span["began_at"]) if is_open else span["ended_at"]
        left, right = scale.place(span["began_at"]), scale.place(known)
        words_of = "without service {0}".format(words.span(known - span["began_at"]))
        found.append(
            {
                "left": left,
                "right": max(right, min(left + 0.3, 100.0)),
                "open": is_open,
                "words": words_of + (", and nobody saw it serve again" if is_open else ""),
            }
        )
    return found


def _curve(mine: list[dict[str, Any]], scale: _Scale) -> dict[str, Any]:
    """Return how many clusters served nobody, over time, as a polygon in :data:`pictures.BOX`."""
    changes: dict[float, int] = {}
    still = 0
    for one in mine:
        for span in one["downtime"]["intervals"] if one["downtime"] else []:
            changes[span["began_at"]] = changes.get(span["began_at"], 0) + 1
            if span["ended_at"] is None:
                still += 1
            else:
                changes[span["ended_at"]] = changes.get(span["ended_at"], 0) - 1
    width, height = pictures.BOX
    points, count, most = [], 0, 0
    for at in sorted(changes):
        x = scale.place(at) / 100 * width
        points.append((x, count))
        count += changes[at]
        most = max(most, count)
        points.append((x, count))
    if count and points:
        points.append((width, count))
    top = float(max(most, 1))
    shape = [(points[0][0], 0), *points, (points[-1][0], 0)] if points else []
    text = "{0} without service at a time at most".format(words.number_of(most, "cluster"))
    return {
        "points": " ".join("{0:g},{1:g}".format(round(x, 1), round(height * (1 - y / top), 1)) for x, y in shape),
        "words": text + (", {0:,} still".format(still) if still else ""),
    }
