# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line: the real flags, abbreviations and refusals of each release."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_in_processes import MODEL, Stand


def test_removed_graph_flag_is_ambiguous_on_the_new_release(stand: Stand) -> None:
    code, output = stand.run("--model-path", MODEL, "--cuda-graph-max-bs", "96")
    assert code == 2
    assert "ambiguous option: --cuda-graph-max-bs could match" in output


def test_graph_flag_parses_on_the_old_release(stand: Stand) -> None:
    engine = stand.engine("null", "--cuda-graph-max-bs", "96", release="0.5.16").start().healthy()
    info = engine.get("/server_info").json()
    assert info["version"] == "0.5.16"
    assert info["cuda_graph_max_bs_decode"] == 96


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model-path", MODEL, "--no-such-flag"), "unrecognized arguments: --no-such-flag"),
        (("--port", "1"), "required: --model-path"),
        (("--model-path", MODEL, "--disaggregation-mode", "both"), "invalid choice: 'both'"),
        (("--model-path", MODEL, "--port", "http"), "invalid int value: 'http'"),
    ],
)
def test_bad_arguments_exit_2(stand: Stand, flags: tuple[str, ...], message: str) -> None:
    code, output = stand.run(*flags)
    assert code == 2
    assert message in output


def test_abbreviation_is_accepted_and_the_last_of_a_repeated_flag_wins(stand: Stand) -> None:
    flags = ("--context-len", "1024", "--context-length", "2000")
    engine = stand.engine("null", *flags).start().healthy()
    assert engine.get("/server_info").json()["context_length"] == 2000


def test_config_file_comes_before_the_command_line(stand: Stand, tmp_path: Path) -> None:
    config = tmp_path / "engine.yaml"
    config.write_text("context-length: 1024\npage_size: 16\ndisable-overlap-schedule: true\n")
    config.write_text(config.read_text().replace("page_size", "page-size"))
    flags = ("--config", str(config), "--context-length", "3000")
    info = stand.engine("null", *flags).start().healthy().get("/server_info").json()
    assert info["context_length"] == 3000
    assert info["page_size"] == 16
    assert info["disable_overlap_schedule"] is True
    assert "--page-size 16" in info["launch_command"]


def test_boolean_environment_with_another_word_is_without_effect(stand: Stand) -> None:
    """The real releases warn and take the default."""
    name = "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP"
    engine = stand.engine().start(**{name: "on"}).healthy()
    assert '"on" is not a valid boolean value, using default' in engine.output()


def test_boolean_environment_can_be_refused(stand: Stand) -> None:
    name = "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP"
    code, output = stand.run("--model-path", MODEL, STAND_IN_BAD_BOOLEAN_ENV="refuse", **{name: "on"})
    assert code == 1
    assert 'ValueError: "on" is not a valid boolean value' in output


def test_port_in_use_ends_the_engine(stand: Stand) -> None:
    first = stand.engine().start().healthy()
    second = stand.engine()
    second.port = first.port
    second.start()
    assert second.wait() == 1
    assert "address already in use" in second.output()
