"""Commands that control a live run: `pause`, `save`, `set`, `scale`, `down`. (`resume` is in `hive.cli.up`.)

Each sends a request to the run's supervisor and waits until it is done. `pause`, `save` and `down` report a long wait.
Ctrl-C ends the command but does not cancel the request.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hive.cli.arguments import ONLY_LIVE_RUN, RUN, add_run
from hive.cli.select_run import live_run, name_from_here
from hive.cli.suggest import listed
from hive.errors import HiveError, UsageError
from hive.records import (
    Checkpoint,
    RunDirectory,
    RunFacts,
    Summary,
    is_alive,
    list_checkpoints,
    read_run_facts,
    run_state,
)
from hive.records.jsonl import parse_line
from hive.records.tail import Tail
from hive.runtime.run.control import ControlClient, control_path, open_run

__all__ = [
    "WaitReporter",
    "add_down",
    "add_pause",
    "add_save",
    "add_scale",
    "add_set",
    "connected",
    "kept",
    "late_actors",
    "print_to_stderr",
    "resume_paused",
]

POLL_S = 0.02  # interval between two status requests: most requests are done within tens of milliseconds
REPORT_S = 2.0  # interval between two reports of a wait: slow environments and disks can take long


def add_down(commands: Any) -> None:
    down = commands.add_parser(
        "down",
        description="End a run and wait until it has ended. It finishes the work in progress and saves its state, so "
        "`hive resume` can continue it.",
        epilog="example: hive down cartpole-ppo-1",
    )
    add_run(down, ONLY_LIVE_RUN)
    down.add_argument("--now", action="store_true", help="kill all processes at once; nothing is saved")
    down.set_defaults(run=run_down)


def add_pause(commands: Any) -> None:
    pause = commands.add_parser(
        "pause",
        description="Pause a run and keep its state in memory. `hive resume` continues it; results stay bit-identical "
        "to those of a run that was not paused.",
        epilog="example: hive pause cartpole-ppo-1",
    )
    add_run(pause, ONLY_LIVE_RUN)
    pause.set_defaults(run=run_pause)


def add_save(commands: Any) -> None:
    save = commands.add_parser(
        "save",
        description="Write a checkpoint of a running run now, and print its path. The run continues.",
        epilog="example: hive save cartpole-ppo-1",
    )
    add_run(save, ONLY_LIVE_RUN)
    save.set_defaults(run=run_save)


def add_set(commands: Any) -> None:
    set_ = commands.add_parser(
        "set",
        description="Change keys of [algorithm] of a running run, such as the learning rate, from the next update on.",
        epilog="example: hive set cartpole-ppo-1 algorithm.learning_rate=1e-4",
    )
    set_.add_argument("run_name", metavar="RUN", help=RUN)
    set_.add_argument("sets", nargs="+", metavar="KEY=VALUE", help="a key of [algorithm] and its new value")
    set_.set_defaults(run=run_set)


def add_scale(commands: Any) -> None:
    scale = commands.add_parser(
        "scale",
        description="Change the number of workers of a running run. The run saves its state, restarts its processes "
        "and continues from there.",
        epilog="example: hive scale cartpole-ppo-1 collection.workers=4 gradients.workers=2",
    )
    scale.add_argument("run_name", metavar="RUN", help=RUN)
    scale.add_argument("sets", nargs="+", metavar="KEY=COUNT", help="collection.workers=N or gradients.workers=N")
    scale.set_defaults(run=run_scale)


@contextmanager
def connected(directory: RunDirectory) -> Iterator[ControlClient]:
    """Connect to the run's supervisor. Raises UsageError if it cannot be reached."""
    with closing(open_run(directory)) as client:
        yield client


def print_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class WaitReporter:
    """Reports every `every_s` seconds what a command waits for, by calling `say` with a line of text."""

    def __init__(self, say: Callable[[str], object] = print_to_stderr, every_s: float | None = None) -> None:
        self.say = say
        self.every_s = REPORT_S if every_s is None else every_s
        self.next_s = time.monotonic() + self.every_s

    def see(self, what: Callable[[], str]) -> None:
        """Report if a line is due. `what` returns the text, and is only called then."""
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + self.every_s
            self.say(f"still waiting for {what()}")

    def wait(self, what: Callable[[], str]) -> None:
        """Report if a line is due, then sleep for POLL_S seconds."""
        self.see(what)
        time.sleep(POLL_S)


def run_pause(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), WaitReporter()
    with connected(directory) as client:
        client.pause()
        while (status := client.status())["state"] != "paused":
            if status["state"] != "running":
                raise UsageError(f"{directory.name} did not pause: it is {status['state']} ({status.get('reason')})")
            if status["pausing"] is None:
                raise UsageError(f"{directory.name} did not pause: another command resumed it")
            waits.wait(lambda status=status: listed(status["pausing"]) or "the last messages")  # type: ignore[misc]
    print(f"{directory.name} paused at {_steps(status):,} steps")
    print(f"hint: hive resume {directory.name}", file=sys.stderr)
    return 0


