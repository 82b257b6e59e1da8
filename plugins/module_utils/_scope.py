# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is due in a cluster, and the smallest set of stages that may be restarted for it.

Pure. The rules, from the smallest scope to the largest:

- Only routers are due: the routers alone. They hold no end of a transfer channel.
- Only the settings of decodes (and routers) changed, the cluster opted in, and its engines
  are of versions that are known to heal: decodes and routers. What follows is the proof
  through the KV path, and the whole chain at once where that fails.
- Anything else: the whole chain.
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _settings
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, ROUTER, STAGES

WHOLE_CHAIN = "whole chain"
ROUTER_ALONE = "router alone"
DECODE_ALONE = "decode and router alone"

#: Least requests through each router that prove a decode which was restarted alone.
DECODE_ALONE_REQUESTS = 8

#: What is known to heal after restarts of decodes alone. Versions: from the first one, below
#: the second one, "" for no limit. A newer sglang is not on the list before somebody has
#: seen it heal.
HEALS: tuple[dict[str, Any], ...] = (
    {
        "sglang": ("0.5.23", "0.5.24"),
        "transfer_backend": "nixl",
        "transfer": ("1.4", ""),
        "evidence": (
            "sglang 0.5.23 with NIXL from 1.4 on: decodes restarted alone again and again, by SIGTERM and by kill -9, "
            "against running prefills served every request after it, with the answers of a plain server. "
            "0.5.16 with NIXL 1.3.2 did not (sgl-project/sglang#33789)"
        ),
    },
)

# Kinds of findings.
DOWN = "down"
CONFIGURATION = "configuration"
REPLACED = "replaced"
CLOSED = "closed"
FAILED = "failed"
UNFINISHED = "unfinished"
GENERATIONS = "generations"


