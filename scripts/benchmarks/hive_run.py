"""One measured run of hive, started as users start it: `hive up CONFIG --name ...`, with everything on.

    hive up ...  ->  first update  ->  warm-up  ->  end of a round: sample
                 ->  `seconds` later  ->  end of a round: sample, end the run  ->  summary.json, metrics.jsonl

All figures are differences of the two samples, so they exclude start and end. The rate is that of the steps that
updates applied. Both samples follow at once when this number changed, so whole rounds lie between them. A sample is the
supervisor's status, requested over its control socket as `hive ps` does. The supervisor reads it from status pages,
which costs the actors nothing.

    share of a phase      of one actor's time between the samples. A collector's busy phases are `policy` and `env`.
                          The mean over the actors of a group: collectors, gradient workers, learner.
    runtime's CPU share   CPU time of the runtime, divided by the CPU time of all the run's processes (without the view
                          in the foreground). See `_runtime_cpu_shares`.
    cpu_cores_of          CPU seconds per second of each process of the run
    policy_lag            mean of lag/policy_mean over the lines of metrics.jsonl, in versions
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.counting import WARM_S
from benchmarks.programs import START_S, BenchError, hive_command, hive_environment, set_words, tail
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_run_facts
from hive.runtime.run.control import ControlClient, open_control

NAME = "bench"
POLL_S = 0.05  # seconds between two requests while waiting for an update: few enough not to disturb the run
EDGE_POLL_S = 0.01  # seconds between two requests while waiting for the end of a round: 0.2 % of a measurement of 5 s
END_S = 60.0  # seconds for a run to drain: twice supervision.drain_s
SOCKET_THREADS = "ZMQbg/"  # how the names of ZeroMQ's threads begin
RUNTIME_PROCESSES = ("supervisor", "fork-server", "recorder")

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Used:
    """CPU time of a process since it began, in seconds. `main` and `sockets` are parts of `cpu`."""

    cpu: float  # all threads on a core
    main: float  # its main thread on a core
    ready: float  # its main thread ready to run, while other threads had the cores
    sockets: float  # ZeroMQ's threads on a core

    def since(self, before: Used) -> Used:
        """Return the differences from an earlier sample."""
        return Used(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


@dataclass(frozen=True)
class Look:
    """A sample of a run at one moment: its status, and what its processes used by pid."""

    at: float
    status: Mapping[str, Any]
    used: Mapping[int, Used]


def measure_run(seconds: float, keys: Sequence[str], warm_updates: int = 1, hosts: int = 0) -> dict[str, Any]:
    """Run a config of these keys, `KEY=VALUE`, for `seconds` after its first updates; return its figures.

    warm_updates: updates before the first sample: the first turns of a large network touch their memory for the first
    time. hosts: how many the config names; each joins on this machine. Raises BenchError.
    """
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
        folder = Path(name)
        directory = run_directory(folder)
        with started(folder, keys) as process:
            try:
                with closing(_connected(directory, process)) as client, _joined(folder, process, hosts):
                    first, last = _watch(client, process, seconds, warm_updates)
                process.wait(END_S)
                summary = Summary.read(directory.summary_file)
                records = [json.loads(line) for line in directory.metrics_file.read_text().splitlines()]
            except (HiveError, BenchError, subprocess.TimeoutExpired) as error:
                raise BenchError(f"hive up: {error}\n{last_output(folder, directory)}") from error
    if not summary.updates or summary.state != "stopped" or any(summary.restarts.values()):
        raise BenchError(f"the run was {summary.state} ({summary.stop_reason}), restarts: {summary.restarts}")
    return {**rates_between(first, last), **figures_between(first, last), "policy_lag": policy_lag_of(records)}


def measure_budget(keys: Sequence[str], seconds: float, python: Path | None = None) -> dict[str, Any]:
    """Run a config of these keys to the end of its budget; return the seconds of training and those of the command.

    `seconds`: all steps at the rate between the first and the last update, so start and end do not count. seconds:
    limit of the whole run. python: of another environment with hive. Raises BenchError.
    """
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
        folder, begun = Path(name), time.monotonic()
        directory = run_directory(folder)
        with started(folder, keys, python=python) as process:
            try:
                process.wait(seconds)
                summary = Summary.read(directory.summary_file)
            except (HiveError, subprocess.TimeoutExpired) as error:
                raise BenchError(f"hive up: {error}\n{last_output(folder, directory)}") from error
    if summary.state != "finished" or not summary.steps_per_s:
        raise BenchError(f"the run was {summary.state} ({summary.stop_reason})")
    return {"seconds": summary.env_steps / summary.steps_per_s, "command_s": time.monotonic() - begun}


def run_directory(folder: Path) -> RunDirectory:
    """Return the directory of the run that `started` begins in `folder`."""
    return RunDirectory(folder / "runs" / f"{NAME}-1")


@contextmanager
def started(
    folder: Path, keys: Sequence[str], config: str = "", python: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `hive up bench.toml` in the foreground with a separate HIVE_HOME. The run always ends with the block."""
    (folder / "bench.toml").write_text(config)
    command = hive_command("up", "bench.toml", "--name", NAME, *set_words(keys), python=python)
    environment = hive_environment(folder / "runs")
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
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


