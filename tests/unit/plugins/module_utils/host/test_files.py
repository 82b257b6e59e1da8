# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are never seen half-written, and the lock that one process changes at a time."""

from __future__ import annotations

import json
import multiprocessing
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _lock
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files


@pytest.fixture(autouse=True)
def _folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MEMBERS", "LEDGERS", "LOCKS"):
        monkeypatch.setattr(files, name, str(tmp_path / name.lower()))
    monkeypatch.setattr(files, "RUNNING", str(tmp_path / "{unit}.configuration"))


def test_a_ledger_is_read_as_it_was_written() -> None:
    assert files.ledger("u") == _ledger.empty("u")
    content = _ledger.announce(_ledger.empty("u"), 3, {"id": "r"})
    files.write_ledger(content)
    assert files.ledger("u") == content


def test_a_ledger_of_an_older_version_gets_what_it_lacks() -> None:
    files.write_json(files.LEDGERS + "/u.json", {"unit": "u", "generation": 4})
    assert files.ledger("u") == dict(_ledger.empty("u"), generation=4)


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "x" / "f.json"
    files.write_json(str(path), {"a": 1})
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with pytest.raises(TypeError):
        files.write_json(str(path), {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [file.name for file in path.parent.iterdir()] == ["f.json"]


@pytest.mark.parametrize("content", ["", "{", "\x00"])
def test_R6_a_file_that_is_no_json_is_named_and_never_taken_for_absent(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(files.FileError, match=r"broken\.json cannot be read"):
        files.read_json(str(path))
    assert files.read_json(str(tmp_path / "absent.json")) is None


def test_S5_a_running_configuration_is_that_of_the_incarnation_that_noted_it(tmp_path: Path) -> None:
    assert files.running_configuration("u", "i1") == ""
    (tmp_path / "u.configuration").write_text("i1 abc\n")
    assert files.running_configuration("u", "i1") == "abc"
    assert files.running_configuration("u", "i2") == ""
    (tmp_path / "u.configuration").write_text("i1\n")
    assert files.running_configuration("u", "i1") == ""


def test_a_lock_is_written_left_and_removed() -> None:
    assert files.locks() == {}
    assert files.change_lock("c", lambda held: ({"run": {"id": "r"}}, "locked")) == "locked"
    assert files.locks() == {"c": {"run": {"id": "r"}}}
    assert files.change_lock("c", lambda held: (None, "left")) == "left"
    assert files.locks() == {"c": {"run": {"id": "r"}}}
    files.change_lock("c", lambda held: ({}, ""))
    assert files.locks() == {}


def _compete(folder: str, name: str, won: Any) -> None:
    files.LOCKS = folder
    wanted = {"run": {"id": name, "owner": name, "purpose": "p"}, "generation": 1, "lease_seconds": 60}

    def acquire(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
        lock, message = _lock.acquire(held, wanted, 0.0, "")
        won.put((name, lock is not None))
        return lock, message

    files.change_lock("c", acquire)


def test_R7_of_many_who_want_a_lock_at_once_one_gets_it() -> None:
    context = multiprocessing.get_context("spawn")
    won = context.Queue()
    racers = [context.Process(target=_compete, args=(files.LOCKS, "r{}".format(n), won)) for n in range(4)]
    for racer in racers:
        racer.start()
    results = dict(won.get(timeout=60) for _racer in racers)
    for racer in racers:
        racer.join()
    assert sum(results.values()) == 1
    assert results[files.locks()["c"]["run"]["id"]]
