# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real host behind the steps: systemd, /proc, files and HTTP of this machine.

See :class:`_steps.Host` for what each method promises.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, Callable

from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _answers,
    _live,
    _metrics,
    _profiles,
    _redact,
    _topology,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import PREFILL, ROUTER
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, processes, revisions
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.http import Answer, Client
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Run, Systemd

#: Seconds for an answer that needs no scheduler: bootstrap, readiness, workers.
QUICK_SECONDS = 5
#: Seconds for /v1/loads and /metrics; a hung engine must not hold up the others.
SAMPLE_SECONDS = 5


class Machine:
    """This host.

    :param run: ``AnsibleModule.run_command``.
    :param parse_metrics: ``prometheus_client.parser.text_string_to_metric_families``.
    :param verify: :func:`verification.of_plan`; it wants aiohttp, which only one step needs.
    """

    def __init__(
        self,
        run: Run,
        client: Client,
        parse_metrics: Callable[[str], Iterable[Any]],
        verify: Callable[..., dict[str, Any]] | None = None,
    ):
        self._run = run
        self._systemd = Systemd(run)
        self._client = client
        self._parse_metrics = parse_metrics
        self._verify = verify
        self.unit = self._systemd.unit
        self.stop = self._systemd.stop
        self.start = self._systemd.start
        self.restart = self._systemd.restart
        self.ledger = files.ledger
        self.write_ledger = files.write_ledger
        self.change_lock = files.change_lock
        self.listeners = processes.listeners
        self.now = time.time
        self.monotonic = time.monotonic
        self.wait = time.sleep

    def running_configuration(self, name: str) -> str:
        """Return the configuration hash that a unit's incarnation was started with, or ""."""
        return files.running_configuration(name, self.unit(name)["invocation_id"])

    def verify(self, plan: dict[str, Any], here: str, state: dict[str, Any], slice_seconds: float) -> dict[str, Any]:
        """Run one slice of the plan's verification; see :meth:`_steps.Host.verify`."""
        if self._verify is None:
            raise RuntimeError("a machine that is to verify was made without verify")
        return self._verify(plan, here, state, slice_seconds, self._parse_metrics)

    def keep_revision(self, unit: str, generation: int) -> str:
        """Keep what is deployed of a unit, where that is what runs; return what went wrong, or ""."""
        return revisions.keep(unit, generation, self.running_configuration(unit))

    def restore(self, units: dict[str, int]) -> tuple[list[dict[str, str]], str]:
        """Put revisions of units in place and tell systemd; see :meth:`_steps.Host.restore`."""
        return revisions.restore(units, self._run)

    def journal(self, name: str, lines: int) -> list[str]:
        """Return the last journal lines of a unit since its stage began, secrets removed."""
        secrets = [api_key(member) for member in files.members()]
        found = self._systemd.journal(name, files.ledger(name)["began_at"] or 0, lines)
        return [_redact.redact(line, secrets) for line in found]

    def probe(self, member: dict[str, Any], plan: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the probes of a member: ``name``, ``good``, ``detail``; the first bad one is the last."""
        if member["role"] == ROUTER:
            steps: list[Callable[[], dict[str, Any]]] = [
                lambda: self._listens(member, member["port"]),
                lambda: self._answers(member, "/readiness", QUICK_SECONDS),
                lambda: self._workers(member, plan),
            ]
        elif member["node_rank"] > 0:
            # Its dummy server answers 200 whatever happens: no evidence. Rank 0 gates the engine.
            steps = []
        else:
            health_seconds = plan["options"]["health_timeout_seconds"]
            steps = [lambda: self._listens(member, member["port"])]
            if member["role"] == PREFILL:
                steps += [
                    lambda: self._listens(member, member["bootstrap_port"]),
                    lambda: self._bootstrap(member),
                ]
            steps.append(lambda: self._answers(member, "/health", health_seconds))
        probes = []
        for step in steps:
            probes.append(step())
            if not probes[-1]["good"]:
                break
        return probes

    def _listens(self, member: dict[str, Any], port: int) -> dict[str, Any]:
        found = self.listeners([port])
        foreign = [item for item in found if item["unit"] != member["unit"]]
        held = "held by pid {pid} ({command}), not by this unit"
        detail = held.format(**foreign[0]) if foreign else "not open yet"
        return {"name": "port {0}".format(port), "good": bool(found) and not foreign, "detail": detail}

    def _answers(self, member: dict[str, Any], path: str, seconds: float) -> dict[str, Any]:
        return _probe(path, self._client.request("GET", local_url(member) + path, seconds, api_key(member)))

    def _bootstrap(self, member: dict[str, Any]) -> dict[str, Any]:
        url = "http://{0}:{1}/health".format(local_address(member), member["bootstrap_port"])
        return _probe("bootstrap server", self._client.request("GET", url, QUICK_SECONDS))

    def _workers(self, member: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
        """Compare the workers that a router knows with the plan's engines."""
        answer = self._client.request("GET", local_url(member) + "/workers", QUICK_SECONDS, api_key(member))
        probe = _probe("/workers", answer)
        if not probe["good"]:
            return probe
        wanted = {m["url"]: m["role"] for m in _topology.serving(plan["members"])}
        trouble = wrong_workers(answer.body, wanted)
        return dict(probe, good=not trouble, detail=trouble or "as planned")

    def sample(self, member: dict[str, Any]) -> dict[str, Any] | None:
        """Return a sample of an engine's queues: ``/v1/loads`` where it exists, else ``/metrics``."""
        answer = self._client.request("GET", local_url(member) + "/v1/loads", SAMPLE_SECONDS, api_key(member))
        live = _metrics.loads_sample(answer.body) if answer.status == 200 else None
        if live is not None and _metrics.pending(live) == 0:
            return dict(live, live=True)
        answer = self._client.request("GET", local_url(member) + "/metrics", SAMPLE_SECONDS, api_key(member))
        stale = None
        if answer.status == 200:
            stale = _metrics.metrics_sample(answer.body.decode("utf-8", "replace"), self._parse_metrics)
        if live is None:
            return dict(stale, live=False) if stale else None
        return dict(stale or {}, **dict(live, live=True))

    def running(self, member: dict[str, Any], unit: dict[str, Any], configuration: str) -> dict[str, Any]:
        """Return what the running process shows of its settings, see :func:`_live.settings_of`.

        Values of the private environment are compared here and do not leave the host.
        """
        pid = unit["main_pid"]
        environment = processes.environment_of(pid) if pid else None
        private = files.private_environment(member["unit"])
        differs = [
            name for name, value in private.items() if environment is not None and environment.get(name) != value
        ]
        words = processes.words_of(pid) if pid else []
        reported: dict[str, Any] = {}
        if pid and member["role"] != ROUTER and member["node_rank"] == 0:
            answer = self._client.request("GET", local_url(member) + "/server_info", QUICK_SECONDS, api_key(member))
            names = _live.reported_names(member)
            reported = {name: value for name, value in _object(answer.body).items() if name in names}
        return {
            "started_with": files.started_with(member["unit"], configuration),
            # A single word is a title that the process gave itself.
            "command": words if len(words) > 1 else [],
            "environment": environment
            and {name: value for name, value in environment.items() if name in _live.public_names(member)},
            "private_differs": sorted(differs),
            "reported": reported,
        }

    def close_router(self, member: dict[str, Any]) -> tuple[int, str]:
        """Take all workers from a router; return how many, and what went wrong or ""."""
        base, key = local_url(member), api_key(member)
        answer = self._client.request("GET", base + "/workers", QUICK_SECONDS, key)
        try:
            ids = [worker["id"] for worker in json.loads(answer.body)["workers"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return 0, "its workers cannot be listed ({0})".format(answer.error or answer.status)
        for number, worker in enumerate(ids):
            answer = self._client.request("DELETE", "{0}/workers/{1}".format(base, worker), QUICK_SECONDS, key)
            if answer.status is None or answer.status >= 300:
                return number, "it keeps its workers ({0})".format(answer.error or answer.status)
        return len(ids), ""

    def ask(self, member: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
        """Send one chat request through a router and judge the answer strictly."""
        options = plan["options"]
        answer = self._client.request(
            "POST",
            local_url(member) + "/v1/chat/completions",
            options["request_limit_seconds"],
            api_key(member),
            {
                "model": _profiles.model_of(plan["members"]),
                "messages": [{"role": "user", "content": options["request_prompt"]}],
                "max_tokens": options["request_max_tokens"],
                "temperature": options["request_temperature"],
            },
        )
        return _answers.judge(
            answer.status,
            answer.body,
            answer.seconds,
            options["request_limit_seconds"],
            answer.error,
            {"any_text": options["request_any_text"]},
        )


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def wrong_workers(body: bytes, wanted: dict[str, str]) -> str:
    """Return how a router's workers differ from the engines that it should have, or "".

    :param wanted: role by URL.
    """
    try:
        workers = {str(worker["url"]): worker for worker in json.loads(body)["workers"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no list of workers"
    missing = sorted(set(wanted) - set(workers))
    if missing:
        return "{0} of {1} workers registered, {2} is missing".format(
            len(wanted) - len(missing), len(wanted), missing[0]
        )
    for url, worker in sorted(workers.items()):
        if url not in wanted:
            return "worker {0} is not of this cluster".format(url)
        if worker.get("worker_type") != wanted[url]:
            return "worker {0} is registered as {1}, not as {2}".format(url, worker.get("worker_type"), wanted[url])
        if not worker.get("is_healthy"):
            return "worker {0} is not healthy".format(url)
        if worker.get("model_id") in (None, "", "unknown"):
            return "worker {0} is registered without a model".format(url)
    return ""


def _probe(name: str, answer: Answer) -> dict[str, Any]:
    detail = answer.error or "HTTP {0}".format(answer.status)
    return {"name": name, "good": answer.status == 200, "detail": detail}


def local_address(member: dict[str, Any]) -> str:
    """Return the address at which this host reaches a member of its own."""
    listen = member["listen"]
    if listen in ("", "0.0.0.0"):  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    if listen == "::":
        return "[::1]"
    return "[{0}]".format(listen) if ":" in listen else str(listen)


def local_url(member: dict[str, Any]) -> str:
    """Return the URL at which this host reaches a member of its own."""
    return "http://{0}:{1}".format(local_address(member), member["port"])


def api_key(member: dict[str, Any]) -> str:
    """Return the key that a member wants, from its secrets file on this host, or ""."""
    if not member.get("secrets_file"):
        return ""
    return str((files.read_json(member["secrets_file"]) or {}).get("api-key", ""))
