# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a unit that are kept and put back, byte for byte."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, revisions

UNIT = "sglang-c-decode.service"
SECRET = "canary-key"


@pytest.fixture(autouse=True)
def etc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host's folders below a temporary one."""
    monkeypatch.setattr(revisions, "REVISIONS", str(tmp_path / "revisions"))
    monkeypatch.setattr(
        revisions._revision, "managed_files", lambda unit: {name: str(tmp_path / name) for name in NAMES}
    )
    return tmp_path


NAMES = ("unit", "env", "secrets.yaml", "member.json")


def deploy(etc: Path, configuration: str, **member: Any) -> dict[str, bytes]:
    """Write what the roles write; return the bytes."""
    description = {"role": "decode", "unit": UNIT, "configuration": configuration, "version": "1.0"}
    description.update({"exec_start": [sys.executable], "kept_revisions": 2, "package": "pytest", **member})
    content = {
        "unit": f"ExecStartPre=echo {configuration}\nExecStart={sys.executable} -m x\n".encode(),
        "env": f"KEY={SECRET}-{configuration}\n".encode(),
        "secrets.yaml": f"api-key: {SECRET}-{configuration}\xff\n".encode("latin-1"),
        "member.json": json.dumps(description).encode(),
    }
    for name, its in content.items():
        (etc / name).write_bytes(its)
        (etc / name).chmod(0o640 if name in ("env", "secrets.yaml") else 0o644)
    return content


