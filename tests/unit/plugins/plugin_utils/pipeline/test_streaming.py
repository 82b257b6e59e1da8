# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll whose ansible-playbook runs elsewhere: ansible-runner's transmit, worker and process, between directories."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from .conftest import HERE, ROOT

ROLL = "20261130T170000Z-ab12cd"


def runner(*argv: str, directory: Path, given: bytes = b"") -> bytes:
    environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "false"}
    done = subprocess.run(
        ["ansible-runner", *argv], cwd=directory, env=environment, input=given, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()[-3000:]
    return done.stdout


def test_files_of_a_roll_come_back_from_the_worker(tmp_path: Path) -> None:
    sender, worker, receiver = (tmp_path / name for name in ("sender", "worker", "receiver"))
    project = sender / "project"
    project.mkdir(parents=True)
    worker.mkdir()
    for name in ("walk.py", "rolling_co_restart.yml"):
        shutil.copy(HERE / name, project)
    # A playbook of the collection that connects to no host, then the stand-in for the one that rolls.
    (project / "main.yml").write_text(
        "- import_playbook: inferops.sglang_pd.preflight\n- import_playbook: rolling_co_restart.yml\n"
    )
    shutil.copytree(ROOT / "inventory/one_box", sender / "inventory")
    (project / "fleet.json").write_text(json.dumps({"clusters": {"a": {"due": True}}}))
    (sender / "env").mkdir()
    # The directory of the artifacts on the worker, whatever it is called there.
    variables = {
        "pd_roll_id": ROLL,
        "pd_roll_dir": "{{ lookup('env', 'AWX_ISOLATED_DATA_DIR') }}/rolls",
        "fleet": "{{ playbook_dir }}/fleet.json",
    }
    (sender / "env/extravars").write_text(json.dumps(variables))

    sent = runner("transmit", str(sender), "-p", "main.yml", "--ident", ROLL, directory=tmp_path)
    shutil.rmtree(sender)
    given = runner("worker", "--private-data-dir", str(worker), directory=tmp_path, given=sent)
    shutil.rmtree(worker)
    runner("process", str(receiver), "--ident", ROLL, directory=tmp_path, given=given)

    artifacts = receiver / "artifacts" / ROLL
    assert (artifacts / "rc").read_text() == "0"
    events = [json.loads(line) for line in (artifacts / "rolls" / ROLL / "events.jsonl").read_text().splitlines()]
    assert events[-1]["outcome"] == "done"
    assert json.loads((artifacts / "rolls" / ROLL / "result.json").read_text())["outcome"] == "done"
