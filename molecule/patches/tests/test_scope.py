# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest set of stages that may be restarted, and what follows where it was too small."""

from __future__ import annotations

import pytest

NEW = "0.5.23"
SITE = f"/opt/sglang-pd/sglang-{NEW}/lib/python3*/site-packages"
OPTED_IN = {"pd_co_restart_decode_alone": True}


@pytest.fixture
def due(run_playbook):
    """Co-restart what is due, in the smallest scope."""

    def run(*args: str, **variables: object):
        fast = {"pd_co_restart_verify": "none", "pd_co_restart_requests": 2, "pd_co_restart_request_limit_seconds": 5}
        when = {"pd_co_restart_when": "when_due", "pd_co_restart_settle_limit_seconds": 10}
        return run_playbook("co_restart", *args, extra_vars={**fast, **when, **variables})

    return run


@pytest.fixture
def with_nixl(main, deploy, due):
    """Cluster main with a version of engine and transfer that is known to heal, in good order."""
    box = main.one("decode").on
    if not box.file(f"/opt/sglang-pd/sglang-{NEW}").exists:
        assert deploy(pd_engine_sglang_version=NEW).rc == 0
    # The stand-in needs no NIXL; what counts is which one is installed beside it.
    box.check_output(
        f"cd {SITE} && mkdir -p nixl-1.4.0.dist-info && "
        "printf 'Metadata-Version: 2.1\\nName: nixl\\nVersion: 1.4.0\\n' >nixl-1.4.0.dist-info/METADATA"
    )
    done = deploy(pd_engine_sglang_version=NEW)
    assert done.rc == 0, done
    assert due().rc == 0
    assert main.one("decode").description["transfer_version"] in ("", "1.4.0")
    yield main
    box.check_output(f"rm -rf {SITE}/nixl-1.4.0.dist-info")


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Units that have another incarnation."""
    return {name.split()[1] for name in before if before[name] != after[name]}


ROUTER = "sglang-main-router.service"
DECODE = "sglang-main-decode.service"
PREFILL = "sglang-main-prefill.service"


def test_router_settings_restart_the_router_alone(main, deploy, due):
    before = main.incarnations()
    assert deploy(pd_router_retry_max_retries=2).rc == 0
    done = due()
    assert done.rc == 0, done
    assert "scope    router alone: only routers are due, and they hold no end of a transfer channel" in done.stdout
    assert changed(before, main.incarnations()) == {ROUTER}
    nothing = due()
    assert "nothing to do" in nothing.stdout, nothing


def test_R2_a_decode_setting_restarts_the_whole_chain_and_the_plan_says_why(main, deploy, due):
    before = main.incarnations()
    assert deploy(pd_decode_settings={"target_ctas": 77}).rc == 0
    planned = due("--check")
    assert "scope    whole chain: a decode never restarts without its prefills (rule 1)" in planned.stdout, planned
    assert "the cluster has not opted in (pd_co_restart_decode_alone)" in planned.stdout
    opted_in = due("--check", **OPTED_IN)
    assert f"not known to heal: {PREFILL} is sglang 0.5.16 with nixl of unknown version" in opted_in.stdout, opted_in
    assert main.incarnations() == before
    done = due(**OPTED_IN)
    assert done.rc == 0, done
    assert changed(before, main.incarnations()) == {PREFILL, DECODE, ROUTER}
    main.assert_started_in_order()


def test_a_decode_setting_restarts_decode_and_router_where_the_cluster_opted_in_and_versions_heal(
    with_nixl, deploy, due
):
    before = with_nixl.incarnations()
    assert deploy(pd_engine_sglang_version=NEW, pd_decode_settings={"target_ctas": 77}).rc == 0
    done = due(**OPTED_IN)
    assert done.rc == 0, done
    assert "scope    decode and router alone: the cluster opted in" in done.stdout, done
    assert "8/8 requests answered" in done.stdout, "the proof is never less than that"
    assert changed(before, with_nixl.incarnations()) == {DECODE, ROUTER}
    assert "TARGET_CTAS=77" in with_nixl.one("decode").shown("Environment")["Environment"]
    with_nixl.assert_serves()
    assert "nothing to do" in due().stdout


def test_R1_a_decode_alone_that_fails_its_proof_gets_the_whole_chain_at_once(with_nixl, deploy, due):
    """The versions say that they heal, and the stack does not: the first lone restart breaks the transfers."""
    old = {"STAND_IN_STACK": "old", "STAND_IN_DECODE_RESTARTS_TOLERATED": "0"}
    assert deploy(pd_engine_sglang_version=NEW, pd_engine_extra_env=old).rc == 0
    assert due().rc == 0
    assert with_nixl.ask(limit_seconds=5)
    before, generation = with_nixl.incarnations(), with_nixl.one("decode").ledger["generation"]
    changes = {"pd_engine_extra_env": old, "pd_decode_settings": {"target_ctas": 77}}
    assert deploy(pd_engine_sglang_version=NEW, **changes).rc == 0

    done = due(**OPTED_IN)

    assert done.rc == 0, done
    assert "next     widen: decode and router alone failed its proof" in done.stdout, done
    assert "cluster main: OK, with a WARNING: decode and router alone failed its proof" in done.stdout, done
    assert changed(before, with_nixl.incarnations()) == {PREFILL, DECODE, ROUTER}
    with_nixl.assert_started_in_order()
    ledger = with_nixl.one("decode").ledger
    assert (ledger["outcome"], ledger["generation"]) == ("ok", generation + 2)
    assert ledger["history"][-1]["scope"] == "decode and router alone"
    with_nixl.assert_serves()
