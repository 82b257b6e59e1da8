# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a port, on the host that runs the tests."""

from __future__ import annotations

import os
import socket

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import processes


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_R11_the_holder_of_a_port_is_found_with_pid_and_command(family: socket.AddressFamily) -> None:
    try:
        holder = socket.socket(family)
        holder.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
    except OSError:
        pytest.skip("this host has no such addresses")
    with holder:
        port = holder.getsockname()[1]
        assert processes.listeners([port]) == []
        holder.listen()
        (found,) = processes.listeners([port])
    assert (found["port"], found["pid"]) == (port, os.getpid())
    assert found["command"] != "unknown"
    assert processes.listeners([port]) == []
