# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a member counts as healthy."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _gate

GOOD = [{"name": "/health", "good": True, "detail": "HTTP 200"}]
BAD = [{"name": "/health", "good": False, "detail": "HTTP 503"}]


def look(
    incarnation: str = "new",
    active: str = "active",
    probes: Any = GOOD,
    same: bool = True,
    exit_status: int = 0,
    job: int = 0,
) -> dict[str, Any]:
    unit = {
        "invocation_id": incarnation,
        "active_state": active,
        "sub_state": "running",
        "result": "exit-code",
        "exit_status": exit_status,
        "job": job,
    }
    return {"unit": unit, "probes": probes, "same_incarnation": same}


def after(*looks: dict[str, Any], limit: float = 100, consecutive: int = 3) -> dict[str, Any]:
    watch = _gate.new_watch("old", 0.0)
    for second, observation in enumerate(looks, 1):
        watch = _gate.observe(watch, observation, float(second), limit, consecutive)
    return watch


def test_three_good_answers_in_a_row_pass() -> None:
    watch = after(look(), look(), look())
    assert watch["outcome"] == _gate.PASSED
    assert (watch["incarnation"], watch["healthy_since"]) == ("new", 1.0)
    assert after(look(), look())["outcome"] == _gate.WAITING


def test_R8_answers_of_the_old_process_do_not_count() -> None:
    assert after(*[look("old")] * 10)["why"] == "still the old incarnation"
    assert after(*[look("old")] * 10, look(), look())["outcome"] == _gate.WAITING


def test_R9_a_crash_between_two_good_answers_resets_the_count() -> None:
    watch = after(look("a"), look("a"), look("b"), look("b"))
    assert (watch["outcome"], watch["good_answers"], watch["incarnation"]) == (_gate.WAITING, 2, "b")
    assert after(look("a"), look("a"), look("b"), look("b"), look("b"))["outcome"] == _gate.PASSED


def test_R9_a_bad_answer_resets_the_count() -> None:
    assert after(look(), look(), look(probes=BAD), look(), look())["outcome"] == _gate.WAITING


def test_R9_an_incarnation_that_changed_while_it_was_probed_does_not_count() -> None:
    assert after(look(), look(), look(same=False))["good_answers"] == 0


def test_R4_a_failed_unit_fails_at_once() -> None:
    watch = after(look(active="failed", exit_status=2), limit=1800)
    assert watch["outcome"] == _gate.FAILED
    assert "exit status 2" in watch["why"]


def test_R4_a_crash_loop_fails_before_the_limit() -> None:
    watch = after(look("a"), look("b"), look("c"), look("d"), limit=1800)
    assert watch["outcome"] == _gate.FAILED
    assert "crash loop" in watch["why"]


def test_the_limit_names_what_was_awaited() -> None:
    watch = after(*[look(probes=BAD)] * 5, limit=5)
    assert watch["outcome"] == _gate.FAILED
    assert watch["why"] == "not healthy after 5 s (limit 5 s): /health: HTTP 503"


def test_a_unit_that_is_activating_is_not_probed_good() -> None:
    assert after(*[look(active="activating")] * 5)["outcome"] == _gate.WAITING


def test_R10_a_start_that_systemd_skipped_fails_at_once() -> None:
    """An unmet condition: no job is left, no new incarnation came, and systemctl said nothing."""
    queued = after(look(incarnation="old", active="inactive", probes=[], job=7))
    assert queued["outcome"] == _gate.WAITING
    skipped = _gate.observe(queued, look(incarnation="old", active="inactive", probes=[]), 2.0, 100, 3)
    assert skipped["outcome"] == _gate.FAILED
    assert "systemd did not start it" in skipped["why"]
