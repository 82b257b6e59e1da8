# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The definition of an execution environment, as ansible-builder reads it; no image is built."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
DEFINITION = ROOT / "extensions/execution_environment"


def builder(*argv: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ansible_builder", *argv], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what an image would be built from."""
    folder = tmp_path_factory.mktemp("ee") / "definition"
    shutil.copytree(DEFINITION, folder)
    command = ["ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    builder("create", "--context", "context", directory=folder)
    return folder / "context"


def test_the_definition_is_valid_and_brings_the_collection_and_its_command(context: Path) -> None:
    (archive,) = (context / "_build/collections").iterdir()
    lines = (context / "Containerfile").read_text().splitlines()
    wanted = yaml.safe_load((context / "_build/requirements.yml").read_text())["collections"]
    # A version in the file, for Galaxy takes no pattern.
    assert [one["name"] for one in wanted] == [f"/tmp/collections/{archive.name}"]
    assert lines.index("COPY _build/collections/ /tmp/collections/") < next(
        number for number, line in enumerate(lines) if "ansible-galaxy collection install" in line
    )
    assert any(
        line.startswith("RUN ln -s") and line.endswith("/bin/sglang-pd /usr/local/bin/sglang-pd") for line in lines
    )


def test_ansible_builder_finds_what_the_collection_needs(tmp_path: Path) -> None:
    place = tmp_path / "ansible_collections/inferops"
    place.mkdir(parents=True)
    (place / "sglang_pd").symlink_to(ROOT)
    found = yaml.safe_load(builder("introspect", str(tmp_path), directory=tmp_path).split("\n---\n")[-1])
    python = "\n".join(str(line) for line in found["python"])
    for name in ("ansible-runner>=2.3", "rich", "jsonschema", "prometheus-client", "requests"):
        assert name in python
    assert any("openssh-clients" in str(line) for line in found["system"])
