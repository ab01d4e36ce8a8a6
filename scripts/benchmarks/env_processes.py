"""`bench processes`: what environments in processes of their own cost, beside those of other libraries.

    one process      hive's environments in the collector's process
    hive             env.processes = "each"
    hive, cores      env.processes = the number of cores
    SubprocVecEnv    Stable-Baselines3's
    AsyncVectorEnv   Gymnasium's, with shared memory

ENVS environments of 4 numbers, whose step takes a given time of a core (`busy`) or only time (`sleeping`), without a
policy. A rate is that of environment steps. `of ideal` divides it by what the cores allow: cores / busy time, or
environments / sleeping time. Memory is what one more process takes beyond the pages that all share (USS), beside a
Python process that has made, reset and stepped the same environment without hive.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import Timed
from benchmarks.harness import (
    Bench,
    Check,
    Report,
    add_repetitions,
    aligned,
    append_rows,
    check_csv,
    interleaved,
    number,
    percent,
    ratio_of,
    spread_text,
)
from hive.config import EnvConfig
from hive.envs import StepRow
from hive.envs.configured import configured_vector

ENVS = 8
COSTS_MS = (0.1, 1.0, 10.0)
WAYS = ("one process", "hive", "hive, cores", "SubprocVecEnv", "AsyncVectorEnv")
COLUMNS = ("kind", "ms", "way", "steps_per_s", "of_ideal", "repetition", "load", "cores", "commit")
WARM_STEPS = 20
FOLDER = Path(__file__).parents[1]
ID = f"{Path(__file__).with_name('environments.py')}:Timed"
PLAIN = "import sys; sys.path[:0] = sys.argv[1:]; from benchmarks.environments import Timed; env = Timed(); "
PLAIN += "env.reset(seed=0); env.step(0); print('ready', flush=True); sys.stdin.read()"

Step = Callable[[], object]


def measure_rates(
    kinds: Sequence[str], costs: Sequence[float], repetitions: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure every way with every cost, in turn; return a row for each."""
    rows: list[dict[str, Any]] = []

    def measured(name: str, repetition: int) -> float:
        kind, ms, way = name.split("/")
        rate = rate_of(way, kind == "busy", float(ms), seconds)
        ideal = (os.cpu_count() or 1 if kind == "busy" else ENVS) / float(ms) * 1e3
        rows.append(
            {
                "kind": kind,
                "ms": float(ms),
                "way": way,
                "steps_per_s": round(rate, 1),
                "of_ideal": round(rate / ideal, 4),
                "repetition": repetition,
                "load": round(os.getloadavg()[0], 2),
            }
        )
        return rate

    interleaved([f"{kind}/{ms:g}/{way}" for kind in kinds for ms in costs for way in WAYS], repetitions, measured)
    return rows


def rate_of(way: str, busy: bool, ms: float, seconds: float) -> float:
    """Return the environment steps in a second."""
    step, close = maker(way)(busy, ms)
    try:
        for _ in range(WARM_STEPS):
            step()
        gc.collect()
        begun, steps = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < seconds:
            step()
            steps += ENVS
        return steps / passed
    finally:
        close()


def maker(way: str) -> Callable[[bool, float], tuple[Step, Callable[[], object]]]:
    """Return what makes the environments of a way: the function of a step, and of the end."""
    ways = {"one process": _hive("0"), "hive": _hive("each"), "hive, cores": _hive(str(os.cpu_count()))}
    return {**ways, "SubprocVecEnv": _subproc, "AsyncVectorEnv": _async}[way]


def _hive(processes: str) -> Callable[[bool, float], tuple[Step, Callable[[], object]]]:
    def make(busy: bool, ms: float) -> tuple[Step, Callable[[], object]]:
        env = EnvConfig(id=ID, options={"busy": busy, "ms": ms}, processes=processes)
        vector: Any = configured_vector(env, ENVS)
        row = StepRow.allocate(vector.observation, ENVS)
        vector.reset(range(ENVS), row.observations)
        actions = np.zeros(ENVS, np.int64)

        def step() -> None:
            row.finals.count = 0
            vector.step(actions, row)

        return step, vector.close

    return make


def _subproc(busy: bool, ms: float) -> tuple[Step, Callable[[], object]]:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    vector: Any = SubprocVecEnv([lambda: Timed(ms, busy)] * ENVS, start_method="fork")
    vector.reset()
    actions = np.zeros(ENVS, np.int64)
    return lambda: vector.step(actions), vector.close


