# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hot patches on this host: an installed package, its files, and the programs that work on them.

Everything is tried on copies first: all patches of the list, one on top of the other, and
then compiled. Only what came out of that is put in place, file by file, by rename; what an
interrupted run leaves is understood by the next one from the state's ``pending``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, Callable

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _patches
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files

#: Where originals, diffs and the record of what is applied are kept, by environment.
STORE = "/var/lib/sglang-pd/patches"

#: ``AnsibleModule.run_command``; with ``handle_exceptions=False`` it raises OSError.
Run = Callable[..., Any]

_LOCATE = """
import importlib.metadata, importlib.util, json, sys
spec = importlib.util.find_spec(sys.argv[1])
places = list(spec.submodule_search_locations or []) if spec else []
try:
    version = importlib.metadata.version(sys.argv[1])
except importlib.metadata.PackageNotFoundError:
    version = "unknown"
print(json.dumps([places, version]))
"""

# Syntax errors only: nothing is imported, nothing is written.
_TRY_TO_COMPILE = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as source:
        compile(source.read(), path, "exec", dont_inherit=True)
"""

# The service's user may not write there: what is not compiled now is compiled at every start.
_COMPILE = """
import os, py_compile, sys
os.umask(0o022)
for path in sys.argv[1:]:
    py_compile.compile(path, doraise=True)
