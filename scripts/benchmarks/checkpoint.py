"""`bench checkpoint`: what a checkpoint, a publication and a recovery cost the learner of a large network.

    asynchronous    a checkpoint every few seconds, by the clock
    pipelined       a checkpoint every so many updates, each a cut of the pipeline

Each is a run of its own, started by `hive up`: 1 collector, 1 gradient worker, learner, recorder, and a network of
25 million parameters. The learner writes down what it does (timed_learner.py). After `seconds` it is killed a few
times, and the time to its successor's first turn is taken. Then the run is ended as usual.

    pause       from the end of a turn to the checkpoint being handed over: a pin on the blocks, and a message. The
                recorder reads them later, from where they lie. CPU: what of it the learner itself was busy. The rest
                is waiting for a core, where the recorder that has just been woken takes it away
    turn        gradients to new weights, the learner's own work; while nobody writes, as the first after a checkpoint
                was handed over (it takes another block, which at first nobody has ever touched), while the recorder
                writes
    gap         between the ends of two turns, waiting for gradients included. Here the recorder's work shows where
                there are fewer cores than processes. In the first after a cut the pipeline fills again
    publish     copying the weights into the behaviour board, beside a plain copy of as many bytes: more than one copy
                would take twice as long
    recovery    from `kill -9` to the end of the successor's first turn. An extra copy of the state would be in the
                part in which it takes up; a publication that was due by then is left out of that

A few turns of each learner are left out: nobody has touched the memory then.
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

from benchmarks.hive_run import END_S, NAME, POLL_S, connected, first_update, last_words, results_of, started
from benchmarks.programs import START_S, BenchError
from benchmarks.timed_learner import BORN, CHECKPOINT, PUBLISH, SETUP, TIMES, TURN, UNIT, Record, records_in
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_jsonl
from hive.runtime.control import ControlClient

__all__ = ["KINDS", "PARAMETERS", "Kind", "config_of", "figures_of", "incarnations", "measure_checkpoints"]

WARM_TURNS = 8  # of each learner: as many as there are blocks in a board
SETTLE_TURNS = 5  # of a successor before it is killed too
MIDDLEWARE = (4096, 4096, 2048)
PARAMETERS = 4 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 2048 + 2048 + 2048 * 3 + 3
"""Of CartPole's four observations, these layers, two actions and a value."""

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
communication = "{kind.name}"
[algorithm]
name = "impala"
learning_rate = 1e-5
[network]
middleware = {middleware}
separate_networks = false
[checkpoint]
every = {kind.every}
keep = 1
[supervision]
restarts = 100
"""


def config_of(kind: Kind, middleware: Sequence[int] = MIDDLEWARE) -> str:
    """The config of the run. Small rollouts: a turn is to be short, so that there are many."""
    return CONFIG.format(kind=kind, middleware=list(middleware))


def measure_checkpoints(
    kind: Kind, seconds: float, kills: int, middleware: Sequence[int] = MIDDLEWARE
) -> dict[str, Any]:
    """Runs it for `seconds`, kills its learner so many times, and gives `figures_of` it. Raises BenchError."""
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
                raise BenchError(f"hive up: {error}\n{last_words(folder, directory)}") from error
    if "not saved" in events:
        raise BenchError("a checkpoint could not be written")
    return {**figures_of(records, killed), "skipped": events.count("skipped")}


def _watch(directory: RunDirectory, process: subprocess.Popen[bytes], seconds: float, kills: int) -> list[int]:
    """Lets it run, kills the learner again and again, ends the run. When it killed, in ns."""
    killed = []
    with closing(connected(directory, process)) as client:
        first_update(client, process)
        time.sleep(seconds)
        for _ in range(kills):
            begun = results_of(client.status())["updates"]
            pid = next(a["pid"] for a in client.status()["actors"] if a["name"] == "learner-0")
            killed.append(time.monotonic_ns())
            os.kill(pid, signal.SIGKILL)
            _until_updates(client, begun + SETTLE_TURNS + WARM_TURNS)
        client.down("the bench has seen enough")
    return killed


def _until_updates(client: ControlClient, updates: float) -> None:
    limit = time.monotonic() + START_S
    while results_of(client.status()).get("updates", 0) < updates:
        if time.monotonic() > limit:
            raise BenchError(f"the learner's successor made no update within {START_S:.0f} s")
        time.sleep(POLL_S)


# --- figures


def incarnations(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each learner, from its birth on."""
    births = [position for position, record in enumerate(records) if record.kind == BORN]
    return [list(records[start:end]) for start, end in itertools.pairwise([*births, len(records)])]


def figures_of(records: Sequence[Record], killed: Sequence[int]) -> dict[str, list[float]]:
    """Milliseconds of everything that was measured, name -> values. Raises BenchError where something is missing.

    records: of all learners of a run. killed: when each but the last was killed, in ns.
    """
    lives = incarnations(records)
    if len(lives) != len(killed) + 1:
        raise BenchError(f"{len(killed)} learners were killed, and {len(lives)} have left times")
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for life in lives:
        for name, ms in _of_life(_warm(life)):
            found[name].append(ms)
    for at, life in zip(killed, lives[1:], strict=True):
        for name, ms in _of_recovery(at, life).items():
            found[name].append(ms)
    if missing := [name for name in REQUIRED if not found[name]]:
        raise BenchError(f"nothing was measured of: {', '.join(missing)}; let it run longer")
    return found


NAMES = (
    *("pause", "pause_cpu", "no_pause", "turn", "turn_after", "turn_written", "gap", "gap_after", "gap_written"),
    *("publish", "copy", "recovery", "born", "constructed", "taken_up", "first_turn"),
)
REQUIRED = ("pause", "turn", "turn_after", "turn_written", "gap", "gap_written", "publish", "copy")


def _warm(life: Sequence[Record]) -> list[Record]:
    """Without its first turns."""
    turns = [position for position, record in enumerate(life) if record.kind == TURN]
    return list(life[turns[WARM_TURNS - 1] + 1 :]) if len(turns) >= WARM_TURNS else []


def _of_life(life: Sequence[Record]) -> Iterator[tuple[str, float]]:
    """Names and milliseconds of the records of one learner."""
    last: Record | None = None  # the turn before
    handed_over = disturbed = False  # since then: a checkpoint; a plain copy, which is no part of the learner's work
    for record in life:
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


def _of_recovery(killed: int, life: Sequence[Record]) -> Mapping[str, float]:
    """From a kill to the first turn of the successor, and what that is made of. `killed` in ns."""
    born, setup, turn = (next((r for r in life if r.kind == kind), None) for kind in (BORN, SETUP, TURN))
    if born is None or setup is None or turn is None:
        raise BenchError("a learner's successor made no turn")
    return {
        "recovery": (turn.end - killed) / 1e6,
        "born": (born.start - killed) / 1e6,
        "constructed": born.ms,
        "taken_up": setup.ms - sum(r.ms for r in life if r.kind == PUBLISH and r.end <= setup.end),
        "first_turn": turn.ms,
    }
