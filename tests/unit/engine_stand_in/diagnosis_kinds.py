# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of the diagnosis matrix: what is done to a cluster, and what has to be found.

A kind is a function that takes a healthy cluster which has served requests, breaks it or does not, and returns the
options of the look. Numbers, ways and order vary with ``cluster.number``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import proc
from diagnosed_cluster import HOUR, Cluster
from stand_in_processes import Call, Process, chat, wait_until

Break = Callable[[Cluster], dict[str, Any]]

OLD, NEW = "0.5.16", "0.5.23"


class Kind(NamedTuple):
    """One kind of state of a cluster."""

    name: str
    expected: str
    break_it: Break
    #: Releases that it is seen on.
    releases: tuple[str, ...]
    #: Whether the processes are as good as new once its faults are taken away.
    reversible: bool
    environment: dict[str, str]
    #: Arguments of the router.
    router: tuple[str, ...]


#: A router that notices within seconds, not after three minutes, that an engine is away.
ATTENTIVE = ("--health-check-interval-secs", "1", "--health-failure-threshold", "2")
KINDS: dict[str, Kind] = {}


def kind(
    expected: str,
    releases: tuple[str, ...] = (OLD, NEW),
    reversible: bool = False,
    router: tuple[str, ...] = (),
    **environment: str,
) -> Callable[[Break], Break]:
    """Register a kind under the name of its function."""

    def register(break_it: Break) -> Break:
        name = break_it.__name__
        KINDS[name] = Kind(name, expected, break_it, releases, reversible, environment, router)
        return break_it

    return register


def either(cluster: Cluster, *ways: Any) -> Any:
    """Return one of several ways."""
    return cluster.number.choice(ways)


def engine_of(cluster: Cluster) -> str:
    """Return one role or the other."""
    return str(either(cluster, "prefill", "decode"))


def quiet(cluster: Cluster) -> dict[str, Any]:
    """Return the options of a look at which nobody sends a request, but for a nudge perhaps."""
    return either(cluster, {}, {"gauges_only": True}, {"nudge": True, "nudge_limit_seconds": 20})


def unserved(cluster: Cluster) -> dict[str, Any]:
    """Let it be noticed that requests are not served: by clients who wait, or by a nudge."""
    if cluster.number.random() < 0.5:
        clients_wait(cluster, cluster.number.randint(1, 6))
        return {}
    return {"nudge": True, "gauges_only": cluster.number.random() < 0.5}


def clients_wait(cluster: Cluster, count: int) -> None:
    """Let clients send requests that are not served, and wait until an engine holds them."""
    for _ in range(count):
        cluster.call()
    wait_until(lambda: max(sum(one.queues().values()) for one in cluster.engines.values()) >= count, "requests held")


def failed_before(cluster: Cluster) -> None:
    """Let some clients wait in vain and leave."""
    calls = [cluster.call() for _ in range(cluster.number.randint(1, 4))]
    held = "prefill_inflight_queue_reqs"
    wait_until(lambda: cluster.prefill.queues().get(held, 0) >= len(calls), "requests in flight")
    for one in calls:
        one.leave()
    wait_until(lambda: not cluster.decode.queues(), "decode let go")


# -- nothing is wrong ------------------------------------------------------------------------


@kind("healthy", reversible=True)
def healthy_idle(cluster: Cluster) -> dict[str, Any]:
    return quiet(cluster)


@kind("healthy", reversible=True)
def healthy_under_load(cluster: Cluster) -> dict[str, Any]:
    cluster.decode.faults(tokens_per_second=cluster.number.choice([100, 300, 1000]))
    cluster.clients(cluster.number.randint(1, 5), tokens=cluster.number.randint(20, 200))
    return either(cluster, {}, {"gauges_only": True})


@kind("healthy")
def healthy_after_co_restart(cluster: Cluster) -> dict[str, Any]:
    cluster.age(cluster.number.random() * 48 * HOUR)
    cluster.co_restart()
    cluster.served(cluster.number.randint(1, 5))
    return quiet(cluster)


