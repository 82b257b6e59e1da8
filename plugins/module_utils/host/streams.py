# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many chat requests at a time, by ``aiohttp``: bounded in time and size, never raising.

One loop in one thread: a thread a stream costs more than two cores have at 1,000 streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
import time
from collections.abc import Iterable
from typing import Any, Callable
from urllib.parse import urlsplit

import aiohttp
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _answers, _metrics, _profiles
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import ROUTER
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import bodies

#: Seconds for /v1/loads and /metrics together; a hung engine must not hold up the others.
SAMPLE_SECONDS = 5
#: Connections that are being opened at a time: what is beyond a server's backlog is opened a second later.
CONNECTING = 64
#: Files that the process may hold open, where the system allows it: one a stream, two a pair.
OPEN_FILES = 16384


class Exchange:
    """What became of one chat request; see :class:`_verify.Exchange`."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.body = b""
        self.stream = _answers.Stream()
        self.seconds = 0.0
        self.first_seconds: float | None = None
        self.error = ""
        self.dropped = False
        self.other_leg = ""


class _Turn:
    """A request's turn to open its connection."""

    def __init__(self, opening: asyncio.Semaphore):
        self._opening = opening
        self._held = False

    async def take(self) -> None:
        await self._opening.acquire()
        self._held = True

    def end(self) -> None:
        """Let the next one open its connection; may be called again."""
        if self._held:
            self._held = False
            self._opening.release()


async def _connected(_session: aiohttp.ClientSession, context: Any, _given: object) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.end()


