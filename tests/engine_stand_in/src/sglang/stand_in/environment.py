# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environment variables: those of the engine, and those of the stand-in."""

from __future__ import annotations

import os
import warnings

from sglang.stand_in import boolean_environment, release

_TRUE = ("true", "1", "yes", "y")
_FALSE = ("false", "0", "no", "n")


def check_booleans() -> None:
    """Warn of a boolean variable of the engine with any other word: its default is used.

    That is what the real releases do; a setting spelled "on" is silently without effect.
    STAND_IN_BAD_BOOLEAN_ENV=refuse makes it an error.
    """
    for name in boolean_environment.NAMES[release.FACES]:
        value = os.environ.get(name)
        if value is None or value.lower() in _TRUE + _FALSE:
            continue
        message = f'"{value}" is not a valid boolean value'
        if os.environ.get("STAND_IN_BAD_BOOLEAN_ENV") == "refuse":
            raise ValueError(message)
        warnings.warn(f"Invalid value for {name}: {message}, using default", stacklevel=1)


def number(name: str, default: float) -> float:
    """Return a number from the environment."""
    return float(os.environ.get(name, default))


def boolean(name: str, default: bool) -> bool:
    """Return a boolean from the environment."""
    value = os.environ.get(name)
    return default if value is None else value.lower() in _TRUE


def old_stack() -> bool:
    """Tell whether transfers degrade the way they did up to NIXL 1.3."""
    default = "old" if release.FACES == "0.5.16" else "new"
    stack = os.environ.get("STAND_IN_STACK", default)
    if stack not in ("old", "new"):
        raise ValueError(f"STAND_IN_STACK is old or new, not {stack!r}")
    return stack == "old"
