# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between the engine releases that the stand-in can be."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from sglang.version import __version__

#: Releases with recorded faces; any other version gets the nearest older one.
RECORDED = ("0.5.16", "0.5.23")


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])


VERSION = __version__
FACES = next((v for v in reversed(RECORDED) if _key(v) <= _key(VERSION)), RECORDED[0])
HAS_READY = _key(VERSION) >= (0, 5, 20)
HAS_GET_LOAD = not HAS_READY


def read_text(name: str) -> str:
    """Return a file of the data folder."""
    return (resources.files("sglang.stand_in") / "data" / name).read_text(encoding="utf-8")


def read_json(name: str) -> Any:
    """Return a JSON file of the data folder."""
    return json.loads(read_text(name))


def role_file(stem: str, role: str) -> str:
    """Return the name of a recorded template; plain 0.5.16 was not recorded."""
    if FACES == "0.5.16" and role == "null":
        role = "prefill"
    return f"{stem}-{FACES}-{role}.json"
