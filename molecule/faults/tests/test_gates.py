# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a gate takes for healthy, and what it does not."""

from __future__ import annotations

from conftest import wait_for


def test_R8_answers_of_the_old_process_do_not_count(main, co_restart):
    """The old process answers 200 for a while after it was told to end; only the new incarnation opens the gate."""
    prefill = main.one("prefill")
    old = prefill.incarnation
    prefill.faults(old_process_answers=4)
    done = co_restart()
    assert done.rc == 0, done
    ledger = prefill.ledger
    assert ledger["before"] == old
    assert ledger["incarnation"] == prefill.incarnation != old
    assert ledger["healthy_at"] - ledger["began_at"] >= 4, "not before the old process was gone"
    main.assert_started_in_order()


def test_R9_good_answers_between_bad_ones_do_not_open_the_gate(main, co_restart, healthy_limit):
    prefill = main.one("prefill")
    healthy_limit(prefill, 8)
    prefill.faults(health_flap=[200, 200, 503])
    before = main.incarnations("decode", "router")
    done = co_restart()
    assert done.rc != 0
    assert "sglang-main-prefill.service on box1: not healthy after 8 s" in done.stdout, done
    assert main.incarnations("decode", "router") == before


def test_R9_only_one_and_the_same_incarnation_opens_the_gate(main, co_restart, drop_in):
    """The unit crashes twice and restarts itself; the third incarnation is the one that is gated."""
    prefill = main.one("prefill")
    drop_in(prefill, "Restart=always\nRestartSec=200ms")
    prefill.faults(crash_at_start={"exit_code": 1, "starts": 2})
    done = co_restart()
    assert done.rc == 0, done
    assert prefill.shown("NRestarts")["NRestarts"] == "2"
    assert prefill.ledger["incarnation"] == prefill.incarnation


def test_R10_a_start_limit_hit_by_hand_is_cleared(main, co_restart):
    decode = main.one("decode")
    for _ in range(7):
        decode.on.run(f"systemctl restart {decode.unit}")
    wait_for("the start limit", lambda: decode.shown("Result")["Result"] == "start-limit-hit")
    assert not decode.is_active
    done = co_restart()
    assert done.rc == 0, done
    main.assert_started_in_order()
    main.assert_serves(requests=2)


def test_R10_what_systemd_refuses_all_the_same_is_said(main, co_restart):
    """A masked unit cannot be started, whatever is cleared."""
    decode = main.one("decode")
    file = f"/etc/systemd/system/{decode.unit}"
    decode.on.check_output(f"mv {file} {file}.away && ln -s /dev/null {file} && systemctl daemon-reload")
    try:
        before = main.incarnations()
        done = co_restart()
        assert done.rc != 0
        assert f"systemd says {decode.unit} is masked" in done.stdout, done
        assert main.incarnations("prefill", "router") == {k: v for k, v in before.items() if "decode" not in k}
    finally:
        decode.on.check_output(f"mv {file}.away {file} && systemctl daemon-reload")


def test_R10_a_start_that_systemd_refuses_at_once(main, co_restart, drop_in):
    prefill = main.one("prefill")
    before = main.incarnations("decode", "router")
    drop_in(prefill, "RefuseManualStart=yes", section="Unit")
    done = co_restart()
    assert done.rc != 0
    assert f"{prefill.unit} on box1: systemd refuses to start it" in done.stdout, done
    assert "may be requested by dependency only" in done.stdout, "systemd's own words"
    assert main.incarnations("decode", "router") == before


def test_R10_a_start_that_systemd_takes_and_skips(main, co_restart, drop_in):
    """An unmet condition is no error to systemctl; it is found without awaiting the limit."""
    prefill = main.one("prefill")
    before = main.incarnations("decode", "router")
    drop_in(prefill, "ConditionPathExists=/models/missing", section="Unit")
    done = co_restart()
    assert done.rc != 0
    assert f"{prefill.unit} on box1: systemd did not start it" in done.stdout, done
    assert "ConditionPathExists=/models/missing" in done.stdout, "systemd's own words"
    ledger = prefill.ledger
    assert ledger["ended_at"] - ledger["began_at"] < prefill.description["healthy_limit_seconds"] / 2
    assert main.incarnations("decode", "router") == before


