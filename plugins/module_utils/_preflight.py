# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what shall run on a host can run there, judged before anything is stopped.

Pure: what was found on the host comes in as data, problems and warnings go out.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _options, _settings, _unit
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import ROUTER, ports_of, problem

#: Rules whose problems an operator may accept by name, see :func:`split`: the machine may
#: be right where they find it wrong. What no engine would start with is not among them.
ACCEPTABLE = (
    "prefill and decode agree",
    "one choice of network devices",
    "GPUs of the host",
    "room on the host",
    "the model can be read",
    "memory may be locked",
)

#: Variables that libraries of the system read, the driver's among them: nothing in the
#: environment's files would tell.
READ_ELSEWHERE = ("CUDA_", "NVIDIA_", "LD_", "ROCR_", "HIP_", "ASCEND_", "MALLOC_", "HOME", "PATH", "TMPDIR", "TZ")

_GIB = 1024**3


def inspect(member: dict[str, Any], found: dict[str, Any], limits: dict[str, int]) -> dict[str, Any]:
    """Return what is wrong with one member on its host.

    :param member: what the host keeps, or shall keep, of the member (:func:`_topology.member_file`).
    :param found: ``options`` (of the installed program, None where it told none), ``told`` (why it
        told none; "" where check mode finds nothing installed yet), ``readers`` (file by environment
        variable of :func:`variables_to_look_for`, "" for none), ``searched``, ``listeners`` (on the
        member's ports), ``gpus`` (count, None for unknown), ``free_bytes`` (by directory), ``model_error``
        (why the service user cannot read the model, ""), ``locked_memory`` (LimitMEMLOCK of the
        unit, "" for none).
    :param limits: least ``free_bytes`` by directory.
    :return: ``problems`` (see :func:`_topology.problem`), ``warnings`` (texts), ``inert`` (names of
        environment variables that nothing reads).
    """
    problems = _problems_of_arguments(member, found)
    problems += [problem_of_port(member, item) for item in found["listeners"] if item["unit"] != member["unit"]]
    problems += _problems_of_machine(member, found, limits)
    inert = inert_of(found["readers"])
    warnings = [
        "{0} on {1}: {2} ({3}) is inert, nothing in {4} reads it".format(
            member["unit"], member["host"], name, variable_behind(name, member), found["searched"]
        )
        for name in inert
    ]
    return {"problems": problems, "warnings": warnings, "inert": inert}


