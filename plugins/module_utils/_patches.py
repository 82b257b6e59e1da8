# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hot patches of an installed engine: what a list of unified diffs asks for, and what to make of it.

Pure. The list is the whole truth: what is to be is always worked out from the *original*
files and the whole list, never from what an earlier run happened to leave. What a host
remembers (the *state*) is a plain dict:

``root`` (directory that holds the package), ``package``, ``version``, ``patches`` (those
that are applied, in order: ``name``, ``sha256`` of the diff, ``files``: by path below the
root, ``before`` and ``after``, each a sha256 or "" for no such file), and while files are
being replaced ``pending`` (by path, ``before``: the original, ``after``: what it may be meanwhile).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import describe_problem, problem

VARIABLE = "pd_engine_patches"

#: What becomes of a patch.
APPLY = "apply"
KEEP = "keep"
UNDO = "undo"
UNNEEDED = "unneeded"
DROPPED = "dropped"
INAPPLICABLE = "inapplicable"

RULE_DIFF = "a patch is a unified diff of files of the package"
RULE_FITS = "a patch fits the installed version or is off the list"
RULE_OURS = "only what we changed is changed back"

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_GIT = "diff --git "
#: Lines of git's header of a file that ask for more than new contents.
_MORE_THAN_CONTENTS = (
    ("GIT binary patch", "changes a binary file"),
    ("Binary files ", "changes a binary file"),
    ("rename ", "renames a file"),
    ("copy ", "copies a file"),
    ("old mode ", "changes the mode of a file"),
    ("deleted file mode ", "deletes a file"),
)
_NO_FILE = "/dev/null"
#: Lines of a rejected hunk that are shown.
_REJECT_LINES = 24


class DiffError(ValueError):
    """A text that is no diff that we apply; the message says why."""


