# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a co-restart will do and why, from what the hosts say.

Pure. :func:`make_plan` takes one cluster: the hosts that the inventory wants, what was
seen on each, and what the operator asked for. It gives a plan, a refusal, or the word
that nothing is to be done. A plan is a plain dict and is all that the steps need.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _ledger,
    _lock,
    _preflight,
    _profiles,
    _revision,
    _scope,
    _topology,
    _walk,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import (
    PREFILL,
    ROUTER,
    STAGES,
    problem,
)

ALWAYS = "always"
WHEN_DUE = "when_due"
FIRST_START = "first_start"

#: Whole chains and the router alone keep rule 1; every other choice of stages breaks it.
SAFE_STAGES = (STAGES, (ROUTER,))


def make_plan(
    cluster: str,
    wanted_hosts: dict[str, list[str]],
    seen: dict[str, dict[str, Any]],
    asked: dict[str, Any],
) -> dict[str, Any]:
    """Return what to do with one cluster.

    :param wanted_hosts: hosts by role, as the inventory groups and ``pd_cluster`` say.
    :param seen: what the ``member_info`` module gave, by host, and ``preflight`` (what the module of
        that name gave, by unit); a host that could not be reached has ``unreachable`` (a message),
        one outside the play has no entry.
    :param asked: ``run`` (id, owner, purpose), ``stages`` (list, empty: the whole chain, and
        with ``when_due`` the smallest safe scope), ``override`` (reason or ""), ``when``
        (always, when_due, first_start), ``resume_limit_seconds``, ``take_over`` (reason or
        ""), ``accepted`` (names of rules, see :func:`_preflight.split`), ``options`` (numbers
        that the steps read), ``gone_owners`` (owners of locks that the controller knows to be
        dead), ``roll`` (id of the roll that must have reserved the cluster, "" outside of rolls),
        ``decode_alone`` (whether the cluster opted in), ``restore`` (None, or
        ``generation``, 0 for the last good one, and ``automatic``), ``follows`` (None, or the
        generation of this run's attempt before).
    :return: ``decision`` (``go``, ``refused``, ``nothing``), ``problems`` (with ``refused``),
        ``why``, ``warnings``, ``due`` (reasons for a co-restart), ``revisions`` (generations
        that can be gone back to), and with ``go`` the plan proper: ``cluster``, ``run``,
        ``generation``, ``override``, ``take_over``, ``lock_message`` (whose lock is taken
        over and why, or ""), ``lock_host``, ``members`` (each a member with ``action``:
        restart, start, keep or none, ``reason`` and ``before``), ``resumes`` (run id or ""),
        ``scope`` (``rule``, ``stages``, ``reason``), ``restore`` (None, or ``generation``,
        ``reason``, ``automatic`` and by host and unit the revision to put in place),
        ``options``.
    """
    records, problems = _gather(cluster, wanted_hosts, seen)
    result: dict[str, Any] = {"cluster": cluster, "warnings": [], "due": [], "why": "", "problems": problems}
    if problems:
        return dict(result, decision="refused")

    stages = tuple(stage for stage in STAGES if stage in asked["stages"]) or STAGES
    result["revisions"] = _revision.known_generations(records)
    restore, records, result["problems"] = _restored(records, stages, asked["restore"], asked["follows"] or 0)
    members = [record["member"] for record in records]
    refusing, accepted = _preflight.split(_topology.problems_of(members), asked["accepted"])
    result["problems"] += refusing + _problems_of_ports(records)
    result["problems"] += _problems_of_attempt(cluster, records, asked)
    problems_of_lock, lock_message = _lock_now(cluster, records, seen, asked)
    result["problems"] += problems_of_lock + _problems_of_reservation(cluster, records, seen, asked)
    result["problems"] += _problems_of_stages(cluster, stages, records, asked)
    result["warnings"] = _warnings(records) + [_accepted(item) for item in accepted]
    if result["problems"]:
        return dict(result, decision="refused")

    result["due"] = due(records)
    scope = _scope.asked_for(stages)
    if asked["when"] == WHEN_DUE and not asked["stages"] and not asked["override"] and result["due"]:
        scope = _scope.choose(records, _scope.findings(records), asked["decode_alone"])
        stages = tuple(scope["stages"])
    running = [record for record in records if _is_up(record)]
    if asked["when"] == WHEN_DUE and not result["due"]:
        return dict(result, decision="nothing", why="everything runs as it should")
    if restore and not restore["units"] and not result["due"]:
        why = "generation {0} is deployed and runs as it should".format(restore["generation"])
        return dict(result, decision="nothing", why=why)
    if asked["when"] == FIRST_START and running:
        why = "it runs; a co-restart is due: " + "; ".join(result["due"]) if result["due"] else "it runs as it should"
        return dict(result, decision="nothing", why=why)

    resumes = ""
    keep: set[tuple[str, str]] = set()
    if stages == STAGES and not asked["override"] and not restore and not asked["follows"]:
        resumes, keep = _resumable(records, seen, asked["resume_limit_seconds"])
    planned = []
    for record in records:
        member = dict(record["member"], before=record["unit"]["invocation_id"])
        member["action"], member["reason"] = _action(record, stages, keep)
        planned.append(member)
    refusing, accepted = _preflight.split(_problems_of_hosts(planned, seen, restore), asked["accepted"])
    result["warnings"] += [_accepted(item) for item in accepted]
    if refusing:
        return dict(result, decision="refused", problems=refusing)
    generation = 1 + max(_ledger.latest(record["ledger"]) for record in records)
    return dict(
        result,
        decision="go",
        run=asked["run"],
        generation=generation,
        override=asked["override"],
        take_over=asked["take_over"] or _gone(records, seen, asked),
        lock_message=lock_message,
        lock_host=lock_host(members),
        members=planned,
        resumes=resumes,
        scope=scope,
        restore=restore,
        options=_options(asked["options"], scope),
        why=_why(result["due"], restore),
    )


