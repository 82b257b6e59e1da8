# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes and listening sockets of a host, read off ``/proc``."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _redact

_LISTEN = "0A"


def listeners(ports: list[int]) -> list[dict[str, Any]]:
    """Return who listens on TCP ports of this host.

    :return: ``port``, ``pid`` (0 where it cannot be seen), ``command``, ``unit`` (systemd
        unit of the process, "" for none); one entry per port and process.
    """
    inodes = _listening_inodes(set(ports))
    if not inodes:
        return []
    found = []
    seen = set()
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        for inode in _socket_inodes(pid):
            if inode in inodes:
                seen.add(inode)
                found.append({"port": inodes[inode], "pid": pid, "command": _command(pid), "unit": _unit(pid)})
    hidden = {port for inode, port in inodes.items() if inode not in seen}
    found += [{"port": port, "pid": 0, "command": "unknown", "unit": ""} for port in sorted(hidden)]
    unique = {(item["port"], item["pid"]): item for item in found}
    # A unit's child processes inherit its socket: one entry per port and unit is enough.
    by_owner = {(item["port"], item["unit"] or item["pid"]): item for item in reversed(list(unique.values()))}
    return sorted(by_owner.values(), key=lambda item: (item["port"], item["pid"]))


def _listening_inodes(ports: set[int]) -> dict[str, int]:
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as source:
                lines = source.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            port = int(fields[1].rsplit(":", 1)[1], 16)
            if fields[3] == _LISTEN and port in ports:
                inodes[fields[9]] = port
    return inodes


def _socket_inodes(pid: int) -> list[str]:
    directory = "/proc/{0}/fd".format(pid)
    inodes = []
    try:
        for name in os.listdir(directory):
            try:
                target = os.readlink(directory + "/" + name)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.append(target[8:-1])
    except OSError:
        pass
    return inodes


def words_of(pid: int) -> list[str]:
    """Return the command line of a process; one word where the process gave itself a title."""
    return _strings(pid, "cmdline")


def environment_of(pid: int) -> dict[str, str] | None:
    """Return the environment that a process was started with, None where it cannot be told.

    setproctitle writes a process's title over it (both routers do that): then systemd's
    INVOCATION_ID is not found there any more.
    """
    pairs = dict(item.split("=", 1) for item in _strings(pid, "environ") if "=" in item)
    return pairs if "INVOCATION_ID" in pairs else None


def _strings(pid: int, name: str) -> list[str]:
    try:
        with open("/proc/{0}/{1}".format(pid, name), "rb") as source:
            content = source.read().decode("utf-8", "replace")
    except OSError:
        return []
    return content.rstrip("\0").split("\0") if content.strip("\0") else []


def _command(pid: int) -> str:
    return _redact.redact(" ".join(words_of(pid)).strip(), ())[:120] or "unknown"


def _unit(pid: int) -> str:
    try:
        with open("/proc/{0}/cgroup".format(pid), encoding="utf-8") as source:
            lines = source.read().splitlines()
    except OSError:
        return ""
    for line in lines:
        for part in reversed(line.split(":", 2)[-1].split("/")):
            if part.endswith(".service"):
                return part
    return ""
