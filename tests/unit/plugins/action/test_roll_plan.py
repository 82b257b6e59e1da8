# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan of a roll takes from the controller."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.action import co_restart_plan, roll_plan
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller, roll_files


def run_of(pid: int, **more: Any) -> dict[str, Any]:
    """Return the identity of a process of roll r."""
    run = co_restart_plan.new_run("r", "weekly")
    return {**run, "owner": "ops@ci pid {}".format(pid), "pid": pid, "pid_started": "start of {}".format(pid), **more}


def test_R7_a_roll_that_another_process_walks_is_not_planned_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    directory = str(tmp_path / "r")
    assert roll_plan._still_walked(directory, run_of(8)) == ""
    roll_files.write_plan(directory, {"run": run_of(7)})
    monkeypatch.setattr(controller, "process_start", "start of {}".format)
    walked = roll_plan._still_walked(directory, run_of(8))
    assert "Roll r is still walked by ops@ci pid 7 (weekly)" in walked
    assert str(tmp_path / "r" / "cancel") in walked
    # Its own plan of a moment ago, one of a process that is gone, one of a controller of which nothing is known.
    assert roll_plan._still_walked(directory, run_of(7)) == ""
    monkeypatch.setattr(controller, "process_start", lambda pid: "")
    assert roll_plan._still_walked(directory, run_of(8)) == ""
    monkeypatch.setattr(controller, "process_start", "start of {}".format)
    roll_files.write_plan(directory, {"run": run_of(7, controller="another")})
    assert roll_plan._still_walked(directory, run_of(8)) == ""


def test_a_cluster_of_which_only_other_ranks_were_seen_has_the_model_of_the_inventory() -> None:
    def seen(rank: int) -> list[dict[str, Any]]:
        member = {"role": "prefill", "node_rank": rank, "host": "h", "unit": "u"}
        return [{"member": dict(member, settings={"model_path": "/deployed"})}]

    variables = [{}, {"pd_engine_model_path": "/wanted"}]
    assert roll_plan._model(seen(0), variables) == "/deployed"
    assert roll_plan._model(seen(1), variables) == "/wanted"
    assert roll_plan._model([], []) == ""
