# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strict judgement of answers: tokens, usage, text, golden answers, streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _answers
from hypothesis import given
from hypothesis import strategies as st

EXPECTED = {"max_tokens": 24}


def usage(completion: int = 3, prompt: int = 10, total: int | None = None) -> dict[str, int]:
    total = prompt + completion if total is None else total
    return {"completion_tokens": completion, "prompt_tokens": prompt, "total_tokens": total}


def why(text: str = "hi", reason: str = "stop", expected: dict[str, Any] = EXPECTED, **tokens: Any) -> str:
    choice = {"message": {"content": text}, "finish_reason": reason}
    body = json.dumps({"choices": [choice], "usage": usage(**tokens)}).encode()
    return str(_answers.judge(200, body, 0.6, 35, "", expected)["why"])


def test_H10_a_good_answer_is_good() -> None:
    assert why() == ""
    assert why(reason="length", completion=24) == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"completion": 25}, "25 completion tokens, 24 were asked for"),
        ({"reason": "length", "completion": 3}, "cut at 3 completion tokens"),
        ({"total": 99}, "usage that does not add up"),
        ({"prompt": 0}, "usage that does not add up"),
        ({"text": "!" * 24}, "24 times the character '!'"),
        ({"text": "\ufffd\ufffd\x00a"}, "3 of 4 characters are not printable"),
        ({"text": "about x-7", "expected": dict(EXPECTED, foreign=["x-7"])}, "answers are mixed up"),
        ({"text": "5", "expected": dict(EXPECTED, golden={"text": "4"})}, "golden"),
        ({"text": "5", "expected": dict(EXPECTED, golden={"text": "4", "match": "contains"})}, "golden"),
        ({"text": "5", "expected": dict(EXPECTED, golden={"text": "^4", "match": "matches"})}, "golden"),
    ],
)
def test_H10_status_200_with_something_wrong(given: dict[str, Any], words: str) -> None:
    assert words in why(**given)


@pytest.mark.parametrize(
    "golden", [{"text": "4 it is"}, {"text": "4", "match": "contains"}, {"text": "^[0-9] it", "match": "matches"}]
)
def test_golden_answers_that_fit(golden: dict[str, Any]) -> None:
    assert why("4 it is", expected=dict(EXPECTED, golden=golden)) == ""


def test_text_of_a_model_with_random_weights_may_be_anything() -> None:
    assert why("!" * 24, expected=dict(EXPECTED, any_text=True)) == ""


def event(content: str | None = None, reason: str | None = None, **more: Any) -> bytes:
    body: dict[str, Any] = {"choices": [{"delta": {"content": content}, "finish_reason": reason}], **more}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


HEAD = event("") + event("hä") + event("llo")
TAIL = event(None, "stop") + b"data: " + json.dumps({"choices": [], "usage": usage()}).encode() + b"\n\n"
DONE = b"data: [DONE]\n\n"


def stream(*parts: bytes) -> _answers.Stream:
    read = _answers.Stream()
    for part in parts:
        read.feed(part)
    return read


def judge(read: _answers.Stream, status: int | None = 200, error: str = "") -> dict[str, Any]:
    return _answers.judge_stream(status, read, 0.6, 35, error, EXPECTED)


def test_a_whole_stream_is_good() -> None:
    judged = judge(stream(HEAD + TAIL + DONE))
    assert (judged["good"], judged["text"], judged["tokens"]) == (True, "hällo", 3)


@given(st.lists(st.integers(0, len(HEAD + TAIL + DONE)), max_size=12))
def test_a_stream_may_be_cut_anywhere_into_packets(cuts: list[int]) -> None:
    whole = HEAD + TAIL + DONE
    ends = [*sorted(cuts), len(whole)]
    read = stream(*[whole[begin:end] for begin, end in zip([0, *ends], ends)])
    assert judge(read)["why"] == ""


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        # What the real engine gave when its decode was killed amid a stream.
        ((HEAD,), "ended after 3 events without [DONE]"),
        ((HEAD, TAIL), "without [DONE]"),
        ((HEAD, event(None, "stop"), DONE), "without usage"),
        ((HEAD, event(None, "abort"), TAIL[len(event(None, "stop")) :], DONE), "finish_reason 'abort'"),
        ((HEAD, b'data: {"error": {"message": "KVTransferError"}}\n\n', DONE), "KVTransferError"),
        ((HEAD, b"data: {\n\n"), "none of a chat answer"),
        ((HEAD, TAIL, DONE, HEAD), "goes on after [DONE]"),
        ((event(""), TAIL, DONE), "empty text"),
        ((b"<html>",), "without [DONE]"),
    ],
)
def test_H10_streams_with_status_200_that_are_no_answer(parts: tuple[bytes, ...], words: str) -> None:
    assert words in judge(stream(*parts))["why"]


def test_a_stream_that_breaks_and_one_that_is_refused() -> None:
    assert judge(stream(HEAD), error="connection lost")["why"] == "the stream broke after 3 events: connection lost"
    assert judge(stream(b'{"error": "no workers"}'), status=503)["why"] == 'HTTP 503: {"error": "no workers"}'
    assert judge(stream(), status=None, error="refused")["why"] == "no answer: refused"


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_garbage_is_judged_and_never_raises(parts: list[bytes]) -> None:
    read = stream(*[b"data: " + part + b"\n" for part in parts])
    assert not judge(read)["good"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["choices", "delta", "usage", "error", "content"]), inner)
        ),
    )
)
def test_json_of_any_other_shape_is_judged_and_never_raises(value: Any) -> None:
    body = json.dumps(value).encode()
    assert not judge(stream(b"data: " + body + b"\n", DONE))["good"]
    assert not _answers.judge(200, body, 0.6, 35, "", EXPECTED)["good"]


def test_a_stream_without_end_is_kept_bounded() -> None:
    read = stream()
    for _ in range(5):
        read.feed(b"x" * (1024 * 1024))
    assert "line of more than" in read.trouble
    read = stream(*[event("x" * 500_000)] * 5)
    assert len(read.text) <= 2 * _answers.TEXT_LIMIT
