# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge an argument list by the options that the installed program itself told.

Pure. Options are what ``host/ask_parser.py`` prints: ``names``, ``takes`` (values per use:
a number, ``?``, ``*`` or ``+``), ``kind``, ``choices``, ``repeatable``. Stricter than
argparse where that is silent: an abbreviation and a repeat are refused, since both let
one value hide another.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _settings

_INTEGER = re.compile(r"[+-]?\d+(_\d+)*$")
_WITH_UNIT = re.compile(r"[+-]?\d+(\.\d+)?[A-Za-z]+$")


def is_option(word: str) -> bool:
    """Tell whether a word of a command line is an option; a negative number is a value."""
    return word.startswith("-") and len(word) > 1 and not _is_number(word)


def problems_of(words: list[str], options: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what the program would not take, or would take otherwise than it reads.

    :param words: the arguments behind the program's name.
    :return: ``option`` (as it was written, "" for a stray word) and ``message``, in the
        order of the words.
    """
    by_name = {name: option for option in options for name in option["names"]}
    found: list[dict[str, str]] = []
    # Spelling of the first use, by all the names that an option has.
    used: dict[tuple[str, ...], str] = {}
    for option, values in uses(words):
        name, equals, joined = option.partition("=")
        if equals:
            values = [joined, *values]
        known = by_name.get(name)
        if not option:
            message = "{0!r} belongs to no option".format(values[0])
        elif known is None:
            message = problem_of_name(name, options)
        else:
            message = _wrong_values(name, known, values, bool(equals))
            first = used.setdefault(tuple(known["names"]), "")
            if not message and first and not known["repeatable"]:
                message = "{0} is given twice{1}".format(name, "" if first == name else ", first as " + first)
            used[tuple(known["names"])] = first or name
        if message:
            found.append({"option": name, "message": message})
    return found


def uses(words: list[str]) -> list[tuple[str, list[str]]]:
    """Return each option with the values behind it; values before any option have option ""."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if is_option(word):
            found.append((word, []))
        elif found:
            found[-1][1].append(word)
        else:
            found.append(("", [word]))
    return found


def problem_of_name(name: str, options: list[dict[str, Any]]) -> str:
    """Return why a word is not exactly the name of an option, "" where it is."""
    known = sorted(spelled for option in options for spelled in option["names"])
    if name in known:
        return ""
    longer = [other for other in known if other.startswith(name)]
    if len(longer) == 1:
        return "{0} is an abbreviation of {1}: write it in full".format(name, longer[0])
    if longer:
        return "{0} is ambiguous, it could be {1}".format(name, " or ".join(longer))
    return "{0} is unknown{1}".format(name, _settings.suggestion(name, known))


def _wrong_values(name: str, option: dict[str, Any], values: list[str], joined: bool) -> str:
    takes = option["takes"]
    allowed = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(str(takes))
    least, most = allowed if allowed else (int(takes), int(takes))
    if joined and most == 0:
        return "{0} is a switch and takes no value, not {1!r}".format(name, values[0])
    if len(values) < least:
        return "{0} needs {1}".format(name, "a value" if least == 1 else "{0} values".format(least))
    if most is not None and len(values) > most:
        extra = values[most]
        return "{0} {1}: {2!r} belongs to no option".format(
            name, "is a switch" if most == 0 else "takes {0} value{1}".format(most, "s" if most > 1 else ""), extra
        )
    for value in values:
        if option["choices"]:
            if value not in option["choices"]:
                return "{0} takes one of {1}, not {2!r}{3}".format(
                    name, ", ".join(option["choices"]), value, _settings.suggestion(value, option["choices"])
                )
        elif not _reads_as(option["kind"], value):
            return "{0} takes {1}, not {2!r}".format(name, _KIND_WORDS[option["kind"]], value)
    return ""


_KIND_WORDS = {
    "integer": "an integer",
    "integer with unit": "an integer (8192 or 8k)",
    "number": "a number",
    "number with unit": "a number (0.5 or 8k)",
    "json": "JSON",
}


def _reads_as(kind: str, value: str) -> bool:
    if kind == "text":
        return True
    if kind == "json":
        try:
            json.loads(value)
        except ValueError:
            return False
        return True
    if kind.endswith("with unit") and _WITH_UNIT.match(value):
        return True
    if kind.startswith("integer"):
        return bool(_INTEGER.match(value))
    return _is_number(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
