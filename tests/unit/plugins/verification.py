# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of a verification as hosts give them, made by the core from what was sent and sampled."""

from __future__ import annotations

import math
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _baseline, _metrics, _profiles, _verify

from .fleet import member

OPTIONS: dict[str, Any] = {
    **{name: option.get("default") for name, option in _profiles.OPTIONS.items()},
    "model": "/m",
}
MEMBERS = [member("prefill", "p"), member("decode", "d"), member("router", "r")]
PREFILL, DECODE = (_profiles.name_of(one) for one in MEMBERS[:2])


def sample(at: float, **more: Any) -> dict[str, Any]:
    """Return a sample of an engine from a live source; what is not given is 0."""
    empty = {"running": 0, "waiting": 0, "throughput": 0.0, "failed": 0, **dict.fromkeys(_metrics.QUEUES, 0)}
    return {**empty, "at": at, "live": True, "nudges": 0, "gauges": {}, **more}


def wave(at: int) -> float:
    """Return a load that rises and falls, 0 to 1."""
    return max(0.0, math.sin(at / 60 * math.pi)) * (0.75 + 0.25 * math.sin(at))


def served(stuck: bool = False) -> dict[str, dict[str, Any]]:
    """Return 70 samples of each engine; where it is stuck, 40 requests stay in flight at prefill."""
    prefill, decode, progress = [], [], 0.0
    for at in range(70):
        load = wave(at) if not stuck or at < 30 else 0.0
        progress += round(900 * load)
        inflight = 40 if stuck and at >= 20 else round(12 * load)
        running = {"prefill": round(6 * load), "decode": round(32 * load)}
        prefill.append(
            sample(at, running=running["prefill"], prefill_bootstrap=round(4 * load), prefill_inflight=inflight)
        )
        speed = {"throughput": 900 * load, "progress": progress}
        decode.append(sample(at, running=running["decode"], decode_transfer=round(5 * load), **speed))
    return {PREFILL: {"role": "prefill", "samples": prefill}, DECODE: {"role": "decode", "samples": decode}}


def records(part: dict[str, Any], bad: str = "") -> list[dict[str, Any]]:
    """Return what became of each request of a part; with ``bad`` the second half is not served, for that reason."""
    found = []
    for lane, requests in enumerate(part["lanes"]):
        for number, request in enumerate(requests):
            turn = len(found)
            seconds = 1.177 if part["cold_first"] and number == 0 else 0.55 + 0.3 * abs(math.sin(turn * 7)) ** 3
            good = not bad or turn * 2 < len(part["lanes"]) * len(requests)
            one = {"lane": lane, "number": number, "good": good, "seconds": round(seconds if good else 35, 4)}
            one.update(first_seconds=round(seconds / 3, 4) if request["stream"] else None)
            one.update({"dropped": 3} if "drop" in request else {})
            one.update(tokens=24 if good else 0, **({} if good else {"why": bad}))
            found.append(one)
    return found


def result(bad: str = "", stuck: bool = False, **options: Any) -> dict[str, Any]:
    """Return the result of a verification of the standard profile that was compared with a baseline."""
    given = {**OPTIONS, **options}
    plan = _profiles.plan(MEMBERS, given)
    state = {
        **_verify.new_state(),
        "began": 0.0,
        "series": served(stuck),
        "records": {part["part"]: records(part, bad) for part in plan},
    }
    stored = {"count": 7, "median": 0.41, "p95": 0.5, "maximum": 0.6}
    measured = {_baseline.key(part["part"], part["shape"]): stored for part in plan[:1]}
    store = _baseline.update({}, "0123abcd", measured, 1.0, anew=False)
    return _verify.report(MEMBERS, given, state, store, "0123abcd")
