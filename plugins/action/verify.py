# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verify clusters from the controller; documented in plugins/modules/verify.py."""

from __future__ import annotations

import json
import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _profiles, _topology, _verify
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import report
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.clusters import inventory_clusters
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.slices import SlicedCall

display = Display()

#: What the host needs to know of a member.
OF_A_MEMBER = (
    "cluster",
    "role",
    "unit",
    "host",
    "engine",
    "nnodes",
    "node_rank",
    "address",
    "listen",
    "port",
    "bootstrap_port",
    "url",
    "configuration",
    "secrets_file",
)
#: What stays out of the registered result; the report has it.
ONLY_IN_REPORT = ("samples",)


class ActionModule(ActionBase):
    """Find the clusters that this host verifies, run each in slices, show their tables."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the results of the clusters that this host verifies."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, given = self.validate_argument_spec(
            argument_spec={
                "members": {"type": "str", "default": "pd_members"},
                "clusters": {"type": "list", "elements": "str", "default": []},
                "report_dir": {"type": "path"},
                "fail": {"type": "bool", "default": True},
                "inventory": {"type": "dict", "default": {}},
                **_profiles.OPTIONS,
            }
        )
        options = {name: given[name] for name in _profiles.OPTIONS}
        problems = _profiles.problems_of(options)
        if problems:
            lines = [_topology.describe_problem(item) for item in problems]
            return dict(result, failed=True, msg="Refused, nothing was sent: {0}".format("; ".join(lines)))
        wanted = given["inventory"] or inventory_clusters(task_vars["groups"], task_vars["hostvars"])[0]
        unknown = [name for name in given["clusters"] if name not in wanted]
        if unknown:
            return dict(
                result,
                failed=True,
                msg="Nothing was sent. Unknown cluster {0}; the inventory has {1} (variable pd_cluster)".format(
                    ", ".join(unknown), ", ".join(sorted(wanted)) or "none"
                ),
            )
        mine = self._mine(given["clusters"] or sorted(wanted), wanted, task_vars)
        if not mine:
            return dict(result, skipped=True, skip_reason="no cluster is verified from this host")
        found = self._verify(mine, given, options, task_vars)
        summary = self._summary(found, given)
        if given["report_dir"] and not self._task.check_mode:
            for cluster, one in found.items():
                seen = incarnations_of(cluster, mine[cluster], task_vars["hostvars"], given["members"])
                line = "report: {0}".format(write_report(given["report_dir"], cluster, one, seen))
                display.display(line)
                summary["lines"].append(line)
        return dict(result, **summary)

    @staticmethod
    def _mine(chosen: list[str], wanted: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, list[str]]:
        """Return the clusters that this host verifies, with their hosts.

        The host of the first router that is in the play; where there is none, some other one,
        so that a cluster is never passed over in silence.
        """
        mine = {}
        for cluster in chosen:
            ordered = [host for role in reversed(_topology.STAGES) for host in wanted[cluster].get(role, [])]
            present = [host for host in ordered if host in task_vars["ansible_play_hosts_all"]]
            answering = [host for host in present if host in task_vars["ansible_play_hosts"]]
            if (answering or present)[:1] == [task_vars["inventory_hostname"]]:
                mine[cluster] = sorted(set(ordered))
        return mine

    def _verify(
        self, mine: dict[str, list[str]], given: dict[str, Any], options: dict[str, Any], task_vars: dict[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return the result of each cluster; clusters on one host follow each other, not to load it together."""
        found = {}
        for cluster, hosts in mine.items():
            members, refused = members_of(cluster, hosts, task_vars["hostvars"], given["members"])
            if refused:
                found[cluster] = _refused(options, refused)
                continue
            full = dict(options, model=_profiles.model_of(members))
            sent = [{key: value for key, value in member.items() if key in OF_A_MEMBER} for member in members]
            if self._task.check_mode:
                found[cluster] = {"outcome": _verify.SKIPPED, "lines": _would(cluster, sent, full)}
                continue
            call = SlicedCall(
                "{0} [{1}]".format(cluster, task_vars["inventory_hostname"]),
                {"cluster": cluster, "members": sent, "host": task_vars["inventory_hostname"], "options": full},
            )
            while call.result is None:
                call.take(
                    self._execute_module(
                        "inferops.sglang_pd.verify_step", module_args=call.arguments(), task_vars=task_vars
                    )
                )
            found[cluster] = _judged(cluster, call.result, full)
        return found

    def _summary(self, found: dict[str, dict[str, Any]], given: dict[str, Any]) -> dict[str, Any]:
        lines = [line for one in found.values() for line in one["lines"]]
        display.display("\n".join(lines))
        if self._task.check_mode:
            failed = {name: one for name, one in found.items() if one["outcome"] == _verify.FAILED}
            return {"changed": False, "lines": lines, "failed": bool(failed and given["fail"]), "clusters": failed}
        bad = ["cluster {0}: {1}".format(c, why) for c, one in found.items() for why in one["failures"]]
        result: dict[str, Any] = {
            "changed": any(one.get("changed") for one in found.values()),
            "clusters": {cluster: _short(one) for cluster, one in found.items()},
            "lines": lines,
        }
        if bad:
            result["msg"] = "\n".join(bad)
            result["failed"] = given["fail"]
        return result


