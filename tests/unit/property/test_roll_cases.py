# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of rolls by name, over 200 simulated clusters; with real systemd: ``molecule/fleet``.

Each effect is judged by :mod:`roll_rules` as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from .roll_histories import Deploy, Player, Roll, start_all
from .roll_process import Process, Stage
from .roll_world import PROOF, SOAK, Fleet, Shape

MANY = 200
TWO_AT_A_TIME = (("max_unavailable", "2"), ("batch", "2"))


@pytest.fixture
def player() -> Iterator[Player]:
    """A fleet of one model; all its clusters serve, and something new is deployed on each."""
    fleet = Fleet(Shape("c{:03}".format(number)) for number in range(MANY))
    start_all(fleet)
    with Stage(fleet) as stage:
        found = Player(stage, Counter())
        found.one(Deploy())
        yield found


def rolled(player: Player, **act: Any) -> Process:
    """Play a process of a roll, two clusters at a time where nothing else is said."""
    player.one(Roll(**{"options": TWO_AT_A_TIME, **act}))
    assert player.last is not None
    return player.last


def touched(process: Process) -> list[str]:
    """Return the clusters that a process restarted something of."""
    return sorted(process.observed.touched)


def test_F1_two_at_a_time_and_the_seventh_fails(player: Player) -> None:
    first = rolled(player, faults=((6, PROOF),))
    assert first.outcome == "failed"
    outcomes = Counter(first.observed.came_to.values())
    assert outcomes == {"done": 6, "failed": 1}
    assert len(touched(first)) == 7, "193 are untouched"
    assert first.observed.came_to["c006"] == "failed"
    again = rolled(player, resumes=True, options=(*TWO_AT_A_TIME, ("repair", True)))
    assert again.outcome == "done"
    assert len(touched(again)) == 194, "what was good is not done again"


def test_F2_a_cluster_that_does_not_serve_at_the_start(player: Player) -> None:
    player.fleet.outside(player.clusters[100], "wedge")
    first = rolled(player)
    assert (first.outcome, touched(first)) == ("refused", [])
    (problem,) = first.observed.plan["problems"]
    assert problem["rule"] == "no roll on a fleet that is below capacity"
    assert "cluster c100 of model m does not serve" in problem["message"]
    assert "pd_roll_repair=true" in problem["message"]
    repaired = rolled(player, options=(*TWO_AT_A_TIME, ("repair", True)))
    assert repaired.outcome == "done"
    assert repaired.observed.plan["waves"][0]["clusters"] == ["c100"]


def test_F3_a_canary_then_a_soak_then_a_quarter(player: Player) -> None:
    quarter = (("max_unavailable", "25%"), ("batch", "25%"))
    first = rolled(player, options=quarter, faults=((0, SOAK),))
    assert (first.outcome, touched(first)) == ("failed", ["c000"])
    player.fleet.outside(player.clusters[0], "heal")
    again = rolled(player, resumes=True, options=(*quarter, ("repair", True)))
    assert again.outcome == "done"
    kinds = [(wave["kind"], len(wave["clusters"])) for wave in again.observed.plan["waves"]]
    assert kinds[0][1] == 1, "what failed comes first, alone"
    assert max(many for _kind, many in kinds) == (MANY - 1) // 4


def test_F4_a_limit_that_cuts_a_cluster(player: Player) -> None:
    process = player.process(Roll(options=TWO_AT_A_TIME))
    process.play_hosts = [host for host in player.fleet.hosts if host != "c007-1"]
    while player.stage.go_on(process):
        pass
    player.over(process)
    assert (process.outcome, touched(process)) == ("refused", [])
    assert any("c007" in problem["message"] for problem in process.observed.plan["problems"])


def test_F5_a_pipeline_that_is_cancelled(player: Player) -> None:
    first = rolled(player, cancelled_at=MANY + 100)
    assert first.outcome == "stopped"
    assert 0 < len(touched(first)) < MANY
    assert set(first.observed.came_to.values()) == {"done"}, "the wave in work is finished"
    again = rolled(player, resumes=True)
    assert again.outcome == "done"
    assert len(touched(first)) + len(touched(again)) == MANY


def test_F6_nothing_changed(player: Player) -> None:
    assert rolled(player).outcome == "done"
    again = rolled(player)
    assert (again.outcome, touched(again)) == ("nothing", [])


def test_F7_a_setting_that_breaks_the_verification_of_the_canary(player: Player) -> None:
    player.one(Deploy("configure badly"))
    process = rolled(player, rolls_back=True)
    assert (process.outcome, touched(process)) == ("failed", ["c000"])
    assert process.observed.came_to == {"c000": "rolled_back"}
    assert player.clusters[0].is_as_wanted(), "it serves, with what it had before"


def test_R6_a_controller_that_is_killed_three_times(player: Player) -> None:
    done: Counter[str] = Counter()
    for lives in (1000, 1500, 800, None):
        process = rolled(player, lives=lives, resumes=bool(done))
        good = {name for name, outcome in process.observed.came_to.items() if outcome == "done"}
        assert not good & set(done), "what was good is not done again"
        done.update(good)
    assert player.last is not None
    assert player.last.outcome == "done"
    assert player.seen["killed"] == 3
    assert all(cluster.is_as_wanted() for cluster in player.clusters)


def test_R7_two_pipelines_at_once_on_overlapping_clusters(player: Player) -> None:
    first, second = tuple(range(120)), tuple(range(80, MANY))
    its = Roll(options=TWO_AT_A_TIME, selected=second, here=False)
    player.one(Roll(options=TWO_AT_A_TIME, selected=first, second=its, second_at=6))
    processes = player.stage.processes.values()
    assert sorted(process.outcome for process in processes) == ["done", "refused"]
    (refused,) = (process for process in processes if process.outcome == "refused")
    assert touched(refused) == []
    assert player.seen["clusters done"] == 120
