# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll plan, and what a roll came to, as comments on a merge request."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_markdown

from .. import rolled
from .test_comment import RENDERER, shown

GITHUB = 65_536
#: Elements that we write; none may come from a plan.
ELEMENTS = set("h2 h3 table thead tbody tr th td ul li p em strong code pre details summary b".split())


def elements_of(markdown: str) -> set[str]:
    return set(re.findall(r"<([a-z0-9]+)", RENDERER.render(markdown)))


def column(markdown: str, heading: str, number: int) -> list[str]:
    """Return what a column of the table under a heading shows."""
    page = RENDERER.render(markdown)
    table = re.search(r"<h3>{0}.*?</h3>\s*<table>(.*?)</table>".format(re.escape(heading)), page, re.DOTALL)
    assert table, heading
    rows = re.findall(r"<tr>(.*?)</tr>", table.group(1).partition("<tbody>")[2], re.DOTALL)
    return [re.sub("<[^>]*>", "", re.findall(r"<td>(.*?)</td>", row, re.DOTALL)[number]) for row in rows]


# -- plans -----------------------------------------------------------------------------------


def test_a_plan_has_its_decision_its_waves_and_each_cluster_folded_away() -> None:
    of, _events = rolled.fleet(3, size=2, alone=5)
    text = roll_markdown.plan_markdown(of)
    assert text.startswith("## Roll plan `20261130T170000Z-ab12cd`\n")
    assert "**go**" in text and "3 of 8 clusters restart in 2 waves, 2 in maintenance, 3 skipped" in text
    assert column(text, "Waves", 2) == ["c1", "c2, c3"]
    assert column(text, "Waves", 3)[1].startswith("deepseek-v4: 2 of 3 clusters, at most 2; domain rack1")
    assert text.count("<details>") == text.count("</details>") == 3
    assert column(text, "Clusters that do not restart", 2) == ["disk", "nothing is due"]
    assert elements_of(text) <= ELEMENTS


def test_a_cluster_has_a_table_of_its_settings_and_one_of_its_restarts() -> None:
    text = roll_markdown.plan_markdown(rolled.plan([["a"]]))
    words = " ".join(shown(text).split())
    assert "a: wave 1, prefill, decode, router restart, generation 7, about 2 min 5 s" in words
    assert (
        "setting carrier deployed running state where cuda_graph_max_bs --cuda-graph-max-bs-decode 96 64 pending"
        in words
    )
    assert "decode sglang-a-decode.service a-2 restart its configuration changed" in words
    assert words.index("sglang-a-prefill.service a-1") < words.index("sglang-a-decode.service a-2 restart")


def test_a_refused_plan_has_rule_evidence_variable_and_what_helps() -> None:
    text = roll_markdown.plan_markdown(rolled.refused())
    assert "**refused**: nothing is touched" in text
    assert "variable `pd_roll_max_unavailable`, rule `capacity stays`" in text
    assert "no answer within 35 s" in text and "-e pd_roll_repair=true" in text
    assert "### Waves" not in text


def test_nothing_to_do_has_no_waves_and_no_clusters_that_restart() -> None:
    text = roll_markdown.plan_markdown(rolled.plan([], {"a": rolled.left("skip", "nothing is due")}))
    assert "**nothing to do**" in text and "### Waves" not in text and "that restart" not in text
    assert column(text, "Clusters that do not restart", 3) == ["a"]


@pytest.mark.parametrize("size", [1, 25, 250])
def test_a_plan_of_a_thousand_clusters_fits_a_comment_and_counts_the_rest(size: int) -> None:
    of, _events = rolled.fleet(1000, size=size, alone=100)
    text = roll_markdown.plan_markdown(of)
    assert 40_000 < len(text.encode()) < GITHUB
    folded = text.count("<details>")
    assert folded == text.count("</details>")
    assert "*{0} more left out here; `plan.json` has all of them.*".format(1000 - folded) in text
    # Why others do not restart has room, too.
    assert column(text, "Clusters that do not restart", 0) == ["75", "25"] or (
        column(text, "Clusters that do not restart", 0) == ["25", "75"]
    )


def test_a_larger_limit_has_more_of_the_plan() -> None:
    of, _events = rolled.fleet(1000, size=25)
    text = roll_markdown.plan_markdown(of, most=990_000)
    assert text.count("<details>") > 800 and len(text) < 1_000_000


