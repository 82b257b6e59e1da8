# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slice whose controller is gone works on for a while: it must not write into its successor's ledger."""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _steps

UNIT = "sglang-main-prefill.service"
STARTED = {
    "active_state": "active",
    "sub_state": "running",
    "result": "success",
    "exit_status": 0,
    "invocation_id": "second",
    "restarts": 0,
    "job": 0,
}
MEMBER = {
    "cluster": "main",
    "role": "prefill",
    "unit": UNIT,
    "host": "box1",
    "engine": "prefill box1",
    "nnodes": 1,
    "node_rank": 0,
    "port": 30000,
    "bootstrap_port": 8998,
    "configuration": "0123",
    "action": "restart",
    "before": "first",
    "stop_limit_seconds": 20,
    "healthy_limit_seconds": 60,
}


def plan_of(generation: int, run: str) -> dict[str, Any]:
    return {
        "cluster": "main",
        "generation": generation,
        "run": {"id": run, "owner": "ops@here pid 1", "purpose": "co-restart"},
        "override": "",
        "take_over": "",
        "lock_host": "box2",
        "members": [MEMBER],
        "options": {"consecutive": 1},
    }


class SlowHost:
    """A host on which the next run begins while a probe of the old one is on its way."""

    def __init__(self, ledger: dict[str, Any], successor: dict[str, Any]):
        self.content = ledger
        self.successor = successor
        self.after_successor: dict[str, Any] = {}

    def now(self) -> float:
        return 0.0

    monotonic = now

    def unit(self, name: str) -> dict[str, Any]:
        return dict(STARTED)

    def ledger(self, unit: str) -> dict[str, Any]:
        return dict(self.content)

    def write_ledger(self, ledger: dict[str, Any]) -> None:
        self.content = ledger

    def running_configuration(self, name: str) -> str:
        return "0123"

    def probe(self, member: dict[str, Any], plan: dict[str, Any]) -> list[dict[str, Any]]:
        announced = _ledger.announce(self.content, self.successor["generation"], self.successor["run"])
        self.content = _ledger.begin(
            announced, self.successor["generation"], self.successor["run"], "", STARTED["invocation_id"], 1.0
        )
        self.after_successor = dict(self.content)
        return [{"name": "/health", "good": True, "detail": ""}]


def test_R6_a_slice_of_a_dead_run_does_not_call_the_next_runs_member_healthy(monkeypatch) -> None:
    # The walk's order is not what is looked at here.
    monkeypatch.setattr(_steps._walk, "decide", lambda *_arguments: (_steps._walk.RUN, ""))
    old, new = plan_of(1, "old"), plan_of(2, "new")
    begun = _ledger.begin(_ledger.empty(UNIT), 1, old["run"], "", "first", 0.0)
    host = SlowHost(_ledger.advance(begun, _ledger.STARTING), new)

    result = _steps.run("start_prefill", old, "box1", {}, {}, host, 5.0)

    assert result["outcome"] == _steps.FAILED
    assert "run new of ops@here pid 1 (co-restart) came after this one" in result["message"]
    assert host.content == host.after_successor, "stopping, in generation 2: the successor's to go on with"
