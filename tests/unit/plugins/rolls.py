# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans and events of rolls, as the playbook writes them."""

from __future__ import annotations

from typing import Any

ROLL = "20261130T170000Z-ab12cd"
MADE_AT = 1796000000.0
STEPS = ("lock", "close", "drain", "stop_prefill", "start_prefill", "stop_decode", "start_decode", "restart_router")
PROOF = ("requests", "verify", "settle", "record", "unlock")


def plan_of(*waves: list[str], skipped: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """Return a plan with these waves of clusters; each cluster has a host h-NAME."""
    clusters = {
        name: {"decision": "skip", "why": "nothing is due", "wave": 0, "hosts": ["h-" + name]} for name in skipped
    }
    for number, names in enumerate(waves, 1):
        for name in names:
            clusters[name] = {
                "decision": "roll",
                "why": "a co-restart is due: flags differ",
                "wave": number,
                "hosts": ["h-" + name],
                "generation": 7,
                "expected_seconds": 90.0,
            }
    return {
        "format": 1,
        "roll": ROLL,
        "made_at": MADE_AT,
        "owner": "ops@ci pid 17",
        "purpose": "weekly roll",
        "decision": "go" if waves else "nothing",
        "problems": [],
        "warnings": [],
        "options": {},
        "expected_seconds": 100.0 * len(waves) if waves else None,
        "waves": [
            {
                "number": number,
                "kind": "canary" if number == 1 else "batch",
                "clusters": names,
                "hosts": ["h-" + name for name in names],
                "soak_seconds": 60,
                "expected_seconds": 100.0,
                "pause_after": False,
                "unavailable": {"models": {}, "domains": {}},
            }
            for number, names in enumerate(waves, 1)
        ],
        "clusters": clusters,
        **more,
    }


class Story:
    """Events, written down one a second."""

    def __init__(self, at: float = MADE_AT):
        self.at = at
        self.events: list[dict[str, Any]] = []

    def tell(self, event: str, **more: Any) -> Story:
        """Write an event."""
        self.events.append({"at": self.at, "roll": ROLL, "event": event, **more})
        self.at += 1
        return self

    def wait(self, seconds: float) -> Story:
        """Let time pass."""
        self.at += seconds
        return self

    def begin(self, **more: Any) -> Story:
        """Begin a run of the roll."""
        return self.tell("roll_began", **{"owner": "ops@ci pid 17", "purpose": "weekly roll", **more})

    def wave(self, number: int, *names: str, kind: str = "batch") -> Story:
        """Begin a wave."""
        return self.tell("wave_began", wave=number, kind=kind, clusters=list(names))

    def step(self, wave: int, name: str, step: str, outcome: str = "ok", host: str = "", message: str = "") -> Story:
        """Walk one step on one host."""
        which = {"wave": wave, "cluster": name, "host": host or "h-" + name, "step": step}
        self.tell("step_began", **which)
        return self.tell("step_ended", **which, outcome=outcome, message=message)

    def begin_step(self, wave: int, name: str, step: str, host: str = "") -> Story:
        """Begin a step that is not ended."""
        return self.tell("step_began", wave=wave, cluster=name, host=host or "h-" + name, step=step)

    def walk(self, wave: int, name: str, *steps: str) -> Story:
        """Walk steps that end well; all, where none is named."""
        for step in steps or (*STEPS, *PROOF):
            self.step(wave, name, step)
        return self

    def end_cluster(self, wave: int, name: str, outcome: str = "done", **more: Any) -> Story:
        """Tell what a cluster came to."""
        which = {"wave": wave, "cluster": name, "outcome": outcome, "message": "", "generation": 7, "stopped": True}
        return self.tell("cluster_ended", **{**which, "latency": None, **more})

    def end(self, outcome: str = "done", why: str = "", remaining: tuple[str, ...] = ()) -> Story:
        """Tell what the roll came to."""
        return self.tell("roll_ended", outcome=outcome, why=why, remaining=list(remaining))
