# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a roll came to, for all who tell of it: comments, pages and test results. Pure.

:func:`account` puts plan and events side by side: every cluster of either has one outcome, and what failed has its
evidence. Also of a roll that was killed, that was resumed, or that was refused before anything began.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _hypotheses, _roll_events, _scope, _walk
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_words as words

#: Outcomes of a cluster beside those of :mod:`_roll_events`: work on it was cut off; its turn never came; work on it
#: goes on; the plan left it alone.
INTERRUPTED, REMAINS, WORKING = "interrupted", "remains", "working"
SKIPPED, MAINTENANCE = "skipped", "maintenance"
#: Of a roll that has a plan and no event.
PLANNED = "planned"
#: In the order in which somebody wants to know of them.
OUTCOMES = (
    _roll_events.FAILED,
    _roll_events.ROLLED_BACK,
    INTERRUPTED,
    _roll_events.REFUSED,
    WORKING,
    REMAINS,
    _roll_events.DONE,
    _roll_events.NOTHING,
    MAINTENANCE,
    SKIPPED,
)
#: What was wanted of them does not run.
BAD = (_roll_events.FAILED, _roll_events.ROLLED_BACK, INTERRUPTED, _roll_events.REFUSED)

#: Stages that a report tells apart, with their steps. Taking and giving back the lock are moments.
DRAIN, PROOF, SOAK = "drain", "proof", "soak"
STEPS_OF = {
    DRAIN: (_walk.CLOSE, _walk.DRAIN),
    PREFILL: ("stop_prefill", "stop_prefill_ranks", "start_prefill"),
    DECODE: ("stop_decode", "stop_decode_ranks", "start_decode"),
    ROUTER: ("restart_router",),
    PROOF: (_walk.REQUESTS, _walk.VERIFY, _walk.SETTLE),
}

RESUMED, WIDENED, BACK = "resumed", _scope.WHOLE_CHAIN, "rollback"
RESUME = "ansible-playbook inferops.sglang_pd.rolling_co_restart -e pd_roll_id={0}"
#: The year 10000, in seconds since the epoch.
_LAST = 253_402_300_800
#: Clusters that one command names.
NAMED = 20

#: A latency is slower when it is more than so many times the one before and so many seconds above it, as in
#: inferops.sglang_pd.verify: a short latency doubles by chance.
FACTOR, SLACK_SECONDS = 1.5, 0.25


def account(plan: dict[str, Any] | None, events: Iterable[dict[str, Any]], now: float | None = None) -> dict[str, Any]:
    """Return what a roll came to.

    :param plan: what ``plan.json`` holds, None where it is gone.
    :param events: what :func:`_roll_events.read` gave.
    :param now: seconds since the epoch, to tell a roll that goes on from one that was killed; None: nobody works on it.
    :return: ``roll``, ``purpose``, ``owner``, ``decision``, ``problems``, ``warnings``, ``runs`` (how many processes
        walked it), ``outcome``, ``why``, ``began_at``, ``ended_at`` (or its last event), ``seconds``, ``waves`` (see
        :func:`_roll_events.Roll.state`, those that began and those that are to come), ``clusters`` (a list, see
        :func:`_cluster`, the waves' order), ``failures``, ``remaining``, ``helps`` (``words``, ``command``).
    """
    plan = words.whole(plan)
    # Moments that no clock shows would stretch every picture.
    state = _roll_events.state_of(plan, [event for event in events if 0 <= event["at"] < _LAST])
    outcome = _outcome(plan, state, now)
    ended_at = state["ended_at"] if state["ended_at"] is not None else state["last_at"]
    waves = [wave for wave in [*state["past_waves"], *state["waves"]] if wave["clusters"]]
    clusters = _clusters(plan, state, waves, outcome)
    remaining = list(state["remaining"]) if outcome not in (_roll_events.REFUSED, words.NOTHING) else []
    found = {
        "roll": state["roll"],
        "purpose": state["purpose"],
        "owner": state["owner"],
        "decision": plan["decision"],
        "problems": plan["problems"],
        "warnings": plan["warnings"],
        "runs": state["run"],
        "outcome": outcome,
        "why": state["why"],
        "began_at": state["began_at"],
        "ended_at": ended_at,
        "seconds": _between(state["began_at"], ended_at),
        "waves": waves,
        "clusters": clusters,
        "failures": _failures(clusters, waves),
        "remaining": remaining,
    }
    return dict(found, helps=_helps(found))


