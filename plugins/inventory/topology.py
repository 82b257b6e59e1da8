# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory from a file that describes a fleet."""

from __future__ import annotations

DOCUMENTATION = r"""
name: topology
short_description: SGLang prefill/decode clusters from one file
version_added: 0.1.0
author:
  - InferOps maintainers
description:
  - Reads clusters from a file whose name ends in C(.sglang_pd.yml) or C(.sglang_pd.yaml), and gives the groups and
    variables that a hand-written inventory has - C(pd_prefill), C(pd_decode), C(pd_router), C(pd_cluster), and the
    variables of the roles; and a group C(pd_cluster_NAME) for each cluster.
  - The file is checked as a whole, by the JSON schema C(extensions/schemas/sglang_pd.schema.json) of this collection
    and by the rules of the playbook C(inferops.sglang_pd.preflight). All that is wrong is told at once, with its lines.
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

import pathlib
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.module_utils.basic import missing_required_lib
from ansible.plugins.inventory import BaseInventoryPlugin
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _fleet, _topology
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import fleet_file, fleet_schema, marked_yaml

try:
    # Since ansible-core 2.19 a text is a template only where somebody says so.
    from ansible.template import trust_as_template
except ImportError:

    def trust_as_template(value: str) -> str:
        """Return the text as it is."""
        return value


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
        data, mark, problems = fleet_file.read(self._text(path))
        problems += self._described_twice(data)
        if problems:
            lines = fleet_file.describe(path, mark, problems)
            # Ansible would print an exception's text as one paragraph, or twice.
            self.display.error("Refused, wrong in the topology:\n- {0}".format("\n- ".join(lines)), wrap_text=False)
            others = "" if len(lines) == 1 else ", told above with the others ({0} in all)".format(len(lines))
            raise AnsibleParserError(lines[0] + others)

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

    def _described_twice(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what another source of the inventory describes, too: the later one would win, by halves."""
        rule, roles = "one file describes a cluster and a host", set(_topology.GROUPS.values())
        found = []
        for name in data["clusters"]:
            group = self.inventory.groups.get(_fleet.cluster_group(name))
            if group and group.hosts:
                message = "another source of the inventory has hosts in group {0} already".format(group.name)
                found.append(_fleet.problem(rule, message, ("clusters", name)))
        for member in _fleet.members_of(data):
            host = self.inventory.hosts.get(member.host)
            if host and ("pd_cluster" in host.vars or roles & {group.name for group in host.get_groups()}):
                message = "host {0} is a member of a cluster in another source of the inventory already"
                found.append(_fleet.problem(rule, message.format(member.host), member.path + ("host",)))
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
