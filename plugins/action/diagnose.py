# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Diagnose clusters on the controller; documented in plugins/modules/diagnose.py."""

from __future__ import annotations

import io
import lzma
import os
import tarfile
import time
import zlib
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.inferops.sglang_pd.plugins.module_utils import (
    _bundle,
    _diagnosis,
    _observations,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import report

try:
    from prometheus_client.parser import text_string_to_metric_families as parse
except ImportError:
    parse = None  # type: ignore[assignment]

display = Display()

#: What a bundle may hold at most: it may come from anywhere.
BUNDLE_FILES, BUNDLE_BYTES, FILE_BYTES = 20_000, 512 * 1024 * 1024, 16 * 1024 * 1024
TAR_ENDINGS = (".tar", ".tar.gz", ".tgz")


class ActionModule(ActionBase):
    """Gather what was registered or read a bundle, ask the pure core, print its verdict."""

    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the diagnosis of each cluster."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _unused, given = self.validate_argument_spec(
            argument_spec={
                "seen": {"type": "str", "default": "pd_seen"},
                "clusters": {"type": "list", "elements": "str", "default": []},
                "bundle": {"type": "path", "default": ""},
                "save": {"type": "path", "default": ""},
                "report_dir": {"type": "path", "default": ""},
                "hunch": {"type": "str", "default": ""},
                "fail_unless_healthy": {"type": "bool", "default": False},
            }
        )
        if parse is None:
            raise AnsibleActionFail(
                "prometheus_client is wanted beside ansible-core on the controller, to read metrics: "
                "pip install prometheus_client"
            )
        if given["bundle"]:
            by_scenario = _bundle.read(read_files(given["bundle"]))
        else:
            hosts = task_vars["ansible_play_hosts_all"]
            by_scenario = {"": items_of(hosts, task_vars["hostvars"], given["seen"])}
        if given["save"] and not self._task.check_mode:
            result["saved"] = save([one for items in by_scenario.values() for one in items], given["save"])
        reports, observations = {}, {}
        for scenario, items in sorted(by_scenario.items()):
            found = _observations.clusters(items, parse, scenario)
            for name, observation in sorted(found.items()):
                if not given["clusters"] or name in given["clusters"]:
                    reports[name] = _diagnosis.diagnose(observation, given["hunch"])
                    observations[name] = observation
        if not reports:
            return dict(result, failed=True, msg=_nothing(given, by_scenario))
        lines = [line for one in reports.values() for line in _diagnosis.describe(one)]
        if result.get("saved"):
            lines.append("Saved to {0}; judge it again with -e pd_diagnose_bundle={0}".format(result["saved"]))
        result.update(reports=reports, lines=lines, healthy=all(one["healthy"] for one in reports.values()))
        # Printed as it is also where it fails: a failure's message is wrapped beyond reading.
        display.display("\n".join(lines))
        if given["report_dir"] and not self._task.check_mode:
            pages = {
                report.file_name("diagnose", name, "html"): report.diagnose_page(one, observations[name])
                for name, one in reports.items()
            }
            for path in report.write(given["report_dir"], pages, "pd_diagnose_report_dir"):
                lines.append("report: {0}".format(path))
                display.display(lines[-1])
        if given["fail_unless_healthy"] and not result["healthy"]:
            bad = [
                "cluster {cluster}: {title} ({confidence})".format(**one)
                for one in reports.values()
                if not one["healthy"]
            ]
            short = {key: value for key, value in result.items() if key not in ("lines", "reports")}
            return dict(short, failed=True, msg="not healthy: " + "; ".join(bad))
        return result


def items_of(hosts: list[str], hostvars: Any, registered: str) -> list[dict[str, Any]]:
    """Return what the hosts of a play saw, by the registered results of ``diagnose_info``."""
    items = []
    for host in hosts:
        given = hostvars[host].get(registered)
        if given is None:
            continue
        if "items" in given:
            items += [dict(one, host=host) for one in given["items"]]
        elif given.get("unreachable") or given.get("failed"):
            why = {"why": str(given.get("msg", "no answer")).strip()[:300]}
            items.append(_bundle.item(_bundle.UNREACHABLE, why, host, at=time.time()))
    return items


def _nothing(given: dict[str, Any], by_scenario: dict[str, list[dict[str, Any]]]) -> str:
    if given["bundle"]:
        return (
            "There is nothing to judge in {0}: files named <time>__<host>__<unit>__<endpoint>.txt or "
            "<scenario>__<prefill|decode|router>__<endpoint>.txt are wanted{1}".format(
                given["bundle"], ", of cluster " + ", ".join(given["clusters"]) if given["clusters"] else ""
            )
        )
    why = [one["body"] for items in by_scenario.values() for one in items if one["endpoint"] == _bundle.UNREACHABLE]
    return "No member of {0} was seen on the hosts of this play{1}. What is deployed shows ansible-playbook {2}".format(
        "cluster " + ", ".join(given["clusters"]) if given["clusters"] else "any cluster",
        ": " + "; ".join(why) if why else "",
        "inferops.sglang_pd.plan",
    )


def read_files(path: str) -> dict[str, str]:
    """Return the files of a bundle, a folder or a tar, by name.

    Nothing of a tar is written to disk.
    """
    files: dict[str, str] = {}
    room = BUNDLE_BYTES
    try:
        if os.path.isdir(path):
            for folder, _folders, names in os.walk(path):
                for name in sorted(names):
                    whole = os.path.join(folder, name)
                    if name.endswith(".txt") and os.path.isfile(whole):
                        with open(whole, "rb") as source:
                            room = _add(files, whole, source, room)
        else:
            with tarfile.open(path) as tar:
                for one in tar:
                    content = tar.extractfile(one) if one.isfile() and one.name.endswith(".txt") else None
                    if content is not None:
                        room = _add(files, one.name, content, room)
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError) as trouble:
        raise AnsibleActionFail("pd_diagnose_bundle {0} cannot be read: {1}".format(path, trouble)) from trouble
    return files


def _add(files: dict[str, str], name: str, source: Any, room: int) -> int:
    content = source.read(FILE_BYTES)
    files[name] = content.decode("utf-8", "replace")
    room -= len(content)
    if room < 0 or len(files) > BUNDLE_FILES:
        raise AnsibleActionFail("This is no bundle of a diagnosis: more than 20,000 files or 512 MiB")
    return room


def save(items: list[dict[str, Any]], path: str) -> str:
    """Write items as a folder, or as a tar where the name says so; return the path."""
    # Secrets were removed on the hosts; this is for what looks like one.
    files = dict(_bundle.file_of(one, []) for one in items)
    try:
        if path.endswith(TAR_ENDINGS):
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            with tarfile.open(path, "w" if path.endswith(".tar") else "w:gz") as tar:
                for name, text in sorted(files.items()):
                    content = text.encode()
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
                    tar.addfile(entry, io.BytesIO(content))
        else:
            os.makedirs(path, mode=0o700, exist_ok=True)
            if os.listdir(path):
                # Two looks in one folder would be judged as one.
                raise AnsibleActionFail("pd_diagnose_save {0} is not empty: name a new folder".format(path))
            for name, text in files.items():
                with open(os.path.join(path, name), "w", encoding="utf-8") as target:
                    target.write(text)
    except OSError as trouble:
        raise AnsibleActionFail("pd_diagnose_save {0} cannot be written: {1}".format(path, trouble)) from trouble
    return path