def test_values_of_any_length_do_not_break_the_limit() -> None:
    of, _events = rolled.fleet(40, size=5)
    for one in of["clusters"].values():
        one["settings"] *= 200
        for number, row in enumerate(one["settings"]):
            one["settings"][number] = dict(row, deployed=str(number) + "模" * 5000)
    assert len(roll_markdown.plan_markdown(of).encode()) < GITHUB


def test_hostile_values_stay_text_in_their_cells() -> None:
    of, events = rolled.hostile()
    for text in (roll_markdown.plan_markdown(of), roll_markdown.summary_markdown(of, events)):
        assert elements_of(text) <= ELEMENTS
        assert "alert(1)" in shown(text)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
        for line in text.splitlines():
            if line.startswith("| "):
                assert line.endswith(" |")


# -- what it came to -------------------------------------------------------------------------


def test_a_roll_that_ended_well_tells_durations_downtimes_and_latencies() -> None:
    text = roll_markdown.summary_markdown(*rolled.fleet(3, size=2))
    assert text.startswith("## ✅ Done: 3 of 3 clusters restarted\n")
    assert column(text, "Clusters", 0) == ["c1", "c2", "c3"]
    assert column(text, "Clusters", 3) == ["3 min 6 s", "3 min 7 s", "3 min 6 s"]
    assert column(text, "Clusters", 4) == ["1 min 28 s"] * 3
    assert column(text, "Clusters", 5) == ["0.590 s"] * 3 and column(text, "Clusters", 6) == ["0.570 s"] * 3
    assert "What failed" not in text and "Remaining" not in text


def test_a_failure_tells_its_evidence_what_remains_and_which_command_helps() -> None:
    text = roll_markdown.summary_markdown(*rolled.fleet(6, {"c2": "rolled_back", "c3": "failed"}, budget=1))
    assert text.startswith("## ❌ 1 failed, 1 rolled back, 1 of 6 clusters restarted\n")
    assert "ansible-playbook inferops.sglang_pd.diagnose -e pd_diagnose_clusters=c3\n" in text
    assert "-e pd_roll_id=20261130T170000Z-ab12cd\n" in text
    assert "CUDA error: out of memory" in text
    assert "failed in wave 2; it does not serve, as far as is known" in text
    assert "rolled back in wave 2; it serves with what it had before" in text
    assert "### Remaining: 3 clusters\n\n`c4`,\n`c5`,\n`c6`" in text
    assert column(text, "Clusters", 0)[0] == "c3"


def test_a_second_attempt_is_told() -> None:
    text = roll_markdown.summary_markdown(*rolled.fleet(2, {"c2": "widened"}))
    assert column(text, "Clusters", 2) == ["done", "done, after the whole chain"]


def test_a_summary_of_a_thousand_failures_fits_a_comment() -> None:
    outcomes = dict.fromkeys(rolled.names(1000), "failed")
    text = roll_markdown.summary_markdown(*rolled.fleet(1000, outcomes, size=25, budget=2000))
    assert 40_000 < len(text.encode()) < GITHUB
    assert re.search(r"\*\d+ more left out here; `result.json` has all of them.\*", text)
    assert text.count("<details>") == text.count("</details>") > 20


def test_a_roll_whose_plan_is_gone_is_told_by_its_events() -> None:
    _plan, events = rolled.fleet(3)
    text = roll_markdown.summary_markdown(None, events)
    assert "Done: 3 of 3 clusters restarted" in text and column(text, "Clusters", 0) == ["c1", "c2", "c3"]


@pytest.mark.parametrize("kind", ["plan", "summary"])
def test_what_looks_like_a_secret_is_in_no_comment(kind: str) -> None:
    of, events = rolled.secretive("canary-5fe21c")
    text = roll_markdown.plan_markdown(of) if kind == "plan" else roll_markdown.summary_markdown(of, events)
    assert "canary-5fe21c" not in text and "5fe21c" not in shown(text)
    assert "********" in shown(text)


def test_the_problems_of_a_refused_roll_are_in_its_summary() -> None:
    story: dict[str, Any] = rolled.refused()
    text = roll_markdown.summary_markdown(story, [])
    assert text.startswith("## ❌ Refused, nothing was touched\n")
    assert "pd_roll_max_unavailable" in text and "What failed" not in text
