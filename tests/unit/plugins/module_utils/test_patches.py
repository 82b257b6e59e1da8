# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a list of patches means: diffs read, files told apart, decisions."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _patches

GIT = """\
From 1234 Mon Sep 17 00:00:00 2001
Subject: [PATCH] Let final states stick

rename of nothing, copy of nothing: this is prose
---
 python/sglang/srt/conn.py | 2 +-

diff --git a/python/sglang/srt/conn.py b/python/sglang/srt/conn.py
index 111..222 100644
--- a/python/sglang/srt/conn.py
+++ b/python/sglang/srt/conn.py
@@ -1,3 +1,4 @@
 one
--- two
+-- 2
+++ 3

diff --git a/python/sglang/srt/new.py b/python/sglang/srt/new.py
new file mode 100644
--- /dev/null
+++ b/python/sglang/srt/new.py
@@ -0,0 +1,2 @@
+a = 1
+b = 2
\\ No newline at end of file
--\x20
2.39.5
"""


def one_file(path: str, head: str = "@@ -1 +1 @@", body: str = "-a\n+b\n", new: str = "") -> str:
    return "--- a/{0}\n+++ b/{1}\n{2}\n{3}".format(path, new or path, head, body)


def test_a_diff_of_the_repository_means_files_of_the_package() -> None:
    changed, created = _patches.parse(GIT, "sglang")
    assert changed["paths"] == ["sglang/srt/conn.py"]
    assert changed["created"] is None
    assert changed["diff"].splitlines()[-4:] == ["--- two", "+-- 2", "+++ 3", ""]
    assert created["paths"] == ["sglang/srt/new.py"]
    assert created["created"] == "a = 1\nb = 2"


@pytest.mark.parametrize(
    ("path", "paths"),
    [
        ("sglang/x.py\t2026-01-01 00:00:00", ["sglang/x.py"]),
        ("site-packages/sglang/x.py", ["sglang/x.py"]),
        ("sglang/python/sglang/x.py", ["sglang/python/sglang/x.py", "sglang/x.py"]),
    ],
)
def test_a_path_counts_from_the_directory_of_the_package(path: str, paths: list[str]) -> None:
    assert _patches.parse(one_file(path), "sglang")[0]["paths"] == paths


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("", "no hunk"),
        ("just prose\n", "no hunk"),
        ("@@ -1 +1 @@\n-a\n+b\n", "a hunk of no file"),
        (one_file("srt/x.py"), "no directory sglang/"),
        (one_file("sglang"), "no directory sglang/"),
        (one_file("sglang/../../etc/x.py"), "no plain path"),
        (one_file("sglang/x.py", new="dev/null").replace("b/dev/null", "/dev/null"), "deletes"),
        (one_file("sglang/x.py", head="@@ -1,2 +1,2 @@", body=" a\n"), "ends early"),
        (one_file("sglang/x.py", head="@@ -1,1 +1,2 @@", body=" a\n b\n"), "more lines"),
        ("--- a/sglang/x.py\n+++ b/sglang/x.py\nprose\n", "no hunk follows"),
        ("diff --git a/sglang/x b/sglang/y\nrename from sglang/x\n", "renames"),
        ("diff --git a/sglang/x b/sglang/x\nold mode 100644\nnew mode 100755\n", "mode"),
        ("diff --git a/sglang/x b/sglang/x\nGIT binary patch\n", "binary"),
        ("diff --git a/sglang/e.py b/sglang/e.py\nnew file mode 100644\nindex 0..e\n", "no hunk follows"),
    ],
)
def test_what_is_no_patch_that_we_apply_is_refused_with_the_reason(diff: str, words: str) -> None:
    with pytest.raises(_patches.DiffError, match=words):
        _patches.parse(diff, "sglang")


def test_S10_a_wrong_list_is_refused_before_a_host_is_asked() -> None:
    good = {"name": "a", "src": "a.patch", "diff": GIT}
    assert _patches.problems_of([good], "box1", "sglang") == []
    wrong = [good, dict(good), {"name": "a/b", "src": "x.patch", "diff": ""}]
    problems = _patches.problems_of(wrong, "box1", "sglang")
    assert {(item["host"], item["variable"]) for item in problems} == {("box1", "pd_engine_patches")}
    text = "\n".join(item["message"] for item in problems)
    (alone,) = _patches.problems_of([good], "box1", "sglang", left_alone=True)
    assert "pd_engine_patch_existing: true" in alone["message"]
    assert _patches.problems_of([], "box1", "sglang", left_alone=True) == []
    for words in ("two patches have the name a", "'a/b' is no name", "x.patch: there is no such file"):
        assert words in text


# ---------------------------------------------------------------- what is there


def state(**more: Any) -> dict[str, Any]:
    return {
        "root": "/site",
        "package": "sglang",
        "version": "0.5.16",
        "patches": [
            {"name": "p", "sha256": "s", "files": {"sglang/a.py": {"before": "a0", "after": "a1"}}},
            {"name": "q", "sha256": "t", "files": {"sglang/a.py": {"before": "a1", "after": "a2"}}},
        ],
        **more,
    }