def test_R12_a_bootstrap_port_that_somebody_took_meanwhile_does_not_pass(main, start_co_restart):
    """The prefill's health is 200 without its bootstrap server; nobody could transfer from it."""
    prefill = main.one("prefill")
    before = main.incarnations("decode", "router")
    # Waits for the port and takes it as soon as the old prefill lets it go.
    taker = (
        "import socket, time\n"
        "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "while True:\n"
        "    try: s.bind(('0.0.0.0', 8998)); break\n"
        "    except OSError: time.sleep(0.001)\n"
        "s.listen(); time.sleep(600)\n"
    )
    prefill.on.check_output("systemd-run --quiet --unit port-taker python3 -c %s", taker)
    try:
        controller = start_co_restart()
        assert controller.end() != 0
        output = controller.output
        assert "port 8998" in output and "is held by pid" in output, output
        assert "port-taker" in output or "python3 -c" in output, output
        assert main.incarnations("decode", "router") == before
    finally:
        prefill.on.run("systemctl stop port-taker")


def test_R12_a_bootstrap_server_of_somebody_else_does_not_open_the_gate(main, co_restart, healthy_limit):
    """It is there before the new process binds, and answers 200: only its owner gives it away."""
    prefill = main.one("prefill")
    before = main.incarnations("decode", "router")
    healthy_limit(prefill, 8)
    # The unit notes its configuration just before its process starts: then the port is taken.
    taker = (
        "import http.server, time\n"
        f"noted = '/run/{prefill.unit}/configuration'\n"
        "def content():\n"
        "    try: return open(noted).read()\n"
        "    except OSError: return ''\n"
        "class Good(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers()\n"
        "old = content()\n"
        "while content() in ('', old): time.sleep(0.001)\n"
        "http.server.ThreadingHTTPServer(('0.0.0.0', 8998), Good).serve_forever()\n"
    )
    prefill.on.check_output("systemd-run --quiet --collect --unit port-taker python3 -c %s", taker)
    try:
        done = co_restart()
        assert done.rc != 0
        assert prefill.is_active, "the engine runs without its bootstrap server"
        assert prefill.get("/health", "--output /dev/null --write-out '%{http_code}'") == "200"
        assert "not healthy after 8 s" in done.stdout and "port 8998: held by pid" in done.stdout, done
        assert "python3 -c" in done.stdout and "not by this unit" in done.stdout, done
        assert main.incarnations("decode", "router") == before
    finally:
        prefill.on.run("systemctl stop port-taker")


def test_H7_a_slow_health_answer_is_not_taken_for_a_dead_engine(main, co_restart):
    decode = main.one("decode")
    decode.faults(health_delay_seconds=6)
    done = co_restart(consecutive=2)
    assert done.rc == 0, done
    assert decode.ledger["outcome"] == "ok"


def test_a_unit_that_ignores_sigterm_is_killed_at_its_limit(main, co_restart):
    prefill = main.one("prefill")
    prefill.faults(ignore_sigterm=True)
    done = co_restart()
    assert done.rc == 0, done
    assert "stopping: sglang-main-prefill.service is deactivating" in done.stdout, "progress is shown"
    main.assert_started_in_order()


def test_two_clusters_in_one_run_and_one_of_them_fails(cluster, heal, co_restart):
    main, other = cluster("main"), cluster("other")
    heal(main)
    before = other.incarnations()
    routers = main.incarnations("decode", "router")
    main.one("prefill").faults(crash_at_start=True)
    done = co_restart(clusters=["main", "other"])
    assert done.rc != 0
    assert "cluster main: FAILED" in done.stdout and "cluster other: OK" in done.stdout, done
    assert main.incarnations("decode", "router") == routers
    after = other.incarnations()
    assert all(after[name] != before[name] for name in after)
    other.assert_started_in_order()
    assert {member.ledger["outcome"] for member in other.members} == {"ok"}
