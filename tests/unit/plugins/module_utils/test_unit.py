# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What units run, and its hash."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _unit

from ..fleet import member

INSTALL: dict[str, Any] = {
    "python": "/opt/sglang/bin/python",
    "version": "0.5.23",
    "secrets_file": "/etc/sglang-pd/secrets/u.json",
    "secrets": {},
    "patches": [],
}
ROUTER_INSTALL = dict(INSTALL, launcher="/opt/sglang/launch.py")


def engine(role: str = "prefill", **more: Any) -> dict[str, Any]:
    return member(role, "p", **{"extra_args": [], "extra_env": {}, **more})


def router(**more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"package": "smg", "settings": {}, "extra_args": [], "extra_env": {}, **more}
    return member("router", "r", **given)


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


def test_a_prefill_has_its_bootstrap_port_and_a_decode_has_none() -> None:
    words = _unit.engine_unit(engine(), INSTALL)["exec_start"]
    assert words[:3] == ["/opt/sglang/bin/python", "-m", "sglang.launch_server"]
    assert after(words, "--disaggregation-mode") == "prefill"
    assert after(words, "--disaggregation-bootstrap-port") == "8998"
    assert "--disaggregation-bootstrap-port" not in _unit.engine_unit(engine("decode"), INSTALL)["exec_start"]


def test_the_incarnation_is_a_label_of_every_metric() -> None:
    words = _unit.engine_unit(engine(), INSTALL)["exec_start"]
    assert after(words, "--extra-metric-labels") == '{"invocation":"${INVOCATION_ID}"}'
    assert '\\"${INVOCATION_ID}\\"' in _unit.systemd_command(words)


def test_R14_ranks_know_how_to_meet() -> None:
    one = engine(nnodes=2, node_rank=1, dist_init_addr="p:5000")
    words = _unit.engine_unit(one, INSTALL)["exec_start"]
    assert [after(words, flag) for flag in ("--nnodes", "--node-rank", "--dist-init-addr")] == ["2", "1", "p:5000"]
    assert "--nnodes" not in _unit.engine_unit(engine(), INSTALL)["exec_start"]


def test_H12_secrets_are_in_no_argument_and_no_public_environment() -> None:
    install = dict(INSTALL, secrets={"api-key": "s3cret"})
    unit = _unit.engine_unit(engine(extra_env={"TOKEN": "t0ken"}), install)
    assert after(unit["exec_start"], "--config") == INSTALL["secrets_file"]
    assert "s3cret" not in str(unit)
    assert "t0ken" not in str(unit["exec_start"]) + str(unit["environment"])
    assert unit["private_environment"] == {"TOKEN": "t0ken"}
    routed = _unit.router_unit(router(), [], dict(ROUTER_INSTALL, secrets={"api-key": "s3cret"}))
    assert "s3cret" not in str(routed)


@pytest.mark.parametrize(
    ("changed_engine", "changed_install"),
    [
        ({"port": 30009}, {}),
        ({"settings": {"model_path": "/other"}}, {}),
        ({"extra_env": {"A": "1"}}, {}),
        ({"gpus": [0, 1]}, {}),
        ({}, {"version": "0.5.16"}),
        ({}, {"secrets": {"api-key": "x"}}),
        ({}, {"patches": [{"name": "p", "sha256": "s"}]}),
    ],
)
def test_S5_the_hash_follows_everything_that_the_process_reads(
    changed_engine: dict[str, Any], changed_install: dict[str, Any]
) -> None:
    before = _unit.engine_unit(engine(), INSTALL)["configuration"]
    assert _unit.engine_unit(engine(), dict(INSTALL))["configuration"] == before
    one = dict(engine(), **changed_engine)
    assert _unit.engine_unit(one, dict(INSTALL, **changed_install))["configuration"] != before


def test_S4_and_S7_settings_without_a_flag_become_environment() -> None:
    one = engine(settings={"model_path": "/m", "target_ctas": 512, "multi_stream_overlap": False}, gpus=[4, 5])
    assert _unit.engine_unit(one, INSTALL)["environment"] == {
        "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP": "0",
        "TARGET_CTAS": "512",
        "CUDA_VISIBLE_DEVICES": "4,5",
    }


@pytest.mark.parametrize(
    ("package", "module"), [("smg", ["smg", "launch"]), ("sglang-router", ["sglang_router.launch_router"])]
)
def test_a_router_knows_its_workers_by_role(package: str, module: list[str]) -> None:
    words = _unit.router_unit(router(package=package), [member("prefill", "p"), member("decode", "d")], ROUTER_INSTALL)[
        "exec_start"
    ]
    start = words.index("-m") + 1
    assert words[start : start + len(module)] == module
    place = words.index("--prefill")
    assert words[place + 1 : place + 3] == ["http://p:30000", "8998"]
    assert after(words, "--decode") == "http://d:30002"


def test_router_settings_that_are_not_set_are_left_to_the_router() -> None:
    words = _unit.router_unit(router(settings={"policy": "random", "log_level": ""}), [], ROUTER_INSTALL)["exec_start"]
    assert after(words, "--policy") == "random"
    assert "--log-level" not in words


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain", '"A=plain"'),
        ('say "hi"', '"A=say \\"hi\\""'),
        ("100%", '"A=100%%"'),
        ("$HOME", '"A=$HOME"'),
        ("two\nlines", '"A=two\\nlines"'),
        ("a\\b", '"A=a\\\\b"'),
        ("", '"A="'),
    ],
)
def test_environment_reaches_the_process_unchanged(value: str, line: str) -> None:
    assert _unit.systemd_environment("A", value) == line


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("a;b", '"a;b"'),
        (";", '";"'),
        ("it's", '"it\'s"'),
        ("a\nb", '"a\\nb"'),
        ("$${INVOCATION_ID}", '"$$${INVOCATION_ID}"'),
        ("#x", '"#x"'),
        ("~", '"~"'),
        ("*", '"*"'),
        ("naïve", '"naïve"'),
    ],
)
def test_nothing_in_a_word_means_something_to_systemd(word: str, quoted: str) -> None:
    assert _unit.systemd_word(word) == quoted


def test_a_command_has_one_option_a_line() -> None:
    assert _unit.systemd_command(["/p", "-m", "x", "--a", "1 2", "--b"]) == '/p -m x \\\n  --a "1 2" \\\n  --b'
