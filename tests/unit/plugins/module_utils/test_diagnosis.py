# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each hypothesis where it is the verdict, and where it is ruled out with its reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _bundle,
    _diagnosis,
    _facts,
    _hypotheses,
)

from .sighting import HOUR, INFO, NOW, UNITS, Sighting, diagnose

RECORDED = Path(__file__).resolve().parents[3] / "recorded" / "captures"

#: The verdict on each recorded state of the real engine, and a word of its evidence.
VERDICTS = {
    "pd_nixl_00_fresh_before_any_request": ("unproven", ""),
    "pd_nixl_01_idle_after_6_ok": ("healthy", "80"),
    "A1_decode_down": ("engine_down", "decode: /health"),
    "A1_decode_down_after_3_reqs": ("engine_down", "decode: /health"),
    "A1_after_decode_restart": ("healthy", "136"),
    "A3_after_decode_restart": ("router_refuses_engines", "decode http://127.0.0.1:30200 counts as unhealthy"),
    "B1_prefill_down": ("engine_down", "prefill: /health"),
    "B1_after_prefill_restart": ("healthy", "200"),
    "C_after_prefill_decode_router_restart": ("healthy", "136"),
    "D1_fastHC_midstream_before_kill": ("healthy", "running 8"),
    "D1_fastHC_4s_after_kill9": ("engine_down", "prefill holds 24 requests that wait for it and 0 in flight"),
    "D1_fastHC_60s_after_kill9": ("engine_down", "the router counts it as unhealthy"),
    "D1_fastHC_after_decode_back": ("healthy", "104"),
    "D4_ucxtcp_transfer_15s_stopped": ("engine_down", "prefill holds 5 requests that wait for it and 5 in flight"),
    "D4_ucxtcp_transfer_50s_after_kill9": ("engine_down", "breaker for it is open"),
    "D4_ucxtcp_transfer_after_decode_back": ("healthy", "104"),
    "prefill_starting_503": ("engine_starting", "/health 503"),
    "router0.3.2_deadworkers": ("router_refuses_engines", "no decode and no prefill worker"),
    "smg1.13.0_deadworkers": ("router_refuses_engines", "no decode and no prefill worker"),
    "wedge_0.5.16_00_base": ("healthy", "104"),
    "wedge_0.5.16_01_broken_after_decode_vanished_and_restarted": ("kv_path_wedged", "prefill 15, decode 3"),
    "wedge_0.5.16_02_broken_after_another_decode_restart": ("kv_path_wedged", "prefill 20, decode 2"),
    "wedge_0.5.16_03_after_co_restart": ("healthy", "104"),
}


def captures() -> dict[str, list[dict[str, Any]]]:
    return _bundle.read({str(path): path.read_text(errors="replace") for path in RECORDED.glob("*.txt")})


def rule(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in report["hypotheses"] if one["name"] == name)


def test_every_capture_has_a_verdict() -> None:
    assert set(captures()) == set(VERDICTS)


@pytest.mark.parametrize("scenario", VERDICTS)
def test_R16_H1_recorded_states_are_judged_right(scenario: str) -> None:
    report = diagnose(captures()[scenario], scenario=scenario)
    verdict, evidence = VERDICTS[scenario]
    assert report["verdict"] == verdict, "\n".join(_diagnosis.describe(report))
    assert evidence in "; ".join(report["evidence_for"])


@pytest.mark.parametrize("scenario", ["A1_decode_down_after_3_reqs", "D1_fastHC_4s_after_kill9"])
def test_H2_recorded_in_flight_1_is_a_stale_gauge(scenario: str) -> None:
    report = diagnose(captures()[scenario], scenario=scenario)
    assert "the gauge in /metrics says 1, which is stale" in rule(report, "stuck_inflight")["why"]


def sighting(*changes: Callable[[Sighting], Any]) -> Sighting:
    one = Sighting()
    for change in changes:
        change(one)
    return one


