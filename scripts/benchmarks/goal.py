"""`bench goal`: wall time from the command to a mean return of 475 on CartPole, imports and start-up included.

    hive-a2c        hive up examples/cartpole.toml
    hive-ppo        hive up examples/cartpole-ppo.toml
    hive-ppo-zoo    hive up with RL Zoo's settings of PPO
    sb3-a2c-zoo     Stable-Baselines3 with RL Zoo's settings of A2C
    sb3-ppo-zoo     Stable-Baselines3 with RL Zoo's settings of PPO

The goal is the mean of the last 100 training episodes, on both sides. Each run is a fresh process. Its time ends when
the goal is reached: hive's line of metrics with this mean, the peer's callback. `exit_s` is the time until the command
returned; hive saves a checkpoint before it does. A run that does not reach the goal, because its time is over or its
steps are, counts with the limit. torch has one thread in the peer, which is its fastest way for these networks.

Seed by seed all racers run, in alternating directions. The ratio of two racers is that of their medians: the runs of
one seed have nothing in common but its number. Checked are

    hive-a2c <= 1/6 of sb3-a2c-zoo
    the faster of hive-ppo and hive-ppo-zoo <= 1/4 of sb3-ppo-zoo
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from comparison.hive_cell import keys_of
from comparison.tasks import TASKS

from benchmarks.contender import Pythons, add_python_options, matches
from benchmarks.harness import (
    Bench,
    Check,
    Report,
    Spread,
    aligned,
    count,
    duration,
    interleaved,
    number,
    say,
    spread_cells,
    spread_of,
)
from benchmarks.hive_run import last_output, run_directory, started
from benchmarks.machine import ROOT
from benchmarks.programs import BenchError, here, run_program
from hive.errors import RecordError
from hive.records import Summary

TARGET = 475.0
ZOO_A2C_STEPS = 500_000  # budget in RL Zoo; that of the parity task is shorter
ZOO = {"ppo": TASKS["ppo-cartpole"].settings, "a2c": {**TASKS["a2c-cartpole"].settings, "steps": ZOO_A2C_STEPS}}


@dataclass(frozen=True)
class Finish:
    """One run: seconds from the command to the goal, None where it was not reached, and to the exit; its steps."""

    seed: int
    reached_s: float | None
    exit_s: float
    steps: int

    def seconds(self, limit: float) -> float:
        """The time that counts."""
        return limit if self.reached_s is None else min(self.reached_s, limit)


@dataclass(frozen=True)
class Racer:
    """One program. run: seed, limit in seconds -> Finish. Raises BenchError."""

    name: str
    title: str
    run: Callable[[int, float], Finish]


def racers(pythons: Pythons, with_peers: bool) -> list[Racer]:
    """Return all racers, those of hive first."""
    found = [
        Racer(f"hive-{name}", f"hive up examples/{file}", _hive((ROOT / "examples" / file).read_text()))
        for name, file in (("a2c", "cartpole.toml"), ("ppo", "cartpole-ppo.toml"))
    ]
    found.append(Racer("hive-ppo-zoo", "hive, RL Zoo's PPO", _hive("", keys_of(ZOO["ppo"], 1))))
    if with_peers:
        found += [
            Racer(f"sb3-{name}-zoo", f"Stable-Baselines3, RL Zoo's {name.upper()}", _sb3(name, pythons))
            for name in ("a2c", "ppo")
        ]
    return found


def race(racers: Sequence[Racer], seeds: int, limit: float) -> dict[str, list[Finish]]:
    """Return the finishes of each racer by name, of the seeds 1, 2, ... Raises BenchError."""
    by_name = {racer.name: racer for racer in racers}

    def finish_of(name: str, repetition: int) -> Finish:
        seed = repetition + 1
        finish = by_name[name].run(seed, limit)
        reached = "not reached" if finish.reached_s is None else f"{finish.reached_s:.1f} s"
        say(f"seed {seed}  {name:<14} {reached:>11}, exit {finish.exit_s:.1f} s, {finish.steps:,} steps")
        return finish

    return interleaved(list(by_name), seeds, finish_of)[0]


def _hive(config: str, keys: Sequence[str] = ()) -> Callable[[int, float], Finish]:
    def run(seed: int, limit: float) -> Finish:
        with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
            folder = Path(name)
            directory, begun = run_directory(folder), time.time()
            goal = (*keys, f"run.seed={seed}", f"run.stop_at_return={TARGET}")
            with started(folder, goal, config) as process, suppress(subprocess.TimeoutExpired):
                process.wait(limit)  # at the limit, `started` ends the run
            exit_s = time.time() - begun
            if exit_s >= limit and not directory.summary_file.exists():  # it had not begun
                return Finish(seed, None, exit_s, 0)
            try:
                summary = Summary.read(directory.summary_file)
            except RecordError as error:
                raise BenchError(f"hive up: {error}\n{last_output(folder, directory)}") from error
            metrics = directory.metrics_file  # missing if the run was ended before its first line
            lines = metrics.read_text().splitlines() if metrics.exists() else []
            return Finish(seed, reached_after(lines, begun), exit_s, summary.env_steps)

    return run


def reached_after(lines: Sequence[str], begun: float) -> float | None:
    """Return the seconds from `begun` to the first line of metrics with the target as mean return; None without one."""
    for line in map(json.loads, lines):
        mean = line.get("return/mean_100")
        if mean is not None and mean >= TARGET:
            return float(line["t"] - begun)
    return None


def _sb3(algorithm: str, pythons: Pythons) -> Callable[[int, float], Finish]:
    settings = json.dumps(ZOO[algorithm])

    def run(seed: int, limit: float) -> Finish:
        begun = time.time()
        command = [pythons.of("sb3"), "-P", here("peers", "sb3_goal.py"), begun, limit, TARGET, seed, 1, settings]
        found = run_program(command, limit, "steps")
        return Finish(seed, found["reached_s"], time.time() - begun, found["steps"])

    return run


# --- report

GOALS = ((("hive-a2c",), "sb3-a2c-zoo", 6), (("hive-ppo", "hive-ppo-zoo"), "sb3-ppo-zoo", 4))
"""(racers of hive, of which the fastest counts; the peer; how many times as fast hive must be)."""

Results = Mapping[str, Sequence[Finish]]  # name of a racer -> its finishes


def times_of(finishes: Sequence[Finish], limit: float) -> Spread:
    """Return the spread of a racer's times in seconds."""
    return spread_of([finish.seconds(limit) for finish in finishes])


