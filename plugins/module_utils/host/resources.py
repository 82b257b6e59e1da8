# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has to run an engine with: GPUs, room, a model that can be read."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterable

from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Run

_READ = """
import os, sys
path = sys.argv[1]
files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
for file in files:
    if not os.path.isdir(file):
        open(file, "rb").close()
"""


def gpus(run: Run) -> int | None:
    """Return how many GPUs the NVIDIA driver lists, None where there is no such driver.

    :param run: raises OSError where there is no such program; ``AnsibleModule.run_command`` does
        that with ``handle_exceptions=False`` only, otherwise it ends the module.
    """
    try:
        status, out, _err = run(["nvidia-smi", "--list-gpus"])
    except OSError:
        return None
    return len(out.splitlines()) if status == 0 else None


def gpu_load(run: Run) -> list[dict[str, float]]:
    """Return what each GPU does now: ``index``, ``utilization_percent``, ``power_watts``, ``memory_used_mib``.

    A number that the driver does not give is left out; [] where there is no such driver.
    """
    names = ("index", "utilization_percent", "power_watts", "memory_used_mib")
    try:
        query = "--query-gpu=index,utilization.gpu,power.draw,memory.used"
        status, out, _err = run(["nvidia-smi", query, "--format=csv,noheader,nounits"])
    except OSError:
        return []
    found = []
    for line in out.splitlines() if status == 0 else []:
        gpu = {}
        for name, text in zip(names, line.split(",")):
            try:
                gpu[name] = int(text) if name == "index" else float(text)
            except ValueError:
                continue
        found.append(gpu)
    return found


def shared_memory() -> dict[str, int]:
    """Return how many files sglang has in ``/dev/shm`` (``files``), and their size (``bytes``).

    A killed engine leaves them behind.
    """
    count = size = 0
    for entry in os.scandir("/dev/shm"):  # noqa: S108 - this very place
        if entry.name.startswith("sgl"):
            try:
                size += entry.stat(follow_symlinks=False).st_size
                count += 1
            except OSError:
                continue
    return {"files": count, "bytes": size}


def free_bytes(directories: Iterable[str]) -> dict[str, int]:
    """Return the bytes that others than root can still write, by directory that exists."""
    found = {}
    for directory in directories:
        try:
            status = os.statvfs(directory)
        except OSError:
            continue
        found[directory] = status.f_bavail * status.f_frsize
    return found


def model_error(path: str, user: str) -> str:
    """Return why an account cannot read a model on disk, "" where it can.

    A name that is no absolute path is that of a model hub and is not looked at.
    """
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return ""
    if not path.startswith("/"):
        return ""
    done = subprocess.run(
        [sys.executable, "-c", _READ, path],
        user=account.pw_uid if os.geteuid() == 0 else None,
        group=account.pw_gid if os.geteuid() == 0 else None,
        extra_groups=os.getgrouplist(user, account.pw_gid) if os.geteuid() == 0 else None,
        env={"PATH": os.environ.get("PATH", "")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return ""
    why = (done.stderr.strip().splitlines() or ["no word"])[-1]
    return "{0} cannot read the model ({1}). Try it: runuser -u {0} -- ls -l {2}".format(user, why, path)
