# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cannot run is refused before a file is written, while the cluster serves on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cluster import Cluster, wait_for

#: All that a deployment writes, by content.
WRITTEN = "find /etc/sglang-pd /etc/systemd/system -type f -exec sha256sum {} + | sort"
#: Asks the router one request after the other, and notes what became of each.
CLIENT = """
import json, urllib.request
body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
while True:
    try:
        request = urllib.request.Request(URL, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            said = json.load(answer)["choices"][0]["finish_reason"]
    except Exception as trouble:
        said = repr(trouble)
    with open("/run/client.log", "a") as log:
        log.write(said + "\\n")
"""


@pytest.fixture
def unchanged(cluster) -> Iterator[Cluster]:
    """Cluster main; after the test every file is as it was and every process still the same."""
    main = cluster("main")
    box = main.one("router").on
    before = main.incarnations(), box.check_output(WRITTEN)
    yield main
    assert (main.incarnations(), box.check_output(WRITTEN)) == before


@pytest.fixture
def served_all_the_time(unchanged) -> Iterator[Cluster]:
    """A client that asks on and on; not one of its requests may fail."""
    router = unchanged.one("router")
    box = router.on
    url = f"http://127.0.0.1:{router.port}/v1/chat/completions"
    box.check_output("rm -f /run/client.log")
    box.check_output("systemd-run --quiet --collect --unit client python3 -c %s", f"URL = {url!r}\n{CLIENT}")
    try:
        wait_for("the client is served", lambda: box.run("test -s /run/client.log").rc == 0)
        yield unchanged
        served = len(box.check_output("cat /run/client.log").splitlines())
        wait_for(
            "it is served to the end", lambda: len(box.check_output("cat /run/client.log").split("\n")) > served + 1
        )
    finally:
        box.run("systemctl stop client")
    assert set(box.check_output("cat /run/client.log").splitlines()) <= {"stop", "length"}


def test_S1_an_unknown_flag_is_refused_while_the_cluster_serves(served_all_the_time, deploy):
    done = deploy(pd_decode_extra_args=["--max-runing-requests", "8"])
    assert done.rc != 0
    assert "Refused, nothing was changed" in done.stdout, done
    for part in (
        "--max-runing-requests is unknown; did you mean --max-running-requests?",
        "sglang 0.5.16 (/opt/sglang-pd/sglang-0.5.16/bin/python)",
        "host box1",
        "pd_decode_extra_args",
        "rule: known to the installed program",
    ):
        assert part in " ".join(done.stdout.split()), (part, done)


def test_S1_a_spelling_that_the_wanted_version_does_not_take_any_more(served_all_the_time, deploy):
    done = deploy(pd_engine_sglang_version="0.5.23", pd_decode_extra_args=["--cuda-graph-max-bs", "96"])
    assert done.rc != 0
    said = " ".join(done.stdout.split())
    assert "--cuda-graph-max-bs is ambiguous, it could be --cuda-graph-max-bs-decode or" in said, done
    assert "sglang 0.5.23" in said, done


