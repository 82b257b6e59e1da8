# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An ``ansible-playbook`` that goes on beside the test, and may be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path


class Controller:
    """A running ``ansible-playbook`` that may be killed as a lost machine would be."""

    def __init__(self, inventory: Path, playbook: str, options: Mapping[str, object]):
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by the fixture
        self._process = subprocess.Popen(
            ["ansible-playbook", "-i", str(inventory), playbook, "-e", json.dumps(options)],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id of ansible-playbook."""
        return self._process.pid

    @property
    def output(self) -> str:
        """What it said so far."""
        self._output.seek(0)
        return self._output.read()

    @property
    def runs(self) -> bool:
        """Whether it is still at work."""
        return self._process.poll() is None

    def end(self) -> int:
        """Await its end; return its exit code."""
        return self._process.wait(timeout=600)

    def kill(self) -> None:
        """SIGKILL it and its workers, which have sessions of their own."""
        for _ in range(3):  # a worker may be born meanwhile
            for pid in [self.pid, *_descendants(self.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait(timeout=30)

    def close(self) -> None:
        """Leave nothing running."""
        if self.runs:
            self.kill()
        self._output.close()


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, ahead = [], [pid]
    while ahead:
        ahead = [child for parent in ahead for child in children.get(parent, [])]
        found += ahead
    return found
