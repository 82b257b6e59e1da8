#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One slice of one step of a co-restart, on the host that it concerns."""

from __future__ import annotations

DOCUMENTATION = r"""
module: co_restart_step
short_description: Run one slice of one step of a co-restart on this host
version_added: 0.1.0
description:
  - The half of M(inferops.sglang_pd.co_restart) that runs on the member hosts. Use that one;
    this one is not meant to be called from playbooks.
  - It checks the order by itself and refuses a stage for which the evidence of the stages before is missing.
  - It waits for at most O(slice_seconds) and is called again with the state that it returned, so that nothing
    keeps running on a host for long when the controller is gone.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Tells which files O(step=restore) would change; does nothing for other steps.
    support: partial
  diff_mode:
    description: Only O(step=restore) changes files; what may hold secrets is not shown.
    support: partial
requirements:
  - requests, prometheus_client and, for the step verify, aiohttp for the host's Python (python3-requests,
    python3-prometheus-client, python3-aiohttp)
options:
  step:
    description: Which step.
    type: str
    required: true
    choices: [lock, restore, close, drain, stop_prefill, stop_prefill_ranks, start_prefill, stop_decode,
      stop_decode_ranks, start_decode, restart_router, requests, verify, settle, record, unlock]
  plan:
    description: The plan of one cluster, from M(inferops.sglang_pd.co_restart_plan).
    type: dict
    required: true
  host:
    description: The inventory name of this host.
    type: str
    required: true
  evidence:
    description: What the steps before gave, by step and host.
    type: dict
    default: {}
  state:
    description: What the slice before returned as RV(state).
    type: dict
    default: {}
  slice_seconds:
    description: How long this call may wait, in seconds.
    type: float
    default: 5
"""

EXAMPLES = r"""
# See inferops.sglang_pd.co_restart, which calls this module.
"""

RETURN = r"""
outcome:
  description: What became of the step. With V(waiting) it is to be called again with RV(state).
  returned: always
  type: str
  sample: ok
message:
  description: What happened, what is awaited, or the failure with its evidence.
  returned: always
  type: str
members:
  description: Evidence by unit, for the steps that gate members.
  returned: always
  type: dict
state:
  description: What the next slice of the same step needs.
  returned: always
  type: dict
generation:
  description: Generation of the plan.
  returned: always
  type: int
run:
  description: Id of the run.
  returned: always
  type: str
files:
  description: Files that O(step=restore) changed, with C(path), C(before) and C(after); secrets are not shown.
  returned: for that step
  type: list
  elements: dict
lost:
  description: Whether another run took the cluster over.
  returned: when it did
  type: bool
"""

import importlib.util
import traceback
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _steps, _walk
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, revisions

MISSING: tuple[str, str] | None = None
try:
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.http import Client
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.machine import Machine
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as trouble:
    MISSING = (trouble.name or "requests", traceback.format_exc())


def verify(*given: Any) -> dict[str, Any]:
    """Run a slice of a verification, see :func:`verification.of_plan`."""
    # Here, because importing aiohttp takes longer than most other steps.
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import verification

    return verification.of_plan(*given)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "required": True, "choices": list(_walk.STEPS)},
            "plan": {"type": "dict", "required": True},
            "host": {"type": "str", "required": True},
            "evidence": {"type": "dict", "default": {}},
            "state": {"type": "dict", "default": {}},
            "slice_seconds": {"type": "float", "default": 5},
        },
        supports_check_mode=True,
    )
    if MISSING:
        module.fail_json(msg=missing_required_lib(MISSING[0]), exception=MISSING[1])
    given = module.params
    if _walk.verifies(given["step"], given["plan"], given["host"]) and not importlib.util.find_spec("aiohttp"):
        module.fail_json(msg=missing_required_lib("aiohttp"))
    try:
        if module.check_mode:
            units = _walk.restores(given["plan"], given["host"]) if given["step"] == _walk.RESTORE else {}
            shown = revisions.changes(units)[0]
            module.exit_json(changed=bool(shown), outcome=_steps.SKIPPED, message="check mode", files=shown)
        result = _steps.run(
            given["step"],
            given["plan"],
            given["host"],
            given["evidence"],
            given["state"],
            Machine(module.run_command, Client(), text_string_to_metric_families, verify),
            given["slice_seconds"],
        )
    except files.FileError as trouble:
        module.fail_json(msg=str(trouble))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
