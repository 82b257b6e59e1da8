# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small cluster as data: what hosts say of it, what is asked, and evidence of a walk."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _ledger,
    _plan,
    _profiles,
    _topology,
    _unit,
    _walk,
)

WANTED = {"prefill": ["p"], "decode": ["d"], "router": ["r"]}
OPTIONS: dict[str, Any] = {
    "drain_limit_seconds": 120,
    "drain_stall_seconds": 15,
    "consecutive": 3,
    "health_timeout_seconds": 25,
    "requests": 8,
    "request_limit_seconds": 35,
    "settle_limit_seconds": 60,
    "settle_stall_seconds": 20,
    "verify": _profiles.after_co_restart("standard", {}),
}


def member(role: str, host: str, name: str = "", **more: Any) -> dict[str, Any]:
    """Return a member as the roles deploy it."""
    port = {"prefill": 30000, "decode": 30002, "router": 30001}[role]
    unit = "sglang-c-{}{}.service".format(role, "-" + name if name else "")
    return {
        "cluster": "c",
        "role": role,
        "unit": unit,
        "host": host,
        "engine": "{} {}".format(role, host),
        "nnodes": 1,
        "node_rank": 0,
        "dist_init_addr": "",
        "address": host,
        "listen": "0.0.0.0",
        "port": port,
        "bootstrap_port": 8998 if role == "prefill" else None,
        "metrics_port": 29000 if role == "router" else None,
        "url": "http://{}:{}".format(host, port),
        "gpus": [],
        "settings": {"model_path": "/m"},
        "configuration": "new",
        "stop_limit_seconds": 90,
        "healthy_limit_seconds": 900,
        **more,
    }


def unit_state(**more: Any) -> dict[str, Any]:
    """Return a unit as systemd shows it."""
    return {
        "load_state": "loaded",
        "active_state": "active",
        "sub_state": "running",
        "result": "success",
        "exit_status": 0,
        "main_pid": 7,
        "invocation_id": "i1",
        "restarts": 0,
        "restart_policy": "no",
        "unit_file_state": "enabled",
        "started_at": 1.0,
        "job": 0,
        **more,
    }


def record(
    role: str, host: str, ledger: dict[str, Any] | None = None, running: str = "new", **more: Any
) -> dict[str, Any]:
    """Return what ``member_info`` gives for a member that the last co-restart left healthy.

    :param more: of the unit's state, ``member``: of the member, and ``revisions``.
    """
    of_member = more.pop("member", {})
    revisions = more.pop("revisions", [])
    one = member(role, host, **of_member)
    state = unit_state(**more)
    kept = dict(
        _ledger.empty(one["unit"]),
        generation=1,
        run={"id": "r1", "owner": "o", "purpose": "p"},
        phase=_ledger.HEALTHY,
        incarnation=state["invocation_id"],
        began_at=900.0,
        outcome=_ledger.OK,
        **{"fence": {"generation": 1, "run": {"id": "r1"}}},
    )
    kept.update(ledger or {})
    return {
        "member": one,
        "unit": state,
        "ledger": kept,
        "running_configuration": running,
        "listeners": [],
        "deployed_digest": "digest of " + one["configuration"],
        "revisions": revisions,
    }


def deployed_decode(
    secrets: dict[str, str], settings: dict[str, Any] | None = None, version: str = "0.5.23", **given: Any
) -> dict[str, Any]:
    """Return a decode as its host keeps it."""
    engine = {
        "cluster": "c",
        "role": "decode",
        "unit": "sglang-c-decode.service",
        "host": "box1",
        "nnodes": 1,
        "node_rank": 0,
        "listen": "127.0.0.1",
        "port": 30002,
        "gpus": [],
        "settings": {"model_path": "/models/m", **(settings or {})},
        "extra_args": [],
        "extra_env": {},
        **given,
    }
    install = {"python": "/opt/v/bin/python", "version": version, "secrets_file": "/s", "secrets": secrets}
    return _topology.member_file(engine, _unit.engine_unit(engine, install), version=version)


def seen(*records: dict[str, Any], **locks: Any) -> dict[str, dict[str, Any]]:
    """Return what was seen, by host, at second 1000 of every host's clock."""
    found: dict[str, dict[str, Any]] = {}
    for one in records:
        host = found.setdefault(one["member"]["host"], {"members": [], "locks": {}, "now": 1000.0, "preflight": {}})
        host["members"].append(one)
    for cluster, lock in locks.items():
        found["p"]["locks"][cluster] = lock
    return found


def healthy() -> list[dict[str, Any]]:
    """Return the records of a healthy cluster on three hosts."""
    return [record("prefill", "p"), record("decode", "d"), record("router", "r")]


def asked(**more: Any) -> dict[str, Any]:
    """Return what an operator asks for: a whole co-restart."""
    return {
        "run": {"id": "r2", "owner": "me", "purpose": "test"},
        "stages": ["prefill", "decode", "router"],
        "override": "",
        "when": _plan.ALWAYS,
        "take_over": "",
        "accepted": [],
        "resume_limit_seconds": 3600,
        "gone_owners": [],
        "decode_alone": False,
        "restore": None,
        "follows": None,
        "options": OPTIONS,
        **more,
    }


def plan_of(records: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """Return the plan for a cluster, of the healthy one where no records are given."""
    return _plan.make_plan("c", WANTED, seen(*(records or healthy())), asked(**more))


def evidence_up_to(step: str, plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the evidence of a run in which each step before this one went well."""
    found: dict[str, dict[str, Any]] = {}
    for earlier in _walk.STEPS[: _walk.STEPS.index(step)]:
        for host in _walk.hosts_of_step(earlier, plan):
            members = {
                m["unit"]: {"outcome": "passed", "incarnation": "new of " + m["unit"]}
                for m in _walk.members_of_step(earlier, plan, host)
                if earlier.startswith(("start_", "restart_"))
            }
            found.setdefault(earlier, {})[host] = {
                "outcome": _walk.OK,
                "message": "",
                "changed": True,
                "generation": plan["generation"],
                "run": plan["run"]["id"],
                "members": members,
            }
    return found
