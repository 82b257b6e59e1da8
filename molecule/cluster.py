# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster on test hosts, as the verify tests of all scenarios look at it."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from testinfra.host import Host

ROLES = ("prefill", "decode", "router")
#: Small limits of a co-restart: what a test waits for in vain ends soon.
SMALL_LIMITS = {
    "pd_co_restart_requests": 2,
    "pd_co_restart_request_limit_seconds": 5,
    "pd_co_restart_drain_limit_seconds": 8,
    "pd_co_restart_drain_stall_seconds": 3,
    "pd_co_restart_settle_limit_seconds": 10,
    "pd_co_restart_settle_stall_seconds": 5,
    "pd_co_restart_verify": "none",
}


def wait_for(what: str, check: Callable[[], Any], limit_seconds: float = 60) -> Any:
    """Poll until a check gives something true, and return that.

    The limit only ends a test that would hang; no test's outcome depends on how long
    it took.
    """
    end = time.monotonic() + limit_seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.2)


@dataclass(frozen=True)
class Member:
    """One unit of a cluster on one test host."""

    on: Host
    host: str
    description: dict[str, Any]

    @property
    def unit(self) -> str:
        """Name of the systemd unit."""
        return str(self.description["unit"])

    @property
    def role(self) -> str:
        """The member's role: prefill, decode or router."""
        return str(self.description["role"])

    @property
    def port(self) -> int:
        """Its HTTP port."""
        return int(self.description["port"])

    def shown(self, *names: str) -> dict[str, str]:
        """Properties of the unit, as systemd shows them."""
        out = self.on.check_output(f"systemctl show --property={','.join(names)} {self.unit}")
        return dict(line.split("=", 1) for line in out.splitlines())

    @property
    def incarnation(self) -> str:
        """InvocationID of the unit."""
        return self.shown("InvocationID")["InvocationID"]

    @property
    def started(self) -> int:
        """Start of the main process, in microseconds of the clock that all test hosts share."""
        return int(self.shown("ExecMainStartTimestampMonotonic")["ExecMainStartTimestampMonotonic"])

    @property
    def is_active(self) -> bool:
        """Whether systemd says that the unit is active."""
        return self.shown("ActiveState")["ActiveState"] == "active"

    @property
    def ledger(self) -> dict[str, Any]:
        """What the host remembers of the unit."""
        content = self.on.file(f"/var/lib/sglang-pd/ledger/{self.unit}.json").content_string
        return dict(json.loads(content))

    def get(self, path: str, *curl: str) -> str:
        """Body of a GET to the member, from its own host."""
        return self.on.check_output(
            f"curl --silent --max-time 20 {' '.join(curl)} http://{self.address}:{self.port}{path}"
        )

    @property
    def address(self) -> str:
        """Where the member listens, seen from its own host."""
        listen = str(self.description["listen"])
        return "127.0.0.1" if listen == "0.0.0.0" else listen

    def faults(self, **faults: Any) -> None:
        """Set the faults of a stand-in engine; none clears them."""
        self.on.check_output(self.command_for_faults(faults))

    def command_for_faults(self, faults: dict[str, Any]) -> str:
        """Return the shell command that sets the faults of a stand-in engine."""
        file = f"/etc/engine_stand_in/{self.port}.json"
        counters = (
            f"/etc/engine_stand_in/engine_stand_in-{self.port}.starts /dev/shm/engine_stand_in-{self.port}.starts"
        )
        content = shlex.quote(json.dumps(faults))
        return (
            f"mkdir -p /etc/engine_stand_in && rm -f {counters} && printf %s {content} > {file}.new && "
            f"mv {file}.new {file}"
        )

    def systemctl(self, verb: str) -> None:
        """Act on the unit by hand, as an operator would."""
        self.on.check_output(f"systemctl {verb} {self.unit}")


