# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages to test: of verifications that the core judged, of recorded states of the real engine, of hostile hosts."""

from __future__ import annotations

import functools
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _diagnosis, _observations
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import report
from prometheus_client.parser import text_string_to_metric_families

from .. import verification
from ..fleet import record
from ..module_utils.sighting import HOUR, NOW, Sighting
from ..module_utils.test_diagnosis import captures, founding, vanished

WEDGED = "wedge_0.5.16_01_broken_after_decode_vanished_and_restarted"
MIDSTREAM = "D1_fastHC_midstream_before_kill"
HOSTILE = "\"'><script>alert(1)</script><svg onload=alert(2)> &lt;&#x202e; 模型 " + "W" * 300


def incarnations(*ages: float, **more: Any) -> list[dict[str, Any]]:
    """Return prefill, decode and router, started so many seconds ago."""
    records = [
        record(role, role[0], started_at=NOW - age, invocation_id=role, **more)
        for role, age in zip(("prefill", "decode", "router"), ages)
    ]
    return [report.incarnation("c", one["member"], one["unit"], one["ledger"]) for one in records]


def verified(**more: Any) -> dict[str, Any]:
    """Return what the file of a verification holds."""
    content = verification.result(**more)
    return dict(content, cluster="c", written_at=NOW, incarnations=incarnations(3600, 3540, 3500))


def refused() -> dict[str, Any]:
    """Return a verification that sent nothing, of a cluster that nobody answered for."""
    empty: dict[str, Any] = {"parts": [], "series": {}, "recovery": {}, "regressions": [], "incarnations": []}
    failures = ["not verified, nothing was sent: host d did not answer: no route"]
    return dict(empty, outcome="failed", failures=failures, profile="smoke", cluster="c", written_at=NOW)


def diagnosed(items: list[dict[str, Any]], hunch: str = "", scenario: str = "") -> str:
    """Return the page of a diagnosis of the one cluster that items tell of."""
    (observation,) = _observations.clusters(items, text_string_to_metric_families, scenario).values()
    return report.diagnose_page(_diagnosis.diagnose(observation, hunch), observation)


def sighted(*changes: Any, hunch: str = "") -> str:
    """Return the page of a diagnosis of a healthy cluster to which something happened."""
    one = Sighting()
    for change in changes:
        change(one)
    return diagnosed(one.items(), hunch)


def busy(one: Sighting) -> None:
    """Requests come and go, and latencies are known."""
    one.numbers["prefill"].update(running=[2, 0, 3], prefill_inflight=[1, 4, 0], gauge_inflight=7)
    one.numbers["decode"].update(running=[8, 12, 9], throughput=[300.5, 420, 380], generated=[9000, 9900, 11000])
    one.numbers["decode"]["latencies"] = {"1": 5, "10": 60, "100": 61, "400": 61, "+Inf": 61}


def hostile(one: Sighting) -> None:
    """Whatever a host says is hostile or without bounds."""
    busy(one)
    one.unreachable["r"] = HOSTILE
    one.facts["decode"]["unit"].update(active_state=HOSTILE, invocation_id=HOSTILE, started_at=9e14)
    one.facts["prefill"]["ledger"].update(generation=10**14, incarnation=HOSTILE)
    one.facts["prefill"]["starts"]["ends"] = [{"at": NOW - HOUR, "how": HOSTILE}]
    # What is beyond all that is counted is not read at all; this is just below.
    one.numbers["decode"].update(running=10**17, throughput=9e17)


def hostile_verification() -> dict[str, Any]:
    """Return a verification whose every text is hostile and whose numbers are without bounds."""
    content = verified(bad=HOSTILE, stuck=True)
    watched = next(iter(content["series"].values()))
    watched["samples"][5] = {"at": 5, "trouble": HOSTILE}
    watched["samples"][9].update(running=1e300, throughput=float("inf"))
    content["series"] = {HOSTILE: dict(watched, verdict=HOSTILE, why=HOSTILE, role=HOSTILE)}
    content.update(cluster=HOSTILE, profile=HOSTILE, revision=HOSTILE, incarnations=incarnations(9e11, -5, 1))
    for one in content["incarnations"]:
        one.update(unit=HOSTILE, host=HOSTILE, name=HOSTILE)
    return content


@functools.lru_cache(maxsize=1)
def pages() -> dict[str, str]:
    """Return every kind of page by a name of it."""
    recorded = captures()
    return {
        "verified": report.verify_page(verified()),
        "verified_badly": report.verify_page(verified(bad="no answer within 35 s", stuck=True)),
        "refused": report.verify_page(refused()),
        "hostile_verification": report.verify_page(hostile_verification()),
        "founding": sighted(founding, hunch="overlap schedule"),
        "vanished": sighted(vanished),
        "busy": sighted(busy),
        "hostile": sighted(hostile, hunch=HOSTILE),
        "recorded_wedge": diagnosed(recorded[WEDGED], scenario=WEDGED),
        "recorded_midstream": diagnosed(recorded[MIDSTREAM], scenario=MIDSTREAM),
    }
