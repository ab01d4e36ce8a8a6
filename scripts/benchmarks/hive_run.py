"""One measured run of hive, started as users start it: `hive up CONFIG --name ...`, with everything on.

    hive up ...  ->  first update  ->  look  ->  `seconds` later: look, end the run  ->  summary.json, metrics.jsonl

The rate is that of summary.json: the steps that updates applied over the time from the first to the last of them. All
other figures are differences of the two looks, so that starting and ending are not in them. A look asks the supervisor
over its control socket, as `hive ps` does; it reads status pages, so it costs the run nothing.

    share of a phase      of the time between the looks, of one actor. A collector's busy phases are `policy` and `env`.
    runtime's CPU share   CPU that the runtime took, of all CPU that the run's processes took (the view in the
                          foreground is left out). The runtime's are the supervisor, the fork server and the recorder
                          whole, and of every other process the part

                              runtime / (runtime + busy)

                          where both are times of its status pages. Phases are measured in time that passes, CPU by
                          the kernel: the quotient splits the one by the other. It is an upper bound, a good one only
                          while there are cores to spare: who is woken often takes the core of who rang, which has
                          then just entered "runtime". Where actors share a process (`single`) a page says "runtime"
                          while its neighbours work, so there all that is nobody's busy time counts, idle time too.
    slots/s, messages/s   what channels carried: rollouts and gradients in shared memory, which need no message, and
                          messages over sockets. Acknowledgements and doorbells are not counted.
    cpu_cores             CPU seconds per second of the run's processes, in all and of each
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

from benchmarks.programs import START_S, BenchError, tail
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_run_facts
from hive.runtime.control import ControlClient, open_control

__all__ = [
    "END_S",
    "NAME",
    "POLL_S",
    "Look",
    "connected",
    "figures_between",
    "first_update",
    "lags_of",
    "last_words",
    "measure_run",
    "processes_of",
    "results_of",
    "started",
]

NAME = "bench"
POLL_S = 0.05  # between two questions whether the first update is done: rarely enough to cost nothing
END_S = 60.0  # for a run to drain: twice supervision.drain_s
RUNTIME_PROCESSES = ("supervisor", "fork-server", "recorder")


@dataclass(frozen=True)
class Look:
    """A run at one moment: its status, and the CPU seconds of its processes by pid."""

    at: float
    status: Mapping[str, Any]
    cpu: Mapping[int, float]


def measure_run(config: str, seconds: float) -> dict[str, Any]:
    """Runs `config`, a TOML text, for `seconds` after its first update. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
        folder = Path(name)
        (folder / "bench.toml").write_text(config)
        directory = RunDirectory(folder / "runs" / f"{NAME}-1")
        with started(folder) as process:
            try:
                first, last = _watch(directory, process, seconds)
                process.wait(END_S)
                summary = Summary.read(directory.summary_file)
                records = [json.loads(line) for line in directory.metrics_file.read_text().splitlines()]
            except (HiveError, BenchError, subprocess.TimeoutExpired) as error:
                raise BenchError(f"hive up: {error}\n{last_words(folder, directory)}") from error
    if not summary.steps_per_s or summary.state != "stopped" or any(summary.restarts.values()):
        raise BenchError(f"the run was {summary.state} ({summary.stop_reason}), restarts: {summary.restarts}")
    return {
        "steps_per_s": summary.steps_per_s,
        "updates_per_s": summary.updates / summary.train_s,
        **figures_between(first, last),
        **lags_of(records),
    }


