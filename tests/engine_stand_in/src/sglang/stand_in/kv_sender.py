# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prefill side of the KV path: waits for a decode's room, then sends the KV.

The old stack's two diseases live here:

* a decode engine that was restarted more often than tolerated since this
  prefill started is never sent anything again;
* a decode that fell silent in the middle of a transfer (no answer to pings,
  connection not closed) and then comes back as a new incarnation leaves a
  transfer thread waiting for ever, and with it every later transfer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from sglang.stand_in import environment, wire

_PING_SECONDS = 0.25


class Peer:
    """One decode's connection for one room."""

    def __init__(self, hello: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self.engine: str = hello["engine"]
        self.incarnation: str = hello["incarnation"]
        self.writer = writer
        self.acked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sending = False
        self.gone = False
        self.last_sign = time.monotonic()

    def silent_for(self) -> float:
        """Return the seconds since the last sign of life."""
        return time.monotonic() - self.last_sign


class KvSender:
    """Transfer endpoint of one prefill incarnation."""

    def __init__(self) -> None:
        self._old = environment.old_stack()
        self._tolerated = environment.number("STAND_IN_DECODE_RESTARTS_TOLERATED", 4)
        self._vanish_seconds = environment.number("STAND_IN_VANISH_SECONDS", 2)
        self._rooms: dict[int, asyncio.Queue[Peer]] = {}
        self._incarnations: dict[str, list[str]] = {}
        self._blocked: set[Peer] = set()
        self._busy: set[Peer] = set()
        self._wedged = False
        self.port = 0

    async def start(self) -> None:
        """Listen on a port of its own, a new one in every incarnation."""
        server = await asyncio.start_server(self._serve, "0.0.0.0", 0)
        self.port = server.sockets[0].getsockname()[1]

    def _meet(self, engine: str, incarnation: str) -> None:
        known = self._incarnations.setdefault(engine, [])
        if incarnation in known:
            return
        known.append(incarnation)
        mates = [p for p in self._busy | self._blocked if p.engine == engine]
        for peer in mates:
            if peer in self._blocked or peer.silent_for() >= self._vanish_seconds:
                self._wedged = self._old
                if not self._old:
                    self._fail(peer, "decode came back as a new incarnation")

    def _fail(self, peer: Peer, why: str) -> None:
        self._blocked.discard(peer)
        self._busy.discard(peer)
        if not peer.acked.done():
            peer.acked.set_exception(wire.TransferError(why))
            # Nobody may be waiting any more once the client has left.
            peer.acked.exception()

    def _hopeless(self, peer: Peer) -> bool:
        restarts = len(self._incarnations[peer.engine]) - 1
        return self._wedged or (self._old and restarts > self._tolerated)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pings: asyncio.Task[None] | None = None
        peer: Peer | None = None
        try:
            hello = await wire.read(reader)
            peer = Peer(hello, writer)
            self._meet(peer.engine, peer.incarnation)
            self._room(int(hello["room"])).put_nowait(peer)
            pings = asyncio.create_task(self._ping(peer))
            while True:
                message = await wire.read(reader)
                peer.last_sign = time.monotonic()
                if "ack" in message and not peer.acked.done():
                    peer.acked.set_result(None)
        except EOFError:
            if peer is not None:
                self._lost(peer)
        finally:
            if pings is not None:
                pings.cancel()
            writer.close()

    def _lost(self, peer: Peer) -> None:
        """The connection ended: an ordinary end fails the transfer at once."""
        peer.gone = True
        if peer.sending and peer.silent_for() >= self._vanish_seconds:
            # The thread that sends to it never learns of the end.
            self._busy.discard(peer)
            self._blocked.add(peer)
        else:
            self._fail(peer, "decode closed the connection")

    async def _ping(self, peer: Peer) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while True:
                wire.write(peer.writer, ping=True)
                await asyncio.sleep(_PING_SECONDS)

    def _room(self, room: int) -> asyncio.Queue[Peer]:
        return self._rooms.setdefault(room, asyncio.Queue())

    async def wait_for_decode(self, room: int) -> Peer:
        """Return the decode that announced the room: the bootstrap."""
        while True:
            peer = await self._room(room).get()
            if not peer.gone:
                return peer

    def forget(self, room: int) -> None:
        """Drop a room whose request ended."""
        self._rooms.pop(room, None)

    async def send(self, peer: Peer, kv: bytes, prompt_tokens: int) -> None:
        """Send the KV and wait for the decode's acknowledgement."""
        if self._hopeless(peer):
            await asyncio.Event().wait()
        peer.sending = True
        self._busy.add(peer)
        wire.write(peer.writer, kv=len(kv), prompt_tokens=prompt_tokens)
        peer.writer.write(kv)
        # Left by its client, the transfer goes on: only the decode can end it.
        await asyncio.shield(peer.acked)
        self._busy.discard(peer)
