# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the collection's settings to what sglang reads: flags and environment.

One table maps each setting to its flag or environment variable, per sglang
version where the spelling changed. Pure: dictionaries in, lists and dictionaries
out.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

PREFILL = "prefill"
DECODE = "decode"
BOTH = (PREFILL, DECODE)


class SettingError(ValueError):
    """A setting that cannot be rendered; the message names setting and rule."""


class Flag:
    """A setting that becomes ``--flag VALUE``, or ``--flag`` where it is a switch.

    :param spellings: ``(first version with it, flag)``, oldest first.
    :param roles: roles of engines that get it.
    """

    def __init__(self, *spellings: tuple[str, str], roles: tuple[str, ...] = BOTH, switch: bool = False):
        self.spellings = spellings
        self.roles = roles
        self.switch = switch

    def spelling(self, version: str) -> str:
        """Return the flag's name for an sglang version."""
        name = self.spellings[0][1]
        for first_version, spelled in self.spellings:
            if parse_version(version) >= parse_version(first_version):
                name = spelled
        return name


class Variable:
    """A setting that becomes an environment variable of the engine.

    :param named_by: setting that may give the variable another name.
    """

    def __init__(self, name: str, roles: tuple[str, ...] = BOTH, named_by: str = ""):
        self.name = name
        self.roles = roles
        self.named_by = named_by


class VariableName:
    """A setting that names the environment variable of another one."""

    roles: tuple[str, ...] = ()


def _flag(name: str, roles: tuple[str, ...] = BOTH) -> Flag:
    return Flag(("0", name), roles=roles)


def _switch(name: str, roles: tuple[str, ...] = BOTH) -> Flag:
    return Flag(("0", name), roles=roles, switch=True)


#: The settings ``pd_engine_<name>``, in the order in which they are rendered.
#: Where a spelling depends on the version it was tried on that version's own parser.
TABLE: dict[str, Flag | Variable | VariableName] = {
    "model_path": _flag("--model-path"),
    "model_revision": _flag("--revision"),
    "served_model_name": _flag("--served-model-name"),
    "trust_remote_code": _switch("--trust-remote-code"),
    "tp_size": _flag("--tp-size"),
    "dp_size": _flag("--dp-size"),
    "pp_size": _flag("--pp-size"),
    "ep_size": _flag("--ep-size"),
    "mem_fraction_static": _flag("--mem-fraction-static"),
    "context_length": _flag("--context-length"),
    "page_size": _flag("--page-size"),
    "kv_cache_dtype": _flag("--kv-cache-dtype"),
    "max_running_requests": _flag("--max-running-requests"),
    "chunked_prefill_size": _flag("--chunked-prefill-size"),
    # Up to 0.5.18 one flag for all graphs; from 0.5.20 the old spelling is ambiguous
    # and exits 2. A prefill captures no decode graphs.
    "cuda_graph_max_bs": Flag(("0", "--cuda-graph-max-bs"), ("0.5.20", "--cuda-graph-max-bs-decode"), roles=(DECODE,)),
    "disable_overlap_schedule": _switch("--disable-overlap-schedule"),
    "attention_backend": _flag("--attention-backend"),
    "transfer_backend": _flag("--disaggregation-transfer-backend"),
    "ib_device": _flag("--disaggregation-ib-device"),
    "log_level": _flag("--log-level"),
    # Default on in the engine and without a flag of its own.
    "multi_stream_overlap": Variable("SGLANG_OPT_USE_MULTI_STREAM_OVERLAP"),
    # Read by builds that patch the constant in the sampling kernel; stock sglang ignores it.
    # Builds differ in what they call it.
    "target_ctas": Variable("TARGET_CTAS", named_by="target_ctas_variable"),
    "target_ctas_variable": VariableName(),
    "bootstrap_timeout_seconds": Variable("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"),
    "waiting_timeout_seconds": Variable("SGLANG_DISAGGREGATION_WAITING_TIMEOUT"),
    "heartbeat_interval_seconds": Variable("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL"),
    "heartbeat_max_failure": Variable("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE"),
    "health_check_timeout_seconds": Variable("SGLANG_HEALTH_CHECK_TIMEOUT"),
    "keep_alive_seconds": Variable("SGLANG_TIMEOUT_KEEP_ALIVE"),
}

