# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML with lines: what is read, where it stands, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import marked_yaml


def refused(text: str) -> tuple[int, str]:
    """The line and the words of the only problem."""
    _value, _mark, (problem,) = marked_yaml.load(text)
    return problem["line"], problem["message"]


def test_values_are_those_of_yaml_and_know_their_lines() -> None:
    value, mark, problems = marked_yaml.load("a: 1\nb:\n  - x\n  - {c: true, d: null}\ne: 1.5\n")
    assert (value, problems) == ({"a": 1, "b": ["x", {"c": True, "d": None}], "e": 1.5}, [])
    lines: dict[tuple[Any, ...], int] = {(): 1, ("b",): 2, ("b", 0): 3, ("b", 1, "c"): 4, ("e",): 5}
    assert {path: marked_yaml.line_of(mark, path) for path in lines} == lines


def test_the_line_of_what_is_missing_is_that_of_what_it_is_missing_from() -> None:
    _value, mark, _none = marked_yaml.load("a:\n  b:\n    c: 1\n")
    assert marked_yaml.line_of(mark, ("a", "b", "missing", 3)) == 2


def test_aliases_and_merges_are_read_and_stand_where_they_are_used() -> None:
    value, mark, problems = marked_yaml.load("a: &x {p: 1, q: 2}\nb: *x\nc:\n  <<: *x\n  q: 3\n")
    assert (value["b"], value["c"], problems) == ({"p": 1, "q": 2}, {"p": 1, "q": 3}, [])
    assert marked_yaml.line_of(mark, ("b",)) == 2
    assert marked_yaml.line_of(mark, ("c", "q")) == 5


def test_encrypted_and_unsafe_values_are_known_later_and_hide_what_they_are() -> None:
    value, _mark, problems = marked_yaml.load(
        "a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3036\nb: !unsafe '{{ x }}'\n"
    )
    assert problems == []
    assert all(_fleet.is_unknown(one) and isinstance(one, marked_yaml.Tagged) for one in value.values())
    assert "ANSIBLE_VAULT" in value["a"].source
    assert "3036" not in value["a"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a is given twice, in line 1 before"),
        ("a: 1\n1: 2\n", 2, "key 1 is no text: write it in quotes"),
        ("a:\n  on: 2\n", 2, "key on is no text: write it in quotes"),
        ("a: 1\n[b]: 2\n", 2, "a key is no text"),
        ("a:\n\tb: 1\n", 2, "found character that cannot start any token"),
        ("a: [1\nb: 2\n", 2, "while parsing a flow sequence"),
        ("a: *none\n", 1, "an alias is not defined; a text that begins with * goes in quotes"),
        ("a: !python/name:os.system x\n", 1, "an unknown tag, or a value that does not fit its tag"),
        ("a:\n  <<: 3\n", 2, "mappings for merging"),
        ("a: !!int x\n", 1, "no such date or number"),
        ("a: &x\n  b: *x\n", 1, "an alias is inside of what it stands for"),
        ("a: 1\nb: 2024-13-01\n", 2, "no such date or number"),
        ("a: 1\n---\na: 2\n", 2, "expected a single document"),
        ("a: \x01\n", 1, "cannot be in YAML"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_line(text: str, line: int, words: str) -> None:
    found_line, message = refused(text)
    assert found_line == line, message
    assert words in message or "control characters are not allowed" in message


def test_nothing_is_no_problem_of_yaml() -> None:
    assert marked_yaml.load("# nothing\n")[::2] == (None, [])


def test_any_key_will_do_in_variables_that_are_not_ours() -> None:
    assert marked_yaml.load("vars: {x: {1: a, off: b}}\n")[::2] == ({"vars": {"x": {1: "a", False: "b"}}}, [])


def test_aliases_that_multiply_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += ["a{0}: &a{0} [{1}]".format(level, ", ".join(["*a{0}".format(level - 1)] * 10)) for level in range(1, 9)]
    begun = time.process_time()
    assert "more than 5000000 values once aliases are written out" in refused("\n".join(lines))[1]
    assert time.process_time() - begun < 1


def test_what_is_nested_too_deeply_is_refused() -> None:
    assert refused("[" * 20_000 + "]" * 20_000)[0] == 1
