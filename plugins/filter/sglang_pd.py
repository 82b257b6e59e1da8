# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters with which the roles ask the pure core. Meant for the roles, not for users."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _patches,
    _preflight,
    _settings,
    _topology,
    _unit,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import clusters


def resolve_engines(role: str, **given: Any) -> dict[str, Any]:
    """Return the engines of one role on one host (``members``) and what is wrong (``problems``)."""
    members, problems = _topology.resolve_engines(role, **given)
    return {"members": members, "problems": problems}


def resolve_routers(host: str, **given: Any) -> dict[str, Any]:
    """Return the routers of one host (``members``) and what is wrong (``problems``)."""
    members, problems = _topology.resolve_routers(
        host, **dict(given, flat=dict(given["flat"], flags=list(_unit.ROUTER_FLAGS.values())))
    )
    return {"members": members, "problems": problems}


def hosts_by_cluster(groups: Any, hostvars: Any) -> dict[str, list[str]]:
    """Return the hosts of the inventory by cluster, as their ``pd_cluster`` tells."""
    found: dict[str, list[str]] = {}
    for host in sorted({host for group in _topology.GROUPS.values() for host in groups.get(group, [])}):
        for cluster in _topology.clusters_of(hostvars[host].get("pd_cluster")):
            found.setdefault(cluster, []).append(host)
    return found


def cluster_hosts(by_cluster: Any, cluster: Any) -> list[str]:
    """Return the hosts of one cluster or several (``pd_cluster``), given those of all."""
    return sorted({host for name in _topology.clusters_of(cluster) for host in by_cluster.get(name, [])})


def verified_from(groups: Any, hostvars: Any) -> dict[str, Any]:
    """Return the clusters of the inventory with their hosts by role, by the host that verifies them."""
    return clusters.by_verifying_host(clusters.inventory_clusters(groups, hostvars)[0])


def topology_problems(members: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what is wrong with members taken together."""
    return _topology.problems_of(members)


def split_problems(problems: list[dict[str, str]], accepted: list[str]) -> dict[str, list[dict[str, str]]]:
    """Return the problems that refuse (``refused``) and those accepted by their rules' names (``accepted``)."""
    refused, let_pass = _preflight.split(problems, accepted)
    return {"refused": refused, "accepted": let_pass}


def describe_problems(problems: list[dict[str, str]]) -> str:
    """Return problems as text, a line each; several members of a host may have the very same one."""
    return "\n".join(dict.fromkeys("- " + _topology.describe_problem(item) for item in problems))


def unknown_variables(given: Any, known: Any, host: str) -> list[dict[str, str]]:
    """Return a problem for each variable with a role's prefix that no role has."""
    return _topology.unknown_variables(given, known, host)


def patch_problems(
    patches: list[dict[str, Any]], sources: Any, host: str, package: str, left_alone: bool
) -> list[dict[str, str]]:
    """Return what is wrong with a list of patches (``name``, ``diff``) by itself.

    :param sources: the files that they were read from.
    :param left_alone: the environment is not to be changed.
    """
    named = [dict(item, src=source) for item, source in zip(patches, sources)]
    return _patches.problems_of(named, host, package, left_alone)


def patch_hashes(patches: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return ``name`` and ``sha256`` of patches (``name``, ``diff``)."""
    return [{"name": item["name"], "sha256": _patches.digest(item["diff"].encode())} for item in patches]


def engine_unit(engine: dict[str, Any], **install: Any) -> dict[str, Any]:
    """Return what an engine's unit runs."""
    try:
        return _unit.engine_unit(engine, install)
    except _settings.SettingError as refused:
        raise AnsibleFilterError("{0} on {1}: {2}".format(engine["unit"], engine["host"], refused)) from refused


def router_unit(router: dict[str, Any], workers: list[dict[str, Any]], **install: Any) -> dict[str, Any]:
    """Return what a router's unit runs."""
    return _unit.router_unit(router, _topology.serving(workers), install)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "resolve_engines": resolve_engines,
            "resolve_routers": resolve_routers,
            "cluster_hosts": cluster_hosts,
            "hosts_by_cluster": hosts_by_cluster,
            "verified_from": verified_from,
            "topology_problems": topology_problems,
            "split_problems": split_problems,
            "describe_problems": describe_problems,
            "unknown_variables": unknown_variables,
            "patch_problems": patch_problems,
            "patch_hashes": patch_hashes,
            "engine_unit": engine_unit,
            "router_unit": router_unit,
            "member_file": _topology.member_file,
            "systemd_command": _unit.systemd_command,
            "systemd_environment": _unit.systemd_environment,
        }
