# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``bin/sglang-pd`` starts, with its own path as the first argument: makes this collection importable, then runs
the command.

Wherever the collection lies, its own files are what is imported: not those of a collection of the same name on
some path, nor those that the ``ansible`` package brings.
"""

from __future__ import annotations

import os
import sys
import types


def importable(collection: str) -> None:
    """Make ``ansible_collections.inferops.sglang_pd`` importable from a directory."""
    parent = None
    for name, path in (
        ("ansible_collections", []),
        ("ansible_collections.inferops", []),
        ("ansible_collections.inferops.sglang_pd", [collection]),
    ):
        module = types.ModuleType(name)
        module.__path__ = path
        sys.modules[name] = module
        if parent is not None:
            setattr(parent, name.rpartition(".")[2], module)
        parent = module


if __name__ == "__main__":
    importable(os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "..")))
    from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.command import main

    sys.exit(main(sys.argv[2:], sys.argv[1]))
