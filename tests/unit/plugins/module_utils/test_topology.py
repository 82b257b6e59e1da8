# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Members from variables, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _topology

FLAT: dict[str, Any] = {
    "port": 30000,
    "bootstrap_port": 8998,
    "gpus": [],
    "nnodes": 1,
    "node_rank": 0,
    "dist_init_addr": "",
    "settings": {},
    "extra_args": [],
    "extra_env": {},
}


def engines(role: str = "prefill", host: str = "a", cluster: Any = "c", **more: Any) -> tuple[Any, Any]:
    given = {"flat": FLAT, "engines": [], "settings": {"model_path": "/m", "tp_size": 1}, **more}
    return _topology.resolve_engines(role, host, cluster, address=host, listen="0.0.0.0", **given)


def cluster(**changes: Any) -> list[dict[str, Any]]:
    """A prefill, a decode and a router on three hosts; changes go into the decode's settings."""
    (prefill,), _none = engines("prefill", "a")
    (decode,), _none = engines("decode", "b", flat=dict(FLAT, port=30002, settings=changes))
    flat = {"port": 30001, "metrics_port": 29000, "package": "smg", "extra_args": [], "extra_env": {}, "flags": []}
    (router,), _none = _topology.resolve_routers("r", "c", flat, [], {}, "r", "0.0.0.0")
    return [prefill, decode, router]


def rules(problems: list[dict[str, str]]) -> list[str]:
    return [item["rule"] for item in problems]


def test_a_good_cluster_has_no_problems() -> None:
    assert _topology.problems_of(cluster()) == []
    assert [member["unit"] for member in cluster()] == [
        "sglang-c-prefill.service",
        "sglang-c-decode.service",
        "sglang-c-router.service",
    ]


@pytest.mark.parametrize("key", ["page_size", "kv_cache_dtype", "context_length", "transfer_backend", "model_path"])
def test_S3_prefill_and_decode_that_disagree_are_refused(key: str) -> None:
    (problem,) = _topology.problems_of(cluster(**{key: "other"}))
    assert problem["rule"] == "prefill and decode agree"
    assert problem["variable"] == "pd_engine_" + key
    assert "sglang-c-decode.service on b" in problem["message"]


def test_S3_engines_of_different_versions_are_refused() -> None:
    members = cluster()
    members[0]["version"], members[1]["version"] = "0.5.23", "0.5.16"
    assert rules(_topology.problems_of(members)) == ["prefill and decode agree"]


@pytest.mark.parametrize("role", ["prefill", "decode", "router"])
def test_a_cluster_without_a_role_is_refused(role: str) -> None:
    members = [member for member in cluster() if member["role"] != role]
    (problem,) = _topology.problems_of(members)
    assert problem["message"] == "cluster c has no {0}: no host with pd_cluster c is in group pd_{0}".format(role)


def test_S9_gpus_given_twice_too_few_or_shared_are_refused() -> None:
    assert "a GPU once" in rules(engines(flat=dict(FLAT, gpus=[0, 0]))[1])
    assert "GPUs match the parallel sizes" in rules(engines(flat=dict(FLAT, gpus=[0], settings={"tp_size": 4}))[1])
    pair = [{"name": "x", "gpus": [0]}, {"name": "y", "gpus": [0], "port": 31000, "bootstrap_port": 9000}]
    members, _none = engines(engines=pair)
    assert "a GPU once" in rules(_topology.problems_of(members))


def test_R12_one_bootstrap_port_for_two_prefills_of_a_host_is_refused() -> None:
    members, _none = engines(engines=[{"name": "x"}, {"name": "y", "port": 31000}])
    found = [item for item in _topology.problems_of(members) if item["rule"] == "a port once per host"]
    assert found[0]["variable"] == "pd_prefill_bootstrap_port"
    assert found[0]["host"] == "a"


def test_R14_ranks_of_an_engine_are_one_engine_and_complete() -> None:
    both = dict(FLAT, nnodes=2, dist_init_addr="a:20000")
    (rank0,), _none = engines(host="a", flat=both)
    (rank1,), _none = engines(host="b", flat=dict(both, node_rank=1))
    assert rank0["engine"] == rank1["engine"]
    assert rank1["unit"] == "sglang-c-prefill-rank1.service"
    rest = cluster()[1:]
    assert _topology.problems_of([rank0, rank1, *rest]) == []
    assert rules(_topology.problems_of([rank0, *rest])) == ["ranks of an engine rendezvous"]
    assert "ranks of an engine rendezvous" in rules(engines(flat=dict(both, node_rank=2))[1])
    assert "ranks of an engine rendezvous" in rules(engines(flat=dict(both, dist_init_addr=""))[1])


def test_variables_that_no_role_has_are_refused_with_a_hint() -> None:
    known = ["pd_engine_target_ctas", "pd_prefill_port"]
    given = ["pd_engine_targt_ctas", "pd_decode_tp_size", "pd_prefill_port", "pd_cluster", "ansible_host"]
    first, second = _topology.unknown_variables(given, known, "a")
    assert "pd_decode_settings.tp_size" in first["message"]
    assert "did you mean pd_engine_target_ctas?" in second["message"]


def test_what_may_be_secret_stays_off_the_disk() -> None:
    (member,), _none = engines(flat=dict(FLAT, extra_env={"HF_TOKEN": "x"}, extra_args=["--a", "b"]))
    kept = _topology.member_file(member, dict.fromkeys(_topology.OF_THE_UNIT, "x"), version="1")
    assert not {"extra_env", "extra_args"} & set(kept)


@pytest.mark.parametrize(
    ("pinned", "ib_device", "backend", "message"),
    [
        ("mlx5_0:1", "", "nixl", "names no interface that speaks TCP"),
        ("mlx5_0:1,mlx5_1:1", "", "nixl", "names no interface that speaks TCP"),
        ("mlx5_0:1,eth0", "mlx5_0", "nixl", "overrides ib_device mlx5_0"),
        ("mlx5_0:1,eth0", "", "nixl", ""),
        ("lo", "", "nixl", ""),
        ("mlx5_0:1", "mlx5_0", "mooncake", ""),
    ],
)
def test_S8_two_choices_of_network_devices_are_refused(pinned: str, ib_device: str, backend: str, message: str) -> None:
    settings = {"model_path": "/m", "ib_device": ib_device, "transfer_backend": backend}
    _members, problems = engines(flat=dict(FLAT, extra_env={"UCX_NET_DEVICES": pinned}), settings=settings)
    assert [item["rule"] for item in problems] == ["one choice of network devices"] * bool(message)
    assert all(message in item["message"] and item["variable"] == "pd_engine_extra_env" for item in problems)
