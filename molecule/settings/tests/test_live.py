# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether running processes carry what is deployed, as the playbook plan tells it."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def plan(run_playbook):
    """What the playbook says, as words."""

    def run() -> str:
        done = run_playbook("plan")
        assert done.rc == 0, done
        return " ".join(done.stdout.split())

    return run


def test_S4_a_variable_that_nothing_reads_is_written_and_reported_inert(main, deploy, co_restart, plan):
    done = deploy(pd_engine_target_ctas=512)
    assert done.rc == 0
    assert "TARGET_CTAS (pd_engine_target_ctas or pd_decode_settings.target_ctas) is inert" in " ".join(
        (done.stdout + done.stderr).split()
    ), done
    decode = main.one("decode")
    assert 'Environment="TARGET_CTAS=512"' in decode.on.file(f"/etc/systemd/system/{decode.unit}").content_string
    done = co_restart()
    assert done.rc == 0, done
    assert "inert target_ctas (TARGET_CTAS): 512; nothing in the installed environment reads it" in plan()


def test_S5_a_process_that_is_older_than_the_change(main, deploy, co_restart, plan):
    before = main.incarnations()
    done = deploy(pd_engine_disable_overlap_schedule=True, pd_engine_multi_stream_overlap=False)
    assert done.rc == 0 and "a co-restart is due" in done.stdout, done
    said = plan()
    for part in (
        "pending disable_overlap_schedule (--disable-overlap-schedule): nothing runs, true is deployed",
        "pending multi_stream_overlap (SGLANG_OPT_USE_MULTI_STREAM_OVERLAP): nothing runs, 0 is deployed",
        "scope whole chain: sglang-main-prefill.service is due",
    ):
        assert part in said, part
    assert main.incarnations() == before, "plan changes nothing"
    done = co_restart()
    assert done.rc == 0, done
    said = plan()
    assert "pending" not in said and "everything runs as it should" in said, said
    info = json.loads(main.one("decode").get("/server_info"))
    assert info["disable_overlap_schedule"] is True


def test_S5_a_process_that_somebody_started_with_other_values_is_drifted(main, plan):
    decode = main.one("decode")
    directory = f"/run/systemd/system/{decode.unit}.d"
    by_hand = "[Service]\nEnvironment=SGLANG_TIMEOUT_KEEP_ALIVE=5\n"
    decode.on.check_output(f"mkdir -p {directory} && printf %%s %s > {directory}/hand.conf", by_hand)
    decode.on.check_output("systemctl daemon-reload")
    try:
        decode.systemctl("restart")
        said = plan()
    finally:
        decode.on.check_output(f"rm -r {directory} && systemctl daemon-reload")
    assert (
        "drifted keep_alive_seconds (SGLANG_TIMEOUT_KEEP_ALIVE): 5 runs, 75 is deployed; environment of the process; "
        "it was started with 75"
    ) in said
    assert f"{decode.unit} on box1 was restarted outside of a co-restart" in said
