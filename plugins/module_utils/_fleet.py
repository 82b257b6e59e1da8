# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a file that describes a fleet to an inventory, and what is wrong with the fleet.

Pure. The file, read, is a dictionary with ``defaults`` and ``clusters``; its words are those of
``extensions/schemas/sglang_pd.schema.json``, which it has passed, or its faulty values are unknown
(:func:`forget`). The rules are those of :mod:`_topology`; this module tells them who the members are, and
where in the file to mend what they find.

A *path* is the way to a value in the file: ``("clusters", "dsv4", "members", "prefill", 0, "gpus")``.
A value with its path is a pair, called *given*. A problem is a dict with ``rule``, ``message``, ``path``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _settings, _topology, _unit

PLUGIN = "inferops.sglang_pd.topology"

Path = tuple[Any, ...]
Given = dict[str, tuple[Any, Path]]

#: What makes a text a template.
TEMPLATE = re.compile(r"\{\{|\{%")
#: Stands for a value that cannot be judged.
UNKNOWN = "{{ unknown }}"

#: Words of one engine or router, beside its settings. All others are variables of its host.
ENGINE_WORDS = tuple(word for word in _topology.ENGINE_KEYS if word not in ("name", "cluster", "settings"))
ROUTER_WORDS = tuple(word for word in _topology.ROUTER_KEYS if word not in ("name", "cluster"))
#: Words that say which member it is.
_IDENTITY = ("host", "name", "vars")

_ONE_VALUE = "a variable has one value on a host"


def problem(rule: str, message: str, path: Path) -> dict[str, Any]:
    """Return one problem: which rule, what is wrong, and where in the file."""
    return {"rule": rule, "message": message, "path": path}


def is_unknown(value: Any) -> bool:
    """Tell whether a value is only known later, because it is a template or encrypted."""
    return isinstance(value, str) and bool(TEMPLATE.search(value))


class Member:
    """One member as the file describes it.

    :ivar engine: words of the sections ``engine``, fleet's and cluster's.
    :ivar own: words of the sections of its role, and its own ones; of a host's variables only its own.
    :ivar variables: other variables by their level: of fleet and cluster, and its own.
    """

    def __init__(self, cluster: str, role: str, described: dict[str, Any], path: Path, defaults: dict[str, Given]):
        self.cluster = cluster
        self.role = role
        self.path = path
        self.host = str(described["host"])
        self.name = str(described.get("name") or "")
        self.engine = defaults["engine"]
        own = {word: (value, path + (word,)) for word, value in described.items() if word not in _IDENTITY}
        self.own: Given = dict(defaults[role], **own)
        self.variables = (defaults["vars"], _given(described.get("vars"), path + ("vars",)))

    def setting(self, word: str) -> bool:
        """Tell whether a word is one of the engine's settings."""
        return self.role != _topology.ROUTER and word in _settings.TABLE

    def of_host(self, word: str) -> bool:
        """Tell whether a word is a variable of the host, which its members share."""
        words = ROUTER_WORDS if self.role == _topology.ROUTER else ENGINE_WORDS
        return word not in words and not self.setting(word)


def _given(section: Any, path: Path) -> Given:
    return {word: (value, path + (word,)) for word, value in (section or {}).items()}


def members_of(data: dict[str, Any]) -> list[Member]:
    """Return all members in the order of the file, stage by stage."""
    found = []
    fleet = data.get("defaults") or {}
    for name, cluster in data["clusters"].items():
        path: Path = ("clusters", name)
        defaults = {
            section: dict(
                _given(fleet.get(section), ("defaults", section)), **_given(cluster.get(section), path + (section,))
            )
            for section in ("engine", "vars") + _topology.STAGES
        }
        for role in _topology.STAGES:
            for number, described in enumerate(cluster["members"].get(role) or []):
                found.append(Member(str(name), role, described, path + ("members", role, number), defaults))
    return found


# The inventory


def cluster_group(cluster: str) -> str:
    """Return the inventory group of a cluster's hosts."""
    return "pd_cluster_" + re.sub(r"[^A-Za-z0-9_]", "_", cluster)


