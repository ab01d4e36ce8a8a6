"""`scripts/soak`: check that neither memory nor the number of descriptors grows in a long run at full speed.

Every 10 s it samples every process of the run: supervisor, fork server and the processes of actors. Memory is anonymous
and shared memory of /proc/PID/smaps_rollup: Pss_Anon + Pss_Shmem. A page that several processes share counts
proportionally in each, so the sum is the memory of the run. Only the second half of the time is checked, because memory
that is allocated, loaded or touched for the first time belongs to the first half:

    memory        a straight line through the sums, by least squares, rises by less than 1 MB a minute
    descriptors   each process has the same minimum in the third and in the last quarter: a file that is open only while
                  a sample is taken does not change the minimum, one that is never closed does
    processes     are the same from the first sample to the last: a restart would hide leaked memory

Exit codes: 0 no growth · 1 growth, or the run failed · 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.harness import aligned, begin, say, write_document
from benchmarks.hive_run import names_by_pid
from benchmarks.machine import load_average
from benchmarks.programs import BenchError

from chaotic.leaks import memory_in
from chaotic.sandbox import Sandbox
from chaotic.watched import Watched, results_of
from hive.errors import HiveError
from hive.records import Summary

EVERY_S = 10.0  # seconds between samples
SAMPLES_PER_LINE = 6  # samples for each line of progress: one line a minute
LEAST_MINUTES = 1.0  # gives four samples in the second half, the least for a slope
LEAST_SAMPLES = 4  # minimum samples in the second half: two in each quarter
MOST_MB_PER_MINUTE = 1.0
ENDLESS = ("run.steps=1_000_000_000_000", "run.stop_at_return=1e12")  # the soak ends the run, not its goal


@dataclass(frozen=True)
class Measured:
    """A process at one moment: its memory in MB (10^6 bytes), and its descriptors."""

    pid: int
    mb: float
    descriptors: int


@dataclass(frozen=True)
class Sample:
    """All processes of a run, by name, `at` seconds after the first sample."""

    at: float
    processes: Mapping[str, Measured]

    @property
    def mb(self) -> float:
        return sum(process.mb for process in self.processes.values())


def soak(config: Path, overrides: list[str], minutes: float) -> list[Sample]:
    """Run `config` for `minutes` and return the samples. Raises BenchError when it cannot start, or fails."""
    sandbox = Sandbox()
    try:
        directory = sandbox.up(config.resolve(), [*overrides, *ENDLESS])
        with closing(Watched(directory)) as watched:
            samples = list(_samples(watched, minutes))
        sandbox.down(directory, now=False)
        summary = Summary.read(directory.summary_file)
    except HiveError as error:
        raise BenchError(str(error)) from error
    finally:
        sandbox.close()
    if summary.state != "stopped" or any(summary.restarts.values()):
        raise BenchError(f"the run was {summary.state} ({summary.stop_reason}), restarts: {summary.restarts}")
    say(f"{summary.env_steps:,} steps, {summary.steps_per_s or 0:,.0f} a second")
    return samples


def _samples(watched: Watched, minutes: float) -> Iterator[Sample]:
    begun = time.monotonic()
    for number in range(round(60.0 * minutes / EVERY_S) + 1):
        time.sleep(max(0.0, begun + number * EVERY_S - time.monotonic()))
        status = watched.status()
        if status is None:
            raise BenchError("the run ended by itself")
        at = time.monotonic() - begun
        sample = Sample(at, {" + ".join(names): measured(pid) for pid, names in names_by_pid(status).items()})
        yield sample
        if number % SAMPLES_PER_LINE == 0:
            say(f"{at / 60:5.1f} min  {sample.mb:8.1f} MB  {int(results_of(status).get('updates', 0)):,} updates")


def measured(pid: int) -> Measured:
    """Measure the memory and descriptors of a process. Raises BenchError when it has exited."""
    folder = Path(f"/proc/{pid}")
    try:
        memory = sum(memory_in((folder / "smaps_rollup").read_text(), ("Pss_Anon", "Pss_Shmem")))
        return Measured(pid, memory / 1e6, len(os.listdir(folder / "fd")))
    except OSError as error:
        raise BenchError(f"process {pid} of the run has exited ({error})") from None


def second_half(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the second half. Raises BenchError if there are fewer than `LEAST_SAMPLES`."""
    late = list(samples[len(samples) // 2 :])
    if len(late) < LEAST_SAMPLES:
        raise BenchError(f"{len(late)} samples in the second half; {LEAST_SAMPLES} are needed")
    return late


def growth_of(samples: Sequence[Sample]) -> dict[str, tuple[float, float, float]]:
    """Return memory in MB at the first and the last sample and the slope in MB a minute, of each process and of all."""
    late = second_half(samples)
    minutes = [sample.at / 60 for sample in late]
    curves = {name: [sample.processes[name].mb for sample in samples] for name in samples[0].processes}
    curves["all"] = [sample.mb for sample in samples]
    return {
        name: (mb[0], mb[-1], statistics.linear_regression(minutes, mb[-len(late) :]).slope)
        for name, mb in curves.items()
    }


def failures_of(samples: Sequence[Sample]) -> list[str]:
    """Return a sentence for each check that fails."""
    pids = [{name: process.pid for name, process in sample.processes.items()} for sample in samples]
    if changed := sorted({name for later in pids for name, _ in later.items() ^ pids[0].items()}):
        return [f"processes started or exited: {', '.join(changed)}"]
    failures, (*_, slope) = [], growth_of(samples)["all"]
    if slope >= MOST_MB_PER_MINUTE:
        failures.append(f"memory grows by {slope:.2f} MB a minute")
    late = second_half(samples)
    quarter = len(late) // 2
    for name in samples[0].processes:
        counts = [sample.processes[name].descriptors for sample in late]
        before, after = min(counts[:quarter]), min(counts[quarter:])
        if before != after:
            failures.append(f"{name} had {before} descriptors in the third quarter and {after} in the last")
    return failures


def lines_of(samples: Sequence[Sample]) -> list[str]:
    """Return the table and the verdict."""
    failures = failures_of(samples)
    if failures and failures[0].startswith("processes"):  # no process can be followed to the end
        return [f"FAIL: {failures[0]}"]
    rows = [
        (name, f"{first:.1f}", f"{last:.1f}", f"{slope:+.3f}")
        for name, (first, last, slope) in growth_of(samples).items()
    ]
    return [
        f"{len(samples)} samples in {samples[-1].at / 60:.1f} minutes. MB/min: in the second half.",
        *aligned(("process", "MB at first", "MB at last", "MB/min"), rows),
        *(f"FAIL: {failure}" for failure in failures),
        *([] if failures else ["pass: memory is flat, descriptors are constant"]),
    ]


def _minutes(text: str) -> float:
    minutes = float(text)
    if not minutes >= LEAST_MINUTES:
        raise argparse.ArgumentTypeError(f"expected minutes from {LEAST_MINUTES:g}, got `{text}`")
    return minutes


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `soak` command."""
    parser = argparse.ArgumentParser(
        prog="soak",
        description="Runs a config for a long time and reports whether memory or descriptors grow.",
        epilog="example: scripts/soak --minutes 30 --config examples/cartpole.toml --json soak.json",
    )
    parser.add_argument("--config", type=Path, required=True, help="a TOML file")
    parser.add_argument("--minutes", type=_minutes, default=30.0, help="default %(default)g")
    parser.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeat)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples and figures to this file")
    options = parser.parse_args(arguments)
    try:
        machine = begin(options.json)
        samples = soak(options.config, options.set, options.minutes)
    except BenchError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    machine["load_after"] = load_average()
    failures = failures_of(samples)
    document: dict[str, Any] = {"soak": str(options.config), "machine": machine, "minutes": options.minutes}
    document |= {"failures": failures, "samples": [dataclasses.asdict(sample) for sample in samples]}
    write_document(options.json, document)
    print("\n".join(lines_of(samples)))
    sys.exit(1 if failures else 0)
