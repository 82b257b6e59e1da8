# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command as a process, in front of a stand-in for ansible-playbook."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import processes

from .conftest import ROOT, Workplace, wait_for


def extra_vars(call: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call[-2])
    return found


# -- plan ------------------------------------------------------------------------------------


def test_plan_prints_the_plan_and_tells_changes_by_its_exit_code(workplace: Workplace) -> None:
    workplace.fleet()
    done = workplace.run("plan", "-i", "hosts,", "--json", "plan.json", "--markdown", "plan.md")
    assert done.returncode == 2
    plan = json.loads((workplace.path / "plan.json").read_text())
    assert plan["decision"] == "go"
    assert done.stdout.splitlines()[0] == f"roll {plan['roll']}: GO"
    assert plan["roll"] in (workplace.path / "plan.md").read_text()
    assert workplace.due() == ["a", "b", "c"]
    (call,) = workplace.calls()
    assert call[-1] == "inferops.sglang_pd.plan"
    assert extra_vars(call) == {"pd_roll_id": plan["roll"], "pd_roll_dir": str(workplace.rolls)}


def test_where_nothing_changed_plan_and_roll_say_so_and_restart_nothing(workplace: Workplace) -> None:
    workplace.fleet(clusters={"a": {"due": False}})
    assert workplace.run("plan").returncode == 0
    done = workplace.run("roll", "--output", "json")
    assert done.returncode == 0
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["roll_began", "roll_ended"]
    assert "nothing to do, nothing was restarted" in done.stderr


def test_a_refused_plan_and_a_refused_roll_have_an_exit_code_of_their_own(workplace: Workplace) -> None:
    workplace.fleet(refuse="cluster b does not serve")
    assert workplace.run("plan").returncode == 3
    done = workplace.run("roll")
    assert done.returncode == 3
    assert "REFUSED, nothing was touched\n  cluster b does not serve [rule: all serve]" in done.stdout
    assert workplace.due() == ["a", "b", "c"]


def test_a_plan_on_standard_output_is_json_alone(workplace: Workplace) -> None:
    workplace.fleet()
    done = workplace.run("plan", "--json", "-")
    assert (done.returncode, json.loads(done.stdout or "{}").get("decision")) == (2, "go"), done.stderr


def test_a_plan_is_no_roll(workplace: Workplace) -> None:
    workplace.fleet()
    workplace.run("plan")
    done = workplace.run("status")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"sglang-pd: there is no roll in {workplace.rolls}\n"


# -- roll ------------------------------------------------------------------------------------


def test_roll_tells_its_events_in_lines_and_ends_well(workplace: Workplace) -> None:
    workplace.fleet()
    done = workplace.run("roll", "-i", "hosts,", "--clusters", "a,b", "--purpose", "weekly")
    assert done.returncode == 0
    assert workplace.due() == []
    (call,) = workplace.calls()
    roll = workplace.only_roll()
    assert extra_vars(call) == {
        "pd_roll_id": roll.name,
        "pd_roll_dir": str(workplace.rolls),
        "pd_roll_clusters": ["a", "b"],
        "pd_roll_purpose": "weekly",
    }
    words = [line.split(" ", 1)[1] for line in done.stdout.splitlines()[:3]]
    assert words == [
        f"roll {roll.name} began: 3 clusters in 3 waves (test)",
        "wave 1 of 3 began (batch): a",
        "a: drain",
    ]
    assert done.stdout.splitlines()[-1] == f"  files: {roll}"


