# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP to members on this host, by ``requests``: bounded in time and size, never raising."""

from __future__ import annotations

import http.client
import socket
import time
from typing import Any, NamedTuple

import requests
import requests.adapters
import urllib3.connection
import urllib3.connectionpool
import urllib3.exceptions
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import bodies

#: What goes wrong within requests, which does not wrap all of it.
_TROUBLES = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)


class Answer(NamedTuple):
    """An HTTP answer, or why there is none."""

    status: int | None
    body: bytes
    seconds: float
    error: str


class _TimedSocket(socket.socket):
    """A socket on which all reads together end at the deadline.

    A timeout of requests is one between two bytes: a server that sends one a second would be read for hours,
    headers and body alike.
    """

    #: On the monotonic clock.
    deadline: float

    def recv_into(self, *given: Any) -> int:
        """Read until the deadline at most."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise socket.timeout("timed out")
        self.settimeout(min(left, 1e6))
        return super().recv_into(*given)


def _pool_of(deadline: float) -> type[urllib3.connectionpool.HTTPConnectionPool]:
    """Return a kind of pool whose connections read until the deadline at most."""

    class Connection(urllib3.connection.HTTPConnection):
        def connect(self) -> None:
            super().connect()
            timeout = self.sock.gettimeout()
            timed = _TimedSocket(fileno=self.sock.detach())
            timed.settimeout(timeout)
            timed.deadline = deadline
            self.sock = timed

    class Pool(urllib3.connectionpool.HTTPConnectionPool):
        ConnectionCls = Connection

    return Pool


class _Adapter(requests.adapters.HTTPAdapter):
    """Opens the connection of a request."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        super().__init__()

    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        """Make the pools, those for HTTP with a deadline."""
        super().init_poolmanager(*given, **more)
        classes = dict(self.poolmanager.pool_classes_by_scheme, http=_pool_of(self._deadline))
        self.poolmanager.pool_classes_by_scheme = classes


class Client:
    """Requests that carry one API key and go to no proxy and follow no redirect; one at a time."""

    def request(self, method: str, url: str, timeout_seconds: float, api_key: str = "", content: Any = None) -> Answer:
        """Return the answer to one request.

        :param content: sent as JSON where not None.
        :param timeout_seconds: for the whole answer, not only between two bytes.
        """
        began = time.monotonic()
        deadline = began + timeout_seconds
        headers = dict(bodies.WANTED, Connection="close")
        if api_key:
            headers["Authorization"] = "Bearer " + api_key
        status, body, error = None, b"", ""
        try:
            # A connection of its own: one that is kept may be closed by the server (uvicorn does after 5 s) just when
            # it is used again.
            with _session(deadline) as session:
                asked = session.request(
                    method,
                    url,
                    headers=headers,
                    json=content,
                    timeout=timeout_seconds,
                    allow_redirects=False,
                    stream=True,
                )
                with asked as response:
                    status, body = response.status_code, _body(response, deadline, timeout_seconds)
        except requests.exceptions.Timeout:
            error = bodies.nothing_within(timeout_seconds)
        except requests.exceptions.InvalidHeader:
            # Its own words repeat the key.
            error = "the API key has characters that no header carries"
        except bodies.BodyError as trouble:
            error = str(trouble)
        except _TROUBLES as trouble:
            # Late within the body is no Timeout to requests.
            late = time.monotonic() >= deadline
            error = bodies.not_at_its_end_within(timeout_seconds) if late else _short(trouble)
        return Answer(status, body, time.monotonic() - began, error)


def _session(deadline: float) -> requests.Session:
    """Return a session whose connections end at a deadline."""
    session = requests.Session()
    session.mount("http://", _Adapter(deadline))
    # No proxy and no .netrc of the environment: members are asked directly.
    session.trust_env = False
    return session


def _body(response: requests.Response, deadline: float, timeout_seconds: float) -> bytes:
    """Return the body of an answer, read until the deadline at most."""
    bodies.refuse_coding(response.headers)
    body = bytearray()
    for chunk in response.iter_content(65536):
        body += chunk
        bodies.refuse_length(len(body))
        if time.monotonic() > deadline:
            raise bodies.BodyError(bodies.not_at_its_end_within(timeout_seconds))
    # The urllib3 of older distributions takes a body that is cut for a whole one.
    if getattr(response.raw, "length_remaining", None):
        raise bodies.BodyError("the connection ended before the body did")
    return bytes(body)


def _short(trouble: Exception) -> str:
    """Return the innermost reason: requests wraps "connection refused" three times."""
    inner: BaseException = trouble
    while True:
        reason = getattr(inner, "reason", None) or inner.__cause__ or inner.__context__
        # Older urllib3 tries another way to call http.client first: that TypeError is no reason.
        if not isinstance(reason, _TROUBLES):
            break
        inner = reason
    return bodies.reason(str(getattr(inner, "strerror", None) or inner), inner)
