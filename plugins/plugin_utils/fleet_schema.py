# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published JSON schema of a fleet's file: what it refuses, in our words, and the defaults it knows."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet, _settings

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "extensions/schemas/sglang_pd.schema.json"

_RULE = "the file follows its schema"
_KINDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "nothing",
    "number": "a number",
    "object": "a mapping",
    "string": "a text",
}


def read() -> dict[str, Any]:
    """Return the schema."""
    schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return schema


def defaults(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the default values of the roles' variables: by section, then by word."""
    return {
        section: {word: one["default"] for word, one in its["properties"].items() if "default" in one}
        for section, its in schema["definitions"].items()
        if "properties" in its
    }


def problems_of(data: Any, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a file has against its schema, see :func:`_fleet.problem`.

    Values are told only of words that are no secrets, and of no variables that the schema does not know.
    """
    for error in jsonschema.Draft7Validator(schema).iter_errors(data):
        yield from _told(error)


def _told(error: Any) -> Iterator[dict[str, Any]]:
    path = tuple(error.absolute_path)
    value = error.instance
    if error.validator == "additionalProperties":
        known = error.schema["properties"]
        for key in [key for key in value if key not in known]:
            hint, nearest = _hint(key, known)
            message = "{0} is unknown{1}".format(key, hint)
            yield dict(_fleet.problem("known words", message, path + (key,)), nearest=nearest)
    elif error.validator == "required":
        # Missing roles are told by the rules, for the cluster as a whole.
        if path[-1:] != ("members",):
            for key in [key for key in error.validator_value if key not in value]:
                if error.message.startswith(repr(key)):
                    yield _fleet.problem(_RULE, "{0} is missing".format(key), path)
    elif error.validator == "minItems" and path[-2:-1] == ("members",):
        return
    elif "propertyNames" in error.absolute_schema_path:
        yield _fleet.problem(_RULE, _wrong_name(value, path), path + (value,))
    else:
        yield _fleet.problem(_RULE, _wrong_value(error, path), path)


def _hint(key: str, known: Any) -> tuple[str, str]:
    """Return what may have been meant by an unknown word, as a hint and as the word where it is one here."""
    section, _none, word = key[len("pd_") :].partition("_") if key.startswith("pd_") else ("", "", key)
    if section and (word in known or section in known):
        here = word in known
        return "; without its prefix it is {0}".format(word if here else section + ": " + word), word if here else ""
    if key in _settings.TABLE and "engine" in known:
        return "; it goes into the section engine, prefill or decode", ""
    suggestion = _settings.suggestion(key, known)
    return suggestion, suggestion[len("; did you mean ") : -1]


def _wrong_name(name: Any, path: tuple[Any, ...]) -> str:
    if path[-1:] == ("vars",) and str(name).startswith("pd_"):
        return "{0} is a word of a section, or of a member, without its prefix: there it is checked".format(name)
    if path[-1:] == ("vars",):
        return "{0} cannot be a variable's name".format(name)
    return "{0} cannot be part of a unit name: letters, digits, dots, underscores, single hyphens between".format(name)


def _wrong_value(error: Any, path: tuple[Any, ...]) -> str:
    word = path[-1] if path else "the file"
    if isinstance(word, int):
        word = "an item of {0}".format(path[-2])
    if error.validator == "type":
        wanted = error.validator_value
        kinds = [wanted] if isinstance(wanted, str) else [kind for kind in wanted if kind not in ("string", "null")]
        is_there = "nothing is given" if error.instance is None else "{0} is given".format(_kind(error.instance))
        hint = ": write it in quotes" if kinds == ["string"] and isinstance(error.instance, (int, float)) else ""
        return "{0} takes {1}, {2}{3}".format(word, " or ".join(_KINDS[kind] for kind in kinds), is_there, hint)
    if error.validator == "pattern" and isinstance(error.schema.get("type"), list):
        kind = _KINDS[error.schema["type"][0]]
        return "{0} takes {1} (or a template), a text is given".format(word, kind)
    if error.validator == "pattern" and word == "host":
        return "{0} cannot be a host's inventory name".format(error.instance)
    if error.validator == "pattern":
        return _wrong_name(error.instance, path)
    if error.validator in ("anyOf", "enum"):
        choices = error.schema["enum"] if error.validator == "enum" else error.validator_value[0]["enum"]
        suggestion = _settings.suggestion(str(error.instance), choices)
        return "{0} takes one of {1}, not {2}{3}".format(word, ", ".join(choices), error.instance, suggestion)
    if error.validator in ("minimum", "maximum"):
        bound = "at least" if error.validator == "minimum" else "at most"
        return "{0} is {1}, wanted is {2} {3}".format(word, error.instance, bound, error.validator_value)
    if error.validator == "minProperties":
        return "{0} has nothing in it".format(word)
    return "{0} breaks {1} of the schema".format(word, error.validator)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    for kind, types in (("number", (int, float)), ("string", str), ("array", list), ("object", dict)):
        if isinstance(value, types):
            return _KINDS[kind]
    return "a {0}".format(type(value).__name__)
