# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tells this controller, its processes and its runs from others."""

from __future__ import annotations

import os
import re
import subprocess

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller


def test_a_process_that_ended_has_no_start_also_before_anybody_asked_for_it() -> None:
    with subprocess.Popen(["sleep", "20"]) as process:
        assert controller.process_start(process.pid).isdigit()
        process.kill()
        # Waits, and leaves it to be asked for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert controller.process_start(process.pid) == ""
    assert controller.process_start(process.pid) == ""


def test_this_process_has_the_same_start_each_time() -> None:
    assert controller.process_start(os.getpid()) == controller.process_start(os.getpid()) != ""


def test_ids_differ_and_begin_with_the_time() -> None:
    first, second = controller.new_id(), controller.new_id()
    assert first != second
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", first)
