# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may co-restart a cluster: the lock on the cluster's first prefill host.

Pure: the lock is a dict; the file is :mod:`host.lock_file`'s. All times are
seconds since the epoch by the clock of the one host that holds the file, so that
clocks of different hosts are never compared.
"""

from __future__ import annotations

from typing import Any


def acquire(
    held: dict[str, Any] | None,
    wanted: dict[str, Any],
    now: float,
    take_over: str,
) -> tuple[dict[str, Any] | None, str]:
    """Return the lock to write and a message; no lock means refused.

    :param held: the lock on the host, None where there is none.
    :param wanted: ``run`` (id, owner, purpose), ``generation``, ``lease_seconds``.
    :param take_over: reason for taking a lock whose deadline has not passed, or
        "". The controller gives one only for an owner that it knows to be gone,
        or where the operator said so.
    """
    lock = {
        "run": wanted["run"],
        "generation": wanted["generation"],
        "since": now,
        "deadline": now + wanted["lease_seconds"],
        "taken_over_from": None,
    }
    if held is None or held["run"]["id"] == wanted["run"]["id"]:
        return lock, ""
    left = held["deadline"] - now
    if left <= 0:
        why = "its deadline passed {0:.0f} s ago".format(-left)
    elif take_over:
        why = take_over
    else:
        return None, "{0}, since {1:.0f} s, for at most {2:.0f} s more".format(
            describe(held), now - held["since"], left
        )
    lock["taken_over_from"] = held["run"]
    return lock, "lock of {0} taken over: {1}".format(describe(held), why)


def renew(lock: dict[str, Any], lease_seconds: float, now: float) -> dict[str, Any]:
    """Return the lock with a deadline that lies ``lease_seconds`` ahead."""
    return dict(lock, deadline=now + lease_seconds)


def describe(lock: dict[str, Any]) -> str:
    """Name the holder of a lock for people."""
    run = lock["run"]
    return "{owner} ({purpose}, run {id})".format(**run)
