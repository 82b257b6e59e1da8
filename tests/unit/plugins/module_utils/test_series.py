# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts over samples of a cluster's engines."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _series

QUEUES = {"prefill_bootstrap": 0, "prefill_inflight": 0, "decode_prealloc": 0, "decode_transfer": 0}
STALL = 20


def sample(at: float, inflight: float = 0, running: float = 0, tokens: float = 0, **more: Any) -> dict[str, Any]:
    """Return one sample of an engine, from a live source."""
    return {
        **QUEUES,
        "at": at,
        "live": True,
        "running": running,
        "waiting": 0,
        "throughput": tokens,
        "prefill_inflight": inflight,
        **more,
    }


def judge(prefill: list[dict[str, Any]], decode: list[dict[str, Any]] | None = None) -> tuple[str, str]:
    """Return verdict and reason for the prefill of a pair."""
    series = {"p": {"role": "prefill", "samples": prefill}}
    if decode is not None:
        series["d"] = {"role": "decode", "samples": decode}
    found = _series.judge(series, STALL)["p"]
    return found["verdict"], found["why"]


def test_H1_founding_series_is_drained() -> None:
    prefill = [sample(0, 17), sample(6, 1), sample(12, 1), sample(18, 0)]
    decode = [sample(0, 0, 9, 300), sample(6, 0, 1, 52.36), sample(12), sample(18)]
    assert judge(prefill, decode) == ("drained", "17 requests at most, now none")


def test_H2_a_gauge_beside_an_empty_live_source_is_stale() -> None:
    gauges = dict(QUEUES, prefill_inflight=1)
    prefill = [sample(0, gauges=gauges), sample(1, gauges=gauges)]
    verdict, why = judge(prefill, [sample(0), sample(1)])
    assert (verdict, "prefill inflight 1" in why) == ("stale gauge", True)


def gauge(at: float, inflight: float, **more: Any) -> dict[str, Any]:
    return sample(at, inflight, live=False, **more)


def test_H2_a_gauge_alone_is_unknown_until_it_was_watched_long_enough_or_nudged() -> None:
    verdict, why = judge([gauge(0, 1), gauge(10, 1)])
    assert (verdict, "may be stale" in why) == ("unknown", True)
    # A request was answered meanwhile: the gauge shows that one's own batch.
    assert judge([gauge(0, 1), gauge(10, 1), gauge(11, 1, nudges=1)])[0] == "stale gauge"
    # Three are not the nudge's own.
    assert judge([gauge(0, 3), gauge(10, 3), gauge(11, 3, nudges=1)])[0] == "unknown"
    # An idle engine would have written its gauges after 30 s.
    assert judge([gauge(at, 3) for at in range(0, 40, 5)])[0] == "stuck"
    assert judge([gauge(0, 1), gauge(20, 1), gauge(31, 0)])[0] == "drained"


def test_H3_requests_held_while_decode_does_nothing_are_stuck() -> None:
    # Clients try again: prompts are computed anew, failures rise, nothing is decoded.
    prefill = [sample(at, 3 + at % 2, progress=100.0 * at, failed=at) for at in range(0, 25)]
    decode = [sample(at, progress=7.0) for at in range(0, 25)]
    verdict, why = judge(prefill, decode)
    assert verdict == "stuck"
    assert "24 transfers failed meanwhile" in why and "prefill inflight 3" in why


def test_H3_is_not_told_before_the_stall_time() -> None:
    assert judge([sample(0, 3), sample(19, 3)], [sample(0), sample(19)])[0] == "unknown"


def test_H4_queues_under_traffic_with_tokens_are_flowing() -> None:
    prefill = [sample(at, held) for at, held in zip((0, 30, 60), (40, 35, 44))]
    decode = [sample(at, 0, 8, 900 + at) for at in (0, 30, 60)]
    assert judge(prefill, decode)[0] == "flowing"