@pytest.mark.parametrize(
    ("present", "version", "kept", "note", "refused"),
    [
        ("a2", "0.5.16", True, "", False),
        ("a0", "0.5.16", False, "put the original sglang/a.py back", False),
        ("zz", "0.5.16", False, "", True),
        ("a1", "0.5.16", False, "", True),
        ("", "0.5.16", False, "", True),
        ("zz", "0.5.23", False, "0.5.23 was installed over 0.5.16", False),
        ("", "0.5.23", False, "0.5.23 was installed over 0.5.16", False),
        ("a2", "0.5.23", True, "", False),
    ],
)
def test_S10_originals_are_where_the_hashes_say(
    present: str, version: str, kept: bool, note: str, refused: bool
) -> None:
    originals, notes, problems = _patches.find_originals(state(), version, {"sglang/a.py": present})
    assert originals == {"sglang/a.py": kept}
    assert note in "".join(notes)
    assert bool(notes) == bool(note)
    assert bool(problems) == refused
    if refused:
        assert "/site/sglang/a.py" in problems[0]["message"]
        assert "p, q" in problems[0]["message"]
        assert "pip install --force-reinstall --no-deps sglang==0.5.16" in problems[0]["message"]


@pytest.mark.parametrize(("present", "kept"), [("a2", True), ("a3", True), ("a0", False)])
def test_R6_an_interrupted_run_is_understood_whatever_it_had_replaced(present: str, kept: bool) -> None:
    pending = state(pending={"sglang/a.py": {"before": "a0", "after": ["a2", "a3"]}})
    originals, notes, problems = _patches.find_originals(pending, "0.5.16", {"sglang/a.py": present})
    assert (originals, notes, problems) == ({"sglang/a.py": kept}, [], [])


def test_nothing_recorded_is_nothing_to_ask_for() -> None:
    assert _patches.find_originals({}, "0.5.16", {}) == ({}, [], [])


# ---------------------------------------------------------------- decisions

YES, MOVED, NO = _patches.attempt(True), _patches.attempt(True, "offset", exact=False), _patches.attempt(False, "no")


def tried(path: str, forward: dict[str, Any], reverse: dict[str, Any], exists: bool = True) -> dict[str, Any]:
    return {"path": path, "exists": exists, "forward": forward, "reverse": reverse}


@pytest.mark.parametrize(
    ("tries", "action", "words"),
    [
        ([tried("a", YES, NO), tried("b", YES, NO)], _patches.APPLY, "it fits"),
        ([tried("a", MOVED, NO)], _patches.APPLY, "have moved"),
        ([tried("a", NO, YES), tried("b", NO, MOVED)], _patches.UNNEEDED, "contains it already"),
        ([tried("a", YES, NO), tried("b", NO, YES)], _patches.INAPPLICABLE, "a would take it; b contains it already"),
        ([tried("a", YES, NO), tried("b", NO, NO)], _patches.INAPPLICABLE, "b: no"),
        ([tried("a", YES, NO), tried("b", NO, NO, exists=False)], _patches.INAPPLICABLE, "b does not exist"),
        ([tried("a", YES, MOVED)], _patches.APPLY, "it fits"),
        ([tried("a", MOVED, YES)], _patches.UNNEEDED, "contains it already"),
        ([tried("a", YES, YES)], _patches.INAPPLICABLE, "both ways"),
        ([tried("a", MOVED, MOVED)], _patches.INAPPLICABLE, "both ways"),
    ],
)
def test_S10_a_patch_is_applied_unneeded_or_refused(tries: list[dict[str, Any]], action: str, words: str) -> None:
    decided, message = _patches.judge("p", "sglang 0.5.23", tries)
    assert decided == action
    assert words in message
    if action != _patches.APPLY:
        assert "sglang 0.5.23" in message


def test_S10_a_rejected_hunk_is_shown() -> None:
    said = "patching file x\nHunk #2 FAILED at 8.\n1 out of 2 hunks FAILED -- saving rejects to file r\n"
    rejected = "--- a\n+++ b\n@@ -8 +8 @@\n-old\n+new\n"
    words = _patches.reject_words(said, rejected)
    assert "Hunk #2 FAILED at 8." in words
    assert words.splitlines()[-3:] == ["@@ -8 +8 @@", "-old", "+new"]


def test_S10_what_becomes_of_each_patch() -> None:
    p, q = state()["patches"]
    ours = {"sglang/a.py": True}

    def actions(applied: list[Any], unneeded: list[Any], originals: dict[str, bool]) -> dict[str, str]:
        listed = _patches.outcomes(state(), applied, unneeded, originals)
        return {one["name"]: one["action"] for one in listed}

    assert actions([p, q], [], ours) == {"p": "keep", "q": "keep"}
    assert actions([p], [], ours) == {"p": "keep", "q": "undo"}
    assert actions([], [], ours) == {"p": "undo", "q": "undo"}
    assert actions([dict(p, sha256="x"), q], [], ours) == {"p": "apply", "q": "keep"}
    gone = {"sglang/a.py": False}
    assert actions([p, q], [], gone) == {"p": "apply", "q": "apply"}
    assert actions([], [{"name": "p", "sha256": "s", "message": ""}], gone) == {"p": "unneeded", "q": "dropped"}


def test_environments_are_kept_apart() -> None:
    keys = {_patches.environment_key(root) for root in ("/opt/a-b", "/opt/a/b", "/opt/" + "x" * 300)}
    assert len(keys) == 3
    assert all(len(key) < 100 and "/" not in key for key in keys)