def _why(reasons: list[str], restore: dict[str, Any] | None) -> str:
    words = "; ".join(reasons) or "asked for"
    if restore is None:
        return words
    return "back to generation {generation}, {reason}{0}".format("; " + words if reasons else "", **restore)


def _options(options: dict[str, Any], scope: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the steps; decodes that restart alone are proved with each prefill, whatever was asked."""
    if scope["rule"] != _scope.DECODE_ALONE:
        return options
    verify = options["verify"]
    if _profiles.PAIRS not in verify["parts"]:
        verify = dict(verify, parts=[_profiles.PAIRS, *verify["parts"]])
    return dict(options, requests=max(options["requests"], _scope.DECODE_ALONE_REQUESTS), verify=verify)


def _restored(
    records: list[dict[str, Any]], stages: tuple[str, ...], wanted: dict[str, Any] | None, follows: int
) -> tuple[dict[str, Any] | None, list[dict[str, Any]], list[dict[str, str]]]:
    """Return what a rollback puts in place, the records as they will be then, and what is in its way."""
    if wanted is None:
        return None, records, []
    of_stages = [record for record in records if record["member"]["role"] in stages]
    generation, reason, problems = _revision.choose(of_stages, wanted["generation"], follows)
    if problems:
        return None, records, problems
    units: dict[str, dict[str, int]] = {}
    after = []
    for record in records:
        if record["member"]["role"] not in stages:
            after.append(record)
            continue
        new, found = _revision.restored(record, generation)
        if found:
            problems += found
            continue
        if new["restores"]["digest"] != record["deployed_digest"]:
            host = record["member"]["host"]
            units.setdefault(host, {})[record["member"]["unit"]] = new["restores"]["generation"]
        after.append(new)
    restore = {"generation": generation, "reason": reason, "automatic": wanted["automatic"], "units": units}
    return restore, after, problems


def _problems_of_attempt(cluster: str, records: list[dict[str, Any]], asked: dict[str, Any]) -> list[dict[str, str]]:
    """Return why an attempt may not follow the one before: another run came in between."""
    if not asked["follows"]:
        return []
    latest = max(_ledger.latest(record["ledger"]) for record in records)
    if latest == asked["follows"]:
        return []
    return [
        problem(
            "one co-restart per cluster at a time",
            "another run came to cluster {0} meanwhile: generation {1} is on record, this run's attempt was {2}".format(
                cluster, latest, asked["follows"]
            ),
        )
    ]


def _problems_of_hosts(
    planned: list[dict[str, Any]], seen: dict[str, dict[str, Any]], restore: dict[str, Any] | None
) -> list[dict[str, str]]:
    """Return what the hosts find wrong with the members that would be started.

    They looked at what is deployed. What a rollback puts in its place was looked at by
    :func:`_revision.restored`, and ran well before.
    """
    found = []
    replaced = restore["units"] if restore else {}
    for member in planned:
        if member["unit"] in replaced.get(member["host"], {}):
            continue
        if member["action"] in ("restart", "start"):
            judged = seen[member["host"]]["preflight"].get(member["unit"], {})
            found += [dict(item, host=member["host"]) for item in judged.get("problems", [])]
    return found


def _accepted(item: dict[str, str]) -> str:
    return "accepted by pd_preflight_accept: {0}".format(_topology.describe_problem(item))


def lock_host(members: list[dict[str, Any]]) -> str:
    """Return the host that holds the cluster's lock: that of its first prefill, by name."""
    return str(min(m["host"] for m in members if m["role"] == PREFILL))


def _gather(
    cluster: str, wanted_hosts: dict[str, list[str]], seen: dict[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return the records of the cluster's members in walking order, and why that is not possible."""
    problems = []
    for role in STAGES:
        if not wanted_hosts.get(role):
            problems.append(
                problem(
                    "a cluster has every role",
                    "cluster {0} has no {1}: no host with pd_cluster {0} is in group {2}".format(
                        cluster, role, _topology.GROUPS[role]
                    ),
                    variable="pd_cluster",
                )
            )
    hosts = sorted({host for role in STAGES for host in wanted_hosts.get(role, [])})
    outside = [host for host in hosts if host not in seen]
    if outside:
        problems.append(
            problem(
                "whole clusters only",
                "cluster {0} is only partly in this run: {1} left out (--limit, or hosts that failed before)".format(
                    cluster, ", ".join(outside)
                ),
                variable="--limit",
            )
        )
    records = []
    for host in hosts:
        what = seen.get(host, {})
        if what.get("unreachable"):
            problems.append(
                problem(
                    "every member is reachable",
                    "host {0} of cluster {1} cannot be asked: {2}".format(host, cluster, what["unreachable"]),
                    host,
                )
            )
            continue
        mine = [record for record in what.get("members", []) if record["member"]["cluster"] == cluster]
        for role in STAGES:
            here = [record for record in mine if record["member"]["role"] == role]
            if host in wanted_hosts.get(role, []) and host in seen and not here:
                problems.append(
                    problem(
                        "deployed before restarted",
                        "no {0} of cluster {1} is deployed on {2}: run inferops.sglang_pd.deploy".format(
                            role, cluster, host
                        ),
                        host,
                    )
                )
            if here and host not in wanted_hosts.get(role, []):
                problems.append(
                    problem(
                        "the inventory knows every member",
                        "{0} is deployed on {1}, but the inventory does not have this host as {2} of {3}".format(
                            here[0]["member"]["unit"], host, role, cluster
                        ),
                        host,
                        "pd_cluster",
                    )
                )
        # The inventory name decides, so that a host that was renamed is still one host.
        records += [dict(record, member=dict(record["member"], host=host)) for record in mine]
    records.sort(key=lambda r: (STAGES.index(r["member"]["role"]), r["member"]["host"], r["member"]["unit"]))
    return records, problems


def _problems_of_ports(records: list[dict[str, Any]]) -> list[dict[str, str]]:
    found = []
    for record in records:
        for listener in record["listeners"]:
            if listener["unit"] == record["member"]["unit"]:
                continue
            if listener["port"] not in _topology.ports_of(record["member"]).values():
                # Of a revision that is not put in place.
                continue
            found.append(_preflight.problem_of_port(record["member"], listener))
        if record["unit"]["load_state"] != "loaded":
            found.append(
                problem(
                    "deployed before restarted",
                    "systemd says {0} is {1}: run inferops.sglang_pd.deploy".format(
                        record["member"]["unit"], record["unit"]["load_state"]
                    ),
                    record["member"]["host"],
                )
            )
    return found


def _held_lock(cluster: str, records: list[dict[str, Any]], seen: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    host = lock_host([record["member"] for record in records])
    lock = seen[host]["locks"].get(cluster)
    return dict(lock) if lock else None


def _lock_now(
    cluster: str, records: list[dict[str, Any]], seen: dict[str, dict[str, Any]], asked: dict[str, Any]
) -> tuple[list[dict[str, str]], str]:
    """Return why the cluster's lock cannot be had, and whose lock would be taken over and why."""
    if not any(record["member"]["role"] == PREFILL for record in records):
        return [], ""
    host = lock_host([record["member"] for record in records])
    wanted = {"run": asked["run"], "generation": 0, "lease_seconds": 0}
    take_over = asked["take_over"] or _gone(records, seen, asked)
    granted, message = _lock.acquire(_held_lock(cluster, records, seen), wanted, seen[host]["now"], take_over)
    if granted is not None:
        return [], message
    return [
        problem(
            "one co-restart per cluster at a time",
            "cluster {0} is locked by {1}. If that run is dead, take its lock over: "
            "-e pd_co_restart_take_over='REASON'".format(cluster, message),
            host,
        )
    ], ""


def _problems_of_reservation(
    cluster: str, records: list[dict[str, Any]], seen: dict[str, dict[str, Any]], asked: dict[str, Any]
) -> list[dict[str, str]]:
    """Return why a roll may not go on with a cluster: it is reserved for another one by now, or for none."""
    roll = asked.get("roll", "")
    if not roll or not any(record["member"]["role"] == PREFILL for record in records):
        return []
    host = lock_host([record["member"] for record in records])
    held = seen[host]["rolls"].get(cluster)
    if held and held["run"]["id"] == roll:
        return []
    return [
        problem(
            "one roll at a time",
            "cluster {0} is not reserved for roll {1} any more: {2}".format(
                cluster, roll, "it is in roll " + _lock.describe(held) if held else "somebody unlocked it"
            ),
            host,
        )
    ]


def _gone(records: list[dict[str, Any]], seen: dict[str, dict[str, Any]], asked: dict[str, Any]) -> str:
    held = _held_lock(records[0]["member"]["cluster"], records, seen)
    if held and held["run"]["owner"] in asked["gone_owners"]:
        return "its owner's process is gone from this controller"
    return ""


def _problems_of_stages(
    cluster: str, stages: tuple[str, ...], records: list[dict[str, Any]], asked: dict[str, Any]
) -> list[dict[str, str]]:
    if asked["override"] or not records:
        return []
    if stages not in SAFE_STAGES:
        units = [r["member"]["unit"] for r in records if r["member"]["role"] in stages]
        message = _walk.ALONE.format(stage=" and ".join(stages), units=", ".join(units), cluster=cluster)
        return [problem("no decode without its prefills", message, variable="pd_co_restart_stages")]
    if stages == (ROUTER,):
        down = [r["member"]["unit"] for r in records if r["member"]["role"] != ROUTER and not _is_up(r)]
        if down:
            return [
                problem(
                    "a router starts after its workers",
                    "the router alone cannot help, {0} does not run: restart the whole chain".format(", ".join(down)),
                    variable="pd_co_restart_stages",
                )
            ]
    return []


def _warnings(records: list[dict[str, Any]]) -> list[str]:
    found = []
    for record in records:
        if record["member"]["role"] != ROUTER and record["unit"]["restart_policy"] not in ("no", ""):
            found.append(
                "{0} on {1} has Restart={2}: each automatic restart is a lone restart (rule 1)".format(
                    record["member"]["unit"], record["member"]["host"], record["unit"]["restart_policy"]
                )
            )
    return found


def _is_up(record: dict[str, Any]) -> bool:
    return record["unit"]["active_state"] in ("active", "activating", "reloading", "deactivating")


def due(records: list[dict[str, Any]]) -> list[str]:
    """Return why a cluster needs a co-restart: what runs is not what should run."""
    return [found["reason"] for found in _scope.findings(records)]


def _resumable(
    records: list[dict[str, Any]], seen: dict[str, dict[str, Any]], limit_seconds: float
) -> tuple[str, set[tuple[str, str]]]:
    """Return the interrupted run that may be resumed and the members it left in good order.

    Only what the hosts say counts. A failure that was recorded, an incarnation that is
    not the ledger's, a configuration that changed since, or too long a time: the whole
    chain starts anew.
    """
    latest = max(record["ledger"]["generation"] for record in records)
    of_latest = [record for record in records if record["ledger"]["generation"] == latest]
    outcomes = {record["ledger"]["outcome"] for record in of_latest}
    # A run that died while it wrote "ok" leaves it in some of the ledgers.
    if latest == 0 or _ledger.FAILED in outcomes or outcomes == {_ledger.OK}:
        return "", set()
    if any(record["ledger"]["override"] for record in of_latest):
        return "", set()
    for record in of_latest:
        age = seen[record["member"]["host"]]["now"] - record["ledger"]["began_at"]
        if not 0 <= age <= limit_seconds:
            return "", set()
    keep: set[tuple[str, str]] = set()
    complete = True
    for stage in STAGES:
        of_stage = [record for record in records if record["member"]["role"] == stage]
        if not complete:
            # Nobody of a later stage may have begun before the stage ahead was healthy.
            if any(record["ledger"]["generation"] == latest for record in of_stage):
                return "", set()
            continue
        good = {_key(record) for record in of_stage if _is_in_good_order(record, latest)}
        for record in of_stage:
            engine = record["member"]["engine"]
            ranks = [r for r in of_stage if r["member"]["engine"] == engine]
            if not all(_key(rank) in good for rank in ranks):
                good.discard(_key(record))
        if any(_was_replaced(record, latest) for record in of_stage):
            return "", set()
        keep |= good
        complete = len(good) == len(of_stage) and all(
            record["ledger"]["phase"] == _ledger.HEALTHY for record in of_stage
        )
    if not keep:
        return "", set()
    return str(of_latest[0]["ledger"]["run"]["id"]), keep


def _key(record: dict[str, Any]) -> tuple[str, str]:
    return record["member"]["host"], record["member"]["unit"]


def _is_in_good_order(record: dict[str, Any], generation: int) -> bool:
    ledger, unit = record["ledger"], record["unit"]
    return bool(
        ledger["generation"] == generation
        and ledger["phase"] in (_ledger.STARTED, _ledger.HEALTHY)
        and unit["active_state"] == "active"
        and unit["invocation_id"] == ledger["incarnation"]
        and record["running_configuration"] == record["member"]["configuration"]
    )


def _was_replaced(record: dict[str, Any], generation: int) -> bool:
    """Tell whether a member that the run had started is not what runs now.

    One that is still on its way up was not replaced; it is only not good yet.
    """
    ledger, unit = record["ledger"], record["unit"]
    if ledger["generation"] != generation or ledger["phase"] not in (_ledger.STARTED, _ledger.HEALTHY):
        return False
    if unit["active_state"] == "activating" and unit["invocation_id"] == ledger["incarnation"]:
        return False
    return not _is_in_good_order(record, generation)


def _action(record: dict[str, Any], stages: tuple[str, ...], keep: set[tuple[str, str]]) -> tuple[str, str]:
    if record["member"]["role"] not in stages:
        return "none", "its stage is not in the scope"
    if _key(record) in keep:
        return "keep", "the interrupted run left it in good order; it is gated again"
    if not _is_up(record):
        return "start", "it is {0}".format(record["unit"]["active_state"])
    if record["running_configuration"] != record["member"]["configuration"]:
        return "restart", "its configuration changed"
    return "restart", "the chain restarts as a whole"


def describe(plan: dict[str, Any]) -> list[str]:
    """Return a plan, or why there is none, as lines for people."""
    name = plan["cluster"]
    lines = ["cluster {0}: warning: {1}".format(name, text) for text in plan["warnings"]]
    if plan["decision"] == "refused":
        return (
            lines
            + ["cluster {0}: refused, nothing was stopped".format(name)]
            + ["  - " + _topology.describe_problem(item) for item in plan["problems"]]
        )
    kept = [
        "  kept     generations {0}; back to one by inferops.sglang_pd.rollback".format(
            ", ".join(map(str, sorted(plan["revisions"])))
        )
    ]
    kept = kept if plan["revisions"] else []
    if plan["decision"] == "nothing":
        return lines + ["cluster {0}: nothing to do, {1}".format(name, plan["why"]), *kept]
    options = plan["options"]
    lines.append("cluster {0}: generation {1}, because: {2}".format(name, plan["generation"], plan["why"]))
    lines.append("  scope    {rule}: {reason}".format(**plan["scope"]))
    if plan["override"]:
        lines.append("  OVERRIDE of rule 1, recorded on the hosts: {0}".format(plan["override"]))
    if plan["resumes"]:
        lines.append("  resumes interrupted run {0}".format(plan["resumes"]))
    if plan["lock_message"]:
        lines.append("  " + plan["lock_message"])
    for host, units in sorted((plan["restore"] or {"units": {}})["units"].items()):
        for unit, revision in sorted(units.items()):
            lines.append("  restore  revision {0} of {1} on {2}".format(revision, unit, host))
    if any(m["action"] == "restart" for m in plan["members"] if m["role"] != ROUTER):
        lines.append(
            "  drain    no new work at the routers; running requests have {0} s".format(options["drain_limit_seconds"])
        )
    for stage in STAGES:
        of_stage = [m for m in plan["members"] if m["role"] == stage]
        for member in of_stage:
            lines.append(
                "  {role:<8} {action:<8} {unit} on {host}: {reason}".format(
                    **dict(member, action="-" if member["action"] == "none" else member["action"])
                )
            )
        if any(m["action"] != "none" for m in of_stage):
            lines.append(
                "  gate     {0} good answers in a row from the new incarnation, within {1} s".format(
                    options["consecutive"], of_stage[0]["healthy_limit_seconds"]
                )
            )
    parts = options["verify"]["parts"]
    lines.append(
        "  proof    {0} requests through each router, {1}then the queues must drain or flow".format(
            options["requests"], "verification of {0}, ".format(", ".join(parts)) if parts else ""
        )
    )
    return lines + kept
