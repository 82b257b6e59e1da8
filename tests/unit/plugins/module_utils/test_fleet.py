# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a fleet's file to variables, and each rule with the line that it points to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import fleet_file, marked_yaml

ROOT = Path(__file__).resolve().parents[4]
#: Two clusters: one on a box, one over five hosts with an engine that spans two of them.
GOOD = """\
plugin: inferops.sglang_pd.topology
defaults:
  engine:
    transfer_backend: nixl
    api_key: "{{ vault_api_key }}"
  router:
    policy: round_robin
clusters:
  small:
    engine:
      model_path: /models/small
    members:
      prefill:
        - host: box
          gpus: [0, 1]
      decode:
        - host: box
          gpus: [2, 3]
      router:
        - host: box
  large:
    engine:
      model_path: /models/large
      tp_size: 4
    decode:
      max_running_requests: 512
    members:
      prefill:
        - {host: p1a, nnodes: 2, node_rank: 0, dist_init_addr: "p1a:20000"}
        - {host: p1b, nnodes: 2, node_rank: 1, dist_init_addr: "p1a:20000"}
        - {host: p2, gpus: [0, 1, 2, 3]}
      decode:
        - {host: d, name: first, gpus: [0, 1, 2, 3]}
        - host: d
          name: second
          port: 30012
          gpus: [4, 5, 6, 7]
      router:
        - {host: r}
"""


def read(text: str) -> tuple[Any, list[dict[str, Any]]]:
    """The data of a file, and its problems with their lines."""
    data, mark, problems = fleet_file.read(text)
    for item in problems:
        item.setdefault("line", marked_yaml.line_of(mark, item["path"]))
    return data, problems


def variables(text: str) -> dict[str, dict[str, Any]]:
    data, problems = read(text)
    assert problems == []
    return _fleet.inventory(_fleet.members_of(data))[1]


