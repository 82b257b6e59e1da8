# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a diagnosis saw, as text files: names and headers, written and read back. Pure.

An item is one thing that was seen: the answer of one endpoint, or one fact of a host as JSON::

    {"at": 1796003117.0, "host": "box1", "unit": "sglang-dsv4-prefill.service", "endpoint": "v1_loads",
     "status": 200, "seconds": 0.02, "error": "", "body": "..."}

``at`` is in seconds since the epoch, None where it is not known; items of one round of sampling
share it. ``status`` is None where there was no answer; then ``error`` says why.

Two ways to name files are read: ``<time>__<host>__<unit>__<endpoint>.txt``, which is also written, and
``<scenario>__<prefill|decode|router>__<endpoint>.txt``, as people record bodies by hand; there each
scenario is judged as a cluster of its own.
"""

from __future__ import annotations

import calendar
import json
import os
import re
import time
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _redact
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import STAGES

#: Endpoint of the items that describe members, hosts and so on; their body is JSON.
MEMBER = "member.json"
UNIT = "unit.json"
LEDGER = "ledger.json"
STARTS = "starts.json"
SETTINGS = "settings.json"
LISTENERS = "listeners.json"
REACH = "reach.json"
NUDGE = "nudge.json"
MACHINE = "machine.json"
UNREACHABLE = "unreachable.json"
JOURNAL = "journal"
#: In place of a unit, for what concerns a whole host.
WHOLE_HOST = "host"

_STAMP = re.compile(r"^(\d{8}T\d{6})(?:\.(\d{1,6}))?Z$")
_HEADER = re.compile(r"^# (?:(?:GET|POST) /\S* -> |(?:\S+) -> )?(\d{3}|None)\b(?:.*?\(([0-9.]+) s\))?.*$")
_HTTP_HEADER = re.compile(r"^HTTP/\d\S* (\d{3})")
_ERROR = re.compile(r"^\w*(?:Error|Exception): ")


def item(endpoint: str, body: Any, host: str = "", unit: str = WHOLE_HOST, at: float | None = None) -> dict[str, Any]:
    """Return an item that is no HTTP answer.

    :param body: text, or what is to be written as JSON.
    """
    text = body if isinstance(body, str) else json.dumps(body, sort_keys=True)
    return {
        "at": at,
        "host": host,
        "unit": unit,
        "endpoint": endpoint,
        "status": 200,
        "seconds": 0.0,
        "error": "",
        "body": text,
    }


def file_of(one: dict[str, Any], secrets: list[str]) -> tuple[str, str]:
    """Return an item's file name and content, secrets removed."""
    at = one["at"] or 0.0
    whole = int(at)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole)) + ".{0:03d}Z".format(int((at - whole) * 1000))
    name = "__".join([stamp, _plain(one["host"]), _plain(one["unit"]), _plain(one["endpoint"])]) + ".txt"
    header = "# {0} -> {1} ({2:.3f} s)\n".format(one["endpoint"], one["status"], one["seconds"])
    text = one["body"] if one["status"] is not None else "{0}\n".format(one["error"])
    return name, header + _redact.redact(text, secrets)


def _plain(word: str) -> str:
    return re.sub(r"[^A-Za-z0-9.:@-]+|_(?=_)", "_", word) or "-"


def read(files: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the items of a bundle by scenario; "" is the scenario of a bundle that was written by :func:`file_of`.

    :param files: content by name; folders before a name do not count, what has another name is left out.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(files):
        place = _place(os.path.basename(path))
        if place is None:
            continue
        scenario, one = place
        status, seconds, error, body = _content(files[path])
        found.setdefault(scenario, []).append(dict(one, status=status, seconds=seconds, error=error, body=body))
    return found


def _place(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the scenario of a file, and what its name says of the item."""
    stem = name[: -len(".txt")] if name.endswith(".txt") else name
    parts = stem.split("__")
    if len(parts) == 4 and _STAMP.match(parts[0]):
        return "", {"at": _time(parts[0]), "host": parts[1], "unit": parts[2], "endpoint": parts[3]}
    if len(parts) == 3 and parts[1] in STAGES:
        return parts[0], {"at": None, "host": "", "unit": parts[1], "endpoint": parts[2]}
    if len(parts) == 2:
        # One member alone: its role is in the scenario's name, or it is a router's.
        roles = [role for role in STAGES if role in parts[0]]
        role = roles[0] if roles else "router" if parts[0].startswith("smg") else ""
        return (parts[0], {"at": None, "host": "", "unit": role, "endpoint": parts[1]}) if role else None
    return None


def _time(stamp: str) -> float:
    match = _STAMP.match(stamp)
    if match is None:
        return 0.0
    try:
        seconds = calendar.timegm(time.strptime(match.group(1), "%Y%m%dT%H%M%S"))
    except ValueError:
        return 0.0
    return seconds + float("0." + (match.group(2) or "0"))


def _seconds(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return 0.0


def _content(text: str) -> tuple[int | None, float, str, str]:
    """Return status, seconds, error and body of a file."""
    first, _newline, rest = text.partition("\n")
    status: int | None = 200
    seconds = 0.0
    body = text
    header = _HEADER.match(first)
    if header:
        status = None if header.group(1) == "None" else int(header.group(1))
        seconds = _seconds(header.group(2) or "0")
        body = rest
    elif _HTTP_HEADER.match(first):
        status = int(first.split()[1])
        body = text.replace("\r\n", "\n").partition("\n\n")[2]
    elif _ERROR.match(first):
        status = None
    if status is None:
        return None, seconds, body.strip()[:300], ""
    return status, seconds, "", body