def test_S1_the_same_variable_is_spelled_as_each_version_wants_it(main, deploy):
    spelled = {"0.5.16": "--cuda-graph-max-bs", "0.5.23": "--cuda-graph-max-bs-decode"}
    for version, flag in spelled.items():
        done = deploy(pd_engine_sglang_version=version, pd_engine_cuda_graph_max_bs=96)
        assert done.rc == 0, done
        words = main.one("decode").on.file(f"/etc/systemd/system/{main.one('decode').unit}").content_string
        assert f"{flag} 96 " in words


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"pd_engine_tp_size": "two"}, "tp_size"),
        ({"pd_engine_attention_backend": "tritn"}, "--attention-backend takes one of"),
        (
            {"pd_engine_secret_args": {"admin-api-kee": "x"}},
            "--admin-api-kee is unknown; did you mean --admin-api-key?",
        ),
        ({"pd_router_extra_args": ["--polcy", "random"]}, "--polcy is unknown; did you mean --policy?"),
        ({"pd_router_extra_args": ["--history-backend", "paper"]}, "--history-backend takes one of"),
        ({"pd_decode_extra_args": ["--page-size", "1", "--page-size", "2"]}, "--page-size is given twice"),
        ({"pd_decode_extra_args": ["--page", "1"]}, "--page is an abbreviation of --page-size"),
        ({"pd_engine_disk_free_bytes": 10**18}, "/var/lib/sglang-pd has"),
        ({"pd_engine_model_path": "/models/none"}, "sglang cannot read the model"),
        ({"pd_prefill_settings": {"page_size": 16}}, "variable pd_engine_page_size"),
        (
            {"pd_engine_extra_env": {"UCX_NET_DEVICES": "mlx5_0:1"}},
            "UCX_NET_DEVICES=mlx5_0:1 names no interface that speaks TCP",
        ),
    ],
)
def test_S1_S2_S3_S8_and_others_are_refused(unchanged, deploy, variables, message):
    done = deploy(**variables)
    assert done.rc != 0
    said = " ".join(done.stdout.split())
    assert message in said, done
    assert next(iter(variables)) in said or "pd_engine_page_size" in said, done


def test_S3_a_difference_between_the_roles_may_be_accepted_by_its_rule(run_playbook):
    given = {"pd_prefill_settings": {"page_size": 16}, "pd_preflight_accept": ["prefill and decode agree"]}
    done = run_playbook("preflight", extra_vars=given)
    assert done.rc == 0, done
    assert "Accepted by pd_preflight_accept" in done.stdout and "page_size is 16" in done.stdout, done


def test_S9_a_GPU_that_the_host_has_not(unchanged, deploy):
    box = unchanged.one("decode").on
    assert deploy("--check", pd_prefill_gpus=[0], pd_decode_gpus=[2]).rc == 0, "no driver to ask: not judged"
    driver = "#!/bin/sh\necho 'GPU 0: H200'\necho 'GPU 1: H200'\n"
    box.check_output("printf %%s %s > /usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi", driver)
    try:
        done = deploy(pd_prefill_gpus=[0], pd_decode_gpus=[2])
        assert done.rc != 0
        assert "is given GPU 2, the host has 2" in " ".join(done.stdout.split()), done
        assert deploy("--check", pd_prefill_gpus=[0], pd_decode_gpus=[1]).rc == 0
    finally:
        box.check_output("rm /usr/local/bin/nvidia-smi")


def test_the_engine_is_asked_again_only_when_its_files_changed(unchanged):
    box = unchanged.one("decode").on

    def kept() -> str:
        found = box.ansible("inferops.sglang_pd.preflight", check=False)
        assert all(one["asked"] for one in found["members"].values()), found
        return str(box.check_output("ls -i --full-time /var/cache/sglang-pd"))

    before = kept()
    assert kept() == before
    package = "/opt/sglang-pd/sglang-0.5.16/lib/python3*/site-packages/sglang"
    box.check_output(f"touch {package}/launch_server.py")
    assert kept() != before


def test_a_co_restart_asks_too_before_it_stops_anything(unchanged, run_playbook):
    decode = unchanged.one("decode")
    file = f"/etc/sglang-pd/members/{decode.unit}.json"
    content = decode.on.file(file).content_string
    wrong = dict(json.loads(content))
    wrong["exec_start"] = [*wrong["exec_start"], "--no-such-flag"]
    decode.on.check_output(f"printf %%s %s > {file}", json.dumps(wrong))
    try:
        done = run_playbook("co_restart")
    finally:
        decode.on.check_output(f"printf %%s %s > {file}", content)
    assert done.rc != 0
    assert "refused, nothing was stopped" in done.stdout and "--no-such-flag is unknown" in done.stdout, done
