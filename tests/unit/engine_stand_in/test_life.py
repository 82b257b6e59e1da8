# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start, stop, drain, crash, faults, several ranks."""

from __future__ import annotations

import os
import signal
import subprocess

import proc
import pytest
from stand_in_processes import Call, Engine, Stand, chat, free_port, wait_until

CHAT = "/v1/chat/completions"


def long_request(engine: Engine, seconds: float) -> Call:
    """Return a request that is being generated for that long."""
    call = Call(engine.url(CHAT), chat(tokens=int(seconds * 100)))
    wait_until(lambda: engine.queues().get("running"), "request running")
    return call


def test_sigterm_drains_what_runs_and_tells_unhealthy(stand: Stand) -> None:
    engine = stand.engine().start(STAND_IN_TOKENS_PER_SECOND="100").healthy()
    call = long_request(engine, 1)
    engine.signal(signal.SIGTERM)
    wait_until(lambda: engine.status() == 503, "health says shutting down")
    assert call.done().status == 200
    assert engine.wait() == 0


def test_killed_scheduler_takes_the_engine_down(stand: Stand) -> None:
    engine = stand.engine().start(STAND_IN_TOKENS_PER_SECOND="100").healthy()
    call = long_request(engine, 60)
    (scheduler,) = proc.children(engine.popen.pid)
    os.kill(scheduler, signal.SIGTERM)
    assert engine.wait() == -signal.SIGKILL
    assert call.done().status == 0


def test_scheduler_does_not_outlive_a_killed_engine(stand: Stand) -> None:
    engine = stand.engine().start().healthy()
    (scheduler,) = proc.children(engine.popen.pid)
    engine.kill()
    wait_until(lambda: not proc.alive(scheduler), "scheduler gone")


def test_stopped_scheduler_fails_health_at_its_timeout(stand: Stand) -> None:
    engine = stand.engine().start(SGLANG_HEALTH_CHECK_TIMEOUT="0.2").healthy()
    (scheduler,) = proc.children(engine.popen.pid)
    os.kill(scheduler, signal.SIGSTOP)
    assert engine.status() == 503
    engine.signal(signal.SIGTERM)
    assert engine.wait() == 0


def test_crash_at_start_for_some_starts_only(stand: Stand) -> None:
    engine = stand.engine()
    engine.faults(crash_at_start={"starts": 2, "exit_code": 3, "message": "no memory"})
    for _ in range(2):
        assert engine.start().wait() == 3
    assert "no memory" in engine.output()
    engine.start().healthy()


def test_crash_after_healthy(stand: Stand) -> None:
    engine = stand.engine().start().healthy()
    engine.faults(crash_after_healthy={"seconds": 0, "exit_code": 4})
    assert engine.wait() == 4


def test_hang_at_start_never_listens_and_stops_on_sigterm(stand: Stand) -> None:
    engine = stand.engine("prefill")
    engine.faults(hang_at_start=True)
    engine.start()
    wait_until(lambda: "bootstrap server started" in engine.output(), "bootstrap listens")
    assert engine.status() is None
    engine.signal(signal.SIGTERM)
    assert engine.wait() == 0


def test_faults_of_answers_come_and_go_at_run_time(stand: Stand) -> None:
    engine = stand.engine().start().healthy()

    def finish() -> tuple[str, str]:
        answer = Call(engine.url(CHAT), chat()).done().response
        assert answer is not None
        choice = answer["choices"][0]
        return choice["finish_reason"], choice["message"]["content"]

    engine.faults(answer_empty=True)
    assert finish() == ("stop", "")
    engine.faults(answer_abort="error")
    assert finish() == ("error", "")
    engine.faults(scheduler_wedged=True)
    call = Call(engine.url(CHAT), chat())
    assert engine.status() == 200
    assert call.is_alive()
    engine.faults(health_flap=[200, 503])
    assert [engine.status() for _ in range(4)] == [200, 503, 200, 503]
    engine.faults(metrics={"sglang:token_usage": "NaN"})
    assert "sglang:token_usage{" in engine.get("/metrics").text
    assert str(engine.value("sglang:token_usage")) == "nan"
    engine.faults()
    assert finish()[0] == "length"


def test_ignored_sigterm(stand: Stand) -> None:
    engine = stand.engine().start().healthy()
    engine.faults(ignore_sigterm=True)
    engine.signal(signal.SIGTERM)
    wait_until(lambda: "ignored" in engine.output(), "signal seen")
    assert engine.status() == 200


def test_old_process_answers_after_sigterm(stand: Stand) -> None:
    engine = stand.engine().start().healthy()
    engine.faults(old_process_answers=60)
    engine.signal(signal.SIGTERM)
    wait_until(lambda: "SIGTERM received" in engine.output(), "signal seen")
    assert engine.status() == 200


def test_orphan_keeps_the_port(stand: Stand) -> None:
    engine = stand.engine().start().healthy()
    engine.faults(leave_orphan=True)
    engine.signal(signal.SIGTERM)
    assert engine.wait() == 0
    orphans = proc.with_argument("sglang.stand_in.orphan", engine.env_marker())
    try:
        assert len(orphans) == 1
        assert engine.start().wait() == 1
        assert "address already in use" in engine.output()
    finally:
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def ranks(stand: Stand) -> tuple[Engine, Engine]:
    """Return two ranks of one engine, not started."""
    address = f"127.0.0.1:{free_port()}"
    flags = ("--nnodes", "2", "--tp-size", "2", "--dist-init-addr", address, "--node-rank")
    return stand.engine("null", *flags, "0"), stand.engine("null", *flags, "1")


def test_ranks_start_together_and_rank_0_stops_the_other(ranks: tuple[Engine, Engine]) -> None:
    first, second = ranks
    second.start().healthy()
    assert second.status("/server_info") == 404
    first.start().healthy()
    second.signal(signal.SIGTERM)
    wait_until(lambda: "waiting for rank 0" in second.output(), "rank 1 ignores SIGTERM")
    assert second.status() == 200
    assert first.status() == 200
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    assert second.wait() == 0


def test_rank_0_waits_for_the_others(ranks: tuple[Engine, Engine]) -> None:
    first, second = ranks
    first.start()
    wait_until(lambda: proc.children(first.popen.pid), "scheduler started")
    assert first.status() is None
    second.start()
    first.healthy()


def test_rank_ends_when_rank_0_dies(ranks: tuple[Engine, Engine]) -> None:
    first, second = ranks
    second.start()
    first.start().healthy()
    first.kill()
    assert second.wait() == 1


def test_wheels_install_with_pip(stand: Stand, wheels: dict[str, object]) -> None:
    for release, wheel in wheels.items():
        target = stand.folder / release
        command = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
        subprocess.run([proc.PYTHON, "-m", *command, str(target), str(wheel)], check=True)
        stand.installed = {**stand.installed, release: target}
        stand.engine(release=release).start().healthy()
