# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings against the real engine: refused by its own parser, written, proved live."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import ask

BOXES = "box1,box2"


@pytest.fixture
def deploy(run_playbook):
    """Deploy cluster pair with other variables than the inventory's."""

    def run(*args: str, **variables: object):
        return run_playbook("deploy", *args, limit=BOXES, extra_vars=variables)

    return run


@pytest.fixture
def live(run_playbook, inventory):
    """Settings of cluster pair by unit, as the module of that name tells them."""

    def run() -> dict[str, list[dict[str, str]]]:
        command = ["ansible", "-i", str(inventory), BOXES, "-m", "inferops.sglang_pd.settings_info", "--one-line"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        found = {}
        for line in done.stdout.splitlines():
            assert "SUCCESS => " in line, line
            told = json.loads(line.split("SUCCESS => ", 1)[1])
            found.update({unit: one["settings"] for unit, one in told["members"].items()})
        return found

    return run


def test_S1_S2_flags_that_the_engine_does_not_take_are_refused_while_it_serves(pair, deploy):
    router, before = pair.one("router"), pair.incarnations()
    wrong = {
        "--cuda-graph-max-bs is ambiguous, it could be --cuda-graph-max-bs-decode or": ["--cuda-graph-max-bs", "96"],
        "--max-runing-requests is unknown; did you mean --max-running-requests?": ["--max-runing-requests", "8"],
        "--page-size is given twice": ["--page-size", "1", "--page-size", "2"],
    }
    for message, arguments in wrong.items():
        done = deploy(pd_decode_extra_args=["--disaggregation-decode-retraction-backup", "cpu_tensor", *arguments])
        assert done.rc != 0
        assert message in " ".join(done.stdout.split()), done
        assert "pd_decode_extra_args" in done.stdout, done
        assert [answer.error for answer in ask(router.on, router.port, ["hi"], max_tokens=4)] == [""]
    assert pair.incarnations() == before


def test_S1_S4_S5_settings_are_spelled_reported_and_proved(pair, deploy, live, run_playbook):
    states = {row["state"] for rows in live().values() for row in rows}
    assert states == {"live"}, live()

    before = pair.incarnations()
    done = deploy(pd_engine_cuda_graph_max_bs=96, pd_engine_target_ctas=512, pd_engine_log_level="warning")
    assert done.rc == 0 and "a co-restart is due" in done.stdout, done
    said = " ".join((done.stdout + done.stderr).split())
    assert "TARGET_CTAS (pd_engine_target_ctas or pd_decode_settings.target_ctas) is inert, nothing in" in said, done
    assert pair.incarnations() == before

    decode = pair.one("decode")
    assert "--cuda-graph-max-bs-decode 96 " in decode.on.file(f"/etc/systemd/system/{decode.unit}").content_string
    rows = {row["setting"]: row for row in live()[decode.unit]}
    assert {name: rows[name]["state"] for name in ("cuda_graph_max_bs", "target_ctas", "log_level", "tp_size")} == {
        "cuda_graph_max_bs": "pending",
        "target_ctas": "pending",
        "log_level": "pending",
        "tp_size": "live",
    }
    assert (rows["log_level"]["running"], rows["log_level"]["deployed"]) == ("info", "warning")

    done = run_playbook("co_restart", limit=BOXES, extra_vars={"pd_co_restart_clusters": ["pair"]})
    assert done.rc == 0, done
    rows = {row["setting"]: row for row in live()[decode.unit]}
    assert {row["state"] for name, row in rows.items() if name != "target_ctas"} == {"live"}, rows
    assert rows["target_ctas"]["state"] == "inert"
    assert json.loads(decode.get("/server_info"))["cuda_graph_max_bs_decode"] == 96
