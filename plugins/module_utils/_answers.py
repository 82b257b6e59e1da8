# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an answer to a chat request counts as served. Pure.

A failed KV transfer can come back as HTTP 200 with ``finish_reason`` "error" or
"abort", with an empty text, or after the waiting timeout of 300 s: the status code
alone proves nothing.
"""

from __future__ import annotations

import json
from typing import Any

GOOD_FINISH_REASONS = ("stop", "length", "tool_calls")


def judge(status: int | None, body: bytes, seconds: float, limit_seconds: float, error: str) -> dict[str, Any]:
    """Return the verdict on one non-streaming chat answer.

    :param status: HTTP status, None where there was no answer; then ``error`` says why.
    :param seconds: how long the answer took; more than ``limit_seconds`` is a failure
        even where it is complete.
    :return: ``good``, ``why`` ("" where good), ``seconds``, ``tokens`` (completion).
    """
    tokens = 0
    why = ""
    if status is None:
        why = "no answer: {0}".format(error)
    elif status != 200:
        why = "HTTP {0}: {1}".format(status, body[:200].decode("utf-8", "replace"))
    else:
        why, tokens = _judge_body(body)
    if not why and seconds > limit_seconds:
        why = "answered after {0:.1f} s, limit {1:.1f} s".format(seconds, limit_seconds)
    return {"good": not why, "why": why, "seconds": seconds, "tokens": tokens}


def _judge_body(body: bytes) -> tuple[str, int]:
    try:
        answer = json.loads(body)
        choice = answer["choices"][0]
        message = choice["message"]
        text = message.get("content") or message.get("reasoning_content") or message.get("tool_calls")
        reason = choice["finish_reason"]
        tokens = int((answer.get("usage") or {}).get("completion_tokens") or 0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return "HTTP 200 with a body that is no chat answer: {0}".format(body[:200].decode("utf-8", "replace")), 0
    if reason not in GOOD_FINISH_REASONS:
        return "HTTP 200 with finish_reason {0!r}".format(reason), tokens
    if not text:
        return "HTTP 200 with an empty text", tokens
    if tokens < 1:
        return "HTTP 200 with {0} completion tokens".format(tokens), tokens
    return "", tokens
