# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a program that uses argparse which options it takes. Runs in that program's interpreter.

Usage: python -c SOURCE MODULE [WORD...]

The program is started as ``python -m MODULE WORD...`` would, up to the point where it
parses its command line. There its options are printed, as one line of JSON behind
:data:`MARK`, and it ends. So what is told is what the installed code really accepts,
whatever builds the parser. Stands alone: it imports nothing of this collection.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from typing import Any, Callable

MARK = "options of the parser: "

#: What a type callable makes of these tells what it reads. The order is that of narrowness.
PROBES = ("1", "1.5", "1k", "{}", "x")
KINDS = {
    ("1",): "integer",
    ("1", "1k"): "integer with unit",
    ("1", "1.5"): "number",
    ("1", "1.5", "1k"): "number with unit",
    ("{}",): "json",
    ("1", "1.5", "{}"): "json",
}
REPEATABLE = tuple(
    getattr(argparse, name)
    for name in ("_AppendAction", "_AppendConstAction", "_ExtendAction", "_CountAction")
    if hasattr(argparse, name)
)


def accepts(reads: Callable[[str], Any], text: str) -> bool:
    """Tell whether a type callable takes a text; it may raise whatever it likes."""
    try:
        reads(text)
    except Exception:
        return False
    return True


def kind_of(action: argparse.Action) -> str:
    """Return what values of an option look like: a value of :data:`KINDS`, or text."""
    reads = action.type
    if action.nargs == 0 or not callable(reads) or reads is str:
        return "text"
    return KINDS.get(tuple(text for text in PROBES if accepts(reads, text)), "text")


def describe(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Return the options of a parser: ``names``, ``takes``, ``kind``, ``choices``, ``repeatable``.

    ``takes`` is how many values one use takes: a number, ``?``, ``*`` or ``+``.
    """
    return [
        {
            "names": list(action.option_strings),
            "takes": 1 if action.nargs is None else action.nargs,
            "kind": kind_of(action),
            "choices": [str(choice) for choice in action.choices or []],
            "repeatable": isinstance(action, REPEATABLE),
        }
        for action in parser._actions
        if action.option_strings
    ]


def show(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> None:
    """Stand in for ``ArgumentParser.parse_args``: print the options and end the process."""
    sys.stdout.write("\n" + MARK + json.dumps(describe(parser)) + "\n")
    sys.stdout.flush()
    # Whatever the imports started (threads, children) has nothing to do any more.
    os._exit(0)


if __name__ == "__main__":
    argparse.ArgumentParser.parse_args = show  # type: ignore[assignment, method-assign]
    module, sys.argv[1:] = sys.argv[1], sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
