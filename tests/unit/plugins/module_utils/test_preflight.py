# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host finds wrong with a member that shall run on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _preflight, _topology

from ..fleet import deployed_decode

RECORDED = Path(__file__).resolve().parents[3] / "recorded" / "options"
LIMITS = {"/dev/shm": 1024}


def member(version: str = "0.5.23", **given: Any) -> dict[str, Any]:
    """A decode as its host keeps it, with an API key."""
    return deployed_decode({"api-key": "k"}, version=version, **given)


def found(version: str = "0.5.23", **given: Any) -> dict[str, Any]:
    """What was found on a host where nothing is wrong."""
    return {
        "options": json.loads((RECORDED / f"sglang-{version}.json").read_text()),
        "told": "",
        "readers": {},
        "searched": "/opt/v/lib",
        "listeners": [],
        "gpus": None,
        "free_bytes": {"/dev/shm": 4096},
        "model_error": "",
        "locked_memory": "infinity",
        **given,
    }


def problems(one: dict[str, Any], on: dict[str, Any]) -> list[str]:
    """Problems as lines for people."""
    judged = _preflight.inspect(one, on, LIMITS)["problems"]
    return [_topology.describe_problem(item) for item in judged]


@pytest.mark.parametrize("version", ["0.5.10", "0.5.16", "0.5.18", "0.5.20", "0.5.23"])
def test_S1_the_founding_settings_pass_on_every_recorded_release(version: str) -> None:
    settings = {"cuda_graph_max_bs": 96, "disable_overlap_schedule": True, "multi_stream_overlap": False}
    assert problems(member(version, settings=settings), found(version)) == []


def test_S1_a_refusal_names_option_variable_release_and_suggestion() -> None:
    (said,) = problems(member(extra_args=["--mem-fraction", "0.8"]), found())
    assert said == (
        "--mem-fraction is an abbreviation of --mem-fraction-static: write it in full, says sglang 0.5.23 "
        "(/opt/v/bin/python) (host box1, variable pd_engine_extra_args or pd_decode_extra_args) "
        "[rule: known to the installed program]"
    )


def test_S1_a_setting_with_a_wrong_value_is_named_by_its_variable() -> None:
    (said,) = problems(member(settings={"attention_backend": "flashinfre"}), found())
    assert "--attention-backend takes one of" in said
    assert "not 'flashinfre'; did you mean flashinfer?" in said
    assert "variable pd_engine_attention_backend or pd_decode_settings.attention_backend" in said


def test_S1_an_engine_too_old_for_what_the_collection_needs() -> None:
    options = [option for option in found()["options"] if "--extra-metric-labels" not in option["names"]]
    (said,) = problems(member(), found(options=options))
    assert "--extra-metric-labels is unknown" in said
    assert "variable pd_engine_sglang_version" in said


def test_secret_arguments_are_known_to_the_engine() -> None:
    one = dict(member(), secret_names=["api-key", "admin-api-kee"])
    (said,) = problems(one, found())
    assert "--admin-api-kee is unknown; did you mean --admin-api-key?" in said
    assert "variable pd_engine_secret_args" in said


def test_an_engine_that_cannot_be_asked_is_told_with_its_own_words() -> None:
    (said,) = problems(member(), found(options=None, told="ImportError: libcuda.so.1"))
    assert "does not come as far as its command line: ImportError: libcuda.so.1" in said
    assert "/opt/v/bin/python -m sglang.launch_server --help" in said


def test_what_check_mode_finds_not_installed_yet_is_no_problem() -> None:
    assert problems(member(), found(options=None, told="")) == []


def test_S4_a_variable_that_nothing_reads_is_inert_and_not_refused() -> None:
    one = member(settings={"target_ctas": 512}, extra_env={"SGLANG_X": 1, "CUDA_LAUNCH_BLOCKING": 1})
    assert "CUDA_LAUNCH_BLOCKING" not in _preflight.variables_to_look_for(one)
    judged = _preflight.inspect(one, found(readers={"TARGET_CTAS": "", "SGLANG_X": "/f.py"}), LIMITS)
    assert judged["problems"] == []
    assert judged["inert"] == ["TARGET_CTAS"]
    assert judged["warnings"] == [
        "sglang-c-decode.service on box1: TARGET_CTAS (pd_engine_target_ctas or pd_decode_settings.target_ctas) is "
        "inert, nothing in /opt/v/lib reads it"
    ]


@pytest.mark.parametrize(
    ("one", "on", "message"),
    [
        ({"gpus": [0, 8]}, {"gpus": 8}, "sglang-c-decode.service is given GPU 8, the host has 8"),
        ({}, {"free_bytes": {"/dev/shm": 0}}, "/dev/shm has 0.00 GiB left"),
        ({}, {"model_error": "sglang cannot read the model"}, "sglang cannot read the model"),
        ({}, {"locked_memory": "8388608"}, "may lock 8388608 bytes only"),
        (
            {},
            {"listeners": [{"port": 30002, "pid": 7, "command": "nc -l", "unit": ""}]},
            "port 30002 of sglang-c-decode.service is held by pid 7 (nc -l): end that process",
        ),
    ],
)
def test_S9_and_others_what_the_machine_has_not(one: dict[str, Any], on: dict[str, Any], message: str) -> None:
    (said,) = problems(member(**one), found(**on))
    assert message in said


def test_R11_a_port_that_sshd_holds_names_the_variable_before_anybody_stops_sshd() -> None:
    sshd = {"port": 30002, "pid": 39, "command": "sshd", "unit": "ssh.service"}
    item = _preflight.problem_of_port(member(), sshd)
    assert item["variable"] == "pd_decode_port"
    assert ": give this one another port, or stop that unit, systemctl disable --now ssh.service" in item["message"]


def test_what_is_not_known_of_the_machine_is_no_problem() -> None:
    assert problems(member(gpus=[0, 8]), found(free_bytes={}, locked_memory="")) == []


def test_S3_problems_that_may_be_accepted_are_accepted_by_name_only() -> None:
    agree = _topology.problem("prefill and decode agree", "page_size differs")
    ports = _topology.problem("a port once per host", "30000")
    assert _preflight.split([agree, ports], []) == ([agree, ports], [])
    assert _preflight.split([agree, ports], ["prefill and decode agree"]) == ([ports], [agree])
    refused, accepted = _preflight.split([agree, ports], ["a port once per host"])
    assert (refused[1:], accepted) == ([agree, ports], [])
    assert "rule 'a port once per host' cannot be accepted" in refused[0]["message"]