@kind("healthy", reversible=True)
def healthy_and_slow_to_answer(cluster: Cluster) -> dict[str, Any]:
    cluster.prefill.faults(health_delay_seconds=1 + cluster.number.random() * 4)
    cluster.decode.faults(health_delay_seconds=1 + cluster.number.random() * 4, metrics={"sglang:token_usage": "NaN"})
    return quiet(cluster)


@kind("healthy", reversible=True)
def healthy_with_clients_who_left(cluster: Cluster) -> dict[str, Any]:
    cluster.prefill.faults(transfer_seconds=60)
    failed_before(cluster)
    cluster.prefill.faults()
    cluster.served(cluster.number.randint(1, 4))
    return quiet(cluster)


@kind("healthy", releases=(NEW,))
def healthy_though_decode_was_restarted_alone(cluster: Cluster) -> dict[str, Any]:
    cluster.age(cluster.number.random() * 20 * HOUR)
    for _ in range(cluster.number.randint(1, 2)):
        cluster.restart("decode")
        cluster.served(cluster.number.randint(1, 3))
    return quiet(cluster)


@kind("unproven")
def fresh(cluster: Cluster) -> dict[str, Any]:
    cluster.co_restart()
    return either(cluster, {}, {"gauges_only": True})


@kind("capacity", reversible=True)
def capacity(cluster: Cluster) -> dict[str, Any]:
    seconds = 1.5 + cluster.number.random()
    cluster.prefill.faults(transfer_seconds=seconds)
    cluster.decode.faults(tokens_per_second=2000)
    # All at once, they would come and go in step, and the queue would be empty between them.
    cluster.clients(cluster.number.randint(24, 40), within_seconds=seconds, tokens=8)
    wait_until(lambda: cluster.prefill.queues().get("prefill_inflight_queue_reqs", 0) > 12, "a long queue")
    return {}


# -- an engine -------------------------------------------------------------------------------


