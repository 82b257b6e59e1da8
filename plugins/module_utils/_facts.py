# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an observation of a cluster shows: the facts that hypotheses are judged by. Pure.

Each function of :data:`FACTS` takes an observation (:mod:`_observations`) and says whether
something holds: True, False, or None where that was not seen, each time with the evidence in words.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _live, _metrics, _observations
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER

#: Tokens that an engine generates for its own warm-up: more than that were asked for by somebody.
WARM_UP_TOKENS = 8
#: Gauges of an idle engine are written every 30 s: only a longer window tells a stale one from a stuck request.
STALE_GAUGE_SECONDS = 35
#: A request that is held this long by live numbers, while its decode does nothing, is stuck.
HELD_SECONDS = 5
#: So many tokens are computed or generated within a look for health checks alone.
CHECKED_TOKENS = 64
#: Share of failed transfers that clients who leave do not explain.
FAILED_SHARE = 0.05
#: So many unplanned ends or automatic restarts within so many seconds are a crash loop.
CRASHES, CRASH_SECONDS = 3, 600
#: Requests that wait beside those that run, from which on a queue is called long.
LONG_QUEUE = 8
#: A decode started so long after its prefill was hardly started with it, where nothing else tells.
FAR_APART_SECONDS = 1800
#: Endpoints any of which a router that runs answers.
ROUTER_ANSWERS = ("health", "readiness", "liveness", "workers")
#: Utilisation of GPUs in per cent.
IDLE_GPU, BUSY_GPU = 5, 90

#: Fields of ``/server_info`` in which prefill and decode must be alike.
AGREEING = (
    "model_path",
    "served_model_name",
    "page_size",
    "kv_cache_dtype",
    "context_length",
    "disaggregation_transfer_backend",
    "version",
)

Observation = dict
Member = dict


class Fact(NamedTuple):
    """Whether something holds, what was seen of it, and the member that it is about ("" for none)."""

    holds: bool | None
    words: str
    subject: str = ""


def facts_of(observation: Observation) -> dict[str, Fact]:
    """Return all facts of an observation by name."""
    return {name: fact(observation) for name, fact in FACTS.items()}


# -- members ---------------------------------------------------------------------------------


def _of(o: Observation, *roles: str) -> list[Member]:
    return [member for member in o["members"] if member["role"] in roles]


def _serving(o: Observation, *roles: str) -> list[Member]:
    return [member for member in _of(o, *(roles or (PREFILL, DECODE))) if member["node_rank"] == 0]


def moment(o: Observation) -> float:
    """Return the moment of the observation, in seconds since the epoch."""
    return max([one["at"] or 0.0 for member in o["members"] for one in member["answers"].values()] or [0.0])


def _started(member: Member) -> float | None:
    state = member["state"]
    return float(state["started_at"]) if state and state.get("started_at") else None


UP, STARTING, HUNG, DOWN, UNSEEN = "up", "starting", "hung", "down", "unseen"


def condition(o: Observation, member: Member) -> tuple[str, str]:
    """Return whether an engine serves, and the words for it."""
    state, health = member["state"], member["answers"].get("health")
    where = member["where"]
    active = state.get("active_state") if state else None
    if state and active in ("inactive", "failed", "deactivating"):
        return DOWN, "{0}: the unit is {1} (result {2}, exit status {3})".format(
            where, active, state.get("result"), state.get("exit_status")
        )
    if member["node_rank"] > 0:
        return (UP, where + ": the unit is active") if active == "active" else (UNSEEN, where + ": not seen")
    if health is None:
        return UNSEEN, "{0}: /health was not asked".format(where)
    if health["status"] == 200:
        return UP, "{0}: /health 200{1}".format(where, _took(health))
    began = _started(member)
    limit = float(member["deployed"].get("healthy_limit_seconds") or 1800)
    young = began is None or moment(o) - began < limit
    if health["status"] is not None:
        words = "{0}: /health {1}".format(where, health["status"])
        return (STARTING if young else HUNG), words + (
            "" if young or began is None else ", {0} after its start".format(duration(moment(o) - began))
        )
    words = "{0}: /health {1}".format(where, health["error"] or "no answer")
    others = [name for name in ("v1_loads", "metrics", "server_info") if _status(member, name) == 200]
    if others:
        return HUNG, "{0}, although it answers /{1}".format(words, others[0].replace("_", "/"))
    if active is None:
        return DOWN, words
    refused = "refused" in health["error"]
    if began is not None and young and refused:
        return STARTING, "{0}; started {1} ago".format(words, duration(moment(o) - began))
    return HUNG, words + ", the unit is {0}".format(active)


def _status(member: Member, endpoint: str) -> int | None:
    one = member["answers"].get(endpoint)
    return one["status"] if one else None


def _took(one: dict[str, Any]) -> str:
    return " in {0:.1f} s".format(one["seconds"]) if one["seconds"] else ""


def _in_condition(o: Observation, wanted: str, roles: tuple[str, ...]) -> Fact:
    members = _of(o, *roles)
    seen = [(member, *condition(o, member)) for member in members]
    found = [(member, words) for member, state, words in seen if state == wanted]
    if found:
        return Fact(True, "; ".join(words for _member, words in found), found[0][0]["where"])
    if not members or any(state == UNSEEN for _member, state, _words in seen):
        return Fact(None, "not all members were looked at")
    return Fact(False, "; ".join(words for _member, _state, words in seen) + _HEALTH)


