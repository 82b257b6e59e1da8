# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers, metrics and queues: what proves that requests are served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _answers, _metrics, _queues
from prometheus_client.parser import text_string_to_metric_families

RECORDED = Path(__file__).resolve().parents[3] / "recorded" / "engine"


def chat(content: str | None = "hi", reason: str = "stop", tokens: int = 3) -> bytes:
    choice = {"message": {"content": content}, "finish_reason": reason}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": tokens}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "seconds", "why"),
    [
        (200, chat(), 0.6, ""),
        (200, chat(reason="length"), 0.6, ""),
        (200, chat(""), 0.6, "empty text"),
        (200, chat(None), 0.6, "empty text"),
        (200, chat(reason="abort"), 0.6, "finish_reason 'abort'"),
        (200, chat(reason="error"), 0.6, "finish_reason 'error'"),
        (200, chat(tokens=0), 0.6, "0 completion tokens"),
        (200, chat(), 301.0, "answered after 301.0 s"),
        (200, b"<html>", 0.6, "no chat answer"),
        (200, b"[]", 0.6, "no chat answer"),
        (200, b'{"choices": []}', 0.6, "no chat answer"),
        (503, b"no workers", 0.6, "HTTP 503: no workers"),
        (None, b"", 35.0, "no answer: nothing within 35 s"),
    ],
)
def test_H10_status_alone_proves_nothing(status: int | None, body: bytes, seconds: float, why: str) -> None:
    verdict = _answers.judge(status, body, seconds, 35, "nothing within 35 s")
    assert verdict["good"] is (not why)
    assert why in verdict["why"]


def metrics(text: str) -> dict[str, Any] | None:
    return _metrics.metrics_sample(text, text_string_to_metric_families)


def test_H5_an_absent_counter_is_0_only_beside_other_series_of_the_engine() -> None:
    sample = metrics("sglang:num_running_reqs 0.0\n")
    assert sample is not None
    assert sample["failed"] == 0
    assert metrics("python_info 1.0\n") is None
    assert metrics("not { metrics") is None


def test_H6_ranks_priorities_exponents_and_nan() -> None:
    sample = metrics(
        "# HELP sglang:num_running_reqs The number.\n# TYPE sglang:num_running_reqs gauge\n"
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0",priority=""} 1.2e+01\n'
        'sglang:num_running_reqs{dp_rank="0",tp_rank="1",priority=""} 1.2e+01\n'
        'sglang:num_running_reqs{dp_rank="0",tp_rank="0",priority="5"} 7\n'
        'sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 3 1796002831000\n'
        'sglang:gen_throughput{model_name="a\\\\b\\"c"} NaN\n'
        'sglang:num_queue_reqs{x="1"} +Inf\n'
    )
    assert sample is not None
    assert sample["running"] == 15
    assert (sample["throughput"], sample["waiting"]) == (0.0, 0)


@pytest.mark.parametrize("path", sorted(RECORDED.rglob("*metrics*.txt")), ids=lambda path: path.name)
def test_H6_recorded_metrics_are_read(path: Path) -> None:
    text = path.read_text()
    text = text if text.startswith("# HELP") or "sglang:" not in text else text[text.index("# HELP") :]
    sample = metrics(text)
    if "sglang:num_running_reqs" in text:
        assert sample is not None
        assert _metrics.pending(sample) >= 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"loads": []}', b'{"loads": [1]}', b'{"loads": [{}]}'])
def test_what_is_no_loads_answer_is_unknown(body: bytes) -> None:
    assert _metrics.loads_sample(body) is None


def samples(*held: tuple[float, float, float], step: float = 6) -> list[dict[str, Any]]:
    """Samples of (in-flight, running, tokens/s), some seconds apart."""
    base = {"waiting": 0, "prefill_bootstrap": 0, "decode_prealloc": 0, "decode_transfer": 0, "live": True}
    return [
        dict(base, prefill_inflight=inflight, running=running, throughput=tokens, at=number * step)
        for number, (inflight, running, tokens) in enumerate(held)
    ]


def test_H1_founding_series_is_drained() -> None:
    series = samples((17, 1, 52.36), (1, 1, 52.36), (1, 0, 0), (0, 0, 0), (0, 0, 0))
    assert _queues.verdict(series, 20, False) == _queues.DRAINED


def test_H2_one_request_left_in_a_sample_is_no_verdict_yet() -> None:
    assert _queues.verdict(samples((1, 0, 0)), 20, False) == _queues.WATCHING


def test_H3_requests_held_without_any_work_are_stuck() -> None:
    assert _queues.verdict(samples(*[(3, 0, 0)] * 5), 20, False) == _queues.STUCK


def test_H4_queues_under_traffic_with_tokens_are_flowing() -> None:
    series = samples((40, 8, 900), (35, 9, 950), (44, 8, 910))
    assert _queues.verdict(series, 20, False) == _queues.WATCHING
    assert _queues.verdict(series, 20, True) == _queues.FLOWING


def test_no_sample_at_all_is_unknown() -> None:
    assert _queues.verdict([], 20, True) == _queues.UNKNOWN
