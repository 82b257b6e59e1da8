# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prefill's view of a room, at the engine's path: what hot patches of the founding incident changed."""

from __future__ import annotations

from sglang.srt.disaggregation.common import conn


class Room:
    """A room whose client left before its KV was sent; the abort race is still in it."""

    def __init__(self) -> None:
        self.status = conn.BOOTSTRAPPING

    def late_sender(self) -> None:
        """The sender skipped the room."""
        self.status = conn.update_status(self.status, conn.TRANSFERRING)


def status_after_abort() -> str:
    """Return the state of such a room."""
    room = Room()
    room.late_sender()
    return room.status
