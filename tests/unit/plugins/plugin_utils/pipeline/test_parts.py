# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-playbook said, the collection's place, files of rolls, and processes: the parts of the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import (
    collection,
    directory,
    play,
    processes,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import PipelineError

from .conftest import ROOT, wait_for

# -- what Ansible said -----------------------------------------------------------------------


def event(kind: str, **data: object) -> dict[str, object]:
    return {"event": kind, "event_data": {"host": "h", "task": "t", **data}}


def test_failures_of_tasks_are_told_and_ignored_ones_are_not() -> None:
    assert play.failure_in(event("runner_on_failed", res={"msg": "why"})) == "h: t: why"
    assert play.failure_in(event("runner_on_unreachable", res={"msg": "no route"})) == "h: t: no route"
    assert play.failure_in(event("runner_on_failed", res={"msg": "why"}, ignore_errors=True)) == ""
    assert play.failure_in(event("runner_on_ok", res={"msg": "why"})) == ""


def test_many_failures_are_cut() -> None:
    assert play.what_ansible_said("", ["x"] * 11).splitlines() == ["x"] * 10 + ["and more"]


@pytest.mark.parametrize("error", ["ERROR! no hosts.yml", "[ERROR]: no hosts.yml\nOrigin: x"])
def test_of_the_output_the_error_is_told_without_colours(error: str) -> None:
    assert play.what_ansible_said(f"[WARNING]: w\r\n\x1b[0;31m{error}\x1b[0m\r\n", []) == error


def test_where_nothing_looks_like_an_error_the_last_lines_are_told() -> None:
    assert play.what_ansible_said("\n".join(str(number) for number in range(40)), []).splitlines()[0] == "25"


# -- the collection --------------------------------------------------------------------------


def test_the_root_of_the_collection_is_found_through_links(tmp_path: Path) -> None:
    inside = tmp_path / "root/ansible_collections/inferops/sglang_pd"
    inside.parent.mkdir(parents=True)
    inside.symlink_to(ROOT)
    link = tmp_path / "sglang-pd"
    link.symlink_to(inside / "bin/sglang-pd")
    assert collection.root_of(str(inside / "bin/sglang-pd")) == str(tmp_path / "root")
    assert collection.root_of(str(link)) == str(tmp_path / "root")
    relative = tmp_path / "relative"
    relative.symlink_to("sglang-pd")
    assert collection.root_of(str(relative)) == str(tmp_path / "root")
    assert collection.root_of(str(ROOT / "bin/sglang-pd")) == ""


def test_playbooks_are_those_of_the_command(tmp_path: Path) -> None:
    for name in ("mine", "other"):
        (tmp_path / name / "ansible_collections/inferops").mkdir(parents=True)
    mine = tmp_path / "mine/ansible_collections/inferops/sglang_pd"
    mine.symlink_to(ROOT)
    (tmp_path / "other/ansible_collections/inferops/sglang_pd").mkdir()
    executable = str(mine / "bin/sglang-pd")
    roots = [str(tmp_path / "mine"), str(tmp_path / "other")]
    assert "ANSIBLE_COLLECTIONS_PATH" not in collection.environment(executable, roots)
    found = collection.environment(executable, roots[::-1])["ANSIBLE_COLLECTIONS_PATH"]
    assert found.split(os.pathsep) == [roots[0], *roots[::-1]]


def test_a_checkout_that_ansible_cannot_see_is_told_with_what_helps() -> None:
    with pytest.raises(PipelineError, match="link it as DIR/ansible_collections/inferops/sglang_pd"):
        collection.environment(str(ROOT / "bin/sglang-pd"), [])


def test_ansible_playbook_beside_the_python_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    root = [str(tmp_path)]
    with pytest.raises(PipelineError, match="there is no ansible-playbook on PATH"):
        collection.environment(str(ROOT / "bin/sglang-pd"), root)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ansible-playbook").touch(0o755)
    (tmp_path / "ansible_collections/inferops").mkdir(parents=True)
    (tmp_path / "ansible_collections/inferops/sglang_pd").symlink_to(ROOT)
    found = collection.environment(str(ROOT / "bin/sglang-pd"), root)
    assert found == {"PATH": f"{tmp_path}/bin:{tmp_path}"}


