# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the console command is asked for: its options, and the command line of ``ansible-playbook``. Pure."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from typing import Any

DEFAULT_ROLL_DIR = "~/.local/state/sglang-pd/rolls"

#: Environment variables that stand for options.
ROLL_DIR_VARIABLE = "SGLANG_PD_ROLL_DIR"

PLAN, ROLL, RESUME, STATUS, CANCEL = "plan", "roll", "resume", "status", "cancel"

AUTO, TEXT, JSON = "auto", "text", "json"

#: Options of ansible-playbook that ask a person something.
_ASKING = ("--ask-pass", "--ask-become-pass", "--ask-vault-pass", "--ask-vault-password", "--step")
_ASKING_LETTERS = "kKJ"

#: Variables that the command sets itself, and its options for them.
_OURS = {"pd_roll_dir": "--roll-dir", "pd_roll_id": "resume ROLL", "pd_roll_purpose": "--purpose"}

_DESCRIPTION = """\
Co-restart SGLang prefill/decode clusters in waves, from a pipeline or a terminal.
Runs the playbooks of this collection by ansible-runner.

Options after -- go to ansible-playbook as they are: sglang-pd roll -i hosts.yml -- --limit rack1 -vv
"""

_EXIT_CODES = """\
exit codes:
  0  done, or nothing to do
  1  the command could not work: wrong options, no inventory, ansible-playbook failed before the roll began
  2  plan only: there are changes
  3  refused, nothing was touched
  4  a cluster failed or was rolled back
  5  ended early as asked (cancel, signal, pause): work remains, `sglang-pd resume` goes on

docs/pipelines.md tells more.
"""


class PipelineError(Exception):
    """What the command refuses or cannot do, in one message for people."""


class Request:
    """What a roll or a plan was asked for; kept with it, so that it can be resumed by its id alone.

    :ivar inventories: values of ``-i``.
    :ivar extra_vars: values of ``-e``, in their order.
    :ivar clusters: to be looked at; none: all.
    :ivar vault: words of vault options.
    :ivar passed: words that go to ansible-playbook as they are.
    :ivar directory: in which ansible-playbook runs: where its ``ansible.cfg`` is.
    """

    def __init__(
        self,
        inventories: list[str],
        extra_vars: list[str],
        clusters: list[str],
        purpose: str,
        vault: list[str],
        passed: list[str],
        directory: str,
    ):
        self.inventories = inventories
        self.extra_vars = extra_vars
        self.clusters = clusters
        self.purpose = purpose
        self.vault = vault
        self.passed = passed
        self.directory = directory

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Request:
        """Return what :meth:`as_dict` gave.

        :raises KeyError, TypeError: where it is none.
        """
        lists = ("inventories", "extra_vars", "clusters", "vault", "passed")
        return cls(
            purpose=str(given["purpose"]),
            directory=str(given["directory"]),
            **{name: [str(word) for word in given[name]] for name in lists},
        )

    def followed_by(self, later: Request) -> Request:
        """Return this request with what a later one adds: variables are added, all else replaces."""
        return Request(
            inventories=later.inventories or self.inventories,
            extra_vars=self.extra_vars + later.extra_vars,
            clusters=later.clusters or self.clusters,
            purpose=later.purpose or self.purpose,
            vault=later.vault or self.vault,
            passed=later.passed or self.passed,
            directory=self.directory,
        )

    def command_line(self, roll: str, roll_dir: str) -> list[str]:
        """Return the words that ansible-playbook gets before the playbook's name."""
        ours: dict[str, Any] = {"pd_roll_id": roll, "pd_roll_dir": roll_dir}
        if self.clusters:
            ours["pd_roll_clusters"] = self.clusters
        if self.purpose:
            ours["pd_roll_purpose"] = self.purpose
        words = [*self.passed, *self.vault]
        for inventory in self.inventories:
            words += ["-i", inventory]
        for variables in self.extra_vars:
            words += ["-e", variables]
        # Last, because the last one counts.
        return [*words, "-e", json.dumps(ours)]


def parse(argv: list[str], directory: str, environment: dict[str, str]) -> argparse.Namespace:
    """Return the options; ``request`` is what goes to ansible-playbook.

    :raises PipelineError: for what is wrong beyond what argparse itself says and exits for.
    """
    words, passed = argv, []
    if "--" in argv:
        place = argv.index("--")
        words, passed = argv[:place], argv[place + 1 :]
    options = _parser(environment).parse_args(words)
    options.roll_dir = os.path.abspath(os.path.expanduser(options.roll_dir))
    if options.command in (PLAN, ROLL, RESUME):
        options.request = _request(options, passed, directory)
    elif passed:
        raise PipelineError(
            "{0} starts no ansible-playbook, so nothing can be handed to it: {1}".format(
                options.command, " ".join(passed)
            )
        )
    return options


def _request(options: argparse.Namespace, passed: list[str], directory: str) -> Request:
    _refuse_questions([*passed, *(word for vault_id in options.vault_id for word in ("--vault-id", vault_id))])
    _refuse_our_variables([*options.extra_vars, *_extra_vars_in(passed)])
    vault = []
    for name in options.vault_password_file:
        vault += ["--vault-password-file", _from_here(name, directory)]
    for vault_id in options.vault_id:
        label, at, source = vault_id.rpartition("@")
        vault += ["--vault-id", label + at + _from_here(source, directory)]
    return Request(
        inventories=[_from_here(name, directory) for name in options.inventory],
        extra_vars=["@" + _from_here(one[1:], directory) if one[:1] == "@" else one for one in options.extra_vars],
        clusters=_clusters(options.clusters),
        purpose=options.purpose,
        vault=vault,
        passed=passed,
        directory=directory,
    )