def changed(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def test_a_good_fleet_has_no_problems_and_the_groups_of_a_hand_written_inventory() -> None:
    data, problems = read(GOOD)
    assert problems == []
    groups, its, none = _fleet.inventory(_fleet.members_of(data))
    assert none == []
    assert groups == {
        "pd_prefill": ["box", "p1a", "p1b", "p2"],
        "pd_decode": ["box", "d"],
        "pd_router": ["box", "r"],
        "pd_cluster_small": ["box"],
        "pd_cluster_large": ["p1a", "p1b", "p2", "d", "r"],
    }
    assert its["box"] == {
        "pd_cluster": "small",
        "pd_engine_transfer_backend": "nixl",
        "pd_engine_api_key": "{{ vault_api_key }}",
        "pd_engine_model_path": "/models/small",
        "pd_prefill_gpus": [0, 1],
        "pd_decode_gpus": [2, 3],
        "pd_router_policy": "round_robin",
    }
    assert its["d"]["pd_decode_engines"] == [
        {"name": "first", "gpus": [0, 1, 2, 3], "settings": {"max_running_requests": 512}},
        {"name": "second", "port": 30012, "gpus": [4, 5, 6, 7], "settings": {"max_running_requests": 512}},
    ]
    assert (its["p1b"]["pd_prefill_nnodes"], its["p1b"]["pd_prefill_node_rank"]) == (2, 1)


def test_the_file_that_the_documentation_shows_is_good() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/fleet.md").read_text(), re.DOTALL)
    assert read(text)[1] == []


def test_what_comes_later_wins_fleet_cluster_role_member() -> None:
    levels = {
        "    transfer_backend: nixl\n": "    transfer_backend: nixl\n    tp_size: 1\n",
        "      model_path: /models/small\n": "      model_path: /models/small\n      tp_size: 2\n",
        "          gpus: [0, 1]\n": "          gpus: [0, 1]\n          tp_size: 3\n",
        "  router:\n    policy": "  prefill: {tp_size: 4}\n  router:\n    policy",
        "    members:\n      prefill:\n        - host: box": "    prefill: {tp_size: 5}\n    members:\n"
        "      prefill:\n        - host: box",
    }

    def tp_sizes(*texts: str) -> tuple[Any, Any]:
        text = changed(*[(old, new) for old, new in levels.items() if any(one in new for one in texts)])
        # GPUs would not be enough for these.
        its = variables(text.replace("gpus: [0, 1]\n", "gpus: []\n").replace("gpus: [2, 3]\n", "gpus: []\n"))["box"]
        return its.get("pd_engine_tp_size"), its.get("pd_prefill_settings", {}).get("tp_size")

    assert tp_sizes("tp_size: 1") == (1, None)
    assert tp_sizes("tp_size: 1", "tp_size: 2") == (2, None)
    assert tp_sizes("tp_size: 1", "tp_size: 2", "tp_size: 4") == (2, 4)
    assert tp_sizes("tp_size: 2", "tp_size: 4", "tp_size: 5") == (2, 5)


def test_a_members_own_words_win_over_those_of_its_role() -> None:
    text = changed(("    decode:\n      max_running_requests: 512\n", "    decode: {port: 30002, page_size: 16}\n"))
    text = text.replace("page_size: 16", "max_running_requests: 16")
    text = text.replace("name: first,", "name: first, port: 31002, max_running_requests: 8,")
    first, second = variables(text)["d"]["pd_decode_engines"]
    assert (first["port"], first["settings"]) == (31002, {"max_running_requests": 8})
    assert (second["port"], second["settings"]) == (30012, {"max_running_requests": 16})


def test_extra_arguments_of_a_role_add_to_those_of_engine_in_both_forms() -> None:
    engine = ("      model_path: /models/large\n", "      model_path: /models/large\n      extra_args: [--a1]\n")
    role = ("      max_running_requests: 512\n", "      extra_args: [--b1]\n      extra_env: {X: 1}\n")
    env = ("    transfer_backend: nixl\n", "    transfer_backend: nixl\n    extra_env: {X: 0, Y: 0}\n")
    its = variables(changed(engine, role, env))
    assert its["d"]["pd_engine_extra_args"] == ["--a1"]
    assert [one["extra_args"] for one in its["d"]["pd_decode_engines"]] == [["--a1", "--b1"]] * 2
    assert [one["extra_env"] for one in its["d"]["pd_decode_engines"]] == [{"X": 1, "Y": 0}] * 2
    assert "pd_prefill_extra_args" not in its["p2"]


SHARED = """\
plugin: inferops.sglang_pd.topology
defaults:
  engine: {transfer_backend: nixl}
clusters:
  one:
    engine: {model_path: /one, tp_size: 2}
    members: {prefill: [{host: a}], decode: [{host: b}], router: [{host: a}]}
  two:
    engine: {model_path: /two, extra_args: [--log-requests]}
    members:
      prefill: [{host: a, port: 31000, bootstrap_port: 9998}]
      decode: [{host: b, port: 31002, extra_args: [--show-time-cost]}]
      router: [{host: a, port: 31001, metrics_port: 29001}]
"""


def test_a_host_of_several_clusters_has_items_that_say_everything() -> None:
    its = variables(SHARED)
    assert its["b"] == {
        "pd_cluster": ["one", "two"],
        "pd_decode_engines": [
            {"cluster": "one", "settings": {"transfer_backend": "nixl", "model_path": "/one", "tp_size": 2}},
            {
                "cluster": "two",
                "port": 31002,
                "extra_args": ["--log-requests", "--show-time-cost"],
                "settings": {"transfer_backend": "nixl", "model_path": "/two"},
            },
        ],
    }
    assert its["a"]["pd_router_routers"] == [
        {"cluster": "one"},
        {"cluster": "two", "port": 31001, "metrics_port": 29001},
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("tp_size: 2}", "tp_size: 2, user: x}", 6, "pd_engine_user is given for one of those on host a"),
        ("tp_size: 2}", "tp_size: 2}\n    router: {policy: random}", 7, "pd_router_policy is given for one of those"),
        ("tp_size: 2}", "tp_size: 2}\n    vars: {x: 1}", 7, "x is given for one of those on host"),
        ("[{host: a, port: 31000", "[{host: a, vars: {x: 1}, port: 31000", 0, ""),
        ("router: [{host: a}]", "router: [{host: a, policy: random}]", 7, "pd_router_policy is given for one"),
    ],
)
def test_a_variable_that_clusters_would_share_unasked_is_refused(old: str, new: str, line: int, words: str) -> None:
    _data, problems = read(SHARED.replace(old, new))
    if not words:
        assert problems == []
        return
    assert {(item["line"], item["rule"]) for item in problems} == {(line, "a variable has one value on a host")}
    assert words in problems[0]["message"]


