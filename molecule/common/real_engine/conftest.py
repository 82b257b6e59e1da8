# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenarios with the real engine share; each of them links to this file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, Member, wait_for
from testinfra.host import Host

HERE = Path(os.path.realpath(__file__)).parent
PROMPTS: list[str] = json.loads((HERE / "prompts.json").read_text())
#: Seconds a request may take when all is well. The machine may be busy; nothing waits that long.
GOOD_LIMIT_SECONDS = 60
#: Seconds after which a request counts as hanging: about 20 times what an answer takes.
HANGS_AFTER_SECONDS = 20
#: Seconds after which a playbook that starts engines is given up: a busy machine is no failure.
PLAYBOOK_LIMIT_SECONDS = 1800
#: Options of a co-restart whose drain meets requests that never end.
STUCK_DRAIN = {"pd_co_restart_drain_stall_seconds": 3}


@dataclass(frozen=True)
class Asked:
    """What became of one request; see ask.py."""

    text: str
    finish_reason: str
    error: str
    seconds: float

    @property
    def is_answered(self) -> bool:
        """Whether it was served with a text."""
        return bool(self.text) and self.finish_reason in ("stop", "length")

    @property
    def has_timed_out(self) -> bool:
        """Whether the client gave up waiting."""
        return "timed out" in self.error


def ask(
    host: Host, port: int, prompts: Sequence[str], max_tokens: int = 48, limit_seconds: float = GOOD_LIMIT_SECONDS
) -> list[Asked]:
    """Ask whoever listens on a host's port, all prompts at once."""
    command = "printf %%s %s | ask http://127.0.0.1:{} tiny {} {}".format(port, limit_seconds, max_tokens)
    return [Asked(**answer) for answer in json.loads(host.check_output(command, json.dumps(list(prompts))))]


def loads(member: Member) -> dict[str, Any]:
    """The live queues of an engine: /v1/loads, refreshed every 0.05 s also where nothing moves."""
    return dict(json.loads(member.get("/v1/loads?include=disagg,core"))["loads"][0])


def queue(member: Member, name: str) -> int:
    """Length of one of an engine's queues, for example prefill_inflight."""
    return int(loads(member)["disaggregation"][f"{name}_queue_reqs"])


def counter(member: Member, name: str) -> float:
    """Value of a counter of an engine, 0 where it does not exist yet."""
    text = member.get("/metrics")
    assert "sglang:num_running_reqs" in text, "a scrape that failed tells nothing"
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))


def status(member: Member, path: str = "/health") -> str:
    """HTTP status of a GET, "000" where there is no answer."""
    command = f"curl --silent --max-time 25 --output /dev/null --write-out '%{{http_code}}' {url(member)}{path}"
    return str(member.on.run(command).stdout)


def url(member: Member) -> str:
    """Where a member listens, from its own host."""
    return f"http://{member.address}:{member.port}"


def await_health(member: Member) -> None:
    """Await that an engine started by hand is healthy."""
    wait_for(f"{member.unit} is healthy", lambda: status(member) == "200", limit_seconds=900)


@pytest.fixture(scope="session")
def golden(on: Callable[[str], Host], inventory: Path) -> list[str]:
    """What a plain server answered to PROMPTS; asked by prepare.yml."""
    del inventory
    answers = json.loads(on("box2").file("/var/lib/plain-answers.json").content_string)
    texts = [answer["text"] for answer in answers]
    assert len(texts) == len(PROMPTS) and all(texts) and len(set(texts)) == len(texts), texts
    return texts


@pytest.fixture
def assert_golden(golden: list[str]) -> Callable[[Cluster], None]:
    """Through its router a cluster answers to the letter what a plain server answered.

    The model's weights are fixed and the temperature is 0: a KV cache that came over
    wrong or half shows as another text.
    """

    def check(cluster: Cluster) -> None:
        router = cluster.one("router")
        answers = ask(router.on, router.port, PROMPTS)
        assert [answer.error for answer in answers] == [""] * len(PROMPTS)
        assert [answer.text for answer in answers] == golden

    return check


@pytest.fixture
def pair(cluster: Callable[[str], Cluster]) -> Cluster:
    """Prefill and router on box1, decode on box2."""
    return cluster("pair")
