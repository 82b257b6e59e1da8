# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tells this controller, its processes and its runs from others."""

from __future__ import annotations

import datetime
import getpass
import os
import platform
import secrets


def identity() -> str:
    """Return what tells this controller from others: a pid means something only within it.

    Host names alone do not do: containers may share one and have pids of their own.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        boot_id = source.read().strip()
    return "{0} {1} {2}".format(platform.node(), boot_id, os.readlink("/proc/self/ns/pid"))


def process_start(pid: int) -> str:
    """Return the kernel's start mark of a process that runs, "" where there is none."""
    try:
        with open("/proc/{0}/stat".format(pid), encoding="utf-8", errors="replace") as source:
            fields = source.read().rsplit(")", 1)[1].split()
        # One that ended and that nobody asked for yet runs no more.
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        return ""


def user() -> str:
    """Return who this is, as USER@HOST; a container may have no name for its user."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return "{0}@{1}".format(name, platform.node())


def new_id() -> str:
    """Return an id for a run, which begins with the time and sorts by it."""
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return "{0}-{1}".format(stamp, secrets.token_hex(3))
