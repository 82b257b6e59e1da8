# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One ``ansible-playbook``, started by ansible-runner's public interface."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import threading
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import processes
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import PipelineError

NO_RUNNER = (
    "sglang-pd needs ansible-runner 2.3 or newer, and {python} cannot load it: {trouble}. Install it beside "
    "ansible-core (python3 -m pip install ansible-runner), or name the Python that has both by SGLANG_PD_PYTHON"
)

#: Failures that are told; the whole output is in the artifacts.
MOST_FAILURES = 10
#: Lines of output that are told where nothing looks like an error.
LAST_LINES = 15

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = re.compile(r"^(ERROR!|\[ERROR\]|usage: ansible-playbook|Traceback)", re.MULTILINE)

#: Events that are kept as files; the others are in the output, and there may be hundreds of thousands.
_KEPT = ("runner_on_failed", "runner_on_unreachable", "playbook_on_stats", "error")


class Play:
    """A playbook that runs in the background.

    :param playbook: its name, as ansible-playbook gets it.
    :param words: options and arguments of ansible-playbook.
    :param directory: in which it runs.
    :param artifacts: directory of ansible-runner.
    :param ident: name of this run below it.
    :param environment: variables that it gets beside those of this process.
    """

    def __init__(
        self, playbook: str, words: list[str], directory: str, artifacts: str, ident: str, environment: dict[str, str]
    ):
        self.output = os.path.join(artifacts, "artifacts", ident, "stdout")
        self.exit_code: int | None = None
        self.pid: int | None = None
        self._process: processes.Process | None = None
        self._trouble = ""
        self._failures: list[str] = []
        self._begun = False
        self._options: dict[str, Any] = {
            "private_data_dir": artifacts,
            "ident": ident,
            # ansible-playbook runs in the directory of the project: relative paths and ansible.cfg are the user's.
            "project_dir": directory,
            "playbook": playbook,
            "cmdline": " ".join(shlex.quote(word) for word in words),
            "envvars": environment,
            # Else all of this would be written to files that the next run reads in place of its options.
            "suppress_env_files": True,
            "quiet": True,
            # Else facts are kept in the artifacts, and the user's own cache is not used.
            "fact_cache_type": "memory",
            "event_handler": self._take_event,
            "status_handler": self._take_status,
            # Else ansible-runner would take the signals, and kill the process group: workers are not in it.
            "cancel_callback": lambda: False,
        }
        self._thread = threading.Thread(target=self._run, name="ansible-runner", daemon=True)

    def start(self) -> None:
        """Start it.

        :raises PipelineError: where ansible-runner is not there.
        """
        _runner()
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, no longer than this; tell whether it ended."""
        self._thread.join(seconds)
        if self._process is None and self._begun:
            self._find()
        return not self._thread.is_alive()

    def stop(self, number: int) -> bool:
        """Send ansible-playbook a signal; tell whether it was there."""
        if self._process is None or not self._process.runs():
            return False
        self._process.signal(number)
        return True

    def what_was_wrong(self) -> str:
        """Return why it failed, in Ansible's own words."""
        try:
            with open(self.output, encoding="utf-8", errors="replace") as source:
                output = source.read()
        except OSError:
            output = ""
        return what_ansible_said(output, self._failures) or self._trouble or "it said nothing"

    def _find(self) -> None:
        """Find the process: no other child is started before it."""
        me = os.getpid()
        found = [one for one in processes.running_below(me) if one.parent == me]
        if found:
            self._process = found[0]
            self.pid = found[0].pid

    def _run(self) -> None:
        try:
            self.exit_code = _runner().run(**self._options).rc
        except BaseException as trouble:
            # Also when a worker that outlived ansible-playbook holds its terminal.
            self._trouble = "{0}: {1}".format(type(trouble).__name__, str(trouble).split("\n", 1)[0])

    def _take_status(self, status: dict[str, Any], runner_config: Any) -> None:
        if status.get("status") == "starting" and "ANSIBLE_HOST_KEY_CHECKING" not in os.environ:
            # ansible-runner turns it off; whether hosts are checked is for the user's configuration to say.
            runner_config.env.pop("ANSIBLE_HOST_KEY_CHECKING", None)
        if status.get("status") == "running":
            self._begun = True
            hide_environment(runner_config.artifact_dir)

    def _take_event(self, event: dict[str, Any]) -> bool:
        words = failure_in(event)
        if words and len(self._failures) <= MOST_FAILURES:
            self._failures.append(words)
        return event.get("event") in _KEPT


def _runner() -> Any:
    try:
        import ansible_runner
    except ImportError as trouble:
        raise PipelineError(NO_RUNNER.format(python=sys.executable, trouble=trouble)) from trouble
    return ansible_runner


def hide_environment(artifacts: str) -> None:
    """Take the environment out of what ansible-runner notes of the command: in a pipeline it is full of secrets."""
    path = os.path.join(artifacts, "command")
    with open(path, encoding="utf-8") as source:
        command = json.load(source)
    command["env"] = {}
    with open(path, "w", encoding="utf-8") as target:
        json.dump(command, target)


def failure_in(event: dict[str, Any]) -> str:
    """Return where and why a task failed, "" for other events and where the failure is ignored."""
    if event.get("event") not in ("runner_on_failed", "runner_on_unreachable"):
        return ""
    data = event.get("event_data") or {}
    if data.get("ignore_errors"):
        return ""
    result = data.get("res") or {}
    message = str(result.get("msg") or result.get("reason") or "").strip()
    return "{0}: {1}: {2}".format(data.get("host", "?"), data.get("task", "?"), message or "no message")


def what_ansible_said(output: str, failures: list[str]) -> str:
    """Return the part of ansible-playbook's output that tells what was wrong.

    :param failures: of tasks, in words.
    """
    if failures:
        more = [] if len(failures) <= MOST_FAILURES else ["and more"]
        return "\n".join([*failures[:MOST_FAILURES], *more])
    text = _COLOURS.sub("", output).replace("\r\n", "\n").strip()
    found = _ERROR.search(text)
    if found:
        return text[found.start() :].strip()
    return "\n".join(text.split("\n")[-LAST_LINES:])
