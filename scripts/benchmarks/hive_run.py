"""One measured run of hive, started as users start it: `hive up CONFIG --name ...`, with everything on.

    hive up ...  ->  first update  ->  sample  ->  `seconds` later: sample, end the run  ->  summary.json, metrics.jsonl

All figures are differences of the two samples, so they exclude start and end. The rate is that of the steps that
updates applied. A sample is the supervisor's status, requested over its control socket as `hive ps` does. The
supervisor reads it from status pages, which costs the actors nothing.

    share of a phase      of one actor's time between the samples. A collector's busy phases are `policy` and `env`.
                          The mean over the actors of a group: collectors, gradient workers, learner.
    runtime's CPU share   CPU time of the runtime, divided by the CPU time of all the run's processes (without the view
                          in the foreground). The supervisor, the fork server and the recorder count fully, every other
                          process by the part

                              runtime / (runtime + busy)

                          of its CPU time, where both are times of its status pages. Phases are measured in wall time
                          and CPU by the kernel, so the quotient is an upper bound. It is close only while cores are
                          idle: a process that is notified often takes the core of the notifying process, which has
                          just entered "runtime". Where actors share a process (`single`), an actor's page shows
                          "runtime" while its neighbours work. All time that is busy for no actor counts there, idle
                          time included.
    slots/s, messages/s   carried by channels: rollouts and gradients in shared memory, which need no message, and
                          messages over sockets. Acknowledgements and notifications are not counted.
    cpu_cores             CPU seconds per second of the run's processes, in total and for each process
    lag                   means of lag/policy_mean and lag/gradient_mean over the lines of metrics.jsonl, in versions
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.programs import START_S, BenchError, importing, tail
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_run_facts
from hive.runtime.run.control import ControlClient, open_control

__all__ = [
    "END_S",
    "NAME",
    "POLL_S",
    "Look",
    "connected",
    "figures_between",
    "first_update",
    "lags_of",
    "last_output",
    "measure_run",
    "processes_of",
    "results_of",
    "started",
]

NAME = "bench"
POLL_S = 0.05  # seconds between two requests while waiting for an update: few enough not to disturb the run
END_S = 60.0  # seconds for a run to drain: twice supervision.drain_s
RUNTIME_PROCESSES = ("supervisor", "fork-server", "recorder")


@dataclass(frozen=True)
class Look:
    """A sample of a run at one moment: its status, and the CPU seconds of its processes by pid."""

    at: float
    status: Mapping[str, Any]
    cpu: Mapping[int, float]


def measure_run(config: str, seconds: float, keys: Sequence[str] = (), warm_updates: int = 1) -> dict[str, Any]:
    """Run `config` for `seconds` after its first update; return its figures. Raises BenchError.

    config: a TOML text. keys: `KEY=VALUE`, which override it. warm_updates: updates before the first sample, instead of
    one: the first turns of a large network touch their memory for the first time.
    """
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
        folder = Path(name)
        (folder / "bench.toml").write_text(config)
        directory = RunDirectory(folder / "runs" / f"{NAME}-1")
        with started(folder, importing(), keys) as process:
            try:
                first, last = _watch(directory, process, seconds, warm_updates)
                process.wait(END_S)
                summary = Summary.read(directory.summary_file)
                records = [json.loads(line) for line in directory.metrics_file.read_text().splitlines()]
            except (HiveError, BenchError, subprocess.TimeoutExpired) as error:
                raise BenchError(f"hive up: {error}\n{last_output(folder, directory)}") from error
    if not summary.updates or summary.state != "stopped" or any(summary.restarts.values()):
        raise BenchError(f"the run was {summary.state} ({summary.stop_reason}), restarts: {summary.restarts}")
    return {
        **rates_between(first, last),
        **figures_between(first, last),
        **lags_of(records),
    }


@contextmanager
def started(
    folder: Path, variables: Mapping[str, str] | None = None, keys: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `hive up bench.toml` in the foreground with a separate HIVE_HOME. The run always ends with the block."""
    command = [sys.executable, "-P", "-m", "hive", "up", "bench.toml", "--name", NAME]
    command += [word for key in keys for word in ("--set", key)]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "HIVE_HOME": str(folder / "runs"), **(variables or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        for _ in range(2):  # the first signal makes the run drain, the second ends it at once
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    continue


def _watch(
    directory: RunDirectory, process: subprocess.Popen[bytes], seconds: float, warm_updates: int
) -> tuple[Look, Look]:
    """Sample after the first updates and again `seconds` later, then end the run. Raises HiveError, BenchError."""
    with closing(connected(directory, process)) as client:
        first_update(client, process, warm_updates)
        first = _look(client)
        time.sleep(seconds)
        last = _look(client)
        client.down("the bench")
        return first, last


def first_update(client: ControlClient, process: subprocess.Popen[bytes], updates: int = 1) -> None:
    """Wait for the first `updates` updates. Raises BenchError after `START_S`, or where the run exits."""
    limit = time.monotonic() + START_S
    while results_of(client.status()).get("updates", 0) < updates:
        if time.monotonic() > limit or process.poll() is not None:
            raise BenchError(f"fewer than {updates} updates within {START_S:.0f} s")
        time.sleep(POLL_S)


def connected(directory: RunDirectory, process: subprocess.Popen[bytes]) -> ControlClient:
    """Connect to the run's supervisor as soon as it listens. Raises BenchError."""
    limit = time.monotonic() + START_S
    while time.monotonic() < limit and process.poll() is None:
        try:
            return open_control(Path(read_run_facts(directory).socket_folder))
        except HiveError:
            time.sleep(POLL_S)
    raise BenchError("the run did not start")


def last_output(folder: Path, directory: RunDirectory) -> str:
    """Return the end of the output of the view and the supervisor for an error, since the folder is deleted."""
    files = (folder / "output", directory.logs / "supervisor.out", directory.events_file)
    return "\n".join(tail(file.read_text()) for file in files if file.exists())


def _look(client: ControlClient) -> Look:
    status = client.status()
    return Look(time.monotonic(), status, {pid: _cpu_seconds(pid) for pid in {pid for _, pid in processes_of(status)}})


def _cpu_seconds(pid: int) -> float:
    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.Error:
        raise BenchError(f"process {pid} of the run has exited") from None
    return float(used.user + used.system)


def processes_of(status: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """Yield (name, pid) of every helper and actor. Several actors may share a process."""
    yield "supervisor", status["pid"]
    for one in (*status["helpers"], *status["actors"]):
        yield one["name"], one["pid"]


def _names_by_pid(status: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return the names of the helpers and actors in each process."""
    found: dict[int, list[str]] = {}
    for name, pid in processes_of(status):
        found.setdefault(pid, []).append(name)
    return found


def results_of(status: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the results of the run so far; empty before it has begun."""
    results: Mapping[str, float] = status.get("results", {})
    return results


# --- figures


def rates_between(first: Look, last: Look) -> dict[str, float]:
    """Return the environment steps and the updates per second between two samples.

    The summary's rate would count the steps of the first round, but not the time in which they were made.
    """
    names = {"steps_per_s": "env_steps", "updates_per_s": "updates"}
    before, after = results_of(first.status), results_of(last.status)
    return {rate: (after[name] - before[name]) / (last.at - first.at) for rate, name in names.items()}


def figures_between(first: Look, last: Look) -> dict[str, Any]:
    """Return the figures between two samples, as the module defines them. `phases_ms` are per update."""
    wall = last.at - first.at
    before = {actor["name"]: actor for actor in first.status["actors"]}
    spent = {actor["name"]: _spent(before[actor["name"]], actor) for actor in last.status["actors"]}
    collectors = [kinds for name, kinds in spent.items() if name.startswith("collector")]
    updates = results_of(last.status)["updates"] - results_of(first.status)["updates"]
    slots, messages = _carried(first.status, last.status)
    return {
        **{f"{group}_share": _busy_share(spent, group) for group in ("collector", "gradient_worker", "learner")},
        "collector_wait_share": statistics.mean(
            (kinds["wait_in"] + kinds["wait_out"]) / sum(kinds.values()) for kinds in collectors
        ),
        "runtime_cpu_share": _runtime_cpu_share(first, last, spent),
        "cpu_cores": sum(last.cpu[pid] - first.cpu[pid] for pid in last.cpu) / wall,
        "cpu_cores_of": {
            " + ".join(names): (last.cpu[pid] - first.cpu[pid]) / wall
            for pid, names in _names_by_pid(last.status).items()
        },
        "slots_per_s": slots / wall,
        "messages_per_s": messages / wall,
        "phases_ms": {
            actor["name"]: {
                phase: 1e3 * (s - before[actor["name"]]["phases"].get(phase, 0.0)) / max(updates, 1)
                for phase, s in actor["phases"].items()
            }
            for actor in last.status["actors"]
        },
    }


def _spent(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """Return one actor's seconds by kind of phase. The status has shares since its start, and seconds of all phases."""
    total = [sum(actor["phases"].values()) for actor in (before, after)]
    return {
        kind: max(after[kind] * total[1] - before[kind] * total[0], 0.0)
        for kind in ("busy", "wait_in", "wait_out", "runtime")
    }


def _busy_share(spent: Mapping[str, Mapping[str, float]], group: str) -> float | None:
    """Return the mean busy share of the actors of a group; None if there are none."""
    actors = [kinds for name, kinds in spent.items() if name.rpartition("-")[0].replace("-", "_") == group]
    return statistics.mean(kinds["busy"] / sum(kinds.values()) for kinds in actors) if actors else None


def _runtime_cpu_share(first: Look, last: Look, spent: Mapping[str, Mapping[str, float]]) -> float:
    total = runtime = 0.0
    for pid, names in _names_by_pid(last.status).items():
        cpu = last.cpu[pid] - first.cpu[pid]
        busy = sum(spent[name]["busy"] for name in names if name in spent)
        own = spent[names[0]]["runtime"] if len(names) == 1 and names[0] in spent else last.at - first.at - busy
        whole = any(name in RUNTIME_PROCESSES for name in names)
        total += cpu
        runtime += cpu if whole else cpu * max(own, 0.0) / max(own + busy, 1e-9)
    return runtime / total if total else 0.0


def _carried(first: Mapping[str, Any], last: Mapping[str, Any]) -> tuple[int, int]:
    """Return (slots, messages) carried by channels. Only message channels have an account on the producer's page."""
    counted = {name.removesuffix(":produced") for actor in last["actors"] for name in actor["counters"]}
    slots = messages = 0
    for name, account in last["channels"].items():
        carried = account["produced"] - first["channels"][name]["produced"]
        if name in counted:
            messages += carried
        else:
            slots += carried
    return slots, messages


def lags_of(records: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the mean lags in versions over the lines of metrics.jsonl; None where no line has them."""
    found: dict[str, float | None] = {}
    for name in ("policy", "gradient"):
        values = [record[f"lag/{name}_mean"] for record in records if f"lag/{name}_mean" in record]
        found[f"{name}_lag"] = statistics.mean(values) if values else None
    return found