class Streams:
    """The effects of a verification, within one event loop; use it as an asynchronous context.

    :param members: of the cluster.
    :param reach: URL of a member as this host reaches it.
    :param api_key: of the cluster, "" for none.
    :param parse_metrics: ``prometheus_client.parser.text_string_to_metric_families``.
    """

    monotonic = staticmethod(time.monotonic)
    wait = staticmethod(asyncio.sleep)

    def __init__(
        self,
        members: Iterable[dict[str, Any]],
        reach: Callable[[dict[str, Any]], str],
        api_key: str,
        parse_metrics: Callable[[str], Iterable[Any]],
    ):
        self._members = {_profiles.name_of(member): member for member in members}
        self._urls = {name: reach(member) for name, member in self._members.items()}
        self._headers = dict(bodies.WANTED)
        if api_key:
            self._headers["Authorization"] = "Bearer " + api_key
        self._parse_metrics = parse_metrics
        self._session: aiohttp.ClientSession | None = None
        self._opening: asyncio.Semaphore | None = None

    async def __aenter__(self) -> Streams:
        allow_open_files()
        self._opening = asyncio.Semaphore(CONNECTING)
        # One connection a request: what is proved is a request of a client of its own, and a
        # client that leaves closes its connection.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_connected)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None),
            trace_configs=[trace],
        )
        return self

    async def __aexit__(self, *_trouble: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def chat(self, request: dict[str, Any], body: dict[str, Any], limit_seconds: float) -> Exchange:
        """Send a chat request through a router, or to both engines of a pair as a router does."""
        path = "/v1/chat/completions"
        if request["to"] == "router":
            return await self._post(self._urls[request["via"]] + path, body, limit_seconds, request.get("drop"))
        prefill = self._members[request["prefill"]]
        body = dict(
            body,
            bootstrap_host=urlsplit(prefill["url"]).hostname,
            bootstrap_port=prefill["bootstrap_port"],
            # 63 bits, from the system's source: a room that is taken ends both schedulers.
            bootstrap_room=secrets.randbits(63),
        )
        first, exchange = await asyncio.gather(
            self._post(self._urls[request["prefill"]] + path, body, limit_seconds, None),
            self._post(self._urls[request["decode"]] + path, body, limit_seconds, None),
        )
        if first.status != 200:
            exchange.other_leg = first.error or "HTTP {0}: {1}".format(
                first.status, (first.body or first.stream.raw)[:200].decode("utf-8", "replace")
            )
        return exchange

    async def _post(
        self, url: str, body: dict[str, Any], limit_seconds: float, drop: dict[str, Any] | None
    ) -> Exchange:
        assert self._opening is not None  # noqa: S101 - within the context
        exchange = Exchange()
        limit = min(limit_seconds, drop["seconds"]) if drop else limit_seconds
        turn = _Turn(self._opening)
        await turn.take()
        # Waiting for a turn is this client's time, not the server's.
        began = time.monotonic()
        try:
            await asyncio.wait_for(self._exchange(exchange, url, body, began, drop, turn), limit)
        except asyncio.TimeoutError:
            self._late(exchange, limit_seconds, drop)
        except (aiohttp.ClientError, OSError, ValueError, bodies.BodyError) as trouble:
            exchange.error = _short(trouble)
            if not body.get("stream"):
                # Half an answer is none; of a stream it is told how far it came.
                exchange.status = None
        finally:
            turn.end()
        exchange.seconds = time.monotonic() - began
        return exchange

    @staticmethod
    def _late(exchange: Exchange, limit_seconds: float, drop: dict[str, Any] | None) -> None:
        if drop is not None:
            exchange.dropped = True
        elif exchange.stream.events:
            exchange.error = bodies.not_at_its_end_within(limit_seconds)
        else:
            exchange.status = None
            exchange.error = bodies.nothing_within(limit_seconds)

    async def _exchange(
        self,
        exchange: Exchange,
        url: str,
        body: dict[str, Any],
        began: float,
        drop: dict[str, Any] | None,
        turn: _Turn,
    ) -> None:
        assert self._session is not None  # noqa: S101 - within the context
        async with self._session.post(url, json=body, allow_redirects=False, trace_request_ctx=turn) as response:
            bodies.refuse_coding(response.headers)
            size = 0
            # Put together at the end: a body of many small parts would be copied with each of them.
            parts: list[bytes] = []
            async for data in response.content.iter_any():
                exchange.status = response.status
                size += len(data)
                bodies.refuse_length(size)
                if exchange.first_seconds is None and body.get("stream"):
                    exchange.first_seconds = time.monotonic() - began
                if body.get("stream"):
                    exchange.stream.feed(data)
                else:
                    parts.append(data)
                if drop and exchange.stream.tokens_seen >= drop["events"]:
                    exchange.dropped = True
                    response.close()
                    return
            exchange.status = response.status
            exchange.body = b"".join(parts)

    async def sample(self, engine: str) -> dict[str, Any]:
        """Return a sample of an engine: queues from ``/v1/loads`` where it exists, the rest from ``/metrics``."""
        url = self._urls[engine]
        loads, metrics = await asyncio.gather(self._get(url + "/v1/loads"), self._get(url + "/metrics"))
        live = _metrics.loads_sample(loads[1]) if loads[0] == 200 else None
        stale = None
        known: dict[str, Any] = {}
        if metrics[0] == 200:
            text = metrics[1].decode("utf-8", "replace")
            stale = _metrics.metrics_sample(_metrics.sampled_lines(text), self._parse_metrics)
            # A fresh engine has no gauge yet, and is labelled all the same.
            known = {"invocation": _metrics.invocation_of(text)}
        if live is None and stale is None:
            return {"trouble": "/v1/loads: {0}; /metrics: {1}".format(*[_status(one) for one in (loads, metrics)])}
        if live is None:
            return dict(stale or {}, live=False, **known)
        gauges = {name: stale[name] for name in _metrics.QUEUES} if stale else {}
        return dict(stale or {}, **dict(live, live=True, gauges=gauges, **known))

    async def _get(self, url: str) -> tuple[int | None, bytes, str]:
        assert self._session is not None  # noqa: S101 - within the context
        try:
            return await asyncio.wait_for(self._read(url), SAMPLE_SECONDS)
        except asyncio.TimeoutError:
            return None, b"", bodies.nothing_within(SAMPLE_SECONDS)
        except (aiohttp.ClientError, OSError, ValueError, bodies.BodyError) as trouble:
            return None, b"", _short(trouble)

    async def _read(self, url: str) -> tuple[int | None, bytes, str]:
        assert self._session is not None  # noqa: S101 - within the context
        async with self._session.get(url, allow_redirects=False) as response:
            bodies.refuse_coding(response.headers)
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                bodies.refuse_length(len(body))
            return response.status, bytes(body), ""


def _status(answer: tuple[int | None, bytes, str]) -> str:
    if answer[0] == 200:
        return "not readable"
    return answer[2] or "HTTP {0}".format(answer[0])


def _short(trouble: Exception) -> str:
    return bodies.reason(str(getattr(trouble, "os_error", "") or trouble), trouble)


def allow_open_files() -> None:
    """Raise this process's limit of open files as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def reach(members: Iterable[dict[str, Any]], here: str, local_url: Callable[[dict[str, Any]], str]) -> Any:
    """Return how this host reaches a member: its own at where they listen, others by their URL.

    :param here: inventory name of this host.
    """
    known = {_profiles.name_of(member) for member in members if member["host"] == here}
    return lambda member: local_url(member) if _profiles.name_of(member) in known else member["url"]


def key_of(members: Iterable[dict[str, Any]], here: str, read_key: Callable[[dict[str, Any]], str]) -> str:
    """Return the API key of a cluster, from the secrets of its members on this host; "" for none."""
    own = [member for member in members if member["host"] == here]
    keys = [read_key(member) for member in sorted(own, key=lambda member: member["role"] != ROUTER)]
    return next((key for key in keys if key), "")
