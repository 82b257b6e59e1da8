# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The points of a wave: what they note, and which clusters they let go on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.action import roll as action
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_files

PROOF = {"outcome": "ok", "failures": [], "parts": [{"latency": {"count": 3, "median": 0.5, "p95": 0.9}}]}
BROKEN = {"outcome": "failed", "failures": ["3 of 3 requests failed"], "parts": [{"latency": {}}]}
RUN = "r.1.ab"


def plan(kind: str = "batch", **more: Any) -> dict[str, Any]:
    """Return the plan of a roll with two waves; a and b are in the first one."""
    rows = {
        name: {"model": "m", "domains": [], "condition": "serves", "decision": "roll", "wave": wave, "announced": 4}
        for name, wave in (("a", 1), ("b", 1), ("c", 2))
    }
    waves = [
        {"number": 1, "kind": kind, "clusters": ["a", "b"], "hosts": ["ha", "hb"], "pause_after": False},
        {"number": 2, "kind": "batch", "clusters": ["c"], "hosts": ["hc"], "pause_after": False},
    ]
    options = {
        "max_unavailable": "3",
        "max_unavailable_per_domain": "",
        "failure_budget": "0",
        "soak_seconds": 5,
    }
    return {
        "roll": "r",
        "decision": "go",
        "owner": "o",
        "purpose": "p",
        "problems": [],
        "waves": waves,
        "batches": [{"waves": [1], "hosts": ["ha", "hb"]}, {"waves": [2], "hosts": ["hc"]}],
        "clusters": rows,
        "options": options,
        "inventory": {name: {"prefill": ["h" + name]} for name in rows},
        "restart_when": "when_due",
        **more,
    }


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A roll that began."""
    folder = str(tmp_path / "r")
    roll_files.write_plan(folder, plan())
    roll_files.tell(folder, "roll_began")
    return folder


def given(directory: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of a step."""
    defaults = {"wave": 1, "clusters": ["a", "b"], "plan": {}, "attempts": {}, "reserved": "res", "proof": "proof"}
    return {**defaults, "roll": {"directory": directory, "reserve": {"ha": ["a"]}}, **more}


def task_vars(**proofs: Any) -> dict[str, Any]:
    """Return the variables of a task: what was registered on the hosts of clusters."""
    hosts = {"h" + name: {"proof": {"clusters": {name: proof}}} for name, proof in proofs.items()}
    return {"hostvars": {"ha": {}, "hb": {}, "hc": {}, **hosts}}


def ended(directory: str) -> dict[str, tuple[str, str]]:
    """Return outcome and message of each cluster that ended."""
    events = roll_files.events(directory)
    return {e["cluster"]: (e["outcome"], e["message"]) for e in events if e["event"] == "cluster_ended"}


def attempts(**outcomes: str) -> dict[str, Any]:
    """Return what the attempts on clusters came to."""
    return {
        "attempts": {
            name: [
                {
                    "run": RUN,
                    "outcome": "ok" if outcome != "failed" else "failed",
                    "automatic": outcome == "rolled back",
                    "restore": 7 if outcome == "rolled back" else 0,
                    "generation": 9,
                    "stopped": True,
                    "next": None,
                    "lines": ["cluster x: FAILED", "  at start_decode"],
                }
            ]
            for name, outcome in outcomes.items()
        }
    }


PLANS = {"plans": {name: {"run": {"id": RUN}, "options": {"requests": 8}} for name in ("a", "b")}}


def test_a_wave_leaves_out_a_cluster_that_stopped_serving_before_its_turn(directory: str) -> None:
    begun = action.ActionModule._begin(given(directory), directory, task_vars(a=PROOF, b=BROKEN))
    assert (begun["over"], begun["clusters"]) == (False, ["a"])
    assert begun["run_id"].startswith("r.1.")
    outcome, message = ended(directory)["b"]
    assert outcome == "refused"
    assert "was not touched: 3 of 3 requests failed" in message


def test_a_cluster_that_nobody_asked_is_not_touched(directory: str) -> None:
    begun = action.ActionModule._begin(given(directory), directory, task_vars(a=PROOF))
    assert begun["clusters"] == ["a"]
    assert "no requests were sent to it" in ended(directory)["b"][1]


def test_a_repair_takes_those_that_do_not_serve(tmp_path: Path) -> None:
    folder = str(tmp_path / "r")
    roll_files.write_plan(folder, plan("repair"))
    roll_files.tell(folder, "roll_began")
    assert action.ActionModule._begin(given(folder), folder, task_vars(a=BROKEN))["clusters"] == ["a", "b"]


def test_F5_a_cancel_ends_the_roll_before_the_wave(directory: str) -> None:
    (Path(directory) / "cancel").write_text("SIGTERM")
    begun = action.ActionModule._begin(given(directory), directory, task_vars(a=PROOF, b=PROOF))
    assert begun["over"]
    last = roll_files.events(directory)[-1]
    assert (last["event"], last["outcome"], last["why"]) == ("roll_ended", "stopped", "SIGTERM")
    assert last["remaining"] == ["a", "b", "c"]


