# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at processes through /proc."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

PYTHON = sys.executable


def _stat(pid: str) -> list[str]:
    """Return the fields behind the command name."""
    return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()


def _pids() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    found = []
    for other in _pids():
        with contextlib.suppress(OSError):
            if _stat(other)[1] == str(pid):
                found.append(int(other))
    return found


def alive(pid: int) -> bool:
    """Tell whether a process runs (a zombie does not)."""
    try:
        return _stat(str(pid))[0] != "Z"
    except OSError:
        return False


def with_argument(argument: str, environment: str) -> list[int]:
    """Return the processes with an argument and an entry in their environment."""
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
            entries = Path("/proc", pid, "environ").read_bytes().split(b"\0")
            if argument.encode() in words and environment.encode() in entries:
                found.append(int(pid))
    return found
