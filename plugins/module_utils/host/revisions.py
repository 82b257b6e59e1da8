# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Revisions on this host: the managed files of a unit, byte for byte, as they ran well.

``revisions/UNIT/GENERATION/`` has the files and a ``revision.json``. Only root may look: one
of the files holds secrets.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from typing import Any, NamedTuple

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _patches, _revision
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import ROUTER
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.patches import Patches, PatchingError
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Run

REVISIONS = "/var/lib/sglang-pd/revisions"
MANIFEST = "revision.json"
_TEMPORARY = ".new-"
#: What a diff shows of a file with secrets.
NOT_SHOWN = "(content not shown: it may hold secrets)\n"

#: Asks an interpreter which version of a package it would import.
_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


class _File(NamedTuple):
    content: bytes
    mode: int
    uid: int
    gid: int


def _read(path: str) -> _File | None:
    try:
        with open(path, "rb") as source:
            content = source.read()
            found = os.fstat(source.fileno())
    except FileNotFoundError:
        return None
    except OSError as trouble:
        raise files.FileError("{0} cannot be read: {1}".format(path, trouble)) from trouble
    return _File(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _deployed(unit: str) -> dict[str, _File | None]:
    return {name: _read(path) for name, path in _revision.managed_files(unit).items()}


def _digest(found: dict[str, _File | None]) -> str:
    """Return one hash over content, owner and mode of all files."""
    facts = [
        [name, None if one is None else [hashlib.sha256(one.content).hexdigest(), one.mode, one.uid, one.gid]]
        for name, one in sorted(found.items())
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def deployed_digest(unit: str) -> str:
    """Return the hash of a unit's files as they are deployed now."""
    return _digest(_deployed(unit))


def _folder(unit: str, generation: int | str = "") -> str:
    return os.path.join(REVISIONS, unit, str(generation)) if generation else os.path.join(REVISIONS, unit)


def _manifests(unit: str) -> list[dict[str, Any]]:
    """Return what is known of a unit's revisions, newest first."""
    try:
        names = [name for name in os.listdir(_folder(unit)) if name.isdigit()]
    except FileNotFoundError:
        return []
    found = [files.read_json(os.path.join(_folder(unit, name), MANIFEST)) for name in names]
    return sorted((one for one in found if one), key=lambda one: -int(one["generation"]))


def _kept(unit: str, manifest: dict[str, Any]) -> dict[str, _File | None]:
    """Return the files of a revision as they are to be put back."""
    found: dict[str, _File | None] = {}
    for one in manifest["files"]:
        content = None
        if one["mode"] is not None:
            content = _read(os.path.join(_folder(unit, manifest["generation"]), one["name"]))
        found[one["name"]] = content and content._replace(mode=one["mode"], uid=one["uid"], gid=one["gid"])
    return found


def listed(unit: str, run: Run, asked: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return a unit's revisions, newest first.

    :param run: ``AnsibleModule.run_command``; asks old interpreters for their versions.
    :param asked: what was found out of environments already, the same for all units of a host:
        their revisions run from the same few. Is added to.
    :return: ``generation``, ``generations``, ``kept_at``, ``digest``, ``version``, ``member``
        (the description of the member at that time) and ``problems`` (why it cannot be put
        back, as texts).
    """
    found = []
    for manifest in _manifests(unit):
        kept = _kept(unit, manifest)
        one = {key: manifest[key] for key in ("generation", "generations", "kept_at", "digest")}
        description = kept.get("member.json")
        damaged = _digest(kept) != manifest["digest"] or description is None
        member = json.loads(description.content) if description and not damaged else {}
        problems = ["its files under {0} are damaged".format(_folder(unit, manifest["generation"]))] if damaged else []
        found.append(
            dict(
                one,
                version=member.get("version", ""),
                member=member,
                problems=problems or _obstacles(member, kept, run, asked) or _obstacles_of_patches(member, run, asked),
            )
        )
    return found


def _obstacles(
    member: dict[str, Any], kept: dict[str, _File | None], run: Run, asked: dict[str, list[str]]
) -> list[str]:
    """Return why what a revision wants to run is not there any more."""
    command = list(member.get("exec_start") or [])
    if not command and kept.get("unit"):
        # Kept before member files had the command.
        text = kept["unit"].content.decode("utf-8", "replace") if kept["unit"] else ""
        command = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
    if not command:
        return ["it does not say what it runs"]
    wanted = command[:2] if member["role"] == ROUTER else command[:1]
    missing = [word for word in wanted if word.startswith("/") and not os.path.exists(word)]
    if missing:
        return ["{0} does not exist any more: install that version again".format(missing[0])]
    package = member.get("package") or "sglang"
    key = json.dumps([command[0], package])
    if key not in asked:
        status, out, _err = run([command[0], "-c", _VERSION, package])
        asked[key] = [out.strip() if status == 0 else "none"]
    installed = asked[key][0]
    if installed != member["version"]:
        return ["it ran {0} {1}, and {2} has {3} now".format(package, member["version"], command[0], installed)]
    return []


def _obstacles_of_patches(member: dict[str, Any], run: Run, asked: dict[str, list[str]]) -> list[str]:
    """Return why the hot patches of a revision cannot be put back; tried on copies, and once a list.

    They belong to the environment, not to the unit: other clusters may run from it.
    """
    if member["role"] == ROUTER or "patches" not in member:
        return []
    python, wanted = member["exec_start"][0], member["patches"]
    key = json.dumps([python, wanted])
    if key not in asked:
        asked[key] = []
        try:
            patches = Patches(run, python, "sglang")
            if _patches.applied(patches.state) != wanted:
                others = [
                    one["unit"]
                    for one in files.members()
                    if one["cluster"] != member["cluster"]
                    and one["role"] != ROUTER
                    and (one.get("exec_start") or [""])[0] == python
                    and one.get("patches") != wanted
                ]
                asked[key] = [
                    "it ran with other patches of {0}, and {1} of another cluster runs from there as it is".format(
                        patches.root, unit
                    )
                    for unit in others
                ] or [item["message"] for item in patches.work_out(wanted)["problems"]]
        except (PatchingError, files.FileError, OSError) as trouble:
            asked[key] = [str(trouble)]
    return asked[key]


def _put_patches_back(kept: dict[str, _File | None], run: Run) -> None:
    """Give the environment of a revision the patches that it had.

    :raises PatchingError: with all files of the environment as before.
    """
    description = kept.get("member.json")
    member = json.loads(description.content) if description else {}
    if member.get("role", ROUTER) == ROUTER or "patches" not in member:
        return
    patches = Patches(run, member["exec_start"][0], "sglang")
    if _patches.applied(patches.state) == member["patches"]:
        return
    with patches.locked():
        work = patches.work_out(member["patches"])
        if work["problems"]:
            raise PatchingError("; ".join(item["message"] for item in work["problems"]))
        patches.put_in_place(work)


def keep(unit: str, generation: int, running: str) -> str:
    """Keep what is deployed of a unit as a revision; return what went wrong, or "".

    :param running: configuration hash of what runs; files that are not what runs ended no
        co-restart well and are not kept, which is no trouble.
    """
    found = _deployed(unit)
    description, unit_file = found["member.json"], found["unit"]
    if description is None or unit_file is None:
        return "its files are gone"
    member = json.loads(description.content)
    # A deployment that is under way changes one file after the other.
    if not running or member["configuration"] != running or running.encode() not in unit_file.content:
        return ""
    new = {"generation": generation, "digest": _digest(found)}
    limit = int(member.get("kept_revisions", _revision.KEPT_REVISIONS))
    try:
        verb, revisions, dropped = _revision.keep(_manifests(unit), new, limit)
        if verb == "new":
            _write(unit, dict(revisions[0], kept_at=time.time()), found)
        elif verb == "same":
            files.write_json(os.path.join(_folder(unit, revisions[0]["generation"]), MANIFEST), revisions[0])
        for old in dropped:
            shutil.rmtree(_folder(unit, old))
    except OSError as trouble:
        return str(trouble)
    return ""


def _write(unit: str, manifest: dict[str, Any], found: dict[str, _File | None]) -> None:
    os.makedirs(REVISIONS, mode=0o700, exist_ok=True)
    os.makedirs(_folder(unit), mode=0o700, exist_ok=True)
    for name in os.listdir(_folder(unit)):
        if name.startswith(_TEMPORARY):
            shutil.rmtree(os.path.join(_folder(unit), name))
    temporary = tempfile.mkdtemp(dir=_folder(unit), prefix=_TEMPORARY)
    manifest["files"] = [
        {
            "name": name,
            "path": _revision.managed_files(unit)[name],
            "mode": one and one.mode,
            "uid": one and one.uid,
            "gid": one and one.gid,
        }
        for name, one in sorted(found.items())
    ]
    for name, one in found.items():
        if one is not None:
            _replace(os.path.join(temporary, name), one._replace(mode=0o600, uid=0, gid=0))
    files.write_json(os.path.join(temporary, MANIFEST), manifest)
    target = _folder(unit, manifest["generation"])
    if os.path.exists(target):
        shutil.rmtree(target)
    os.rename(temporary, target)


def _replace(path: str, new: _File) -> None:
    """Write a file atomically and durably, with its owner and mode."""
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=_TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb") as target:
            target.write(new.content)
            os.fchmod(target.fileno(), new.mode)
            if os.geteuid() == 0:
                os.fchown(target.fileno(), new.uid, new.gid)
            target.flush()
            os.fsync(target.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _whole(unit: str, generation: int) -> dict[str, _File | None]:
    """Return the files of a revision.

    :raises FileError: where it is gone or damaged.
    """
    manifest = next((one for one in _manifests(unit) if one["generation"] == generation), None)
    if manifest is None:
        raise files.FileError("revision {0} of {1} is gone".format(generation, unit))
    kept = _kept(unit, manifest)
    if _digest(kept) != manifest["digest"]:
        raise files.FileError("revision {0} of {1} is damaged".format(generation, unit))
    return kept


def changes(units: dict[str, int]) -> tuple[list[dict[str, str]], list[tuple[str, _File | None]]]:
    """Return what putting revisions back would change: for people, and what to write where.

    :param units: generation by unit.
    :raises FileError: where a revision is gone or damaged.
    """
    shown: list[dict[str, str]] = []
    writes: list[tuple[str, _File | None]] = []
    for unit, generation in sorted(units.items()):
        kept = _whole(unit, generation)
        now = _deployed(unit)
        for name, path in _revision.managed_files(unit).items():
            if now[name] == kept.get(name):
                continue
            writes.append((path, kept.get(name)))
            shown.append(
                {"path": path, "before": _text(name, now[name]), "after": _text(name, kept.get(name), "changed")}
            )
    return shown, writes


def _text(name: str, one: _File | None, note: str = "") -> str:
    if one is None:
        return ""
    if name in _revision.SECRET_FILES:
        return NOT_SHOWN + (note + "\n" if note else "")
    return one.content.decode("utf-8", "replace")


def restore(units: dict[str, int], run: Run) -> tuple[list[dict[str, str]], str]:
    """Put revisions of units back and tell systemd; see :meth:`_steps.Host.restore`."""
    try:
        shown, writes = changes(units)
        for unit, generation in sorted(units.items()):
            _put_patches_back(_whole(unit, generation), run)
    except (files.FileError, PatchingError, OSError) as trouble:
        return [], str(trouble)
    for number, (path, new) in enumerate(writes):
        try:
            if new is None:
                os.unlink(path)
            else:
                _replace(path, new)
        except OSError as trouble:
            return shown[:number], "{0} cannot be written: {1}".format(path, trouble)
    if writes:
        status, _out, err = run(["systemctl", "daemon-reload"])
        if status:
            return shown, "systemctl daemon-reload: " + err.strip()
    return shown, ""
