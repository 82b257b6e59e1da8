# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan co-restarts on the controller; documented in plugins/modules/co_restart_plan.py."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _attempts, _plan, _profiles, _topology
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import clusters, controller

display = Display()

LAST_GOOD = "last_good"

#: Options that the steps read from the plan.
STEP_OPTIONS = (
    "drain_limit_seconds",
    "drain_stall_seconds",
    "consecutive",
    "health_timeout_seconds",
    "requests",
    "request_limit_seconds",
    "request_prompt",
    "request_max_tokens",
    "request_temperature",
    "request_any_text",
    "settle_limit_seconds",
    "settle_stall_seconds",
)

#: Options of the verification that are given by themselves; others follow from those of the proof.
VERIFY_OPTIONS = ("golden", "long_prompt_words")


class ActionModule(ActionBase):
    """Gather what was registered, ask the pure core, print its plan."""

    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the plans of all selected clusters."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        number, text = {"type": "int"}, {"type": "str", "default": ""}
        _unused, given = self.validate_argument_spec(
            argument_spec={
                "members": {"type": "str", "default": "pd_members"},
                "clusters": {"type": "list", "elements": "str", "default": []},
                "stages": {
                    "type": "list",
                    "elements": "str",
                    "choices": list(_topology.STAGES),
                    "default": [],
                },
                "override": text,
                "restart_when": {
                    "type": "str",
                    "choices": [_plan.ALWAYS, _plan.WHEN_DUE, _plan.FIRST_START],
                    "default": _plan.ALWAYS,
                },
                "preflight": {"type": "str", "default": "pd_preflight"},
                "accept": {"type": "list", "elements": "str", "default": []},
                "decode_alone": dict(text, default="pd_co_restart_decode_alone"),
                "restore": text,
                "follows": {"type": "dict", "default": {}},
                "take_over": text,
                "purpose": dict(text, default="co-restart"),
                "run_id": text,
                "fail": {"type": "bool", "default": True},
                "inventory": {"type": "dict", "default": {}},
                "roll": text,
                "resume_limit_seconds": dict(number, default=3600),
                "drain_limit_seconds": dict(number, default=120),
                "drain_stall_seconds": dict(number, default=15),
                "consecutive": dict(number, default=3),
                "health_timeout_seconds": dict(number, default=25),
                "requests": dict(number, default=8),
                "request_limit_seconds": dict(number, default=35),
                "request_prompt": dict(text, default="say hi briefly"),
                "request_max_tokens": dict(number, default=24),
                "request_temperature": {"type": "float", "default": 0.6},
                "request_any_text": {"type": "bool", "default": False},
                "settle_limit_seconds": dict(number, default=60),
                "settle_stall_seconds": dict(number, default=20),
                "verify": {"type": "str", "choices": [_profiles.NONE, *_profiles.PROFILES], "default": "standard"},
                **{"verify_" + name: _profiles.OPTIONS[name] for name in VERIFY_OPTIONS},
            }
        )
        hostvars = task_vars["hostvars"]
        wanted: dict[str, dict[str, list[str]]] = given["inventory"]
        homeless: list[str] = []
        if not wanted:
            wanted, homeless = clusters.inventory_clusters(task_vars["groups"], hostvars)
        in_play = set(task_vars["ansible_play_hosts_all"])
        chosen = list(given["follows"]) or given["clusters"] or clusters.clusters_in(wanted, in_play)
        here = sorted(clusters.hosts_of(wanted, chosen) & in_play)
        seen = seen_of(here, hostvars, given["members"], given["preflight"])
        verify = _verification(given)
        refused = (
            wrong_selection(chosen, wanted, homeless)
            or _wrong_generation(given["restore"])
            or _wrong_verification(verify)
        )
        if refused:
            return dict(result, failed=True, msg=refused)
        asked = _asked(given, seen, verify)
        found = {}
        for name in chosen:
            its = dict(asked, **_next_attempt(given["follows"].get(name)))
            found[name] = plan_of(name, wanted[name], seen, its, given["decode_alone"], hostvars)
        if self._task.check_mode and given["restart_when"] == _plan.FIRST_START:
            found = {name: _not_deployed_yet(plan) for name, plan in found.items()}
        lines = [line for plan in found.values() for line in _plan.describe(plan)]
        all_refused = all(plan["decision"] == "refused" for plan in found.values())
        if given["fail"] and not given["follows"] and all_refused:
            # One message: the structured values would say it all again.
            return dict(result, failed=True, msg="\n".join(lines))
        display.display("\n".join(lines))
        result["plans"] = {name: plan for name, plan in found.items() if plan["decision"] == "go"}
        result["refused"] = {
            name: [_topology.describe_problem(item) for item in plan["problems"]]
            for name, plan in found.items()
            if plan["decision"] == "refused"
        }
        result["nothing"] = {name: plan["why"] for name, plan in found.items() if plan["decision"] == "nothing"}
        return dict(result, lines=lines)


