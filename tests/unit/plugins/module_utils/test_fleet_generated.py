# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generated fleets: a valid one gives a valid inventory, a broken one is told with the line that broke it."""

from __future__ import annotations

from typing import Any

import yaml
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet, _settings, _topology, _unit
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import fleet_file, fleet_schema, marked_yaml
from hypothesis import given, settings
from hypothesis import strategies as st

DEFAULTS = fleet_schema.defaults(fleet_schema.read())
ROLES = _topology.STAGES
EXAMPLES = settings(max_examples=60, deadline=None)


class Taken:
    """Ports and GPUs of a host that nobody has yet."""

    def __init__(self) -> None:
        self.port = 40000
        self.gpu = 0

    def next_port(self) -> int:
        self.port += 1
        return self.port

    def gpus(self, count: int) -> list[int]:
        self.gpu += count
        return list(range(self.gpu - count, self.gpu))


def words(flag: str) -> st.SearchStrategy[dict[str, Any]]:
    """Some words of a section; extra arguments of engine and of a role add up, so each has flags of its own."""
    return st.fixed_dictionaries(
        {},
        optional={
            "max_running_requests": st.integers(1, 999),
            "chunked_prefill_size": st.integers(1, 9999),
            "disable_overlap_schedule": st.booleans(),
            "mem_fraction_static": st.floats(0.1, 0.9),
            "log_level": st.sampled_from(["info", "debug"]),
            "extra_args": st.sampled_from([[], [flag], [flag, "x", flag + "-too"]]),
            "extra_env": st.dictionaries(st.sampled_from("ABC"), st.integers(0, 9), max_size=2),
        },
    )


ENGINE_WORDS, WORDS = words("--of-engine"), words("--of-role")
ROUTER_WORDS = st.fixed_dictionaries({}, optional={"extra_args": st.just(["--some-flag", "x"])})


@st.composite
def fleets(draw: Any) -> dict[str, Any]:
    """Return a valid fleet: clusters on hosts of their own or on shared ones, engines over several hosts too."""
    hosts: dict[str, Taken] = {}
    of_cluster: dict[str, set[str]] = {}
    clusters = {}
    agreed = {"page_size": st.sampled_from([16, 64]), "context_length": st.integers(1, 9999)}
    names = draw(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True), min_size=1, max_size=4, unique=True))
    for cluster in names:
        shared = draw(st.booleans())

        def member(role: str, number: int, cluster: str = cluster, shared: bool = shared) -> dict[str, Any]:
            own = st.just("{0}-{1}{2}.example.com".format(cluster, role, number))
            host = draw(st.sampled_from(["box1", "box2"]) if shared else own)
            taken = hosts.setdefault(host, Taken())
            found = {"host": host, "name": "n{0}".format(number), "port": taken.next_port()}
            if role == "router":
                return {**found, "metrics_port": taken.next_port(), **draw(ROUTER_WORDS)}
            if role == "prefill":
                found["bootstrap_port"] = taken.next_port()
            if draw(st.booleans()):
                found["gpus"] = taken.gpus(4)
            return {**found, **draw(WORDS)}

        members = {role: [member(role, number) for number in range(draw(st.integers(1, 3)))] for role in ROLES}
        for role in ("prefill", "decode"):
            if draw(st.booleans()):
                ranks = draw(st.integers(2, 3))
                address = "{0}-rank0:20000".format(cluster)
                for rank in range(ranks):
                    host = "{0}-{1}-rank{2}".format(cluster, role, rank)
                    members[role].append(
                        {"host": host, "nnodes": ranks, "node_rank": rank, "dist_init_addr": role + address}
                    )
        for role in ROLES:
            for one in members[role]:
                of_cluster.setdefault(one["host"], set()).add(cluster)
                # A name is only wanted where the host has several; an engine alone may go without.
                same_host = [other for other in members[role] if other["host"] == one["host"]]
                if len(same_host) == 1 and draw(st.booleans()):
                    one.pop("name", None)
        clusters[cluster] = {
            "engine": {**draw(ENGINE_WORDS), "model_path": "/" + cluster, "tp_size": draw(st.integers(1, 4))},
            "prefill": draw(WORDS),
            "decode": draw(WORDS),
            "members": members,
        }
        clusters[cluster]["engine"].update({word: draw(value) for word, value in agreed.items()})
    return {
        "plugin": _fleet.PLUGIN,
        "defaults": {"engine": draw(ENGINE_WORDS), "prefill": draw(WORDS), "vars": {"ansible_user": "ops"}},
        "clusters": clusters,
    }


