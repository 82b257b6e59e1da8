# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A decode dies while it streams; what is to be seen of it, and what heals it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest
from cluster import Cluster, Member, wait_for
from conftest import PLAYBOOK_LIMIT_SECONDS, STUCK_DRAIN, ask, await_health, loads, status

STREAMS = 3
#: Several times our interval of 10 s. With the router's own defaults, two good looks 60 s
#: apart, it cannot be less than 60 s.
TAKES_BACK_WITHIN_SECONDS = 55


@pytest.fixture
def streams(pair: Cluster) -> Iterator[Callable[[], list[str]]]:
    """Long streams through the router, started; call it for what each has got at its end."""
    box, port = pair.one("router").on, pair.one("router").port
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello world"}],
        "max_tokens": 1800,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
    }
    box.check_output("printf %%s %s > /run/stream.json", json.dumps(body))
    for number in range(STREAMS):
        box.check_output(
            f"systemd-run --unit=stream-{number} --collect --property=StandardOutput=file:/run/stream-{number} "
            "curl --silent --no-buffer --max-time 120 --header 'Content-Type: application/json' "
            "--data @/run/stream.json --write-out '\\nstatus %{http_code}\\n' "
            f"http://127.0.0.1:{port}/v1/chat/completions"
        )

    def ends() -> list[str]:
        for number in range(STREAMS):
            wait_for(
                f"stream {number} ends",
                lambda number=number: not box.service(f"stream-{number}").is_running,
                limit_seconds=130,
            )
        return [box.file(f"/run/stream-{number}").content_string for number in range(STREAMS)]

    yield ends
    for number in range(STREAMS):
        box.run(f"systemctl stop stream-{number}; rm -f /run/stream-{number}")


def running(member: Member) -> int:
    """Requests that an engine is at work on."""
    return int(loads(member)["num_running_reqs"])


def test_decode_killed_amid_streams_is_seen_and_healed(
    pair: Cluster,
    streams: Callable[[], list[str]],
    run_playbook: Callable[..., object],
    assert_golden: Callable[[Cluster], None],
) -> None:
    decode, router = pair.one("decode"), pair.one("router")
    wait_for("decode streams", lambda: running(decode) == STREAMS, limit_seconds=60)
    decode.systemctl("kill --signal=KILL")
    wait_for("systemd sees it", lambda: decode.shown("ActiveState")["ActiveState"] == "failed")

    for got in streams():
        # Status 200, and smg even puts [DONE] after its error; only the reason to finish is missing.
        assert got.startswith("data: ") and got.rstrip().endswith("status 200"), got[-300:]
        assert '"finish_reason":"' not in got, got[-600:]
        assert '"type":"stream_error"' in got, got[-600:]
    assert not decode.is_active, "no engine restarts by itself"
    due = run_playbook("co_restart", "--check", extra_vars={"pd_co_restart_clusters": ["pair"]})
    assert due.rc == 0, due
    assert re.search(r"decode +(re)?start +sglang-pair-decode.service", due.stdout), due

    # The router finds out by its own looks, three of them 10 s apart, and refuses at once then.
    wait_for("the router gives the decode up", lambda: status(router, "/readiness") == "503", limit_seconds=180)
    (refused,) = ask(router.on, router.port, ["say hi"], limit_seconds=10)
    assert refused.error.startswith("HTTP 503"), refused

    # By hand, and the router is left alone: the trap is that it keeps refusing for minutes.
    decode.systemctl("reset-failed")
    decode.systemctl("start")
    await_health(decode)
    healthy = time.monotonic()
    wait_for("the router takes it back", lambda: status(router, "/readiness") == "200", limit_seconds=240)
    assert time.monotonic() - healthy < TAKES_BACK_WITHIN_SECONDS
    words = router.shown("ExecStart")["ExecStart"]
    assert "--health-check-interval-secs 10 " in words and "--health-success-threshold 1 " in words

    due = run_playbook(
        "co_restart",
        extra_vars={"pd_co_restart_clusters": ["pair"], "pd_co_restart_when": "when_due", **STUCK_DRAIN},
        timeout_seconds=PLAYBOOK_LIMIT_SECONDS,
    )
    assert due.rc == 0, due
    assert "sglang-pair-decode.service on box2 was restarted outside of a co-restart" in due.stdout, due
    assert "8/8 requests answered" in due.stdout, due
    pair.assert_started_in_order()
    assert_golden(pair)
