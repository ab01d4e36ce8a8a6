"""`scripts/chaos_environments`: kill and stop environment processes of a run at random, and count what follows.

A run has two collectors of eight environments, each in a process of its own. Every 0.1 to 2 s one process gets SIGKILL,
SIGSTOP or SIGSEGV. Its pid comes from the collector's file of environments, and no pid is struck twice, so every strike
is exactly one failure. At the end there is a pause in which all come back. These promises are judged:

    failures      each environment has failed as often as it was struck
    back          each environment runs, in a process that was not struck
    collectors    the same processes from the first sample to the last; as many descriptors at the end as at the
                  beginning; memory grows by less than 5 % from the second to the last quarter
    end           the run ends in order, is not exact, and its accounts are balanced
    nothing left  no process, socket or segment

Exit codes: 0 all kept · 1 one was broken, or the run could not be started · 2 usage.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.harness import begin, duration, say, write_document
from benchmarks.programs import BenchError

from chaotic.sandbox import END_S, Sandbox, segments_of, wait_for_end
from chaotic.soak import Measured, measured
from chaotic.watched import Watched, wait_for_steps
from hive.errors import HiveError
from hive.records import RunDirectory, Summary
from hive.records.environments import RUNNING, EnvironmentRow, environments_of

SETS = (
    *("env.processes=each", "collection.workers=2", "collection.envs=8", "run.steps=1_000_000_000_000"),
    *("run.stop_at_return=1e12", "env.restarts=1_000_000"),
)
"""Keys of the run: sixteen environment processes that may fail as often as they like, and no end but the script's."""

SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV)
PAUSE_S = (0.1, 2.0)
SAMPLE_S = 2.0
WARM_S = 120.0  # time limit in seconds for the first steps of sixteen processes
BACK_S = 60.0  # time limit in seconds for all to come back at the end
MOST_GROWTH = 0.05
LEAST_SAMPLES = 8  # two in each quarter


@dataclass(frozen=True)
class Strike:
    """A signal that a process of environment `index` got, `at_s` seconds after the beginning."""

    at_s: float
    index: int
    pid: int
    signal: str


@dataclass
class Seen:
    """All observations. samples: of each collector. back_s: from a strike until the file shows its successor run."""

    strikes: list[Strike] = field(default_factory=list)
    samples: list[dict[str, Measured]] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)
    down: list[str] = field(default_factory=list)


class Striker:
    """Strikes environment processes of a run, and watches that they come back."""

    def __init__(self, directory: RunDirectory, watched: Watched, seed: int, pause_s: Sequence[float]) -> None:
        self.directory, self.watched = directory, watched
        self.random, self.pause_s = random.Random(seed), pause_s
        self.seen = Seen()
        self.struck: set[int] = set()  # pids
        self.open: dict[int, tuple[int, float]] = {}  # index -> pid and time of a strike from which it is not back
        self.begun = time.monotonic()

    def run(self, seconds: float) -> Seen:
        """Strike for some seconds; then wait until all are back. Raises BenchError if the run ends by itself."""
        sample_at = 0.0
        while (now := time.monotonic() - self.begun) < seconds:
            if now >= sample_at:
                self._sample()
                sample_at += SAMPLE_S
            self._strike()
            self._look()
            time.sleep(self.random.uniform(*self.pause_s))
        limit = time.monotonic() + BACK_S
        while self._look() and time.monotonic() < limit:
            time.sleep(0.1)
        time.sleep(SAMPLE_S)  # for the files of collectors that have just said that all are back
        self._sample()
        rows = self._rows()
        self.seen.failures = {row.index: row.failures for row in rows}
        self.seen.down = [row.name for row in rows if row.state != RUNNING or row.pid in self.struck]
        return self.seen

    def _rows(self) -> list[EnvironmentRow]:
        return [row for rows in environments_of(self.directory).values() for row in rows]

    def _strike(self) -> None:
        rows = [row for row in self._rows() if row.pid and row.pid not in self.struck]
        number, what = self.random.random(), self.random.choice(SIGNALS)
        if not rows:
            return
        row = rows[int(number * len(rows))]
        if send(row.pid, what, self.directory.path.parent):
            at_s = time.monotonic() - self.begun
            self.struck.add(row.pid)
            self.open[row.index] = row.pid, at_s
            self.seen.strikes.append(Strike(at_s, row.index, row.pid, what.name))

    def _look(self) -> int:
        """Note which environments are back; return how many are not."""
        now_s = time.monotonic() - self.begun
        for row in self._rows():
            if row.index in self.open and row.state == RUNNING and row.pid not in (0, self.open[row.index][0]):
                self.seen.back_s.append(now_s - self.open.pop(row.index)[1])
        return len(self.open)

    def _sample(self) -> None:
        status = self.watched.status()
        if status is None:
            raise BenchError("the run ended by itself")
        pids = {actor["name"]: actor["pid"] for actor in status["actors"] if actor["name"].startswith("collector-")}
        self.seen.samples.append({name: measured(pid) for name, pid in pids.items()})
        if len(self.seen.samples) % 30 == 1:
            sizes = ", ".join(f"{name} {one.mb:.0f} MB {one.descriptors} fds" for name, one in self._last().items())
            say(f"{(time.monotonic() - self.begun) / 60:5.1f} min  {len(self.seen.strikes)} strikes  {sizes}")

    def _last(self) -> dict[str, Measured]:
        return self.seen.samples[-1]


def send(pid: int, what: signal.Signals, home: Path) -> bool:
    """Send a signal to a living process of the runs in `home`; return whether it was there to get it."""
    with contextlib.suppress(OSError):
        line = os.pidfd_open(pid)
        try:
            if f"HIVE_HOME={home}".encode() not in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                return False
            signal.pidfd_send_signal(line, what)
            return True
        finally:
            os.close(line)
    return False