def _async(busy: bool, ms: float) -> tuple[Step, Callable[[], object]]:
    from gymnasium.vector import AsyncVectorEnv

    vector: Any = AsyncVectorEnv([lambda: Timed(ms, busy)] * ENVS)
    vector.reset(seed=0)
    actions = np.zeros(ENVS, np.int64)
    return lambda: vector.step(actions), vector.close


def measure_memory() -> dict[str, float]:
    """Return the bytes of one more environment process, and of one with the environment alone (both USS)."""
    env = EnvConfig(id=ID, options={"busy": True, "ms": 0.1}, processes="each")
    vector: Any = configured_vector(env, ENVS)
    plain = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", PLAIN, str(FOLDER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(ENVS)
    ]
    try:
        vector.reset(range(ENVS), np.zeros((ENVS, 4), np.float32))
        for process in plain:
            assert process.stdout is not None
            process.stdout.readline()
        own = statistics.median(unshared_bytes(unit.stepper.pids()[0]) for unit in vector.units)
        return {
            "environment process": own,
            "environment alone": statistics.median(unshared_bytes(p.pid) for p in plain),
        }
    finally:
        vector.close()
        for process in plain:
            process.communicate()


def unshared_bytes(pid: int) -> int:
    """Return the bytes of a process that no other process shares."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(kib) for kib in re.findall(r"^Private_(?:Clean|Dirty): +(\d+) kB", text, re.MULTILINE))


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    """Return the report of all kinds and costs."""
    if options.csv is not None:
        check_csv(options.csv, COLUMNS)
    kinds = options.only or ["busy", "sleeping"]
    rows = measure_rates(kinds, options.ms or COSTS_MS, options.repetitions, options.seconds)
    rows = [{**row, "cores": machine["cores"], "commit": machine["commit"]} for row in rows]
    if options.csv is not None:
        append_rows(options.csv, COLUMNS, rows)
    memory = measure_memory()
    more = memory["environment process"] / memory["environment alone"]
    lines = [*table_of(rows), "", *(f"{name}: {size / 1e6:.1f} MB (USS)" for name, size in memory.items())]
    return Report(lines, {"rows": rows, "memory": memory}, [*checks_of(rows), _memory_check(more)])


def _memory_check(more: float) -> Check:
    return Check("one more environment takes at most 1.1 x the memory of its own", f"{more:.2f} x", more <= 1.1)


def table_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with a line for each kind, cost and way."""
    lines = []
    for kind, ms, way in dict.fromkeys((row["kind"], row["ms"], row["way"]) for row in rows):
        rates, ideal = (values_of(rows, kind, ms, way, column) for column in ("steps_per_s", "of_ideal"))
        beside = ratio_of(values_of(rows, kind, ms, "hive", "steps_per_s"), rates)
        cells = (number(statistics.median(rates)), percent(statistics.median(ideal)), spread_text(beside))
        lines.append((f"{kind} {ms:g} ms, {way}", *cells))
    return aligned(("environments", "steps/s", "of ideal", "hive / this"), lines)


def checks_of(rows: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the promises, for the costs that were measured."""
    checks = []
    for kind, ms in dict.fromkeys((row["kind"], row["ms"]) for row in rows):
        own = values_of(rows, kind, ms, "hive", "steps_per_s")
        if ms < 1.0:
            ratio = ratio_of(own, values_of(rows, kind, ms, "AsyncVectorEnv", "steps_per_s"))
            promise = f"{kind} {ms:g} ms: at least 1.5 x AsyncVectorEnv"
            checks.append(Check(promise, spread_text(ratio), ratio.median >= 1.5))
        else:
            way = "hive, cores" if kind == "busy" else "hive"
            share = statistics.median(values_of(rows, kind, ms, way, "of_ideal"))
            checks.append(Check(f"{kind} {ms:g} ms: at least 97 % of the ideal", percent(share), share >= 0.97))
    return checks


def values_of(rows: Sequence[Mapping[str, Any]], kind: str, ms: float, way: str, column: str) -> list[float]:
    """Return the values of a column, one of each repetition."""
    wanted = (kind, ms, way)
    found = [row for row in rows if (row["kind"], row["ms"], row["way"]) == wanted]
    return [row[column] for row in sorted(found, key=lambda row: row["repetition"])]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", choices=["busy", "sleeping"], default=[], help="default: both")
    parser.add_argument("--ms", action="append", type=float, default=[], help="milliseconds of a step; default: all")
    add_repetitions(parser, 3, 2.0)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="append all measurements to this file")


BENCH = Bench(
    "processes",
    "environments in processes of their own beside SubprocVecEnv and AsyncVectorEnv",
    "example: scripts/bench processes --only busy --ms 0.1 --repetitions 1",
    _options,
    measure,
)
