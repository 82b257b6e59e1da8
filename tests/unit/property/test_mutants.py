# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The property test can fail: a rule that is broken on purpose in the core is found.

Each mutant is one change of the core; the generated histories of one family must run into a
violation, and it must be of the rule that the mutant breaks.
"""

from __future__ import annotations

from typing import Any, Callable

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _attempts,
    _gate,
    _ledger,
    _lock,
    _plan,
    _revision,
    _scope,
    _steps,
    _topology,
    _walk,
)

from .generated import assert_caught
from .histories import histories, play
from .rules import ViolationError

Patch = Callable[[pytest.MonkeyPatch], None]

REAL_OBSERVE = _gate.observe
REAL_DECIDE = _walk.decide
REAL_MEMBERS_OF_STEP = _walk.members_of_step
REAL_RESUMABLE = _plan._resumable
REAL_ACQUIRE = _lock.acquire
REAL_BEGIN = _ledger.begin
REAL_DUE = _plan.due
REAL_BEGIN_MEMBER = _steps._Step.begin_member
REAL_RECORD = _steps._Step.record
REAL_SCOPE = _scope.choose
REAL_RECHECKED = _walk.rechecked_members
REAL_CONCLUDE = _attempts.conclude
REAL_KNOWN = _revision.known_generations


def decode_alone_is_allowed(patch: pytest.MonkeyPatch) -> None:
    """Neither the plan nor the walk refuses stages that leave the prefills out."""
    patch.setattr(_walk, "_breaks_rule_one", lambda step, plan: "")
    patch.setattr(_plan, "_problems_of_stages", lambda *given: [])


def no_evidence_is_wanted(patch: pytest.MonkeyPatch) -> None:
    """A step runs whatever the steps before it gave."""
    patch.setattr(
        _walk,
        "decide",
        lambda step, plan, evidence: REAL_DECIDE(step, plan, evidence) if step in _walk.ALWAYS else (_walk.RUN, ""),
    )


def one_good_answer_is_enough(patch: pytest.MonkeyPatch) -> None:
    """The gate does not count."""

    def observe(watch: Any, observation: Any, now: float, limit_seconds: float, consecutive: int) -> Any:
        return REAL_OBSERVE(watch, observation, now, limit_seconds, 1)

    patch.setattr(_gate, "observe", observe)


def any_incarnation_counts(patch: pytest.MonkeyPatch) -> None:
    """Good answers are counted across incarnations."""

    def observe(watch: Any, observation: Any, now: float, limit_seconds: float, consecutive: int) -> Any:
        after = REAL_OBSERVE(watch, observation, now, limit_seconds, consecutive)
        if after["incarnation"] != watch["incarnation"] and watch["incarnation"] and after["outcome"] == _gate.WAITING:
            after = dict(after, good_answers=after["good_answers"] + watch["good_answers"])
        return after

    patch.setattr(_gate, "observe", observe)


def probes_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A unit that is active is taken for healthy."""

    def observe(watch: Any, observation: Any, now: float, limit_seconds: float, consecutive: int) -> Any:
        return REAL_OBSERVE(watch, dict(observation, probes=[]), now, limit_seconds, consecutive)

    patch.setattr(_gate, "observe", observe)


def lock_is_always_granted(patch: pytest.MonkeyPatch) -> None:
    """A held lock is taken without a reason."""
    patch.setattr(_lock, "acquire", lambda held, wanted, now, take_over: REAL_ACQUIRE(None, wanted, now, take_over))


def fence_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """A run whose lock was taken over goes on."""
    patch.setattr(_ledger, "fenced_off_by", lambda ledger, generation, run_id: None)
    patch.setattr(_steps, "_lost_to_another_run", lambda *given: "")


def slice_under_way_writes_on(patch: pytest.MonkeyPatch) -> None:
    """The fence is looked at when a slice begins, but not while it lasts."""
    patch.setattr(_steps, "_check_fence", lambda ledger, plan: ledger)


