# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolls over six clusters on real units."""

from __future__ import annotations

import json
import os
import random

from cluster import wait_for


def test_F6_nothing_due_restarts_nothing_and_says_so(fleet, roll, run_playbook, rolls):
    before = fleet.incarnations()
    planned = run_playbook("plan", extra_vars={"pd_roll_dir": str(rolls.directory)})
    assert planned.rc == 0, planned
    assert rolls.plan["decision"] == "nothing"
    done = roll(when="when_due")
    assert done.rc == 0, done
    assert rolls.end["outcome"] == "nothing"
    assert fleet.restarted_since(before) == ""
    assert fleet.locked_or_reserved() == []


def test_F3_canary_first_then_batches_within_the_bounds(fleet, roll, rolls, tmp_path):
    before, generations = fleet.incarnations(), fleet.generations()
    noted = tmp_path / "hooks"
    hook = tmp_path / "hook.yml"
    hook.write_text(
        json.dumps(
            [
                {
                    "name": "Note it",
                    "ansible.builtin.shell": f"echo {{{{ pd_hook }}}} {{{{ pd_hook_cluster }}}} >>{noted}",
                    "delegate_to": "localhost",
                    "run_once": True,
                    "become": False,
                }
            ]
        )
    )
    done = roll(max_unavailable_per_domain="1", before_drain=str(hook), after_verify=str(hook), soak_seconds=3)
    assert done.rc == 0, done
    waves = [wave["clusters"] for wave in rolls.plan["waves"]]
    assert waves == [["a"], ["b", "d"], ["c", "e"], ["f"]]
    assert all(
        one["most"] >= one["clusters"] for w in rolls.plan["waves"] for one in w["unavailable"]["domains"].values()
    )
    assert fleet.restarted_since(before) == "abcdef"
    assert fleet.generations() == {name: number + 1 for name, number in generations.items()}
    assert rolls.outcomes == dict.fromkeys("abcdef", "done")
    for name in "abcdef":
        fleet[name].assert_started_in_order()
        run = fleet[name].one("prefill").ledger["run"]["id"]
        assert run.startswith(f"{rolls.newest.name}.{rolls.plan['clusters'][name]['wave']}."), run
    # Nobody of a wave was stopped before the wave ahead of it was proved and watched.
    order = [(e["event"], e.get("cluster")) for e in rolls.events if e["event"] in ("step_began", "cluster_ended")]
    for ahead, behind in zip(waves, waves[1:]):
        last_end = max(order.index(("cluster_ended", name)) for name in ahead)
        assert last_end < min(order.index(("step_began", name)) for name in behind)
    assert sorted(noted.read_text().split("\n")[:-1]) == sorted(
        f"{hook} {name}" for hook in ("before_drain", "after_verify") for name in "abcdef"
    )
    assert rolls.has("cluster_ended", cluster="f")
    latency = next(e["latency"] for e in rolls.events if e["event"] == "cluster_ended")
    assert latency["before"]["median_seconds"] > 0 and latency["after"]["median_seconds"] > 0
    assert fleet.locked_or_reserved() == []


def test_F1_a_failure_stops_the_roll_and_a_rerun_does_the_rest(fleet, roll, rolls):
    before = fleet.incarnations()
    fleet["b"].one("decode").faults(crash_at_start=True)
    done = roll(batch="1")
    assert done.rc == 2, done
    assert rolls.outcomes == {"a": "done", "b": "failed"}
    assert rolls.end["remaining"] == ["b", "c", "d", "e", "f"]
    assert "b failed, and the budget (pd_roll_failure_budget) is 0" in done.stdout, done
    assert "sglang-b-decode.service" in done.stdout
    assert f"-e pd_roll_id={rolls.newest.name}" in done.stdout
    assert fleet.restarted_since({name: before[name] for name in "cdef"}) == ""
    assert fleet.restarted_since({"a": before["a"]}) == "a"
    assert fleet.locked_or_reserved() == []

    # Resumed while it is broken: refused, because the fleet is below capacity.
    again = roll(id=rolls.newest.name)
    assert again.rc == 2, again
    assert "cluster b of model tiny does not serve" in again.stdout, again

    fleet["b"].clear_faults()
    done_once = fleet.incarnations("a")
    again = roll(id=rolls.newest.name, repair=True)
    assert again.rc == 0, again
    assert rolls.plan["waves"][0]["kind"] == "repair"
    assert fleet.restarted_since(done_once) == "", "what this roll did was done twice"
    assert fleet.restarted_since({name: before[name] for name in "bcdef"}) == "bcdef"
    assert rolls.outcomes == dict.fromkeys("abcdef", "done")


