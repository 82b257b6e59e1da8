# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Argument lists against the options that real releases told of themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _options, _settings

TESTS = Path(__file__).resolve().parents[3]
RECORDED = TESTS / "recorded" / "options"
#: Added to the engine's parser by a plugin of smg-grpc-servicer, which the stand-in has not.
OF_PLUGINS = {"--metrics-host", "--metrics-port", "--servicer-impl"}


def options_of(release: str) -> list[dict[str, Any]]:
    """Options that a release's own parser has."""
    return list(json.loads((RECORDED / f"{release}.json").read_text()))


def judge(release: str, *words: str) -> list[str]:
    """Messages for an argument list."""
    return [item["message"] for item in _options.problems_of(list(words), options_of(release))]


@pytest.mark.parametrize("release", ["sglang-0.5.10", "sglang-0.5.16", "sglang-0.5.18"])
def test_S1_the_old_spelling_is_known_to_old_engines(release: str) -> None:
    assert judge(release, "--cuda-graph-max-bs", "96") == []


@pytest.mark.parametrize("release", ["sglang-0.5.20", "sglang-0.5.23"])
def test_S1_the_old_spelling_is_ambiguous_on_new_engines(release: str) -> None:
    (message,) = judge(release, "--cuda-graph-max-bs", "96")
    assert message.startswith("--cuda-graph-max-bs is ambiguous, it could be --cuda-graph-max-bs-decode or")


@pytest.mark.parametrize(
    "release", ["sglang-0.5.10", "sglang-0.5.16", "sglang-0.5.18", "sglang-0.5.20", "sglang-0.5.23"]
)
@pytest.mark.parametrize("role", _settings.BOTH)
def test_S1_every_setting_renders_to_what_the_release_takes(release: str, role: str) -> None:
    values: dict[str, Any] = {
        name: True if getattr(how, "switch", False) else 1
        for name, how in _settings.TABLE.items()
        if isinstance(how, _settings.Flag)
    }
    values.update(
        attention_backend="triton", kv_cache_dtype="auto", transfer_backend="nixl", log_level="info", model_path="m"
    )
    arguments, _environment = _settings.render(values, role, release.split("-")[1])
    assert judge(release, *arguments) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tp", "4"], "--tp is an abbreviation of --tp-size: write it in full"),
        (["--cuda-graph-bs", "8"], "--cuda-graph-bs is ambiguous, it could be --cuda-graph-bs-"),
        (["--tpsize", "4"], "--tpsize is unknown; did you mean --tp-size?"),
        (["--mem-fraction-stati", "0.8"], "--mem-fraction-stati is an abbreviation of --mem-fraction-static: write it"),
        (["--mem-fraction-static", "much"], "--mem-fraction-static takes a number, not 'much'"),
        (["--tp-size", "two"], "--tp-size takes an integer, not 'two'"),
        (["--tp-size"], "--tp-size needs a value"),
        (["--tp-size", "2", "4"], "--tp-size takes 1 value: '4' belongs to no option"),
        (["--disable-overlap-schedule", "true"], "--disable-overlap-schedule is a switch: 'true' belongs to no option"),
        (["--disable-overlap-schedule=true"], "--disable-overlap-schedule is a switch and takes no value, not 'true'"),
        (["--disaggregation-mode", "prefil"], "--disaggregation-mode takes one of decode, null, prefill, not 'prefil'"),
        (["--extra-metric-labels", "a=b"], "--extra-metric-labels takes JSON, not 'a=b'"),
        (["--context-length", "eight"], "--context-length takes an integer (8192 or 8k), not 'eight'"),
        (["stray", "--tp-size", "2"], "'stray' belongs to no option"),
    ],
)
def test_S1_what_the_engine_would_not_take_is_said(words: list[str], message: str) -> None:
    (said,) = judge("sglang-0.5.23", *words)
    assert said.startswith(message), said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tp-size", "2", "--tp-size=4"], "--tp-size is given twice"),
        (["--model-path", "a", "--model", "b"], "--model is given twice, first as --model-path"),
    ],
)
def test_S2_an_option_that_is_given_twice_is_refused(words: list[str], message: str) -> None:
    assert judge("sglang-0.5.23", *words) == [message]


def test_options_that_are_meant_to_be_repeated_may_be() -> None:
    words = ["--prefill", "http://a:1", "8998", "--prefill", "http://b:1", "8998", "--decode", "http://c:1"]
    assert judge("smg-1.13.0", *words) == []
    assert judge("sglang-router-0.3.2", *words) == []


@pytest.mark.parametrize("words", [["--watchdog-timeout", "-1"], ["--context-length", "8k"], ["--tp-size=2"]])
def test_values_that_only_look_wrong_pass(words: list[str]) -> None:
    assert judge("sglang-0.5.23", *words) == []


@pytest.mark.parametrize("version", ["0.5.16", "0.5.23"])
def test_the_stand_in_takes_the_options_of_the_release_it_stands_for(version: str) -> None:
    data = TESTS / "engine_stand_in/src/sglang/stand_in/data" / f"flags-{version}.json"
    stand_in = {
        name: sorted(str(choice) for choice in flag.get("choices", []))
        for flag in json.loads(data.read_text())
        for name in flag["flags"]
    }
    real = {name: option["choices"] for option in options_of(f"sglang-{version}") for name in option["names"]}
    # argparse adds help, and the second name of a switch with two ways, by itself.
    by_argparse = {name for name in real if name in ("-h", "--help") or "--" + name[len("--no-") :] in real}
    left_out = (by_argparse | OF_PLUGINS) - set(stand_in)
    assert {name: choices for name, choices in real.items() if name not in left_out} == stand_in
