# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP to members on this host, by ``requests``: bounded in time and size, never raising."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import requests

#: Bodies beyond this are cut: /metrics of a large engine is a few hundred kB.
BODY_LIMIT_BYTES = 16 * 1024 * 1024


class Answer(NamedTuple):
    """An HTTP answer, or why there is none."""

    status: int | None
    body: bytes
    seconds: float
    error: str


class Client:
    """Requests that carry one API key and go to no proxy and follow no redirect."""

    def __init__(self) -> None:
        self._session = requests.Session()
        # No proxy and no .netrc of the environment: members are asked directly.
        self._session.trust_env = False

    def request(self, method: str, url: str, timeout_seconds: float, api_key: str = "", content: Any = None) -> Answer:
        """Return the answer to one request.

        :param content: sent as JSON where not None.
        :param timeout_seconds: for the whole answer, not only between two bytes.
        """
        began = time.monotonic()
        headers = {"Authorization": "Bearer " + api_key} if api_key else {}
        try:
            with self._session.request(
                method,
                url,
                headers=headers,
                json=content,
                timeout=timeout_seconds,
                allow_redirects=False,
                stream=True,
            ) as response:
                body = b""
                for chunk in response.iter_content(65536):
                    body += chunk
                    if len(body) > BODY_LIMIT_BYTES:
                        return Answer(
                            None, b"", time.monotonic() - began, "body over {0} bytes".format(BODY_LIMIT_BYTES)
                        )
                    if time.monotonic() - began > timeout_seconds:
                        return Answer(None, b"", time.monotonic() - began, _late(timeout_seconds))
                return Answer(response.status_code, body, time.monotonic() - began, "")
        except requests.exceptions.Timeout:
            return Answer(None, b"", time.monotonic() - began, _late(timeout_seconds))
        except requests.exceptions.RequestException as trouble:
            return Answer(None, b"", time.monotonic() - began, _short(trouble))


def _late(timeout_seconds: float) -> str:
    return "nothing within {0:g} s".format(timeout_seconds)


def _short(trouble: Exception) -> str:
    """Return the innermost reason: requests wraps "connection refused" three times."""
    inner: BaseException = trouble
    while True:
        reason = getattr(inner, "reason", None) or inner.__cause__ or inner.__context__
        if not isinstance(reason, BaseException):
            break
        inner = reason
    text = getattr(inner, "strerror", None) or str(inner)
    return str(text) or type(inner).__name__
