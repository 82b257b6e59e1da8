# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a roll on the controller; documented in plugins/modules/roll_plan.py."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.inferops.sglang_pd.plugins.action import co_restart_plan
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _ledger,
    _lock,
    _plan,
    _profiles,
    _roll,
    _topology,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import clusters, roll_files, roll_markdown, roll_text

display = Display()

#: Options of a roll that its plan keeps.
ROLL_OPTIONS = (
    "max_unavailable",
    "max_unavailable_per_domain",
    "canary",
    "canaries_per_model",
    "batch",
    "soak_seconds",
    "failure_budget",
    "repair",
    "pause",
)
#: A plan of the roll needs no options of the steps; each wave plans its clusters anew.
_NO_STEPS: dict[str, Any] = {"requests": 0, "verify": {"parts": []}}


class ActionModule(ActionBase):
    """Gather what was registered, ask the pure core, write and print its plan."""

    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return what the plays of a roll need of its plan; the plan itself is in ``plan.json``."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        text = {"type": "str", "default": ""}
        _unused, given = self.validate_argument_spec(
            argument_spec={
                "members": dict(text, default="pd_members"),
                "preflight": dict(text, default="pd_preflight"),
                "settings": dict(text, default="pd_settings"),
                "proof": dict(text, default="pd_roll_look"),
                "clusters": {"type": "list", "elements": "str", "default": []},
                "restart_when": {"type": "str", "choices": [_plan.ALWAYS, _plan.WHEN_DUE], "default": _plan.WHEN_DUE},
                "accept": {"type": "list", "elements": "str", "default": []},
                "decode_alone": dict(text, default="pd_co_restart_decode_alone"),
                "domain": dict(text, default="pd_failure_domain"),
                "maintenance": dict(text, default="pd_maintenance"),
                "max_unavailable": dict(text, default="10%"),
                "max_unavailable_per_domain": text,
                "canary": {"type": "list", "elements": "str", "default": []},
                "canaries_per_model": {"type": "int", "default": 1},
                "batch": dict(text, default="25%"),
                "soak_seconds": {"type": "int", "default": 60},
                "failure_budget": dict(text, default="0"),
                "repair": {"type": "bool", "default": False},
                "pause": {
                    "type": "str",
                    "choices": [_roll.NEVER, _roll.AFTER_CANARY, _roll.AFTER_EACH_WAVE],
                    "default": _roll.NEVER,
                },
                "take_over": text,
                "purpose": dict(text, default="rolling co-restart"),
                "roll_id": text,
                "rolls": text,
            }
        )
        wanted, homeless = clusters.inventory_clusters(task_vars["groups"], task_vars["hostvars"])
        in_play = set(task_vars["ansible_play_hosts_all"])
        chosen = given["clusters"] or clusters.clusters_in(wanted, in_play)
        refused = co_restart_plan.wrong_selection(chosen, wanted, homeless)
        if refused:
            return dict(result, failed=True, msg=refused)
        run = co_restart_plan.new_run(given["roll_id"], given["purpose"])
        directory = roll_files.directory_of(given["rolls"], run["id"]) if given["rolls"] else ""
        walked = _still_walked(directory, run)
        if walked:
            return dict(result, failed=True, msg=walked)
        fleet = _Fleet(given, task_vars["hostvars"], wanted, in_play, run)
        roll = _roll.make_roll(
            fleet.clusters(set(chosen)),
            {
                "roll": run["id"],
                "made_at": round(time.time(), 3),
                "owner": run["owner"],
                "purpose": run["purpose"],
                "options": {name: given[name] for name in ROLL_OPTIONS},
            },
            roll_files.events(directory) if directory else [],
        )
        roll["run"] = run
        roll["restart_when"] = given["restart_when"]
        roll["inventory"] = {name: wanted[name] for name, row in roll["clusters"].items() if row["wave"]}
        lines = roll_text.plan_text(roll)
        display.display("\n".join(lines))
        if directory:
            try:
                lines.append("plan: {0}".format(roll_files.write_plan(directory, roll)))
                roll_files.write(directory, roll_files.PLAN_FOR_PEOPLE, roll_markdown.plan_markdown(roll))
            except OSError as trouble:
                return dict(result, failed=True, msg=_unwritable(trouble))
        return dict(
            result,
            lines=lines,
            decision=roll["decision"],
            run=run,
            directory=directory,
            hosts=[host for batch in roll["batches"] for host in batch["hosts"]],
            batch_sizes=[len(batch["hosts"]) for batch in roll["batches"]],
            reserve=_to_reserve(roll, wanted),
            gone=fleet.gone,
        )


