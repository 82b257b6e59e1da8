# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A canary key is set on engines and router: it may show in the files that hold secrets, nowhere else."""

from __future__ import annotations

KEY = "canary-key-that-must-show-nowhere"


def test_key_is_wanted_by_engines_and_router(cluster):
    dsv4 = cluster("dsv4")
    for role in ("prefill", "decode"):
        status = dsv4.one(role).get("/v1/models", "--output /dev/null --write-out '%{http_code}'")
        assert status == "401", role
    assert not dsv4.ask(key=""), "a request without the key is not served"
    assert dsv4.ask(key=KEY)


def test_H12_key_shows_in_no_output_at_vvv_nor_in_diffs(run_playbook):
    """Also where the key changes: the diff of its file is hidden."""
    for name, arguments in (
        ("deploy", ("-vvv", "--diff")),
        ("deploy", ("-vvv", "--diff", "--check", "-e", "pd_engine_api_key=" + KEY + "-2")),
        ("co_restart", ("-vvv", "--diff")),
    ):
        done = run_playbook(name, *arguments)
        assert done.rc == 0, name
        shown = (done.stdout + done.stderr).replace("pd_engine_api_key=" + KEY, "")
        assert KEY not in shown, [line[:300] for line in shown.splitlines() if KEY in line]


def test_key_is_in_no_file_process_or_log_of_the_host(on):
    box = on("box1")
    found = box.run(
        "grep -rlF %s /etc /var/lib/sglang-pd /var/log /run /usr/local /opt/sglang-pd 2>/dev/null", KEY
    ).stdout.split()
    # Revisions hold what a rollback needs, a key included; only root may read them.
    kept = [path for path in found if path.startswith("/var/lib/sglang-pd/revisions/")]
    assert sorted(set(found) - set(kept)) == [
        f"/etc/sglang-pd/sglang-dsv4-{role}.service.secrets.yaml" for role in ("decode", "prefill", "router")
    ]
    assert {path.rsplit("/", 1)[1] for path in kept} <= {"secrets.yaml"}, kept
    assert box.check_output("stat --format='%U %a' /var/lib/sglang-pd/revisions") == "root 700"
    assert box.run("ps -eo args | grep -F %s | grep -vE 'grep|bash -c|sh -c'", KEY).stdout == ""
    assert box.run("journalctl --no-pager | grep -F %s", KEY).stdout == ""
    shown = box.check_output("systemctl show 'sglang-dsv4-*'")
    assert KEY not in shown
