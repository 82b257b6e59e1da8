# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles on disk, and what the hosts of a play gave."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.inferops.sglang_pd.plugins.action import diagnose
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _bundle

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
