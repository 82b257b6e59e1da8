# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks of one engine over several hosts: rendezvous and the order of stopping."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

from aiohttp import web

from sglang.stand_in import wire

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.05


def _address(args: argparse.Namespace) -> tuple[str, int]:
    if not args.dist_init_addr:
        raise ValueError("--dist-init-addr is needed with --nnodes > 1")
    host, _, port = args.dist_init_addr.rpartition(":")
    return host.strip("[]"), int(port)


class Leader:
    """Rank 0: waits for the others, and tells them when to stop."""

    def __init__(self, args: argparse.Namespace, lost: Callable[[str], None]) -> None:
        self._args = args
        self._lost = lost
        self._others: dict[int, asyncio.StreamWriter] = {}
        self._complete = asyncio.Event()
        self._stopping = False

    async def gather(self) -> None:
        """Return when every rank has joined."""
        host, port = _address(self._args)
        await asyncio.start_server(self._join, host, port)
        await self._complete.wait()
        for writer in self._others.values():
            wire.write(writer, started=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = 0
        with contextlib.suppress(EOFError):
            rank = int((await wire.read(reader))["rank"])
            self._others[rank] = writer
            if len(self._others) == self._args.nnodes - 1:
                self._complete.set()
            await wire.read(reader)
        if not self._stopping:
            self._lost(f"rank {rank} is gone")

    async def dismiss(self) -> None:
        """Tell the other ranks to stop."""
        self._stopping = True
        for writer in self._others.values():
            wire.write(writer, shutdown=True)
            with contextlib.suppress(ConnectionError, OSError):
                await writer.drain()


async def follow(args: argparse.Namespace) -> int:
    """Be a rank > 0 until rank 0 says stop (0) or is gone (1)."""
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM,
        lambda: logger.warning("SIGTERM received on node_rank %s; waiting for rank 0 to stop it.", args.node_rank),
    )
    await _dummy_server(args)
    host, port = _address(args)
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            break
        await asyncio.sleep(_RETRY_SECONDS)
    wire.write(writer, rank=args.node_rank)
    try:
        while not (await wire.read(reader)).get("shutdown"):
            pass
    except EOFError:
        logger.error("rank 0 is gone")
        return 1
    return 0


async def _dummy_server(args: argparse.Namespace) -> None:
    """Answer 200 whatever happens: evidence of nothing."""

    async def ok(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    for path in ("/ping", "/health", "/health_generate"):
        app.router.add_get(path, ok)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, args.host, args.port).start()
    except OSError as error:
        logger.error("Dummy health check server failed to start: %s", error)
