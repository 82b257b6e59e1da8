# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's half of a verification: which host, whole clusters, slices, report, failure."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.inferops.sglang_pd.plugins.action import verify

from ..fleet import record

GROUPS = {"pd_prefill": ["p"], "pd_decode": ["d"], "pd_router": ["r"]}
HOST_OF = {"prefill": "p", "decode": "d", "router": "r"}


def hostvars_of(**changed: Any) -> dict[str, dict[str, Any]]:
    """Return host variables with the registered members of a healthy cluster."""
    found: dict[str, dict[str, Any]] = {}
    for role, host in HOST_OF.items():
        result = {"members": [record(role, host)], "locks": {}, "now": 1.0}
        found[host] = {"pd_cluster": "c", "pd_members": changed.get(host, result)}
    return found


class Action(verify.ActionModule):
    """The action with its surroundings replaced: arguments, and the module on the host."""

    def __init__(self, answers: list[dict[str, Any]], check_mode: bool = False, **arguments: Any):
        self._task = types.SimpleNamespace(args=arguments, check_mode=check_mode, async_val=0)
        self.answers = answers
        self.calls: list[dict[str, Any]] = []

    def validate_argument_spec(self, argument_spec: Any = None, **more: Any) -> Any:
        return None, {name: self._task.args.get(name, one.get("default")) for name, one in argument_spec.items()}

    def _execute_module(self, module_name: Any = None, module_args: Any = None, **more: Any) -> Any:
        assert module_name == "inferops.sglang_pd.verify_step"
        self.calls.append(json.loads(json.dumps(module_args)))
        return self.answers.pop(0)


def run(
    monkeypatch: pytest.MonkeyPatch,
    action: Action,
    host: str = "r",
    hostvars: dict[str, dict[str, Any]] | None = None,
    play: tuple[str, ...] = ("p", "d", "r"),
) -> dict[str, Any]:
    monkeypatch.setattr(verify.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    return action.run(
        task_vars={
            "inventory_hostname": host,
            "hostvars": hostvars or hostvars_of(),
            "groups": GROUPS,
            "ansible_play_hosts_all": list(play),
            "ansible_play_hosts": list(play),
        }
    )


def result_of(outcome: str = "ok", *failures: str, regression: bool = False) -> dict[str, Any]:
    rows = [
        {
            "part": "sequential",
            "against": "r1",
            "same_revision": True,
            "now": {"median": 2.0, "p95": 2.0},
            "then": {"median": 1.0, "p95": 1.0},
            "regression": regression,
            "why": "median 2.000 s, was 1.000 s" if regression else "",
        }
    ]
    watched = {"role": "prefill", "samples": [{"at": 1}], "lines": [], "transfers_failed": 0}
    series = {"u@p": {"verdict": "idle", "why": "", **watched}}
    result = {
        "outcome": outcome,
        "failures": list(failures),
        "profile": "smoke",
        "revision": "r1",
        "parts": [],
        "series": series,
        "recovery": {},
        "regressions": rows,
    }
    return {"outcome": outcome, "message": "; ".join(failures), "result": result, "changed": outcome == "ok"}


def test_the_host_of_the_router_verifies_and_others_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("p", "d"):
        action = Action([])
        assert run(monkeypatch, action, host)["skipped"]
        assert action.calls == []
    action = Action([{"outcome": "waiting", "message": "sequential", "state": {"n": 1}}, result_of()])
    result = run(monkeypatch, action)
    assert [call["state"] for call in action.calls] == [{}, {"n": 1}]
    assert result["clusters"]["c"]["outcome"] == "ok" and result["changed"] and not result.get("failed")
    assert "samples" not in result["clusters"]["c"]["series"]["u@p"]
    sent = action.calls[0]
    assert sent["options"]["model"] == "/m"
    assert {(member["role"], member["host"]) for member in sent["members"]} == set(HOST_OF.items())


def test_no_settings_or_arguments_of_members_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Action([result_of()])
    run(monkeypatch, action)
    assert all(set(member) <= set(verify.OF_A_MEMBER) for member in action.calls[0]["members"])


def test_a_failure_fails_the_task_unless_the_playbook_does_so_later(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = result_of("failed", "sequential: 2 of 8 requests were not served")
    result = run(monkeypatch, Action([bad]))
    assert result["failed"] and result["msg"] == "cluster c: sequential: 2 of 8 requests were not served"
    result = run(monkeypatch, Action([bad], fail=False))
    assert not result["failed"]
    assert result["clusters"]["c"]["failures"] == ["sequential: 2 of 8 requests were not served"]


def test_a_module_that_breaks_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(
        monkeypatch, Action([{"failed": True, "msg": "Failed to import the required Python library (aiohttp)"}])
    )
    assert result["failed"] and "aiohttp" in result["msg"]


def test_F4_only_whole_clusters_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    hostvars = hostvars_of()
    del hostvars["d"]["pd_members"]
    action = Action([])
    result = run(monkeypatch, action, hostvars=hostvars, play=("p", "r"))
    assert result["failed"] and "host d of the cluster is not in this play" in result["msg"]
    assert action.calls == []


def test_a_cluster_without_its_router_host_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hostvars = hostvars_of()
    del hostvars["r"]["pd_members"]
    result = run(monkeypatch, Action([]), host="d", hostvars=hostvars, play=("p", "d"))
    assert result["failed"] and "host r of the cluster is not in this play" in result["msg"]


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        ({"unreachable": True, "msg": "no route"}, "host d did not answer: no route"),
        ({"members": [], "locks": {}, "now": 1.0}, "no decode is deployed"),
        ({"members": [record("decode", "d", active_state="failed")]}, "sglang-c-decode.service on d is failed"),
    ],
)
def test_what_cannot_serve_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, decode: dict[str, Any], words: str
) -> None:
    action = Action([])
    result = run(monkeypatch, action, hostvars=hostvars_of(d=decode))
    assert result["failed"] and words in result["msg"] and "nothing was sent" in result["msg"]
    assert action.calls == []


