# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an answer to a chat request counts as served. Pure.

A failed KV transfer can come back as HTTP 200 with ``finish_reason`` "error" or
"abort", with an empty text, as a stream that ends without ``[DONE]``, or after the
waiting timeout of 300 s: the status code alone proves nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

GOOD_FINISH_REASONS = ("stop", "length", "tool_calls")
#: Characters of an answer that are shown where it is refused.
SHOWN = 200
#: A text of one and the same character is garbage from this length on ("!!!!" is what a
#: sampler gives for logits that are not numbers).
SAME_CHARACTER = 16
#: Characters of a stream's text that are kept; a server that never ends must not fill memory.
TEXT_LIMIT = 1024 * 1024
#: A line of a stream that is longer than this is no event of a chat answer.
LINE_LIMIT = 4 * 1024 * 1024

#: How a golden answer is compared.
EQUALS, CONTAINS, MATCHES = "equals", "contains", "matches"


def judge(
    status: int | None,
    body: bytes,
    seconds: float,
    limit_seconds: float,
    error: str,
    expected: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the verdict on one non-streaming chat answer.

    :param status: HTTP status, None where there was no answer; then ``error`` says why.
    :param seconds: how long the answer took; more than ``limit_seconds`` is a failure
        even where it is complete.
    :param expected: see :func:`_judge_text`.
    :return: ``good``, ``why`` ("" where good), ``seconds``, ``tokens`` (completion), ``text``.
    """
    tokens, text = 0, ""
    why = _judge_status(status, error, body)
    if not why:
        why, tokens, text = _judge_body(body, expected or {})
    return _verdict(why, seconds, limit_seconds, tokens, text)


def judge_stream(
    status: int | None,
    stream: Stream,
    seconds: float,
    limit_seconds: float,
    error: str,
    expected: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the verdict on one streamed chat answer, as :func:`judge` does.

    :param stream: what was read of it; for a status other than 200 its ``raw`` is shown.
    """
    why = _judge_status(status, "", stream.raw)
    if error:
        why = "no answer: {0}".format(error)
        if status == 200:
            why = "the stream broke after {0} events: {1}".format(stream.events, error)
    usage = stream.usage or {}
    tokens = _number(usage.get("completion_tokens"))
    if not why:
        why = _judge_stream(stream) or _judge_text(stream.text, stream.finish_reason, usage, expected or {})
    return _verdict(why, seconds, limit_seconds, tokens, stream.text)


def _verdict(why: str, seconds: float, limit_seconds: float, tokens: int, text: str) -> dict[str, Any]:
    if not why and seconds > limit_seconds:
        why = "answered after {0:.1f} s, limit {1:.1f} s".format(seconds, limit_seconds)
    return {"good": not why, "why": why, "seconds": seconds, "tokens": tokens, "text": text}


def _judge_status(status: int | None, error: str, body: bytes) -> str:
    if status is None:
        return "no answer: {0}".format(error)
    if status != 200:
        return "HTTP {0}: {1}".format(status, _shown(body))
    return ""


def _shown(body: bytes) -> str:
    return body[:SHOWN].decode("utf-8", "replace")


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _judge_body(body: bytes, expected: dict[str, Any]) -> tuple[str, int, str]:
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        message = choice["message"]
        text = message.get("content") or message.get("reasoning_content") or message.get("tool_calls")
        reason = choice["finish_reason"]
        usage = dict(answer.get("usage") or {})
        tokens = int(usage.get("completion_tokens") or 0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError):
        return "HTTP 200 with a body that is no chat answer: {0}".format(_shown(body)), 0, ""
    shown = text if isinstance(text, str) else json.dumps(text) if text else ""
    return _judge_text(shown, reason, usage, expected), tokens, shown


def _judge_stream(stream: Stream) -> str:
    if stream.trouble:
        return "HTTP 200 with a stream that {0}".format(stream.trouble)
    if not stream.done:
        return "HTTP 200 with a stream that ended after {0} events without [DONE]".format(stream.events)
    if stream.usage is None:
        return "HTTP 200 with a stream without usage"
    return ""


def _judge_text(text: str, reason: Any, usage: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return what is wrong with a complete answer, or "".

    :param expected: what is known beforehand, each where given: ``max_tokens`` (then the
        token count and the usage must fit it); ``foreign``
        (words that belong to other requests and must not show); ``golden`` (``text`` and
        ``match``); ``any_text`` (True for a model whose text looks like garbage).
    """
    if reason not in GOOD_FINISH_REASONS:
        return "HTTP 200 with finish_reason {0!r}".format(reason)
    if not text:
        return "HTTP 200 with an empty text"
    tokens = _number(usage.get("completion_tokens"))
    if tokens < 1:
        return "HTTP 200 with {0} completion tokens".format(tokens)
    most = expected.get("max_tokens")
    if most and tokens > most:
        return "HTTP 200 with {0} completion tokens, {1} were asked for".format(tokens, most)
    if most and reason == "length" and tokens < most:
        return "HTTP 200 cut at {0} completion tokens (finish_reason length), {1} were asked for".format(tokens, most)
    prompt, total = _number(usage.get("prompt_tokens")), _number(usage.get("total_tokens"))
    if most and (prompt < 1 or total != prompt + tokens):
        return "HTTP 200 with a usage that does not add up: {0} prompt, {1} completion, {2} total tokens".format(
            prompt, tokens, total
        )
    if not expected.get("any_text"):
        garbage = is_garbage(text)
        if garbage:
            return "HTTP 200 with garbage: {0}".format(garbage)
    for word in expected.get("foreign", ()):
        if word in text:
            return "HTTP 200 with a word of another request ({0}): answers are mixed up".format(word)
    return _differs(text, expected.get("golden"))


def is_garbage(text: str) -> str:
    """Return why a text cannot be an answer of a model in order, or ""."""
    characters = [character for character in text if not character.isspace()]
    if len(characters) >= SAME_CHARACTER and len(set(characters)) == 1:
        return "{0} times the character {1!r}".format(len(characters), characters[0])
    broken = sum(1 for character in characters if character == "\ufffd" or not character.isprintable())
    if broken * 2 > len(characters):
        return "{0} of {1} characters are not printable".format(broken, len(characters))
    return ""


def _differs(text: str, golden: dict[str, Any] | None) -> str:
    if not golden:
        return ""
    wanted, match = str(golden["text"]), golden.get("match", EQUALS)
    same = {
        EQUALS: lambda: text == wanted,
        CONTAINS: lambda: wanted in text,
        MATCHES: lambda: re.search(wanted, text) is not None,
    }[match]()
    return "" if same else "another answer than the golden one ({0} {1!r}): {2!r}".format(match, wanted, text[:SHOWN])


class Stream:
    """A streamed chat answer, read as it comes in: bytes cut anywhere, kept bounded."""

    def __init__(self) -> None:
        self.text = ""
        self.finish_reason: Any = None
        self.usage: dict[str, Any] | None = None
        self.done = False
        #: Events read so far, those with text among them.
        self.events = 0
        self.tokens_seen = 0
        #: The beginning of the body as it came, for answers that are no stream.
        self.raw = b""
        #: What made the body no stream of a chat answer, or "".
        self.trouble = ""
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if len(self.raw) < SHOWN:
            self.raw += data[: SHOWN - len(self.raw)]
        if self.trouble:
            return
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > LINE_LIMIT:
            self.trouble, self._rest = "has a line of more than {0} bytes".format(LINE_LIMIT), b""
        for line in lines:
            if line.startswith(b"data:") and not self.trouble:
                self._event(line[len(b"data:") :].strip())

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        self.events += 1
        if self.done:
            self.trouble = "goes on after [DONE]"
            return
        try:
            event = json.loads(data)
            if event.get("error"):
                self.trouble = "tells of an error: {0}".format(json.dumps(event["error"])[:SHOWN])
                return
            if event.get("usage"):
                self.usage = dict(event["usage"])
            for choice in event["choices"]:
                self._choice(choice)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.trouble = "has an event that is none of a chat answer: {0}".format(_shown(data))

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        for part in (delta.get("reasoning_content"), delta.get("content")):
            if part:
                self.tokens_seen += 1
                if len(self.text) < TEXT_LIMIT:
                    self.text += str(part)[:TEXT_LIMIT]
        if delta.get("tool_calls"):
            self.tokens_seen += 1
            if len(self.text) < TEXT_LIMIT:
                self.text += json.dumps(delta["tool_calls"])[:TEXT_LIMIT]
        if choice.get("finish_reason") is not None:
            self.finish_reason = choice["finish_reason"]
