# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changed settings: what runs is compared with what should run, and bad input ends before anything is stopped."""

from __future__ import annotations

import pytest
from cluster import SMALL_LIMITS


@pytest.fixture
def dsv4(cluster):
    return cluster("dsv4")


def test_S6_a_change_whose_notification_was_lost_is_still_due(dsv4, run_playbook):
    """The change is deployed in one run that then dies; the next run notifies nobody and finds it all the same."""
    whole = {**SMALL_LIMITS, "pd_co_restart_when": "when_due"}
    assert run_playbook("co_restart", extra_vars=whole).rc == 0
    before = dsv4.incarnations()
    changed = {"pd_engine_target_ctas": 256}
    assert run_playbook("deploy", extra_vars=changed).rc == 0
    again = run_playbook("deploy", extra_vars=changed)
    assert "changed=0" in again.stdout, again
    assert "a co-restart is due: sglang-dsv4-prefill.service on box1 runs configuration" in again.stdout, again
    assert dsv4.incarnations() == before, "roles restart nothing"

    done = run_playbook("co_restart", extra_vars=whole)
    assert done.rc == 0, done
    dsv4.assert_started_in_order()
    environment = dsv4.one("decode").shown("Environment")["Environment"]
    assert "TARGET_CTAS=256" in environment
    nothing = run_playbook("co_restart", extra_vars=whole)
    assert "nothing to do, everything runs as it should" in nothing.stdout, nothing
    assert run_playbook("deploy").rc == 0
    assert run_playbook("co_restart", extra_vars=whole).rc == 0


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"pd_decode_cuda_graph_max_bs": 96}, ["pd_decode_cuda_graph_max_bs", "pd_decode_settings.cuda_graph_max_bs"]),
        ({"pd_engine_targt_ctas": 1}, ["pd_engine_targt_ctas", "pd_engine_target_ctas", "box1"]),
        ({"pd_router_port": 30000}, ["port 30000", "a port once per host", "box1", "pd_router_port"]),
        ({"pd_decode_settings": {"page_size": 64}}, ["page_size", "prefill and decode agree", "sglang-dsv4-decode"]),
        ({"pd_prefill_gpus": [0, 1], "pd_decode_gpus": [1, 2]}, ["GPU 1", "a GPU once", "box1"]),
        ({"pd_prefill_gpus": [0], "pd_engine_tp_size": 4}, ["tp_size 4", "pd_prefill_gpus", "box1"]),
        ({"pd_cluster": ""}, ["pd_cluster", "box1"]),
        ({"pd_engine_model_path": ""}, ["pd_engine_model_path", "box1"]),
        ({"pd_engine_extra_args": ["--tp-size", "2"]}, ["--tp-size", "every flag once", "box1"]),
        ({"pd_engine_extra_args": ["--tp", "2"]}, ["--tp is an abbreviation", "box1"]),
        ({"pd_engine_extra_args": ["--foo", "1", "--foo", "2"]}, ["--foo is given twice", "box1"]),
        ({"pd_engine_extra_args": ["--api-key", "x"]}, ["--api-key", "box1"]),
        ({"pd_engine_stop_timeout_seconds": "soon"}, ["pd_engine_stop_timeout_seconds"]),
        ({"pd_engine_transfer_backend": "pigeon"}, ["pd_engine_transfer_backend", "nixl"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_ends_before_anything_is_written(dsv4, run_playbook, variables, expected):
    before = dsv4.incarnations()
    files = "find /etc/sglang-pd /etc/systemd/system -type f -exec sha256sum {} + | sort"
    box = dsv4.one("prefill").on
    written = box.check_output(files)
    done = run_playbook("deploy", extra_vars=variables)
    assert done.rc != 0, done
    for words in expected:
        assert words in done.stdout + done.stderr, (words, str(done))
    assert "Traceback" not in done.stdout + done.stderr
    assert (box.check_output(files), dsv4.incarnations()) == (written, before)


def test_missing_group_is_named(dsv4, run_playbook, tmp_path):
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "all: {children: {pd_prefill: {hosts: {box9: {pd_cluster: lame, ansible_connection: local}}},\n"
        "                 pd_router: {hosts: {box9: }}}}\n"
    )
    done = run_playbook("deploy", "--limit", "box9", "-i", str(inventory))
    assert done.rc != 0
    assert "cluster lame has no decode: no host with pd_cluster lame is in group pd_decode" in done.stdout, done
