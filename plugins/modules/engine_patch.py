#!/usr/bin/python
# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the hot patches of an installed engine as a list says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_patch
short_description: Keep the hot patches of an installed engine as a list says
version_added: 0.1.0
description:
  - Applies unified diffs to the files of a Python package that is installed in an environment, records what was
    done, and undoes what is not in the list any more. The list is the whole truth.
  - All patches are tried on copies first, one on top of the other, and the result is compiled. When one does not
    fit, is no diff, or does not compile, no file is changed.
  - A patch that the installed version contains already is not applied; a warning says so.
  - Originals are kept in C(/var/lib/sglang-pd/patches). A patched file that somebody else changed is left alone,
    and the module fails.
  - A new version that was installed over a patched one is noticed; the list is applied to it anew.
  - What runs goes on with the code that it loaded. A co-restart brings the patches to life.
author: InferOps maintainers (@inferops)
attributes:
  check_mode:
    description: Tries everything on copies and says what would be done.
    support: full
  diff_mode:
    description: Shows the changed files.
    support: full
requirements:
  - the program C(patch) (package patch), where there is anything to apply
options:
  python:
    description: Interpreter of the environment.
    type: path
    required: true
  package:
    description: The package to patch.
    type: str
    default: sglang
  patches:
    description: The patches that are to be applied, in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the patch.
        type: str
        required: true
      diff:
        description:
          - Text of the unified diff. Paths count from the package's own directory on,
            C(a/python/sglang/srt/x.py) is C(sglang/srt/x.py).
          - May be left out for a patch that was applied to this environment before; O(patches[].sha256) says which.
        type: str
      sha256:
        description: Hash of the diff.
        type: str
  host:
    description: Inventory name of this host, for messages.
    type: str
    default: ""
seealso:
  - module: inferops.sglang_pd.co_restart
"""

EXAMPLES = r"""
- name: Patch the engine
  inferops.sglang_pd.engine_patch:
    python: /opt/sglang-pd/sglang-0.5.16/bin/python
    patches:
      - name: abort-race
        diff: "{{ lookup('ansible.builtin.file', 'abort-race.patch', rstrip=False) }}"

- name: Undo all patches
  inferops.sglang_pd.engine_patch:
    python: /opt/sglang-pd/sglang-0.5.16/bin/python
    patches: []
"""

RETURN = r"""
applied:
  description: The patches that are applied now, in order, with C(name) and C(sha256) of the diff.
  returned: always
  type: list
  elements: dict
patches:
  description:
    - What became of each patch, with C(name), C(sha256) and C(action).
    - V(apply), V(keep), V(undo), V(unneeded) (the version contains it), V(dropped) (gone with an upgrade in place).
  returned: success
  type: list
  elements: dict
files:
  description: The files that were changed, below RV(root).
  returned: success
  type: list
  elements: str
notes:
  description: What else was noticed.
  returned: success
  type: list
  elements: str
root:
  description: Directory that holds the package.
  returned: success
  type: str
version:
  description: Version of the package.
  returned: success
  type: str
"""

import contextlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _patches
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import files
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host.patches import (
    PATCH_ARGUMENTS,
    NoPatchProgramError,
    Patches,
    PatchingError,
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "package": {"type": "str", "default": "sglang"},
            "patches": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": PATCH_ARGUMENTS,
            },
            "host": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted, host = module.params["patches"], module.params["host"]
    try:
        patches = Patches(module.run_command, module.params["python"], module.params["package"])
        if not wanted and not patches.state:
            module.exit_json(
                changed=False, applied=[], patches=[], files=[], notes=[], root=patches.root, version=patches.version
            )
        with contextlib.nullcontext() if module.check_mode else patches.locked():
            work = patches.work_out(wanted)
            if work["problems"]:
                module.fail_json(msg=_patches.refusal(work["problems"], host), applied=_patches.applied(patches.state))
            changed = bool(work["files"]) or _patches.applied(work["state"]) != _patches.applied(patches.state)
            if not module.check_mode and (changed or work["state"] != patches.state):
                patches.put_in_place(work)
    except NoPatchProgramError as trouble:
        if not module.check_mode:
            module.fail_json(msg="{0}: nothing was changed".format(trouble))
        # A deployment installs the program before it comes here.
        module.warn("{0}. What the patches would do cannot be told in check mode".format(trouble))
        assumed = [{"name": one["name"], "sha256": _patches.digest(patches.diff_of(one).encode())} for one in wanted]
        module.exit_json(changed=True, applied=assumed, patches=[], files=[], notes=[])
    except (PatchingError, files.FileError, OSError) as trouble:
        module.fail_json(msg="host {0}: {1}".format(host, trouble) if host else str(trouble))
    for text in [one["message"] for one in work["unneeded"]] + work["notes"]:
        module.warn("host {0}: {1}".format(host, text) if host else text)
    module.exit_json(
        changed=changed,
        applied=_patches.applied(work["state"]),
        patches=work["patches"],
        files=sorted(work["files"]),
        notes=work["notes"],
        root=patches.root,
        version=patches.version,
        diff=[_shown(patches.root, path, change) for path, change in sorted(work["files"].items())],
    )


def _shown(root: str, path: str, change: dict) -> dict:
    name = "{0}/{1}".format(root, path)
    return {
        "before_header": name,
        "after_header": name,
        "before": (change["now"] or b"").decode("utf-8", "replace"),
        "after": (change["next"] or b"").decode("utf-8", "replace"),
    }


if __name__ == "__main__":
    main()