def digest(content: bytes | None) -> str:
    """Return the sha256 of a file's content, "" for no such file."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def environment_key(root: str) -> str:
    """Return the name under which the files of one root directory are remembered: readable, and unique."""
    readable = re.sub(r"[^A-Za-z0-9_.]+", "-", root).strip("-")
    return "{0}-{1}".format(readable[-80:].strip("-"), hashlib.sha256(root.encode()).hexdigest()[:8])


# ---------------------------------------------------------------- the diffs


def parse(diff: str, package: str) -> list[dict[str, Any]]:
    """Return the parts of a unified diff, one per file.

    :return: ``paths`` (which file may be meant, below the directory that holds the package:
        ``a/python/sglang/srt/x.py`` means ``sglang/srt/x.py``), ``created`` (content of a
        file that the diff makes, else None), ``diff`` (the text for this file).
    :raises DiffError: for what is no unified diff, or asks for more than new contents.
    """
    lines = diff.split("\n")
    if not lines[-1]:
        lines.pop()  # what is behind the last line's end is no line
    sections: list[dict[str, Any]] = []
    number = 0
    header = ""  # git's line for a file of which no hunk was seen yet
    while number < len(lines):
        line = lines[number]
        for start, what in _MORE_THAN_CONTENTS if header else ():
            if line.startswith(start):
                raise DiffError("line {0} {1}; only contents are patched: {2}".format(number + 1, what, line))
        if line.startswith(_GIT):
            if header:
                raise DiffError("no hunk follows: {0}".format(header))
            header = line
        if not (line.startswith("--- ") and lines[number + 1 : number + 2] and lines[number + 1].startswith("+++ ")):
            if _HUNK.match(line):
                raise DiffError("line {0} begins a hunk of no file: {1}".format(number + 1, line))
            number += 1
            continue
        begin, header = number, ""
        old, new = _path(line), _path(lines[number + 1])
        number += 2
        hunks = []
        while number < len(lines) and _HUNK.match(lines[number]):
            number, hunk = _hunk(lines, number)
            hunks.append(hunk)
        if not hunks:
            raise DiffError("line {0} names {1}, and no hunk follows".format(begin + 1, new))
        if new == _NO_FILE:
            raise DiffError("line {0} deletes {1}; only contents are patched".format(begin + 2, old))
        sections.append(
            {
                "paths": _candidates([new, old], package),
                "created": "".join(hunks[0]) if old == _NO_FILE else None,
                "diff": "\n".join(lines[begin:number]) + "\n",
            }
        )
    if header:
        raise DiffError("no hunk follows: {0}".format(header))
    if not sections:
        raise DiffError("it holds no hunk of a unified diff")
    return sections


def _path(line: str) -> str:
    """Return the path of a ``---`` or ``+++`` line; a tab ends it, behind it is a time."""
    return line[4:].split("\t", 1)[0].rstrip()


def _hunk(lines: list[str], number: int) -> tuple[int, list[str]]:
    """Return the number of the line behind a hunk, and the lines that it leaves, with their ends.

    Lines are counted, because ``--- x`` inside a hunk is a line that is taken out.
    """
    head = lines[number]
    numbers = _HUNK.match(head)
    assert numbers  # noqa: S101 - the caller looked
    old, new = (1 if numbers.group(group) is None else int(numbers.group(group)) for group in (2, 4))
    left: list[str] = []
    number += 1
    while old or new:
        line = lines[number] if number < len(lines) else None
        # Mail and editors strip the blank of an empty context line.
        kind = None if line is None else line[:1] or " "
        if kind not in (" ", "-", "+", "\\"):
            raise DiffError("the hunk {0} ends early, at line {1}".format(head, number + 1))
        if kind in (" ", "-"):
            old -= 1
        if kind in (" ", "+"):
            new -= 1
            left.append(str(line)[1:] + "\n")
        if old < 0 or new < 0:
            raise DiffError("the hunk {0} has more lines than it says, line {1}".format(head, number + 1))
        number += 1
        if number < len(lines) and lines[number].startswith("\\"):
            if kind == "+":
                left[-1] = left[-1][:-1]
            number += 1
    return number, left


def _candidates(paths: list[str], package: str) -> list[str]:
    found = []
    for path in paths:
        parts = path.split("/")
        if path == _NO_FILE:
            continue
        if ".." in parts or path.startswith('"'):
            raise DiffError("{0} is no plain path".format(path))
        found += ["/".join(parts[n:]) for n, part in enumerate(parts[:-1]) if part == package]
    if not found:
        raise DiffError("{0} is no file of the package: no directory {1}/ in it".format(paths[0], package))
    return list(dict.fromkeys(found))


def problems_of(
    patches: Iterable[dict[str, Any]], host: str, package: str, left_alone: bool = False
) -> list[dict[str, str]]:
    """Return what is wrong with a list of patches by itself, before any host is asked.

    :param patches: each with ``name``, ``src``, ``diff`` ("" where there is no such file).
    :param left_alone: the environment is one that is not to be changed.
    """
    patches = list(patches)
    problems = []
    if left_alone and patches:
        problems.append(
            problem(
                "an existing environment is left alone",
                "{0} patches for an environment of pd_engine_install_from: existing, which is left alone. Allow it "
                "with pd_engine_patch_existing: true".format(len(patches)),
                host,
                VARIABLE,
            )
        )
    seen = set()
    for item in patches:
        name = str(item["name"])
        if not _NAME.match(name):
            problems.append(problem(RULE_DIFF, "{0!r} is no name for a patch".format(name), host, VARIABLE))
        if name in seen:
            problems.append(problem(RULE_DIFF, "two patches have the name {0}".format(name), host, VARIABLE))
        seen.add(name)
        try:
            if not item["diff"]:
                raise DiffError("there is no such file, or it is empty; a path that is not absolute is looked for "
                                "beside the inventory, then where the playbook looks for files")  # fmt: skip
            parse(item["diff"], package)
        except DiffError as refused:
            problems.append(
                problem(RULE_DIFF, "patch {0}, {1}: {2}".format(name, item["src"], refused), host, VARIABLE)
            )
    return problems


# ---------------------------------------------------------------- what is there


def recorded_files(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return, by path, ``before`` (the original) and ``after`` (all that we may have made of it)."""
    files: dict[str, dict[str, Any]] = {}
    for patch in state.get("patches", []):
        for path, change in patch["files"].items():
            one = files.setdefault(path, {"before": change["before"], "after": []})
            one["after"] = [change["after"]]
    for path, change in (state.get("pending") or {}).items():
        known = files.get(path, {"after": []})["after"]
        files[path] = {"before": change["before"], "after": [*known, *change["after"]]}
    return files


def find_originals(
    state: dict[str, Any], version: str, present: dict[str, str]
) -> tuple[dict[str, bool], list[str], list[dict[str, str]]]:
    """Tell where the original of each file that we remember is to be found.

    :param state: what the host remembers, {} for nothing.
    :param version: the installed version.
    :param present: sha256 by path of what lies there now, "" for no such file.
    :return: by path, whether it is in our backup (else it is the file itself), what
        people should know, and problems: files that somebody else changed.
    """
    originals: dict[str, bool] = {}
    notes: list[str] = []
    problems: list[dict[str, str]] = []
    replaced, put_back = [], []
    for path, known in sorted(recorded_files(state).items()):
        now = present[path]
        if now in known["after"]:
            originals[path] = True
            continue
        originals[path] = False
        if now == known["before"]:
            if not state.get("pending"):
                put_back.append(path)
        elif version != state["version"]:
            replaced.append(path)
        else:
            problems.append(
                problem(
                    RULE_OURS,
                    "{0}/{1} is neither what patches {2} made of it nor the original: somebody else changed it. "
                    "Put {3} {4} back, pip install --force-reinstall --no-deps {3}=={4} with the environment's own "
                    "interpreter, then deploy again".format(
                        state["root"], path, _names_touching(state, path), state["package"], version
                    ),
                    variable=VARIABLE,
                )
            )
    if replaced:
        notes.append(
            "{0} was installed over {1} in {2}: the patched {3} are gone, what was recorded of them is dropped".format(
                version, state["version"], state["root"], ", ".join(replaced)
            )
        )
    if put_back:
        notes.append("somebody put the original {0} back in {1}".format(", ".join(put_back), state["root"]))
    return originals, notes, problems


