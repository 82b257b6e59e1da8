# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deploy and co-restart of the real engine, on one box and over two hosts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster import Cluster
from conftest import PLAYBOOK_LIMIT_SECONDS

BOTH = ["pair", "alone"]


@pytest.fixture
def clusters(cluster: Callable[[str], Cluster]) -> list[Cluster]:
    """The cluster over two hosts and the one on one box."""
    return [cluster(name) for name in BOTH]


def test_deploy_starts_in_order_and_serves_golden_answers(
    clusters: list[Cluster], assert_golden: Callable[[Cluster], None]
) -> None:
    for one in clusters:
        one.assert_started_in_order()
        assert {member.ledger["outcome"] for member in one.members} == {"ok"}
        assert_golden(one)


def test_co_restart_keeps_the_golden_answers_and_serves_at_once(
    clusters: list[Cluster],
    run_playbook: Callable[..., object],
    assert_golden: Callable[[Cluster], None],
) -> None:
    before = [one.incarnations() for one in clusters]
    done = run_playbook(
        "co_restart", extra_vars={"pd_co_restart_clusters": BOTH}, timeout_seconds=PLAYBOOK_LIMIT_SECONDS
    )
    assert done.rc == 0, done
    assert done.stdout.count("8/8 requests answered") == len(BOTH), done
    for one, old in zip(clusters, before):
        router = one.one("router")
        # With the router's own defaults (a look at its workers every 60 s) it would refuse
        # requests for minutes now.
        assert router.get("/readiness", "--output /dev/null --write-out '%{http_code}'") == "200"
        assert_golden(one)
        new = one.incarnations()
        assert all(new[name] != old[name] for name in old), "every member is a new incarnation"
        one.assert_started_in_order()


def test_R2_decode_alone_is_refused(
    clusters: list[Cluster],
    run_playbook: Callable[..., object],
    assert_golden: Callable[[Cluster], None],
) -> None:
    pair = clusters[0]
    before = pair.incarnations()
    done = run_playbook(
        "co_restart", extra_vars={"pd_co_restart_clusters": ["pair"], "pd_co_restart_stages": ["decode"]}
    )
    assert done.rc != 0
    assert "is refused: transfers between it and engines that keep running fail silently" in done.stdout, done
    assert "ansible-playbook inferops.sglang_pd.co_restart -e pd_co_restart_clusters=pair" in done.stdout, done
    assert pair.incarnations() == before
    assert_golden(pair)
