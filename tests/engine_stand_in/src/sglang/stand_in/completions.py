# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request and answer shapes of /generate and the OpenAI endpoints."""

from __future__ import annotations

import json
import time
from typing import Any

from sglang.stand_in import text
from sglang.stand_in.engine import Request, RequestError

KINDS = {
    "/generate": "generate",
    "/v1/completions": "completion",
    "/v1/chat/completions": "chat",
}


def _prompt(kind: str, body: dict[str, Any]) -> list[int]:
    if kind == "generate":
        if body.get("input_ids"):
            return [int(token) for token in body["input_ids"]]
        if not isinstance(body.get("text"), str):
            raise RequestError("Either text, input_ids or input_embeds should be provided.")
        return text.tokenize(body["text"])
    if kind == "completion":
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise RequestError("prompt: Input should be a valid string")
        return text.tokenize(prompt)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages: Field required")
    parts = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content)
        parts.append(f"{message.get('role')} {content}")
    return text.tokenize(" ".join(parts))


def read(kind: str, body: dict[str, Any]) -> Request:
    """Return the scheduler's request of an HTTP body."""
    sampling = body.get("sampling_params") or {}
    limit = sampling.get("max_new_tokens") if kind == "generate" else None
    limit = limit or body.get("max_completion_tokens") or body.get("max_tokens") or 128
    room = body.get("bootstrap_room")
    port = body.get("bootstrap_port")
    request = Request(
        prompt=_prompt(kind, body),
        max_new_tokens=int(limit),
        stream=bool(body.get("stream")),
        bootstrap_host=body.get("bootstrap_host"),
        bootstrap_port=None if port is None else int(port),
        bootstrap_room=None if room is None else int(room),
    )
    if isinstance(body.get("rid"), str):
        request.rid = body["rid"]
    return request


class Answer:
    """Bodies of one answer, whole or in chunks."""

    def __init__(self, kind: str, request: Request, model: str) -> None:
        self._kind = kind
        self._request = request
        self._model = model
        self._created = int(time.time())
        self._text = ""
        self._ids: list[int] = []

    def add(self, text_: str, ids: list[int]) -> None:
        """Take what was generated."""
        self._text += text_
        self._ids += ids

    @property
    def generated(self) -> int:
        """Return the number of generated tokens."""
        return len(self._ids)

    def _usage(self) -> dict[str, Any]:
        prompt = len(self._request.prompt)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + self.generated,
            "completion_tokens": self.generated,
            "prompt_tokens_details": None,
            "reasoning_tokens": 0,
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._request.rid,
            "object": kind,
            "created": self._created,
            "model": self._model,
        }

    def _meta(self, reason: str | None) -> dict[str, Any]:
        finish: dict[str, Any] | None = None
        if reason == "length":
            finish = {"type": "length", "length": self.generated}
        elif reason is not None:
            finish = {"type": reason, "message": "Aborted", "status_code": None, "err_type": None}
        return {
            "text": self._text,
            "output_ids": self._ids,
            "meta_info": {
                "id": self._request.rid,
                "finish_reason": finish,
                "prompt_tokens": len(self._request.prompt),
                "weight_version": "default",
                "completion_tokens": self.generated,
                "cached_tokens": 0,
                "e2e_latency": time.monotonic() - self._request.started,
            },
        }

    def whole(self, reason: str) -> dict[str, Any]:
        """Return the answer of a request that does not stream."""
        if self._kind == "generate":
            return self._meta(reason)
        choice: dict[str, Any] = {"index": 0}
        if self._kind == "chat":
            choice["message"] = {
                "role": "assistant",
                "content": self._text,
                "reasoning_content": None,
                "tool_calls": None,
            }
        else:
            choice["text"] = self._text
        choice.update(logprobs=None, finish_reason=reason, matched_stop=None)
        name = "chat.completion" if self._kind == "chat" else "text_completion"
        return {
            **self._head(name),
            "choices": [choice],
            "usage": self._usage(),
            "metadata": {"weight_version": "default"},
        }

    def _chunk(self, content: str | None, reason: str | None, role: bool) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0}
        if self._kind == "chat":
            delta: dict[str, Any] = {"reasoning_content": None}
            if role:
                delta["role"] = "assistant"
            if content is not None:
                delta["content"] = content
            choice["delta"] = delta
            name = "chat.completion.chunk"
        else:
            choice["text"] = content or ""
            name = "text_completion"
        choice.update(logprobs=None, finish_reason=reason, matched_stop=None)
        return {**self._head(name), "choices": [choice]}

    def first(self) -> list[dict[str, Any]]:
        """Return what a stream begins with."""
        return [self._chunk("", None, True)] if self._kind == "chat" else []

    def step(self, text_: str) -> dict[str, Any]:
        """Return the chunk of a step."""
        return self._meta(None) if self._kind == "generate" else self._chunk(text_, None, False)

    def last(self, reason: str, *, usage: bool) -> list[dict[str, Any]]:
        """Return what a stream ends with, before ``[DONE]``."""
        if self._kind == "generate":
            return [self._meta(reason)]
        chunks = [self._chunk(None, reason, False)]
        if usage:
            name = "chat.completion.chunk" if self._kind == "chat" else "text_completion"
            chunks.append({**self._head(name), "choices": [], "usage": self._usage()})
        return chunks


def error_body(kind: str, message: str, status: int) -> dict[str, Any]:
    """Return an error as the endpoint shapes it."""
    if kind == "generate":
        return {"error": {"message": message}}
    name = "BadRequestError" if status == 400 else "InternalServerError"
    return {"object": "error", "message": message, "type": name, "param": None, "code": status}


def event(body: dict[str, Any] | str) -> bytes:
    """Return a server-sent event."""
    text_ = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"data: {text_}\n\n".encode()
