# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet's file: its data, and all that is wrong with it by itself."""

from __future__ import annotations

import itertools
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import fleet_schema, marked_yaml

#: Problems that are told at a time.
MOST_PROBLEMS = 100


def read(text: str) -> tuple[Any, marked_yaml.Mark, list[dict[str, Any]]]:
    """Return a file's data, the lines that it stands in, and its problems, see :func:`_fleet.problem`.

    With problems, the data is what the rules could judge.
    """
    data, mark, problems = marked_yaml.load(text)
    if data is None:
        return {"clusters": {}}, mark, problems or [_fleet.problem("the file is YAML", "the file is empty", ())]
    schema = fleet_schema.read()
    # One more, so that it shows that there are more.
    problems += itertools.islice(fleet_schema.problems_of(data, schema), MOST_PROBLEMS + 1)
    if len(problems) > MOST_PROBLEMS:
        return {"clusters": {}}, mark, problems
    if problems:
        data = _fleet.forget(data, problems)
    return data, mark, problems + _fleet.problems_of(data, fleet_schema.defaults(schema))


def describe(path: str, mark: marked_yaml.Mark, problems: list[dict[str, Any]]) -> list[str]:
    """Return problems as text, a line each, in the order of the file."""
    for item in problems:
        item.setdefault("line", marked_yaml.line_of(mark, item["path"]))
    told = sorted(problems, key=lambda item: item["line"])[:MOST_PROBLEMS]
    lines = [
        "{0}:{1}: {2}{3} [rule: {4}]".format(path, item["line"], _where(item["path"]), item["message"], item["rule"])
        for item in told
    ]
    return lines + ["and more"] if len(problems) > len(told) else lines


def _where(path: tuple[Any, ...]) -> str:
    where = "".join("[{0}]".format(key) if isinstance(key, int) else ".{0}".format(key) for key in path)
    return where[1:] + ": " if where else ""
