# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of rolls to test."""

from __future__ import annotations

import functools

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_report

from .. import rolled


@functools.lru_cache(maxsize=1)
def pages() -> dict[str, str]:
    """Return every kind of page of a roll by a name of it."""
    many = {"c0077": "failed", "c0078": "failed", "c0500": "rolled_back", "c0600": "widened"}
    rolls = {
        "three": rolled.fleet(3),
        "six": rolled.fleet(6, {"c2": "rolled_back", "c3": "failed"}, budget=1, alone=5),
        "thousand": rolled.fleet(1000, many, size=25, budget=9, alone=40),
        "one_at_a_time": rolled.fleet(1000, {"c0777": "failed"}, size=1),
        "cut_off": rolled.fleet(4, {"c2": "cut_off"}, size=1),
        "resumed": rolled.resumed(),
        "refused": (rolled.refused(), []),
        "nothing": (rolled.plan([], {"a": rolled.left("skip", "nothing is due")}), []),
        "hostile": rolled.hostile(),
    }
    return {name: roll_report.page(of, events) for name, (of, events) in rolls.items()}