#: Settings that prefill and decode of one cluster must share: a difference kills the
#: decode's scheduler on first contact or is not noticed by the engine at all.
MUST_AGREE = (
    "model_path",
    "model_revision",
    "served_model_name",
    "page_size",
    "kv_cache_dtype",
    "context_length",
    "transfer_backend",
)


def parse_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``0.5.15.post1`` gives ``(0, 5, 15)``."""
    numbers = []
    for part in version.split("."):
        match = re.match(r"\d+", part)
        if match is None:
            break
        numbers.append(int(match.group()))
    return tuple(numbers)


def is_set(value: Any) -> bool:
    """Tell whether a setting was given: None and "" leave the engine its default."""
    return value is not None and value != ""


def render(settings: dict[str, Any], role: str, version: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the environment for an engine's settings.

    :param settings: values by setting name; None and "" are left out.
    :param role: ``prefill`` or ``decode``.
    :param version: sglang version that will read them.
    :raises SettingError: for a name that the table does not have, or a switch
        whose value is no boolean.
    """
    unknown = sorted(set(settings) - set(TABLE))
    if unknown:
        raise SettingError("unknown setting {0}{1}".format(unknown[0], suggestion(unknown[0], TABLE)))
    arguments: list[str] = []
    environment: dict[str, str] = {}
    for name, how in TABLE.items():
        value = settings.get(name)
        if not is_set(value) or isinstance(how, VariableName) or role not in how.roles:
            continue
        if isinstance(how, Variable):
            environment[spelling(name, settings, version)] = environment_value(value)
        elif how.switch:
            if not isinstance(value, bool):
                raise SettingError("{0} takes true or false, not {1!r}".format(name, value))
            if value:
                arguments.append(how.spelling(version))
        else:
            arguments += [how.spelling(version), argument_value(value)]
    return arguments, environment


def spelling(name: str, settings: dict[str, Any], version: str) -> str:
    """Return the flag or environment variable that carries a setting, "" for one that only names another.

    :param name: a key of :data:`TABLE`.
    """
    how = TABLE[name]
    if isinstance(how, Flag):
        return how.spelling(version)
    if isinstance(how, VariableName):
        return ""
    return str(settings.get(how.named_by) or how.name)


def normal(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings spelled alike whatever type they came in.

    Older ansible-core templates numbers to text; what is written to the hosts, and
    compared between roles, must not depend on the controller's version.
    """
    return {
        name: value if isinstance(value, bool) else argument_value(value) if is_set(value) else ""
        for name, value in settings.items()
    }


def argument_value(value: Any) -> str:
    """Return a value as sglang's command line wants it: a list becomes ``a,b``."""
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def environment_value(value: Any) -> str:
    """Return a value as sglang's environment wants it.

    sglang accepts true/1/yes/y/false/0/no/n as a boolean. For anything else, "on" and
    "off" included, it warns and takes the setting's default (environ.py of 0.5.16 and
    0.5.23), so "off" would silently stay on.
    """
    if isinstance(value, bool):
        return "1" if value else "0"
    if str(value).lower() in ("on", "true", "yes"):
        return "1"
    if str(value).lower() in ("off", "false", "no"):
        return "0"
    return str(value)


def repeated_flags(arguments: list[str], extra_arguments: list[str]) -> list[str]:
    """Return what is wrong with extra arguments beside the rendered ones.

    argparse takes the last of a repeated flag silently, and takes an abbreviation
    for the flag: both would let an extra argument override a setting unseen.
    """
    problems = []
    rendered = {word.split("=", 1)[0] for word in arguments if word.startswith("--")}
    seen: set[str] = set()
    for word in extra_arguments:
        if not str(word).startswith("--"):
            continue
        name = str(word).split("=", 1)[0]
        if name in seen:
            problems.append("{0} is given twice in the extra arguments".format(name))
        elif name in rendered:
            problems.append("{0} is already set by a variable of its own".format(name))
        else:
            longer = sorted(flag for flag in rendered if flag.startswith(name) and flag != name)
            if longer:
                problems.append("{0} is an abbreviation of {1}, which is already set".format(name, longer[0]))
        seen.add(name)
    return problems


def suggestion(name: str, known: Any) -> str:
    """Return ``; did you mean X?`` for the nearest known name, or ""."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return "; did you mean {0}?".format(near[0]) if near else ""
