#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether members can run on this host, before anything is stopped."""

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Tell whether members of PD clusters can run on this host, before anything is stopped
version_added: 0.1.0
description:
  - Asks the installed engine or router itself which options it takes, and judges the member's arguments by that.
    Unknown, ambiguous, abbreviated and repeated options, wrong choices and types are problems. The answer is kept in
    C(/var/cache/sglang-pd) until a file of the package changes, because sglang imports PyTorch before it tells.
  - Looks for environment variables that nothing in the installed environment reads.
  - Looks at ports, GPUs, room, the model's files, and how much memory the unit may lock.
  - Changes nothing but that cache. Values that only the engine's later checks refuse are not found.
  - Needs root, to ask as the service's user and to see the processes of other users.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Runs the same in check mode, but keeps no answers.
    support: full
  diff_mode:
    description: Has nothing to show, because it only reads.
    support: none
options:
  member:
    description:
      - A member as it shall be deployed, the content of its file in C(/etc/sglang-pd/members).
      - Without it, all members that are deployed on this host are looked at.
    type: dict
  patches:
    description:
      - The hot patches that the engine of O(member) is about to get, as for M(inferops.sglang_pd.engine_patch).
      - The engine is asked as it will be with exactly these, so an option that a patch adds is known before the
        patch is applied, and one that goes with an undone patch is not.
      - Without it, the engine is asked as it is.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the patch.
        type: str
        required: true
      diff:
        description: Text of the unified diff.
        type: str
      sha256:
        description: Hash of the diff.
        type: str
seealso:
  - module: inferops.sglang_pd.co_restart_plan
  - module: inferops.sglang_pd.engine_patch
"""

EXAMPLES = r"""
- name: See whether what is deployed here can run
  inferops.sglang_pd.preflight:
  register: pd_preflight
"""

RETURN = r"""
members:
  description: What was found, by unit.
  returned: always
  type: dict
  contains:
    problems:
      description: What is wrong; each with C(rule), C(message), C(host) and C(variable).
      type: list
      elements: dict
    warnings:
      description: What is odd, but does not keep the member from running.
      type: list
      elements: str
    inert:
      description: Environment variables that are set and that nothing reads.
      type: list
      elements: str
    asked:
      description: Whether the installed program could be asked. In check mode it may not be installed yet.
      type: bool
"""

import functools
import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _patches, _preflight, _topology, _unit
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, installed, processes, resources
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.patches import (
    PATCH_ARGUMENTS,
    Patches,
    PatchingError,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Systemd


def about_to_change(module: AnsibleModule, python: str) -> dict[str, bytes | None]:
    """Return the files of the engine that the wanted patches change, see :class:`installed.Program`."""
    wanted = module.params["patches"]
    if wanted is None:
        return {}
    try:
        patches = Patches(module.run_command, python, "sglang")
        work = patches.work_out(wanted)
    except PatchingError as trouble:
        raise RuntimeError(str(trouble)) from trouble
    if work["problems"]:
        module.fail_json(msg=_patches.refusal(work["problems"], ""))
    return {path: change["next"] for path, change in work["files"].items()}


def look_at(module: AnsibleModule, member: dict[str, Any]) -> dict[str, Any]:
    """Return what :func:`_preflight.inspect` says of a member on this host, and ``asked``."""
    python, program, _words = _unit.command_of(member)
    found: dict[str, Any] = {
        "options": None,
        "told": "",
        "readers": {},
        "searched": "",
        "listeners": processes.listeners(list(_topology.ports_of(member).values())),
        "gpus": resources.gpus(functools.partial(module.run_command, handle_exceptions=False))
        if member["gpus"]
        else None,
        "free_bytes": resources.free_bytes(member["least_free_bytes"]),
        "model_error": "",
        "locked_memory": "",
    }
    if member["role"] != _topology.ROUTER:
        found["locked_memory"] = Systemd(module.run_command).locked_memory(member["unit"])
        found["model_error"] = resources.model_error(member["settings"]["model_path"], member["user"])
    try:
        asked = installed.Program(
            python, program, member["user"], keep=not module.check_mode, changed=about_to_change(module, python)
        )
        found["readers"] = asked.readers(_preflight.variables_to_look_for(member))
        found["searched"] = asked.searched
        found["options"] = asked.options(member["environment"], files.private_environment(member["unit"]))
    except installed.NotInstalledError as trouble:
        # A first deployment in check mode installs nothing.
        found["told"] = "" if module.check_mode else str(trouble)
    except RuntimeError as trouble:
        found["told"] = str(trouble)
    judged = _preflight.inspect(member, found, member["least_free_bytes"])
    return dict(judged, asked=found["options"] is not None)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "member": {"type": "dict"},
            "patches": {"type": "list", "elements": "dict", "options": PATCH_ARGUMENTS},
        },
        required_by={"patches": ["member"]},
        supports_check_mode=True,
    )
    try:
        members = [module.params["member"]] if module.params["member"] else files.members()
        found = {member["unit"]: look_at(module, member) for member in members}
    except KeyError as missing:
        module.fail_json(
            msg="a member is described without {0}. Deploy the host again: inferops.sglang_pd.deploy".format(missing)
        )
    except files.FileError as trouble:
        module.fail_json(msg="{0}. Deploy the host again: inferops.sglang_pd.deploy".format(trouble))
    for one in found.values():
        for warning in one["warnings"]:
            module.warn(warning)
    module.exit_json(changed=False, members=json.loads(json.dumps(found)))


if __name__ == "__main__":
    main()