def _awaited(process: subprocess.Popen[bytes], look: Callable[[], Seen | None], what: str, every_s: float) -> Seen:
    """Return the first result of `look` that is not None. Raises BenchError after `START_S`, or where the run exits."""
    limit = time.monotonic() + START_S
    while time.monotonic() < limit and process.poll() is None:
        if (seen := look()) is not None:
            return seen
        time.sleep(every_s)
    raise BenchError(f"{what} within {START_S:.0f} s")


@contextmanager
def _joined(folder: Path, process: subprocess.Popen[bytes], hosts: int) -> Iterator[None]:
    """Run `hive join` for each host of the run until the run ends. Raises BenchError if it does not wait for them."""

    def files() -> list[Path] | None:
        written = sorted((run_directory(folder).path / "hosts").glob("*.join"))
        return written if len(written) >= hosts else None

    environment = hive_environment(folder / "runs")
    joins = [
        subprocess.Popen(hive_command("join", file), env=environment, stdout=subprocess.DEVNULL)
        for file in _awaited(process, files, f"no place for {hosts} hosts", POLL_S)
    ]
    try:
        yield
    except BaseException:  # the run has not been asked to end, so its hosts would not end either
        for join in joins:
            join.terminate()
        raise
    finally:
        for join in joins:
            join.wait(END_S)


def _watch(
    client: ControlClient, process: subprocess.Popen[bytes], seconds: float, warm_updates: int
) -> tuple[Look, Look]:
    """Sample after the first updates and again `seconds` later, then end the run. Raises HiveError, BenchError."""

    def warm() -> bool | None:
        return results_of(client.status()).get("updates", 0) >= warm_updates or None

    def at_round_end() -> Look:
        before = results_of(client.status())["env_steps"]

        def changed() -> Look | None:
            look = _look(client)
            return look if results_of(look.status)["env_steps"] != before else None

        return _awaited(process, changed, "no round ended", EDGE_POLL_S)

    _awaited(process, warm, f"fewer than {warm_updates} updates", POLL_S)
    time.sleep(WARM_S)
    first = at_round_end()
    time.sleep(seconds)
    last = at_round_end()
    client.down("the bench")
    return first, last


def _connected(directory: RunDirectory, process: subprocess.Popen[bytes]) -> ControlClient:
    """Connect to the run's supervisor as soon as it listens. Raises BenchError."""

    def client() -> ControlClient | None:
        try:
            return open_control(Path(read_run_facts(directory).socket_folder))
        except HiveError:
            return None

    return _awaited(process, client, "the run did not start", POLL_S)


def last_output(folder: Path, directory: RunDirectory) -> str:
    """Return the end of the output of the view and the supervisor for an error, since the folder is deleted."""
    files = (folder / "output", directory.logs / "supervisor.out", directory.events_file)
    return "\n".join(tail(file.read_text()) for file in files if file.exists())


