# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verifications of stand-in engines behind a real router, without hosts or Ansible."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _profiles, _verify
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.streams import Streams
from prometheus_client.parser import text_string_to_metric_families
from stand_in_processes import MODEL, Pair, Stand, wait_until

OPTIONS: dict[str, Any] = {
    "profile": "smoke",
    "parts": [],
    "golden": [],
    "prompt": "say hi briefly",
    "max_tokens": 24,
    "temperature": 0.6,
    "any_text": False,
    "long_prompt_words": 300,
    "model": MODEL,
    "request_limit_seconds": 20,
    "sample_seconds": 0.1,
    "stall_seconds": 2,
    "settle_limit_seconds": 30,
    "abort_limit_seconds": 20,
    "recovery_limit_seconds": 20,
    "regression_factor": 1.5,
    "regression_slack_seconds": 0.25,
}


def members_of(pairs: list[Pair], router_url: str) -> list[dict[str, Any]]:
    """Return the members as the roles deploy them."""
    base: dict[str, Any] = {"cluster": "c", "host": "box", "nnodes": 1, "node_rank": 0, "configuration": "x"}
    engines = {id(engine): engine for pair in pairs for engine in (pair.prefill, pair.decode)}
    found = [
        dict(
            base,
            role=engine.role,
            unit="sglang-c-{}-{}.service".format(engine.role, number),
            engine="{} {}".format(engine.role, number),
            port=engine.port,
            bootstrap_port=engine.bootstrap_port if engine.role == "prefill" else None,
            url=engine.url(""),
        )
        for number, engine in enumerate(engines.values())
    ]
    found.append(
        dict(base, role="router", unit="sglang-c-router.service", engine="r", bootstrap_port=None, url=router_url)
    )
    return found


def verify(members: list[dict[str, Any]], slice_seconds: float = 60, **options: Any) -> dict[str, Any]:
    """Run a verification to its end, each slice in a loop of its own, its state through JSON."""
    given = dict(OPTIONS, **options)
    state: dict[str, Any] = {}

    async def one() -> Any:
        async with Streams(members, lambda m: str(m["url"]), "", text_string_to_metric_families) as streams:
            return await _verify.run_slice(members, given, state, streams, slice_seconds)

    for _ in range(500):
        outcome, _words, state = asyncio.run(one())
        state = json.loads(json.dumps(state))
        if outcome == _verify.DONE:
            result = _verify.report(members, given, state, {}, "rev")
            print("\n".join(_verify.lines_of("c", result)))
            return result
    raise AssertionError(f"no end: {state['phase']}")


