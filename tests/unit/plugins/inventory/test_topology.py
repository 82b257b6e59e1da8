# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugin as Ansible runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
SHOWN = ROOT / "inventory/fleet"
GOOD = """\
plugin: inferops.sglang_pd.topology
defaults:
  vars:
    ansible_user: ops
clusters:
  one:
    engine:
      model_path: /m
      api_key: "{{ vaulted }}"
    members:
      prefill: [{host: a}]
      decode: [{host: b, address: "{{ ansible_host }}"}]
      router: [{host: a}]
"""


def ansible(command: str, *arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [command, *[str(word) for word in arguments]]
    return subprocess.run(words, check=False, capture_output=True, text=True, env={**os.environ, **environment})


def listed(*sources: Any, **environment: str) -> Any:
    """What ansible-inventory --list says of these sources."""
    options = [word for source in sources for word in ("-i", source)]
    done = ansible("ansible-inventory", "--list", *options, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*sources: Any, **environment: str) -> str:
    """What Ansible says when it refuses these sources."""
    options = [word for source in sources for word in ("-i", source)]
    done = ansible("ansible-inventory", "--list", *options, **environment)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


def file(folder: Path, text: str, name: str = "fleet.sglang_pd.yml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def example() -> Any:
    return listed(SHOWN)


@pytest.mark.parametrize("by_hand", ["one_box", "multi_node"])
def test_the_examples_give_the_groups_and_variables_of_the_hand_written_inventories(by_hand: str, example: Any) -> None:
    expected = listed(ROOT / "inventory" / by_hand)
    hosts = expected["_meta"]["hostvars"]
    assert {host: example["_meta"]["hostvars"][host] for host in hosts} == hosts
    for group in ("pd_prefill", "pd_decode", "pd_router"):
        assert [host for host in example[group]["hosts"] if host in hosts] == expected[group]["hosts"]


def test_the_graph_of_the_examples_reads_well() -> None:
    done = ansible("ansible-inventory", "-i", SHOWN, "--graph")
    assert done.stdout == (
        "@all:\n"
        "  |--@ungrouped:\n"
        "  |--@pd_prefill:\n"
        "  |  |--gpu1.example.com\n"
        "  |  |--prefill1.example.com\n"
        "  |  |--prefill2a.example.com\n"
        "  |  |--prefill2b.example.com\n"
        "  |--@pd_decode:\n"
        "  |  |--gpu1.example.com\n"
        "  |  |--decode1.example.com\n"
        "  |--@pd_router:\n"
        "  |  |--gpu1.example.com\n"
        "  |  |--router1.example.com\n"
        "  |  |--router2.example.com\n"
        "  |--@pd_cluster_dsv4:\n"
        "  |  |--gpu1.example.com\n"
        "  |--@pd_cluster_large:\n"
        "  |  |--prefill1.example.com\n"
        "  |  |--prefill2a.example.com\n"
        "  |  |--prefill2b.example.com\n"
        "  |  |--decode1.example.com\n"
        "  |  |--router1.example.com\n"
        "  |  |--router2.example.com\n"
    )


def test_the_examples_pass_the_preflight_and_hold_the_founding_settings(example: Any) -> None:
    done = ansible("ansible-playbook", "-i", SHOWN, "inferops.sglang_pd.preflight")
    assert done.returncode == 0, done.stdout
    its = example["_meta"]["hostvars"]["gpu1.example.com"]
    assert its["pd_engine_target_ctas"] == 512
    assert its["pd_engine_cuda_graph_max_bs"] == 96
    assert its["pd_engine_disable_overlap_schedule"] is True
    assert its["pd_engine_multi_stream_overlap"] is False


def test_limit_takes_a_cluster_by_its_group() -> None:
    playbook = "inferops.sglang_pd.preflight"
    done = ansible("ansible-playbook", "-i", SHOWN, playbook, "--limit", "pd_cluster_dsv4", "--list-hosts")
    assert re.search(r"hosts \(1\):\n +gpu1\.example\.com\n", done.stdout), done.stdout


def test_it_composes_with_other_sources_and_with_variables_beside_it(tmp_path: Path) -> None:
    file(tmp_path, GOOD)
    file(tmp_path, "all: {hosts: {b: {ansible_host: 10.0.0.2}, c: {}}, vars: {vaulted: s3cret}}\n", "zz_other.yml")
    for folder, name, text in (
        ("group_vars", "pd_cluster_one.yml", "pd_engine_log_level: debug\npd_engine_model_path: /loses\n"),
        ("host_vars", "a.yml", "pd_engine_model_path: /wins\n"),
    ):
        (tmp_path / folder).mkdir()
        file(tmp_path / folder, text, name)
    done = listed(tmp_path)
    its = done["_meta"]["hostvars"]
    assert its["b"]["pd_engine_model_path"] == "/m"
    assert its["a"]["pd_engine_model_path"] == "/wins"
    assert its["a"]["pd_engine_log_level"] == "debug"
    assert its["a"]["ansible_user"] == "ops"
    assert done["all"]["children"][0] == "ungrouped"
    assert done["ungrouped"]["hosts"] == ["c"]
    said = ansible("ansible", "-i", tmp_path, "b", "-m", "ansible.builtin.debug", "-a", "var=pd_engine_address")
    assert "10.0.0.2" in said.stdout, said
    said = ansible("ansible", "-i", tmp_path, "b", "-m", "ansible.builtin.debug", "-a", "var=pd_engine_api_key")
    assert "s3cret" in said.stdout, said


def test_values_and_whole_files_may_be_encrypted(tmp_path: Path) -> None:
    password = file(tmp_path, "password\n", "password")
    vault = {"ANSIBLE_VAULT_PASSWORD_FILE": str(password)}
    secret = ansible("ansible-vault", "encrypt_string", "the secret", "--name", "api_key", **vault).stdout
    text = GOOD.replace('api_key: "{{ vaulted }}"', secret.rstrip().replace("\n", "\n      "))
    path = file(tmp_path, text.replace("model_path: /m", 'model_path: !unsafe "{{ no template }}"'))
    debug = ("-m", "ansible.builtin.debug", "-a", '{"msg": "{{ pd_engine_api_key }}, {{ pd_engine_model_path }}"}')
    said = ansible("ansible", "-i", path, "a", *debug, **vault)
    assert "the secret, {{ no template }}" in said.stdout, said
    assert ansible("ansible-vault", "encrypt", path, **vault).returncode == 0
    assert "the secret" not in path.read_text()
    said = ansible("ansible", "-i", path, "a", *debug, **vault)
    assert "the secret, {{ no template }}" in said.stdout, said
    assert "Decryption failed" in refused(path, ANSIBLE_VAULT_PASSWORD_FILE=str(file(tmp_path, "other\n", "other")))


def test_all_problems_are_told_in_one_message_a_line_each(tmp_path: Path) -> None:
    text = GOOD.replace("model_path: /m", "model_pth: /m").replace("{host: b", "{host: b, port: many")
    path = file(tmp_path, text)
    told = refused(path)
    message = (
        f"[ERROR]: Refused, wrong in the topology:\n"
        f"- {path}:8: clusters.one.engine.model_pth: model_pth is unknown; did you mean model_path?"
        f" [rule: known words]\n"
        f"- {path}:12: clusters.one.members.decode[0].port: port takes a whole number (or a template), a text is given"
        f" [rule: the file follows its schema]\n"
    )
    assert message in told.replace("ERROR! ", "[ERROR]: "), told


def test_a_host_and_a_cluster_are_described_in_one_file(tmp_path: Path) -> None:
    file(tmp_path, GOOD, "1.sglang_pd.yml")
    file(tmp_path, GOOD.replace("{host: a}", "{host: c}"), "2.sglang_pd.yml")
    told = refused(tmp_path)
    assert "2.sglang_pd.yml:6: clusters.one: another source of the inventory has hosts in group pd_cluster_one" in told
    assert "2.sglang_pd.yml:12: clusters.one.members.decode[0].host: host b is a member of a cluster in another" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", ":1: the file is empty"),
        (b"[]\n", ":1: the file takes a mapping, a list is given"),
        (
            b"clusters:\n\tone: {}\n",
            ":2: while scanning for the next token found character that cannot start any token",
        ),
        (b"\xff\xfe\n", ":1: the file is not in UTF-8"),
        (
            b"plugin: inferops.sglang_pd.topology\nclusters: {one: {members: }}\n",
            ":2: clusters.one.members: members takes",
        ),
    ],
)
def test_a_malformed_file_is_told_in_one_line(text: bytes, told: str, tmp_path: Path) -> None:
    path = file(tmp_path, "")
    path.write_bytes(text)
    said = refused(path, ANSIBLE_INVENTORY_ENABLED="inferops.sglang_pd.topology")
    assert f"{path}{told}" in re.sub(r"\s+", " ", said), said


def test_a_file_of_ten_megabytes_that_is_no_fleet_is_told_shortly(tmp_path: Path) -> None:
    path = file(tmp_path, "".join(f"key{number:06}: nothing of ours\n" for number in range(400_000)))
    said = refused(path, ANSIBLE_INVENTORY_ENABLED="inferops.sglang_pd.topology")
    assert path.stat().st_size > 10_000_000
    assert len(said) < 50_000
    assert f"{path}:1: " in said


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    file(tmp_path, "raise ImportError\n", "jsonschema.py")
    python_path = f"{tmp_path}:{os.environ['PYTHONPATH']}"
    said = re.sub(r"\s+", " ", refused(file(tmp_path, GOOD), PYTHONPATH=python_path))
    assert "Failed to import the required Python library (jsonschema)" in said


def test_the_documentation_is_complete() -> None:
    done = ansible("ansible-doc", "--type", "inventory", "inferops.sglang_pd.topology")
    assert done.returncode == 0, done.stderr
    assert "SGLang prefill/decode clusters" in ansible("ansible-doc", "-t", "inventory", "-l").stdout
