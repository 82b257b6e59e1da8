# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every role's argument specification and its defaults say the same, and every word is described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _settings, _topology, _unit

ROOT = Path(__file__).resolve().parents[3]
ROLES = ("pd_engine", "pd_prefill", "pd_decode", "pd_router")


def options_of(role: str) -> dict[str, Any]:
    text = (ROOT / "roles" / role / "meta/argument_specs.yml").read_text()
    return dict(yaml.safe_load(text)["argument_specs"]["main"]["options"])


def defaults_of(role: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text()))


def described(options: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for name, option in options.items():
        yield f"{path}.{name}", option
        yield from described(option.get("options", {}), f"{path}.{name}")


@pytest.mark.parametrize("role", ROLES)
def test_specification_and_defaults_have_the_same_keys_and_values(role: str) -> None:
    options, defaults = options_of(role), defaults_of(role)
    assert set(options) == set(defaults)
    assert {name: option.get("default") for name, option in options.items()} == defaults


@pytest.mark.parametrize("role", ROLES)
def test_every_option_has_type_description_and_prefix(role: str) -> None:
    for name, option in described(options_of(role), role):
        assert option["type"], name
        assert all(line.strip().endswith((".", ")")) for line in option["description"]), name
    assert all(name.startswith(f"{role}_") for name in options_of(role))


def test_every_setting_of_the_core_is_a_variable_of_the_role() -> None:
    assert {f"pd_engine_{name}" for name in _settings.TABLE} <= set(options_of("pd_engine"))
    assert {f"pd_router_{name}" for name in _unit.ROUTER_FLAGS} <= set(options_of("pd_router"))
    settings = yaml.safe_load((ROOT / "roles/pd_engine/vars/main.yml").read_text())["_pd_engine_settings"]
    assert set(settings) == set(_settings.TABLE)
    settings = yaml.safe_load((ROOT / "roles/pd_router/vars/main.yml").read_text())["_pd_router_settings"]
    assert set(settings) == set(_unit.ROUTER_FLAGS)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_items_of_engines_are_what_the_core_takes(role: str) -> None:
    specified = set(options_of(f"pd_{role}")[f"pd_{role}_engines"]["options"])
    assert specified | {"bootstrap_port"} == set(_topology.ENGINE_KEYS)


def test_items_of_routers_are_what_the_core_takes() -> None:
    assert set(options_of("pd_router")["pd_router_routers"]["options"]) == set(_topology.ROUTER_KEYS)


def test_playbook_options_are_documented_and_real() -> None:
    """Each pd_co_restart_ variable of the playbook is in the documentation, and no other."""
    import re

    used = set(re.findall(r"pd_co_restart_\w+", (ROOT / "playbooks/tasks/co_restart.yml").read_text()))
    # Read off the inventory by the plan; rollback.yml's own are in docs/rollback.md.
    used |= {"pd_co_restart_decode_alone"}
    text = (ROOT / "docs/co_restart.md").read_text()
    table = set(re.findall(r"^\| `(pd_co_restart_\w+)`", text, re.MULTILINE))
    assert used - {"pd_co_restart_request_max_tokens", "pd_co_restart_request_temperature"} == table


def test_options_of_verify_are_the_same_in_action_module_playbook_and_documentation() -> None:
    import re

    import yaml
    from ansible_collections.inferops.sglang_pd.plugins.module_utils import _profiles
    from ansible_collections.inferops.sglang_pd.plugins.modules import verify as module

    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    of_the_action = set(_profiles.OPTIONS) | {"clusters", "report_dir"}
    assert set(documented) == of_the_action | {"members", "fail", "inventory"}
    for name, spec in _profiles.OPTIONS.items():
        about = {key: documented[name].get(key) for key in ("type", "choices", "elements", "default")}
        assert about == {key: spec.get(key) for key in about}, name

    used = set(re.findall(r"pd_verify_(\w+)", (ROOT / "playbooks/verify.yml").read_text()))
    assert used == of_the_action
    table = "\n".join(line for line in (ROOT / "docs/verify.md").read_text().splitlines() if line.startswith("| `pd_"))
    first_cells = [line.split("|")[1] for line in table.splitlines()]
    told = {name for cell in first_cells for name in re.findall(r"`pd_verify_(\w+)`", cell)}
    short = {name for cell in first_cells for name in re.findall(r"`_(\w+)`", cell)}
    assert told <= of_the_action
    assert {name for name in of_the_action if name not in told and not name.endswith(tuple(short))} == set()


def test_options_of_diagnose_are_the_same_in_module_playbook_and_documentation() -> None:
    import re

    from ansible_collections.inferops.sglang_pd.plugins.modules import diagnose, diagnose_info

    documented = set(yaml.safe_load(diagnose.DOCUMENTATION)["options"])
    action = (ROOT / "plugins/action/diagnose.py").read_text()
    assert set(re.findall(r'^                "(\w+)": \{"type"', action, re.MULTILINE)) == documented
    # What the playbook hands over from task to task is no variable of the operator.
    of_the_playbook = (documented | set(yaml.safe_load(diagnose_info.DOCUMENTATION)["options"])) - {
        "seen",
        "members",
        "bodies",
    }
    assert set(re.findall(r"pd_diagnose_(\w+)", (ROOT / "playbooks/diagnose.yml").read_text())) == of_the_playbook
    table = re.findall(r"^\| `pd_diagnose_(\w+)`", (ROOT / "docs/diagnose.md").read_text(), re.MULTILINE)
    assert set(table) == of_the_playbook


def test_options_of_a_roll_are_documented_and_real() -> None:
    import re

    playbooks = [*(ROOT / "playbooks").glob("rol*.yml"), *(ROOT / "playbooks/tasks").glob("roll_*.yml")]
    # What one play hands over to the next one is no variable of the operator.
    inner = {"rolls", "reserved", "confirmed", "hosts", "batch_sizes", "lock_hosts", "look", "before", "after"}
    used = {name for path in playbooks for name in re.findall(r"\bpd_roll_(\w+)", path.read_text())} - inner
    table = re.findall(r"^\| `pd_roll_(\w+)`", (ROOT / "docs/rolling.md").read_text(), re.MULTILINE)
    assert used == set(table)