def test_a_request_pinned_while_others_flow_is_stuck_once_those_end() -> None:
    prefill = [sample(at, 1) for at in range(0, 60, 5)]
    decode = [sample(at, 0, 1 if at < 30 else 0, 50 if at < 30 else 0) for at in range(0, 60, 5)]
    assert judge(prefill[:6], decode[:6])[0] == "flowing"
    assert judge(prefill, decode)[0] == "stuck"


def test_frozen_gauges_that_show_a_throughput_are_no_flow() -> None:
    prefill = [gauge(at, 3) for at in range(0, 60, 5)]
    decode = [gauge(at, 0, running=1, throughput=52.36) for at in range(0, 60, 5)]
    assert judge(prefill, decode)[0] == "stuck"


def test_idle() -> None:
    assert judge([sample(0), sample(1)], [sample(0), sample(1)]) == ("idle", "no request in any sample")


def test_work_between_two_samples_is_no_idleness() -> None:
    assert judge([sample(0, progress=3.0), sample(1, progress=9.0)])[0] == "drained"


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([], "no sample was taken"),
        ([sample(0)], "one sample proves nothing"),
        ([{"at": 0, "trouble": "HTTP 401"}, {"at": 1, "trouble": "HTTP 401"}], "HTTP 401"),
        (
            [sample(0), sample(1), {"at": 2, "trouble": "gone"}, {"at": 9, "trouble": "gone"}],
            "no sample since 8 s: gone",
        ),
    ],
)
def test_H5_what_cannot_be_read_is_unknown(samples: list[dict[str, Any]], why: str) -> None:
    verdict, reason = judge(samples)
    assert verdict == "unknown"
    assert why in reason


def test_H5_absent_unread_and_reset_counters_are_three_things() -> None:
    unread = {"at": 5, "trouble": "HTTP 503"}
    assert _series.increase([sample(0, failed=0), sample(1, failed=0)], "failed") == ("counted", 0)
    assert _series.increase([sample(0, failed=21), unread, sample(9, failed=23)], "failed") == ("counted", 2)
    assert _series.increase([unread, unread], "failed") == ("unknown", 0)
    assert _series.increase([sample(0), sample(1, failed=3)], "failed") == ("unknown", 0)
    assert _series.increase([sample(0, failed=21), sample(1, failed=1)], "failed") == ("reset", 1)
    anew = [sample(0, progress=1.0, invocation="a"), sample(1, progress=9.0, invocation="b")]
    assert _series.increase(anew, "progress") == ("reset", 9)
    assert _series.restarted(anew)


def test_a_new_incarnation_is_told_by_its_label_where_its_counters_passed_the_old_ones() -> None:
    before, after = sample(0, invocation="first"), sample(1, invocation="second")
    for one in (before, after):
        # A fresh engine shows no gauges, and so no counters are read.
        one.pop("progress", None)
    assert _series.restarted([before, after])
    assert not _series.restarted([before, sample(1, invocation="first")])


def test_watching_is_over_when_all_engines_are_empty_twice_or_stuck() -> None:
    def over(*held: float, most: float = 0) -> bool:
        series = {"p": {"role": "prefill", "samples": [sample(at * 5, one) for at, one in enumerate(held)]}}
        return _series.is_over(series, _series.judge(series, STALL), most)

    assert not over(3, 0)
    assert over(3, 0, 0)
    assert not over(3, 3, 3)
    assert over(3, 3, 3, 3, 3)
    assert over(9, 2, 2, most=2)


def test_long_series_keep_their_beginning_and_all_of_the_newest() -> None:
    kept = _series.thinned([sample(at) for at in range(100)], 40)
    assert len(kept) <= 40
    assert kept[0]["at"] == 0
    assert [one["at"] for one in kept[-10:]] == list(range(90, 100))


def test_the_table_shows_changes_with_their_time() -> None:
    lines = _series.table([sample(100, 17), sample(101, 17), sample(106, 1, 1, 52.36), sample(112)], 100)
    assert lines == [
        "   0.0 s  prefill inflight 17",
        "   6.0 s  prefill inflight 1, running 1, 52.4 tokens/s",
        "  12.0 s  nothing pending",
    ]
