# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in's faces against the recorded bodies of the real engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from stand_in_processes import MODEL, Engine, Pair, Stand, chat

RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "engine"
ROLES = [("0.5.23", "plain"), ("0.5.23", "prefill"), ("0.5.23", "decode")]
ROLES += [("0.5.16", "prefill"), ("0.5.16", "decode")]
#: Counters of failures and of what the recorded clients did besides.
OCCASIONAL = {
    "sglang:num_transfer_failed_reqs",
    "sglang:num_aborted_requests",
    "sglang:num_bootstrap_failed_reqs",
    "sglang:cached_tokens",
}


def recorded(release: str, role: str, endpoint: str) -> tuple[str, int, str, str]:
    """Return path, status, content type and body of a recording."""
    text = (RECORDED / f"{release}__{role}__{endpoint}.txt").read_text()
    head, _, body = text.partition("\n")
    match = re.fullmatch(r"# GET (\S+) -> (\d+) (\S*)", head)
    assert match, head
    return match[1], int(match[2]), match[3], body


def recordings(role: str = "") -> list[tuple[str, str, str]]:
    """Return (release, role, endpoint) of the recordings."""
    names = [tuple(path.stem.split("__")) for path in sorted(RECORDED.glob("*.txt"))]
    return [n for n in names if len(n) == 3 and (n[1] == role if role else "start" not in n[1])]


@pytest.fixture(scope="module")
def engines(shared: Stand, pair: Pair) -> dict[tuple[str, str], Engine]:
    """Return an engine per recorded release and role, after some requests."""
    old = shared.pair(release="0.5.16")
    plain = shared.engine().start().healthy()
    for one in (pair, old):
        for _ in range(2):
            # Enough steps for a decode to write its gauges.
            one.ask(prompt="hello again", tokens=48)
    for stream in (False, False, True):
        body = chat(prompt="hello again", stream=stream)
        requests.post(plain.url("/v1/chat/completions"), json=body, timeout=60)
    return {
        ("0.5.23", "plain"): plain,
        ("0.5.23", "prefill"): pair.prefill,
        ("0.5.23", "decode"): pair.decode,
        ("0.5.16", "prefill"): old.prefill,
        ("0.5.16", "decode"): old.decode,
    }


def shape(value: Any) -> Any:
    """Return the field names of a body, without its values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [shape(value[0])]
    return None


@pytest.mark.parametrize(("release", "role", "endpoint"), recordings())
def test_answer_has_the_recorded_status_type_and_fields(
    engines: dict[tuple[str, str], Engine], release: str, role: str, endpoint: str
) -> None:
    path, status, content_type, body = recorded(release, role, endpoint)
    answer = engines[release, role].get(path)
    assert answer.status_code == status
    assert answer.headers.get("content-type", "None").split(";")[0] == content_type
    if content_type == "application/json":
        assert shape(answer.json()) == shape(json.loads(body))


def families(text: str) -> dict[str, str]:
    """Return the type of each metric family."""
    return {family.name: family.type for family in text_string_to_metric_families(text)}


def label_names(text: str) -> dict[str, frozenset[str]]:
    """Return the label names of each sample name."""
    return {
        sample.name: frozenset(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(("release", "role"), ROLES)
def test_metrics_have_the_recorded_families_types_and_labels(
    engines: dict[tuple[str, str], Engine], release: str, role: str
) -> None:
    engine = engines[release, role]
    engine.get("/v1/loads")
    text = engine.get("/metrics").text
    _, _, _, body = recorded(release, role, "metrics")
    expected = {k: v for k, v in families(body).items() if k not in OCCASIONAL}
    if role == "plain":
        expected["sglang:get_loads_duration_seconds"] = "histogram"
    assert {k: v for k, v in families(text).items() if k not in OCCASIONAL} == expected
    wanted = label_names(body)
    differing = {
        name: (sorted(labels), sorted(wanted[name]))
        for name, labels in label_names(text).items()
        if name in wanted and labels != wanted[name]
    }
    assert differing == {}


def test_failure_counter_is_absent_with_its_type_line_before_the_first_failure(
    pair: Pair,
) -> None:
    assert "num_transfer_failed_reqs" not in pair.prefill.get("/metrics").text


@pytest.fixture(scope="module")
def starting(shared: Stand) -> Iterator[Engine]:
    """Return a prefill that listens but is not up yet."""
    engine = shared.engine("prefill").start(STAND_IN_WARMUP_SECONDS="3600")
    while engine.status() is None:
        assert engine.running
    yield engine
    engine.kill()


@pytest.mark.parametrize(("release", "role", "endpoint"), recordings("prefill_starting"))
def test_while_starting_only_health_says_so(starting: Engine, release: str, role: str, endpoint: str) -> None:
    path, status, _, body = recorded(release, role, endpoint)
    answer = starting.get(path)
    assert answer.status_code == status
    if body.startswith("{"):
        assert shape(answer.json()) == shape(json.loads(body))


def test_readiness_is_a_flag(pair: Pair, starting: Engine) -> None:
    assert pair.prefill.status("/ready") == 200
    assert starting.status("/ready") == 503


def test_server_info_tells_the_arguments_it_was_started_with(stand: Stand) -> None:
    flags = ["--disable-overlap-schedule", "--page-size", "64", "--context-length", "4096"]
    flags += ["--extra-metric-labels", '{"invocation": "abc123"}']
    info = stand.engine("null", *flags).start().healthy()
    body = info.get("/server_info").json()
    assert body["disable_overlap_schedule"] is True
    assert body["page_size"] == 64
    assert body["context_length"] == 4096
    assert body["extra_metric_labels"] == {"invocation": "abc123"}
    assert body["version"] == "0.5.23"
    assert "--page-size 64" in body["launch_command"]
    ((labels, _),) = info.samples("sglang:num_running_reqs")
    assert labels["invocation"] == "abc123"


def test_api_key_guards_all_but_health_ready_and_metrics(stand: Stand) -> None:
    engine = stand.engine("null", "--api-key", "sesame").start().healthy()
    for path in ("/health", "/ready", "/metrics"):
        assert engine.status(path) == 200
    for path in ("/server_info", "/v1/loads", "/v1/models"):
        answer = engine.get(path)
        assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
        assert engine.get(path, headers={"Authorization": "Bearer sesame"}).status_code == 200


def test_loads_gives_the_sections_asked_for(pair: Pair) -> None:
    load = pair.prefill.get("/v1/loads?include=disagg").json()["loads"][0]
    assert "disaggregation" in load
    assert "memory" not in load
    assert pair.prefill.get("/v1/loads?include=nonsense").status_code == 500


def test_get_load_and_ready_depend_on_the_release(
    engines: dict[tuple[str, str], Engine],
) -> None:
    assert engines["0.5.16", "prefill"].status("/get_load") == 200
    assert engines["0.5.23", "prefill"].status("/get_load") == 404
    assert engines["0.5.16", "prefill"].status("/ready") == 404


def test_stream_ends_with_finish_reason_and_done(shared: Stand, pair: Pair) -> None:
    plain = shared.engine().start().healthy()
    body = chat(stream=True, tokens=4)
    answer = requests.post(plain.url("/v1/chat/completions"), json=body, timeout=60)
    events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    first, last = json.loads(events[0]), json.loads(events[-2])
    assert first["model"] == MODEL
    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert last["choices"][0]["finish_reason"] == "length"
