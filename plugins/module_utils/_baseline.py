# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Latencies of good verifications, per cluster and configuration revision; regressions against them. Pure.

A store is what lies on the host: ``revisions``, by revision ``stored_at`` (seconds since the
epoch) and ``parts``, by part and shape a summary of :mod:`_latency`. Parts are compared only
in the same shape: 1,000 requests at a time have other latencies than 30.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

#: Revisions that are kept, the newest.
KEPT = 20
#: What is compared of a summary.
COMPARED = ("median", "p95")


def revision_of(members: Iterable[dict[str, Any]]) -> str:
    """Return what names the configuration that a cluster's members run: 16 hexadecimal digits.

    :param members: with ``host``, ``unit`` and ``configuration`` (the hash that the running
        incarnation noted).
    """
    lines = sorted([str(m["host"]), str(m["unit"]), str(m["configuration"])] for m in members)
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]


def compare(
    store: dict[str, Any], revision: str, parts: dict[str, dict[str, Any]], factor: float, slack_seconds: float
) -> list[dict[str, Any]]:
    """Return what each part's latencies are against the stored ones.

    Against those of the same revision where there are any, else of the newest other one.

    :param parts: summaries by key (see :func:`key`).
    :param factor, slack_seconds: a median or p95 is a regression when it is more than
        ``factor`` times the stored one and more than ``slack_seconds`` above it: a short
        latency doubles by chance.
    """
    rows = []
    for name, now in sorted(parts.items()):
        against, then = _stored(store, revision, name)
        if then is None or not now["count"]:
            continue
        slower = [
            "{0} {1:.3f} s, was {2:.3f} s".format(what, now[what], then[what])
            for what in COMPARED
            if now[what] > then[what] * factor and now[what] > then[what] + slack_seconds
        ]
        rows.append(
            {
                "part": name,
                "against": against,
                "same_revision": against == revision,
                "now": {what: now[what] for what in COMPARED},
                "then": {what: then[what] for what in COMPARED},
                "regression": bool(slower),
                "why": ", ".join(slower),
            }
        )
    return rows


def _stored(store: dict[str, Any], revision: str, name: str) -> tuple[str, dict[str, Any] | None]:
    revisions = store.get("revisions", {})
    newest_first = sorted(revisions, key=lambda one: (one != revision, -float(revisions[one]["stored_at"])))
    for one in newest_first:
        numbers = revisions[one]["parts"].get(name)
        if numbers:
            return one, numbers
    return "", None


def update(
    store: dict[str, Any], revision: str, parts: dict[str, dict[str, Any]], now: float, anew: bool
) -> dict[str, Any]:
    """Return the store with the latencies of a good verification.

    The first good verification of a revision sets its baseline; later ones add the parts that
    it lacks and leave the others, so that a slow drift is seen against the beginning.

    :param now: seconds since the epoch.
    :param anew: True to replace what is stored of these parts.
    """
    revisions = dict(store.get("revisions", {}))
    known = revisions.get(revision, {"stored_at": now, "parts": {}})
    measured = {name: numbers for name, numbers in parts.items() if numbers["count"]}
    merged = dict(known["parts"], **measured) if anew else dict(measured, **known["parts"])
    revisions[revision] = {"stored_at": now if anew else known["stored_at"], "parts": merged}
    kept = sorted(revisions, key=lambda one: float(revisions[one]["stored_at"]))[-KEPT:]
    return dict(store, revisions={one: revisions[one] for one in kept})


def key(part: str, shape: str) -> str:
    """Return under which name a part's latencies are stored."""
    return "{0} {1}".format(part, shape)


def slow(seconds: float, then: dict[str, Any] | None, factor: float, slack_seconds: float) -> bool:
    """Tell whether one answer took longer than the slowest of the baseline allows."""
    if not then:
        return False
    return seconds > float(then["maximum"]) * factor and seconds > float(then["maximum"]) + slack_seconds


def stored_part(store: dict[str, Any], revision: str, name: str) -> dict[str, Any] | None:
    """Return the stored latencies that a part is compared with, None where there are none."""
    return _stored(store, revision, name)[1]


def describe(row: dict[str, Any]) -> str:
    """Return one comparison as words."""
    whose = "this revision" if row["same_revision"] else "revision {0}".format(row["against"])
    if row["regression"]:
        return "{0}: REGRESSION against {1}: {2}".format(row["part"], whose, row["why"])
    numbers = ", ".join("{0} {1:.3f} s (was {2:.3f} s)".format(n, row["now"][n], row["then"][n]) for n in COMPARED)
    return "{0}: no regression against {1}: {2}".format(row["part"], whose, numbers)
