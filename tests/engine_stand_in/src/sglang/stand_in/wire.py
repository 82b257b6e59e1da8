# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages between a prefill and a decode: one JSON line each, KV bytes behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any


def write(writer: asyncio.StreamWriter, **message: Any) -> None:
    """Queue one message."""
    writer.write(json.dumps(message).encode() + b"\n")


async def read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next message; EOFError when the peer closed or is gone."""
    try:
        line = await reader.readline()
    except (ConnectionError, OSError) as error:
        raise EOFError(str(error)) from error
    if not line.endswith(b"\n"):
        raise EOFError("connection closed by peer")
    message: dict[str, Any] = json.loads(line)
    return message


class TransferError(Exception):
    """A KV transfer that failed: the request is answered with a 500."""
