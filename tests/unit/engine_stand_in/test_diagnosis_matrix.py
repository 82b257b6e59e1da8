# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnosis of stand-in clusters with all kinds of faults: expected against found.

``SGLANG_PD_DIAGNOSES=20`` sets how many runs of each kind there are; ``SGLANG_PD_DIAGNOSES_OF=name,name`` chooses
kinds, ``SGLANG_PD_DIAGNOSES_SEED`` another beginning, ``SGLANG_PD_DIAGNOSES_AT_A_TIME`` how many kinds are played at
the same time, ``SGLANG_PD_DIAGNOSES_FILE`` where the matrix is written.
"""

from __future__ import annotations

import os
import random
import threading
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
#: Verdicts on clusters that serve, if slowly: to call one of these healthy is wrong, but leaves nobody without service.
SERVES = ("capacity",)
#: Runs of a cluster that is as good as new after each.
RUNS_OF_A_CLUSTER = 5
#: Share of right verdicts that is wanted.
RIGHT = 0.95
#: In place of the verdict of a run that came to none.
BROKEN_OFF = "broken off"


class Judged:
    """What was found in each run; written down after each, so that a matrix that is cut short is one, too."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add(self, **run: Any) -> None:
        """Take the result of a run."""
        with self._lock:
            self.runs.append(run)
            if os.environ.get("SGLANG_PD_DIAGNOSES_FILE"):
                Path(os.environ["SGLANG_PD_DIAGNOSES_FILE"]).write_text(self.words(), encoding="utf-8")

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """Return the runs in which something else was found than was done."""
        return [one for one in self.runs if one["verdict"] != one["expected"]]

    def words(self) -> str:
        """Return the matrix, and the whole diagnosis of what was judged wrong."""
        told = ["{kind}, run {turn}: {expected}".format(**one) + "\n" + "\n".join(one["lines"]) for one in self.wrong]
        return "\n\n".join([matrix_of(self.runs), *told]) + "\n"


def play(one: Kind, folder: Path, installed: dict[str, Path], clusters: list[Cluster], judged: Judged) -> None:
    """Play the runs of a kind.

    :param clusters: those whose processes are known to the looks, see :func:`places`.
    """
    cluster: Cluster | None = None
    with stand(folder, installed) as made:
        for turn in range(RUNS):
            number = random.Random(f"{one.name} {turn} {SEED}")
            try:
                if cluster is None or not one.reversible or turn % RUNS_OF_A_CLUSTER == 0:
                    end(cluster, clusters)
                    cluster = new(one, turn, number, made)
                    clusters.append(cluster)
                    cluster.co_restart()
                cluster.number = number
                cluster.served(number.randint(1, 8))
                report = cluster.diagnose(**one.break_it(cluster))
                result = {"verdict": report["verdict"], "lines": _diagnosis.describe(report)}
                cluster.recover()
            except Exception:  # one run that breaks off is a finding, and the others go on
                result = {"verdict": BROKEN_OFF, "lines": traceback.format_exc().splitlines()}
                end(cluster, clusters)
                cluster = None
            judged.add(kind=one.name, turn=turn, expected=one.expected, **result)
        end(cluster, clusters)


def end(cluster: Cluster | None, clusters: list[Cluster]) -> None:
    """End a cluster, where there is one."""
    if cluster is not None:
        cluster.close()
        clusters.remove(cluster)


def new(one: Kind, turn: int, number: random.Random, made: Stand) -> Cluster:
    """Return a cluster of a kind, its processes not started yet."""
    cluster = Cluster(made, "{0}-{1}".format(one.name.replace("_", "-"), turn), number)
    cluster.make(number.choice(one.releases), **one.environment)
    cluster.flags["router"] = list(one.router)
    return cluster


def test_what_is_wrong_with_a_cluster_is_found(tmp_path: Path, installed: dict[str, Path]) -> None:
    wanted = os.environ.get("SGLANG_PD_DIAGNOSES_OF", "")
    kinds = [one for one in KINDS.values() if not wanted or one.name in wanted.split(",")]
    judged = Judged()
    with places(tmp_path / "hosts") as clusters, ThreadPoolExecutor(AT_A_TIME) as pool:
        for one in kinds:
            (tmp_path / one.name).mkdir()
        tasks = [pool.submit(play, one, tmp_path / one.name, installed, clusters, judged) for one in kinds]
        for task in tasks:
            task.result()
    print(judged.words())
    broken_off = [one["kind"] for one in judged.wrong if one["verdict"] == BROKEN_OFF]
    assert not broken_off
    called_healthy = [
        one["kind"] for one in judged.wrong if one["verdict"] == "healthy" and one["expected"] not in SERVES
    ]
    assert not called_healthy
    # Of a single run of each kind, one look that came at a bad moment would be half of what is allowed.
    assert len(judged.wrong) <= max(2, (1 - RIGHT) * len(judged.runs))
