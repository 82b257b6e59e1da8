# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of rolls, as the console command reads and writes them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller, roll_files
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import PipelineError, Request

RESULT = "result.json"
PROCESS = "process"
#: ansible-runner's own; it is private: command lines and output may hold what is nobody else's business.
RUNNER = "runner"
REQUEST = "request.json"

#: Files for people.
SHOWN = (roll_files.PLAN_FOR_PEOPLE, "summary.md", "junit.xml", "report.html")
#: Files that anybody may see who may see the pipeline.
ARTIFACTS = (roll_files.PLAN, roll_files.EVENTS, RESULT, *SHOWN)


class RollDirectory:
    """The directory of one roll; reading it never fails for what is not there yet."""

    def __init__(self, rolls: str, roll: str):
        self.roll = roll
        self.rolls = rolls
        self.path = roll_files.directory_of(rolls, roll)
        self.runner = os.path.join(self.path, RUNNER)

    def make(self) -> None:
        """Make the directory.

        :raises PipelineError: where that cannot be done.
        """
        try:
            os.makedirs(self.path, exist_ok=True)
            os.makedirs(self.runner, mode=0o700, exist_ok=True)
        except OSError as trouble:
            raise PipelineError(
                "the files of the roll cannot be written: {0}. Name another directory by --roll-dir".format(trouble)
            ) from trouble

    # -- what the playbook writes ------------------------------------------------------------

    def plan(self) -> dict[str, Any] | None:
        """Return the plan, None where there is none that can be read."""
        return self._json(roll_files.PLAN)

    def result(self) -> dict[str, Any] | None:
        """Return the result, None where there is none that can be read."""
        return self._json(RESULT)

    def events(self) -> list[dict[str, Any]]:
        """Return all events so far."""
        return _roll_events.read(self.lines())

    def lines(self) -> list[str]:
        """Return the lines of the events so far."""
        return list(Tail(self.file(roll_files.EVENTS)).new_lines())

    def state(self) -> dict[str, Any]:
        """Return where the roll stands."""
        return _roll_events.state_of(self.plan(), self.events())

    def began(self) -> bool:
        """Tell whether this is a roll: a plan alone has no events."""
        return os.path.exists(self.file(roll_files.EVENTS))

    def stamp(self, name: str) -> tuple[int, int] | None:
        """Return what differs once a file was written anew."""
        try:
            found = os.stat(self.file(name))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def file(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.path, name)

    def shown(self) -> list[str]:
        """Return the paths of the files for people that are there."""
        return [self.file(name) for name in SHOWN if os.path.exists(self.file(name))]

    def copy_artifacts(self, target: str) -> None:
        """Copy the files that a pipeline keeps.

        :raises PipelineError: where that cannot be done.
        """
        try:
            os.makedirs(target, exist_ok=True)
            for name in ARTIFACTS:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(self.file(name), os.path.join(target, name))
        except OSError as trouble:
            raise PipelineError("--artifacts {0} cannot be written: {1}".format(target, trouble)) from trouble

    # -- what this command writes ------------------------------------------------------------

    def request(self) -> Request | None:
        """Return what the roll was asked for, None where this command did not start it."""
        try:
            with open(os.path.join(self.runner, REQUEST), encoding="utf-8") as source:
                return Request.from_dict(json.load(source))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, request: Request) -> None:
        """Keep what the roll was asked for; extra variables may be secret."""
        path = os.path.join(self.runner, REQUEST)
        descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            json.dump(request.as_dict(), target)
        os.replace(path + ".new", path)

    def cancelled(self) -> str:
        """Return why the roll is to end, or ""."""
        return roll_files.cancelled(self.path)

    def cancel(self, reason: str) -> None:
        """Let the roll end before its next wave."""
        roll_files.write(self.path, roll_files.CANCEL, reason + "\n")

    def take_back_cancel(self) -> None:
        """Forget that the roll was to end: it is resumed."""
        roll_files.take_back_cancel(self.path)

    def tell_interrupted(self, why: str) -> None:
        """Note that ansible-playbook ended without telling what the roll came to."""
        roll_files.tell(self.path, _roll_events.ROLL_INTERRUPTED, why=why)

    # -- the process -------------------------------------------------------------------------

    def write_process(self, playbook: int | None) -> None:
        """Say which processes walk this roll: this one, and its ansible-playbook once there is one."""
        content = {
            **_process(os.getpid()),
            "playbook": _process(playbook) if playbook else None,
            "controller": controller.identity(),
            "user": controller.user(),
            "at": round(time.time(), 3),
        }
        roll_files.write(self.path, PROCESS, json.dumps(content, indent=1) + "\n")

    def process(self) -> dict[str, Any] | None:
        """Return what :meth:`write_process` wrote last."""
        return self._json(PROCESS)

    def lives(self) -> bool | None:
        """Tell whether a process walks this roll; None where that cannot be known from here."""
        process = self.process()
        if process is None or process.get("controller") != controller.identity():
            return None
        return any(
            controller.process_start(int(one["pid"])) == one["started"]
            for one in (process, process.get("playbook") or process)
        )

    def look(self) -> tuple[dict[str, Any], str]:
        """Return where the roll stands, and its outcome or what it is without one."""
        state = self.state()
        standing = _roll_events.standing(state, self.lives(), time.time())
        return _roll_events.as_interrupted(state) if standing == _roll_events.INTERRUPTED else state, standing

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            with open(self.file(name), encoding="utf-8") as source:
                found = json.load(source)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def _process(pid: int) -> dict[str, Any]:
    return {"pid": pid, "started": controller.process_start(pid)}


class Tail:
    """The whole lines of a file that grows, each once."""

    def __init__(self, path: str, at_end: bool = False):
        self._path = path
        self._rest = b""
        self._place = 0
        if at_end:
            with contextlib.suppress(OSError):
                self._place = os.path.getsize(path)

    def new_lines(self) -> Iterator[str]:
        """Return the lines that were written since the last call; one that is not ended yet comes later."""
        try:
            with open(self._path, "rb") as source:
                source.seek(self._place)
                content = source.read()
        except OSError:
            return
        self._place += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", errors="replace")


# -- all rolls -------------------------------------------------------------------------------


def all_rolls(rolls: str) -> list[RollDirectory]:
    """Return all rolls, the newest one first; plans alone are none."""
    try:
        names = sorted(os.listdir(rolls), reverse=True)
    except OSError:
        return []
    found = [RollDirectory(rolls, name) for name in names if not name.startswith(".")]
    return [one for one in found if one.began() or one.process() is not None]


def find(rolls: str, name: str) -> RollDirectory:
    """Return the roll of this id, or the only one whose id begins so.

    :raises PipelineError: where there is none, or more than one.
    """
    known = [one.roll for one in all_rolls(rolls)]
    if os.path.isdir(roll_files.directory_of(rolls, name)) and os.sep not in name and name not in (".", ".."):
        return RollDirectory(rolls, name)
    matching = [roll for roll in known if roll.startswith(name)]
    if len(matching) == 1:
        return RollDirectory(rolls, matching[0])
    if matching:
        raise PipelineError("{0} is the begin of several rolls: {1}".format(name, ", ".join(matching)))
    raise PipelineError(
        "there is no roll {0} in {1}; there are: {2}. Name another directory by --roll-dir".format(
            name, rolls, ", ".join(known[:5]) or "none"
        )
    )
