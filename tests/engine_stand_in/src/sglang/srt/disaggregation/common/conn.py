# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State of a transfer, at the engine's path: what hot patches of the founding incident changed."""

from __future__ import annotations

BOOTSTRAPPING = "bootstrapping"
TRANSFERRING = "transferring"
FAILED = "failed"


def update_status(known: str, news: str) -> str:
    """Return the state of a room after news of it."""
    return news
