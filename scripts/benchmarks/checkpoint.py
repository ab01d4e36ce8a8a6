"""`bench checkpoint`: measure how much time checkpoints, publications and recoveries take a large network's learner.

    asynchronous    a checkpoint every few seconds, by the clock
    pipelined       a checkpoint every N updates, each at a resume barrier

Each is a separate run, started by `hive up`: 1 collector, 1 gradient worker, learner, recorder, and a network of
25 million parameters. The learner records the times of its work (timed_learner.py). After `seconds` it is killed a few
times, and the time to its successor's first turn is measured. Then the run is ended as usual.

    pause       from the end of a turn until the checkpoint is handed over: a pin on the blocks, and a message. The
                recorder reads the blocks later, in place. CPU: the part of the pause in which the learner was busy. In
                the rest it waited for a core, which the recorder that was just notified may have taken
    turn        gradients to new weights, the learner's own work. Three kinds: no checkpoint is being written; the first
                after a checkpoint was handed over (it uses another block, whose memory may be new); the recorder writes
    gap         between the ends of two turns, waiting for gradients included. It shows the recorder's work where there
                are fewer cores than processes. In the first gap after a resume barrier the pipeline fills again
    publish     copying the weights into the behaviour board, compared with a plain copy of the same number of bytes:
                a second copy would double the time
    recovery    from `kill -9` to the end of the successor's first turn. The part "takes up the state" would show an
                extra copy of the state; a publication that was due by then is subtracted from it

The first turns of each learner are left out, because they touch their memory for the first time.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.hive_run import END_S, NAME, POLL_S, connected, first_update, last_output, results_of, started
from benchmarks.programs import START_S, BenchError
from benchmarks.timed_learner import BORN, CHECKPOINT, PUBLISH, SETUP, TIMES, TURN, UNIT, Record, records_in
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_jsonl
from hive.runtime.run.control import ControlClient

__all__ = ["KINDS", "PARAMETERS", "Kind", "config_of", "figures_of", "incarnations", "measure_checkpoints"]

WARM_TURNS = 8  # turns of each learner that are left out: the number of blocks in a board
SETTLE_TURNS = 5  # further turns of a successor before it is killed too
MIDDLEWARE = (4096, 4096, 2048)
PARAMETERS = 4 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 2048 + 2048 + 2048 * 3 + 3
"""The number of parameters: four inputs (CartPole), the layers of `MIDDLEWARE`, two actions and a value."""

SCRIPTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Kind:
    """A mode of the run: how collectors and gradient workers communicate, and when a checkpoint is due."""

    name: str
    every: str


KINDS = (Kind("asynchronous", "{ seconds = 5 }"), Kind("pipelined", "{ updates = 20 }"))

CONFIG = """\
[run]
scheme = "benchmarks.timed_learner:topology"
seed = 1
steps = 1_000_000_000_000
[env]
id = "CartPole-v1"
[collection]
envs = 4
rollout = 4
communication = "{kind.name}"
[gradients]
workers = 1
communication = "{kind.name}"
[algorithm]
name = "impala"
learning_rate = 1e-5
[network]
middleware = {middleware}
separate_networks = false
normalize_observations = false
normalize_rewards = false
[checkpoint]
every = {kind.every}
keep = 1
[supervision]
restarts = 100
"""


def config_of(kind: Kind, middleware: Sequence[int] = MIDDLEWARE) -> str:
    """Return the config of the run. Rollouts are small, so that turns are short and many are measured."""
    return CONFIG.format(kind=kind, middleware=list(middleware))


def measure_checkpoints(
    kind: Kind, seconds: float, kills: int, middleware: Sequence[int] = MIDDLEWARE
) -> dict[str, Any]:
    """Run `kind` for `seconds`, kill its learner `kills` times, and return `figures_of` the run. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as name:
        folder = Path(name)
        (folder / "bench.toml").write_text(config_of(kind, middleware))
        directory = RunDirectory(folder / "runs" / f"{NAME}-1")
        path = os.pathsep.join(filter(None, [str(SCRIPTS), os.environ.get("PYTHONPATH")]))
        with started(folder, {"PYTHONPATH": path}) as process:
            try:
                killed = _watch(directory, process, seconds, kills)
                process.wait(END_S)
                summary = Summary.read(directory.summary_file)
                if summary.state != "stopped" or summary.restarts["learner-0"] != kills:
                    raise BenchError(
                        f"the run was {summary.state} ({summary.stop_reason}), restarts: {summary.restarts}"
                    )
                records = records_in((directory.path / TIMES).read_bytes())
                events = [str(event.get("kind")) for event in read_jsonl(directory.events_file)]
            except (HiveError, BenchError, OSError, json.JSONDecodeError, subprocess.TimeoutExpired) as error:
                raise BenchError(f"hive up: {error}\n{last_output(folder, directory)}") from error
    if "not saved" in events:
        raise BenchError("a checkpoint could not be written")
    return {**figures_of(records, killed), "skipped": events.count("skipped")}


