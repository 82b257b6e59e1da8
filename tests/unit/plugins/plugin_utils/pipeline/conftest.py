# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the console command in a process of its own, in front of stand-ins for its playbooks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[4]

#: What starts the command with playbooks of ours; arguments: JSON of these, then those of the command.
_STARTER = """
import json, sys
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.command import main
given = json.loads(sys.argv[1])
sys.exit(main(sys.argv[2:], **given))
"""
#: Nothing here takes that long, on a machine that does something else meanwhile.
LONG_SECONDS = 300


class Workplace:
    """A directory with rolls, a fleet, and gates at which clusters wait.

    :ivar real: whether a real ansible-playbook runs.
    """

    def __init__(self, path: Path, real: bool = False):
        self.path = path
        self.rolls = path / "rolls"
        self.fleet_file = path / "fleet.json"
        self.calls_file = path / "calls"
        self.gates = path / "gates"
        self.gates.mkdir()
        self.real = real
        self.patience_seconds = 60.0
        self.started: list[subprocess.Popen[str]] = []
        programs = path / "bin"
        programs.mkdir()
        if not real:
            stand_in = programs / "ansible-playbook"
            # Not by env: the tests' own Python, which needs nothing of the environment.
            stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "stand_in_playbook.py"} "$@"\n')
            stand_in.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
            "FLEET": str(self.fleet_file),
            "CALLS": str(self.calls_file),
            "SGLANG_PD_ROLL_DIR": str(self.rolls),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "A_SECRET_OF_THE_PIPELINE": "hunter2",
            "TERM": "dumb",
        }

    def fleet(self, **more: Any) -> None:
        """Write a fleet of three clusters that are due."""
        clusters = {name: {"due": True} for name in "abc"}
        self.fleet_file.write_text(json.dumps({"clusters": clusters, **more}))

    def due(self) -> list[str]:
        """Return the clusters that were not co-restarted yet."""
        clusters = json.loads(self.fleet_file.read_text())["clusters"]
        return [name for name, one in clusters.items() if one["due"]]

    def start(
        self, *argv: str, playbooks: dict[str, str] | None = None, on_hangup: signal.Handlers = signal.SIG_DFL
    ) -> subprocess.Popen[str]:
        """Start the command; ``on_hangup`` is what it inherits, however the tests themselves were started."""
        if self.real and playbooks is None:
            playbooks = {"plan": str(HERE / "plan.yml"), "roll": str(HERE / "rolling_co_restart.yml")}
        given = {
            "invoked": str(ROOT / "bin/sglang-pd"),
            "playbooks": playbooks,
            "patience_seconds": self.patience_seconds,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", _STARTER, json.dumps(given), *argv],
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, on_hangup),
        )
        self.started.append(process)
        return process

    def run(self, *argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return self.end(self.start(*argv, **more))

    @staticmethod
    def end(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        """Await the end of the command."""
        out, err = process.communicate(timeout=LONG_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def await_cluster(self, name: str) -> None:
        """Wait until a cluster waits at its gate."""

        def is_there() -> bool:
            ended = [process for process in self.started if process.poll() is not None]
            assert len(ended) < len(self.started), ended[-1].communicate()
            return (self.gates / (name + ".waits")).exists()

        wait_for(is_there)

    def let_go(self, *names: str) -> None:
        """Open gates."""
        for name in names:
            (self.gates / name).touch()

    def only_roll(self) -> Path:
        """Return the directory of the only roll."""
        (found,) = self.rolls.iterdir()
        return found

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the only roll."""
        return [json.loads(line) for line in (self.only_roll() / "events.jsonl").read_text().splitlines()]

    def calls(self) -> list[list[str]]:
        """Return the command lines of the stand-in for ansible-playbook."""
        return [call["words"] for call in self.told()]

    def told(self) -> list[dict[str, Any]]:
        """Return what the stand-in for ansible-playbook saw: ``words``, ``directory``, ``checks`` of host keys."""
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]

    def close(self) -> None:
        """End what a failed test left."""
        self.let_go("a", "b", "c")
        for process in self.started:
            if process.poll() is None:
                for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM):
                    process.send_signal(number)
                process.communicate(timeout=LONG_SECONDS)


def wait_for(condition: Any) -> Any:
    """Return what a condition gives once it holds."""
    until = time.monotonic() + LONG_SECONDS
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not become so")


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace with a stand-in for ansible-playbook."""
    made = Workplace(tmp_path)
    yield made
    made.close()


@pytest.fixture
def real_workplace(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace with a real ansible-playbook."""
    made = Workplace(tmp_path, real=True)
    yield made
    made.close()
