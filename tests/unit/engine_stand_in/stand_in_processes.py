# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts stand-in engines and real routers as processes on loopback."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests

MODEL = "/models/tiny"
#: Nothing here takes this long; it only turns a hang into a failure.
PATIENCE_SECONDS = 60


#: Ports below those that Linux gives to connections: one of these may be taken before an engine is started again.
PORTS = range(10000, 32768)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(holds: Callable[[], Any], what: str) -> Any:
    """Poll until the condition holds and return its value."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        value = holds()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"did not happen: {what}")


class Process:
    """A process that is ended with the test."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(command, env=env, stdout=out, stderr=out)

    @property
    def running(self) -> bool:
        """Tell whether the process runs."""
        return self.popen.poll() is None

    def output(self) -> str:
        """Return what it wrote."""
        return self.log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.popen.send_signal(number)

    def wait(self) -> int:
        """Return the exit code once ended."""
        return self.popen.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        """End it at once."""
        if self.running:
            self.popen.kill()
        self.popen.wait()


class Engine(Process):
    """A stand-in engine."""

    def __init__(self, stand: Stand, release: str, role: str, flags: tuple[str, ...]) -> None:
        self.stand = stand
        self.release = release
        self.role = role
        self.port = free_port()
        self.bootstrap_port = free_port()
        self.flags = flags
        self.env: dict[str, str] = {}
        self.faults_file = stand.faults / f"{self.port}.json"

    def command(self) -> list[str]:
        """Return the command that starts it."""
        command = [sys.executable, "-m", "sglang.launch_server"]
        command += ["--model-path", MODEL, "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--enable-metrics"]
        if self.role != "null":
            command += ["--disaggregation-mode", self.role]
            command += ["--disaggregation-transfer-backend", "nixl"]
        if self.role == "prefill":
            command += ["--disaggregation-bootstrap-port", str(self.bootstrap_port)]
        return [*command, *self.flags]

    def start(self, **env: str) -> Engine:
        """Start the process; the same ports in every incarnation."""
        self.env.update(env)
        environ = {
            **os.environ,
            "PYTHONPATH": str(self.stand.installed[self.release]),
            "STAND_IN_FAULTS_DIR": str(self.stand.faults),
            "STAND_IN_STARTUP_SECONDS": "0",
            "STAND_IN_WARMUP_SECONDS": "0",
            "STAND_IN_HEALTH_SECONDS": "0",
            **self.env,
        }
        log = self.stand.folder / f"{self.role}-{self.port}.log"
        super().__init__(self.command(), environ, log)
        self.stand.processes.append(self)
        return self

    def faults(self, **faults: Any) -> None:
        """Set the faults of this engine, all of them at once."""
        partial = self.faults_file.with_suffix(".new")
        partial.write_text(json.dumps(faults))
        partial.replace(self.faults_file)

    def env_marker(self) -> str:
        """Return an environment entry that only this stand's processes have."""
        return f"STAND_IN_FAULTS_DIR={self.stand.faults}"

    def url(self, path: str) -> str:
        """Return the address of an endpoint."""
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str, **options: Any) -> requests.Response:
        """Ask an endpoint."""
        return requests.get(self.url(path), timeout=PATIENCE_SECONDS, **options)

    def status(self, path: str = "/health") -> int | None:
        """Return an endpoint's status code, None when nobody listens."""
        try:
            return self.get(path).status_code
        except requests.ConnectionError:
            return None

    def healthy(self) -> Engine:
        """Wait until healthy."""
        wait_until(lambda: self.status() == 200 or not self.running, f"{self.role} healthy or ended")
        assert self.running, self.output()
        return self

    def restart(self, number: int = signal.SIGTERM, **env: str) -> Engine:
        """Stop with a signal, start again and wait until healthy."""
        self.signal(number)
        self.wait()
        return self.start(**env).healthy()

    def queues(self) -> dict[str, int]:
        """Return the live PD queues that are not empty."""
        load = self.get("/v1/loads?include=disagg").json()["loads"][0]
        named = {"running": load["num_running_reqs"], **load["disaggregation"]}
        return {k: v for k, v in named.items() if isinstance(v, int) and v}

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the samples of a metric."""
        from prometheus_client.parser import text_string_to_metric_families

        text = self.get("/metrics").text
        return [
            (sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def value(self, name: str) -> float | None:
        """Return the value of a metric's only series, None when it does not exist."""
        samples = self.samples(name)
        assert len(samples) <= 1, samples
        return samples[0][1] if samples else None