def _watch(directory: RunDirectory, process: subprocess.Popen[bytes], seconds: float, kills: int) -> list[int]:
    """Wait, kill the learner again and again, end the run; return the times of the kills in ns."""
    killed = []
    with closing(connected(directory, process)) as client:
        first_update(client, process)
        time.sleep(seconds)
        for _ in range(kills):
            pid = next(a["pid"] for a in client.status()["actors"] if a["name"] == "learner-0")
            killed.append(time.monotonic_ns())
            os.kill(pid, signal.SIGKILL)
            begun = results_of(client.status())["updates"]  # read before the kill, it would be far behind
            _until_updates(client, begun + SETTLE_TURNS + WARM_TURNS)
        client.down("the bench")
    return killed


def _until_updates(client: ControlClient, updates: float) -> None:
    limit = time.monotonic() + START_S
    while results_of(client.status()).get("updates", 0) < updates:
        if time.monotonic() > limit:
            raise BenchError(f"the learner's successor made no update within {START_S:.0f} s")
        time.sleep(POLL_S)


# --- figures


def incarnations(records: Sequence[Record]) -> list[list[Record]]:
    """Split the records by incarnation of the learner; each begins with its BORN."""
    births = [position for position, record in enumerate(records) if record.kind == BORN]
    return [list(records[start:end]) for start, end in itertools.pairwise([*births, len(records)])]


def figures_of(records: Sequence[Record], killed: Sequence[int]) -> dict[str, list[float]]:
    """Return the measured milliseconds by name. Raises BenchError where a required figure is missing.

    records: of all learners of a run. killed: when each learner but the last was killed, in ns.
    """
    learners = incarnations(records)
    if len(learners) != len(killed) + 1:
        raise BenchError(f"{len(killed)} learners were killed, but {len(learners)} have recorded times")
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for learner in learners:
        for name, ms in _of_learner(_warm(learner)):
            found[name].append(ms)
    for at, learner in zip(killed, learners[1:], strict=True):
        for name, ms in _of_recovery(at, learner).items():
            found[name].append(ms)
    if missing := [name for name in REQUIRED if not found[name]]:
        raise BenchError(f"the run was too short to measure {', '.join(missing)}; use more --seconds")
    return found


NAMES = (
    *("pause", "pause_cpu", "no_pause", "turn", "turn_after", "turn_written", "gap", "gap_after", "gap_written"),
    *("publish", "copy", "recovery", "born", "constructed", "taken_up", "first_turn"),
)
REQUIRED = ("pause", "turn", "turn_after", "turn_written", "gap", "gap_written", "publish", "copy")


def _warm(records: Sequence[Record]) -> list[Record]:
    """Return one learner's records after its first `WARM_TURNS` turns."""
    turns = [position for position, record in enumerate(records) if record.kind == TURN]
    return list(records[turns[WARM_TURNS - 1] + 1 :]) if len(turns) >= WARM_TURNS else []


def _of_learner(records: Sequence[Record]) -> Iterator[tuple[str, float]]:
    """Yield (name, milliseconds) for the records of one learner."""
    last: Record | None = None  # the previous turn
    handed_over = disturbed = False  # since that turn: a checkpoint; a plain copy, which only this bench makes
    for record in records:
        if record.kind == TURN:
            suffix = "_after" if handed_over else "_written" if record.mark else ""
            yield f"turn{suffix}", record.ms
            if last is not None and not disturbed:
                suffix = suffix or ("_written" if last.mark else "")
                yield f"gap{suffix}", (record.end - last.end) / 1e6
            last, handed_over, disturbed = record, False, False
        elif record.kind == CHECKPOINT:
            handed_over = bool(record.mark)
            yield ("pause" if handed_over else "no_pause"), record.ms
            if handed_over:
                yield "pause_cpu", record.cpu_ms
        elif record.kind == PUBLISH:
            yield "publish", record.ms
        elif record.kind == UNIT:
            disturbed = True
            yield "copy", record.ms


def _of_recovery(killed: int, records: Sequence[Record]) -> Mapping[str, float]:
    """Return the time from a kill (in ns) to the end of the successor's first turn, and its parts, in milliseconds."""
    born, setup, turn = (next((r for r in records if r.kind == kind), None) for kind in (BORN, SETUP, TURN))
    if born is None or setup is None or turn is None:
        raise BenchError("a learner's successor made no turn")
    return {
        "recovery": (turn.end - killed) / 1e6,
        "born": (born.start - killed) / 1e6,
        "constructed": born.ms,
        "taken_up": setup.ms - sum(r.ms for r in records if r.kind == PUBLISH and r.end <= setup.end),
        "first_turn": turn.ms,
    }