def _asked(given: dict[str, Any], seen: dict[str, dict[str, Any]], verify: dict[str, Any]) -> dict[str, Any]:
    """Return what is asked of the core for every cluster."""
    return {
        "run": new_run(given["run_id"], given["purpose"]),
        "stages": given["stages"],
        "override": given["override"],
        "when": given["restart_when"],
        "take_over": given["take_over"],
        "accepted": given["accept"],
        "resume_limit_seconds": given["resume_limit_seconds"],
        "gone_owners": gone_owners(seen, "locks"),
        "roll": given["roll"],
        "options": dict({name: given[name] for name in STEP_OPTIONS}, verify=verify),
        "restore": _restore(given["restore"]),
        "follows": None,
    }


def plan_of(
    name: str,
    roles: dict[str, list[str]],
    seen: dict[str, dict[str, Any]],
    asked: dict[str, Any],
    decode_alone: str,
    hostvars: Any,
) -> dict[str, Any]:
    """Return the plan of one cluster, see :func:`_plan.make_plan`.

    :param decode_alone: name of the variable by which a cluster opts in.
    """
    opted_in, differing = opted_in_to(decode_alone, roles, hostvars)
    plan = _plan.make_plan(name, roles, seen, dict(asked, decode_alone=opted_in))
    if differing:
        plan["warnings"].append(differing)
    return plan


def _restore(wanted: str) -> dict[str, Any] | None:
    """Return what a rollback is asked to put back; "" for no rollback, last_good or a generation."""
    if not wanted:
        return None
    return {"generation": 0 if wanted == LAST_GOOD else int(wanted), "automatic": False}


def _wrong_generation(wanted: str) -> str:
    if wanted in ("", LAST_GOOD) or (wanted.isdigit() and int(wanted) > 0):
        return ""
    return (
        "Nothing was changed. pd_rollback_generation is {0!r}: give the number of a generation, or leave it out "
        "for the last good one [rule: back only to what ended well]".format(wanted)
    )


