# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles on disk, and what the hosts of a play gave."""

from __future__ import annotations

import contextlib
import io
import random
import tarfile
import types
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.inferops.sglang_pd.plugins.action import diagnose
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _bundle

from ..fleet import member
from ..module_utils.sighting import Sighting

ITEMS = [
    _bundle.item("v1_loads", "{}", "h", "u.service", 1.0),
    _bundle.item("v1_loads", "{}", "h", "u.service", 2.0),
    _bundle.item("machine.json", {"gpus": []}, "h", at=2.0),
]


@pytest.mark.parametrize("name", ["bundle", "bundle.tar", "bundle.tgz", "new/bundle.tar.gz"])
def test_what_is_saved_is_read_again(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    assert diagnose.save(ITEMS, path) == path
    (items,) = _bundle.read(diagnose.read_files(path)).values()
    assert sorted(items, key=str) == sorted(ITEMS, key=str)


def test_two_looks_never_share_a_folder(tmp_path: Path) -> None:
    diagnose.save(ITEMS, str(tmp_path / "b"))
    with pytest.raises(AnsibleActionFail, match="is not empty: name a new folder"):
        diagnose.save(ITEMS, str(tmp_path / "b"))


def test_what_is_no_bundle_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_text("no tar")
    for path in (tmp_path / "x.tgz", tmp_path / "none"):
        with pytest.raises(AnsibleActionFail, match="cannot be read"):
            diagnose.read_files(str(path))


def test_a_tar_from_anywhere_writes_nothing_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("../../outside__prefill__health.txt", "s__prefill__health.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 100
            tar.addfile(entry, io.BytesIO(b"x" * 100))
        link = tarfile.TarInfo("s__decode__health.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    files = diagnose.read_files(str(path))
    assert sorted(files) == ["../../outside__prefill__health.txt", "s__prefill__health.txt"]
    assert sorted(tmp_path.rglob("*")) == [path]
    monkeypatch.setattr(diagnose, "BUNDLE_BYTES", 150)
    with pytest.raises(AnsibleActionFail, match="no bundle of a diagnosis"):
        diagnose.read_files(str(path))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_tar_that_is_cut_or_changed_is_read_or_told(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "bundle.tar"
    with tarfile.open(path, mode) as tar:
        for number in range(3):
            body = b"sglang:x 1\n" * 50 + random.Random(number).randbytes(300)
            entry = tarfile.TarInfo("s__prefill__metrics{}.txt".format(number))
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    good = path.read_bytes()
    for seed in range(200):
        number, changed = random.Random(seed), bytearray(good)
        for _ in range(number.randint(1, 10)):
            changed[number.randrange(len(changed))] = number.randrange(256)
        path.write_bytes(changed[: number.randrange(len(changed))] if seed % 3 == 0 else changed)
        with contextlib.suppress(AnsibleActionFail):
            _bundle.read(diagnose.read_files(str(path)))


def test_R6_a_host_that_does_not_answer_is_part_of_what_was_seen() -> None:
    hostvars: dict[str, Any] = {
        "a": {"pd_seen": {"items": [dict(ITEMS[0], host="")]}},
        "b": {"pd_seen": {"unreachable": True, "msg": "no route\n"}},
        "c": {"pd_seen": {"failed": True, "msg": "no requests"}},
        "d": {},
    }
    items = diagnose.items_of(list(hostvars), hostvars, "pd_seen")
    assert [(one["host"], one["endpoint"]) for one in items] == [
        ("a", "v1_loads"),
        ("b", "unreachable.json"),
        ("c", "unreachable.json"),
    ]
    assert '"no route"' in items[1]["body"]


class Action(diagnose.ActionModule):
    """The action with its surroundings replaced: arguments and check mode."""

    def __init__(self, check_mode: bool = False, **arguments: Any):
        self._task = types.SimpleNamespace(args=arguments, check_mode=check_mode, async_val=0)

    def validate_argument_spec(self, argument_spec: Any = None, **more: Any) -> Any:
        return None, {name: self._task.args.get(name, one.get("default")) for name, one in argument_spec.items()}


def judge(monkeypatch: pytest.MonkeyPatch, items: list[dict[str, Any]], **arguments: Any) -> dict[str, Any]:
    monkeypatch.setattr(diagnose.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(diagnose, "items_of", lambda hosts, hostvars, registered: items)
    return Action(**arguments).run(task_vars={"ansible_play_hosts_all": [], "hostvars": {}})


def test_the_report_of_each_cluster_is_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = judge(monkeypatch, Sighting().items(), report_dir=str(tmp_path / "new"))
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["diagnose-c.html"]
    assert "Healthy" in (tmp_path / "new" / "diagnose-c.html").read_text()
    assert result["lines"][-1] == "report: {}".format(tmp_path / "new" / "diagnose-c.html")


def test_check_mode_writes_no_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = judge(monkeypatch, Sighting().items(), check_mode=True, report_dir=str(tmp_path / "new"))
    assert result["healthy"] and not (tmp_path / "new").exists()


def test_a_cluster_of_a_bundle_names_no_file_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = Sighting()
    for role in one.facts:
        one.facts[role]["member"] = dict(member(role, role[0]), cluster="../<b>x")
    judge(monkeypatch, one.items(), report_dir=str(tmp_path / "new"))
    assert [path.name for path in tmp_path.rglob("*.*")] == ["diagnose-..%2F%3Cb%3Ex.html"]
