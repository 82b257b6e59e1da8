# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prefill's view of a room, at the engine's path: what hot patches of the founding incident changed."""

from __future__ import annotations

from sglang.srt.disaggregation.common import conn


def status_after_abort() -> str:
    """Return the state of a room whose client left before its KV was sent.

    The abort race: a sender that is late overwrites the state, and the room stays in
    the in-flight queue for ever.
    """
    status = conn.BOOTSTRAPPING
    # The sender skips the room, and forgets it.
    return conn.update_status(status, conn.TRANSFERRING)
