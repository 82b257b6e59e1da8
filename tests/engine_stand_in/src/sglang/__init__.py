# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for the sglang distribution: real faces, no model, no GPU."""

from __future__ import annotations

from sglang.version import __version__

__all__ = ["__version__"]
