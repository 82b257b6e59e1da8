# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a co-restart hold in every history of a simulated fleet."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _walk

from .controller import STEPS
from .generated import play_all
from .histories import FAMILIES, History, Player, histories

#: Histories per family; more of them for a night: SGLANG_PD_HISTORIES=20000.
HISTORIES = int(os.environ.get("SGLANG_PD_HISTORIES", "440"))

#: What the histories of each family must come to at least once, to be worth anything.
MUST_BE_SEEN = {
    "faults": (
        "demanded ok",
        "full: failed",
        "decode: refused",
        "decode, override: ok",
        "router: ok",
        "when due: nothing",
        "when due: ok",
    ),
    "deaths": ("died", "resumes", "keeps prefill", "keeps decode prefill", "takes over", "lock left behind"),
    "cut off": ("full: failed", "full: refused", "demanded ok"),
    "tags": ("full: failed", "router: failed", "demanded ok"),
    "attempts": (
        "demanded ok",
        "demanded rolled back",
        "demanded ok, widened, nothing",
        "scope: router alone",
        "scope: decode and router alone",
        "scope: whole chain",
        "when due: widened",
        "when due, or back: rolled back",
        "router, or back: rolled back",
        "back: ok",
        "restores",
        "attempts: 3",
        "died",
    ),
    "decodes alone": (
        "demanded ok, widened, nothing",
        "scope: decode and router alone",
        "scope: whole chain",
        "when due: failed",
    ),
    "two": ("died", "resumes", "takes over", "full: refused", "full: failed"),
}


def test_playbook_walks_the_steps_of_the_core() -> None:
    """The simulated walk is that of the real playbook, which is that of the core."""
    assert tuple(STEPS) == _walk.STEPS


@pytest.mark.parametrize("family", list(FAMILIES))
def test_rules_hold(family: str) -> None:
    """Play generated histories; every effect in them is judged by :mod:`rules`."""
    seen: Counter[str] = Counter()

    def hold(history: History) -> None:
        seen["histories"] += 1
        Player(history, seen).play()

    play_all(histories(family), HISTORIES, hold)
    print(dict(seen))
    missed = [what for what in MUST_BE_SEEN[family] if not seen[what]]
    assert not missed, "the generator reaches too little: {}".format(missed)