class Call(threading.Thread):
    """A request in the background, that its client may leave."""

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._body = body
        self._socket: socket.socket | None = None
        self.response: dict[str, Any] | None = None
        self.status = 0
        self._left = threading.Event()
        self._ready = threading.Event()
        self.start()

    def run(self) -> None:
        """Send by hand, so that leaving closes the connection at once."""
        host, port = self._url.split("/")[2].split(":")
        path = "/" + self._url.split("/", 3)[3]
        data = json.dumps(self._body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        self._socket = socket.create_connection((host, int(port)), PATIENCE_SECONDS)
        self._socket.sendall(head.encode() + data)
        self._ready.set()
        answer = b""
        with contextlib.suppress(OSError):
            while part := self._socket.recv(65536):
                answer += part
        if answer:
            head_text, _, body = answer.partition(b"\r\n\r\n")
            self.status = int(head_text.split()[1])
            with contextlib.suppress(ValueError):
                self.response = json.loads(body)

    def leave(self) -> None:
        """Close the connection as an impatient client does."""
        self._ready.wait(PATIENCE_SECONDS)
        assert self._socket is not None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join(PATIENCE_SECONDS)

    def done(self) -> Call:
        """Wait for the answer."""
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive(), "no answer"
        return self

    @property
    def content(self) -> str:
        """Return the text of a chat answer."""
        assert self.status == 200, (self.status, self.response)
        assert self.response is not None
        return str(self.response["choices"][0]["message"]["content"])


def chat(prompt: str = "tell me of the KV path", tokens: int = 8, **more: Any) -> dict[str, Any]:
    """Return the body of a chat request."""
    messages = [{"role": "user", "content": prompt}]
    return {"model": MODEL, "messages": messages, "max_tokens": tokens, **more}


class Pair:
    """A prefill and a decode, with requests sent to both as a router does."""

    def __init__(self, prefill: Engine, decode: Engine) -> None:
        self.prefill = prefill
        self.decode = decode

    def send(self, **body: Any) -> tuple[Call, Call]:
        """Send one request to both sides."""
        room = {
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.prefill.bootstrap_port,
            "bootstrap_room": random.getrandbits(62),
        }
        asked = {**chat(**body), **room}
        path = "/v1/chat/completions"
        return Call(self.prefill.url(path), asked), Call(self.decode.url(path), asked)

    def ask(self, **body: Any) -> str:
        """Send one request to both sides and return decode's text."""
        prefill, decode = self.send(**body)
        content = decode.done().content
        prefill.done()
        return content

    def stuck(self) -> tuple[Call, Call]:
        """Send a request that does not get through; return once it is in flight."""
        before = self.prefill.queues().get("prefill_inflight_queue_reqs", 0)
        calls = self.send()
        wait_until(
            lambda: self.prefill.queues().get("prefill_inflight_queue_reqs", 0) > before,
            "request in flight at prefill",
        )
        assert all(call.is_alive() for call in calls)
        return calls

    def leave(self, calls: tuple[Call, Call]) -> None:
        """Leave as a client and wait until both sides let go."""
        for call in calls:
            call.leave()
        wait_until(lambda: not self.prefill.queues() and not self.decode.queues(), "queues empty again")


class Stand:
    """Installed releases and running processes of a test session or test."""

    def __init__(self, folder: Path, installed: dict[str, Path]) -> None:
        self.folder = folder
        self.installed = installed
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.processes: list[Process] = []

    def engine(self, role: str = "null", *flags: str, release: str = "0.5.23") -> Engine:
        """Return an engine that is not started yet."""
        return Engine(self, release, role, flags)

    def pair(self, release: str = "0.5.23", **env: str) -> Pair:
        """Return a healthy pair."""
        pair = Pair(self.engine("prefill", release=release), self.engine("decode", release=release))
        pair.prefill.start(**env)
        pair.decode.start(**env)
        pair.prefill.healthy()
        pair.decode.healthy()
        return pair

    def run(self, *flags: str, release: str = "0.5.23", **env: str) -> tuple[int, str]:
        """Run an engine that ends by itself; return exit code and output."""
        environ = {**os.environ, "PYTHONPATH": str(self.installed[release]), **env}
        done = subprocess.run(
            [sys.executable, "-m", "sglang.launch_server", *flags],
            env={**environ, "STAND_IN_FAULTS_DIR": str(self.faults)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def router(self, module: str, pair: Pair) -> str:
        """Start a real router in front of a pair and return its address once ready."""
        assert importlib.util.find_spec(module), f"{module} is missing: see requirements/dev.in"
        port = free_port()
        command = [sys.executable, "-m", f"{module}.launch_router", "--pd-disaggregation"]
        command += ["--prefill", pair.prefill.url(""), str(pair.prefill.bootstrap_port)]
        command += ["--decode", pair.decode.url(""), "--host", "127.0.0.1", "--port", str(port)]
        command += ["--policy", "round_robin", "--prometheus-host", "127.0.0.1"]
        command += ["--prometheus-port", str(free_port()), "--worker-startup-check-interval", "1"]
        router = Process(command, dict(os.environ), self.folder / f"{module}.log")
        self.processes.append(router)
        url = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert router.running, router.output()
            with contextlib.suppress(requests.ConnectionError):
                answer = requests.get(f"{url}/readiness", timeout=PATIENCE_SECONDS)
                return answer.status_code == 200
            return False

        wait_until(ready, f"{module} ready")
        return url

    def close(self) -> None:
        """End everything."""
        for process in reversed(self.processes):
            process.kill()


@contextlib.contextmanager
def stand(folder: Path, installed: dict[str, Path]) -> Iterator[Stand]:
    """Return a stand that is cleared at the end."""
    made = Stand(folder, installed)
    try:
        yield made
    finally:
        made.close()
