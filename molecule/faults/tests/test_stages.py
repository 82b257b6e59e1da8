# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A member that does not come up stops its cluster at its stage, at once, and says why."""

from __future__ import annotations

import pytest
from conftest import locked

PREFILL = "sglang-main-prefill.service on box1"
DECODE = "sglang-main-decode.service on box2"
AGAIN = "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters=main"


@pytest.fixture
def untouched(main):
    """Assert that decode and router run on as they were."""
    before = main.incarnations("decode", "router")

    def check(done):
        assert done.rc != 0
        assert "cluster main: FAILED" in done.stdout, done
        assert "The cluster is half-restarted" in done.stdout and AGAIN in done.stdout, done
        assert "healthy in this generation: none" in done.stdout, done
        assert main.incarnations("decode", "router") == before
        assert all(main.one(role).is_active for role in ("decode", "router"))
        assert not locked(main)
        ledger = main.one("prefill").ledger
        assert ledger["outcome"] == "failed" and PREFILL in ledger["reason"], ledger

    return check


def assert_failed_before_its_limit(prefill):
    """The failure came from the unit, not from the limit; compared with the limit itself."""
    ledger = prefill.ledger
    assert ledger["ended_at"] - ledger["began_at"] < prefill.description["healthy_limit_seconds"] / 2, ledger


def test_R4_prefill_crashes_at_start(main, untouched, co_restart):
    prefill = main.one("prefill")
    prefill.faults(crash_at_start={"exit_code": 7, "message": "CUDA out of memory. Tried to allocate 20 GiB"})
    done = co_restart()
    untouched(done)
    assert f"{PREFILL}: the unit failed (result exit-code, exit status 7)" in done.stdout, done
    journal = done.stdout[done.stdout.index("journal:") :]
    assert "CUDA out of memory. Tried to allocate 20 GiB" in journal
    assert_failed_before_its_limit(prefill)


def test_R4_prefill_with_a_flag_that_its_sglang_does_not_know(main, untouched, co_restart, drop_in):
    prefill = main.one("prefill")
    # Behind the back of the collection, which asks the engine about what it deploys itself.
    python = prefill.description["exec_start"][0]
    drop_in(prefill, f"ExecStart=\\nExecStart={python} -m sglang.launch_server --model-path m --no-such-flag 1")
    done = co_restart()
    untouched(done)
    assert f"{PREFILL}: the unit failed (result exit-code, exit status 2)" in done.stdout, done
    assert "unrecognized arguments: --no-such-flag 1" in done.stdout, done
    assert_failed_before_its_limit(prefill)


def test_R4_crash_loop_of_a_unit_that_restarts_itself(main, untouched, co_restart, drop_in):
    prefill = main.one("prefill")
    drop_in(prefill, "Restart=always\nRestartSec=100ms")
    prefill.faults(crash_at_start=True)
    done = co_restart()
    untouched(done)
    assert f"{PREFILL} has Restart=always: each automatic restart is a lone restart" in done.stdout, done
    assert "crash loop" in done.stdout or "the unit failed (result" in done.stdout, done
    assert_failed_before_its_limit(prefill)


def test_R4_prefill_hangs_at_start(main, untouched, co_restart, healthy_limit):
    prefill = main.one("prefill")
    healthy_limit(prefill, 6)
    prefill.faults(hang_at_start=True)
    done = co_restart()
    untouched(done)
    assert f"{PREFILL}: not healthy after 6 s (limit 6 s): port 30000: not open yet" in done.stdout, done
    assert "waiting for sglang-main-prefill.service (port 30000: not open yet" in done.stdout, "progress is shown"


def test_R5_decode_fails_after_the_prefill_restarted(main, co_restart):
    before = main.incarnations()
    main.one("decode").faults(crash_at_start=True)
    failed = co_restart()
    assert failed.rc != 0
    assert f"{DECODE}: the unit failed (result exit-code, exit status 1)" in failed.stdout, failed
    assert "The cluster is half-restarted" in failed.stdout and AGAIN in failed.stdout
    assert "healthy in this generation: sglang-main-prefill.service" in failed.stdout
    assert main.incarnations("router") == {k: v for k, v in before.items() if "router" in k}
    half = main.incarnations()
    assert half["box1 sglang-main-prefill.service"] != before["box1 sglang-main-prefill.service"]
    assert {main.one(role).ledger["outcome"] for role in ("prefill", "decode")} == {"failed"}
    assert not main.ask(limit_seconds=3), "nothing is served by half a cluster"

    main.one("decode").faults()
    healed = co_restart()
    assert healed.rc == 0, healed
    assert "resumes" not in healed.stdout
    after = main.incarnations()
    assert all(after[name] not in (half[name], before[name]) for name in after), "the whole chain started again"
    main.assert_started_in_order()
    main.assert_serves(requests=2)
