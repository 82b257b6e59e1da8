# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units, by ``systemctl`` and ``journalctl``."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Callable

PROPERTIES = {
    "LoadState": "load_state",
    "ActiveState": "active_state",
    "SubState": "sub_state",
    "Result": "result",
    "ExecMainStatus": "exit_status",
    "MainPID": "main_pid",
    "InvocationID": "invocation_id",
    "NRestarts": "restarts",
    "Restart": "restart_policy",
    "NeedDaemonReload": "needs_daemon_reload",
    "UnitFileState": "unit_file_state",
    "ExecMainStartTimestampMonotonic": "started_monotonic",
    "Job": "job",
}
_NUMBERS = ("exit_status", "main_pid", "restarts", "started_monotonic", "job")

#: A line with a word in it; programs draw banners.
_SAYS_SOMETHING = re.compile(r"[A-Za-z]{2}")

#: Messages of systemd itself, by their catalogue ids (systemd/sd-messages.h).
_STARTED = "39f53479d3a045ac8e11786248231fbf"
_PROCESS_EXITED = "98e322203f7a4ed290d09fe03c09fe15"
#: Starts and ends of a unit that are looked at, at most.
HISTORY_LENGTH = 200

_COLOUR = re.compile("\x1b\\[[0-9;]*m")

Run = Callable[[list], Any]


class Systemd:
    """The units of a host.

    :param run: runs an argument list and returns (status, stdout, stderr):
        ``AnsibleModule.run_command``.
    """

    def __init__(self, run: Run):
        self._run = run

    def unit(self, name: str) -> dict[str, Any]:
        """Return a unit's state: the values of :data:`PROPERTIES`, and ``started_at``.

        ``started_at`` is the start of the main process in seconds since the epoch, None
        where it never ran. A unit that systemd does not know has ``load_state``
        "not-found".
        """
        _status, out, _err = self._run(["systemctl", "show", "--property=" + ",".join(PROPERTIES), name])
        state: dict[str, Any] = dict.fromkeys(PROPERTIES.values(), "")
        for line in out.splitlines():
            key, _equals, value = line.partition("=")
            if key in PROPERTIES:
                state[PROPERTIES[key]] = value.strip()
        for key in _NUMBERS:
            state[key] = int(state[key]) if state[key].isdigit() else 0
        started = state.pop("started_monotonic") / 1e6
        state["started_at"] = time.time() - (time.monotonic() - started) if started else None
        return state

    def locked_memory(self, name: str) -> str:
        """Return how many bytes a unit may lock: a number, ``infinity``, or "" for no such unit."""
        _status, out, _err = self._run(["systemctl", "show", "--property=LoadState,LimitMEMLOCK", name])
        shown = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        return shown.get("LimitMEMLOCK", "") if shown.get("LoadState") == "loaded" else ""

    def stop(self, name: str) -> None:
        """Queue a stop."""
        self._run(["systemctl", "stop", "--no-block", name])

    def restart(self, name: str) -> None:
        """Queue a restart."""
        self._run(["systemctl", "reset-failed", name])
        self._run(["systemctl", "restart", "--no-block", name])

    def start(self, name: str) -> str:
        """Clear the failures and the start limit of a unit and queue its start.

        :return: what systemd refused with, or "".
        """
        if self.unit(name)["needs_daemon_reload"] == "yes":
            # A deployment that died between writing the unit and telling systemd.
            self._run(["systemctl", "daemon-reload"])
        self._run(["systemctl", "reset-failed", name])
        status, _out, err = self._run(["systemctl", "start", "--no-block", name])
        return err.strip() if status else ""

    def journal(self, name: str, since: float, lines: int) -> list[str]:
        """Return the last journal lines of a unit that say something, oldest first.

        :param since: seconds since the epoch.
        """
        # A unit that has just failed: its last words may still be on their way to the journal.
        self._run(["journalctl", "--sync"])
        # With --since, --lines counts from the oldest line in many releases; --reverse does not.
        command = ["journalctl", "--no-pager", "--output=cat", "--reverse", "--unit=" + name]
        command += ["--lines={0}".format(3 * lines), "--since=@{0:.0f}".format(since)]
        _status, out, _err = self._run(command)
        found = [_COLOUR.sub("", line) for line in reversed(out.splitlines())]
        return [line for line in found if _SAYS_SOMETHING.search(line)][-lines:]

    def history(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Return when a unit was started and how its processes ended, as the journal has it, oldest first.

        :return: ``starts`` with ``at`` (seconds since the epoch) and ``invocation_id``; ``ends`` with ``at`` and
            ``how`` ("signal 9", "exit status 1"). A clean end is not logged by systemd.
        """
        command = ["journalctl", "--no-pager", "--output=json", "--reverse", "--unit=" + name]
        command += ["--lines={0}".format(HISTORY_LENGTH)]
        command += ["MESSAGE_ID=" + _STARTED, "MESSAGE_ID=" + _PROCESS_EXITED]
        _status, out, _err = self._run(command)
        starts, ends = [], []
        for line in reversed(out.splitlines()):
            try:
                entry = json.loads(line)
                at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
            except (ValueError, KeyError, TypeError):
                continue
            if entry.get("MESSAGE_ID") == _STARTED:
                starts.append({"at": at, "invocation_id": str(entry.get("INVOCATION_ID", ""))})
            elif entry.get("MESSAGE_ID") == _PROCESS_EXITED:
                kind = "exit status" if entry.get("EXIT_CODE") == "exited" else "signal"
                ends.append({"at": at, "how": "{0} {1}".format(kind, entry.get("EXIT_STATUS", "unknown"))})
        return {"starts": starts, "ends": ends}

    def booted_at(self) -> float | None:
        """Return when this host's systemd was started, in seconds since the epoch, None where it does not say."""
        _status, out, _err = self._run(["systemctl", "show", "--property=UserspaceTimestampMonotonic"])
        number = out.strip().partition("=")[2]
        return time.time() - (time.monotonic() - int(number) / 1e6) if number.isdigit() else None
