#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reserve clusters for a roll, release them, or unlock them by force."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_lock
short_description: Reserve clusters for a roll, release them, or unlock them by force
version_added: 0.1.0
description:
  - A roll reserves all clusters of the models that it touches, so that no other roll takes capacity away beside it.
    The reservation lies on the host of a cluster's first prefill, beside the lock that each co-restart takes.
  - Locks and reservations have an owner, a purpose and a deadline. One whose deadline passed can be had by anybody.
  - O(state=unlocked) takes both away whoever has them, and records in the ledgers who did that and why. An owner that
    is alive after all finds out at its next step, and stops.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Says what would be done.
    support: full
  diff_mode:
    description: Has nothing to show beyond its message.
    support: none
options:
  clusters:
    description: Clusters whose lock is on this host.
    type: list
    elements: str
    required: true
  state:
    description:
      - V(reserved) - for the roll in O(run); all of the clusters or none.
      - V(renewed) - the roll in O(run) has them still, and for another O(lease_seconds); never anew.
      - V(released) - those that the roll in O(run) has, and locks that its co-restarts left when their controller died.
      - V(unlocked) - locks and reservations are gone, whoever had them.
    type: str
    choices: [reserved, renewed, released, unlocked]
    required: true
  run:
    description: Identity of the roll, with C(id), C(owner) and C(purpose).
    type: dict
    required: true
  lease_seconds:
    description: After this time others may have the clusters.
    type: float
    default: 43200
  gone:
    description:
      - Owners of whom the controller knows that their processes are gone. What they have is taken over by
        O(state=reserved) without a reason.
    type: list
    elements: str
    default: []
  reason:
    description:
      - Why clusters of another owner are taken. Needed for O(state=unlocked); with O(state=reserved) it takes over a
        reservation before its deadline.
    type: str
    default: ""
seealso:
  - module: inferops.sglang_pd.roll
"""

EXAMPLES = r"""
- name: Take away the locks of a controller that is gone for good
  inferops.sglang_pd.cluster_lock:
    clusters: [dsv4]
    state: unlocked
    reason: runner 17 was deleted
    run:
      id: by-hand
      owner: ops@example.com
      purpose: unlock
"""

RETURN = r"""
refused:
  description: Who has the clusters that could not be reserved or renewed, by cluster.
  returned: always
  type: dict
announced:
  description:
    - By cluster, the latest generation of which the ledgers on this host knew, whether on record or only announced.
      What is not as the plan of a roll saw it was co-restarted since.
  returned: with O(state=reserved)
  type: dict
messages:
  description: What was taken over or taken away.
  returned: always
  type: list
  elements: str
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _ledger, _lock
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files

NO_REASON = (
    "Nothing was unlocked. Say why (pd_unlock_reason): it is recorded in the ledgers of the hosts "
    "[rule: an override is explicit and recorded]"
)


def reserve(given: dict[str, Any], write: bool) -> dict[str, Any]:
    """Reserve all clusters, or none of them."""
    refused, messages, announced = {}, [], {}
    before: dict[str, dict[str, Any] | None] = {}
    ledgers: dict[str, list[dict[str, Any]]] = {}
    for member in files.members():
        ledgers.setdefault(member["cluster"], []).append(files.ledger(member["unit"]))
    for cluster in given["clusters"]:
        announced[cluster] = max(map(_ledger.latest, ledgers.get(cluster, [])), default=0)
        lock, held, message = _reserve(cluster, given, write)
        if lock:
            before[cluster] = held
        if lock and lock["taken_over_from"]:
            busy = _co_restarted_by(cluster, given)
            if busy:
                lock, message = None, busy
            elif write:
                # Whoever had it may be alive, and about to lock the cluster: that one meets this fence.
                for ledger in ledgers.get(cluster, []):
                    files.write_ledger(_ledger.announce(ledger, announced[cluster] + 1, given["run"]))
        if lock is None:
            refused[cluster] = message
        elif message:
            messages.append(message)
    if refused and write:
        _give_back(before)
    changed = bool(given["clusters"]) and not refused
    return {"changed": changed, "refused": refused, "messages": messages, "announced": announced}


