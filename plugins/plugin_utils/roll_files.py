# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a roll on the controller: its plan, its events, and the word to end it.

What is true of clusters is on their hosts. These files hold what one ``ansible-playbook`` knows
of its own roll, and what people and pipelines read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
import time
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events

PLAN = "plan.json"
#: The same as a comment on a merge request.
PLAN_FOR_PEOPLE = "plan.md"
EVENTS = "events.jsonl"
CANCEL = "cancel"


def directory_of(rolls: str, roll_id: str) -> str:
    """Return the directory of a roll."""
    return os.path.join(os.path.abspath(os.path.expanduser(rolls)), roll_id)


def write(directory: str, name: str, text: str) -> str:
    """Write a file atomically; return its path.

    :raises OSError: where that cannot be done.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            target.write(text)
        os.chmod(temporary, 0o644)
        path = os.path.join(directory, name)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


def write_plan(directory: str, roll: dict[str, Any]) -> str:
    """Write ``plan.json``; that of an interrupted part of the same roll is kept under a number.

    The word to end the roll was meant for that part where it came before the last event. A later one is meant for
    this part: a fleet is looked at for minutes before its plan is written.
    """
    told = events(directory)
    if told and _written_at(cancel_file(directory)) <= told[-1]["at"]:
        take_back_cancel(directory)
    path = os.path.join(directory, PLAN)
    if os.path.exists(path):
        number = 1
        while os.path.exists(os.path.join(directory, "plan-{0}.json".format(number))):
            number += 1
        os.rename(path, os.path.join(directory, "plan-{0}.json".format(number)))
    return write(directory, PLAN, json.dumps(roll, indent=1, sort_keys=True) + "\n")


def plan(directory: str) -> dict[str, Any]:
    """Return the plan of a roll.

    :raises OSError, ValueError: where it cannot be read.
    """
    with open(os.path.join(directory, PLAN), encoding="utf-8") as source:
        return dict(json.load(source))


def events(directory: str) -> list[dict[str, Any]]:
    """Return the events of a roll so far; a last line that was cut off is left out."""
    try:
        with open(os.path.join(directory, EVENTS), encoding="utf-8", errors="replace") as source:
            return _roll_events.read(source)
    except FileNotFoundError:
        return []


def tell(directory: str, event: str, **more: Any) -> None:
    """Append an event with one write: the workers of a playbook do so beside each other.

    A last line that was cut off is ended first, so that this one is not lost with it.

    :raises OSError: where that cannot be done, or not to the end.
    """
    content = dict(more, at=round(time.time(), 3), roll=os.path.basename(directory), event=event)
    line = (json.dumps(content, sort_keys=True) + "\n").encode("utf-8")
    with open(os.path.join(directory, EVENTS), "a+b", buffering=0) as target:
        end = target.seek(0, os.SEEK_END)
        if end and os.pread(target.fileno(), 1, end - 1) != b"\n":
            line = b"\n" + line
        if target.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target.name)


def cancel_file(directory: str) -> str:
    """Return the file that ends a roll before its next wave where somebody creates it."""
    return os.path.join(directory, CANCEL)


def cancelled(directory: str) -> str:
    """Return why somebody wants the roll to end, "" where nobody does."""
    try:
        with open(cancel_file(directory), encoding="utf-8") as source:
            return source.read().strip() or "cancelled"
    except FileNotFoundError:
        return ""


def _written_at(path: str) -> float:
    """Return when a file was written, in seconds of the epoch; 0 where there is none."""
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def take_back_cancel(directory: str) -> None:
    """Forget the word to end the roll: it goes on."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(cancel_file(directory))
