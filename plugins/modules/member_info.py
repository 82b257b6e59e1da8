#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which members of PD clusters a host holds and what state they are in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: member_info
short_description: Tell which members of PD clusters a host holds and what runs of them
version_added: 0.1.0
description:
  - Reads what the roles deployed on this host, what systemd runs of it, and what the ledgers remember.
  - Changes nothing. Needs root, to see the processes of other users.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Runs the same in check mode, because it only reads.
    support: full
  diff_mode:
    description: Has nothing to show, because it only reads.
    support: none
seealso:
  - module: inferops.sglang_pd.co_restart_plan
"""

EXAMPLES = r"""
- name: See what is deployed and what runs
  inferops.sglang_pd.member_info:
  register: pd_members
"""

RETURN = r"""
members:
  description: The members that are deployed on this host.
  returned: always
  type: list
  elements: dict
  contains:
    member:
      description: What the role deployed, as in C(/etc/sglang-pd/members).
      type: dict
    unit:
      description: State of the systemd unit, with C(invocation_id), C(started_at) (seconds since the epoch) and others.
      type: dict
    ledger:
      description: What the host remembers of the unit's last generation.
      type: dict
    running_configuration:
      description: Configuration hash that the running process was started with, empty where none runs.
      type: str
    listeners:
      description:
        - Who listens on the member's ports, those of its revisions included, with C(port), C(pid), C(command) and
          C(unit).
      type: list
      elements: dict
    deployed_digest:
      description: Hash over content, owner and mode of the unit's files as they are deployed now.
      type: str
    revisions:
      description:
        - What can be put back, newest first, with C(generation), C(generations) (all its names), C(kept_at) (seconds
          since the epoch), C(digest), C(version), C(member) (the description of the member at that time) and
          C(problems) (why it cannot be put back).
      type: list
      elements: dict
locks:
  description: The cluster locks on this host, by cluster.
  returned: always
  type: dict
rolls:
  description: Who rolls the fleet of the clusters whose locks are on this host, by cluster.
  returned: always
  type: dict
now:
  description: The host's clock, seconds since the epoch; ledgers and locks of this host are to be read by it.
  returned: always
  type: float
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _topology
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, processes, revisions
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Systemd


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    systemd = Systemd(module.run_command)
    records = []
    try:
        asked: dict[str, list[str]] = {}
        for member in files.members():
            unit = systemd.unit(member["unit"])
            kept = revisions.listed(member["unit"], module.run_command, asked)
            ports = {
                port
                for one in [member, *(old["member"] for old in kept if not old["problems"])]
                for port in _topology.ports_of(one).values()
            }
            records.append(
                {
                    "member": member,
                    "unit": unit,
                    "ledger": files.ledger(member["unit"]),
                    "running_configuration": files.running_configuration(member["unit"], unit["invocation_id"]),
                    "listeners": processes.listeners(sorted(ports)),
                    "deployed_digest": revisions.deployed_digest(member["unit"]),
                    "revisions": kept,
                }
            )
        rolls = files.locks(files.RESERVATIONS)
        module.exit_json(changed=False, members=records, locks=files.locks(), rolls=rolls, now=time.time())
    except files.FileError as trouble:
        module.fail_json(msg="{0}. Deploy the host again: inferops.sglang_pd.deploy".format(trouble))


if __name__ == "__main__":
    main()