def broken_by(seen: Seen, summary: Summary | None, left: dict[str, list[str]]) -> list[str]:
    """Return a sentence for each broken promise."""
    wanted = Counter(strike.index for strike in seen.strikes)
    broken = [
        f"env {index} was struck {wanted[index]} times and failed {seen.failures.get(index, 0)} times"
        for index in sorted({*wanted, *seen.failures})
        if wanted[index] != seen.failures.get(index, 0)
    ]
    broken += [f"{name} did not come back" for name in seen.down]
    broken += growth_in(seen.samples)
    if summary is None or summary.state not in ("finished", "stopped"):
        broken.append(f"the run ended as {summary and summary.state}: {summary and summary.stop_reason}")
    else:
        broken += unbalanced(summary)
        if summary.exact is not False and seen.strikes:
            broken.append("the run is called exact")
        if any(summary.restarts.values()):
            broken.append(f"actors were restarted: {summary.restarts}")
    return broken + [f"left behind: {kind} {', '.join(found)}" for kind, found in left.items() if found]


def growth_in(samples: Sequence[dict[str, Measured]]) -> list[str]:
    """Return a sentence for each collector whose process changed, or whose descriptors or memory grow."""
    if len(samples) < LEAST_SAMPLES:
        return []
    broken, quarter = [], len(samples) // 4
    for name in samples[0]:
        curve = [sample[name] for sample in samples]
        if len({one.pid for one in curve}) > 1:
            broken.append(f"{name} was restarted")
            continue
        second, last = curve[quarter : 2 * quarter], curve[-quarter:]
        before, after = curve[0].descriptors, curve[-1].descriptors  # while all run: each has some in its collector
        if before != after:
            broken.append(f"{name} had {before} descriptors at the beginning and {after} at the end")
        small, large = (statistics.median(one.mb for one in part) for part in (second, last))
        if large > small * (1 + MOST_GROWTH):
            broken.append(f"the memory of {name} grew from {small:.1f} MB to {large:.1f} MB")
    return broken


def unbalanced(summary: Summary) -> list[str]:
    """Return a sentence for each channel whose account is not balanced."""
    broken = []
    for name, account in summary.channels.items():
        gone = account["consumed"] + sum(account["dropped"].values())
        if account["in_flight"] or account["produced"] != gone:
            broken.append(f"the account of {name} is not balanced: {account}")
    return broken


def chaos(config: Path, options: argparse.Namespace, sandbox: Sandbox) -> tuple[Seen, Summary | None, list[str]]:
    """Make a run, strike it, end it, and judge. Raises HiveError, BenchError."""
    directory = sandbox.up(config.resolve(), [*SETS, f"run.seed={options.seed}", *options.set])
    with closing(Watched(directory)) as watched:
        segments = segments_of(watched.facts.pid)
        wait_for_steps(watched, 1, WARM_S)
        seen = Striker(directory, watched, options.seed, options.pause).run(options.seconds)
        watched.client.down("scripts/chaos_environments", now=False)
        ended = wait_for_end(watched.facts, END_S)
    summary = Summary.read(directory.summary_file) if ended and directory.summary_file.exists() else None
    return seen, summary, broken_by(seen, summary, sandbox.left_behind(segments))


def text_of(seen: Seen, summary: Summary | None, broken: Sequence[str]) -> str:
    """Return the report."""
    by_signal = Counter(strike.signal for strike in seen.strikes)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(by_signal.items()))
    lines = [f"{len(seen.strikes)} strikes ({counts}), {sum(seen.failures.values())} failures"]
    if seen.back_s:
        back = sorted(seen.back_s)
        lines.append(f"back, as its file shows once a second: median {statistics.median(back):.1f} s, {back[-1]:.1f} s")
    for name in seen.samples[0] if seen.samples else ():
        first, last = seen.samples[0][name], seen.samples[-1][name]
        lines.append(
            f"{name}: {first.mb:.1f} MB and {first.descriptors} descriptors, "
            f"at the end {last.mb:.1f} MB and {last.descriptors}"
        )
    if summary is not None:
        lines.append(f"{summary.state}: {summary.env_steps:,} steps, {summary.updates:,} updates")
    return "\n".join([*lines, *(f"broken: {line}" for line in broken), *([] if broken else ["all promises kept"])])


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `chaos_environments` command."""
    parser = argparse.ArgumentParser(
        prog="chaos_environments",
        description="Kills and stops environment processes of a run at random, and reports broken promises.",
        epilog="example: scripts/chaos_environments --seconds 1200 --config examples/cartpole.toml --json chaos.json",
    )
    parser.add_argument("--config", type=Path, required=True, help="a TOML file")
    parser.add_argument("--seconds", type=duration, default=120.0, help="of strikes (default %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of strikes and run (default %(default)s)")
    parser.add_argument(
        "--pause",
        type=duration,
        nargs=2,
        default=PAUSE_S,
        metavar=("LEAST", "MOST"),
        help="seconds between two strikes (default %(default)s)",
    )
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeat)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all observations to this file")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled like Ctrl-C, so that the run ends too
    sandbox, broken = Sandbox(), ["it was ended"]
    try:
        machine = begin(options.json)
        seen, summary, broken = chaos(options.config, options, sandbox)
        document: dict[str, Any] = {"machine": machine, "broken": broken, **dataclasses.asdict(seen)}
        write_document(options.json, document)
        print(text_of(seen, summary, broken), flush=True)
    except (BenchError, HiveError) as error:
        say(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        sandbox.close(keep=bool(broken))
        if broken:
            say(f"the run is in {sandbox.home}")
    sys.exit(1 if broken else 0)
