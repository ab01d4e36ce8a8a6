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

The first turns of each learner are left out, because they touch their memory for the first time. Checks of each run:

    every pause < 5 ms                      the learner hands a checkpoint over and does not write it. With fewer cores
                                            than processes, a longer pause fails only if the learner itself was busy for
                                            that long: the rest of the time other processes used its core
    publishing takes < 1.5 plain copies     it copies the weights once, not twice
    taking up takes < 0.5 plain copies      a successor uses the state in place, without a copy
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    QUIET_CORES,
    Bench,
    Check,
    Report,
    aligned,
    count,
    duration,
    say,
    spread_cells,
    spread_of,
)
from benchmarks.hive_run import END_S, NAME, POLL_S, connected, first_update, last_output, results_of, started
from benchmarks.machine import CpuMeter, cores
from benchmarks.programs import START_S, BenchError
from benchmarks.timed_learner import BORN, CHECKPOINT, PUBLISH, SETUP, TIMES, TURN, UNIT, Record, records_in
from hive.errors import HiveError
from hive.records import RunDirectory, Summary, read_jsonl
from hive.runtime.run.control import ControlClient

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


# --- report

MOST_PAUSE_MS = 5.0
MOST_COPIES_TO_PUBLISH = 1.5
MOST_COPIES_TO_TAKE_UP = 0.5

PROCESSES = 4  # busy processes: collector, gradient worker, learner, recorder

Figures = Mapping[str, Any]  # name -> milliseconds, as figures_of gives them; others_cores, skipped

ROWS = (
    ("a checkpoint: the learner's pause", "pause"),
    ("    of which it was busy (CPU)", "pause_cpu"),
    ("the check when no checkpoint is due", "no_pause"),
    ("a turn, while no checkpoint is being written", "turn"),
    ("    the first after a checkpoint was handed over", "turn_after"),
    ("    while the recorder writes", "turn_written"),
    ("from turn to turn, while none is being written", "gap"),
    ("    the first after a checkpoint was handed over", "gap_after"),
    ("    while the recorder writes", "gap_written"),
    ("publishing the weights", "publish"),
    ("    a plain copy of the same size", "copy"),
    ("recovery: from kill -9 to the first turn", "recovery"),
    ("    until the successor's constructor begins", "born"),
    ("    its constructor", "constructed"),
    ("    taking up the state", "taken_up"),
    ("    its first turn", "first_turn"),
)
"""(text of a line, name of its figure)."""


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    lines = [
        f"Checkpoints of {PARAMETERS / 1e6:.1f} M parameters: {4 * PARAMETERS / 1e6:.0f} MB of weights, twice that of "
        "moments.",
        f"{options.seconds:g} s each, then kills of the learner. Times in ms.",
    ]
    checks, runs = [], []
    for kind in (kind for kind in KINDS if kind.name in options.only or not options.only):
        say(f"{kind.name}: {options.seconds:g} s, {options.kills} kills")
        meter = CpuMeter()
        figures = measure_checkpoints(kind, options.seconds, options.kills)
        others = meter.others_cores()
        lines += ["", *table(kind.name, figures)]
        if others > QUIET_CORES:
            lines.append(f"Warning: other programs used {others:.2f} cores of CPU.")
        checks += checks_of(kind.name, figures, cores())
        runs.append(
            {
                "kind": kind.name,
                "spreads_ms": {name: dataclasses.asdict(spread_of(figures[name])) for _, name in ROWS if figures[name]},
                "measured_ms": {name: figures[name] for _, name in ROWS},
                "skipped": figures["skipped"],
                "others_cores": others,
            }
        )
    return Report(lines, {"parameters": PARAMETERS, "seconds": options.seconds, "runs": runs}, checks)


def table(kind: str, figures: Figures) -> list[str]:
    rows = [(text, *spread_cells(figures[name], 2), str(len(figures[name]))) for text, name in ROWS if figures[name]]
    lines = aligned((kind, "median", "least..most", "of"), rows)
    if figures["skipped"]:
        lines.append(f"{figures['skipped']} more were skipped: the previous one was still being written.")
    return lines


def checks_of(kind: str, figures: Figures, cores: int) -> list[Check]:
    """Return the checks of one run. `cores`: of the machine."""
    checks, copy = [_pause_check(kind, figures, cores)], statistics.median(figures["copy"])
    for name, what, most in (
        ("publish", "publishing", MOST_COPIES_TO_PUBLISH),
        ("taken_up", "taking up the state", MOST_COPIES_TO_TAKE_UP),
    ):
        if figures[name]:
            copies = statistics.median(figures[name]) / copy
            checks.append(Check(f"{kind}: {what} < {most} plain copies", f"{copies:.2f}", copies < most))
    return checks


def _pause_check(kind: str, figures: Figures, cores: int) -> Check:
    wall, busy = spread_of(figures["pause"]), spread_of(figures["pause_cpu"])
    measured = f"{wall.median:.2f} ms, at most {wall.most:.2f} ms"
    passed: bool | None = wall.most < MOST_PAUSE_MS
    if not passed and cores < PROCESSES and busy.most < MOST_PAUSE_MS:
        measured, passed = f"{measured}, {busy.most:.2f} ms of CPU: fewer cores than processes", None
    return Check(f"{kind}: a checkpoint's pause < {MOST_PAUSE_MS:g} ms", measured, passed)


def _options(parser: argparse.ArgumentParser) -> None:
    names = [kind.name for kind in KINDS]
    parser.add_argument("--only", choices=names, action="append", default=[], help="default: each of them")
    parser.add_argument("--seconds", type=duration, default=60.0, help="duration of each run (default %(default)g)")
    parser.add_argument("--kills", type=count, default=5, help="kills of each run's learner (default %(default)d)")


BENCH = Bench(
    "checkpoint",
    "time that checkpoints, publications and recoveries take a learner of 25 million parameters",
    "example: scripts/bench checkpoint --json checkpoint.json --check",
    _options,
    measure,
)
