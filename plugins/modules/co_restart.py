#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the co_restart action; see plugins/action/co_restart.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: co_restart
short_description: Walk one step of a co-restart, prefill before decode before router
version_added: 0.1.0
description:
  - Runs one step of the co-restart of every planned cluster that has members on this host. The playbook
    C(inferops.sglang_pd.co_restart) walks all steps in order.
  - Enforces the order. A step runs only with the evidence of every step before it, from every host that took part
    in it. A decode is never restarted without its prefills, whatever the way in.
  - A stage ends when each of its members gave several good answers in a row from one new incarnation, or at once
    when a unit fails; then the message carries the unit's state, its last journal lines and its queues.
  - Shows who is awaited and for how long while it waits.
  - Is not idempotent. Whether anything is to be done is decided by M(inferops.sglang_pd.co_restart_plan).
author: InferOps maintainers (@inferops)
attributes:
  action:
    description: Runs on the controller and calls M(inferops.sglang_pd.co_restart_step) on the host.
    support: full
  check_mode:
    description: Says what the step would do. Only O(step=restore) asks the host, for the files that would change.
    support: full
  diff_mode:
    description: Shows what O(step=restore) changes; files that may hold secrets are named, not shown.
    support: partial
options:
  step:
    description:
      - Which step. V(conclude) tells, once for all, what the attempt came to and which clusters get another one;
        V(verdict) comes last, once for all, and fails when a cluster failed or was rolled back.
    type: str
    required: true
    choices: [lock, restore, close, drain, stop_prefill, stop_prefill_ranks, start_prefill, stop_decode,
      stop_decode_ranks, start_decode, restart_router, requests, verify, settle, record, unlock, conclude, verdict]
  plan:
    description: The result of M(inferops.sglang_pd.co_restart_plan).
    type: dict
    required: true
  rollback:
    description:
      - For O(step=conclude). With V(on_failure) a cluster that failed after something was stopped gets another
        attempt with the last revision that ended well.
    type: str
    choices: [never, on_failure]
    default: never
  attempts:
    description:
      - The result of the O(step=conclude) before. O(step=unlock) leaves the clusters locked that get another attempt.
    type: dict
    default: {}
  roll:
    description: Directory of the roll that this co-restart is of; it is told of each step. None where empty.
    type: str
    default: ""
  wave:
    description: Number of the wave in that roll.
    type: int
    default: 0
  evidence:
    description:
      - Prefix of the names under which the results of the steps before are registered. The step C(lock) is
        registered as C(pd_step_lock) with the default, and so on.
    type: str
    default: pd_step_
seealso:
  - module: inferops.sglang_pd.co_restart_plan
"""

EXAMPLES = r"""
- name: Start the decodes and wait until each is healthy in its new incarnation
  inferops.sglang_pd.co_restart:
    step: start_decode
    plan: "{{ pd_plan }}"
  register: pd_step_start_decode
"""

RETURN = r"""
attempts:
  description: What each attempt came to, by cluster.
  returned: for O(step=conclude)
  type: dict
next:
  description: What follows, V(widen) or V(roll back) and why, for the clusters that get another attempt.
  returned: for O(step=conclude)
  type: dict
clusters:
  description: What the step gave for each planned cluster with members on this host; evidence for the steps after.
  returned: when the step concerned this host
  type: dict
"""
