# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The founding failure on the real engine: a decode host vanishes in the middle of transfers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from cluster import Cluster, Member, wait_for
from conftest import HANGS_AFTER_SECONDS, PLAYBOOK_LIMIT_SECONDS, STUCK_DRAIN, ask, await_health, counter, queue, status

#: How often the network is cut until a transfer is met; the first time is nearly always enough.
ATTEMPTS = 5
WORDS = "hello world the quick brown fox jumps over the lazy dog".split()
#: An engine on a CPU takes its time, and the context of the tiny model is short.
VERIFICATION = {
    "pd_verify_long_prompt_words": 100,
    "pd_verify_concurrent_requests": 4,
    "pd_verify_sessions": 2,
    "pd_verify_rounds": 2,
    "pd_verify_request_limit_seconds": 120,
}
FAILED_TRANSFERS = "sglang:num_transfer_failed_reqs_total"


def long_prompts(name: str, count: int) -> list[str]:
    """Prompts of some 1,500 tokens that no prefix cache knows, whose transfer takes a while."""
    return [
        f"{name} {number} " + " ".join(WORDS[(number + word * word) % len(WORDS)] for word in range(700))
        for number in range(count)
    ]


@pytest.fixture
def decode_host_vanishes(
    pair: Cluster, hosts_command: Callable[..., object], on: Callable[..., object]
) -> Iterator[Callable[[], None]]:
    """Take the decode's network away while KV is on its way, and kill its engine meanwhile.

    Its host will not tell the prefill afterwards that connections are dead: as where a
    stateful firewall drops what belongs to no connection, or where another host takes the
    old one's place. With a TCP reset, sglang 0.5.23 notices and heals.
    """
    prefill, decode, router = pair.one("prefill"), pair.one("decode"), pair.one("router")
    box = decode.host

    def amid_transfers(attempt: int) -> bool:
        prompts = json.dumps(long_prompts(f"attempt {attempt}", 12))
        router.on.check_output("printf %%s %s > /run/long-prompts.json", prompts)
        router.on.check_output(
            "systemd-run --unit=load --collect --property=StandardInput=file:/run/long-prompts.json "
            f"ask http://127.0.0.1:{router.port} tiny 60 8"
        )
        # On the host itself: a transfer is shorter than it takes to call from outside.
        hosts_command(
            "exec",
            box,
            "timeout",
            "60",
            "bash",
            "-c",
            f"until curl --silent 'http://{decode.address}:{decode.port}/v1/loads?include=disagg' |"
            " grep --quiet '\"decode_transfer_queue_reqs\":[2-9]'; do :; done",
        )
        hosts_command("blackhole", box, "on")
        # Nothing can be delivered any more: what is in flight now stays in flight.
        try:
            wait_for("a transfer hangs", lambda: queue(prefill, "prefill_inflight") > 0, limit_seconds=10)
        except AssertionError:
            hosts_command("blackhole", box, "off")
            router.on.check_output("systemctl stop load")
            return False
        return True

    def vanish() -> None:
        assert any(amid_transfers(attempt) for attempt in range(ATTEMPTS)), "no transfer was met"
        hosts_command("exec", box, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/tcp_orphan_retries")
        hosts_command("exec", box, "systemctl", "kill", "--signal=KILL", decode.unit)
        # The kernel would go on closing the engine's connections. A host that crashed does not.
        hosts_command(
            "exec",
            box,
            "timeout",
            "60",
            "bash",
            "-c",
            f"while systemctl is-active --quiet {decode.unit}"
            " || ss --no-header --tcp --numeric state fin-wait-1 state last-ack state closing | grep --quiet .;"
            " do sleep 0.1; done",
        )
        router.on.check_output("systemctl stop load")
        hosts_command("blackhole", box, "silent")

    yield vanish
    hosts_command("blackhole", box, "off")


def start_by_hand(pair: Cluster, decode: Member, verb: str) -> None:
    """Start or restart a decode as an operator would, and await that all is green."""
    decode.systemctl("reset-failed")
    decode.systemctl(verb)
    await_health(decode)
    router = pair.one("router")
    wait_for("the router is ready", lambda: status(router, "/readiness") == "200", limit_seconds=120)


def assert_all_green_and_every_request_hangs(pair: Cluster) -> None:
    """What the founding incident looked like from outside."""
    prefill, router = pair.one("prefill"), pair.one("router")
    for member in pair.members:
        assert member.is_active and status(member) == "200", member.unit
    assert status(router, "/readiness") == "200"
    failed_before = counter(prefill, FAILED_TRANSFERS)
    answers = ask(router.on, router.port, ["say hi", "hello", "fox"], limit_seconds=HANGS_AFTER_SECONDS)
    assert [answer.has_timed_out for answer in answers] == [True] * len(answers), answers
    for name in ("prefill_bootstrap", "prefill_inflight"):
        wait_for(f"{name} is empty", lambda name=name: queue(prefill, name) == 0)
    wait_for("failed transfers are counted", lambda: counter(prefill, FAILED_TRANSFERS) > failed_before)


def test_R16_decode_host_vanishes_amid_transfers_and_only_the_co_restart_heals(
    pair: Cluster,
    decode_host_vanishes: Callable[[], None],
    run_playbook: Callable[..., object],
    assert_golden: Callable[[Cluster], None],
) -> None:
    assert_golden(pair)
    decode = pair.one("decode")
    decode_host_vanishes()

    start_by_hand(pair, decode, "start")
    assert_all_green_and_every_request_hangs(pair)
    start_by_hand(pair, decode, "restart")
    assert_all_green_and_every_request_hangs(pair)
    said = run_playbook(
        "diagnose", extra_vars={"pd_diagnose_clusters": ["pair"]}, timeout_seconds=PLAYBOOK_LIMIT_SECONDS
    )

    done = run_playbook(
        "co_restart",
        extra_vars={"pd_co_restart_clusters": ["pair"], **STUCK_DRAIN},
        timeout_seconds=PLAYBOOK_LIMIT_SECONDS,
    )
    assert done.rc == 0, done
    assert "8/8 requests answered" in done.stdout, done
    pair.assert_started_in_order()
    assert_golden(pair)

    words = " ".join(said.stdout.split())
    assert "NOT WELL: the KV path is wedged at prefill by a decode that vanished amid transfers" in words, said
    assert "inferops.sglang_pd.co_restart" in words
    verified = run_playbook("verify", extra_vars={"pd_verify_clusters": ["pair"], **VERIFICATION})
    assert verified.rc == 0, verified
    healthy = run_playbook("diagnose", extra_vars={"pd_diagnose_clusters": ["pair"]})
    assert "cluster pair: healthy" in healthy.stdout, healthy
