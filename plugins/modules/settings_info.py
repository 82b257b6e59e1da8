#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether the running processes carry the settings that are deployed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: settings_info
short_description: Tell whether the running processes of a host carry the settings that are deployed
version_added: 0.1.0
description:
  - Compares, for each setting of each member on this host, what is deployed with what its incarnation was started
    with and with what the process shows of itself - its command line, its environment, and C(/server_info).
  - Changes nothing. Needs root, to see the processes of other users.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Runs the same in check mode, because it only reads.
    support: full
  diff_mode:
    description: Has nothing to show, because it only reads.
    support: none
requirements:
  - requests on the host
seealso:
  - module: inferops.sglang_pd.member_info
  - module: inferops.sglang_pd.preflight
"""

EXAMPLES = r"""
- name: See which settings are live
  inferops.sglang_pd.settings_info:
  register: pd_settings

- name: Refuse to go on where someone changed a process behind our back
  ansible.builtin.assert:
    that: states | select('eq', 'drifted') | length == 0
  vars:
    states: "{{ pd_settings.members.values() | map(attribute='settings') | flatten | map(attribute='state') }}"
"""

RETURN = r"""
members:
  description: The members on this host, by unit.
  returned: always
  type: dict
  contains:
    settings:
      description: Each setting that is deployed or running, in the order of the settings.
      type: list
      elements: dict
      contains:
        setting:
          description: Name of the setting, without C(pd_engine_) or C(pd_router_).
          type: str
        carrier:
          description: Flag or environment variable that carries it.
          type: str
        deployed:
          description: Its value in what is deployed, empty for none.
          type: str
        running:
          description: Its value in the running process, empty for none.
          type: str
        state:
          description:
            - V(live), V(pending) (deployed after the process was started, a co-restart is due), V(drifted) (neither
              deployed nor what the incarnation was started with), V(inert) (nothing reads it), V(unknown) (nothing
              runs).
          type: str
        evidence:
          description: Where that is known from.
          type: str
    lines:
      description: The same for people; what is live is only counted.
      type: list
      elements: str
"""

import traceback
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _live, _preflight, _unit
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, installed
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Systemd

MISSING: tuple[str, str] | None = None
try:
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.http import Client
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.machine import Machine
except ImportError as trouble:
    MISSING = (trouble.name or "requests", traceback.format_exc())


def inert(member: dict[str, Any], keep: bool) -> list[str]:
    """Return the environment variables of a member that nothing in its installed environment reads."""
    python, program, _words = _unit.command_of(member)
    try:
        asked = installed.Program(python, program, member["user"], keep)
    except installed.NotInstalledError:
        return []
    return _preflight.inert_of(asked.readers(_preflight.variables_to_look_for(member)))


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    if MISSING:
        module.fail_json(msg=missing_required_lib(MISSING[0]), exception=MISSING[1])
    machine = Machine(module.run_command, Client(), lambda text: ())
    found = {}
    try:
        for member in files.members():
            unit = Systemd(module.run_command).unit(member["unit"])
            configuration = files.running_configuration(member["unit"], unit["invocation_id"])
            record = {
                "member": member,
                "unit": unit,
                "running_configuration": configuration,
                "running": machine.running(member, unit, configuration),
            }
            rows = _live.settings_of(record, inert(member, not module.check_mode))
            found[member["unit"]] = {"settings": rows, "lines": _live.describe(record, rows)}
    except files.FileError as trouble:
        module.fail_json(msg="{0}. Deploy the host again: inferops.sglang_pd.deploy".format(trouble))
    module.exit_json(changed=False, members=found)


if __name__ == "__main__":
    main()
