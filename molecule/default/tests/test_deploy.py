# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a deployment leaves on one box."""

from __future__ import annotations

import json

import pytest

KEY = "canary-key-that-must-show-nowhere"
UNITS = {"sglang-dsv4-prefill": 30000, "sglang-dsv4-decode": 30002, "sglang-dsv4-router": 30001}


@pytest.fixture
def box(on):
    return on("box1")


@pytest.fixture
def dsv4(cluster):
    return cluster("dsv4")


def test_first_deploy_starts_prefill_before_decode_before_router(dsv4):
    dsv4.assert_started_in_order()
    assert all(member.ledger["outcome"] == "ok" for member in dsv4.members)
    assert {member.ledger["generation"] for member in dsv4.members} == {1}


def test_units_run_are_enabled_and_listen(box):
    for unit, port in UNITS.items():
        service = box.service(unit)
        assert service.is_running and service.is_enabled, unit
        address = "0.0.0.0" if unit.endswith("router") else "127.0.0.1"
        assert box.socket(f"tcp://{address}:{port}").is_listening, unit
    assert box.socket("tcp://127.0.0.1:8998").is_listening


def test_founding_settings_are_what_the_engines_run(dsv4):
    """TARGET_CTAS 512, cuda-graph-max-bs 96 on decode, overlap schedule and multi-stream overlap off."""
    for role in ("prefill", "decode"):
        member = dsv4.one(role)
        info = json.loads(member.get("/server_info", f"-H 'Authorization: Bearer {KEY}'"))
        assert info["disable_overlap_schedule"] is True
        environment = member.on.check_output(
            "tr '\\0' '\\n' < /proc/%s/environ", member.shown("MainPID")["MainPID"]
        ).splitlines()
        assert "TARGET_CTAS=512" in environment
        assert "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP=0" in environment, "S7: sglang takes 1 and 0"
    words = dsv4.one("decode").shown("ExecStart")["ExecStart"]
    assert "--cuda-graph-max-bs 96" in words, "0.5.16 spells it so"
    assert "--cuda-graph-max-bs" not in dsv4.one("prefill").shown("ExecStart")["ExecStart"]


def test_the_incarnation_is_a_label_of_every_engine_metric(dsv4):
    for role in ("prefill", "decode"):
        member = dsv4.one(role)
        assert f'invocation="{member.incarnation}"' in member.get("/metrics")


def test_no_engine_restarts_by_itself(dsv4):
    for role in ("prefill", "decode"):
        assert dsv4.one(role).shown("Restart")["Restart"] == "no"


def test_unit_limits(dsv4):
    for role in ("prefill", "decode"):
        shown = dsv4.one(role).shown("KillMode", "LimitMEMLOCK", "LimitNOFILE", "TimeoutStopUSec", "User")
        assert shown == {
            "KillMode": "mixed",
            "LimitMEMLOCK": "infinity",
            "LimitNOFILE": "1048576",
            "TimeoutStopUSec": "30s",
            "User": "sglang",
        }


def test_systemd_finds_nothing_wrong_with_the_units(box):
    for unit in UNITS:
        done = box.run(f"systemd-analyze verify /etc/systemd/system/{unit}.service")
        assert done.rc == 0 and unit not in done.stderr, done.stderr


def test_secrets_are_readable_by_root_and_the_service_only(box):
    for unit in UNITS:
        for suffix in ("secrets.yaml", "env"):
            file = box.file(f"/etc/sglang-pd/{unit}.service.{suffix}")
            assert (file.user, file.group, file.mode) == ("root", "sglang", 0o640), file.path
        for path in (f"/etc/systemd/system/{unit}.service", f"/etc/sglang-pd/members/{unit}.service.json"):
            file = box.file(path)
            assert (file.user, file.group, file.mode) == ("root", "root", 0o644), path


def test_stale_metrics_are_wiped_at_every_start(dsv4, run_playbook):
    """PROMETHEUS_MULTIPROC_DIR is never wiped by sglang: series of dead processes would survive."""
    member = dsv4.one("prefill")
    environment = member.shown("Environment")["Environment"]
    directory = f"/run/{member.unit}"
    assert f"PROMETHEUS_MULTIPROC_DIR={directory}" in environment
    member.on.check_output(f"touch {directory}/gauge_livesum_999.db")
    done = run_playbook("co_restart")
    assert done.rc == 0, done
    assert not member.on.file(f"{directory}/gauge_livesum_999.db").exists
    assert member.on.file(directory).is_directory


def test_second_deploy_changes_and_restarts_nothing(dsv4, run_playbook):
    before = dsv4.incarnations()
    done = run_playbook("deploy")
    assert done.rc == 0, done
    assert "changed=0" in done.stdout, done
    assert dsv4.incarnations() == before


def test_check_and_diff_mode_change_nothing(box, dsv4, run_playbook):
    files = "find /etc/sglang-pd /etc/systemd/system /var/lib/sglang-pd -type f -exec sha256sum {} + | sort"
    before = box.check_output(files), dsv4.incarnations()
    done = run_playbook("deploy", "--check", "--diff", extra_vars={"pd_engine_target_ctas": 256})
    assert done.rc == 0, done
    assert '+Environment="TARGET_CTAS=256"' in done.stdout or "+Environment=TARGET_CTAS=256" in done.stdout, done
    done = run_playbook("co_restart", "--check")
    assert done.rc == 0, done
    plan = done.stdout
    positions = [
        plan.index(f"{role:<8} restart  sglang-dsv4-{role}.service") for role in ("prefill", "decode", "router")
    ]
    assert positions == sorted(positions), "the plan names units in their order"
    assert "would stop sglang-dsv4-prefill.service" in plan
    assert (box.check_output(files), dsv4.incarnations()) == before