def test_members_that_contradict_each_other_about_their_host_are_refused() -> None:
    text = changed(
        ("          gpus: [0, 1]\n", "          gpus: [0, 1]\n          address: 10.0.0.1\n"),
        ("          gpus: [2, 3]\n", "          gpus: [2, 3]\n          address: 10.0.0.2\n"),
    )
    (problem,) = read(text)[1]
    assert (problem["line"], problem["rule"]) == (20, "a variable has one value on a host")
    assert "pd_engine_address of host box is given twice" in problem["message"]


def test_what_one_member_says_of_its_host_counts_for_the_others() -> None:
    text = changed(("          gpus: [0, 1]\n", "          gpus: [0, 1]\n          sglang_version: 0.5.16\n"))
    assert variables(text)["box"]["pd_engine_sglang_version"] == "0.5.16"


#: What is broken, as a change of GOOD; the rule, a part of the message, and the line that it points to.
BROKEN = [
    ("policy: round_robin", "polcy: round_robin", "known words", "polcy is unknown; did you mean policy?", 7),
    ("  small:\n    engine:", "  small:\n    engin:", "known words", "did you mean engine?", 10),
    ("  small:\n", "  small:\n    tp_size: 4\n", "known words", "it goes into the section engine, prefill or", 10),
    ("gpus: [0, 1]\n", "pd_prefill_gpus: [0, 1]\n", "known words", "without its prefix it is gpus", 15),
    ("policy: round_robin", "policy: 3", "the file follows its schema", "takes a text, a number is given: write", 7),
    ("transfer_backend: nixl", "transfer_backend: nixxl", "the file follows its schema", "did you mean nixl?", 4),
    ("tp_size: 4", "tp_size: '4'", "the file follows its schema", "takes a whole number (or a template), a text", 24),
    ("tp_size: 4", "tp_size: 4.5", "the file follows its schema", "takes a whole number, a number is given", 24),
    ("tp_size: 4", "tp_size: true", "the file follows its schema", "takes a whole number, true is given", 24),
    ("gpus: [0, 1]\n", "gpus: 0\n", "the file follows its schema", "gpus takes a list, a number is given", 15),
    ("gpus: [0, 1]\n", "gpus: [0, x]\n", "the file follows its schema", "an item of gpus takes a whole number", 15),
    ("gpus: [0, 1]\n", "gpus:\n", "the file follows its schema", "gpus takes a list, nothing is given", 15),
    ("port: 30012", "port: 66000", "the file follows its schema", "port is 66000, wanted is at most 65535", 36),
    (
        "        - host: box\n          gpus: [0, 1]",
        "        - gpus: [0, 1]",
        "the file follows its schema",
        "host",
        14,
    ),
    ("- host: d\n", "- host: d[1:4]\n", "the file follows its schema", "cannot be a host's inventory name", 34),
    ("name: second", "name: second one", "the file follows its schema", "cannot be part of a unit name", 35),
    ("  small:", "  small one:", "the file follows its schema", "cannot be part of a unit name", 9),
    ("node_rank: 0,", "node_rank: '{{ x }}',", "the file follows its schema", "node_rank takes a whole number", 29),
    ("plugin: inferops.sglang_pd.topology", "plugin: other", "the file follows its schema", "takes one of", 1),
    (
        "  small:\n",
        "  small:\n    vars: {pd_engine_user: x}\n",
        "the file follows its schema",
        "without its prefix",
        10,
    ),
    ("  small:\n", "  small:\n    vars: {a-b: x}\n", "the file follows its schema", "cannot be a variable's name", 10),
    (
        "      router:\n        - {host: r}\n",
        "      router: []\n",
        "a cluster has every role",
        "large has no router",
        27,
    ),
    ("      router:\n        - {host: r}\n", "", "a cluster has every role", "large has no router", 27),
    ("          port: 30012\n", "", "a port once per host", "port 30002 of sglang-large-decode-second.service", 34),
    ("port: 30012", "port: 30002", "a port once per host", "port 30002 of sglang-large-decode-second.service", 36),
    ("gpus: [4, 5, 6, 7]", "gpus: [3, 5, 6, 7]", "a GPU once", "GPU 3 is given to sglang-large-decode-first", 37),
    ("gpus: [4, 5, 6, 7]", "gpus: [4, 4, 5, 6, 7]", "a GPU once", "name one twice", 37),
    (
        "gpus: [4, 5, 6, 7]",
        "gpus: [4, 5]",
        "GPUs match the parallel sizes",
        "2 GPUs on each of 1 hosts for tp_size",
        37,
    ),
    ("          name: second\n", "          name: first\n", "a unit once", "are both sglang-large-decode-first", 34),
    ("node_rank: 1,", "node_rank: 0,", "ranks of an engine rendezvous", "wants ranks 0..1, the inventory has 0 on", 29),
    ("p2, gpus", "p2, node_rank: 3, gpus", "ranks of an engine rendezvous", "node_rank 3 is outside 0..0", 31),
    ("      model_path: /models/large\n", "", "an engine serves a model", "no model is given", 21),
    ("p2, gpus", "p2, page_size: 16, gpus", "prefill and decode agree", "cluster large: page_size is", 31),
    ("p2, gpus", "p2, model_revision: x, gpus", "prefill and decode agree", "cluster large: model_revision is", 31),
    ("p2, gpus", "p2, sglang_version: 0.5.16, gpus", "prefill and decode agree", "large: the sglang version is", 31),
    ("p2, gpus", "p2, extra_args: [--tp-size, '4'], gpus", "every flag once", "--tp-size is already set", 31),
    ("p2, gpus", "p2, extra_env: {UCX_NET_DEVICES: mlx5_0}, gpus", "one choice of network devices", "speaks TCP", 31),
    ("  large:\n", "  small_: {members: {}}\n  large:\n", "a cluster has every role", "small_ has no prefill", 21),
    ("- {host: r}", "- {host: pd_router}", "names tell apart", "called like an inventory group", 39),
]


