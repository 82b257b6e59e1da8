# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from ``/metrics``."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _metrics
from prometheus_client.parser import text_string_to_metric_families as parse

RECORDED = Path(__file__).resolve().parents[3] / "recorded" / "captures"
MODES = {"prefill_compute": 3, "prefill_cache": 900, "decode": 7}
COUNTED = 'sglang:num_transfer_failed_reqs_total{engine_type="decode",tp_rank="0"} 1\n'


def test_H8_a_fresh_decode_that_wrote_no_gauges_yet_tells_its_counters() -> None:
    assert _metrics.totals(COUNTED, parse) == {_metrics.FAILED_COUNTER: 1}
    assert _metrics.metrics_sample(COUNTED, parse) is None, "its queues are not known"
    assert _metrics.metrics_sample(COUNTED + "sglang:num_running_reqs 0\n", parse) is not None


def test_a_body_without_an_engines_series_tells_nothing() -> None:
    assert _metrics.totals("smg_worker_cb_state 1\n", parse) is None
    assert _metrics.totals("<html>", parse) is None


def test_H8_requests_that_wait_for_their_bootstrap_are_counted_once() -> None:
    # The real engine counts them among its waiting requests, too.
    recorded = RECORDED / "D4_ucxtcp_transfer_15s_stopped__prefill__v1_loads.txt"
    body = recorded.read_bytes().partition(b"\n")[2]
    assert b'"num_waiting_reqs":5' in body
    sample = _metrics.loads_sample(body)
    assert sample is not None
    assert (sample["prefill_bootstrap"], sample["prefill_inflight"], sample["waiting"]) == (5, 5, 0)
    more = _metrics.loads_sample(body.replace(b'"num_waiting_reqs":5', b'"num_waiting_reqs":8'))
    assert more is not None
    assert more["waiting"] == 3


def test_the_tokens_of_batches_are_told_by_how_they_came_about() -> None:
    lines = [f'sglang:realtime_tokens_total{{mode="{mode}"}} {number}\n' for mode, number in MODES.items()]
    found = _metrics.totals("".join(lines), parse)
    assert found is not None
    assert (found[_metrics.COMPUTED], found[_metrics.DECODED]) == (3, 7)


def test_requests_for_tokens_are_told_from_others_that_http_holds() -> None:
    paths = {"/v1/chat/completions": 2, "/generate": 1, "/health": 4, "/metrics": 1}
    lines = [f'sglang:http_requests_active{{endpoint="{path}"}} {number}\n' for path, number in paths.items()]
    found = _metrics.totals("".join(lines), parse)
    assert found is not None
    assert found[_metrics.ACTIVE_COMPLETIONS] == 3