#: What a good /health says, and what not: people take it for more.
_HEALTH = " (a token through each scheduler, none through the KV path)"


def engines_answer(o: Observation) -> Fact:
    """Every engine answers ``/health``, which generates a token in its scheduler, without the KV path."""
    members = _serving(o)
    if not members:
        return Fact(None, "no engine was looked at")
    seen = [(member, *condition(o, member)) for member in members]
    bad = [(member, words) for member, state, words in seen if state != UP]
    if bad:
        return Fact(False, "; ".join(words for _member, words in bad), bad[0][0]["where"])
    if o["unseen"] or o["unreachable"]:
        return Fact(None, _unseen_words(o))
    return Fact(True, "; ".join(words for _member, _state, words in seen) + _HEALTH)


def _unseen_words(o: Observation) -> str:
    words = ["{0} {1}: nothing was recorded of it".format(one["role"], one["url"]) for one in o["unseen"]]
    words += ["host {0}: {1}".format(host, why) for host, why in sorted(o["unreachable"].items())]
    return "; ".join(words)


def engine_down(o: Observation) -> Fact:
    """An engine does not run, or nothing answers where it should."""
    found = _in_condition(o, DOWN, (PREFILL, DECODE))
    if found.holds:
        return found
    for worker in o["unseen"]:
        signs = _signs_of_absence(o, worker)
        if signs:
            words = "{0} {1} gave no answer, and {2}".format(worker["role"], worker["url"], "; ".join(signs))
            return Fact(True, words, "{0} {1}".format(worker["role"], worker["url"]))
    if o["unseen"] or o["unreachable"]:
        return Fact(True if o["unreachable"] and o["unseen"] else None, _unseen_words(o), _unseen_words(o))
    return found


def _signs_of_absence(o: Observation, worker: dict[str, str]) -> list[str]:
    """Return what others say of an engine of which nothing was recorded."""
    signs = []
    for router in _of(o, ROUTER):
        if router["breakers"].get(worker["url"]):
            signs.append("the router's breaker for it is open")
        if any(one["url"] == worker["url"] and not one["healthy"] for one in router["workers"] or []):
            signs.append("the router counts it as unhealthy")
    if worker["role"] == DECODE:
        for member in _serving(o, PREFILL):
            last = member["samples"][-1] if member["samples"] else None
            if last and last["prefill_bootstrap"]:
                signs.append(
                    "prefill holds {0:g} requests that wait for it and {1:g} in flight".format(
                        last["prefill_bootstrap"], last["prefill_inflight"]
                    )
                )
    return signs


def engine_starting(o: Observation) -> Fact:
    """An engine is younger than it may take to become healthy."""
    return _in_condition(o, STARTING, (PREFILL, DECODE))


def engine_hung(o: Observation) -> Fact:
    """A process is there and its ``/health`` is not."""
    return _in_condition(o, HUNG, (PREFILL, DECODE))


def crash_loop(o: Observation) -> Fact:
    """A unit ends again and again by itself."""
    seen = False
    for member in o["members"]:
        state = member["state"]
        if not state:
            continue
        seen = True
        now, began = moment(o), _started(member)
        ends = [end for end in _history(member, "ends") if now - end["at"] < CRASH_SECONDS]
        signs = []
        if state.get("sub_state") == "auto-restart":
            signs.append("systemd is about to start it again")
        if state.get("result") == "start-limit-hit":
            signs.append("systemd gave up: start-limit-hit")
        if len(ends) >= CRASHES:
            signs.append("{0} unplanned ends within {1} s".format(len(ends), CRASH_SECONDS))
        if state.get("restarts", 0) >= CRASHES and began and now - began < CRASH_SECONDS:
            signs.append("started again by systemd {0} times".format(state["restarts"]))
        if signs:
            last = [line for line in member["journal"] if line.strip()][-1:]
            words = "{0}: {1}{2}".format(member["where"], ", ".join(signs), "; last: " + last[0][:160] if last else "")
            return Fact(True, words, member["where"])
    return Fact(False, "no unit restarts by itself") if seen else Fact(None, "systemd was not asked")


