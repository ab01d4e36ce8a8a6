"""Commands that steer a live run: `pause`, `save`, `set`, `scale`, `down`. (`resume` is beside `up`.)

Each asks the run's supervisor and waits until it is so, saying meanwhile what it waits for. Ctrl-C leaves the command;
what was asked for still happens.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from hive.cli.select_run import LIVE_RUN, RUN, live_run
from hive.cli.suggest import listed
from hive.errors import UsageError
from hive.monitor.tail import Tail
from hive.records import RunDirectory, Summary, is_alive, read_run_facts, run_state
from hive.records.documents import parse_object
from hive.runtime.control import ControlClient, open_run

__all__ = ["Waits", "add_down", "add_pause", "add_save", "add_scale", "add_set", "connected", "go_on", "who_drains"]

LOOK_S = 0.02  # between two looks: what is waited for takes tens of milliseconds
SAY_S = 2.0  # until it is said what is waited for, and then again: pauses wait for environments, saves for disks


def add_down(commands: Any) -> None:
    down = commands.add_parser(
        "down",
        description="Ends a run and waits for it.",
        epilog="example: hive down cartpole-1",
    )
    down.add_argument("run_name", nargs="?", metavar="RUN", help=LIVE_RUN)
    down.add_argument("--now", action="store_true", help="kill instead of draining; nothing is saved")
    down.set_defaults(run=run_down)


def add_pause(commands: Any) -> None:
    pause = commands.add_parser(
        "pause",
        description="Lets a run come to rest, with all that it has in memory.",
        epilog="example: hive pause cartpole-1",
    )
    pause.add_argument("run_name", nargs="?", metavar="RUN", help=LIVE_RUN)
    pause.set_defaults(run=run_pause)


def add_save(commands: Any) -> None:
    save = commands.add_parser(
        "save",
        description="Writes a checkpoint of a running run now.",
        epilog="example: hive save cartpole-1",
    )
    save.add_argument("run_name", nargs="?", metavar="RUN", help=LIVE_RUN)
    save.set_defaults(run=run_save)


def add_set(commands: Any) -> None:
    set_ = commands.add_parser(
        "set",
        description="Changes keys of [algorithm] from the next update on.",
        epilog="example: hive set cartpole-1 algorithm.learning_rate=1e-4",
    )
    set_.add_argument("run_name", metavar="RUN", help=RUN)
    set_.add_argument("sets", nargs="+", metavar="KEY=VALUE", help="a key of [algorithm], as in a config")
    set_.set_defaults(run=run_set)


def add_scale(commands: Any) -> None:
    scale = commands.add_parser(
        "scale",
        description="Goes on with other numbers of workers, from where the run is.",
        epilog="example: hive scale cartpole-1 collection.workers=4 gradients.workers=2",
    )
    scale.add_argument("run_name", metavar="RUN", help=RUN)
    scale.add_argument("sets", nargs="+", metavar="KEY=COUNT", help="collection.workers or gradients.workers")
    scale.set_defaults(run=run_scale)


@contextmanager
def connected(directory: RunDirectory) -> Iterator[ControlClient]:
    """A line to the run's supervisor."""
    with closing(open_run(directory)) as client:
        yield client


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Waits:
    """Says now and then what a command waits for; `say` takes the line."""

    def __init__(self, say: Callable[[str], object] = _to_stderr) -> None:
        self.say = say
        self.next_s = time.monotonic() + SAY_S

    def see(self, what: Callable[[], str]) -> None:
        """`what` is asked when it is time for a line."""
        if time.monotonic() >= self.next_s:
            self.next_s = time.monotonic() + SAY_S
            self.say(f"still waiting for {what()}")

    def wait(self, what: Callable[[], str]) -> None:
        self.see(what)
        time.sleep(LOOK_S)


def run_pause(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), Waits()
    with connected(directory) as client:
        client.pause()
        while (status := client.status())["state"] != "paused":
            if status["state"] != "running":
                raise UsageError(f"{directory.name} did not pause: it is {status['state']} ({status.get('reason')})")
            if status["pausing"] is None:
                raise UsageError(f"{directory.name} did not pause: somebody resumed it")
            waits.wait(lambda status=status: listed(status["pausing"]) or "the last messages")  # type: ignore[misc]
    print(f"{directory.name} paused at {_steps(status):,} steps")
    print(f"hint: hive resume {directory.name}", file=sys.stderr)
    return 0


def _steps(status: Mapping[str, Any]) -> int:
    found: Mapping[str, Any] = next(
        (a["counters"] for a in status["actors"] if a["name"] == status["results_actor"]), {}
    )
    return int(found.get("env_steps", 0))


def go_on(directory: RunDirectory) -> int:
    """Resumes a paused run. Raises UsageError for one that is not paused."""
    with connected(directory) as client:
        client.resume()
    print(f"{directory.name} running")
    return 0


def run_save(options: argparse.Namespace) -> int:
    directory, waits = live_run(options.run_name), Waits()
    diary = Tail(directory.events_file, 0 if directory.events_file.exists() else None)
    for _ in diary.lines():
        pass  # what was there before
    with connected(directory) as client:
        client.save()
    while True:
        alive = run_state(directory) == "running"  # asked before the look, so that its last words are seen
        for event in filter(None, map(parse_object, diary.lines())):
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
    print(f"{directory.name} goes on with {' '.join(options.sets)}")
    return 0


def run_scale(options: argparse.Namespace) -> int:
    """Asks, and waits until the run is back: it may be with what it had, when it cannot be built otherwise."""
    directory = live_run(options.run_name)
    with connected(directory) as client:
        before, begun = client.status(), time.monotonic()
        client.scale(options.sets)
        while (status := client.status())["stage"] == before["stage"] or status["state"] in ("starting", "draining"):
            time.sleep(LOOK_S)
    if status["refused"] != before["refused"]:
        raise UsageError(f"{directory.name} goes on as it was: {status['refused']}")
    counts = " ".join(options.sets)
    print(f"{directory.name} {status['state']} with {counts} after {time.monotonic() - begun:.1f} s")
    return 0


def run_down(options: argparse.Namespace) -> int:
    directory = live_run(options.run_name)
    facts = read_run_facts(directory)
    with connected(directory) as client:
        client.down("hive down", now=options.now)
        waits = Waits()
        while is_alive(facts):
            waits.wait(lambda: _draining(client) or "the supervisor")
    summary = Summary.read(directory.summary_file) if directory.summary_file.exists() else None
    print(f"{directory.name} {summary.state if summary else run_state(directory)}")
    return 0


def _draining(client: ControlClient) -> str:
    """Who has not stopped yet; "" where nobody can say."""
    try:
        return who_drains(client.status())
    except UsageError:
        return ""  # it is ending this moment


def who_drains(status: Mapping[str, Any]) -> str:
    """Who has not stopped yet, in what, since when."""
    late = [row for row in status["actors"] if row["state"] in ("running", "draining")]
    return ", ".join(f"{row['name']} (in {row['activity'] or 'start'}, {row['since_s']:.0f} s)" for row in late)