# -- what may be wrong, as changes of a healthy cluster ------------------------------------------


def failing(one: Sighting) -> None:
    """Every request fails on the KV path while it is watched; decode has served none since its start."""
    one.numbers["prefill"].update(failed=[15, 17, 18], aborted=[15, 17, 18])
    one.numbers["decode"].update(generated=8, failed=1)


def founding(one: Sighting) -> None:
    """The founding incident: prefill up 17 h, decode started again and again for A/B tests of settings."""
    one.started("prefill", 17 * HOUR)
    one.started("decode", 17 * HOUR - 80, 9 * HOUR, 6 * HOUR, 3 * HOUR, 2 * HOUR, HOUR, by_hand=True)
    one.numbers["prefill"].update(failed=21, prefill_inflight=3)
    one.numbers["decode"].update(generated=9000, failed=1)
    one.machines["d"] = {"gpus": [{"index": n, "utilization_percent": 0.0, "power_watts": 165.0} for n in range(4)]}


def vanished(one: Sighting) -> None:
    one.started("prefill", 17 * HOUR)
    one.started("decode", 17 * HOUR - 80, HOUR, 0.5 * HOUR, by_hand=True)
    one.ended("decode", 1.1 * HOUR)
    failing(one)


def host_crashed(one: Sighting) -> None:
    vanished(one)
    one.facts["decode"]["starts"] = {"starts": [{"at": NOW - HOUR}], "ends": []}
    one.machines["d"] = {"booted_at": NOW - 1.2 * HOUR}


def prefill_alone(one: Sighting) -> None:
    one.started("prefill", 5 * HOUR, 600, by_hand=True)
    failing(one)


def broken_path(one: Sighting) -> None:
    failing(one)


def abort_race(one: Sighting) -> None:
    one.numbers["prefill"].update(prefill_inflight=2, aborted=400, failed=3)
    one.nudge = {"good": True, "why": "", "seconds": 0.9}


def bootstrap_held_by_another(one: Sighting) -> None:
    one.facts["prefill"]["listeners"] = [
        {"port": 30000, "pid": 7, "command": "python", "unit": "sglang-c-prefill.service"},
        {"port": 8998, "pid": 99, "command": "python other", "unit": ""},
    ]


def bootstrap_behind_a_firewall(one: Sighting) -> None:
    one.facts["decode"]["reach"] = [
        {"unit": "sglang-c-prefill.service", "url": "http://p:8998/health", "good": False, "detail": "nothing in 5 s"}
    ]


def disagreeing(one: Sighting) -> None:
    one.http["decode", "server_info"] = (200, {**INFO, "page_size": 64})


def hanging(one: Sighting) -> None:
    one.http["decode", "health"] = (None, "nothing within 25 s")
    # A hung scheduler: HTTP is there, so are its last numbers.
    one.http["decode", "v1_loads"] = (200, {"loads": []})


def collective(one: Sighting) -> None:
    one.http["decode", "health"] = (503, "")
    one.numbers["decode"].update(running=8)
    one.machines["d"] = {"gpus": [{"index": n, "utilization_percent": 100.0, "power_watts": 400.0} for n in range(4)]}


def crashing(one: Sighting) -> None:
    one.started("decode", 30, sub_state="auto-restart", active_state="activating", restarts=4)
    one.http["decode", "health"] = (None, "Connection refused")
    one.facts["decode"]["journal"] = "RuntimeError: CUDA out of memory\n"


def down(one: Sighting) -> None:
    one.started("decode", 60, active_state="failed", result="exit-code", exit_status=1)
    one.http["decode", "health"] = (None, "Connection refused")
    one.workers(decode={"is_healthy": False})
    one.breaker("prefill")


def host_gone(one: Sighting) -> None:
    one.unreachable["d"] = "Failed to connect to the host via ssh"
    one.workers(decode={"is_healthy": False})


