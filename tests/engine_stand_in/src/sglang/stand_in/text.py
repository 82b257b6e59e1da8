# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens, KV bytes and greedy text, all functions of the prompt.

The text is a function of the KV bytes alone: a decode that received other bytes
than the prefill computed would answer another text than a plain engine does.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence

_WORDS = (
    "the a of to and in is that for it as with on be at by from this we are or an "
    "path queue cache token batch page block host node layer head state key value "
    "sends waits holds moves reads keeps starts ends heals drains serves asks"
).split()


def tokenize(text: str) -> list[int]:
    """Return token ids: one per word or mark."""
    return [zlib.crc32(t.encode()) % 32000 for t in re.findall(r"\w+|[^\w\s]", text)] or [0]


def compute_kv(tokens: Sequence[int]) -> bytes:
    """Return 64 bytes per token, each block depending on all tokens before."""
    blocks = []
    state = b""
    for token in tokens:
        state = hashlib.blake2b(state + token.to_bytes(4, "big")).digest()
        blocks.append(state)
    return b"".join(blocks)


def generate(kv: bytes) -> Iterator[tuple[int, str]]:
    """Yield (token id, text) for ever; the caller stops at its limit."""
    state = hashlib.blake2b(kv).digest()
    first = True
    while True:
        state = hashlib.blake2b(state).digest()
        index = int.from_bytes(state[:4], "big") % len(_WORDS)
        yield index, _WORDS[index] if first else " " + _WORDS[index]
        first = False
