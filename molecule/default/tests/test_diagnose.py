# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnosis of a healthy cluster, of the founding incident, and of a decode that vanished amid transfers."""

from __future__ import annotations

import json
import re
import time

import pytest
from cluster import wait_for

KEY = "canary-key-that-must-show-nowhere"
QUICK = {"pd_verify_request_limit_seconds": 5, "pd_verify_stall_seconds": 5, "pd_verify_settle_limit_seconds": 20}
#: The stand-in takes a peer for vanished that was silent for 2 s (STAND_IN_VANISH_SECONDS).
VANISHED_AFTER_SECONDS = 3
CURL = (
    "curl --silent --fail --output /dev/null --retry 100 --retry-delay 1 --retry-all-errors http://127.0.0.1:{}/health"
)


@pytest.fixture
def dsv4(cluster):
    return cluster("dsv4")


@pytest.fixture
def diagnose(run_playbook):
    """Diagnose with a short look; options without their prefix."""

    def run(**options):
        given = {"pd_diagnose_window_seconds": 6, "pd_diagnose_interval_seconds": 2}
        return run_playbook(
            "diagnose", extra_vars={**given, **{f"pd_diagnose_{name}": value for name, value in options.items()}}
        )

    return run


def judgement(stdout: str) -> str:
    """What a run said of clusters, without what tells that it was judged from a bundle."""
    said = stdout[stdout.index("cluster dsv4:") :]
    return re.split(r"\n(?:ok|fatal): |\nSaved to |\n\[ERROR\]", said)[0]


def failures(prefill) -> int:
    """Failed transfers that a prefill counts."""
    found = re.search(r"^sglang:num_transfer_failed_reqs_total\{.*\} ([0-9.]+)$", prefill.get("/metrics"), re.MULTILINE)
    return int(float(found.group(1))) if found else 0


def restart_alone(decode) -> None:
    decode.systemctl("reset-failed")
    decode.systemctl("restart")
    decode.on.check_output(CURL.format(decode.port))


def test_a_healthy_cluster_is_called_healthy_and_left_alone(dsv4, run_playbook, diagnose, tmp_path):
    assert run_playbook("co_restart").rc == 0
    before = dsv4.incarnations()
    saved = {"save": str(tmp_path / "bundle.tgz"), "report_dir": str(tmp_path)}
    done = diagnose(nudge=True, fail_unless_healthy=True, **saved)
    assert done.rc == 0, done
    assert "All are as the co-restart of generation" in (tmp_path / "diagnose-dsv4.html").read_text()
    assert "cluster dsv4: healthy (certain)" in done.stdout, done
    assert "one request through sglang-dsv4-router.service on box1: answered" in done.stdout
    assert "changed=0" in done.stdout
    assert dsv4.incarnations() == before

    offline = run_playbook("diagnose", extra_vars={"pd_diagnose_bundle": str(tmp_path / "bundle.tgz")})
    assert judgement(offline.stdout) == judgement(done.stdout)
    assert "box1  " not in offline.stdout, "a bundle is judged without a host"


