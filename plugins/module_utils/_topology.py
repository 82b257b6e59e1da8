# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters and their members, from the inventory's variables; and what is wrong with them.

Pure. A *member* is one systemd unit of a cluster and is a plain dict, because it
travels: roles write it to the host as ``members/<unit>.json``, modules read it there,
plans carry it. Its keys:

``cluster``, ``role`` (prefill, decode, router), ``unit``, ``host`` (inventory name),
``engine`` (all ranks of one engine share it; a router's is its unit), ``nnodes``,
``node_rank``, ``dist_init_addr``, ``address`` and ``listen`` (how others reach it,
what it binds), ``port``, ``bootstrap_port`` (prefill, else None), ``url``, ``gpus``,
``settings``, ``extra_args``, ``extra_env``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _settings

PREFILL = _settings.PREFILL
DECODE = _settings.DECODE
ROUTER = "router"
#: The stages of a co-restart, in the only safe order.
STAGES = (PREFILL, DECODE, ROUTER)
GROUPS = {role: "pd_" + role for role in STAGES}

#: What one item of pd_prefill_engines or pd_decode_engines may say.
ENGINE_KEYS = (
    "name",
    "cluster",
    "port",
    "bootstrap_port",
    "gpus",
    "nnodes",
    "node_rank",
    "dist_init_addr",
    "settings",
    "extra_args",
    "extra_env",
)

#: A cluster or an engine by its name: part of the unit name.
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*$")


def problem(rule: str, message: str, host: str = "", variable: str = "", **of: str) -> dict[str, str]:
    """Return one problem: which rule, what is wrong, and where to mend it.

    :param of: ``unit`` that it is a problem of, where members are looked at together.
    """
    return dict({"rule": rule, "message": message, "host": host, "variable": variable}, **of)


def describe_problem(item: dict[str, str]) -> str:
    """Return a problem as one line for people."""
    where = ", ".join(
        part
        for part in (
            "host " + item["host"] if item["host"] else "",
            "variable " + item["variable"] if item["variable"] else "",
        )
        if part
    )
    return "{message}{where} [rule: {rule}]".format(where=" ({0})".format(where) if where else "", **item)


def clusters_of(value: Any) -> list[str]:
    """Return the clusters that a host's ``pd_cluster`` names: one name or a list."""
    if not value:
        return []
    return [str(name) for name in value] if isinstance(value, (list, tuple)) else [str(value)]


def unit_name(cluster: str, role: str, name: str = "", nnodes: int = 1, node_rank: int = 0) -> str:
    """Return a member's unit: ``sglang-<cluster>-<role>[-<name>][-rank<N>].service``."""
    parts = ["sglang", cluster, role]
    if name:
        parts.append(name)
    if nnodes > 1:
        parts.append("rank{0}".format(node_rank))
    return "-".join(parts) + ".service"


def resolve_engines(
    role: str,
    host: str,
    cluster: Any,
    flat: dict[str, Any],
    engines: list[dict[str, Any]],
    settings: dict[str, Any],
    address: str,
    listen: str,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the engines of one role on one host, and what is wrong with them.

    :param cluster: the host's ``pd_cluster``.
    :param flat: the role's variables without their prefix (port, gpus, nnodes, ...).
    :param engines: ``pd_<role>_engines``: each item overrides ``flat`` for one engine;
        empty means one engine.
    :param settings: the ``pd_engine_*`` settings; ``flat["settings"]`` and an item's
        ``settings`` override them one by one.
    """
    problems: list[dict[str, str]] = []
    resolved = []
    clusters = clusters_of(cluster)
    listed = "pd_{0}_engines".format(role)
    for item in engines or [{}]:
        variable = listed if engines else "pd_{0}_settings".format(role)
        for key in sorted(set(item) - set(ENGINE_KEYS)):
            problems.append(
                problem(
                    "known variables",
                    "{0}.{1} is unknown{2}".format(listed, key, _settings.suggestion(key, ENGINE_KEYS)),
                    host,
                    listed,
                )
            )
        one = dict(flat, **{key: value for key, value in item.items() if key != "settings"})
        one_settings = dict(settings, **flat["settings"])
        one_settings.update(item.get("settings", {}))
        for key in sorted(set(one_settings) - set(_settings.TABLE)):
            problems.append(
                problem(
                    "known variables",
                    "setting {0} is unknown{1}".format(key, _settings.suggestion(key, _settings.TABLE)),
                    host,
                    variable,
                )
            )
            del one_settings[key]
        name = str(one.get("name") or "")
        its_cluster = str(one.get("cluster") or (clusters[0] if len(clusters) == 1 else ""))
        if not its_cluster or its_cluster not in clusters:
            problems.append(
                problem(
                    "every member belongs to a cluster",
                    "{0} engine {1!r} is of cluster {2!r}, pd_cluster says {3!r}".format(
                        role, name, its_cluster, cluster
                    ),
                    host,
                    "pd_cluster",
                )
            )
            continue
        nnodes = int(one["nnodes"])
        rank = int(one["node_rank"])
        if nnodes > 1 and not one["dist_init_addr"]:
            problems.append(
                problem(
                    "ranks of an engine rendezvous",
                    "an engine over {0} hosts needs dist_init_addr (host:port of rank 0)".format(nnodes),
                    host,
                    "pd_{0}_dist_init_addr".format(role),
                )
            )
        if not 0 <= rank < nnodes:
            problems.append(
                problem(
                    "ranks of an engine rendezvous",
                    "node_rank {0} is outside 0..{1}".format(rank, nnodes - 1),
                    host,
                    "pd_{0}_node_rank".format(role),
                )
            )
        extra_args = [str(word) for word in one["extra_args"]]
        resolved.append(
            {
                "cluster": its_cluster,
                "role": role,
                "unit": unit_name(its_cluster, role, name, nnodes, rank),
                "host": host,
                "engine": "{0} {1}".format(role, one["dist_init_addr"] if nnodes > 1 else host + " " + name).strip(),
                "nnodes": nnodes,
                "node_rank": rank,
                "dist_init_addr": str(one["dist_init_addr"] or ""),
                "address": address,
                "listen": listen,
                "port": int(one["port"]),
                "bootstrap_port": int(one["bootstrap_port"]) if role == PREFILL else None,
                "url": "http://{0}:{1}".format(address, one["port"]),
                "gpus": [int(gpu) for gpu in one["gpus"]],
                "settings": _settings.normal(one_settings),
                "extra_args": extra_args,
                "extra_env": dict(one["extra_env"]),
            }
        )
        problems += _problems_of_engine(resolved[-1])
    return resolved, problems


def _problems_of_engine(engine: dict[str, Any]) -> list[dict[str, str]]:
    host, role = engine["host"], engine["role"]
    found = []
    if not NAME.match(engine["cluster"]):
        found.append(
            problem(
                "names are unit names",
                "{0!r} cannot be part of a unit name".format(engine["cluster"]),
                host,
                "pd_cluster",
            )
        )
    if not _settings.is_set(engine["settings"].get("model_path")):
        found.append(problem("an engine serves a model", "no model is given", host, "pd_engine_model_path"))
    try:
        # The newest spelling serves: only repeats are looked for.
        arguments, _unused = _settings.render(engine["settings"], role, "9999")
    except _settings.SettingError as refused:
        found.append(problem("known values", str(refused), host, "pd_engine_*"))
    else:
        own = ["--host", "--port", "--disaggregation-mode", "--disaggregation-bootstrap-port", "--nnodes"]
        own += ["--node-rank", "--dist-init-addr", "--enable-metrics", "--extra-metric-labels", "--api-key"]
        for message in _settings.repeated_flags(arguments + own, engine["extra_args"]):
            found.append(problem("every flag once", message, host, "pd_{0}_extra_args".format(role)))
    found += _problems_of_network(engine)
    gpus = engine["gpus"]
    tp, pp = int(engine["settings"].get("tp_size") or 1), int(engine["settings"].get("pp_size") or 1)
    if gpus and len(set(gpus)) != len(gpus):
        found.append(problem("a GPU once", "GPUs {0} name one twice".format(gpus), host, "pd_{0}_gpus".format(role)))
    if gpus and len(gpus) * engine["nnodes"] < tp * pp:
        found.append(
            problem(
                "GPUs match the parallel sizes",
                "{0} GPUs on each of {1} hosts for tp_size {2} x pp_size {3}".format(
                    len(gpus), engine["nnodes"], tp, pp
                ),
                host,
                "pd_{0}_gpus".format(role),
            )
        )
    return found


def _problems_of_network(engine: dict[str, Any]) -> list[dict[str, str]]:
    """Return contradictions between the two ways to choose network devices for the KV transfer."""
    pinned = str(engine["extra_env"].get("UCX_NET_DEVICES") or "")
    backend = engine["settings"].get("transfer_backend")
    if not pinned or backend != "nixl":
        return []
    rule, variable = "one choice of network devices", "pd_engine_extra_env"
    found = []
    if _settings.is_set(engine["settings"].get("ib_device")):
        message = "UCX_NET_DEVICES={0} overrides ib_device {1}, with nothing but a warning: give one of them"
        found.append(problem(rule, message.format(pinned, engine["settings"]["ib_device"]), engine["host"], variable))
    # RDMA devices are written with their port: mlx5_0:1. NIXL speaks TCP beside them.
    if all(":" in device or device.startswith("mlx") for device in pinned.split(",")):
        message = "UCX_NET_DEVICES={0} names no interface that speaks TCP, NIXL cannot connect without: add lo or eth0"
        found.append(problem(rule, message.format(pinned), engine["host"], variable))
    return found


def unknown_variables(given: Iterable[str], known: Iterable[str], host: str) -> list[dict[str, str]]:
    """Return a problem for each variable with a role's prefix that no role has.

    :param given: names of all variables of the host.
    :param known: names from the roles' argument specifications.
    """
    known_names = set(known)
    prefixes = ("pd_engine_", "pd_prefill_", "pd_decode_", "pd_router_")
    found = []
    for name in sorted(given):
        if not name.startswith(prefixes) or name in known_names:
            continue
        setting = re.sub(r"^pd_(prefill|decode)_", "", name)
        if setting in _settings.TABLE:
            hint = "; a setting of one role goes into {0}_settings.{1}".format(name[: -len(setting) - 1], setting)
        else:
            hint = _settings.suggestion(name, known_names)
        found.append(problem("known variables", "variable {0} is unknown{1}".format(name, hint), host, name))
    return found


def serving(members: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the engines that answer requests: rank 0 of each, prefill before decode."""
    engines = [m for m in members if m["role"] != ROUTER and m["node_rank"] == 0]
    return sorted(engines, key=lambda m: (STAGES.index(m["role"]), m["host"], m["unit"]))


def problems_of(members: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what is wrong with members taken together, of one or of several clusters."""
    found: list[dict[str, str]] = []
    for name, its in sorted(by(members, "cluster").items()):
        found += [dict(item, cluster=name) for item in problems_of_cluster(name, its)]
    for host, its in sorted(by(members, "host").items()):
        found += _problems_of_host(host, its)
    return found


def by(members: Iterable[dict[str, Any]], key: str) -> dict[str, list[dict[str, Any]]]:
    """Return members by the value of one of their keys."""
    found: dict[str, list[dict[str, Any]]] = {}
    for member in members:
        found.setdefault(member[key], []).append(member)
    return found


def problems_of_cluster(name: str, members: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return what is wrong with the members of one cluster taken together."""
    found = []
    for role in STAGES:
        if not any(m["role"] == role for m in members):
            found.append(
                problem(
                    "a cluster has every role",
                    "cluster {0} has no {1}: no host with pd_cluster {0} is in group {2}".format(
                        name, role, GROUPS[role]
                    ),
                    variable="pd_cluster",
                )
            )
    engines = serving(members)
    for key in MUST_AGREE_IN_ORDER:
        values: dict[str, list[str]] = {}
        for member in engines:
            value = member.get("version") if key == "version" else member["settings"].get(key)
            if key == "version" and not value:
                continue
            values.setdefault(str(value if _settings.is_set(value) else "the default"), []).append(
                "{0} on {1}".format(member["unit"], member["host"])
            )
        if len(values) > 1:
            found.append(
                problem(
                    "prefill and decode agree",
                    "cluster {0}: {1} is {2}".format(
                        name,
                        "the sglang version" if key == "version" else key,
                        " but ".join("{0} for {1}".format(v, ", ".join(who)) for v, who in values.items()),
                    ),
                    variable="pd_engine_" + ("sglang_version" if key == "version" else key),
                )
            )
    for engine, ranks in sorted(by((m for m in members if m["role"] != ROUTER), "engine").items()):
        wanted = ranks[0]["nnodes"]
        if sorted(m["node_rank"] for m in ranks) != list(range(wanted)):
            found.append(
                problem(
                    "ranks of an engine rendezvous",
                    "cluster {0}: engine {1} wants ranks 0..{2}, the inventory has {3}".format(
                        name,
                        engine,
                        wanted - 1,
                        ", ".join("{0} on {1}".format(m["node_rank"], m["host"]) for m in ranks),
                    ),
                    ranks[0]["host"],
                    "pd_{0}_node_rank".format(ranks[0]["role"]),
                    unit=ranks[0]["unit"],
                )
            )
    return found


MUST_AGREE_IN_ORDER = _settings.MUST_AGREE + ("version",)


def ports_of(member: dict[str, Any]) -> dict[str, int]:
    """Return the ports that a member binds, by the variable that sets each."""
    ports = {"pd_{0}_port".format(member["role"]): member["port"]}
    if member["role"] == PREFILL and member["node_rank"] == 0:
        ports["pd_prefill_bootstrap_port"] = member["bootstrap_port"]
    if member["role"] == ROUTER:
        ports["pd_router_metrics_port"] = member["metrics_port"]
    return ports


def _problems_of_host(host: str, members: list[dict[str, Any]]) -> list[dict[str, str]]:
    found = []
    holders: dict[int, tuple[str, str]] = {}
    units: dict[str, str] = {}
    gpus: dict[int, str] = {}
    for member in members:
        if member["unit"] in units:
            found.append(
                problem(
                    "a unit once",
                    "two {0} members are both {1}: give the engines names".format(member["role"], member["unit"]),
                    host,
                    "pd_{0}_engines".format(member["role"]),
                    unit=member["unit"],
                )
            )
        units[member["unit"]] = member["cluster"]
        for variable, port in ports_of(member).items():
            if port in holders:
                found.append(
                    problem(
                        "a port once per host",
                        "port {0} of {1} ({2}) is already that of {3} ({4})".format(
                            port, member["unit"], variable, *holders[port]
                        ),
                        host,
                        variable,
                        unit=member["unit"],
                    )
                )
            else:
                holders[port] = (member["unit"], variable)
        for gpu in member["gpus"]:
            if gpu in gpus and gpus[gpu] != member["unit"]:
                found.append(
                    problem(
                        "a GPU once",
                        "GPU {0} is given to {1} and to {2}".format(gpu, gpus[gpu], member["unit"]),
                        host,
                        "pd_{0}_gpus".format(member["role"]),
                        unit=member["unit"],
                    )
                )
            gpus.setdefault(gpu, member["unit"])
    return found


#: What one item of pd_router_routers may say.
ROUTER_KEYS = ("name", "cluster", "port", "metrics_port", "extra_args", "extra_env")


def resolve_routers(
    host: str,
    cluster: Any,
    flat: dict[str, Any],
    routers: list[dict[str, Any]],
    settings: dict[str, Any],
    address: str,
    listen: str,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the routers of one host and what is wrong with them; see :func:`resolve_engines`."""
    problems: list[dict[str, str]] = []
    resolved = []
    clusters = clusters_of(cluster)
    for item in routers or [{}]:
        for key in sorted(set(item) - set(ROUTER_KEYS)):
            problems.append(
                problem(
                    "known variables",
                    "pd_router_routers.{0} is unknown{1}".format(key, _settings.suggestion(key, ROUTER_KEYS)),
                    host,
                    "pd_router_routers",
                )
            )
        one = dict(flat, **item)
        name = str(one.get("name") or "")
        its_cluster = str(one.get("cluster") or (clusters[0] if len(clusters) == 1 else ""))
        if not its_cluster or its_cluster not in clusters:
            problems.append(
                problem(
                    "every member belongs to a cluster",
                    "router {0!r} is of cluster {1!r}, pd_cluster says {2!r}".format(name, its_cluster, cluster),
                    host,
                    "pd_cluster",
                )
            )
            continue
        unit = unit_name(its_cluster, ROUTER, name)
        extra_args = [str(word) for word in one["extra_args"]]
        own = ["--host", "--port", "--prefill", "--decode", "--prometheus-port", "--prometheus-host", "--api-key"]
        own += ["--pd-disaggregation", *flat["flags"]]
        for message in _settings.repeated_flags(own, extra_args):
            problems.append(problem("every flag once", message, host, "pd_router_extra_args"))
        resolved.append(
            {
                "cluster": its_cluster,
                "role": ROUTER,
                "unit": unit,
                "host": host,
                "engine": unit,
                "nnodes": 1,
                "node_rank": 0,
                "dist_init_addr": "",
                "address": address,
                "listen": listen,
                "port": int(one["port"]),
                "metrics_port": int(one["metrics_port"]),
                "bootstrap_port": None,
                "url": "http://{0}:{1}".format(address, one["port"]),
                "gpus": [],
                "package": one["package"],
                "settings": _settings.normal(settings),
                "extra_args": extra_args,
                "extra_env": dict(one["extra_env"]),
            }
        )
    return resolved, problems


#: Keys of a member that stay on the controller: what they carry may be secret.
NOT_ON_DISK = ("extra_args", "extra_env")


#: What of a unit the host keeps with its member: all but what may be secret.
OF_THE_UNIT = ("configuration", "exec_start", "environment", "private_names", "secret_names")


def member_file(member: dict[str, Any], runs: dict[str, Any], **deployed: Any) -> dict[str, Any]:
    """Return what the host keeps of a member, with what the deployment adds to it.

    :param runs: what its unit runs, see :func:`_unit.engine_unit`.
    :param deployed: ``version``, ``transfer_version`` (of an engine's transfer backend, "" where unknown),
        ``patches`` (of its files: ``name`` and ``sha256``), ``secrets_file``, ``user``, ``stop_limit_seconds``,
        ``healthy_limit_seconds``, ``kept_revisions`` (how many the host keeps).
    """
    kept = {key: value for key, value in member.items() if key not in NOT_ON_DISK}
    return dict(kept, **{key: runs[key] for key in OF_THE_UNIT}, **deployed)
