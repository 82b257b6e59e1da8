# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that die, and runs that meet: the next run goes by what the hosts say."""

from __future__ import annotations

from conftest import begun, locked, wait_for

PREFILL = "box1 sglang-main-prefill.service"


def killed_while_the_decode_starts(main, start_co_restart):
    """SIGKILL the controller between the prefill's gate and the decode's; give the incarnations of then."""
    decode = main.one("decode")
    generation = decode.ledger["generation"] + 1
    decode.faults(slow_start=600)
    controller = start_co_restart()
    wait_for("the decode starts", begun(decode, generation, "started"))
    controller.kill()
    assert main.one("prefill").ledger["phase"] == "healthy"
    assert locked(main), "the dead run holds the lock"
    return main.incarnations()


def test_R6_controller_killed_after_the_prefill_stage(main, start_co_restart, co_restart):
    before = killed_while_the_decode_starts(main, start_co_restart)
    main.one("decode").faults()
    # The decode that the dead run started would take ten minutes; somebody ends it.
    main.one("decode").systemctl("kill --signal=KILL")
    wait_for("the decode is gone", lambda: not main.one("decode").is_active)
    done = co_restart()
    assert done.rc == 0, done
    assert "its owner's process is gone from this controller" in done.stdout, done
    after = main.incarnations()
    assert all(after[name] != before[name] for name in after if "decode" in name or "router" in name)
    main.assert_started_in_order()
    main.assert_serves(requests=2)


def test_R6_what_the_dead_run_left_in_good_order_is_not_restarted_again(main, start_co_restart, co_restart):
    decode = main.one("decode")
    generation = decode.ledger["generation"] + 1
    decode.faults(slow_start=5)
    controller = start_co_restart()
    wait_for("the decode starts", begun(decode, generation, "started"))
    controller.kill()
    before = main.incarnations()
    done = co_restart()
    assert done.rc == 0, done
    assert "resumes interrupted run" in done.stdout, done
    assert "keep     sglang-main-prefill.service" in done.stdout
    after = main.incarnations()
    assert after[PREFILL] == before[PREFILL], "nothing restarted twice without need"
    assert after["box1 sglang-main-router.service"] != before["box1 sglang-main-router.service"], "nothing skipped"
    main.assert_started_in_order()
    assert {member.ledger["outcome"] for member in main.members} == {"ok"}
    assert not locked(main)


def test_R6_controller_killed_in_the_prefill_stage(main, start_co_restart, co_restart):
    """The prefill that the dead run started comes up by itself: it is gated, not started again."""
    prefill = main.one("prefill")
    before = main.incarnations()
    generation = prefill.ledger["generation"] + 1
    prefill.faults(slow_start=6)
    controller = start_co_restart()
    wait_for("the prefill starts", begun(prefill, generation, "started"))
    controller.kill()
    started = prefill.incarnation
    assert started != before[PREFILL]
    assert main.incarnations("decode", "router") == {k: v for k, v in before.items() if "prefill" not in k}
    done = co_restart()
    assert done.rc == 0, done
    assert "resumes interrupted run" in done.stdout, done
    assert prefill.incarnation == started, "nothing restarted twice without need"
    after = main.incarnations("decode", "router")
    assert all(after[name] != before[name] for name in after), "nothing skipped"
    main.assert_started_in_order()
    main.assert_serves(requests=2)


def test_R6_killed_and_then_restarted_by_hand_the_whole_chain_starts_anew(main, start_co_restart, co_restart):
    before = killed_while_the_decode_starts(main, start_co_restart)
    main.one("decode").faults()
    main.one("prefill").systemctl("restart")
    by_hand = main.one("prefill").incarnation
    done = co_restart()
    assert done.rc == 0, done
    assert "resumes" not in done.stdout, done
    after = main.incarnations()
    assert after[PREFILL] not in (before[PREFILL], by_hand)
    assert all(after[name] != before[name] for name in after)
    main.assert_started_in_order()


