#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the co_restart_plan action; see plugins/action/co_restart_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: co_restart_plan
short_description: Plan the co-restart of PD clusters from what their hosts say
version_added: 0.1.0
description:
  - Compares the inventory (groups C(pd_prefill), C(pd_decode), C(pd_router) and the variable C(pd_cluster)) with what
    M(inferops.sglang_pd.member_info) found on the hosts, and plans for each cluster what is restarted, in which
    order, and why. Prints the plan.
  - Refuses a cluster before anything is stopped when it is not complete in this run, a host cannot be reached, its
    roles contradict each other, a port is held by somebody else, another run holds its lock, or the stages asked
    for would restart an engine alone.
  - Run it once for all hosts (C(run_once)). Fails when every cluster is refused, or none is selected.
author: InferOps maintainers (@inferops)
attributes:
  action:
    description: Runs on the controller only and connects to nothing.
    support: full
  check_mode:
    description: Runs the same in check mode.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
options:
  members:
    description: Name under which the results of M(inferops.sglang_pd.member_info) are registered.
    type: str
    default: pd_members
  clusters:
    description: Clusters to plan for. All clusters with a host in the play where empty.
    type: list
    elements: str
    default: []
  stages:
    description:
      - Stages to restart. All three, or V(router) alone; any other choice restarts engines alone and is refused
        unless O(override) says why.
      - Where empty, all three; with O(restart_when=when_due) the smallest set that is safe for what is due.
    type: list
    elements: str
    choices: [prefill, decode, router]
    default: []
  decode_alone:
    description:
      - Name of the inventory variable by which a cluster allows its decodes to restart without their prefills where
        only their settings changed and the versions are known to heal. It counts where all hosts of the cluster have
        it set to true.
    type: str
    default: pd_co_restart_decode_alone
  restore:
    description:
      - Plans a rollback to a generation that ended well, by its number, or to the V(last_good) one. No rollback where
        empty.
    type: str
    default: ""
  follows:
    description:
      - RV(inferops.sglang_pd.co_restart#module:next) of the attempt before. Plans another attempt of the same run;
        all options but O(members) and O(decode_alone) are those of that run then.
    type: dict
    default: {}
  override:
    description: Reason for restarting engines alone. Recorded in the ledgers of the hosts.
    type: str
    default: ""
  restart_when:
    description:
      - V(always) restarts. V(when_due) restarts only a cluster in which what runs is not what should run.
        V(first_start) only starts a cluster of which nothing runs.
    type: str
    choices: [always, when_due, first_start]
    default: always
  preflight:
    description: Name under which the results of M(inferops.sglang_pd.preflight) are registered.
    type: str
    default: pd_preflight
  accept:
    description: Rules whose problems are to be warned of only, by their names, see C(docs/deploy.md).
    type: list
    elements: str
    default: []
  take_over:
    description: Reason for taking over the lock of another run before its deadline.
    type: str
    default: ""
  purpose:
    description: What the run is for; shown to others while the cluster is locked, and kept in the ledgers.
    type: str
    default: co-restart
  run_id:
    description: Id of the run in ledgers and messages. Made from the time where empty.
    type: str
    default: ""
  fail:
    description: Fail the task when every cluster is refused. A roll says no, and judges with its own last step.
    type: bool
    default: true
  inventory:
    description:
      - Hosts by role of each cluster, as the inventory has them. Worked out from the whole inventory where empty, which
        a roll does once and not for each wave.
    type: dict
    default: {}
  roll:
    description:
      - Id of the roll that must have reserved the clusters. One that is reserved for another roll by now, or was
        unlocked, is refused. Not asked for where empty.
    type: str
    default: ""
  resume_limit_seconds:
    description: An interrupted run that began longer ago is not resumed; the whole chain starts anew.
    type: int
    default: 3600
  drain_limit_seconds:
    description: How long running requests may go on before their engines are stopped.
    type: int
    default: 120
  drain_stall_seconds:
    description: Requests that are held this long without any sign of work are not waited for any longer.
    type: int
    default: 15
  consecutive:
    description: Good answers in a row, of one incarnation, that make a member healthy.
    type: int
    default: 3
  health_timeout_seconds:
    description:
      - How long one C(/health) may take. A busy engine answers after up to 20 seconds
        (C(SGLANG_HEALTH_CHECK_TIMEOUT)); a shorter limit takes it for dead.
    type: int
    default: 25
  requests:
    description: Chat requests that each router must answer after the restart.
    type: int
    default: 8
  request_limit_seconds:
    description: How long one of these requests may take. The clients of the founding incident gave up after 35.
    type: int
    default: 35
  request_prompt:
    description: What these requests ask.
    type: str
    default: say hi briefly
  request_max_tokens:
    description: Longest answer to these requests, in tokens.
    type: int
    default: 24
  request_temperature:
    description: Sampling temperature of these requests.
    type: float
    default: 0.6
  request_any_text:
    description: Looks for no garbage in their answers, for a model with random weights.
    type: bool
    default: false
  settle_limit_seconds:
    description: How long the queues are watched after the requests. Longer than the 30 s of a stale gauge.
    type: int
    default: 60
  settle_stall_seconds:
    description: A request that is held this long without any sign of work is stuck, and fails the cluster.
    type: int
    default: 20
  verify:
    description:
      - Profile of the verification that follows on the requests, see M(inferops.sglang_pd.verify). Its sequential
        requests are those of O(requests) and not sent again; V(none) for no verification.
      - It asks with O(request_prompt), O(request_max_tokens), O(request_temperature) and O(request_any_text), within
        O(request_limit_seconds), and watches the queues by O(settle_limit_seconds) and O(settle_stall_seconds).
    type: str
    choices: [none, smoke, standard, stress]
    default: standard
  verify_golden:
    description: Answers of the verification that are known beforehand, see O(inferops.sglang_pd.verify#module:golden).
    type: list
    elements: dict
    default: []
  verify_long_prompt_words:
    description: Words of its long prompts, which must fit into the context.
    type: int
    default: 1500
seealso:
  - module: inferops.sglang_pd.member_info
  - module: inferops.sglang_pd.co_restart
"""

EXAMPLES = r"""
- name: Plan
  inferops.sglang_pd.co_restart_plan:
    stages: [prefill, decode, router]
  run_once: true
  register: pd_plan
"""

RETURN = r"""
plans:
  description: The plans of the clusters that will be co-restarted, by cluster.
  returned: always
  type: dict
refused:
  description: Why clusters were refused, by cluster.
  returned: always
  type: dict
nothing:
  description: Why nothing is to be done for clusters, by cluster.
  returned: always
  type: dict
lines:
  description: All of it as text.
  returned: always
  type: list
  elements: str
"""
