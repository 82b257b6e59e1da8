# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every parser of what engines, routers and bundles say, given what none of them says: it judges and never raises."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _answers,
    _bundle,
    _diagnosis,
    _live,
    _metrics,
    _observations,
    _redact,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import machine
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import report
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse

from ..fleet import deployed_decode, member, unit_state
from .host.test_machine import Client
from .sighting import UNITS, Sighting
from .test_bundle import places, replaced

RECORDED = Path(__file__).resolve().parents[3] / "recorded"
WANTED = {"http://p:30000": "prefill", "http://d:30002": "decode"}
#: Only a hang takes this long.
PATIENCE_SECONDS = 20

relaxed = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def live(body: bytes) -> Any:
    """Read the ``/server_info`` of a decode as its settings are compared."""
    decode = deployed_decode({}, {"context_length": 4096, "page_size": 1, "kv_cache_dtype": "auto"})
    record = {
        "member": decode,
        "unit": unit_state(),
        "running_configuration": decode["configuration"],
        "running": {
            "started_with": None,
            "command": decode["exec_start"],
            "environment": None,
            "reported": machine._object(body),
        },
    }
    return _live.describe(record, _live.settings_of(record, []))


def stream(body: bytes) -> Any:
    """Read a body as a streamed answer, as lines and as events."""
    read = _answers.Stream()
    for one in (body, b"\ndata: " + body.replace(b"\n", b" ") + b"\n", b"data: [DONE]\n"):
        read.feed(one)
    return _answers.judge_stream(200, read, 1.0, 35, "", {"max_tokens": 24})


def seen_with(endpoint: str, role: str, body: bytes) -> dict[str, Any]:
    """Return what was seen of a cluster whose engine or router once gave another body at an endpoint."""
    items = list(good_items())
    index = max(n for n, one in enumerate(items) if (one["endpoint"], one["unit"]) == (endpoint, UNITS[role]))
    items[index] = dict(items[index], body=body.decode("utf-8", "replace"))
    (observation,) = _observations.clusters(items, parse).values()
    return observation


def judged(endpoint: str, role: str) -> Callable[[bytes], list[str]]:
    """Return a reader that diagnoses a cluster with another body."""
    return lambda body: _diagnosis.describe(_diagnosis.diagnose(seen_with(endpoint, role, body), "overlap"))


def page(body: bytes) -> str:
    """Make the page of a decode with other metrics, which has most pictures."""
    observation = seen_with("metrics", "decode", body)
    return report.diagnose_page(_diagnosis.diagnose(observation), observation)


@cache
def good_items() -> tuple[dict[str, Any], ...]:
    """Return what is seen of a healthy cluster, and a router's metrics."""
    one = Sighting()
    one.http["router", "metrics"] = (200, "")
    return tuple(one.items())


def file_of_a_bundle(body: bytes) -> Any:
    """Read a body as a whole file, its first line included."""
    return _bundle.read({"s__prefill__metrics.txt": body.decode("utf-8", "replace")})


def close_router(body: bytes) -> Any:
    """Read a router's workers in order to take them from it."""
    client = Client(GET_workers=(200, body))
    return machine.Machine(lambda command: (0, "", ""), client, parse).close_router(member("router", "r"))


#: Each reader of a body, by what it reads; none may raise, whatever the body.
READERS: dict[str, Callable[[bytes], Any]] = {
    "loads": _metrics.loads_sample,
    "metrics": lambda body: _metrics.metrics_sample(body.decode("utf-8", "replace"), parse),
    "sampled-metrics": lambda body: _metrics.metrics_sample(
        _metrics.sampled_lines(body.decode("utf-8", "replace")), parse
    ),
    "invocation": lambda body: _metrics.invocation_of(body.decode("utf-8", "replace")),
    "breakers": lambda body: _observations.breakers_of(body.decode("utf-8", "replace"), parse),
    "answer": lambda body: _answers.judge(200, body, 1.0, 35, "", {"max_tokens": 24}),
    "stream": stream,
    "workers": lambda body: machine.wrong_workers(body, WANTED),
    "workers-to-take-away": close_router,
    "server-info": live,
    "bundle": file_of_a_bundle,
    "diagnosis-of-loads": judged("v1_loads", "prefill"),
    "diagnosis-of-metrics": judged("metrics", "decode"),
    "diagnosis-of-server-info": judged("server_info", "decode"),
    "diagnosis-of-workers": judged("workers", "router"),
    "diagnosis-of-breakers": judged("metrics", "router"),
    "page": page,
    "redaction": lambda body: _redact.redact(body.decode("utf-8", "replace"), ["secret"]),
}
each_reader = pytest.mark.parametrize("reader", READERS)