def part(result: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the result of one part."""
    return next(dict(one) for one in result["parts"] if one["part"] == name)


@pytest.fixture(scope="module")
def healthy(shared: Stand, pair: Pair) -> list[dict[str, Any]]:
    """Return the members of a healthy cluster behind sglang-router."""
    return members_of([pair], shared.router("sglang_router", pair))


def test_smoke_is_the_founding_check(healthy: list[dict[str, Any]]) -> None:
    result = verify(healthy)
    assert result["outcome"] == "ok", result["failures"]
    one = part(result, "sequential")
    assert (one["good"], one["wanted"], one["tokens"]) == (8, 8, 8 * 24)
    assert len(one["cold_seconds"]) == 1 and one["latency"]["count"] == 7
    assert {engine["verdict"] for engine in result["series"].values()} <= {"drained", "idle", "stale gauge"}


def test_every_part_in_slices_of_a_second(healthy: list[dict[str, Any]]) -> None:
    sizes = {"pair_transfers": 2, "concurrent_requests": 40, "sessions": 30, "rounds": 3, "abort_streams": 60}
    result = verify(healthy, slice_seconds=1, profile="stress", **sizes)
    assert result["outcome"] == "ok", result["failures"]
    good = {one["part"]: (one["good"], one["wanted"]) for one in result["parts"]}
    assert good == {
        "sequential": (8, 8),
        "pairs": (4, 4),
        "concurrent": (40, 40),
        "agentic": (90, 90),
        "aborts": (60, 60),
        "after_aborts": (3, 3),
    }
    assert part(result, "aborts")["dropped"] > 0
    assert result["recovery"]["recovered"]


def test_H11_every_pair_is_asked_short_and_long_and_a_broken_one_is_named(stand: Stand) -> None:
    pairs = [stand.pair(), stand.pair()]
    # 2 x 2: each prefill with each decode.
    router = stand.router("sglang_router", pairs[0])
    members = members_of(pairs, router)
    pairs[1].decode.faults(answer_abort="abort")
    result = verify(members, parts=["pairs"], request_limit_seconds=4)
    one = part(result, "pairs")
    # A pair ends with its first failure; the two with the good decode are asked 2 short and 2 long.
    assert (one["wanted"], one["sent"], one["good"]) == (16, 10, 8)
    assert result["outcome"] == "failed"
    bad = members[3]["unit"]
    assert {item["request"].split(" -> ")[1].split("@")[0] for item in one["failed"]} == {bad}
    assert all("finish_reason 'abort'" in item["why"] for item in one["failed"])


def test_H10_an_empty_answer_fails_and_nothing_more_is_sent(stand: Stand) -> None:
    pair = stand.pair()
    members = members_of([pair], stand.router("sglang_router", pair))
    pair.prefill.faults(answer_empty=True)
    pair.decode.faults(answer_empty=True)
    result = verify(members, profile="stress")
    assert result["outcome"] == "failed"
    assert part(result, "sequential")["sent"] == 2
    assert "empty text" in part(result, "sequential")["why"]
    assert {one["outcome"] for one in result["parts"][1:]} == {"skipped"}
    assert all(one["sent"] == 0 for one in result["parts"][1:])


def test_R1_restarted_decode_fails_and_the_healed_one_passes(stand: Stand) -> None:
    pair = stand.pair(STAND_IN_STACK="old", STAND_IN_DECODE_RESTARTS_TOLERATED="0")
    members = members_of([pair], stand.router("sglang_router", pair))
    assert verify(members, request_limit_seconds=5)["outcome"] == "ok"
    pair.decode.restart()
    result = verify(members, request_limit_seconds=1)
    assert result["outcome"] == "failed"
    assert "nothing within 1 s" in part(result, "sequential")["why"]
    prefill = next(one for one in result["series"].values() if one["role"] == "prefill")
    assert prefill["transfers_failed"] > 0
    pair.prefill.restart()
    pair.decode.restart()
    router = stand.router("sglang_router", pair)
    assert verify(members_of([pair], router))["outcome"] == "ok"


def test_H3_a_request_pinned_in_flight_is_stuck_though_others_are_served(stand: Stand) -> None:
    pair = stand.pair()
    members = members_of([pair], stand.router("sglang_router", pair))
    pair.prefill.faults(stuck_inflight=True, transfer_seconds=60)
    for call in pair.stuck():
        call.leave()
    wait_until(lambda: not pair.decode.queues(), "decode let go")
    pair.prefill.faults()
    result = verify(members)
    assert part(result, "sequential")["good"] == 8
    verdict = result["series"]["{}@box".format(members[0]["unit"])]
    assert verdict["verdict"] == "stuck", verdict
    assert "prefill inflight 1" in verdict["why"]
    assert result["outcome"] == "failed"


def test_abort_storm_that_pins_requests_fails_by_the_recovery(stand: Stand) -> None:
    pair = stand.pair()
    members = members_of([pair], stand.router("sglang_router", pair))
    pair.prefill.faults(stuck_inflight=True, transfer_seconds=0.2)
    result = verify(members, parts=["aborts"], abort_streams=20, recovery_limit_seconds=10)
    assert not result["recovery"]["recovered"]
    assert any("did not come back after the abort storm" in failure for failure in result["failures"])


def test_H8_a_hung_scheduler_behind_a_good_health_answer_fails(stand: Stand) -> None:
    pair = stand.pair()
    members = members_of([pair], stand.router("sglang_router", pair))
    pair.decode.faults(scheduler_wedged=True)
    assert pair.decode.status() == 200
    result = verify(members, request_limit_seconds=2, settle_limit_seconds=5)
    assert result["outcome"] == "failed"
    assert part(result, "sequential")["good"] == 0


def test_golden_answers_are_compared(healthy: list[dict[str, Any]]) -> None:
    ask = {"prompt": "tell me of the KV path", "max_tokens": 8}
    result = verify(healthy, parts=["golden"], golden=[dict(ask, text="another text")])
    why = part(result, "golden")["why"]
    assert "another answer than the golden one" in why
    text = why.rsplit(": ", 1)[1].strip("'")
    result = verify(healthy, parts=["golden"], golden=[dict(ask, text=text)])
    assert result["outcome"] == "ok", result["failures"]


def test_an_engine_without_an_answer_is_unknown_not_idle(stand: Stand) -> None:
    pair = stand.pair()
    members = members_of([pair], stand.router("sglang_router", pair))
    members[1]["url"] = "http://127.0.0.1:9"
    result = verify(members, settle_limit_seconds=1)
    verdict = result["series"]["{}@box".format(members[1]["unit"])]
    assert verdict["verdict"] == "unknown"
    assert "/v1/loads" in verdict["why"] and verdict["transfers_failed"] is None
    assert result["outcome"] == "failed"


def labelled(incarnation: str) -> tuple[str, ...]:
    """What a unit gives its engine, so that counters of two incarnations are told apart."""
    return ("--extra-metric-labels", json.dumps({"invocation": incarnation}))


def test_an_engine_started_anew_meanwhile_fails_the_verification(stand: Stand) -> None:
    pair = stand.pair()
    pair.decode.flags = labelled("first")
    pair.decode.restart()
    members = members_of([pair], stand.router("sglang_router", pair))
    pair.decode.faults(tokens_per_second=40)
    result: dict[str, Any] = {}
    options = {"requests": 10, "stall_seconds": 10, "request_limit_seconds": 8}
    before = pair.decode.value("sglang:num_requests_total") or 0
    run = threading.Thread(target=lambda: result.update(verify(members, **options)))
    run.start()
    wait_until(lambda: (pair.decode.value("sglang:num_requests_total") or 0) >= before + 3, "requests were served")
    # The router repeats what meets the gap, and the new counters may pass the old ones between
    # two samples: only the label tells.
    pair.decode.flags = labelled("second")
    pair.decode.restart()
    run.join()
    assert result["outcome"] == "failed"
    assert any("started anew" in failure for failure in result["failures"]), result["failures"]


def test_a_thousand_streams_at_a_time_without_a_failure_of_the_client(healthy: list[dict[str, Any]]) -> None:
    result = verify(healthy, parts=["concurrent"], concurrent_requests=1000, request_limit_seconds=120)
    one = part(result, "concurrent")
    assert (one["good"], one["failed"]) == (1000, [])
    assert result["outcome"] == "ok", result["failures"]


def test_an_abort_storm_stays_within_its_number_and_time(healthy: list[dict[str, Any]], pair: Pair) -> None:
    pair.decode.faults(tokens_per_second=1)
    try:
        began = time.monotonic()
        result = verify(healthy, parts=["aborts"], abort_streams=100, settle_limit_seconds=1)
        seconds = time.monotonic() - began
    finally:
        pair.decode.faults()
    one = part(result, "aborts")
    assert (one["sent"], one["dropped"]) == (100, 100)
    # Each answer alone would take 512 s.
    longest = max(seconds for _events, seconds in _profiles.DROPS)
    assert seconds < longest + OPTIONS["recovery_limit_seconds"] + 10
    assert result["recovery"]["recovered"]