def test_F2_a_fleet_below_capacity_is_refused_until_it_is_to_be_repaired(fleet, roll, rolls):
    # Green on every health check, and serves nobody.
    fleet["e"].one("prefill").faults(answer_empty=True)
    fleet["e"].one("decode").faults(answer_empty=True)
    before = fleet.incarnations()
    done = roll()
    assert done.rc == 2, done
    assert "cluster e of model tiny does not serve" in done.stdout, done
    assert "pd_roll_repair=true" in done.stdout
    assert "no roll on a fleet that is below capacity" in done.stdout
    assert fleet.restarted_since(before) == ""
    fleet["e"].clear_faults()
    done = roll(when="when_due")
    assert done.rc == 0, done
    fleet["e"].one("decode").systemctl("stop")
    done = roll(when="when_due", repair=True)
    assert done.rc == 0, done
    assert [(wave["kind"], wave["clusters"]) for wave in rolls.plan["waves"]] == [("repair", ["e"])]
    assert fleet.restarted_since({name: before[name] for name in "abcdf"}) == ""
    fleet["e"].assert_serves(requests=2)


def test_F3_metrics_and_requests_of_the_soak_decide_not_the_clock(fleet, start_roll, rolls):
    before = fleet.incarnations("bcdef")
    started = start_roll(soak_seconds=60)
    rolls.wait_for("soak_began", wave=1)
    fleet["a"].one("decode").faults(answer_empty=True)
    fleet["a"].one("prefill").faults(answer_empty=True)
    assert started.end() == 2, started.output
    assert rolls.outcomes == {"a": "failed"}
    assert rolls.has("soak_ended", wave=1, outcome="failed")
    assert "it failed its soak" in started.output, started.output
    assert "canary a failed" in started.output
    assert fleet.restarted_since(before) == ""


def test_F4_a_limit_that_cuts_a_cluster_is_refused(fleet, roll, rolls):
    before = fleet.incarnations()
    for words in ("--check",), ():
        done = roll(*words, limit="box1:box2:box3:box4:box5")
        assert done.rc == 2, done
        assert "cluster f is only partly in this run: box6 left out" in done.stdout, done
    assert rolls.end["outcome"] == "refused"
    assert fleet.restarted_since(before) == ""
    assert fleet.locked_or_reserved() == []


def test_F7_a_setting_that_breaks_the_canary_is_rolled_back_there_and_goes_no_further(fleet, roll, rolls, run_playbook):
    folder = "/etc/engine_stand_in_bad"
    decode = fleet["a"].one("decode")
    decode.on.check_output(f"mkdir -p {folder}")
    decode.on.check_output(f"printf %s '{json.dumps({'answer_empty': True})}' >{folder}/{decode.port}.json")
    before = fleet.incarnations()
    # a and b alone: a is the canary.
    bad = run_playbook("deploy", limit="box1:box2", extra_vars={"pd_decode_extra_env": {"STAND_IN_FAULTS_DIR": folder}})
    assert bad.rc == 0, bad
    try:
        done = roll(when="when_due", pd_co_restart_rollback="on_failure")
        assert done.rc == 2, done
        assert rolls.outcomes == {"a": "rolled_back"}
        assert "canary a failed: what fails there is not done to others" in done.stdout, done
        assert fleet.restarted_since(before) == "a"
        fleet["a"].assert_serves(requests=2)
        assert fleet["a"].one("decode").ledger["outcome"] == "ok"
    finally:
        good = run_playbook("deploy", limit="box1:box2")
        assert good.rc == 0, good
    fleet["a"].assert_serves(requests=2)


def test_F7_what_fails_its_soak_is_put_back_where_that_is_asked_for(fleet, start_roll, rolls, run_playbook):
    good = fleet["a"].one("decode").ledger["generation"]
    before = fleet.incarnations()
    # a and b alone: a is the canary. What is new is good when it is verified, and bad later.
    new = run_playbook("deploy", limit="box1:box2", extra_vars={"pd_decode_settings": {"target_ctas": 77}})
    assert new.rc == 0, new
    try:
        started = start_roll(when="when_due", soak_seconds=60, pd_co_restart_rollback="on_failure")
        rolls.wait_for("soak_began", wave=1)
        fleet["a"].one("decode").faults(answer_empty=True)
        rolls.wait_for("soak_ended", wave=1)
        fleet["a"].clear_faults()
        assert started.end() == 2, started.output
        assert "next     roll back: it failed its soak" in started.output, started.output
        assert rolls.outcomes == {"a": "rolled_back"}
        assert fleet.restarted_since(before) == "a"
        ledger = fleet["a"].one("decode").ledger
        assert (ledger["outcome"], ledger["generation"]) == ("ok", good + 2)
        settings = fleet["a"].one("decode").description["settings"]
        assert settings.get("target_ctas") != 77, "what was wanted is not live any more"
        fleet["a"].assert_serves(requests=2)
    finally:
        fleet["a"].clear_faults()
        done = run_playbook("deploy", limit="box1:box2")
        assert done.rc == 0, done


