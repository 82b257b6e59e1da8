# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules on this machine, and tells them which simulated host they are on."""

from __future__ import annotations

import shlex
from typing import Any

from ansible.plugins.connection import local

DOCUMENTATION = """
name: simulated
short_description: run modules for simulated hosts
description: As C(local), with the host's name in the environment.
author: InferOps maintainers (@inferops)
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(local.Connection):
    """A connection to a simulated host."""

    transport = "simulated"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Any:
        """Run a command here."""
        name = shlex.quote(self._play_context.remote_addr)
        return super().exec_command("PD_SIMULATED_HOST={0} {1}".format(name, cmd), in_data, sudoable)
