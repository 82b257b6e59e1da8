#!/usr/bin/env python3
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does to files what the playbooks of a roll do, without hosts: plan, waves, events, the word to end.

    walk.py plan|roll DIRECTORY FLEET

FLEET is a JSON file, which stands for the hosts: ``clusters`` by name with ``due`` and ``fails``, ``size`` of waves,
``refuse`` (a message or ""), ``reports`` (write them), ``gates`` (a folder or ""). Where there are gates, a cluster's
work goes on once the file ``NAME`` is in that folder; until then ``NAME.waits`` is there. This script and its callers
need nothing but Python, so that a test can call it as ``ansible-playbook``, too.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

STEPS = "lock close drain stop_prefill start_prefill stop_decode start_decode restart_router".split()
PROOF = "requests verify settle record unlock".split()


class Walk:
    """One roll."""

    def __init__(self, directory: Path, fleet_file: Path):
        self.directory = directory
        self.fleet_file = fleet_file
        self.fleet: dict[str, Any] = json.loads(fleet_file.read_text())
        self.roll = directory.name

    def tell(self, event: str, **more: Any) -> None:
        """Append an event."""
        with open(self.directory / "events.jsonl", "a", encoding="utf-8") as target:
            target.write(json.dumps({"at": time.time(), "roll": self.roll, "event": event, **more}) + "\n")

    def plan(self) -> dict[str, Any]:
        """Write the plan of what is due."""
        due = [name for name, one in self.fleet["clusters"].items() if one["due"]]
        size = self.fleet.get("size", 1)
        waves = [due[start : start + size] for start in range(0, len(due), size)]
        refused = self.fleet.get("refuse", "")
        plan = {
            "format": 1,
            "roll": self.roll,
            "made_at": time.time(),
            "owner": "tests@here pid 1",
            "purpose": "test",
            "decision": "refused" if refused else "go" if due else "nothing",
            "problems": [{"rule": "all serve", "message": refused, "host": "", "variable": ""}] if refused else [],
            "warnings": [],
            "options": {},
            "expected_seconds": None,
            "waves": [
                {"number": number, "kind": "batch", "clusters": names, "hosts": [], "expected_seconds": None}
                for number, names in enumerate(waves, 1)
            ],
            "clusters": {
                name: {
                    "decision": "roll" if one["due"] else "skip",
                    "why": "flags differ" if one["due"] else "nothing is due",
                    "wave": next((number for number, names in enumerate(waves, 1) if name in names), 0),
                }
                for name, one in self.fleet["clusters"].items()
            },
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "plan.json").write_text(json.dumps(plan))
        (self.directory / "plan.md").write_text("# Plan\n\n" + "".join(f"- {', '.join(names)}\n" for names in waves))
        return plan

    def walk(self) -> int:
        """Walk the roll; return the exit code of ansible-playbook."""
        plan = self.plan()
        self.tell("roll_began", owner="tests@here pid 1", purpose="test", waves=len(plan["waves"]), clusters=3)
        if plan["decision"] != "go":
            why = "; ".join(one["message"] for one in plan["problems"])
            return self.end(plan["decision"], why, [])
        todo = [name for wave in plan["waves"] for name in wave["clusters"]]
        for wave in plan["waves"]:
            cancel = self.directory / "cancel"
            if cancel.exists():
                return self.end("stopped", cancel.read_text().strip(), todo)
            self.tell("wave_began", wave=wave["number"], kind="batch", clusters=wave["clusters"])
            failed = [name for name in wave["clusters"] if not self.cluster(wave["number"], name)]
            todo = [name for name in todo if name not in wave["clusters"]]
            self.tell("wave_ended", wave=wave["number"], failed=failed)
            if failed:
                return self.end("failed", "the failure budget is spent", todo)
        return self.end("done", "", [])

    def cluster(self, wave: int, name: str) -> bool:
        """Co-restart one cluster."""
        its = {"wave": wave, "cluster": name}
        for step in STEPS:
            self.step(its, step)
        gates = self.fleet.get("gates", "")
        if gates:
            (Path(gates) / (name + ".waits")).touch()
            while not (Path(gates) / name).exists():
                time.sleep(0.02)
        fails = bool(self.fleet["clusters"][name].get("fails"))
        if not fails:
            for step in PROOF:
                self.step(its, step)
            # What the hosts remember.
            self.fleet["clusters"][name]["due"] = False
            self.fleet_file.write_text(json.dumps(self.fleet))
        message = "the router answered nothing" if fails else ""
        outcome = "failed" if fails else "done"
        self.tell("cluster_ended", **its, outcome=outcome, message=message, generation=2, stopped=True, latency=None)
        return not fails

    def step(self, its: dict[str, Any], step: str) -> None:
        """Walk one step."""
        its = {**its, "host": "h-" + its["cluster"], "step": step}
        self.tell("step_began", **its)
        self.tell("waiting", **its, message="its turn")
        self.tell("step_ended", **its, outcome="ok", message="")

    def end(self, outcome: str, why: str, remaining: list[str]) -> int:
        """End the roll."""
        self.tell("roll_ended", outcome=outcome, why=why, remaining=remaining)
        (self.directory / "result.json").write_text(json.dumps({"outcome": outcome, "remaining": remaining}))
        if self.fleet.get("reports"):
            (self.directory / "summary.md").write_text(f"# Roll {self.roll}: {outcome}\n")
            (self.directory / "junit.xml").write_text("<testsuites/>\n")
        return 0 if outcome in ("done", "nothing") else 2


if __name__ == "__main__":
    which, target, fleet = sys.argv[1:]
    walk = Walk(Path(target), Path(fleet))
    if which == "plan":
        walk.plan()
        sys.exit(0)
    sys.exit(walk.walk())
