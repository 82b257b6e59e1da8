# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tool that measures what a roll costs walks a whole roll, and counts what it did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_roll_over_simulated_hosts_is_measured() -> None:
    """The tool itself ends with an error where a cluster was not done."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "tools" / "measure-walk"), "2"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    clusters, modules, *seconds = done.stdout.splitlines()[-1].split()
    assert int(clusters) == 2
    # Each of six hosts is asked what runs when it is looked at, and before and after its co-restart.
    assert int(modules) > 6 * 4
    assert all(float(one) > 0 for one in seconds)