def members_of(
    cluster: str, hosts: list[str], hostvars: Any, registered: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the members of a cluster as they run, and why it cannot be verified.

    :param hosts: all hosts of the cluster in the inventory.
    :param registered: name of the registered results of ``member_info``.
    """
    members: list[dict[str, Any]] = []
    refused = []
    for host in hosts:
        result = hostvars[host].get(registered)
        if result is None:
            refused.append(
                "host {0} of the cluster is not in this play: verify whole clusters, without --limit to some of "
                "their hosts [rule: whole clusters only]".format(host)
            )
        elif "members" not in result:
            refused.append("host {0} did not answer: {1}".format(host, str(result.get("msg", "no answer")).strip()))
        else:
            for record in result["members"]:
                if record["member"]["cluster"] != cluster:
                    continue
                unit = record["unit"]
                if unit["active_state"] != "active":
                    refused.append(
                        "{0} on {1} is {2}: co-restart the cluster first: ansible-playbook "
                        "inferops.sglang_pd.co_restart -e pd_co_restart_clusters={3}".format(
                            record["member"]["unit"], host, unit["active_state"], cluster
                        )
                    )
                configuration = record["running_configuration"] or record["member"]["configuration"]
                members.append(dict(record["member"], host=host, configuration=configuration))
    roles = {member["role"] for member in members}
    missing = [role for role in _topology.STAGES if role not in roles]
    if missing and not refused:
        refused.append(
            "no {0} is deployed: ansible-playbook inferops.sglang_pd.deploy".format(" and no ".join(missing))
        )
    return members, refused


def _refused(options: dict[str, Any], refused: list[str]) -> dict[str, Any]:
    failures = ["not verified, nothing was sent: {0}".format(why) for why in refused]
    return {
        "outcome": _verify.FAILED,
        "failures": failures,
        "lines": failures,
        "profile": options["profile"],
        "parts": [],
        "series": {},
        "recovery": {},
        "regressions": [],
    }


def _would(cluster: str, members: list[dict[str, Any]], options: dict[str, Any]) -> list[str]:
    """Return what a verification would send, for check mode."""
    lines = ["cluster {0}: would send, profile {1}:".format(cluster, options["profile"])]
    return lines + ["  " + _profiles.describe(part) for part in _profiles.plan(members, options)]


def _judged(cluster: str, given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a cluster from what the last slice gave."""
    if "result" not in given:
        return _refused(options, [given["message"]])
    result = dict(given["result"], changed=given["changed"])
    slower = [row for row in result["regressions"] if row["regression"]]
    if slower and options["fail_on_regression"]:
        result["outcome"] = _verify.FAILED
        result["failures"] = result["failures"] + [
            "{0} is slower than before: {1}".format(row["part"], row["why"]) for row in slower
        ]
    return dict(result, lines=_verify.lines_of(cluster, result))


def _short(one: dict[str, Any]) -> dict[str, Any]:
    series = {
        name: {key: value for key, value in watched.items() if key not in ONLY_IN_REPORT}
        for name, watched in one["series"].items()
    }
    return dict({key: value for key, value in one.items() if key != "changed"}, series=series)


def incarnations_of(cluster: str, hosts: list[str], hostvars: Any, registered: str) -> list[dict[str, Any]]:
    """Return what a report tells of the incarnations of a cluster's members, in the order of stages.

    :param registered: name of the registered results of ``member_info``.
    """
    records = [
        (dict(record["member"], host=host), record)
        for host in hosts
        for record in (hostvars[host].get(registered) or {}).get("members", [])
        if record["member"]["cluster"] == cluster
    ]
    records.sort(key=lambda one: _topology.STAGES.index(one[0]["role"]))
    return [report.incarnation(cluster, member, record["unit"], record["ledger"]) for member, record in records]


def write_report(directory: str, cluster: str, one: dict[str, Any], incarnations: list[dict[str, Any]]) -> str:
    """Write a cluster's result with all its samples on the controller, as JSON and as a page; return the latter."""
    content = dict(one, cluster=cluster, written_at=round(time.time(), 3), incarnations=incarnations)
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    report.write(directory, {report.file_name("verify", cluster, "json"): text}, "pd_verify_report_dir")
    page = report.verify_page(content)
    return report.write(directory, {report.file_name("verify", cluster, "html"): page}, "pd_verify_report_dir")[0]
