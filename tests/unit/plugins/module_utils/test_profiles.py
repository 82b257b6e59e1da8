# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a verification sends, as data."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _profiles

from ..fleet import member

OPTIONS: dict[str, Any] = {
    "profile": "stress",
    "parts": [],
    "golden": [],
    "prompt": "say hi briefly",
    "max_tokens": 24,
    "temperature": 0.6,
    "any_text": False,
    "long_prompt_words": 1500,
}
BOX = [member("prefill", "b"), member("decode", "b"), member("router", "b")]


def plan(members: list[dict[str, Any]], **options: Any) -> dict[str, dict[str, Any]]:
    return {part["part"]: part for part in _profiles.plan(members, dict(OPTIONS, **options))}


def test_smoke_is_the_founding_check_through_each_router() -> None:
    members = [*BOX, member("router", "other")]
    (part,) = _profiles.plan(members, dict(OPTIONS, profile="smoke"))
    assert [len(lane) for lane in part["lanes"]] == [8, 8]
    assert {lane[0]["via"].split("@")[1] for lane in part["lanes"]} == {"b", "other"}
    body = _profiles.body_of(part["lanes"][0][0], [], "m")
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "say hi briefly"}],
        "max_tokens": 24,
        "temperature": 0.6,
    }


def test_stress_is_the_founding_stress_and_a_storm() -> None:
    parts = plan(BOX)
    assert list(parts) == ["sequential", "pairs", "concurrent", "agentic", "aborts", "after_aborts"]
    assert [len(lane) for lane in parts["agentic"]["lanes"]] == [3] * 30
    assert all(lane[0]["drop"]["seconds"] <= 3 for lane in parts["aborts"]["lanes"])


def test_H11_every_pair_gets_short_and_long_prompts_several_times() -> None:
    members = [
        *[member("prefill", f"p{n}") for n in range(2)],
        *[member("decode", f"d{n}") for n in range(3)],
        member("decode", "d2", unit="rank1", nnodes=2, node_rank=1),
    ]
    lanes = plan(members)["pairs"]["lanes"]
    assert len({(lane[0]["prefill"], lane[0]["decode"]) for lane in lanes}) == len(lanes) == 6
    for lane in lanes:
        words = [len(request["messages"][0]["content"].split()) for request in lane]
        assert sum(1 for count in words if count < 10) == 3
        assert sum(1 for count in words if count > 1500) == 3


def test_sessions_grow_and_know_each_others_words() -> None:
    lanes = plan(BOX, sessions=3)["agentic"]["lanes"]
    sizes = [len(request["messages"][0]["content"]) for request in lanes[0]]
    assert sizes == sorted(sizes)
    words = [_profiles.word_of(number) for number in range(3)]
    for number, lane in enumerate(lanes):
        others = [word for word in words if word != words[number]]
        assert all(request["foreign"] == others for request in lane)
        assert all(not any(word in request["messages"][0]["content"] for word in others) for request in lane)
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert _profiles.body_of(lanes[0][1], before, "m")["messages"][:2] == before


def test_words_of_sessions_are_not_parts_of_each_other() -> None:
    words = [_profiles.word_of(number) for number in range(999)]
    assert len(set(words)) == len(words)
    assert not any(one != other and one in other for one in words[:100] for other in words)


def test_sizes_are_the_options_before_the_profiles() -> None:
    assert _profiles.sizes(dict(OPTIONS))["concurrent_requests"] == 200
    assert _profiles.sizes(dict(OPTIONS, profile="smoke"))["concurrent_requests"] == 32
    assert _profiles.sizes(dict(OPTIONS, concurrent_requests=1000))["concurrent_requests"] == 1000


def test_parts_are_chosen_and_without_a_router_nothing_is_routed() -> None:
    assert list(plan(BOX, parts=["concurrent", "sequential"])) == ["sequential", "concurrent"]
    assert list(plan(BOX[:2])) == ["pairs"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"parts": ["agentik"]}, "did you mean agentic"),
        ({"golden": [{"prompt": "x"}]}, "item 0 wants prompt and text"),
        ({"golden": [{"prompt": "x", "text": "(", "match": "matches"}]}, "no regular expression"),
        ({"golden": [{"prompt": "x", "text": "y", "match": "like"}]}, "there are equals, contains, matches"),
        ({"sessions": 0}, "sessions is 0"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    (problem,) = _profiles.problems_of(dict(OPTIONS, **options))
    assert words in problem["message"]
    assert problem["variable"].startswith("pd_verify_")


def test_what_would_be_sent_in_words() -> None:
    parts = plan([*BOX, member("decode", "c")])
    assert _profiles.describe(parts["pairs"]) == (
        "pairs: 12 requests (3 short and 3 long x 24 tokens) straight to each of 2 prefill x decode pairs, 4 at a time"
    )
    assert "200 requests" in _profiles.describe(parts["aborts"])
    assert "each left by its client" in _profiles.describe(parts["aborts"])


def test_a_co_restart_sends_its_profile_without_the_sequential_requests_which_it_sent_already() -> None:
    def parts(profile: str, **given: Any) -> list[str]:
        found: list[str] = _profiles.after_co_restart(profile, given)["parts"]
        return found

    golden = [{"prompt": "p", "text": "t"}]
    assert parts("none", golden=golden) == []
    assert parts("smoke") == []
    assert parts("smoke", golden=golden) == ["golden"]
    assert parts("standard") == ["pairs", "concurrent", "agentic"]
    assert parts("stress", golden=golden) == [part for part in _profiles.PARTS if part not in ("sequential", "soak")]
    options = _profiles.after_co_restart("standard", {"prompt": "hello", "request_limit_seconds": 7})
    assert (options["prompt"], options["request_limit_seconds"], options["max_tokens"]) == ("hello", 7, 24)