def everything_of_a_dead_run_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A resumed run asks neither systemd nor the phases what the dead one had reached."""

    def resumable(records: Any, seen: Any, limit_seconds: float) -> Any:
        run, keep = REAL_RESUMABLE(records, seen, limit_seconds)
        return (run, {_plan._key(record) for record in records}) if run else (run, keep)

    patch.setattr(_plan, "_resumable", resumable)


def failure_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """The ledgers do not get the outcome."""
    patch.setattr(_ledger, "end", lambda ledger, outcome, reason, now: ledger)


def recorded_failure_is_resumed(patch: pytest.MonkeyPatch) -> None:
    """A failure on record is taken for an interrupted run."""

    def resumable(records: Any, seen: Any, limit_seconds: float) -> Any:
        forgotten = [dict(record, ledger=dict(record["ledger"], outcome="")) for record in records]
        return REAL_RESUMABLE(forgotten, seen, limit_seconds)

    patch.setattr(_plan, "_resumable", resumable)


def other_ranks_stop_with_rank_0(patch: pytest.MonkeyPatch) -> None:
    """All ranks of an engine are stopped in the steps of the ranks above 0 first."""

    def members_of_step(step: str, plan: Any, host: str) -> Any:
        if step.startswith("stop_"):
            swapped = step[: -len("_ranks")] if step.endswith("_ranks") else step + "_ranks"
            return REAL_MEMBERS_OF_STEP(swapped, plan, host)
        return REAL_MEMBERS_OF_STEP(step, plan, host)

    patch.setattr(_walk, "members_of_step", members_of_step)


def queues_are_not_judged(patch: pytest.MonkeyPatch) -> None:
    """The proof ends with the requests, whatever the queues hold."""
    patch.setattr(_steps._Step, "settle", lambda self: self.result(_steps.OK))


def evidence_of_another_run_serves(patch: pytest.MonkeyPatch) -> None:
    """What a step gave is not asked for its run, nor for the incarnations that it gated."""
    patch.setattr(_walk, "_not_shown", lambda *given: "")


def gated_members_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """What died or was replaced after its gate is not noticed."""
    patch.setattr(_walk, "rechecked_members", lambda *given: [])


def kept_members_may_be_replaced(patch: pytest.MonkeyPatch) -> None:
    """A resumed run takes over whatever runs, not what the plan saw."""

    def begin_member(self: Any, member: Any) -> str:
        if member["action"] == "keep":
            member["before"] = self.host.unit(member["unit"])["invocation_id"]
        return REAL_BEGIN_MEMBER(self, member)

    patch.setattr(_steps._Step, "begin_member", begin_member)


def interrupted_run_is_never_resumed(patch: pytest.MonkeyPatch) -> None:
    """A rerun starts all over again, also what was just restarted."""
    patch.setattr(_plan, "_resumable", lambda *given: ("", set()))


def interrupted_run_is_resumed_after_any_time(patch: pytest.MonkeyPatch) -> None:
    """The limit for a resumption is not looked at."""
    patch.setattr(_plan, "_resumable", lambda records, seen, limit_seconds: REAL_RESUMABLE(records, seen, 1e9))


def closed_routers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """No ledger says that a router gave up its workers."""
    patch.setattr(_ledger, "close", lambda ledger, incarnation: ledger)


def closed_routers_are_not_opened_again(patch: pytest.MonkeyPatch) -> None:
    """A run that fails before it stopped anything leaves the routers as they are."""
    patch.setattr(_walk, "was_anything_stopped", lambda *given: True)


def requests_may_fail(patch: pytest.MonkeyPatch) -> None:
    """Requests are sent, and their answers ignored."""

    def requests(self: Any) -> Any:
        for member in self.members:
            self.host.ask(member, self.plan)
        return self.result(_steps.OK)

    patch.setattr(_steps._Step, "requests", requests)


def pairs_may_fail(patch: pytest.MonkeyPatch) -> None:
    """Pairs are asked, and their answers ignored."""

    def verify(self: Any) -> Any:
        if self.members:
            self.host.verify(self.plan, self.host_name, {}, 5)
        return self.result(_steps.OK)

    patch.setattr(_steps._Step, "verify", verify)


def ports_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Neither the plan nor the start minds who listens."""
    patch.setattr(_plan, "_problems_of_ports", lambda records: [])
    patch.setattr(_topology, "ports_of", lambda member: {})


