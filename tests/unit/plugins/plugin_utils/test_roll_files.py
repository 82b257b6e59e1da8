# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a roll on the controller, whatever became of the process that wrote them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_files

#: Tells twenty events of a roll under a name.
TELLS = (
    "import sys; from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import roll_files\n"
    "for number in range(20): roll_files.tell(sys.argv[1], 'waiting', host=sys.argv[2], message='x' * 2000)"
)
#: The same, with a limit on the size of files that ends within an event.
TELLS_TO_A_FULL_DISK = (
    "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n" + TELLS
)


def test_an_event_after_one_that_was_cut_off_is_not_lost(tmp_path: Path) -> None:
    roll_files.tell(str(tmp_path), "roll_began")
    with (tmp_path / "events.jsonl").open("a") as target:
        target.write('{"event": "wave_be')
    roll_files.tell(str(tmp_path), "wave_began", wave=1)
    assert [event["event"] for event in roll_files.events(str(tmp_path))] == ["roll_began", "wave_began"]


def test_events_of_workers_beside_each_other_are_all_there(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", TELLS, str(tmp_path), name]) for name in "abcd"]
    assert [worker.wait(timeout=300) for worker in workers] == [0] * 4
    told = Counter(event["host"] for event in roll_files.events(str(tmp_path)))
    assert told == dict.fromkeys("abcd", 20)


def test_an_event_that_could_not_be_written_to_its_end_is_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TELLS_TO_A_FULL_DISK, str(tmp_path), "a"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "OSError" in done.stderr
    # The next one, with room again, is read.
    roll_files.tell(str(tmp_path), "roll_ended")
    assert roll_files.events(str(tmp_path))[-1]["event"] == "roll_ended"


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        roll_files.tell(str(tmp_path), "roll_began")
