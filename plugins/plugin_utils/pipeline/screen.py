# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where progress is shown: a live table on a terminal, plain lines elsewhere, or JSON lines.

What is shown never decides what happens: a terminal that went away or a reader that closed its pipe leaves the
roll as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, TextIO

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import progress
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import AUTO, JSON

#: Seconds between two pictures of the table.
PICTURE_SECONDS = 1.0
#: Lines of the terminal that are not rows of the table.
_OTHER_LINES = 5

_STYLES = {progress.GOOD: "green", progress.BAD: "bold red", progress.BUSY: "", progress.QUIET: "dim"}
#: Events that are told above the table, too: it forgets them.
_KEPT = ("roll_began", "wave_began", "cluster_ended", "hook_ended", "wave_ended")


class Stream:
    """A stream for people that may go away."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, line: str) -> None:
        """Write a line, if there still is somebody to read it."""
        with self.lasting():
            self.stream.write(line + "\n")
            self.stream.flush()

    @contextlib.contextmanager
    def lasting(self) -> Any:
        """Let everything that is written after a failure go nowhere."""
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)


class Screen:
    """Shows nothing but what is said to people, on standard error."""

    def __init__(self, out: TextIO, err: TextIO):
        self.out = Stream(out)
        self.err = Stream(err)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_unused: Any) -> None:
        pass

    def say(self, line: str) -> None:
        """Say something that is no event."""
        self.err.write(line)

    def event(self, line: str, event: dict[str, Any]) -> None:
        """Show an event; ``line`` is how it was written."""

    def picture(self, state: dict[str, Any]) -> None:
        """Show where the roll stands."""

    def wants_picture(self) -> bool:
        """Tell whether :meth:`picture` is worth the making of a state."""
        return False

    def conclude(self, lines: list[str]) -> None:
        """Say what the roll came to."""
        for line in lines:
            self.say(line)


class JsonScreen(Screen):
    """Events as JSON lines on standard output."""

    def event(self, line: str, event: dict[str, Any]) -> None:
        """Write the event."""
        self.out.write(line)


class PlainScreen(Screen):
    """A line for each event that matters."""

    def __init__(self, out: TextIO, err: TextIO):
        super().__init__(out, err)
        self.narrator = progress.Narrator()

    def event(self, line: str, event: dict[str, Any]) -> None:
        """Write what it means to people."""
        for words in self.narrator.tell(event):
            self.out.write(words)

    def conclude(self, lines: list[str]) -> None:
        """Write what the roll came to, among the lines of its events."""
        for line in lines:
            self.out.write(line)


class LiveScreen(Screen):
    """A table that is drawn anew, by rich: widths, wide characters and resized terminals are hard to get right."""

    def __init__(self, out: TextIO, err: TextIO, clock: Any = time):
        super().__init__(out, err)
        from rich.console import Console
        from rich.live import Live

        self.narrator = progress.Narrator()
        self.clock = clock
        self._drawn_at = 0.0
        self._console = Console(file=out, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> LiveScreen:
        with self.out.lasting():
            self._live.start()
        return self

    def __exit__(self, *_unused: Any) -> None:
        with self.out.lasting():
            self._live.stop()

    def say(self, line: str) -> None:
        """Say it above the table, which would overwrite it."""
        with self.out.lasting():
            self._console.print(line, markup=False, soft_wrap=True)

    def event(self, line: str, event: dict[str, Any]) -> None:
        """Keep what the table forgets."""
        words = self.narrator.tell(event)
        if event["event"] in _KEPT:
            for one in words:
                self.say(one)

    def wants_picture(self) -> bool:
        """Draw once a second, or when there is nothing yet."""
        return bool(self.clock.monotonic() - self._drawn_at >= PICTURE_SECONDS)

    def picture(self, state: dict[str, Any]) -> None:
        """Draw the table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        self._drawn_at = self.clock.monotonic()
        now = self.clock.time()
        found, others = progress.most_rows(progress.rows(state, now), self._console.size.height - _OTHER_LINES)
        parts: list[Any] = [Text(progress.header(state, now), style="bold")]
        if found:
            table = Table(box=None, pad_edge=False, expand=True)
            for column in progress.COLUMNS:
                waits = column == "waiting for"
                table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if waits else None)
            for look, *cells in found:
                table.add_row(*(Text(cell) for cell in cells), style=_STYLES[look])
            parts.append(table)
        if others:
            parts.append(Text(others))
        with self.out.lasting():
            self._live.update(Group(*parts), refresh=True)

    def conclude(self, lines: list[str]) -> None:
        """Say what the roll came to below everything."""
        for line in lines:
            self.out.write(line)


def is_terminal(out: TextIO, environment: dict[str, str]) -> bool:
    """Tell whether a table can be drawn and is wanted."""
    if environment.get("NO_COLOR") or environment.get("TERM", "") in ("", "dumb"):
        return False
    try:
        return out.isatty()
    except ValueError:
        return False


def screen_for(output: str, environment: dict[str, str]) -> Screen:
    """Return the screen that is asked for and possible here."""
    out, err = sys.stdout, sys.stderr
    if output == JSON:
        return JsonScreen(out, err)
    if output == AUTO and is_terminal(out, environment):
        # Without rich, lines do.
        with contextlib.suppress(ImportError):
            return LiveScreen(out, err)
    return PlainScreen(out, err)
