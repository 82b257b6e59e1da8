# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server on loopback that answers as no engine does."""

from __future__ import annotations

import contextlib
import gzip
import socket
import struct
import threading
from collections.abc import Callable, Iterator

MEGABYTE = 1024 * 1024
#: What a huge body has. Nothing here may be read that far.
HUGE_BYTES = 100 * MEGABYTE
#: Between two bytes of a server that drips.
DRIP_SECONDS = 0.05

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Way = Callable[["Server", socket.socket], None]


class Server:
    """Answers each connection in one way, and counts what it was asked and what it sent."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.over = threading.Event()
        self.sent = 0
        self.asked: list[bytes] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Return its address."""
        return "http://127.0.0.1:{}".format(self._listener.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(30)
            asked = b""
            while b"\r\n\r\n" not in asked:
                part = connection.recv(65536)
                if not part:
                    return
                asked += part
            self.asked.append(asked)
            self._way(self, connection)

    def send(self, connection: socket.socket, data: bytes) -> None:
        """Send and count."""
        connection.sendall(data)
        self.sent += len(data)

    def close(self) -> None:
        """End it."""
        self.over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextlib.contextmanager
def serving(way: Way) -> Iterator[Server]:
    """Return a server that is ended at the end."""
    server = Server(way)
    try:
        yield server
    finally:
        server.close()


def _huge(server: Server, connection: socket.socket, length: bytes, piece: bytes) -> None:
    server.send(connection, HEAD + length + b"\r\n")
    while server.sent < HUGE_BYTES:
        server.send(connection, piece)


def huge(server: Server, connection: socket.socket) -> None:
    """100 MB, as announced."""
    _huge(server, connection, b"Content-Length: %d\r\n" % HUGE_BYTES, b"[" * MEGABYTE)


def huge_without_length(server: Server, connection: socket.socket) -> None:
    """100 MB until the connection ends."""
    _huge(server, connection, b"", b'"' * MEGABYTE)


def huge_in_chunks(server: Server, connection: socket.socket) -> None:
    """100 MB in chunks."""
    _huge(server, connection, b"Transfer-Encoding: chunked\r\n", b"100000\r\n" + b"1" * MEGABYTE + b"\r\n")


def huge_when_unpacked(server: Server, connection: socket.socket) -> None:
    """100 MB of nothing in 100 kB, compressed although nobody asked for that."""
    body = gzip.compress(bytes(MEGABYTE)) * (HUGE_BYTES // MEGABYTE)
    server.send(connection, HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def _drip(server: Server, connection: socket.socket, first: bytes, drop: bytes) -> None:
    server.send(connection, first)
    while not server.over.wait(DRIP_SECONDS):
        server.send(connection, drop)


def dripping_body(server: Server, connection: socket.socket) -> None:
    """A byte now and then, for ever: never silent for as long as a timeout between two bytes."""
    _drip(server, connection, HEAD + b"\r\n", b"x")


def dripping_headers(server: Server, connection: socket.socket) -> None:
    """One endless header line."""
    _drip(server, connection, HEAD + b"X: ", b"x")


def dripping_chunks(server: Server, connection: socket.socket) -> None:
    """Chunks of one byte."""
    _drip(server, connection, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")


def dripping_events(server: Server, connection: socket.socket) -> None:
    """A stream that tells nothing and never ends."""
    _drip(server, connection, HEAD + b"\r\n", b": ping\n\n")


def silent(server: Server, connection: socket.socket) -> None:
    """Nothing."""
    server.over.wait()


def silent_in_the_middle(server: Server, connection: socket.socket) -> None:
    """Half a body, then nothing."""
    server.send(connection, HEAD + b'Content-Length: 100\r\n\r\n{"loads": [')
    server.over.wait()


def longer_than_sent(server: Server, connection: socket.socket) -> None:
    """A length that the body does not have."""
    server.send(connection, HEAD + b'Content-Length: 100\r\n\r\n{"loads": [')


def reset(server: Server, connection: socket.socket) -> None:
    """A connection that is reset in the middle of the body."""
    server.send(connection, HEAD + b"Content-Length: 100\r\n\r\n{")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def keeps_open(server: Server, connection: socket.socket) -> None:
    """A whole answer, and a connection that stays open without an answer to anything more."""
    server.send(connection, HEAD + b"Content-Length: 2\r\nConnection: keep-alive\r\n\r\n{}")
    server.over.wait()


def closed(server: Server, connection: socket.socket) -> None:
    """No answer, and the end."""


def answers(answer: bytes) -> Way:
    """Return a way that sends some bytes and ends."""

    def way(server: Server, connection: socket.socket) -> None:
        server.send(connection, answer)

    return way


#: Beginnings of answers that are no HTTP, or a wrong one.
GARBAGE = {
    "binary": bytes(range(256)) * 16,
    "zeros": bytes(4096),
    "another-protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "tls": b"\x15\x03\x01\x00\x02\x02\x46",
    "no-status": b"HTTP/1.1\r\n\r\n",
    "odd-status": b"HTTP/1.1 2OO OK\r\n\r\n",
    "status-of-four-digits": b"HTTP/1.1 9999 OK\r\n\r\n",
    "status-below-zero": b"HTTP/1.1 -20 OK\r\n\r\n",
    "endless-status-line": b"HTTP/1.1 200 " + b"O" * MEGABYTE,
    "thousands-of-headers": HEAD + b"".join(b"X-%d: 1\r\n" % one for one in range(5000)) + b"\r\n",
    "header-without-colon": HEAD + b"nonsense\r\n\r\n{}",
    "length-below-zero": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "length-no-number": HEAD + b"Content-Length: many\r\n\r\n{}",
    "two-lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
    "chunk-no-number": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "chunk-below-zero": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n",
    "chunk-of-exabytes": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n{}\r\n",
    "chunk-cut": HEAD + b"Transfer-Encoding: chunked\r\n\r\n50\r\n{}",
    "no-gzip": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
    "unknown-coding": HEAD + b"Content-Encoding: sdch\r\nTransfer-Encoding: rot13\r\n\r\n{}",
    "odd-charset": b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=\xff\r\nContent-Length: 2\r\n\r\n{}",
    "switching-protocols": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n\x00\x01",
    "continue-for-ever": b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
}


def redirects(location: str) -> Way:
    """Return a way that sends whoever asks to another place."""
    return answers("HTTP/1.1 307 Go\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n".format(location).encode())


BOUNDED = {
    way.__name__: way
    for way in (
        huge,
        huge_without_length,
        huge_in_chunks,
        huge_when_unpacked,
        dripping_body,
        dripping_headers,
        dripping_chunks,
        dripping_events,
        silent,
        silent_in_the_middle,
        longer_than_sent,
        reset,
        closed,
    )
}
BOUNDED.update({name: answers(answer) for name, answer in GARBAGE.items()})
