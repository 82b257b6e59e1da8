# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a diagnosis sees on one host: members, units, journals, settings, and queues over time.

Reads only. The one thing that it may send is one chat request through a router, where it is told to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any, Callable

from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _bundle,
    _facts,
    _live,
    _metrics,
    _observations,
    _redact,
    _topology,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files, processes, resources
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.http import Answer, Client
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.machine import (
    QUICK_SECONDS,
    SAMPLE_SECONDS,
    Machine,
    api_key,
    local_address,
    local_url,
)
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.systemd import Run, Systemd

#: Journal lines of a unit that are kept.
JOURNAL_LINES = 60
JOURNAL_SECONDS = 24 * 3600
#: Bodies beyond this are not kept: half of one would be read as another one.
BODY_BYTES = 4 * 1024 * 1024
#: What is asked of an engine and of a router once, at the end.
ENGINE_PATHS = ("server_info",)
ROUTER_PATHS = ("readiness", "liveness", "workers", "v1/models")
#: What the bootstrap server tells of all its ranks.
ROUTE = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
#: How often something is asked whose silence would be evidence: on a busy host one answer may be late.
ATTEMPTS = 2
#: Private values shorter than this are no secrets, and would tear words apart where they are hidden.
SECRET_LENGTH = 6


class Look:
    """One look at the members of one host.

    :param run: ``AnsibleModule.run_command``.
    :param parse: ``prometheus_client.parser.text_string_to_metric_families``.
    :param options: ``clusters``, ``window_seconds``, ``interval_seconds``, ``health_timeout_seconds``,
        ``nudge``, ``nudge_limit_seconds``, ``bodies`` (keep bodies that were read already).
    :param known: the members of all hosts.
    """

    def __init__(
        self,
        run: Run,
        parse: Callable[[str], Iterable[Any]],
        options: dict[str, Any],
        known: list[dict[str, Any]],
    ):
        self._run = run
        self._parse = parse
        self._options = options
        self._known = known
        self._systemd = Systemd(run)
        self._client = Client()
        self._machine = Machine(run, self._client, parse)
        wanted = options["clusters"]
        self._members = [m for m in files.members() if not wanted or m["cluster"] in wanted]
        self._items: list[dict[str, Any]] = []
        self._secrets: list[str] = []

    def items(self) -> list[dict[str, Any]]:
        """Return all that is seen, secrets removed."""
        if not self._members:
            return []
        for member in self._members:
            values = [api_key(member), *files.private_environment(member["unit"]).values()]
            self._secrets += [value for value in values if len(value) >= SECRET_LENGTH]
        self._watch()
        for member in self._members:
            self._ask(member)
            self._describe(member)
        self._describe_host()
        return self._items

    # -- over time ---------------------------------------------------------------------------

    def _watch(self) -> None:
        """Sample the queues at the interval until the window is over, and the nudge with it.

        The last round begins when the window is over: of slow answers, one round may outlast it, and one alone
        shows nothing over time.
        """
        began = time.monotonic()
        engines = [m for m in self._members if m["role"] != ROUTER and m["node_rank"] == 0]
        nudges = self._nudges()
        while True:
            elapsed = time.monotonic() - began
            for member in engines:
                self._sample(member, time.time())
            if nudges and not any(thread.ident for thread in nudges):
                # After a first sample, so that what it does shows.
                for thread in nudges:
                    thread.start()
            if elapsed >= self._window() and not any(thread.is_alive() for thread in nudges):
                return
            time.sleep(self._options["interval_seconds"])

    def _window(self) -> float:
        """Return how long to look: longer where only gauges that may be stale say that a request is held."""
        window = float(self._options["window_seconds"])
        for member in self._members:
            mine = [one for one in self._items if one["unit"] == member["unit"]]
            if any(one["endpoint"] == "v1_loads" and one["status"] == 200 for one in mine):
                continue
            scrapes = [one["totals"] for one in mine if one["endpoint"] == "metrics" and one.get("totals")]
            gauges = [scrape.get(gauge, 0) for scrape in scrapes[-1:] for _key, gauge in _metrics.QUEUES.values()]
            if any(gauges):
                window = max(window, _facts.STALE_GAUGE_SECONDS + self._options["interval_seconds"])
        return window

    def _sample(self, member: dict[str, Any], at: float) -> None:
        self._get(member, "v1/loads", SAMPLE_SECONDS, at)
        one = self._get(member, "metrics", SAMPLE_SECONDS, at)
        one["totals"] = _metrics.totals(one["body"], self._parse) if one["status"] == 200 else None
        if not self._options["bodies"]:
            one["body"] = ""

    def _nudges(self) -> list[threading.Thread]:
        """Return what sends one request for each cluster whose first router is here."""
        threads = []
        for member in self._members if self._options["nudge"] else []:
            routers = [m for m in self._known if m["cluster"] == member["cluster"] and m["role"] == ROUTER]
            first = min(((m["host"], m["unit"]) for m in routers), default=None)
            if member["role"] == ROUTER and first in (None, (member["host"], member["unit"])):
                threads.append(threading.Thread(target=self._nudge, args=(member,), daemon=True))
        return threads

    def _nudge(self, member: dict[str, Any]) -> None:
        # A session of its own: this one may hang while the others sample.
        machine = Machine(self._run, Client(), self._parse)
        plan = {
            "members": [m for m in self._known if m["cluster"] == member["cluster"]],
            "options": {
                "request_limit_seconds": self._options["nudge_limit_seconds"],
                "request_prompt": "say hi briefly",
                "request_max_tokens": 24,
                "request_temperature": 0.6,
                "request_any_text": False,
            },
        }
        self._add(_bundle.NUDGE, machine.ask(member, plan), member)

    # -- once --------------------------------------------------------------------------------

    def _ask(self, member: dict[str, Any]) -> None:
        now = time.time()
        if member["node_rank"] > 0:
            return
        seconds = self._options["health_timeout_seconds"]
        if member["role"] == ROUTER:
            self._get(member, "health", QUICK_SECONDS, now)
            for path in ROUTER_PATHS:
                self._get(member, path, QUICK_SECONDS, now, attempts=ATTEMPTS)
            url = "http://{0}:{1}/metrics".format(local_address(member), member["metrics_port"])
            one = self._get(member, "metrics", SAMPLE_SECONDS, now, url)
            one["breakers"] = _observations.breakers_of(one["body"], self._parse)
            return
        self._get(member, "health", seconds, now)
        for path in ENGINE_PATHS:
            self._get(member, path, QUICK_SECONDS, now)
        if member["role"] == PREFILL:
            url = "http://{0}:{1}".format(local_address(member), member["bootstrap_port"])
            self._get(member, "bootstrap_route", QUICK_SECONDS, now, url + ROUTE)

    def _get(
        self, member: dict[str, Any], path: str, seconds: float, at: float, url: str = "", attempts: int = 1
    ) -> dict[str, Any]:
        """Keep the answer to a GET as an item."""
        url = url or "{0}/{1}".format(local_url(member), path)
        answer = self._answer(url, seconds, api_key(member), attempts)
        if len(answer.body) > BODY_BYTES:
            answer = answer._replace(status=None, body=b"", error="body over {0} bytes".format(BODY_BYTES))
        body = answer.body.decode("utf-8", "replace")
        one = _bundle.item(path.replace("/", "_"), body, member["host"], member["unit"], at)
        one.update(status=answer.status, seconds=answer.seconds, error=answer.error)
        return self._keep(one)

    def _answer(self, url: str, seconds: float, key: str, attempts: int) -> Answer:
        """Return the first answer to a GET, or the last reason why there is none."""
        answer = self._client.request("GET", url, seconds, key)
        while answer.status is None and attempts > 1:
            attempts -= 1
            answer = self._client.request("GET", url, seconds, key)
        return answer

    def _add(self, endpoint: str, content: Any, member: dict[str, Any]) -> None:
        self._keep(_bundle.item(endpoint, content, member["host"], member["unit"], time.time()))

    def _keep(self, one: dict[str, Any]) -> dict[str, Any]:
        one["body"] = _redact.redact(one["body"], self._secrets)
        one["error"] = _redact.redact(one["error"], self._secrets)
        self._items.append(one)
        return one

    def _describe(self, member: dict[str, Any]) -> None:
        unit = self._systemd.unit(member["unit"])
        configuration = files.running_configuration(member["unit"], unit["invocation_id"])
        record = {
            "member": member,
            "unit": unit,
            "running_configuration": configuration,
            "running": self._machine.running(member, unit, configuration),
        }
        self._add(_bundle.MEMBER, member, member)
        self._add(_bundle.UNIT, unit, member)
        self._add(_bundle.LEDGER, files.ledger(member["unit"]), member)
        self._add(_bundle.STARTS, self._systemd.history(member["unit"]), member)
        self._add(_bundle.SETTINGS, _live.settings_of(record, []), member)
        self._add(_bundle.LISTENERS, processes.listeners(list(_topology.ports_of(member).values())), member)
        lines = self._systemd.journal(member["unit"], time.time() - JOURNAL_SECONDS, JOURNAL_LINES)
        self._add(_bundle.JOURNAL, "\n".join(lines), member)
        if member["role"] == DECODE and member["node_rank"] == 0:
            self._add(_bundle.REACH, self._reach(member), member)

    def _reach(self, decode: dict[str, Any]) -> list[dict[str, Any]]:
        """Try the bootstrap servers of a decode's cluster from here, at the address that routers give it."""
        found = []
        for prefill in _topology.serving(self._known):
            if prefill["role"] == PREFILL and prefill["cluster"] == decode["cluster"]:
                host = prefill["url"].split("://", 1)[-1].rsplit(":", 1)[0]
                url = "http://{0}:{1}/health".format(host, prefill["bootstrap_port"])
                answer = self._answer(url, QUICK_SECONDS, "", ATTEMPTS)
                detail = answer.error or "HTTP {0}".format(answer.status)
                found.append({"unit": prefill["unit"], "url": url, "good": answer.status == 200, "detail": detail})
        return found

    def _describe_host(self) -> None:
        host = self._members[0]["host"]
        content = {
            "now": time.time(),
            "booted_at": self._systemd.booted_at(),
            "gpus": resources.gpu_load(self._run),
            "shared_memory": resources.shared_memory(),
        }
        self._keep(_bundle.item(_bundle.MACHINE, content, host, at=time.time()))
