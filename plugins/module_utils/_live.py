# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the running process carries the settings that are deployed.

Pure. Three things are compared for each setting: what is deployed (the member's file), what
the incarnation was started with (the copy that its unit made at start), and what the process
shows (its command line, its environment, its own ``/server_info``).
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _options, _settings, _unit
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import ROUTER

LIVE = "live"
#: Deployed after the process was started: a co-restart is due.
PENDING = "pending"
#: Neither what is deployed nor what the incarnation was started with: someone else's doing.
DRIFTED = "drifted"
#: Deployed and in the process's environment, but nothing reads it.
INERT = "inert"
#: Nothing runs, or the process does not show it.
UNKNOWN = "unknown"


def reported_name(flag: str) -> str:
    """Return the field of ``/server_info`` that repeats a flag."""
    return flag.lstrip("-").replace("-", "_")


def reported_names(member: dict[str, Any]) -> list[str]:
    """Return the fields of ``/server_info`` that repeat the collection's settings."""
    return [reported_name(carrier) for _name, carrier in _carriers(member) if carrier.startswith("--")]


def public_names(member: dict[str, Any]) -> list[str]:
    """Return the environment variables whose values may be shown: not those given as ``extra_env``."""
    settings = {carrier for _name, carrier in _carriers(member) if not carrier.startswith("--")}
    return sorted((settings | set(member["environment"])) - set(member["private_names"]))


def settings_of(record: dict[str, Any], inert: list[str]) -> list[dict[str, Any]]:
    """Return what became of each setting of one member, in the order of the settings' table.

    :param record: as the ``member_info`` module gives it with ``settings``: ``member``, ``unit``,
        ``running_configuration``, ``running`` (``started_with``: the member as it was at start, None
        for unknown; ``command``: words, [] for unknown; ``environment``: by name, None for
        unknown; ``reported``: fields of ``/server_info``, {} for none).
    :param inert: environment variables that nothing reads.
    :return: ``setting``, ``carrier`` (flag or environment variable), ``deployed``, ``running``,
        ``state`` and ``evidence``; values are text, "" where a setting is not given.
    """
    member, running = record["member"], record["running"]
    deployed = _Shown(member["exec_start"], member["environment"], record["unit"]["invocation_id"])
    started = running["started_with"]
    at_start = (
        _Shown(started["exec_start"], started["environment"], record["unit"]["invocation_id"]) if started else None
    )
    process = _Shown(running["command"], running["environment"] or {}, "")
    found = []
    for name, carrier in _carriers(member, started):
        is_flag = carrier.startswith("--")
        wanted = deployed.value(carrier)
        shown = bool(running["command"]) if is_flag else running["environment"] is not None
        given = at_start.value(carrier) if at_start else None
        if record["unit"]["active_state"] != "active":
            now, state, evidence = "", UNKNOWN, "the unit is {0}".format(record["unit"]["active_state"])
        elif not shown and given is None:
            same = record["running_configuration"] == member["configuration"]
            now, state = (wanted, LIVE) if same else ("", UNKNOWN)
            evidence = "configuration hash of the incarnation" if same else "the process shows nothing of it"
        else:
            now = process.value(carrier) if shown else str(given)
            source = ("command line" if is_flag else "environment") + " of the process"
            evidence = source if shown else "what the incarnation was started with"
            if now == wanted:
                state = LIVE
            elif given is not None and now != given:
                state, evidence = DRIFTED, "{0}; it was started with {1}".format(source, given or "nothing")
            else:
                state, evidence = PENDING, "deployed after the process was started"
        if not wanted and not now:
            continue
        said = running["reported"].get(reported_name(carrier)) if is_flag else None
        if state == LIVE and said is not None and not _same(said, wanted):
            now, state, evidence = str(said), DRIFTED, "the engine itself says so in /server_info"
        if state == LIVE and carrier in inert:
            state, evidence = INERT, "nothing in the installed environment reads it"
        row = {"setting": name, "carrier": carrier, "deployed": wanted, "running": now}
        found.append(dict(row, state=state, evidence=evidence))
    return found + _rest(record, deployed, at_start, process)


class _Shown:
    """Flags and environment of a process, as deployed, started or running."""

    def __init__(self, words: list[str], environment: dict[str, str], invocation_id: str):
        self.words = [word.replace("${INVOCATION_ID}", invocation_id) for word in words]
        self._flags: dict[str, str] = {}
        for option, values in _options.uses(self.words):
            name, equals, joined = option.partition("=")
            # A switch has no value; that it is given is all that there is to say.
            self._flags[name] = " ".join([joined, *values] if equals else values) or "true"
        self._environment = environment

    def value(self, carrier: str) -> str:
        """Return the value that a flag or variable has, "" where it is not given."""
        return (self._flags if carrier.startswith("--") else self._environment).get(carrier, "")


def _carriers(member: dict[str, Any], started: dict[str, Any] | None = None) -> list[tuple[str, str]]:
    """Return each setting and what carries it, of the deployed and of the started member."""
    if member["role"] == ROUTER:
        return list(_unit.ROUTER_FLAGS.items())
    found = []
    for name, how in _settings.TABLE.items():
        if member["role"] not in how.roles:
            continue
        spelled = [_settings.spelling(name, one["settings"], one["version"]) for one in (member, started) if one]
        found += [(name, carrier) for carrier in dict.fromkeys(spelled)]
    known = {carrier for _name, carrier in found}
    extra = sorted((set(member["environment"]) | set(started["environment"] if started else ())) - known)
    return found + [(name, name) for name in extra]


def _same(said: Any, wanted: str) -> bool:
    if isinstance(said, bool):
        return said is (wanted == "true")
    if isinstance(said, (int, float)):
        try:
            return float(said) == float(wanted)
        except OverflowError:
            return False
        except ValueError:
            # 8k, say: the engine reads units that are its own business.
            return True
    if isinstance(said, list):
        return [str(item) for item in said] == wanted.split(",")
    return str(said) == wanted


def _rest(record: dict[str, Any], deployed: _Shown, at_start: _Shown | None, process: _Shown) -> list[dict[str, Any]]:
    """Return a row for what no setting covers: other arguments, the private environment."""
    if record["unit"]["active_state"] != "active":
        return []
    rows = []
    row = {"setting": "other arguments", "carrier": "ExecStart", "deployed": "", "running": ""}
    if process.words and at_start and process.words != at_start.words:
        rows.append(dict(row, state=DRIFTED, evidence="the process has others: a drop-in? See systemctl cat"))
    elif at_start and _without_settings(at_start, record) != _without_settings(deployed, record):
        rows.append(dict(row, state=PENDING, evidence="deployed after the process was started"))
    for name in record["running"].get("private_differs", []):
        row = {"setting": name, "carrier": name, "deployed": "(private)", "running": "(private)"}
        rows.append(dict(row, state=PENDING, evidence="the process carries another value"))
    return rows


def _without_settings(shown: _Shown, record: dict[str, Any]) -> list[tuple[str, list[str]]]:
    carriers = {carrier for _name, carrier in _carriers(record["member"], record["running"]["started_with"])}
    return [(option, values) for option, values in _options.uses(shown.words) if option.split("=")[0] not in carriers]


def describe(record: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Return the settings of a member as lines for people: what is not live in full, the rest counted."""
    member = record["member"]
    counted = len([row for row in rows if row["state"] == LIVE])
    lines = ["{0} on {1}: {2} settings live".format(member["unit"], member["host"], counted)]
    for row in rows:
        if row["state"] == LIVE:
            continue
        differs = row["running"] != row["deployed"]
        change = "{running} runs, {deployed} is deployed" if differs else "{deployed}"
        words = dict(row, running=row["running"] or "nothing", deployed=row["deployed"] or "nothing")
        lines.append("  {state:<8} {setting} ({carrier}): {0}; {evidence}".format(change.format(**words), **words))
    return lines