@pytest.mark.parametrize(("old", "new", "rule", "words", "line"), BROKEN)
def test_a_broken_rule_is_told_with_its_line(old: str, new: str, rule: str, words: str, line: int) -> None:
    _data, problems = read(changed((old, new)))
    told = [(item["rule"], item["line"], item["message"]) for item in problems]
    assert [one for one in told if one[:2] == (rule, line) and words in one[2]], told


def test_clusters_whose_groups_would_be_one_are_refused() -> None:
    text = SHARED.replace("  one:", "  a-b:").replace("  two:", "  a_b:")
    (problem,) = read(text)[1]
    assert (problem["rule"], problem["line"]) == ("names tell apart", 8)
    assert "clusters a-b and a_b would both be inventory group pd_cluster_a_b" in problem["message"]


def test_everything_wrong_is_told_at_once_and_nothing_else() -> None:
    text = changed(
        ("policy: round_robin", "polcy: round_robin"),
        ("tp_size: 4", "tp_size: four"),
        ("name: first, gpus", "name: first, prt: 31002, gpus"),
        ("gpus: [2, 3]", "gpus: [1, 2]"),
        ("- host: box\n          gpus: [0, 1]", "- host: box\n          addres: x\n          gpus: [0, 1]"),
    )
    _data, problems = read(text)
    assert sorted((item["line"], item["rule"]) for item in problems) == [
        (7, "known words"),
        (15, "known words"),
        (19, "a GPU once"),
        (25, "the file follows its schema"),
        (34, "known words"),
    ]


def test_a_misspelt_word_is_no_reason_to_find_fault_with_its_default() -> None:
    """The second decode's port is misspelt: its default, the first one's port, is not held against it."""
    _data, problems = read(changed(("          port: 30012\n", "          prt: 30012\n")))
    assert [item["rule"] for item in problems] == ["known words"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("port: 30012", "port: '{{ some_port }}'"),
        ("gpus: [4, 5, 6, 7]", "gpus: '{{ gpus }}'"),
        ("gpus: [4, 5, 6, 7]", "gpus: [4, '{{ x }}']"),
        ("tp_size: 4", "tp_size: '{{ size }}'"),
        ("tp_size: 4", "tp_size: 4\n      page_size: '{{ page }}'"),
        ("p2, gpus", "p2, page_size: '{{ page }}', gpus"),
        ("p2, gpus", "p2, page_size: !vault x, gpus"),
        ("p2, gpus", "p2, disable_overlap_schedule: '{{ x }}', gpus"),
        ("p2, gpus", "p2, transfer_backend: '{{ x }}', gpus"),
        ("p2, gpus", "p2, extra_args: '{{ x }}', extra_env: {UCX_NET_DEVICES: '{{ x }}'}, gpus"),
        ("p2, gpus", "p2, extra_args: ['{{ x }}'], extra_env: '{{ x }}', gpus"),
        ("p2, gpus", "p2, sglang_version: '{{ x }}', gpus"),
        ("/models/large", "'{{ models }}/large'"),
    ],
)
def test_what_is_known_later_is_not_judged(old: str, new: str) -> None:
    assert read(changed((old, new)))[1] == []


