"""Commands that start runs: `up` and `resume`. Their options are declared in `hive.cli.up_options`.

`up` starts the supervisor in its own session and then shows its status. `d`, or closing the terminal, leaves the view
while the run continues; `w` opens the monitor; `?` lists the keys. Ctrl-C or SIGTERM requests the run to drain, save
and end (exit code 0); a second one ends it at once (exit code 130). Before the run begins, one is enough, and removes
what had been made of it (exit code 130, or 143 after SIGTERM and 129 after SIGHUP).

Its lines go to stderr, or to stdout where only that is piped, as in `hive up ... | tee`; then they are never redrawn,
and no keys are read. `--json` writes snapshots to stdout, for programs.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from hive.cli.parts.control import WaitReporter, connected, kept, late_actors, print_to_stderr, resume_paused
from hive.cli.parts.event_log import NewEvents
from hive.cli.parts.interrupts import deferred_interrupts, in_main_thread
from hive.cli.parts.new_run import new_run
from hive.cli.parts.select_run import chosen_run, name_from_here
from hive.cli.parts.starting import (
    abort_start,
    ask_to_end,
    began,
    clear_failure,
    connect,
    discard_unbegun,
    failed_start,
    raise_failure,
    start,
)
from hive.cli.resume import prepare
from hive.errors import ActorFailed, HiveError, UsageError
from hive.monitor import StatusLine, snapshot_of
from hive.monitor.drawing import duration
from hive.monitor.history import History
from hive.monitor.line import SnapshotLines
from hive.monitor.poller import poll_once
from hive.records import (
    Checkpoint,
    RunDirectory,
    Summary,
    list_checkpoints,
    run_state,
)
from hive.records.failed_starts import ran
from hive.records.return_text import return_text
from hive.records.run_warnings import RunWarning
from hive.runtime.actor.error_location import signal_name
from hive.runtime.process.stop_signals import REASONS
from hive.runtime.run.control import ControlClient, open_run

# The text that the key `?` shows.
KEYS = """d       leave this view; the run continues
w       open the monitor; leaving it returns to this view
Ctrl-C  drain, save and end the run; twice: end it at once
from another terminal: hive pause, save, set, scale, stack, history, logs, down {name}"""
START_REPORT_S = 10.0  # interval between two lines about a start: most take seconds, those of simulators minutes
POLL_S = 0.25  # interval between two status requests: four frames a second take less than 1 % of a core


def run_resume(options: argparse.Namespace) -> int:
    _check_json(options)
    directory = chosen_run(options.run_name)
    if run_state(directory) == "running" and _is_paused(directory):
        if options.exact or options.set:
            raise UsageError(
                f"{directory.name} is paused and can only continue unchanged",
                hint=f"to change it: hive down {directory.name}, then resume it with --exact or --set",
            )
        return resume_paused(directory)
    return launch(prepare(str(directory.path.resolve()), exact=options.exact, sets=options.set), options)


def _is_paused(directory: RunDirectory) -> bool:
    with connected(directory) as client:
        return client.status()["pausing"] is not None


def run_up(options: argparse.Namespace) -> int:
    _check_json(options)
    if options.resume is not None:
        if options.name is not None:
            raise UsageError("a resumed run keeps its name", hint="hive up --resume RUN, without --name")
        if options.seeds is not None:
            raise UsageError("a resumed run keeps its seed", hint="hive up --resume RUN, without --seeds")
        sets = [*options.set, *([f"run.seed={options.seed}"] if options.seed is not None else [])]
        return launch(prepare(options.resume, exact=options.exact, sets=sets, given=options.config), options)
    if options.config is None and options.topology is None:
        raise UsageError("no config given", hint="hive up CONFIG, hive up --topology FILE.py, or hive up --resume RUN")
    overrides = list(options.set)
    if options.seed is not None:
        overrides.append(f"run.seed={options.seed}")
    if options.name is not None:
        overrides.append(f"run.name={json.dumps(options.name)}")
    if options.topology is not None:
        overrides.append(f"run.topology={json.dumps(options.topology)}")
    if options.seeds is not None:
        _check_seeds_options(options)
        from hive.cli.parts.seed_sweep import run_seeds, seeds_of

        return run_seeds(options.config, overrides, seeds_of(options.seeds))
    return launch(new_run(options.config, overrides), options)


def _check_seeds_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options that cannot be combined with `--seeds`."""
    others = {
        "--seed": options.seed is not None,
        "--detach": options.detach,
        "--inline": options.inline,
        "--json": options.json,
    }
    if given := [name for name, is_given in others.items() if is_given]:
        raise UsageError(
            f"--seeds cannot be combined with {' and '.join(given)}",
            hint="the command starts one run after another, and must keep running to start the next",
        )


