"""Commands that start runs: `up` and `resume`.

`up` starts the supervisor as a session of its own and then only looks at it: `d`, or closing the terminal, leaves and
the run goes on; `w` opens the monitor, and leaving that comes back here; `?` tells the keys. Ctrl-C or SIGTERM asks the
run to drain, save and end (exit 0); a second one ends it now (exit 130).
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
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hive.cli.control import Waits, connected, go_on, who_drains
from hive.cli.diary import NewEvents
from hive.cli.resume import prepare
from hive.cli.select_run import RUN, name_from_here, run_called
from hive.cli.starting import (
    began,
    connect,
    discard,
    forget_failure,
    give_up,
    interrupts_held,
    new_run,
    raise_failure,
    start,
)
from hive.errors import ActorFailed, ConfigError, HiveError, UsageError
from hive.monitor import StatusLine, snapshot_of
from hive.monitor.history import History
from hive.monitor.line import SnapshotLines
from hive.monitor.poller import poll_once
from hive.records import (
    RunDirectory,
    Summary,
    list_checkpoints,
    run_state,
)
from hive.runtime.control import ControlClient, open_run
from hive.runtime.error_location import signal_name

__all__ = ["add_resume", "add_up", "launch"]

KEYS = """d       leave the run running, and this view
w       open the monitor; leaving it comes back here
Ctrl-C  drain, save, end the run; twice: end it now
from another terminal: hive pause, save, set, scale, stack, story, logs, down {name}"""  # what `?` shows
LOOK_S = 0.25  # between two looks of the foreground: a view at four frames a second costs under 1 % of a core


def add_up(commands: Any) -> None:
    up = commands.add_parser(
        "up",
        description="Starts a run and shows it.",
        epilog="example: hive up examples/cartpole.toml --set collection.workers=2",
    )
    up.add_argument("config", type=Path, nargs="?", help="a TOML file; `hive init ENV` writes one")
    up.add_argument("--resume", metavar="RUN", help="go on with an ended run, as `hive resume RUN` does")
    up.add_argument("--exact", action="store_true", help="with --resume: from the last scheduled checkpoint")
    up.add_argument("-d", "--detach", action="store_true", help="return once the run is running")
    up.add_argument(
        "-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the config (repeat)"
    )
    up.add_argument(
        "--topology", metavar="FILE.py[:FUNCTION]", help="a topology of your own; the same as --set run.topology=..."
    )
    up.add_argument("--seed", type=int, help="the same as --set run.seed=SEED")
    up.add_argument("--seeds", metavar="1..5", help="one run after the other with these seeds, and a table of all")
    up.add_argument("-n", "--name", help="the same as --set run.name=NAME; a number is appended")
    up.add_argument(
        "--inline",
        action="store_true",
        help="everything in this one process, for debugging: no restarts, breakpoints work",
    )
    up.set_defaults(run=run_up, told=True)


def add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        description="Goes on with a paused run, or with an ended one from a checkpoint.",
        epilog="example: hive resume cartpole-1",
    )
    resume.add_argument("run_name", metavar="RUN", help=RUN)
    resume.add_argument("--exact", action="store_true", help="from the last scheduled checkpoint: as if never stopped")
    resume.add_argument("-d", "--detach", action="store_true", help="return once the run is running")
    resume.add_argument("--inline", action="store_true", help="everything in this one process")
    resume.add_argument(
        "-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="go on with another value (repeat)"
    )
    resume.set_defaults(run=run_resume, told=True)


def run_resume(options: argparse.Namespace) -> int:
    directory = run_called(options.run_name)
    if run_state(directory) == "running" and _is_paused(directory):
        if options.exact or options.set:
            raise UsageError(
                f"{directory.name} is paused and goes on as it is",
                hint=f"to change something: hive down {directory.name}, then resume it with --set",
            )
        return go_on(directory)
    return launch(prepare(options.run_name, exact=options.exact, sets=options.set), options)


def _is_paused(directory: RunDirectory) -> bool:
    with connected(directory) as client:
        return client.status()["pausing"] is not None


def run_up(options: argparse.Namespace) -> int:
    if options.resume is not None:
        if options.name is not None:
            raise UsageError("a resumed run keeps its name", hint="hive up --resume RUN, without --name")
        if options.seeds is not None:
            raise UsageError("a resumed run has its seed", hint="hive up --resume RUN, without --seeds")
        sets = [*options.set, *([f"run.seed={options.seed}"] if options.seed is not None else [])]
        return launch(prepare(options.resume, exact=options.exact, sets=sets, given=options.config), options)
    if options.config is None and options.topology is None:
        raise UsageError("no config", hint="hive up CONFIG, hive up --topology FILE.py, or hive up --resume RUN")
    overrides = list(options.set)
    if options.seed is not None:
        overrides.append(f"run.seed={options.seed}")
    if options.name is not None:
        overrides.append(f"run.name={json.dumps(options.name)}")
    if options.topology is not None:
        overrides.append(f"run.topology={json.dumps(options.topology)}")
    if options.seeds is not None:
        _check_alone(options)
        from hive.cli.seed_sweep import run_seeds, seeds_of

        return run_seeds(options.config, overrides, seeds_of(options.seeds))
    return launch(new_run(options.config, overrides), options)


def _check_alone(options: argparse.Namespace) -> None:
    """Raises UsageError for what `--seeds` cannot be given with."""
    others = {"--seed": options.seed is not None, "--detach": options.detach, "--inline": options.inline}
    if given := [name for name, is_there in others.items() if is_there]:
        raise UsageError(
            f"--seeds goes without {' and '.join(given)}",
            hint="its runs come one after the other, and the command stays to start the next",
        )


def launch(directory: RunDirectory, options: argparse.Namespace) -> int:
    """Starts the run that lies in the directory, and looks at it as the options say.

    `told`: snapshots go to stdout where that is no terminal. A script's stdout is its own.
    """
    forget_failure(directory)
    events = NewEvents(directory)
    if options.inline:
        return _inline(directory, events)
    process = None
    try:
        with interrupts_held():
            process = start(directory)
        client = connect(directory, process)
        if options.detach:
            with closing(client):
                return _detached(directory, process, client)
    except KeyboardInterrupt:
        if process is None or process.returncode is not None:
            raise  # it has not begun, has ended, or runs and is nobody's here
        return give_up(directory, process)
    with closing(client):
        view = _Foreground(directory, process, client, StatusLine(), events)
        view.lines = SnapshotLines() if options.told else None
        return view.watch()


def _detached(directory: RunDirectory, process: subprocess.Popen[bytes], client: ControlClient) -> int:
    while True:
        try:
            state = client.status()["state"]
        except UsageError:
            process.wait()
            if not began(directory):
                raise_failure(directory, process.returncode)
            return _report(directory, process.returncode)
        if state not in ("starting",):
            process.returncode = 0  # it lives on without us
            print(directory.name)
            return 0
        time.sleep(0.02)


class _Foreground:
    """The view that `up` is."""

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
        self.history = History()  # of what the supervisor said: rates, and what the run is bound by
        self.lines: SnapshotLines | None = None
        self.asked = 0
        self.waits: Waits | None = None  # since it was asked to end
        self.leaving = False
        self.greeted = False

    def watch(self) -> int:
        with self._signals(), _keys() as keys:
            while self.process.poll() is None and not self.leaving:
                self.show()
                if select.select([sys.stdin] if keys else [], [], [], LOOK_S)[0]:
                    self._pressed(os.read(sys.stdin.fileno(), 1))
        self.line.erase()
        if self.leaving and self.process.poll() is None:
            self.process.returncode, name = 0, self.directory.name  # it lives on without us
            self.line.say(f"left {name} running · look: hive ps {name} · stop: hive down {name}")
            return 0
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
            raise_failure(self.directory, self.process.returncode)
        return _report(self.directory, self.process.returncode)

    def _pressed(self, key: bytes) -> None:
        if key == b"d":
            self.leaving = True
        elif key == b"w" and self.greeted:
            from hive.monitor.terminal import watch

            self.line.erase()
            watch(self.directory)  # leaving it comes back here
        elif key in (b"?", b"h"):
            self.line.say(KEYS.format(name=self.directory.name))

    def show(self) -> None:
        try:
            status = self.client.status()
            self.history.add(status, time.time())
            snapshot = snapshot_of(status, self.history)
            if not self.greeted and snapshot.state != "starting":
                self.greeted = True
                self.line.say(f"run {self.directory.name}  ({self.directory.path})")
                self.line.say(
                    "leave it running: d, or close the terminal · look again: hive monitor · stop: Ctrl-C or hive down"
                )
            if self.greeted:
                self.events.show(self.line)
                self.line.draw(snapshot)
                if self.lines is not None:
                    self.lines.draw(snapshot)
                if self.waits is not None:
                    self.waits.see(lambda: f"{who_drains(status) or 'the supervisor'} - Ctrl-C to stop without")
        except UsageError:
            time.sleep(LOOK_S)  # it is ending, or stopped: poll() in the loop says when it is gone

    @contextmanager
    def _signals(self) -> Iterator[None]:
        old = {number: signal.signal(number, self._asked) for number in (signal.SIGINT, signal.SIGTERM)}
        old[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._leave)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _asked(self, number: int, frame: object) -> None:
        self.asked += 1
        if self.asked == 1:
            self.line.say("stopping: the state is saved - Ctrl-C again to stop now")
            self.waits = Waits(self.line.say)
            self.process.send_signal(signal.SIGTERM)
        else:
            self.waits = None
            self.process.send_signal(signal.SIGTERM)  # the supervisor counts too

    def _leave(self, number: int, frame: object) -> None:
        self.leaving = True


@contextmanager
def _keys() -> Iterator[bool]:
    """Single keys from the terminal, without echo; False where there is none."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _inline(directory: RunDirectory, events: NewEvents) -> int:
    """The whole run in this process; a thread shows it."""
    from hive.runtime.run import run_inline

    line, over = StatusLine(), threading.Event()
    line.say(f"run {directory.name}  ({directory.path}), inline")

    def look() -> None:
        while not over.wait(LOOK_S):
            events.show(line)
            try:
                with closing(open_run(directory)) as client:
                    line.draw(snapshot_of(client.status()))
            except HiveError:
                pass  # starting or ending

    viewer = threading.Thread(target=look, daemon=True)
    viewer.start()
    try:
        code = run_inline(directory)
    except HiveError as error:
        if error.exit_code == ConfigError.exit_code:
            discard(directory)
        raise
    finally:
        over.set()
        viewer.join()
        line.erase()
    events.show(line)
    return _report(directory, code)


def _report(directory: RunDirectory, code: int) -> int:
    """The last words of a run in the foreground."""
    summary = Summary.read(directory.summary_file)
    out = sys.stderr
    if summary.error:
        print(f"error: {summary.error}", file=out)
    rate = f"{summary.steps_per_s:,.0f} steps/s" if summary.steps_per_s else "no updates"
    mean = "–" if summary.mean_return_100 is None else f"{summary.mean_return_100:.1f}"
    print(
        f"{summary.state}: {summary.stop_reason} · {summary.env_steps:,} steps, {summary.updates:,} updates · "
        f"return {mean} · {summary.wall_s:.1f} s, {rate} · {directory.path}",
        file=out,
    )
    if summary.state == "stopped" and list_checkpoints(directory.checkpoints):
        print(f"go on with it: hive resume {name_from_here(directory)}", file=out)
    return code
