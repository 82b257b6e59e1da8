#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One slice of a verification, on the host of the cluster's first router."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verify_step
short_description: Run one slice of a verification on this host
version_added: 0.1.0
description:
  - The half of M(inferops.sglang_pd.verify) that runs on a host. Use that one; this one is not meant to be called from
    playbooks.
  - It begins requests for O(slice_seconds), lets them come to their end, and is called again with the state that it
    returned, so that nothing goes on for long when the controller is gone.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Is not called in check mode.
    support: none
  diff_mode:
    description: Has nothing to show, because it changes no configuration.
    support: none
requirements:
  - aiohttp, requests and prometheus_client for the host's Python (python3-aiohttp, python3-requests,
    python3-prometheus-client)
options:
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  members:
    description: The members of the cluster, with C(configuration) as their running incarnations noted it.
    type: list
    elements: dict
    required: true
  host:
    description: The inventory name of this host.
    type: str
    required: true
  options:
    description: Options of M(inferops.sglang_pd.verify).
    type: dict
    required: true
  state:
    description: What the slice before returned as RV(state).
    type: dict
    default: {}
  slice_seconds:
    description: How long this call begins requests, in seconds.
    type: float
    default: 5
"""

EXAMPLES = r"""
# See inferops.sglang_pd.verify, which calls this module.
"""

RETURN = r"""
outcome:
  description: V(waiting) to be called again with RV(state), V(ok) or V(failed).
  returned: always
  type: str
message:
  description: What is being done, or the failures.
  returned: always
  type: str
state:
  description: What the next slice needs.
  returned: when waiting
  type: dict
result:
  description: What M(inferops.sglang_pd.verify) returns of the cluster, with all samples.
  returned: when done
  type: dict
"""

import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files

MISSING: tuple[str, str] | None = None
try:
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import verification
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as trouble:
    MISSING = (trouble.name or "aiohttp", traceback.format_exc())


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "members": {"type": "list", "elements": "dict", "required": True},
            "host": {"type": "str", "required": True},
            "options": {"type": "dict", "required": True},
            "state": {"type": "dict", "default": {}},
            "slice_seconds": {"type": "float", "default": 5},
        }
    )
    if MISSING:
        module.fail_json(msg=missing_required_lib(MISSING[0]), exception=MISSING[1])
    try:
        found = verification.run_slice(
            module.params["cluster"],
            module.params["members"],
            module.params["host"],
            module.params["options"],
            module.params["state"],
            module.params["slice_seconds"],
            text_string_to_metric_families,
        )
    except files.FileError as trouble:
        module.fail_json(msg="{0}. Remove the file to begin with a new baseline".format(trouble))
    module.exit_json(**found)


if __name__ == "__main__":
    main()
