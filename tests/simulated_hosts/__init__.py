# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of simulated hosts for a real ``ansible-playbook``: many clusters, and no unit that takes its time.

The playbook, the actions and the modules are the collection's own; a module, once it has checked its
arguments, asks :class:`Hosts` instead of the machine that it runs on. Units, queues, ledgers and the
clock are those of the property tests (``tests/unit/property/world.py``), and the steps are walked by
the core itself. Time that units take passes at once: what is left is what Ansible takes.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _steps, _verify  # noqa: E402
from ansible_collections.inferops.sglang_pd.plugins.modules import cluster_lock  # noqa: E402
from property import roll_real, world  # noqa: E402
from property.roll_histories import start_all  # noqa: E402
from property.roll_process import LockFiles  # noqa: E402
from property.roll_world import Shape  # noqa: E402

#: The modules that look at their host or change it.
MODULES = ("member_info", "preflight", "settings_info", "verify_step", "cluster_lock", "co_restart_step")
MAIN = 'if __name__ == "__main__":'
#: What such a module does with its arguments.
ASKS = """import json, os, socket, time


class _Simulated(AnsibleModule):
    def __init__(self, **given):
        super().__init__(**given)
        with socket.socket(socket.AF_UNIX) as hosts:
            hosts.connect(os.environ["PD_SIMULATED_HOSTS"])
            asked = {"module": self._name.rsplit(".", 1)[-1], "host": os.environ["PD_SIMULATED_HOST"]}
            asked.update(arguments=self.params, cpu_seconds=time.process_time())
            hosts.sendall((json.dumps(asked) + "\\n").encode())
            self.exit_json(**json.loads(hosts.makefile().readline()))


AnsibleModule = _Simulated


"""


def collection_in(directory: Path) -> None:
    """Make a collection path in which the modules ask simulated hosts; all else is this checkout's."""
    top = directory / "ansible_collections" / "inferops" / "sglang_pd"
    modules = top / "plugins" / "modules"
    modules.mkdir(parents=True)
    for source, target in ((ROOT, top), (ROOT / "plugins", top / "plugins"), (ROOT / "plugins" / "modules", modules)):
        for path in source.iterdir():
            if not (target / path.name).exists() and not path.name.startswith("."):
                (target / path.name).symlink_to(path)
    for name in MODULES:
        path = modules / (name + ".py")
        text = path.read_text(encoding="utf-8")
        path.unlink()
        path.write_text(text.replace(MAIN, ASKS + MAIN), encoding="utf-8")


class Hosts:
    """All hosts of a fleet, behind a Unix socket; one question after the other.

    :param shapes: the clusters; all run well, and something new is deployed on each.
    """

    def __init__(self, shapes: list[Shape]):
        self.fleet: Any = roll_real.Fleet(shapes)
        start_all(self.fleet)
        #: CPU seconds of the modules that asked.
        self.cpu_seconds = 0.0
        self.calls = 0
        self._one_at_a_time = threading.Lock()
        for unit in self.fleet.world.units.values():
            unit.deployed += "b"

    def inventory(self) -> dict[str, Any]:
        """Return the fleet as an Ansible inventory."""
        groups = {group: {"hosts": dict.fromkeys(hosts)} for group, hosts in self.fleet.groups.items()}
        return {"all": {"children": groups, "hosts": self.fleet.variables}}

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what a module on a host finds."""
        with self._one_at_a_time:
            self.calls += 1
            self.cpu_seconds += asked["cpu_seconds"]
            found: dict[str, Any] = getattr(self, asked["module"])(asked["host"], asked["arguments"])
            return dict({"changed": False}, **found)

    def member_info(self, host: str, _given: dict[str, Any]) -> dict[str, Any]:
        """Do what the module of this name does."""
        found = self.fleet.member_info(host)
        return {key: found[key] for key in ("members", "locks", "rolls", "now")}

    def preflight(self, _host: str, _given: dict[str, Any]) -> dict[str, Any]:
        """Do what the module of this name does, without a problem."""
        return {"members": {}}

    def settings_info(self, _host: str, _given: dict[str, Any]) -> dict[str, Any]:
        """Do what the module of this name does, without a setting."""
        return {"members": {}}

    def verify_step(self, _host: str, given: dict[str, Any]) -> dict[str, Any]:
        """Do what the module of this name does; whether requests are served is worked out from what runs."""
        good = self.fleet.clusters[given["cluster"]].answers()
        failures = [] if good else ["requests were not served"]
        result = dict(EMPTY, outcome=_verify.OK if good else _verify.FAILED, failures=failures)
        return {"outcome": result["outcome"], "message": "", "state": {}, "result": result}

    def cluster_lock(self, host: str, given: dict[str, Any]) -> dict[str, Any]:
        """Call the module's own functions."""
        do = {"reserved": "reserve", "renewed": "renew", "released": "release"}[given["state"]]
        stage: Any = SimpleNamespace(fleet=self.fleet, moment=lambda: None)
        with mock.patch.object(cluster_lock, "files", LockFiles(stage, host)):
            return dict(getattr(cluster_lock, do)(given, True))

    def co_restart_step(self, host: str, given: dict[str, Any]) -> dict[str, Any]:
        """Walk a slice of a step by the core."""
        run = given["plan"]["run"]["id"]
        machine: Any = world.SimulatedHost(self.fleet.world, host, run, world.Listener())
        return _steps.run(
            given["step"], given["plan"], host, given["evidence"], given["state"], machine, given["slice_seconds"]
        )


#: A verification of which only the outcome is of interest.
EMPTY: dict[str, Any] = {
    "profile": "standard",
    "revision": "",
    "parts": [],
    "series": {},
    "recovery": {},
    "regressions": [],
}


class Server(socketserver.ThreadingUnixStreamServer):
    """Answers modules."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, hosts: Hosts):
        self.hosts = hosts
        super().__init__(path, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        """Answer one module."""
        asked = json.loads(self.rfile.readline())
        self.wfile.write((json.dumps(self.server.hosts.answer(asked)) + "\n").encode())


def environment(directory: Path, socket: str) -> dict[str, str]:
    """Return the environment in which Ansible talks to the hosts behind a socket."""
    return {
        **os.environ,
        "PD_SIMULATED_HOSTS": socket,
        "PYTHONPATH": str(directory),
        "ANSIBLE_COLLECTIONS_PATH": str(directory),
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection"),
        "ANSIBLE_PIPELINING": "true",
    }
