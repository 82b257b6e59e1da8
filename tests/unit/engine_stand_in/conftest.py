# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fixtures: the wheels, installed beside each other, and stands to run them on."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stand_in_processes import Pair, Stand, stand

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the wheels by release."""
    folder = tmp_path_factory.mktemp("wheels")
    script = ROOT / "tests" / "engine_stand_in" / "build_wheels.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    return {path.name.split("-")[1]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="session")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder to import each release from."""
    folders = {}
    for release, wheel in wheels.items():
        folders[release] = tmp_path_factory.mktemp(f"sglang-{release}-")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folders[release])
    return folders


@pytest.fixture(name="stand")
def _stand(tmp_path: Path, installed: dict[str, Path]) -> Iterator[Stand]:
    """Return a stand of the test's own."""
    with stand(tmp_path, installed) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, installed: dict[str, Path]) -> Iterator[Stand]:
    """Return a stand for tests that leave its engines as they found them."""
    with stand(tmp_path_factory.mktemp("shared"), installed) as made:
        yield made


@pytest.fixture(scope="module")
def pair(shared: Stand) -> Pair:
    """Return a healthy pair of the newest release."""
    return shared.pair()