def _check_json(options: argparse.Namespace) -> None:
    """Raise UsageError for `--json` without a view whose snapshots could be printed."""
    if options.json and options.detach:
        raise UsageError(
            "--json cannot be combined with --detach: it prints snapshots until the run ends",
            hint="`hive ps --json` and `hive monitor --json` describe a run in the background",
        )


def _status_line(options: argparse.Namespace) -> StatusLine:
    """Return the status line on stderr, or on stdout where only that is piped. With `--json`, its lines are plain."""
    piped = options.owns_stdout and not options.json and sys.stderr.isatty() and not sys.stdout.isatty()
    return StatusLine(sys.stdout if piped else sys.stderr, live=not options.json)


def launch(directory: RunDirectory, options: argparse.Namespace) -> int:
    """Start the run in a directory and show it as the options require; return the exit code.

    `options` has `inline`, `detach`, `json`, and `owns_stdout`: whether a view may write to stdout. Commands do that,
    scripts do not, because their stdout is theirs.
    """
    process = None
    try:
        clear_failure(directory)
        events, line = NewEvents(directory), _status_line(options)
        lines = SnapshotLines() if options.json else None
        if options.inline:
            return _inline(directory, line, events, lines)
        with deferred_interrupts():
            process = start(directory)
        client = connect(directory, process)
        if options.detach:
            with closing(client):
                return _detached(directory, process, client)
    except KeyboardInterrupt as interrupt:
        if process is None:
            discard_unbegun(directory)
        if process is None or process.returncode is not None:
            raise  # not started, already ended, or running independently of this command
        return abort_start(directory, process, interrupt)
    with closing(client):
        view = _Foreground(directory, process, client, line, events)
        view.lines = lines
        return view.watch()


def _detached(directory: RunDirectory, process: subprocess.Popen[bytes], client: ControlClient) -> int:
    while True:
        try:
            state = client.status()["state"]
        except UsageError:
            process.wait()
            if not began(directory):
                raise_failure(directory, process.returncode, process.pid)
            return _report(directory, process.returncode)
        failing = state in ("draining", "failed") and not ran(directory)  # it ends soon, and its error is reported
        if state != "starting" and not failing:
            process.returncode = 0  # the run continues without this process, so Popen must not warn about it
            print(directory.name)
            return 0
        time.sleep(0.02)


