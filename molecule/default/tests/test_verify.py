# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verification on a host: what it says before it sends anything."""

from __future__ import annotations

import pytest


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
