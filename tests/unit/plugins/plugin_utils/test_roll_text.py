# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A roll plan on a terminal."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_text, roll_words

from .. import rolled
from ..rolls import plan_of


def text_of(plan: dict[str, Any], **more: Any) -> str:
    return "\n".join(roll_text.plan_text(plan, **more))


def test_a_plan_tells_decision_waves_capacity_and_duration() -> None:
    of, _events = rolled.fleet(3, size=2, alone=5)
    lines = roll_text.plan_text(of)
    assert lines[:4] == [
        "roll 20261130T170000Z-ab12cd: GO",
        "  for      weekly roll, by ops@ci pid 17",
        "  clusters 3 of 8 clusters restart in 2 waves, 2 in maintenance, 3 skipped",
        "  lasts    about 6 min 10 s",
    ]
    place = lines.index("wave 2, batch: c2, c3")
    assert lines[place + 1 : place + 3] == [
        "  takes    deepseek-v4: 2 of 3 clusters, at most 2; domain rack1: 2 of 9 clusters, at most 9",
        "  lasts    about 3 min 5 s, with 1 min of soak",
    ]


def test_a_cluster_tells_what_restarts_in_which_order_and_what_differs() -> None:
    of = rolled.plan([["a"]])
    of["clusters"]["a"]["restarts"].reverse()
    lines = roll_text.plan_text(of)
    place = lines.index("cluster a, wave 1: prefill, decode, router restart, generation 7, about 2 min 5 s")
    assert [line.split()[0] for line in lines[place + 1 : place + 7]] == (
        ["why", "scope", "prefill", "decode", "router", "setting"]
    )
    assert lines[place + 6] == (
        "  setting  pending cuda_graph_max_bs (--cuda-graph-max-bs-decode): 64 runs, 96 is deployed; "
        "sglang-a-decode.service on a-2; deployed after its start"
    )


def test_a_setting_that_differs_in_many_units_is_one_line() -> None:
    of = rolled.plan([["a"]])
    (row,) = of["clusters"]["a"]["settings"]
    of["clusters"]["a"]["settings"] = [dict(row, host="h{0}".format(number)) for number in range(8)]
    (line,) = [line for line in roll_text.plan_text(of) if line.startswith("  setting")]
    assert "sglang-a-decode.service on h0, " in line and "and 5 more" in line


def test_a_refusal_tells_rule_evidence_variable_and_what_helps() -> None:
    text = text_of(rolled.refused())
    assert text.startswith("roll 20261130T170000Z-ab12cd: REFUSED, nothing is touched\n")
    for part in ("capacity stays", "no answer within 35 s", "pd_roll_max_unavailable", "-e pd_roll_repair=true"):
        assert part in text
    assert "  1 cluster, refused: it is down: c" in text


def test_nothing_to_do_says_so_and_why() -> None:
    text = text_of(rolled.plan([], {"a": rolled.left("skip", "nothing is due")}))
    assert "nothing to do" in text and "none of 1 cluster restarts, 1 skipped" in text
    assert "  1 cluster, skipped: nothing is due: a" in text


def test_a_cluster_that_is_down_and_one_in_maintenance_say_why() -> None:
    alone = {"m": rolled.left("maintenance", "disk is being replaced")}
    of = rolled.plan([["a"]], alone)
    of["clusters"]["a"].update(condition="down", evidence="8 of 8 requests failed")
    text = text_of(of)
    assert "  down     8 of 8 requests failed" in text
    assert "  1 cluster, in maintenance: disk is being replaced: m" in text


def test_a_large_plan_is_short_and_counts_what_it_leaves_out() -> None:
    of, _events = rolled.fleet(1000, size=25, alone=40)
    lines = roll_text.plan_text(of)
    assert len(lines) < 150
    assert "... and 29 more waves: all of it is in plan.json" in lines
    left = [line for line in lines if line.startswith("... and 988 more clusters")]
    assert len(left) == 1 and "plan.json" in left[0]
    assert max(map(len, lines)) < 700


def test_a_terminal_obeys_nothing_of_a_plan() -> None:
    of, _events = rolled.hostile()
    for line in roll_text.plan_text(of):
        assert line.isprintable(), line
    assert "\x1b" in rolled.HOSTILE


def test_a_plan_with_the_least_keys_is_told() -> None:
    # Of another version, or made by hand.
    text = text_of({"roll": "r", "decision": "go", "waves": [{"number": 1, "clusters": ["a"]}], "clusters": {"a": {}}})
    assert "wave 1, batch: a" in text and "cluster a, wave 0" in text
    assert "cluster a, wave 1: no stage restarts, generation 7, about 1 min 30 s" in text_of(plan_of(["a"]))
    assert text_of({})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (True, ""),
        (-1, ""),
        (float("nan"), ""),
        (0, "0 s"),
        (2.25, "2.2 s"),
        (45, "45 s"),
        (59.6, "1 min"),
        (190, "3 min 10 s"),
        (7500, "2 h 5 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations_are_in_their_two_largest_units(seconds: Any, text: str) -> None:
    assert roll_words.span(seconds) == text


def test_what_looks_like_a_secret_is_on_no_terminal() -> None:
    of, _events = rolled.secretive("canary-5fe21c")
    assert "canary-5fe21c" not in text_of(of)
    assert "--api-key ********" in text_of(of)
