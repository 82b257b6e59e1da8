# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit runs: argument list, environment, secrets and their hash.

Pure. The roles' templates only lay these values out; see ``roles/*/templates``.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _settings

#: Options that the collection gives every engine by itself.
ENGINE_FLAGS = (
    "--host",
    "--port",
    "--disaggregation-mode",
    "--disaggregation-bootstrap-port",
    "--nnodes",
    "--node-rank",
    "--dist-init-addr",
    "--enable-metrics",
    "--extra-metric-labels",
    "--config",
)


def engine_unit(engine: dict[str, Any], install: dict[str, Any]) -> dict[str, Any]:
    """Return what an engine's unit runs.

    :param engine: an engine as :func:`_topology.resolve_engines` gives it.
    :param install: ``python`` (interpreter with sglang), ``version`` of sglang,
        ``secrets_file`` (path), ``secrets`` (what that file holds: arguments by name
        without their dashes, as the engine's ``--config`` reads them; {} for none),
        ``patches`` (those of its files: ``name``, ``sha256``).
    :return: ``exec_start`` (argument list), ``environment`` (of the settings, for the unit
        file), ``private_environment`` (the user's own, which may hold secrets, for a file
        that others cannot read), ``private_names`` (of its variables), ``secret_names`` (of the
        arguments in the secrets file), ``configuration`` (hash of all that the process reads,
        its version, patches and secrets included).
    """
    arguments, environment = _settings.render(engine["settings"], engine["role"], install["version"])
    arguments = [
        install["python"],
        "-m",
        "sglang.launch_server",
        *arguments,
        "--host",
        engine["listen"],
        "--port",
        str(engine["port"]),
        "--disaggregation-mode",
        engine["role"],
    ]
    if engine["role"] == _settings.PREFILL:
        arguments += ["--disaggregation-bootstrap-port", str(engine["bootstrap_port"])]
    if engine["nnodes"] > 1:
        arguments += [
            "--nnodes",
            str(engine["nnodes"]),
            "--node-rank",
            str(engine["node_rank"]),
            "--dist-init-addr",
            engine["dist_init_addr"],
        ]
    arguments += ["--enable-metrics", "--extra-metric-labels", '{"invocation":"${INVOCATION_ID}"}']
    if install["secrets"]:
        arguments += ["--config", install["secrets_file"]]
    arguments += [str(word) for word in engine["extra_args"]]

    if engine["gpus"]:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in engine["gpus"])
    return _sealed(arguments, environment, engine["extra_env"], install)


#: How each supported router is started, behind its interpreter.
ROUTER_MODULES = {
    "smg": ["-m", "smg", "launch"],
    "sglang-router": ["-m", "sglang_router.launch_router"],
}

#: Router settings ``pd_router_<name>`` and their flags; both routers spell them alike.
ROUTER_FLAGS = {
    "policy": "--policy",
    "prefill_policy": "--prefill-policy",
    "decode_policy": "--decode-policy",
    "request_timeout_seconds": "--request-timeout-secs",
    "worker_startup_timeout_seconds": "--worker-startup-timeout-secs",
    "worker_startup_check_interval_seconds": "--worker-startup-check-interval",
    "health_check_interval_seconds": "--health-check-interval-secs",
    "health_check_timeout_seconds": "--health-check-timeout-secs",
    "health_failure_threshold": "--health-failure-threshold",
    "health_success_threshold": "--health-success-threshold",
    "retry_max_retries": "--retry-max-retries",
    "breaker_failure_threshold": "--cb-failure-threshold",
    "breaker_timeout_seconds": "--cb-timeout-duration-secs",
    "shutdown_grace_period_seconds": "--shutdown-grace-period-secs",
    "log_level": "--log-level",
}


def router_unit(router: dict[str, Any], workers: list[dict[str, Any]], install: dict[str, Any]) -> dict[str, Any]:
    """Return what a router's unit runs; the result is that of :func:`engine_unit`.

    Neither router reads its key from a file or the environment, so the unit starts
    a launcher that adds the words of the secrets file inside the process: the key
    shows in no process list and in no unit file.

    :param router: ``package`` (``smg`` or ``sglang-router``), ``listen``, ``port``,
        ``metrics_port``, ``settings``, ``extra_args``, ``extra_env``.
    :param workers: members of role prefill and decode that serve HTTP (rank 0).
    :param install: ``python``, ``version``, ``launcher``, ``secrets_file``, ``secrets``.
    """
    arguments = [install["python"], install["launcher"], install["secrets_file"]]
    arguments += ROUTER_MODULES[router["package"]]
    arguments += ["--host", router["listen"], "--port", str(router["port"]), "--pd-disaggregation"]
    for worker in workers:
        if worker["role"] == _settings.PREFILL:
            arguments += ["--prefill", worker["url"], str(worker["bootstrap_port"])]
        else:
            arguments += ["--decode", worker["url"]]
    for name, flag in ROUTER_FLAGS.items():
        if _settings.is_set(router["settings"].get(name)):
            arguments += [flag, _settings.argument_value(router["settings"][name])]
    arguments += ["--prometheus-host", router["listen"], "--prometheus-port", str(router["metrics_port"])]
    arguments += [str(word) for word in router["extra_args"]]
    return _sealed(arguments, {}, router["extra_env"], install)


def _sealed(
    arguments: list[str], environment: dict[str, str], extra_env: dict[str, Any], install: dict[str, Any]
) -> dict[str, Any]:
    private = {name: _settings.environment_value(value) for name, value in extra_env.items()}
    content = json.dumps([arguments, environment, private, install], sort_keys=True)
    return {
        "exec_start": arguments,
        "environment": environment,
        "private_environment": private,
        "private_names": sorted(private),
        "secret_names": sorted(install["secrets"]),
        "configuration": hashlib.sha256(content.encode()).hexdigest()[:16],
    }


def command_of(member: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    """Return the interpreter of a member, what follows its ``-m``, and the arguments behind that.

    :param member: with ``exec_start`` and, for a router, ``package``.
    """
    words = member["exec_start"]
    start = words.index("-m") + 1
    program = ROUTER_MODULES[member["package"]][1:] if "package" in member else ["sglang.launch_server"]
    return words[0], program, words[start + len(program) :]


_PLAIN = re.compile(r"^[A-Za-z0-9_.,:/@+=-]+$")


def systemd_word(word: str) -> str:
    """Return one word of an ``ExecStart=`` line, quoted so that systemd gives it unchanged.

    ``${INVOCATION_ID}`` is the one variable that systemd shall put in; every other
    dollar and every per cent sign is doubled. See systemd.service(5), "COMMAND LINES".
    """
    text = str(word).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    text = text.replace("$${INVOCATION_ID}", "${INVOCATION_ID}").replace("\n", "\\n")
    return text if _PLAIN.match(text) else '"{0}"'.format(text)


def systemd_command(words: list[str]) -> str:
    """Return an argument list as the value of ``ExecStart=``, one option a line."""
    text = ""
    for word in words:
        separator = " \\\n  " if str(word).startswith("--") else " "
        text += (separator if text else "") + systemd_word(word)
    return text


def systemd_environment(name: str, value: str) -> str:
    """Return ``NAME=value`` quoted for an ``Environment=`` line, see systemd.exec(5)."""
    text = "{0}={1}".format(name, value)
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return '"{0}"'.format(text)
