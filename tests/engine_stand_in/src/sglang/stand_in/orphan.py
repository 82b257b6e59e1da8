# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of the previous run that still holds the listening port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def leave_behind(fds: Sequence[int], *, escape_cgroup: bool) -> None:
    """Start a process that inherits the listening sockets and survives."""
    command = [sys.executable, "-m", "sglang.stand_in.orphan"]
    if escape_cgroup:
        command.append("--escape-cgroup")
    subprocess.Popen(command, pass_fds=fds, start_new_session=True)


def _escape() -> None:
    """Leave the unit's control group, which systemd would clean up."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"):
        file = Path(root) / "cgroup.procs"
        if file.exists():
            try:
                file.write_text(str(os.getpid()))
            except OSError as error:
                print(f"orphan stays in its control group: {error}", file=sys.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--escape-cgroup" in sys.argv:
        _escape()
    while True:
        time.sleep(3600)
