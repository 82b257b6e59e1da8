# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a roll, and the files that are written at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_report

from .. import rolled
from ..rolls import Story, plan_of
from .roll_pages import pages
from .test_report import Structure, words_of

PAGES = pages()
FILES = ["result.json", "summary.md", "junit.xml", "report.html"]
MOST_BYTES = 5_000_000


def in_order(words: str, *expected: str) -> None:
    places = [words.index(one) for one in expected]
    assert places == sorted(places), dict(zip(expected, places))


# -- the page --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_loads_and_runs_nothing(name: str) -> None:
    structure = Structure(PAGES[name])
    tags = {tag for tag, _attributes in structure.tags}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "a", "base", "image", "use"}
    for _tag, attributes in structure.tags:
        assert not [one for one in attributes if one.startswith("on") or one in ("src", "href", "style")]
    assert "default-src 'none'" in PAGES[name] and "url(" not in PAGES[name]


@pytest.mark.parametrize("name", PAGES)
def test_pictures_and_tables_speak_to_who_does_not_see_them(name: str) -> None:
    structure = Structure(PAGES[name])
    ids = [attributes["id"] for _tag, attributes in structure.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attributes in structure.tags:
        if tag == "th":
            assert attributes.get("scope") in ("col", "row")
        if "aria-labelledby" in attributes:
            assert set((attributes["aria-labelledby"] or "").split()) <= set(ids)
        if tag == "svg" and "aria-hidden" not in attributes:
            assert attributes["role"] == "img" and attributes["aria-labelledby"]


def test_what_came_of_it_comes_first_then_what_helps_then_the_evidence() -> None:
    in_order(
        words_of(PAGES["six"]),
        "✗ 1 failed, 1 rolled back, 1 of 6 clusters restarted",
        "Roll 20261130T170000Z-ab12cd , weekly roll, by ops@ci pid 17",
        "c3 failed in wave 2; it does not serve, as far as is known.",
        "c2 rolled back in wave 2; it serves with what it had before.",
        "Ask why:",
        "inferops.sglang_pd.diagnose -e pd_diagnose_clusters=c3",
        "Go on with 3 clusters:",
        "-e pd_roll_id=20261130T170000Z-ab12cd",
        "What failed",
        "CUDA error: out of memory",
        "What happened when",
        "wave 2, batch: 1 failed, 1 rolled back",
        "Latencies before and after",
        "Not restarted",
        "not reached 3 clusters c4, c5, c6",
        "skipped 3 clusters x1, x2, x3 nothing is due",
        "Plan",
        "deepseek-v4: 2 of 6 clusters, at most 2",
    )


def test_a_roll_that_ended_well_is_short_and_has_no_failures() -> None:
    words = words_of(PAGES["three"])
    assert "✓ Done: 3 of 3 clusters restarted" in words and "Without service: 1 min 28 s at most (c1)." in words
    assert "What failed" not in words and "Not restarted" not in words


def test_bars_downtime_and_attempts_are_told_apart_without_colours() -> None:
    page = PAGES["six"]
    for words in ("c3: decode 36 s, failed or cut off", "c2: attempt 2: rollback", "c1: soak 1 min"):
        assert "<title>{0}</title>".format(words) in page, words
    assert "c3: without service 3 min 32 s, and nobody saw it serve again" in page
    # Wide bars have their name on them.
    assert 'class="label decode"' in page and page.count('<line class="down"') == 8
    assert page.count('<line class="down open"') == 1


def test_a_latency_that_grew_by_more_than_chance_is_marked() -> None:
    of, events = rolled.fleet(2)
    end = next(event for event in events if event["event"] == "cluster_ended")
    end["latency"]["after"] = {"median_seconds": 1.2, "p95_seconds": 0.7}
    page = roll_report.page(of, events)
    words = words_of(page)
    assert "Slower than before: c1." in words
    assert '<span class="bad">+103 %</span>' in page and '<span class="quiet">+13 %</span>' in page
    in_order(words, "1.200 s +103 % , before 0.590 s", "c2 0.570 s -3 % , before 0.590 s")


def test_a_latency_that_nobody_measured_before_has_no_change() -> None:
    of, events = rolled.fleet(1)
    end = next(event for event in events if event["event"] == "cluster_ended")
    end["latency"]["before"] = None
    assert "c1 0.570 s before not measured" in words_of(roll_report.page(of, events))


def test_a_killed_roll_says_where_it_was_cut_off() -> None:
    words = words_of(PAGES["cut_off"])
    assert "✗ Interrupted: 1 cut off, 1 of 4 clusters restarted" in words
    assert "cut off at step start_decode on c2-2: not healthy yet, 20 s of 900 s" in words
    assert "Last heard of after" in words


def test_a_resumed_roll_is_one_page() -> None:
    words = words_of(PAGES["resumed"])
    assert "✓ Done: 4 of 4 clusters restarted" in words and "in 2 runs." in words
    assert "run 1, wave 1, canary: 1 done" in words and "run 2, wave 1, canary: 1 done" in words
    assert "without any work" in PAGES["resumed"]


def test_a_refused_roll_has_rule_variable_and_what_helps_and_no_picture() -> None:
    words = words_of(PAGES["refused"])
    assert "✗ Refused, nothing was touched" in words
    assert "variable pd_roll_max_unavailable" in words and "-e pd_roll_repair=true" in words
    assert "<svg" not in PAGES["refused"]


def test_nothing_to_do_says_why() -> None:
    words = words_of(PAGES["nothing"])
    assert "✓ Nothing to do" in words and "nothing is due" in words


def test_a_fleet_of_a_thousand_clusters_is_one_small_page_with_every_cluster() -> None:
    page = PAGES["thousand"]
    assert len(page.encode()) < MOST_BYTES / 5
    words = words_of(page)
    assert not [name for name in rolled.names(1000) if name not in words]
    in_order(words, "c0077 failed", "What happened when", "3 clusters to look at", "997 clusters that went well")
    assert page.count("<details>") == page.count("</details>") == 2


def test_a_thousand_failures_are_one_page_that_says_what_is_not_on_it() -> None:
    outcomes = dict.fromkeys(rolled.names(1000), "failed")
    of, events = rolled.fleet(1000, outcomes, size=25, budget=2000)
    for event in events:
        if event.get("message"):
            event["message"] = "x" * 50_000
    page = roll_report.page(of, events)
    assert len(page.encode()) < MOST_BYTES
    words = words_of(page)
    assert "700 more failures: result.json and plan.json have all of them." in words
    assert "960 more clusters that went wrong are in the tables only." in words
    assert "(46,000 more characters)" in words and "(49,700 more characters)" in words


def test_an_outcome_that_nobody_knows_has_its_place_on_the_page() -> None:
    story = Story().begin().wave(1, "a", "b").walk(1, "a").end_cluster(1, "a", "vanished")
    story.end_cluster(1, "b", "exploded").end("done")
    words = words_of(roll_report.page(plan_of(["a", "b"]), story.events))
    assert "a vanished" in words and "exploded 1 cluster b" in words


def test_hostile_text_is_text() -> None:
    page = PAGES["hostile"]
    assert "<script" not in page and "<svg onload" not in page
    assert "<script>alert(1)</script>" in "".join(Structure(page).text)
    assert not set(page) & set("\x1b\x07\u202e\ud800")


def test_what_looks_like_a_secret_is_not_on_the_page() -> None:
    page = roll_report.page(*rolled.secretive("canary-5fe21c"))
    assert "canary-5fe21c" not in page and "--api-key ********" in page


# -- files -----------------------------------------------------------------------------------


def written(directory: Path) -> dict[str, str]:
    paths = roll_report.write_all(str(directory))
    assert [Path(path).name for path in paths] == FILES and all(Path(path).parent == directory for path in paths)
    return {Path(path).name: Path(path).read_text() for path in paths}


def test_all_files_are_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    of, events = rolled.fleet(3, {"c3": "failed"})
    found = written(rolled.directory(tmp_path, of, events))
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "events.jsonl", *FILES}
    assert json.loads(found["result.json"])["outcome"] == "failed"
    assert found["summary.md"].startswith("## ❌ 1 failed")
    assert ElementTree.fromstring(found["junit.xml"]).attrib["failures"] == "1"
    assert found["report.html"] == roll_report.page(of, events)


