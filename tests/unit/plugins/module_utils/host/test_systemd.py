# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd is asked, and how its answers are read."""

from __future__ import annotations

import json

from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import PROPERTIES, Systemd

SHOWN = """\
LoadState=loaded
ActiveState=activating
SubState=auto-restart
Result=exit-code
ExecMainStatus=2
MainPID=0
InvocationID=4f1e
NRestarts=3
Restart=on-failure
UnitFileState=enabled
ExecMainStartTimestampMonotonic=0
"""


class Programs:
    """Programs that answer as they are told and remember how they were called."""

    def __init__(self, **answers: tuple[int, str, str]):
        self.answers = answers
        self.calls: list[list[str]] = []

    def __call__(self, command: list[str]) -> tuple[int, str, str]:
        self.calls.append(command)
        return self.answers.get(command[1].replace("-", "_").strip("_"), (0, "", ""))


def test_R9_a_unit_between_two_crashes_is_read() -> None:
    unit = Systemd(Programs(show=(0, SHOWN, ""))).unit("u")
    assert (unit["active_state"], unit["sub_state"], unit["result"]) == ("activating", "auto-restart", "exit-code")
    assert (unit["exit_status"], unit["restarts"], unit["invocation_id"]) == (2, 3, "4f1e")
    assert unit["started_at"] is None


def test_what_systemd_does_not_say_is_empty_or_0() -> None:
    unit = Systemd(Programs(show=(0, "LoadState=not-found\nMainPID=[not set]\n", ""))).unit("u")
    assert unit["load_state"] == "not-found"
    assert unit["main_pid"] == 0
    assert set(PROPERTIES.values()) - {"started_monotonic"} <= set(unit)


def test_R10_the_start_limit_is_cleared_before_a_start_and_a_refusal_is_told() -> None:
    programs = Programs(start=(1, "", "Failed to start u: Unit u not found.\n"))
    assert Systemd(programs).start("u") == "Failed to start u: Unit u not found."
    commands = [call[1] for call in programs.calls]
    assert commands.index("reset-failed") < commands.index("start")
    assert "--no-block" in programs.calls[-1]


def test_stops_and_restarts_are_queued() -> None:
    programs = Programs()
    Systemd(programs).stop("u")
    Systemd(programs).restart("u")
    assert ["systemctl", "stop", "--no-block", "u"] in programs.calls
    assert ["systemctl", "restart", "--no-block", "u"] in programs.calls


def test_R4_the_last_lines_that_say_something_are_evidence() -> None:
    # As journalctl gives them: the newest first. Without --reverse its --lines would be the oldest.
    text = "\x1b[31mOut of memory\x1b[0m\n\n=====\n" + "".join("line {}\n".format(n) for n in "fedcba")
    programs = Programs(no_pager=(0, text, ""))
    assert Systemd(programs).journal("u", 1000.0, 3) == ["line e", "line f", "Out of memory"]
    assert "--reverse" in programs.calls[-1]


def test_R1_starts_and_unplanned_ends_are_read_off_the_journal() -> None:
    def entry(**fields: object) -> str:
        return json.dumps({"__REALTIME_TIMESTAMP": "1796000000500000", **fields})

    # As journalctl gives them: the newest first.
    lines = [
        entry(MESSAGE_ID="39f53479d3a045ac8e11786248231fbf", INVOCATION_ID="i2"),
        "no JSON",
        entry(MESSAGE_ID="98e322203f7a4ed290d09fe03c09fe15", EXIT_CODE="exited", EXIT_STATUS="1"),
        entry(MESSAGE_ID="98e322203f7a4ed290d09fe03c09fe15", EXIT_CODE="killed", EXIT_STATUS="9"),
        entry(MESSAGE_ID="39f53479d3a045ac8e11786248231fbf", INVOCATION_ID="i1"),
    ]
    programs = Programs(no_pager=(0, "\n".join(lines), ""))
    history = Systemd(programs).history("u")
    assert history == {
        "starts": [{"at": 1796000000.5, "invocation_id": "i1"}, {"at": 1796000000.5, "invocation_id": "i2"}],
        "ends": [{"at": 1796000000.5, "how": "signal 9"}, {"at": 1796000000.5, "how": "exit status 1"}],
    }
    assert "--unit=u" in programs.calls[-1]