def _history(member: Member, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (member["history"] or {}).get(what, [])
    return found


# -- the KV path -----------------------------------------------------------------------------


def _counter(member: Member, name: str) -> float | None:
    return None if member["totals"] is None else member["totals"].get(name, 0.0)


def _rise(member: Member, name: str) -> float | None:
    """Return by how much a counter rose over the look, None for one scrape or a restart between them."""
    first, last = member["totals_at_first"], member["totals"]
    if first is None or last is None:
        return None
    rise = last.get(name, 0.0) - first.get(name, 0.0)
    return rise if rise >= 0 else None


def _tokens(member: Member) -> float | None:
    """Return how many tokens an engine generated for others over the look, None where that was not seen.

    The one counter rises when a request ends, the other one with each batch, those of health checks among them.
    """
    ended, batches = _rise(member, _metrics.GENERATED_COUNTER), _rise(member, _metrics.DECODED)
    if ended is None or batches is None:
        return None
    return max(ended, batches if batches > CHECKED_TOKENS else 0.0)


def _computes(member: Member) -> bool:
    """Tell whether an engine computed prompts of others over the look."""
    return (_rise(member, _metrics.COMPUTED) or 0.0) > CHECKED_TOKENS


def _sum(numbers: list[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _failed(o: Observation) -> str:
    words = []
    for role in (PREFILL, DECODE):
        number = _sum([_counter(member, _metrics.FAILED_COUNTER) for member in _serving(o, role)])
        words.append("{0} {1}".format(role, "unknown" if number is None else "{0:g}".format(number)))
    return "num_transfer_failed_reqs_total: " + ", ".join(words)


def transfers_failed(o: Observation) -> Fact:
    """Transfers failed since the engines were started."""
    number = _sum([_counter(member, _metrics.FAILED_COUNTER) for member in _serving(o)])
    return Fact(None if number is None else number > 0, _failed(o))


def transfers_fail_now(o: Observation) -> Fact:
    """The counter of failed transfers rises, by more than clients who leave explain."""
    failed = _sum([_rise(member, _metrics.FAILED_COUNTER) for member in _serving(o)])
    if failed is None:
        return Fact(None, "one look alone shows no rise; " + _failed(o))
    done = _sum([_rise(member, _metrics.TRANSFERRED_COUNTER) for member in _serving(o, PREFILL)]) or 0.0
    words = "within {0:.0f} s {1:g} transfers failed, {2:g} were completed; {3}".format(
        _window(o), failed, done, _failed(o)
    )
    return Fact(failed > 0 and failed > FAILED_SHARE * (failed + done), words)


def _window(o: Observation) -> float:
    times = [sample["at"] for member in _serving(o) for sample in member["samples"]]
    return max(times) - min(times) if times else 0.0


def _served(member: Member) -> bool | None:
    """Tell whether a decode generated tokens for others since its start."""
    number = _counter(member, _metrics.GENERATED_COUNTER)
    if any(sample["running"] and sample["throughput"] > 0 for sample in member["samples"]):
        return True
    return None if number is None else number > WARM_UP_TOKENS


def decode_served(o: Observation) -> Fact:
    """Every decode has served requests since its start: their KV came through."""
    seen = [(member, _served(member)) for member in _serving(o, DECODE)]
    if not seen or any(served is None for _member, served in seen):
        return Fact(None, "no counters of decode")
    words = "tokens generated since its start: " + ", ".join(
        "{0} {1:g}".format(member["where"], _counter(member, _metrics.GENERATED_COUNTER) or 0) for member, _ in seen
    )
    return Fact(all(served for _member, served in seen), words)


def decode_fails_without_success(o: Observation) -> Fact:
    """A decode has served nothing since its start, and transfers failed meanwhile."""
    decodes = _serving(o, DECODE)
    of_prefill = _sum([_counter(member, _metrics.FAILED_COUNTER) for member in _serving(o, PREFILL)])
    unknown = not decodes
    for member in decodes:
        served, failed = _served(member), _counter(member, _metrics.FAILED_COUNTER)
        if served is None:
            unknown = True
        elif not served and (failed or (len(decodes) == 1 and of_prefill)):
            words = "{0} has served no request since its start; {1}".format(member["where"], _failed(o))
            return Fact(True, words, member["where"])
    return Fact(None if unknown else False, decode_served(o).words)


def nudge_served(o: Observation) -> Fact:
    """The one request that was sent through a router was served."""
    for member in _of(o, ROUTER):
        nudge = member["nudge"]
        if nudge:
            what = "answered in {0:.2f} s" if nudge.get("good") else "not served: {1}"
            words = "one request through {0}: ".format(member["where"]) + what.format(
                float(nudge.get("seconds") or 0), nudge.get("why")
            )
            return Fact(bool(nudge.get("good")), words, member["where"])
    return Fact(None, "no request was sent (pd_diagnose_nudge allows one)")


def routed_requests_fail(o: Observation) -> Fact:
    """Requests that need the KV path are not served."""
    nudge, now, ever = nudge_served(o), transfers_fail_now(o), decode_fails_without_success(o)
    vain = requests_wait_in_vain(o)
    bad = ([nudge] if nudge.holds is False else []) + [one for one in (now, ever, vain) if one.holds]
    if bad:
        return Fact(True, "; ".join(one.words for one in bad))
    proved = kv_path_proved(o)
    if proved.holds and (nudge.holds or ever.holds is False):
        return Fact(False, nudge.words if nudge.holds else proved.words + "; " + now.words)
    return Fact(None, "no request went through the KV path while it was watched")


def kv_path_suffers(o: Observation) -> Fact:
    """Requests fail on the KV path, or are held in it after others failed."""
    fails, held, failed = routed_requests_fail(o), inflight_held(o), transfers_failed(o)
    if fails.holds:
        return fails
    if held.holds and failed.holds:
        return Fact(True, "{0}; {1}".format(held.words, failed.words), held.subject)
    alone = next((one for one in (decode_restarted_alone(o), prefill_restarted_alone(o)) if one.holds), None)
    if alone and failed.holds and held.holds is None and not fails.holds and decode_idle(o).holds and _inflight(o):
        # A gauge may be stale, but not where all else points at it, too.
        return Fact(True, "{0}; {1}; {2}".format(held.words, failed.words, alone.words), alone.subject)
    return fails


def _inflight(o: Observation) -> float:
    """Return how many requests prefills held in flight in every sample."""
    series = [member["samples"] for member in _serving(o, PREFILL) if member["samples"]]
    return float(sum(min(sample["prefill_inflight"] for sample in samples) for samples in series))


def kv_path_proved(o: Observation) -> Fact:
    """A request went the whole way in these incarnations."""
    nudge, served = nudge_served(o), decode_served(o)
    if nudge.holds is not None:
        return nudge
    newer = prefill_restarted_alone(o)
    if not served.holds or not newer.holds:
        return served
    # What decodes served of an earlier prefill proves nothing of this one.
    done = [_counter(member, _metrics.TRANSFERRED_COUNTER) for member in _serving(o, PREFILL)]
    words = "{0}; transfers completed by prefill since its start: {1}".format(
        newer.words, ", ".join("unknown" if number is None else "{0:g}".format(number) for number in done)
    )
    return Fact(None if None in done else all(done), words)


def _live_over_time(member: Member) -> bool:
    """Tell whether live numbers of a member were seen for long enough to call a request held."""
    return _looked_long(member) and all(sample["live"] for sample in member["samples"])


def _looked_long(member: Member) -> bool:
    """Tell whether a member was looked at for long enough to call a request held."""
    series = member["samples"]
    return bool(series) and series[-1]["at"] - series[0]["at"] >= HELD_SECONDS


def _waiting_over_time(member: Member) -> float | None:
    """Return how many requests waited for bootstrap or KV at all times of the look, None where that was not seen.

    Without live numbers it is the requests that HTTP holds: a gauge of the scheduler may be frozen.
    """
    if _live_over_time(member):
        return float(min(sum(sample[queue] for queue in _metrics.WAITING_QUEUES) for sample in member["samples"]))
    return _active(member) if _looked_long(member) else None


def _active(member: Member) -> float | None:
    """Return how many requests for tokens HTTP held at the first and at the last scrape, None without both."""
    first, last = member["totals_at_first"], member["totals"]
    if first is None or last is None or _metrics.ACTIVE_COMPLETIONS not in last:
        return None
    return float(min(total.get(_metrics.ACTIVE_COMPLETIONS, 0.0) for total in (first, last)))


def _held_elsewhere(member: Member) -> str:
    """Return where else than in its queues an engine holds requests, in words, "" for nowhere."""
    for name in _metrics.HELD_GAUGES:
        number = _counter(member, name)
        if number:
            return "{0}: {1} {2:g}".format(member["where"], name, number)
    return ""


def requests_wait_in_vain(o: Observation) -> Fact:
    """Requests wait for their bootstrap or their KV all the time, and no engine works on any.

    Requests in flight at prefill are :func:`inflight_held`: those may have lost their client long ago.
    """
    members = _serving(o)
    held = {member["where"]: _waiting_over_time(member) for member in members}
    shown = ", ".join("{0} {1:g}".format(where, number) for where, number in held.items() if number is not None)
    words = "requests that waited for bootstrap or KV all the {0:.0f} s: {1}".format(_window(o), shown or "unknown")
    if not any(held.values()):
        return Fact(False if held and None not in held.values() else None, words)
    for member in members:
        tokens = _tokens(member)
        if tokens is None:
            return Fact(None, "{0}; no counters of {1} over time".format(words, member["where"]))
        if _held_elsewhere(member):
            return Fact(None, "{0}; {1}".format(words, _held_elsewhere(member)))
        if _computes(member):
            # What becomes of it is not known yet: clients who try again make prefill compute in vain.
            return Fact(None, "{0}; {1} computes meanwhile".format(words, member["where"]))
        # A gauge may be frozen since the last batch.
        live = [sample for sample in member["samples"] if sample["live"]]
        if tokens or any(sample["running"] or sample["waiting"] for sample in live):
            return Fact(False, "{0}; {1} is at work meanwhile".format(words, member["where"]))
    return Fact(True, words + "; no engine is at work", next(where for where, number in held.items() if number))


def scheduler_takes_nothing(o: Observation) -> Fact:
    """An engine's HTTP side holds requests all the time, and its scheduler has none of them."""
    seen, unknown = [], []
    for member in _serving(o):
        active, tokens = _active(member), _tokens(member)
        if not _live_over_time(member) or tokens is None or active is None:
            unknown.append(member["where"])
            continue
        if _held_elsewhere(member):
            unknown.append(_held_elsewhere(member))
            continue
        words = "{0} holds {1:g} requests (http_requests_active)".format(member["where"], active)
        if active and not tokens and not any(_metrics.pending(sample) for sample in member["samples"]):
            words += ", and for {0:.0f} s none is in any queue of its scheduler (/v1/loads)".format(_window(o))
            return Fact(True, words, member["where"])
        seen.append(words)
    if unknown or not seen:
        return Fact(None, "what HTTP and the scheduler hold was not seen of: " + (", ".join(unknown) or "any engine"))
    return Fact(False, "; ".join(seen))


def inflight_held(o: Observation) -> Fact:
    """Prefill holds requests in flight, none of them gets on, and no decode is at work on them."""
    unknown = []
    empty = []
    for member in _serving(o, PREFILL):
        series = member["samples"]
        if not series:
            unknown.append("{0}: no numbers".format(member["where"]))
            continue
        shown = ", ".join("{0:g}".format(sample["prefill_inflight"]) for sample in series)
        live = all(sample["live"] for sample in series)
        source = "/v1/loads" if live else "/metrics"
        words = "{0}: in flight {1} over {2:.0f} s ({3})".format(member["where"], shown, _window(o), source)
        stale = [s["gauges"]["prefill_inflight"] for s in series if s["live"] and s["gauges"]]
        if live and stale and stale[-1] and not series[-1]["prefill_inflight"]:
            words += "; the gauge in /metrics says {0:g}, which is stale: it is only written now and then".format(
                stale[-1]
            )
        if min(sample["prefill_inflight"] for sample in series) == 0:
            empty.append(words)
        elif series[-1]["at"] - series[0]["at"] < (HELD_SECONDS if live else STALE_GAUGE_SECONDS):
            why = "too short a look" if live else "a gauge that may be stale: {0} s wanted".format(STALE_GAUGE_SECONDS)
            unknown.append("{0}; {1}".format(words, why))
        elif requests_flow(o).holds and not (live and _held_beside_idle_decodes(o, member)):
            empty.append("{0}; requests flow meanwhile".format(words))
        else:
            return Fact(True, "{0}; {1}".format(words, decode_idle(o).words), member["where"])
    if unknown or not empty:
        return Fact(None, "; ".join(unknown) or "no prefill was looked at")
    return Fact(False, "; ".join(empty))


def _held_beside_idle_decodes(o: Observation, prefill: Member) -> bool:
    """Tell whether no decode held a request, again and again, within the time that a prefill held some in flight.

    So those are told that are pinned while others flow: the one request that a diagnosis sends, for one.
    """
    series = [member["samples"] for member in _serving(o, DECODE)]
    held = [sample["at"] for sample in prefill["samples"] if sample["prefill_inflight"]]
    if not held or not series or not all(sample["live"] for samples in series for sample in samples):
        return False
    times = []
    for one in series[0]:
        # Each host samples in its own time.
        beside = [min(samples, key=lambda sample: abs(sample["at"] - one["at"]), default=None) for samples in series]
        idle = not any(sample is None or _metrics.pending(sample) for sample in beside)
        if idle and held[0] - HELD_SECONDS < one["at"] < held[-1] + HELD_SECONDS:
            times.append(one["at"])
    return bool(times) and times[-1] - times[0] >= HELD_SECONDS


def decode_idle(o: Observation) -> Fact:
    """Decodes hold nothing and generate nothing."""
    decodes = [member for member in _serving(o, DECODE) if member["samples"]]
    if not decodes:
        return Fact(None, "no numbers of decode")
    busy = [
        "{0}: {1}".format(member["where"], _metrics.describe(sample))
        for member in decodes
        for sample in member["samples"]
        if _metrics.pending(sample) or sample["throughput"] > 0
    ]
    if busy:
        return Fact(False, busy[-1])
    return Fact(True, "decode idle: running 0, queues 0, 0 tokens/s in {0} samples".format(len(decodes[0]["samples"])))


def queues_empty(o: Observation) -> Fact:
    """No engine holds a request at the end of the look."""
    members = [member for member in _serving(o) if member["samples"]]
    if not members:
        return Fact(None, "no numbers of queues")
    held = [
        "{0}: {1}".format(member["where"], _metrics.describe(member["samples"][-1]))
        for member in members
        if _metrics.pending(member["samples"][-1])
    ]
    return Fact(not held, "; ".join(held) or "all queues 0")


def requests_flow(o: Observation) -> Fact:
    """Decodes generate tokens."""
    rise = _sum([_tokens(member) for member in _serving(o, DECODE)])
    for member in _serving(o, DECODE):
        # Gauges that stay alike are frozen: the last batch may be hours ago.
        moved = len({(sample["running"], sample["throughput"]) for sample in member["samples"]}) > 1
        for sample in member["samples"]:
            if sample["running"] and sample["throughput"] > 0 and (sample["live"] or moved):
                words = "{0}: running {1:g}, {2:.0f} tokens/s".format(
                    member["where"], sample["running"], sample["throughput"]
                )
                return Fact(True, words)
    if rise is None:
        return Fact(None, "no tokens seen in one look")
    return Fact(rise > 0, "{0:g} tokens generated within {1:.0f} s".format(rise, _window(o)))


def aborts_seen(o: Observation) -> Fact:
    """Clients left before their answer."""
    number = _sum([_counter(member, _metrics.ABORTED_COUNTER) for member in _serving(o, PREFILL)])
    if number is None:
        return Fact(None, "no counters of prefill")
    return Fact(number > 0, "num_aborted_requests_total: prefill {0:g}".format(number))


def requests_wait_for_timeout(o: Observation) -> Fact:
    """Requests end after about 300 s, or the bootstrap of requests fails while it is watched."""
    failed = _sum([_rise(member, _metrics.BOOTSTRAP_FAILED_COUNTER) for member in _serving(o, PREFILL)])
    if failed:
        words = "num_bootstrap_failed_reqs_total rose by {0:g} within {1:.0f} s".format(failed, _window(o))
        return Fact(True, words)
    slow = medium = 0.0
    known = False
    for member in _serving(o):
        by_limit = [_counter(member, _metrics.latency_bucket(le)) for le in ("100", "200", "400")]
        if member["totals"] is None or _metrics.latency_bucket("400") not in member["totals"]:
            continue
        known = True
        below, middle, above = (number or 0.0 for number in by_limit)
        slow, medium = max(slow, above - middle), max(medium, middle - below)
    if not known:
        return Fact(None, "no latencies were recorded")
    words = "{0:g} requests took 200 to 400 s, {1:g} took 100 to 200 s".format(slow, medium)
    return Fact(slow > 0 and slow > 4 * medium, words)


def queues_long_and_flowing(o: Observation) -> Fact:
    """Requests wait all the time, and work gets done all the time."""
    flow = requests_flow(o)
    members = [member for member in _serving(o) if member["samples"]]
    if not members:
        return Fact(None, "no numbers of queues")
    least = sum(min(_metrics.pending(s) - s["running"] for s in member["samples"]) for member in members)
    words = "at least {0:g} requests waited in each sample; {1}".format(least, flow.words)
    if least < LONG_QUEUE:
        return Fact(False, words)
    return Fact(flow.holds, words)


# -- incarnations ----------------------------------------------------------------------------


def _prefill_started(o: Observation) -> float | None:
    """Return when the newest prefill was started."""
    starts = [_started(member) for member in _serving(o, PREFILL)]
    known = [start for start in starts if start is not None]
    return max(known) if known and len(known) == len(starts) else None


def decode_restarted_alone(o: Observation) -> Fact:
    """A decode was started again while its prefills kept running."""
    prefill = _prefill_started(o)
    decodes = [member for member in _serving(o, DECODE) if _started(member) is not None]
    if prefill is None or not decodes:
        return Fact(None, "start times of the units are not known")
    generations = [(m["ledger"] or {}).get("generation", 0) for m in _serving(o, PREFILL)]
    for member in decodes:
        began = _started(member) or 0.0
        apart = began - prefill
        starts = [one for one in _history(member, "starts") if one["at"] > prefill]
        ledger = member["ledger"] or {}
        signs = []
        if apart > 0:
            if len(starts) > 1:
                signs.append("{0} starts of it since then".format(len(starts)))
            if ledger.get("generation") and ledger.get("incarnation") != member["state"].get("invocation_id"):
                signs.append("its incarnation is not that of the last co-restart")
            if generations and ledger.get("generation", 0) > max(generations):
                signs.append("its generation {0} is newer than prefill's".format(ledger["generation"]))
            if member["state"].get("restarts"):
                signs.append("systemd started it again {0} times".format(member["state"]["restarts"]))
            if not ledger.get("generation") and apart > FAR_APART_SECONDS:
                signs.append("no co-restart is on record")
        if signs:
            words = "{0} was started {1} after prefill: {2}".format(member["where"], duration(apart), ", ".join(signs))
            return Fact(True, words, member["where"])
    if apart < 0:
        return Fact(False, "decode was not started since prefill was")
    return Fact(False, "decode was started once since prefill was, {0} after it".format(duration(apart)))


def decode_restarted_often(o: Observation) -> Fact:
    """More than one decode-only start."""
    prefill = _prefill_started(o)
    if prefill is None:
        return Fact(None, "start times of the units are not known")
    numbers = [len([s for s in _history(m, "starts") if s["at"] > prefill]) for m in _serving(o, DECODE)]
    most = max(numbers or [0])
    return Fact(most > 2, "{0} starts of decode since prefill was started".format(most))


def prefill_restarted_alone(o: Observation) -> Fact:
    """A decode is older than one of its prefills."""
    prefill = _prefill_started(o)
    decodes = [(_started(member), member) for member in _serving(o, DECODE)]
    if prefill is None or not decodes or any(start is None for start, _member in decodes):
        return Fact(None, "start times of the units are not known")
    for start, member in decodes:
        if start is not None and start < prefill:
            words = "{0} has been running since {1} before prefill was started".format(
                member["where"], duration(prefill - start)
            )
            return Fact(True, words, member["where"])
    return Fact(False, "every decode was started after every prefill")


def decode_was_replaced(o: Observation) -> Fact:
    """The decode that runs is not the one that prefill made its transfers with."""
    alone = decode_restarted_alone(o)
    if alone.holds is not None:
        return alone
    done = _sum([_counter(member, _metrics.TRANSFERRED_COUNTER) for member in _serving(o, PREFILL)])
    served = decode_served(o)
    if done is None or served.holds is None:
        return Fact(None, "neither start times nor counters tell")
    words = "prefill completed {0:g} transfers; {1}".format(done, served.words)
    return Fact(done > 0 and not served.holds, words)


def decode_vanished(o: Observation) -> Fact:
    """A decode ended without closing its connections while prefill ran: killed, or its host went down."""
    prefill = _prefill_started(o)
    if prefill is None:
        return Fact(None, "how earlier decodes ended is not known")
    known = False
    for member in _serving(o, DECODE):
        booted = (o["machines"].get(member["host"]) or {}).get("booted_at")
        if booted and booted > prefill:
            return Fact(True, "{0}: its host was started after prefill was".format(member["where"]), member["where"])
        if member["history"] is None:
            continue
        known = True
        for end in _history(member, "ends"):
            # Systemd logs ends by itself only where they were not clean.
            if end["at"] > prefill and end["how"].startswith("signal"):
                words = "{0} was ended by {1} while prefill ran".format(member["where"], end["how"])
                return Fact(True, words, member["where"])
    if not known:
        return Fact(None, "how earlier decodes ended is not known")
    return Fact(False, "no decode was killed and no decode's host went down since prefill was started")


def failures_of_other_decodes(o: Observation) -> Fact:
    """Prefill counts more failures than the decodes that run now."""
    of_prefill = _sum([_counter(member, _metrics.FAILED_COUNTER) for member in _serving(o, PREFILL)])
    of_decode = _sum([_counter(member, _metrics.FAILED_COUNTER) for member in _serving(o, DECODE)])
    if of_prefill is None or of_decode is None:
        return Fact(None, "no counters")
    return Fact(of_prefill > of_decode, "{0}: the rest is not of this decode".format(_failed(o)))


def one_generation(o: Observation) -> Fact:
    """All members run as the last co-restart left them."""
    ledgers = [(member, member["ledger"]) for member in o["members"]]
    if not ledgers or any(not ledger or not ledger.get("generation") for _member, ledger in ledgers):
        return Fact(None, "no co-restart is on record")
    for member, ledger in ledgers:
        if not member["state"] or member["state"].get("invocation_id") != ledger.get("incarnation"):
            return Fact(False, "{0} is not as the last co-restart left it".format(member["where"]), member["where"])
        if ledger.get("outcome") != "ok":
            return Fact(False, "{0}: its last co-restart is {1}".format(member["where"], ledger.get("outcome")))
    numbers = sorted({ledger["generation"] for _member, ledger in ledgers})
    return Fact(len(numbers) == 1, "generation {0}".format(", ".join(str(number) for number in numbers)))


# -- routers, bootstrap, settings, GPUs ------------------------------------------------------


def router_down(o: Observation) -> Fact:
    """A router does not run or answers nothing that it is asked."""
    routers = _of(o, ROUTER)
    for member in routers:
        state = member["state"]
        active = state.get("active_state") if state else None
        if active is not None and active != "active":
            return Fact(True, "{0}: the unit is {1}".format(member["where"], active), member["where"])
        # On a busy host one answer may be late: that alone is no router that is down.
        answers = [member["answers"][name] for name in ROUTER_ANSWERS if name in member["answers"]]
        if answers and all(answer["status"] is None for answer in answers):
            return Fact(True, "{0}: {1}".format(member["where"], answers[0]["error"]), member["where"])
    if not routers:
        return Fact(None, "no router was looked at")
    return Fact(False, "; ".join("{0} answers".format(member["where"]) for member in routers))


def router_refuses_engines(o: Observation) -> Fact:
    """A router does not use engines that are healthy."""
    routers = [member for member in _of(o, ROUTER) if member["workers"] is not None]
    if not routers:
        return Fact(None, "no router listed its workers")
    right = []
    for router in routers:
        for trouble, engine in _troubles_of(o, router):
            state = condition(o, engine)[0] if engine else UNSEEN
            if engine is None or state == UP:
                return Fact(True, "{0}: {1}".format(router["where"], trouble), router["where"])
            right.append("{0}: {1}, which is right: it is {2}".format(router["where"], trouble, state))
    words = "; ".join(right) or "all workers registered and healthy, no breaker open"
    return Fact(False, words)


def _troubles_of(o: Observation, router: Member) -> list[tuple[str, Member | None]]:
    """Return what is wrong with a router's workers, and the engine that each is about."""
    workers = router["workers"]
    roles = {worker["role"] for worker in workers}
    found: list[tuple[str, Member | None]] = []
    registered = [_observations.engine_of(o["members"], worker) for worker in workers]
    for member in _serving(o):
        if not any(member is one for one in registered):
            found.append(("{0} ({1}) is not registered".format(member["where"], member["role"]), member))
    for worker in workers:
        engine = _observations.engine_of(o["members"], worker)
        name = "{0} {1}".format(worker["role"], worker["url"])
        if not worker["healthy"]:
            found.append((name + " counts as unhealthy", engine))
        elif not worker["model"]:
            found.append((name + " is registered without a model", engine))
        if router["breakers"].get(worker["url"]):
            found.append((name + " has its circuit breaker open", engine))
    seen = [one for one in found if one[1] is not None]
    # A worker that nobody looked at is judged as an engine, not by its router.
    if seen:
        return seen
    if not workers or not {PREFILL, DECODE} <= roles:
        missing = sorted({PREFILL, DECODE} - roles)
        return [("it has no {0} worker".format(" and no ".join(missing)), None)]
    return []


def router_as_planned(o: Observation) -> Fact:
    """Every router answers and uses every engine."""
    down, refuses = router_down(o), router_refuses_engines(o)
    if down.holds or refuses.holds:
        return Fact(False, (down if down.holds else refuses).words)
    return Fact(None if down.holds is None or refuses.holds is None else True, refuses.words)


def bootstrap_unreachable(o: Observation) -> Fact:
    """A decode's host does not reach a prefill's bootstrap server, or another process answers there."""
    reached = []
    for member in _serving(o, PREFILL):
        port = member["deployed"].get("bootstrap_port")
        if port and member["listeners"] is not None and condition(o, member)[0] == UP:
            of_port = [one for one in member["listeners"] if one.get("port") == port]
            foreign = [one for one in of_port if one.get("unit") != member["unit"]]
            if foreign:
                words = "port {0} of {1} is held by pid {2} ({3})".format(
                    port, member["where"], foreign[0].get("pid"), foreign[0].get("command")
                )
                return Fact(True, words, member["where"])
            if not of_port:
                words = "{0} does not listen on its bootstrap port {1}".format(member["where"], port)
                return Fact(True, words, member["where"])
    for member in _serving(o, DECODE):
        for one in member["reach"] or []:
            words = "from {0} to {1}: {2}".format(member["host"], one.get("url"), one.get("detail"))
            if one.get("good") is False:
                return Fact(True, words, member["where"])
            reached.append(words)
    return Fact(False, "; ".join(reached)) if reached else Fact(None, "not tried from a decode's host")


def roles_disagree(o: Observation) -> Fact:
    """Prefill and decode run with settings that must be alike and are not."""
    infos = [(member, member["info"]) for member in _serving(o) if member["info"]]
    if not {PREFILL, DECODE} <= {member["role"] for member, _info in infos}:
        return Fact(None, "/server_info of both roles was not read")
    first, expected = infos[0]
    for member, info in infos[1:]:
        for name in AGREEING:
            if name in info and name in expected and info[name] != expected[name]:
                words = "{0}: {1!r} on {2}, {3!r} on {4}".format(
                    name, expected[name], first["where"], info[name], member["where"]
                )
                return Fact(True, words, member["where"])
    return Fact(False, "alike in " + ", ".join(name for name in AGREEING if name in expected))


def settings_drifted(o: Observation) -> Fact:
    """A process carries neither what is deployed nor what it was started with."""
    return _settings_in(o, _live.DRIFTED)


def settings_pending(o: Observation) -> Fact:
    """What is deployed was deployed after the process was started."""
    return _settings_in(o, _live.PENDING)


def _settings_in(o: Observation, state: str) -> Fact:
    known = [member for member in o["members"] if member["settings"] is not None]
    for member in known:
        rows = [row for row in member["settings"] if row.get("state") == state]
        if rows:
            words = "{0}: {1} ({2}): {3!r} runs, {4!r} is deployed; {5}".format(
                member["where"],
                rows[0].get("setting"),
                rows[0].get("carrier"),
                rows[0].get("running"),
                rows[0].get("deployed"),
                rows[0].get("evidence"),
            )
            return Fact(True, words, member["where"])
    return Fact(False, "no setting is {0}".format(state)) if known else Fact(None, "settings were not compared")


def overlap_schedule_off(o: Observation) -> Fact:
    """Every engine says that the overlap schedule is disabled."""
    told = [(member, member["info"].get("disable_overlap_schedule")) for member in _serving(o)]
    on = [member["where"] for member, off in told if off is False]
    if on:
        return Fact(False, "the overlap schedule is on: {0}".format(", ".join(on)))
    if not told or any(off is None for _member, off in told):
        return Fact(None, "whether the overlap schedule is on is not known")
    return Fact(True, "the overlap schedule is disabled in every running engine (/server_info)")


def _gpus(o: Observation, member: Member) -> list[dict[str, Any]]:
    found = (o["machines"].get(member["host"]) or {}).get("gpus") or []
    listed = member["deployed"].get("gpus")
    mine = {str(index) for index in listed} if isinstance(listed, list) else set()
    return [gpu for gpu in found if not mine or str(gpu.get("index")) in mine]


def gpus_idle(o: Observation) -> Fact:
    """The GPUs of the decodes do nothing: no kernel spins in a collective."""
    gpus = [gpu for member in _of(o, DECODE) for gpu in _gpus(o, member)]
    if not gpus:
        return Fact(None, "no nvidia-smi, so nothing is known of GPUs")
    busiest = max(float(gpu.get("utilization_percent") or 0) for gpu in gpus)
    power = max(float(gpu.get("power_watts") or 0) for gpu in gpus)
    return Fact(busiest <= IDLE_GPU, "GPUs of decode: {0:.0f} %, {1:.0f} W".format(busiest, power))


def gpus_busy_without_tokens(o: Observation) -> Fact:
    """An engine holds requests, its GPUs are busy, and no token comes."""
    known, unknown = False, ""
    for member in _of(o, PREFILL, DECODE):
        gpus = _gpus(o, member)
        if not gpus or not member["samples"]:
            continue
        known = True
        busy = min(float(gpu.get("utilization_percent") or 0) for gpu in gpus) >= BUSY_GPU
        tokens = _tokens(member)
        if busy and not tokens and not _computes(member) and _metrics.pending(member["samples"][-1]):
            words = "{0}: GPUs at {1} % or more, {2}, ".format(
                member["where"], BUSY_GPU, _metrics.describe(member["samples"][-1])
            )
            if tokens is not None:
                return Fact(True, "{0}no token within {1:.0f} s".format(words, _window(o)), member["where"])
            unknown = words + "its tokens were not seen over time"
    if unknown:
        return Fact(None, unknown)
    return Fact(False if known else None, gpus_idle(o).words)


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits: ``16 h``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return "{0:.0f} {1}".format(seconds / size, unit)
    return "{0:.0f} s".format(seconds)


#: All facts by name. What hypotheses refer to.
FACTS: dict[str, Callable[[Observation], Fact]] = {
    fact.__name__: fact
    for fact in (
        engines_answer,
        engine_down,
        engine_starting,
        engine_hung,
        crash_loop,
        transfers_failed,
        transfers_fail_now,
        decode_served,
        decode_fails_without_success,
        nudge_served,
        routed_requests_fail,
        kv_path_suffers,
        kv_path_proved,
        requests_wait_in_vain,
        scheduler_takes_nothing,
        inflight_held,
        decode_idle,
        queues_empty,
        requests_flow,
        aborts_seen,
        requests_wait_for_timeout,
        queues_long_and_flowing,
        decode_restarted_alone,
        decode_restarted_often,
        prefill_restarted_alone,
        decode_was_replaced,
        decode_vanished,
        failures_of_other_decodes,
        one_generation,
        router_down,
        router_refuses_engines,
        router_as_planned,
        bootstrap_unreachable,
        roles_disagree,
        settings_drifted,
        settings_pending,
        overlap_schedule_off,
        gpus_idle,
        gpus_busy_without_tokens,
    )
}
