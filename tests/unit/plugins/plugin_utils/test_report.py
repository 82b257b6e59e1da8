# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on the page of a verification or a diagnosis, and what never is."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _bundle, _redact
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import report

from ..module_utils.sighting import Sighting
from ..module_utils.test_diagnosis import captures, founding, prefill_alone
from .pages import HOSTILE, diagnosed, incarnations, pages, sighted, verified

PAGES = pages()
CANARY = "canary-5fe21c"
STYLES = (Path(report.__file__).parent / "report_page" / "page.css").read_text()
VOID = {"meta", "br"}


class Structure(HTMLParser):
    """What elements a page has; fails where they are not closed in order."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "title" not in self.open:
            self.text.append(data)


def words_of(page: str) -> str:
    """Return the text of a page."""
    return " ".join(" ".join(Structure(page).text).split())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_loads_and_runs_nothing(name: str) -> None:
    structure = Structure(PAGES[name])
    tags = {tag for tag, _attributes in structure.tags}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "a", "base", "image", "use"}
    for _tag, attributes in structure.tags:
        assert not [one for one in attributes if one.startswith("on") or one in ("src", "href", "style")]
    assert "url(" not in PAGES[name].partition("</style>")[0] and "@import" not in STYLES
    assert "default-src 'none'" in PAGES[name]


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
        if tag == "svg" and not {"viewbox", "aria-hidden"} & set(attributes):
            assert attributes["role"] == "img" and attributes["aria-labelledby"]


@pytest.mark.parametrize("name", ["hostile", "hostile_verification"])
def test_hostile_text_is_text(name: str) -> None:
    page = PAGES[name]
    assert "<script" not in page and "<svg onload" not in page
    assert str(html.escape(HOSTILE, quote=True)).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
    assert HOSTILE[:30] in "".join(Structure(page).text)


def test_half_a_character_of_a_host_does_no_harm(tmp_path: Path) -> None:
    content = dict(verified(), cluster="\ud800")
    (path,) = report.write(str(tmp_path), {"x.html": report.verify_page(content)}, "pd_verify_report_dir")
    assert "cluster <b>?</b>" in Path(path).read_text()


def test_the_verdict_of_a_verification_comes_first_then_its_evidence() -> None:
    words = words_of(PAGES["verified"])
    expected = [
        "✓ It serves",
        "68 of 68 answers are good",
        "Rules",
        "Incarnations",
        "Queues and throughput",
        "Latencies",
    ]
    assert [words.index(one) for one in expected] == sorted(words.index(one) for one in expected)
    assert "slower sequential 8 x 24 tokens is as fast as the baseline REGRESSION against this revision" in words
    assert "All are as the co-restart of generation 1 left them." in words
    assert "drained" in words and "Requests that failed" not in words


def test_a_failed_verification_names_its_failures_and_what_helps() -> None:
    words = words_of(PAGES["verified_badly"])
    assert "✗ Verification failed" in words and "It serves" not in words
    assert "sequential: 4 of 8 requests were not served" in words
    assert "is stuck: holds requests (prefill inflight 40) for 40 s without any work done" in words
    assert "inferops.sglang_pd.diagnose -e pd_diagnose_clusters=c" in words
    assert "Requests that failed" in words


def test_streams_that_were_left_count_as_no_answers() -> None:
    words = words_of(report.verify_page(verified(profile="stress", concurrent_requests=32, sessions=8)))
    assert "aborts: most streams are taken 200 of 200 (200 streams); 200 left by their client" in words
    assert "73 of 73 answers are good" in words


def test_what_was_refused_says_so_and_has_no_pictures() -> None:
    words = words_of(PAGES["refused"])
    assert "host d did not answer: no route" in words and "Nothing was sent, so nothing was judged." in words
    assert "<svg" not in PAGES["refused"]


def test_the_verdict_of_a_diagnosis_comes_first_then_what_to_do_then_its_evidence() -> None:
    words = words_of(PAGES["founding"])
    expected = [
        "✗ Decode was restarted alone against a prefill that kept running",
        "What to do:",
        "inferops.sglang_pd.co_restart -e pd_co_restart_clusters=c",
        "Because",
        "6 starts of it since then",
        "You suspected “overlap schedule”",
        "Incarnations",
        "Queues and throughput",
        "Latencies",
        "Rules",
        "Seen",
    ]
    places = [words.index(one) for one in expected]
    assert places == sorted(places)


def test_every_rule_is_in_the_table_with_its_reason() -> None:
    one = Sighting()
    founding(one)
    rules = one.diagnose()["hypotheses"]
    words = words_of(PAGES["founding"])
    for rule in rules:
        assert "{} {} {}".format(rule["title"], rule["name"], "") in words
        assert not rule["why"] or rule["why"] in words
    assert words.index("holds decode was restarted alone") < words.index("follows") < words.index("not seen a decode's")
    assert words.index("not seen a decode's") < words.index("ruled out a unit ends again")


def test_latencies_of_a_diagnosis_are_those_of_metrics() -> None:
    assert "61 requests since its start" in words_of(PAGES["busy"])
    assert "up to 10 s: 55" in PAGES["busy"]


@pytest.mark.parametrize("scenario", captures())
def test_every_recorded_state_has_a_page(scenario: str) -> None:
    assert scenario in words_of(diagnosed(captures()[scenario], scenario=scenario))


# -- who is newer than whom ------------------------------------------------------------------


def lines_of(*ages: float, **more: Any) -> list[tuple[str, str]]:
    return [(one["look"], one["words"]) for one in report.order(incarnations(*ages, **more))]


def test_a_co_restart_is_in_order() -> None:
    assert lines_of(3600, 3540, 3500) == [
        ("quiet", "decode on d is 1 min newer than prefill on p."),
        ("quiet", "router on r is 40 s newer than decode on d."),
        ("good", "All are as the co-restart of generation 1 left them."),
    ]


def test_a_decode_that_is_older_than_prefill_is_marked() -> None:
    assert ("bad", "decode on d is 4 h older than prefill on p.") in lines_of(600, 4.2 * 3600, 500)
    assert "decode on d is 5 h older than prefill on p." in words_of(sighted(prefill_alone))


def test_what_is_not_on_record_is_marked() -> None:
    lines = lines_of(3600, 3540, 3500, ledger={"incarnation": "another", "generation": 4})
    assert [words for look, words in lines if look == "bad"][1].startswith(
        "decode on d is not on record of generation 4"
    )
    assert not [words for look, words in lines if look == "good"]
    assert "not on record of generation 4" in words_of(PAGES["founding"])


def test_a_co_restart_that_did_not_end_well_is_told() -> None:
    lines = lines_of(3600, 3540, 3500, ledger={"outcome": "failed"})
    assert ("note", "prefill on p: its last co-restart is failed.") in lines
    assert not [words for look, words in lines if look == "good"]


def test_a_restart_of_routers_alone_is_no_fault() -> None:
    seen = incarnations(3600, 3540, 60)
    seen[2]["generation"] = 2
    assert report.order(seen)[-1] == {"look": "quiet", "words": "They are of generations 1, 2."}


def test_a_start_that_is_not_known_is_told() -> None:
    seen = incarnations(3600, 3540, 3500)
    seen[1]["started_at"] = None
    assert report.order(seen)[0] == {"look": "note", "words": "Not known when it was started: decode on d."}


# -- secrets ---------------------------------------------------------------------------------


def test_no_secret_and_nothing_that_was_not_asked_for_gets_on_a_page() -> None:
    one = Sighting()
    founding(one)
    items = one.items()
    for item in items:
        if item["endpoint"] == _bundle.MEMBER:
            item["body"] = item["body"].replace('"settings": {', '"settings": {{"api_key": "{0}", '.format(CANARY))
            item["body"] = item["body"].replace(
                '"gpus": []', '"gpus": [], "extra_env": {{"TOKEN": "{0}"}}'.format(CANARY)
            )
            assert CANARY in item["body"]
        if item["endpoint"] == "server_info":
            item["body"] = json.dumps(dict(json.loads(item["body"]), api_key=CANARY))
    items.append(_bundle.item(_bundle.JOURNAL, "started with " + CANARY, "d", "sglang-c-decode.service", 1.0))
    assert CANARY not in diagnosed(items)


def test_what_looks_like_a_secret_is_hidden_wherever_it_comes_from() -> None:
    content = verified(bad="exec: python --api-key {0} failed".format(CANARY))
    assert CANARY in str(content["failures"])
    page = report.verify_page(content)
    assert CANARY not in page and "--api-key " + _redact.HIDDEN in page


# -- colours ---------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG has it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_and_pictures_stand_out(scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", STYLES, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", blocks[scheme]))
    for text in ("text", "quiet", "good", "bad", "note"):
        for back in ("page", "card"):
            assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
    for look in ("good", "bad", "note"):
        assert contrast(colours[look], colours[look + "-back"]) >= 4.5, look
        assert contrast(colours["text"], colours[look + "-back"]) >= 4.5, look
    for shape in ("prefill", "decode", "router", "speed", "inflight"):
        assert contrast(colours[shape], colours["page"]) >= 3, shape
    # Bars of a roll have their names on them.
    for bar in ("drain", "prefill", "decode", "router", "proof"):
        assert contrast(colours[bar], colours["page"]) >= 4.5, bar
