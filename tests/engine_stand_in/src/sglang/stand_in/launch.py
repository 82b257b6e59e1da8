# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Life of an engine process: start, serve, drain, end."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from sglang.stand_in import args as arguments
from sglang.stand_in import environment
from sglang.stand_in.faults import Faults
from sglang.stand_in.scheduler_process import SchedulerProcess

logger = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """Run the engine and return its exit code."""
    environment.check_booleans()
    environment.old_stack()
    args, merged = arguments.parse(argv)
    logging.basicConfig(
        level=getattr(logging, args.log_level.upper()),
        format="[%(asctime)s] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    # asyncio's own debugging says nothing about the engine.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    faults = Faults(args.port)
    crash = _crash_at_start(faults)
    if crash is not None:
        return crash
    # Forked before anything heavy is imported: a small child.
    scheduler = SchedulerProcess()
    try:
        return asyncio.run(_run(args, merged, faults, scheduler))
    finally:
        scheduler.stop()


def _crash_at_start(faults: Faults) -> int | None:
    fault = faults.get("crash_at_start")
    if not fault:
        return None
    settings: dict[str, Any] = fault if isinstance(fault, dict) else {}
    starts = settings.get("starts")
    if starts is not None and faults.count_start() > int(starts):
        return None
    message = settings.get("message", "RuntimeError: CUDA out of memory (crash_at_start)")
    print(message, file=sys.stderr, flush=True)
    return int(settings.get("exit_code", 1))


async def _run(
    args: argparse.Namespace,
    argv: list[str],
    faults: Faults,
    scheduler: SchedulerProcess,
) -> int:
    if args.node_rank > 0:
        from sglang.stand_in.multi_node import follow

        return await follow(args)
    return await _Server(args, argv, faults, scheduler).run()


class _Server:
    """Rank 0 of an engine."""

    def __init__(
        self,
        args: argparse.Namespace,
        argv: list[str],
        faults: Faults,
        scheduler: SchedulerProcess,
    ) -> None:
        from sglang.stand_in.engine import Engine
        from sglang.stand_in.faces import Faces
        from sglang.stand_in.http import Http

        self._args = args
        self._faults = faults
        self._scheduler = scheduler
        self._engine = Engine(args, faults, scheduler)
        self._http = Http(self._engine, Faces(self._engine, argv))
        self._stop = asyncio.Event()
        self._sockets: list[socket.socket] = []
        self._leader: Any = None

    async def run(self) -> int:
        """Serve until SIGTERM and drained."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        await self._engine.start()
        await self._start_bootstrap()
        if not await self._load_model():
            return 0
        if not await self._listen():
            return 1
        await self._warm_up()
        await self._stop.wait()
        await self._drain()
        return 0

    def _on_signal(self, number: int) -> None:
        if self._faults.on("ignore_sigterm"):
            logger.warning("signal %s ignored", number)
            return
        logger.warning("SIGTERM received. signum=%s. Draining requests...", number)
        old = float(self._faults.get("old_process_answers", 0))
        self._http.old_answers_until = time.monotonic() + old
        self._engine.shutting_down = True
        self._stop.set()

    async def _start_bootstrap(self) -> None:
        if self._args.disaggregation_mode != "prefill":
            return
        from sglang.stand_in.bootstrap import BootstrapServer
        from sglang.version import __version__

        server = BootstrapServer(self._args.host, self._args.disaggregation_bootstrap_port, __version__)
        await server.start()
        if server.site is not None and server.site._server is not None:
            self._sockets += getattr(server.site._server, "sockets", [])

    async def _load_model(self) -> bool:
        """Spend the start-up time; return False when stopped meanwhile."""
        if self._args.nnodes > 1:
            from sglang.stand_in.multi_node import Leader

            self._leader = Leader(self._args, self._engine.die)
            await self._unless_stopped(self._leader.gather())
        seconds = environment.number("STAND_IN_STARTUP_SECONDS", 0.2)
        seconds += float(self._faults.get("slow_start", 0))
        await self._unless_stopped(asyncio.sleep(seconds))
        if self._faults.on("hang_at_start"):
            await self._stop.wait()
        if self._stop.is_set():
            await self._drain()
        return not self._stop.is_set()

    async def _unless_stopped(self, coroutine: Any) -> None:
        waits = [asyncio.ensure_future(coroutine), asyncio.ensure_future(self._stop.wait())]
        _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    async def _listen(self) -> bool:
        from aiohttp import web

        runner = web.AppRunner(
            self._http.app(),
            access_log=None,
            # A client that leaves aborts its request.
            handler_cancellation=True,
            keepalive_timeout=environment.number("SGLANG_TIMEOUT_KEEP_ALIVE", 5),
        )
        await runner.setup()
        site = web.TCPSite(runner, self._args.host, self._args.port)
        try:
            await site.start()
        except OSError as error:
            logger.error("%s", error)
            return False
        self._sockets += getattr(site._server, "sockets", [])
        logger.info("Uvicorn running on http://%s:%s", self._args.host, self._args.port)
        return True

    async def _warm_up(self) -> None:
        from sglang.stand_in.engine import FAKE_BOOTSTRAP_HOST, Request

        if not self._args.skip_server_warmup:
            warm = environment.number("STAND_IN_WARMUP_SECONDS", 0.3)
            await self._unless_stopped(asyncio.sleep(warm))
            request = Request(
                prompt=[0] * 4,
                max_new_tokens=8,
                bootstrap_host=FAKE_BOOTSTRAP_HOST,
                bootstrap_room=0,
            )
            if not self._faults.on("scheduler_wedged"):
                generated = 0
                async for step in self._engine.generate(request):
                    generated += len(step.token_ids)
                self._engine.count_finished(request, generated, time.monotonic())
        self._engine.starting = False
        logger.info("The server is fired up and ready to roll!")
        self._engine.spawn(self._crash_later())

    async def _crash_later(self) -> None:
        """Crash that many seconds after healthy; the fault may come at run time."""
        healthy = time.monotonic()
        while True:
            fault = self._faults.get("crash_after_healthy")
            settings = fault if isinstance(fault, dict) else {"seconds": fault}
            if settings.get("seconds") is not None:
                left = healthy + float(settings["seconds"]) - time.monotonic()
                if left <= 0:
                    logger.error("RuntimeError: scheduler hit an exception (crash_after_healthy)")
                    self._scheduler.stop()
                    os._exit(int(settings.get("exit_code", 1)))
            await asyncio.sleep(0.05)

    async def _drain(self) -> None:
        # A server that failed its last health check does not wait for requests.
        if not self._engine.unhealthy:
            await self._engine.drained()
        await asyncio.sleep(max(0.0, self._http.old_answers_until - time.monotonic()))
        if self._leader is not None:
            await self._leader.dismiss()
        if self._faults.on("leave_orphan"):
            from sglang.stand_in.orphan import leave_behind

            fds = [sock.fileno() for sock in self._sockets]
            leave_behind(fds, escape_cgroup=self._faults.get("leave_orphan") == "escape_cgroup")
        logger.info("Gracefully exiting...")