def members_on(hosts: dict[str, Host]) -> list[Member]:
    """Return all members that are deployed on hosts, of all clusters."""
    found = []
    for name, host in sorted(hosts.items()):
        listed = host.run("cat /etc/sglang-pd/members/*.json").stdout
        for text in filter(None, listed.replace("}\n{", "}\x00{").split("\x00")):
            found.append(Member(host, name, json.loads(text)))
    return found


class Cluster:
    """All members of one cluster, among those that were read off the hosts."""

    def __init__(self, name: str, deployed: Iterable[Member]):
        self.name = name
        self.members = [member for member in deployed if member.description["cluster"] == name]
        assert self.members, f"no member of {name} is deployed"

    def of(self, role: str) -> list[Member]:
        """Members of a role, rank 0 before others."""
        found = [member for member in self.members if member.role == role]
        return sorted(found, key=lambda member: (member.description["node_rank"], member.host, member.unit))

    def one(self, role: str) -> Member:
        """The first member of a role."""
        return self.of(role)[0]

    def incarnations(self, *roles: str) -> dict[str, str]:
        """InvocationIDs by host and unit."""
        return incarnations_of(member for member in self.members if member.role in (roles or ROLES))

    def assert_started_in_order(self) -> None:
        """Every prefill started before every decode before every router."""
        starts = {role: [member.started for member in self.of(role)] for role in ROLES}
        assert all(start > 0 for times in starts.values() for start in times), starts
        assert max(starts["prefill"]) < min(starts["decode"]), starts
        assert max(starts["decode"]) < min(starts["router"]), starts

    def assert_serves(self, router: Member | None = None, requests: int = 8) -> None:
        """Requests through a router are answered with text."""
        for number in range(requests):
            text = self.ask(router, f"say hi briefly, number {number}")
            assert text, f"request {number} got no text"

    def ask(
        self,
        router: Member | None = None,
        prompt: str = "say hi briefly",
        max_tokens: int = 24,
        limit_seconds: float = 20,
        key: str = "",
    ) -> str:
        """Text of one chat answer through a router, "" where it was not served."""
        router = router or self.one("router")
        model = self.one("prefill").description["settings"]["served_model_name"]
        body = json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": max_tokens,
                "temperature": 0.6,
            }
        )
        authorization = f"-H 'Authorization: Bearer {key}'" if key else ""
        done = router.on.run(
            f"curl --silent --max-time {limit_seconds} -H 'Content-Type: application/json' {authorization} "
            f"--data %s http://127.0.0.1:{router.port}/v1/chat/completions",
            body,
        )
        try:
            choice = json.loads(done.stdout)["choices"][0]
        except (ValueError, KeyError, IndexError):
            return ""
        return str(choice["message"]["content"] or "") if choice["finish_reason"] in ("stop", "length") else ""

    def clear_faults(self) -> None:
        """Clear the faults of all stand-in engines."""
        clear_faults_of(self.members)


def by_host(members: Iterable[Member]) -> list[list[Member]]:
    """Return members in a list for each host: one command there does for all of them."""
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.host, []).append(member)
    return list(found.values())


def incarnations_of(members: Iterable[Member]) -> dict[str, str]:
    """Return InvocationIDs by host and unit."""
    found = {}
    for there in by_host(members):
        units = " ".join(member.unit for member in there)
        shown = there[0].on.check_output(f"systemctl show --property=InvocationID {units}").split("\n\n")
        assert len(shown) == len(there), shown
        found.update({f"{one.host} {one.unit}": text.partition("=")[2] for one, text in zip(there, shown)})
    return found


def clear_faults_of(members: Iterable[Member]) -> None:
    """Clear the faults of stand-in engines."""
    for there in by_host(members):
        there[0].on.check_output(" && ".join(member.command_for_faults({}) for member in there))


def units_in_order_of_start(members: Iterable[Member]) -> list[str]:
    """Units, the one that started first ahead."""
    return [member.unit for member in sorted(members, key=lambda member: member.started)]