def starting(one: Sighting) -> None:
    one.started("decode", 20)
    one.http["decode", "health"] = (503, "")


def at_capacity(one: Sighting) -> None:
    one.numbers["prefill"].update(waiting=[40, 35, 44], prefill_inflight=[40, 35, 44], generated=[500, 600, 700])
    one.numbers["decode"].update(running=512, throughput=9000.0, generated=[9000, 60000, 120000])


def wedged(one: Sighting) -> None:
    """Decode's HTTP side holds requests that its scheduler never takes; prefill waits for it. It served before."""
    one.numbers["prefill"].update(prefill_bootstrap=[2, 3, 3], active=[2, 3, 3])
    one.numbers["decode"].update(active=[2, 3, 3])


def waiting_in_vain(one: Sighting) -> None:
    """Clients wait on both sides, no counter rises, and no engine does anything."""
    one.numbers["prefill"].update(prefill_bootstrap=[1, 2, 2], active=[1, 2, 2])
    one.numbers["decode"].update(decode_prealloc=[1, 2, 2], active=[1, 2, 2])


def prefill_alone_and_clients_wait(one: Sighting) -> None:
    one.started("prefill", 5 * HOUR, 600, by_hand=True)
    waiting_in_vain(one)


def slow_timeouts(one: Sighting) -> None:
    one.numbers["decode"].update(latencies={"100.0": 900, "200.0": 900, "400.0": 912})


def unhealthy_worker(one: Sighting) -> None:
    one.workers(decode={"is_healthy": False})


def worker_without_model(one: Sighting) -> None:
    one.workers(prefill={"model_id": "unknown"})


def missing_worker(one: Sighting) -> None:
    one.workers(decode=None)  # type: ignore[arg-type]


def open_breaker(one: Sighting) -> None:
    one.breaker("decode")


def dead_router(one: Sighting) -> None:
    one.started("router", HOUR, active_state="inactive", sub_state="dead")
    one.http = {key: value for key, value in one.http.items() if key[0] != "router"}


def drifted(one: Sighting) -> None:
    row = {"setting": "page_size", "carrier": "--page-size", "deployed": "1", "running": "64", "state": "drifted"}
    one.facts["decode"]["settings"] = [dict(row, evidence="command line of the process; it was started with '1'")]


def fresh(one: Sighting) -> None:
    one.numbers["prefill"].update(generated=1, transferred=0)
    one.numbers["decode"].update(generated=8)