def _reserve(
    cluster: str, given: dict[str, Any], write: bool
) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
    """Return the reservation of a cluster, the one before it, and a message; none means that another roll has it."""
    wanted = {"run": given["run"], "generation": 0, "lease_seconds": given["lease_seconds"]}
    found: list[dict[str, Any] | None] = []

    def acquire(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
        is_gone = held is not None and held["run"]["owner"] in given["gone"]
        reason = given["reason"] or ("its owner's process is gone from the controller" if is_gone else "")
        lock, message = _lock.acquire(held, wanted, time.time(), reason)
        found.extend([lock, held])
        return (lock if write else None), message

    message = files.change_lock(cluster, acquire, files.RESERVATIONS)
    return found[0], found[1], message


def _give_back(before: dict[str, dict[str, Any] | None]) -> None:
    """Leave reservations as they were: whoever had one may be at work."""
    for cluster in before:

        def put_back(_mine: dict[str, Any] | None, cluster: str = cluster) -> tuple[dict[str, Any] | None, str]:
            return before[cluster] or {}, ""

        files.change_lock(cluster, put_back, files.RESERVATIONS)


def _co_restarted_by(cluster: str, given: dict[str, Any]) -> str:
    """Return who is co-restarting a cluster right now, or ""."""
    held = files.locks().get(cluster)
    if not held or held["deadline"] <= time.time() or held["run"]["owner"] in given["gone"]:
        return ""
    return "{0}, and is being co-restarted: wait for the end of that".format(_lock.describe(held))


def renew(given: dict[str, Any], write: bool) -> dict[str, Any]:
    """Renew the reservations of this roll; say which it has lost, and to whom."""
    refused = {}
    for cluster in given["clusters"]:

        def go_on(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
            if held is None:
                return None, "nobody any more: it was unlocked by force"
            if held["run"]["id"] != given["run"]["id"]:
                return None, _lock.describe(held)
            return (_lock.renew(held, given["lease_seconds"], time.time()) if write else None), ""

        message = files.change_lock(cluster, go_on, files.RESERVATIONS)
        if message:
            refused[cluster] = message
    return {"changed": False, "refused": refused, "messages": []}


def release(given: dict[str, Any], write: bool) -> dict[str, Any]:
    """Release the clusters that this roll has, and locks of its co-restarts whose controller died."""
    changed = False
    roll = given["run"]["id"]

    def let_go(held: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
        nonlocal changed
        if held is None or not (held["run"]["id"] == roll or held["run"]["id"].startswith(roll + ".")):
            return None, ""
        changed = True
        return ({} if write else None), ""

    for cluster in given["clusters"]:
        for directory in (files.RESERVATIONS, files.LOCKS):
            files.change_lock(cluster, let_go, directory)
    return {"changed": changed, "refused": {}, "messages": []}


def unlock(given: dict[str, Any], write: bool) -> dict[str, Any]:
    """Take locks and reservations away, and record it in the ledgers of the clusters' members here."""
    messages = []
    for cluster in given["clusters"]:
        held: list[str] = []

        def take(lock: dict[str, Any] | None, held: list[str] = held) -> tuple[dict[str, Any] | None, str]:
            if lock is None:
                return None, ""
            held.append(_lock.describe(lock))
            return ({} if write else None), ""

        for directory in (files.LOCKS, files.RESERVATIONS):
            files.change_lock(cluster, take, directory)
        if not held:
            continue
        messages.append(
            "cluster {0}: the lock of {1} was taken away: {2}".format(cluster, " and of ".join(held), given["reason"])
        )
        for member in files.members() if write else []:
            if member["cluster"] == cluster:
                ledger = files.ledger(member["unit"])
                files.write_ledger(_ledger.unlocked(ledger, given["run"]["owner"], given["reason"], held, time.time()))
    return {"changed": bool(messages), "refused": {}, "messages": messages}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "clusters": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["reserved", "renewed", "released", "unlocked"], "required": True},
            "run": {"type": "dict", "required": True},
            "lease_seconds": {"type": "float", "default": 43200},
            "gone": {"type": "list", "elements": "str", "default": []},
            "reason": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["state"] == "unlocked" and not given["reason"].strip():
        module.fail_json(msg=NO_REASON)
    do = {"reserved": reserve, "renewed": renew, "released": release, "unlocked": unlock}[given["state"]]
    try:
        module.exit_json(**do(given, not module.check_mode))
    except files.FileError as trouble:
        module.fail_json(msg=str(trouble))


if __name__ == "__main__":
    main()