def _still_walked(directory: str, run: dict[str, Any]) -> str:
    """Return that a process of this controller walks the roll already, or "": it reads its plan from that folder."""
    try:
        other = roll_files.plan(directory)["run"]
    except (OSError, ValueError, KeyError):
        return ""
    is_own = (other["pid"], other["pid_started"]) == (run["pid"], run["pid_started"])
    if is_own or not co_restart_plan.is_of_here(other) or not co_restart_plan.is_alive(other):
        return ""
    return (
        "Nothing was stopped. Roll {0} is still walked by {1} ({2}). Wait until that process ends; creating {3} ends "
        "it before its next wave [rule: one process walks a roll]".format(
            other["id"], other["owner"], other["purpose"], roll_files.cancel_file(directory)
        )
    )


def _unwritable(trouble: OSError) -> str:
    return (
        "Nothing was stopped. The roll cannot keep its files ({0}): set pd_roll_dir to a directory that this user may "
        "write [rule: what a roll does is on record]".format(trouble)
    )


def _to_reserve(roll: dict[str, Any], wanted: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Return the clusters that a roll reserves, by the host that holds their locks."""
    found: dict[str, list[str]] = {}
    for name in _roll.to_reserve(roll):
        found.setdefault(min(wanted[name][_topology.PREFILL]), []).append(name)
    return found


class _Fleet:
    """What is known of the clusters of the inventory."""

    def __init__(
        self,
        given: dict[str, Any],
        hostvars: Any,
        wanted: dict[str, dict[str, list[str]]],
        in_play: set[str],
        run: dict[str, Any],
    ):
        self.given = given
        self.wanted = wanted
        hosts = sorted(clusters.hosts_of(wanted, list(wanted)))
        # Once for each host: it costs as much as a task.
        self.variables = {host: hostvars[host] for host in hosts}
        self.seen = co_restart_plan.seen_of(
            [host for host in hosts if host in in_play], self.variables, given["members"], given["preflight"]
        )
        self.run = run
        gone_from_rolls = co_restart_plan.gone_owners(self.seen, "rolls")
        self.asked = {
            "run": run,
            "stages": [],
            "override": "",
            "take_over": "",
            "accepted": given["accept"],
            "resume_limit_seconds": 0,
            "gone_owners": co_restart_plan.gone_owners(self.seen, "locks"),
            "options": _NO_STEPS,
            "restore": None,
            "follows": None,
        }
        #: Owners of locks and reservations whose processes are gone.
        self.gone = sorted({*gone_from_rolls, *self.asked["gone_owners"]})

    def clusters(self, chosen: set[str]) -> dict[str, dict[str, Any]]:
        """Return the facts that :func:`_roll.make_roll` wants, by cluster."""
        return {name: self.cluster(name, name in chosen) for name in sorted(self.wanted)}

    def cluster(self, name: str, selected: bool) -> dict[str, Any]:
        """Return the facts of one cluster."""
        roles = self.wanted[name]
        hosts = sorted(clusters.hosts_of(self.wanted, [name]))
        records = [
            dict(record, member=dict(record["member"], host=host))
            for host in hosts
            for record in self.seen.get(host, {}).get("members", [])
            if record["member"]["cluster"] == name
        ]
        proof = next((found for found in (self.proof(host, name) for host in hosts) if found), None)
        serves, evidence = _roll.condition(records, proof)
        plan = self.plan(name, self.given["restart_when"])
        if plan["decision"] == "nothing" and serves == _roll.DOWN:
            # Nothing tells of it but the requests that were not served: the founding incident.
            plan = self.plan(name, _plan.ALWAYS)
        return {
            "plan": plan,
            "model": _model(records, [self.variables[host] for host in hosts]),
            "domains": self.domains(hosts),
            "hosts": hosts,
            "condition": serves,
            "evidence": evidence,
            "answers": bool(proof and proof["outcome"] == "ok"),
            "maintenance": self.maintenance(hosts),
            "reserved": self.reserved(name, roles),
            "selected": selected,
            "came_to": _roll.came_to(records, self.run["id"]),
            "generation": max((record["ledger"]["generation"] for record in records), default=0),
            "announced": self.announced(roles, records),
            "interrupted": _roll.was_interrupted(records, self.run["id"]),
            "settings": [row for host in hosts for row in self.settings(host, name, records)],
            "expected_seconds": _roll.expected_seconds(records),
        }

    def plan(self, name: str, when: str) -> dict[str, Any]:
        """Return the co-restart's plan of a cluster."""
        asked = dict(self.asked, when=when)
        return co_restart_plan.plan_of(
            name, self.wanted[name], self.seen, asked, self.given["decode_alone"], self.variables
        )

    def proof(self, host: str, cluster: str) -> dict[str, Any] | None:
        """Return what the requests to a cluster came to, None where none were sent from this host."""
        registered = self.variables[host].get(self.given["proof"]) or {}
        found = (registered.get("clusters") or {}).get(cluster)
        return dict(found) if found else None

    def domains(self, hosts: list[str]) -> list[str]:
        """Return the failure domains of hosts."""
        found = {str(self.variables[host].get(self.given["domain"]) or "") for host in hosts}
        return sorted(found - {""})

    def maintenance(self, hosts: list[str]) -> str:
        """Return which hosts are in maintenance and why, or ""."""
        words = []
        for host in hosts:
            why = self.variables[host].get(self.given["maintenance"]) or ""
            if why:
                words.append("{0} is in maintenance{1}".format(host, "" if why is True else ": {0}".format(why)))
        return "; ".join(words)

    def reserved(self, name: str, roles: dict[str, list[str]]) -> str:
        """Return who else rolls a cluster, or ""."""
        seen = self.seen.get(min(roles.get(_topology.PREFILL) or [""]), {})
        held = seen.get("rolls", {}).get(name)
        wanted = {"run": self.run, "generation": 0, "lease_seconds": 0}
        gone = "gone" if held and held["run"]["owner"] in self.gone else ""
        lock, message = _lock.acquire(held, wanted, seen.get("now", 0.0), self.given["take_over"] or gone)
        return "" if lock else message

    @staticmethod
    def announced(roles: dict[str, list[str]], records: list[dict[str, Any]]) -> int:
        """Return the latest generation that the host of a cluster's lock knows of, one that only began included."""
        lock_host = min(roles.get(_topology.PREFILL) or [""])
        ledgers = [record["ledger"] for record in records if record["member"]["host"] == lock_host]
        return max(map(_ledger.latest, ledgers), default=0)

    def settings(self, host: str, cluster: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the settings of a cluster on a host that are not live."""
        registered = (self.variables[host].get(self.given["settings"]) or {}).get("members") or {}
        units = {record["member"]["unit"] for record in records if record["member"]["host"] == host}
        return [
            dict(row, host=host, unit=unit)
            for unit in sorted(units & set(registered))
            for row in registered[unit]["settings"]
            if row["state"] != "live"
        ]


def _model(records: list[dict[str, Any]], variables: list[Any]) -> str:
    """Return the name of a cluster's model, from what is deployed, else from the inventory."""
    members = [record["member"] for record in records]
    # Of an engine over several hosts only the other ranks may have been seen.
    if _topology.serving(members):
        return _profiles.model_of(members)
    for its in variables:
        model = its.get("pd_engine_served_model_name") or its.get("pd_engine_model_path")
        if model:
            return str(model)
    return ""
