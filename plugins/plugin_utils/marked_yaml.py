# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML with the lines that its values stand in.

Like Ansible's own loader, but for keys given twice, which are a problem here. Values that only Ansible can
read (``!vault``, ``!unsafe``) are :class:`Tagged`.
"""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet

#: Values that a file may come to when its aliases are written out: some 100,000 members.
MOST_VALUES = 5_000_000

_RULE = "the file is YAML"
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"

# libyaml's parser is some ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Mark:
    """A line, counted from 1, and the marks of what is inside, by key or by number."""

    __slots__ = ("inner", "line")

    def __init__(self, line: int, inner: dict[Any, Mark]):
        self.line = line
        self.inner = inner


class Tagged(str):
    """A value with a tag of Ansible's; as a text it is a template, because it is known only later.

    :ivar source: the value as YAML.
    """

    source: str


def load(text: str) -> tuple[Any, Mark, list[dict[str, Any]]]:
    """Return a document's value, its marks, and what is wrong with it: problems with ``line``.

    Keys that are no texts become texts, which is a problem, but not below ``vars``.
    """
    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None, Mark(1, {}), []
        reader = _Reader(loader)
        value, mark, _size = reader.read(root, ())
        return value, mark, reader.problems
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        return None, Mark(1, {}), [_problem(_words(error), at.line + 1 if at else 1)]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return None, Mark(1, {}), [_problem("character #x{0:x} cannot be in YAML".format(error.character), line)]
    except RecursionError:
        return None, Mark(1, {}), [_problem("nested too deeply", 1)]
    finally:
        if loader is not None:
            loader.dispose()


def line_of(mark: Mark, path: tuple[Any, ...]) -> int:
    """Return the line of what is at a path, or of the innermost thing around it that is there."""
    for key in path:
        inner = mark.inner.get(key)
        if inner is None:
            break
        mark = inner
    return mark.line


class _Refused(yaml.MarkedYAMLError):
    """What we refuse at a place, beside PyYAML itself."""


def _words(error: yaml.MarkedYAMLError) -> str:
    """Return an error's words, without the value: that may be a secret which somebody forgot to put in quotes."""
    message = " ".join(part for part in (error.context, error.problem) if part)
    if isinstance(error, yaml.composer.ComposerError) and "alias" in message:
        return "an alias is not defined; a text that begins with * goes in quotes"
    if isinstance(error, yaml.constructor.ConstructorError) and "merging" not in message:
        return "an unknown tag, or a value that does not fit its tag; a text that begins with ! goes in quotes"
    return message


def _problem(message: str, line: int, path: tuple[Any, ...] = ()) -> dict[str, Any]:
    return dict(_fleet.problem(_RULE, message, path), line=line)


class _Reader:
    def __init__(self, loader: Any):
        self.loader = loader
        self.problems: list[dict[str, Any]] = []
        self.done: dict[int, tuple[Any, Mark, int]] = {}
        self.begun: set[int] = set()

    def read(self, node: yaml.Node, path: tuple[Any, ...]) -> tuple[Any, Mark, int]:
        """Return a node's value, its marks and of how many values it consists."""
        line = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node), Mark(line, {}), 1
        if id(node) in self.begun:
            self.problems.append(_problem("an alias is inside of what it stands for", line, path))
            return None, Mark(line, {}), 1
        if id(node) not in self.done:
            self.begun.add(id(node))
            if isinstance(node, yaml.MappingNode):
                self.done[id(node)] = self.mapping(node, path)
            else:
                self.done[id(node)] = self.sequence(node, path)
            self.begun.discard(id(node))
        found = self.done[id(node)]
        if found[2] > MOST_VALUES:
            message = "more than {0} values once aliases are written out".format(MOST_VALUES)
            raise _Refused(None, None, message, node.start_mark)
        return found

    def scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag == _TEXT:
            return node.value
        if node.tag in ("!vault", "!vault-encrypted", "!unsafe"):
            value = Tagged("{{{{ {0} of line {1} }}}}".format(node.tag[1:], node.start_mark.line + 1))
            value.source = yaml.serialize(node)
            return value
        try:
            return self.loader.construct_object(node)
        except ValueError as error:
            raise _Refused(None, None, "no such date or number", node.start_mark) from error

    def sequence(self, node: yaml.Node, path: tuple[Any, ...]) -> tuple[Any, Mark, int]:
        values, marks, size = [], {}, 1
        for number, item in enumerate(node.value):
            value, mark, its_size = self.read(item, path + (number,))
            values.append(value)
            marks[number] = mark
            size += its_size
        return values, Mark(node.start_mark.line + 1, marks), size

    def mapping(self, node: yaml.MappingNode, path: tuple[Any, ...]) -> tuple[Any, Mark, int]:
        seen: dict[Any, int] = {}
        for key_node, _value in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _Refused(None, None, "a key is no text", key_node.start_mark)
            if key_node.value in seen and key_node.tag != _MERGE:
                message = "{0} is given twice, in line {1} before".format(key_node.value, seen[key_node.value])
                self.problems.append(_problem(message, line, path + (key_node.value,)))
            seen.setdefault(key_node.value, line)
        if any(key_node.tag == _MERGE for key_node, _value in node.value):
            self.loader.flatten_mapping(node)
        values: dict[Any, Any] = {}
        marks = {}
        size = 1
        for key_node, value_node in node.value:
            key = self.scalar(key_node)
            if not isinstance(key, str) and "vars" not in path:
                message = "key {0} is no text: write it in quotes".format(key_node.value)
                key = key_node.value
                self.problems.append(_problem(message, key_node.start_mark.line + 1, path + (key,)))
            value, mark, its_size = self.read(value_node, path + (key,))
            values[key] = value
            marks[key] = Mark(key_node.start_mark.line + 1, mark.inner)
            size += its_size
        return values, Mark(node.start_mark.line + 1, marks), size