def _outcome(plan: dict[str, Any], state: dict[str, Any], now: float | None) -> str:
    if not state["run"]:
        return str(plan["decision"]) if plan["decision"] in (words.NOTHING, words.REFUSED) else PLANNED
    return _roll_events.standing(state, False if now is None else None, now or 0.0)


def _between(began_at: float | None, ended_at: float | None) -> float | None:
    return None if began_at is None or ended_at is None else round(ended_at - began_at, 3)


# -- clusters --------------------------------------------------------------------------------


def _clusters(
    plan: dict[str, Any], state: dict[str, Any], waves: list[dict[str, Any]], outcome: str
) -> list[dict[str, Any]]:
    places: dict[str, dict[str, Any]] = {}
    for wave in waves:
        # One that a resumed roll had in a wave again is of that wave.
        places.update(dict.fromkeys(wave["clusters"], wave))
    ordered = [name for wave in waves for name in wave["clusters"] if places[name] is wave]
    found = []
    for name in dict.fromkeys([*ordered, *state["clusters"]]):
        planned = plan["clusters"].get(name) or words.whole({"clusters": {name: {}}})["clusters"][name]
        seen = state["clusters"].get(name)
        if seen is not None:
            found.append(_cluster(name, planned, seen, places.get(name), outcome))
    return found


def _cluster(
    name: str, planned: dict[str, Any], seen: dict[str, Any], wave: dict[str, Any] | None, outcome: str
) -> dict[str, Any]:
    """Return what one cluster came to.

    :return: ``name``, ``model``, ``wave`` and ``run`` (0: in none), ``outcome`` (one of :data:`OUTCOMES`), ``message``,
        ``began_at``, ``ended_at``, ``seconds``, ``downtime`` (see :func:`_roll_events.Roll.state`), ``generation``,
        ``stopped``, ``latency``, ``attempts`` (see :func:`_attempts`), ``hooks``.
    """
    attempts = _attempts(planned, seen)
    mine = [one for one in attempts if one["run"] == attempts[-1]["run"]]
    begun = bool(attempts) and seen["began_at"] is not None
    what = _outcome_of(planned, seen, wave, begun, outcome)
    began_at = mine[0]["began_at"] if begun else None
    ended_at = seen["ended_at"] if seen["ended_at"] is not None else mine[-1]["ended_at"] if begun else None
    said = seen["message"] or (planned["why"] if what in (SKIPPED, MAINTENANCE, _roll_events.REFUSED) else "")
    said = _where_cut_off(seen) if what == INTERRUPTED else said
    return {
        "name": name,
        "model": planned["model"],
        "wave": wave["number"] if wave else 0,
        "run": wave["run"] if wave else 0,
        "outcome": what,
        "message": said,
        "began_at": began_at,
        "ended_at": ended_at,
        "seconds": _between(began_at, ended_at),
        "downtime": seen["downtime"],
        "generation": seen["generation"],
        "stopped": seen["stopped"],
        "latency": seen["latency"],
        "attempts": attempts,
        "hooks": seen["hooks"],
    }


def _where_cut_off(seen: dict[str, Any]) -> str:
    """Return at which steps a cluster was when nobody told of it any more."""
    found = []
    for step in seen["walks"][-1]:
        if step["ended_at"] is None:
            waits = seen["waits"].get(step["host"], {}).get("message", "")
            text = "at step {0} on {1}".format(step["step"], step["host"])
            found.append("{0}: {1}".format(text, waits) if waits else text)
    return "cut off " + "; ".join(found) if found else "cut off after step {0}".format(seen["step"])


def _outcome_of(
    planned: dict[str, Any], seen: dict[str, Any], wave: dict[str, Any] | None, begun: bool, outcome: str
) -> str:
    if seen["outcome"]:
        return str(seen["outcome"])
    if begun:
        return WORKING if outcome == _roll_events.RUNNING else INTERRUPTED
    if planned["decision"] in (MAINTENANCE, _roll_events.REFUSED):
        return str(planned["decision"])
    return REMAINS if wave or planned["decision"] == words.ROLL else SKIPPED


