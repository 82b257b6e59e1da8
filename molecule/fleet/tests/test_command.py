# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console command on real units: plan, roll, a pipeline that is cancelled, and its resumption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def command(inventory, given, rolls) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start sglang-pd as a pipeline would."""
    started: list[subprocess.Popen[str]] = []

    def start(what: str, *words: str) -> subprocess.Popen[str]:
        variables = {key: value for key, value in given().items() if key != "pd_roll_dir"}
        argv = [str(ROOT / "bin/sglang-pd"), what, "--roll-dir", str(rolls.directory)]
        if what in ("plan", "roll"):
            argv += ["-i", str(inventory), "-e", json.dumps(variables)]
        process = subprocess.Popen(
            [*argv, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def said(process: subprocess.Popen[str]) -> str:
    """Await the end of a command; return what it said."""
    return process.communicate(timeout=600)[0]


def test_F5_a_cancelled_pipeline_finishes_the_wave_in_work_and_resume_does_the_rest(fleet, command, rolls):
    before = fleet.incarnations()
    planned = command("plan", "--markdown", str(rolls.directory.parent / "plan.md"))
    text = said(planned)
    assert planned.returncode == 2, text
    assert "canary" in (rolls.directory.parent / "plan.md").read_text()

    rolled = command("roll")
    rolls.wait_for("step_began", cluster="a", step="stop_prefill")
    os.kill(rolled.pid, signal.SIGTERM)
    text = said(rolled)
    assert rolled.returncode == 5, text
    assert "resume" in text
    assert rolls.end["outcome"] == "stopped"
    assert rolls.outcomes == {"a": "done"}
    assert fleet.restarted_since(before) == "a"
    assert fleet.locked_or_reserved() == []

    resumed = command("resume")
    text = said(resumed)
    assert resumed.returncode == 0, text
    assert fleet.restarted_since(before) == "abcdef"
    assert rolls.outcomes == dict.fromkeys("abcdef", "done")
    for name in ("plan.md", "result.json", "summary.md", "junit.xml", "report.html"):
        assert (rolls.newest / name).stat().st_size > 0, name
    for name in "abcdef":
        assert fleet[name].one("decode").ledger["run"]["id"].startswith(rolls.newest.name + ".")


def test_F6_exit_codes_tell_nothing_to_do_from_changes(fleet, command):
    planned = command("plan", "-e", "pd_roll_when=when_due")
    text = said(planned)
    assert planned.returncode == 0, text
