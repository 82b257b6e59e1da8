# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the console command, and what ansible-playbook gets of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import arguments
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import PipelineError


def parse(*argv: str, directory: str = "/nowhere", **environment: str) -> Any:
    return arguments.parse(list(argv), directory, environment)


def ours(words: list[str]) -> dict[str, Any]:
    assert words[-2] == "-e"
    found: dict[str, Any] = json.loads(words[-1])
    return found


def test_what_is_asked_for_reaches_ansible_playbook_and_our_variables_come_last() -> None:
    options = parse(
        *"roll -i one -i two, -e x=1 --clusters a,b --clusters c --purpose why --vault-id dev@script".split(),
        *"-- --limit rack1 -vv".split(),
    )
    words = options.request.command_line("ID", "/rolls")
    assert words[:-2] == "--limit rack1 -vv --vault-id dev@script -i one -i two, -e x=1".split()
    assert ours(words) == {
        "pd_roll_id": "ID",
        "pd_roll_dir": "/rolls",
        "pd_roll_clusters": ["a", "b", "c"],
        "pd_roll_purpose": "why",
    }


def test_without_clusters_and_purpose_the_playbooks_own_defaults_count() -> None:
    assert set(ours(parse("plan").request.command_line("ID", "/rolls"))) == {"pd_roll_id", "pd_roll_dir"}


def test_files_are_named_so_that_a_roll_can_be_resumed_from_elsewhere(tmp_path: Path) -> None:
    for name in ("hosts.yml", "vars.yml", "key"):
        (tmp_path / name).touch()
    argv = "roll -i hosts.yml -i host, -e @vars.yml -e @gone --vault-password-file key --vault-id x@key".split()
    words = parse(*argv, directory=str(tmp_path)).request.command_line("ID", "/rolls")
    here = str(tmp_path) + "/"
    expected = ["--vault-password-file", here + "key", "--vault-id", "x@" + here + "key", "-i", here + "hosts.yml"]
    assert words[:-2] == [*expected, "-i", "host,", "-e", "@" + here + "vars.yml", "-e", "@gone"]


@pytest.mark.parametrize(
    "argv",
    [
        "roll -- -k",
        "roll -- -bK",
        "plan -- --ask-vault-pass",
        "roll -- --step",
        "roll --vault-id dev@prompt",
        "roll -- --vault-id prompt",
    ],
)
def test_options_that_ask_a_person_are_refused(argv: str) -> None:
    with pytest.raises(PipelineError, match="wait for ever: give passwords by --vault-password-file"):
        parse(*argv.split())


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (["-e", "pd_roll_id=x"], "resume ROLL"),
        (["-e", "a=b pd_roll_dir=/x"], "--roll-dir"),
        (["-e", '{"pd_roll_purpose": "x"}'], "--purpose"),
        (["--", "-e", "pd_roll_id=x"], "resume ROLL"),
        (["--", "--extra-vars=pd_roll_id=x"], "resume ROLL"),
        (["--", "-epd_roll_id=x"], "resume ROLL"),
    ],
)
def test_variables_that_the_command_sets_itself_are_refused(given: list[str], instead: str) -> None:
    with pytest.raises(PipelineError, match=f"sets the variable pd_roll_[a-z]+ itself; say {instead} in its place"):
        parse("roll", *given)


def test_other_variables_of_a_roll_are_taken() -> None:
    assert parse("roll", "-e", "pd_roll_max_unavailable=1").request.extra_vars == ["pd_roll_max_unavailable=1"]


def test_an_empty_list_of_clusters_is_not_all_of_them() -> None:
    with pytest.raises(PipelineError, match="--clusters names no cluster, and that is not all of them"):
        parse("roll", "--clusters", " , ")


def test_nothing_can_be_handed_to_a_playbook_that_is_not_started() -> None:
    with pytest.raises(PipelineError, match="status starts no ansible-playbook"):
        parse("status", "--", "-v")


@pytest.mark.parametrize(
    "argv", ["", "rolls", "roll --clust a", "plan --output json", "cancel", "status --output live"]
)
def test_wrong_usage_is_one_message_and_not_the_exit_code_of_changes(argv: str) -> None:
    with pytest.raises(PipelineError):
        parse(*argv.split())


def test_the_directory_of_rolls_is_an_option_a_variable_or_the_usual_one() -> None:
    assert parse("status", "--roll-dir", "/a", SGLANG_PD_ROLL_DIR="/b").roll_dir == "/a"
    assert parse("status", SGLANG_PD_ROLL_DIR="/b").roll_dir == "/b"
    assert parse("status").roll_dir == str(Path.home() / ".local/state/sglang-pd/rolls")


def test_a_request_is_kept_whole_and_a_resumed_one_adds_to_it() -> None:
    first = parse(*"roll -i one -e x=1 --clusters a --purpose why -- -v".split(), directory="/first").request
    kept = arguments.Request.from_dict(json.loads(json.dumps(first.as_dict())))
    assert kept.as_dict() == first.as_dict()
    again = kept.followed_by(parse("resume", directory="/second").request)
    assert again.as_dict() == first.as_dict()
    again = kept.followed_by(parse(*"resume -i two -e y=2 --clusters b".split(), directory="/second").request)
    assert (again.inventories, again.extra_vars, again.clusters) == (["two"], ["x=1", "y=2"], ["b"])
    assert (again.purpose, again.passed, again.directory) == ("why", ["-v"], "/first")