class _Foreground:
    """The view of `hive up` in the foreground: a status line, new events, and keys."""

    def __init__(
        self,
        directory: RunDirectory,
        process: subprocess.Popen[bytes],
        client: ControlClient,
        line: StatusLine,
        events: NewEvents,
    ) -> None:
        self.directory = directory
        self.process = process
        self.client = client
        self.line = line
        self.events = events
        self.history = History()  # earlier statuses, from which rates and the bottleneck are computed
        self.lines: SnapshotLines | None = None
        self.times: dict[int, int] = {}  # signal that asks the run to end -> how often it was received
        self.again = ""  # how to end the run at once; set once the run is stopping
        self.waits: WaitReporter | None = None  # set once the run is stopping
        self.starts = WaitReporter(line.say, START_REPORT_S)
        self.leaving = False
        self.greeted = False

    def watch(self) -> int:
        with self._signals(), _keys(self.line.live) as keys:
            self.line.keys = keys
            while self.process.poll() is None and not self.leaving:
                self.show()
                if _has_key(keys, POLL_S):
                    self._pressed(os.read(sys.stdin.fileno(), 1))
        self.line.erase()
        if self.leaving and self.process.poll() is None:
            # The run continues without this process, so Popen must not warn about it.
            self.process.returncode, name = 0, self.directory.name
            self.line.say(f"left {name} running · inspect: hive ps {name} · stop: hive down {name}")
            return 0
        if self.times and discard_unbegun(self.directory):
            self.line.say(f"stopped {self.directory.name} before it began: nothing of it is left")
            return 128 + min(self.times)
        self.events.show(self.line)
        if self.lines is not None and began(self.directory):
            self.lines.draw(poll_once(self.directory), last=True)
        if not began(self.directory):
            if self.process.returncode < 0:
                how = signal_name(-self.process.returncode)
                raise ActorFailed(
                    f"the supervisor was killed ({how}); the run {self.directory.name} is lost",
                    hint=f"its files are in {self.directory.path}",
                )
            raise_failure(self.directory, self.process.returncode, self.process.pid)
        return _report(self.directory, self.process.returncode, self.line.say)

    def _pressed(self, key: bytes) -> None:
        if key == b"d":
            self.leaving = True
        elif key == b"w" and self.greeted:
            from hive.monitor.terminal.app import watch

            self.line.erase()
            watch(self.directory)  # returns when the user leaves the monitor
        elif key in (b"?", b"h"):
            self.line.say(KEYS.format(name=self.directory.name))

    def show(self) -> None:
        try:
            status = self.client.status()
            self.history.add(status, time.time())
            snapshot = snapshot_of(status, self.history)
            if not self.greeted and snapshot.state != "starting":
                self.greeted = True
                self._greet(self.directory.name)
            if not self.greeted:
                self.starts.see(lambda: late_actors(status, ("starting",)) or "the start of the run")
            if self.greeted:
                self.events.show(self.line, snapshot.warnings)
                self.line.draw(snapshot)
                if self.lines is not None:
                    self.lines.draw(snapshot)
                if self.waits is not None:
                    self.waits.see(lambda: f"{late_actors(status) or 'the supervisor'} - {self.again}")
        except UsageError:
            time.sleep(POLL_S)  # ending, or stopped by a signal; poll() in the loop detects the exit

    def _greet(self, name: str) -> None:
        self.line.say(f"run {name}  ({self.directory.path})")
        if self.line.keys:
            self.line.say(
                "leave it running: d, or close the terminal · look again: hive monitor · stop: Ctrl-C or hive down"
            )
        else:
            self.line.say(f"look at it: hive monitor {name} · stop it: hive down {name}")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if not in_main_thread():  # of a script: the run is ended with `hive down` or by cancelling `run_async`
            yield
            return
        old = {number: signal.signal(number, self._stop_requested) for number in REASONS}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has set it
            old[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._leave)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _stop_requested(self, number: int, frame: object) -> None:
        ask_to_end(self.directory, self.process, number, self.times)
        if self.again:
            self.waits = None
            return
        self.again = f"{REASONS[signal.Signals(number)]} again to stop at once"
        self.waits = WaitReporter(self.line.say)
        self.line.say(f"stopping: saving the state - {self.again}")

    def _leave(self, number: int, frame: object) -> None:
        self.leaving = not self.again  # a service manager may send SIGHUP after SIGTERM, and waits for the end


