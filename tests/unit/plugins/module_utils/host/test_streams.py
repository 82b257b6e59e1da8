# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams and samples of servers that answer as no engine does: bounded, and told instead of raised."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _answers, _profiles
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import bodies, streams
from prometheus_client.parser import text_string_to_metric_families

from ...fleet import member
from . import hostile

LIMIT_SECONDS = 0.5
PATIENCE_SECONDS = 20
MEMORY_BYTES = 100 * hostile.MEGABYTE
ROUTER = member("router", "r")
ENGINE = member("prefill", "p")


def within(url: str, use: Callable[[streams.Streams], Awaitable[Any]], key: str = "") -> Any:
    """Return what is made of a server that stands for all members."""

    async def run() -> Any:
        given = ([ENGINE, member("decode", "d"), ROUTER], lambda one: url, key, text_string_to_metric_families)
        async with streams.Streams(*given) as opened:
            return await use(opened)

    return asyncio.run(run())


def chat(url: str, stream: bool, key: str = "", limit: float = LIMIT_SECONDS, **more: Any) -> streams.Exchange:
    """Return what becomes of a chat request through a router."""
    request = {"to": "router", "via": _profiles.name_of(ROUTER), **more}
    found: streams.Exchange = within(url, lambda one: one.chat(request, {"stream": stream}, limit), key)
    return found


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("name", hostile.BOUNDED)
def test_no_answer_takes_longer_or_more_memory_than_allowed_and_none_is_good(name: str, stream: bool) -> None:
    with hostile.serving(hostile.BOUNDED[name]) as server:
        tracemalloc.start()
        try:
            began = time.monotonic()
            exchange = chat(server.url, stream)
            seconds = time.monotonic() - began
            memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert seconds < PATIENCE_SECONDS
        assert memory < MEMORY_BYTES
        assert server.sent < 2 * bodies.LIMIT_BYTES + 8 * hostile.MEGABYTE
    if stream:
        verdict = _answers.judge_stream(exchange.status, exchange.stream, exchange.seconds, 35, exchange.error)
    else:
        verdict = _answers.judge(exchange.status, exchange.body, exchange.seconds, 35, exchange.error)
    assert not verdict["good"]
    assert len(verdict["why"]) < 4096


@pytest.mark.parametrize("name", hostile.BOUNDED)
def test_no_sample_takes_longer_or_more_memory_than_allowed_and_its_trouble_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SAMPLE_SECONDS", LIMIT_SECONDS)
    with hostile.serving(hostile.BOUNDED[name]) as server:
        began = time.monotonic()
        sample = within(server.url, lambda one: one.sample(_profiles.name_of(ENGINE)))
        assert time.monotonic() - began < PATIENCE_SECONDS
    assert set(sample) == {"trouble"}
    assert len(sample["trouble"]) < 4096


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (hostile.huge, "body over 16777216 bytes"),
        (hostile.huge_when_unpacked, "a body in gzip coding, which was not asked for"),
        (hostile.silent, "nothing within 0.5 s"),
        (hostile.dripping_headers, "nothing within 0.5 s"),
        (hostile.closed, "disconnected"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_the_reason_is_told(way: hostile.Way, words: str) -> None:
    with hostile.serving(way) as server:
        limit = LIMIT_SECONDS if "within" in words else PATIENCE_SECONDS
        assert words in chat(server.url, stream=True, limit=limit).error


def test_no_redirect_is_followed_and_no_key_is_carried_elsewhere() -> None:
    with hostile.serving(hostile.answers(hostile.HEAD + b"\r\n{}")) as elsewhere:
        with hostile.serving(hostile.redirects(elsewhere.url + "/steal")) as server:
            exchange = chat(server.url, stream=False, key="canary", limit=PATIENCE_SECONDS)
            assert b"Authorization: Bearer canary" in server.asked[0]
        assert (exchange.status, exchange.body, elsewhere.asked) == (307, b"", [])


def test_a_client_that_leaves_a_server_that_drips_is_dropped_in_time() -> None:
    with hostile.serving(hostile.dripping_events) as server:
        exchange = chat(server.url, stream=True, drop={"events": 3, "seconds": 0.3})
    assert exchange.dropped
    assert exchange.error == ""
