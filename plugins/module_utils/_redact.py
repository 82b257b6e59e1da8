# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets out of text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "********"
#: A field of a JSON object, as /server_info repeats the engine's arguments.
_FIELD = re.compile(r'("(?:\w*_)?(?:key|token|password|secret)"\s*:\s*)"(?:[^"\\]|\\.)+"', re.IGNORECASE)
# Bounded, and not tried at each dash of a line of dashes: the time would grow with the square of its length.
_OPTION = re.compile(r"((?<!-)--(?:[\w-]{0,64}-)?(?:key|token|password|secret)(?:=|\s+))(\S+)", re.IGNORECASE)
#: An environment variable, as a unit's journal or a command line of somebody else's may show it.
_ASSIGNED = re.compile(r"\b(\w{0,64}(?:key|token|password|secret)=)(\S+)", re.IGNORECASE)


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets that are known, and without the values of options, environment
    variables and JSON fields whose names say that they carry one (a foreign process's command line)."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    text = _FIELD.sub(lambda match: '{0}"{1}"'.format(match.group(1), HIDDEN), text)
    text = _OPTION.sub(lambda match: match.group(1) + HIDDEN, text)
    return _ASSIGNED.sub(lambda match: match.group(1) + HIDDEN, text)
