# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two prefill engines, one of them over two hosts, three decodes and two routers over seven hosts."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def large(cluster):
    found = cluster("large")
    found.clear_faults()
    return found


def test_deployed_members(large):
    assert [(m.host, m.unit) for role in ("prefill", "decode", "router") for m in large.of(role)] == [
        ("prefill1", "sglang-large-prefill.service"),
        ("prefill2a", "sglang-large-prefill-rank0.service"),
        ("prefill2b", "sglang-large-prefill-rank1.service"),
        ("decode1", "sglang-large-decode.service"),
        ("decode2", "sglang-large-decode-first.service"),
        ("decode2", "sglang-large-decode-second.service"),
        ("router1", "sglang-large-router.service"),
        ("router2", "sglang-large-router.service"),
    ]
    assert all(member.is_active for member in large.members)


def test_first_deploy_started_in_order(large):
    large.assert_started_in_order()
    assert {member.ledger["generation"] for member in large.members} == {1}


def test_hosts_of_a_cluster_over_several_hosts_start_nothing_at_boot(large):
    """A host that reboots alone would restart its engines alone."""
    for member in large.members:
        assert not member.on.service(member.unit).is_enabled, member.unit


def test_every_router_knows_every_engine(large):
    engines = {m.description["url"] for m in large.members if m.role != "router" and m.description["node_rank"] == 0}
    for router in large.of("router"):
        workers = json.loads(router.get("/workers"))["workers"]
        assert {worker["url"] for worker in workers} == engines
        large.assert_serves(router, requests=6)


def test_R15_stages_gate_on_all_their_members(large, run_playbook):
    before = large.incarnations()
    done = run_playbook("co_restart")
    assert done.rc == 0, done
    after = large.incarnations()
    assert all(after[name] != before[name] for name in before), "every member restarted"
    large.assert_started_in_order()
    healthy = {role: [member.ledger["healthy_at"] for member in large.of(role)] for role in ("prefill", "decode")}
    begun = {role: [member.ledger["began_at"] for member in large.of(role)] for role in ("decode", "router")}
    assert max(healthy["prefill"]) <= min(begun["decode"]), "no decode was touched before the last prefill was healthy"
    assert max(healthy["decode"]) <= min(begun["router"])
    for router in large.of("router"):
        large.assert_serves(router, requests=6)


def test_R14_rank_0_stops_first_and_all_ranks_start_together(large, run_playbook):
    """A rank above 0 ignores SIGTERM until rank 0 tells it to end."""
    ranks = [m for m in large.of("prefill") if m.description["nnodes"] == 2]
    assert [m.description["node_rank"] for m in ranks] == [0, 1]
    done = run_playbook("co_restart")
    assert done.rc == 0, done
    for rank in ranks:
        assert rank.ledger["outcome"] == "ok"
        journal = rank.on.check_output(f"journalctl --unit {rank.unit} --output=cat --no-pager --lines=200")
        assert "SIGKILL" not in journal, "rank 1 was told to end by rank 0, not killed at the timeout"
    stop = {rank.host: rank.ledger["began_at"] for rank in ranks}
    assert stop["prefill2a"] < stop["prefill2b"], "rank 0 first"


def test_R14_health_of_a_rank_above_0_is_no_evidence(large, run_playbook):
    """Rank 1 answers 200 at once; the stage waits for rank 0, and fails with it."""
    rank0, rank1 = [m for m in large.of("prefill") if m.description["nnodes"] == 2]
    decodes = large.incarnations("decode", "router")
    rank0.faults(crash_at_start={"exit_code": 7})
    done = run_playbook("co_restart")
    assert done.rc != 0
    assert f"{rank0.unit} on prefill2a" in done.stdout and "exit status 7" in done.stdout, done
    assert large.incarnations("decode", "router") == decodes, "R4: later stages were not touched"
    assert rank0.ledger["outcome"] == "failed"

    rank0.faults()
    done = run_playbook("co_restart")
    assert done.rc == 0, done
    large.assert_started_in_order()
    assert rank1.is_active


def test_R15_one_failing_member_stops_the_cluster(large, run_playbook):
    routers = large.incarnations("router")
    second = next(m for m in large.of("decode") if m.unit == "sglang-large-decode-second.service")
    second.faults(crash_at_start={"exit_code": 9})
    done = run_playbook("co_restart")
    assert done.rc != 0
    assert "sglang-large-decode-second.service on decode2: the unit failed" in done.stdout, done
    assert "healthy in this generation: sglang-large-prefill" in done.stdout, done
    assert large.incarnations("router") == routers, "the routers were not touched"
    assert second.ledger["outcome"] == "failed"

    second.faults()
    before = large.incarnations("prefill")
    done = run_playbook("co_restart")
    assert done.rc == 0, done
    after = large.incarnations("prefill")
    assert all(after[name] != before[name] for name in before), "the whole chain starts again"
    large.assert_started_in_order()
    large.assert_serves()


@pytest.mark.parametrize("limit", ["decode1", "pd_decode", "!prefill2b"])
def test_R2_a_limit_that_cuts_the_cluster_is_refused(large, run_playbook, limit):
    before = large.incarnations()
    done = run_playbook("co_restart", limit=limit)
    assert done.rc != 0
    assert "cluster large is only partly in this run" in done.stdout, done
    assert "prefill2b" in done.stdout
    assert large.incarnations() == before


def test_second_deploy_restarts_nothing(large, run_playbook):
    before = large.incarnations()
    done = run_playbook("deploy")
    assert done.rc == 0, done
    assert large.incarnations() == before
