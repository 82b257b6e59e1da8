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

import asyncio
import time
import traceback
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _baseline, _verify
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files

MISSING: tuple[str, str] | None = None
try:
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import streams
except ImportError:
    MISSING = ("aiohttp", traceback.format_exc())
try:
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import machine
except ImportError:
    MISSING = ("requests", traceback.format_exc())
try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    MISSING = ("prometheus_client", traceback.format_exc())


async def go_on(given: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Run one slice."""
    members, here = given["members"], given["host"]
    key = streams.key_of(members, here, machine.api_key)
    reach = streams.reach(members, here, machine.local_url)
    async with streams.Streams(members, reach, key, text_string_to_metric_families) as host:
        return await _verify.run_slice(members, given["options"], given["state"], host, given["slice_seconds"])


def conclude(given: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a verification that is done, and store its latencies where it is good."""
    options, cluster = given["options"], given["cluster"]
    stored = {} if options["baseline"] == "ignore" else files.baseline(cluster)
    revision = _baseline.revision_of(given["members"])
    result = _verify.report(given["members"], options, state, stored, revision)
    changed = False
    if result["outcome"] == _verify.OK and options["baseline"] != "ignore":
        new = _baseline.update(stored, revision, result.pop("measured"), time.time(), options["baseline"] == "renew")
        changed = new != stored
        if changed:
            files.write_baseline(cluster, new)
    result.pop("measured", None)
    return {
        "outcome": result["outcome"],
        "message": "; ".join(result["failures"]),
        "result": result,
        "changed": changed,
    }


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
        outcome, words, state = asyncio.run(go_on(module.params))
        if outcome != _verify.DONE:
            module.exit_json(outcome=_verify.WAITING, message=words, state=state, changed=False)
        module.exit_json(**conclude(module.params, state))
    except files.FileError as trouble:
        module.fail_json(msg="{0}. Remove the file to begin with a new baseline".format(trouble))


if __name__ == "__main__":
    main()