def test_R6_network_of_the_decode_host_lost_in_the_prefill_stage(main, start_co_restart, co_restart, without_network):
    prefill = main.one("prefill")
    router = main.incarnations("router")
    generation = prefill.ledger["generation"] + 1
    prefill.faults(slow_start=8)
    controller = start_co_restart()
    wait_for("the prefill starts", begun(prefill, generation, "started"))
    with without_network("box2"):
        assert controller.end() != 0
    assert "UNREACHABLE" in controller.output
    assert "cluster main: FAILED" in controller.output, controller.output
    assert main.incarnations("router") == router, "the router was not touched"
    prefill.faults()
    done = co_restart()
    assert done.rc == 0, done
    main.assert_started_in_order()
    main.assert_serves(requests=2)


def test_R7_of_two_co_restarts_one_wins_and_the_other_names_it(main, start_co_restart, co_restart):
    prefill = main.one("prefill")
    generation = prefill.ledger["generation"] + 1
    prefill.faults(slow_start=6)
    first = start_co_restart(purpose="nightly")
    wait_for("the first run is at work", begun(prefill, generation, "stopping", "stopped", "starting", "started"))
    second = co_restart()
    assert second.rc != 0
    assert "cluster main is locked by" in second.stdout, second
    assert f"pid {first.pid} (nightly, run" in second.stdout, "owner, purpose and run are named"
    assert first.runs, "the second failed at once"
    assert first.end() == 0, first.output
    prefill.faults()
    assert {member.ledger["generation"] for member in main.members} == {generation}
    main.assert_started_in_order()


def test_R7_two_co_restarts_that_start_at_the_same_time(main, start_co_restart):
    before = main.incarnations()
    prefill = main.one("prefill")
    generation = prefill.ledger["generation"] + 1
    prefill.faults(slow_start=6)
    runs = [start_co_restart(purpose=purpose) for purpose in ("red", "green")]
    codes = [run.end() for run in runs]
    assert sorted(code == 0 for code in codes) == [False, True], [run.output for run in runs]
    winner, loser = sorted(runs, key=lambda run: run.end() != 0)
    assert "cluster main is locked by" in loser.output and f"pid {winner.pid} (" in loser.output, loser.output
    assert {member.ledger["generation"] for member in main.members} == {generation}, "exactly one new generation"
    assert {member.ledger["outcome"] for member in main.members} == {"ok"}
    after = main.incarnations()
    assert all(after[name] != before[name] for name in after)
    main.assert_started_in_order()
    assert not locked(main)


FOREIGN = {
    "id": "20260101T000000Z-abcdef",
    "owner": "ops@elsewhere pid 4711",
    "purpose": "rollout",
    "controller": "elsewhere 1234 pid:[1]",
    "pid": 4711,
    "pid_started": "1",
}


def test_R7_a_lock_of_another_controller_is_respected_until_its_deadline(main, co_restart, lock):
    before = main.incarnations()
    lock(main, FOREIGN, 300)
    refused = co_restart()
    assert refused.rc != 0
    assert "cluster main is locked by ops@elsewhere pid 4711 (rollout, run 20260101T000000Z-abcdef)" in refused.stdout
    assert "pd_co_restart_take_over=" in refused.stdout, "the command that helps"
    assert main.incarnations() == before


def test_R7_a_lock_past_its_deadline_is_taken_over_with_a_message(main, co_restart, lock):
    lock(main, FOREIGN, -10)
    done = co_restart()
    assert done.rc == 0, done
    assert "lock of ops@elsewhere pid 4711" in done.stdout and "its deadline passed" in done.stdout, done


def test_R7_a_lock_is_taken_over_on_demand(main, co_restart, lock):
    lock(main, FOREIGN, 300)
    done = co_restart(take_over="their machine burnt down")
    assert done.rc == 0, done
    assert "taken over: their machine burnt down" in done.stdout
    assert not locked(main)
