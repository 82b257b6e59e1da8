#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the roll_plan action; see plugins/action/roll_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: roll_plan
short_description: Plan the co-restarts of many clusters in waves
version_added: 0.1.0
description:
  - Plans which clusters of the inventory are co-restarted, in which waves, and what capacity each wave takes away, from
    what M(inferops.sglang_pd.member_info), M(inferops.sglang_pd.preflight), M(inferops.sglang_pd.settings_info) and
    M(inferops.sglang_pd.verify) found. Prints the plan, and writes it to the directory of the roll.
  - A cluster that is down, in maintenance or being restarted is away. It counts against the bounds of its model
    (C(pd_engine_served_model_name), else C(pd_engine_model_path)) and of its failure domains.
  - Clusters that do not serve come first, where O(repair) allows it; then the canaries; then batches.
  - Refuses a roll where a cluster cannot be co-restarted, a cluster of a touched model does not serve, or another roll
    has the clusters. Then nothing of it begins.
  - Run it once for all hosts (C(run_once)).
author: InferOps maintainers (@inferops)
attributes:
  action:
    description: Runs on the controller only and connects to nothing.
    support: full
  check_mode:
    description: Runs the same; the plan is written all the same, it is what is asked for.
    support: full
  diff_mode:
    description: Changes nothing on hosts.
    support: none
options:
  members:
    description: Name under which the results of M(inferops.sglang_pd.member_info) are registered.
    type: str
    default: pd_members
  preflight:
    description: Name under which the results of M(inferops.sglang_pd.preflight) are registered.
    type: str
    default: pd_preflight
  settings:
    description: Name under which the results of M(inferops.sglang_pd.settings_info) are registered.
    type: str
    default: pd_settings
  proof:
    description:
      - Name under which the results of M(inferops.sglang_pd.verify) are registered, if any. Without them a cluster
        serves where its units and ledgers are as they should be, which proves nothing.
    type: str
    default: pd_roll_look
  clusters:
    description: Clusters to roll. All with a host in the play where empty. The others count as capacity all the same.
    type: list
    elements: str
    default: []
  restart_when:
    description: V(when_due) rolls clusters in which what runs is not what should run. V(always) rolls all.
    type: str
    choices: [always, when_due]
    default: when_due
  accept:
    description: Rules whose problems are to be warned of only, see O(inferops.sglang_pd.co_restart_plan#module:accept).
    type: list
    elements: str
    default: []
  decode_alone:
    description: See O(inferops.sglang_pd.co_restart_plan#module:decode_alone).
    type: str
    default: pd_co_restart_decode_alone
  domain:
    description: Name of the inventory variable that tells a host's failure domain, such as its rack or zone.
    type: str
    default: pd_failure_domain
  maintenance:
    description:
      - Name of the inventory variable that puts a host into maintenance, V(true) or the reason. Its clusters are not
        touched, and count as away.
    type: str
    default: pd_maintenance
  max_unavailable:
    description:
      - Most clusters of a model that may be away at a time, a number or a percentage of them, rounded down. At least
        one, because a co-restart takes its cluster away.
    type: str
    default: 10%
  max_unavailable_per_domain:
    description: The same for the clusters with hosts in a failure domain. No bound where empty.
    type: str
    default: ""
  canary:
    description: Clusters that go first, by name.
    type: list
    elements: str
    default: []
  canaries_per_model:
    description: Where O(canary) is empty, so many clusters of each model go first, if it has more.
    type: int
    default: 1
  batch:
    description: Most clusters of a wave, a number or a percentage of those that are rolled.
    type: str
    default: 25%
  soak_seconds:
    description: How long requests are sent and queues watched after each wave, in seconds.
    type: int
    default: 60
  failure_budget:
    description:
      - Clusters that may fail or be rolled back before the roll ends, a number or a percentage of those that are
        rolled. A canary or a repair that fails ends it at once.
    type: str
    default: "0"
  repair:
    description: Lets a roll begin although clusters do not serve. Those of the selection go first.
    type: bool
    default: false
  pause:
    description: When the roll ends, to be resumed after approval.
    type: str
    choices: [never, after_canary, after_each_wave]
    default: never
  take_over:
    description: Reason for taking clusters that another roll has before its deadline.
    type: str
    default: ""
  purpose:
    description: What the roll is for; shown to others, and kept in the ledgers.
    type: str
    default: rolling co-restart
  roll_id:
    description: Id of the roll. Made from the time where empty; that of an earlier roll goes on with it.
    type: str
    default: ""
  rolls:
    description: Directory for the files of rolls on the controller, one folder each. None are written where empty.
    type: str
    default: ""
seealso:
  - module: inferops.sglang_pd.roll
  - module: inferops.sglang_pd.co_restart_plan
"""

EXAMPLES = r"""
- name: Plan the roll
  inferops.sglang_pd.roll_plan:
    max_unavailable: 25%
    rolls: ~/.local/state/sglang-pd/rolls
  run_once: true
  register: pd_roll
"""

RETURN = r"""
decision:
  description: V(go), V(nothing) or V(refused).
  returned: always
  type: str
lines:
  description: The plan as text.
  returned: always
  type: list
  elements: str
run:
  description: Identity of the roll.
  returned: always
  type: dict
directory:
  description: Where the files of the roll are on the controller.
  returned: always
  type: str
hosts:
  description: All hosts of the roll, in the order of their waves.
  returned: always
  type: list
  elements: str
batch_sizes:
  description: How many of RV(hosts) each batch of waves has.
  returned: always
  type: list
  elements: int
gone:
  description: Owners of locks and reservations whose processes are gone from this controller.
  returned: always
  type: list
  elements: str
reserve:
  description: Clusters to be reserved, by the host that holds their locks.
  returned: always
  type: dict
"""
