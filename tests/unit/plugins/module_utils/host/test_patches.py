# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patches on files of a real environment, by the real ``patch``."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import os
import shutil
import stat
import subprocess
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _patches
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import patches as host_patches
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.patches import (
    NoPatchProgramError,
    Patches,
    PatchingError,
)

CONN = "# one\n# two\n# three\n\n\ndef status(known, new):\n    return new\n\n\n# eight\n# nine\n# ten\n"
FIXED = CONN.replace("    return new\n", "    return known if known == 'failed' else new\n")
PREFILL = "from sglang import conn\n\n\ndef abort():\n    return conn.status('failed', 'sending')\n"


def diff_of(path: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), "a/python/" + path if before else "/dev/null", "b/" + path
    )
    return "".join(lines)


CONN_DIFF = diff_of("sglang/conn.py", CONN, FIXED)
PREFILL_DIFF = diff_of("sglang/prefill.py", PREFILL, PREFILL.replace("'sending'", "'late'"))


def run(command: list[str], **options: Any) -> tuple[int, str, str]:
    """Run a program as ``AnsibleModule.run_command`` does."""
    environment = {**os.environ, **options.get("environ_update", {})}
    done = subprocess.run(command, input=options.get("data"), capture_output=True, env=environment, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin/python"


@pytest.fixture
def site(interpreter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An environment with sglang 0.5.16."""
    monkeypatch.setattr(host_patches, "STORE", str(tmp_path / "store"))
    (place,) = interpreter.parent.parent.glob("lib/python*/site-packages")
    package = place / "sglang"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "conn.py").write_text(CONN)
    (package / "prefill.py").write_text(PREFILL)
    install(place, "0.5.16")
    yield package
    for folder in place.glob("sglang*"):
        shutil.rmtree(folder)


def install(place: Path, version: str) -> None:
    for old in place.glob("sglang-*.dist-info/METADATA"):
        old.unlink()
        old.parent.rmdir()
    info = place / "sglang-{}.dist-info".format(version)
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: {}\n".format(version))


Deploy = Callable[..., dict[str, Any]]


@pytest.fixture
def deploy(interpreter: Path, site: Path) -> Deploy:
    """Do what the module does with a list of (name, diff)."""

    def go(*wanted: tuple[str, str], check: bool = False) -> dict[str, Any]:
        patches = Patches(run, str(interpreter), "sglang")
        with patches.locked():
            work = patches.work_out([{"name": name, "diff": diff} for name, diff in wanted])
            if not check and not work["problems"] and (work["files"] or work["state"] != patches.state):
                patches.put_in_place(work)
        actions = {one["name"]: one["action"] for one in work["patches"]}
        return dict(work, actions=actions, store=Path(patches.directory), patcher=patches)

    return go


def contents(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_S10_two_files_are_patched_once_compiled_and_recorded_and_undone(site: Path, deploy: Deploy) -> None:
    (site / "conn.py").chmod(0o600)
    before = contents(site)
    done = deploy(("abort-race", CONN_DIFF + PREFILL_DIFF))
    assert done["actions"] == {"abort-race": "apply"}
    assert (site / "conn.py").read_text() == FIXED
    assert "'late'" in (site / "prefill.py").read_text()
    assert stat.S_IMODE((site / "conn.py").stat().st_mode) == 0o600
    for name in ("conn.py", "prefill.py"):
        compiled = next((site / "__pycache__").glob(name[:-3] + ".*.pyc"))
        assert compiled.read_bytes()[8:16] == source_stamp(site / name), "compiled from what is there"
    (patch,) = done["patcher"].state["patches"]
    assert patch["sha256"] == _patches.digest((CONN_DIFF + PREFILL_DIFF).encode())
    assert patch["files"]["sglang/conn.py"] == {
        "before": _patches.digest(CONN.encode()),
        "after": _patches.digest(FIXED.encode()),
    }
    times = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    again = deploy(("abort-race", CONN_DIFF + PREFILL_DIFF))
    assert (again["files"], again["actions"], again["state"]) == ({}, {"abort-race": "keep"}, done["state"])
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == times, "nothing was written"

    undone = deploy()
    assert undone["actions"] == {"abort-race": "undo"}
    assert contents(site) == before
    assert not (undone["store"] / "original").exists()


def source_stamp(source: Path) -> bytes:
    there = source.stat()
    return int(there.st_mtime).to_bytes(4, "little") + there.st_size.to_bytes(4, "little")


def test_S10_a_compiled_file_of_before_is_never_believed(site: Path, deploy: Deploy) -> None:
    """Installers write compiled files that Python takes without looking at the source."""
    cache = site / "__pycache__"
    cache.mkdir()
    (cache / "conn.cpython-39.opt-1.pyc").write_bytes(b"old")
    deploy(("abort-race", CONN_DIFF))
    assert not (cache / "conn.cpython-39.opt-1.pyc").exists()
    assert Path(importlib.util.cache_from_source(str(site / "conn.py"))).exists()


def test_S10_one_patch_that_does_not_fit_leaves_all_files_alone(site: Path, deploy: Deploy) -> None:
    gone = diff_of("sglang/prefill.py", "a\nb\nc\n", "a\nB\nc\n")
    before = contents(site)
    refused = deploy(("fits", CONN_DIFF), ("gone", gone))
    (problem,) = refused["problems"]
    assert "patch gone does not fit sglang 0.5.16: sglang/prefill.py: Hunk #1 FAILED at 1." in problem["message"]
    assert "+B" in problem["message"], "the rejected hunk is shown"
    assert contents(site) == before
    assert refused["patcher"].state == {}


def test_S10_a_patch_that_the_version_contains_is_not_applied(site: Path, deploy: Deploy) -> None:
    (site / "conn.py").write_text(FIXED)
    done = deploy(("abort-race", CONN_DIFF), ("other", PREFILL_DIFF))
    assert done["actions"] == {"other": "apply", "abort-race": "unneeded"}
    assert "patch abort-race is not needed: sglang 0.5.16 contains it already" in done["unneeded"][0]["message"]
    assert (site / "conn.py").read_text() == FIXED
    deploy(("abort-race", CONN_DIFF))
    assert (site / "conn.py").read_text() == FIXED, "what we did not apply is not undone"


def test_S10_half_of_a_patch_in_the_version_is_refused_and_told(site: Path, deploy: Deploy) -> None:
    (site / "conn.py").write_text(FIXED)
    (problem,) = deploy(("abort-race", CONN_DIFF + PREFILL_DIFF))["problems"]
    assert "sglang/conn.py contains it already; sglang/prefill.py would take it" in problem["message"]


def test_S10_what_does_not_compile_is_not_put_in_place(site: Path, deploy: Deploy) -> None:
    before = contents(site)
    broken = diff_of("sglang/conn.py", CONN, CONN.replace("return new", "return new new"))
    (problem,) = deploy(("broken", broken))["problems"]
    assert "with broken a file does not compile" in problem["message"]
    assert "sglang/conn.py" in problem["message"] and "SyntaxError" in problem["message"]
    assert contents(site) == before


def test_S10_patches_build_on_each_other_and_the_lower_one_can_be_taken_out(site: Path, deploy: Deploy) -> None:
    upper = diff_of("sglang/conn.py", FIXED, FIXED.replace("# eight", "# 8"))
    deploy(("lower", CONN_DIFF), ("upper", upper))
    assert (site / "conn.py").read_text() == FIXED.replace("# eight", "# 8")
    alone = diff_of("sglang/conn.py", CONN, CONN.replace("# eight", "# 8"))
    done = deploy(("upper", alone))
    assert done["actions"] == {"upper": "apply", "lower": "undo"}
    assert (site / "conn.py").read_text() == CONN.replace("# eight", "# 8")
    deploy()
    assert (site / "conn.py").read_text() == CONN


def test_S10_a_new_text_under_the_same_name_replaces_the_old_one(site: Path, deploy: Deploy) -> None:
    deploy(("abort-race", CONN_DIFF))
    done = deploy(("abort-race", PREFILL_DIFF))
    assert done["actions"] == {"abort-race": "apply"}
    assert (site / "conn.py").read_text() == CONN
    assert "'late'" in (site / "prefill.py").read_text()


def test_S10_a_file_that_somebody_else_changed_is_left_alone_and_named(site: Path, deploy: Deploy) -> None:
    deploy(("abort-race", CONN_DIFF))
    (site / "conn.py").write_text(FIXED + "# mine\n")
    (problem,) = deploy()["problems"]
    assert str(site / "conn.py") in problem["message"]
    assert (site / "conn.py").read_text() == FIXED + "# mine\n"
    (site / "conn.py").write_text(CONN)  # pip install --force-reinstall
    done = deploy(("abort-race", CONN_DIFF))
    assert done["actions"] == {"abort-race": "apply"}
    assert "somebody put the original sglang/conn.py back" in done["notes"][0]
    assert (site / "conn.py").read_text() == FIXED


def test_S10_an_upgrade_in_place_is_noticed(site: Path, deploy: Deploy) -> None:
    deploy(("abort-race", CONN_DIFF), ("other", PREFILL_DIFF))
    install(site.parent, "0.5.23")
    (site / "conn.py").write_text(FIXED.replace("# one", "# 1"))
    (site / "prefill.py").write_text("# newer\n" + PREFILL)
    done = deploy(("abort-race", CONN_DIFF), ("other", PREFILL_DIFF))
    assert done["problems"] == []
    assert done["actions"] == {"abort-race": "unneeded", "other": "apply"}
    assert "0.5.23 was installed over 0.5.16" in done["notes"][0]
    assert "its lines have moved" in done["notes"][1]
    assert done["patcher"].state["version"] == "0.5.23"
    deploy()
    assert (site / "prefill.py").read_text() == "# newer\n" + PREFILL, "undone to the new version's bytes"


def test_S10_a_new_file_is_made_and_removed_again(site: Path, deploy: Deploy) -> None:
    new = diff_of("sglang/sticky.py", "", "STICKY = True\n")
    deploy(("new", new))
    assert (site / "sticky.py").read_text() == "STICKY = True\n"
    assert deploy(("new", new))["actions"] == {"new": "keep"}
    deploy()
    assert not (site / "sticky.py").exists()
    assert not list((site / "__pycache__").glob("sticky.*"))
    (problem,) = deploy(("new", diff_of("sglang/nowhere/x.py", "", "X = 1\n")))["problems"]
    assert "its directory does not exist" in problem["message"]


def test_S10_check_mode_says_the_same_and_changes_nothing(site: Path, deploy: Deploy) -> None:
    before = contents(site)
    foreseen = deploy(("abort-race", CONN_DIFF), check=True)
    assert contents(site) == before
    assert foreseen["patcher"].state == {}
    done = deploy(("abort-race", CONN_DIFF))
    assert (foreseen["actions"], foreseen["state"]) == (done["actions"], done["state"])


class KilledError(BaseException):
    """Stands for SIGKILL: nothing that is cleaned up after errors is cleaned up after it."""


def kill_at(number: int, patched: pytest.MonkeyPatch) -> None:
    """Die instead of the step with this number: records of the state, files set, compiling."""
    steps = iter(range(1, 100))

    def mortal(genuine: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if next(steps) == number:
                raise KilledError
            genuine(*arguments)

        return call

    patched.setattr(Patches, "_set", mortal(Patches._set))
    patched.setattr(Patches, "_compile", mortal(Patches._compile))
    patched.setattr(host_patches.files, "write_json", mortal(host_patches.files.write_json))


BOTH = ("abort-race", CONN_DIFF + PREFILL_DIFF)


@pytest.mark.parametrize("next_run", [[BOTH], [("other", CONN_DIFF)]], ids=["same", "other"])
@pytest.mark.parametrize("first_run", [[BOTH], []], ids=["applying", "undoing"])
@pytest.mark.parametrize("dies_at", [1, 2, 3, 4, 5])
def test_R6_a_run_that_dies_anywhere_is_understood(
    site: Path, deploy: Deploy, dies_at: int, first_run: list[Any], next_run: list[Any]
) -> None:
    pristine = contents(site)
    if not first_run:
        deploy(BOTH)
    with pytest.MonkeyPatch.context() as patched:
        kill_at(dies_at, patched)
        with pytest.raises(KilledError):
            deploy(*first_run)
    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(KilledError):
        kill_at(dies_at, patched)  # the next one does not live either
        deploy(*next_run)
    done = deploy(*next_run)
    assert done["problems"] == []
    assert (site / "conn.py").read_text() == FIXED
    assert ("'late'" in (site / "prefill.py").read_text()) == (next_run == [BOTH])
    assert "pending" not in done["patcher"].state
    assert deploy(*next_run)["files"] == {}
    deploy()
    assert contents(site) == pristine


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_S10_a_step_that_fails_puts_everything_back(site: Path, deploy: Deploy, fails_at: int) -> None:
    other = ("other", diff_of("sglang/conn.py", CONN, CONN.replace("# eight", "# 8")))
    deploy(other)
    before = contents(site)
    steps = iter(range(1, 100))
    genuine = host_patches._replace

    def full(path: str, content: bytes) -> None:
        if path.startswith(str(site)) and fails_at < 3 and next(steps) == fails_at:
            raise OSError(28, "No space left on device")
        genuine(path, content)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(host_patches, "_replace", full)
        if fails_at == 3:
            patched.setattr(host_patches, "_COMPILE", "raise SystemExit('disk full')")
        with pytest.raises(PatchingError, match="all files are as before"):
            deploy(BOTH)
    assert contents(site) == before
    assert deploy(other)["actions"] == {"other": "keep"}


def test_S10_a_diff_that_the_host_kept_can_be_named_by_its_hash(site: Path, deploy: Deploy, interpreter: Path) -> None:
    """So a rollback needs nothing but what it finds on the host."""
    sha256 = deploy(("abort-race", CONN_DIFF))["state"]["patches"][0]["sha256"]
    deploy()
    patches = Patches(run, str(interpreter), "sglang")
    work = patches.work_out([{"name": "abort-race", "diff": None, "sha256": sha256}])
    assert _patches.applied(work["state"]) == [{"name": "abort-race", "sha256": sha256}]
    with pytest.raises(PatchingError, match="patch lost: no diff is given"):
        patches.work_out([{"name": "lost", "sha256": "0" * 64}])
    with pytest.raises(PatchingError, match="is not the one of sha256"):
        patches.work_out([{"name": "other", "diff": "x", "sha256": sha256}])


def test_S10_a_lost_original_is_told_before_anything_is_undone(site: Path, deploy: Deploy) -> None:
    store = deploy(("abort-race", CONN_DIFF))["store"]
    (store / "original/sglang/conn.py").write_text("not it\n")
    with pytest.raises(PatchingError, match=r"pip install --force-reinstall --no-deps"):
        deploy()
    assert (site / "conn.py").read_text() == FIXED


def test_files_that_are_shared_between_environments_are_not_written_through(site: Path, deploy: Deploy) -> None:
    """uv links one file into several environments."""
    cache = site.parent.parent / "conn.cached"
    os.link(site / "conn.py", cache)
    deploy(("abort-race", CONN_DIFF))
    assert cache.read_text() == CONN
    cache.unlink()
    deploy()
    (site / "conn.py").rename(cache)
    (site / "conn.py").symlink_to(cache)
    with pytest.raises(PatchingError, match="symbolic link"):
        deploy(("abort-race", CONN_DIFF))
    assert cache.read_text() == CONN
    cache.unlink()


def test_code_that_exists_twice_is_told_apart_by_its_lines(site: Path, deploy: Deploy) -> None:
    twice = FIXED + CONN
    (site / "conn.py").write_text(twice)
    shifted = diff_of("sglang/conn.py", twice, FIXED + FIXED)
    assert deploy(("second", shifted))["actions"] == {"second": "apply"}
    assert (site / "conn.py").read_text() == FIXED + FIXED
    (site / "conn.py").write_text(CONN)
    deploy()


def test_a_missing_program_or_package_is_named(
    site: Path, deploy: Deploy, interpreter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PatchingError, match="has no package nothing"):
        Patches(run, str(interpreter), "nothing")
    with pytest.raises(PatchingError, match="cannot be run"):
        Patches(run, "/no/python", "sglang")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoPatchProgramError, match=r"package patch"):
        deploy(("abort-race", CONN_DIFF))
