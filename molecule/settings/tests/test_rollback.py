# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back to what ended well, byte for byte: by hand, by name, and in the run that failed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from cluster import Cluster

FILES = (
    "/etc/systemd/system/{0}",
    "/etc/sglang-pd/{0}.env",
    "/etc/sglang-pd/{0}.secrets.yaml",
    "/etc/sglang-pd/members/{0}.json",
)
#: Faults that an engine reads only where its environment says so: with this setting it
#: starts, is healthy, and answers every request with nothing.
BAD_FOLDER = "/etc/engine_stand_in_bad"
BAD = {"STAND_IN_FAULTS_DIR": BAD_FOLDER, "CANARY": "canary-that-must-show-nowhere"}
FAST = {
    "pd_co_restart_requests": 2,
    "pd_co_restart_request_limit_seconds": 5,
    "pd_co_restart_drain_limit_seconds": 8,
    "pd_co_restart_settle_limit_seconds": 10,
    "pd_co_restart_verify": "none",
}


def managed(cluster: Cluster) -> str:
    """Bytes, owner and mode of all files that the collection manages of a cluster on box1."""
    files = " ".join(file.format(member.unit) for member in cluster.members for file in FILES)
    return str(cluster.one("prefill").on.check_output(f"sha256sum {files} && stat --format='%n %U:%G %a' {files}"))


def run_of(cluster: Cluster) -> dict[str, str]:
    """Command with which each engine's process runs, but for its incarnation."""
    command = "tr '\\0' ' ' </proc/{}/cmdline | sed 's/\"invocation\":\"[0-9a-f]*\"//'"
    return {
        member.unit: member.on.check_output(command.format(member.shown("MainPID")["MainPID"]))
        for member in cluster.members
        if member.role != "router"
    }


@pytest.fixture
def whole(run_playbook):
    """Co-restart whatever is due, everything."""

    def run(*args: str, **options: object):
        given = {f"pd_co_restart_{name}": value for name, value in options.items()}
        return run_playbook("co_restart", *args, extra_vars={**FAST, **given})

    return run


@pytest.fixture
def rollback(run_playbook):
    """Roll main back; a generation by name, else the last good one."""

    def run(*args: str, **variables: object):
        return run_playbook("rollback", *args, extra_vars={**FAST, "pd_rollback_clusters": ["main"], **variables})

    return run


@pytest.fixture
def good(main, whole) -> Iterator[Cluster]:
    """Cluster main as the inventory has it, running and kept as a revision."""
    # As the fixture `main` left it after the test before.
    done = whole(when="when_due")
    assert done.rc == 0, done
    box = main.one("decode").on
    box.check_output(f"mkdir -p {BAD_FOLDER}")
    fault = json.dumps({"answer_empty": True})
    box.check_output(f"printf %s '{fault}' >{BAD_FOLDER}/{main.one('decode').port}.json")
    yield main
    box.check_output(f"rm -rf {BAD_FOLDER}")


def test_F7_a_bad_setting_fails_its_verification_and_the_old_revision_is_back_in_the_same_run(good, deploy, whole):
    before, ran = managed(good), run_of(good)
    generation = good.one("decode").ledger["generation"]
    bad = deploy(pd_decode_extra_env=BAD, pd_decode_settings={"target_ctas": 77})
    assert bad.rc == 0, bad
    assert managed(good) != before

    done = whole(when="when_due", rollback="on_failure", verify="standard")

    assert done.rc != 0, done
    assert re.search(r"verify +box1: pairs 4/4 ", done.stdout), "the old revision is verified"
    assert "requests were not served: " in done.stdout, done
    assert "next     roll back: it failed at step requests" in done.stdout, done
    assert f"cluster main: ROLLED BACK to generation {generation}, which is proved" in done.stdout, done
    assert "What was wanted is NOT live" in done.stdout
    assert "canary" not in done.stdout + done.stderr
    assert managed(good) == before, "not the same bytes, owners and modes"
    assert run_of(good) == ran
    good.assert_started_in_order()
    good.assert_serves()
    ledger = good.one("decode").ledger
    assert (ledger["outcome"], ledger["generation"]) == ("ok", generation + 2)
    assert ledger["history"][-1]["outcome"] == "failed", "the attempt that failed is on record"
    assert good.one("prefill").on.run("cat /var/lib/sglang-pd/lock/main.json").rc != 0, "it is unlocked"
    due = whole("--check", when="when_due")
    assert "nothing to do, everything runs as it should" in due.stdout, due


def test_without_being_asked_to_it_stays_where_it_failed_and_names_the_rollback(good, deploy, whole, rollback):
    before = managed(good)
    assert deploy(pd_decode_extra_env=BAD).rc == 0
    done = whole(when="when_due")
    assert done.rc != 0, done
    assert "Or go back to the last generation that ended well:" in done.stdout, done
    assert "ansible-playbook inferops.sglang_pd.rollback -e pd_rollback_clusters=main" in done.stdout
    assert managed(good) != before

    back = rollback()
    assert back.rc == 0, back
    assert managed(good) == before
    good.assert_serves()