def test_R6_a_roll_whose_controller_is_killed_again_and_again_is_resumed_to_the_end(fleet, start_roll, roll, rolls):
    """SGLANG_PD_KILLS times, at moments that a seed chooses among the events of each part."""
    kills = int(os.environ.get("SGLANG_PD_KILLS", "2"))
    moments = random.Random(kills)
    before = fleet.incarnations()
    good: dict[str, dict[str, str]] = {}
    more: dict[str, object] = {"batch": "2"}
    for number in range(kills):
        started = start_roll(**more)
        # Somewhere in what a wave or two of a part tell, from its very first event on.
        enough = len(rolls.events) + moments.randrange(1, 70) if number else moments.randrange(30, 70)
        wait_for(
            f"event {enough} of part {number}",
            lambda started=started, enough=enough: not started.runs or len(rolls.events) >= enough,
            limit_seconds=300,
        )
        started.kill()
        more = {"id": rolls.newest.name, "batch": "2"}
        ended = {name for name, outcome in rolls.outcomes.items() if outcome == "done"}
        assert set(good) <= ended
        good.update({name: fleet[name].incarnations() for name in ended - set(good)})
    done = roll(**more)
    assert done.rc == 0, done
    for name, incarnations in good.items():
        assert fleet[name].incarnations() == incarnations, f"{name} was good, and was restarted once more"
    assert fleet.restarted_since(before) == "abcdef"
    assert rolls.outcomes == dict.fromkeys("abcdef", "done")
    for name in "abcdef":
        fleet[name].assert_started_in_order()
        assert fleet[name].one("router").ledger["outcome"] == "ok"
    assert (rolls.newest / "plan-1.json").exists(), "the first plan is kept"
    assert fleet.locked_or_reserved() == []


def test_R7_of_two_rolls_one_goes_on_and_the_other_is_refused(fleet, start_roll, roll, rolls):
    before = fleet.incarnations()
    started = start_roll(clusters=["a", "b"], purpose="weekly")
    rolls.wait_for("wave_began", wave=1)
    first = rolls.newest.name
    # Other clusters of the same model: together they would take away more than each may.
    done = roll(clusters=["c", "d"])
    assert done.rc == 2, done
    assert f"weekly, run {first}" in done.stdout, done
    assert "one roll at a time" in done.stdout
    assert started.end() == 0, started.output
    assert fleet.restarted_since(before) == "ab"
    assert fleet.locked_or_reserved() == []


def test_a_forced_unlock_needs_a_reason_and_is_on_record(fleet, run_playbook):
    prefill = fleet["c"].one("prefill")
    run = {"id": "r17", "owner": "ops@runner17", "purpose": "weekly"}
    held = {"run": run, "generation": 0, "since": 1, "deadline": 99999999999, "taken_over_from": None}
    for folder in ("lock", "roll"):
        file = f"/var/lib/sglang-pd/{folder}/c.json"
        prefill.on.check_output(f"mkdir -p $(dirname {file}) && printf %%s %s > {file}", json.dumps(held))
    refused = run_playbook("unlock", extra_vars={"pd_unlock_clusters": ["c"]})
    assert refused.rc == 2, refused
    assert "Say why (pd_unlock_reason)" in refused.stdout
    assert fleet.locked_or_reserved() != []
    done = run_playbook("unlock", extra_vars={"pd_unlock_clusters": ["c"], "pd_unlock_reason": "runner 17 is gone"})
    assert done.rc == 0, done
    assert fleet.locked_or_reserved() == []
    for member in fleet["c"].members:
        assert member.ledger["unlocks"][-1]["reason"] == "runner 17 is gone"
        assert "ops@runner17" in " ".join(member.ledger["unlocks"][-1]["held"])


def test_a_host_in_maintenance_is_left_alone(fleet, roll, rolls, inventory, tmp_path):
    before = fleet.incarnations()
    # Beside the scenario's inventory, as somebody would put it into host_vars.
    extra = tmp_path / "maintenance.yml"
    extra.write_text(json.dumps({"all": {"hosts": {"box1": {"pd_maintenance": "new fans"}}}}))
    done = roll("-i", str(extra), clusters=["a", "b"])
    assert done.rc == 0, done
    assert rolls.plan["clusters"]["a"]["why"] == "box1 is in maintenance: new fans"
    assert fleet.restarted_since(before) == "b"


def test_check_mode_ends_with_the_plan(fleet, roll, rolls):
    before = fleet.incarnations()
    done = roll("--check")
    assert done.rc == 0, done
    assert "wave 1, canary: a" in done.stdout, done
    assert fleet.restarted_since(before) == ""
    assert fleet.locked_or_reserved() == []
    assert not rolls.directory.exists(), "nothing was begun, so nothing is on record"
