# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which revisions are kept, and which one a cluster goes back to."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _plan, _revision, _scope, _walk

from ..fleet import evidence_up_to, member, plan_of, record

ROLES = (("prefill", "p"), ("decode", "d"), ("router", "r"))


def revision(role: str, host: str, generations: list[int], configuration: str, **more: Any) -> dict[str, Any]:
    return {
        "generation": generations[0],
        "generations": generations,
        "digest": "digest of " + configuration,
        "member": member(role, host, configuration=configuration),
        "problems": [],
        **more,
    }


def records(*kept: tuple[list[int], str], running: str = "new", **more: Any) -> list[dict[str, Any]]:
    """Return a cluster with the same revisions on all hosts, newest first; configuration new is deployed."""
    return [
        record(role, host, running=running, revisions=[revision(role, host, *one, **more) for one in kept])
        for role, host in ROLES
    ]


def back(given: list[dict[str, Any]], generation: int = 0, follows: int = 0, **more: Any) -> dict[str, Any]:
    """Return the plan to go back, on its own or because a generation failed."""
    for one in given if follows else ():
        one["ledger"].update(generation=follows, fence={"generation": follows, "run": one["ledger"]["run"]})
    restore = {"generation": generation, "automatic": bool(follows)}
    return plan_of(given, restore=restore, follows=follows or None, **more)


def messages(plan: dict[str, Any]) -> str:
    return "; ".join(problem["message"] for problem in plan["problems"])


def test_the_last_good_generation_is_the_newest_with_other_files() -> None:
    plan = back(records(([7], "good"), ([3], "older")))
    assert plan["decision"] == "go"
    assert plan["restore"]["generation"] == 7
    assert plan["restore"]["units"] == {
        "p": {"sglang-c-prefill.service": 7},
        "d": {"sglang-c-decode.service": 7},
        "r": {"sglang-c-router.service": 7},
    }
    assert [m["configuration"] for m in plan["members"]] == ["good"] * 3, "the gates want what is put back"
    assert [m["action"] for m in plan["members"]] == ["restart"] * 3
    assert plan["why"].startswith("back to generation 7, the newest generation that ended well")
    assert "  restore  revision 7 of sglang-c-decode.service on d" in _plan.describe(plan)


def test_where_the_newest_is_deployed_and_runs_it_is_the_one_before() -> None:
    assert back(records(([8, 9], "new"), ([3], "older")))["restore"]["generation"] == 3


def test_where_the_newest_is_deployed_and_does_not_run_it_is_that_one() -> None:
    plan = back(records(([8], "new"), ([3], "older"), running="bad"))
    assert plan["restore"] == {
        "generation": 8,
        "reason": "the last generation that ended well is deployed and does not run",
        "automatic": False,
        "units": {},
    }
    assert plan["decision"] == "go"


def test_a_generation_by_any_of_its_names() -> None:
    given = records(([8], "newer"), ([3, 4, 6], "older"))
    assert back(given, 6)["restore"]["units"]["p"] == {"sglang-c-prefill.service": 3}
    assert back(given, 3)["restore"]["generation"] == 3


@pytest.mark.parametrize("generation", [2, 5, 9])
def test_an_unknown_generation_is_refused_with_what_there_is(generation: int) -> None:
    plan = back(records(([8], "newer"), ([3, 4], "older")), generation)
    assert plan["decision"] == "refused"
    assert messages(plan) == "cluster c cannot go back to generation {}: it has 3, 4, 8".format(generation)
    assert plan["problems"][0]["variable"] == "pd_rollback_generation"


def test_each_member_takes_its_newest_revision_that_is_not_newer() -> None:
    given = [
        record("prefill", "p", revisions=[revision("prefill", "p", [3, 5], "old")]),
        record("decode", "d", revisions=[revision("decode", "d", [5], "five"), revision("decode", "d", [3], "three")]),
        record("router", "r", revisions=[revision("router", "r", [6], "six"), revision("router", "r", [3, 5], "old")]),
    ]
    assert _revision.known_generations(given) == [6, 5, 3]
    assert back(given, 5)["restore"]["units"] == {
        "p": {"sglang-c-prefill.service": 3},
        "d": {"sglang-c-decode.service": 5},
        "r": {"sglang-c-router.service": 3},
    }


def test_what_one_member_has_lost_the_cluster_cannot_go_back_to() -> None:
    given = records(([8], "newer"), ([3], "older"))
    given[1]["revisions"] = given[1]["revisions"][:1]
    assert "it has 8" in messages(back(given, 3))
    given[1]["revisions"] = []
    assert "no co-restart of sglang-c-decode.service on d ended well yet" in messages(back(given))


def test_a_revision_that_cannot_start_is_refused_before_anything_is_touched() -> None:
    gone = "/opt/sglang-pd/sglang-0.5.16/bin/python does not exist any more: install that version again"
    plan = back(records(([7], "good"), problems=[gone]))
    assert plan["decision"] == "refused"
    assert messages(plan).count(gone) == 3
    assert {problem["host"] for problem in plan["problems"]} == {"p", "d", "r"}


