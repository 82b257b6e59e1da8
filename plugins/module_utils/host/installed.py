# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installed engine or router says of itself: its options, the variables it reads.

Asking costs seconds (sglang imports PyTorch before it parses its command line), so
answers are kept on the host until a file of the package changes.
"""

from __future__ import annotations

import glob
import hashlib
import inspect
import json
import os
import pwd
import re
import subprocess
import tempfile
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _redact
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import ask_parser, files

CACHE = "/var/cache/sglang-pd"
#: Longest time to ask a program for its options; on a busy host sglang takes a minute.
ASK_SECONDS = 300
#: Characters from which on a private value is hidden in what the program says.
SECRET_LENGTH = 6
#: Packages of an environment that are large and read no variable of sglang's or its builds'.
NOT_SEARCHED = ("torch", "nvidia", "triton", "numpy", "scipy", "pandas", "pip", "setuptools")
_WORD = re.compile(rb"[A-Za-z0-9_]")
SEARCHED = (".py", ".so", ".cu", ".cuh", ".h", ".cpp")


class NotInstalledError(Exception):
    """There is no such interpreter, or it has no such package."""


class Program:
    """A program of a virtual environment, such as ``python -m sglang.launch_server``.

    :param python: path of the environment's interpreter.
    :param words: what follows ``-m``.
    :param user: account to ask as; "" asks as the one that runs this.
    :param keep: whether answers may be written to :data:`CACHE`.
    :param changed: files that the package is about to get, by path below the directory that holds the package, None
        for one that is to go. The program is asked as it will be then.
    :raises NotInstalledError: where the interpreter or the package is missing.
    """

    def __init__(
        self, python: str, words: list[str], user: str, keep: bool, changed: dict[str, bytes | None] | None = None
    ):
        self._python = python
        self._words = words
        self._user = user
        self._keep = keep
        package = words[0].split(".", 1)[0]
        if not os.path.exists(python):
            raise NotInstalledError("{0} does not exist".format(python))
        find = "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); print(s.submodule_search_locations[0])"
        done = self._run(["-c", find, package], {}, 60)
        if done.returncode:
            raise NotInstalledError("{0} has no package {1}".format(python, package))
        self.directory = done.stdout.strip().splitlines()[-1]
        self._site = os.path.dirname(self.directory)
        self._changed = changed or {}
        self._stamp = _stamp(self.directory, self._changed)

    def options(self, environment: dict[str, str], private: dict[str, str]) -> list[dict[str, Any]]:
        """Return the options that the program takes, see :mod:`ask_parser`.

        :param environment: what the program's unit sets; some builds want it to import.
        :param private: the part of it whose values may be secrets.
        :raises RuntimeError: where the program does not come as far as its command line;
            the message is its own.
        """
        name = "options-{0}".format(self._key(self._words))
        kept = self._kept(name)
        if kept is not None:
            return list(kept)
        with tempfile.TemporaryDirectory() as home:
            if self._user:
                os.chown(home, pwd.getpwnam(self._user).pw_uid, -1)
            of_unit = {**environment, **private, "HOME": home}
            if self._changed:
                self._put_as_it_will_be(home)
                of_unit["PYTHONPATH"] = os.pathsep.join(filter(None, [home, of_unit.get("PYTHONPATH")]))
            try:
                done = self._run(["-c", inspect.getsource(ask_parser), *self._words], of_unit, ASK_SECONDS)
            except subprocess.TimeoutExpired as late:
                raise RuntimeError("it told no options in {0} seconds".format(ASK_SECONDS)) from late
        for line in reversed(done.stdout.splitlines()):
            if line.startswith(ask_parser.MARK):
                return list(self._keep_as(name, json.loads(line[len(ask_parser.MARK) :])))
        said = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        # Not "1" and the like: hidden, they would leave nothing to read.
        secrets = [value for value in private.values() if len(value) >= SECRET_LENGTH]
        raise RuntimeError(
            "; ".join(_redact.redact(line, secrets) for line in said) or "exit {0}".format(done.returncode)
        )

    def readers(self, names: Iterable[str]) -> dict[str, str]:
        """Return, by environment variable, a file of the environment that has its name; "" for none.

        The program's own package is searched first, then the other packages that were
        installed beside it, but for :data:`NOT_SEARCHED`.
        """
        wanted = sorted(names)
        name = "readers-{0}".format(self._key(wanted))
        kept = self._kept(name)
        if kept is not None:
            return dict(kept)
        changed = {os.path.join(self._site, path): content for path, content in self._changed.items()}
        others = sorted(
            path
            for path in glob.glob(os.path.join(self._site, "*"))
            if path != self.directory and os.path.basename(path) not in NOT_SEARCHED
        )
        found = dict.fromkeys(wanted, "")
        for path, content in sorted(changed.items()):
            found.update({name: path for name in wanted if _has_word(content or b"", name.encode())})
        for path in [self.directory, *others]:
            missing = [variable for variable in wanted if not found[variable]]
            if not missing:
                break
            found.update(_search(path, missing, changed))
        return dict(self._keep_as(name, found))

    @property
    def searched(self) -> str:
        """Where :meth:`readers` looks, for people."""
        return "{0} (without {1})".format(self._site, ", ".join(NOT_SEARCHED))

    def _put_as_it_will_be(self, place: str) -> None:
        """Make the package below a directory: what changes as files, all else as links to what is installed."""
        for path, directories, names in os.walk(self.directory):
            # Compiled files would be those of the old source.
            directories[:] = [name for name in directories if name != "__pycache__"]
            there = os.path.join(place, os.path.relpath(path, self._site))
            os.makedirs(there)
            # Whatever the umask: the service's user reads it.
            os.chmod(there, 0o755)  # noqa: S103 - links to what everybody may read
            for name in names:
                os.symlink(os.path.join(path, name), os.path.join(there, name))
        for path, content in self._changed.items():
            there = os.path.join(place, path)
            if os.path.lexists(there):
                os.remove(there)
            if content is not None:
                os.makedirs(os.path.dirname(there), mode=0o755, exist_ok=True)
                with open(there, "wb") as target:
                    target.write(content)
                os.chmod(there, 0o644)

    def _run(self, words: list[str], environment: dict[str, str], seconds: float) -> Any:
        account = pwd.getpwnam(self._user) if self._user else None
        clean = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return subprocess.run(
            [self._python, *words],
            env={**clean, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd="/",
            timeout=seconds,
            user=account and account.pw_uid,
            group=account and account.pw_gid,
            # Devices are open to groups, such as video and render.
            extra_groups=account and os.getgrouplist(self._user, account.pw_gid),
        )

    def _key(self, words: list[str]) -> str:
        return hashlib.sha256(json.dumps([self._python, words]).encode()).hexdigest()[:16]

    def _kept(self, name: str) -> Any:
        try:
            kept = files.read_json("{0}/{1}.json".format(CACHE, name))
        except files.FileError:
            return None
        return kept["answer"] if kept and kept.get("stamp") == self._stamp else None

    def _keep_as(self, name: str, answer: Any) -> Any:
        if self._keep:
            files.write_json("{0}/{1}.json".format(CACHE, name), {"stamp": self._stamp, "answer": answer})
        return answer


def _files(directory: str) -> Iterable[str]:
    if os.path.isfile(directory):
        yield directory
    for path, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if name != "__pycache__")
        for name in sorted(names):
            yield os.path.join(path, name)


def _stamp(directory: str, changed: dict[str, bytes | None]) -> str:
    """Return a hash that changes with the files of a package, as they are and as they will be: an upgrade, a patch."""
    stamp = hashlib.sha256()
    for path in _files(directory):
        if path.endswith(".py"):
            status = os.stat(path)
            stamp.update("{0} {1} {2}\n".format(path, status.st_size, status.st_mtime_ns).encode())
    for path, content in sorted(changed.items()):
        stamp.update("{0} {1}\n".format(path, hashlib.sha256(content).hexdigest() if content else content).encode())
    return stamp.hexdigest()


def _search(directory: str, names: list[str], left_out: Iterable[str]) -> dict[str, str]:
    """Return the first file below a directory that has each name as a whole word, but for files that are left out."""
    found: dict[str, str] = {}
    for path in _files(directory):
        if path in left_out or (not path.endswith(SEARCHED) and ".so." not in path):
            continue
        try:
            with open(path, "rb") as source:
                content = source.read()
        except OSError:
            continue
        found.update({name: path for name in names if name not in found and _has_word(content, name.encode())})
        if len(found) == len(names):
            break
    return found


def _has_word(content: bytes, word: bytes) -> bool:
    # A plain search first: libraries of hundreds of megabytes are read.
    at = content.find(word)
    while at >= 0:
        if not _WORD.match(content[at - 1 : at]) and not _WORD.match(content[at + len(word) : at + len(word) + 1]):
            return True
        at = content.find(word, at + 1)
    return False