def test_R7_a_roll_that_lost_its_clusters_ends_before_it_touches_them(directory: str) -> None:
    seen = task_vars(a=PROOF, b=PROOF)
    seen["hostvars"]["ha"]["res"] = {"refused": {"a": "ops@ci (weekly, run r2)"}}
    begun = action.ActionModule._begin(given(directory), directory, seen)
    assert (begun["over"], begun["outcome"]) == (True, "stopped")
    assert "cluster a is no longer reserved for this roll, but by ops@ci (weekly, run r2)" in begun["why"]


def test_a_cluster_whose_hook_failed_is_not_touched(directory: str) -> None:
    step = given(directory, hook="before_drain", clusters=["b"], message="ha: Disable: 503")
    action.ActionModule._hook(step, directory, {})
    assert action.ActionModule._ready(given(directory), directory, {}) == {"clusters": ["a"]}
    assert ended(directory) == {
        "b": ("failed", "its hook before the drain failed, and it was not touched: ha: Disable: 503")
    }


def test_only_what_is_proved_and_soaked_is_done(directory: str) -> None:
    step = given(directory, plan=PLANS, attempts=attempts(a="ok", b="ok"))
    assert action.ActionModule._walked(step, directory, {}) == {"clusters": ["a", "b"]}
    asked = task_vars(a=PROOF, b=BROKEN)
    soaked = action.ActionModule._soaked(dict(step, rollback="never"), directory, asked)
    end = action.ActionModule._end(dict(step, attempts=soaked), directory, asked)
    assert ended(directory) == {"a": ("done", ""), "b": ("failed", "it failed its soak: 3 of 3 requests failed")}
    assert end["over"]
    assert end["clusters"] == {"good": ["a"], "failed": ["b"]}
    event = next(e for e in roll_files.events(directory) if e["event"] == "cluster_ended" and e["cluster"] == "a")
    assert event["latency"]["after"] == {"median_seconds": 0.5, "p95_seconds": 0.9}
    assert event["generation"] == 9


def test_F7_what_fails_its_soak_goes_back_where_that_is_asked_for(directory: str) -> None:
    step = given(directory, plan=PLANS, attempts=attempts(a="ok", b="ok"), rollback="never")
    asked = task_vars(a=PROOF, b=BROKEN)
    assert action.ActionModule._soaked(step, directory, asked)["next"] == {}
    soaked = action.ActionModule._soaked(dict(step, rollback="on_failure"), directory, asked)
    assert list(soaked["next"]) == ["b"]
    following = soaked["next"]["b"]
    assert (following["what"], following["follows"], following["run"]) == ("roll back", 9, {"id": RUN})
    assert following["stages"] == ["prefill", "decode", "router"]
    event = roll_files.events(directory)[-1]
    assert (event["event"], event["outcome"]) == ("soak_ended", "failed")
    assert event["message"] == "b: it failed its soak: 3 of 3 requests failed"

    (back,) = attempts(b="rolled back")["attempts"]["b"]
    walked = {"attempts": {**soaked["attempts"], "b": [*soaked["attempts"]["b"], back]}}
    end = action.ActionModule._end(dict(step, attempts=walked), directory, asked)
    assert ended(directory) == {
        "a": ("done", ""),
        "b": ("rolled_back", "it failed its soak: 3 of 3 requests failed"),
    }
    assert end["clusters"] == {"good": ["a"], "failed": ["b"]}


def test_what_failed_its_soak_and_could_not_go_back_has_failed(directory: str) -> None:
    step = given(directory, plan=PLANS, attempts=attempts(a="ok", b="ok"), rollback="on_failure")
    asked = task_vars(a=PROOF, b=BROKEN)
    soaked = action.ActionModule._soaked(step, directory, asked)
    (last,) = attempts(b="failed")["attempts"]["b"]
    walked = {"attempts": {**soaked["attempts"], "b": [*soaked["attempts"]["b"], last]}}
    action.ActionModule._end(dict(step, attempts=walked), directory, asked)
    outcome, message = ended(directory)["b"]
    assert outcome == "failed"
    assert message == "it failed its soak: 3 of 3 requests failed\ncluster x: FAILED\nat start_decode"


def test_what_was_put_back_on_purpose_does_not_go_back_further(directory: str) -> None:
    restored = attempts(a="ok")
    restored["attempts"]["a"][0]["restore"] = 5
    step = given(directory, clusters=["a"], plan=PLANS, attempts=restored, rollback="on_failure")
    assert action.ActionModule._soaked(step, directory, task_vars(a=BROKEN))["next"] == {}


def test_F7_rolled_back_failed_refused_and_nothing_are_told_apart(directory: str) -> None:
    planned = {**PLANS, "refused": {"c": ["whole clusters only"]}, "nothing": {"d": "it runs"}}
    came_to = attempts(a="rolled back", b="failed")
    endings = {name: action._ending(name, planned, came_to) for name in "abcde"}
    assert {name: one.outcome for name, one in endings.items()} == {
        "a": "rolled_back",
        "b": "failed",
        "c": "refused",
        "d": "nothing",
        "e": "failed",
    }
    assert "at start_decode" in endings["b"].message
    assert "not planned" in endings["e"].message


