# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the verify tests of all scenarios share.

``host`` is testinfra's own fixture: one test per host of ``testinfra_hosts``.
A test that looks at several hosts takes ``on`` instead: ``on("box1").service("ssh")``.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import testinfra
from cluster import Cluster, members_on
from testinfra.host import Host

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "inferops.sglang_pd"


@dataclass(frozen=True)
class PlaybookResult:
    """One finished ``ansible-playbook``."""

    command: tuple[str, ...]
    rc: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"rc={self.rc}: {' '.join(self.command)}\n{self.stdout}\n{self.stderr}"


@pytest.fixture(scope="session")
def inventory(pytestconfig: pytest.Config) -> Path:
    """Directory of the scenario's inventory, addresses included."""
    given = pytestconfig.getoption("ansible_inventory")
    assert given, "run with --ansible-inventory=molecule/SCENARIO/inventory/"
    return Path(given).resolve()


@pytest.fixture(scope="session")
def on(inventory: Path) -> Callable[[str], Host]:
    """Testinfra host by its name in the inventory."""

    def get(name: str) -> Host:
        return testinfra.get_host(f"ansible://{name}?ansible_inventory={inventory}")

    return get


@pytest.fixture(scope="session")
def run_playbook(inventory: Path) -> Callable[..., PlaybookResult]:
    """Run a playbook (of the collection, or a file) against the scenario's hosts.

    ``run_playbook("co_restart", "--check", limit="box1", extra_vars={...})``.
    Never raises for a failed play: the test looks at ``rc``.
    """

    def run(
        name: str,
        *args: str,
        extra_vars: Mapping[str, object] | None = None,
        limit: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_seconds: float = 600,
    ) -> PlaybookResult:
        is_file = name.endswith((".yml", ".yaml"))
        playbook = name if is_file or "." in name else f"{COLLECTION}.{name}"
        command = ["ansible-playbook", "-i", str(inventory), playbook, *args]
        if extra_vars:
            command += ["-e", json.dumps(extra_vars)]
        if limit:
            command += ["--limit", limit]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", **(env or {})},
        )
        return PlaybookResult(tuple(command), done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def hosts_command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Act on a host from outside: ``hosts_command("cut", "box2")``.

    Commands: restart, crash, cut, join (see tests/hosts/hosts).
    """
    prefix = f"molecule-{os.environ.get('MOLECULE_SCENARIO_NAME', '')}"

    def run(command: str, *names: str) -> subprocess.CompletedProcess[str]:
        argv: Sequence[str] = [str(ROOT / "tests/hosts/hosts"), command, prefix, *names]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=180)

    return run


@pytest.fixture(scope="session")
def cluster_hosts(on: Callable[[str], Host], inventory: Path) -> dict[str, Host]:
    """All hosts of clusters by name."""
    listed = json.loads(
        subprocess.run(
            ["ansible-inventory", "-i", str(inventory), "--list"], check=True, capture_output=True, text=True
        ).stdout
    )
    names = {host for group in ("pd_prefill", "pd_decode", "pd_router") for host in listed[group]["hosts"]}
    return {name: on(name) for name in names}


@pytest.fixture
def cluster(cluster_hosts: dict[str, Host]) -> Callable[[str], Cluster]:
    """A cluster as it is deployed now: ``cluster("main")``."""

    def get(name: str) -> Cluster:
        return Cluster(name, members_on(cluster_hosts))

    return get
