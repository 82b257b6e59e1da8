# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""R13: a long generation runs when the co-restart begins."""

from __future__ import annotations

import json

import pytest
from conftest import wait_for

STREAM = "/tmp/stream.txt"


@pytest.fixture
def stream(main):
    """Start a streamed generation through the router; its output is in a file on the router's host."""
    router, decode = main.one("router"), main.one("decode")

    def start(tokens: int, tokens_per_second: int) -> None:
        decode.faults(tokens_per_second=tokens_per_second)
        body = json.dumps(
            {
                "model": "tiny",
                "messages": [{"role": "user", "content": "tell me a long story"}],
                "max_tokens": tokens,
                "stream": True,
            }
        )
        router.on.check_output(
            f"rm -f {STREAM}; printf %%s %s >/tmp/stream.json; systemd-run --quiet --unit stream --collect "
            f"--property StandardOutput=file:{STREAM} curl --silent --no-buffer --max-time 120 "
            f"-H 'Content-Type: application/json' --data @/tmp/stream.json "
            f"http://127.0.0.1:{router.port}/v1/chat/completions",
            body,
        )
        wait_for("tokens flow", lambda: "content" in router.on.run(f"cat {STREAM}").stdout)

    yield start
    router.on.run("systemctl stop stream")


def test_R13_running_work_is_awaited_and_new_work_is_not_taken(main, stream, start_co_restart):
    # It would go on for longer than the test waits, until the router is seen to take nothing more.
    stream(tokens=1200, tokens_per_second=12)
    router = main.one("router")
    generation = router.ledger["generation"] + 1
    controller = start_co_restart(drain_limit_seconds=60)
    wait_for(
        "the router takes no new work",
        lambda: not main.ask(limit_seconds=3) and router.on.run(f"grep -c DONE {STREAM}").stdout.strip() == "0",
    )
    main.one("decode").faults(tokens_per_second=1000)
    assert controller.end() == 0, controller.output
    content = router.on.file(STREAM).content_string
    assert "[DONE]" in content and '"length"' in content.replace(" ", ""), content[-500:]
    assert "will be cut" not in controller.output
    assert {member.ledger["generation"] for member in main.members} == {generation}


def test_R13_what_is_longer_than_the_limit_is_cut_and_reported(main, stream, co_restart):
    stream(tokens=2000, tokens_per_second=12)
    done = co_restart(drain_limit_seconds=4)
    assert done.rc == 0, done
    assert "sglang-main-decode.service: flowing after" in done.stdout, done
    assert "running 1), will be cut" in done.stdout, done
    content = main.one("router").on.file(STREAM).content_string.replace(" ", "")
    assert '"finish_reason":"length"' not in content, "it was cut"
    main.clear_faults()
    main.assert_serves(requests=2)