def test_attempts_of_another_run_do_not_count(directory: str) -> None:
    planned = {"plans": {"a": {"run": {"id": "r.1.cd"}}}}
    assert action._ending("a", planned, attempts(a="ok")).outcome == "failed"


def test_the_next_wave_follows_on_a_good_one(directory: str) -> None:
    step = given(directory, plan=PLANS, attempts=attempts(a="ok", b="ok"))
    assert action.ActionModule._end(step, directory, task_vars(a=PROOF, b=PROOF))["over"] is False
    assert not any(e["event"] == "roll_ended" for e in roll_files.events(directory))


@pytest.mark.parametrize(
    ("registered", "words"),
    [
        ({"refused": {"a": "ops@ci (weekly, run r0)"}}, "cluster a is in roll ops@ci"),
        ({"unreachable": True, "msg": "no route"}, "ha cannot be asked: no route"),
        ({}, "ha cannot be asked: no answer"),
        ({"refused": {}, "announced": {"a": 5}}, "cluster a was co-restarted by another run"),
    ],
)
def test_R7_a_roll_begins_only_where_all_is_reserved(directory: str, registered: Any, words: str) -> None:
    confirmed = action.ActionModule._confirm(given(directory), directory, {"hostvars": {"ha": {"res": registered}}})
    assert confirmed["go"] is False
    assert words in roll_files.events(directory)[-1]["why"]


def test_a_roll_that_is_reserved_begins(directory: str) -> None:
    confirmed = action.ActionModule._confirm(
        given(directory), directory, {"hostvars": {"ha": {"res": {"refused": {}}}}}
    )
    assert confirmed["go"] is True


def test_F5_a_new_plan_forgets_a_cancel_of_the_part_before_and_no_later_one(directory: str) -> None:
    cancel = Path(directory) / "cancel"
    cancel.write_text("earlier")
    roll_files.tell(directory, "roll_ended", outcome="stopped")
    last = roll_files.events(directory)[-1]["at"]
    os.utime(cancel, (last - 1, last - 1))
    roll_files.write_plan(directory, plan())
    assert roll_files.cancelled(directory) == ""
    # While the fleet is looked at, and while its clusters are reserved.
    cancel.write_text("now")
    os.utime(cancel, (last + 1, last + 1))
    roll_files.write_plan(directory, plan())
    action.ActionModule._confirm(given(directory), directory, {"hostvars": {"ha": {"res": {"refused": {}}}}})
    assert roll_files.cancelled(directory) == "now"


def test_F5_a_cancel_that_comes_before_the_first_plan_of_a_roll_counts(directory: str) -> None:
    (Path(directory) / "cancel").write_text("at once")
    roll_files.write_plan(directory, plan())
    assert roll_files.cancelled(directory) == "at once"


def test_the_hosts_of_a_batch_tell_its_waves(directory: str) -> None:
    waves = action.ActionModule._waves(given(directory), directory, {"ansible_play_batch": ["hb"]})["waves"]
    assert [(wave["number"], wave["restart_when"]) for wave in waves] == [(1, "when_due")]
    assert waves[0]["inventory"] == {"a": {"prefill": ["ha"]}, "b": {"prefill": ["hb"]}}


def test_the_conclusion_fails_where_work_was_not_done(directory: str) -> None:
    roll_files.tell(directory, "roll_ended", outcome="failed", why="b failed", remaining=["b"])
    concluded = action.ActionModule._conclude(given(directory), directory, {})
    assert concluded["failed"]
    assert "roll r: failed: b failed" in concluded["msg"]
    assert "-e pd_roll_id=r" in concluded["msg"]


def test_events_that_were_cut_off_are_left_out(directory: str) -> None:
    with open(Path(directory) / "events.jsonl", "a", encoding="utf-8") as target:
        target.write(json.dumps({"event": "wave_ended"})[:-4])
    assert [event["event"] for event in roll_files.events(directory)] == ["roll_began"]


def test_the_plan_of_an_interrupted_part_is_kept(directory: str) -> None:
    roll_files.write_plan(directory, plan(purpose="second"))
    roll_files.write_plan(directory, plan(purpose="third"))
    assert [json.loads((Path(directory) / f"plan{n}.json").read_text())["purpose"] for n in ("-1", "-2", "")] == [
        "p",
        "second",
        "third",
    ]


def test_a_roll_that_failed_says_so_once(directory: str) -> None:
    step = given(directory, plan=PLANS, attempts=attempts(a="ok", b="failed"))
    action.ActionModule._end(step, directory, task_vars(a=PROOF))
    concluded = action.ActionModule._conclude(step, directory, {})
    assert concluded["failed"]
    assert "at start_decode" in concluded["msg"]
    assert "at start_decode" not in str({key: value for key, value in concluded.items() if key != "msg"})
