# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verification on a host: what it proves, what it finds, what it stores, and what it never shows."""

from __future__ import annotations

import json

import pytest

KEY = "canary-key-that-must-show-nowhere"
#: Limits that suit an engine that answers within a second.
QUICK = {"pd_verify_request_limit_seconds": 5, "pd_verify_stall_seconds": 5, "pd_verify_settle_limit_seconds": 20}


@pytest.fixture
def dsv4(cluster):
    found = cluster("dsv4")
    found.clear_faults()
    yield found
    found.clear_faults()


def test_check_mode_says_what_it_would_send_and_sends_nothing(dsv4, run_playbook):
    def prompts() -> str:
        return dsv4.one("prefill").get("/metrics").split("sglang:prompt_tokens_total")[-1].split("\n")[0]

    before = prompts()
    done = run_playbook("verify", "--check", extra_vars={"pd_verify_profile": "stress"})
    assert done.rc == 0, done
    assert "sequential: 8 requests (8 x 24 tokens) through sglang-dsv4-router.service@box1" in done.stdout, done
    assert "aborts: 200 requests" in done.stdout
    assert prompts() == before


def test_H12_stress_passes_is_reported_and_shows_no_key(dsv4, run_playbook, tmp_path):
    assert run_playbook("co_restart").rc == 0
    done = run_playbook(
        "verify",
        "-vvv",
        extra_vars=dict(QUICK, pd_verify_profile="stress", pd_verify_report_dir=str(tmp_path / "reports")),
    )
    assert done.rc == 0, done
    assert "cluster dsv4: OK, profile stress" in done.stdout
    report = json.loads((tmp_path / "reports" / "verify-dsv4.json").read_text())
    good = {part["part"]: (part["good"], part["wanted"]) for part in report["parts"]}
    assert good["sequential"] == (8, 8) and good["agentic"] == (90, 90) and good["concurrent"] == (200, 200)
    assert report["recovery"]["recovered"]
    assert all(one["samples"] for one in report["series"].values())
    page = (tmp_path / "reports" / "verify-dsv4.html").read_text()
    assert "It serves" in page and "All are as the co-restart of generation" in page
    assert KEY not in done.stdout + done.stderr + json.dumps(report) + page
    stored = dsv4.one("router").on.file("/var/lib/sglang-pd/baselines/dsv4.json")
    assert report["revision"] in json.loads(stored.content_string)["revisions"]


def test_a_slower_cluster_is_a_regression_against_its_own_baseline(dsv4, run_playbook):
    assert run_playbook("verify", extra_vars=dict(QUICK, pd_verify_profile="smoke")).rc == 0
    dsv4.one("decode").faults(tokens_per_second=20)
    done = run_playbook("verify", extra_vars=dict(QUICK, pd_verify_profile="smoke"))
    assert done.rc == 0, done
    assert "REGRESSION against this revision" in done.stdout, done
    done = run_playbook("verify", extra_vars=dict(QUICK, pd_verify_profile="smoke", pd_verify_fail_on_regression=True))
    assert done.rc != 0 and "is slower than before" in done.stdout, done


def test_H10_empty_answers_fail_with_status_and_reason(dsv4, run_playbook):
    for role in ("prefill", "decode"):
        dsv4.one(role).faults(answer_empty=True)
    done = run_playbook("verify", extra_vars=dict(QUICK, pd_verify_profile="standard"))
    assert done.rc != 0
    assert "HTTP 200 with an empty text" in done.stdout, done
    assert "not sent: nothing is served" in done.stdout
