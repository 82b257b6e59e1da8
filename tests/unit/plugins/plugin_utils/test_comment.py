# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of hosts in a comment: it shows as it is, and is nothing but text."""

from __future__ import annotations

import html
import re

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import comment
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from .. import rolled

RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
#: What Markdown makes something of, and what GitLab and GitHub do.
SPECIAL = "\\`*_[]()<>&|~#!@$%+-=.:/ \t\n1a'\"{}^"
TEXTS = st.text(st.sampled_from(SPECIAL), max_size=30)


def shown(markdown: str) -> str:
    """Return the text that a reader sees."""
    page = RENDERER.render(markdown)
    return html.unescape(re.sub(r"<[^>]*>", "", page)).replace("\u200b", "")


def cells(row: str) -> list[str]:
    """Return what a row of a table shows."""
    page = RENDERER.render(comment.head(["", ""]) + row)
    found = re.findall(r"<td>(.*?)</td>", page, re.DOTALL)
    assert set(re.findall(r"</?([a-z]+)", "".join(found))) <= {"code"}, page
    return [html.unescape(re.sub(r"</?code>", "", one)).replace("\u200b", "") for one in found]


@pytest.mark.parametrize("way", [comment.prose, comment.code])
@given(text=TEXTS)
def test_any_text_in_a_cell_shows_as_it_is(way: object, text: str) -> None:
    assert callable(way)
    assert cells(comment.row([way(text), "next"])) == [" ".join(text.split()), "next"]


def test_no_cell_depends_on_who_reads_a_backslash_before_a_pipe() -> None:
    for way in (comment.prose, comment.code):
        assert "|" not in way("a | b \\| c \\\\| d")


@given(text=TEXTS)
def test_any_text_in_a_list_shows_as_it_is(text: str) -> None:
    page = RENDERER.render("- " + comment.prose("x" + text + "x"))
    assert shown("- " + comment.prose("x" + text + "x")).strip() == " ".join(("x" + text + "x").split())
    assert set(re.findall(r"<([a-z0-9]+)", page)) == {"ul", "li"}


@pytest.mark.parametrize("text", ["# x", "- x", "+ x", "1. x", "12) x", "=== x", "> x", "x"])
def test_text_at_the_begin_of_an_item_is_no_item_or_heading_of_its_own(text: str) -> None:
    page = RENDERER.render("- " + comment.prose(text))
    assert page.count("<li>") == 1 and set(re.findall(r"<([a-z0-9]+)", page)) == {"ul", "li"}


@given(text=st.text(st.sampled_from("`~ \nab"), max_size=40))
def test_a_block_of_code_is_not_left_by_what_is_in_it(text: str) -> None:
    page = RENDERER.render(comment.fenced("x" + text + "x") + "\nafter")
    assert page.count("<pre>") == 1 and page.endswith("<p>after</p>\n")


def test_nobody_is_mentioned_and_nothing_is_linked() -> None:
    text = comment.prose("@all see #12, !3, ~bug, owner/repo#4, https://192.0.2.1/x, www.example.com")
    assert not re.search(r"[@#!~](?=\w)|://|www\.", html.unescape(text))
    assert shown(text).strip() == "@all see #12, !3, ~bug, owner/repo#4, https://192.0.2.1/x, www.example.com"
    # Within code nobody looks for them.
    assert comment.code("ops@ci pid 17") == "`ops@ci pid 17`"
    assert "@\u200b" in html.unescape(comment.as_html("@all"))


def test_what_is_cut_off_is_counted() -> None:
    assert comment.prose("x" * 1500) == "x" * 500 + " … (1,000 more characters)"


def test_hostile_text_brings_no_elements_of_its_own() -> None:
    for way in (comment.prose, comment.code):
        page = RENDERER.render("- " + way(rolled.HOSTILE))
        assert set(re.findall(r"<([a-z0-9]+)", page)) <= {"ul", "li", "code"}
    page = RENDERER.render(comment.details(comment.as_html(rolled.HOSTILE), comment.fenced(rolled.HOSTILE)))
    assert set(re.findall(r"<([a-z0-9]+)", page)) == {"details", "summary", "pre", "code"}


def test_a_comment_is_as_long_as_it_may_be_and_counts_the_rest() -> None:
    page = comment.Comment(2000)
    page.add("head\n")
    page.add_some(["{0:04d}\n".format(number) for number in range(1000)], 1.0, "{0} more", "before\n")
    text = page.text()
    assert 1500 < comment.size(text) <= 2000
    shown_parts = len(re.findall(r"^\d{4}$", text, re.MULTILINE))
    assert "*{0} more*".format(1000 - shown_parts) in text and "before" in text


def test_bytes_count_not_characters() -> None:
    page = comment.Comment(2000)
    page.add_some(["模" * 100 + "\n"] * 100, 1.0, "{0} more")
    assert len(page.text().encode()) <= 2000


def test_a_part_without_room_leaves_its_count_and_no_head() -> None:
    page = comment.Comment(300)
    page.add_some(["x" * 400], 1.0, "{0} more", "head")
    assert page.text() == "\n*1 more*\n\n"
