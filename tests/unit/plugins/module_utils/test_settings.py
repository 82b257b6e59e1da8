# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings to flags and environment; units to words that systemd reads."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _redact, _settings, _unit


@pytest.mark.parametrize(
    ("version", "flag"),
    [("0.5.16", "--cuda-graph-max-bs"), ("0.5.18", "--cuda-graph-max-bs"), ("0.5.23", "--cuda-graph-max-bs-decode")],
)
def test_S1_the_same_variable_renders_the_flag_of_the_installed_version(version: str, flag: str) -> None:
    arguments, _environment = _settings.render({"cuda_graph_max_bs": 96}, "decode", version)
    assert arguments == [flag, "96"]
    assert _settings.render({"cuda_graph_max_bs": 96}, "prefill", version) == ([], {})


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--tp-size", "2"], "--tp-size is already set"),
        (["--tp-size=2"], "--tp-size is already set"),
        (["--tp", "2"], "--tp is an abbreviation of --tp-size"),
        (["--foo", "1", "--foo", "2"], "--foo is given twice"),
        (["--bar", "1"], ""),
    ],
)
def test_S2_a_flag_that_is_given_twice_is_refused(extra: list[str], message: str) -> None:
    problems = _settings.repeated_flags(["--tp-size", "4"], extra)
    assert problems == [] if not message else message in problems[0]


@pytest.mark.parametrize(
    ("value", "rendered"),
    [(True, "1"), (False, "0"), ("True", "1"), ("on", "1"), ("off", "0"), ("No", "0"), (512, "512"), ("fast", "fast")],
)
def test_S7_booleans_of_the_environment_are_1_and_0(value: Any, rendered: str) -> None:
    assert _settings.environment_value(value) == rendered


def test_founding_settings() -> None:
    settings = {"target_ctas": 512, "disable_overlap_schedule": True, "multi_stream_overlap": False}
    assert _settings.render(settings, "decode", "0.5.23") == (
        ["--disable-overlap-schedule"],
        {"TARGET_CTAS": "512", "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP": "0"},
    )


def test_target_ctas_goes_by_the_name_that_the_build_reads() -> None:
    settings = {"target_ctas": 512, "target_ctas_variable": "SAMPLER_CTAS"}
    assert _settings.render(settings, "decode", "0.5.23") == ([], {"SAMPLER_CTAS": "512"})


def test_unknown_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(_settings.SettingError, match="targt_ctas; did you mean target_ctas"):
        _settings.render({"targt_ctas": 1}, "decode", "0.5.23")


def test_settings_do_not_depend_on_their_type() -> None:
    assert _settings.normal({"tp_size": 4, "page_size": None}) == _settings.normal({"tp_size": "4", "page_size": ""})


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("plain-1.2/x:y=z", "plain-1.2/x:y=z"),
        ("two words", '"two words"'),
        ("50%", '"50%%"'),
        ("$HOME", '"$$HOME"'),
        ('a"b', '"a\\"b"'),
        ("back\\slash", '"back\\\\slash"'),
        ("", '""'),
        ('{"invocation":"${INVOCATION_ID}"}', '"{\\"invocation\\":\\"${INVOCATION_ID}\\"}"'),
    ],
)
def test_words_reach_the_process_unchanged(word: str, quoted: str) -> None:
    assert _unit.systemd_word(word) == quoted


def test_secrets_of_a_foreign_command_line_are_hidden() -> None:
    line = "python -m sglang.launch_server --api-key s3cret --hf-token=abc --max-total-tokens 8192 --tokenizer-path /m"
    assert _redact.redact(line, ()) == (
        "python -m sglang.launch_server --api-key ******** --hf-token=******** --max-total-tokens 8192 "
        "--tokenizer-path /m"
    )
    assert _redact.redact("key is s3cret.", ["s3cret"]) == "key is ********."
