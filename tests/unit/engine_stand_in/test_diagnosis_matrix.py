# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnosis of stand-in clusters with all kinds of faults: expected against found.

``SGLANG_PD_DIAGNOSES=20`` sets how many runs of each kind there are; ``SGLANG_PD_DIAGNOSES_OF=name,name`` chooses
kinds, ``SGLANG_PD_DIAGNOSES_SEED`` another beginning, ``SGLANG_PD_DIAGNOSES_FILE`` where the matrix is written.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _diagnosis
from diagnosed_cluster import Cluster, matrix_of, places
from diagnosis_kinds import KINDS, Kind
from stand_in_processes import Stand, stand

RUNS = int(os.environ.get("SGLANG_PD_DIAGNOSES", "1"))
SEED = int(os.environ.get("SGLANG_PD_DIAGNOSES_SEED", "0"))
#: Kinds that are looked at at the same time: a look waits most of its time.
AT_A_TIME = int(os.environ.get("SGLANG_PD_DIAGNOSES_AT_A_TIME", "6"))
#: Share of right verdicts that is wanted.
RIGHT = 0.95


def runs_of(one: Kind, folder: Path, installed: dict[str, Path], clusters: list[Cluster]) -> list[dict[str, Any]]:
    """Return what was found in each run of a kind."""
    found = []
    cluster: Cluster | None = None
    with stand(folder, installed) as made:
        for turn in range(RUNS):
            number = random.Random(f"{one.name} {turn} {SEED}")
            began = time.monotonic()
            try:
                if cluster is None or not one.reversible or turn % 5 == 0:
                    if cluster is not None:
                        cluster.close()
                        clusters.remove(cluster)
                    cluster = new(one, turn, number, made)
                    clusters.append(cluster)
                    cluster.co_restart()
                cluster.number = number
                cluster.served(number.randint(1, 8))
                report = cluster.diagnose(**one.break_it(cluster))
                result = {"verdict": report["verdict"], "lines": _diagnosis.describe(report)}
                cluster.leave()
                for engine in cluster.engines.values():
                    engine.faults()
                for unit in cluster.units.values():
                    unit.notice()
                    if unit.state["active_state"] == "deactivating":
                        unit.state.update(active_state="active", sub_state="running")
            except Exception:  # one run that breaks off is a finding, and the others go on
                result = {"verdict": "broken off", "lines": traceback.format_exc().splitlines()}
                if cluster is not None:
                    cluster.close()
                    clusters.remove(cluster)
                    cluster = None
            seconds = time.monotonic() - began
            found.append({"kind": one.name, "turn": turn, "expected": one.expected, "seconds": seconds, **result})
        if cluster is not None:
            cluster.close()
            clusters.remove(cluster)
    return found


def new(one: Kind, turn: int, number: random.Random, made: Stand) -> Cluster:
    """Return a cluster of a kind, its processes not started yet."""
    cluster = Cluster(made, "{0}-{1}".format(one.name.replace("_", "-"), turn), number)
    cluster.make(number.choice(one.releases), **one.environment)
    cluster.flags["router"] = list(one.router)
    return cluster


def test_what_is_wrong_with_a_cluster_is_found(tmp_path: Path, installed: dict[str, Path]) -> None:
    wanted = os.environ.get("SGLANG_PD_DIAGNOSES_OF", "")
    kinds = [one for one in KINDS.values() if not wanted or one.name in wanted.split(",")]
    with places(tmp_path / "hosts") as clusters, ThreadPoolExecutor(AT_A_TIME) as pool:
        for one in kinds:
            (tmp_path / one.name).mkdir()
        tasks = [pool.submit(runs_of, one, tmp_path / one.name, installed, clusters) for one in kinds]
        judged = [result for task in tasks for result in task.result()]
    matrix = matrix_of(judged)
    wrong = [one for one in judged if one["verdict"] != one["expected"]]
    told = "\n\n".join("{kind}, run {turn}: {expected}".format(**one) + "\n" + "\n".join(one["lines"]) for one in wrong)
    if os.environ.get("SGLANG_PD_DIAGNOSES_FILE"):
        Path(os.environ["SGLANG_PD_DIAGNOSES_FILE"]).write_text(matrix + "\n\n" + told + "\n", encoding="utf-8")
    print(matrix + "\n\n" + told)
    broken_off = [one["kind"] for one in judged if one["verdict"] == "broken off"]
    assert not broken_off
    called_healthy = [one["kind"] for one in wrong if one["verdict"] == "healthy"]
    assert not called_healthy
    assert len(wrong) <= (1 - RIGHT) * len(judged)
