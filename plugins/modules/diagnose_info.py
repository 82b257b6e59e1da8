#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect on one host what a diagnosis needs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose_info
short_description: Collect what a diagnosis of PD clusters needs, on one host
version_added: 0.1.0
description:
  - Reads of each member on this host its unit, its starts and unplanned ends, its journal, its ledger, which settings
    are live, who listens on its ports, its health, its workers, and its queues and counters over a time.
    Reads of the host its GPUs, its start and C(/dev/shm). Tries from the host of a decode whether it reaches the
    bootstrap servers of its prefills.
  - Changes nothing and is safe on a cluster that serves. Needs root, to see the processes of other users.
  - Secrets that the roles deployed, and values of fields and options that are named like secrets, are removed before
    anything leaves the host.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Runs the same in check mode, but sends no request.
    support: full
  diff_mode:
    description: Has nothing to show, because it only reads.
    support: none
requirements:
  - requests and prometheus_client for the host's Python (python3-requests, python3-prometheus-client)
options:
  clusters:
    description: Clusters whose members are looked at. All where empty.
    type: list
    elements: str
    default: []
  members:
    description:
      - The members of all hosts, as C(member) of what M(inferops.sglang_pd.member_info) returns. Without them bootstrap
        servers of other hosts are not tried.
    type: list
    elements: dict
    default: []
  window_seconds:
    description:
      - How long queues are watched. Where only gauges of C(/metrics) say that a request is held, which may be stale,
        the look lasts 35 seconds and one interval at least.
    type: float
    default: 12
  interval_seconds:
    description: Time between two samples, in seconds.
    type: float
    default: 3
  health_timeout_seconds:
    description: How long one C(/health) may take, in seconds. A busy engine takes up to 20.
    type: float
    default: 25
  nudge:
    description: Whether one chat request may be sent through the first router of each cluster.
    type: bool
    default: false
  nudge_limit_seconds:
    description: How long that request may take, in seconds.
    type: float
    default: 35
  bodies:
    description: Whether to return the bodies of C(/metrics), too. A bundle wants them.
    type: bool
    default: false
seealso:
  - module: inferops.sglang_pd.diagnose
"""

EXAMPLES = r"""
- name: See
  inferops.sglang_pd.diagnose_info:
    window_seconds: 12
  register: pd_seen
"""

RETURN = r"""
items:
  description: All that was seen, in the order in which it was.
  returned: always
  type: list
  elements: dict
  contains:
    at:
      description: When, in seconds since the epoch.
      type: float
    unit:
      description: Of which unit, V(host) for the host itself.
      type: str
    endpoint:
      description: What was asked, for instance V(v1_loads), or what it tells of, for instance V(unit.json).
      type: str
    status:
      description: HTTP status, null where there was no answer.
      type: int
    seconds:
      description: How long the answer took.
      type: float
    error:
      description: Why there was no answer.
      type: str
    body:
      description: The answer.
      type: str
"""

import functools
import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files

MISSING: tuple[str, str] | None = None
try:
    from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.look import Look
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as trouble:
    MISSING = (trouble.name or "requests", traceback.format_exc())


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "clusters": {"type": "list", "elements": "str", "default": []},
            "members": {"type": "list", "elements": "dict", "default": []},
            "window_seconds": {"type": "float", "default": 12},
            "interval_seconds": {"type": "float", "default": 3},
            "health_timeout_seconds": {"type": "float", "default": 25},
            "nudge": {"type": "bool", "default": False},
            "nudge_limit_seconds": {"type": "float", "default": 35},
            "bodies": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if MISSING:
        module.fail_json(msg=missing_required_lib(MISSING[0]), exception=MISSING[1])
    given = dict(module.params, nudge=module.params["nudge"] and not module.check_mode)
    if given["window_seconds"] <= 0 or given["interval_seconds"] <= 0:
        module.fail_json(msg="window_seconds and interval_seconds are more than 0")
    try:
        # A program that is not there, nvidia-smi for one, is an answer and no failure.
        run = functools.partial(module.run_command, handle_exceptions=False)
        look = Look(run, text_string_to_metric_families, given, given["members"])
        module.exit_json(changed=False, items=look.items())
    except files.FileError as trouble:
        module.fail_json(msg="{0}. Deploy the host again: inferops.sglang_pd.deploy".format(trouble))


if __name__ == "__main__":
    main()
