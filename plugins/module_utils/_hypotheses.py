# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rule set of the diagnosis: what may be wrong with a cluster, as data.

Each hypothesis names facts of :mod:`_facts`. How they are weighed is in :mod:`_diagnosis`:

- ``needs``: all of them hold, or it is not this. One that does not hold rules the hypothesis out.
- ``excluded_by``: none of them holds. One that holds rules the hypothesis out.
- ``not_without``: facts that rule it out where they are known not to hold; not to know does no harm.
- ``speaks_for``, ``speaks_against``: facts that add to the confidence or take from it, with their weight.
- ``explained_by``: hypotheses of which this one is only a consequence.
- ``hunches``: words by which operators call it.
- ``remedy`` and ``command``: ``{cluster}`` and ``{subject}`` (the member that it is about) are put in.

Their order is that of causes: of several that hold, the first is the verdict.
"""

from __future__ import annotations

from typing import NamedTuple

HEALTHY = "healthy"
UNPROVEN = "unproven"
UNKNOWN = "unknown"

CO_RESTART = "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters={cluster}"
ROUTER_RESTART = CO_RESTART + ' -e \'{{"pd_co_restart_stages": ["router"]}}\''
PLAN = "ansible-playbook inferops.sglang_pd.plan -e pd_co_restart_clusters={cluster}"
AGAIN = "ansible-playbook inferops.sglang_pd.diagnose -e pd_diagnose_clusters={cluster}"
AGAIN_WITH_REQUEST = AGAIN + " -e pd_diagnose_nudge=true"


class Hypothesis(NamedTuple):
    """One thing that may be wrong, or right, with a cluster; see the text of the module."""

    name: str
    title: str
    needs: tuple[str, ...]
    remedy: str
    command: str
    excluded_by: tuple[str, ...] = ()
    not_without: tuple[str, ...] = ()
    speaks_for: tuple[tuple[str, int], ...] = ()
    speaks_against: tuple[tuple[str, int], ...] = ()
    explained_by: tuple[str, ...] = ()
    hunches: tuple[str, ...] = ()


_ENGINE_TROUBLE = (
    "crash_loop",
    "engine_down",
    "engine_starting",
    "engine_hung",
    "overlap_or_collective_hang",
    "scheduler_wedged",
)

HYPOTHESES = (
    Hypothesis(
        name="crash_loop",
        title="a unit ends again and again by itself",
        needs=("crash_loop",),
        speaks_for=(("crash_loop", 4),),
        remedy="Read why it ends and mend that; then co-restart the whole chain, not the unit alone.",
        command="journalctl -u UNIT -n 100   # {subject}\n" + CO_RESTART,
        hunches=("crash", "crash loop", "oom", "out of memory", "restart loop"),
    ),
    Hypothesis(
        name="engine_down",
        title="an engine does not run, or nothing answers where it should",
        needs=("engine_down",),
        speaks_for=(("engine_down", 4),),
        explained_by=("crash_loop",),
        remedy="Find out why it ended; then co-restart the whole chain. Starting the engine alone is what breaks the "
        "KV path.",
        command="systemctl status UNIT; journalctl -u UNIT -n 100   # {subject}\n" + CO_RESTART,
        hunches=("down", "engine down", "decode down", "prefill down", "host down", "network"),
    ),
    Hypothesis(
        name="engine_starting",
        title="an engine is still starting",
        needs=("engine_starting",),
        speaks_for=(("engine_starting", 3),),
        remedy="Wait until it is healthy, then look again. If it was started alone, co-restart the whole chain.",
        command=AGAIN,
        hunches=("starting", "loading", "model loading", "warm-up"),
    ),
    Hypothesis(
        name="overlap_or_collective_hang",
        title="an engine hangs in its scheduler or in a collective: GPUs busy, no tokens",
        needs=("gpus_busy_without_tokens",),
        excluded_by=("gpus_idle", "engines_answer"),
        speaks_for=(("gpus_busy_without_tokens", 3), ("engine_hung", 2)),
        speaks_against=(("overlap_schedule_off", 1),),
        remedy="Save a stack of the hung scheduler for a report (py-spy dump), then co-restart the whole chain.",
        command=CO_RESTART,
        hunches=("overlap", "overlap schedule", "collective", "collective hang", "nccl", "hang", "cuda graph", "gpu"),
    ),
    Hypothesis(
        name="engine_hung",
        title="an engine's process is there and does not answer",
        needs=("engine_hung",),
        speaks_for=(("engine_hung", 3), ("gpus_idle", 1)),
        explained_by=("overlap_or_collective_hang",),
        remedy="Save its journal and a stack of its scheduler (py-spy dump), then co-restart the whole chain.",
        command=CO_RESTART,
        hunches=("hung", "dead scheduler", "deadlock"),
    ),
    Hypothesis(
        name="scheduler_wedged",
        title="an engine's scheduler takes no requests, although /health is 200",
        needs=("scheduler_takes_nothing",),
        speaks_for=(("scheduler_takes_nothing", 2), ("requests_wait_in_vain", 1), ("routed_requests_fail", 1)),
        explained_by=("overlap_or_collective_hang", "engine_hung"),
        remedy="Save a stack of its scheduler for a report (py-spy dump), then co-restart the whole chain.",
        command=CO_RESTART,
        hunches=("scheduler", "wedged scheduler", "hung scheduler", "health lies"),
    ),
    Hypothesis(
        name="role_disagreement",
        title="prefill and decode run with settings that must be alike",
        needs=("roles_disagree",),
        speaks_for=(("roles_disagree", 2), ("routed_requests_fail", 2)),
        remedy="Deploy both roles with the same values, then co-restart.",
        command="ansible-playbook inferops.sglang_pd.deploy\n" + CO_RESTART,
        hunches=("settings", "page size", "kv cache dtype", "version", "mismatch", "disagreement"),
    ),
    Hypothesis(
        name="bootstrap_unreachable",
        title="a decode's host does not reach a prefill's bootstrap server",
        needs=("bootstrap_unreachable",),
        speaks_for=(("bootstrap_unreachable", 3), ("requests_wait_for_timeout", 1), ("routed_requests_fail", 1)),
        explained_by=("crash_loop", "engine_down", "engine_starting"),
        remedy="Free the port, or open prefill's bootstrap port in the firewall between the hosts; then co-restart.",
        command="ss -ltnp | grep PORT   # {subject}\n" + CO_RESTART,
        hunches=("bootstrap", "firewall", "port", "bootstrap port"),
    ),
    Hypothesis(
        name="kv_path_wedged",
        title="the KV path is wedged at prefill by a decode that vanished amid transfers; restarting decode is in vain",
        needs=("kv_path_suffers", "decode_was_replaced"),
        excluded_by=("prefill_restarted_alone",),
        not_without=("decode_vanished",),
        speaks_for=(
            ("decode_vanished", 4),
            ("decode_fails_without_success", 1),
            ("failures_of_other_decodes", 1),
            ("queues_empty", 1),
            # Green everywhere is no evidence for it, but belongs to the picture.
            ("engines_answer", 0),
            ("router_as_planned", 0),
        ),
        speaks_against=(("inflight_held", 1),),
        explained_by=_ENGINE_TROUBLE,
        remedy="Co-restart prefill, decode, router in this order. Another restart of decode alone does not help: "
        "prefill's transfer threads wait for a peer that is gone.",
        command=CO_RESTART,
        hunches=("wedged", "vanished", "host crash", "network cut", "kv transfer", "nixl", "ucx"),
    ),
    Hypothesis(
        name="decode_only_restarts",
        title="decode was restarted alone against a prefill that kept running",
        needs=("kv_path_suffers", "decode_restarted_alone"),
        speaks_for=(
            ("decode_restarted_alone", 2),
            ("decode_restarted_often", 2),
            ("inflight_held", 1),
            ("decode_idle", 1),
            ("transfers_failed", 1),
            ("transfers_fail_now", 1),
            ("engines_answer", 1),
        ),
        speaks_against=(("decode_vanished", 1),),
        explained_by=_ENGINE_TROUBLE,
        remedy="Co-restart prefill, decode, router in this order, and never restart decode without its prefills.",
        command=CO_RESTART,
        hunches=("decode restart", "decode restarts", "restart", "a/b test"),
    ),
    Hypothesis(
        name="prefill_only_restart",
        title="prefill was restarted alone under a decode that kept running",
        needs=("kv_path_suffers", "prefill_restarted_alone"),
        speaks_for=(("prefill_restarted_alone", 2), ("routed_requests_fail", 1), ("engines_answer", 1)),
        explained_by=_ENGINE_TROUBLE,
        remedy="Co-restart prefill, decode, router in this order: decode keeps endpoints of the prefill that is gone.",
        command=CO_RESTART,
        hunches=("prefill restart", "prefill only"),
    ),
    Hypothesis(
        name="stuck_inflight",
        title="requests are pinned in prefill's in-flight queue, as by the race of aborted requests",
        needs=("inflight_held",),
        excluded_by=("routed_requests_fail",),
        speaks_for=(("inflight_held", 2), ("aborts_seen", 1), ("decode_idle", 1), ("nudge_served", 2)),
        explained_by=(*_ENGINE_TROUBLE, "kv_path_wedged", "decode_only_restarts", "prefill_only_restart"),
        remedy="The pinned requests hold KV memory until prefill restarts: co-restart at the next quiet moment. Newer "
        "engines do not have the race.",
        command=CO_RESTART,
        hunches=("abort", "abort race", "aborts", "stuck", "in-flight", "inflight", "abort crash"),
    ),
    Hypothesis(
        name="requests_time_out_in_bootstrap",
        title="requests wait for their bootstrap or transfer until the timeout of 300 s",
        needs=("requests_wait_for_timeout",),
        speaks_for=(("requests_wait_for_timeout", 2), ("routed_requests_fail", 1)),
        explained_by=(
            *_ENGINE_TROUBLE,
            "bootstrap_unreachable",
            "kv_path_wedged",
            "decode_only_restarts",
            "prefill_only_restart",
            "router_refuses_engines",
        ),
        remedy="Look for clients that leave early and for router retries (each leaves an orphan room: set "
        "pd_router_retry_max_retries low); if requests fail at all times, co-restart.",
        command=AGAIN_WITH_REQUEST,
        hunches=("timeout", "300", "300 s", "bootstrap timeout", "latency"),
    ),
    Hypothesis(
        name="router_down",
        title="a router does not run or does not answer",
        needs=("router_down",),
        speaks_for=(("router_down", 4),),
        explained_by=("crash_loop",),
        remedy="Restart the router; engines may keep running.",
        command=ROUTER_RESTART,
        hunches=("router", "router down"),
    ),
    Hypothesis(
        name="router_refuses_engines",
        title="a router does not use engines that are healthy: stale, breaker open, or a worker without a model",
        needs=("router_refuses_engines",),
        speaks_for=(("router_refuses_engines", 3), ("engines_answer", 1)),
        explained_by=(*_ENGINE_TROUBLE, "router_down"),
        remedy="Restart the router alone: it reads its workers again. If an engine was replaced meanwhile, co-restart "
        "the whole chain instead.",
        command=ROUTER_RESTART,
        hunches=("router", "router stale", "breaker", "circuit breaker", "503", "workers"),
    ),
    Hypothesis(
        name="kv_path_broken",
        title="the KV path is broken while both roles are fine",
        needs=("routed_requests_fail", "engines_answer"),
        excluded_by=("router_refuses_engines", "router_down"),
        speaks_for=(("transfers_fail_now", 1), ("nudge_served", 0), ("decode_idle", 1), ("router_as_planned", 1)),
        explained_by=(
            *_ENGINE_TROUBLE,
            "role_disagreement",
            "bootstrap_unreachable",
            "kv_path_wedged",
            "decode_only_restarts",
            "prefill_only_restart",
        ),
        remedy="Check the transfer's network between the hosts (pd_engine_ib_device, UCX_NET_DEVICES, firewall), then "
        "co-restart.",
        command=CO_RESTART,
        hunches=("kv path", "kv", "transfer", "nixl", "mooncake", "rdma", "infiniband", "ucx", "network"),
    ),
    Hypothesis(
        name="capacity",
        title="the cluster is at its capacity: queues are long and flow",
        needs=("queues_long_and_flowing",),
        excluded_by=("routed_requests_fail",),
        speaks_for=(("queues_long_and_flowing", 3), ("engines_answer", 1)),
        remedy="Nothing is broken. Add engines of the role whose queue is long, or send less.",
        command=PLAN,
        hunches=("capacity", "load", "overload", "too many requests", "slow"),
    ),
    Hypothesis(
        name="settings_drifted",
        title="a process runs with settings that nobody deployed",
        needs=("settings_drifted",),
        speaks_for=(("settings_drifted", 3),),
        explained_by=("engine_down",),
        remedy="Look for a drop-in or a start by hand (systemctl cat UNIT), deploy, then co-restart.",
        command="systemctl cat UNIT   # {subject}\n" + PLAN,
        hunches=("drift", "settings", "drop-in"),
    ),
    Hypothesis(
        name=HEALTHY,
        title="healthy",
        needs=("engines_answer", "router_as_planned", "kv_path_proved"),
        excluded_by=(
            "kv_path_suffers",
            "inflight_held",
            "scheduler_takes_nothing",
            "bootstrap_unreachable",
            "roles_disagree",
            "crash_loop",
        ),
        speaks_for=(
            ("nudge_served", 2),
            ("requests_flow", 2),
            ("decode_served", 2),
            ("queues_empty", 1),
            ("one_generation", 1),
        ),
        speaks_against=(
            ("transfers_failed", 1),
            ("settings_pending", 1),
            ("decode_restarted_alone", 1),
            ("prefill_restarted_alone", 1),
        ),
        remedy="Nothing to do.",
        command="",
        hunches=("healthy", "nothing"),
    ),
    Hypothesis(
        name=UNPROVEN,
        title="nothing is seen to be wrong, and nothing has proved the KV path since the engines were started",
        needs=("engines_answer", "router_as_planned"),
        excluded_by=("kv_path_suffers", "kv_path_proved", "inflight_held", "scheduler_takes_nothing"),
        speaks_for=(("queues_empty", 1), ("one_generation", 1)),
        speaks_against=(("decode_restarted_alone", 1), ("prefill_restarted_alone", 1), ("transfers_failed", 1)),
        remedy="Health checks do not touch the KV path. Let one request prove it:",
        command=AGAIN_WITH_REQUEST,
    ),
)
