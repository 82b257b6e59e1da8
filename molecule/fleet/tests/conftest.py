# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Six clusters of one model; rolls with small limits, each test with a directory of its own for them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import SMALL_LIMITS, Cluster, Member, by_host, clear_faults_of, incarnations_of, members_on, wait_for
from controller import Controller

CLUSTERS = ("a", "b", "c", "d", "e", "f")
#: Everything restarts, at most half of it at a time, and what a test waits for ends soon.
SMALL_ROLL = {
    **SMALL_LIMITS,
    "pd_roll_when": "always",
    "pd_roll_max_unavailable": "50%",
    "pd_roll_batch": "50%",
    "pd_roll_soak_seconds": 0,
    "pd_roll_requests": 2,
}
#: Prints the outcome and the incarnation of ledgers.
LEDGERS = "import json, sys; [print('{outcome}:{incarnation}'.format(**json.load(open(a)))) for a in sys.argv[1:]]"
PLAYBOOK = "inferops.sglang_pd.rolling_co_restart"


class Rolls:
    """The directory of the rolls of one test."""

    def __init__(self, directory: Path):
        self.directory = directory

    @property
    def newest(self) -> Path:
        """Directory of the last roll."""
        return max(self.directory.iterdir(), key=lambda path: path.stat().st_ctime_ns)

    @property
    def plan(self) -> dict[str, Any]:
        """Plan of the last roll."""
        return dict(json.loads((self.newest / "plan.json").read_text()))

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its events so far."""
        if not self.directory.exists() or not any(self.directory.iterdir()):
            return []
        file = self.newest / "events.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def has(self, event: str, **facts: Any) -> bool:
        """Whether an event with these facts happened."""
        return any(one["event"] == event and facts.items() <= one.items() for one in self.events)

    @property
    def outcomes(self) -> dict[str, str]:
        """What became of the clusters."""
        return {one["cluster"]: one["outcome"] for one in self.events if one["event"] == "cluster_ended"}

    @property
    def end(self) -> dict[str, Any]:
        """The event that ended it."""
        return next(one for one in reversed(self.events) if one["event"] == "roll_ended")

    def wait_for(self, event: str, **facts: Any) -> None:
        """Wait until something happened in the roll."""
        wait_for(f"{event} {facts}", lambda: self.has(event, **facts), limit_seconds=180)


@pytest.fixture
def rolls(tmp_path: Path) -> Rolls:
    """Where the rolls of this test are."""
    return Rolls(tmp_path / "rolls")


@pytest.fixture
def given(rolls: Rolls) -> Callable[..., dict[str, object]]:
    """Variables of a roll; those of the roll without their prefix."""

    def make(**options: object) -> dict[str, object]:
        own = {name if name.startswith("pd_") else f"pd_roll_{name}": value for name, value in options.items()}
        return {**SMALL_ROLL, "pd_roll_dir": str(rolls.directory), **own}

    return make


@pytest.fixture
def roll(run_playbook, given):
    """Roll the fleet; options without their prefix."""

    def run(*args: str, limit: str | None = None, **options: object):
        return run_playbook("rolling_co_restart", *args, limit=limit, extra_vars=given(**options))

    return run


@pytest.fixture
def start_roll(inventory, given) -> Iterator[Callable[..., Controller]]:
    """Start a roll and go on without awaiting it."""
    started: list[Controller] = []

    def start(**options: object) -> Controller:
        started.append(Controller(inventory, PLAYBOOK, given(**options)))
        return started[-1]

    yield start
    for controller in started:
        controller.close()


class Fleet:
    """The six clusters."""

    def __init__(self, clusters: dict[str, Cluster]):
        self.clusters = clusters

    def __getitem__(self, name: str) -> Cluster:
        return self.clusters[name]

    @property
    def members(self) -> list[Member]:
        """Members of all clusters."""
        return [member for one in self.clusters.values() for member in one.members]

    def is_settled(self) -> bool:
        """Whether each process is what a co-restart left and proved, and started from what is deployed."""
        for there in by_host(self.members):
            compared = " && ".join(
                f"cmp -s /etc/sglang-pd/members/{one.unit}.json /run/{one.unit}/member.json && "
                f"systemctl is-active --quiet {one.unit}"
                for one in there
            )
            ledgers = " ".join(f"/var/lib/sglang-pd/ledger/{one.unit}.json" for one in there)
            told = there[0].on.run(f"{compared} && python3 -c {shlex.quote(LEDGERS)} {ledgers}")
            now = incarnations_of(there)
            if told.rc or told.stdout.split() != [f"ok:{now[f'{one.host} {one.unit}']}" for one in there]:
                return False
        return True

    def incarnations(self, names: str = "abcdef") -> dict[str, dict[str, str]]:
        """Incarnations of these clusters."""
        found = incarnations_of(self.members)
        return {
            name: {unit: found[unit] for unit in (f"{one.host} {one.unit}" for one in self.clusters[name].members)}
            for name in names
        }

    def generations(self) -> dict[str, int]:
        """Newest generation of each cluster."""
        return {name: one.one("prefill").ledger["generation"] for name, one in self.clusters.items()}

    def restarted_since(self, before: dict[str, dict[str, str]]) -> str:
        """Names of the clusters of which every unit is a new incarnation; all others must be untouched."""
        found = ""
        now = self.incarnations()
        for name, old in before.items():
            new = now[name]
            changed = {unit for unit in old if old[unit] != new[unit]}
            assert changed in (set(), set(old)), f"cluster {name} is half-restarted: {changed}"
            found += name if changed else ""
        return found

    def locked_or_reserved(self) -> list[str]:
        """Files of locks and reservations that are left on the hosts."""
        found = []
        for one in self.clusters.values():
            listed = one.one("prefill").on.run("ls /var/lib/sglang-pd/lock/*.json /var/lib/sglang-pd/roll/*.json")
            found += listed.stdout.split()
        return found


@pytest.fixture
def fleet(cluster_hosts, run_playbook) -> Fleet:
    """All clusters in a good state."""
    deployed = members_on(cluster_hosts)
    found = Fleet({name: Cluster(name, deployed) for name in CLUSTERS})
    clear_faults_of(deployed)
    if not found.is_settled():
        healed = run_playbook("co_restart", extra_vars={**SMALL_LIMITS, "pd_co_restart_when": "when_due"})
        assert healed.rc == 0, healed
    return found
