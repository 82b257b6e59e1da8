# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What single steps do on a host, and what a slice whose controller is gone must not do any more."""

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
        "scope": {"rule": "whole chain", "stages": [], "reason": ""},
        "restore": None,
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


class Recorder:
    """A host on which everything is well and nothing takes time; notes what it is told to do."""

    def __init__(self, trouble: str = ""):
        self.trouble = trouble
        self.slices: list[dict[str, Any]] = []
        self.told: list[Any] = []
        self.content = _ledger.empty(UNIT)

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> float:
        return 0.0

    def unit(self, name: str) -> dict[str, Any]:
        return STARTED

    def ledger(self, unit: str) -> dict[str, Any]:
        return self.content

    def write_ledger(self, ledger: dict[str, Any]) -> None:
        self.told.append(("ledger", ledger["fence"]["outcome"]))

    def change_lock(self, cluster: str, change: Any) -> str:
        return ""

    def restore(self, units: dict[str, int]) -> tuple[list[dict[str, str]], str]:
        self.told.append(("restore", units))
        return [{"path": "/etc/x", "before": "a", "after": "b"}], self.trouble

    def keep_revision(self, unit: str, generation: int) -> str:
        self.told.append(("keep", unit, generation))
        return self.trouble

    def verify(self, plan: dict[str, Any], here: str, state: dict[str, Any], slice_seconds: float) -> dict[str, Any]:
        self.told.append(("verify", here, state, slice_seconds))
        return self.slices.pop(0)


def restoring() -> dict[str, Any]:
    return dict(plan_of(3, "r"), restore={"generation": 2, "automatic": False, "units": {"box1": {UNIT: 2}}})


def run_step(monkeypatch: Any, step: str, plan: dict[str, Any], host: Any, decision: str = "run") -> dict[str, Any]:
    monkeypatch.setattr(_steps._walk, "decide", lambda *_arguments: (decision, ""))
    return _steps.run(step, plan, "box1", {}, {}, host, 5.0)


def test_a_rollback_puts_the_planned_revisions_back(monkeypatch: Any) -> None:
    host = Recorder()
    result = run_step(monkeypatch, "restore", restoring(), host)
    assert (result["outcome"], result["changed"]) == (_steps.OK, True)
    assert result["message"] == UNIT + " to revision 2 on box1"
    assert result["files"][0]["path"] == "/etc/x"
    assert host.told == [("restore", {UNIT: 2})]
    assert run_step(monkeypatch, "restore", plan_of(3, "r"), host)["changed"] is False
    assert len(host.told) == 1, "no rollback, nothing to put back"


def test_files_that_cannot_be_put_back_fail_the_step_before_anything_is_stopped(monkeypatch: Any) -> None:
    result = run_step(monkeypatch, "restore", restoring(), Recorder("/etc/x cannot be written: full"))
    assert result["outcome"] == _steps.FAILED
    for words in ("/etc/x cannot be written: full", "box1", "Nothing was stopped", "run the same again"):
        assert words in result["message"]


def test_a_revision_is_kept_after_success_only_and_its_trouble_is_told(monkeypatch: Any) -> None:
    for outcome, kept in ((_steps.OK, [("keep", UNIT, 3)]), (_steps.FAILED, [])):
        monkeypatch.setattr(_steps._walk, "outcome", lambda *_arguments, its=outcome: (its, "why"))
        host = Recorder("no space")
        result = run_step(monkeypatch, "record", plan_of(3, "r"), host)
        assert result["outcome"] == _steps.OK, "the co-restart itself ended well"
        assert [told for told in host.told if told[0] == "keep"] == kept
        assert ("no revision of {} was kept: no space".format(UNIT) in result["message"]) == bool(kept)
        assert host.told[0] == ("ledger", outcome), "the outcome is on record first"


def test_R1_every_pair_is_verified_from_the_first_routers_host_in_slices(monkeypatch: Any) -> None:
    plan = plan_of(3, "r")
    plan["members"] = [MEMBER, dict(MEMBER, role="router", unit="sglang-main-router.service")]
    plan["options"] = {"request_limit_seconds": 5, "verify": {"parts": ["pairs"]}}
    host = Recorder()
    host.slices = [
        {"outcome": "waiting", "message": "pairs: 1 of 4 requests", "state": {"phase": "send"}},
        {"outcome": "failed", "message": "pairs: 3 of 4 requests were not served\ntable", "state": {}},
    ]
    first = run_step(monkeypatch, "verify", plan, host)
    assert (first["outcome"], first["state"]) == ("waiting", {"phase": "send"})
    second = _steps.run("verify", plan, "box1", {}, first["state"], host, 5.0)
    assert second["outcome"] == _steps.FAILED
    assert second["message"].startswith("pairs: 3 of 4 requests were not served")
    assert host.told == [("verify", "box1", {}, 5.0), ("verify", "box1", {"phase": "send"}, 5.0)]

    plan["options"]["verify"] = {"parts": []}
    assert run_step(monkeypatch, "verify", plan, host)["outcome"] == _steps.OK, "none is wanted"
    plan["options"]["verify"] = {"parts": ["pairs"]}
    plan["members"][1]["host"] = "box2"
    assert run_step(monkeypatch, "verify", plan, host)["outcome"] == _steps.OK, "another host does it"
    assert len(host.told) == 2


def test_R7_a_run_that_lost_the_cluster_says_so_to_the_attempts(monkeypatch: Any) -> None:
    host = Recorder()
    host.content = dict(_ledger.empty(UNIT), fence={"generation": 9, "run": plan_of(9, "other")["run"]})
    result = run_step(monkeypatch, "restore", restoring(), host)
    assert result["lost"] is True
    assert host.told == []