def _names_touching(state: dict[str, Any], path: str) -> str:
    names = [patch["name"] for patch in state.get("patches", []) if path in patch["files"]]
    return ", ".join(names) or "of an interrupted run"


# ---------------------------------------------------------------- what to do


def attempt(ok: bool, words: str = "", exact: bool = True) -> dict[str, Any]:
    """Return the outcome of a dry run on one file; ``exact``: all hunks where the diff says."""
    return {"ok": ok, "words": words, "exact": ok and exact}


def judge(name: str, installed: str, tries: list[dict[str, Any]]) -> tuple[str, str]:
    """Decide on one patch.

    :param installed: package and version, for people.
    :param tries: one per file: ``path``, ``exists``, ``forward`` and ``reverse`` (from
        :func:`attempt`).
    :return: ``apply``, ``unneeded`` or ``inapplicable``, and the reason.
    """
    forward = all(one["forward"]["ok"] for one in tries)
    reverse = all(one["reverse"]["ok"] for one in tries)
    if forward and reverse:
        # Code that exists twice, once with and once without the change: the lines decide.
        exact = [all(one[way]["exact"] for one in tries) for way in ("forward", "reverse")]
        if exact[0] == exact[1]:
            return INAPPLICABLE, (
                "patch {0} fits {1} both ways, as if it were applied and not applied. Make it anew with more lines "
                "of context (diff -U 10)".format(name, installed)
            )
        forward, reverse = exact
    if forward:
        moved = ["{path} ({words})".format(path=one["path"], words=one["forward"]["words"])
                 for one in tries if not one["forward"]["exact"]]  # fmt: skip
        return APPLY, "its lines have moved: " + "; ".join(moved) if moved else "it fits"
    if reverse:
        return UNNEEDED, "patch {0} is not needed: {1} contains it already. Take it off {2}".format(
            name, installed, VARIABLE
        )
    return INAPPLICABLE, "patch {0} does not fit {1}: {2}. Take it off {3}, or make it anew for this version".format(
        name, installed, "; ".join(_tell(one) for one in tries), VARIABLE
    )


def _tell(one: dict[str, Any]) -> str:
    if not one["exists"]:
        return "{0} does not exist".format(one["path"])
    if one["forward"]["ok"]:
        return "{0} would take it".format(one["path"])
    if one["reverse"]["ok"]:
        return "{0} contains it already".format(one["path"])
    return "{0}: {1}".format(one["path"], one["forward"]["words"])


def reject_words(said: str, rejected: str) -> str:
    """Return what ``patch`` says of hunks that it rejects, and the first lines of them."""
    failed = [line for line in said.splitlines() if "FAILED" in line or "malformed" in line]
    lines = rejected.splitlines()
    hunk = next((number for number, line in enumerate(lines) if line.startswith("@@")), len(lines))
    shown = lines[hunk : hunk + _REJECT_LINES]
    return "\n".join([" ".join(failed) or said.strip(), *shown])


def outcomes(
    state: dict[str, Any], applied: list[dict[str, Any]], unneeded: list[dict[str, str]], originals: dict[str, bool]
) -> list[dict[str, str]]:
    """Return what becomes of each patch, wanted ones first.

    :param applied: the patches of the state to be.
    :param unneeded: ``name``, ``sha256``, ``message``.
    :param originals: from :func:`find_originals`.
    """
    recorded = {patch["name"]: patch for patch in state.get("patches", [])}
    listed = []
    for patch in applied:
        same = recorded.get(patch["name"]) == patch and all(originals.get(path) for path in patch["files"])
        listed.append({"name": patch["name"], "sha256": patch["sha256"], "action": KEEP if same else APPLY})
    listed += [{"name": one["name"], "sha256": one["sha256"], "action": UNNEEDED} for one in unneeded]
    there = {one["name"] for one in listed}
    for patch in state.get("patches", []):
        if patch["name"] not in there:
            ours = any(originals[path] for path in patch["files"])
            listed.append({"name": patch["name"], "sha256": patch["sha256"], "action": UNDO if ours else DROPPED})
    return listed


def applied(state: dict[str, Any]) -> list[dict[str, str]]:
    """Return the patches that are applied: ``name`` and ``sha256``, as members' files and hashes have them."""
    return [{"name": patch["name"], "sha256": patch["sha256"]} for patch in state.get("patches", [])]


def refusal(problems: list[dict[str, str]], host: str) -> str:
    """Return problems as the text of a refusal."""
    lines = ["- " + describe_problem(dict(item, host=host)) for item in problems]
    return "\n".join(["Refused, no file was changed:", *lines])
