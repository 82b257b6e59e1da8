# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes below this one: found however they came there, and ended by their pid.

Since ansible-core 2.19 each worker of ``ansible-playbook`` has a session of its own, so signals to a process
group do not reach it. And what outlives its parent goes to init, where it would be nobody's. So this process
makes itself the one that gets orphans of its descendants.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Make this process the parent of orphaned descendants; tell whether the kernel does so."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


class Process:
    """A process that was seen: its pid means it only as long as its start mark is the same."""

    def __init__(self, pid: int, parent: int, state: str, started: str):
        self.pid = pid
        self.parent = parent
        self.state = state
        self.started = started

    def runs(self) -> bool:
        """Tell whether it still does."""
        now = look(self.pid)
        return now is not None and now.started == self.started and not now.is_dead()

    def is_dead(self) -> bool:
        """Tell whether it ended, and nobody asked for it yet."""
        return self.state in ("Z", "X")

    def words(self) -> list[str]:
        """Return its command line."""
        try:
            with open("/proc/{0}/cmdline".format(self.pid), "rb") as source:
                return source.read().decode("utf-8", errors="replace").split("\0")
        except OSError:
            return []

    def shares_connections(self) -> bool:
        """Tell whether it is ssh's, for connections to come: others use it too, and it ends by itself."""
        title = "".join(self.words()[:1])
        return title.startswith("ssh: ") and title.endswith("[mux]")

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still the same process."""
        if self.runs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def look(pid: int) -> Process | None:
    """Return a process, None where there is none."""
    try:
        with open("/proc/{0}/stat".format(pid), encoding="utf-8", errors="replace") as source:
            fields = source.read().rsplit(")", 1)[1].split()
        return Process(pid, int(fields[1]), fields[0], fields[19])
    except (OSError, IndexError, ValueError):
        return None


def below(pid: int) -> list[Process]:
    """Return the descendants of a process, those that ended too, without ssh's shared connections."""
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        found = look(int(name)) if name.isdigit() else None
        if found is not None:
            children.setdefault(found.parent, []).append(found)
    result, parents = [], [pid]
    while parents:
        for one in children.get(parents.pop(), []):
            result.append(one)
            parents.append(one.pid)
    return [one for one in result if one.is_dead() or not one.shares_connections()]


def running_below(pid: int, but: tuple[int, ...] = ()) -> list[Process]:
    """Return the descendants that run."""
    return [one for one in below(pid) if not one.is_dead() and one.pid not in but]


def bury_orphans(but: int | None) -> None:
    """Ask for the adopted children that ended.

    :param but: the child that somebody else asks for.
    """
    me = os.getpid()
    for one in below(me):
        if one.parent == me and one.is_dead() and one.pid != but:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one.pid, os.WNOHANG)


def kill(found: list[Process]) -> None:
    """End processes at once."""
    for one in found:
        one.signal(signal.SIGKILL)
