# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which clusters the inventory has, and on which hosts."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _topology


def inventory_clusters(groups: Any, hostvars: Any) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Return the hosts of each cluster by role, and the hosts that name no cluster."""
    wanted: dict[str, dict[str, list[str]]] = {}
    homeless: list[str] = []
    for role, group in _topology.GROUPS.items():
        for host in groups.get(group, []):
            variables = hostvars[host]
            listed = variables.get("pd_{0}_{1}".format(role, "routers" if role == "router" else "engines")) or []
            clusters = {str(item["cluster"]) for item in listed if item.get("cluster")} or set(
                _topology.clusters_of(variables.get("pd_cluster"))
            )
            if not clusters and host not in homeless:
                homeless.append(host)
            for cluster in clusters:
                wanted.setdefault(cluster, {}).setdefault(role, []).append(host)
    return wanted, homeless


def clusters_in(wanted: dict[str, dict[str, list[str]]], hosts: set[str]) -> list[str]:
    """Return the clusters that have a host among these."""
    return sorted(
        cluster for cluster, roles in wanted.items() if any(host in hosts for its in roles.values() for host in its)
    )


def hosts_of(wanted: dict[str, dict[str, list[str]]], clusters: list[str]) -> set[str]:
    """Return the hosts of clusters."""
    return {host for name in clusters for its in wanted.get(name, {}).values() for host in its}


def by_verifying_host(wanted: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, dict[str, list[str]]]]:
    """Return clusters by the host of their first router, from where requests are sent to them."""
    found: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, roles in sorted(wanted.items()):
        if roles.get(_topology.ROUTER):
            found.setdefault(roles[_topology.ROUTER][0], {})[name] = roles
    return found
