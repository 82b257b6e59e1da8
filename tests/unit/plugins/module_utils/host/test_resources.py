# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs, room and the model's files, read off a machine."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils.host import resources


@pytest.mark.parametrize(
    ("answer", "count"), [((0, "GPU 0: H200\nGPU 1: H200\n", ""), 2), ((9, "", "no driver"), None), (OSError(), None)]
)
def test_S9_gpus_are_counted_by_the_driver(answer: Any, count: int | None) -> None:
    def run(command: list[str]) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert resources.gpus(run) == count


def test_room_is_told_of_directories_that_exist(tmp_path: Path) -> None:
    found = resources.free_bytes([str(tmp_path), "/no/such/place"])
    assert list(found) == [str(tmp_path)]
    assert found[str(tmp_path)] > 0


def test_a_model_that_cannot_be_read_is_told_with_the_command_to_try(tmp_path: Path) -> None:
    me = getpass.getuser()
    (tmp_path / "config.json").write_text("{}")
    assert resources.model_error(str(tmp_path), me) == ""
    said = resources.model_error(str(tmp_path / "none"), me)
    assert "No such file or directory" in said
    assert f"runuser -u {me} -- ls -l {tmp_path}/none" in said


def test_a_model_of_a_hub_and_an_account_that_is_not_made_yet_are_not_judged(tmp_path: Path) -> None:
    assert resources.model_error("deepseek-ai/DeepSeek-V4", getpass.getuser()) == ""
    assert resources.model_error(str(tmp_path / "none"), "no-such-user") == ""


def test_gpus_are_told_as_far_as_the_driver_does() -> None:
    said = "0, 97, 164.50, 71000\n1, [N/A], [Not Supported], 12\n"
    assert resources.gpu_load(lambda command: (0, said, "")) == [
        {"index": 0, "utilization_percent": 97.0, "power_watts": 164.5, "memory_used_mib": 71000.0},
        {"index": 1, "memory_used_mib": 12.0},
    ]
    assert resources.gpu_load(lambda command: (9, "no driver", "")) == []


def test_gpus_without_a_driver_are_no_failure() -> None:
    def run(command: list[str]) -> Any:
        raise FileNotFoundError(command[0])

    assert resources.gpu_load(run) == []
