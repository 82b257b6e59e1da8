# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages in a real browser: on a phone, on a desk, in the dark, and in print."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest

from .chromium import Browser
from .pages import pages

PAGES = pages()
PHONE, DESK = 390, 1280
SECTIONS = ["Rules", "Incarnations", "Queues and throughput", "Latencies"]
#: Pictures of each page: incarnations, what engines held, throughput, latencies.
PICTURES = {
    "verified": (1, 2, 1, 4),
    "verified_badly": (1, 2, 1, 4),
    "refused": (0, 0, 0, 0),
    "hostile_verification": (1, 1, 1, 4),
    "founding": (1, 1, 0, 0),
    "vanished": (1, 0, 0, 0),
    "busy": (1, 2, 1, 1),
    "hostile": (1, 2, 1, 1),
    "recorded_wedge": (0, 0, 0, 0),
    "recorded_midstream": (0, 1, 1, 0),
}
#: The rightmost edge of anything that is seen.
RIGHTMOST = (
    "Math.max(document.documentElement.scrollWidth, "
    "...[...document.querySelectorAll('body, body *:not(svg *)')].map(one => one.getBoundingClientRect().right))"
)
COUNTS = (
    "['svg.timeline', 'svg[aria-labelledby^=held]', 'svg[aria-labelledby^=speed]', 'svg[aria-labelledby^=latency]']"
    ".map(one => document.querySelectorAll(one).length)"
)
#: Each picture's place on the page.
PLACES = (
    "[...document.querySelectorAll('svg[role=img]')].map(one => one.getBoundingClientRect())"
    ".map(one => ({x: one.x + scrollX, y: one.y + scrollY, width: one.width, height: one.height}))"
)
#: Takes bars and curves out of all pictures, and leaves axes and text.
HIDE = (
    "document.querySelectorAll('svg rect, svg polygon, svg polyline, svg circle')"
    ".forEach(one => { one.style.visibility = 'hidden' })"
)
COLOURS = "['body', 'h1', '.bar.prefill'].map(one => getComputedStyle(document.querySelector(one)))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all pages."""
    path = tmp_path_factory.mktemp("pages")
    for name, text in PAGES.items():
        (path / (name + ".html")).write_text(text)
    return path


def size_of(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def lines_of(png: bytes) -> int:
    """Return how many different lines of pixels a picture has: a blank one has about one."""
    width, height = size_of(png)
    place, packed = 8, b""
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        packed += png[place + 8 : place + 8 + length] if kind == b"IDAT" else b""
        place += length + 12
    pixels = zlib.decompress(packed)
    line = len(pixels) // height
    assert line > width
    return len({pixels[number * line : (number + 1) * line] for number in range(height)})


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_wide_as_a_phone_and_whole(browser: Browser, folder: Path, name: str) -> None:
    browser.open(folder / (name + ".html"), PHONE)
    assert browser.value(RIGHTMOST) <= PHONE
    assert set(SECTIONS) <= set(browser.value("[...document.querySelectorAll('h2')].map(one => one.textContent)"))
    assert tuple(browser.value(COUNTS)) == PICTURES[name]
    picture = browser.whole()
    width, height = size_of(picture)
    assert width == PHONE and height == browser.value("document.documentElement.scrollHeight")
    assert lines_of(picture) > 100
    assert browser.troubles == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_desk(browser: Browser, folder: Path, name: str) -> None:
    browser.open(folder / (name + ".html"), DESK)
    assert browser.value(RIGHTMOST) <= DESK
    assert size_of(browser.whole())[0] == DESK
    assert browser.troubles == []


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", ["verified_badly", "founding", "busy"])
def test_every_picture_shows_something(browser: Browser, folder: Path, name: str, width: int) -> None:
    browser.open(folder / (name + ".html"), width)
    places = browser.value(PLACES)
    assert len(places) == sum(PICTURES[name])
    assert all(place["width"] > 250 and place["height"] >= 100 for place in places)
    drawn = [browser.screenshot(place) for place in places]
    browser.value(HIDE)
    assert not [number for number, place in enumerate(places) if browser.screenshot(place) == drawn[number]]


def test_a_phone_shows_the_verdict_before_anything_is_scrolled(browser: Browser, folder: Path) -> None:
    for name in PAGES:
        browser.open(folder / (name + ".html"), PHONE)
        assert browser.value("document.querySelector('h1').getBoundingClientRect().top") < 500, name


def test_labels_of_pictures_do_not_leave_them(browser: Browser, folder: Path) -> None:
    outside = (
        "[...document.querySelectorAll('svg[role=img] > text')].filter(one => {"
        "  const [text, picture] = [one, one.closest('svg')].map(it => it.getBoundingClientRect());"
        "  return text.left < picture.left - 1 || text.right > picture.right + 1 || text.bottom > picture.bottom + 4"
        "}).map(one => one.textContent)"
    )
    for name in ("verified", "verified_badly", "founding", "vanished", "busy"):
        for width in (PHONE, DESK):
            browser.open(folder / (name + ".html"), width)
            assert browser.value(outside) == [], (name, width)


def test_hostile_text_runs_nothing_and_stays_in_its_place(browser: Browser, folder: Path) -> None:
    for name in ("hostile", "hostile_verification"):
        browser.open(folder / (name + ".html"), PHONE)
        assert browser.value("document.querySelectorAll('script, [onload]').length") == 0
        assert "<script>alert(1)</script>" in browser.value("document.body.innerText")
        assert browser.value("document.querySelectorAll('main, header, footer').length") == 3


def test_the_policy_keeps_even_a_script_from_running(browser: Browser, folder: Path) -> None:
    path = folder / "broken_into.html"
    script = "<script>document.title = 'ran'</script><img src='http://192.0.2.1/x.png'>"
    path.write_text(PAGES["verified"].replace("<main>", "<main>" + script))
    browser.open(path)
    assert browser.value("document.title") == "c: It serves"
    # The same looks for console errors and for loading that the other tests rely on.
    assert any("Content Security Policy" in trouble for trouble in browser.troubles)


def test_a_page_is_dark_where_the_reader_wants_that(browser: Browser, folder: Path) -> None:
    seen = {}
    for dark in (False, True):
        browser.open(folder / "founding.html", PHONE, dark=dark)
        seen[dark] = browser.value(COLOURS + ".map(one => [one.backgroundColor, one.color, one.fill].join())")
    assert all(light != dark for light, dark in zip(seen[False], seen[True]))
    assert seen[False][0].startswith("rgb(255, 255, 255)") and seen[True][0].startswith("rgb(15, 19, 24)")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_prints_on_few_sheets_and_on_white(browser: Browser, folder: Path, dark: bool) -> None:
    for name, most in (("verified", 5), ("verified_badly", 6), ("founding", 6), ("hostile", 30)):
        browser.open(folder / (name + ".html"), DESK, dark=dark)
        pdf = browser.pdf()
        assert pdf.startswith(b"%PDF-") and len(pdf) > 10_000
        assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= most, name
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value(COLOURS + "[0].color") == "rgb(27, 31, 36)"
    # What is wider than the sheet would be cut off.
    browser.call("Emulation.setDeviceMetricsOverride", width=680, height=900, deviceScaleFactor=1, mobile=False)
    assert browser.value(RIGHTMOST) <= 680
