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

Seed by seed all racers run, in alternating directions.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from comparison.hive_cell import keys_of
from comparison.tasks import TASKS

from benchmarks.contender import Pythons
from benchmarks.hive_run import NAME, last_output, started
from benchmarks.machine import ROOT
from benchmarks.programs import BenchError, here, importing, run_program
from hive.errors import RecordError
from hive.records import RunDirectory, Summary

__all__ = ["TARGET", "Finish", "Racer", "race", "racers"]

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


def race(those: Sequence[Racer], seeds: int, limit: float, say: Callable[[str], None]) -> dict[str, list[Finish]]:
    """Return the finishes of each racer by name, of the seeds 1, 2, ... Raises BenchError."""
    found: dict[str, list[Finish]] = {racer.name: [] for racer in those}
    for seed in range(1, seeds + 1):
        for racer in those if seed % 2 else reversed(those):
            finish = racer.run(seed, limit)
            reached = "not reached" if finish.reached_s is None else f"{finish.reached_s:.1f} s"
            say(f"seed {seed}  {racer.name:<14} {reached:>11}, exit {finish.exit_s:.1f} s, {finish.steps:,} steps")
            found[racer.name].append(finish)
    return found


def _hive(config: str, keys: Sequence[str] = ()) -> Callable[[int, float], Finish]:
    def run(seed: int, limit: float) -> Finish:
        with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
            folder = Path(name)
            (folder / "bench.toml").write_text(config)
            directory = RunDirectory(folder / "runs" / f"{NAME}-1")
            begun = time.time()
            goal = (*keys, f"run.seed={seed}", f"run.stop_at_return={TARGET}")
            with started(folder, importing(), goal) as process, suppress(subprocess.TimeoutExpired):
                process.wait(limit)  # at the limit, `started` ends the run
            exit_s = time.time() - begun
            if exit_s >= limit and not directory.summary_file.exists():  # it had not begun
                return Finish(seed, None, exit_s, 0)
            try:
                summary = Summary.read(directory.summary_file)
            except RecordError as error:
                raise BenchError(f"hive up: {error}\n{last_output(folder, directory)}") from error
            return Finish(seed, reached_after(_lines(directory.metrics_file), begun), exit_s, summary.env_steps)

    return run


def reached_after(lines: Sequence[str], begun: float) -> float | None:
    """Return the seconds from `begun` to the first line of metrics with the target as mean return; None without one."""
    for line in map(json.loads, lines):
        mean = line.get("return/mean_100")
        if mean is not None and mean >= TARGET:
            return float(line["t"] - begun)
    return None


def _lines(metrics: Path) -> list[str]:
    """Return the lines of metrics; none of a run that was ended before its first."""
    return metrics.read_text().splitlines() if metrics.exists() else []


def _sb3(algorithm: str, pythons: Pythons) -> Callable[[int, float], Finish]:
    settings = json.dumps(ZOO[algorithm])

    def run(seed: int, limit: float) -> Finish:
        begun = time.time()
        command = [pythons.of("sb3"), "-P", here("peers", "sb3_goal.py"), begun, limit, TARGET, seed, 1, settings]
        found = run_program(command, limit, importing(), "steps")
        return Finish(seed, found["reached_s"], time.time() - begun, found["steps"])

    return run
