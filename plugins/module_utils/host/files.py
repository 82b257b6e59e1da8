# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's files on a host, written so that a reader never sees half of one."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import tempfile
from typing import Any, Callable

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger

#: Where roles describe the members of a host, one JSON file per unit.
MEMBERS = "/etc/sglang-pd/members"
LEDGERS = "/var/lib/sglang-pd/ledger"
LOCKS = "/var/lib/sglang-pd/lock"
#: Who rolls a fleet that a cluster is of: where its lock is, on the host of its first prefill.
RESERVATIONS = "/var/lib/sglang-pd/roll"
#: Where each unit notes at its start which incarnation runs which configuration. The
#: process's own environment does not serve: routers overwrite it in /proc (setproctitle).
RUNNING = "/run/{unit}/configuration"
#: The copy that a unit makes of its member's file at start.
STARTED_WITH = "/run/{unit}/member.json"
ENVIRONMENT = "/etc/sglang-pd/{unit}.env"


class FileError(Exception):
    """A file that is not what it should be; the message names it."""


def read_json(path: str) -> Any:
    """Return a JSON file's content, None where there is no such file.

    :raises FileError: for a file that cannot be read or is no JSON.
    """
    try:
        with open(path, encoding="utf-8") as source:
            return json.load(source)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as trouble:
        raise FileError("{0} cannot be read: {1}".format(path, trouble)) from trouble


def write_json(path: str, content: Any) -> None:
    """Write a JSON file atomically and durably."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            json.dump(content, target, indent=2, sort_keys=True)
            target.write("\n")
            target.flush()
            os.fsync(target.fileno())
        os.chmod(temporary, 0o644)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def members() -> list[dict[str, Any]]:
    """Return the members that are deployed on this host."""
    return [read_json(path) for path in sorted(glob.glob(MEMBERS + "/*.json"))]


def running_configuration(unit: str, invocation_id: str) -> str:
    """Return the configuration hash that an incarnation was started with, "" where unknown."""
    try:
        with open(RUNNING.format(unit=unit), encoding="ascii") as source:
            noted = source.read().split()
    except OSError:
        return ""
    return noted[1] if len(noted) == 2 and noted[0] == invocation_id else ""


def started_with(unit: str, configuration: str) -> dict[str, Any] | None:
    """Return the member as it was when its incarnation started, None where that is not known.

    :param configuration: the hash that the incarnation noted. The copy of another one may lie
        there: a deployment that wrote the unit and died before it wrote the member's file.
    """
    copy = read_json(STARTED_WITH.format(unit=unit))
    return copy if copy and configuration and copy.get("configuration") == configuration else None


def private_environment(unit: str) -> dict[str, str]:
    """Return what the roles wrote for a unit to ``/etc/sglang-pd/UNIT.env``, {} where there is no such file.

    Values are JSON strings there, which is what systemd reads as well.
    """
    try:
        with open(ENVIRONMENT.format(unit=unit), encoding="utf-8") as source:
            pairs = [line.split("=", 1) for line in source if "=" in line and not line.startswith("#")]
    except FileNotFoundError:
        return {}
    except OSError as trouble:
        raise FileError("{0} cannot be read: {1}".format(ENVIRONMENT.format(unit=unit), trouble)) from trouble
    return {name: str(json.loads(value)) for name, value in pairs}


def ledger(unit: str) -> dict[str, Any]:
    """Return a unit's ledger, an empty one where it has none."""
    return dict(_ledger.empty(unit), **(read_json(_ledger_path(unit)) or {}))


def write_ledger(content: dict[str, Any]) -> None:
    """Write a unit's ledger."""
    write_json(_ledger_path(content["unit"]), content)


def _ledger_path(unit: str) -> str:
    return "{0}/{1}.json".format(LEDGERS, unit)


def locks(directory: str = "") -> dict[str, Any]:
    """Return the locks on this host, by cluster.

    :param directory: :data:`LOCKS` where empty; with :data:`RESERVATIONS` the rolls that have its clusters.
    """
    paths = sorted(glob.glob((directory or LOCKS) + "/*.json"))
    return {os.path.basename(path)[: -len(".json")]: read_json(path) for path in paths}


def change_lock(
    cluster: str,
    change: Callable[[dict[str, Any] | None], tuple[dict[str, Any] | None, str]],
    directory: str = "",
) -> str:
    """Read, change and write a cluster's lock while no other process can.

    :param change: takes the lock (None for none) and gives the lock to write (None
        leaves it, {} removes it) and a message.
    :param directory: :data:`LOCKS` where empty, or :data:`RESERVATIONS`.
    :return: the message.
    """
    directory = directory or LOCKS
    os.makedirs(directory, mode=0o755, exist_ok=True)
    path = "{0}/{1}.json".format(directory, cluster)
    with open("{0}/.{1}.guard".format(directory, cluster), "w", encoding="ascii") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        new, message = change(read_json(path))
        if new:
            write_json(path, new)
        elif new == {}:
            os.unlink(path)
    return message


BASELINES = "/var/lib/sglang-pd/baselines"


def baseline(cluster: str) -> dict[str, Any]:
    """Return the stored latencies of a cluster's good verifications, {} for none."""
    return dict(read_json("{0}/{1}.json".format(BASELINES, cluster)) or {})


def write_baseline(cluster: str, store: dict[str, Any]) -> None:
    """Write a cluster's stored latencies."""
    write_json("{0}/{1}.json".format(BASELINES, cluster), store)
