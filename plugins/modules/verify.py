#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the verify action; see plugins/action/verify.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: verify
short_description: Prove with real requests that a prefill/decode cluster serves
version_added: 0.1.0
description:
  - Sends chat requests through the routers of a cluster, and straight to each prefill and decode pair as a router
    does, judges every answer strictly, and samples the queues of all engines before, during and after.
  - Status 200 is no proof. An answer counts when its text, finish reason, token count and usage fit what was asked,
    it ends with C([DONE]) where it is a stream, shows no word of another request, and came within its limit.
  - Runs on the host of the cluster's first router. Every host of the cluster must be in the play and
    M(inferops.sglang_pd.member_info) registered for it before.
  - Stores the latencies of a good verification on that host, by configuration revision, and compares later ones.
  - Is not idempotent - it sends requests each time. O(profile=stress) puts load on the cluster.
author: InferOps maintainers (@inferops)
attributes:
  action:
    description: Runs on the controller and calls M(inferops.sglang_pd.verify_step) on the host.
    support: full
  check_mode:
    description: Says what it would send, and sends nothing.
    support: full
  diff_mode:
    description: Has nothing to show, because it changes no configuration.
    support: none
options:
  members:
    description: The name under which the results of M(inferops.sglang_pd.member_info) are registered.
    type: str
    default: pd_members
  clusters:
    description: The clusters to verify, all clusters with hosts in the play when empty.
    type: list
    elements: str
    default: []
  profile:
    description:
      - V(smoke) - 8 requests through each router, one after the other, and golden answers where given.
      - V(standard) - also every pair of prefill and decode with short and long prompts, concurrent streams, and
        agentic sessions.
      - V(stress) - more of all that, then a storm of streams that their clients leave early, and the recovery from it.
    type: str
    choices: [smoke, standard, stress]
    default: standard
  parts:
    description: These parts instead of the profile's. They run in the order in which they are listed here.
    type: list
    elements: str
    choices: [sequential, pairs, golden, concurrent, agentic, aborts, after_aborts, soak]
    default: []
  requests:
    description: Requests of the part V(sequential), through each router. 8 in every profile.
    type: int
  pair_transfers:
    description: Short and long requests to each pair. 2, with V(stress) 3.
    type: int
  concurrent_requests:
    description: Streams at a time of the part V(concurrent). 32, with V(stress) 200.
    type: int
  sessions:
    description: Agentic sessions at a time. 8, with V(stress) 30.
    type: int
  rounds:
    description: Rounds of each session. 3 in every profile.
    type: int
  abort_streams:
    description: Streams of the abort storm, all at a time. 60, with V(stress) 200.
    type: int
  soak_seconds:
    description:
      - How long the part V(soak) sends a request each 5 seconds through each router, in seconds. 60. No profile has
        the part.
    type: int
  golden:
    description:
      - Answers that are known beforehand. Each is asked for through each router with temperature 0.
      - A dict with C(prompt), C(text), and where wanted C(match) (V(equals), V(contains), V(matches) for a regular
        expression; V(equals) by default) and C(max_tokens).
    type: list
    elements: dict
    default: []
  prompt:
    description: What is asked where a part has no prompt of its own.
    type: str
    default: say hi briefly
  max_tokens:
    description: Tokens that an answer may have.
    type: int
    default: 24
  temperature:
    description: Sampling temperature, except for golden answers.
    type: float
    default: 0.6
  long_prompt_words:
    description: Words of a pair's long prompt, about. Must fit into the context of the model.
    type: int
    default: 1500
  any_text:
    description: Do not look for garbage in answers, for a model with random weights.
    type: bool
    default: false
  request_limit_seconds:
    description: How long one answer may take, in seconds.
    type: float
    default: 35
  sample_seconds:
    description: Seconds between two samples of the engines' queues.
    type: float
    default: 1
  stall_seconds:
    description: Requests that an engine holds this long without any sign of work are stuck, in seconds.
    type: float
    default: 20
  settle_limit_seconds:
    description: How long the queues are watched at the end, in seconds, where others go on sending.
    type: float
    default: 60
  abort_limit_seconds:
    description: No stream of the abort storm is begun after this time, in seconds.
    type: float
    default: 30
  recovery_limit_seconds:
    description: How long the queues may take to come back to what they held before the storm, in seconds.
    type: float
    default: 60
  baseline:
    description:
      - V(keep) - the first good verification of a configuration revision is stored, later ones are compared with it.
      - V(renew) - a good verification replaces what is stored.
      - V(ignore) - nothing is compared or stored.
    type: str
    choices: [keep, renew, ignore]
    default: keep
  regression_factor:
    description: A median or p95 latency that is more than so many times the stored one is a regression.
    type: float
    default: 1.5
  regression_slack_seconds:
    description: A latency that is not more than this above the stored one is no regression, in seconds.
    type: float
    default: 0.25
  fail_on_regression:
    description: Let a regression fail the cluster.
    type: bool
    default: false
  report_dir:
    description:
      - Directory on the controller for C(verify-CLUSTER.json), with all samples, and C(verify-CLUSTER.html), the same
        as a page that opens from disk. None is written when empty, or in check mode.
    type: path
  inventory:
    description: Hosts by role of each cluster, see O(inferops.sglang_pd.co_restart_plan#module:inventory).
    type: dict
    default: {}
  fail:
    description:
      - Fail the task when a cluster fails. The playbook C(inferops.sglang_pd.verify) says no, and fails with its last
        task, after all clusters.
    type: bool
    default: true
seealso:
  - module: inferops.sglang_pd.member_info
"""

EXAMPLES = r"""
- name: See what is deployed and what runs
  inferops.sglang_pd.member_info:
  register: pd_members

- name: Prove that the cluster serves
  inferops.sglang_pd.verify:
    profile: smoke
    golden:
      - prompt: What is 2 + 2? Answer with the number alone.
        text: "4"
        match: contains
  register: pd_verify
"""

RETURN = r"""
clusters:
  description: The result by cluster, on the host that verified it.
  returned: when this host verified a cluster
  type: dict
  contains:
    outcome:
      description: V(ok) or V(failed).
      type: str
    failures:
      description: Everything that made the cluster fail, in words.
      type: list
      elements: str
    lines:
      description: The result as a short table.
      type: list
      elements: str
    profile:
      description: The profile that was run.
      type: str
    revision:
      description: What names the configuration that the cluster's members run.
      type: str
    parts:
      description: Each part in order.
      type: list
      elements: dict
      contains:
        part:
          description: Its name.
          type: str
        shape:
          description: How much it sends; latencies are compared only in the same shape.
          type: str
        outcome:
          description: V(ok), V(failed) or V(skipped).
          type: str
        why:
          description: Why it is not V(ok).
          type: str
        wanted:
          description: Requests that it has.
          type: int
        sent:
          description: Requests that were sent.
          type: int
        good:
          description: Answers that were judged good.
          type: int
        tokens:
          description: Completion tokens of the good answers.
          type: int
        dropped:
          description: Streams that this client left, as it was meant to.
          type: int
        cold_seconds:
          description: Latency of the first answer through each router, which is not in RV(clusters.parts.latency).
          type: list
          elements: float
        latency:
          description: C(count), C(minimum), C(median), C(p95) and C(maximum) of the good answers, in seconds.
          type: dict
        first_token:
          description: The same for the first event of streams.
          type: dict
        histogram:
          description: Buckets of RV(clusters.parts.latency), each C(from_seconds), C(to_seconds) and C(count).
          type: list
          elements: dict
        picture:
          description: The histogram as one line.
          type: str
        slow:
          description: Answers that took longer than the slowest of the stored baseline allows.
          type: int
        failed:
          description: The first failures, each C(request), C(why) and C(seconds).
          type: list
          elements: dict
    series:
      description: Each engine, by unit and host.
      type: dict
      contains:
        verdict:
          description: V(idle), V(drained), V(flowing), V(stuck), V(stale gauge) or V(unknown).
          type: str
        why:
          description: The reason.
          type: str
        transfers_failed:
          description: By how much the counter of failed transfers rose, null where that is unknown.
          type: float
        lines:
          description: The samples, for people.
          type: list
          elements: str
    recovery:
      description: C(seconds) until the queues were back after an abort storm, and whether they C(recovered).
      type: dict
    regressions:
      description:
        - Each part that has stored latencies, C(part), C(against) (revision), C(same_revision), C(now) and C(then)
          (C(median) and C(p95) in seconds), C(regression), C(why).
      type: list
      elements: dict
lines:
  description: In check mode, what would be sent; else the tables of all clusters that this host verified.
  returned: when this host verifies a cluster
  type: list
  elements: str
"""
