# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where progress is shown."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import screen

from ...rolls import MADE_AT, Story, plan_of


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that stands."""

    now = MADE_AT + 10

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.mark.parametrize(
    ("environment", "is_one"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_a_table_is_for_terminals_that_can_and_people_who_want(environment: dict[str, str], is_one: bool) -> None:
    assert screen.is_terminal(Terminal(), environment) is is_one
    assert screen.is_terminal(io.StringIO(), environment) is False


def test_what_is_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    terminal = {"TERM": "xterm"}
    assert type(screen.screen_for("auto", terminal)) is screen.LiveScreen
    assert type(screen.screen_for("text", terminal)) is screen.PlainScreen
    assert type(screen.screen_for("json", terminal)) is screen.JsonScreen
    assert type(screen.screen_for("auto", {})) is screen.PlainScreen


def test_without_rich_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Terminal())
    for name in ("rich.console", "rich.live", "rich"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    assert type(screen.screen_for("auto", {"TERM": "xterm"})) is screen.PlainScreen


def shown(story: Story, monkeypatch: pytest.MonkeyPatch, columns: int, lines: int, plan: Any = None) -> str:
    """Return the last picture of a table, without what draws it."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    live = screen.LiveScreen(out, io.StringIO(), Clock())
    with live:
        live.picture(_roll_events.state_of(plan or plan_of(["a", "b"]), story.events))
        return out.getvalue()


def test_the_table_has_a_line_for_each_cluster_of_the_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story().begin().wave(1, "a", "b").begin_step(1, "a", "start_prefill")
    which = {"wave": 1, "cluster": "a", "host": "h-a", "step": "start_prefill"}
    story.tell("waiting", **which, message="prefill [0]: " + "loading " * 30)
    picture = shown(story, monkeypatch, 80, 24)
    lines = [line.rstrip() for line in picture.splitlines()]
    assert any("wave 1 of 1, 0 done, 0 failed, 2 remaining, 10 s of about 1 min 40 s" in line for line in lines)
    # What hosts say is text, whatever brackets are in it, and never wraps.
    (row,) = [line for line in lines if "prefill [0]: loading" in line]
    assert row.endswith("8 s") and "…" in row


def test_a_wave_that_is_higher_than_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{number}" for number in range(50)]
    story = Story().begin().wave(1, *names).begin_step(1, "c49", "drain")
    picture = shown(story, monkeypatch, 80, 12, plan_of(names))
    assert "c49" in picture and "and 44 more: 44 to come" in picture
    assert len(picture.splitlines()) <= 12


def test_events_that_the_table_forgets_are_kept_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    story = Story().begin(waves=1, clusters=1).wave(1, "a").walk(1, "a").end_cluster(1, "a")
    with screen.LiveScreen(out, io.StringIO(), Clock()) as live:
        for event in story.events:
            live.event("", event)
    assert "a: done" in out.getvalue()
    assert "a: prefill" not in out.getvalue()


def test_a_stream_that_went_away_is_silent_ever_after() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as gone:
        stream = screen.Stream(gone)
        stream.write("one")
        stream.write("two")