def _verification(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the verification at the end; its questions and limits are those of the proof."""
    return _profiles.after_co_restart(
        given["verify"],
        {
            **{name: given["verify_" + name] for name in VERIFY_OPTIONS},
            "prompt": given["request_prompt"],
            "max_tokens": given["request_max_tokens"],
            "temperature": given["request_temperature"],
            "any_text": given["request_any_text"],
            "request_limit_seconds": given["request_limit_seconds"],
            "settle_limit_seconds": given["settle_limit_seconds"],
            "stall_seconds": given["settle_stall_seconds"],
        },
    )


def _wrong_verification(verify: dict[str, Any]) -> str:
    problems = _profiles.problems_of(verify)
    return "Nothing was stopped. " + "; ".join(map(_topology.describe_problem, problems)) if problems else ""


def _next_attempt(follows: dict[str, Any] | None) -> dict[str, Any]:
    """Return what is asked for an attempt that follows on another one of the same run."""
    if follows is None:
        return {}
    run = dict(follows["run"], purpose="{0}: {what}".format(follows["run"]["purpose"], what=follows["what"]))
    rolls_back = follows["what"] == _attempts.ROLL_BACK
    return {
        "run": run,
        "stages": follows["stages"],
        "override": "",
        "when": _plan.ALWAYS,
        "take_over": "",
        "options": follows["options"],
        "restore": {"generation": 0, "automatic": True} if rolls_back else None,
        "follows": follows["follows"],
    }


def opted_in_to(variable: str, roles: dict[str, list[str]], hostvars: Any) -> tuple[bool, str]:
    """Return whether all hosts of a cluster have a variable set to true, and a warning where they differ."""
    hosts = sorted({host for its in roles.values() for host in its})
    with_it = [host for host in hosts if boolean(hostvars[host].get(variable, False), strict=False)]
    if not with_it or len(with_it) == len(hosts):
        return bool(with_it), ""
    return False, "{0} is true for {1} and not for {2}: it counts only where all hosts of the cluster have it".format(
        variable, ", ".join(with_it), ", ".join(host for host in hosts if host not in with_it)
    )


def wrong_selection(chosen: list[str], wanted: dict[str, Any], homeless: list[str]) -> str:
    """Return why these clusters cannot be planned for, or ""."""
    if homeless:
        return (
            "Nothing was stopped. Hosts {0} are in the groups of PD members but name no cluster: set the variable "
            "pd_cluster for them [rule: every member belongs to a cluster]".format(", ".join(homeless))
        )
    unknown = [name for name in chosen if name not in wanted]
    if unknown or not chosen:
        return (
            "Nothing was stopped. {0}; the inventory has {1} (groups pd_prefill, pd_decode, pd_router; variable "
            "pd_cluster)".format(
                "Unknown cluster " + ", ".join(unknown) if unknown else "No cluster is selected",
                ", ".join(sorted(wanted)) or "none",
            )
        )
    return ""


def seen_of(hosts: Iterable[str], hostvars: Any, registered: str, preflight: str) -> dict[str, dict[str, Any]]:
    """Return what was seen on hosts, as :func:`_plan.make_plan` wants it.

    :param registered: name under which the results of ``member_info`` are registered.
    :param preflight: the same of ``preflight``.
    """
    seen: dict[str, dict[str, Any]] = {}
    for host in hosts:
        variables = hostvars[host]
        result = variables.get(registered)
        if result is None:
            continue
        if result.get("unreachable") or result.get("failed"):
            seen[host] = {"unreachable": str(result.get("msg", "no answer")).strip()}
        else:
            seen[host] = {key: result[key] for key in ("members", "locks", "rolls", "now")}
            judged = variables.get(preflight) or {}
            if judged.get("failed") or judged.get("unreachable"):
                seen[host] = {"unreachable": str(judged.get("msg", "no answer")).strip()}
            seen[host]["preflight"] = judged.get("members", {})
    return seen


def new_run(run_id: str, purpose: str) -> dict[str, Any]:
    """Return the identity of this run, as others will see it in lock and ledgers."""
    # The action runs in a worker of ansible-playbook; the run lives as long as that one.
    pid = os.getppid()
    return {
        "id": run_id or controller.new_id(),
        "owner": "{0} pid {1}".format(controller.user(), pid),
        "purpose": purpose,
        "controller": controller.identity(),
        "pid": pid,
        "pid_started": controller.process_start(pid),
    }


def gone_owners(seen: dict[str, dict[str, Any]], kind: str) -> list[str]:
    """Return the owners of locks that ran on this controller and run no more.

    :param kind: ``locks``, or ``rolls`` for the reservations of rolls.
    """
    gone = []
    for what in seen.values():
        for lock in what.get(kind, {}).values():
            if is_of_here(lock["run"]) and not is_alive(lock["run"]):
                gone.append(lock["run"]["owner"])
    return gone


def is_of_here(run: dict[str, Any]) -> bool:
    """Tell whether the process of a run is, or was, one of this controller."""
    return bool(run.get("controller") == controller.identity())


def is_alive(run: dict[str, Any]) -> bool:
    """Tell whether the process of a run of this controller is still there."""
    return controller.process_start(run["pid"]) == run["pid_started"]


def _not_deployed_yet(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of a cluster that check mode could not deploy: it would be started."""
    if plan["decision"] == "refused" and all(item["rule"] == "deployed before restarted" for item in plan["problems"]):
        return dict(
            plan,
            decision="nothing",
            problems=[],
            revisions=[],
            why="it would be deployed, then started: prefill, decode, router",
        )
    return plan