@contextmanager
def _keys(live: bool = True) -> Iterator[bool]:
    """Read single keys from the terminal, without echo.

    Yields False without a terminal or a live view on it, and outside the main thread.
    """
    if not (live and in_main_thread() and sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _inline(directory: RunDirectory, line: StatusLine, events: NewEvents, lines: SnapshotLines | None) -> int:
    """Run everything in this process, while a thread shows the progress; return the exit code."""
    from hive.runtime.run.execute import run_inline

    over = threading.Event()
    line.say(f"run {directory.name}  ({directory.path}), inline")

    def look() -> None:
        while not over.wait(POLL_S):
            try:
                with closing(open_run(directory)) as client:
                    snapshot = snapshot_of(client.status())
                events.show(line, snapshot.warnings)
                line.draw(snapshot)
                if lines is not None:
                    lines.draw(snapshot)
            except HiveError:
                events.show(line)  # the run is starting or ending

    viewer = threading.Thread(target=look, daemon=True)
    viewer.start()
    try:
        code = run_inline(directory)
    except HiveError as error:
        failed_start(directory, error)
        raise
    finally:
        over.set()
        viewer.join()
        line.erase()
    events.show(line)
    if not began(directory):
        raise_failure(directory, code, os.getpid())
    if lines is not None:
        lines.draw(poll_once(directory), last=True)
    return _report(directory, code, line.say)


def _has_key(keys: bool, seconds: float) -> bool:
    """Wait `seconds` for a keystroke, if there are keys at all, and return whether there is one.

    With poll, because select refuses descriptors above 1023, which a process with many open files has.
    """
    poller = select.poll()
    if keys:
        poller.register(sys.stdin, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _report(directory: RunDirectory, code: int, say: Callable[[str], object] = print_to_stderr) -> int:
    """Print the result of a run in the foreground, line by line, with `say`; return its exit code."""
    summary, saved = Summary.read(directory.summary_file), list_checkpoints(directory.checkpoints)
    if summary.error:
        say(f"error: {summary.error}")
    say(f"{_results(summary, saved)} · {directory.path}")
    if summary.best is not None:
        say(_best_line(summary.best, name_from_here(directory)))
    for warning in map(RunWarning.of, summary.warnings):
        held = "" if warning.last_steps is None else f" (no longer so from {warning.last_steps:,} steps on)"
        say(f"warning: {warning.line}{held}")
    if summary.state == "stopped" and saved:
        say(f"to continue it: hive resume {name_from_here(directory)}")
    return code


def _results(summary: Summary, saved: Sequence[Checkpoint]) -> str:
    """Return how the run ended and what came of it; a custom topology may have no steps."""
    if summary.state == "finished" and not summary.env_steps:
        return f"{summary.ending} · {duration(summary.wall_s)}"
    updates = f", {summary.updates:,} updates" if summary.updates else ", no updates"
    mean = return_text(summary.mean_return_100)
    return f"{_ending(summary, saved)}{updates} · return {mean} · {_times(summary)}"


def _times(summary: Summary) -> str:
    """Return how long the run took; the rate stands beside the seconds that it is of, which exclude start and end."""
    whole, rate = duration(summary.wall_s), summary.steps_per_s
    return f"{duration(summary.train_s)} of training at {rate:,.0f} steps/s, {whole} in all" if rate else whole


def _ending(summary: Summary, saved: Sequence[Checkpoint]) -> str:
    """Return how the run ended and at which step; for a stopped run also what was saved."""
    stopped = summary.state == "stopped"
    frames = "" if summary.frames is None else f", {summary.frames:,} frames"
    steps = f"{summary.env_steps:,} steps"  # which may be the goal itself
    counted = kept(summary, saved) if stopped else "" if steps == summary.stop_reason else f" · {steps}"
    return summary.ending + counted + frames


def _best_line(best: Mapping[str, Any], name: str) -> str:
    """Name the best policy of a run, from what its summary says about it."""
    by = "an evaluation" if best["by"] == "evaluation" else "100 training episodes"
    at = "" if best["steps"] is None else f", at {best['steps']:,} steps"
    measure = f"to measure it: hive eval {name} --which best"
    return f"best policy: mean return {return_text(best['mean_return'])} of {by}{at} · {measure}"
