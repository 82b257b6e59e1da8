#!/usr/bin/env python3
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Called as ``ansible-playbook`` by tests that are about the command around it: see walk.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from walk import Walk

words = sys.argv[1:]
variables = json.loads(words[-2])
directory = Path(variables["pd_roll_dir"], variables["pd_roll_id"])
with open(os.environ["CALLS"], "a", encoding="utf-8") as calls:
    told = {"words": words, "directory": os.getcwd(), "checks": os.environ.get("ANSIBLE_HOST_KEY_CHECKING")}
    calls.write(json.dumps(told) + "\n")
walk = Walk(directory, Path(os.environ["FLEET"]))
if words[-1].endswith(".plan"):
    walk.plan()
    sys.exit(0)
sys.exit(walk.walk())
