# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of a roll hold in every history of a simulated fleet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from . import roll_histories
from .generated import play_all
from .roll_histories import FAMILIES, History, Roll, histories, play, play_campaign, play_real
from .roll_process import TASKS, TASKS_OF_WAVE, tasks_of_playbook, tasks_of_wave
from .roll_world import Shape

#: How many times as much as in the default run; for a night: SGLANG_PD_ROLLS=100.
TIMES = int(os.environ.get("SGLANG_PD_ROLLS", "1"))
#: Histories per family, of a handful of clusters: cheap ones, and with the real steps.
HISTORIES, REAL_HISTORIES = 500, 35
#: Clusters of ten engines, and processes of rolls over them, in each campaign.
CLUSTERS, ROLLS = 1000, 130

#: What the histories of each family must come to at least once, to be worth anything.
MUST_BE_SEEN = {
    "failures": (
        "done",
        "failed",
        "nothing",
        "refused",
        "clusters failed",
        "clusters rolled_back",
        "clusters put back after a soak",
        "waves of kind canary",
        "waves of kind repair",
        "resumed to the end",
    ),
    "deaths": ("killed", "resumed", "resumed to the end", "waves of kind repair"),
    "disturbed": ("stopped", "paused", "killed", "clusters refused", "co-restarts by hand", "resumed to the end"),
    "repairs": ("waves of kind repair", "done", "failed", "refused"),
    "soaks": ("clusters put back after a soak", "killed", "resumed", "done"),
    "rivals": ("two at a time", "refused", "done"),
    "two": ("two at a time", "refused", "killed", "done", "failed"),
}


def test_the_playbook_does_what_the_simulated_process_does() -> None:
    assert tasks_of_playbook() == TASKS
    assert tasks_of_wave() == TASKS_OF_WAVE


def hold(family: str, many: int, player: Callable[[History, Counter[str]], None]) -> Counter[str]:
    """Play generated histories of a family; return what they came to."""
    seen: Counter[str] = Counter()

    def holds(history: History) -> None:
        seen["histories"] += 1
        player(history, seen)

    play_all(histories(family), many, holds)
    print(dict(seen))
    return seen


@pytest.mark.parametrize("family", list(FAMILIES))
def test_rules_hold(family: str) -> None:
    """Play generated histories; every effect in them is judged by :mod:`roll_rules`."""
    seen = hold(family, HISTORIES * TIMES, play)
    missed = [what for what in MUST_BE_SEEN[family] if not seen[what]]
    assert not missed, "the generator reaches too little: {}".format(missed)


@pytest.mark.parametrize("family", list(FAMILIES))
def test_rules_hold_with_the_real_steps(family: str) -> None:
    """The same where each wave walks the steps of a co-restart, with gates and probes; by both kinds of rules."""
    assert hold(family, REAL_HISTORIES * TIMES, play_real)["clusters done"]


@pytest.mark.parametrize("seed", range(4))
def test_rules_hold_for_a_thousand_clusters_through_many_rolls(seed: int) -> None:
    """Four campaigns of 130 rolls each over 1,000 clusters with 10,000 engines; the last roll is of them all."""
    seen: Counter[str] = Counter()
    play_campaign(seed, CLUSTERS, ROLLS * TIMES, seen)
    print(dict(seen))
    assert seen["engines"] == 10 * CLUSTERS
    assert seen["rolls"] >= ROLLS * TIMES
    assert seen["most clusters in a roll"] > CLUSTERS // 2
    missed = [
        what
        for what in ("killed", "stopped", "failed", "refused", "done", "resumed to the end", "two at a time")
        if not seen[what]
    ]
    assert not missed, missed


#: A fleet in which what the killed process was amid can be told apart: two models, one with a common router host.
FLEET = (
    Shape("c0", "m", "r1", 2, 2, "edge"),
    Shape("c1", "m", "r1", 2, 2, "edge"),
    Shape("c2", "m", "r2", 2, 2),
    Shape("c3", "m", "r2", 2, 2),
    Shape("c4", "n", "r1", 2, 2),
    Shape("c5", "n", "r2", 2, 2),
)
WAVES = (("batch", "50%"), ("max_unavailable", "2"), ("max_unavailable_per_domain", "2"))


@pytest.mark.parametrize("player", [play, play_real])
def test_R6_a_roll_whose_controller_is_killed_at_any_moment_is_resumed_to_its_end(
    player: Callable[[History, Counter[str]], None],
) -> None:
    """At forty moments and more of a roll, of which the last is beyond its end; the rules forbid to restart twice."""
    whole: Counter[str] = Counter()
    acts = (roll_histories.Deploy(), Roll(options=WAVES))
    player(History(FLEET, acts), whole)
    assert (whole["done"], whole["clusters done"]) == (1, 6)
    moments = whole["moments"]
    step = max(1, moments // (40 * TIMES))
    seen: Counter[str] = Counter()
    for moment in range(0, moments + step, step):
        killed = Roll(options=WAVES, lives=moment)
        player(History(FLEET, (acts[0], killed, Roll(resumes=True, options=WAVES))), seen)
    print(dict(seen))
    assert seen["killed"] >= 40
    assert seen["done"] + seen["nothing"] >= seen["killed"]
    # One half-restarted cluster is the only one that may be begun twice, and it is done once in the end.
    assert seen["failed"] == seen["refused"] == 0
