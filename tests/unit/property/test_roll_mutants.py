# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulation of rolls can fail: a rule that is broken on purpose is found.

Each mutant is one change of the core or of an action; the generated histories of one family must run
into a violation, and it must be of the rule that the mutant breaks.
"""

from __future__ import annotations

from typing import Any, Callable

import pytest
from ansible_collections.inferops.sglang_pd.plugins.action import roll
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll
from ansible_collections.inferops.sglang_pd.plugins.modules import cluster_lock

from .generated import assert_caught
from .roll_histories import histories, play
from .roll_rules import ViolationError

Patch = Callable[[pytest.MonkeyPatch], None]

SERVED: dict[str, Any] = {"outcome": "ok", "failures": [], "parts": []}

REAL_BAD = _roll._bad
REAL_BATCHES = _roll._batches
REAL_CONFIRM = roll.ActionModule._confirm
REAL_ENDING = roll._ending
REAL_FILL = _roll._fill
REAL_GROUPS = _roll._groups
REAL_MAY_BEGIN = _roll.may_begin
REAL_MOST = _roll._most
REAL_OVER_BUDGET = _roll._over_budget
REAL_PROOF_OF = roll._proof_of
REAL_ROW = _roll._row
REAL_TOLD = _roll._told
REAL_WAVE = _roll._wave
REAL_WAVES = _roll._waves


def any_number_may_be_away(patch: pytest.MonkeyPatch) -> None:
    """The bounds are those of the fleet."""

    def most(rows: Any, options: Any) -> Any:
        return {group: dict(one, most=one["of"]) for group, one in REAL_MOST(rows, options).items()}

    patch.setattr(_roll, "_most", most)


def domains_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Only models count."""
    patch.setattr(_roll, "_groups", lambda row: REAL_GROUPS(row)[:1])


def failed_clusters_are_not_away(patch: pytest.MonkeyPatch) -> None:
    """What failed in this roll does not count against the bounds of the next wave."""
    patch.setattr(_roll, "_over_bounds", lambda *given: ("", ""))


def the_budget_is_endless(patch: pytest.MonkeyPatch) -> None:
    """Any number of clusters may fail."""
    patch.setattr(_roll, "_over_budget", lambda *given: "")


def canaries_may_fail_within_the_budget(patch: pytest.MonkeyPatch) -> None:
    """A canary or a repair that failed counts like any other cluster."""

    def over(plan: Any, ended: Any) -> str:
        waves = [dict(wave, kind=_roll.BATCH) for wave in plan["waves"]]
        before = {name: dict(one, kind=_roll.BATCH) for name, one in plan["before"].items()}
        return REAL_OVER_BUDGET(dict(plan, waves=waves, before=before), ended)

    patch.setattr(_roll, "_over_budget", over)


