# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The KV path: exchange, queues, gauges, degradation of the old stack, wedge."""

from __future__ import annotations

import signal

import pytest
import requests
from stand_in_processes import MODEL, Call, Pair, Stand, chat, wait_until

FAILED = "sglang:num_transfer_failed_reqs_total"
INFLIGHT = "sglang:num_prefill_inflight_queue_reqs"


def golden(stand: Stand, prompt: str = "tell me of the KV path", tokens: int = 8) -> str:
    """Return the text of a plain engine."""
    plain = stand.engine().start().healthy()
    url = plain.url("/v1/chat/completions")
    return Call(url, chat(prompt, tokens)).done().content


@pytest.mark.parametrize("prompt", ["short", "long " * 1500])
def test_pair_answers_what_a_plain_engine_answers(shared: Stand, pair: Pair, prompt: str) -> None:
    assert pair.ask(prompt=prompt) == golden(shared, prompt)


@pytest.mark.parametrize("module", ["smg", "sglang_router"])
def test_real_router_gets_the_golden_text_through(shared: Stand, pair: Pair, module: str) -> None:
    url = shared.router(module, pair)
    count = "sglang:kv_transfer_latency_ms_count"
    before = pair.prefill.value(count) or 0
    answer = requests.post(f"{url}/v1/chat/completions", json=chat(), timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == golden(shared)
    assert pair.prefill.value(count) == before + 1
    workers = requests.get(f"{url}/workers", timeout=60).json()["workers"]
    assert {w["worker_type"] for w in workers} == {"prefill", "decode"}
    assert {w["model_id"] for w in workers} == {MODEL}


def test_bootstrap_server_tells_the_ports_of_this_incarnation(stand: Stand) -> None:
    prefill = stand.engine("prefill").start().healthy()
    url = f"http://127.0.0.1:{prefill.bootstrap_port}"
    assert requests.get(f"{url}/health", timeout=60).text == "OK"
    query = "prefill_dp_rank={0}&prefill_cp_rank={0}&target_tp_rank={0}&target_pp_rank={0}"

    def rank() -> dict[str, object] | None:
        answer = requests.get(f"{url}/route?{query.format(0)}", timeout=60)
        body: dict[str, object] | None = answer.json() if answer.status_code == 200 else None
        return body

    first = wait_until(rank, "rank registered")
    assert requests.get(f"{url}/route", timeout=60).status_code == 400
    about = requests.get(f"{url}/route?{query.format(-1)}", timeout=60).json()
    assert about["page_size"] == 1
    assert about["prefill_http_port"] == prefill.port
    prefill.restart()
    assert wait_until(rank, "rank registered") != first


def test_second_prefill_with_the_same_bootstrap_port_is_up_and_useless(stand: Stand) -> None:
    first = stand.engine("prefill").start().healthy()
    second = stand.engine("prefill")
    second.bootstrap_port = first.bootstrap_port
    second.start().healthy()
    assert "address already in use" in second.output()


def test_request_without_a_room_is_refused(pair: Pair) -> None:
    for engine in (pair.prefill, pair.decode):
        call = Call(engine.url("/v1/chat/completions"), chat()).done()
        assert call.status == 400


def test_fake_host_proves_one_role_without_the_kv_path(stand: Stand) -> None:
    decode = stand.engine("decode").start().healthy()
    body = chat(bootstrap_host="2.2.2.2", bootstrap_room=0)
    assert Call(decode.url("/v1/chat/completions"), body).done().content


def test_gauges_are_stale_while_loads_is_live(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_HEALTH_SECONDS="0")
    pair.ask()
    # The value of the last batch, though nothing is in flight any more.
    assert pair.prefill.value(INFLIGHT) == 1
    assert not pair.prefill.queues()
    waiting = Call(
        pair.prefill.url("/v1/chat/completions"),
        chat(bootstrap_host="127.0.0.1", bootstrap_port=1, bootstrap_room=7),
    )
    wait_until(lambda: pair.prefill.queues(), "request in bootstrap")
    assert pair.prefill.queues() == {"prefill_bootstrap_queue_reqs": 1}
    (load,) = pair.prefill.get("/v1/loads").json()["loads"]
    assert (load["num_waiting_reqs"], load["queues"]["waiting"]) == (1, 0)
    assert pair.prefill.status() == 200
    assert pair.prefill.value("sglang:num_prefill_bootstrap_queue_reqs") == 0
    assert pair.prefill.value(INFLIGHT) == 1
    waiting.leave()


def test_idle_gauges_are_written_after_the_idle_interval(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_IDLE_METRICS_SECONDS="0.2")
    pair.ask()
    wait_until(lambda: pair.prefill.value(INFLIGHT) == 0, "idle gauges written")


def test_differing_page_size_kills_the_decode_on_first_contact(stand: Stand) -> None:
    prefill = stand.engine("prefill", "--page-size", "64").start().healthy()
    decode = stand.engine("decode", "--page-size", "1").start().healthy()
    calls = Pair(prefill, decode).send()
    assert decode.wait() == -signal.SIGKILL
    assert "page_size differs" in decode.output()
    calls[0].leave()


def test_old_stack_stops_serving_a_decode_restarted_too_often(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_STACK="old", STAND_IN_DECODE_RESTARTS_TOLERATED="1")
    expected = pair.ask()
    pair.decode.restart()
    assert pair.ask() == expected
    pair.decode.restart()
    assert pair.prefill.value(FAILED) is None
    for _ in range(2):
        pair.leave(pair.stuck())
    assert (pair.prefill.value(FAILED), pair.decode.value(FAILED)) == (2, 1)
    assert (pair.prefill.status(), pair.decode.status()) == (200, 200)
    # Restarted once more in vain, then healed by prefill first.
    pair.decode.restart()
    pair.leave(pair.stuck())
    pair.prefill.restart()
    pair.decode.restart()
    assert pair.ask() == expected


def test_new_stack_serves_a_decode_restarted_often(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_DECODE_RESTARTS_TOLERATED="0")
    expected = pair.ask()
    for number in (signal.SIGTERM, signal.SIGKILL):
        pair.decode.restart(number)
        assert pair.ask() == expected


def test_old_stack_gives_up_at_the_waiting_timeout(stand: Stand) -> None:
    pair = stand.pair(
        STAND_IN_STACK="old",
        STAND_IN_DECODE_RESTARTS_TOLERATED="0",
        SGLANG_DISAGGREGATION_WAITING_TIMEOUT="1",
    )
    pair.ask()
    pair.decode.restart()
    prefill, decode = pair.send()
    assert (prefill.done().status, decode.done().status) == (500, 500)
    assert pair.prefill.value(FAILED) == 1


def vanish(pair: Pair) -> None:
    """Let the decode's host vanish amid a transfer and come back."""
    pair.decode.faults(vanish=True)
    calls = pair.stuck()
    # Silence for longer than the vanish threshold is what a cut looks like;
    # prefill counts no failure while it waits.
    prefill, decode = calls
    prefill.join(0.6)
    assert prefill.is_alive()
    pair.decode.signal(signal.SIGKILL)
    pair.decode.wait()
    pair.decode.faults()
    prefill.leave()
    decode.done()
    pair.decode.start().healthy()


def test_old_stack_is_wedged_by_a_decode_that_vanished(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_STACK="old", STAND_IN_VANISH_SECONDS="0.5")
    expected = pair.ask()
    vanish(pair)
    for _ in range(2):
        pair.leave(pair.stuck())
        assert not pair.prefill.queues()
        assert (pair.prefill.status(), pair.decode.status()) == (200, 200)
        pair.decode.restart()
    pair.prefill.restart()
    pair.decode.restart()
    assert pair.ask() == expected


def test_new_stack_heals_after_a_decode_vanished(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_VANISH_SECONDS="0.5")
    expected = pair.ask()
    vanish(pair)
    assert pair.ask() == expected


def test_killed_decode_that_did_not_vanish_heals_on_the_old_stack(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_STACK="old")
    expected = pair.ask()
    pair.decode.restart(signal.SIGKILL)
    assert pair.ask() == expected


def test_old_decode_keeps_the_dead_rank_of_a_restarted_prefill(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_STACK="old", SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL="60")
    expected = pair.ask()
    pair.prefill.restart()
    calls = pair.send()
    wait_until(lambda: pair.decode.queues().get("decode_prealloc_queue_reqs"), "decode waits")
    wait_until(lambda: pair.prefill.queues().get("prefill_bootstrap_queue_reqs"), "prefill waits")
    pair.leave(calls)
    pair.decode.restart()
    assert pair.ask() == expected


def test_abort_race_pins_requests_in_flight(stand: Stand) -> None:
    pair = stand.pair()
    pair.prefill.faults(stuck_inflight=True, transfer_seconds=60)
    for call in pair.stuck():
        call.leave()
    wait_until(lambda: not pair.decode.queues(), "decode let go")
    pair.prefill.faults()
    assert pair.ask()
    assert pair.prefill.queues() == {"prefill_inflight_queue_reqs": 1}
