# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll: the co-restarts of many clusters in waves, within a bound on what is away at a time.

Pure. :func:`make_roll` plans the waves from what the hosts said; :func:`may_begin` decides
before each wave from what became of those before it. A cluster that is away (down, in
maintenance, failed in this roll, or being restarted) counts against the bounds of its model and
of its failure domains. Clusters whose hosts overlap are walked in one batch of hosts, because a
play visits each host once; within it their waves follow each other.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _scope
from ansible_collections.inferops.sglang_pd.plugins.module_utils._roll_events import (
    DONE,
    FAILED,
    NOTHING,
    PAUSED,
    REFUSED,
    ROLLED_BACK,
    STOPPED,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import problem

FORMAT = 1

# What a cluster does for its users when the roll is planned.
SERVES, DOWN, UNKNOWN = "serves", "down", "unknown"

# What the roll does with a cluster, if it is not refused.
ROLL, SKIP, MAINTENANCE = "roll", "skip", "maintenance"

# Kinds of waves, in the order in which they come.
REPAIR, CANARY, BATCH = "repair", "canary", "batch"

#: Outcomes that count against the failure budget: what was wanted does not run.
BAD = (FAILED, ROLLED_BACK, REFUSED)

#: When a roll pauses for approval.
AFTER_CANARY, AFTER_EACH_WAVE, NEVER = "after_canary", "after_each_wave", "never"

#: Kinds of findings that tell of a cluster that may not serve; a changed configuration does not.
_NOT_SERVING = (
    _scope.DOWN,
    _scope.REPLACED,
    _scope.CLOSED,
    _scope.FAILED,
    _scope.UNFINISHED,
    _scope.GENERATIONS,
)
#: Past co-restarts that an expected duration is the median of.
_PAST = 5


def condition(records: list[dict[str, Any]], proof: dict[str, Any] | None) -> tuple[str, str]:
    """Return whether a cluster serves, and the evidence.

    :param records: its members as ``member_info`` found them.
    :param proof: result of the requests that were sent to it (``outcome``, ``failures``), None
        where none were: then units and ledgers alone decide, which prove nothing.
    """
    if not records:
        return UNKNOWN, "it is not in this run: choose clusters by pd_roll_clusters, not by --limit"
    found = [one["reason"] for one in _scope.findings(records) if one["kind"] in _NOT_SERVING]
    if proof is not None and proof["outcome"] != "ok":
        return DOWN, "; ".join([*proof["failures"], *found])
    if found:
        return DOWN, "; ".join(found)
    return SERVES, "requests were served" if proof else "its units and ledgers are as they should be; no request sent"


def expected_seconds(records: list[dict[str, Any]]) -> float | None:
    """Return how long past co-restarts of the whole chain took, from the first stop to the record.

    The median of the last ones that ended well, None where there are none. Each time is of one
    host's clock; the host that took longest counts, which is a prefill's.
    """
    longest: dict[int, float] = {}
    for record in records:
        for past in [*record["ledger"]["history"], record["ledger"]]:
            whole = past.get("scope") in ("", _scope.WHOLE_CHAIN) and past["outcome"] == _ledger.OK
            if whole and past["began_at"] is not None and past["ended_at"] is not None:
                seconds = past["ended_at"] - past["began_at"]
                longest[past["generation"]] = max(seconds, longest.get(past["generation"], 0.0))
    times = [longest[generation] for generation in sorted(longest)[-_PAST:]]
    return round(statistics.median(times), 1) if times else None


def came_to(records: list[dict[str, Any]], roll_id: str) -> str:
    """Return what a roll made of a cluster, as its hosts tell: done, rolled_back or failed.

    "" where they tell of no end of this roll's, or something happened to the cluster since.
    """
    ledgers = [record["ledger"] for record in records]
    latest = max((ledger["generation"] for ledger in ledgers), default=0)
    its = [ledger for ledger in ledgers if latest and ledger["generation"] == latest]
    if not its or not all(str(ledger["run"].get("id", "")).startswith(roll_id + ".") for ledger in its):
        return ""
    if any(ledger["outcome"] == _ledger.FAILED for ledger in its):
        return FAILED
    if _scope.findings(records):
        return ""
    return ROLLED_BACK if any(map(_went_back, its)) else DONE


def _went_back(ledger: dict[str, Any]) -> bool:
    """Tell whether the attempt on record followed on one of the same run, and did not widen it.

    One that ended well is followed by another one of its run only where it failed its soak.
    """
    return any(
        past["run"].get("id") == ledger["run"]["id"]
        and not (past["outcome"] == _ledger.FAILED and past.get("scope") == _scope.DECODE_ALONE)
        for past in ledger["history"]
    )


def was_interrupted(records: list[dict[str, Any]], roll_id: str) -> bool:
    """Tell whether a roll had begun with a cluster and died: nothing failed, and it was not finished."""
    ledgers = [record["ledger"] for record in records]
    latest = max((ledger["generation"] for ledger in ledgers), default=0)
    of_latest = [ledger for ledger in ledgers if ledger["generation"] == latest]
    if any(ledger["outcome"] == _ledger.FAILED for ledger in of_latest):
        return False
    announced = [one["fence"]["run"] for one in ledgers if one["fence"] and one["fence"]["generation"] > latest]
    unfinished = [ledger["run"] for ledger in of_latest if not ledger["outcome"]]
    return any(str(run.get("id", "")).startswith(roll_id + ".") for run in [*announced, *unfinished])


def run_id_of(roll_id: str, wave: int, mark: str) -> str:
    """Return the id of a wave's co-restarts in ledgers and locks.

    :param mark: tells the walks of one wave apart, where a first one was interrupted.
    """
    return "{0}.{1}.{2}".format(roll_id, wave, mark)


def count_of(text: str, total: int, at_least: int) -> int:
    """Return a number, or a percentage of a total rounded down, but not less than ``at_least``.

    :raises ValueError: where it is neither.
    """
    words = str(text).strip()
    if words.endswith("%"):
        percent = float(words[:-1])
        if not 0 <= percent <= 100:
            raise ValueError(words)
        return max(at_least, int(total * percent / 100))
    number = int(words)
    if number < 0:
        raise ValueError(words)
    return max(at_least, number)


def wrong_options(options: dict[str, Any], known: Iterable[str]) -> list[dict[str, str]]:
    """Return what is wrong with the options of a roll.

    :param known: names of all clusters.
    """
    found = []
    for name in ("max_unavailable", "max_unavailable_per_domain", "batch", "failure_budget"):
        if name == "max_unavailable_per_domain" and not options[name]:
            continue
        try:
            count_of(options[name], 1, 0)
        except ValueError:
            found.append(
                problem(
                    "a number or a percentage",
                    "{0!r} is neither a number of clusters nor a percentage such as 25%".format(options[name]),
                    variable="pd_roll_" + name,
                )
            )
    unknown = sorted(set(options["canary"]) - set(known))
    if unknown:
        found.append(
            problem("known clusters", "there is no cluster {0}".format(", ".join(unknown)), variable="pd_roll_canary")
        )
    return found


def make_roll(
    clusters: dict[str, dict[str, Any]], asked: dict[str, Any], events: Iterable[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the plan of a roll, as it is in ``plan.json``; docs/rolling.md describes it.

    :param clusters: of the inventory, by name: ``plan`` (see :func:`_plan.make_plan`), ``model``,
        ``domains``, ``hosts``, ``condition`` and ``evidence``, ``answers`` (requests that were sent to it),
        ``maintenance`` (why, or ""),
        ``reserved`` (who else rolls it, or ""), ``selected``, ``came_to`` (what this roll made of it
        already, see :func:`came_to`), ``interrupted`` (whether it had begun with it and died), ``generation``
        (on record), ``announced`` (generation, to the host of its lock), ``settings``, ``expected_seconds``.
    :param asked: ``roll``, ``made_at``, ``owner``, ``purpose``, ``options``: ``max_unavailable``
        and ``max_unavailable_per_domain`` ("" for no bound), ``canary`` (names),
        ``canaries_per_model``, ``batch``, ``failure_budget``, ``repair``, ``soak_seconds``,
        ``pause``.
    :param events: of the processes that walked this roll before, where it goes on.
    """
    options = asked["options"]
    told = _told(clusters, events)
    rows = {name: _row(one, told[name]) for name, one in sorted(clusters.items())}
    problems = wrong_options(options, clusters)
    roll: dict[str, Any] = {
        "format": FORMAT,
        "roll": asked["roll"],
        "made_at": asked["made_at"],
        "owner": asked["owner"],
        "purpose": asked["purpose"],
        "options": options,
        "problems": problems,
        "warnings": [],
        "waves": [],
        "batches": [],
        "expected_seconds": None,
        "before": {},
        "clusters": rows,
    }
    if not problems:
        problems += _refusals(clusters, rows, options)
    rolling = [name for name, row in rows.items() if row["decision"] == ROLL]
    if not problems and rolling:
        problems += _too_little(rows, rolling, options)
    if problems:
        return dict(roll, decision=REFUSED)
    if not rolling:
        return dict(roll, decision=NOTHING, before=_before(clusters, told, rows))
    # A repair proves nothing for those that serve: their first one is a canary, now as in a first plan.
    proved = [
        name
        for name in rows
        if clusters[name]["came_to"] == told[name]["outcome"] == DONE
        and told[name]["wave"]
        and told[name]["kind"] != REPAIR
    ]
    roll["waves"] = _waves(rows, rolling, proved, options)
    for wave in roll["waves"]:
        for name in wave["clusters"]:
            rows[name]["wave"] = wave["number"]
    roll["before"] = _before(clusters, told, rows)
    roll["batches"] = _batches(roll["waves"])
    times = [wave["expected_seconds"] for wave in roll["waves"]]
    roll["expected_seconds"] = None if None in times else round(sum(times), 1)
    roll["warnings"] = _warnings(rows, rolling)
    return dict(roll, decision="go")


def _told(clusters: dict[str, dict[str, Any]], events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what was told last of each cluster, over all processes of a roll.

    :return: by cluster ``outcome`` ("": nothing, or it was co-restarted once more since), ``kind`` of its last
        wave, ``wave`` in which it was told, ``open`` (whether the roll was not told to have ended since).
    """
    found: dict[str, dict[str, Any]] = {
        name: {"outcome": "", "kind": BATCH, "wave": 0, "generation": 0, "open": True} for name in clusters
    }
    for event in events:
        if event["event"] == "wave_began":
            for name in found.keys() & set(event["clusters"]):
                found[name]["kind"] = event["kind"]
        elif event["event"] == "cluster_ended" and event["cluster"] in found:
            one = clusters[event["cluster"]]
            is_old = bool(one["came_to"]) and event["generation"] < one["generation"]
            outcome = "" if is_old else event["outcome"]
            its = {key: event[key] for key in ("wave", "generation")}
            found[event["cluster"]].update(its, outcome=outcome, open=True)
        elif event["event"] == "roll_ended" and event["outcome"] != REFUSED:
            for its in found.values():
                its["open"] = False
    return found


def _before(
    clusters: dict[str, dict[str, Any]], told: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return what counts of a process of this roll that died: what it did not come to tell, and what failed.

    A roll that was told to have ended goes on because somebody decided so; one that was killed does not. What
    this plan does once more counts by what becomes of it now, and so does what somebody else did since.
    """
    found = {}
    for name, one in clusters.items():
        its = told[name]
        if rows[name]["wave"]:
            continue
        if one["came_to"] and not its["outcome"]:
            found[name] = {"outcome": one["came_to"], "kind": its["kind"], "told": False}
        elif its["open"] and its["outcome"] in BAD and its["generation"] == one["generation"]:
            found[name] = {"outcome": its["outcome"], "kind": its["kind"], "told": True}
    return found


def _row(one: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """Return what the plan says of one cluster; what is decided later is not in it yet."""
    plan = one["plan"]
    decision, why = SKIP, plan["why"]
    if one["maintenance"]:
        decision, why = MAINTENANCE, one["maintenance"]
    elif not one["selected"]:
        why = "not selected"
    elif one["came_to"] == DONE and one["condition"] == SERVES and told["outcome"] not in BAD:
        why = "this roll did it already"
    elif plan["decision"] == "refused":
        decision, why = REFUSED, "; ".join(item["message"] for item in plan["problems"])
    elif plan["decision"] == "go":
        decision = ROLL
    row = {
        "model": one["model"],
        "domains": one["domains"],
        "hosts": one["hosts"],
        "condition": one["condition"],
        "evidence": one["evidence"],
        "answers": one["answers"],
        "interrupted": one["interrupted"],
        "on_record": one["generation"],
        "announced": one["announced"],
        "decision": decision,
        "why": why,
        "wave": 0,
        "due": plan["due"],
        "settings": one["settings"],
        "expected_seconds": one["expected_seconds"],
        "warnings": plan["warnings"],
        "stages": [],
        "scope": {},
        "restarts": [],
        "generation": 0,
    }
    if decision == ROLL:
        row.update(
            stages=plan["scope"]["stages"],
            scope={key: plan["scope"][key] for key in ("rule", "reason")},
            generation=plan["generation"],
            restarts=[
                {key: member[key] for key in ("unit", "host", "role", "action", "reason")}
                for member in plan["members"]
                if member["action"] in ("restart", "start")
            ],
        )
    return row


def _refusals(
    clusters: dict[str, dict[str, Any]], rows: dict[str, dict[str, Any]], options: dict[str, Any]
) -> list[dict[str, str]]:
    """Return why nothing may be rolled: a cluster that cannot be, or one that another roll has."""
    found = []
    for name, row in rows.items():
        if row["decision"] == REFUSED:
            found += clusters[name]["plan"]["problems"]
    rolling = [name for name, row in rows.items() if row["decision"] == ROLL]
    for name, group in _sharing(rows, rolling, options).items():
        if clusters[name]["reserved"]:
            found.append(
                problem(
                    "one roll at a time",
                    "cluster {0} of {1} {2} is in roll {3}: two rolls would take away more together than each may. "
                    "Resume that one, or if it is dead: inferops.sglang_pd.unlock".format(
                        name, group[0][:-1], group[1], clusters[name]["reserved"]
                    ),
                )
            )
    return found


def _sharing(
    rows: dict[str, dict[str, Any]], names: Iterable[str], options: dict[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return the clusters that count against the same bounds as others, and one of the groups that they share."""
    touched = {group for name in names for group in _groups(rows[name]) if _bound(group, options)}
    found = {}
    for name, row in rows.items():
        shared = [group for group in _groups(row) if group in touched]
        if shared:
            found[name] = shared[0]
    return found


def to_reserve(roll: dict[str, Any]) -> list[str]:
    """Return the clusters that no other roll may take away meanwhile: all that count against the bounds of this one."""
    rows = roll["clusters"]
    shared = _sharing(rows, [name for name, row in rows.items() if row["wave"]], roll["options"])
    # Of one that is in maintenance the host may be gone, and nobody rolls it.
    return [name for name in shared if rows[name]["decision"] != MAINTENANCE]


def _bound(group: tuple[str, str], options: dict[str, Any]) -> str:
    """Return the bound of a group, "" where there is none."""
    return str(options["max_unavailable" if group[0] == "models" else "max_unavailable_per_domain"])


def _groups(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a cluster's absence counts against: its model and its failure domains."""
    return [("models", row["model"]), *(("domains", domain) for domain in row["domains"])]


def _most(rows: dict[str, dict[str, Any]], options: dict[str, Any]) -> dict[tuple[str, str], dict[str, int]]:
    """Return how many clusters each model and domain has (``of``) and how many may be away (``most``)."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for row in rows.values():
        for group in _groups(row):
            found.setdefault(group, {"of": 0, "most": 0})["of"] += 1
    for group, one in found.items():
        bound = _bound(group, options)
        # A bound of none would forbid every co-restart.
        one["most"] = count_of(bound, one["of"], 1) if bound else one["of"]
    return found


def _away(rows: dict[str, dict[str, Any]], names: Iterable[str]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for name in names:
        for group in _groups(rows[name]):
            counts[group] = counts.get(group, 0) + 1
    return counts


def _is_away(row: dict[str, Any]) -> bool:
    return bool(row["decision"] == MAINTENANCE or row["condition"] != SERVES)


def _too_little(rows: dict[str, dict[str, Any]], rolling: list[str], options: dict[str, Any]) -> list[dict[str, str]]:
    """Return why the fleet has too little capacity for a roll to begin."""
    found = []
    for name in _sharing(rows, rolling, options):
        row = rows[name]
        if row["decision"] == MAINTENANCE or row["condition"] == SERVES or _may_repair(row, options):
            continue
        found.append(
            problem(
                "no roll on a fleet that is below capacity",
                "cluster {0} of model {1} does not serve ({2}). Repair it first: inferops.sglang_pd.co_restart -e "
                "pd_co_restart_clusters={0}; or let the roll begin with those that do not serve: -e "
                "pd_roll_repair=true".format(name, row["model"], row["evidence"]),
            )
        )
    if not found:
        repaired = {name for name in rolling if rows[name]["condition"] != SERVES}
        away = [name for name, row in rows.items() if _is_away(row) and name not in repaired]
        found += _over(rows, away, [name for name in rolling if _takes(rows[name])], options)
    return found


def _takes(row: dict[str, Any]) -> bool:
    """Tell whether a co-restart of a cluster takes something away: also one that is not as it should be may answer."""
    return bool(row["condition"] == SERVES or row["answers"])


def _may_repair(row: dict[str, Any], options: dict[str, Any]) -> bool:
    """Tell whether a roll may begin although a cluster does not serve: what this roll left so is its own to finish."""
    return bool(row["condition"] == DOWN and (options["repair"] or row["interrupted"]))


def _over(
    rows: dict[str, dict[str, Any]], away: list[str], healthy: list[str], options: dict[str, Any]
) -> list[dict[str, str]]:
    """Return a problem for each group in which nothing may be taken away any more."""
    bounds, counts = _most(rows, options), _away(rows, away)
    found = []
    for group in sorted({group for name in healthy for group in _groups(rows[name])}):
        if counts.get(group, 0) < bounds[group]["most"]:
            continue
        names = [name for name in away if group in _groups(rows[name])]
        found.append(
            problem(
                "no roll on a fleet that is below capacity",
                "{0} {1}: {2} of {3} clusters are away already ({4}), and at most {5} may be".format(
                    group[0][:-1],
                    group[1],
                    counts[group],
                    bounds[group]["of"],
                    ", ".join("{0}: {1}".format(name, _why_away(rows[name])) for name in names),
                    bounds[group]["most"],
                ),
                variable="pd_roll_max_unavailable" + ("" if group[0] == "models" else "_per_domain"),
            )
        )
    return found


def _why_away(row: dict[str, Any]) -> str:
    return "in maintenance" if row["decision"] == MAINTENANCE else "does not serve"


def _waves(
    rows: dict[str, dict[str, Any]], rolling: list[str], done: list[str], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the waves: those that do not serve, then canaries, then the rest.

    :param done: what was done and watched in this roll before; these canaries sing no more.
    """
    ordered = _neighbours_together(rows, rolling, options["canary"])
    down = [name for name in ordered if rows[name]["condition"] != SERVES]
    # Of what is to be repaired, some may answer all the same: these come later, and within the bounds.
    silent = [name for name in down if not _takes(rows[name])]
    serving = [name for name in ordered if rows[name]["condition"] == SERVES]
    canaries = _canaries(rows, serving, done, options)
    size = count_of(options["batch"], len(rolling), 1)
    bounds = _most(rows, options)
    # Those that were repaired are back by then.
    away = {name for name, row in rows.items() if _is_away(row)} - set(down)
    waves: list[dict[str, Any]] = []
    for kind, names, base in (
        (REPAIR, silent, away | set(silent)),
        (REPAIR, [name for name in down if _takes(rows[name])], away),
        (CANARY, [name for name in serving if name in canaries], away),
        (BATCH, [name for name in serving if name not in canaries], away),
    ):
        for chosen in _fill(rows, names, base, size, bounds):
            waves.append(_wave(len(waves) + 1, kind, chosen, rows, base, bounds, options))
    return waves


def _neighbours_together(rows: dict[str, dict[str, Any]], names: list[str], first: list[str]) -> list[str]:
    """Return names such that clusters with common hosts stand together, those of ``first`` at the front."""
    of_host: dict[str, list[str]] = {}
    for name in names:
        for host in rows[name]["hosts"]:
            of_host.setdefault(host, []).append(name)
    placed: dict[str, None] = {}
    known = set(names)
    for start in [*(name for name in first if name in known), *names]:
        waiting = [start]
        while waiting:
            name = waiting.pop(0)
            if name in placed:
                continue
            placed[name] = None
            waiting += sorted({other for host in rows[name]["hosts"] for other in of_host[host]})
    return list(placed)


def _canaries(
    rows: dict[str, dict[str, Any]], serving: list[str], done: list[str], options: dict[str, Any]
) -> set[str]:
    """Return the clusters that go first: those named, else so many of each model that has more than that."""
    if options["canary"]:
        return set(options["canary"])
    of_model: dict[str, list[str]] = {}
    for name in dict.fromkeys([*done, *serving]):
        of_model.setdefault(rows[name]["model"], []).append(name)
    many = options["canaries_per_model"]
    return {name for names in of_model.values() if len(names) > many for name in names[:many]}


def _fill(
    rows: dict[str, dict[str, Any]],
    names: list[str],
    base: set[str],
    size: int,
    bounds: dict[tuple[str, str], dict[str, int]],
) -> Iterable[list[str]]:
    """Yield waves of at most ``size`` clusters that keep within the bounds, in order as far as these allow."""
    away = _away(rows, base)
    left = list(names)
    while left:
        counts = dict(away)
        chosen: list[str] = []
        for name in left:
            if len(chosen) == size:
                break
            if name in base:
                # One that is away already takes nothing more away.
                chosen.append(name)
                continue
            groups = _groups(rows[name])
            if all(counts.get(group, 0) < bounds[group]["most"] for group in groups):
                chosen.append(name)
                for group in groups:
                    counts[group] = counts.get(group, 0) + 1
        yield chosen
        taken = set(chosen)
        left = [name for name in left if name not in taken]


def _wave(
    number: int,
    kind: str,
    names: list[str],
    rows: dict[str, dict[str, Any]],
    base: set[str],
    bounds: dict[tuple[str, str], dict[str, int]],
    options: dict[str, Any],
) -> dict[str, Any]:
    counts = _away(rows, {*base, *names})
    unavailable: dict[str, dict[str, dict[str, int]]] = {"models": {}, "domains": {}}
    for group in sorted({group for name in names for group in _groups(rows[name])}):
        unavailable[group[0]][group[1]] = dict(bounds[group], clusters=counts[group])
    times = [rows[name]["expected_seconds"] for name in names]
    pause = options["pause"]
    return {
        "number": number,
        "kind": kind,
        "clusters": names,
        "hosts": sorted({host for name in names for host in rows[name]["hosts"]}),
        "soak_seconds": options["soak_seconds"],
        "expected_seconds": None if None in times else round(max(times) + options["soak_seconds"], 1),
        "pause_after": pause == AFTER_EACH_WAVE or (pause == AFTER_CANARY and kind == CANARY),
        "unavailable": unavailable,
    }


def _batches(waves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the waves in batches of hosts: a host is in one batch only, however many waves need it."""
    last: dict[str, int] = {}
    for index, wave in enumerate(waves):
        for host in wave["hosts"]:
            last[host] = index
    batches: list[dict[str, Any]] = []
    end = -1
    for index, wave in enumerate(waves):
        if index > end:
            batches.append({"waves": [], "hosts": []})
        batches[-1]["waves"].append(wave["number"])
        batches[-1]["hosts"] += [host for host in wave["hosts"] if host not in batches[-1]["hosts"]]
        end = max(end, *(last[host] for host in wave["hosts"]))
    return batches


def _warnings(rows: dict[str, dict[str, Any]], rolling: list[str]) -> list[str]:
    totals: dict[str, int] = {}
    for row in rows.values():
        totals[row["model"]] = totals.get(row["model"], 0) + 1
    alone = sorted(name for name in rolling if totals[rows[name]["model"]] == 1)
    if not alone:
        return []
    return ["nobody else serves the model of {0}: it is away while its only cluster restarts".format(", ".join(alone))]


def _since_it_began(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of the last process that walked the roll: it made the plan anew."""
    began = max((index for index, event in enumerate(events) if event["event"] == "roll_began"), default=0)
    return events[began:]


def outcomes(events: list[dict[str, Any]]) -> dict[str, str]:
    """Return what became of the clusters of this plan so far."""
    return {
        event["cluster"]: event["outcome"] for event in _since_it_began(events) if event["event"] == "cluster_ended"
    }


def may_begin(roll: dict[str, Any], events: list[dict[str, Any]], number: int, cancelled: str) -> tuple[str, str]:
    """Return ("", "") where a wave may begin, else what the roll comes to and why.

    :param number: of the wave.
    :param cancelled: why somebody wants the roll to end, or "".
    """
    ended = outcomes(events)
    over = _over_budget(roll, ended)
    if over:
        return FAILED, over
    if cancelled:
        return STOPPED, cancelled
    waves = {wave["number"]: wave for wave in roll["waves"]}
    if number - 1 in waves and waves[number - 1]["pause_after"] and ended:
        return PAUSED, "waiting for approval after wave {0} ({1})".format(number - 1, waves[number - 1]["kind"])
    return _over_bounds(roll, ended, waves[number])


def _over_budget(roll: dict[str, Any], ended: dict[str, str]) -> str:
    """Return why the failures so far end the roll, or ""."""
    bad = _bad(roll, ended)
    if not bad:
        return ""
    kinds = {name: one["kind"] for name, one in roll.get("before", {}).items()}
    kinds.update({name: wave["kind"] for wave in roll["waves"] for name in wave["clusters"]})
    first = [name for name in bad if kinds[name] != BATCH]
    if first:
        return "{0} {1} failed: what fails there is not done to others".format(kinds[first[0]], ", ".join(first))
    rolling = [name for name, row in roll["clusters"].items() if row["decision"] == ROLL]
    budget = count_of(roll["options"]["failure_budget"], len(rolling), 0)
    if len(bad) <= budget:
        return ""
    return "{0} failed, and the budget (pd_roll_failure_budget) is {1}".format(", ".join(bad), budget)


def _bad(roll: dict[str, Any], ended: dict[str, str]) -> list[str]:
    """Return the clusters that failed in this process, and in those before it that died."""
    came = dict({name: one["outcome"] for name, one in roll.get("before", {}).items()}, **ended)
    return sorted(name for name, outcome in came.items() if outcome in BAD)


def _over_bounds(roll: dict[str, Any], ended: dict[str, str], wave: dict[str, Any]) -> tuple[str, str]:
    """Return why a wave would take away too much now: clusters that failed in this roll are away, too."""
    rows = roll["clusters"]
    back = {name for name, outcome in ended.items() if outcome in (DONE, NOTHING, ROLLED_BACK)}
    lost = {name for name, outcome in ended.items() if outcome in (FAILED, REFUSED)}
    away = {name for name, row in rows.items() if _is_away(row) and name not in back} | lost
    bounds, counts = _most(rows, roll["options"]), _away(rows, away | set(wave["clusters"]))
    taken = set(wave["clusters"]) - away
    for group in sorted({group for name in taken for group in _groups(rows[name])}):
        if counts[group] > bounds[group]["most"]:
            return FAILED, (
                "{0} {1}: {2} failed and is away; wave {3} would make it {4} of {5} clusters, and at most {6} "
                "may be".format(
                    group[0][:-1],
                    group[1],
                    ", ".join(sorted(name for name in lost if group in _groups(rows[name]))) or "nothing",
                    wave["number"],
                    counts[group],
                    bounds[group]["of"],
                    bounds[group]["most"],
                )
            )
    return "", ""


def over_after(roll: dict[str, Any], events: list[dict[str, Any]], number: int, cancelled: str) -> tuple[str, str]:
    """Return what the roll comes to after a wave and why, ("", "") where the next one follows."""
    last = max(wave["number"] for wave in roll["waves"])
    if number < last:
        return may_begin(roll, events, number + 1, cancelled)
    return conclusion(roll, events)


def conclusion(roll: dict[str, Any], events: list[dict[str, Any]]) -> tuple[str, str]:
    """Return what a roll comes to whose waves ended without a word, and why."""
    bad = _bad(roll, outcomes(events))
    if bad:
        return FAILED, "{0} failed".format(", ".join(bad))
    left = remaining(roll, events)
    if left:
        return FAILED, "its waves ended before {0}, and no event says why".format(", ".join(left))
    return (DONE if roll["waves"] else NOTHING), ""


def remaining(roll: dict[str, Any], events: list[dict[str, Any]]) -> list[str]:
    """Return the clusters that a resumed roll still has to do, in the order of their waves."""
    ended = outcomes(events)
    return [name for wave in roll["waves"] for name in wave["clusters"] if ended.get(name) not in (DONE, NOTHING)]


def failed_hooks(events: list[dict[str, Any]], wave: int, hook: str) -> dict[str, str]:
    """Return the clusters of a wave whose hook failed, and what it said."""
    return {
        event["cluster"]: event["message"]
        for event in _since_it_began(events)
        if event["event"] == "hook_ended" and (event["wave"], event["hook"], event["outcome"]) == (wave, hook, "failed")
    }


def end_of(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the event that ended the roll, None while it goes on."""
    return next((event for event in _since_it_began(events) if event["event"] == "roll_ended"), None)


def summary(roll: dict[str, Any], events: list[dict[str, Any]]) -> list[str]:
    """Return what a roll came to as lines for people."""
    ended = end_of(events) or {"outcome": "interrupted", "why": "", "remaining": remaining(roll, events)}
    lines = ["roll {0}: {1}{2}".format(roll["roll"], ended["outcome"], ended["why"] and ": " + ended["why"])]
    for event in _since_it_began(events):
        if event["event"] == "cluster_ended":
            lines.append("  {cluster}: {outcome} (wave {wave})".format(**event))
            if event["outcome"] in BAD:
                lines += ["    " + line for line in event["message"].splitlines()]
    if ended["remaining"]:
        lines.append("  remain: {0}".format(", ".join(ended["remaining"])))
        lines.append("  go on: the same again with -e pd_roll_id={0}".format(roll["roll"]))
    return lines
