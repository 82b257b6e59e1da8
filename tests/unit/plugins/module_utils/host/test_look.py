# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look asks, keeps and hides, over an HTTP client that answers as it is told."""

from __future__ import annotations

import collections
import json
import types
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _facts
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import look
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.http import Answer
from prometheus_client.parser import text_string_to_metric_families

from ...fleet import member
from .test_machine import Client

KEY = "canary-key"
OPTIONS = {
    "clusters": [],
    "window_seconds": 0.01,
    "interval_seconds": 0.01,
    "health_timeout_seconds": 25,
    "nudge": False,
    "nudge_limit_seconds": 35,
    "bodies": False,
}
METRICS = "sglang:num_running_reqs 0\nsglang:num_prefill_inflight_queue_reqs {}\n"


@pytest.fixture
def see(monkeypatch: pytest.MonkeyPatch):
    """Look at the members of a host."""

    def run(members: list[dict[str, Any]], client: Client, **options: Any) -> look.Look:
        settings = {"exec_start": [], "environment": {}, "version": "0.5.23", "private_names": []}
        members = [dict(one, **settings) for one in members]
        monkeypatch.setattr(look, "Client", lambda: client)
        monkeypatch.setattr(look.files, "members", lambda: members)
        monkeypatch.setattr(look.files, "private_environment", lambda unit: {"HF_TOKEN": KEY, "X": "1"})
        monkeypatch.setattr(look.files, "ledger", lambda unit: {"generation": 1})
        monkeypatch.setattr(look.processes, "listeners", lambda ports: [])
        monkeypatch.setattr(look.resources, "shared_memory", lambda: {"files": 0, "bytes": 0})
        return look.Look(lambda command: (0, "", ""), text_string_to_metric_families, {**OPTIONS, **options}, members)

    return run


def asked(client: Client) -> set[str]:
    return {f"{method} /{url.split('/', 3)[3].split('?')[0]}" for method, url, _key in client.asked}


def test_a_look_only_reads(see) -> None:
    client = Client()
    see([member("prefill", "h"), member("decode", "h"), member("router", "h")], client).items()
    assert {call.split(" ")[0] for call in asked(client)} == {"GET"}
    assert {"GET /health", "GET /v1/loads", "GET /metrics", "GET /workers", "GET /route"} <= asked(client)


def test_H12_secrets_stay_on_the_host(see) -> None:
    info = {"api_key": "another-key", "launch_command": "--api-key third-key --port 1", "note": f"x{KEY}x"}
    client = Client(GET_server_info=(200, info), GET_health=(503, KEY.encode()))
    items = see([member("prefill", "h")], client, bodies=True).items()
    assert not [one for one in items for secret in (KEY, "another-key", "third-key") if secret in json.dumps(one)]


def test_a_nudge_is_one_request_and_only_at_the_first_router_of_a_cluster(see) -> None:
    client = Client(POST_v1_chat_completions=(503, b"no workers"))
    routers = [member("prefill", "a"), member("router", "h"), member("router", "h", "two")]
    items = see(routers, client, nudge=True).items()
    assert [call[0] for call in client.asked].count("POST") == 1
    (nudge,) = [one for one in items if one["endpoint"] == "nudge.json"]
    assert json.loads(nudge["body"])["why"].startswith("HTTP 503")
    elsewhere = see([member("router", "z")], Client(), nudge=True)
    elsewhere._known = routers
    elsewhere.items()
    assert "POST" not in {call[0] for call in elsewhere._client.asked}


@pytest.mark.parametrize(
    ("answers", "long"),
    [
        ({"GET_metrics": (200, METRICS.format(1).encode())}, True),
        ({"GET_metrics": (200, METRICS.format(0).encode())}, False),
        ({"GET_metrics": (200, METRICS.format(1).encode()), "GET_v1_loads": (200, {"loads": []})}, False),
    ],
    ids=["only-gauges", "nothing-held", "live"],
)
def test_H2_the_look_is_long_where_only_a_gauge_says_that_a_request_is_held(see, answers: Any, long: bool) -> None:
    one = see([member("prefill", "h")], Client(**answers))
    one._sample(one._members[0], 1.0)
    assert (one._window() >= _facts.STALE_GAUGE_SECONDS) is long


@pytest.mark.parametrize("seconds", [0.1, 2, 30], ids=["at-once", "slow", "beyond-the-window"])
def test_H8_also_of_slow_answers_the_first_round_and_the_last_are_a_window_apart(
    see, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now, time=lambda: clock.now)
    clock.sleep = lambda given: setattr(clock, "now", clock.now + given)
    client = Client(GET_v1_loads=(200, {"loads": []}), GET_metrics=(200, METRICS.format(0).encode()))
    answer = client.request

    def late(*given: Any) -> Any:
        clock.sleep(seconds)
        return answer(*given)

    monkeypatch.setattr(client, "request", late)
    monkeypatch.setattr(look, "time", clock)
    one = see([member("prefill", "h"), member("decode", "h")], client, window_seconds=12, interval_seconds=3)
    one._watch()
    for unit in {item["unit"] for item in one._items}:
        moments = [item["at"] for item in one._items if item["unit"] == unit]
        assert 12 <= max(moments) - min(moments) < 12 + 3 + 4 * seconds


@pytest.mark.parametrize(("late", "reached"), [(1, True), (2, False)])
def test_H8_one_late_answer_of_a_bootstrap_server_or_a_router_is_no_evidence(see, late: int, reached: bool) -> None:
    members = [member("prefill", "h"), member("decode", "h"), member("router", "h")]
    client = Client(GET_health=(200, b""), GET_workers=(200, {"workers": []}))
    answer, asked = client.request, collections.Counter[str]()

    def request(method: str, url: str, *given: Any) -> Any:
        asked[url] += 1
        if url.endswith((":8998/health", "/workers")) and asked[url] <= late:
            return Answer(None, b"", 5.0, "nothing within 5 s")
        return answer(method, url, *given)

    client.request = request  # type: ignore[method-assign]
    items = {item["endpoint"]: item for item in see(members, client).items()}
    assert json.loads(items["reach.json"]["body"])[0]["good"] is reached
    assert (items["workers"]["status"] == 200) is reached


def test_other_clusters_are_left_alone(see) -> None:
    client = Client()
    see([member("prefill", "h")], client, clusters=["c"]).items()
    looked = len(client.asked)
    client = Client()
    one = see([member("prefill", "h")], client, clusters=["another"])
    assert looked
    assert (one.items(), client.asked) == ([], [])