# -- files -----------------------------------------------------------------------------------


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = directory.Tail(str(path))
    assert list(tail.new_lines()) == []
    with open(path, "w", encoding="utf-8") as target:
        for text, lines in (("one\ntw", ["one"]), ("o\n", ["two"]), ("", []), ("three", []), ("\n", ["three"])):
            target.write(text)
            target.flush()
            assert list(tail.new_lines()) == lines
    assert list(directory.Tail(str(path), at_end=True).new_lines()) == []


def test_an_event_after_a_line_that_was_cut_off_is_not_lost(tmp_path: Path) -> None:
    roll = directory.RollDirectory(str(tmp_path), "r")
    roll.make()
    Path(roll.file("events.jsonl")).write_text('{"at": 1, "roll": "r", "event": "roll_began"}\n{"at": 2, "ev')
    roll.tell_interrupted("why")
    assert [one["event"] for one in roll.events()] == ["roll_began", "roll_interrupted"]


def test_a_roll_of_another_machine_may_live_or_not(tmp_path: Path) -> None:
    roll = directory.RollDirectory(str(tmp_path), "r")
    assert roll.lives() is None
    roll.make()
    roll.write_process(None)
    assert roll.lives() is True
    content = json.loads(Path(roll.file("process")).read_text())
    Path(roll.file("process")).write_text(json.dumps({**content, "started": "1"}))
    assert roll.lives() is False
    Path(roll.file("process")).write_text(json.dumps({**content, "controller": "elsewhere"}))
    assert roll.lives() is None


def test_rolls_are_found_by_the_begin_of_their_ids(tmp_path: Path) -> None:
    for name in ("20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb", "a-plan"):
        (tmp_path / name).mkdir()
        if name != "a-plan":
            (tmp_path / name / "events.jsonl").touch()
    rolls = str(tmp_path)
    assert [one.roll for one in directory.all_rolls(rolls)] == ["20260102T000000Z-bbbbbb", "20260101T000000Z-aaaaaa"]
    assert directory.find(rolls, "20260102").roll == "20260102T000000Z-bbbbbb"
    assert directory.find(rolls, "20260101T000000Z-aaaaaa").roll == "20260101T000000Z-aaaaaa"
    with pytest.raises(PipelineError, match="is the begin of several rolls"):
        directory.find(rolls, "2026")
    for name in ("..", "2027", "../x"):
        with pytest.raises(PipelineError, match="there is no roll"):
            directory.find(rolls, name)


# -- processes -------------------------------------------------------------------------------


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start processes that end with the test, whatever becomes of it."""
    started = []

    def start_one(*command: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start_one
    for process in started:
        processes.kill(processes.running_below(process.pid))
        process.kill()
        process.wait()


def test_descendants_are_found_and_a_pid_that_was_used_again_is_not_signalled(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    parent = start("sh", "-c", "sleep 86396 & wait")
    found = wait_for(lambda: [one for one in processes.running_below(parent.pid) if one.words()[:1] == ["sleep"]])
    assert [one.parent for one in found] == [parent.pid]
    impostor = processes.Process(found[0].pid, 1, "S", "1")
    assert impostor.runs() is False
    impostor.signal(9)
    assert found[0].runs() is True
    processes.kill(found)
    wait_for(lambda: controller.process_start(found[0].pid) == "")


def test_connections_that_ssh_shares_are_left_alone(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    title = f"ssh: {tmp_path}/0123456789 [mux]"
    shared = start("bash", "-c", f"exec -a '{title}' sleep 86395")
    wait_for(lambda: [one for one in [processes.look(shared.pid)] if one and one.words()[:1] == [title]])
    assert shared.pid not in [one.pid for one in processes.running_below(os.getpid())]
