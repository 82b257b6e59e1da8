# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test hosts themselves are as the other tests expect them."""

testinfra_hosts = ["ansible://all"]


def test_systemd_runs_the_host(host):
    assert host.check_output("ps -p 1 -o comm=") == "systemd"


def test_every_host_knows_the_others(host):
    names = host.ansible.get_variables()["groups"]["all"]
    for name in names:
        assert host.run(f"getent hosts {name}").rc == 0, name
