# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from ``/metrics``."""

from __future__ import annotations

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _metrics
from prometheus_client.parser import text_string_to_metric_families as parse

COUNTED = 'sglang:num_transfer_failed_reqs_total{engine_type="decode",tp_rank="0"} 1\n'


def test_H8_a_fresh_decode_that_wrote_no_gauges_yet_tells_its_counters() -> None:
    assert _metrics.totals(COUNTED, parse) == {_metrics.FAILED_COUNTER: 1}
    assert _metrics.metrics_sample(COUNTED, parse) is None, "its queues are not known"
    assert _metrics.metrics_sample(COUNTED + "sglang:num_running_reqs 0\n", parse) is not None


def test_a_body_without_an_engines_series_tells_nothing() -> None:
    assert _metrics.totals("smg_worker_cb_state 1\n", parse) is None
    assert _metrics.totals("<html>", parse) is None