def _steps(status: Mapping[str, Any]) -> int:
    return int(status["results"].get("env_steps", 0))


def resume_paused(directory: RunDirectory) -> int:
    """Resume a paused run; return the exit code. Raises UsageError if the run is not paused."""
    with connected(directory) as client:
        client.resume()
    print(f"{directory.name} running")
    return 0


def run_save(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), WaitReporter()
    event_log = Tail(directory.events_file, 0)
    event_log.skip()
    with connected(directory) as client:
        client.save()
    while True:
        alive = run_state(directory) == "running"  # must be read before the events, or the last events could be missed
        for event in filter(None, map(parse_line, event_log.lines())):
            if event.get("kind") == "saved":
                print(event.get("path", ""))
                return 0
            if event.get("kind") in ("not saved", "not done"):
                raise UsageError(f"{directory.name} was not saved: {event.get('text')}")
        if not alive:
            raise UsageError(f"{directory.name} ended before it was saved")
        waits.wait(lambda: "the recorder")


def run_set(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    with connected(directory) as client:
        client.set(options.sets)
    print(f"{directory.name} continues with {' '.join(options.sets)}")
    return 0


def run_scale(options: argparse.Namespace) -> int:
    """Run `hive scale`. Raises UsageError if the new topology cannot be built; the run then continues unchanged."""
    directory = live_run(options.run_name)
    with connected(directory) as client:
        before, begun = client.status(), time.monotonic()
        client.scale(options.sets)
        while (status := client.status())["stage"] == before["stage"] or status["state"] in ("starting", "draining"):
            time.sleep(POLL_S)
    if status["refused"] != before["refused"]:
        raise UsageError(f"{directory.name} continues unchanged: {status['refused']}")
    counts = " ".join(options.sets)
    print(f"{directory.name} {status['state']} with {counts} after {time.monotonic() - begun:.1f} s")
    return 0


def run_down(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    facts = read_run_facts(directory)
    if is_alive(facts) and not control_path(Path(facts.socket_folder)).exists():
        _end_by_signal(directory, facts, options.now)
    else:
        with connected(directory) as client:
            client.down("hive down", now=options.now)
            waits = WaitReporter()
            while is_alive(facts):
                waits.wait(lambda: _draining(client) or "the supervisor")
    summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
    print(f"{directory.name} {summary.state if summary else run_state(directory)}")
    if summary is not None and summary.state == "stopped":
        saved = list_checkpoints(directory.checkpoints)
        more = f" · to continue it: hive resume {name_from_here(directory)}" if saved else ""
        print_to_stderr(kept(summary, saved).removeprefix(";").strip() + more)
    if summary is not None and summary.state == "failed":  # while it ended, its final state may not have been saved
        print_to_stderr(f"error: {summary.error or summary.stop_reason}")
        return HiveError.exit_code
    return 0


def _end_by_signal(directory: RunDirectory, facts: RunFacts, now: bool) -> None:
    """End a run whose socket folder was removed by signals to its supervisor; a second one ends it at once."""
    print_to_stderr(f"the socket folder of {directory.name} is gone: ending its supervisor ({facts.pid}) by SIGTERM")
    waits = WaitReporter()
    with contextlib.suppress(ProcessLookupError):
        os.kill(facts.pid, signal.SIGTERM)
        while now and is_alive(facts):  # signals that arrive together count as one
            os.kill(facts.pid, signal.SIGTERM)
            time.sleep(POLL_S)
    while is_alive(facts):
        waits.wait(lambda: "the supervisor")


def kept(summary: Summary, saved: Sequence[Checkpoint]) -> str:
    """Return the end of a sentence about a stopped run: what is saved of it, and where it was if that differs."""
    if not saved:
        return f" at {summary.env_steps:,} steps; nothing was saved"
    steps = saved[-1].state.get("env_steps")
    if steps is None:  # a custom topology need not count steps
        return f"; saved at update {saved[-1].update:,}"
    if steps == summary.env_steps:
        return f"; saved at {steps:,} steps"
    return f" at {summary.env_steps:,} steps; last saved at {steps:,} steps"


def _draining(client: ControlClient) -> str:
    """Return the actors that have not stopped yet as text; "" if the supervisor does not answer."""
    try:
        return late_actors(client.status())
    except UsageError:
        return ""  # the run is ending


def late_actors(status: Mapping[str, Any], states: Collection[str] = ("running", "draining")) -> str:
    """Return the actors in these states, by default those that have not stopped yet, as text.

    Each is given with its activity and the seconds spent in it.
    """
    late = [row for row in status["actors"] if row["state"] in states]
    return ", ".join(f"{row['name']} (in {row['activity'] or 'start'}, {row['since_s']:.0f} s)" for row in late)
