#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the roll action; see plugins/action/roll.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roll
short_description: Walk one step of a rolling co-restart
version_added: 0.1.0
description:
  - Runs the steps of a roll that are around the co-restarts of its waves. The playbook
    C(inferops.sglang_pd.rolling_co_restart) walks them in order.
  - Keeps the events of the roll in its directory, decides before each wave whether it may begin, and ends the roll when
    its failure budget is spent, a bound would be broken, somebody cancelled it, or it waits for approval.
author: InferOps maintainers (@inferops)
attributes:
  action:
    description:
      - Runs on the controller; V(reserve), V(keep) and V(release) call M(inferops.sglang_pd.cluster_lock) on the host.
    support: full
  check_mode:
    description: A roll ends with its plan in check mode; no step is walked.
    support: none
  diff_mode:
    description: Has nothing to show.
    support: none
options:
  step:
    description:
      - V(reserve), V(keep) and V(release) the clusters, on the hosts with their locks; V(confirm) that all are
        reserved.
      - V(waves) tells which waves the hosts of this batch have; V(begin), V(ready), V(walked), V(soaked) and V(end) are
        the points of a wave; V(hook) notes what a hook came to.
      - V(conclude) comes last, and fails when the roll did not do what was wanted.
    type: str
    required: true
    choices: [reserve, confirm, keep, release, waves, begin, hook, ready, walked, soaked, end, conclude]
  roll:
    description: The result of M(inferops.sglang_pd.roll_plan).
    type: dict
    required: true
  wave:
    description: Number of the wave.
    type: int
    default: 0
  clusters:
    description: Clusters of the wave that the point before left over; for O(step=hook) those of the hook.
    type: list
    elements: str
    default: []
  plan:
    description: The result of M(inferops.sglang_pd.co_restart_plan) for the wave.
    type: dict
    default: {}
  attempts:
    description: The result of M(inferops.sglang_pd.co_restart) with C(step=conclude).
    type: dict
    default: {}
  reserved:
    description:
      - Name under which the results of O(step=reserve) are registered; for O(step=begin) those of O(step=keep).
    type: str
    default: pd_roll_reserved
  proof:
    description: Name under which the results of M(inferops.sglang_pd.verify) are registered.
    type: str
    default: pd_roll_after
  rollback:
    description:
      - For O(step=soaked). With V(on_failure) a cluster that failed its soak gets another attempt, with the last
        revision that ended well before.
    type: str
    choices: [never, on_failure]
    default: never
  take_over:
    description: Reason for taking clusters that another roll has before its deadline.
    type: str
    default: ""
  lease_seconds:
    description: After this time others may have the clusters of the roll.
    type: float
    default: 43200
  hook:
    description: Which hook.
    type: str
    choices: [before_drain, after_verify, on_failure]
  message:
    description: What went wrong in the hook. It went well where empty.
    type: str
    default: ""
seealso:
  - module: inferops.sglang_pd.roll_plan
"""

EXAMPLES = r"""
- name: May the wave begin?
  inferops.sglang_pd.roll:
    step: begin
    roll: "{{ pd_roll }}"
    wave: 3
  run_once: true
  register: pd_wave_begun
"""

RETURN = r"""
over:
  description: Whether the roll ended here.
  returned: for O(step=confirm), O(step=begin), O(step=end)
  type: bool
clusters:
  description: Clusters that the wave goes on with; for O(step=end) those that came out V(good) and V(failed).
  returned: for the points of a wave
  type: raw
attempts:
  description: What each attempt came to, by cluster.
  returned: for O(step=soaked)
  type: dict
next:
  description: What follows and why, for the clusters that get another attempt.
  returned: for O(step=soaked)
  type: dict
waves:
  description: The waves of the hosts of this batch.
  returned: for O(step=waves)
  type: list
  elements: dict
run_id:
  description: Id of the wave's co-restarts in ledgers and locks.
  returned: for O(step=begin)
  type: str
outcome:
  description: V(done), V(nothing), V(refused), V(failed), V(stopped) or V(paused).
  returned: when the roll ended
  type: str
remaining:
  description: Clusters that a resumed roll still has to do.
  returned: for O(step=conclude)
  type: list
  elements: str
lines:
  description: What the roll came to, as text. Where it failed, that is the message.
  returned: for O(step=conclude) of a roll that did what was wanted
  type: list
  elements: str
"""