def read(fleet: dict[str, Any]) -> tuple[str, Any, list[dict[str, Any]]]:
    text = yaml.dump(fleet, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
    data, mark, problems = fleet_file.read(text)
    for item in problems:
        item.setdefault("line", marked_yaml.line_of(mark, item["path"]))
    return text, data, problems


def resolved_by_roles(host: str, role: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
    """The members of a role on a host, as its tasks/preflight.yml works them out from variables."""

    def value(name: str, default: Any) -> Any:
        section, word = name.split("_", 1)
        return variables.get("pd_" + name, DEFAULTS[section].get(word, default))

    if role == "router":
        flat = {word: value("router_" + word, []) for word in ("port", "metrics_port", "extra_args")}
        flat.update(extra_env=value("router_extra_env", {}), package="", flags=list(_unit.ROUTER_FLAGS.values()))
        listed = value("router_routers", [])
        members, problems = _topology.resolve_routers(host, variables["pd_cluster"], flat, listed, {}, host, "")
    else:
        flat = {word: value("{0}_{1}".format(role, word), "") for word in ("port", "nnodes", "node_rank")}
        flat["bootstrap_port"] = value("prefill_bootstrap_port", None)
        flat["dist_init_addr"] = value(role + "_dist_init_addr", "")
        flat["gpus"] = value(role + "_gpus", [])
        flat["settings"] = value(role + "_settings", {})
        flat["extra_args"] = value("engine_extra_args", []) + value(role + "_extra_args", [])
        flat["extra_env"] = {**value("engine_extra_env", {}), **value(role + "_extra_env", {})}
        engine = {word: value("engine_" + word, "") for word in _settings.TABLE}
        listed = value(role + "_engines", [])
        members, problems = _topology.resolve_engines(
            role, host, variables["pd_cluster"], flat, listed, engine, host, ""
        )
    assert problems == []
    return members


def wanted(fleet: dict[str, Any], cluster: str, role: str, one: dict[str, Any]) -> dict[str, Any]:
    """What a member comes to, by the precedence that the documentation tells."""
    its, fleets_own = fleet["clusters"][cluster], fleet["defaults"]
    engine = {**fleets_own.get("engine", {}), **its["engine"]} if role != "router" else {}
    own = {**fleets_own.get(role, {}), **its.get(role, {}), **one}
    found = {**DEFAULTS[role], **{key: value for key, value in own.items() if key not in _settings.TABLE}}
    merged = {**DEFAULTS["engine"], **engine, **own}
    told = {
        "port": found["port"],
        "gpus": found.get("gpus", []),
        "nnodes": found.get("nnodes", 1),
        "node_rank": found.get("node_rank", 0),
        "extra_args": engine.get("extra_args", []) + own.get("extra_args", []),
        "extra_env": {**engine.get("extra_env", {}), **own.get("extra_env", {})},
    }
    if role != "router":
        chosen = {word: merged[word] for word in _settings.TABLE if merged.get(word) not in (None, "")}
        told["settings"] = _settings.normal(chosen)
    return told


@EXAMPLES
@given(fleets())
def test_a_valid_fleet_gives_variables_that_resolve_to_its_members(fleet: dict[str, Any]) -> None:
    _text, data, problems = read(fleet)
    assert problems == []
    groups, variables, _none = _fleet.inventory(_fleet.members_of(data))
    found = {}
    for role, group in _topology.GROUPS.items():
        for host in groups[group]:
            for member in resolved_by_roles(host, role, variables[host]):
                found[host, member["unit"]] = member
    assert _topology.problems_of(list(found.values())) == []
    expected = 0
    for cluster, its in fleet["clusters"].items():
        assert groups["pd_cluster_" + cluster]
        for role in ROLES:
            for one in its["members"][role]:
                expected += 1
                unit = _topology.unit_name(
                    cluster, role, one.get("name", ""), one.get("nnodes", 1), one.get("node_rank", 0)
                )
                member = found[one["host"], unit]
                told = wanted(fleet, cluster, role, one)
                if role == "router":
                    member = dict(member, settings={})
                set_ones = {key: value for key, value in member["settings"].items() if value != ""}
                assert {**member, "settings": set_ones} | told == {**member, "settings": set_ones}, (unit, told)
    assert expected == len(found)
    assert all(its["ansible_user"] == "ops" for its in variables.values())


def members_at(fleet: dict[str, Any], role: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, one) for name, its in fleet["clusters"].items() for one in its["members"][role]]


def break_port(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    name, one = draw(st.sampled_from(members_at(fleet, "decode")))
    extra = {"host": one["host"], "name": "again", "port": 64999}
    one.update(port=64999)
    fleet["clusters"][name]["members"]["decode"].append(extra)
    return "a port once per host", "port: 64999"


def break_gpu(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    _name, one = draw(st.sampled_from(members_at(fleet, "prefill")))
    one["gpus"] = [777, 777, 778, 779, 780, 781, 782, 783]
    return "a GPU once", "gpus:"


def break_word(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    role = draw(st.sampled_from(ROLES))
    _name, one = draw(st.sampled_from(members_at(fleet, role)))
    one["zzz"] = 1
    return "known words", "zzz: 1"


def break_type(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    _name, one = draw(st.sampled_from(members_at(fleet, "decode")))
    one["tp_size"] = "many"
    return "the file follows its schema", "tp_size: many"


def break_rank(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    # Of several ranks another one would be told, too.
    _name, one = draw(st.sampled_from([pair for pair in members_at(fleet, "decode") if "nnodes" not in pair[1]]))
    one["node_rank"] = 99
    return "ranks of an engine rendezvous", "node_rank: 99"


def break_agreement(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    _name, one = draw(st.sampled_from([pair for pair in members_at(fleet, "decode") if not pair[1].get("node_rank")]))
    one["page_size"] = 31337
    return "prefill and decode agree", "page_size: 31337"


def break_cluster(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    its = fleet["clusters"][draw(st.sampled_from(sorted(fleet["clusters"])))]
    its["members"][draw(st.sampled_from(ROLES))] = []
    return "a cluster has every role", "members:"


def break_name(draw: Any, fleet: dict[str, Any]) -> tuple[str, str]:
    _name, one = draw(st.sampled_from(members_at(fleet, draw(st.sampled_from(ROLES)))))
    one["name"] = "two words"
    return "the file follows its schema", "name: two words"


BREAKS = (break_port, break_gpu, break_word, break_type, break_rank, break_agreement, break_cluster, break_name)


@settings(max_examples=120, deadline=None)
@given(fleets(), st.sampled_from(BREAKS), st.data())
def test_a_broken_rule_is_told_with_its_line(fleet: dict[str, Any], break_it: Any, data: st.DataObject) -> None:
    rule, marked = break_it(data.draw, fleet)
    text, _data, problems = read(fleet)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if marked in line]
    told = {item["line"] for item in problems if item["rule"] == rule}
    assert told, problems
    assert told <= set(lines), (told, lines, problems)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), st.integers(), max_size=2),
)


@settings(max_examples=100, deadline=None)
@given(fleets(), st.data())
def test_whatever_is_in_a_file_is_refused_or_read(fleet: dict[str, Any], data: st.DataObject) -> None:
    """Some places, each with junk instead of what belongs there: told with a line, or right by chance."""
    for _time in range(data.draw(st.integers(1, 3))):
        place: Any = fleet
        while True:
            inner = sorted(place, key=str) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(inner))
            if not place[key] or not isinstance(place[key], (dict, list)) or data.draw(st.integers(0, 3)) == 0:
                break
            place = place[key]
        place[key] = data.draw(JUNK)
        if not fleet or not isinstance(fleet, dict):
            break
    text, judged, problems = read(fleet)
    assert all(1 <= item["line"] <= text.count("\n") + 1 for item in problems)
    if not problems:
        _fleet.inventory(_fleet.members_of(judged))


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet=st.sampled_from("abc:-[]{}&*!|>'\"# \n\t?,%@`1.~<=\\"), max_size=60))
def test_whatever_text_a_file_has_is_refused_or_read(text: str) -> None:
    fleet_file.read(text)
    fleet_file.read("plugin: inferops.sglang_pd.topology\nclusters:\n  a:\n    members: " + text)
