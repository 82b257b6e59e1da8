# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is deployed, what an incarnation was started with, what the process shows."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _live

from ..fleet import deployed_decode

ID = "0123abcd"


def member(settings: dict[str, Any], **given: Any) -> dict[str, Any]:
    """A decode as its host keeps it, without secrets."""
    return deployed_decode({}, settings=settings, **given)


def record(deployed: dict[str, Any], started: dict[str, Any], **shown: Any) -> dict[str, Any]:
    """A running member whose process shows what it was started with, unless told otherwise."""
    words = [word.replace("${INVOCATION_ID}", ID) for word in started["exec_start"]]
    running = {
        "started_with": started,
        "command": words,
        "environment": dict(started["environment"]),
        "private_differs": [],
        "reported": {},
        **shown,
    }
    return {
        "member": deployed,
        "unit": {"active_state": "active", "invocation_id": ID},
        "running_configuration": started["configuration"],
        "running": running,
    }


def states(one: dict[str, Any], inert: list[str] | None = None) -> dict[str, str]:
    """State by setting, of what is not live."""
    return {row["setting"]: row["state"] for row in _live.settings_of(one, inert or []) if row["state"] != _live.LIVE}


def row_of(one: dict[str, Any], setting: str) -> dict[str, Any]:
    """The row of one setting."""
    return next(row for row in _live.settings_of(one, []) if row["setting"] == setting)


OLD = {"cuda_graph_max_bs": 96, "multi_stream_overlap": True}
NEW = {"cuda_graph_max_bs": 96, "multi_stream_overlap": False, "disable_overlap_schedule": True, "target_ctas": 512}


def test_what_was_started_after_the_deployment_is_live() -> None:
    assert states(record(member(NEW), member(NEW))) == {}
    row = row_of(record(member(NEW), member(NEW)), "cuda_graph_max_bs")
    assert (row["carrier"], row["deployed"], row["running"]) == ("--cuda-graph-max-bs-decode", "96", "96")


def test_S5_a_process_older_than_the_change_has_it_pending() -> None:
    one = record(member(NEW), member(OLD))
    assert states(one) == {
        "disable_overlap_schedule": _live.PENDING,
        "multi_stream_overlap": _live.PENDING,
        "target_ctas": _live.PENDING,
    }
    row = row_of(one, "disable_overlap_schedule")
    assert (row["deployed"], row["running"], row["evidence"]) == ("true", "", "deployed after the process was started")


def test_S5_a_setting_that_was_taken_away_is_pending_too() -> None:
    assert states(record(member(OLD), member(NEW)))["target_ctas"] == _live.PENDING


def test_a_process_that_shows_neither_is_drifted() -> None:
    words = [word if word != "96" else "64" for word in member(NEW)["exec_start"]]
    one = record(member(NEW), member(NEW), command=words)
    assert states(one)["cuda_graph_max_bs"] == _live.DRIFTED
    assert row_of(one, "cuda_graph_max_bs")["evidence"] == "command line of the process; it was started with 96"
    assert states(record(member(NEW), member(NEW), environment={}))["target_ctas"] == _live.DRIFTED


def test_an_engine_that_took_another_value_than_it_was_given_is_drifted() -> None:
    one = record(member({"page_size": 1}), member({"page_size": 1}), reported={"page_size": 64})
    assert states(one) == {"page_size": _live.DRIFTED}
    assert row_of(one, "page_size")["evidence"] == "the engine itself says so in /server_info"


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("mem_fraction_static", 0.8, 0.8),
        ("tp_size", 4, 4),
        ("disable_overlap_schedule", True, True),
        ("context_length", "8k", 8192),
        ("served_model_name", "m", "m"),
    ],
)
def test_an_engine_that_repeats_a_value_in_its_own_type_is_live(setting: str, value: Any, said: Any) -> None:
    one = member({setting: value})
    assert states(record(one, one, reported={setting: said})) == {}


def test_S4_what_nothing_reads_is_inert() -> None:
    assert states(record(member(NEW), member(NEW)), ["TARGET_CTAS"]) == {"target_ctas": _live.INERT}
    assert states(record(member(NEW), member(OLD)), ["TARGET_CTAS"])["target_ctas"] == _live.PENDING


def test_a_process_that_shows_nothing_is_judged_by_what_it_was_started_with() -> None:
    hidden = {"command": [], "environment": None}
    assert states(record(member(NEW), member(NEW), **hidden)) == {}
    assert states(record(member(NEW), member(OLD), **hidden))["target_ctas"] == _live.PENDING
    assert states(record(member(NEW), member(NEW), started_with=None, **hidden)) == {}
    assert set(states(record(member(NEW), member(OLD), started_with=None, **hidden)).values()) == {_live.UNKNOWN}


def test_what_does_not_run_is_unknown() -> None:
    one = record(member(NEW), member(NEW))
    one["unit"]["active_state"] = "failed"
    assert set(states(one).values()) == {_live.UNKNOWN}


def test_other_arguments_and_private_variables_are_compared_too() -> None:
    one = record(member(NEW, extra_args=["--sleep-on-idle"]), member(NEW))
    assert states(one) == {"other arguments": _live.PENDING}
    one = record(member(NEW), member(NEW), command=[*member(NEW)["exec_start"], "--sleep-on-idle"])
    assert states(one) == {"other arguments": _live.DRIFTED}
    assert states(record(member(NEW), member(NEW), private_differs=["HF_TOKEN"])) == {"HF_TOKEN": _live.PENDING}


def test_lines_count_what_is_live_and_tell_the_rest() -> None:
    one = record(member(NEW), member(OLD))
    first, *rest = _live.describe(one, _live.settings_of(one, []))
    assert first == "sglang-c-decode.service on box1: 2 settings live"
    assert (
        "  pending  disable_overlap_schedule (--disable-overlap-schedule): nothing runs, true is deployed; "
        "deployed after the process was started"
    ) in rest


def test_values_of_the_private_environment_are_never_shown() -> None:
    one = member(NEW, extra_env={"HF_TOKEN": "t0ken"})
    assert "HF_TOKEN" not in _live.public_names(one)
    assert "TARGET_CTAS" in _live.public_names(one)
