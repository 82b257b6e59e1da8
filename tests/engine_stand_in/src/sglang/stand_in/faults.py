# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults on demand, from a file that a test may change while the engine runs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


class Faults:
    """The faults of the engine on one port."""

    def __init__(self, port: int) -> None:
        folder = os.environ.get("STAND_IN_FAULTS_DIR", "/etc/engine_stand_in")
        self.path = Path(folder) / f"{port}.json"
        self._stamp: tuple[int, int] | None = None
        self._data: dict[str, Any] = {}
        self._turns: dict[str, int] = {}

    def _load(self) -> dict[str, Any]:
        try:
            stat = self.path.stat()
        except OSError:
            self._stamp, self._data = None, {}
            return self._data
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp != self._stamp:
            try:
                self._data = json.loads(self.path.read_text(encoding="utf-8") or "{}")
                self._stamp = stamp
            except ValueError:
                # Caught in the middle of being written: the next look reads it.
                pass
        return self._data

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a fault now, or the default when it is not set."""
        return self._load().get(name, default)

    def on(self, name: str) -> bool:
        """Tell whether a fault is set now."""
        return bool(self.get(name))

    def turn(self, name: str) -> int:
        """Return how often this was asked before, to take turns with answers."""
        self._turns[name] = self._turns.get(name, -1) + 1
        return self._turns[name]

    def count_start(self) -> int:
        """Count the starts across processes and return the number of this one."""
        for folder in (self.path.parent, Path("/dev/shm"), Path(tempfile.gettempdir())):
            file = folder / f"engine_stand_in-{self.path.stem}.starts"
            try:
                count = int(file.read_text() or 0) + 1 if file.exists() else 1
                file.write_text(str(count))
            except (OSError, ValueError):
                continue
            return count
        return 1