ROUTER_SILENT = "sglang-c-router.service on r: nothing within 5 s"
WINS = [
    (founding, "decode_only_restarts", "6 starts of it since then"),
    (founding, "decode_only_restarts", "prefill 21, decode 1"),
    (founding, "decode_only_restarts", "decode idle: running 0, queues 0"),
    (vanished, "kv_path_wedged", "ended by signal 9 while prefill ran"),
    (host_crashed, "kv_path_wedged", "its host was started after prefill was"),
    (prefill_alone, "prefill_only_restart", "before prefill was started"),
    (broken_path, "kv_path_broken", "3 transfers failed, 0 were completed"),
    (abort_race, "stuck_inflight", "num_aborted_requests_total: prefill 400"),
    (
        bootstrap_held_by_another,
        "bootstrap_unreachable",
        "port 8998 of sglang-c-prefill.service on p is held by pid 99",
    ),
    (bootstrap_behind_a_firewall, "bootstrap_unreachable", "from d to http://p:8998/health: nothing in 5 s"),
    (disagreeing, "role_disagreement", "page_size: 1 on sglang-c-prefill.service on p, 64 on"),
    (hanging, "engine_hung", "nothing within 25 s, although it answers"),
    (collective, "overlap_or_collective_hang", "GPUs at 90 % or more, running 8, no token within 12 s"),
    (wedged, "scheduler_wedged", "sglang-c-decode.service on d holds 2 requests (http_requests_active)"),
    (waiting_in_vain, "kv_path_broken", "no engine is at work"),
    (prefill_alone_and_clients_wait, "prefill_only_restart", "sglang-c-prefill.service on p 1, sglang-c-decode"),
    (crashing, "crash_loop", "last: RuntimeError: CUDA out of memory"),
    (down, "engine_down", "the unit is failed (result exit-code, exit status 1)"),
    (host_gone, "engine_down", "decode http://d:30002 gave no answer, and the router counts it as unhealthy"),
    (starting, "engine_starting", "sglang-c-decode.service on d: /health 503"),
    (at_capacity, "capacity", "at least 70 requests waited in each sample"),
    (slow_timeouts, "requests_time_out_in_bootstrap", "12 requests took 200 to 400 s, 0 took 100 to 200 s"),
    (unhealthy_worker, "router_refuses_engines", "decode http://d:30002 counts as unhealthy"),
    (worker_without_model, "router_refuses_engines", "prefill http://p:30000 is registered without a model"),
    (missing_worker, "router_refuses_engines", "sglang-c-decode.service on d (decode) is not registered"),
    (open_breaker, "router_refuses_engines", "has its circuit breaker open"),
    (dead_router, "router_down", "sglang-c-router.service on r: the unit is inactive"),
    (drifted, "settings_drifted", "page_size (--page-size): '64' runs, '1' is deployed"),
    (fresh, "unproven", "all queues 0"),
    (lambda one: None, "healthy", "generation 4"),
]


@pytest.mark.parametrize(("change", "verdict", "evidence"), WINS, ids=[f"{w[0].__name__}-{w[1]}" for w in WINS])
def test_R1_R3_R16_H3_H8_H9_the_cause_is_named(change: Callable[[Sighting], None], verdict: str, evidence: str) -> None:
    report = sighting(change).diagnose()
    assert report["verdict"] == verdict, "\n".join(_diagnosis.describe(report))
    assert evidence in "; ".join(report["evidence_for"]), report["evidence_for"]
    assert report["healthy"] is (verdict == "healthy")
    assert report["remedy"]


def test_every_hypothesis_wins_somewhere_and_is_ruled_out_somewhere() -> None:
    names = {one.name for one in _hypotheses.HYPOTHESES}
    assert {verdict for _change, verdict, _evidence in WINS} == names
    assert {name for _change, name, _why in RULED_OUT} == names


RULED_OUT = [
    (founding, "healthy", "prefill 21, decode 1"),
    (founding, "unproven", "in flight 3, 3, 3 over 12 s (/v1/loads)"),
    (founding, "kv_path_wedged", "no decode was killed and no decode's host went down since prefill was started"),
    (founding, "overlap_or_collective_hang", "GPUs of decode: 0 %, 165 W"),
    (founding, "prefill_only_restart", "every decode was started after every prefill"),
    (founding, "engine_hung", "sglang-c-decode.service on d: /health 200"),
    (founding, "engine_down", "/health 200"),
    (founding, "engine_starting", "/health 200"),
    (founding, "crash_loop", "no unit restarts by itself"),
    (founding, "router_refuses_engines", "all workers registered and healthy, no breaker open"),
    (founding, "router_down", "sglang-c-router.service on r answers"),
    (founding, "role_disagreement", "alike in model_path"),
    (founding, "capacity", "0 tokens generated within 12 s"),
    (founding, "settings_drifted", "no setting is drifted"),
    (waiting_in_vain, "scheduler_wedged", "holds 1 requests (http_requests_active)"),
    (wedged, "healthy", "none is in any queue of its scheduler"),
    (prefill_alone, "kv_path_wedged", "has been running since"),
    (prefill_alone, "decode_only_restarts", "decode was not started since prefill was"),
    (broken_path, "decode_only_restarts", "decode was started once since prefill was"),
    (broken_path, "stuck_inflight", "in flight 0, 0, 0"),
    (abort_race, "kv_path_broken", "answered in 0.90 s"),
    (at_capacity, "stuck_inflight", "in flight 40, 35, 44 over 12 s (/v1/loads); requests flow meanwhile"),
    (at_capacity, "requests_time_out_in_bootstrap", ""),
    (
        lambda one: one.facts["decode"].update(
            reach=[{"url": "http://p:8998/health", "good": True, "detail": "HTTP 200"}]
        ),
        "bootstrap_unreachable",
        "from d to http://p:8998/health: HTTP 200",
    ),
]