def test_the_files_of_a_killed_roll_whose_last_line_was_cut_off(tmp_path: Path) -> None:
    of, events = rolled.fleet(4, {"c2": "cut_off"}, size=1)
    rolled.directory(tmp_path, of, events)
    with (tmp_path / "events.jsonl").open("ab") as target:
        target.write(b'{"at": 1796000300.0, "event": "cluster_en\xff')
    result = json.loads(written(tmp_path)["result.json"])
    assert (result["outcome"], result["remaining"]) == ("interrupted", ["c2", "c3", "c4"])


def test_files_are_written_again_after_the_roll_was_resumed(tmp_path: Path) -> None:
    written(rolled.directory(tmp_path, *rolled.fleet(4, {"c2": "cut_off"}, size=1)))
    result = json.loads(written(rolled.directory(tmp_path, *rolled.resumed()))["result.json"])
    assert (result["outcome"], result["runs"], result["remaining"]) == ("done", 2, [])


@pytest.mark.parametrize("plan", [rolled.refused(), rolled.plan([])])
def test_a_roll_that_never_began_has_files(tmp_path: Path, plan: dict[str, Any]) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert json.loads(written(tmp_path)["result.json"])["outcome"] == plan["decision"]


def test_hostile_text_can_be_written(tmp_path: Path) -> None:
    found = written(rolled.directory(tmp_path, *rolled.hostile()))
    assert "alert(1)" in found["summary.md"]


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_plan_that_cannot_be_read_is_one_message(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(AnsibleActionFail, match=r"no plan of a roll can be read from .*plan\.json: "):
        roll_report.write_all(str(tmp_path))


def test_a_directory_that_cannot_be_written_names_the_variable(tmp_path: Path) -> None:
    rolled.directory(tmp_path, *rolled.fleet(1))
    (tmp_path / "summary.md.new").mkdir()
    with pytest.raises(AnsibleActionFail, match=r"pd_roll_dir .* cannot be written"):
        roll_report.write_all(str(tmp_path))