def test_what_is_added_up_must_be_written_out() -> None:
    text = changed(
        ("    transfer_backend: nixl\n", "    transfer_backend: nixl\n    extra_args: [--log-requests]\n"),
        ("name: second", "name: second\n          extra_args: '{{ more }}'"),
    )
    (problem,) = read(text)[1]
    assert (problem["rule"], problem["line"]) == ("what is added up is no template", 37)


@pytest.mark.parametrize(
    "change",
    [
        ('api_key: "{{ vault_api_key }}"', "api_key: [canary]"),
        ('api_key: "{{ vault_api_key }}"', "api_key: {canary: canary}"),
        ('api_key: "{{ vault_api_key }}"', "secret_args: canary"),
        ('api_key: "{{ vault_api_key }}"', "secret_args: [canary]"),
        ('api_key: "{{ vault_api_key }}"', "apikey: canary"),
        ('api_key: "{{ vault_api_key }}"', "extra_env: canary"),
        ('api_key: "{{ vault_api_key }}"', "api_key: canary\n    api_key: canary2"),
        ('api_key: "{{ vault_api_key }}"', "api_key: *canary"),
        ('api_key: "{{ vault_api_key }}"', "api_key: !canary"),
        ('api_key: "{{ vault_api_key }}"', "api_key: !!int canary"),
        ('api_key: "{{ vault_api_key }}"', "api_key: [canary"),
        ("  engine:\n    transfer_backend: nixl\n", "  engine: canary\n  vars:\n"),
        ("  small:\n", "  small:\n    api_key: canary\n"),
        ("  small:\n", "  small:\n    vars: {pd_engine_api_key: canary}\n"),
    ],
)
def test_no_value_of_a_secret_is_told(change: tuple[str, str]) -> None:
    _data, problems = read(changed(change))
    assert problems
    told = str([(item["rule"], item["message"], item["path"]) for item in problems])
    assert "canary" not in told


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "[]",
        "- plugin: inferops.sglang_pd.topology\n",
        "text",
        "3",
        "null",
        "plugin: inferops.sglang_pd.topology\n",
        "plugin: inferops.sglang_pd.topology\nclusters:\n",
        "plugin: inferops.sglang_pd.topology\nclusters: []\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {}\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {a: }\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {a: {members: {prefill: x}}}\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {a: {members: {prefill: [x, 3, null, []]}}}\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {a: {members: {prefill: [{host: 3}], decode: {}}}}\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {a: {members: {prefill: [{host: a, vars: 3, nnodes: x}]}}}\n",
        "plugin: inferops.sglang_pd.topology\ndefaults: []\nclusters: {a: {members: {}}}\n",
        "plugin: inferops.sglang_pd.topology\ndefaults: {engine: 3, vars: []}\nclusters: {a: {engine: []}}\n",
        "plugin: inferops.sglang_pd.topology\nclusters: {1: {members: {}}, true: 3, null: 4}\n",
        "hosts:\n\tbox:\n",
    ],
)
def test_what_is_no_fleet_at_all_is_told_and_nothing_breaks(text: str) -> None:
    data, problems = read(text)
    assert problems
    assert all(item["line"] >= 1 and item["message"] for item in problems)
    assert _fleet.members_of(data) == []


def test_of_very_many_problems_the_first_ones_are_told() -> None:
    text = GOOD + "".join("  c{0}: 3\n".format(number) for number in range(3000))
    _data, mark, problems = fleet_file.read(text)
    lines = fleet_file.describe("f", mark, problems)
    assert len(lines) == fleet_file.MOST_PROBLEMS + 1
    assert all("takes a mapping, a number is given [rule: the file follows its schema]" in one for one in lines[:-1])
    assert lines[-1] == "and more"