@pytest.mark.parametrize(("change", "name", "why"), RULED_OUT, ids=[f"{r[0].__name__}-{r[1]}" for r in RULED_OUT])
def test_H1_H4_what_it_is_not_is_ruled_out_with_the_reason(
    change: Callable[[Sighting], None], name: str, why: str
) -> None:
    if name == "requests_time_out_in_bootstrap":
        one = sighting(change, lambda s: s.numbers["decode"].update(latencies={"100.0": 9, "200.0": 12, "400.0": 13}))
        why = "1 requests took 200 to 400 s, 3 took 100 to 200 s"
    else:
        one = sighting(change)
    report = one.diagnose()
    assert rule(report, name)["state"] == _diagnosis.RULED_OUT, "\n".join(_diagnosis.describe(report))
    assert why in rule(report, name)["why"]


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        (down, "router_refuses_engines"),
        (vanished, "kv_path_broken"),
        (founding, "stuck_inflight"),
        (collective, "engine_hung"),
    ],
)
def test_consequences_are_no_causes(change: Callable[[Sighting], None], follows: str) -> None:
    report = sighting(change, lambda one: one.numbers["prefill"].update(aborted=30)).diagnose()
    assert rule(report, follows)["state"] in (_diagnosis.FOLLOWS, _diagnosis.RULED_OUT)
    assert report["verdict"] != follows


def test_R1_the_hunch_overlap_schedule_is_answered_by_name() -> None:
    answer = sighting(founding).diagnose("it is the overlap schedule again")["hunch"]["answer"]
    assert answer.startswith("overlap_or_collective_hang")
    assert "ruled out because: GPUs of decode: 0 %, 165 W" in answer
    assert "the overlap schedule is disabled in every running engine (/server_info)" in answer


@pytest.mark.parametrize(
    ("hunch", "answer"),
    [
        ("router", "router_down"),
        ("decode restarts", "decode_only_restarts (decode was restarted alone"),
        ("abort crash", "stuck_inflight"),
        ("NCCL", "overlap_or_collective_hang"),
        ("the moon", "No rule is about that"),
        ("capacty", "did you mean capacity"),
    ],
)
def test_hunches_find_their_hypothesis(hunch: str, answer: str) -> None:
    assert answer in sighting(founding).diagnose(hunch)["hunch"]["answer"]


def test_H2_a_gauge_that_may_be_stale_is_neither_passed_over_nor_taken_for_stuck() -> None:
    def gauge(one: Sighting) -> None:
        one.loads, one.numbers["prefill"]["prefill_inflight"] = False, 1

    short = sighting(gauge).diagnose()
    assert short["verdict"] == "healthy"
    assert "a gauge that may be stale: 35 s wanted" in rule(short, "stuck_inflight")["why"]

    def long(one: Sighting) -> None:
        gauge(one)
        one.rounds, one.interval_seconds = 7, 6.0
        one.numbers["prefill"]["aborted"] = 5

    assert sighting(long).diagnose()["verdict"] == "stuck_inflight"