def _attempts(planned: dict[str, Any], seen: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each walk through the steps of a cluster.

    :return: ``number``, ``kind`` ("" for the first one, :data:`RESUMED`, :data:`WIDENED`, :data:`BACK`), ``run``,
        ``began_at``, ``ended_at``, ``bars`` (``stage``, ``began_at``, ``ended_at``, ``open``, ``failed``) and
        ``failed`` (the steps that did: ``step``, ``host``, ``message``, ``ended_at``).
    """
    found: list[dict[str, Any]] = []
    walks = [walk for walk in seen["walks"] if walk]
    for number, walk in enumerate(walks, start=1):
        known = [one["began_at"] for one in walk] + [one["ended_at"] for one in walk if one["ended_at"] is not None]
        found.append(
            {
                "number": number,
                "kind": _kind(planned, seen, walks, number - 1),
                "run": walk[-1]["run"],
                "began_at": min(known),
                "ended_at": max(known),
                # A walk of routers alone passes the other stages in a moment.
                "bars": _bars(walk, planned["stages"] if number == 1 else []),
                "failed": [one for one in walk if one["outcome"] in (_walk.FAILED, _walk.UNREACHABLE, "refused")],
            }
        )
    return found


def _kind(planned: dict[str, Any], seen: dict[str, Any], walks: list[list[dict[str, Any]]], place: int) -> str:
    """Return why a walk follows on the one before it, as :mod:`_attempts` decides that."""
    if place == 0:
        return ""
    before = walks[place - 1]
    if before[-1]["run"] != walks[place][-1]["run"]:
        return RESUMED
    proof = _walk.STEPS.index("restart_router")
    steps = [one["step"] for one in before if one["outcome"] == _walk.FAILED and one["step"] in _walk.STEPS]
    is_first = place == 1 or walks[place - 2][-1]["run"] != before[-1]["run"]
    is_small = is_first and planned["scope"].get("rule") == _scope.DECODE_ALONE
    widened = is_small and any(_walk.STEPS.index(step) >= proof for step in steps)
    return WIDENED if widened or seen["outcome"] == _roll_events.DONE else BACK


def _bars(walk: list[dict[str, Any]], stages: list[str]) -> list[dict[str, Any]]:
    bars = []
    for stage, steps in STEPS_OF.items():
        if stages and stage in (PREFILL, DECODE, ROUTER) and stage not in stages:
            continue
        mine = [one for one in walk if one["step"] in steps and one["outcome"] != "skipped"]
        if not mine:
            continue
        ends = [one["ended_at"] for one in mine if one["ended_at"] is not None]
        is_open = len(ends) < len(mine)
        known = max(one["ended_at"] or one["began_at"] for one in walk)
        bars.append(
            {
                "stage": stage,
                "began_at": min(one["began_at"] for one in mine),
                "ended_at": known if is_open else max(ends),
                "open": is_open,
                "failed": any(one["outcome"] not in ("", _walk.OK) for one in mine),
            }
        )
    return bars


def slower(before: Any, after: Any) -> bool:
    """Tell whether a latency is slower than before by more than chance."""
    return bool(before and after and after > before * FACTOR and after > before + SLACK_SECONDS)


# -- failures --------------------------------------------------------------------------------


def _failures(clusters: list[dict[str, Any]], waves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what failed.

    :return: ``name`` (of a cluster, or "" for the soak of a wave), ``wave``, ``outcome``, ``message``, ``stopped``,
        ``closed`` and ``open`` (whether its routers took no new work at some time, and whether nobody saw it serve
        since), ``evidence`` (``where``, ``message``).
    """
    found = []
    # What the plan refused is among its problems.
    bad = [one for one in clusters if one["outcome"] in BAD and (one["wave"] or one["outcome"] != _roll_events.REFUSED)]
    for one in sorted(bad, key=lambda one: rank(one["outcome"])):
        found.append(
            {
                **{key: one[key] for key in ("name", "wave", "outcome", "message", "stopped")},
                "closed": bool(one["downtime"]),
                "open": bool(one["downtime"] and one["downtime"]["open"]),
                "evidence": _evidence(one),
            }
        )
    for wave in waves:
        soak = wave["soak"]
        if not soak or soak["outcome"] != _walk.FAILED:
            continue
        # A cluster that failed its soak says so itself.
        if not any(one["name"] in soak["clusters"] for one in bad):
            about = {"name": "", "wave": wave["number"], "outcome": _walk.FAILED, "message": soak["message"]}
            found.append({**about, "stopped": None, "closed": False, "open": False, "evidence": []})
    return found


def _evidence(one: dict[str, Any]) -> list[dict[str, str]]:
    """Return what steps and hooks said that failed, once each; what the outcome says already is left out."""
    found = []
    for attempt in one["attempts"]:
        again = " of attempt {0}".format(attempt["number"]) if len(one["attempts"]) > 1 else ""
        for step in attempt["failed"]:
            where = "step {0} on {1}{2}".format(step["step"], step["host"], again)
            found.append({"where": where, "message": step["message"]})
    for hook in one["hooks"]:
        if hook["outcome"] not in (_walk.OK, "skipped", ""):
            found.append({"where": "hook {0}".format(hook["hook"]), "message": hook["message"]})
    unique = {row["message"]: row for row in reversed(found) if row["message"] not in one["message"]}
    return list(reversed(list(unique.values())))


def _helps(found: dict[str, Any]) -> list[dict[str, str]]:
    failed = [one["name"] for one in found["failures"] if one["name"] and one["outcome"] == _roll_events.FAILED]
    helps = []
    if failed:
        named = shlex.quote(words.plain(",".join(failed[:NAMED])))
        helps.append({"words": "Ask why:", "command": _hypotheses.AGAIN.format(cluster=named)})
    back = [one["name"] for one in found["failures"] if one["outcome"] == _roll_events.ROLLED_BACK]
    if back:
        text = "The inventory still has what {0} was rolled back from: mend it and deploy, then roll again."
        helps.append({"words": text.format(words.some(back)), "command": ""})
    if found["remaining"] and found["outcome"] not in (_roll_events.RUNNING, PLANNED):
        text = "Go on with {0}:".format(words.number_of(len(found["remaining"]), "cluster"))
        helps.append({"words": text, "command": RESUME.format(shlex.quote(words.plain(found["roll"])))})
    return helps


# -- words -----------------------------------------------------------------------------------


def tally(found: dict[str, Any]) -> dict[str, int]:
    """Return how many clusters have which outcome, those that somebody wants to know of first."""
    outcomes = [one["outcome"] for one in found["clusters"]]
    return {one: outcomes.count(one) for one in dict.fromkeys([*OUTCOMES, *outcomes]) if one in outcomes}


_IN_WORDS = {
    _roll_events.FAILED: "failed",
    _roll_events.ROLLED_BACK: "rolled back",
    INTERRUPTED: "cut off",
    _roll_events.REFUSED: "refused",
    WORKING: "in work",
    REMAINS: "not reached",
    _roll_events.DONE: "done",
    _roll_events.NOTHING: "nothing to do",
    MAINTENANCE: "in maintenance",
    SKIPPED: "skipped",
}


def rank(outcome: str) -> int:
    """Return the place of an outcome among :data:`OUTCOMES`; one that nobody knows is to be looked at first."""
    return OUTCOMES.index(outcome) if outcome in OUTCOMES else -1


def in_words(outcome: str) -> str:
    """Return an outcome of a cluster as people say it."""
    return _IN_WORDS.get(outcome, words.plain(outcome))


def wave_name(found: dict[str, Any], wave: dict[str, Any]) -> str:
    """Return what a wave is called: ``wave 2, batch``; of a roll that was resumed, in which run."""
    name = "wave {0}, {1}".format(wave["number"], words.plain(wave["kind"]) or "batch")
    return "run {0}, {1}".format(wave["run"], name) if found["runs"] > 1 else name


def title(found: dict[str, Any]) -> str:
    """Return in one line what a roll came to."""
    counted = tally(found)
    done = counted.get(_roll_events.DONE, 0)
    of_them = [one for one in found["clusters"] if one["outcome"] not in (SKIPPED, MAINTENANCE)]
    restarted = "{0:,} of {1} restarted".format(done, words.number_of(len(of_them), "cluster"))
    bad = ["{0:,} {1}".format(counted[one], in_words(one)) for one in BAD if one in counted]
    outcome = found["outcome"]
    if outcome == _roll_events.REFUSED:
        return "Refused, nothing was touched"
    if outcome in (words.NOTHING, PLANNED):
        return "Nothing to do" if outcome == words.NOTHING else "Planned, not begun"
    if outcome in (_roll_events.DONE, _roll_events.FAILED) and bad:
        return ", ".join([*bad, restarted])
    first = "In work" if outcome == _roll_events.RUNNING else words.plain(outcome).capitalize()
    return "{0}: {1}".format(first, ", ".join([*bad, restarted]))


def look(found: dict[str, Any]) -> str:
    """Return whether a roll is ``good``, ``bad``, or something to take note of (``note``)."""
    if any(one["outcome"] in BAD for one in found["clusters"]) and found["outcome"] != words.NOTHING:
        return "bad"
    if found["outcome"] in (_roll_events.DONE, words.NOTHING):
        return "good"
    return "bad" if found["outcome"] in (_roll_events.FAILED, _roll_events.REFUSED, INTERRUPTED) else "note"


def state_after(one: dict[str, Any]) -> str:
    """Return what a failure (see :func:`_failures`) came to, and whether the cluster serves."""
    if not one["name"]:
        return "failed"
    if one["outcome"] == _roll_events.ROLLED_BACK:
        after = "it serves with what it had before" if not one["open"] else "it does not serve, as far as is known"
    elif one["open"]:
        after = "it does not serve, as far as is known"
    elif one["outcome"] == INTERRUPTED and one["closed"]:
        after = "it served when it was last asked"
    elif one["stopped"]:
        after = "its routers take requests; whether it serves is not proven"
    else:
        after = "nothing of it was stopped"
    wave = " in wave {0}".format(one["wave"]) if one["wave"] else ""
    return "{0}{1}; {2}".format(in_words(one["outcome"]), wave, after)


def outcome_of(one: dict[str, Any]) -> str:
    """Return the outcome of a cluster, and that it took more than one attempt."""
    kinds = [attempt["kind"] for attempt in one["attempts"] if attempt["kind"]]
    more = {WIDENED: "after the whole chain", RESUMED: "resumed", BACK: "after a rollback"}
    said = [more[kind] for kind in dict.fromkeys(kinds) if kind != BACK or one["outcome"] != _roll_events.ROLLED_BACK]
    return ", ".join([in_words(one["outcome"]), *said])


def downtime_of(one: dict[str, Any]) -> str:
    """Return how long a cluster served nobody, in words; "" where it always did."""
    downtime = one["downtime"]
    if not downtime:
        return ""
    return words.span(downtime["seconds"]) + (" and on" if downtime["open"] else "")


def longest_downtime(found: dict[str, Any]) -> str:
    """Return which cluster was without service longest, and who still is."""
    known = [one for one in found["clusters"] if one["downtime"]]
    still = [one for one in known if one["downtime"]["open"] and one["outcome"] != WORKING]
    over = [one for one in known if not one["downtime"]["open"]]
    said = []
    if over:
        most = max(over, key=lambda one: float(one["downtime"]["seconds"]))
        said.append("{0} at most ({1})".format(downtime_of(most), words.plain(most["name"])))
    if still:
        seconds = max(float(one["downtime"]["seconds"]) for one in still)
        named = words.some(one["name"] for one in still)
        said.append("for {0} or longer, and still, as far as is known: {1}".format(words.span(seconds), named))
    return "; ".join(said)


def latencies(one: dict[str, Any]) -> dict[str, Any]:
    """Return ``median_before``, ``median_after``, ``p95_before``, ``p95_after`` of a cluster in seconds, None for one
    that nobody measured, and ``slower``: which of median and p95 is, by more than chance."""
    given = one["latency"] or {}
    found: dict[str, Any] = {}
    for what in ("median", "p95"):
        for when in ("before", "after"):
            value = (given.get(when) or {}).get(what + "_seconds")
            found["{0}_{1}".format(what, when)] = value if isinstance(value, (int, float)) else None
    slow = [what for what in ("median", "p95") if slower(found[what + "_before"], found[what + "_after"])]
    return dict(found, slower=slow)