def failures_of_a_killed_process_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A resumed roll begins with an untouched budget."""
    patch.setattr(_roll, "_bad", lambda plan, ended: REAL_BAD(dict(plan, before={}), ended))


def no_cluster_goes_first(patch: pytest.MonkeyPatch) -> None:
    """There are no canaries."""
    patch.setattr(_roll, "_canaries", lambda *given: set())


def repairs_pass_for_canaries(patch: pytest.MonkeyPatch) -> None:
    """A resumed roll takes what it repaired for what it proved on those that serve."""

    def told(clusters: Any, events: Any) -> Any:
        return {name: dict(its, kind=_roll.BATCH) for name, its in REAL_TOLD(clusters, events).items()}

    patch.setattr(_roll, "_told", told)


def nobody_can_cancel(patch: pytest.MonkeyPatch) -> None:
    """The wish to end a roll is not looked at."""
    patch.setattr(_roll, "may_begin", lambda plan, events, number, _cancelled: REAL_MAY_BEGIN(plan, events, number, ""))


def nothing_waits_for_approval(patch: pytest.MonkeyPatch) -> None:
    """No wave is paused after."""
    patch.setattr(_roll, "_wave", lambda *given: dict(REAL_WAVE(*given), pause_after=False))


def batches_have_no_size(patch: pytest.MonkeyPatch) -> None:
    """Only the bounds limit a wave."""
    patch.setattr(_roll, "_fill", lambda rows, names, base, _size, bounds: REAL_FILL(rows, names, base, 1000, bounds))


def each_wave_is_a_batch_of_hosts(patch: pytest.MonkeyPatch) -> None:
    """Hosts that two waves need are in two batches."""
    patch.setattr(_roll, "_batches", lambda waves: [batch for wave in waves for batch in REAL_BATCHES([wave])])


def what_was_done_is_done_again(patch: pytest.MonkeyPatch) -> None:
    """A resumed roll plans what it did well once more."""
    patch.setattr(_roll, "_row", lambda one, told: REAL_ROW(dict(one, came_to=""), told))


def soaks_always_pass(patch: pytest.MonkeyPatch) -> None:
    """What the requests of the soak came to is not looked at."""

    def proof_of(cluster: str, wave: Any, registered: str, task_vars: Any) -> Any:
        return SERVED if registered == "pd_roll_after" else REAL_PROOF_OF(cluster, wave, registered, task_vars)

    patch.setattr(roll, "_proof_of", proof_of)


def clusters_are_not_asked_before_their_turn(patch: pytest.MonkeyPatch) -> None:
    """A cluster that stopped serving since the look is co-restarted among those that serve."""

    def proof_of(cluster: str, wave: Any, registered: str, task_vars: Any) -> Any:
        return SERVED if registered == "pd_roll_before" else REAL_PROOF_OF(cluster, wave, registered, task_vars)

    patch.setattr(roll, "_proof_of", proof_of)


def repairs_need_no_permission(patch: pytest.MonkeyPatch) -> None:
    """A roll begins although clusters do not serve, and nobody said that it may."""
    patch.setattr(_roll, "_may_repair", lambda *given: True)


def repairs_come_last(patch: pytest.MonkeyPatch) -> None:
    """Clusters that serve are taken away while others still do not."""

    def waves(*given: Any) -> Any:
        found = REAL_WAVES(*given)
        found = [w for w in found if w["kind"] != _roll.REPAIR] + [w for w in found if w["kind"] == _roll.REPAIR]
        return [dict(wave, number=number) for number, wave in enumerate(found, 1)]

    patch.setattr(_roll, "_waves", waves)


def reservations_are_granted_always(patch: pytest.MonkeyPatch) -> None:
    """Two rolls take from the same capacity, or walk the same roll."""

    def reserve(given: Any, write: bool) -> Any:
        found = cluster_lock_reserve(given, write)
        return dict(found, refused={}, announced={})

    cluster_lock_reserve = cluster_lock.reserve
    patch.setattr(cluster_lock, "reserve", reserve)
    patch.setattr(_roll, "_refusals", lambda *given: [])
    patch.setattr(roll, "_lost", lambda *given: "")


def reservations_are_left_behind(patch: pytest.MonkeyPatch) -> None:
    """Nobody releases the clusters."""
    patch.setattr(cluster_lock, "release", lambda given, write: {"changed": False})


def maintenance_is_not_honoured(patch: pytest.MonkeyPatch) -> None:
    """Clusters whose host somebody works on are rolled like others."""
    patch.setattr(_roll, "_row", lambda one, told: REAL_ROW(dict(one, maintenance=""), told))


def all_clusters_are_selected(patch: pytest.MonkeyPatch) -> None:
    """The selection is not looked at."""
    patch.setattr(_roll, "_row", lambda one, told: REAL_ROW(dict(one, selected=True), told))


def refused_rolls_begin(patch: pytest.MonkeyPatch) -> None:
    """A roll begins although a host did not reserve its clusters for it."""

    def confirm(given: Any, directory: str, task_vars: Any) -> Any:
        everything = {host: {given["reserved"]: {"refused": {}}} for host in given["roll"]["reserve"]}
        return REAL_CONFIRM(given, directory, {"hostvars": everything})

    patch.setattr(roll.ActionModule, "_confirm", staticmethod(confirm))


def failed_hooks_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A cluster is drained although its hook before that failed."""
    patch.setattr(_roll, "failed_hooks", lambda *given: {})