NUMBERS = st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "1e999", "-0", "9" * 400, "-" + "9" * 400, "1" * 5000, "0.1"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400)
KEYS = st.sampled_from(
    "loads num_running_reqs num_waiting_reqs gen_throughput disaggregation prefill_inflight_queue_reqs workers url "
    "worker_type is_healthy model_id id choices message content finish_reason usage completion_tokens error delta "
    "context_length page_size port host".split()
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))


@cache
def recorded_bodies() -> tuple[bytes, ...]:
    """Return bodies of the real engine and the real routers, those that are not large."""
    found = []
    for path in sorted((RECORDED / "captures").glob("*.txt")):
        content = path.read_bytes()
        body = content.partition(b"\n")[2] if content.startswith(b"# ") else content
        if len(body) < 60_000:
            found.append(body)
    assert len(found) > 50
    return tuple(dict.fromkeys(found))


@cache
def recorded_json() -> tuple[Any, ...]:
    """Return those of them that are JSON objects or lists, and good answers to a chat request."""
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}
    found: list[Any] = [
        {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": usage},
        {"choices": [{"delta": {"content": "hi"}, "finish_reason": None}], "usage": usage},
    ]
    for body in recorded_bodies():
        try:
            content = json.loads(body)
        except ValueError:
            continue
        if isinstance(content, (dict, list)):
            found.append(content)
    assert any("loads" in one for one in found) and any("workers" in one for one in found)
    return tuple(found)


@each_reader
@relaxed
@given(body=st.binary(max_size=400))
def test_bytes(reader: str, body: bytes) -> None:
    READERS[reader](body)


@each_reader
@relaxed
@given(content=JSON)
def test_json_of_any_shape(reader: str, content: Any) -> None:
    READERS[reader](json.dumps(content).encode())


@each_reader
@relaxed
@given(data=st.data())
def test_a_recorded_body_with_some_bytes_changed(reader: str, data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from(recorded_bodies())))
    number = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(number.randint(1, 30) if body else 0):
        at = number.randrange(len(body) + 1)
        body[at : at + number.choice((0, 1, 1, 40))] = number.choice(
            (b"", b'"', b"{", b"}", b"\\", b"\n", b"\xff", b"=,", b"NaN")
        )
    READERS[reader](bytes(body))


@each_reader
@relaxed
@given(data=st.data())
def test_a_recorded_body_cut_anywhere(reader: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(recorded_bodies()))
    READERS[reader](body[: data.draw(st.integers(0, len(body)))])


@each_reader
@relaxed
@given(data=st.data())
def test_a_recorded_body_with_a_value_of_a_wrong_kind(reader: str, data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(recorded_json()))
    place = data.draw(st.sampled_from(places(content)))
    marked = json.dumps(replaced(content, place, "@@@"))
    READERS[reader](marked.replace('"@@@"', data.draw(NUMBERS | JSON.map(json.dumps))).encode())


@each_reader
@relaxed
@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(
                ["sglang:num_running_reqs", "sglang:generation_tokens_total", "smg_worker_cb_state", "x", ""]
            ),
            st.sampled_from(
                ['{dp_rank="0"}', '{worker="http://d"}', '{le="+Inf"}', '{a="', "{}", "{", "}", '{a="\\', ""]
            ),
            st.sampled_from(
                ["1", "NaN", "+Inf", "-Inf", "1e400", "1_0", "0x1", "9" * 400, "", "1 2", "1 NaN", "# {} 1"]
            ),
        ),
        max_size=6,
    )
)
def test_lines_of_metrics(reader: str, lines: list[tuple[str, str, str]]) -> None:
    READERS[reader]("".join("{}{} {}\n".format(*line) for line in lines).encode())