@kind("engine_down")
def engine_ended(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    way = either(cluster, "stop", "kill", "crash")
    if way == "crash":
        cluster.engines[role].faults(crash_after_healthy={"seconds": 0, "exit_code": cluster.number.randint(1, 9)})
        cluster.engines[role].wait()
    else:
        cluster.stop(role, signal.SIGTERM if way == "stop" else signal.SIGKILL)
    return quiet(cluster)


@kind("engine_down")
def port_held_by_an_orphan(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    engine = cluster.engines[role]
    engine.faults(leave_orphan=True)
    cluster.stop(role)
    cluster.orphans += proc.with_argument("sglang.stand_in.orphan", engine.env_marker())
    engine.faults()
    cluster.start(role)
    engine.wait()
    return quiet(cluster)


@kind("engine_down", reversible=True)
def stop_that_does_not_end(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    cluster.engines[role].faults(ignore_sigterm=True)
    cluster.engines[role].signal(signal.SIGTERM)
    cluster.units[role].state.update(active_state="deactivating", sub_state="stop-sigterm")
    return quiet(cluster)


@kind("engine_down", router=ATTENTIVE)
def host_unreachable(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    if len({unit.host for unit in cluster.units.values()}) == 1:
        cluster.units[role].host += "2"
        cluster.booted_at[cluster.units[role].host] = 0.0
        cluster.deploy(role)
    cluster.stop(role, signal.SIGKILL)
    cluster.unreachable.add(cluster.units[role].host)
    # The router finds out by its health checks.
    wait_until(lambda: not all(one["is_healthy"] for one in cluster.workers()), "router counts it as unhealthy")
    return {}


@kind("crash_loop")
def crash_loop(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    engine, unit = cluster.engines[role], cluster.units[role]
    late = cluster.number.random() < 0.3
    engine.faults(**({"crash_after_healthy": 0} if late else {"crash_at_start": True}))
    cluster.stop(role)
    for _ in range(cluster.number.randint(3, 5)):
        cluster.start(role)
        engine.wait()
        unit.notice()
        unit.restarts += 1
    waits = {"active_state": "activating", "sub_state": "auto-restart"}
    unit.state.update(either(cluster, waits, {"result": "start-limit-hit"}))
    return either(cluster, {}, {"gauges_only": True})


@kind("engine_starting")
def slow_start(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    cluster.engines[role].faults(**either(cluster, {"slow_start": 300}, {"hang_at_start": True}))
    cluster.stop(role)
    cluster.start(role)
    cluster.units[role].age(cluster.number.random() * 600)
    return either(cluster, {}, {"gauges_only": True})


@kind("engine_hung")
def hang_at_start(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    cluster.engines[role].faults(hang_at_start=True)
    cluster.stop(role)
    cluster.start(role)
    cluster.units[role].age(1000 + cluster.number.random() * HOUR)
    return {}


@kind("engine_hung", reversible=True)
def hang(cluster: Cluster) -> dict[str, Any]:
    cluster.engines[engine_of(cluster)].faults(hang=True)
    cluster.age(HOUR)
    return {"health_timeout_seconds": 2}


@kind("engine_hung", SGLANG_HEALTH_CHECK_TIMEOUT="1")
def scheduler_stopped(cluster: Cluster) -> dict[str, Any]:
    (scheduler,) = proc.children(cluster.engines[engine_of(cluster)].popen.pid)
    os.kill(scheduler, signal.SIGSTOP)
    cluster.orphans.append(scheduler)
    cluster.age((1 + cluster.number.random()) * HOUR)
    for _ in range(cluster.number.randint(0, 3)):
        cluster.call()
    return {}


@kind("overlap_or_collective_hang", SGLANG_HEALTH_CHECK_TIMEOUT="1")
def collective_hang(cluster: Cluster) -> dict[str, Any]:
    (scheduler,) = proc.children(cluster.decode.popen.pid)
    os.kill(scheduler, signal.SIGSTOP)
    cluster.orphans.append(scheduler)
    cluster.age((1 + cluster.number.random()) * HOUR)
    for _ in range(cluster.number.randint(1, 5)):
        cluster.call()
    wait_until(lambda: cluster.decode.get("/v1/loads").json()["loads"][0]["num_waiting_reqs"], "requests wait")
    cluster.gpus[cluster.units["decode"].host] = "0, 100, 380.5, 70000\n1, 100, 379.0, 70000\n"
    return {}


@kind("scheduler_wedged", reversible=True)
def scheduler_wedged(cluster: Cluster) -> dict[str, Any]:
    cluster.engines[engine_of(cluster)].faults(scheduler_wedged=True)
    clients_wait(cluster, cluster.number.randint(1, 5))
    return either(cluster, {}, {"nudge": True})


# -- the KV path -----------------------------------------------------------------------------


@kind("decode_only_restarts", releases=(OLD,))
def decode_restarted_alone_five_times(cluster: Cluster) -> dict[str, Any]:
    return founding(cluster, 5)


@kind("decode_only_restarts", STAND_IN_STACK="old", STAND_IN_DECODE_RESTARTS_TOLERATED="0")
def decode_restarted_alone_once_too_often(cluster: Cluster) -> dict[str, Any]:
    return founding(cluster, 1)


def founding(cluster: Cluster, restarts: int) -> dict[str, Any]:
    """The founding incident: decode restarted alone so often that nothing comes through any more."""
    for turn in range(restarts):
        cluster.age((1 + cluster.number.random()) * HOUR)
        cluster.restart("decode")
        if turn < restarts - 1:
            cluster.served(1)
    failed_before(cluster)
    if cluster.number.random() < 0.3:
        cluster.restart("decode")
    if cluster.number.random() < 0.5:
        cluster.clients(cluster.number.randint(1, 3), patience_seconds=1)
    return either(cluster, {}, {"gauges_only": True}, {"nudge": True})


@kind("kv_path_wedged", STAND_IN_STACK="old", STAND_IN_VANISH_SECONDS="0.5")
def decode_vanished_amid_transfers(cluster: Cluster) -> dict[str, Any]:
    cluster.age(cluster.number.random() * 17 * HOUR)
    cluster.decode.faults(vanish=True)
    calls = [cluster.call() for _ in range(cluster.number.randint(1, 3))]
    held = "prefill_inflight_queue_reqs"
    wait_until(lambda: cluster.prefill.queues().get(held, 0) >= len(calls), "requests in flight")
    # Silence for longer than the threshold is what a host that is cut off looks like.
    calls[0].join(0.8)
    crashed = cluster.number.random() < 0.5 and cluster.units["decode"].host != cluster.units["prefill"].host
    cluster.stop("decode", signal.SIGKILL)
    if crashed:
        unit = cluster.units["decode"]
        cluster.booted_at[unit.host] = unit.ends[-1]["at"] + 0.001
        unit.starts, unit.ends = [], []
    cluster.decode.faults()
    for one in calls:
        one.leave()
    cluster.start("decode")
    cluster.wait_healthy("decode")
    failed_before(cluster)
    if cluster.number.random() < 0.5:
        cluster.age(cluster.number.random() * HOUR)
        cluster.restart("decode")
        failed_before(cluster)
    if cluster.number.random() < 0.5:
        cluster.clients(cluster.number.randint(1, 3), patience_seconds=1)
    return either(cluster, {}, {"gauges_only": True}, {"nudge": True})


@kind("prefill_only_restart", STAND_IN_STACK="old", SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL="600")
def prefill_restarted_alone(cluster: Cluster) -> dict[str, Any]:
    cluster.age(cluster.number.random() * 17 * HOUR)
    cluster.restart("prefill", either(cluster, signal.SIGTERM, signal.SIGKILL))
    return unserved(cluster)


@kind("stuck_inflight")
def abort_race(cluster: Cluster) -> dict[str, Any]:
    cluster.prefill.faults(stuck_inflight=True, transfer_seconds=60)
    failed_before(cluster)
    cluster.prefill.faults()
    cluster.served(cluster.number.randint(1, 3))
    return either(cluster, {}, {"nudge": True, "nudge_limit_seconds": 20})


@kind("kv_path_broken", STAND_IN_STACK="new")
def transfers_lost_on_the_way(cluster: Cluster) -> dict[str, Any]:
    cluster.decode.faults(vanish=True)
    if cluster.number.random() < 0.5:
        cluster.clients(cluster.number.randint(1, 4), patience_seconds=1)
        return either(cluster, {}, {"gauges_only": True})
    return unserved(cluster)


@kind("kv_path_broken", reversible=True)
def answers_empty_or_aborted(cluster: Cluster) -> dict[str, Any]:
    fault = either(cluster, {"answer_empty": True}, {"answer_abort": True}, {"answer_abort": "error"})
    cluster.prefill.faults(**fault)
    cluster.decode.faults(**fault)
    return {"nudge": True, "gauges_only": cluster.number.random() < 0.5}


@kind("requests_time_out_in_bootstrap", SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT="2")
def rooms_without_a_decode(cluster: Cluster) -> dict[str, Any]:
    # What a router leaves behind that sends a request once more: a room that no decode asks for.
    for number in range(cluster.number.randint(1, 5)):
        room = {"bootstrap_host": "127.0.0.1", "bootstrap_port": cluster.prefill.bootstrap_port}
        room["bootstrap_room"] = cluster.number.getrandbits(60) + number
        cluster.calls.append(Call(cluster.prefill.url("/v1/chat/completions"), chat(**room)))
    return {}


def stranger(cluster: Cluster, port: int) -> None:
    """Let another program listen on a port."""
    words = either(
        cluster,
        [
            sys.executable,
            "-m",
            "http.server",
            str(port),
            "--bind",
            "127.0.0.1",
            "--directory",
            str(cluster.stand.faults),
        ],
        [
            sys.executable,
            "-c",
            f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(999)",
        ],
    )
    process = Process(words, dict(os.environ), cluster.stand.folder / "stranger.log")
    cluster.others.append(process)
    wait_until(lambda: listens(process.popen.pid), "the stranger listens")


def listens(pid: int) -> bool:
    """Tell whether a process has a socket."""
    found = []
    for entry in Path("/proc", str(pid), "fd").iterdir():
        try:
            found.append(os.readlink(entry).startswith("socket:"))
        except OSError:
            continue
    return any(found)


@kind("bootstrap_unreachable")
def bootstrap_port_taken(cluster: Cluster) -> dict[str, Any]:
    for role in reversed(cluster.units):
        cluster.stop(role)
    stranger(cluster, cluster.prefill.bootstrap_port)
    cluster.co_restart()
    return either(cluster, {}, {"nudge": True}, {"gauges_only": True})


@kind("bootstrap_unreachable")
def bootstrap_port_elsewhere(cluster: Cluster) -> dict[str, Any]:
    # Somebody started prefill with another port than the one that is deployed and that the router tells decode.
    cluster.stop("prefill")
    deployed = cluster.prefill.bootstrap_port
    cluster.prefill.bootstrap_port = deployed + 1
    cluster.start("prefill", deploy=False)
    cluster.prefill.bootstrap_port = deployed
    cluster.wait_healthy("prefill")
    cluster.restart("decode")
    return unserved(cluster)


# -- settings --------------------------------------------------------------------------------


@kind("role_disagreement")
def roles_disagree(cluster: Cluster) -> dict[str, Any]:
    cluster.flags[engine_of(cluster)] = ["--context-length", str(cluster.number.choice([512, 1024, 4096]))]
    cluster.co_restart()
    cluster.served(cluster.number.randint(0, 3))
    return quiet(cluster)


@kind("settings_drifted")
def settings_drifted(cluster: Cluster) -> dict[str, Any]:
    drift = ["--max-running-requests", str(cluster.number.randint(1, 64))]
    role = engine_of(cluster)
    deployed = cluster.deploy
    try:
        # All are started in order, one of them with a flag that nobody deployed.
        for one in cluster.units:
            deployed(one)
        cluster.deploy = lambda role: None  # type: ignore[method-assign]
        cluster.flags[role] = drift
        cluster.co_restart()
    finally:
        del cluster.deploy
    cluster.served(cluster.number.randint(1, 3))
    return quiet(cluster)


# -- routers ---------------------------------------------------------------------------------


@kind("router_down")
def router_ended(cluster: Cluster) -> dict[str, Any]:
    cluster.stop("router", either(cluster, signal.SIGTERM, signal.SIGKILL))
    return either(cluster, {}, {"gauges_only": True})


@kind("router_refuses_engines")
def router_with_a_worker_less(cluster: Cluster) -> dict[str, Any]:
    role = engine_of(cluster)
    (worker,) = [one for one in cluster.workers() if one["worker_type"] == role]
    cluster.remove_worker(worker["id"])
    return quiet(cluster)


@kind("router_refuses_engines", router=(*ATTENTIVE, "--health-success-threshold", "1000"))
def router_stale(cluster: Cluster) -> dict[str, Any]:
    # Engines were away for longer than the router's patience, and came back in the right order.
    cluster.stop("decode")
    cluster.stop("prefill")
    wait_until(lambda: not all(one["is_healthy"] for one in cluster.workers()), "router counts it as unhealthy")
    for role in ("prefill", "decode"):
        cluster.start(role)
        cluster.wait_healthy(role)
    return either(cluster, {}, {"gauges_only": True})
