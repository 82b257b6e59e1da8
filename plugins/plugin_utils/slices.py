# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long work on a host, called in slices: so that its progress shows, and it ends soon after its controller."""

from __future__ import annotations

import time
from typing import Any

from ansible.utils.display import Display

display = Display()

#: Seconds that a call on a host may wait: short at first, when things often end early.
SLICES_SECONDS = (3.0, 5.0, 10.0)
#: Seconds between two lines of progress for the same host.
PROGRESS_SECONDS = 9.0
WAITING = "waiting"
FAILED = "failed"


class SlicedCall:
    """Calls of one module that go on with the ``state`` of the call before, until there is a result.

    :param label: what the lines of progress begin with.
    :param arguments: of the module, the same in each call; it also gets ``state`` and
        ``slice_seconds`` and gives ``outcome``, ``message`` and ``state``.
    """

    def __init__(self, label: str, arguments: dict[str, Any]):
        self.result: dict[str, Any] | None = None
        self._label = label
        self._arguments: dict[str, Any] = dict(arguments, state={})
        self._calls = 0
        self._shown_at = time.monotonic()

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the next slice."""
        seconds = SLICES_SECONDS[min(self._calls, len(SLICES_SECONDS) - 1)]
        return dict(self._arguments, slice_seconds=seconds)

    def take(self, given: dict[str, Any]) -> None:
        """Take what a slice gave; show progress where it goes on."""
        self._calls += 1
        if "outcome" not in given:
            self.result = {"outcome": FAILED, "message": given.get("msg", str(given)), "changed": False}
        elif given["outcome"] != WAITING:
            self.result = {key: value for key, value in given.items() if key not in ("state", "invocation")}
        else:
            self._arguments["state"] = given["state"]
            if self._calls == 1 or time.monotonic() - self._shown_at >= PROGRESS_SECONDS:
                self._shown_at = time.monotonic()
                display.display("  {0} {1}".format(self._label, given["message"]))
