# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items as files: written, read back, and read as other people record them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _bundle, _diagnosis, _observations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from .sighting import Sighting, diagnose
from .test_diagnosis import collective, founding, host_gone, vanished


def round_trip(items: list[dict]) -> list[dict]:
    files = dict(_bundle.file_of(one, []) for one in items)
    assert len(files) == len(items), "two items share a name"
    (found,) = _bundle.read({"some/folder/" + name: text for name, text in files.items()}).values()
    return found


@pytest.mark.parametrize("change", [founding, vanished, collective, host_gone, lambda one: None])
def test_a_bundle_is_judged_as_the_cluster_was(change) -> None:
    one = Sighting()
    change(one)
    live, offline = diagnose(one.items()), diagnose(round_trip(one.items()))
    assert offline == live


def test_files_are_named_by_time_host_unit_and_endpoint() -> None:
    one = _bundle.item("v1_loads", "{}", "box1", "sglang-c-prefill.service", 1796003117.0358753)
    name, text = _bundle.file_of(dict(one, seconds=0.02), [])
    assert name == "20261130T014517.035Z__box1__sglang-c-prefill.service__v1_loads.txt"
    assert text == "# v1_loads -> 200 (0.020 s)\n{}"


@pytest.mark.parametrize("host", ["a__b", "a/../b", "", "__"])
def test_names_of_hosts_cannot_break_file_names(host: str) -> None:
    name, _text = _bundle.file_of(_bundle.item("metrics", "", host, "u.service", 1.0), [])
    assert "/" not in name
    assert name.count("__") == 3


def test_H12_secrets_are_not_written() -> None:
    info = {"api_key": "s3cret-1", "admin_api_key": "s3cret-2", "launch_command": "--api-key s3cret-3 --port 1", "k": 1}
    items = [
        _bundle.item("server_info", info, "h", "u"),
        _bundle.item("journal", "started with key s3cret-4\n", "h", "u"),
    ]
    text = "".join(_bundle.file_of(one, ["s3cret-4"])[1] for one in items)
    assert "s3cret" not in text
    assert json.loads(_bundle.file_of(items[0], [])[1].split("\n", 1)[1])["k"] == 1


@pytest.mark.parametrize(
    ("name", "scenario", "place"),
    [
        ("wedge_0.5.16_00_base__decode__v1_loads.txt", "wedge_0.5.16_00_base", ("", "decode", "v1_loads")),
        ("router0.3.2_deadworkers__workers.txt", "router0.3.2_deadworkers", ("", "router", "workers")),
        ("smg1.13.0_deadworkers__readiness.txt", "smg1.13.0_deadworkers", ("", "router", "readiness")),
        ("prefill_starting_503__health.txt", "prefill_starting_503", ("", "prefill", "health")),
        ("20261130T014517.5Z__h__u.service__journal.txt", "", ("h", "u.service", "journal")),
    ],
)
def test_both_ways_to_name_files_are_read(name: str, scenario: str, place: tuple[str, str, str]) -> None:
    ((found, (one,)),) = _bundle.read({name: ""}).items()
    assert found == scenario
    assert (one["host"], one["unit"], one["endpoint"]) == place


@pytest.mark.parametrize("name", ["README.md", "plain_metrics.txt", "plain__metrics.txt", "a__b__c__d__e.txt", ".txt"])
def test_what_is_named_otherwise_is_left_out(name: str) -> None:
    assert _bundle.read({name: "x"}) == {}


@pytest.mark.parametrize(
    ("text", "status", "error", "body"),
    [
        ("# GET /health -> 200 None\n", 200, "", ""),
        ("# GET /readiness -> 503 application/json\n{}", 503, "", "{}"),
        ("# GET /health -> None None\nURLError: <refused>\n", None, "URLError: <refused>", ""),
        ("URLError: <urlopen error [Errno 111]>\n", None, "URLError: <urlopen error [Errno 111]>", ""),
        ("# 200\n{}", 200, "", "{}"),
        ("# metrics -> 200 (. s)\nx 1", 200, "", "x 1"),
        ("HTTP/1.1 404 Not Found\ncontent-type: x\n\n{}", 404, "", "{}"),
        ("# HELP sglang:x 200\nsglang:x 1\n", 200, "", "# HELP sglang:x 200\nsglang:x 1\n"),
        ("# TYPE x counter\nx 1\n", 200, "", "# TYPE x counter\nx 1\n"),
        ("", 200, "", ""),
    ],
)
def test_headers_of_files(text: str, status: int | None, error: str, body: str) -> None:
    ((one,),) = _bundle.read({"s__router__health.txt": text}).values()
    assert (one["status"], one["error"], one["body"]) == (status, error, body)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JUNK = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2))
BROKEN = (founding, vanished, host_gone, collective)


def places(content: Any, path: tuple = ()) -> list[tuple]:
    """Return the paths to all values within a JSON value, itself included."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def replaced(content: Any, path: tuple, value: Any) -> Any:
    if not path:
        return value
    content = content.copy()
    content[path[0]] = replaced(content[path[0]], path[1:], value)
    return content


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_value_of_a_wrong_kind_makes_it_stumble(data: st.DataObject) -> None:
    one = Sighting()
    data.draw(st.sampled_from(BROKEN))(one)
    items = one.items()
    for _ in range(3):
        index = data.draw(st.integers(0, len(items) - 1))
        body = items[index]["body"]
        try:
            content = json.loads(body)
        except ValueError:
            cut = data.draw(st.integers(0, len(body)))
            body = body[:cut] + data.draw(st.text(max_size=20))
        else:
            body = json.dumps(replaced(content, data.draw(st.sampled_from(places(content))), data.draw(JUNK)))
        items[index] = dict(items[index], body=body)
    for observation in _observations.clusters(items, text_string_to_metric_families).values():
        assert _diagnosis.describe(_diagnosis.diagnose(observation, "overlap"))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(
            sorted(
                f"s__{r}__{e}.txt"
                for r in ("prefill", "decode", "router")
                for e in ("health", "metrics", "v1_loads", "workers", "server_info")
            )
        ),
        st.text(max_size=60),
    )
)
def test_no_garbage_makes_it_stumble(files: dict[str, str]) -> None:
    for scenario, items in _bundle.read(files).items():
        for observation in _observations.clusters(items, text_string_to_metric_families, scenario).values():
            assert not _diagnosis.diagnose(observation)["healthy"]
