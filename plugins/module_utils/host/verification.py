# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slice of a verification on this host, and what it comes to: for ``verify`` and ``co_restart``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Callable

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _baseline, _profiles, _verify
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, machine, streams


def run_slice(
    cluster: str,
    members: list[dict[str, Any]],
    here: str,
    options: dict[str, Any],
    state: dict[str, Any],
    slice_seconds: float,
    parse_metrics: Callable[[str], Iterable[Any]],
) -> dict[str, Any]:
    """Go on with a verification; store its latencies when it is done and good.

    :param here: inventory name of this host.
    :return: ``outcome`` (waiting, ok, failed), ``message``, ``changed``, and ``state`` when
        waiting, else ``result`` as :func:`_verify.report` gives it.
    :raises files.FileError: where the stored latencies cannot be read or written.
    """

    async def go_on() -> tuple[str, str, dict[str, Any]]:
        key = streams.key_of(members, here, machine.api_key)
        reach = streams.reach(members, here, machine.local_url)
        async with streams.Streams(members, reach, key, parse_metrics) as host:
            return await _verify.run_slice(members, options, state, host, slice_seconds)

    outcome, words, after = asyncio.run(go_on())
    if outcome != _verify.DONE:
        return {"outcome": _verify.WAITING, "message": words, "state": after, "changed": False}
    return _conclude(cluster, members, options, after)


def of_plan(
    plan: dict[str, Any],
    here: str,
    state: dict[str, Any],
    slice_seconds: float,
    parse_metrics: Callable[[str], Iterable[Any]],
) -> dict[str, Any]:
    """Go on with the verification at the end of a co-restart; see :meth:`_steps.Host.verify`."""
    members = plan["members"]
    options = dict(plan["options"]["verify"], model=_profiles.model_of(members))
    if any(member["action"] == "none" for member in members):
        # What is known of these is what is deployed, which may not be what they run.
        options["baseline"] = "ignore"
    found = run_slice(plan["cluster"], members, here, options, state, slice_seconds, parse_metrics)
    if found["outcome"] == _verify.WAITING:
        return found
    return {"outcome": found["outcome"], "message": _verify.in_words(plan["cluster"], found["result"]), "state": {}}


def _conclude(
    cluster: str, members: list[dict[str, Any]], options: dict[str, Any], state: dict[str, Any]
) -> dict[str, Any]:
    stored = {} if options["baseline"] == "ignore" else files.baseline(cluster)
    revision = _baseline.revision_of(members)
    result = _verify.report(members, options, state, stored, revision)
    measured = result.pop("measured")
    changed = False
    if result["outcome"] == _verify.OK and options["baseline"] != "ignore":
        new = _baseline.update(stored, revision, measured, time.time(), options["baseline"] == "renew")
        changed = new != stored
        if changed:
            files.write_baseline(cluster, new)
    return {
        "outcome": result["outcome"],
        "message": "; ".join(result["failures"]),
        "result": result,
        "changed": changed,
    }
