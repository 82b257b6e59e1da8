# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where this collection and ``ansible-playbook`` are, so that both are those of the command."""

from __future__ import annotations

import os
import shutil
import sys

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import PipelineError

_INSIDE = os.path.join("ansible_collections", "inferops", "sglang_pd")


def root_of(invoked: str) -> str:
    """Return the directory that has this collection as ``ansible_collections/inferops/sglang_pd``, or "".

    :param invoked: path of the executable as it was called: through links in a directory of programs, through a
        collections path whose entry is a link to a checkout, or in an installed collection.
    """
    path = os.path.abspath(invoked)
    for _unused in range(40):
        collection = os.path.dirname(os.path.dirname(path))
        if collection.endswith(os.sep + _INSIDE):
            return collection[: -len(_INSIDE) - 1]
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    collection = os.path.dirname(os.path.dirname(os.path.realpath(invoked)))
    return collection[: -len(_INSIDE) - 1] if collection.endswith(os.sep + _INSIDE) else ""


def environment(invoked: str, configured: list[str]) -> dict[str, str]:
    """Return the variables that ansible-playbook gets, so that it finds itself and this collection.

    :param configured: Ansible's collections paths.
    :raises PipelineError: where the collection is not found.
    """
    found = {}
    if shutil.which("ansible-playbook") is None:
        beside = os.path.dirname(sys.executable)
        if not os.access(os.path.join(beside, "ansible-playbook"), os.X_OK):
            raise PipelineError("there is no ansible-playbook on PATH, nor beside {0}".format(sys.executable))
        found["PATH"] = os.pathsep.join((beside, os.environ.get("PATH", os.defpath)))
    this = os.path.dirname(os.path.dirname(os.path.realpath(invoked)))
    first = next((path for path in configured if os.path.isdir(os.path.join(path, _INSIDE))), "")
    if first and os.path.realpath(os.path.join(first, _INSIDE)) == this:
        return found
    root = root_of(invoked)
    if not root:
        raise PipelineError(
            "{0} is a checkout that Ansible cannot see as a collection: link it as DIR/{1}, and call "
            "DIR/{1}/bin/sglang-pd".format(this, _INSIDE)
        )
    # Playbooks of another version than the command's are none of ours.
    found["ANSIBLE_COLLECTIONS_PATH"] = os.pathsep.join([root, *configured])
    return found
