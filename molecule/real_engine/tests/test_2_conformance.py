# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in engine of the other scenarios against the real one, side by side on one box.

Both are started with the words of the same units, on other ports; both get the same requests,
through a router of their own. Whatever differs and is not in EXCEPTIONS is a failure, and so is
an exception that no difference needs any more.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import ROLES, Cluster, Member, members_on, wait_for
from conftest import PROMPTS, ask, await_health
from testinfra.host import Host

#: Differences that are meant, as a regular expression of the difference: the reason.
EXCEPTIONS: dict[str, str] = {}

FACES = (Path(os.path.realpath(__file__)).parent / "faces.py").read_text()
#: Ports of the units, and those of the stand-ins in their place.
PORTS = {"30000": "40000", "30001": "40001", "30002": "40002", "8998": "18998", "29000": "39000"}
VENV = "/opt/stand-in"


def as_stand_in(member: Member) -> str:
    """The command of a member's unit, for a stand-in: another interpreter for engines, other ports."""
    words = list(member.description["exec_start"])
    if member.role != "router":
        words[0] = f"{VENV}/bin/python"
    text = shlex.join(words).replace("${INVOCATION_ID}", "stand-in")
    for port, other in PORTS.items():
        text = re.sub(rf"\b{port}\b", other, text)
    return text


def look_at(box: Host, port: int, bootstrap_port: int) -> dict[str, Any]:
    """What the faces of an engine look like now; see faces.py."""
    found: dict[str, Any] = json.loads(box.check_output(f"python3 -c %s {port} {bootstrap_port}", FACES))
    return found


def healthy(box: Host, port: str) -> bool:
    """Whether an engine on this port is."""
    return box.run(f"curl --silent --fail --max-time 25 --output /dev/null http://127.0.0.1:{port}/health").rc == 0


@pytest.fixture(scope="module")
def looks(on: Callable[[str], Host]) -> Iterator[dict[tuple[str, str, str], dict[str, Any]]]:
    """By kind (real, stand-in), role and moment (before and after requests): the faces.

    The cluster on box3 is not started again afterwards: its memory is wanted elsewhere.
    """
    box = on("box3")
    members = {role: Cluster("alone", members_on({"box3": box})).one(role) for role in ROLES}
    box.check_output(
        f"test -e {VENV}/bin/sglang-is-there || {{ python3 -m venv {VENV} && {VENV}/bin/pip install --quiet --no-index "
        f"--find-links /srv/wheels sglang==0.5.23 pyyaml && touch {VENV}/bin/sglang-is-there; }}"
    )
    for role in reversed(ROLES):
        members[role].systemctl("stop")

    found: dict[tuple[str, str, str], dict[str, Any]] = {}

    def look(moment: str) -> None:
        for role in ("prefill", "decode"):
            bootstrap = members[role].description["bootstrap_port"] or 0
            port = members[role].port
            found["real", role, moment] = look_at(box, port, bootstrap)
            found["stand-in", role, moment] = look_at(
                box, int(PORTS[str(port)]), int(PORTS[str(bootstrap)]) if bootstrap else 0
            )

    try:
        for role in ROLES:
            if role == "router":
                look("before requests")
            members[role].systemctl("start")
            if role != "router":
                await_health(members[role])
            # Afterwards: a stand-in that waited for the real engine would be idle for longer, and an
            # engine that is idle for long enough shows gauges which a fresh one does not.
            box.check_output(
                f"systemd-run --unit=stand-in-{role} --collect --setenv=STAND_IN_FAULTS_DIR=/nowhere "
                f"{as_stand_in(members[role])}"
            )
            if role != "router":
                wait_for("the stand-in is healthy", lambda role=role: healthy(box, PORTS[str(members[role].port)]))
        router = members["router"].port
        for port in (router, int(PORTS[str(router)])):
            wait_for(
                f"router {port} is ready",
                lambda port=port: box.run(f"curl --silent --fail http://127.0.0.1:{port}/readiness").rc == 0,
            )
            answers = ask(box, port, PROMPTS)
            assert all(answer.is_answered for answer in answers), answers
        look("after requests")
        yield found
    finally:
        for role in reversed(ROLES):
            box.run(f"systemctl stop stand-in-{role} {members[role].unit}")


def differences(real: Any, stand_in: Any, where: str) -> list[str]:
    """What differs, one line each."""
    if isinstance(real, dict) and isinstance(stand_in, dict):
        lines = []
        for key in sorted({*real, *stand_in}):
            place = f"{where} {key}"
            if key not in stand_in:
                lines.append(f"{place}: missing in the stand-in ({json.dumps(real[key])[:80]})")
            elif key not in real:
                lines.append(f"{place}: only in the stand-in ({json.dumps(stand_in[key])[:80]})")
            else:
                lines += differences(real[key], stand_in[key], place)
        return lines
    if isinstance(real, list) and isinstance(stand_in, list) and len(real) == len(stand_in):
        return [
            line
            for number, (one, other) in enumerate(zip(real, stand_in))
            for line in differences(one, other, f"{where}[{number}]")
        ]
    if real == stand_in:
        return []
    return [f"{where}: {json.dumps(real)[:80]}, stand-in {json.dumps(stand_in)[:80]}"]


def test_stand_in_looks_like_the_real_engine(looks: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    found = []
    for role in ("prefill", "decode"):
        for moment in ("before requests", "after requests"):
            found += differences(looks["real", role, moment], looks["stand-in", role, moment], f"{role} {moment}")
    unexplained = [line for line in found if not any(re.search(pattern, line) for pattern in EXCEPTIONS)]
    assert not unexplained, "\n".join([f"{len(unexplained)} differences", *unexplained])
    unneeded = [pattern for pattern in EXCEPTIONS if not any(re.search(pattern, line) for line in found)]
    assert not unneeded, f"no difference needs these exceptions: {unneeded}"


def test_stand_in_was_really_compared(looks: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """A comparison of nothing with nothing would pass."""
    for role in ("prefill", "decode"):
        look = looks["real", role, "after requests"]
        assert look["answers"]["GET /health"]["status"] == 200
        assert len(look["answers"]["GET /server_info"]["fields"]) > 300
        assert "disaggregation" in look["answers"]["GET /v1/loads"]["fields"]["loads"][1]
        assert len(look["metrics"]["types"]) > 40