def findings(records: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return why a cluster needs a co-restart: what runs is not what should run.

    The configuration hash that a unit noted at its start is compared with the one on disk,
    so a change whose notification was lost is found all the same.

    :param records: the cluster's members as ``member_info`` found them.
    :return: ``kind``, ``role`` ("" where it is the cluster's), ``unit``, ``reason``.
    """
    found: list[dict[str, str]] = []
    ends: dict[str, dict[str, str]] = {}
    for record in records:
        member, unit, ledger = record["member"], record["unit"], record["ledger"]
        name = "{0} on {1}".format(member["unit"], member["host"])
        if unit["active_state"] != "active":
            found.append(_finding(DOWN, member, "{0} is {1}".format(name, unit["active_state"])))
        elif record["running_configuration"] != member["configuration"]:
            # Where nothing is known of what runs, nothing is known of its engine either.
            kind = CONFIGURATION if record["running_configuration"] else REPLACED
            found.append(
                _finding(
                    kind,
                    member,
                    "{0} runs configuration {1}, {2} is deployed".format(
                        name, record["running_configuration"] or "unknown", member["configuration"]
                    ),
                )
            )
        if unit["active_state"] == "active" and ledger["incarnation"] != unit["invocation_id"]:
            found.append(_finding(REPLACED, member, "{0} was restarted outside of a co-restart".format(name)))
        elif ledger["fence"] and ledger["fence"].get("closed") and ledger["fence"]["closed"] == unit["invocation_id"]:
            found.append(
                _finding(CLOSED, member, "{0} gave up its workers for a run that never came to it".format(name))
            )
        if ledger["outcome"] == _ledger.FAILED:
            reason = "generation {0} failed: {1}".format(ledger["generation"], ledger["reason"])
            # A router that never became healthy says nothing of its engines.
            engines_too = member["role"] != ROUTER or ledger["phase"] == _ledger.HEALTHY
            if reason not in ends or engines_too:
                ends[reason] = dict(_finding(FAILED, member, reason), role="" if engines_too else ROUTER)
        elif ledger["generation"] and not ledger["outcome"]:
            reason = "generation {0} was never finished".format(ledger["generation"])
            if reason not in ends or member["role"] != ROUTER:
                ends[reason] = dict(
                    _finding(UNFINISHED, member, reason), role="" if member["role"] != ROUTER else ROUTER
                )
    found += [ends[reason] for reason in sorted(ends)]
    generations = {record["ledger"]["generation"] for record in records}
    # A router that was restarted alone is a generation ahead, and may be; so may a decode and
    # its routers where that was allowed.
    by_role = {role: {r["ledger"]["generation"] for r in records if r["member"]["role"] == role} for role in STAGES}
    engines = {r["ledger"]["generation"] for r in records if r["member"]["role"] != ROUTER}
    behind = max(generations) > min(generations) and max(generations) in engines
    if (len(engines) > 1 or behind) and not _is_decode_alone(records, by_role):
        found.append(
            {
                "kind": GENERATIONS,
                "role": "",
                "unit": "",
                "reason": "members are of different generations ({0})".format(", ".join(map(str, sorted(generations)))),
            }
        )
    return found


def _finding(kind: str, member: dict[str, Any], reason: str) -> dict[str, str]:
    return {"kind": kind, "role": member["role"], "unit": member["unit"], "reason": reason}


def _is_decode_alone(records: list[dict[str, Any]], by_role: dict[str, set[int]]) -> bool:
    """Tell whether the generations are those of decodes and routers that restarted alone by the rule, and well."""
    prefill, decode, router = (by_role[role] for role in STAGES)
    return (
        len(prefill) == len(decode) == 1
        and max(prefill) < max(decode) <= min(router)
        and all(
            record["ledger"].get("scope") == DECODE_ALONE and record["ledger"]["outcome"] == _ledger.OK
            for record in records
            if record["member"]["role"] == DECODE
        )
    )


def choose(records: list[dict[str, Any]], found: list[dict[str, str]], opted_in: bool) -> dict[str, Any]:
    """Return the smallest set of stages that may be restarted for what is due.

    :param found: what :func:`findings` gave for the records, not empty.
    :param opted_in: whether the cluster allows decodes to restart without their prefills.
    :return: ``stages``, ``rule`` (one of the three scopes) and ``reason``.
    """
    roles = {one["role"] for one in found}
    if roles == {ROUTER}:
        return _scope(ROUTER_ALONE, "only routers are due, and they hold no end of a transfer channel")
    decodes = sorted({one["unit"] for one in found if one["role"] == DECODE})
    only_settings = all(one["kind"] == CONFIGURATION for one in found if one["role"] == DECODE)
    if roles - {DECODE, ROUTER}:
        names = sorted({one["unit"] for one in found if one["role"] not in (DECODE, ROUTER) and one["unit"]})
        what = "{0} is due".format(", ".join(names)) if names else "the last co-restart did not end well"
        return _scope(WHOLE_CHAIN, "{0}, and a prefill takes its decodes and routers along".format(what))
    why = "a decode never restarts without its prefills (rule 1), and {0} is due".format(", ".join(decodes))
    if not only_settings:
        return _scope(WHOLE_CHAIN, why + ", not only by a change of its settings")
    if not opted_in:
        return _scope(WHOLE_CHAIN, why + "; the cluster has not opted in (pd_co_restart_decode_alone)")
    entries, unknown = _entries([record["member"] for record in records])
    if unknown:
        return _scope(WHOLE_CHAIN, "{0}; not known to heal: {1}".format(why, unknown))
    return _scope(
        DECODE_ALONE,
        "the cluster opted in (pd_co_restart_decode_alone), only settings of {0} changed, and these versions heal: "
        "{1}. Where the proof fails, the whole chain follows at once".format(
            ", ".join(decodes), "; ".join(entry["evidence"] for entry in entries)
        ),
    )


def _scope(rule: str, reason: str) -> dict[str, Any]:
    stages = {WHOLE_CHAIN: STAGES, ROUTER_ALONE: (ROUTER,), DECODE_ALONE: (DECODE, ROUTER)}[rule]
    return {"stages": list(stages), "rule": rule, "reason": reason}


def asked_for(stages: tuple[str, ...]) -> dict[str, Any]:
    """Return the scope of stages that were asked for by name."""
    rule = {STAGES: WHOLE_CHAIN, (ROUTER,): ROUTER_ALONE}.get(stages, "stages by name")
    return {"stages": list(stages), "rule": rule, "reason": "asked for"}


def may_leave_prefills(plan: dict[str, Any]) -> bool:
    """Tell whether a plan restarts decodes alone by the rule; both halves of each step ask this.

    The versions are looked up again, so that a plan which only claims the rule is refused.
    """
    return bool(plan["scope"]["rule"] == DECODE_ALONE and not _entries(plan["members"])[1])


def _entries(members: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return the entries of :data:`HEALS` for the engines, and the first engine that has none."""
    used: list[dict[str, Any]] = []
    for member in members:
        if member["role"] == ROUTER:
            continue
        backend = str(member["settings"].get("transfer_backend") or "")
        version, transfer = str(member.get("version") or ""), str(member.get("transfer_version") or "")
        entry = next(
            (
                one
                for one in HEALS
                if backend == one["transfer_backend"]
                and _is_between(version, *one["sglang"])
                and _is_between(transfer, *one["transfer"])
            ),
            None,
        )
        if entry is None:
            return used, "{0} is sglang {1} with {2} {3}".format(
                member["unit"],
                version or "unknown",
                backend or "an unnamed transfer backend",
                transfer or "of unknown version",
            )
        if entry not in used:
            used.append(entry)
    return used, ""


def _is_between(version: str, first: str, below: str) -> bool:
    """Tell whether a version is at least the first one and below the other; a pre-release is of neither."""
    numbers = _settings.parse_version(version)
    if not numbers or re.search(r"(a|b|rc|dev)\d", version):
        return False
    return numbers >= _settings.parse_version(first) and (not below or numbers < _settings.parse_version(below))