def test_check_mode_says_what_it_would_send_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    action = Action([], check_mode=True, profile="standard")
    result = run(monkeypatch, action)
    assert action.calls == [] and not result["failed"] and not result["changed"]
    text = "\n".join(result["lines"])
    assert "sequential: 8 requests (8 x 24 tokens) through sglang-c-router.service@r" in text
    assert "pairs: 4 requests" in text and "agentic: 24 requests" in text and "aborts" not in text


def test_unknown_clusters_and_wrong_options_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Unknown cluster x; the inventory has c" in run(monkeypatch, Action([], clusters=["x"]))["msg"]
    assert "pd_verify_golden" in run(monkeypatch, Action([], golden=[{"prompt": "a"}]))["msg"]


def test_a_regression_is_told_and_fails_only_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Action([result_of(regression=True)]))
    assert not result.get("failed")
    assert any("REGRESSION against this revision: median 2.000 s" in line for line in result["lines"])
    result = run(monkeypatch, Action([result_of(regression=True)], fail_on_regression=True))
    assert result["failed"] and result["clusters"]["c"]["outcome"] == "failed"


def test_the_report_is_a_file_with_all_samples_and_a_page_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result = run(monkeypatch, Action([result_of()], report_dir=str(tmp_path / "new")))
    report = json.loads((tmp_path / "new" / "verify-c.json").read_text())
    assert report["cluster"] == "c" and report["series"]["u@p"]["samples"] == [{"at": 1}]
    assert [(one["role"], one["started_at"], one["generation"]) for one in report["incarnations"]] == [
        ("prefill", 1.0, 1),
        ("decode", 1.0, 1),
        ("router", 1.0, 1),
    ]
    page = (tmp_path / "new" / "verify-c.html").read_text()
    assert "It serves" in page and "sglang-c-decode.service on d" in page
    assert result["lines"][-1] == "report: {}".format(tmp_path / "new" / "verify-c.html")
    assert sorted(one.name for one in (tmp_path / "new").iterdir()) == ["verify-c.html", "verify-c.json"]


def test_what_was_refused_has_a_page_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hostvars = hostvars_of(d={"unreachable": True, "msg": "no <route>"})
    run(monkeypatch, Action([], report_dir=str(tmp_path)), hostvars=hostvars)
    page = (tmp_path / "verify-c.html").read_text()
    assert "host d did not answer: no &lt;route&gt;" in page and "Verification failed" in page


def test_check_mode_writes_no_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, Action([], check_mode=True, report_dir=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_a_report_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnsibleActionFail, match=r"pd_verify_report_dir .* cannot be written"):
        run(monkeypatch, Action([result_of()], report_dir=str(tmp_path / "file")))