def inventory(members: list[Member]) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return hosts by group, variables by host, and what cannot be said in variables.

    Groups and variables are those that people write by hand, and one more group for each cluster.
    """
    groups: dict[str, dict[str, None]] = {group: {} for group in _topology.GROUPS.values()}
    hosts: dict[str, list[Member]] = {}
    for member in members:
        groups[_topology.GROUPS[member.role]][member.host] = None
        groups.setdefault(cluster_group(member.cluster), {})[member.host] = None
        hosts.setdefault(member.host, []).append(member)
    variables = {}
    problems: list[dict[str, Any]] = []
    for host, its in hosts.items():
        variables[host], found = _variables(host, its)
        problems += found
    return {group: list(its) for group, its in groups.items()}, variables, problems


def _variables(host: str, members: list[Member]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the variables of one host, and what its members say against each other."""
    clusters = list(dict.fromkeys(member.cluster for member in members))
    alone = len(clusters) == 1
    found, problems = _shared_variables(host, members)
    found["pd_cluster"] = clusters[0] if alone else clusters
    if alone:
        own = ENGINE_WORDS + tuple(_settings.TABLE)
        found.update({"pd_engine_" + word: value for word, (value, _p) in members[0].engine.items() if word in own})
    for role in _topology.STAGES:
        its = [member for member in members if member.role == role]
        if alone and len(its) == 1 and not its[0].name:
            values = _role_values(its[0])
            found.update({"pd_{0}_{1}".format(role, word): value for word, value in values.items()})
        elif its:
            listed = "pd_router_routers" if role == _topology.ROUTER else "pd_{0}_engines".format(role)
            items = []
            for member in its:
                item, wrong = _item(member, alone)
                items.append(item)
                problems += wrong
            found[listed] = items
    return found, problems


def _role_values(member: Member) -> dict[str, Any]:
    """Return what is said of one member by its role's variables, without their prefix."""
    values = {
        word: value for word, (value, _p) in member.own.items() if not member.setting(word) and not member.of_host(word)
    }
    settings = {word: value for word, (value, _p) in member.own.items() if member.setting(word)}
    return dict(values, settings=settings) if settings else values