def test_R1_H12_the_founding_incident_fails_verification_and_is_named_until_a_co_restart_heals_it(
    dsv4, run_playbook, diagnose, tmp_path
):
    assert run_playbook("co_restart").rc == 0
    decode = dsv4.one("decode")
    for _ in range(5):
        wait_for("the cluster serves between the restarts", lambda: dsv4.ask(key=KEY))
        restart_alone(decode)
    # Green everywhere, and nobody is served. The router may not use the new decode at once.
    failed = failures(dsv4.one("prefill"))
    wait_for(
        "two transfers have failed",
        lambda: not dsv4.ask(key=KEY, limit_seconds=3) and failures(dsv4.one("prefill")) >= failed + 2,
    )

    not_proved = run_playbook("verify", extra_vars={**QUICK, "pd_verify_profile": "smoke"})
    assert not_proved.rc != 0, not_proved
    assert "sequential: 2 of 8 requests were not served" in not_proved.stdout, not_proved
    assert "nothing within 5 s" in not_proved.stdout, not_proved

    done = diagnose(hunch="overlap schedule", save=str(tmp_path / "bundle"), fail_unless_healthy=True)
    assert done.rc != 0
    for words in (
        "NOT WELL: decode was restarted alone against a prefill that kept running (certain)",
        "6 starts of it since then",
        "has served no request since its start; num_transfer_failed_reqs_total: prefill ",
        "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters=dsv4",
        "the overlap schedule is disabled in every running engine",
        "kv_path_wedged: no decode was killed",
    ):
        assert words in " ".join(done.stdout.split()), (words, str(done))
    files = list((tmp_path / "bundle").iterdir())
    assert {"metrics", "v1_loads", "server_info", "workers", "journal"} <= {
        file.name.rsplit("__", 1)[1].removesuffix(".txt") for file in files
    }
    assert not [file.name for file in files if KEY in file.read_text()]
    assert KEY not in done.stdout + done.stderr
    offline = run_playbook(
        "diagnose", extra_vars={"pd_diagnose_bundle": str(tmp_path / "bundle"), "pd_diagnose_hunch": "overlap schedule"}
    )
    assert offline.rc == 0, "to report is no failure"
    assert judgement(offline.stdout) == judgement(done.stdout)

    healed = run_playbook("co_restart", extra_vars={"pd_co_restart_drain_stall_seconds": 3})
    assert healed.rc == 0, healed
    # Its last gate is the verification of every pair.
    assert re.search(r"verify +box1: pairs 4/4 .*; concurrent 32/32 .*; agentic 24/24 ", healed.stdout), healed
    assert run_playbook("verify", extra_vars=QUICK).rc == 0
    assert "cluster dsv4: healthy" in diagnose().stdout


def test_R16_a_decode_that_vanished_amid_transfers_is_told_from_restarts(dsv4, run_playbook, diagnose):
    assert run_playbook("co_restart").rc == 0
    prefill, decode = dsv4.one("prefill"), dsv4.one("decode")
    decode.faults(vanish=True)
    authorization = f"-H 'Authorization: Bearer {KEY}'"
    body = '{"model": "deepseek-v4-flash", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}'
    prefill.on.check_output(
        f"systemd-run --quiet curl --silent --max-time 15 {authorization} -H 'Content-Type: application/json' "
        f"--data %s http://127.0.0.1:{dsv4.one('router').port}/v1/chat/completions",
        body,
    )
    held_since: list[float] = []

    def silent_for_long() -> bool:
        loads = json.loads(prefill.get("/v1/loads", authorization))["loads"]
        if loads[0]["disaggregation"]["prefill_inflight_queue_reqs"]:
            held_since.append(time.monotonic())
        return bool(held_since) and held_since[-1] - held_since[0] > VANISHED_AFTER_SECONDS

    wait_for("the transfer hangs on a peer that is silent", silent_for_long)
    decode.systemctl("kill --signal=KILL")
    decode.faults()
    wait_for("the unit has ended", lambda: not decode.is_active)
    for _ in range(2):  # the second restart is as vain as the first
        restart_alone(decode)
        failed = failures(prefill)
        wait_for(
            "another transfer has failed",
            lambda failed=failed: not dsv4.ask(key=KEY, limit_seconds=3) and failures(prefill) > failed,
        )
    said = " ".join(diagnose().stdout.split())
    assert "NOT WELL: the KV path is wedged at prefill by a decode that vanished amid transfers" in said, said
    assert "sglang-dsv4-decode.service on box1 was ended by signal 9 while prefill ran" in said
    assert run_playbook("co_restart", extra_vars={"pd_co_restart_drain_stall_seconds": 3}).rc == 0
    assert "cluster dsv4: healthy" in diagnose().stdout
