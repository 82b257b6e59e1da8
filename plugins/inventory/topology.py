# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory from a file that describes a fleet."""

from __future__ import annotations

DOCUMENTATION = r"""
name: topology
short_description: SGLang prefill/decode clusters from one file
version_added: 0.2.0
author:
  - InferOps maintainers
description:
  - Reads clusters from a file whose name ends in C(.sglang_pd.yml) or C(.sglang_pd.yaml), and gives the groups and
    variables that a hand-written inventory has - C(pd_prefill), C(pd_decode), C(pd_router), C(pd_cluster), and the
    variables of the roles; and a group C(pd_cluster_NAME) for each cluster.
  - The file is checked as a whole, by the JSON schema C(extensions/schemas/sglang_pd.schema.json) of this collection
    and by the rules of P(inferops.sglang_pd.preflight#playbook). All that is wrong is told at once, with its lines.
  - Words are the names of the roles' variables without their prefix. Values may be templates and may be encrypted.
requirements:
  - jsonschema (Python library) on the controller
options:
  plugin:
    description:
      - Says that the file is one of this plugin.
    type: str
    required: true
    choices: [inferops.sglang_pd.topology]
  defaults:
    description:
      - What holds for all clusters. Sections C(engine), C(prefill), C(decode), C(router) with the variables of
        P(inferops.sglang_pd.pd_engine#role) and so on, and C(vars) with other variables.
      - What comes later wins - C(engine) of the fleet, of the cluster, the section of the role of the fleet, of the
        cluster, the member.
    type: dict
    default: {}
  clusters:
    description:
      - The clusters by name. Each has the sections of O(defaults), and C(members) with lists C(prefill), C(decode)
        and C(router).
      - A member has its C(host), a C(name) where the host has several of its role and cluster, and words of its own.
    type: dict
    required: true
notes:
  - A broken inventory is a mere warning to Ansible. With C(any_unparsed_is_failed = true) in the section C([inventory])
    of C(ansible.cfg) it is an error.
"""

EXAMPLES = r"""
# fleet.sglang_pd.yml: one box with eight GPUs
plugin: inferops.sglang_pd.topology
clusters:
  dsv4:
    engine:
      model_path: /models/DeepSeek-V4-Flash
      tp_size: 4
    members:
      prefill:
        - {host: gpu1.example.com, gpus: [0, 1, 2, 3]}
      decode:
        - {host: gpu1.example.com, gpus: [4, 5, 6, 7]}
      router:
        - {host: gpu1.example.com}
"""

import itertools
import pathlib
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.module_utils.basic import missing_required_lib
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet, _topology
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import fleet_schema, marked_yaml

try:
    # Since ansible-core 2.19 a text is a template only where somebody says so.
    from ansible.template import trust_as_template
except ImportError:

    def trust_as_template(value: str) -> str:
        """Return the text as it is."""
        return value


#: Problems that are told at a time.
MOST_PROBLEMS = 100


class InventoryModule(BaseInventoryPlugin):
    """Read the file, ask the schema and the pure core, fill the inventory."""

    NAME = _fleet.PLUGIN

    def verify_file(self, path: str) -> bool:
        """Tell whether a file is one of ours."""
        return bool(super().verify_file(path)) and path.endswith((".sglang_pd.yml", ".sglang_pd.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory from a file, or refuse with all that is wrong with it."""
        super().parse(inventory, loader, path, cache)
        if fleet_schema.jsonschema is None:
            raise AnsibleParserError(missing_required_lib("jsonschema", reason="to check {0}".format(path)))
        data, mark, problems = marked_yaml.load(self._text(path))
        if data is None and not problems:
            problems = [_fleet.problem("the file follows its schema", "the file is empty", ())]
        elif data is not None:
            problems += self._problems(data)
        if problems:
            lines = _lines(path, mark, problems)
            count = "1 problem" if len(problems) == 1 else "{0} problems".format(len(problems))
            # Ansible would print an exception's text as one paragraph, or twice.
            self.display.error(
                "Refused, {0} in the topology:\n- {1}".format(count, "\n- ".join(lines)), wrap_text=False
            )
            raise AnsibleParserError("{0} in the topology, told above; the first is {1}".format(count, lines[0]))

        groups, variables, _none = _fleet.inventory(_fleet.members_of(data))
        for group, hosts in groups.items():
            self.inventory.add_group(group)
            for host in hosts:
                self.inventory.add_host(host, group=group)
        for host, its in variables.items():
            for name, value in its.items():
                self.inventory.set_variable(host, name, self._value(value))

    def _text(self, path: str) -> str:
        """Return the text of a file, which may be encrypted as a whole."""
        readable = self.loader.get_real_file(path)
        try:
            return pathlib.Path(readable).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            message = "{0}:{1}: the file is not in UTF-8 [rule: the file is YAML]".format(path, line)
            raise AnsibleParserError(message) from error
        finally:
            self.loader.cleanup_tmp_file(readable)

    def _problems(self, data: Any) -> list[dict[str, Any]]:
        """Return what is wrong with the file's data."""
        schema = fleet_schema.read()
        problems = list(itertools.islice(fleet_schema.problems_of(data, schema), MOST_PROBLEMS))
        judged = _fleet.forget(data, problems) if problems else data
        return problems + _fleet.problems_of(judged, fleet_schema.defaults(schema)) + self._described_twice(judged)

    def _described_twice(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        """Return hosts that another source of the inventory has in clusters: one of the two would be lost."""
        found = []
        for member in _fleet.members_of(data):
            host = self.inventory.hosts.get(member.host)
            other = _topology.clusters_of(host.vars.get("pd_cluster")) if host else []
            if other:
                message = "host {0} is described by another source of the inventory, too (cluster {1})"
                message = message.format(member.host, ", ".join(other))
                found.append(_fleet.problem("one file describes a host", message, member.path + ("host",)))
        return found

    def _value(self, value: Any) -> Any:
        """Return a value as Ansible's own loader would have read it."""
        if isinstance(value, marked_yaml.Tagged):
            return self.loader.load(value.source)
        if isinstance(value, str):
            return trust_as_template(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {self._value(name): self._value(item) for name, item in value.items()}
        return value


def _lines(path: str, mark: marked_yaml.Mark, problems: list[dict[str, Any]]) -> list[str]:
    """Return the problems of a file as text, a line each, in the order of the file."""
    for item in problems:
        item.setdefault("line", marked_yaml.line_of(mark, item["path"]))
    lines = [
        "{0}:{1}: {2}{3} [rule: {4}]".format(path, item["line"], _where(item["path"]), item["message"], item["rule"])
        for item in sorted(problems, key=lambda item: item["line"])[:MOST_PROBLEMS]
    ]
    left = len(problems) - len(lines)
    return lines + ["and {0} more".format(left)] if left else lines


def _where(path: tuple[Any, ...]) -> str:
    where = "".join("[{0}]".format(key) if isinstance(key, int) else ".{0}".format(key) for key in path)
    return where[1:] + ": " if where else ""
