# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The published schema of a fleet's file says what the roles' argument specifications say."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _settings, _topology

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "extensions/schemas/sglang_pd.schema.json").read_text())
#: Words that a section does not have, because the file says it in its own way.
SAID_OTHERWISE = {"prefill": {"settings", "engines"}, "decode": {"settings", "engines"}, "router": {"routers"}}
JSON_TYPES = {"str": "string", "path": "string", "int": "integer", "float": "number", "bool": "boolean"}
JSON_TYPES.update(list="array", dict="object")


def options_of(section: str) -> dict[str, Any]:
    role = "pd_" + section
    text = (ROOT / "roles" / role / "meta/argument_specs.yml").read_text()
    options = yaml.safe_load(text)["argument_specs"]["main"]["options"]
    return {name[len(role) + 1 :]: option for name, option in options.items()}


def test_the_file_is_what_the_tool_makes_of_the_argument_specifications() -> None:
    """After a change of an argument specification: tests/tools/with-env tests/tools/fleet-schema."""
    done = subprocess.run([ROOT / "tests/tools/fleet-schema", "--stdout"], check=True, capture_output=True, text=True)
    assert (ROOT / "extensions/schemas/sglang_pd.schema.json").read_text() == done.stdout


def test_it_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("section", ["engine", "prefill", "decode", "router"])
def test_a_section_has_the_words_types_choices_and_secrets_of_its_role(section: str) -> None:
    words = SCHEMA["definitions"][section]["properties"]
    options = options_of(section)
    settings = set(_settings.TABLE) if section in ("prefill", "decode") else set()
    assert set(words) == (set(options) - SAID_OTHERWISE.get(section, set())) | settings
    for name, option in options.items():
        if name not in words:
            continue
        told = words[name]
        if "choices" in option:
            assert told["anyOf"][0]["enum"] == option["choices"], name
        else:
            types = [told["type"]] if isinstance(told["type"], str) else told["type"]
            assert types[0] == JSON_TYPES[option["type"]], name
            assert ("null" in types) == ("default" not in option), name
        assert told.get("writeOnly", False) == option.get("no_log", False), name


@pytest.mark.parametrize("section", _topology.STAGES)
def test_a_member_has_the_words_of_its_section_and_says_who_it_is(section: str) -> None:
    cluster = SCHEMA["properties"]["clusters"]["additionalProperties"]
    member = cluster["properties"]["members"]["properties"][section]["items"]
    of_host = set() if section == "router" else set(SCHEMA["definitions"]["engine"]["properties"])
    own = set(SCHEMA["definitions"][section]["properties"])
    assert set(member["properties"]) == own | of_host | {"host", "name", "vars"}
    assert member["required"] == ["host"]


@pytest.mark.parametrize("section", ["engine", "prefill", "decode", "router"])
def test_the_defaults_of_the_roles_pass_the_schema(section: str) -> None:
    role = "pd_" + section
    values = yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text())
    words = {name[len(role) + 1 :]: value for name, value in values.items()}
    words = {name: value for name, value in words.items() if name not in SAID_OTHERWISE.get(section, set())}
    schema = dict(SCHEMA["definitions"][section], definitions=SCHEMA["definitions"])
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(words)] == []


def test_the_examples_pass_the_schema_and_name_it() -> None:
    examples = sorted((ROOT / "inventory/fleet").glob("*.sglang_pd.yml"))
    assert len(examples) == 2
    for example in examples:
        text = example.read_text()
        named = text.splitlines()[0].partition("$schema=")[2]
        assert (example.parent / named).resolve() == ROOT / "extensions/schemas/sglang_pd.schema.json"
        assert list(jsonschema.Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(text))) == []
