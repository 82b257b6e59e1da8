# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cluster main is what the tests break; other, on the same hosts, is what has to be left alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping

import pytest
from cluster import SMALL_LIMITS, Cluster, Member, wait_for
from controller import Controller

#: Cluster main alone, and what a test waits for in vain ends soon.
MAIN = {**SMALL_LIMITS, "pd_co_restart_clusters": ["main"]}
#: Process, listeners and files that a test may leave on a host.
DROP_IN = "/run/systemd/system/{unit}.d/fault.conf"


def is_good(cluster: Cluster) -> bool:
    """Whether a cluster is as a co-restart leaves it."""
    ledgers = [member.ledger for member in cluster.members]
    return (
        all(
            member.shown("ActiveState", "InvocationID")
            == {"ActiveState": "active", "InvocationID": ledger["incarnation"]}
            for member, ledger in zip(cluster.members, ledgers)
        )
        and {ledger["outcome"] for ledger in ledgers} == {"ok"}
        and len({ledger["generation"] for ledger in ledgers}) == 1
        and bool(cluster.ask(limit_seconds=5))
    )


@pytest.fixture
def co_restart(run_playbook):
    """Co-restart main with small limits; options without their prefix."""

    def run(*args: str, limit: str | None = None, **options: object):
        given = {f"pd_co_restart_{name}": value for name, value in options.items()}
        return run_playbook("co_restart", *args, limit=limit, extra_vars={**MAIN, **given})

    return run


@pytest.fixture
def heal(co_restart):
    """Bring a cluster to a good state, at the price of a co-restart only where it is not in one."""

    def run(cluster: Cluster) -> None:
        for member in cluster.members:
            member.faults()
        if not is_good(cluster):
            done = co_restart(clusters=[cluster.name])
            assert done.rc == 0, done
        assert is_good(cluster)

    return run


@pytest.fixture
def main(cluster, heal) -> Iterator[Cluster]:
    """Cluster main in a good state; whatever becomes of it, cluster other is left alone."""
    main, other = cluster("main"), cluster("other")
    heal(main)
    before = other.incarnations()
    yield main
    main.clear_faults()
    assert other.incarnations() == before, "cluster other was touched"
    other.assert_serves(requests=2)


@pytest.fixture
def without_network(on, cluster, hosts_command):
    """Take a host off the network for a while.

    Cluster other has a decode there too: what its router makes of that is not what is
    tested, so it is given the time to find its worker again.
    """

    @contextlib.contextmanager
    def cut(host: str) -> Iterator[None]:
        hosts_command("cut", host)
        try:
            yield
        finally:
            hosts_command("join", host)
        wait_for(f"{host} answers again", lambda: on(host).run("true").rc == 0)
        wait_for("cluster other serves again", lambda: cluster("other").ask(limit_seconds=5), limit_seconds=180)

    return cut


@pytest.fixture
def drop_in() -> Iterator[Callable[..., None]]:
    """Lines for a section of a unit, until the end of the test."""
    written: list[Member] = []

    def write(member: Member, lines: str, section: str = "Service") -> None:
        written.append(member)
        file = DROP_IN.format(unit=member.unit)
        member.on.check_output(
            f"mkdir -p $(dirname {file}) && printf '[{section}]\\n%%b\\n' %s > {file} && systemctl daemon-reload", lines
        )

    yield write
    for member in written:
        member.on.check_output(f"rm -f {DROP_IN.format(unit=member.unit)} && systemctl daemon-reload")


@pytest.fixture
def healthy_limit() -> Iterator[Callable[[Member, int], None]]:
    """Change the seconds that a member may take to become healthy, until the end of the test."""
    changed: list[tuple[Member, str]] = []

    def write(member: Member, seconds: int) -> None:
        file = f"/etc/sglang-pd/members/{member.unit}.json"
        content = member.on.file(file).content_string
        changed.append((member, content))
        new = json.dumps({**json.loads(content), "healthy_limit_seconds": seconds})
        member.on.check_output(f"printf %%s %s > {file}", new)

    yield write
    for member, content in reversed(changed):
        member.on.check_output(f"printf %%s %s > /etc/sglang-pd/members/{member.unit}.json", content)


@pytest.fixture
def start_co_restart(inventory) -> Iterator[Callable[..., Controller]]:
    """Start a co-restart of main and go on without awaiting it; options without their prefix."""
    started: list[Controller] = []

    def start(**options: object) -> Controller:
        given = {f"pd_co_restart_{name}": value for name, value in options.items()}
        started.append(Controller(inventory, "inferops.sglang_pd.co_restart", {**MAIN, **given}))
        return started[-1]

    yield start
    for controller in started:
        controller.close()


@pytest.fixture
def lock() -> Iterator[Callable[[Cluster, Mapping[str, object]], None]]:
    """Hold a cluster's lock as another run would; it is gone at the end of the test."""
    held: list[tuple[Member, str]] = []

    def write(cluster: Cluster, run: Mapping[str, object], deadline_in_seconds: int) -> None:
        prefill = cluster.one("prefill")
        file = f"/var/lib/sglang-pd/lock/{cluster.name}.json"
        now = int(prefill.on.check_output("date +%s"))
        content = {
            "run": run,
            "generation": prefill.ledger["generation"] + 1,
            "since": now - 30,
            "deadline": now + deadline_in_seconds,
            "taken_over_from": None,
        }
        held.append((prefill, file))
        prefill.on.check_output(f"mkdir -p $(dirname {file}) && printf %%s %s > {file}", json.dumps(content))

    yield write
    for prefill, file in held:
        prefill.on.check_output(f"rm -f {file}")


def begun(member: Member, generation: int, *phases: str) -> Callable[[], bool]:
    """Whether a member has come to one of these phases of a generation."""

    def check() -> bool:
        ledger = member.ledger
        return ledger["generation"] == generation and ledger["phase"] in phases

    return check


def locked(cluster: Cluster) -> bool:
    """Whether anybody holds the cluster's lock."""
    return cluster.one("prefill").on.file(f"/var/lib/sglang-pd/lock/{cluster.name}.json").exists


__all__ = ["begun", "locked", "wait_for"]