def test_what_is_deployed_and_runs_well_is_nothing_to_do() -> None:
    plan = back(records(([8], "new"), ([3], "older")), 8)
    assert (plan["decision"], plan["why"]) == ("nothing", "generation 8 is deployed and runs as it should")


def test_a_failure_without_a_change_is_not_rolled_back_to_something_older() -> None:
    plan = back(records(([8], "new"), ([3], "older")), follows=9)
    assert plan["decision"] == "refused"
    assert "nothing to go back to" in messages(plan)


def test_what_ended_well_and_failed_its_soak_goes_back_to_the_one_before() -> None:
    assert back(records(([9], "new"), ([8], "good"), ([3], "older")), follows=9)["restore"]["generation"] == 8
    unchanged = back(records(([8, 9], "new"), ([3], "older")), follows=9)
    assert unchanged["decision"] == "refused", "the failure did not come with a change"
    assert "generation 8; nothing to go back to" in messages(unchanged)
    first = back(records(([9], "new")), follows=9)
    assert first["decision"] == "refused"
    assert "cluster c has no revision" in messages(first)


def test_routers_alone_go_back_alone() -> None:
    plan = back(records(([7], "good")), follows=9, stages=["router"])
    assert plan["restore"]["units"] == {"r": {"sglang-c-router.service": 7}}
    assert [m["action"] for m in plan["members"]] == ["none", "none", "restart"]


def test_the_restored_members_are_checked_like_any_others() -> None:
    given = records(([7], "good"))
    given[0]["revisions"][0]["member"]["port"] = 31000
    held = {"port": 31000, "pid": 9, "command": "an orphan", "unit": ""}
    given[0]["listeners"] = [held, dict(held, port=30000)]
    plan = back(given)
    assert "port 31000 of sglang-c-prefill.service is held by pid 9" in messages(plan)
    assert "port 30000" not in messages(plan), "nobody wants that one after the rollback"


def test_files_are_put_back_after_the_lock_and_before_anything_else() -> None:
    plan = back(records(([7], "good")))
    assert _walk.STEPS[:3] == (_walk.LOCK, _walk.RESTORE, _walk.CLOSE)
    assert _walk.hosts_of_step(_walk.RESTORE, plan) == ["p", "d", "r"]
    assert _walk.hosts_of_step(_walk.RESTORE, plan_of()) == ["p"], "only the lock's host, where nothing goes back"
    evidence = evidence_up_to(_walk.CLOSE, plan)
    evidence[_walk.RESTORE]["d"]["outcome"] = _walk.FAILED
    assert _walk.decide(_walk.CLOSE, plan, evidence)[0] == _walk.SKIP
    assert not _walk.was_anything_stopped(plan, evidence)


def test_a_rollback_is_a_whole_chain_and_resumes_nothing() -> None:
    cut = {"generation": 2, "run": {"id": "dead"}, "outcome": ""}
    given = records(([7], "good"))
    given[0]["ledger"].update(cut)
    plan = back(given)
    assert plan["scope"]["rule"] == _scope.WHOLE_CHAIN
    assert plan["resumes"] == ""


def test_another_run_in_between_ends_the_attempts() -> None:
    assert plan_of(follows=1)["decision"] == "go"
    plan = plan_of(follows=7)
    assert plan["decision"] == "refused"
    assert "another run came to cluster c meanwhile" in messages(plan)


# -- what a host keeps -------------------------------------------------------------------


def kept(*digests: str, limit: int = 3) -> list[dict[str, Any]]:
    revisions: list[dict[str, Any]] = []
    for generation, digest in enumerate(digests, 1):
        _verb, revisions, _gone = _revision.keep(revisions, {"generation": generation, "digest": digest}, limit)
    return revisions


def test_a_co_restart_that_changes_nothing_adds_a_name_and_pushes_nothing_out() -> None:
    revisions = kept("a", "b", *"ccccccccc")
    assert [(one["digest"], one["generations"]) for one in revisions] == [
        ("c", [3, 4, 5, 6, 7, 8, 9, 10, 11]),
        ("b", [2]),
        ("a", [1]),
    ]


def test_only_so_many_revisions_are_kept_and_at_least_one() -> None:
    assert [one["digest"] for one in kept("a", "b", "c", "d")] == ["d", "c", "b"]
    assert _revision.keep(kept("a", "b"), {"generation": 3, "digest": "c"}, 2)[2] == [1]
    assert [one["digest"] for one in kept("a", "b", limit=0)] == ["b"]


def test_what_comes_back_is_a_revision_of_its_own() -> None:
    assert [one["generations"] for one in kept("a", "b", "a")] == [[3], [2], [1]]


def test_a_generation_is_kept_once() -> None:
    revisions = kept("a")
    assert _revision.keep(revisions, {"generation": 1, "digest": "b"}, 3) == ("known", revisions, [])
