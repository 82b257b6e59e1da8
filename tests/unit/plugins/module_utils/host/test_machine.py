# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which probes make evidence, asked over an HTTP client that answers as it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import machine
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.http import Answer
from prometheus_client.parser import text_string_to_metric_families

from ...fleet import OPTIONS, member, plan_of

GOOD = {
    "url": "http://p:30000",
    "worker_type": "prefill",
    "is_healthy": True,
    "model_id": "m",
    "id": "1",
}
WANTED = {"http://p:30000": "prefill", "http://d:30002": "decode"}
IDLE = {
    "num_running_reqs": 0,
    "num_waiting_reqs": 0,
    "gen_throughput": 0,
    "disaggregation": {
        "prefill_bootstrap_queue_reqs": 0,
        "prefill_inflight_queue_reqs": 0,
        "decode_prealloc_queue_reqs": 0,
        "decode_transfer_queue_reqs": 0,
    },
}
METRICS = 'sglang:num_running_reqs{dp_rank="0"} 3.0\nsglang:prompt_tokens_total{} 12.0\n'


class Client:
    """Answers by method and path; what it was not told does not answer."""

    def __init__(self, **answers: tuple[int, Any]):
        self.answers = answers
        self.asked: list[tuple[str, str, str]] = []
        self.content: Any = None

    def request(self, method: str, url: str, timeout_seconds: float, api_key: str = "", content: Any = None) -> Answer:
        path = url.split("/", 3)[3]
        self.asked.append((method, url, api_key))
        self.content = content
        name = "{}_{}".format(method, path.replace("/", "_"))
        if name not in self.answers:
            return Answer(None, b"", 0.1, "connection refused")
        status, body = self.answers[name]
        return Answer(status, body if isinstance(body, bytes) else json.dumps(body).encode(), 0.1, "")


def host(monkeypatch: pytest.MonkeyPatch, client: Client, *listeners: tuple[int, str]) -> machine.Machine:
    one = machine.Machine(lambda command: (0, "", ""), client, text_string_to_metric_families)
    found = [{"port": port, "pid": 7, "command": "x", "unit": unit} for port, unit in listeners]
    monkeypatch.setattr(one, "listeners", lambda ports: [item for item in found if item["port"] in ports])
    return one


def names(probes: list[dict[str, Any]]) -> list[str]:
    return [probe["name"] for probe in probes]


def workers(*changes: dict[str, Any]) -> bytes:
    decode = dict(GOOD, url="http://d:30002", worker_type="decode", id="2")
    return json.dumps({"workers": [dict(one, **more) for one, more in zip((GOOD, decode), changes)]}).encode()


def test_H9_a_router_with_all_its_workers_is_good() -> None:
    assert machine.wrong_workers(workers({}, {}), WANTED) == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (workers(), "0 of 2 workers registered, http://d:30002 is missing"),
        (workers({}), "1 of 2 workers registered, http://d:30002 is missing"),
        (workers({}, {"worker_type": "prefill"}), "registered as prefill, not as decode"),
        (workers({"is_healthy": False}, {}), "http://p:30000 is not healthy"),
        (workers({"model_id": "unknown"}, {}), "without a model"),
        (workers({"model_id": None}, {}), "without a model"),
        (json.dumps({"workers": [GOOD, dict(GOOD, url="http://d:30002"), dict(GOOD, url="http://x:1")]}).encode(), ""),
        (b"", "no list of workers"),
        (b'{"workers": null}', "no list of workers"),
    ],
)
def test_H9_a_router_is_not_ready_until_workers_and_inventory_agree(body: bytes, why: str) -> None:
    found = machine.wrong_workers(body, WANTED)
    assert found
    assert why in found


