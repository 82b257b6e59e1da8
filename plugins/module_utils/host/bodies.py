# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What neither HTTP client reads of an answer, and how either says so."""

from __future__ import annotations

from collections.abc import Mapping

#: Bodies beyond this are not read on: /metrics of a large engine is a few hundred kB.
LIMIT_BYTES = 16 * 1024 * 1024
#: Characters of a reason.
REASON_LENGTH = 300
#: On one host compression saves nothing, and a small body may unpack to any size.
WANTED = {"Accept-Encoding": "identity"}


class BodyError(Exception):
    """A body that is not read on."""


def refuse_coding(headers: Mapping[str, str]) -> None:
    """Refuse a body that is compressed although that was not asked for.

    :raises BodyError: for such a one.
    """
    coding = headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise BodyError("a body in {0} coding, which was not asked for".format(coding[:20]))


def refuse_length(length: int) -> None:
    """Refuse to read on.

    :param length: bytes read so far.
    :raises BodyError: beyond :data:`LIMIT_BYTES`.
    """
    if length > LIMIT_BYTES:
        raise BodyError("body over {0} bytes".format(LIMIT_BYTES))


def nothing_within(seconds: float) -> str:
    """Return the reason of an answer that did not begin in time."""
    return "nothing within {0:g} s".format(seconds)


def not_at_its_end_within(seconds: float) -> str:
    """Return the reason of an answer that began and did not end in time."""
    return "not at its end within {0:g} s".format(seconds)


def reason(words: str, trouble: BaseException) -> str:
    """Return words on an exception in one line: some repeat what the server sent, and all of it."""
    return " ".join(words.split())[:REASON_LENGTH] or type(trouble).__name__
