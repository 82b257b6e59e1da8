# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lets plain ``pytest tests/unit`` import this checkout as an installed collection."""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _is_importable() -> bool:
    try:
        return importlib.util.find_spec("ansible_collections.inferops.sglang_pd") is not None
    except ModuleNotFoundError:
        return False


if not _is_importable():
    _folder = tempfile.mkdtemp(prefix="sglang-pd-collections-")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    _namespace = Path(_folder, "ansible_collections", "inferops")
    _namespace.mkdir(parents=True)
    (_namespace / "sglang_pd").symlink_to(ROOT)
    sys.path.insert(0, _folder)
