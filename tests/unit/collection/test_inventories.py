# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventories that users are shown pass the preflight, which connects to no host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def preflight(inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["ansible-playbook", "-i", str(inventory), "inferops.sglang_pd.preflight", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["one_box", "multi_node"])
def test_example_inventory_passes_the_preflight(name: str) -> None:
    done = preflight(ROOT / "inventory" / name)
    assert done.returncode == 0, done.stdout
    assert "unreachable=0" in done.stdout
    assert "changed=0" in done.stdout


def test_inventory_of_the_readme_passes_the_preflight(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(blocks[0])
    assert len(blocks[0].splitlines()) == 5
    done = preflight(inventory)
    assert done.returncode == 0, done.stdout


def test_founding_settings_are_those_of_the_example() -> None:
    text = (ROOT / "inventory/one_box/group_vars/all.yml").read_text()
    for line in (
        "pd_engine_target_ctas: 512",
        "pd_engine_cuda_graph_max_bs: 96",
        "pd_engine_disable_overlap_schedule: true",
        "pd_engine_multi_stream_overlap: false",
    ):
        assert line in text


def test_two_clusters_that_share_a_port_on_a_host_are_refused(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        """
pd_prefill: {hosts: {box: }}
pd_decode: {hosts: {box: }}
pd_router: {hosts: {box: }}
all:
  vars:
    pd_cluster: [one, two]
    pd_engine_model_path: /m
    pd_prefill_engines: [{cluster: one}, {cluster: two, port: 31000}]
    pd_decode_engines: [{cluster: one}, {cluster: two, port: 31002}]
    pd_router_routers: [{cluster: one}, {cluster: two, port: 31001, metrics_port: 29001}]
"""
    )
    done = preflight(inventory)
    assert done.returncode != 0
    assert "port 8998 of sglang-two-prefill.service (pd_prefill_bootstrap_port) is already that of" in done.stdout
    assert "host box, variable pd_prefill_bootstrap_port" in done.stdout
    assert "rule: a port once per host" in done.stdout
