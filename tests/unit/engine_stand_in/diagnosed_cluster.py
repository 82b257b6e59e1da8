# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of processes that the real collection code looks at.

All that HTTP and ``/proc`` show is real. What systemd and the roles would have written is noted here, from what
was really done to the processes: starts, ends and their ways, ledgers, the files of members.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _bundle,
    _diagnosis,
    _facts,
    _ledger,
    _observations,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, http, look, processes
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Systemd
from prometheus_client.parser import text_string_to_metric_families
from stand_in_processes import MODEL, PATIENCE_SECONDS, Call, Engine, Process, Stand, chat, free_port, wait_until

#: The engine's and the rule's time for gauges of an idle engine (30 s and 35 s), shortened alike.
IDLE_METRICS_SECONDS, STALE_GAUGE_SECONDS = 3.0, 3.5
#: In place of 5 s: only for answers that never come.
ANSWER_SECONDS = 3
OPTIONS = {
    "window_seconds": 6,
    "interval_seconds": 1.5,
    "health_timeout_seconds": 20,
    "nudge": False,
    "nudge_limit_seconds": 4,
}
CHAT = "/v1/chat/completions"
HOUR = 3600.0


class Unit:
    """One member: its process, and what systemd would know of it."""

    def __init__(self, role: str, name: str, host: str) -> None:
        self.role = role
        self.name = name
        self.host = host
        self.process: Process | None = None
        self.member: dict[str, Any] = {}
        self.invocation = ""
        self.started_at: float | None = None
        self.state = {"active_state": "inactive", "sub_state": "dead", "result": "success", "exit_status": 0}
        self.restarts = 0
        self.starts: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []

    def started(self, process: Process, invocation: str) -> None:
        """Note a start."""
        self.process, self.invocation, self.started_at = process, invocation, time.time()
        self.state = {"active_state": "active", "sub_state": "running", "result": "success", "exit_status": 0}
        self.starts.append({"at": self.started_at, "invocation_id": invocation})

    def stopped(self) -> None:
        """Note an end that was asked for: systemd logs no such end by itself."""
        self.state = {"active_state": "inactive", "sub_state": "dead", "result": "success", "exit_status": 0}

    def notice(self) -> None:
        """Note an end that nobody asked for."""
        if self.state["active_state"] != "active" or self.process is None or self.process.running:
            return
        code = self.process.popen.returncode
        how, result = ("signal", "signal") if code < 0 else ("exit status", "exit-code")
        if code == 0:
            self.stopped()
            return
        self.ends.append({"at": time.time(), "how": f"{how} {abs(code)}"})
        self.state = {"active_state": "failed", "sub_state": "failed", "result": result, "exit_status": abs(code)}

    def shown(self) -> dict[str, Any]:
        """Return the unit as :meth:`Systemd.unit` does."""
        running = self.process is not None and self.process.running
        return {
            "load_state": "loaded",
            **self.state,
            "main_pid": self.process.popen.pid if running and self.process else 0,
            "invocation_id": self.invocation,
            "restarts": self.restarts,
            "restart_policy": "no",
            "needs_daemon_reload": "no",
            "unit_file_state": "enabled",
            "job": 0,
            "started_at": self.started_at,
        }

    def age(self, seconds: float) -> None:
        """Let everything that is noted be that much longer ago."""
        if self.started_at is not None:
            self.started_at -= seconds
        for one in (*self.starts, *self.ends):
            one["at"] -= seconds


