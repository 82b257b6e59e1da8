# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The founding incident, replayed on the transfer stack of that time, and the rule that it taught."""

from __future__ import annotations

import pytest

KEY = "canary-key-that-must-show-nowhere"


@pytest.fixture
def dsv4(cluster):
    return cluster("dsv4")


def test_R1_decode_restarted_alone_five_times_is_healed_by_the_co_restart(dsv4, run_playbook):
    assert run_playbook("co_restart").rc == 0
    decode = dsv4.one("decode")
    for _ in range(5):
        assert dsv4.ask(key=KEY), "the cluster serves between the restarts"
        decode.systemctl("reset-failed")
        decode.systemctl("restart")
        decode.on.check_output(
            "curl --silent --fail --output /dev/null --retry 100 --retry-delay 1 --retry-all-errors "
            f"http://127.0.0.1:{decode.port}/health"
        )
    # Green everywhere, and nobody is served.
    assert not dsv4.ask(key=KEY, limit_seconds=5)
    for member in dsv4.members:
        assert member.is_active
        assert member.get("/health", "--output /dev/null --write-out '%{http_code}'") == "200"
    due = run_playbook("co_restart", "--check", extra_vars={"pd_co_restart_when": "when_due"})
    assert "sglang-dsv4-decode.service on box1 was restarted outside of a co-restart" in due.stdout, due

    done = run_playbook("co_restart", extra_vars={"pd_co_restart_drain_stall_seconds": 3})
    assert done.rc == 0, done
    assert "8/8 requests answered" in done.stdout, done
    dsv4.assert_started_in_order()
    assert all(dsv4.ask(key=KEY) for _ in range(8))


@pytest.mark.parametrize("stages", [["decode"], ["decode", "router"], ["prefill"], ["prefill", "decode"]])
def test_R2_R3_stages_alone_are_refused_with_reason_and_remedy(dsv4, run_playbook, stages):
    before = dsv4.incarnations()
    done = run_playbook("co_restart", extra_vars={"pd_co_restart_stages": stages})
    assert done.rc != 0
    assert "is refused: transfers between it and engines that keep running fail silently" in done.stdout, done
    assert "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters=dsv4" in done.stdout
    assert dsv4.incarnations() == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--start-at-task", "Decode stage - stop, rank 0 first"),
        ("--start-at-task", "Decode stage - start, and wait until every decode is healthy"),
        ("--tags", "decode"),
    ],
    ids=["start-at-stop", "start-at-start", "tags"],
)
def test_R2_no_way_around_through_ansible_options(dsv4, run_playbook, arguments):
    before = dsv4.incarnations("decode")
    run_playbook("co_restart", *arguments)
    assert dsv4.incarnations("decode") == before


def test_R2_no_way_around_through_a_play_of_ones_own(dsv4, run_playbook, tmp_path):
    """Somebody plans for all stages and walks only those of the decode."""
    play = tmp_path / "decode_only.yml"
    play.write_text(
        """
- hosts: box1
  gather_facts: false
  become: true
  tasks:
    - inferops.sglang_pd.member_info:
      register: pd_members
    - inferops.sglang_pd.co_restart_plan:
      run_once: true
      register: pd_plan
    - inferops.sglang_pd.co_restart: {step: lock, plan: "{{ pd_plan }}"}
      register: pd_step_lock
    - inferops.sglang_pd.co_restart: {step: stop_decode, plan: "{{ pd_plan }}"}
      register: pd_step_stop_decode
      ignore_errors: true
    - inferops.sglang_pd.co_restart: {step: unlock, plan: "{{ pd_plan }}"}
"""
    )
    before = dsv4.incarnations()
    done = run_playbook(str(play))
    assert "step stop_decode wants the evidence of step restore from host box1, and there is none" in done.stdout, done
    assert dsv4.incarnations() == before


def test_R2_override_is_explicit_and_recorded(dsv4, run_playbook):
    before = dsv4.incarnations()
    reason = "transfer stack proved to heal"
    done = run_playbook(
        "co_restart",
        extra_vars={"pd_co_restart_stages": ["decode", "router"], "pd_co_restart_override": reason},
    )
    assert done.rc == 0, done
    assert f"OVERRIDE of rule 1, recorded on the hosts: {reason}" in done.stdout
    after = dsv4.incarnations()
    changed = {name.split()[1] for name in before if before[name] != after[name]}
    assert changed == {"sglang-dsv4-decode.service", "sglang-dsv4-router.service"}
    assert dsv4.one("decode").ledger["override"] == reason


def test_router_alone_may_restart(dsv4, run_playbook):
    assert run_playbook("co_restart").rc == 0
    before = dsv4.incarnations()
    done = run_playbook("co_restart", extra_vars={"pd_co_restart_stages": ["router"]})
    assert done.rc == 0, done
    after = dsv4.incarnations()
    assert {name.split()[1] for name in before if before[name] != after[name]} == {"sglang-dsv4-router.service"}
    due = run_playbook("co_restart", extra_vars={"pd_co_restart_when": "when_due"})
    assert due.rc == 0 and "nothing to do" in due.stdout, due


def test_reboot_starts_the_stages_in_order(dsv4, hosts_command, on):
    """On one box the units start at boot, decode after a healthy prefill, router after both."""
    from cluster import wait_for

    hosts_command("restart", "box1")
    wait_for("the router is active again", lambda: dsv4.one("router").is_active)
    dsv4.assert_started_in_order()
    wait_for("requests are served", lambda: dsv4.ask(key=KEY))
