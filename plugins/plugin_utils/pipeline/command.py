# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The console command ``sglang-pd``: plan, roll, resume, status, cancel. docs/pipelines.md."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _roll_events
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils import controller, roll_files, roll_markdown, roll_text
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline import (
    arguments,
    collection,
    directory,
    processes,
    progress,
    screen,
)
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.arguments import PipelineError, Request
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.directory import RollDirectory, Tail
from ansible_collections.inferops.sglang_pd.plugins.plugin_utils.pipeline.play import Play

PLAYBOOKS = {
    arguments.PLAN: "inferops.sglang_pd.plan",
    arguments.ROLL: "inferops.sglang_pd.rolling_co_restart",
}

#: Seconds that ansible-playbook and its workers get to end after SIGTERM: a worker's slice on a host takes up to 10.
PATIENCE_SECONDS = 30.0
#: Seconds between two looks at events, signals and processes.
LOOK_SECONDS = 0.25
#: Seconds between two looks for adopted processes that ended.
BURY_SECONDS = 10.0

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(
    argv: list[str],
    invoked: str,
    playbooks: dict[str, str] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> int:
    """Run the command; return its exit code.

    :param invoked: path of the executable, as it was called.
    :param playbooks: by command; those of the collection where none are given.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            # What a terminal cannot show is no reason to end a roll.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        options = arguments.parse(argv, os.getcwd(), dict(os.environ))
        command = _Command(options, invoked, playbooks or PLAYBOOKS, patience_seconds)
        return int(getattr(command, options.command)())
    except PipelineError as trouble:
        screen.Stream(sys.stderr).write("sglang-pd: {0}".format(trouble))
        return progress.EXIT_ERROR
    except BrokenPipeError:
        # Of status and plan, whose reader had enough. A roll does not get here.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return progress.EXIT_ERROR


class _Command:
    """The subcommands; each returns its exit code."""

    def __init__(self, options: argparse.Namespace, invoked: str, playbooks: dict[str, str], patience_seconds: float):
        self.options = options
        self.invoked = invoked
        self.playbooks = playbooks
        self.patience_seconds = patience_seconds
        # Before anything changes the directory.
        self.artifacts = os.path.abspath(options.artifacts) if getattr(options, "artifacts", "") else ""

    # -- plan --------------------------------------------------------------------------------

    def plan(self) -> int:
        """Say what a roll would do."""
        request: Request = self.options.request
        roll = RollDirectory(self.options.roll_dir, controller.new_id())
        roll.make()
        play = self._play(arguments.PLAN, request, roll, "")
        shown = screen.Screen(sys.stdout, sys.stderr)
        shown.say("plan {0}: looking at the hosts; what Ansible says is in {1}".format(roll.roll, play.output))
        # Nothing is changed, so nothing has to be finished.
        watch = _Watch(roll, play, shown, True, self.patience_seconds)
        with watch.signals():
            watch.until_it_ended()
        plan = roll.plan()
        if plan is None:
            if watch.asked_to_end():
                raise PipelineError("no plan was made: ended by {0}; nothing was changed".format(watch.last_signal()))
            raise PipelineError(_failed_words("no plan was made", play))
        decision = str(plan.get("decision", ""))
        as_json = json.dumps(plan, indent=1) + "\n"
        _write(self.options.markdown, roll_markdown.plan_markdown(plan), "--markdown")
        if self.options.json == "-":
            sys.stdout.write(as_json)
        else:
            _write(self.options.json, as_json, "--json")
            sys.stdout.write("\n".join(roll_text.plan_text(plan)) + "\n")
        sys.stdout.flush()
        shown.say("plan {0}: {1}; files: {2}".format(roll.roll, decision, roll.path))
        return progress.EXIT_OF_DECISION.get(decision, progress.EXIT_ERROR)

    # -- roll and resume ---------------------------------------------------------------------

    def roll(self) -> int:
        """Co-restart what is due, in waves."""
        roll = RollDirectory(self.options.roll_dir, controller.new_id())
        roll.make()
        return self._walk(roll, self.options.request)

    def resume(self) -> int:
        """Go on with a roll that ended early."""
        roll = self._to_resume()
        _state, standing = roll.look()
        if roll.lives() or standing == _roll_events.RUNNING:
            raise PipelineError(
                "roll {0} is in work: {1}. Nothing was begun; look at it by: sglang-pd status {0}".format(
                    roll.roll, _process_words(roll)
                )
            )
        if standing in (_roll_events.DONE, _roll_events.NOTHING):
            raise PipelineError(
                "roll {0} is {1}: nothing is left to go on with. A new one: sglang-pd roll".format(roll.roll, standing)
            )
        asked = roll.request()
        given: Request = self.options.request
        roll.make()
        return self._walk(roll, asked.followed_by(given) if asked else given)

    def _to_resume(self) -> RollDirectory:
        if self.options.roll:
            return directory.find(self.options.roll_dir, self.options.roll)
        for roll in directory.all_rolls(self.options.roll_dir):
            if roll.look()[1] not in (_roll_events.DONE, _roll_events.NOTHING):
                return roll
        raise PipelineError("no roll in {0} is left to go on with".format(self.options.roll_dir))

    def _walk(self, roll: RollDirectory, request: Request) -> int:
        """Run the playbook of a roll to its end."""
        with _alone(roll):
            # Finds out now whether they can be written.
            self._copy_artifacts(roll)
            roll.keep(request)
            roll.take_back_cancel()
            roll.write_process(None)
            before = roll.stamp(directory.RESULT)
            runs = roll.state()["run"]
            play = self._play(arguments.ROLL, request, roll, "-{0}".format(runs + 1) if runs else "")
            with screen.screen_for(self.options.output, dict(os.environ)) as shown:
                shown.say("roll {0}: looking at the hosts; what Ansible says is in {1}".format(roll.roll, play.output))
                watch = _Watch(roll, play, shown, self.options.stop_at_once, self.patience_seconds, roll.write_process)
                with watch.signals():
                    watch.until_it_ended()
            try:
                return self._conclude(roll, watch, shown, runs, before)
            finally:
                try:
                    self._copy_artifacts(roll)
                except PipelineError as trouble:
                    # What the roll came to counts more.
                    shown.err.write("sglang-pd: {0}".format(trouble))

    def _copy_artifacts(self, roll: RollDirectory) -> None:
        if self.artifacts:
            roll.copy_artifacts(self.artifacts)

    def _conclude(
        self, roll: RollDirectory, watch: _Watch, shown: screen.Screen, runs: int, before: tuple[int, int] | None
    ) -> int:
        """Say what a roll came to; return the exit code."""
        state, standing = roll.look()
        if state["run"] == runs:
            if watch.asked_to_end():
                shown.say(
                    "roll {0} never began: ended by {1}; nothing was touched".format(roll.roll, watch.last_signal())
                )
                return progress.EXIT_EARLY
            raise PipelineError(_failed_words("roll {0} did not begin".format(roll.roll), watch.play))
        result = roll.result() if roll.stamp(directory.RESULT) != before else None
        standing = str((result or {}).get("outcome") or "") or standing
        lines = progress.last_words(state, standing, roll.plan(), self._go_on(roll))
        if standing not in progress.EXIT_CODES and not watch.asked_to_end():
            lines += ["  ansible-playbook said:", *("    " + line for line in watch.play.what_was_wrong().split("\n"))]
        lines.append("  files: {0}".format(roll.path))
        shown.conclude(lines)
        return progress.exit_code(standing, watch.asked_to_end(), state["wave"] > 0)

    def _play(self, which: str, request: Request, roll: RollDirectory, suffix: str) -> Play:
        try:
            os.chdir(request.directory)
        except OSError as trouble:
            raise PipelineError(
                "the roll was begun in {0}, where ansible.cfg and relative paths belong to, and there one cannot go "
                "now: {1}".format(request.directory, trouble)
            ) from trouble
        return Play(
            self.playbooks[which],
            request.command_line(roll.roll, roll.rolls),
            request.directory,
            roll.runner,
            roll.roll + suffix,
            collection.environment(self.invoked, _collections_paths()),
        )

    def _go_on(self, roll: RollDirectory) -> str:
        """Return the command that goes on with a roll."""
        usual = os.environ.get(arguments.ROLL_DIR_VARIABLE) or arguments.DEFAULT_ROLL_DIR
        words = ["sglang-pd", "resume", roll.roll]
        if os.path.abspath(os.path.expanduser(usual)) != roll.rolls:
            words += ["--roll-dir", roll.rolls]
        if roll.request() is None:
            # Begun by ansible-playbook itself, which does not tell from what inventory.
            words += ["-i", "INVENTORY"]
        return " ".join(words)

    # -- status and cancel -------------------------------------------------------------------

    def status(self) -> int:
        """Tell where a roll stands, from its files alone."""
        if self.options.roll:
            roll = directory.find(self.options.roll_dir, self.options.roll)
        else:
            found = directory.all_rolls(self.options.roll_dir)
            if not found:
                raise PipelineError("there is no roll in {0}".format(self.options.roll_dir))
            roll = found[0]
        state, standing = roll.look()
        state["roll"] = state["roll"] or roll.roll
        self._copy_artifacts(roll)
        if self.options.output == arguments.JSON:
            told = {
                "roll": roll.roll,
                "standing": standing,
                "lives": roll.lives(),
                "directory": roll.path,
                "cancel": roll.cancelled(),
                "state": state,
            }
            print(json.dumps(told, indent=1))
            return progress.EXIT_OK
        lines = progress.status_lines(
            state, standing, _process_words(roll), time.time(), roll.cancelled(), self._go_on(roll)
        )
        print("\n".join([*lines, "files: {0}".format(roll.path), *("  " + path for path in roll.shown())]))
        return progress.EXIT_OK

    def cancel(self) -> int:
        """End a roll before its next wave."""
        roll = self._to_cancel()
        state, standing = roll.look()
        # One that is resumed tells nothing while the fleet is looked at.
        if standing != _roll_events.RUNNING and not roll.lives():
            raise PipelineError(
                "roll {0} does not run: it is {1}. There is nothing to cancel".format(roll.roll, standing)
            )
        reason = self.options.reason.strip()
        if not reason:
            raise PipelineError("--reason is empty: say why, it is in the report")
        roll.cancel("{0} ({1})".format(reason, controller.user()))
        busy = next(
            (wave for wave in state["waves"] if wave["began_at"] is not None and wave["ended_at"] is None), None
        )
        after = [name for name in state["remaining"] if not busy or name not in busy["clusters"]]
        print("roll {0} ends before its next wave".format(roll.roll))
        if busy:
            print("  wave {0} is finished: {1}".format(busy["number"], progress.names(busy["clusters"])))
        print("  will remain: {0}".format(progress.names(after) or "nothing"))
        print("  to go on: {0}".format(self._go_on(roll)))
        return progress.EXIT_OK

    def _to_cancel(self) -> RollDirectory:
        if self.options.roll:
            return directory.find(self.options.roll_dir, self.options.roll)
        running = [
            roll
            for roll in directory.all_rolls(self.options.roll_dir)
            if roll.lives() is not False and roll.look()[1] == _roll_events.RUNNING
        ]
        if len(running) != 1:
            raise PipelineError(
                "{0} in {1}{2}".format(
                    "several rolls run" if running else "no roll runs",
                    self.options.roll_dir,
                    ": name one of {0}".format(", ".join(roll.roll for roll in running)) if running else "",
                )
            )
        return running[0]


class _Watch:
    """A playbook of a roll until it and all of its processes are gone; what signals mean meanwhile.

    :ivar play: the playbook.
    """

    def __init__(
        self,
        roll: RollDirectory,
        play: Play,
        shown: screen.Screen,
        stop_at_once: bool,
        patience_seconds: float,
        note_pid: Callable[[int], None] | None = None,
    ):
        self.play = play
        self._roll = roll
        self._shown = shown
        self._stop_at_once = stop_at_once
        self._patience_seconds = patience_seconds
        self._note_pid = note_pid
        self._tail = Tail(roll.file(roll_files.EVENTS), at_end=True)
        self._state = _roll_events.Roll(roll.plan())
        for event in roll.events():
            self._state.take(event)
        self._signals: list[int] = []
        self._heeded = 0
        self._reason = ""
        self._began = False
        self._ended = False
        #: When what is left of the playbook is killed; None while nobody wants that.
        self._deadline: float | None = None
        self._noted_pid: int | None = None
        self._buried_at = time.monotonic()

    def asked_to_end(self) -> bool:
        """Tell whether a signal came."""
        return bool(self._signals)

    def last_signal(self) -> str:
        """Return the name of the last signal."""
        return signal.Signals(self._signals[-1]).name if self._signals else ""

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Note signals in place of dying by them."""

        def note(number: int, _frame: Any) -> None:
            self._signals.append(number)

        before = {}
        for number in _SIGNALS:
            # nohup means it.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def until_it_ended(self) -> None:
        """Start the playbook, show its events, heed signals; return when none of its processes is left."""
        processes.adopt_orphans()
        self.play.start()
        try:
            ended = False
            while not ended:
                ended = self.play.wait(LOOK_SECONDS)
                self._look_at_processes()
                self._heed()
                self._show()
                self._insist()
        except BaseException:
            # Whatever was wrong here: nothing goes on that nobody watches.
            self._deadline = time.monotonic() + self._patience_seconds
            self.play.stop(signal.SIGTERM)
            raise
        finally:
            self._end_what_is_left()
        self._show()
        if self._began and not self._ended:
            self._tell_interrupted()

    def _look_at_processes(self) -> None:
        pid = self.play.pid
        if pid is None:
            return
        if self._note_pid and pid != self._noted_pid:
            self._noted_pid = pid
            self._note_pid(pid)
        if time.monotonic() - self._buried_at > BURY_SECONDS:
            self._buried_at = time.monotonic()
            processes.bury_orphans(but=pid)

    # -- signals -----------------------------------------------------------------------------

    def _heed(self) -> None:
        """Do what the signals since the last look ask for."""
        while self._heeded < len(self._signals):
            self._heeded += 1
            if self._heeded == 1 and not self._stop_at_once:
                self._end_after_this_wave()
            elif self._deadline is None:
                self._end_now()
            else:
                self._deadline = time.monotonic()

    def _end_after_this_wave(self) -> None:
        if self._ended:
            self._shown.say("{0}: the roll is over, ansible-playbook is about to end".format(self.last_signal()))
            return
        self._reason = "{0} to sglang-pd of {1}".format(self.last_signal(), controller.user())
        self._roll.cancel(self._reason)
        self._shown.say(
            "{0}: the wave in work is finished, no other begins. A second signal ends it in the middle; the "
            "hosts remember how far it came".format(self.last_signal())
        )

    def _end_now(self) -> None:
        self._deadline = time.monotonic() + self._patience_seconds
        self._shown.say(
            "{0}: ending ansible-playbook and its workers, which takes up to {1}".format(
                self.last_signal(), progress.duration(self._patience_seconds)
            )
        )
        self.play.stop(signal.SIGTERM)

    def _insist(self) -> None:
        """Kill what did not end in time."""
        if self._deadline is not None and time.monotonic() >= self._deadline:
            processes.kill(processes.running_below(os.getpid()))

    def _end_what_is_left(self) -> None:
        """Wait for what outlived ansible-playbook, then kill it; after a good end there is nothing that matters."""
        if self._ended and self._deadline is None:
            processes.bury_orphans(but=None)
            return
        deadline = self._deadline if self._deadline is not None else time.monotonic() + self._patience_seconds
        while processes.running_below(os.getpid()):
            if time.monotonic() >= deadline:
                processes.kill(processes.running_below(os.getpid()))
            processes.bury_orphans(but=None)
            time.sleep(LOOK_SECONDS / 5)
        processes.bury_orphans(but=None)

    def _tell_interrupted(self) -> None:
        why = "ansible-playbook was ended by {0}".format(self.last_signal())
        if not self._signals:
            why = "ansible-playbook ended by itself (exit code {0})".format(self.play.exit_code)
        self._roll.tell_interrupted(why)
        self._show()

    # -- events ------------------------------------------------------------------------------

    def _show(self) -> None:
        for line in self._tail.new_lines():
            for event in _roll_events.read([line]):
                if event["event"] == "roll_began":
                    # A plan is written before its roll begins.
                    self._state.plan = self._roll.plan() or {}
                    self._began, self._ended = True, False
                elif progress.is_end(event):
                    self._ended = True
                self._state.take(event)
                self._shown.event(line, event)
        if self._shown.wants_picture():
            self._shown.picture(self._state.state())


@contextlib.contextmanager
def _alone(roll: RollDirectory) -> Iterator[None]:
    """Refuse a second command for the same roll."""
    path = os.path.join(roll.runner, "lock")
    with open(path, "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PipelineError(
                "roll {0} is in work: {1}. Nothing was begun".format(roll.roll, _process_words(roll))
            ) from None
        yield


def _collections_paths() -> list[str]:
    try:
        from ansible import constants
    except ImportError as trouble:
        raise PipelineError(
            "sglang-pd needs ansible-core, and {0} cannot load it: {1}. Name the Python that has it by "
            "SGLANG_PD_PYTHON".format(sys.executable, trouble)
        ) from trouble
    return [os.path.abspath(os.path.expanduser(path)) for path in constants.COLLECTIONS_PATHS]


def _process_words(roll: RollDirectory) -> str:
    process, lives = roll.process(), roll.lives()
    if process is None:
        return "not started by sglang-pd"
    words = "pid {0} of {1}".format(process["pid"], process["user"])
    playbook = process.get("playbook")
    if lives is None:
        return words + ", on another machine or in another container"
    if lives and playbook and controller.process_start(process["pid"]) != process["started"]:
        return "sglang-pd is gone ({0}), its ansible-playbook lives: pid {1}".format(words, playbook["pid"])
    return words + (", lives" if lives else ", is gone")


def _failed_words(what: str, play: Play) -> str:
    return "{0}, ansible-playbook failed (exit code {1}):\n{2}\nThe whole output: {3}".format(
        what, "unknown" if play.exit_code is None else play.exit_code, play.what_was_wrong(), play.output
    )


def _write(target: str, text: str, option: str) -> None:
    if not target:
        return
    try:
        with open(target, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text)
    except OSError as trouble:
        raise PipelineError("{0} {1} cannot be written: {2}".format(option, target, trouble)) from trouble