def now(etc: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and modes of the files, and no others."""
    return {
        path.name: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) for path in etc.iterdir() if path.is_file()
    }


class Commands:
    """``run_command`` that notes what it was asked."""

    def __init__(self, version: str = "1.0", status: int = 0):
        self.asked: list[list[str]] = []
        self._answer = (status, version + "\n", "")

    def __call__(self, command: list[str]) -> tuple[int, str, str]:
        self.asked.append(command)
        return self._answer


def test_what_is_kept_comes_back_byte_for_byte_with_its_modes(etc: Path) -> None:
    deploy(etc, "good")
    before = now(etc)
    assert revisions.keep(UNIT, 7, "good") == ""
    deploy(etc, "bad")
    (etc / "unit").chmod(0o600)
    assert now(etc) != before

    run = Commands()
    shown, trouble = revisions.restore({UNIT: 7}, run)

    assert trouble == ""
    assert now(etc) == before
    assert run.asked == [["systemctl", "daemon-reload"]]
    assert {os.path.basename(one["path"]) for one in shown} == set(NAMES)
    assert SECRET not in json.dumps(shown)
    assert "ExecStartPre=echo bad" in json.dumps(shown)
    assert revisions.restore({UNIT: 7}, run) == ([], ""), "a second time there is nothing to do"
    assert len(run.asked) == 1


def test_only_root_may_look_into_revisions(etc: Path) -> None:
    deploy(etc, "good")
    revisions.keep(UNIT, 7, "good")
    for folder in (etc / "revisions", etc / "revisions" / UNIT, etc / "revisions" / UNIT / "7"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in NAMES:
        assert stat.S_IMODE((etc / "revisions" / UNIT / "7" / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("running", ["", "something else"])
def test_what_does_not_run_is_not_kept(etc: Path, running: str) -> None:
    deploy(etc, "good")
    assert revisions.keep(UNIT, 7, running) == ""
    assert revisions.listed(UNIT, Commands(), {}) == []


def test_half_a_deployment_is_not_kept(etc: Path) -> None:
    """The description is still the old one, the unit file is the new one already."""
    deploy(etc, "good")
    (etc / "unit").write_text("ExecStartPre=echo next\n")
    revisions.keep(UNIT, 7, "good")
    assert revisions.listed(UNIT, Commands(), {}) == []


def test_as_many_are_kept_as_the_member_says(etc: Path) -> None:
    for generation in (1, 2, 3):
        deploy(etc, "g{}".format(generation))
        assert revisions.keep(UNIT, generation, "g{}".format(generation)) == ""
    assert revisions.keep(UNIT, 4, "g3") == ""
    found = revisions.listed(UNIT, Commands(), {})
    assert [one["generations"] for one in found] == [[3, 4], [2]]
    assert [one["member"]["configuration"] for one in found] == ["g3", "g2"]
    assert found[0]["digest"] == revisions.deployed_digest(UNIT)
    assert sorted(path.name for path in (etc / "revisions" / UNIT).iterdir()) == ["2", "3"]


def test_what_a_dead_process_left_half_written_is_no_revision_and_goes(etc: Path) -> None:
    deploy(etc, "good")
    litter = etc / "revisions" / UNIT / ".new-x"
    litter.mkdir(parents=True)
    assert revisions.listed(UNIT, Commands(), {}) == []
    revisions.keep(UNIT, 7, "good")
    assert not litter.exists()


@pytest.mark.parametrize(
    ("member", "run", "problem"),
    [
        ({}, Commands(), ""),
        ({"exec_start": ["/gone/bin/python"]}, Commands(), "/gone/bin/python does not exist any more: install that"),
        ({}, Commands("2.0"), f"it ran pytest 1.0, and {sys.executable} has 2.0 now"),
        ({}, Commands(status=1), "has none now"),
        ({"role": "router", "exec_start": [sys.executable, "/gone/launch.py"]}, Commands(), "/gone/launch.py does not"),
        ({"exec_start": []}, Commands(), ""),
    ],
)
def test_S10_a_revision_whose_program_is_not_there_any_more_says_so(
    etc: Path, member: dict[str, Any], run: Commands, problem: str
) -> None:
    deploy(etc, "good", **member)
    revisions.keep(UNIT, 7, "good")
    (found,) = revisions.listed(UNIT, run, {})
    assert bool(found["problems"]) == bool(problem)
    assert problem in "".join(found["problems"])


def test_an_environment_is_asked_once_for_all_its_revisions(etc: Path) -> None:
    for number, configuration in enumerate(("one", "two"), start=1):
        deploy(etc, configuration)
        assert revisions.keep(UNIT, number, configuration) == ""
    run, asked = Commands(), {}
    assert len(revisions.listed(UNIT, run, asked)) == 2
    revisions.listed(UNIT, run, asked)
    assert len(run.asked) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_revision_is_not_put_back(etc: Path, name: str) -> None:
    deploy(etc, "good")
    revisions.keep(UNIT, 7, "good")
    deploy(etc, "bad")
    before = now(etc)
    kept = etc / "revisions" / UNIT / "7" / name
    kept.write_bytes(kept.read_bytes()[:-1])
    (found,) = revisions.listed(UNIT, Commands(), {})
    assert "are damaged" in found["problems"][0]
    assert revisions.restore({UNIT: 7}, Commands()) == ([], f"revision 7 of {UNIT} is damaged")
    assert now(etc) == before


def test_nothing_is_written_where_one_of_several_revisions_is_gone(etc: Path) -> None:
    deploy(etc, "good")
    revisions.keep(UNIT, 7, "good")
    deploy(etc, "bad")
    before = now(etc)
    shown, trouble = revisions.restore({UNIT: 7, "z.service": 7}, Commands())
    assert (shown, trouble) == ([], "revision 7 of z.service is gone")
    assert now(etc) == before


def test_a_file_that_was_not_there_is_removed_again(etc: Path) -> None:
    deploy(etc, "good")
    (etc / "env").unlink()
    revisions.keep(UNIT, 7, "good")
    deploy(etc, "bad")
    revisions.restore({UNIT: 7}, Commands())
    assert not (etc / "env").exists()


def test_a_trouble_while_keeping_is_told_and_harms_nothing(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(etc, "good")

    def full(*_arguments: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(revisions, "_replace", full)
    assert "No space left on device" in revisions.keep(UNIT, 7, "good")
    assert revisions.listed(UNIT, Commands(), {}) == []
    assert files.read_json(str(etc / "member.json"))["configuration"] == "good"


def test_a_write_that_fails_names_the_file_and_what_was_written(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(etc, "good")
    revisions.keep(UNIT, 7, "good")
    deploy(etc, "bad")
    real = revisions._replace

    def replace(path: str, new: Any) -> None:
        if path.endswith("secrets.yaml"):
            raise OSError("Read-only file system")
        real(path, new)

    monkeypatch.setattr(revisions, "_replace", replace)
    shown, trouble = revisions.restore({UNIT: 7}, Commands())
    assert "secrets.yaml cannot be written: Read-only file system" in trouble
    assert [os.path.basename(one["path"]) for one in shown] == ["unit", "env"]


# -- hot patches -------------------------------------------------------------------------


class Environment:
    """Stands for :class:`host.patches.Patches`: the patches that an environment has."""

    applied: ClassVar[list[dict[str, str]]] = []
    problems: ClassVar[list[dict[str, str]]] = []

    def __init__(self, run: Any, python: str, package: str):
        assert (python, package) == (sys.executable, "sglang")
        self.root = "/opt/x"

    @property
    def state(self) -> dict[str, Any]:
        return {"patches": [dict(one, files={}) for one in Environment.applied]}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def work_out(self, wanted: list[dict[str, str]]) -> dict[str, Any]:
        return {"problems": Environment.problems, "wanted": wanted}

    def put_in_place(self, work: dict[str, Any]) -> None:
        Environment.applied = work["wanted"]


FIX = [{"name": "fix", "sha256": "1"}]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, etc: Path) -> Iterator[type[Environment]]:
    monkeypatch.setattr(revisions, "Patches", Environment)
    monkeypatch.setattr(files, "MEMBERS", str(etc / "members"))
    Environment.applied, Environment.problems = FIX, []
    yield Environment
    Environment.applied, Environment.problems = [], []


def test_S10_the_patches_of_a_revision_come_back_with_it(etc: Path, environment: type[Environment]) -> None:
    deploy(etc, "good", patches=FIX)
    revisions.keep(UNIT, 7, "good")
    deploy(etc, "bad", patches=[])
    environment.applied = []
    assert revisions.listed(UNIT, Commands(), {})[0]["problems"] == []
    assert revisions.restore({UNIT: 7}, Commands())[1] == ""
    assert environment.applied == FIX


def test_S10_patches_that_do_not_fit_any_more_refuse_the_revision(etc: Path, environment: type[Environment]) -> None:
    deploy(etc, "good", patches=FIX)
    revisions.keep(UNIT, 7, "good")
    deploy(etc, "bad", patches=[])
    before = now(etc)
    environment.applied = []
    environment.problems = [{"message": "patch fix does not fit"}]
    assert revisions.listed(UNIT, Commands(), {})[0]["problems"] == ["patch fix does not fit"]
    assert revisions.restore({UNIT: 7}, Commands()) == ([], "patch fix does not fit")
    assert now(etc) == before


def test_patches_that_another_cluster_runs_with_are_left_alone(etc: Path, environment: type[Environment]) -> None:
    deploy(etc, "good", patches=[], cluster="c")
    revisions.keep(UNIT, 7, "good")
    other = {"unit": "o.service", "cluster": "other", "role": "prefill", "exec_start": [sys.executable], "patches": FIX}
    files.write_json(str(etc / "members" / "o.json"), other)
    (found,) = revisions.listed(UNIT, Commands(), {})
    assert found["problems"] == [
        "it ran with other patches of /opt/x, and o.service of another cluster runs from there as it is"
    ]
    files.write_json(str(etc / "members" / "o.json"), dict(other, patches=[]))
    assert revisions.listed(UNIT, Commands(), {})[0]["problems"] == []
