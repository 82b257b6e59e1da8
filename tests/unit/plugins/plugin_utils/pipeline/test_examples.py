# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples for pipelines: their commands are run, in front of a stand-in for ansible-playbook."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, Workplace, wait_for

EXAMPLES = ROOT / "extensions/pipelines"
GITLAB: dict[str, Any] = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())
GITHUB: dict[str, Any] = yaml.safe_load((EXAMPLES / "github-workflow.yml").read_text())


class Pipeline:
    """Runs the scripts of jobs as a runner does: in bash, which ends with the first failure."""

    def __init__(self, workplace: Workplace, variables: dict[str, str]):
        self.workplace = workplace
        (workplace.path / "bin/sglang-pd").symlink_to(ROOT / "bin/sglang-pd")
        (workplace.path / "fleet.sglang_pd.yml").write_text("all: {hosts: {localhost: {}}}\n")
        # In place of a directory that this machine may not have.
        variables = {**variables, "SGLANG_PD_ROLL_DIR": str(workplace.rolls)}
        workplace.environment.update(variables)

    def start(self, script: str, **variables: str) -> subprocess.Popen[str]:
        """Start a script."""
        process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.workplace.path,
            env={**self.workplace.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.workplace.started.append(process)
        return process

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script to its end."""
        return self.workplace.end(self.start(script, **variables))

    def is_there(self, name: str) -> bool:
        """Tell whether a file or directory of the checkout is there."""
        return (self.workplace.path / name).exists()


def gitlab(workplace: Workplace) -> Pipeline:
    return Pipeline(workplace, {**GITLAB["variables"], "CI_PIPELINE_URL": "https://x/1", "CI_JOB_URL": "https://x/2"})


def script_of(job: str) -> str:
    return "\n".join(GITLAB[job]["script"])


def test_gitlab_jobs_end_with_the_exit_codes_that_they_allow_and_leave_their_artifacts(workplace: Workplace) -> None:
    pipeline = gitlab(workplace)
    workplace.fleet(reports=True)
    assert pipeline.run(script_of("plan")).returncode in GITLAB["plan"]["allow_failure"]["exit_codes"]
    assert all(pipeline.is_there(path) for path in GITLAB["plan"]["artifacts"]["paths"])
    done = pipeline.run(script_of("roll"))
    assert done.returncode == 0, done.stderr
    assert all(pipeline.is_there(path) for path in GITLAB["roll"]["artifacts"]["paths"])
    assert pipeline.is_there(GITLAB["roll"]["artifacts"]["reports"]["junit"])
    assert pipeline.run(script_of("plan")).returncode == 0


def test_gitlab_cancels_and_resumes(workplace: Workplace) -> None:
    pipeline = gitlab(workplace)
    workplace.fleet(gates=str(workplace.gates))
    process = pipeline.start(script_of("roll"))
    workplace.await_cluster("a")
    done = pipeline.run(script_of("cancel"), GITLAB_USER_LOGIN="jo")
    assert "will remain: b, c" in done.stdout, done.stderr
    workplace.let_go("a", "b", "c")
    assert workplace.end(process).returncode == 5
    assert "cancelled by jo in https://x/2" in (workplace.only_roll() / "events.jsonl").read_text()
    done = pipeline.run(script_of("resume"), RESUME_OPTIONS="-e pd_roll_repair=true")
    assert done.returncode == 0, done.stderr
    assert workplace.due() == []
    assert "pd_roll_repair=true" in workplace.calls()[-1]


def test_gitlab_jobs_that_walk_hosts_exclude_each_other_and_those_that_cancel_do_not() -> None:
    assert GITLAB["roll"]["resource_group"] == GITLAB["resume"]["resource_group"]
    assert "resource_group" not in GITLAB["cancel"]


# -- GitHub ----------------------------------------------------------------------------------


def github(workplace: Workplace, tmp_path: Path) -> Pipeline:
    variables = {"GITHUB_WORKFLOW": "roll", "GITHUB_RUN_ID": "7", "GITHUB_ACTOR": "jo"}
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        variables[name] = str(tmp_path / name)
        (tmp_path / name).touch()
    return Pipeline(workplace, {**GITHUB["env"], **variables})


def steps_of(job: str) -> dict[str, str]:
    return {step["name"]: step["run"] for step in GITHUB["jobs"][job]["steps"] if "run" in step}


@pytest.mark.parametrize(
    ("fleet", "code", "told"),
    [({}, 0, "code=2\n"), ({"clusters": {}}, 0, "code=0\n"), ({"refuse": "b is down"}, 3, "code=3\n")],
)
def test_github_goes_on_after_a_plan_with_changes_only(
    workplace: Workplace, tmp_path: Path, fleet: dict[str, Any], code: int, told: str
) -> None:
    pipeline = github(workplace, tmp_path)
    workplace.fleet_file.write_text(json.dumps({"clusters": {"a": {"due": True}}, **fleet}))
    assert pipeline.run(steps_of("plan")["Plan"]).returncode == code
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == told
    assert bool((tmp_path / "GITHUB_STEP_SUMMARY").read_text()) == (code == 0)
    assert GITHUB["jobs"]["roll"]["if"].endswith("needs.plan.outputs.code == '2'")


def test_github_rolls_cancels_and_resumes(workplace: Workplace, tmp_path: Path) -> None:
    pipeline = github(workplace, tmp_path)
    workplace.fleet(gates=str(workplace.gates), reports=True)
    process = pipeline.start(steps_of("roll")["Roll"])
    workplace.await_cluster("a")
    assert pipeline.run(steps_of("cancel")["Cancel"]).returncode == 0
    workplace.let_go("a", "b", "c")
    assert workplace.end(process).returncode == 5
    assert pipeline.run(steps_of("roll")["Summary"]).returncode == 0
    done = pipeline.run(steps_of("resume")["Resume"], OPTIONS="")
    assert done.returncode == 0, done.stderr
    assert pipeline.run(steps_of("resume")["Summary"]).returncode == 0
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text().splitlines()
    assert [line.rpartition(": ")[2] for line in summary] == ["stopped", "done"]
    assert workplace.due() == []


def test_what_githubs_own_button_does_leaves_a_roll_that_can_be_resumed(workplace: Workplace, tmp_path: Path) -> None:
    pipeline = github(workplace, tmp_path)
    workplace.fleet(gates=str(workplace.gates))
    process = pipeline.start(steps_of("roll")["Roll"])
    workplace.await_cluster("a")
    process.send_signal(signal.SIGINT)
    wait_for((workplace.only_roll() / "cancel").exists)
    process.send_signal(signal.SIGTERM)
    assert workplace.end(process).returncode == 5
    workplace.let_go("a", "b", "c")
    assert pipeline.run(steps_of("resume")["Resume"], OPTIONS="").returncode == 0
    assert workplace.due() == []
