# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S10: hot patches of the installed engine, then an upgrade."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from cluster import Cluster, wait_for

PATCHES = Path(__file__).resolve().parent.parent / "patches"
#: The founding patch: two files of the disaggregation code. Found beside the inventory.
ABORT_RACE = {"name": "abort-race", "src": "../patches/abort-race.patch"}
#: Its first half, which 0.5.23 contains.
FINAL_STATES = {"name": "final-states", "src": str(PATCHES / "final-states.patch")}
#: Adds an option to the engine's command line.
NEW_OPTION = {"name": "new-option", "src": "../patches/new-option.patch"}
SHA256 = hashlib.sha256((PATCHES / "abort-race.patch").read_bytes()).hexdigest()
PYTHON = "/opt/sglang-pd/sglang-0.5.16/bin/python"
PACKAGE = "/opt/sglang-pd/sglang-0.5.16/lib/python3*/site-packages/sglang"
FILES = ("srt/disaggregation/common/conn.py", "srt/disaggregation/prefill.py")
#: All that a deployment writes.
WRITTEN = "find /etc/sglang-pd /etc/systemd/system /var/lib/sglang-pd/patches -type f -exec sha256sum {} + | sort"


def code(box) -> str:
    """Hashes, modes and owners of all files of the package."""
    listed = "find . -name '*.py' -exec sha256sum {} + | sort && find . -name '*.py' -printf '%m %u %p\\n' | sort"
    return box.check_output(f"cd {PACKAGE} && {listed}")


def in_flight(cluster: Cluster) -> int:
    loads = json.loads(cluster.one("prefill").get("/v1/loads"))["loads"]
    return sum(int(load["disaggregation"]["prefill_inflight_queue_reqs"]) for load in loads)


def abort_one(cluster: Cluster) -> None:
    """A client leaves while its KV is on the way; afterwards a whole request is served."""
    prefill = cluster.one("prefill")
    prefill.faults(stuck_inflight=True, transfer_seconds=20)
    router = cluster.one("router")
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
    router.on.check_output(
        "systemd-run --quiet --collect --unit client curl --silent --max-time 120 "
        "-H 'Content-Type: application/json' --data %s "
        f"http://127.0.0.1:{router.port}/v1/chat/completions",
        body,
    )
    before = in_flight(cluster)
    wait_for("its KV is on the way", lambda: in_flight(cluster) > before or in_flight(cluster) > 0)
    router.on.check_output("systemctl stop client")
    prefill.faults(stuck_inflight=True)
    wait_for("a later request is served", lambda: cluster.ask(limit_seconds=5))


def applied(cluster: Cluster, role: str = "prefill") -> list[dict[str, str]]:
    """Patches that the running incarnation was started with."""
    member = cluster.one(role)
    return list(json.loads(member.on.file(f"/run/{member.unit}/member.json").content_string)["patches"])