def _item(member: Member, alone: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return one member as an item of its role's list, which overrides variables instead of adding to them.

    :param alone: its host is of one cluster, so the section ``engine`` is in variables.
    """
    item: dict[str, Any] = {"name": member.name} if member.name else {}
    if not alone:
        item["cluster"] = member.cluster
    values = _role_values(member)
    problems = []
    if member.role != _topology.ROUTER:
        if not alone:
            shared = {word: value for word, (value, _p) in member.engine.items() if member.setting(word)}
            values["settings"] = dict(shared, **values.get("settings", {}))
        for word in ("extra_args", "extra_env"):
            if word in member.own or (not alone and word in member.engine):
                values[word], wrong = _added(member, word)
                problems += wrong
    return dict(item, **values), problems


def _added(member: Member, word: str) -> tuple[Any, list[dict[str, Any]]]:
    """Return ``extra_args`` or ``extra_env`` of an engine: those of the section ``engine``, then its role's or own."""
    parts = [given for given in (member.engine.get(word), member.own.get(word)) if given is not None and given[0]]
    if not parts:
        return ([] if word == "extra_args" else {}), []
    if len(parts) == 1:
        return parts[0][0], []
    (first, _p), (second, path) = parts
    if isinstance(first, list) and isinstance(second, list):
        return first + second, []
    if isinstance(first, dict) and isinstance(second, dict):
        return dict(first, **second), []
    message = "{0} adds to that of the section engine; with several members of a role on a host both are written out"
    return second, [problem("what is added up is no template", message.format(word), path)]


def _shared_variables(host: str, members: list[Member]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the variables that all members of a host share.

    What members themselves say of their host goes first, and must be one value. What only the defaults say
    must be one value, too, and said for each cluster (or router) that it would count for.
    """
    of_members: dict[str, list[tuple[Any, Path]]] = {}
    of_defaults: dict[str, list[tuple[Any, Path]]] = {}
    routers = [member for member in members if member.role == _topology.ROUTER]
    clusters = {member.cluster: member for member in members}
    for member in members:
        is_router = member.role == _topology.ROUTER
        for word, given in member.own.items():
            if member.of_host(word) and is_router:
                of_defaults.setdefault("pd_router_" + word, []).append(given)
            elif member.of_host(word):
                of_members.setdefault("pd_engine_" + word, []).append(given)
        for word, given in member.variables[1].items():
            of_members.setdefault(word, []).append(given)
    for member in clusters.values():
        for word, given in member.engine.items():
            if word not in ENGINE_WORDS and word not in _settings.TABLE:
                of_defaults.setdefault("pd_engine_" + word, []).append(given)
        for word, given in member.variables[0].items():
            of_defaults.setdefault(word, []).append(given)

    found: dict[str, Any] = {}
    problems = []
    for variable in {**of_defaults, **of_members}:
        candidates = of_members.get(variable) or of_defaults[variable]
        value, first = candidates[0]
        found[variable] = value
        for other, path in candidates[1:]:
            if other != value:
                message = "{0} of host {1} is given twice, with different values: its members share it"
                problems.append(problem(_ONE_VALUE, message.format(variable, host), path))
        voices = len(routers) if variable.startswith("pd_router_") else len(clusters)
        if variable not in of_members and len(candidates) < voices:
            message = "{0} is given for one of those on host {1} and would count for the others, too: give it for all"
            problems.append(problem(_ONE_VALUE, message.format(variable, host), first))
    return found, problems


# The rules


def problems_of(data: dict[str, Any], defaults: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is wrong with a fleet.

    :param defaults: default values of the roles' variables: by section, then by word.
    """
    described = members_of(data)
    _groups, variables, problems = inventory(described)
    problems += _names(described)
    members = []
    of_member = {}
    hidden = itertools.count(-1, -1)
    for one in described:
        resolved, found = _resolve(one, defaults, hidden)
        problems += [_placed(item, one) for item in found]
        for member in resolved:
            # The host's, whichever of its members says it.
            version = variables[one.host].get("pd_engine_sglang_version", defaults["engine"].get("sglang_version"))
            member["version"] = "" if is_unknown(version) or one.role == _topology.ROUTER else version
            of_member[member["host"], member["unit"]] = one
        members += resolved
    of_cluster: dict[str, list[Member]] = {}
    for one in described:
        of_cluster.setdefault(one.cluster, []).append(one)
    for item in _topology.problems_of(_comparable(members)):
        if item.get("unit"):
            problems.append(_placed(item, of_member[item["host"], item["unit"]]))
        else:
            problems.append(_placed_in_cluster(item, of_cluster[item["cluster"]]))
    for name in data["clusters"]:
        if str(name) not in of_cluster:
            for item in _topology.problems_of_cluster(str(name), []):
                problems.append(problem(item["rule"], item["message"], ("clusters", name, "members")))
    return _once(problems)


def _resolve(
    member: Member, defaults: dict[str, dict[str, Any]], hidden: Iterator[int]
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return a member as the roles would resolve it, without what is not known yet, and what is wrong with it.

    :param hidden: numbers that stand for ports which are not known yet.
    """
    words = ROUTER_WORDS if member.role == _topology.ROUTER else ENGINE_WORDS
    flat: dict[str, Any] = {"dist_init_addr": "", "gpus": [], "bootstrap_port": None}
    flat.update({word: value for word, value in defaults[member.role].items() if word in words})
    flat.update({word: value for word, (value, _p) in member.own.items() if word in words})
    for word in [word for word in flat if word.endswith("port") and is_unknown(flat[word])]:
        flat[word] = next(hidden)
    given = [_added(member, word)[0] for word in ("extra_args", "extra_env")]
    if member.role == _topology.ROUTER:
        given = [member.own.get(word, ([], ()))[0] for word in ("extra_args", "extra_env")]
    flat["extra_args"] = [] if is_unknown(given[0]) else given[0] or []
    extra_env = {} if is_unknown(given[1]) else given[1] or {}
    flat["extra_env"] = {name: value for name, value in extra_env.items() if not is_unknown(value)}
    item = [{"name": member.name}] if member.name else []
    if member.role == _topology.ROUTER:
        flat.update(package="", flags=list(_unit.ROUTER_FLAGS.values()))
        return _topology.resolve_routers(member.host, member.cluster, flat, item, {}, member.host, "")

    if is_unknown(flat["gpus"]) or any(is_unknown(gpu) for gpu in flat["gpus"]):
        flat["gpus"] = []
    settings = {word: value for word, value in defaults["engine"].items() if word in _settings.TABLE}
    for given_words in (member.engine, member.own):
        settings.update({word: value for word, (value, _p) in given_words.items() if word in _settings.TABLE})
    # What must agree stays, for _comparable to see.
    settings = {w: value for w, value in settings.items() if w in _settings.MUST_AGREE or not is_unknown(value)}
    flat["settings"] = {}
    return _topology.resolve_engines(member.role, member.host, member.cluster, flat, item, settings, member.host, "")


def _comparable(members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return members without the settings that their cluster cannot be compared in yet."""
    found = []
    for its in _topology.by(members, "cluster").values():
        unknown = {word for member in its for word, value in member["settings"].items() if is_unknown(value)}
        for member in its:
            settings = {word: value for word, value in member["settings"].items() if word not in unknown}
            found.append(dict(member, settings=settings))
    return found


def _placed(item: dict[str, str], member: Member) -> dict[str, Any]:
    """Return a member's problem at the place that says what is wrong; at the member where nothing does."""
    word = re.sub("^pd_(engine|prefill|decode|router)_", "", item["variable"])
    path = member.path
    for section in (member.own, member.engine):
        if word in section:
            path = section[word][1]
            break
    else:
        # The whole cluster lacks it.
        if item["rule"] == "an engine serves a model":
            path = member.path[:2]
    return problem(item["rule"], item["message"], path)


def _placed_in_cluster(item: dict[str, str], members: list[Member]) -> dict[str, Any]:
    """Return a cluster's problem at the first member, or else the first default, that says what is wrong."""
    word = re.sub("^pd_engine_", "", item["variable"])
    for member in members:
        if word in member.own:
            return problem(item["rule"], item["message"], member.own[word][1])
    first = members[0]
    path = first.engine[word][1] if word in first.engine else first.path[:2] + ("members",)
    return problem(item["rule"], item["message"], path)


def _names(members: list[Member]) -> list[dict[str, Any]]:
    """Return clusters whose groups would be one, and hosts that are called like a group."""
    found = []
    groups: dict[str, str] = dict.fromkeys(_topology.GROUPS.values(), "")
    for member in members:
        group = cluster_group(member.cluster)
        if groups.setdefault(group, member.cluster) != member.cluster:
            message = "clusters {0} and {1} would both be inventory group {2}: rename one"
            found.append(
                problem("names tell apart", message.format(groups[group], member.cluster, group), member.path[:2])
            )
    for member in members:
        if member.host in groups or member.host in ("all", "ungrouped"):
            message = "host {0} is called like an inventory group"
            found.append(problem("names tell apart", message.format(member.host), member.path + ("host",)))
    return found


def _once(problems: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return problems without those that are the same for each of several members."""
    seen: dict[tuple[str, Path, str], dict[str, Any]] = {}
    for item in problems:
        seen.setdefault((item["rule"], item["path"], item["message"]), item)
    return list(seen.values())


# What has not passed the schema


def forget(data: Any, problems: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a file's data without what is wrong with it already, so that the rules can judge the rest.

    A faulty value is unknown, and so is the word that an unknown one was meant to be (``nearest``). A
    cluster whose members cannot be told is left out.

    :param data: the file's data; changed.
    """
    if not isinstance(data, dict) or not isinstance(data.get("clusters"), dict):
        return {"clusters": {}}
    for item in problems:
        path = item["path"]
        if item.get("nearest"):
            path = path[:-1] + (item["nearest"],)
        _forget_one(data, path)
    return data


def _forget_one(data: dict[str, Any], path: Path) -> None:
    of_member = path[2:3] == ("members",)
    if path[:1] == ("defaults",) and len(path) < 3:
        # All clusters lean on it.
        data["clusters"] = {}
    elif path[:1] == ("defaults",):
        _make_unknown(data, path[:3])
    elif path[:1] != ("clusters",) or len(path) < 2:
        return
    elif of_member and len(path) > 5 and path[5] not in _IDENTITY + ("nnodes", "node_rank"):
        _make_unknown(data, path[:6])
    elif of_member or len(path) < 4:
        data["clusters"].pop(path[1], None)
    else:
        _make_unknown(data, path[:4])


def _make_unknown(data: Any, path: Path) -> None:
    """Make a value unknown, unless something around it is gone or unknown already."""
    for key in path[:-1]:
        if not isinstance(data, (dict, list)) or (isinstance(data, dict) and key not in data):
            return
        data = data[key]
    if isinstance(data, dict):
        data[path[-1]] = UNKNOWN