def _look(client: ControlClient) -> Look:
    status = client.status()
    return Look(time.monotonic(), status, {pid: _used(pid) for pid in {pid for _, pid in processes_of(status)}})


def _used(pid: int) -> Used:
    """Return the CPU time of a process. Raises BenchError where it has exited."""
    threads = Path(f"/proc/{pid}/task")
    cpu = main = ready = sockets = 0.0
    try:
        for thread in threads.iterdir():
            on_core, waiting, _ = map(int, (thread / "schedstat").read_text().split())
            cpu += on_core / 1e9
            if thread.name == str(pid):
                main, ready = on_core / 1e9, waiting / 1e9
            elif (thread / "comm").read_text().startswith(SOCKET_THREADS):
                sockets += on_core / 1e9
    except OSError:
        raise BenchError(f"process {pid} of the run has exited") from None
    return Used(cpu, main, ready, sockets)


def processes_of(status: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    """Yield (name, pid) of every helper and actor. Several actors may share a process."""
    yield "supervisor", status["pid"]
    for one in (*status["helpers"], *status["actors"]):
        yield one["name"], one["pid"]


def names_by_pid(status: Mapping[str, Any]) -> dict[int, list[str]]:
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
    used = {pid: last.used[pid].since(first.used[pid]) for pid in last.used}
    names = names_by_pid(last.status)
    return {
        **{f"{group}_share": _busy_share(spent, group) for group in ("collector", "gradient_worker", "learner")},
        "collector_wait_share": statistics.mean(
            (kinds["wait_in"] + kinds["wait_out"]) / sum(kinds.values()) for kinds in collectors
        ),
        **_runtime_cpu_shares(used, names, spent, wall),
        "cpu_cores_of": {" + ".join(those): used[pid].cpu / wall for pid, those in names.items()},
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


def _runtime_cpu_shares(
    used: Mapping[int, Used], names: Mapping[int, list[str]], spent: Mapping[str, Mapping[str, float]], wall: float
) -> dict[str, float]:
    """Return the runtime's share of all CPU time, and its bounds. used, wall: between two looks. names: by process.

    The supervisor, the fork server and the recorder count fully, and so do ZeroMQ's threads in every other process. The
    main thread of such a process is on a core for `main` seconds and ready without one for `ready` seconds (the
    kernel's schedstat), and its actors' pages show `busy` seconds of wall time. So the runtime's part of `main` is at
    least main - busy and at most main - (busy - ready), which agree while no thread waits for a core. Otherwise the
    estimate between them is main x runtime / (runtime + busy), where runtime is the wall time in which pages show
    neither work nor a wait. Actors that share a process take turns, so its idle time is the shortest wait among them.
    """
    total = max(sum(one.cpu for one in used.values()), 1e-9)
    estimate = least = most = 0.0
    for pid, one in used.items():
        if any(name in RUNTIME_PROCESSES for name in names[pid]):
            low = high = middle = one.cpu - one.sockets
        else:
            actors = [spent[name] for name in names[pid] if name in spent]
            busy = sum(kinds["busy"] for kinds in actors)
            idle = min((kinds["wait_in"] + kinds["wait_out"] for kinds in actors), default=0.0)
            runtime = max(wall - busy - idle, 0.0)
            low, high = max(one.main - busy, 0.0), one.main - min(max(busy - one.ready, 0.0), one.main)
            middle = min(max(one.main * runtime / max(runtime + busy, 1e-9), low), high)
        estimate += one.sockets + middle
        least += one.sockets + low
        most += one.sockets + high
    return {
        "runtime_cpu_share": estimate / total,
        "runtime_cpu_share_least": least / total,
        "runtime_cpu_share_most": most / total,
    }


def policy_lag_of(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean lag of the policy in versions over the lines of metrics.jsonl; None where no line has it."""
    values = [record["lag/policy_mean"] for record in records if "lag/policy_mean" in record]
    return statistics.mean(values) if values else None
