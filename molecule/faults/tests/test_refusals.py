# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused before anything is stopped."""

from __future__ import annotations

import pytest
from conftest import wait_for


@pytest.fixture
def nothing_happens(main):
    """Assert that no unit of main was touched."""
    before = main.incarnations()
    yield
    assert main.incarnations() == before
    main.assert_serves(requests=2)


@pytest.mark.parametrize("limit", ["box2", "box1", "pd_decode"])
def test_R2_a_limit_that_cuts_the_cluster_is_refused(main, co_restart, nothing_happens, limit):
    done = co_restart(limit=limit)
    assert done.rc != 0
    missing = "box1" if limit != "box1" else "box2"
    assert f"cluster main is only partly in this run: {missing} left out (--limit" in done.stdout, done
    assert "rule: whole clusters only" in done.stdout


def test_an_unreachable_member_is_named(main, co_restart, without_network):
    before = main.incarnations()
    with without_network("box2"):
        done = co_restart()
    assert done.rc != 0
    assert "refused, nothing was stopped" in done.stdout, done
    assert "host box2 of cluster main cannot be asked" in done.stdout, done
    assert main.incarnations() == before


def test_an_unknown_cluster_is_named(main, co_restart, nothing_happens):
    done = co_restart(clusters=["mian"])
    assert done.rc != 0
    assert "Unknown cluster mian; the inventory has main, other" in done.stdout, done


def test_a_cluster_of_the_inventory_that_is_not_deployed(run_playbook, nothing_happens):
    engines = [{"cluster": "main"}, {"cluster": "ghost", "port": 32000, "bootstrap_port": 9997}]
    done = run_playbook(
        "co_restart",
        extra_vars={
            "pd_co_restart_clusters": ["ghost"],
            "pd_cluster": ["main", "other", "ghost"],
            "pd_prefill_engines": engines,
            "pd_decode_engines": engines,
            "pd_router_routers": [{"cluster": "ghost", "port": 32001, "metrics_port": 29009}],
        },
    )
    assert done.rc != 0
    for role, host in (("prefill", "box1"), ("decode", "box2"), ("router", "box1")):
        words = f"no {role} of cluster ghost is deployed on {host}: run inferops.sglang_pd.deploy"
        assert words in done.stdout, done


def test_R12_two_prefills_with_one_bootstrap_port_are_refused(main, run_playbook, nothing_happens):
    engines = [{"cluster": "main"}, {"cluster": "other", "port": 31000}]
    done = run_playbook("deploy", extra_vars={"pd_prefill_engines": engines})
    assert done.rc != 0
    assert "port 8998 of sglang-other-prefill.service (pd_prefill_bootstrap_port) is already that of" in done.stdout
    assert "host box1" in done.stdout and "rule: a port once per host" in done.stdout


@pytest.fixture
def squatter(main):
    """Processes of somebody else that listen on a port of box1."""
    box = main.one("prefill").on
    units: list[str] = []

    def listen(port: int) -> int:
        unit = f"squatter-{port}"
        units.append(unit)
        box.check_output(
            f"systemd-run --quiet --scope --unit {unit} setsid python3 -m http.server {port} >/dev/null 2>&1 &"
        )
        found = wait_for(
            "the squatter listens", lambda: box.run(f"ss -ltnpH 'sport = :{port}'").stdout.partition("http.server")[0]
        )
        return int(found.partition("pid=")[2].partition(",")[0])

    yield listen
    for unit in units:
        box.run(f"systemctl stop {unit}.scope")


@pytest.mark.parametrize("port", [30000, 8998])
def test_R11_a_port_held_by_an_orphan_is_found_before_anything_is_stopped(main, co_restart, squatter, port):
    """The prefill was stopped, and something that it left behind keeps its port."""
    prefill = main.one("prefill")
    prefill.systemctl("stop")
    pid = squatter(port)
    before = main.incarnations("decode", "router")
    done = co_restart()
    assert done.rc != 0
    assert "refused, nothing was stopped" in done.stdout, done
    assert (
        f"port {port} of sglang-main-prefill.service is held by pid {pid} (python3 -m http.server {port})"
        in done.stdout
    )
    assert "end that process" in done.stdout
    assert main.incarnations("decode", "router") == before
    assert prefill.on.run(f"kill -0 {pid}").rc == 0, "never killed by us"
