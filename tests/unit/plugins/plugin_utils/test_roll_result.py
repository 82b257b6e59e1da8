# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a roll came to, for programs."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_result

from .. import rolled
from ..rolls import Story, plan_of

#: What the xUnit plugin of Jenkins takes (junit-10.xsd), and what of it GitLab reads: attributes by element, those
#: with a star must be there; then elements that may be in it.
ATTRIBUTES = {
    "testsuites": "name time tests failures errors",
    "testsuite": "name* tests* failures* errors* group time skipped timestamp hostname id package file log url",
    "testcase": "name* time classname group",
    "failure": "type message",
    "error": "type message",
    "skipped": "type message",
    "system-out": "",
}
CONTENT = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"skipped", "error", "failure", "system-out"},
}
ROLLS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "done": rolled.fleet(3),
    "failed": rolled.fleet(6, {"c2": "rolled_back", "c3": "failed", "c1": "widened"}, budget=1, alone=3),
    "refused_cluster": rolled.fleet(3, {"c2": "refused", "c3": "nothing"}),
    "cut_off": rolled.fleet(4, {"c2": "cut_off"}, size=1),
    "resumed": rolled.resumed(),
    "refused": (rolled.refused(), []),
    "nothing": (rolled.plan([], {"a": rolled.left("skip", "nothing is due")}), []),
    "empty": ({}, []),
    "hostile": rolled.hostile(),
    "secretive": rolled.secretive("canary-5fe21c"),
    "thousand": rolled.fleet(1000, {"c0500": "failed"}, size=25, alone=40),
}


def junit(name: str) -> ElementTree.Element:
    return ElementTree.fromstring(roll_result.junit(*ROLLS[name]))


def verdicts(root: ElementTree.Element) -> dict[str, str]:
    """Return what each test case is, by its name."""
    found = {}
    for case in root.iter("testcase"):
        kinds = [one.tag for one in case if one.tag != "system-out"]
        assert len(kinds) <= 1 and case.attrib["name"] not in found
        found[case.attrib["name"]] = (kinds or ["passed"])[0]
    return found


@pytest.mark.parametrize("name", ROLLS)
def test_test_results_are_what_jenkins_and_gitlab_read(name: str) -> None:
    root = junit(name)
    assert root.tag == "testsuites" and len(root)
    for element in root.iter():
        allowed = ATTRIBUTES[element.tag].split()
        assert set(element.attrib) <= {one.rstrip("*") for one in allowed}
        assert {one[:-1] for one in allowed if one.endswith("*")} <= set(element.attrib)
        assert {child.tag for child in element} <= CONTENT.get(element.tag, set())
        if "time" in element.attrib:
            assert float(element.attrib["time"]) >= 0
    for suite in root:
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[count]) == len(suite.findall("testcase/" + tag))
    for count in ("tests", "failures", "errors"):
        assert int(root.attrib[count]) == sum(int(suite.attrib[count]) for suite in root)


def test_a_suite_is_a_wave_and_a_case_is_a_cluster() -> None:
    root = junit("failed")
    assert [suite.attrib["name"] for suite in root] == [
        "wave 1, canary",
        "wave 2, batch",
        "wave 3, batch",
        "wave 4, batch",
        "in no wave",
    ]
    assert verdicts(root) == {
        "c1": "passed",
        "c2": "failure",
        "c3": "failure",
        "c4": "skipped",
        "c5": "skipped",
        "c6": "skipped",
        "x0": "skipped",
        "x1": "skipped",
        "x2": "skipped",
    }
    failure = root.find(".//testcase[@name='c3']/failure")
    assert failure is not None and failure.attrib["type"] == "failed"
    assert "does not serve" in failure.attrib["message"] and "CUDA error: out of memory" in (failure.text or "")
    told = root.findtext(".//testcase[@name='c1']/system-out")
    assert told is not None and "median 0.590 s before, 0.570 s after" in told
    remains = root.find(".//testcase[@name='c6']/skipped")
    assert remains is not None and "the budget is 1" in remains.attrib["message"]


