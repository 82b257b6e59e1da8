# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users get: the collection as `ansible-galaxy` builds and installs it."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ALLOWED = {
    "CHANGELOG.md",
    "CHANGELOG.rst",
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
    "bin",
    "changelogs",
    "docs",
    "extensions",
    "inventory",
    "meta",
    "playbooks",
    "plugins",
    "roles",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    command = ["ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("inferops-sglang_pd-*.tar.gz"))


def test_archive_holds_nothing_that_users_do_not_need(archive: Path) -> None:
    with tarfile.open(archive) as content:
        names = content.getnames()
    assert {name.split("/")[0] for name in names} <= ALLOWED
    assert not [name for name in names if name.endswith((".pyc", "~")) or "__pycache__" in name or ".cache" in name]


def test_archive_holds_the_templates_of_reports(archive: Path) -> None:
    folder = "plugins/plugin_utils/report_page"
    with tarfile.open(archive) as content:
        shipped = {name for name in content.getnames() if name.startswith(folder + "/")}
    assert shipped == {f"{folder}/{one.name}" for one in (ROOT / folder).iterdir()} != set()


def test_archive_holds_the_command_as_a_program(archive: Path) -> None:
    with tarfile.open(archive) as content:
        assert content.getmember("bin/sglang-pd").mode & 0o111 == 0o111


def test_installed_elsewhere_its_playbooks_and_docs_work(archive: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "PYTHONPATH": ""}
    command = ["ansible-galaxy", "collection", "install", str(archive), "-p", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    program = tmp_path / "ansible_collections/inferops/sglang_pd/bin/sglang-pd"
    done = subprocess.run(
        [str(program), "status", "--roll-dir", "/nowhere"], capture_output=True, env=environment, check=False
    )
    assert done.stderr == b"sglang-pd: there is no roll in /nowhere\n"
    for playbook in ("preflight", "deploy", "co_restart"):
        command = ["ansible-playbook", "-i", str(ROOT / "inventory/one_box"), f"inferops.sglang_pd.{playbook}"]
        done = subprocess.run(
            [*command, "--syntax-check"], check=False, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
    command = ["ansible-playbook", "-i", str(ROOT / "inventory/one_box"), "inferops.sglang_pd.co_restart"]
    listed = subprocess.run([*command, "--list-tasks"], check=True, capture_output=True, text=True, env=environment)
    assert "Decode stage - start, and wait until every decode is healthy" in listed.stdout, listed
    for kind, names in (
        ("module", ["member_info", "co_restart_plan", "co_restart", "co_restart_step", "engine_patch"]),
        ("role", ["pd_engine", "pd_prefill", "pd_decode", "pd_router"]),
        ("inventory", ["topology"]),
    ):
        for name in names:
            command = ["ansible-doc", "--type", kind, f"inferops.sglang_pd.{name}"]
            done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
            assert done.returncode == 0, done.stderr
            assert name in done.stdout
            assert "WARNING" not in done.stderr
    command = ["ansible-inventory", "-i", str(ROOT / "inventory/fleet"), "--graph"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert "|--@pd_cluster_dsv4:" in done.stdout, done.stderr
