# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry point: ``python -m sglang.launch_server ...`` as with the real engine."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from sglang.stand_in.launch import main

    sys.exit(main(sys.argv[1:]))