def test_S10_two_files_are_patched_once_live_after_the_co_restart_and_undone_to_the_byte(main, deploy, co_restart):
    box = main.one("prefill").on
    original, written, before = code(box), box.check_output(WRITTEN), main.incarnations()
    abort_one(main)
    assert in_flight(main) == 1, "the abort race"

    foreseen = deploy("--check", "--diff", pd_engine_patches=[ABORT_RACE])
    assert foreseen.rc == 0, foreseen
    assert "+    if known == FAILED:" in foreseen.stdout, foreseen
    assert SHA256 in foreseen.stdout, "the member's file is foreseen too"
    assert (code(box), box.check_output(WRITTEN)) == (original, written)

    done = deploy(pd_engine_patches=[ABORT_RACE])
    assert done.rc == 0, done
    assert "a co-restart is due: sglang-main-prefill.service on box1 runs configuration" in done.stdout, done
    assert main.incarnations() == before, "patching restarts nothing"
    changed = [line for line in code(box).splitlines() if line not in original.splitlines()]
    assert sorted(line.split("./")[-1] for line in changed) == sorted(FILES), "owners and modes are as before"
    assert "{{ braces }} and {% percent %}" in box.check_output(f"cat {PACKAGE}/{FILES[1]}")
    for file in FILES:
        folder, name = f"{PACKAGE}/{file}".rsplit("/", 1)
        compiled = f"{folder}/__pycache__/{name[:-3]}.cpython-3*.pyc"
        read = "d = open(sys.argv[1], 'rb').read(16); print(*(int.from_bytes(d[n:n+4], 'little') for n in (8, 12)))"
        made_from = box.check_output(f'{PYTHON} -c "import sys; {read}" {compiled}')
        assert made_from == box.check_output(f"stat --format '%Y %s' {folder}/{name}")
        assert box.check_output(f"stat --format %a {compiled}") == "644", "the service's user reads it"
    state = json.loads(box.check_output("cat /var/lib/sglang-pd/patches/*sglang-0.5.16*/state.json"))
    assert [(patch["name"], patch["sha256"]) for patch in state["patches"]] == [("abort-race", SHA256)]
    assert set(state["patches"][0]["files"]) == {f"sglang/{file}" for file in FILES}

    restarted = co_restart()
    assert restarted.rc == 0, restarted
    main.assert_started_in_order()
    for role in ("prefill", "decode"):
        assert applied(main, role) == [{"name": "abort-race", "sha256": SHA256}]
    abort_one(main)
    wait_for("the in-flight queue drains", lambda: in_flight(main) == 0)

    patched, written, before = code(box), box.check_output(WRITTEN), main.incarnations()
    again = deploy(pd_engine_patches=[ABORT_RACE])
    assert again.rc == 0 and "changed=0" in again.stdout, again
    assert (code(box), box.check_output(WRITTEN), main.incarnations()) == (patched, written, before)
    assert "everything runs as it should" in co_restart().stdout

    undone = deploy()
    assert undone.rc == 0, undone
    assert code(box) == original
    assert "a co-restart is due" in undone.stdout, undone
    assert co_restart().rc == 0
    assert applied(main) == []


def test_S10_an_option_that_only_a_patch_adds_is_refused_without_it_and_deployed_with_it(main, deploy):
    box = main.one("decode").on
    option = {"pd_decode_extra_args": ["--transfer-target-ctas", "8"]}
    original, written = code(box), box.check_output(WRITTEN)
    refused = deploy(**option)
    assert refused.rc != 0 and "--transfer-target-ctas is unknown" in refused.stdout, refused
    assert (code(box), box.check_output(WRITTEN)) == (original, written)

    # Both in one deployment: the engine is asked as the patch will make it.
    done = deploy(**option, pd_engine_patches=[NEW_OPTION])
    assert done.rc == 0, done
    assert "--transfer-target-ctas 8" in main.one("decode").shown("ExecStart")["ExecStart"]
    assert "--transfer-target-ctas" in box.check_output(f"{PYTHON} -m sglang.launch_server --help")

    patched, written = code(box), box.check_output(WRITTEN)
    refused = deploy(**option)
    assert refused.rc != 0 and "--transfer-target-ctas is unknown" in refused.stdout, "it would go with the patch"
    assert (code(box), box.check_output(WRITTEN)) == (patched, written)


