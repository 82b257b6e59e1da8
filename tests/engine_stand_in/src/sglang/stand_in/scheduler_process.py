# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduler as a child process: what KillMode and orphans are about.

Every request and every health check makes one round through it. A scheduler
that is killed takes the engine down, one that is stopped makes it hang, and it
never outlives the main process (its socket ends).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections import deque
from pathlib import Path


def _child(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("sglang::schedul")
    # The default action on purpose: a unit that signals the whole control group
    # (KillMode=control-group) cuts running requests, as with the real engine.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            data = sock.recv(4096)
            if not data:
                break
            sock.sendall(data)
        except OSError:
            break
    os._exit(0)


class SchedulerProcess:
    """Handle of the child in the main process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            _child(theirs)
        theirs.close()
        self._sock = ours
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stopping = False

    async def watch(self) -> None:
        """Answer rounds until the child ends; return only when it died by itself."""
        loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        while True:
            try:
                data = await loop.sock_recv(self._sock, 4096)
            except OSError:
                data = b""
            if not data:
                break
            for _ in data:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(None)
        if self._stopping:
            await asyncio.Event().wait()

    async def round(self) -> None:
        """Make one round through the scheduler."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        with contextlib.suppress(OSError):
            self._sock.send(b".")
        await future

    def stop(self) -> None:
        """End the child and reap it."""
        self._stopping = True
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self.pid, 0)