@contextmanager
def started(folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """`hive up bench.toml` in the foreground, in a home of its own. Whatever happens, the run ends with the block."""
    command = [sys.executable, "-P", "-m", "hive", "up", "bench.toml", "--name", NAME]
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
        for _ in range(2):  # the first asks the run to drain, the second ends it now
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(END_S)
                except subprocess.TimeoutExpired:
                    continue


def _watch(directory: RunDirectory, process: subprocess.Popen[bytes], seconds: float) -> tuple[Look, Look]:
    """Looks once after the first update and once `seconds` later, and ends the run. Raises HiveError, BenchError."""
    with closing(connected(directory, process)) as client:
        first_update(client, process)
        first = _look(client)
        time.sleep(seconds)
        last = _look(client)
        client.down("the bench has seen enough")
        return first, last


def first_update(client: ControlClient, process: subprocess.Popen[bytes]) -> None:
    """Waits for it. Raises BenchError."""
    limit = time.monotonic() + START_S
    while not results_of(client.status()).get("updates"):
        if time.monotonic() > limit or process.poll() is not None:
            raise BenchError(f"no update within {START_S:.0f} s")
        time.sleep(POLL_S)


def connected(directory: RunDirectory, process: subprocess.Popen[bytes]) -> ControlClient:
    """A line to its supervisor, as soon as it listens. Raises BenchError."""
    limit = time.monotonic() + START_S
    while time.monotonic() < limit and process.poll() is None:
        try:
            return open_control(Path(read_run_facts(directory).socket_folder))
        except HiveError:
            time.sleep(POLL_S)
    raise BenchError("the run did not begin")


def last_words(folder: Path, directory: RunDirectory) -> str:
    """What the view and the supervisor wrote, for an error: the folder goes with the run."""
    files = (folder / "output", directory.logs / "supervisor.out", directory.events_file)
    return "\n".join(tail(file.read_text()) for file in files if file.exists())


def _look(client: ControlClient) -> Look:
    status = client.status()
    return Look(time.monotonic(), status, {pid: _cpu_seconds(pid) for pid in {pid for _, pid in processes_of(status)}})


def _cpu_seconds(pid: int) -> float:
    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.Error:
        raise BenchError(f"process {pid} of the run is gone") from None
    return float(used.user + used.system)


def processes_of(status: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """Who lives in which process; several actors may share one."""
    yield "supervisor", status["pid"]
    for one in (*status["helpers"], *status["actors"]):
        yield one["name"], one["pid"]


def _tenants(status: Mapping[str, Any]) -> dict[int, list[str]]:
    """Process -> who lives in it."""
    found: dict[int, list[str]] = {}
    for name, pid in processes_of(status):
        found.setdefault(pid, []).append(name)
    return found


def results_of(status: Mapping[str, Any]) -> Mapping[str, float]:
    """The counters of the actor that counts for the whole run."""
    return next((a["counters"] for a in status["actors"] if a["name"] == status["results_actor"]), {})


# --- figures


def figures_between(first: Look, last: Look) -> dict[str, Any]:
    """What happened between two looks; the module says how each figure is meant. `phases_ms` are those of an update."""
    wall = last.at - first.at
    before = {actor["name"]: actor for actor in first.status["actors"]}
    spent = {actor["name"]: _spent(before[actor["name"]], actor) for actor in last.status["actors"]}
    collectors = [kinds for name, kinds in spent.items() if name.startswith("collector")]
    updates = results_of(last.status)["updates"] - results_of(first.status)["updates"]
    slots, messages = _carried(first.status, last.status)
    return {
        "collector_share": statistics.mean(kinds["busy"] / sum(kinds.values()) for kinds in collectors),
        "collector_wait_share": statistics.mean(
            (kinds["wait_in"] + kinds["wait_out"]) / sum(kinds.values()) for kinds in collectors
        ),
        "runtime_cpu_share": _runtime_cpu_share(first, last, spent),
        "cpu_cores": sum(last.cpu[pid] - first.cpu[pid] for pid in last.cpu) / wall,
        "cpu_cores_of": {
            " + ".join(names): (last.cpu[pid] - first.cpu[pid]) / wall for pid, names in _tenants(last.status).items()
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
    """Seconds of one actor by kind of phase. Pages give the shares of its whole life, and the seconds of all phases."""
    life = [sum(actor["phases"].values()) for actor in (before, after)]
    return {
        kind: max(after[kind] * life[1] - before[kind] * life[0], 0.0)
        for kind in ("busy", "wait_in", "wait_out", "runtime")
    }


def _runtime_cpu_share(first: Look, last: Look, spent: Mapping[str, Mapping[str, float]]) -> float:
    total = runtime = 0.0
    for pid, names in _tenants(last.status).items():
        cpu = last.cpu[pid] - first.cpu[pid]
        busy = sum(spent[name]["busy"] for name in names if name in spent)
        own = spent[names[0]]["runtime"] if len(names) == 1 and names[0] in spent else last.at - first.at - busy
        whole = any(name in RUNTIME_PROCESSES for name in names)
        total += cpu
        runtime += cpu if whole else cpu * max(own, 0.0) / max(own + busy, 1e-9)
    return runtime / total if total else 0.0


def _carried(first: Mapping[str, Any], last: Mapping[str, Any]) -> tuple[int, int]:
    """Slots and messages that channels carried. Those of messages have their account on the producer's page."""
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
    """The mean lags over the lines of metrics.jsonl; None where no line has them."""
    found: dict[str, float | None] = {}
    for name in ("policy", "gradient"):
        values = [record[f"lag/{name}_mean"] for record in records if f"lag/{name}_mean" in record]
        found[f"{name}_lag"] = statistics.mean(values) if values else None
    return found