def test_what_nobody_could_try_is_an_error_not_a_failure() -> None:
    assert verdicts(junit("refused_cluster")) == {"c1": "passed", "c2": "error", "c3": "skipped"}
    assert verdicts(junit("cut_off")) == {"c1": "passed", "c2": "error", "c3": "skipped", "c4": "skipped"}
    root = junit("refused")
    assert verdicts(root) == {"plan": "error", "c": "error"}
    error = root.find(".//testcase[@name='plan']/error")
    assert error is not None and "pd_roll_max_unavailable" in (error.text or "")


def test_a_soak_that_no_cluster_answers_for_is_a_case_of_its_wave() -> None:
    story = Story().begin().wave(1, "a").walk(1, "a").tell("soak_began", wave=1, clusters=["a"], seconds=60)
    story.tell("soak_ended", wave=1, clusters=["a"], outcome="failed", message="nobody could be asked")
    story.end_cluster(1, "a").end("failed")
    root = ElementTree.fromstring(roll_result.junit(plan_of(["a"]), story.events))
    assert verdicts(root) == {"a": "passed", "soak of wave 1": "failure"}


def test_a_cluster_that_failed_its_soak_is_one_failure() -> None:
    story = rolled.Story(rolled.plan([["a", "b"]]))
    story.begin()
    story.wave(1, {}, soak="failed")
    story.end("failed", "the failure budget is spent")
    root = ElementTree.fromstring(roll_result.junit(story.plan, story.events))
    assert verdicts(root) == {"a": "failure", "b": "passed"}


def test_a_cluster_of_a_resumed_roll_is_one_case() -> None:
    assert verdicts(junit("resumed")) == {"c1": "passed", "c2": "passed", "c3": "passed", "c4": "passed"}
    assert junit("resumed")[0].attrib["name"] == "run 1, wave 1, canary"


def test_a_result_has_the_keys_that_are_documented() -> None:
    found = roll_result.result(*ROLLS["failed"])
    assert set(found) == set(
        "format roll purpose owner outcome why began_at ended_at seconds runs totals problems waves clusters remaining "
        "commands".split()
    )
    assert found["outcome"] == "failed" and found["remaining"] == ["c4", "c5", "c6"]
    assert found["totals"] == {
        "failed": 1,
        "rolled_back": 1,
        "remains": 3,
        "done": 1,
        "maintenance": 1,
        "skipped": 2,
    }
    one = found["clusters"]["c2"]
    assert one["outcome"] == "rolled_back" and one["attempts"] == 2 and one["generation"] == 8
    assert one["downtime_seconds"] == pytest.approx(175.0) and one["downtime_open"] is False
    assert found["clusters"]["c3"]["downtime_open"] is True
    assert one["latency"]["after"] == {"median_seconds": 0.57, "p95_seconds": 0.61}
    assert found["waves"][1]["failed"] == ["c2", "c3"]
    assert len(found["commands"]) == 2 and all(found["commands"])


@pytest.mark.parametrize("name", ROLLS)
def test_a_result_is_json_and_the_same_every_time(name: str) -> None:
    found = roll_result.result(*ROLLS[name])
    assert json.loads(json.dumps(found)) == found == roll_result.result(*ROLLS[name])


def test_what_looks_like_a_secret_is_in_no_result() -> None:
    of, events = ROLLS["secretive"]
    assert "canary-5fe21c" in json.dumps(events)
    for text in (json.dumps(roll_result.result(of, events)), roll_result.junit(of, events)):
        assert "canary-5fe21c" not in text and "********" in text


def test_a_large_fleet_has_a_small_result() -> None:
    assert len(roll_result.junit(*ROLLS["thousand"])) < 1_000_000
    assert len(verdicts(junit("thousand"))) == 1040