def what_went_back_is_told_as_done(patch: pytest.MonkeyPatch) -> None:
    """A rollback passes for the change."""

    def ending(*given: Any) -> Any:
        found = REAL_ENDING(*given)
        found.outcome = _roll.DONE if found.outcome == _roll.ROLLED_BACK else found.outcome
        return found

    patch.setattr(roll, "_ending", ending)


def what_went_back_after_its_soak_passes_for_done(patch: pytest.MonkeyPatch) -> None:
    """Where the process that put it back died, the hosts are asked only for attempts that failed."""

    def went_back(ledger: Any) -> bool:
        run, history = ledger["run"]["id"], ledger["history"]
        return any(past["run"].get("id") == run and past["outcome"] == "failed" for past in history)

    patch.setattr(_roll, "_went_back", went_back)


def nothing_remains(patch: pytest.MonkeyPatch) -> None:
    """A roll that ended early does not say what it left."""
    patch.setattr(_roll, "remaining", lambda *given: [])


MUTANTS: list[tuple[Patch, str, tuple[str, ...]]] = [
    (any_number_may_be_away, "failures", ("bound",)),
    (domains_are_not_counted, "failures", ("bound",)),
    (failed_clusters_are_not_away, "failures", ("bound",)),
    (the_budget_is_endless, "failures", ("budget", "canary")),
    (canaries_may_fail_within_the_budget, "failures", ("canary",)),
    (failures_of_a_killed_process_are_forgotten, "soaks", ("budget", "canary")),
    (no_cluster_goes_first, "failures", ("canaries first",)),
    (repairs_pass_for_canaries, "repairs", ("canaries first",)),
    (nobody_can_cancel, "disturbed", ("cancel",)),
    (nothing_waits_for_approval, "failures", ("pause",)),
    (batches_have_no_size, "failures", ("batch",)),
    (each_wave_is_a_batch_of_hosts, "failures", ("hosts",)),
    (what_was_done_is_done_again, "deaths", ("twice",)),
    (soaks_always_pass, "failures", ("events", "done", "remaining", "canary", "budget", "bound")),
    (clusters_are_not_asked_before_their_turn, "disturbed", ("plan",)),
    (repairs_need_no_permission, "failures", ("capacity",)),
    (repairs_come_last, "repairs", ("capacity", "canaries first", "live")),
    (reservations_are_granted_always, "rivals", ("alone", "bound", "twice")),
    (reservations_are_left_behind, "failures", ("reservations",)),
    (maintenance_is_not_honoured, "disturbed", ("plan", "bound")),
    (all_clusters_are_selected, "failures", ("plan",)),
    (refused_rolls_begin, "rivals", ("alone", "bound", "refused", "twice")),
    (failed_hooks_are_forgotten, "failures", ("plan",)),
    (what_went_back_is_told_as_done, "failures", ("events", "done", "remaining", "canary", "budget")),
    (what_went_back_after_its_soak_passes_for_done, "soaks", ("events", "canary", "budget", "done")),
    (nothing_remains, "failures", ("remaining", "done")),
]


@pytest.mark.parametrize(("mutate", "family", "rules"), MUTANTS, ids=[mutant[0].__name__ for mutant in MUTANTS])
def test_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, mutate: Patch, family: str, rules: tuple[str, ...]) -> None:
    """Break a rule, play histories, and see which invariant complains."""

    mutate(monkeypatch)
    assert_caught(ViolationError, rules, histories(family), play)