def checks_of(results: Results, limit: float) -> list[Check]:
    checks = []
    for names, peer, times in GOALS:
        medians = {name: times_of(results[name], limit).median for name in (*names, peer) if name in results}
        theirs = medians.pop(peer, None)
        if medians and theirs:
            best = min(medians, key=lambda name: medians[name])
            ratio = theirs / medians[best]
            checks.append(Check(f"{best} <= 1/{times} of {peer}", f"1/{ratio:.2f}", ratio >= times))
    return checks


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    pythons = Pythons(dict(options.python), options.cache)
    known = racers(pythons, options.peers)
    selected = [racer for racer in known if matches(racer.name, options.only)]
    if not selected:
        raise BenchError(f"no program matches --only; known: {', '.join(racer.name for racer in known)}")
    if options.list:
        return Report([f"{racer.name:<14}  {racer.title}" for racer in selected])
    if any(racer.name.startswith("sb3") for racer in selected):
        pythons.of("sb3")  # installed before the first run, whose time it would be
    results, limit = race(selected, options.seeds, options.limit), options.limit
    finishes = {name: [dataclasses.asdict(finish) for finish in of_racer] for name, of_racer in results.items()}
    figures = {"target": TARGET, "limit_s": limit, "finishes": finishes}
    return Report(table(selected, results, limit), figures, checks_of(results, limit))


def table(racers: Sequence[Racer], results: Results, limit: float) -> list[str]:
    rows = [
        (
            f"{racer.name}: {racer.title}",
            *spread_cells([finish.seconds(limit) for finish in finishes], 1),
            f"{sum(finish.reached_s is not None for finish in finishes)} of {len(finishes)}",
            number(statistics.median(finish.exit_s for finish in finishes), 1),
            number(statistics.median(finish.steps for finish in finishes)),
        )
        for racer, finishes in ((racer, results[racer.name]) for racer in racers)
    ]
    return [
        f"Seconds from the command to a mean return of {TARGET:g} on CartPole-v1; not reached: {limit:g} s.",
        *aligned(("", "seconds", "least..most", "reached", "exit", "steps"), rows),
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=count, default=5, help="runs of each program (default %(default)d)")
    parser.add_argument("--limit", type=duration, default=300.0, help="seconds of one run (default %(default)g)")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="programs whose name matches")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="neither install nor measure peers")
    parser.add_argument("--list", action="store_true", help="print the programs, and measure nothing")
    add_python_options(parser)


BENCH = Bench(
    "goal",
    "wall time from the command to a mean return of 475 on CartPole, start-up included: hive, SB3",
    "example: scripts/bench goal --seeds 5 --json goal.json --check",
    _options,
    measure,
)
