#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the diagnose action; see plugins/action/diagnose.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: diagnose
short_description: Say why a PD cluster does not serve, or that it does
version_added: 0.1.0
description:
  - Judges what M(inferops.sglang_pd.diagnose_info) saw on the hosts of the play, or a bundle that was saved before,
    by a set of hypotheses. Prints for each cluster the verdict, its evidence, what to do, and why it is nothing else.
  - Changes nothing. Run it once for all hosts (C(run_once)).
author: InferOps maintainers (@inferops)
attributes:
  action:
    description: Runs on the controller only and connects to nothing.
    support: full
  check_mode:
    description: Runs the same in check mode, but saves no bundle and writes no page.
    support: full
  diff_mode:
    description: Changes nothing on hosts.
    support: none
requirements:
  - prometheus_client beside ansible-core
options:
  seen:
    description: Name under which the results of M(inferops.sglang_pd.diagnose_info) are registered.
    type: str
    default: pd_seen
  clusters:
    description: Clusters, or scenarios of a bundle, to judge. All where empty.
    type: list
    elements: str
    default: []
  bundle:
    description:
      - Folder or tar on the controller to judge in place of hosts. Files are named
        C(<time>__<host>__<unit>__<endpoint>.txt), as O(save) writes them, or
        C(<scenario>__<prefill|decode|router>__<endpoint>.txt), as people record bodies by hand; then each scenario
        is judged by itself.
    type: path
    default: ""
  save:
    description: Folder, or file whose name ends with C(.tar), C(.tar.gz) or C(.tgz), to write what was seen to.
    type: path
    default: ""
  report_dir:
    description:
      - Directory on the controller for C(diagnose-CLUSTER.html), the diagnosis as a page that opens from disk. What a
        file name cannot hold is in it as C(%) and two digits. None is written when empty, or in check mode.
    type: path
    default: ""
  hunch:
    description: What you suspect, in your words, for instance V(overlap schedule). It is answered by name.
    type: str
    default: ""
  fail_unless_healthy:
    description: Whether to fail unless every cluster is healthy.
    type: bool
    default: false
seealso:
  - module: inferops.sglang_pd.diagnose_info
"""

EXAMPLES = r"""
- name: See
  inferops.sglang_pd.diagnose_info:
  register: pd_seen

- name: Say why
  inferops.sglang_pd.diagnose:
    hunch: overlap schedule
  run_once: true
"""

RETURN = r"""
reports:
  description: The diagnosis of each cluster, by cluster.
  returned: always
  type: dict
  contains:
    verdict:
      description: Name of the first hypothesis that holds, V(unknown) where none does.
      type: str
    title:
      description: The same in words.
      type: str
    confidence:
      description: V(certain), V(likely) or V(possible).
      type: str
    healthy:
      description: Whether the verdict is V(healthy).
      type: bool
    evidence_for:
      description: What speaks for the verdict.
      type: list
      elements: str
    evidence_against:
      description: What speaks against it.
      type: list
      elements: str
    remedy:
      description: What to do.
      type: str
    command:
      description: The commands for it, one a line.
      type: str
    hunch:
      description: What was suspected (C(asked)) and what became of it (C(answer)).
      type: dict
    hypotheses:
      description: >-
        All hypotheses, each with C(name), C(title), C(state) (V(holds), V(follows), V(ruled out), V(open)),
        C(confidence), C(evidence_for), C(evidence_against), C(why), C(remedy), C(command).
      type: list
      elements: dict
    members:
      description: What was seen of each member, as lines.
      type: list
      elements: str
healthy:
  description: Whether all clusters are healthy.
  returned: always
  type: bool
lines:
  description: All of it as text.
  returned: always
  type: list
  elements: str
saved:
  description: Where the bundle was written.
  returned: when O(save) is given
  type: str
"""