def override_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """The reason of an override stays off the hosts."""

    def begin(ledger: Any, generation: int, run: Any, override: str, before: str, now: float, scope: str) -> Any:
        return REAL_BEGIN(ledger, generation, run, "", before, now, scope)

    patch.setattr(_ledger, "begin", begin)


def failed_step_does_not_stop_the_cluster(patch: pytest.MonkeyPatch) -> None:
    """A step that failed counts as evidence like any other."""

    def decide(step: str, plan: Any, evidence: Any) -> Any:
        verb, why = REAL_DECIDE(step, plan, evidence)
        return (_walk.RUN, "") if verb == _walk.SKIP and step not in _walk.ALWAYS else (verb, why)

    patch.setattr(_walk, "decide", decide)


def planning_writes(patch: pytest.MonkeyPatch) -> None:
    """A plan alters what was seen."""

    def due(records: Any) -> Any:
        records[0]["ledger"]["reason"] = "planned"
        return REAL_DUE(records)

    patch.setattr(_plan, "due", due)


def every_cluster_opted_in(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether a cluster allows its decodes to restart alone."""
    patch.setattr(_scope, "choose", lambda records, found, opted_in: REAL_SCOPE(records, found, True))


def every_version_heals(patch: pytest.MonkeyPatch) -> None:
    """The list of versions with evidence is not looked at."""
    patch.setattr(_scope, "_entries", lambda members: (list(_scope.HEALS), ""))


def replaced_decodes_go_alone(patch: pytest.MonkeyPatch) -> None:
    """A decode that died or was restarted by hand is taken for one whose settings changed."""

    def choose(records: Any, found: Any, opted_in: bool) -> Any:
        kinds = [dict(one, kind=_scope.CONFIGURATION) for one in found]
        return REAL_SCOPE(records, kinds, opted_in)

    patch.setattr(_scope, "choose", choose)


def routers_go_alone_whatever_is_due(patch: pytest.MonkeyPatch) -> None:
    """The smallest scope is always taken."""
    patch.setattr(_scope, "choose", lambda *given: _scope._scope(_scope.ROUTER_ALONE, "it is the smallest"))


def prefills_that_stay_are_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """Prefills that decodes restarted without may be replaced meanwhile."""
    patch.setattr(
        _walk,
        "rechecked_members",
        lambda step, plan, host: [m for m in REAL_RECHECKED(step, plan, host) if m["action"] != "none"],
    )


def small_scopes_are_never_widened(patch: pytest.MonkeyPatch) -> None:
    """Decodes that restarted alone and fail their proof are left like that."""
    patch.setattr(_attempts, "_PROOF", ())


def nothing_is_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """A failure is the end, whatever was asked for."""
    patch.setattr(_attempts, "conclude", lambda plan, evidence, rollback: REAL_CONCLUDE(plan, evidence, "never"))


def failures_are_kept_as_revisions(patch: pytest.MonkeyPatch) -> None:
    """What is deployed is kept however a co-restart ended."""

    def record(self: Any) -> Any:
        for member in self.members:
            self.host.keep_revision(member["unit"], self.plan["generation"])
        return REAL_RECORD(self)

    patch.setattr(_steps._Step, "record", record)


def the_oldest_revision_is_the_last_good_one(patch: pytest.MonkeyPatch) -> None:
    """A rollback goes back as far as it can."""
    patch.setattr(_revision, "known_generations", lambda records: REAL_KNOWN(records)[::-1])


def files_are_put_back_when_the_prefill_is_down(patch: pytest.MonkeyPatch) -> None:
    """The restoration waits until something was stopped."""
    real = REAL_BEGIN_MEMBER

    def begin_member(self: Any, member: Any) -> str:
        self.host.restore(_walk.restores(self.plan, self.host_name))
        return real(self, member)

    patch.setattr(_steps._Step, "begin_member", begin_member)
    patch.setattr(_steps._Step, "restore", lambda self: self.result(_steps.OK))


def every_lock_is_left_behind(patch: pytest.MonkeyPatch) -> None:
    """Nobody unlocks."""
    patch.setattr(_steps._Step, "unlock", lambda self: self.result(_steps.OK))


MUTANTS: list[tuple[Patch, str, tuple[str, ...]]] = [
    (decode_alone_is_allowed, "faults", ("1 order",)),
    (no_evidence_is_wanted, "faults", ("1 order", "2 stage", "3 proof", "4 failure")),
    (one_good_answer_is_enough, "faults", ("2 gate",)),
    (any_incarnation_counts, "faults", ("2 gate",)),
    (probes_are_not_looked_at, "faults", ("2 gate", "1 order")),
    (lock_is_always_granted, "two", ("6 lock",)),
    (fence_is_not_looked_at, "two", ("6 fence", "1 order")),
    (slice_under_way_writes_on, "two", ("6 fence",)),
    (everything_of_a_dead_run_is_kept, "deaths", ("5 resume", "5 due", "2 gate", "live", "3 proof", "1 order")),
    (failure_is_not_recorded, "faults", ("4 record", "5 due")),
    (recorded_failure_is_resumed, "faults", ("5 resume",)),
    (other_ranks_stop_with_rank_0, "faults", ("14 ranks",)),
    (queues_are_not_judged, "faults", ("3 proof",)),
    (evidence_of_another_run_serves, "tags", ("6 fence", "6 lock", "1 order", "3 proof", "4 others")),
    (gated_members_are_not_looked_at_again, "faults", ("3 proof", "1 order")),
    (kept_members_may_be_replaced, "deaths", ("3 proof",)),
    (interrupted_run_is_never_resumed, "deaths", ("5 twice",)),
    (interrupted_run_is_resumed_after_any_time, "deaths", ("5 resume",)),
    (closed_routers_are_forgotten, "deaths", ("5 due",)),
    (closed_routers_are_not_opened_again, "cut off", ("4 closed",)),
    (requests_may_fail, "faults", ("3 proof",)),
    (pairs_may_fail, "faults", ("3 proof",)),
    (ports_are_not_looked_at, "faults", ("7 ports",)),
    (override_is_not_recorded, "faults", ("1 override",)),
    (failed_step_does_not_stop_the_cluster, "faults", ("4 failure",)),
    (planning_writes, "faults", ("plan",)),
    (every_cluster_opted_in, "attempts", ("1 scope",)),
    (every_version_heals, "attempts", ("1 scope",)),
    (replaced_decodes_go_alone, "decodes alone", ("1 scope",)),
    (routers_go_alone_whatever_is_due, "attempts", ("1 scope", "8 rollback", "2 stage", "3 proof")),
    (prefills_that_stay_are_not_looked_at_again, "decodes alone", ("1 scope",)),
    (small_scopes_are_never_widened, "attempts", ("8 rollback",)),
    (nothing_is_rolled_back, "attempts", ("8 rollback",)),
    (failures_are_kept_as_revisions, "attempts", ("8 revision",)),
    (the_oldest_revision_is_the_last_good_one, "attempts", ("8 restore", "8 rollback")),
    (files_are_put_back_when_the_prefill_is_down, "attempts", ("8 restore",)),
    (every_lock_is_left_behind, "attempts", ("6 unlock",)),
]


@pytest.mark.parametrize(("mutate", "family", "rules"), MUTANTS, ids=[mutant[0].__name__ for mutant in MUTANTS])
def test_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, mutate: Patch, family: str, rules: tuple[str, ...]) -> None:
    """Break the core, play histories, and see which rule complains."""
    mutate(monkeypatch)
    assert_caught(ViolationError, rules, histories(family), play)
