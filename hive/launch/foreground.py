"""Starts a run and shows its progress, for `hive up`, `hive resume` and the Python API.

The supervisor runs in its own session; this process shows its status. `d`, or closing the terminal, leaves the view
while the run continues; `w` opens the monitor; `?` lists the keys. Ctrl-C or SIGTERM requests the run to drain, save
and end (exit code 0); a second one ends it at once (exit code 130). Before the run begins, one is enough, and removes
what had been made of it (exit code 130, or 143 after SIGTERM and 129 after SIGHUP).

Its lines go to stderr, or to stdout where only that is piped, as in `hive up ... | tee`; then they are never redrawn,
and no keys are read. `--json` writes snapshots to stdout, for programs.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, closing, contextmanager

from hive.errors import HiveError, UsageError
from hive.launch.control import WaitReporter, late_actors
from hive.launch.event_log import NewEvents
from hive.launch.interrupts import deferred_interrupts, number_of
from hive.launch.run_report import report_end
from hive.launch.starting import (
    abort_start,
    ask_to_end,
    began,
    clear_failure,
    connect,
    discard_unbegun,
    failed_start,
    leave,
    raise_failure,
    save_first,
    saved_first,
    start,
)
from hive.monitor import Snapshot, StatusLine, snapshot_of
from hive.monitor.history import History
from hive.monitor.line import SnapshotLines
from hive.monitor.poller import poll_once
from hive.records import RunDirectory
from hive.records.failed_starts import has_results
from hive.records.owner import give_up
from hive.records.summary import AS_FAST, rounds_in, rounds_text
from hive.runtime.actor.interrupted import Interrupted
from hive.runtime.process.stop_signals import REASONS, is_ours
from hive.runtime.run.control import ControlClient, open_run
from hive.runtime.run.main_thread import MainThread, in_main_thread

# The text that the key `?` shows.
KEYS = """d       leave this view; the run continues
w       open the monitor; leaving it returns to this view
Ctrl-C  drain, save and end the run; twice: end it at once
from another terminal: hive pause, save, set, scale, stack, history, logs, down {name}"""
START_REPORT_S = 10.0  # interval between two lines about a start: most take seconds, those of simulators minutes
POLL_S = 0.25  # interval between two status requests: four frames a second take less than 1 % of a core


def _status_line(json: bool, in_script: bool) -> StatusLine:
    """Return the status line on stderr, or on stdout where only that is piped. With `json`, its lines are plain."""
    piped = not in_script and not json and sys.stderr.isatty() and not sys.stdout.isatty()
    return StatusLine(sys.stdout if piped else sys.stderr, live=not json)


def launch(
    directory: RunDirectory,
    *,
    inline: bool = False,
    detach: bool = False,
    json: bool = False,
    signals: MutableMapping[int, int] | None = None,
) -> int:
    """Start the run in a directory and show it; return the exit code.

    json: write snapshots to stdout. signals: of a script, counts the signals that ask the run to end. Views of scripts
    write nothing to stdout, which is theirs, and an exception that leaves this call ends their runs.
    """
    process = None
    try:
        clear_failure(directory)
        events, line = NewEvents(directory), _status_line(json, signals is not None)
        lines = SnapshotLines() if json else None
        if inline:
            return _inline(directory, line, events, lines)
        with deferred_interrupts():
            process = start(directory)
        client = connect(directory, process)
        if detach:
            with closing(client):
                return detached(directory, process, client)
    except KeyboardInterrupt as interrupt:
        if process is None:
            discard_unbegun(directory)
        if process is None or process.returncode is not None:
            raise  # not started, already ended, or running independently of this command
        if signals is not None:
            signals[number_of(interrupt)] = 1
        return abort_start(directory, process, interrupt)
    except BaseException as error:
        if process is not None and signals is not None:
            save_first(directory, process, error)
        raise
    finally:
        give_up(directory)  # of a run that was not started
    with closing(client), ExitStack() as at_last:
        view = Foreground(directory, process, client, line, events)
        view.lines = lines
        if signals is not None:
            view.times, view.in_script = signals, True
            at_last.enter_context(saved_first(directory, process))
        return view.watch()


def detached(directory: RunDirectory, process: subprocess.Popen[bytes], client: ControlClient) -> int:
    while True:
        try:
            state = client.status()["state"]
        except UsageError:
            process.wait()
            if not began(directory):
                raise_failure(directory, process.returncode, process.pid)
            return report_end(directory, process.returncode)
        failing = state in ("draining", "failed") and not has_results(directory)  # its error follows soon
        if state != "starting" and not failing:
            process.returncode = 0  # the run continues without this process, so Popen must not warn about it
            print(directory.name)
            return 0
        time.sleep(0.02)


class Foreground:
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
        self.times: MutableMapping[int, int] = {}  # signal that asks the run to end -> how often it was received
        self.again = ""  # how to end the run at once; set once the run is stopping
        self.waits: WaitReporter | None = None  # set once the run is stopping
        self.starts = WaitReporter(line.say, START_REPORT_S)
        self.in_script = False  # whether a script waits for the run, whose handlers of signals stay
        self.main = MainThread()
        self.leaving = False
        self.hung_up = False  # whether it leaves because the terminal was closed
        self.greeted = False
        self.updated = False  # whether the first updates were seen

    def watch(self) -> int:
        with self._signals(), read_keys(self.line.live) as keys:
            self.line.keys = keys
            while self.process.poll() is None and not self.leaving:
                self.show()
                if self.main.interrupted():
                    self._stop_requested(signal.SIGINT, None)
                if _has_key(keys, POLL_S):
                    self._pressed(os.read(sys.stdin.fileno(), 1))
        self.line.erase()
        if self.leaving and self.process.poll() is None:
            if self.in_script:
                leave(self.process)
            # The run continues without this process, so Popen must not warn about it.
            self.process.returncode, name = 0, self.directory.name
            self.line.say(f"left {name} running · inspect: hive ps {name} · stop: hive down {name}")
            if self.in_script and self.hung_up:
                raise Interrupted(signal.SIGHUP)
            return 0
        if self.times and discard_unbegun(self.directory):
            self.line.say(f"stopped {self.directory.name} before it began: nothing of it is left")
            return 128 + min(self.times)
        self.events.show(self.line)
        if self.lines is not None and began(self.directory):
            self.lines.draw(poll_once(self.directory), last=True)
        if not began(self.directory):
            raise_failure(self.directory, self.process.returncode, self.process.pid)
        return report_end(self.directory, self.process.returncode, self.line.say)

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
                self._show_rounds(snapshot)
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

    def _show_rounds(self, snapshot: Snapshot) -> None:
        """Say once, after the first updates, that they are made the slow way, and why."""
        if not snapshot.updates or self.updated:
            return
        self.updated = True
        if (obstacle := rounds_in(row.counters for row in snapshot.actors)) not in AS_FAST:
            self.line.say(f"rounds: {rounds_text(obstacle)}, which is slower than in native calls")

    @contextmanager
    def _signals(self) -> Iterator[None]:
        if not in_main_thread():  # of a script: the run is ended by `self.main` or by cancelling `run_async`
            yield
            return
        numbers = [number for number in REASONS if not self.in_script or is_ours(number)]
        old = {number: signal.signal(number, self._stop_requested) for number in numbers}
        if is_ours(signal.SIGHUP):  # `nohup` ignores it
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
        self.hung_up = self.leaving = not self.again  # a service manager may send SIGHUP after SIGTERM, and waits


@contextmanager
def read_keys(live: bool = True) -> Iterator[bool]:
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
    return report_end(directory, code, line.say)


def _has_key(keys: bool, seconds: float) -> bool:
    """Wait `seconds` for a keystroke, if there are keys at all, and return whether there is one.

    With poll, because select refuses descriptors above 1023, which a process with many open files has.
    """
    poller = select.poll()
    if keys:
        poller.register(sys.stdin, select.POLLIN)
    return bool(poller.poll(seconds * 1000))
