# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a router with arguments from a secrets file added inside the process.

Neither smg nor sglang-router reads its API key from a file or the environment. Added
here, the key shows in no unit file and in no process list.

Usage: launch_router.py SECRETS_FILE -m MODULE ARGUMENT...
The secrets file is a JSON object of arguments by name, without dashes.
"""

import json
import runpy
import sys

secrets_file, _dash_m, module, *arguments = sys.argv[1:]
with open(secrets_file, encoding="utf-8") as source:
    for name, value in json.load(source).items():
        arguments += ["--" + name, value]
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
