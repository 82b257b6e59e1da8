# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP endpoints of a serving engine (rank 0)."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sglang.stand_in import completions, release
from sglang.stand_in.engine import Engine, Request, RequestError
from sglang.stand_in.faces import Faces, SectionError

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN_PREFIXES = ("/health", "/ready", "/metrics")
_ADMIN = ("/flush_cache", "/freeze_gc", "/abort_request")


class Http:
    """Routes, middlewares and the answers of one engine."""

    def __init__(self, engine: Engine, faces: Faces) -> None:
        self._engine = engine
        self._faces = faces
        self.old_answers_until = 0.0

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._around], client_max_size=2**28)
        get, any_way = app.router.add_get, app.router.add_route
        get("/health", self._health)
        get("/health_generate", self._health)
        if release.HAS_READY:
            get("/ready", self._ready)
        if self._engine.args.enable_metrics:
            get("/metrics", self._metrics)
        for path in ("/server_info", "/get_server_info"):
            get(path, self._body(self._faces.server_info))
        for path in ("/model_info", "/get_model_info"):
            get(path, self._body(self._faces.model_info))
        get("/v1/models", self._body(self._faces.models))
        get("/v1/loads", self._loads)
        if release.HAS_GET_LOAD:
            get("/get_load", self._body(self._faces.get_load))
        get("/ping", self._empty)
        for path in completions.KINDS:
            any_way("POST", path, self._complete)
        app.router.add_post("/abort_request", self._abort)
        for method in ("GET", "POST"):
            any_way(method, "/flush_cache", self._flush)
            any_way(method, "/freeze_gc", self._freeze)
        return app

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request, keep strangers out, shape what no route answers."""
        if self._engine.faults.on("hang"):
            await asyncio.Event().wait()
        known = request.match_info.http_exception is None
        labels = {"endpoint": request.path if known else "/*", "method": request.method}
        metrics = self._engine.metrics
        metrics.inc("sglang:http_requests_total", **labels)
        self._active(labels, 1)
        status = 400  # what a client that left before the answer is counted as
        try:
            response = await self._guarded(request, handler)
            status = response.status
        finally:
            self._active(labels, -1)
            metrics.inc("sglang:http_responses_total", **labels, status_code=str(status))
        if not response.prepared:
            response.headers["server"] = "uvicorn"
        return response

    def _active(self, labels: dict[str, str], by: int) -> None:
        self._engine.metrics.inc("sglang:http_requests_active", by, **labels)

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._allowed(request):
            return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return web.json_response({"detail": error.reason}, status=error.status)

    def _allowed(self, request: web.Request) -> bool:
        args = self._engine.args
        key = args.api_key
        if request.path.startswith(_OPEN_PREFIXES):
            return True
        if request.path in _ADMIN and args.admin_api_key:
            key = args.admin_api_key
        if not key:
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), key.encode())

    @staticmethod
    def _body(make: Callable[[], Any]) -> Handler:
        async def handler(_request: web.Request) -> web.Response:
            return web.json_response(make())

        return handler

    @staticmethod
    async def _empty(_request: web.Request) -> web.Response:
        return _status(200)

    async def _health(self, _request: web.Request) -> web.Response:
        engine = self._engine
        if time.monotonic() < self.old_answers_until:
            return _status(200)
        if engine.shutting_down or engine.starting:
            return _status(503)
        await asyncio.sleep(float(engine.faults.get("health_delay_seconds", 0)))
        if engine.faults.on("health_flap"):
            pattern = engine.faults.get("health_flap")
            statuses = pattern if isinstance(pattern, list) else [200, 503]
            return _status(statuses[engine.faults.turn("health_flap") % len(statuses)])
        return _status(200 if await engine.health() else 503)

    async def _ready(self, _request: web.Request) -> web.Response:
        engine = self._engine
        return _status(503 if engine.starting or engine.shutting_down else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = self._engine.metrics.render(self._engine.faults.get("metrics", {}))
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=body.encode(), headers={"Content-Type": kind})

    async def _loads(self, request: web.Request) -> web.Response:
        began = time.perf_counter()
        rank = request.query.get("dp_rank")
        try:
            body = self._faces.loads(request.query.get("include"), None if rank is None else int(rank))
        except SectionError:
            # Not 400: nothing in the real engine catches it.
            return web.Response(text="Internal Server Error", status=500)
        self._engine.metrics.observe("sglang:get_loads_duration_seconds", time.perf_counter() - began)
        return web.json_response(body)

    async def _abort(self, request: web.Request) -> web.Response:
        data = await request.json()
        for rid, task in list(self._engine.requests.items()):
            if task is not None and (data.get("abort_all") or rid.startswith(data.get("rid", ""))):
                task.cancel()
        return _status(200)

    async def _flush(self, _request: web.Request) -> web.Response:
        if not self._engine.queues.idle:
            return _status(400, "Flush cache failed.\n")
        return _status(
            200,
            "Cache flushed.\nPlease check backend logs for more details. (When there are "
            "running or waiting requests, the operation will not be performed.)\n",
        )

    async def _freeze(self, _request: web.Request) -> web.Response:
        return _status(200, "Garbage collection frozen.\n")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        kind = completions.KINDS[request.path]
        engine = self._engine
        try:
            body = await request.json()
            wanted = completions.read(kind, body)
            engine.check(wanted)
        except (json.JSONDecodeError, TypeError) as error:
            return self._error(kind, str(error), 400)
        except RequestError as error:
            return self._error(kind, str(error), error.status)
        answer = completions.Answer(kind, wanted, body.get("model") or engine.args.served_model_name)
        spoiled = self._spoiled()
        if spoiled is not None:
            return web.json_response(answer.whole(spoiled))
        try:
            if wanted.stream:
                usage = bool((body.get("stream_options") or {}).get("include_usage"))
                return await self._stream(request, kind, wanted, answer, usage)
            first = await self._collect(wanted, answer)
        except RequestError as error:
            return self._error(kind, str(error), error.status)
        except asyncio.CancelledError:
            engine.metrics.inc("sglang:num_aborted_requests_total")
            raise
        engine.count_finished(wanted, answer.generated, first)
        return web.json_response(answer.whole("length"))

    def _spoiled(self) -> str | None:
        """Return the finish reason of an answer that a fault spoils."""
        faults = self._engine.faults
        if faults.on("answer_abort"):
            value = faults.get("answer_abort")
            return value if isinstance(value, str) else "abort"
        return "stop" if faults.on("answer_empty") else None

    def _error(self, kind: str, message: str, status: int) -> web.Response:
        return web.json_response(completions.error_body(kind, message, status), status=status)

    async def _collect(self, wanted: Request, answer: completions.Answer) -> float:
        first = 0.0
        async for step in self._engine.generate(wanted):
            first = first or time.monotonic()
            answer.add(step.text, step.token_ids)
        return first

    async def _stream(
        self,
        request: web.Request,
        kind: str,
        wanted: Request,
        answer: completions.Answer,
        usage: bool,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8", "server": "uvicorn"})
        await response.prepare(request)
        first = 0.0
        try:
            async for step in self._engine.generate(wanted):
                if not first:
                    first = time.monotonic()
                    for chunk in answer.first():
                        await response.write(completions.event(chunk))
                answer.add(step.text, step.token_ids)
                await response.write(completions.event(answer.step(step.text)))
        except RequestError as error:
            body = completions.error_body(kind, str(error), error.status)
            await response.write(completions.event({"error": body.get("error", body)}))
        except (ConnectionError, OSError) as error:
            raise asyncio.CancelledError from error
        else:
            for chunk in answer.last("length", usage=usage):
                await response.write(completions.event(chunk))
            self._engine.count_finished(wanted, answer.generated, first)
        await response.write(completions.event("[DONE]"))
        await response.write_eof()
        return response


def _status(code: int, text: str = "") -> web.Response:
    """Return an answer without a content type, as the real engine's empty and administrative ones are."""
    if text:
        # aiohttp would put one in the place of none.
        return web.Response(status=code, body=text.encode(), headers={"Content-Type": ""})
    response = web.Response(status=code)
    response.headers.pop("Content-Type", None)
    return response
