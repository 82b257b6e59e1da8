# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program in a virtual environment is asked for its options and searched for variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import installed

LAUNCH = """
import argparse, json, sys
def size(text):
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)
parser = argparse.ArgumentParser()
parser.add_argument("--model-path", "--model", required=True)
parser.add_argument("--tp-size", type=int)
parser.add_argument("--memory", type=float)
parser.add_argument("--context", type=size)
parser.add_argument("--labels", type=json.loads)
parser.add_argument("--mode", choices=["a", "b"])
parser.add_argument("--fast", action="store_true")
parser.add_argument("--worker", nargs="+", action="append")
parser.add_argument("--overlap", action=argparse.BooleanOptionalAction)
print("noise before", flush=True)
parser.parse_args()
raise SystemExit("it must not come so far")
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Interpreter of an environment that holds package ``engine``."""
    monkeypatch.setattr(installed, "CACHE", str(tmp_path / "cache"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    package = site / "engine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "launch.py").write_text(LAUNCH)
    (package / "environ.py").write_text("A = 'SGLANG_READ_HERE'\n")
    (site / "other.py").write_text("B = 'READ_BY_OTHER', 'SGLANG_LONGER_NAME_X'\n")
    (site / "torch").mkdir()
    (site / "torch/x.py").write_text("C = 'READ_BY_TORCH'\n")
    return str(tmp_path / "env/bin/python")


def program(python: str, keep: bool = True) -> installed.Program:
    """The program, asked as who runs the tests."""
    return installed.Program(python, ["engine.launch"], "", keep)


def test_options_are_told_with_names_kinds_and_choices(python: str) -> None:
    options = {option["names"][0]: option for option in program(python).options({}, {})}
    assert options["--model-path"]["names"] == ["--model-path", "--model"]
    kinds = {name: options[name]["kind"] for name in ("--tp-size", "--memory", "--context", "--labels", "--mode")}
    assert kinds == {
        "--tp-size": "integer",
        "--memory": "number",
        "--context": "integer with unit",
        "--labels": "json",
        "--mode": "text",
    }
    assert options["--mode"]["choices"] == ["a", "b"]
    assert (options["--fast"]["takes"], options["--worker"]["takes"], options["--worker"]["repeatable"]) == (
        0,
        "+",
        True,
    )
    assert options["--overlap"]["names"] == ["--overlap", "--no-overlap"]


def test_an_answer_is_kept_until_a_file_of_the_package_changes(python: str) -> None:
    launch = Path(program(python).directory) / "launch.py"
    first = program(python).options({}, {})
    status = launch.stat()
    launch.write_text("!" * len(LAUNCH))
    os.utime(launch, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert program(python).options({}, {}) == first, "same size and time: the kept answer"
    launch.write_text(LAUNCH.replace("--tp-size", "--expert-size"))
    assert "--expert-size" in [option["names"][0] for option in program(python).options({}, {})]


def test_nothing_is_kept_in_check_mode(python: str, tmp_path: Path) -> None:
    assert program(python, keep=False).options({}, {})
    assert not (tmp_path / "cache").exists()


def test_a_program_that_fails_before_its_command_line_is_told_with_its_words(python: str) -> None:
    launch = Path(program(python).directory) / "launch.py"
    launch.write_text("raise ImportError('libcuda.so.1: cannot open --api-key s3cret, t0ken-of-hub')")
    with pytest.raises(RuntimeError, match=r"ImportError: libcuda\.so\.1: cannot open --api-key ") as told:
        program(python).options({}, {"HF_TOKEN": "t0ken-of-hub", "FLAG": "1"})
    assert "s3cret" not in str(told.value) and "t0ken" not in str(told.value)


def test_its_environment_is_that_of_the_unit_only(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Path(program(python).directory) / "launch.py"
    launch.write_text("import os\nassert os.environ['OF_UNIT'] == '1' and 'OF_TEST' not in os.environ\n" + LAUNCH)
    monkeypatch.setenv("OF_TEST", "1")
    assert program(python).options({}, {"OF_UNIT": "1"})


def test_S4_readers_are_found_by_whole_names(python: str) -> None:
    names = ["SGLANG_READ_HERE", "READ_BY_OTHER", "SGLANG_LONGER_NAME", "READ_BY_TORCH"]
    found = {name: os.path.basename(path) for name, path in program(python).readers(names).items()}
    assert found == {
        "SGLANG_READ_HERE": "environ.py",
        "READ_BY_OTHER": "other.py",
        "SGLANG_LONGER_NAME": "",
        "READ_BY_TORCH": "",
    }
    assert "torch" in program(python).searched


def test_what_is_not_installed_is_said(python: str) -> None:
    with pytest.raises(installed.NotInstalledError, match="no package nothere"):
        installed.Program(python, ["nothere.launch"], "", False)
    with pytest.raises(installed.NotInstalledError, match="/no/python does not exist"):
        installed.Program("/no/python", ["engine.launch"], "", False)


def as_it_will_be(python: str, changed: dict[str, bytes | None], keep: bool = True) -> installed.Program:
    return installed.Program(python, ["engine.launch"], "", keep, changed)


def names_of(asked: installed.Program) -> list[str]:
    return [option["names"][0] for option in asked.options({}, {})]


def test_S10_an_engine_is_asked_as_patches_will_make_it_and_nothing_is_written(python: str) -> None:
    directory = Path(program(python).directory)
    before = {path: path.read_bytes() for path in directory.rglob("*.py")}
    launch = LAUNCH.replace('"--tp-size"', "NAME").replace("import", "from engine.new.name import NAME\nimport", 1)
    changed = {
        "engine/launch.py": launch.encode(),
        "engine/new/name.py": b"NAME = '--added'\n",
        "engine/environ.py": None,
    }
    assert "--added" not in names_of(program(python))
    options = names_of(as_it_will_be(python, changed))
    assert "--added" in options and "--tp-size" not in options
    # What was kept of one is not taken for the other.
    assert "--added" not in names_of(program(python))
    assert {path: path.read_bytes() for path in directory.rglob("*.py")} == before


def test_S4_readers_are_looked_for_in_what_patches_will_make_of_files(python: str) -> None:
    changed = {"engine/environ.py": b"A = 'TARGET_CTAS'\n"}
    readers = as_it_will_be(python, changed).readers(["TARGET_CTAS", "SGLANG_READ_HERE"])
    directory = program(python).directory
    assert readers == {"TARGET_CTAS": directory + "/environ.py", "SGLANG_READ_HERE": ""}
    assert program(python).readers(["TARGET_CTAS", "SGLANG_READ_HERE"]) == {
        "TARGET_CTAS": "",
        "SGLANG_READ_HERE": directory + "/environ.py",
    }


def test_a_path_for_modules_of_the_unit_stays(python: str, tmp_path: Path) -> None:
    (tmp_path / "of_unit.py").write_text("")
    launch = b"import of_unit\n" + LAUNCH.replace("--tp-size", "--added").encode()
    asked = as_it_will_be(python, {"engine/launch.py": launch})
    assert "--added" in [one["names"][0] for one in asked.options({"PYTHONPATH": str(tmp_path)}, {})]