def split(problems: list[dict[str, str]], accepted: list[str]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the problems that refuse, and those that the operator accepts by their rules' names.

    A name that no acceptable rule has is a problem itself.
    """
    unknown = [
        problem(
            "accepted by name",
            "rule {0!r} cannot be accepted{1}; these can: {2}".format(
                name, _settings.suggestion(name, ACCEPTABLE), ", ".join(ACCEPTABLE)
            ),
            variable="pd_preflight_accept",
        )
        for name in accepted
        if name not in ACCEPTABLE
    ]
    refusing = [item for item in problems if item["rule"] not in accepted or item["rule"] not in ACCEPTABLE]
    return unknown + refusing, [item for item in problems if item not in refusing]


def problem_of_port(member: dict[str, Any], listener: dict[str, Any]) -> dict[str, str]:
    """Return the problem that somebody else holds a port of a member."""
    remedy = "end that process"
    if listener["unit"]:
        # It may be sshd's: what is harmless comes first.
        remedy = "give this one another port, or stop that unit, systemctl disable --now {unit}".format(**listener)
    return problem(
        "ports are free or our own",
        "port {port} of {mine} is held by pid {pid} ({command}): {remedy}".format(
            mine=member["unit"],
            remedy=remedy,
            port=listener["port"],
            pid=listener["pid"],
            command=listener["command"],
        ),
        member["host"],
        next((name for name, port in ports_of(member).items() if port == listener["port"]), ""),
    )


def variables_to_look_for(member: dict[str, Any]) -> list[str]:
    """Return the environment variables of a member that something in its environment's files should mention."""
    names = set(member["environment"]) | set(member["private_names"])
    return sorted(name for name in names if not name.startswith(READ_ELSEWHERE))


def inert_of(readers: dict[str, str]) -> list[str]:
    """Return the variables that were looked for and that nothing reads."""
    return sorted(name for name, file in readers.items() if not file)


def variable_behind(name: str, member: dict[str, Any]) -> str:
    """Return the inventory's variable that brought an option or environment variable to a member."""
    if member["role"] == ROUTER:
        for setting, flag in _unit.ROUTER_FLAGS.items():
            if flag == name:
                return "pd_router_" + setting
        return "pd_router_extra_args" if name.startswith("-") else "pd_router_extra_env"
    for setting in _settings.TABLE:
        if _settings.spelling(setting, member["settings"], member["version"]) == name:
            return "pd_engine_{0} or pd_{1}_settings.{0}".format(setting, member["role"])
    if name in _unit.ENGINE_FLAGS:
        return "pd_engine_sglang_version"
    kind = "args" if name.startswith("-") else "env"
    return "pd_engine_extra_{1} or pd_{0}_extra_{1}".format(member["role"], kind)


def _problems_of_arguments(member: dict[str, Any], found: dict[str, Any]) -> list[dict[str, str]]:
    python, program, words = _unit.command_of(member)
    name = "{0} {1} ({2})".format("router" if member["role"] == ROUTER else "sglang", member["version"], python)
    if found["options"] is None and not found["told"]:
        return []
    if found["options"] is None:
        return [
            problem(
                "known to the installed program",
                "{0} does not come as far as its command line: {1}. Try it: {2} -m {3} --help".format(
                    name, found["told"], python, " ".join(program)
                ),
                member["host"],
            )
        ]
    judged = [
        (item["message"], variable_behind(item["option"], member))
        for item in _options.problems_of(words, found["options"])
    ]
    # Their values are secrets, and stay in their file.
    judged += [
        (_options.problem_of_name("--" + secret, found["options"]), "pd_engine_secret_args")
        for secret in member["secret_names"]
    ]
    return [
        problem("known to the installed program", "{0}, says {1}".format(message, name), member["host"], variable)
        for message, variable in judged
        if message
    ]


def _problems_of_machine(member: dict[str, Any], found: dict[str, Any], limits: dict[str, int]) -> list[dict[str, str]]:
    problems = []
    host = member["host"]
    beyond = [gpu for gpu in member["gpus"] if found["gpus"] is not None and gpu >= found["gpus"]]
    if beyond:
        problems.append(
            problem(
                "GPUs of the host",
                "{0} is given GPU {1}, the host has {2} (nvidia-smi --list-gpus)".format(
                    member["unit"], ", ".join(map(str, beyond)), found["gpus"]
                ),
                host,
                "pd_{0}_gpus".format(member["role"]),
            )
        )
    for directory, least in sorted(limits.items()):
        free = found["free_bytes"].get(directory)
        if free is not None and free < least:
            problems.append(
                problem(
                    "room on the host",
                    "{0} has {1:.2f} GiB left, {2:.2f} are wanted: df -h {0}".format(
                        directory, free / _GIB, least / _GIB
                    ),
                    host,
                    "pd_engine_{0}_free_bytes".format("shared_memory" if directory.endswith("/shm") else "disk"),
                )
            )
    if found["model_error"]:
        problems.append(
            problem(
                "the model can be read",
                "{0}: {1}".format(member["unit"], found["model_error"]),
                host,
                "pd_engine_model_path",
            )
        )
    if found["locked_memory"] not in ("", "infinity"):
        problems.append(
            problem(
                "memory may be locked",
                "{0} may lock {1} bytes only, RDMA wants no limit: see the drop-in in systemctl cat {0}".format(
                    member["unit"], found["locked_memory"]
                ),
                host,
            )
        )
    return problems
