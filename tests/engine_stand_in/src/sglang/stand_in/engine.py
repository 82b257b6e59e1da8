# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One engine: takes a request through the queues of its role."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from sglang.srt.disaggregation import prefill
from sglang.srt.disaggregation.common import conn
from sglang.stand_in import environment, text, wire
from sglang.stand_in.faults import Faults
from sglang.stand_in.kv_receiver import KvReceiver, MismatchError
from sglang.stand_in.kv_sender import KvSender
from sglang.stand_in.metrics import Metrics
from sglang.stand_in.queues import Queues
from sglang.stand_in.scheduler_process import SchedulerProcess

logger = logging.getLogger(__name__)

#: Requests with this bootstrap host never touch the KV path.
FAKE_BOOTSTRAP_HOST = "2.2.2.2"


class RequestError(Exception):
    """A request the engine answers with an HTTP error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Request:
    """What the scheduler needs of a request."""

    prompt: list[int]
    max_new_tokens: int
    stream: bool = False
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    bootstrap_room: int | None = None
    log_metrics: bool = True
    rid: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: float = field(default_factory=time.monotonic)

    @property
    def fake(self) -> bool:
        """Tell whether the request leaves out the KV path."""
        return self.bootstrap_host == FAKE_BOOTSTRAP_HOST


@dataclass
class Step:
    """One or more generated tokens."""

    token_ids: list[int]
    text: str


def local_ip(host: str) -> str:
    """Return the address that peers reach this engine's ranks at."""
    if os.environ.get("SGLANG_HOST_IP"):
        return os.environ["SGLANG_HOST_IP"]
    if host not in ("0.0.0.0", "::", ""):
        return host
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: this only asks the routing table.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        # No route to the world, as on isolated test hosts.
        return socket.gethostbyname(socket.gethostname())
    return "127.0.0.1"


