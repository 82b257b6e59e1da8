# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A headless Chromium, driven by its DevTools protocol over two pipes: one browser for many pages and widths.

Not by ``--dump-dom`` and ``--screenshot``: a window of Chromium is never as narrow as a phone, and neither of
them tells of console errors or of attempts to load something.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
LIMIT_SECONDS = 60
FLAGS = (
    # The pages are ours, and containers often have no user namespaces.
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --force-device-scale-factor=1 "
    "--remote-debugging-pipe about:blank"
).split()


class Browser:
    """One browser with one page."""

    def __init__(self, profile: Path):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        assert program, "no Chromium: make setup installs it"
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # Chromium reads its file 3 and writes its file 4, which pipes may already be: first out of the way.
        words = 'exec 3<&{0} 4>&{1}; exec "$@"'.format(*(os.dup(one) for one in (to_read, to_write)))
        high = [int(word) for word in (words.split("<&")[1].split()[0], words.split(">&")[1].split(";")[0])]
        self._process = subprocess.Popen(
            ["bash", "-c", words, "bash", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for one in (to_read, to_write, *high):
            os.close(one)
        self._buffer = b""
        self._number = 0
        self._session = ""
        #: Everything that the page logged, threw or wanted to load since :meth:`open`.
        self.troubles: list[str] = []
        self._loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError, AssertionError):
            self._session = ""
            self.call("Browser.close")
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + LIMIT_SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium says nothing any more"
            read = os.read(self._read, 1 << 20)
            assert read, "Chromium ended"
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._take(message.get("method", ""), message.get("params", {}))
        return message

    def _take(self, event: str, about: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.troubles.append(json.dumps(about))
        elif event == "Network.requestWillBeSent" and about.get("type") != "Document":
            self.troubles.append("loads " + about["request"]["url"])

    def open(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        """Open a file from disk at so many pixels."""
        self.troubles, self._loaded = [], False
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; the page's own policy does not bind it."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, clip: dict[str, float] | None = None) -> bytes:
        """Return the whole page, or a part of it (``x``, ``y``, ``width``, ``height``), as PNG."""
        more = {"clip": {**clip, "scale": 1}} if clip else {}
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **more)
        return base64.b64decode(found["data"])

    def whole(self) -> bytes:
        """Return all of the page from its top to its end as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return self.screenshot({"x": 0, "y": 0, "width": size["width"], "height": size["height"]})

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
