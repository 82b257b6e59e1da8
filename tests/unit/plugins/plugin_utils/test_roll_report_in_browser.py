# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of rolls in a real browser: on a phone, on a desk, in the dark, and in print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .chromium import Browser
from .roll_pages import pages
from .test_report_in_browser import DESK, PHONE, lines_of, size_of

PAGES = pages()
#: Waves and clusters with a row in the picture.
ROWS = {"three": (2, 3), "six": (2, 3), "cut_off": (2, 2), "resumed": (4, 4), "hostile": (2, 3)}
COUNTS = (
    "['rect.wave', 'svg.gantt > text:not(.small, .wave, .number, .end)']"
    ".map(one => document.querySelectorAll(one).length)"
)
DRAWN = ("three", "six", "thousand", "one_at_a_time", "cut_off", "resumed")
#: The rightmost edge of anything that is seen; what is folded away is not.
RIGHTMOST = (
    "Math.max(document.documentElement.scrollWidth, "
    "...[...document.querySelectorAll('body, body *:not(svg *, details *)')]"
    ".map(one => one.getBoundingClientRect().right))"
)
PLACE = "(one => ({x: one.x + scrollX, y: one.y + scrollY, width: one.width, height: one.height}))"
#: Words of the picture that meet each other or leave it.
MEET = """(() => {
  const svg = document.querySelector('svg.gantt'), picture = svg.getBoundingClientRect(), found = [];
  const texts = [...svg.querySelectorAll(':scope > text:not(.number, .end)')]
    .map(one => [one, one.getBoundingClientRect()]);
  texts.forEach(([one, box], place) => {
    if (box.left < picture.left - 1 || box.right > picture.right + 1 || box.bottom > picture.bottom + 4)
      found.push(one.textContent);
    texts.slice(place + 1, place + 6).forEach(([other, its]) => {
      if (box.right > its.left && its.right > box.left && box.bottom > its.top + 3 && its.bottom > box.top + 3)
        found.push(one.textContent + ' / ' + other.textContent);
    });
  });
  return found;
})()"""
HIDE = (
    "document.querySelectorAll('svg rect.bar, svg line.down, svg polygon')"
    ".forEach(one => { one.style.visibility = 'hidden' })"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all pages."""
    path = tmp_path_factory.mktemp("pages")
    for name, text in PAGES.items():
        (path / (name + ".html")).write_text(text)
    return path


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_reader(browser: Browser, folder: Path, name: str, width: int) -> None:
    browser.open(folder / (name + ".html"), width)
    assert browser.value(RIGHTMOST) <= width
    assert browser.value("document.querySelector('h1').getBoundingClientRect().top") < 200
    if name in ROWS:
        assert tuple(browser.value(COUNTS)) == ROWS[name]
    assert browser.troubles == []


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", DRAWN)
def test_words_of_the_picture_do_not_meet_and_bars_are_seen(
    browser: Browser, folder: Path, name: str, width: int
) -> None:
    browser.open(folder / (name + ".html"), width)
    assert browser.value(MEET) == []
    place = browser.value(PLACE + "(document.querySelector('svg.gantt').getBoundingClientRect())")
    assert place["width"] > 300 and place["height"] > 100
    drawn = browser.screenshot(place)
    assert lines_of(drawn) > 30
    browser.value(HIDE)
    assert browser.screenshot(place) != drawn


def test_a_phone_shows_who_does_not_serve_before_anything_is_scrolled(browser: Browser, folder: Path) -> None:
    for name in ("six", "thousand", "cut_off", "refused"):
        browser.open(folder / (name + ".html"), PHONE)
        assert browser.value("document.querySelector('header .bad').getBoundingClientRect().bottom") < 500, name
    # And what to do, where the screen is as high as most are.
    browser.open(folder / "six.html", PHONE)
    assert browser.value("document.querySelector('header pre').getBoundingClientRect().bottom") < 700


def test_what_is_folded_away_can_be_read(browser: Browser, folder: Path) -> None:
    browser.open(folder / "thousand.html", PHONE)
    before = browser.value("document.documentElement.scrollHeight")
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert browser.value("document.documentElement.scrollHeight") > before + 20_000
    assert browser.value("document.documentElement.scrollWidth") <= PHONE


def test_hostile_text_runs_nothing_and_stays_in_its_place(browser: Browser, folder: Path) -> None:
    browser.open(folder / "hostile.html", PHONE)
    assert browser.value("document.querySelectorAll('script, [onload]').length") == 0
    assert "<script>alert(1)</script>" in browser.value("document.body.innerText")
    assert browser.value("document.querySelectorAll('main, header, footer').length") == 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_prints_on_few_sheets_and_on_white(browser: Browser, folder: Path, dark: bool) -> None:
    for name, most in (("three", 3), ("six", 5), ("thousand", 9)):
        browser.open(folder / (name + ".html"), DESK, dark=dark)
        pdf = browser.pdf()
        assert pdf.startswith(b"%PDF-")
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= most, name
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    browser.call("Emulation.setDeviceMetricsOverride", width=680, height=900, deviceScaleFactor=1, mobile=False)
    assert browser.value(RIGHTMOST) <= 680


def test_bars_have_other_colours_in_the_dark(browser: Browser, folder: Path) -> None:
    fills = (
        "['drain', 'prefill', 'decode', 'router', 'proof']"
        ".map(one => getComputedStyle(document.querySelector('rect.bar.' + one)).fill)"
    )
    seen = []
    for dark in (False, True):
        browser.open(folder / "three.html", PHONE, dark=dark)
        seen.append(browser.value(fills))
        assert len(set(seen[-1])) == 5
    assert not set(seen[0]) & set(seen[1])
    assert size_of(browser.whole())[0] == PHONE