class Told(Systemd):
    """The systemd of one host of a cluster."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        super().__init__(lambda command: (1, "", ""))
        self._cluster = cluster
        self._host = host

    def unit(self, name: str) -> dict[str, Any]:
        """Return a unit's state."""
        return self._cluster.named(name).shown()

    def history(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Return starts and unplanned ends."""
        unit = self._cluster.named(name)
        return {"starts": [dict(one) for one in unit.starts], "ends": [dict(one) for one in unit.ends]}

    def journal(self, name: str, since: float, lines: int) -> list[str]:
        """Return what the process wrote last."""
        process = self._cluster.named(name).process
        return process.output().splitlines()[-lines:] if process else []

    def booted_at(self) -> float | None:
        """Return when the host was started."""
        return self._cluster.booted_at[self._host]


class GaugesOnly(http.Client):
    """Asks engines as if they had no ``/v1/loads``: the answer is the engine's own 404."""

    def request(self, method: str, url: str, *given: Any, **more: Any) -> http.Answer:
        """Ask for another path in place of the live numbers."""
        return super().request(method, url.replace("/v1/loads", "/v1/no_loads"), *given, **more)


class Cluster:
    """A prefill, a decode and a router (smg), on one host or on three, all on loopback."""

    def __init__(self, stand: Stand, name: str, number: random.Random) -> None:
        self.stand = stand
        self.name = name
        self.number = number
        hosts = ("box", "box", "box") if number.random() < 0.5 else ("p", "d", "r")
        roles = ("prefill", "decode", "router")
        self.units = {
            role: Unit(role, f"sglang-{name}-{role}.service", f"{name}-{host}") for role, host in zip(roles, hosts)
        }
        long_ago = time.time() - 90 * 24 * HOUR
        self.booted_at = {unit.host: long_ago for unit in self.units.values()}
        self.unreachable: set[str] = set()
        self.generation = 0
        self.release = ""
        self.environment: dict[str, str] = {}
        self.flags: dict[str, list[str]] = {}
        self.gpus: dict[str, str] = {}
        self.engines: dict[str, Engine] = {}
        self.calls: list[Call] = []
        self.others: list[Process] = []
        self.orphans: list[int] = []
        self._background: list[tuple[threading.Event, threading.Thread]] = []
        self.router_port, self.metrics_port = free_port(), free_port()

    # -- life ------------------------------------------------------------------------------

    def named(self, unit: str) -> Unit:
        """Return a unit by its name."""
        return next(one for one in self.units.values() if one.name == unit)

    @property
    def prefill(self) -> Engine:
        """Return the prefill's process."""
        return self.engines["prefill"]

    @property
    def decode(self) -> Engine:
        """Return the decode's process."""
        return self.engines["decode"]

    @property
    def url(self) -> str:
        """Return the router's address."""
        return f"http://127.0.0.1:{self.router_port}"

    def make(self, release: str, **environment: str) -> None:
        """Deploy engines of a release that were never started."""
        self.release = release
        self.environment = {"STAND_IN_IDLE_METRICS_SECONDS": str(IDLE_METRICS_SECONDS), **environment}
        self.engines = {role: self.stand.engine(role, release=release) for role in ("prefill", "decode")}

    def deploy(self, role: str) -> None:
        """Write the file of a member as the roles do: what runs after its next start."""
        unit = self.units[role]
        engine = self.engines.get(role)
        port = engine.port if engine else self.router_port
        # What begins otherwise shapes the stand-in, and no engine has it.
        carried = {name: value for name, value in self.environment.items() if engine and name.startswith("SGLANG_")}
        unit.member = {
            "cluster": self.name,
            "role": role,
            "unit": unit.name,
            "host": unit.host,
            "engine": f"{role} {unit.host}",
            "nnodes": 1,
            "node_rank": 0,
            "dist_init_addr": "",
            "address": "127.0.0.1",
            "listen": "127.0.0.1",
            "port": port,
            "bootstrap_port": engine.bootstrap_port if engine and role == "prefill" else None,
            "metrics_port": self.metrics_port if role == "router" else None,
            "url": f"http://127.0.0.1:{port}",
            "gpus": [],
            "settings": {"model_path": MODEL},
            "version": self.release,
            "exec_start": self._command(role),
            "environment": carried,
            "private_names": [],
            "secret_names": [],
            "configuration": "deployed",
            "stop_limit_seconds": 90,
            "healthy_limit_seconds": 900,
        }
        files.write_json(f"{files.MEMBERS}/{unit.name}.json", unit.member)

    def _command(self, role: str) -> list[str]:
        if role == "router":
            return [
                *[sys.executable, "-m", "smg.launch_router", "--pd-disaggregation"],
                *["--prefill", self.prefill.url(""), str(self.prefill.bootstrap_port)],
                *["--decode", self.decode.url(""), "--host", "127.0.0.1", "--port", str(self.router_port)],
                *["--policy", "round_robin", "--prometheus-host", "127.0.0.1"],
                *["--prometheus-port", str(self.metrics_port), "--worker-startup-check-interval", "1"],
                *["--retry-max-retries", "1", *self.flags.get(role, [])],
            ]
        engine = self.engines[role]
        engine.flags = tuple(self.flags.get(role, []))
        return engine.command()

    def start(self, role: str, deploy: bool = True) -> None:
        """Start a unit, and do not wait.

        :param deploy: False for a start by somebody who has changed the unit behind the back of the roles.
        """
        unit = self.units[role]
        command = self._command(role)
        if deploy:
            self.deploy(role)
        invocation = uuid.uuid4().hex
        if role == "router":
            assert importlib.util.find_spec("smg"), "smg is missing: see requirements/dev.in"
            log = self.stand.folder / f"{unit.name}.log"
            process = Process(command, {**os.environ, "INVOCATION_ID": invocation}, log)
            self.stand.processes.append(process)
        else:
            process = self.engines[role].start(INVOCATION_ID=invocation, **self.environment)
        unit.started(process, invocation)
        running = Path(files.RUNNING.format(unit=unit.name))
        running.parent.mkdir(parents=True, exist_ok=True)
        running.write_text(f"{invocation} {unit.member['configuration']}\n", encoding="ascii")
        files.write_json(files.STARTED_WITH.format(unit=unit.name), unit.member)

    def stop(self, role: str, number: int = signal.SIGTERM) -> None:
        """Stop a unit as systemctl does, or let a signal end it."""
        unit = self.units[role]
        if unit.process is None or not unit.process.running:
            unit.notice()
            return
        unit.process.signal(number)
        unit.process.wait()
        if number == signal.SIGTERM:
            unit.stopped()
        else:
            unit.notice()

    def restart(self, role: str, number: int = signal.SIGTERM) -> None:
        """Restart one unit alone, by hand, and wait until it is healthy."""
        self.stop(role, number)
        self.start(role)
        self.wait_healthy(role)

    def wait_healthy(self, role: str) -> None:
        """Wait until a unit is healthy."""
        if role != "router":
            self.engines[role].healthy()
            return
        router = self.units[role].process
        assert router is not None

        def ready() -> bool:
            assert router.running, router.output()
            with contextlib.suppress(requests.RequestException):
                return requests.get(f"{self.url}/readiness", timeout=PATIENCE_SECONDS).status_code == 200
            return False

        wait_until(ready, "router ready")

    def co_restart(self) -> None:
        """Restart all in the only safe order, and note it in the ledgers as the collection does."""
        for role in reversed(self.units):
            self.stop(role, signal.SIGTERM)
        self.generation += 1
        for role, unit in self.units.items():
            self.start(role)
            self.wait_healthy(role)
            unit.restarts = 0
            content = dict(
                _ledger.empty(unit.name),
                generation=self.generation,
                incarnation=unit.invocation,
                phase=_ledger.HEALTHY,
                outcome=_ledger.OK,
            )
            files.write_ledger(content)

    def age(self, seconds: float) -> None:
        """Let time pass in what is noted, as in the life of a cluster between two restarts."""
        for unit in self.units.values():
            unit.age(seconds)

    # -- requests --------------------------------------------------------------------------

    def call(self, **more: Any) -> Call:
        """Send a request through the router, and do not wait."""
        words = " ".join(str(self.number.random()) for _ in range(self.number.randint(1, 8)))
        one = Call(self.url + CHAT, chat(words, **{"tokens": self.number.randint(8, 40), **more}))
        self.calls.append(one)
        return one

    def served(self, count: int) -> None:
        """Let so many requests be served, some of them at the same time."""
        for one in [self.call() for _ in range(count)]:
            assert one.done().content

    def workers(self) -> list[dict[str, Any]]:
        """Return the router's workers."""
        answer = requests.get(f"{self.url}/workers", timeout=PATIENCE_SECONDS)
        return list(answer.json()["workers"])

    def remove_worker(self, worker: str) -> None:
        """Take a worker from the router, and wait until it is gone."""
        requests.delete(f"{self.url}/workers/{worker}", timeout=PATIENCE_SECONDS).raise_for_status()
        wait_until(lambda: all(one["id"] != worker for one in self.workers()), "worker gone")

    def clients(
        self, count: int, patience_seconds: float = PATIENCE_SECONDS, within_seconds: float = 0.0, **more: Any
    ) -> None:
        """Let clients send requests one after the other until the end of the run.

        :param within_seconds: in which they begin, each at its own moment.
        """
        for _ in range(count):
            over = threading.Event()
            seed = self.number.random()

            def work(over: threading.Event = over, seed: float = seed) -> None:
                over.wait(seed * within_seconds)
                while not over.is_set():
                    with contextlib.suppress(OSError):
                        one = Call(self.url + CHAT, chat(f"of {seed}", **{"tokens": 20, **more}))
                        deadline = time.monotonic() + patience_seconds
                        while one.is_alive() and not over.is_set() and time.monotonic() < deadline:
                            one.join(0.05)
                        if one.is_alive():
                            one.leave()
                    over.wait(0.05)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._background.append((over, thread))

    def leave(self) -> None:
        """Let all clients go."""
        for over, _thread in self._background:
            over.set()
        for _over, thread in self._background:
            thread.join(PATIENCE_SECONDS)
        self._background = []
        for one in self.calls:
            if one.is_alive():
                one.leave()
        self.calls = []

    def recover(self) -> None:
        """Take clients and faults away: those that are reversible leave a cluster as good as new."""
        self.leave()
        for engine in self.engines.values():
            engine.faults()
        for unit in self.units.values():
            unit.notice()
            if unit.state["active_state"] == "deactivating":
                unit.state.update(active_state="active", sub_state="running")

    def close(self) -> None:
        """End everything."""
        self.leave()
        for pid in self.orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in [*self.others, *[unit.process for unit in self.units.values() if unit.process]]:
            process.kill()

    # -- the look --------------------------------------------------------------------------

    def owner(self, pid: int) -> str:
        """Return the unit that a process belongs to, "" for none."""
        while pid > 1:
            for unit in self.units.values():
                if unit.process is not None and unit.process.popen.pid == pid:
                    return unit.name
            try:
                pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                return ""
        return ""

    def items(self, **options: Any) -> list[dict[str, Any]]:
        """Return what the hosts see, each by a look of its own, all at the same time."""
        for unit in self.units.values():
            unit.notice()
        gauges_only = options.pop("gauges_only", False)
        given = {**OPTIONS, "clusters": [self.name], "bodies": self.number.random() < 0.5, **options}
        known = [unit.member for unit in self.units.values()]
        found: dict[str, list[dict[str, Any]]] = {}
        threads = []
        for host in {unit.host for unit in self.units.values()} - self.unreachable:
            one = look.Look(self._run_of(host), text_string_to_metric_families, given, known)
            one._members = [member for member in one._members if member["host"] == host]
            one._systemd = Told(self, host)
            if gauges_only:
                one._client = GaugesOnly()

            def see(host: str = host, one: look.Look = one) -> None:
                found[host] = [dict(item, host=host) for item in one.items()]

            threads.append(threading.Thread(target=see))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len(threads), "a look did not come to its end"
        items = [item for of_host in found.values() for item in of_host]
        for host in self.unreachable:
            why = {"why": "Failed to connect to the host via ssh"}
            items.append(_bundle.item(_bundle.UNREACHABLE, why, host, at=time.time()))
        return items

    def _run_of(self, host: str) -> Callable[[list[str]], tuple[int, str, str]]:
        def run(command: list[str]) -> tuple[int, str, str]:
            if command[0] == "nvidia-smi" and host in self.gpus:
                return 0, self.gpus[host], ""
            raise FileNotFoundError(command[0])

        return run

    def diagnose(self, **options: Any) -> dict[str, Any]:
        """Return the diagnosis of what is seen now: of the items, or of a bundle that they were written to."""
        items = self.items(**options)
        self.number.shuffle(items)
        if all(one["body"] for one in items if one["endpoint"] == "metrics" and one["status"] == 200):
            (items,) = _bundle.read(dict(_bundle.file_of(one, []) for one in items)).values()
        (observation,) = _observations.clusters(items, text_string_to_metric_families).values()
        return _diagnosis.diagnose(observation)


@contextlib.contextmanager
def places(folder: Path) -> Iterator[list[Cluster]]:
    """Put the files of hosts into a folder, and let each process belong to the unit of its cluster.

    :return: the clusters; add yours.
    """
    clusters: list[Cluster] = []

    def unit_of(pid: int) -> str:
        return next((name for name in (one.owner(pid) for one in list(clusters)) if name), "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MEMBERS", str(folder / "members"))
        patch.setattr(files, "LEDGERS", str(folder / "ledgers"))
        patch.setattr(files, "RUNNING", str(folder / "run" / "{unit}" / "configuration"))
        patch.setattr(files, "STARTED_WITH", str(folder / "run" / "{unit}" / "member.json"))
        patch.setattr(files, "ENVIRONMENT", str(folder / "{unit}.env"))
        patch.setattr(processes, "_unit", unit_of)
        patch.setattr(look, "SAMPLE_SECONDS", ANSWER_SECONDS)
        patch.setattr(look, "QUICK_SECONDS", ANSWER_SECONDS)
        patch.setattr(_facts, "STALE_GAUGE_SECONDS", STALE_GAUGE_SECONDS)
        yield clusters


def matrix_of(judged: list[dict[str, Any]]) -> str:
    """Return how often each kind was found to be what."""
    found = sorted({one["verdict"] for one in judged})
    kinds = list(dict.fromkeys(one["kind"] for one in judged))
    wide = max(len(kind) for kind in kinds)
    lines = ["{0:{1}}  right  found".format("kind", wide)]
    for kind in kinds:
        of_kind = [one for one in judged if one["kind"] == kind]
        right = sum(1 for one in of_kind if one["verdict"] == one["expected"])
        counts = {name: sum(1 for one in of_kind if one["verdict"] == name) for name in found}
        words = ", ".join("{0} {1}".format(name, count) for name, count in counts.items() if count)
        lines.append("{0:{1}}  {2:>2}/{3:<2}  {4}".format(kind, wide, right, len(of_kind), words))
    right = sum(1 for one in judged if one["verdict"] == one["expected"])
    lines.append("{0} of {1} right: {2:.1f} %".format(right, len(judged), 100 * right / len(judged)))
    return "\n".join(lines)