def test_a_failure_that_came_with_no_change_is_not_rolled_back(good, whole):
    good.one("decode").faults(answer_empty=True)
    before, incarnations = managed(good), good.incarnations()
    done = whole(rollback="on_failure")
    assert done.rc != 0, done
    assert "the next attempt was REFUSED: cluster main: what is deployed is what ended well last" in done.stdout, done
    assert managed(good) == before
    assert good.incarnations() != incarnations, "the first attempt was made"
    assert good.one("prefill").on.run("cat /var/lib/sglang-pd/lock/main.json").rc != 0, "it is unlocked"
    good.clear_faults()


def test_check_and_diff_show_what_would_change_but_no_secret_and_change_nothing(good, deploy, whole, rollback):
    assert deploy(pd_decode_settings={"target_ctas": 77}, pd_decode_extra_env={"CANARY": BAD["CANARY"]}).rc == 0
    deployed, incarnations = managed(good), good.incarnations()
    done = rollback("--check", "--diff")
    assert done.rc == 0, done
    assert '-Environment="TARGET_CTAS=77"' in done.stdout, done
    assert "content not shown: it may hold secrets" in done.stdout
    assert "canary" not in done.stdout + done.stderr
    assert "would put back an older revision of sglang-main-decode.service" in done.stdout
    assert (managed(good), good.incarnations()) == (deployed, incarnations)


def test_to_a_generation_by_name_and_forth_again(good, deploy, whole, rollback):
    first, before = good.one("decode").ledger["generation"], managed(good)
    assert deploy(pd_decode_settings={"target_ctas": 77}).rc == 0
    assert whole().rc == 0
    second, after = good.one("decode").ledger["generation"], managed(good)
    assert before != after

    unknown = rollback(pd_rollback_generation=second + 10)
    assert unknown.rc != 0
    assert f"cluster main cannot go back to generation {second + 10}: it has " in unknown.stdout, unknown
    assert f", {first}" in unknown.stdout and f", {second}" in unknown.stdout
    wrong = rollback(pd_rollback_generation="yesterday")
    assert wrong.rc != 0 and "pd_rollback_generation is" in wrong.stdout and "yesterday" in wrong.stdout, wrong
    assert managed(good) == after

    done = rollback(pd_rollback_generation=first)
    assert done.rc == 0, done
    assert managed(good) == before
    assert "TARGET_CTAS=77" not in good.one("decode").shown("Environment")["Environment"]
    good.assert_started_in_order()
    again = rollback(pd_rollback_generation=first)
    assert again.rc == 0 and "is deployed and runs as it should" in again.stdout, again

    done = rollback()
    assert done.rc == 0, done
    assert managed(good) == after, "the last generation with other files is the one that was left"


def test_S10_an_engine_upgrade_goes_back_by_its_environment_and_not_where_that_is_gone(good, deploy, whole, rollback):
    before = managed(good)
    assert deploy(pd_engine_sglang_version="0.5.23").rc == 0
    assert whole().rc == 0
    upgraded, incarnations = managed(good), good.incarnations()
    decode = good.one("decode")
    assert "/opt/sglang-pd/sglang-0.5.23/bin/python" in run_of(good)[decode.unit]
    old = "/opt/sglang-pd/sglang-0.5.16"

    decode.on.check_output(f"mv {old} {old}.away")
    try:
        refused = rollback()
        assert refused.rc != 0, refused
        assert f"{old}/bin/python does not exist any more: install that version again" in refused.stdout, refused
        assert (managed(good), good.incarnations()) == (upgraded, incarnations)
    finally:
        decode.on.check_output(f"mv {old}.away {old}")

    done = rollback()
    assert done.rc == 0, done
    assert managed(good) == before
    assert f"{old}/bin/python" in run_of(good)[decode.unit]
    good.assert_serves()


def test_only_root_can_read_revisions_and_no_more_are_kept_than_wanted(good, deploy, whole):
    box, unit = good.one("router").on, good.one("router").unit
    assert box.check_output("stat --format='%U %a' /var/lib/sglang-pd/revisions") == "root 700"
    assert box.check_output("find /var/lib/sglang-pd/revisions -type f -name 'secrets.yaml' -perm /077") == ""
    there = box.check_output(f"ls /var/lib/sglang-pd/revisions/{unit}").split()
    assert there
    for number in (2, 3):
        done = deploy(pd_engine_kept_revisions=2, pd_router_retry_max_retries=number)
        assert done.rc == 0, done
        assert whole(stages=["router"]).rc == 0
    kept = box.check_output(f"ls /var/lib/sglang-pd/revisions/{unit}").split()
    assert len(kept) == 2 < len({*kept, *there}), (kept, there)
