"""`scripts/soak`: check that neither memory nor the number of descriptors grows in a long run at full speed.

    hive up -d CONFIG ...  ->  every 10 s: memory and descriptors of each process  ->  hive down  ->  table, JSON

It samples every process of the run: supervisor, fork server and the processes of actors. The goal of the run is out of
reach, so that `hive down` ends it. Exit codes: 0 no growth · 1 growth, or the run failed · 2 usage.

    scripts/soak --minutes 30 --config examples/cartpole.toml --json soak.json

soak_figures.py defines the checks and the figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.harness import begin, say, write_document
from benchmarks.hive_run import processes_of, results_of
from benchmarks.machine import load_average
from benchmarks.programs import START_S, BenchError, tail
from benchmarks.soak_figures import Measured, Sample, document_of, failures_of, kilobytes, text_of
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_run_facts
from hive.runtime.run.control import ControlClient, open_control

EVERY_S = 10.0  # seconds between samples
SAMPLES_PER_LINE = 6  # samples for each line of progress: one line a minute
LEAST_MINUTES = 1.0  # gives four samples in the second half, the least for a slope
NAME = "soak"
ENDLESS = ("run.steps=1_000_000_000_000", "run.stop_at_return=1e12")  # `hive down` ends the run, not its goal
KB_IN_MB = 1024 / 1e6  # a kB of the kernel, 1024 bytes, in MB
END_S = 120.0  # seconds for `hive down`: four times supervision.drain_s


def parser() -> argparse.ArgumentParser:
    one = argparse.ArgumentParser(
        prog="soak",
        description="Runs a config for a long time and reports whether memory or descriptors grow.",
        epilog="example: scripts/soak --minutes 30 --config examples/cartpole.toml --json soak.json",
    )
    one.add_argument("--config", type=Path, required=True, help="a TOML file")
    one.add_argument("--minutes", type=_minutes, default=30.0, help="default %(default)g")
    one.add_argument("-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeat)")
    one.add_argument("--json", type=Path, metavar="FILE", help="write all samples and figures to this file")
    return one


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not LEAST_MINUTES <= minutes <= 7 * 24 * 60:
        raise argparse.ArgumentTypeError(f"expected minutes from {LEAST_MINUTES:g} to 10080, a week; got `{text}`")
    return minutes


def soak(config: Path, overrides: list[str], minutes: float) -> list[Sample]:
    """Run `config` for `minutes` and return the samples. Raises BenchError when it cannot start, or fails."""
    with tempfile.TemporaryDirectory(prefix="hive-soak-") as name:
        home = Path(name)
        directory = RunDirectory(home / f"{NAME}-1")
        with _running(home, config, overrides) as client:
            samples = list(_samples(client, minutes))
        summary = Summary.read(directory.summary_file)
        if summary.state != "stopped" or any(summary.restarts.values()):
            raise BenchError(f"the run was {summary.state} ({summary.stop_reason}), restarts: {summary.restarts}")
        say(f"{summary.env_steps:,} steps, {summary.steps_per_s or 0:,.0f} a second")
    return samples


@contextmanager
def _running(home: Path, config: Path, overrides: list[str]) -> Iterator[ControlClient]:
    """Start `hive up -d` with a separate HIVE_HOME and connect to it. The run always ends with the block."""
    keys = [f"--set={key}" for key in (*overrides, *ENDLESS)]
    _hive(home, "up", config.resolve(), "-d", "--name", NAME, *keys)
    try:
        facts = read_run_facts(RunDirectory(home / f"{NAME}-1"))
        with closing(open_control(Path(facts.socket_folder))) as client:
            yield client
    except HiveError as error:
        raise BenchError(str(error)) from error
    finally:
        _hive(home, "down", f"{NAME}-1")


def _hive(home: Path, *words: object) -> None:
    command = [sys.executable, "-P", "-m", "hive", *map(str, words)]
    variables = {**os.environ, "HIVE_HOME": str(home)}
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=START_S + END_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"`hive {words[0]}` did not end in time") from None
    if done.returncode != 0:
        raise BenchError(f"`hive {words[0]}` ended with code {done.returncode}\n{tail(done.stderr)}")


def _samples(client: ControlClient, minutes: float) -> Iterator[Sample]:
    begun = time.monotonic()
    for number in range(round(60.0 * minutes / EVERY_S) + 1):
        time.sleep(max(0.0, begun + number * EVERY_S - time.monotonic()))
        status = client.status()
        at = time.monotonic() - begun
        sample = Sample(at, {name: sampled(pid) for name, pid in _by_process(status).items()})
        yield sample
        if number % SAMPLES_PER_LINE == 0:
            updates = int(results_of(status).get("updates", 0))
            say(f"{at / 60:5.1f} min  {sample.mb:8.1f} MB  {updates:,} updates")


def _by_process(status: dict[str, Any]) -> dict[str, int]:
    """Return the pid of each process by the names in it, joined by " + ": several actors may share a process."""
    names_by_pid: dict[int, list[str]] = {}
    for name, pid in processes_of(status):
        names_by_pid.setdefault(pid, []).append(name)
    return {" + ".join(names): pid for pid, names in names_by_pid.items()}


def sampled(pid: int) -> Measured:
    """Measure the memory and descriptors of a process. Raises BenchError when it has exited."""
    folder = Path("/proc") / str(pid)
    try:
        text = (folder / "smaps_rollup").read_text()
        memory = kilobytes(text, "Pss_Anon") + kilobytes(text, "Pss_Shmem")
        files = kilobytes(text, "Pss_File")
        return Measured(pid, memory * KB_IN_MB, len(os.listdir(folder / "fd")), files * KB_IN_MB)
    except (OSError, KeyError) as error:
        raise BenchError(f"process {pid} of the run has exited ({error})") from None


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `soak` command."""
    options = parser().parse_args(arguments)
    try:
        machine = begin(options.json)
        samples = soak(options.config, options.set, options.minutes)
    except BenchError as error:
        say(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    machine["load_after"] = load_average()
    write_document(options.json, document_of(samples, str(options.config), options.minutes, machine))
    print(text_of(samples))
    sys.exit(1 if failures_of(samples) else 0)
