# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version is the one of the installed wheel, so one source serves both."""

from __future__ import annotations

import importlib.metadata

__version__ = importlib.metadata.version("sglang")