HUGE = 2 * 1024 * 1024
LARGE = {
    "nested-lists": b"[" * 200_000,
    "nested-objects": b'{"loads":' * 100_000,
    "nested-to-the-end": b'{"loads":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "one-number": b'{"loads":' + b"9" * HUGE + b"}",
    "one-text": b'{"workers":"' + b"a" * HUGE,
    "escapes": b'{"api_key":"' + b"\\" * HUGE,
    "many-texts": b'"key":"' * (HUGE // 7),
    "dashes": b"-" * HUGE,
    "words-with-dashes": b"--a-" * (HUGE // 4),
    "underscores": b'"' + b"_" * HUGE,
    "quotes-and-underscores": b'"a_' * (HUGE // 3),
    "spaces": b"--api-key" + b" " * HUGE,
    "brackets": b"# 200 " + b"(1" * (HUGE // 2),
    "labels": b"sglang:num_running_reqs{" + b'a="1",' * (HUGE // 6) + b"} 1\n",
    "label": b'sglang:num_running_reqs{a="' + b"\\" * HUGE + b'"} 1\n',
    "open-label": b"sglang:num_running_reqs{" * (HUGE // 24),
    "lines": b'sglang:num_running_reqs{dp_rank="0"} 1\n' * (HUGE // 39),
    "empty-lines": b"\n" * HUGE,
    "help": b"# HELP x " + b"\\n" * (HUGE // 2) + b"\n",
    "beyond-the-limit": b'sglang:num_running_reqs{dp_rank="0"} 1\n' * (3 * HUGE // 39),
    "events": b"data: {}\n" * (HUGE // 9),
}


@each_reader
def test_a_large_body_is_read_or_refused_in_bounded_time(reader: str) -> None:
    for name, body in LARGE.items():
        began = time.monotonic()
        READERS[reader](body)
        assert time.monotonic() - began < PATIENCE_SECONDS, name


def test_what_is_no_number_of_requests_makes_no_sample() -> None:
    load = {"num_running_reqs": 1, "num_waiting_reqs": 0, "gen_throughput": 1.5}
    queues = dict.fromkeys((key for key, _gauge in _metrics.QUEUES.values()), 0)

    def sample(**changes: Any) -> Any:
        return _metrics.loads_sample(json.dumps({"loads": [{**load, "disaggregation": queues, **changes}]}).encode())

    assert sample()["running"] == 1
    for value in (float("nan"), float("inf"), 10**400, 1e300, "many", None, []):
        assert sample(num_running_reqs=value) is None
    assert sample(gen_throughput=float("inf")) is None
    assert _metrics.totals("sglang:num_running_reqs 1\nsglang:x 1e300\n", parse) == {"sglang:num_running_reqs": 1}


def test_a_long_line_or_text_is_no_engine_and_that_is_told() -> None:
    line = 'sglang:num_running_reqs{{a="{}"}} 1\n'
    assert _metrics.totals(line.format("a"), parse)
    assert _metrics.totals(line.format("a" * _metrics.LINE_LIMIT), parse) is None
    assert _metrics.totals(line.format("a") * (_metrics.TEXT_LIMIT // 30), parse) is None
    bad = line.format("a" * _metrics.LINE_LIMIT)
    items = [dict(one, body=bad) if one["endpoint"] == "metrics" else one for one in good_items()]
    (observation,) = _observations.clusters(items, parse).values()
    words = "\n".join(_diagnosis.describe(_diagnosis.diagnose(observation)))
    assert "no counters of decode" in words


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), {"a": 1}, [[]], "4k"])
def test_a_setting_that_an_engine_reports_as_nonsense_has_drifted(value: Any) -> None:
    words = "\n".join(live(json.dumps({"context_length": value}).encode()))
    assert "drifted  context_length" in words


def test_a_list_of_workers_with_odd_addresses_is_compared_in_any_order() -> None:
    listed = [{"url": url} for url in (None, 1, "http://p:30000", "http://d:30002", True)]
    assert "is not of this cluster" in machine.wrong_workers(json.dumps({"workers": listed}).encode(), WANTED)


@pytest.mark.parametrize("option", ["--api-key s3cret", "x --api-key=s3cret", "---api-key s3cret", "--hf-token s3cret"])
def test_H12_bounded_patterns_still_hide_secrets(option: str) -> None:
    assert "s3cret" not in _redact.redact("start {} --port 1".format(option), [])