"""

#: How modules take a patch.
PATCH_ARGUMENTS = {"name": {"type": "str", "required": True}, "diff": {"type": "str"}, "sha256": {"type": "str"}}


class PatchingError(Exception):
    """Nothing was changed, or everything is as before; the message says why."""


class NoPatchProgramError(PatchingError):
    """The program ``patch`` is not installed."""


def locate(run: Run, python: str, package: str) -> tuple[str, str]:
    """Return the directory that holds an environment's package, and the package's version.

    The interpreter is asked without importing the package.
    """
    try:
        status, out, err = run([python, "-I", "-c", _LOCATE, package], handle_exceptions=False)
    except OSError as trouble:
        raise PatchingError("{0} cannot be run: {1}".format(python, trouble)) from trouble
    if status != 0:
        raise PatchingError("{0} cannot be asked for {1}: {2}".format(python, package, err.strip() or status))
    places, version = json.loads(out.strip().splitlines()[-1])
    if len(places) != 1:
        raise PatchingError("{0} has no package {1} in one directory: {2}".format(python, package, places or "none"))
    return os.path.dirname(os.path.realpath(places[0])), version


class Patches:
    """The patches of one environment's package.

    :param run: ``AnsibleModule.run_command``.
    :param python: the environment's interpreter.
    """

    def __init__(self, run: Run, python: str, package: str):
        self._run = run
        self._python = python
        self.package = package
        self.root, self.version = locate(run, python, package)
        self.directory = os.path.join(STORE, _patches.environment_key(self.root))
        self.state: dict[str, Any] = files.read_json(self._state_file) or {}

    @property
    def _state_file(self) -> str:
        return os.path.join(self.directory, "state.json")

    def _backup_file(self, path: str) -> str:
        return os.path.join(self.directory, "original", path)

    def _diff_file(self, sha256: str) -> str:
        return os.path.join(self.directory, "diffs", sha256 + ".patch")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold off other runs, and read again what they left."""
        os.makedirs(self.directory, mode=0o755, exist_ok=True)
        with open(os.path.join(self.directory, ".guard"), "w", encoding="ascii") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            self.state = files.read_json(self._state_file) or {}
            yield

    def diff_of(self, item: dict[str, Any]) -> str:
        """Return the diff of a wanted patch: as given, or as this host kept it."""
        if item.get("diff"):
            diff = str(item["diff"])
            if item.get("sha256") and _patches.digest(diff.encode()) != item["sha256"]:
                raise PatchingError("patch {name}: the diff is not the one of sha256 {sha256}".format(**item))
            return diff
        kept = _read(self._diff_file(str(item.get("sha256") or "none")))
        if kept is None:
            raise PatchingError("patch {0}: no diff is given, and none with that sha256 is kept in {1}/diffs".format(
                item["name"], self.directory))  # fmt: skip
        return kept.decode()

    # ------------------------------------------------------------ work out

    def work_out(self, wanted: list[dict[str, Any]]) -> dict[str, Any]:
        """Work out, on copies, what a list of patches makes of the package's files. Changes nothing.

        :return: ``problems``, ``notes``, ``patches`` (what becomes of each), ``unneeded``,
            ``state`` (to be), ``files`` (by path: ``original``, ``now`` and ``next``, each
            bytes or None for no such file; only files that change), ``diffs``.
        """
        recorded = _patches.recorded_files(self.state)
        present = {path: _read(self._inside(path)) for path in recorded}
        digests = {path: _patches.digest(content) for path, content in present.items()}
        originals, notes, problems = _patches.find_originals(self.state, self.version, digests)
        result: dict[str, Any] = {"problems": problems, "notes": notes, "patches": [], "unneeded": [], "files": {},
                                  "diffs": {}, "state": self.state}  # fmt: skip
        if problems or not (wanted or self.state):
            return result
        tree = {path: self._backup(path) if kept else present[path] for path, kept in originals.items()}
        pristine = dict(tree)
        applied, unneeded, refused = [], [], []
        with tempfile.TemporaryDirectory(prefix="sglang-pd-patches-") as bench:
            for item in wanted:
                diff = self.diff_of(item)
                sha256 = _patches.digest(diff.encode())
                action, message, changed = self._try(bench, str(item["name"]), diff, tree, pristine)
                if action == _patches.UNNEEDED:
                    unneeded.append({"name": item["name"], "sha256": sha256, "message": message})
                elif action == _patches.INAPPLICABLE:
                    refused.append(_patches.problem(_patches.RULE_FITS, message, variable=_patches.VARIABLE))
                else:
                    touched = {
                        path: {"before": _patches.digest(tree[path]), "after": _patches.digest(content)}
                        for path, content in sorted(changed.items())
                    }
                    tree.update(changed)
                    applied.append({"name": item["name"], "sha256": sha256, "files": touched})
                    result["diffs"][sha256] = diff
                    if "moved" in message:
                        notes.append("patch {0}: {1}".format(item["name"], message))
            for path, content in sorted(tree.items()):
                now = present[path] if path in present else pristine[path]
                if content != now:
                    result["files"][path] = {"original": pristine[path], "now": now, "next": content}
            trouble = self._compile_copies(bench, result["files"])
        if trouble:
            names = [patch["name"] for patch in applied]
            refused.append(
                _patches.problem(
                    "what is patched compiles",
                    "with {0} a file does not compile by {1}: {2}".format(", ".join(names), self._python, trouble),
                    variable=_patches.VARIABLE,
                )
            )
        state: dict[str, Any] = {
            "root": self.root,
            "package": self.package,
            "version": self.version,
            "patches": applied,
        }
        return dict(
            result,
            problems=refused,
            patches=_patches.outcomes(self.state, applied, unneeded, originals),
            unneeded=unneeded,
            state=state,
        )

    def _try(
        self,
        bench: str,
        name: str,
        diff: str,
        tree: dict[str, bytes | None],
        pristine: dict[str, bytes | None],
    ) -> tuple[str, str, dict[str, bytes | None]]:
        """Try one patch on what the patches before it made; return the decision, why, and the new contents."""
        try:
            sections = _patches.parse(diff, self.package)
        except _patches.DiffError as refused:
            return _patches.INAPPLICABLE, "patch {0} is not one: {1}".format(name, refused), {}
        meant = [self._file_of(section, tree, pristine) for section in sections]
        forward: dict[str, bytes | None] = {path: tree[path] for path in meant}
        backward = dict(forward)
        tries = [{"path": path, "exists": tree[path] is not None} for path in meant]
        for number, section in enumerate(sections):
            tries[number]["forward"], forward[meant[number]] = self._attempt(
                bench, section, meant[number], forward[meant[number]]
            )
        for number, section in reversed(list(enumerate(sections))):
            tries[number]["reverse"], backward[meant[number]] = self._attempt(
                bench, section, meant[number], backward[meant[number]], reverse=True
            )
        for one, section in zip(tries, sections):
            one["exists"] = one["exists"] or section["created"] is not None
        installed = "{0} {1}".format(self.package, self.version)
        action, message = _patches.judge(name, installed, tries)
        return action, message, forward

    def _file_of(
        self, section: dict[str, Any], tree: dict[str, bytes | None], pristine: dict[str, bytes | None]
    ) -> str:
        """Return the file that a part of a diff means, known to ``tree`` from then on."""
        for path in section["paths"]:
            if tree.get(path) is not None:
                return str(path)
        for path in section["paths"]:
            if path not in tree and os.path.isfile(self._inside(path)):
                tree[path] = pristine[path] = _read(self._inside(path))
                return str(path)
        chosen = str(section["paths"][0])
        for path in section["paths"] if section["created"] is not None else []:
            if os.path.isdir(os.path.dirname(self._inside(path))):
                chosen = str(path)
                break
        tree.setdefault(chosen, None)
        pristine.setdefault(chosen, None)
        return chosen

    def _attempt(
        self, bench: str, section: dict[str, Any], path: str, content: bytes | None, reverse: bool = False
    ) -> tuple[dict[str, Any], bytes | None]:
        """Let ``patch`` try one part of a diff on a copy; return the outcome and the new content."""
        if section["created"] is not None:
            made = section["created"].encode()
            fits = content == made if reverse else content is None
            if not fits:
                return _patches.attempt(False, "exists with other content"), content
            if not reverse and not os.path.isdir(os.path.dirname(self._inside(path))):
                return _patches.attempt(False, "its directory does not exist"), content
            return _patches.attempt(True), None if reverse else made
        if content is None:
            return _patches.attempt(False, "does not exist"), content
        source, target, rejects = (os.path.join(bench, name) for name in ("source", "target", "rejects"))
        for leftover in (target, rejects):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leftover)
        _write(source, content)
        # Strictly: a hunk whose context differs (fuzz) may land in a place that is not meant.
        command = ["patch", "--unified", "--force", "--fuzz=0", "--no-backup-if-mismatch"]
        command += ["--reverse"] if reverse else []
        command += ["--output=" + target, "--reject-file=" + rejects, source]
        try:
            status, out, err = self._run(
                command,
                data=section["diff"].encode(),
                binary_data=True,
                environ_update={"LC_ALL": "C"},
                handle_exceptions=False,
            )
        except OSError as trouble:
            raise NoPatchProgramError(
                "the program patch (package patch) cannot be run: {0}".format(trouble)
            ) from trouble
        if status not in (0, 1):
            return _patches.attempt(False, (err + out).strip()), content
        if status == 1:
            rejected = (_read(rejects) or b"").decode("utf-8", "replace")
            return _patches.attempt(False, _patches.reject_words(out, rejected)), content
        offsets = [line for line in out.splitlines() if "(offset" in line]
        return _patches.attempt(True, " ".join(offsets), exact=not offsets), _read(target)

    def _compile_copies(self, bench: str, changes: dict[str, Any]) -> str:
        """Return what the interpreter says of new contents that do not compile, or ""."""
        copies = {}
        for path, change in changes.items():
            if path.endswith(".py") and change["next"] is not None:
                copy = os.path.join(bench, "compiled", path)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                _write(copy, change["next"])
                copies[copy] = path
        if not copies:
            return ""
        status, _out, err = self._run([self._python, "-I", "-B", "-c", _TRY_TO_COMPILE, *copies])
        # The last lines name the file, the line and the error; before them are our own frames.
        said = "\n".join(err.strip().splitlines()[-4:]).replace(os.path.join(bench, "compiled") + "/", "")
        return said if status != 0 else ""

    # ------------------------------------------------------------ put in place

    def put_in_place(self, work: dict[str, Any]) -> None:
        """Put in place what :meth:`work_out` gave; all of it or nothing.

        :raises PatchingError: when that failed; all files are then as before.
        """
        changes = work["files"]
        before = self.state
        for path, change in changes.items():
            if _read(self._inside(path)) != change["now"]:
                raise PatchingError("{0}/{1} changed while patches were tried on a copy".format(self.root, path))
        for sha256, diff in work["diffs"].items():
            if _read(self._diff_file(sha256)) is None:
                _replace(self._diff_file(sha256), diff.encode())
        pending = dict(before.get("pending") or {})
        for path, change in changes.items():
            pending[path] = {
                "before": _patches.digest(change["original"]),
                "after": [_patches.digest(change["now"]), _patches.digest(change["next"])],
            }
            backup = self._backup_file(path)
            # Never over a good one: it is the only copy of the original.
            if change["original"] is not None and _read(backup) != change["original"]:
                _replace(backup, change["original"])
        done: list[str] = []
        try:
            if changes:
                # With the patches of before: a run that dies here leaves files of either kind.
                files.write_json(self._state_file, dict(before or dict(work["state"], patches=[]), pending=pending))
            for path, change in changes.items():
                done.append(path)
                self._set(path, change["next"])
            self._compile(sorted(pending))
            files.write_json(self._state_file, work["state"])
        except (OSError, PatchingError) as trouble:
            self._put_back(done, changes, before, trouble)
            raise PatchingError("all files are as before: {0}".format(trouble)) from trouble
        self.state = work["state"]
        self._forget_backups()

    def _put_back(self, paths: list[str], changes: dict[str, Any], state: dict[str, Any], why: Exception) -> None:
        try:
            for path in paths:
                self._set(path, changes[path]["now"])
            with contextlib.suppress(PatchingError):
                self._compile(paths)
            if state:
                files.write_json(self._state_file, state)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._state_file)
        except OSError as trouble:
            raise PatchingError(
                "{0}; and the files cannot be put back: {1}. Some in {2} are patched, some are not: nothing that uses "
                "them may be started before the next deployment, which goes on from here".format(
                    why, trouble, self.root
                )
            ) from trouble

    def _set(self, path: str, content: bytes | None) -> None:
        """Give a file of the package its content, or remove it; what was compiled of it goes."""
        target = self._inside(path)
        if content is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
        else:
            _replace(target, content)
        # By name: a compiled file is believed when time and size agree, or by nothing at all.
        cache, stem = os.path.join(os.path.dirname(target), "__pycache__"), os.path.basename(path)[: -len(".py")]
        if path.endswith(".py") and os.path.isdir(cache):
            for name in os.listdir(cache):
                if name.startswith(stem + ".") and name.endswith(".pyc"):
                    os.unlink(os.path.join(cache, name))

    def _compile(self, paths: list[str]) -> None:
        sources = [self._inside(path) for path in paths if path.endswith(".py")]
        sources = [source for source in sources if os.path.exists(source)]
        if sources:
            status, _out, err = self._run([self._python, "-I", "-c", _COMPILE, *sources])
            if status != 0:
                raise PatchingError("it cannot be compiled: " + "\n".join(err.strip().splitlines()[-4:]))

    def _forget_backups(self) -> None:
        """Remove originals of files that are the originals again."""
        kept = _patches.recorded_files(self.state)
        top = os.path.join(self.directory, "original")
        for folder, _folders, names in os.walk(top, topdown=False):
            for name in names:
                if os.path.relpath(os.path.join(folder, name), top) not in kept:
                    os.unlink(os.path.join(folder, name))
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _backup(self, path: str) -> bytes | None:
        """Return the original of a patched file, checked against its recorded hash."""
        wanted = _patches.recorded_files(self.state)[path]["before"]
        content = _read(self._backup_file(path)) if wanted else None
        if _patches.digest(content) != wanted:
            raise PatchingError(
                "the original of {0}/{1} is not in {2} any more, or is not what it was. Install {3}=={4} again "
                "(pip install --force-reinstall --no-deps), then deploy again".format(
                    self.root, path, self._backup_file(path), self.package, self.version
                )
            )
        return content

    def _inside(self, path: str) -> str:
        """Return the place of a file below the root; refuses one that a link leads away from there."""
        place = os.path.join(self.root, path)
        if os.path.realpath(place) != place:
            raise PatchingError("{0} is reached through a symbolic link, to {1}: not patched".format(
                place, os.path.realpath(place)))  # fmt: skip
        return place


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as source:
            return source.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as target:
        target.write(content)


def _replace(path: str, content: bytes) -> None:
    """Replace a file by rename, with the owner, mode and attributes of the one that was there.

    A new file beside it, never the file itself: installers link one file into several
    environments.
    """
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as target:
            target.write(content)
            target.flush()
            if os.path.exists(path):
                there = os.stat(path)
                shutil.copystat(path, temporary)
                os.chown(temporary, there.st_uid, there.st_gid)
                os.chmod(temporary, there.st_mode & 0o7777)
            else:
                there = os.stat(directory)
                os.chown(temporary, there.st_uid, there.st_gid)
                os.chmod(temporary, 0o644)
            os.utime(temporary)
            os.fsync(target.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