def test_R12_a_prefill_is_asked_at_its_bootstrap_server_too(monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = member("prefill", "p")
    client = Client(GET_health=(200, b""))
    one = host(monkeypatch, client, (30000, prefill["unit"]), (8998, prefill["unit"]))
    probes = one.probe(prefill, {"options": OPTIONS})
    assert names(probes) == ["port 30000", "port 8998", "bootstrap server", "/health"]
    assert all(probe["good"] for probe in probes)
    assert ("GET", "http://127.0.0.1:8998/health", "") in client.asked


def test_R11_R12_a_port_of_a_stranger_is_no_good_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = member("prefill", "p")
    one = host(monkeypatch, Client(GET_health=(200, b"")), (30000, prefill["unit"]), (8998, "another.service"))
    probes = one.probe(prefill, {"options": OPTIONS})
    assert names(probes) == ["port 30000", "port 8998"]
    assert not probes[-1]["good"]
    assert "not by this unit" in probes[-1]["detail"]


def test_R14_a_rank_above_0_gives_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(GET_health=(200, b""))
    assert host(monkeypatch, client).probe(member("prefill", "p", node_rank=1), {"options": OPTIONS}) == []
    assert client.asked == []


def test_H9_readiness_of_a_router_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    router = member("router", "r")
    client = Client(GET_readiness=(200, b""), GET_workers=(200, {"workers": []}))
    probes = host(monkeypatch, client, (30001, router["unit"])).probe(router, plan_of())
    assert names(probes) == ["port 30001", "/readiness", "/workers"]
    assert not probes[-1]["good"]


def test_H5_an_engine_that_does_not_answer_has_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host(monkeypatch, Client()).sample(member("prefill", "p")) is None


def test_H2_the_live_source_decides_over_stale_gauges(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(GET_v1_loads=(200, {"loads": [IDLE]}), GET_metrics=(200, METRICS.encode()))
    sample = host(monkeypatch, client).sample(member("prefill", "p"))
    assert sample is not None
    assert sample["live"]
    assert sample["running"] == 0
    busy = Client(GET_v1_loads=(200, {"loads": [dict(IDLE, num_running_reqs=1)]}), GET_metrics=(200, METRICS.encode()))
    sample = host(monkeypatch, busy).sample(member("prefill", "p"))
    assert sample is not None
    assert (sample["running"], sample["progress"]) == (1, 12)


def test_gauges_serve_where_there_is_no_live_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = host(monkeypatch, Client(GET_metrics=(200, METRICS.encode()))).sample(member("prefill", "p"))
    assert sample is not None
    assert not sample["live"]
    assert sample["running"] == 3


def test_R13_a_router_gives_up_its_workers_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(GET_workers=(200, {"workers": [GOOD, dict(GOOD, id="2")]}), DELETE_workers_1=(202, b""))
    closed = host(monkeypatch, client).close_router(member("router", "r"))
    assert closed == (1, "it keeps its workers (connection refused)")
    client.answers["DELETE_workers_2"] = (202, b"")
    assert host(monkeypatch, client).close_router(member("router", "r")) == (2, "")
    assert host(monkeypatch, Client()).close_router(member("router", "r"))[0] == 0


def test_H12_probes_carry_the_key_and_a_request_asks_for_the_served_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    secrets = tmp_path / "secrets.json"
    secrets.write_text('{"api-key": "s3cret"}')
    client = Client()
    plan = plan_of()
    asked = {"request_prompt": "say hi", "request_max_tokens": 24, "request_temperature": 0.6}
    plan["options"] = dict(OPTIONS, **asked, request_any_text=False)
    plan["members"][0]["settings"]["served_model_name"] = "deepseek"
    answer = host(monkeypatch, client).ask(member("router", "r", secrets_file=str(secrets)), plan)
    assert not answer["good"]
    assert client.asked == [("POST", "http://127.0.0.1:30001/v1/chat/completions", "s3cret")]
    assert client.content["model"] == "deepseek"
    assert "s3cret" not in str(answer)


@pytest.mark.parametrize(
    ("listen", "address"),
    [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::", "[::1]"), ("fd00::1", "[fd00::1]"), ("10.0.0.1", "10.0.0.1")],
)
def test_members_are_asked_where_they_listen(listen: str, address: str) -> None:
    assert machine.local_address({"listen": listen}) == address