def test_json_output_is_the_events_and_nothing_else(workplace: Workplace) -> None:
    workplace.fleet()
    done = workplace.run("roll", "--output", "json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == workplace.events()


def test_a_cluster_that_fails_has_an_exit_code_and_the_command_that_goes_on(workplace: Workplace) -> None:
    workplace.fleet(clusters={"a": {"due": True}, "b": {"due": True, "fails": True}, "c": {"due": True}})
    done = workplace.run("roll")
    assert done.returncode == 4
    roll = workplace.only_roll().name
    assert done.stdout.splitlines()[-5:-1] == [
        f"roll {roll}: FAILED (the failure budget is spent), 1 of 3 clusters done",
        "  b: FAILED: the router answered nothing",
        "  remaining: c",
        f"  to go on: sglang-pd resume {roll} -e pd_roll_repair=true    (once mended: what may not serve goes first)",
    ]


def test_artifacts_are_named_by_the_roll_and_hold_nothing_of_the_environment(workplace: Workplace) -> None:
    workplace.fleet()
    workplace.run("roll", "-e", "token=swordfish")
    roll = workplace.only_roll()
    artifacts = roll / "runner/artifacts" / roll.name
    assert (artifacts / "stdout").exists()
    for path in roll.rglob("*"):
        assert path.is_dir() or "hunter2" not in path.read_text(), path
    # What was given on the command line is needed to resume; it is for nobody else.
    told = [path for path in roll.rglob("*") if path.is_file() and "swordfish" in path.read_text()]
    assert {path.relative_to(roll).parts[0] for path in told} == {"runner"}
    assert stat.S_IMODE((roll / "runner").stat().st_mode) == 0o700
    # Where ansible-runner keeps options that the next run would read in place of its own.
    assert not (roll / "runner/env").exists()


def test_ansible_playbook_runs_where_the_user_is_and_his_configuration_counts(workplace: Workplace) -> None:
    workplace.fleet()
    workplace.environment.pop("ANSIBLE_HOST_KEY_CHECKING", None)
    workplace.run("plan")
    (told,) = workplace.told()
    assert told["directory"] == str(workplace.path)
    # ansible-runner turns it off by itself.
    assert told["checks"] is None


def test_what_a_pipeline_keeps_is_copied_and_nothing_private(workplace: Workplace) -> None:
    workplace.fleet()
    workplace.run("roll", "--artifacts", "kept")
    roll = workplace.only_roll()
    kept = {path.name: path.read_text() for path in (workplace.path / "kept").iterdir()}
    assert kept == {name: (roll / name).read_text() for name in ("plan.json", "plan.md", "events.jsonl", "result.json")}
    workplace.run("status", "--artifacts", "again")
    assert {path.name for path in (workplace.path / "again").iterdir()} == set(kept)


def test_artifacts_that_cannot_be_written_are_told_before_anything_is_done(workplace: Workplace) -> None:
    workplace.fleet()
    done = workplace.run("roll", "--artifacts", str(workplace.fleet_file))
    assert (done.returncode, done.stderr.startswith("sglang-pd: --artifacts ")) == (1, True)
    assert workplace.due() == ["a", "b", "c"]


def test_where_ansible_playbook_fails_before_the_roll_its_own_words_are_told(workplace: Workplace) -> None:
    workplace.fleet_file.write_text("no fleet")
    for command in ("plan", "roll"):
        done = workplace.run(command)
        assert (done.returncode, done.stdout) == (1, "")
        assert "json.decoder.JSONDecodeError" in done.stderr
        assert "ansible-playbook failed (exit code 1):" in done.stderr
        assert "The whole output: " in done.stderr


def test_where_ansible_playbook_dies_in_a_wave_that_is_said_and_recorded(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll")
    workplace.await_cluster("a")
    os.kill(playbook_of(workplace)["pid"], signal.SIGKILL)
    done = workplace.end(process)
    assert done.returncode == 4
    assert "INTERRUPTED (ansible-playbook ended by itself" in done.stdout
    assert "  a: LEFT in step restart_router" in done.stdout
    assert workplace.events()[-1]["event"] == "roll_interrupted"
    assert "state    interrupted" in workplace.run("status").stdout


def playbook_of(workplace: Workplace) -> dict[str, Any]:
    """Return the process of the ansible-playbook, once the roll tells it."""

    def told() -> Any:
        try:
            return json.loads((workplace.only_roll() / "process").read_text())["playbook"]
        except (OSError, ValueError):
            return None

    found: dict[str, Any] = wait_for(told)
    return found


# -- signals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_the_wave_in_work_be_finished_and_none_begin(
    workplace: Workplace, number: signal.Signals
) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll")
    workplace.await_cluster("a")
    process.send_signal(number)
    cancel = workplace.only_roll() / "cancel"
    wait_for(cancel.exists)
    workplace.let_go("a", "b", "c")
    done = workplace.end(process)
    assert done.returncode == 5
    assert workplace.due() == ["b", "c"]
    assert f"{number.name}: the wave in work is finished, no other begins" in done.stderr
    assert f"stopped as asked ({number.name} to sglang-pd of " in done.stdout
    assert "  remaining: b, c\n  to go on: sglang-pd resume" in done.stdout
    assert workplace.events()[-1]["outcome"] == "stopped"


def test_behind_nohup_a_hangup_ends_nothing(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll", on_hangup=signal.SIG_IGN)
    workplace.await_cluster("a")
    process.send_signal(signal.SIGHUP)
    workplace.let_go("a", "b", "c")
    done = workplace.end(process)
    assert (done.returncode, workplace.due()) == (0, []), done.stdout


def test_a_second_signal_ends_ansible_playbook_and_resume_goes_on(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll", "-i", "hosts,", "-e", "x=1")
    workplace.await_cluster("a")
    process.send_signal(signal.SIGTERM)
    wait_for((workplace.only_roll() / "cancel").exists)
    process.send_signal(signal.SIGTERM)
    done = workplace.end(process)
    assert done.returncode == 5
    assert "INTERRUPTED (ansible-playbook was ended by SIGTERM), 0 of 3 clusters done" in done.stdout
    assert "  a: LEFT in step restart_router" in done.stdout
    assert "  remaining: a, b, c" in done.stdout
    assert processes.look(playbook_of(workplace)["pid"]) is None

    workplace.let_go("a", "b", "c")
    done = workplace.run("resume", "-e", "y=2")
    assert done.returncode == 0, done.stderr
    assert workplace.due() == []
    first, second = workplace.calls()
    assert second[:-3] == ["-i", "hosts,", "-e", "x=1", "-e", "y=2"]
    assert extra_vars(second)["pd_roll_id"] == extra_vars(first)["pd_roll_id"]
    artifacts = workplace.only_roll() / "runner/artifacts"
    assert sorted(one.name for one in artifacts.iterdir()) == [
        workplace.only_roll().name,
        f"{workplace.only_roll().name}-2",
    ]


def test_where_it_is_asked_for_the_first_signal_ends_ansible_playbook(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll", "--stop-at-once")
    workplace.await_cluster("a")
    process.send_signal(signal.SIGINT)
    done = workplace.end(process)
    assert done.returncode == 5
    assert "was ended by SIGINT" in done.stdout


def test_a_signal_before_the_roll_began_lets_no_wave_begin(workplace: Workplace) -> None:
    workplace.fleet()
    os.mkfifo(workplace.calls_file)
    # The stand-in opens it first of all, and waits for a reader.
    process = workplace.start("roll")
    playbook_of(workplace)
    process.send_signal(signal.SIGTERM)
    wait_for((workplace.only_roll() / "cancel").exists)
    workplace.calls_file.read_text()
    done = workplace.end(process)
    assert done.returncode == 5
    assert workplace.due() == ["a", "b", "c"]
    assert [event["event"] for event in workplace.events()] == ["roll_began", "roll_ended"]


def test_what_does_not_end_by_sigterm_is_killed_when_patience_ends(workplace: Workplace) -> None:
    stand_in = workplace.path / "bin/ansible-playbook"
    # Deaf, and with a worker in a session of its own that is deaf, too.
    stand_in.write_text(
        "#!/bin/sh\ntrap '' TERM\n(trap '' TERM; exec setsid sleep 86399) &\n"
        f"echo $! > {workplace.path}/worker.new; mv {workplace.path}/worker.new {workplace.path}/worker\n"
        "while :; do sleep 86399; done\n"
    )
    workplace.patience_seconds = 0.5
    process = workplace.start("roll", "--stop-at-once")
    wait_for((workplace.path / "worker").exists)
    playbook = playbook_of(workplace)
    process.send_signal(signal.SIGTERM)
    done = workplace.end(process)
    assert done.returncode == 5
    assert "never began: ended by SIGTERM; nothing was touched" in done.stderr
    for pid in (playbook["pid"], int((workplace.path / "worker").read_text())):
        assert processes.look(pid) is None


def test_orphans_of_an_ansible_playbook_that_ended_are_found_and_ended(workplace: Workplace) -> None:
    stand_in = workplace.path / "bin/ansible-playbook"
    stand_in.write_text(
        "#!/bin/sh\nsetsid sleep 86398 &\n"
        f"echo $! > {workplace.path}/worker.new; mv {workplace.path}/worker.new {workplace.path}/worker\nexit 1\n"
    )
    workplace.patience_seconds = 0.5
    done = workplace.run("roll")
    assert done.returncode == 1
    assert processes.look(int((workplace.path / "worker").read_text())) is None


# -- resume, status, cancel ------------------------------------------------------------------


def test_cancel_ends_a_roll_before_its_next_wave_with_its_reason(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll")
    workplace.await_cluster("a")
    asked = workplace.run("cancel", "--reason", "window is over")
    roll = workplace.only_roll().name
    assert asked.stdout.splitlines() == [
        f"roll {roll} ends before its next wave",
        "  wave 1 is finished: a",
        "  will remain: b, c",
        f"  to go on: sglang-pd resume {roll}",
    ]
    status = workplace.run("status", roll[:20])
    assert "state    running" in status.stdout
    assert "cancel   asked for: window is over (" in status.stdout
    told = json.loads(workplace.run("status", "--output", "json").stdout)
    assert (told["standing"], told["lives"], told["state"]["clusters"]["a"]["step"]) == (
        "running",
        True,
        "restart_router",
    )
    workplace.let_go("a", "b", "c")
    done = workplace.end(process)
    assert done.returncode == 5
    assert "stopped as asked (window is over (" in done.stdout
    assert workplace.due() == ["b", "c"]

    again = workplace.run("cancel", roll, "--reason", "once more")
    assert again.returncode == 1
    assert again.stderr == f"sglang-pd: roll {roll} does not run: it is stopped. There is nothing to cancel\n"
    assert workplace.run("cancel", "--reason", "x").stderr == f"sglang-pd: no roll runs in {workplace.rolls}\n"

    assert workplace.run("resume").returncode == 0
    assert workplace.due() == []
    refused = workplace.run("resume", roll)
    assert (refused.returncode, "is done: nothing is left to go on with" in refused.stderr) == (1, True)


def test_cancel_ends_a_resumed_roll_that_still_looks_at_the_fleet(workplace: Workplace) -> None:
    workplace.fleet(clusters={"a": {"due": True, "fails": True}, "b": {"due": True}})
    assert workplace.run("roll").returncode == 4
    workplace.calls_file.unlink()
    os.mkfifo(workplace.calls_file)
    # The stand-in opens it first of all, and waits for a reader.
    process = workplace.start("resume")
    playbook_of(workplace)
    asked = workplace.run("cancel", workplace.only_roll().name, "--reason", "not today")
    assert asked.returncode == 0, asked.stderr
    workplace.calls_file.read_text()
    done = workplace.end(process)
    assert done.returncode == 5, done.stdout
    assert "stopped as asked (not today" in done.stdout
    assert workplace.due() == ["a", "b"]


def test_a_roll_that_is_in_work_is_not_resumed_beside_it(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll")
    workplace.await_cluster("a")
    done = workplace.run("resume")
    assert done.returncode == 1
    assert f"is in work: pid {process.pid} of " in done.stderr and "Nothing was begun" in done.stderr
    assert len(workplace.calls()) == 1


def test_where_the_command_was_killed_its_ansible_playbook_counts(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll")
    workplace.await_cluster("a")
    playbook = playbook_of(workplace)
    process.kill()
    process.communicate()
    status = workplace.run("status").stdout
    assert f"its ansible-playbook lives: pid {playbook['pid']}" in status
    refused = workplace.run("resume")
    assert (refused.returncode, "is in work" in refused.stderr, len(workplace.calls())) == (1, True, 1)
    os.kill(playbook["pid"], signal.SIGKILL)
    wait_for(lambda: controller.process_start(playbook["pid"]) == "")
    status = workplace.run("status").stdout
    assert "state    interrupted" in status
    assert "  a: LEFT in step restart_router" in status


def test_a_directory_that_cannot_be_written_is_told_before_anything_is_done(workplace: Workplace) -> None:
    workplace.rolls.write_text("a file")
    done = workplace.run("roll")
    assert done.returncode == 1
    assert "Name another directory by --roll-dir" in done.stderr
    assert not workplace.calls_file.exists()


def test_a_roll_that_is_not_there_is_told_with_those_that_are(workplace: Workplace) -> None:
    workplace.fleet(clusters={})
    workplace.run("roll")
    done = workplace.run("status", "2001")
    assert f"there is no roll 2001 in {workplace.rolls}; there are: {workplace.only_roll().name}" in done.stderr


# -- terminals -------------------------------------------------------------------------------


def test_on_a_terminal_a_table_is_drawn_and_a_terminal_that_goes_away_ends_no_wave(workplace: Workplace) -> None:
    pytest.importorskip("rich")
    workplace.fleet(gates=str(workplace.gates))
    workplace.environment.update(TERM="xterm", COLUMNS="100", LINES="30")
    workplace.environment.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    starter = workplace.start
    process = _on_terminal(workplace, theirs)
    os.close(theirs)
    assert starter
    seen = b""

    def table_is_there() -> bool:
        nonlocal seen
        seen += os.read(ours, 65536)
        return b"restart_router" in seen or (b"waiting for" in seen and b"router" in seen)

    wait_for(table_is_there)
    workplace.await_cluster("a")
    os.close(ours)
    workplace.let_go("a", "b", "c")
    assert process.wait(300) == 0
    assert workplace.due() == []


def _on_terminal(workplace: Workplace, terminal: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "plugins/plugin_utils/pipeline/start.py"), str(ROOT / "bin/sglang-pd"), "roll"],
        cwd=workplace.path,
        env=workplace.environment,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
    )
    workplace.started.append(process)  # type: ignore[arg-type]
    return process


def test_a_reader_that_closes_its_pipe_ends_no_roll(workplace: Workplace) -> None:
    workplace.fleet(gates=str(workplace.gates))
    process = workplace.start("roll")
    workplace.await_cluster("a")
    assert process.stdout is not None
    process.stdout.close()
    workplace.let_go("a", "b", "c")
    assert process.wait(300) == 0
    assert workplace.due() == []


# -- the executable --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["itself", "by python", "a link", "a link to a link", "through a linked collection"])
def test_the_executable_works_from_wherever_it_is_called(workplace: Workplace, way: str) -> None:
    executable = ROOT / "bin/sglang-pd"
    root = workplace.path / "collections"
    (root / "ansible_collections/inferops").mkdir(parents=True)
    (root / "ansible_collections/inferops/sglang_pd").symlink_to(ROOT)
    if way == "through a linked collection":
        executable = root / "ansible_collections/inferops/sglang_pd/bin/sglang-pd"
    links = workplace.path / "links"
    links.mkdir()
    for number in range({"a link": 1, "a link to a link": 2}.get(way, 0)):
        link = links / f"sglang-pd-{number}"
        link.symlink_to(executable)
        executable = link
    environment = {name: value for name, value in workplace.environment.items() if name != "PYTHONPATH"}
    workplace.fleet(clusters={})
    command = [sys.executable, str(executable)] if way == "by python" else [str(executable)]
    done = subprocess.run([*command, "plan"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("nothing")) == (0, 1), done.stderr


def test_a_python_without_ansible_runner_is_named_with_what_helps(workplace: Workplace, tmp_path: Path) -> None:
    workplace.fleet()
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "ansible_runner.py").write_text("raise ImportError('no module of that name')\n")
    workplace.environment["PYTHONPATH"] = os.pathsep.join((str(hidden), workplace.environment.get("PYTHONPATH", "")))
    done = workplace.run("roll")
    assert done.returncode == 1
    assert "needs ansible-runner 2.3 or newer" in done.stderr and "SGLANG_PD_PYTHON" in done.stderr
