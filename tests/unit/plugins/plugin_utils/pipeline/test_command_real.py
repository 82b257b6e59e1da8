# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command with a real ansible-playbook, by ansible-runner, without hosts."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller

from .conftest import HERE, Workplace, wait_for
from .test_command import playbook_of

#: Hosts by name and the seconds that they sleep: a number that no other process has.
HOSTS = ("one", "two")


def test_plan_roll_and_plan_again(real_workplace: Workplace) -> None:
    real_workplace.fleet()
    fleet = ["-e", f"fleet={real_workplace.fleet_file}"]
    assert real_workplace.run("plan", *fleet).returncode == 2
    done = real_workplace.run("roll", *fleet, "--output", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["outcome"] == "done"
    assert real_workplace.due() == []
    assert real_workplace.run("plan", *fleet).returncode == 0


def test_what_failed_is_told_in_ansibles_words(real_workplace: Workplace) -> None:
    playbooks = {"plan": str(HERE / "fail.yml"), "roll": str(HERE / "fail.yml")}
    done = real_workplace.run("roll", playbooks=playbooks)
    assert done.returncode == 1
    assert "localhost: Look at the hosts: the inventory has no cluster\n" in done.stderr
    assert "A failure that is ignored" not in done.stderr
    done = real_workplace.run("plan", "-e", "@gone.yml")
    assert done.returncode == 1
    assert "gone.yml" in done.stderr and "Traceback" not in done.stderr


def asleep(seconds: str) -> list[int]:
    """Return the processes with a word on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if seconds.encode() in words:
            found.append(int(path.parent.name))
    # The test itself does not sleep.
    return [pid for pid in found if pid != os.getpid() and controller.process_start(pid)]


def start_to_sleep(workplace: Workplace, seconds: str, *argv: str) -> object:
    options = {"gates": str(workplace.gates), "seconds": seconds}
    hosts = workplace.path / "hosts"
    hosts.write_text("".join(f"{host} ansible_python_interpreter={sys.executable}\n" for host in HOSTS))
    playbooks = {"roll": str(HERE / "sleep.yml"), "plan": ""}
    return workplace.start(
        "roll", "-i", str(hosts), "-e", json.dumps(options), *argv, "--", "--forks", "2", playbooks=playbooks
    )


@pytest.mark.parametrize("way", ["signals", "ansible-playbook is killed"])
def test_no_worker_and_no_module_outlives_the_command(real_workplace: Workplace, way: str) -> None:
    seconds = f"86{os.getpid():07d}"
    real_workplace.patience_seconds = 5.0
    process = start_to_sleep(real_workplace, seconds)
    for host in HOSTS:
        real_workplace.await_cluster(host)
    # The command, ansible-playbook, and for each host a worker, a module, a shell or sleep.
    assert len(asleep(seconds)) >= 4
    playbook = playbook_of(real_workplace)["pid"]
    if way == "signals":
        process.send_signal(signal.SIGTERM)  # type: ignore[attr-defined]
        wait_for((real_workplace.only_roll() / "cancel").exists)
        process.send_signal(signal.SIGTERM)  # type: ignore[attr-defined]
    else:
        os.kill(playbook, signal.SIGKILL)
    done = real_workplace.end(process)  # type: ignore[arg-type]
    assert asleep(seconds) == []
    assert "INTERRUPTED" in done.stdout
    assert done.returncode == (5 if way == "signals" else 1)