@pytest.mark.parametrize(
    ("running", "inflight", "verdict"),
    [
        ([0, 0, 0], [2, 2, 2], "stuck_inflight"),
        ([0, 3, 0], [2, 5, 2], "stuck_inflight"),
        # Those in flight may be what decode is at work on.
        ([1, 1, 1], [2, 2, 2], "healthy"),
        ([0, 1, 1], [2, 2, 2], "healthy"),
        ([0, 3, 0], [2, 5, 0], "healthy"),
    ],
)
def test_H3_requests_pinned_in_flight_are_seen_although_others_are_served(
    running: list[int], inflight: list[int], verdict: str
) -> None:
    def served(one: Sighting) -> None:
        abort_race(one)
        one.numbers["prefill"].update(prefill_inflight=inflight)
        one.numbers["decode"].update(running=running, generated=[9000, 9024, 9048])

    assert sighting(served).diagnose()["verdict"] == verdict


def test_H3_they_are_seen_although_each_host_samples_in_its_own_time() -> None:
    one = sighting(abort_race)
    one.numbers["decode"].update(decode_transfer=[0, 1, 0], generated=[9000, 9000, 9024])
    items = one.items()
    for role, moments in (("prefill", (-12, -9, -3)), ("decode", (-12, -4, 0))):
        of_role = [
            item for item in items if item["unit"] == UNITS[role] and item["endpoint"] in ("v1_loads", "metrics")
        ]
        for turn, item in enumerate(of_role):
            item["at"] = NOW + moments[turn // 2]
    assert diagnose(items)["verdict"] == "stuck_inflight"


def test_H8_gauges_that_are_frozen_since_the_last_batch_are_no_work() -> None:
    def frozen(one: Sighting) -> None:
        prefill_alone_and_clients_wait(one)
        one.loads = False
        one.numbers["prefill"].update(prefill_bootstrap=0)
        one.numbers["decode"].update(decode_prealloc=0, running=1, throughput=31.0)

    assert sighting(frozen).diagnose()["verdict"] == "prefill_only_restart"

    def works(one: Sighting) -> None:
        frozen(one)
        one.numbers["prefill"].update(transferred=[3, 4, 4])
        one.numbers["decode"].update(running=[1, 2, 1], throughput=[31.0, 60.0, 58.0], decoded=[900, 1400, 1900])

    assert sighting(works).diagnose()["verdict"] == "healthy"


@pytest.mark.parametrize(("transferred", "verdict"), [(0, "unproven"), (2, "healthy")])
def test_H5_what_decode_served_of_an_earlier_prefill_proves_nothing_of_this_one(transferred: int, verdict: str) -> None:
    def idle(one: Sighting) -> None:
        one.started("prefill", 5 * HOUR, 600, by_hand=True)
        one.numbers["prefill"].update(transferred=transferred)

    report = sighting(idle).diagnose()
    assert report["verdict"] == verdict
    state = _diagnosis.OPEN if verdict == "unproven" else _diagnosis.RULED_OUT
    assert rule(report, "prefill_only_restart")["state"] == state


def test_H8_frozen_gauges_of_a_long_queue_are_no_capacity() -> None:
    one = sighting(at_capacity)
    assert one.diagnose()["verdict"] == "capacity"
    one.loads = False
    for numbers in one.numbers.values():
        numbers.update({name: value[0] for name, value in numbers.items() if isinstance(value, list)})
    assert rule(one.diagnose(), "capacity")["state"] == _diagnosis.RULED_OUT


def test_H9_a_router_that_answers_late_once_is_not_down() -> None:
    one = sighting(lambda one: one.http.update({("router", "health"): (None, "nothing within 5 s")}))
    assert one.diagnose()["verdict"] == "healthy"
    one.http["router", "workers"] = (None, "nothing within 5 s")
    report = one.diagnose()
    assert (report["verdict"], report["evidence_for"]) == ("router_down", [ROUTER_SILENT])


def test_a_hang_of_which_only_the_last_scrape_was_answered_is_left_open() -> None:
    items = [one for one in sighting(collective).items() if one["endpoint"] != "metrics" or one["at"] == NOW]
    report = diagnose(items)
    assert report["verdict"] == "engine_hung"
    hang = rule(report, "overlap_or_collective_hang")
    assert (hang["state"], "not seen over time" in hang["why"]) == (_diagnosis.OPEN, True)


@pytest.mark.parametrize("counter", ["decoded", "computed", "generated"])
def test_busy_gpus_whose_batches_go_on_do_not_hang(counter: str) -> None:
    one = sighting(collective)
    assert rule(one.diagnose(), "overlap_or_collective_hang")["state"] == _diagnosis.HOLDS
    one.numbers["decode"][counter] = [9000, 9400, 9800]
    assert rule(one.diagnose(), "overlap_or_collective_hang")["state"] == _diagnosis.RULED_OUT


def test_H1_in_flight_that_drains_is_healthy() -> None:
    def drains(one: Sighting) -> None:
        one.numbers["prefill"].update(prefill_inflight=[17, 1, 0])
        one.numbers["decode"].update(running=[1, 0, 0], throughput=[52.36, 0.0, 0.0])

    assert sighting(drains).diagnose()["verdict"] == "healthy"


@pytest.mark.parametrize(
    "work",
    [
        {"prefill": {"computed": [1000, 9000, 17000], "cached": 50000}},
        {"decode": {"generated": [9000, 9400, 9900]}},
        {"decode": {"running": [0, 1, 0]}},
        {"prefill": {"waiting": [0, 2, 0]}},
        {"prefill": {"prefill_bootstrap": [2, 0, 2]}, "decode": {"decode_prealloc": [2, 0, 2]}},
        {"prefill": {"compiling": 2}},
        {"decode": {"paused": 2}},
    ],
    ids=["a-long-prompt", "tokens", "running", "batches", "drained-between", "grammar", "paused"],
)
def test_H4_requests_that_wait_while_an_engine_works_are_no_failure(work: dict[str, dict[str, Any]]) -> None:
    one = sighting(waiting_in_vain)
    for role, numbers in work.items():
        one.numbers[role].update(numbers)
    assert one.diagnose()["verdict"] == "healthy"


@pytest.mark.parametrize("elsewhere", ["compiling", "paused"])
def test_H4_requests_that_wait_for_their_grammar_or_for_somebody_who_paused_do_not_make_a_scheduler_wedged(
    elsewhere: str,
) -> None:
    one = sighting(wedged)
    one.numbers["decode"][elsewhere] = 2
    assert rule(one.diagnose(), "scheduler_wedged")["state"] == _diagnosis.OPEN


@pytest.mark.parametrize("change", [wedged, waiting_in_vain])
def test_H8_without_live_numbers_the_requests_that_http_holds_tell(change: Callable[[Sighting], None]) -> None:
    def frozen(one: Sighting) -> None:
        change(one)
        one.loads = False
        for role, queue in (("prefill", "prefill_bootstrap"), ("decode", "decode_prealloc")):
            one.numbers[role][queue] = 0

    report = sighting(frozen).diagnose()
    assert report["verdict"] == "kv_path_broken"
    # Which scheduler it is only live numbers show.
    assert rule(report, "scheduler_wedged")["state"] == _diagnosis.OPEN

    def served(one: Sighting) -> None:
        frozen(one)
        one.numbers["decode"].update(generated=[9000, 9100, 9200])

    assert sighting(served).diagnose()["verdict"] == "healthy"


def test_failures_of_the_past_are_told_and_do_not_condemn() -> None:
    report = sighting(lambda one: one.numbers["prefill"].update(failed=5)).diagnose()
    assert report["verdict"] == "healthy"
    assert report["evidence_against"] == ["num_transfer_failed_reqs_total: prefill 5, decode 0"]


def test_a_few_clients_who_leave_are_no_broken_path() -> None:
    def busy(one: Sighting) -> None:
        one.numbers["prefill"].update(failed=[5, 6, 7], transferred=[500, 600, 700])
        one.numbers["decode"].update(running=30, throughput=900.0)

    assert sighting(busy).diagnose()["verdict"] == "healthy"


def test_R2_a_decode_restarted_alone_without_a_symptom_is_unproven_not_healthy() -> None:
    def alone(one: Sighting) -> None:
        one.started("decode", 5 * HOUR - 60, 300, by_hand=True)
        one.numbers["decode"].update(generated=8)

    report = sighting(alone).diagnose()
    assert report["verdict"] == "unproven"
    assert "2 starts of it since then" in "; ".join(report["evidence_against"])
    assert rule(report, "decode_only_restarts")["state"] == _diagnosis.OPEN


def test_H10_one_request_that_is_not_served_breaks_the_green() -> None:
    report = sighting(
        lambda one: setattr(one, "nudge", {"good": False, "why": "no answer: nothing within 35 s", "seconds": 35.0})
    ).diagnose()
    assert report["verdict"] == "kv_path_broken"
    assert "not served: no answer: nothing within 35 s" in "; ".join(report["evidence_for"])


def test_what_was_not_seen_is_unknown() -> None:
    items = [one for one in Sighting().items() if one["unit"].endswith("router.service")]
    report = diagnose(items)
    assert (report["verdict"], report["healthy"]) == ("unknown", False)


@pytest.mark.parametrize(
    "without", ["health", "v1_loads", "metrics", "unit.json", "ledger.json", "workers", "starts.json"]
)
def test_H5_missing_pieces_never_make_a_broken_cluster_healthy(without: str) -> None:
    for change in (founding, vanished, prefill_alone, down, crashing, broken_path):
        items = [one for one in sighting(change).items() if one["endpoint"] != without]
        report = diagnose(items)
        assert not report["healthy"], (change.__name__, without)


@pytest.mark.parametrize(
    "change",
    [
        founding,
        vanished,
        prefill_alone,
        broken_path,
        abort_race,
        wedged,
        waiting_in_vain,
        prefill_alone_and_clients_wait,
    ],
)
def test_H5_one_number_that_came_too_late_never_makes_a_broken_cluster_healthy(
    change: Callable[[Sighting], None],
) -> None:
    items = sighting(change).items()
    for late in [one for one in items if one["endpoint"] in ("v1_loads", "metrics")]:
        silent = dict(late, status=None, body="", error="nothing within 5 s")
        report = diagnose([silent if one is late else one for one in items])
        assert not report["healthy"], (late["unit"], late["endpoint"], late["at"] - NOW)


def test_the_rules_name_facts_and_hypotheses_that_exist() -> None:
    names = [one.name for one in _hypotheses.HYPOTHESES]
    assert len(set(names)) == len(names)
    for one in _hypotheses.HYPOTHESES:
        used = {*one.needs, *one.excluded_by, *dict(one.speaks_for), *dict(one.speaks_against)}
        assert used <= set(_facts.FACTS), one.name
        assert set(one.explained_by) <= set(names), one.name


def test_the_report_reads_from_the_verdict_to_what_it_is_not() -> None:
    lines = _diagnosis.describe(sighting(founding).diagnose("overlap"))
    assert lines[0] == ("cluster c: NOT WELL: decode was restarted alone against a prefill that kept running (certain)")
    text = "\n".join(lines)
    order = [
        text.index(words)
        for words in (
            "6 starts of it since then",
            "What to do: Co-restart prefill, decode, router",
            "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters=c",
            "You suspected 'overlap'",
            "Ruled out, because:",
            "Seen:",
        )
    ]
    assert order == sorted(order)


def test_the_member_that_it_is_about_is_in_the_command() -> None:
    command = sighting(crashing).diagnose()["command"]
    assert "journalctl -u sglang-c-decode.service -n 100   # sglang-c-decode.service on d" in command