def test_S10_an_upgrade_without_the_patchs_target_is_refused_before_a_unit_is_written(main, deploy, co_restart):
    assert deploy(pd_engine_patches=[ABORT_RACE]).rc == 0
    assert co_restart().rc == 0
    box, before = main.one("prefill").on, main.incarnations()
    patched, written = code(box), box.check_output(WRITTEN)
    refused = deploy(pd_engine_patches=[ABORT_RACE], pd_engine_sglang_version="0.5.23")
    assert refused.rc != 0, refused
    for words in (
        "patch abort-race does not fit sglang 0.5.23",
        "sglang/srt/disaggregation/common/conn.py contains it already",
        "sglang/srt/disaggregation/prefill.py: Hunk #1 FAILED",
        "box1",
        "pd_engine_patches",
    ):
        assert words in refused.stdout, (words, str(refused))
    assert (code(box), box.check_output(WRITTEN), main.incarnations()) == (patched, written, before)
    main.assert_serves(requests=2)
    foreseen = deploy("--check", pd_engine_patches=[ABORT_RACE], pd_engine_sglang_version="0.5.23")
    assert foreseen.rc != 0 and "does not fit sglang 0.5.23" in foreseen.stdout, "the environment is there by now"

    # The half that 0.5.23 contains is told as unneeded, at planning and after it.
    for mode in (["--check"], []):
        told = deploy(*mode, pd_engine_patches=[FINAL_STATES], pd_engine_sglang_version="0.5.23")
        assert told.rc == 0, told
        text = " ".join((told.stdout + told.stderr).split())
        assert "patch final-states is not needed: sglang 0.5.23 contains it already" in text, told
    assert co_restart().rc == 0
    assert applied(main) == []
    assert main.one("prefill").description["version"] == "0.5.16"
    assert "sglang-0.5.23/bin/python" in main.one("prefill").shown("ExecStart")["ExecStart"]
    assert code(box) == patched, "the environment of before is there to go back to, patches and all"


def test_S10_a_file_that_somebody_else_changed_is_named_and_left_alone(main, deploy):
    box = main.one("prefill").on
    assert deploy(pd_engine_patches=[ABORT_RACE]).rc == 0
    original = box.check_output(f"cat {PACKAGE}/{FILES[0]}")
    box.check_output(f"echo '# by hand' >> {PACKAGE}/{FILES[0]}")
    refused = deploy()
    assert refused.rc != 0, refused
    assert FILES[0] in refused.stdout and "somebody else changed it" in refused.stdout, refused
    assert "pip install --force-reinstall --no-deps sglang==0.5.16" in refused.stdout, refused
    assert box.check_output(f"tail -n 1 {PACKAGE}/{FILES[0]}") == "# by hand"
    # The remedy that the message names.
    box.check_output(f"{PYTHON} -m pip install --quiet --no-index --find-links /srv/wheels "
                     "--force-reinstall --no-deps sglang==0.5.16")  # fmt: skip
    healed = deploy(pd_engine_patches=[ABORT_RACE])
    assert healed.rc == 0, healed
    assert box.check_output(f"cat {PACKAGE}/{FILES[0]}") == original


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ([{"name": "lost", "src": "lost.patch"}], ["patch lost, lost.patch: there is no such file"]),
        ([{"name": "hosts", "src": "hosts.yml"}], ["patch hosts, hosts.yml: it holds no hunk of a unified diff"]),
        ([ABORT_RACE, ABORT_RACE], ["two patches have the name abort-race"]),
        ([{"src": "x.patch"}], ["name"]),
    ],
    ids=["no-file", "no-diff", "twice", "no-name"],
)
def test_S10_a_wrong_list_ends_before_anything_is_written(cluster, deploy, variables, expected):
    box = cluster("main").one("prefill").on
    before = code(box), box.check_output(WRITTEN)
    refused = deploy(pd_engine_patches=variables)
    assert refused.rc != 0, refused
    for words in [*expected, "pd_engine_patches"]:
        assert words in refused.stdout, (words, str(refused))
    assert (code(box), box.check_output(WRITTEN)) == before


def test_S10_an_existing_environment_is_patched_only_where_that_is_allowed(main, deploy):
    existing = {"pd_engine_install_from": "existing", "pd_engine_patches": [ABORT_RACE]}
    box = main.one("prefill").on
    original = code(box)
    refused = deploy(**existing)
    assert refused.rc != 0, refused
    assert "pd_engine_patch_existing: true" in refused.stdout, refused
    assert code(box) == original
    assert deploy(**existing, pd_engine_patch_existing=True).rc == 0
    patched = code(box)
    assert patched != original
    refused = deploy(pd_engine_install_from="existing")
    assert refused.rc != 0, refused
    said = " ".join(refused.stdout.split())
    assert "holds abort-race, which pd_engine_patches does not have any more" in said, refused
    assert code(box) == patched
