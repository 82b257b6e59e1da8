# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decode side of the KV path: finds the prefill's rank, announces, receives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from sglang.stand_in import environment, wire
from sglang.stand_in.faults import Faults

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1


class MismatchError(Exception):
    """Prefill and decode cannot exchange KV: the decode scheduler dies of it."""


class KvReceiver:
    """Connections of one decode incarnation to its prefills."""

    def __init__(self, engine: str, about: dict[str, Any], faults: Faults) -> None:
        self._engine = engine
        self._about = about
        self._faults = faults
        self._incarnation = uuid.uuid4().hex
        self._old = environment.old_stack()
        self._ranks: dict[str, tuple[str, int]] = {}
        self._misses: dict[str, int] = {}
        self._cut: list[asyncio.StreamWriter] = []
        self._session: aiohttp.ClientSession | None = None

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        return self._session

    async def heartbeat(self) -> None:
        """Drop what is known of a prefill whose bootstrap server stays away."""
        interval = environment.number("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", 5)
        limit = environment.number("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", 2)
        while True:
            await asyncio.sleep(interval)
            for address in list(self._ranks):
                try:
                    async with self._http().get(f"http://{address}/health") as answer:
                        answer.raise_for_status()
                    self._misses[address] = 0
                except (aiohttp.ClientError, OSError, asyncio.TimeoutError):
                    self._misses[address] = self._misses.get(address, 0) + 1
                    if self._misses[address] >= limit:
                        self._ranks.pop(address, None)

    async def _ask(self, address: str, rank: int) -> dict[str, Any]:
        query = {
            "prefill_dp_rank": rank,
            "prefill_cp_rank": rank,
            "target_tp_rank": rank,
            "target_pp_rank": rank,
        }
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError, asyncio.TimeoutError):
                async with self._http().get(f"http://{address}/route", params=query) as answer:
                    if answer.status == 200:
                        data: dict[str, Any] = await answer.json()
                        return data
            await asyncio.sleep(_RETRY_SECONDS)

    async def _rank(self, address: str) -> tuple[str, int]:
        """Return where the prefill's rank listens; what is known is not asked again."""
        if address not in self._ranks:
            prefill = await self._ask(address, -1)
            for key in ("page_size", "kv_cache_dtype"):
                if prefill.get(key) != self._about[key]:
                    raise MismatchError(f"{key} differs: prefill {prefill.get(key)}, decode {self._about[key]}")
            rank = await self._ask(address, 0)
            self._ranks[address] = (rank["rank_ip"], int(rank["rank_port"]))
        return self._ranks[address]

    async def _connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            host, port = await self._rank(address)
            try:
                return await asyncio.open_connection(host, port, limit=2**20)
            except OSError:
                # The old stack keeps a dead rank until the heartbeat drops it.
                if not self._old:
                    self._ranks.pop(address, None)
                await asyncio.sleep(_RETRY_SECONDS)

    @contextlib.asynccontextmanager
    async def receive(self, address: str, room: int, transferring: Callable[[], None]) -> AsyncIterator[bytes]:
        """Yield the KV of a room as received from the prefill."""
        reader, writer = await self._connect(address)
        try:
            wire.write(writer, room=room, engine=self._engine, incarnation=self._incarnation)
            transferring()
            yield await self._read_kv(reader, writer)
        finally:
            if self._faults.on("vanish"):
                # A host that is gone closes nothing; kept, or it would be collected.
                self._cut.append(writer)
            else:
                writer.close()

    async def _read_kv(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        while True:
            if self._faults.on("vanish"):
                # From the prefill's side: no answer, and no end of the connection.
                await asyncio.Event().wait()
            try:
                message = await wire.read(reader)
                if self._faults.on("vanish"):
                    continue
                if "kv" not in message:
                    wire.write(writer, pong=True)
                    continue
                kv = await reader.readexactly(int(message["kv"]))
                wire.write(writer, ack=True)
                await writer.drain()
            except (EOFError, OSError) as error:
                raise wire.TransferError(f"prefill closed the connection: {error}") from error
            return kv
