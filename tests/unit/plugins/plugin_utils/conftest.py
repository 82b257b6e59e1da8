# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of pages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .chromium import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser; all tests share it."""
    one = Browser(tmp_path_factory.mktemp("profile"))
    yield one
    one.close()
