# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Markdown for a comment on a merge request, of values that nobody vouches for. Pure.

GitLab and GitHub make more of text than Markdown does: mentions, references, links. So whatever is a name or a
value is code, and prose is kept from being read as anything but prose.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

#: Bytes of a comment: GitHub takes 65,536 characters, GitLab 1,000,000.
MOST = 65_000
#: Bytes that are kept for the line that says what was left out.
_FOR_THE_COUNT = 200
#: Characters of prose in a table.
CELL = 500

#: Between the two, so that nobody is mentioned and nothing is linked or referred to.
_BREAK = "&#8203;"
_REFERENCE = re.compile(r"([@#!~%$^])(?=\w)")
_LINK = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_FIRST = re.compile(r"^(?=[-+=#])|(?<=^\d)(?=[.)](?:\s|$))|(?<=^\d\d)(?=[.)](?:\s|$))")
#: Underscores within a word are no markup.
_MARKUP = re.compile(r"([\\`*\[\]~|]|(?<![^\W_])_|_(?![^\W_]))")


def prose(value: Any, most: int = CELL) -> str:
    """Return text as one line of Markdown that shows just that text.

    :param most: characters, 0 for all; what is cut off is counted.
    """
    text = _MARKUP.sub(r"\\\1", html.escape(_broken(words.plain(value, most)), quote=False))
    # In a table, a backslash before a pipe is read in two ways.
    return _FIRST.sub(r"\\", text).replace(r"\|", "&#124;").replace("\0", _BREAK)


def code(value: Any, most: int = CELL) -> str:
    """Return a name or a value as code; "" for none."""
    text = words.plain(value, most)
    if not text:
        return ""
    if not set(text) & set("`|\\"):
        return "`{0}`".format(text)
    # What ends a code span or a cell has another way into it.
    special = "".join("&#{0};".format(ord(one)) if not one.isalnum() and one != " " else one for one in text)
    return "<code>{0}</code>".format(special)


def fenced(value: Any, most: int = 4000) -> str:
    """Return text of several lines as a block of code."""
    text = words.lines(value, most)
    longest = max((len(one) for one in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "{0}text\n{1}\n{0}\n".format(fence, text)


def some(names: Iterable[Any], most: int = 8) -> str:
    """Return names as code; where there are many, the first ones and how many more."""
    given = list(names)
    if len(given) <= most + 1:
        return ", ".join(map(code, given))
    return "{0} and {1:,} more".format(", ".join(map(code, given[:most])), len(given) - most)


def row(cells: Iterable[str]) -> str:
    """Return a row of a table, of cells that are Markdown."""
    return "| {0} |\n".format(" | ".join(cells))


def head(names: Sequence[str]) -> str:
    """Return the head of a table."""
    return row(names) + row("---" for _name in names)


def details(summary: str, content: str) -> str:
    """Return something that is folded away.

    :param summary: HTML.
    """
    return "<details><summary>{0}</summary>\n\n{1}\n</details>\n\n".format(summary, content)


def as_html(value: Any, most: int = CELL) -> str:
    """Return text for a summary, which is HTML and no Markdown."""
    return html.escape(_broken(words.plain(value, most)), quote=False).replace("\0", _BREAK)


def _broken(text: str) -> str:
    """Return text with a mark in all that would become a mention, a reference or a link."""
    return _REFERENCE.sub("\\1\0", _LINK.sub("\0", text))


class Comment:
    """A comment that is never too long, and says what is not on it."""

    def __init__(self, most: int = MOST):
        self._left = most
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        """Add what must be there."""
        self._parts.append(text)
        self._left -= size(text)

    def add_some(self, parts: Sequence[str], share: float, left_out: str, before: str = "", after: str = "\n") -> None:
        """Add as many of the parts, from the first on, as fit.

        :param share: how much of the room that is left they may take.
        :param left_out: what is said of the others, with ``{0}`` for their number.
        :param before: what comes before the first part, the head of a table for instance.
        """
        if not parts:
            return
        room = self._left * share - size(before) - size(after) - _FOR_THE_COUNT
        shown = 0
        for part in parts:
            room -= size(part)
            if room < 0:
                break
            shown += 1
        self.add("".join([before if shown else "", *parts[:shown], after]))
        if shown < len(parts):
            self.add("*{0}*\n\n".format(left_out.format("{0:,}".format(len(parts) - shown))))

    def text(self) -> str:
        """Return the comment."""
        return "".join(self._parts)


def size(text: str) -> int:
    """Return the bytes of a text: never fewer than its characters, however somebody counts these."""
    return len(text.encode("utf-8", "replace"))