class Engine:
    """State of one engine process."""

    def __init__(self, args: argparse.Namespace, faults: Faults, scheduler: SchedulerProcess) -> None:
        self.args = args
        self.faults = faults
        self.scheduler = scheduler
        self.role: str = args.disaggregation_mode
        self.max_total_tokens: int = args.max_total_tokens or 8192
        self.context_length: int = args.context_length or 2048
        self.random_seed: int = args.random_seed or random.randrange(2**30)
        self.dp_size: int = max(args.dp_size, getattr(args, "attn_dp_size", 1) or 1)
        self.metrics = Metrics(
            self.role,
            args.served_model_name,
            scheduler_pid=scheduler.pid,
            extra_labels=args.extra_metric_labels or {},
            tp_ranks=args.tp_size if args.enable_metrics_for_all_schedulers else 1,
            dp_ranks=self.dp_size if self.dp_size > 1 else 0,
        )
        self.queues = Queues(self.metrics, self.max_total_tokens)
        self.starting = True
        self.shutting_down = False
        self.unhealthy = False
        self.requests: dict[str, asyncio.Task[Any] | None] = {}
        self.transfer_ms = 0.0
        self.prompt_tokens_seen = 0
        self._rooms: set[int] = set()
        self._cached_prompts: set[tuple[int, ...]] = set()
        self._decode_failure_counted = False
        self._old = environment.old_stack()
        self._sender = KvSender()
        about = {"page_size": args.page_size or 1, "kv_cache_dtype": args.kv_cache_dtype}
        name = f"{socket.gethostname()}/{local_ip(args.host)}:{args.port}"
        self._receiver = KvReceiver(name, about, faults)
        self._background: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: object) -> None:
        """Keep a task alive for the life of the engine."""
        task = asyncio.ensure_future(coroutine)  # type: ignore[call-overload]
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def start(self) -> None:
        """Start what the role needs beside HTTP."""
        self.spawn(self._watch_scheduler())
        self.spawn(self._idle_metrics())
        if self.role == "prefill":
            await self._sender.start()
            self.spawn(self._register())
        elif self.role == "decode":
            self.spawn(self._receiver.heartbeat())

    async def _watch_scheduler(self) -> None:
        await self.scheduler.watch()
        self.die("a scheduler child died")

    def die(self, why: str) -> None:
        """End the way the real engine does when a scheduler fails."""
        logger.error("SIGQUIT received. It usually means one child failed: %s", why)
        self.scheduler.stop()
        os.kill(os.getpid(), signal.SIGKILL)

    async def _idle_metrics(self) -> None:
        seconds = environment.number("STAND_IN_IDLE_METRICS_SECONDS", 30)
        idle_since = time.monotonic()
        while True:
            await asyncio.sleep(min(0.05, seconds))
            if not self.queues.idle:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= seconds:
                self.queues.idle_tick()
                idle_since = time.monotonic()

    async def _register(self) -> None:
        """Register the rank at whatever answers on the bootstrap port."""
        args = self.args
        body = {
            "attn_tp_size": 1,
            "attn_tp_rank": 0,
            "attn_cp_size": 1,
            "attn_cp_rank": 0,
            "attn_dp_size": 1,
            "attn_dp_rank": 0,
            "pp_size": 1,
            "pp_rank": 0,
            "dp_size": 1,
            "system_dp_size": 1,
            "system_dp_rank": 0,
            "rank_ip": local_ip(args.host),
            "rank_port": self._sender.port,
            "page_size": args.page_size or 1,
            "kv_cache_dtype": args.kv_cache_dtype,
            "follow_bootstrap_room": args.load_balance_method in ("auto", "follow_bootstrap_room"),
            "enable_dsa_cache_layer_split": False,
            "enable_kv_cache_sharding": False,
            "prefill_http_port": args.port,
            "decode_allocation_policy": "early",
        }
        url = f"http://{local_ip(args.host)}:{args.disaggregation_bootstrap_port}/route"
        async with aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    async with session.put(url, json=body) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.1)

    async def generate(self, request: Request) -> AsyncIterator[Step]:
        """Yield the tokens of a request; leaving the iterator aborts it."""
        self.check(request)
        self.requests[request.rid] = asyncio.current_task()
        self.queues.used_tokens += len(request.prompt)
        try:
            if self.faults.on("scheduler_wedged"):
                await asyncio.Event().wait()
            with self.queues.stand_in("waiting"):
                await self.scheduler.round()
            self.prompt_tokens_seen += len(request.prompt)
            if self.role == "prefill":
                async for step in self._prefill(request):
                    yield step
            elif self.role == "decode":
                async for step in self._decode(request):
                    yield step
            else:
                kv = text.compute_kv(request.prompt)
                with self.queues.stand_in("running"):
                    await self._prefill_forward(request)
                    self.queues.write_gauges()
                    async for step in self._run(kv, request.max_new_tokens):
                        yield step
        finally:
            self.queues.used_tokens -= len(request.prompt)
            self.requests.pop(request.rid, None)

    def check(self, request: Request) -> None:
        """Refuse what the real engine refuses at the door."""
        if len(request.prompt) >= self.context_length:
            raise RequestError(
                f"Input length ({len(request.prompt)} tokens) exceeds the maximum allowed length "
                f"({self.context_length - 1} tokens)."
            )
        if self.role != "null" and not request.fake and request.bootstrap_room is None:
            raise RequestError(
                f"Invalid request: Disaggregated request received without bootstrap room id. req.rid={request.rid!r}"
            )

    async def _prefill_forward(self, request: Request) -> None:
        """Spend the time of a prefill batch."""
        await asyncio.sleep(environment.number("STAND_IN_PREFILL_SECONDS", 0))
        if request.log_metrics:
            tokens = len(request.prompt)
            self.metrics.inc("sglang:realtime_tokens_total", tokens, mode="prefill_compute")

    async def _prefill(self, request: Request) -> AsyncIterator[Step]:
        kv = text.compute_kv(request.prompt)
        if not request.fake:
            await self._hand_over(request, kv)
        elif self.queues.idle:
            # A health check while requests are stuck is not run: gauges stay frozen.
            self.queues.write_gauges()
        token, word = next(text.generate(kv))
        yield Step([token], word)

    async def _hand_over(self, request: Request, kv: bytes) -> None:
        room = request.bootstrap_room
        assert room is not None
        if room in self._rooms:
            self.die(f"bootstrap room {room} is in use twice")
        self._rooms.add(room)
        began = time.monotonic()
        queue = "prefill_bootstrap"
        try:
            with self.queues.stand_in(queue):
                peer = await asyncio.wait_for(
                    self._sender.wait_for_decode(room),
                    environment.number("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", 300),
                )
            bootstrapped = time.monotonic()
            await self._prefill_forward(request)
            queue = "prefill_inflight"
            with self.queues.stand_in(queue):
                self.queues.write_gauges()
                await asyncio.sleep(float(self.faults.get("transfer_seconds", 0)))
                await asyncio.wait_for(
                    self._sender.send(peer, kv, len(request.prompt)),
                    environment.number("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", 300),
                )
        except asyncio.TimeoutError as error:
            self._count_failure(queue)
            raise RequestError(f"KVTransferError: timed out in {queue} queue", 500) from error
        except wire.TransferError as error:
            self._count_failure(queue)
            raise RequestError(f"KVTransferError(bootstrap_room={room}): {error}", 500) from error
        except asyncio.CancelledError:
            if queue == "prefill_inflight":
                self._count_failure(queue)
            if self.faults.on("stuck_inflight") and prefill.status_after_abort() != conn.FAILED:
                self.queues.pin("prefill_inflight")
            raise
        finally:
            self._rooms.discard(room)
            self._sender.forget(room)
        self._observe_transfer(began, bootstrapped, len(kv))

    def _observe_transfer(self, began: float, bootstrapped: float, size: int) -> None:
        now = time.monotonic()
        self.transfer_ms = (now - bootstrapped) * 1000
        observe = self.metrics.observe
        observe("sglang:kv_transfer_latency_ms", self.transfer_ms)
        observe("sglang:kv_transfer_bootstrap_ms", (bootstrapped - began) * 1000)
        observe("sglang:kv_transfer_alloc_ms", 0.1)
        observe("sglang:kv_transfer_total_mb", size / 2**20)
        observe("sglang:kv_transfer_speed_gb_s", size / 2**30 / max(now - bootstrapped, 1e-6))

    def _count_failure(self, queue: str) -> None:
        name = "transfer" if queue != "prefill_bootstrap" else "bootstrap"
        self.metrics.inc(f"sglang:num_{name}_failed_reqs_total")

    def _count_decode_failure(self) -> None:
        # The old stack's decode tells of a failing prefill only once.
        if not (self._old and self._decode_failure_counted):
            self.metrics.inc("sglang:num_transfer_failed_reqs_total")
        self._decode_failure_counted = True

    async def _decode(self, request: Request) -> AsyncIterator[Step]:
        if request.fake:
            with self.queues.stand_in("running"):
                kv = text.compute_kv(request.prompt)
                async for step in self._run(kv, request.max_new_tokens):
                    yield step
            return
        kv = await self._fetch(request)
        with self.queues.stand_in("running"):
            async for step in self._run(kv, request.max_new_tokens):
                yield step

    async def _fetch(self, request: Request) -> bytes:
        """Stand in prealloc and transfer queue until the KV is here."""
        room = request.bootstrap_room
        assert room is not None
        address = f"{request.bootstrap_host}:{request.bootstrap_port}"
        timeout = environment.number("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", 300)
        stage = contextlib.ExitStack()
        stage.enter_context(self.queues.stand_in("decode_prealloc"))
        announced = False
        began = time.monotonic()

        def transferring() -> None:
            nonlocal announced
            announced = True
            stage.close()
            stage.enter_context(self.queues.stand_in("decode_transfer"))

        async def receive() -> bytes:
            async with self._receiver.receive(address, room, transferring) as kv:
                return kv

        try:
            kv = await asyncio.wait_for(receive(), timeout)
        except MismatchError as error:
            self.die(str(error))
            raise
        except asyncio.TimeoutError as error:
            self._count_decode_failure()
            raise RequestError(f"KVTransferError: no KV within {timeout:g} s", 500) from error
        except wire.TransferError as error:
            self._count_decode_failure()
            raise RequestError(f"KVTransferError(bootstrap_room={room}): {error}", 500) from error
        except asyncio.CancelledError:
            if announced:
                self._count_decode_failure()
            raise
        finally:
            stage.close()
        self._count_bootstrap(began)
        return kv

    def _count_bootstrap(self, began: float) -> None:
        """Count on a decode what comes before a transfer; the fake one of a health check too."""
        self.metrics.observe("sglang:kv_transfer_bootstrap_ms", (time.monotonic() - began) * 1000)
        self.metrics.observe("sglang:kv_transfer_alloc_ms", 0.1)

    async def _run(self, kv: bytes, limit: int) -> AsyncIterator[Step]:
        """Generate at the configured speed, in steps no finer than 10 ms."""
        words = text.generate(kv)
        left = limit
        default = environment.number("STAND_IN_TOKENS_PER_SECOND", 2000)
        while left > 0:
            speed = float(self.faults.get("tokens_per_second", default))
            count = max(1, min(left, int(speed * 0.01)))
            await asyncio.sleep(count / speed)
            made = [next(words) for _ in range(count)]
            left -= count
            self.metrics.inc("sglang:realtime_tokens_total", count, mode="decode")
            self.queues.decode_step(count, every=getattr(self.args, "decode_log_interval", 40))
            yield Step([t for t, _ in made], "".join(w for _, w in made))

    async def health(self) -> bool:
        """Tell whether the scheduler answers; the KV path is never touched."""
        timeout = environment.number("SGLANG_HEALTH_CHECK_TIMEOUT", 20)
        await asyncio.sleep(environment.number("STAND_IN_HEALTH_SECONDS", 0.05))
        try:
            await asyncio.wait_for(self.scheduler.round(), timeout)
        except asyncio.TimeoutError:
            self.unhealthy = True
            return False
        if self.role == "decode":
            self._count_bootstrap(time.monotonic())
        elif self.queues.idle:
            # On an idle engine the health request is a prefill batch like any other;
            # while requests are stuck it is not run, and the gauges stay frozen.
            self.queues.write_gauges()
            self.metrics.inc("sglang:realtime_tokens_total", 1, mode="prefill_compute")
        self.unhealthy = False
        return True

    def count_finished(self, request: Request, generated: int, first_token: float) -> None:
        """Count a request that was answered."""
        if not request.log_metrics:
            return
        now = time.monotonic()
        streaming = str(request.stream).lower()
        metrics = self.metrics
        metrics.inc("sglang:num_requests_total", is_streaming=streaming)
        metrics.inc("sglang:prompt_tokens_total", len(request.prompt), is_streaming=streaming)
        metrics.inc("sglang:generation_tokens_total", generated, is_streaming=streaming)
        latency = now - request.started
        metrics.observe("sglang:e2e_request_latency_seconds", latency, is_streaming=streaming)
        if self.role != "prefill":
            metrics.observe(
                "sglang:time_to_first_token_seconds",
                first_token - request.started,
                is_streaming=streaming,
            )
        metrics.observe("sglang:prompt_tokens_histogram", len(request.prompt))
        metrics.observe("sglang:uncached_prompt_tokens_histogram", len(request.prompt))
        metrics.observe("sglang:generation_tokens_histogram", generated)
        if self.role != "prefill" and request.stream:
            share = (now - first_token) / max(generated, 1)
            metrics.observe("sglang:inter_token_latency_seconds", share)
            metrics.observe("sglang:request_time_per_output_token_seconds", share)
        self._count_cached(request)
        for name in ("per_stage_req_latency_seconds", "queue_time_seconds"):
            metrics.touch(f"sglang:{name}", 0.001)
        metrics.touch("sglang:cuda_graph_passes_total", 1)

    def _count_cached(self, request: Request) -> None:
        """Count a prompt that was seen before as a prefix cache hit."""
        prompt = tuple(request.prompt)
        if prompt in self._cached_prompts:
            self.metrics.inc("sglang:cached_tokens_total", len(prompt) - 1, cache_source="device")
            self.metrics.inc("sglang:realtime_tokens_total", len(prompt) - 1, mode="prefill_cache")
        self._cached_prompts.add(prompt)

    async def drained(self) -> None:
        """Wait without a deadline until no request is left."""
        poll = environment.number("STAND_IN_DRAIN_POLL_SECONDS", 0.05)
        while self.requests:
            await asyncio.sleep(poll)
