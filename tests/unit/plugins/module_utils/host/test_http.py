# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests to servers that answer as no engine does: bounded, and told instead of raised."""

from __future__ import annotations

import socket
import time
import tracemalloc

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import bodies, http

from . import hostile

LIMIT_SECONDS = 0.5
#: Far beyond the limit of a request, far below what a server that drips would take.
PATIENCE_SECONDS = 20
#: Of a client that reads 16 MB at most, and may hold them twice while it puts them together.
MEMORY_BYTES = 80 * hostile.MEGABYTE


@pytest.mark.parametrize("name", hostile.BOUNDED)
def test_no_answer_takes_longer_or_more_memory_than_allowed_and_none_raises(name: str) -> None:
    with hostile.serving(hostile.BOUNDED[name]) as server:
        client = http.Client()
        tracemalloc.start()
        try:
            began = time.monotonic()
            answer = client.request("GET", server.url + "/metrics", LIMIT_SECONDS)
            seconds = time.monotonic() - began
            memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert seconds < PATIENCE_SECONDS
        assert memory < MEMORY_BYTES
        assert server.sent < 2 * bodies.LIMIT_BYTES + 8 * hostile.MEGABYTE
    assert len(answer.body) <= bodies.LIMIT_BYTES
    assert bool(answer.error) is (answer.status is None)
    if name in hostile.GARBAGE:
        assert len(answer.body) < 8192
    else:
        assert answer.status is None


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (hostile.huge, "body over 16777216 bytes"),
        (hostile.huge_in_chunks, "body over 16777216 bytes"),
        (hostile.huge_when_unpacked, "a body in gzip coding, which was not asked for"),
        (hostile.dripping_headers, "nothing within 0.5 s"),
        (hostile.silent, "nothing within 0.5 s"),
        (hostile.reset, "reset"),
        (hostile.answers(hostile.GARBAGE["another-protocol"]), "SSH-2.0"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_the_reason_is_told(way: hostile.Way, words: str) -> None:
    with hostile.serving(way) as server:
        limit = LIMIT_SECONDS if "within" in words else PATIENCE_SECONDS
        answer = http.Client().request("GET", server.url + "/v1/loads", limit)
    assert words in answer.error


@pytest.mark.parametrize("way", [hostile.dripping_body, hostile.dripping_chunks, hostile.silent_in_the_middle])
def test_an_answer_that_began_and_does_not_end_is_told_from_none(way: hostile.Way) -> None:
    # Long enough for a beginning on a busy machine.
    with hostile.serving(way) as server:
        answer = http.Client().request("GET", server.url + "/v1/loads", 3)
    assert answer.error == "not at its end within 3 s"


def test_a_read_ends_at_the_deadline_whatever_its_own_timeout() -> None:
    here, there = socket.socketpair()
    with here, http._TimedSocket(fileno=there.detach()) as timed:
        timed.deadline = time.monotonic() + 0.1
        timed.settimeout(2 * PATIENCE_SECONDS)
        began = time.monotonic()
        with pytest.raises(socket.timeout):
            timed.recv_into(bytearray(1))
        assert time.monotonic() - began < PATIENCE_SECONDS


def test_no_redirect_is_followed_and_no_key_is_carried_elsewhere() -> None:
    with hostile.serving(hostile.answers(hostile.HEAD + b"\r\n{}")) as elsewhere:
        with hostile.serving(hostile.redirects(elsewhere.url + "/steal")) as server:
            answer = http.Client().request(
                "POST", server.url + "/v1/chat/completions", PATIENCE_SECONDS, "canary", {"a": 1}
            )
            assert b"Authorization: Bearer canary" in server.asked[0]
        assert (answer.status, answer.body, elsewhere.asked) == (307, b"", [])


def test_each_request_has_a_connection_of_its_own() -> None:
    client = http.Client()
    with hostile.serving(hostile.keeps_open) as server:
        for _ in range(3):
            assert client.request("GET", server.url, PATIENCE_SECONDS).status == 200
        assert [b"Connection: close" in asked for asked in server.asked] == [True] * 3


def test_a_client_goes_on_after_every_answer() -> None:
    client = http.Client()
    for way in (hostile.dripping_body, hostile.reset, hostile.silent, hostile.longer_than_sent):
        with hostile.serving(way) as server:
            assert client.request("GET", server.url, 0.3).status is None
    with hostile.serving(hostile.answers(hostile.HEAD + b"Content-Length: 2\r\n\r\n{}")) as server:
        answer = client.request("GET", server.url, PATIENCE_SECONDS)
        assert (answer.status, answer.body, answer.error) == (200, b"{}", "")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/",
        "http://127.0.0.1:99999/",
        "http://:80/",
        "http://[::1/",
        "http://" + "a" * 300 + "/",
        "http://\udcff/",
        "http://bad host/",
        "gopher://127.0.0.1/",
        "",
    ],
)
def test_no_address_raises(url: str) -> None:
    answer = http.Client().request("GET", url, 2)
    assert answer.status is None
    assert answer.error


def test_a_key_that_is_no_header_is_told() -> None:
    answer = http.Client().request("GET", "http://127.0.0.1:1/", 2, "two\nlines")
    assert answer.status is None
    assert "two" not in answer.error