def _from_here(name: str, directory: str) -> str:
    """Return the path of a file that is there, so that a resumed roll finds it from anywhere; else the word."""
    path = os.path.join(directory, os.path.expanduser(name))
    return os.path.abspath(path) if name and os.path.exists(path) else name


def _clusters(given: list[str] | None) -> list[str]:
    if given is None:
        return []
    names = [name.strip() for one in given for name in one.split(",") if name.strip()]
    if not names:
        raise PipelineError("--clusters names no cluster, and that is not all of them: leave the option away for all")
    return list(dict.fromkeys(names))


def _refuse_questions(words: list[str]) -> None:
    for word in words:
        letters = word[1:] if re.fullmatch("-[A-Za-z]+", word) else ""
        asks = word in _ASKING or any(letter in _ASKING_LETTERS for letter in letters)
        if asks or word == "prompt" or word.endswith("@prompt"):
            raise PipelineError(
                "{0} makes ansible-playbook ask a person, and in a pipeline it would wait for ever: give passwords by "
                "--vault-password-file, --vault-id LABEL@FILE, --connection-password-file or "
                "--become-password-file (the last two after --)".format(word)
            )


def _extra_vars_in(passed: list[str]) -> list[str]:
    found = []
    for place, word in enumerate(passed):
        if word in ("-e", "--extra-vars"):
            found += passed[place + 1 : place + 2]
        elif word.startswith("--extra-vars="):
            found.append(word.partition("=")[2])
        elif word.startswith("-e") and len(word) > 2:
            found.append(word[2:])
    return found


def _refuse_our_variables(extra_vars: list[str]) -> None:
    for given in extra_vars:
        for name, instead in _OURS.items():
            if not given.startswith("@") and re.search(r"""(^|[\s{{,"']){0}["']?\s*[=:]""".format(name), given):
                raise PipelineError(
                    "-e {0}: this command sets the variable {1} itself; say {2} in its place".format(
                        given, name, instead
                    )
                )


class _Parser(argparse.ArgumentParser):
    """argparse, except that wrong usage has exit code 1: 2 says that there are changes."""

    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        raise PipelineError(message)


def _parser(environment: dict[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sglang-pd",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    everywhere = _Parser(add_help=False)
    everywhere.add_argument(
        "--roll-dir",
        metavar="DIR",
        default=environment.get(ROLL_DIR_VARIABLE) or DEFAULT_ROLL_DIR,
        help="directory of all rolls, a folder each (default: ${0}, else {1})".format(
            ROLL_DIR_VARIABLE, DEFAULT_ROLL_DIR
        ),
    )

    playbook = _Parser(add_help=False)
    playbook.add_argument(
        "-i",
        "--inventory",
        metavar="INVENTORY",
        action="append",
        default=[],
        help="as of ansible-playbook; may be repeated (default: that of ansible.cfg)",
    )
    playbook.add_argument(
        "-e",
        "--extra-vars",
        metavar="VARS",
        action="append",
        default=[],
        help="as of ansible-playbook; options of a roll are variables: -e pd_roll_max_unavailable=1 (docs/rolling.md)",
    )
    playbook.add_argument(
        "--clusters", metavar="A,B", action="append", help="look at these clusters only (default: all)"
    )
    playbook.add_argument("--purpose", metavar="TEXT", default="", help="why; it is in locks, ledgers and reports")
    playbook.add_argument("--vault-password-file", metavar="FILE", action="append", default=[])
    playbook.add_argument("--vault-id", metavar="LABEL@FILE", action="append", default=[])

    output = _Parser(add_help=False)
    output.add_argument(
        "--output",
        choices=(AUTO, TEXT, JSON),
        default=AUTO,
        help="auto: a live table on a terminal, else plain lines; text: plain lines; json: events as JSON lines, "
        "nothing else on standard output",
    )

    artifacts = _Parser(add_help=False)
    artifacts.add_argument(
        "--artifacts",
        metavar="DIR",
        default="",
        help="copy the roll's plan, events, result and reports there, for a pipeline to keep; nothing that is private",
    )

    walk = _Parser(add_help=False)
    walk.add_argument(
        "--stop-at-once",
        action="store_true",
        help="let the first SIGTERM or SIGINT end ansible-playbook, in the middle of a wave (default: the wave in "
        "work is finished; a second signal ends it)",
    )

    one = commands.add_parser(
        PLAN,
        parents=[playbook, everywhere],
        help="say what a roll would do and why; changes nothing",
        allow_abbrev=False,
    )
    one.add_argument("--json", metavar="FILE", default="", help="write the plan as JSON; - for standard output")
    one.add_argument("--markdown", metavar="FILE", default="", help="write the plan as Markdown")

    commands.add_parser(
        ROLL,
        parents=[playbook, walk, output, artifacts, everywhere],
        help="co-restart what is due, in waves",
        allow_abbrev=False,
    )

    one = commands.add_parser(
        RESUME,
        parents=[playbook, walk, output, artifacts, everywhere],
        help="go on with a roll that ended early, with the options it had",
        allow_abbrev=False,
    )
    _add_roll(one, "the newest one that did not end well")

    one = commands.add_parser(
        STATUS, parents=[artifacts, everywhere], help="tell where a roll stands", allow_abbrev=False
    )
    _add_roll(one, "the newest one")
    one.add_argument("--output", choices=(TEXT, JSON), default=TEXT)

    one = commands.add_parser(CANCEL, parents=[everywhere], help="end a roll before its next wave", allow_abbrev=False)
    _add_roll(one, "the one that runs")
    one.add_argument("--reason", metavar="TEXT", required=True, help="why; it is in the report")
    return parser


def _add_roll(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "roll",
        metavar="ROLL",
        nargs="?",
        default="",
        help="id of the roll, or how it begins (default: {0})".format(default),
    )
