# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``--config FILE``: arguments from YAML, before those of the command line.

As with the real engine, the file's arguments come first, so that the command
line wins; only a separate ``--config FILE`` is seen (``--config=FILE`` is an
ordinary flag that changes nothing).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def _read_flat(text: str) -> dict[str, Any]:
    """Read ``key: value`` lines; enough where PyYAML is not installed."""
    data: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        key, _, raw = line.partition(":")
        raw = raw.strip()
        try:
            data[key.strip()] = json.loads(raw)
        except ValueError:
            known = {"true": True, "false": False, "null": None, "": None}
            data[key.strip()] = known.get(raw.lower(), raw.strip("'\""))
    return data


def _read(path: str) -> dict[str, Any]:
    file = Path(path)
    if file.suffix.lower() not in (".yaml", ".yml"):
        raise ValueError(f"Config file must be YAML format, got: {file.suffix}")
    if not file.exists():
        raise ValueError(f"Config file not found: {path}")
    text = file.read_text(encoding="utf-8")
    try:
        import yaml  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return _read_flat(text)
    data = yaml.safe_load(text) or {}
    if not isinstance(data, dict):
        raise ValueError("Config file must contain a dictionary at root level")
    return data


def _switches(parser: argparse.ArgumentParser) -> set[str]:
    """Return the keys of flags that take no value."""
    return {
        option[2:].replace("-", "_")
        for action in parser._actions
        if action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
        for option in action.option_strings
        if option.startswith("--")
    }


def merge(parser: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """Return the argument list with the file's arguments put in front."""
    if argv.count("--config") > 1:
        raise ValueError("Multiple config files specified! Only one allowed.")
    at = argv.index("--config")
    if at == len(argv) - 1:
        raise ValueError("No config file specified after --config flag!")
    switches = _switches(parser)
    from_file: list[str] = []
    for key, value in _read(argv[at + 1]).items():
        flag = f"--{key}"
        if isinstance(value, bool) and key.replace("-", "_") in switches:
            from_file += [flag] if value else []
        elif isinstance(value, bool):
            from_file += [flag, str(value).lower()]
        elif isinstance(value, list):
            from_file += [flag, *map(str, value)] if value else []
        elif isinstance(value, dict):
            from_file += [flag, json.dumps(value)]
        else:
            from_file += [flag, str(value)]
    return from_file + argv[:at] + argv[at + 2 :]
