"""scripts/bench checkpoint: its figures and report from known times, and its learner in one process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from benchmarks.checkpoint import (
    KINDS,
    PARAMETERS,
    WARM_TURNS,
    Kind,
    checks_of,
    config_of,
    figures_of,
    incarnations,
    measure_checkpoints,
    table,
)
from benchmarks.programs import BenchError
from benchmarks.timed_learner import (
    BORN,
    CHECKPOINT,
    LAYOUT,
    PUBLICATIONS_PER_UNIT,
    PUBLISH,
    SETUP,
    TIMES,
    TURN,
    UNIT,
    Record,
    records_in,
    topology,
)

from hive.config import load_config
from hive.records import RunDirectory
from hive.testing import run_inline

MS = 1_000_000
MANY_CORES = 8
LIMIT_S = 60.0


# --- records


def test_records_are_read_as_they_were_written() -> None:
    written = [Record(TURN, 3, 10, 20, 5, 1), Record(PUBLISH, 3, 30, 40, 9, 0)]
    data = b"".join(LAYOUT.pack(r.kind, r.turn, r.start, r.end, r.cpu, r.mark) for r in written)
    assert records_in(data) == written
    assert records_in(data + data[:7]) == written  # an incomplete record, as after a kill
    assert records_in(b"") == []


def life(at: float, *parts: tuple[int, float, float, int]) -> list[Record]:
    """Return consecutive records of one learner from `at` ms on: (kind, ms before it, its ms, mark). CPU: half."""
    found = []
    for turn, (kind, gap, ms, mark) in enumerate(parts):
        start = at + gap
        at = start + ms
        found.append(Record(kind, turn, int(start * MS), int(at * MS), int(ms * MS / 2), mark))
    return found


def learner(at: float, *parts: tuple[int, float, float, int]) -> list[Record]:
    """Return the records of a learner's start: constructor, 2 ms for the state, and its first turns, not counted."""
    warming = [(TURN, 1.0, 50.0 if n == 0 else 99.0, 0) for n in range(WARM_TURNS)]
    return life(at, (BORN, 0.0, 30.0, 0), (SETUP, 4.0, 2.0, 0), *warming, *parts)


def a_run() -> list[Record]:
    """Return records of two learners: turns of 20 ms with waits of 10 ms; after a checkpoint both take longer."""
    first = learner(
        0.0,
        *((TURN, 10.0, 20.0, 0), (CHECKPOINT, 0.0, 0.01, 0), (PUBLISH, 0.0, 12.0, 0)),
        *((TURN, 10.0, 20.0, 0), (CHECKPOINT, 0.0, 0.5, 1)),
        *((TURN, 10.0, 30.0, 1), (CHECKPOINT, 0.0, 0.01, 0)),
        *((TURN, 10.0, 25.0, 1), (CHECKPOINT, 0.0, 0.01, 0), (PUBLISH, 0.0, 10.0, 0), (UNIT, 0.0, 8.0, 0)),
        *((TURN, 10.0, 20.0, 0), (CHECKPOINT, 0.0, 0.01, 0)),
    )
    return first + learner(5000.0)


def test_the_records_of_a_learner_begin_with_its_constructor() -> None:
    lives = incarnations(a_run())
    assert len(lives) == 2
    assert [one[0].kind for one in lives] == [BORN, BORN]
    assert sum(map(len, lives)) == len(a_run())


def test_the_figures_follow_from_the_records() -> None:
    found = figures_of(a_run(), [4000 * MS])
    assert found["pause"] == [0.5]
    assert found["pause_cpu"] == [0.25]
    assert found["no_pause"] == pytest.approx([0.01] * 4)
    assert found["turn"] == [20.0, 20.0, 20.0]
    assert found["turn_after"] == [30.0]
    assert found["turn_written"] == [25.0]
    assert found["publish"] == [12.0, 10.0]
    assert found["copy"] == [8.0]


def test_a_gap_with_a_plain_copy_is_left_out() -> None:
    """A gap contains the wait, all other work, and the later turn."""
    found = figures_of(a_run(), [4000 * MS])
    assert found["gap"] == pytest.approx([0.01 + 12.0 + 10.0 + 20.0])
    assert found["gap_after"] == pytest.approx([0.5 + 10.0 + 30.0])
    assert found["gap_written"] == pytest.approx([0.01 + 10.0 + 25.0])


def test_a_recovery_begins_with_the_kill() -> None:
    """Kill at 4000 ms; the successor starts at 5000: constructor 30 ms, wait 4, state 2, wait 1, first turn 50."""
    found = figures_of(a_run(), [4000 * MS])
    assert found["recovery"] == pytest.approx([1000.0 + 30.0 + 4.0 + 2.0 + 1.0 + 50.0])
    assert (found["born"], found["constructed"], found["taken_up"]) == ([1000.0], [30.0], [2.0])
    assert found["first_turn"] == [50.0]


def test_a_publication_is_subtracted_from_taking_up_the_state() -> None:
    due = life(5000.0, (BORN, 0.0, 30.0, 0), (PUBLISH, 1.0, 11.0, 0), (TURN, 9.0, 50.0, 0))
    setup = Record(SETUP, 0, 5030 * MS, 5044 * MS)
    records = [*incarnations(a_run())[0], due[0], due[1], setup, due[2]]
    assert figures_of(records, [4000 * MS])["taken_up"] == pytest.approx([14.0 - 11.0])


def test_what_was_not_measured_is_an_error() -> None:
    with pytest.raises(BenchError, match="the run was too short to measure pause, turn"):
        figures_of(learner(0.0), [])
    with pytest.raises(BenchError, match="1 learners were killed, but 1 have recorded times"):
        figures_of(learner(0.0), [5])
    with pytest.raises(BenchError, match="made no turn"):
        figures_of([*incarnations(a_run())[0], *life(5000.0, (BORN, 0.0, 30.0, 0))], [4000 * MS])


# --- the run


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_config_is_one_and_has_so_many_parameters(kind: Kind) -> None:
    config = load_config("bench.toml", text=config_of(kind))
    assert (config.collection.communication, config.gradients.communication) == (kind.name, kind.name)
    assert config.exact is (kind.name == "pipelined")
    widths = [4, *config.network.middleware]
    dense = sum(a * b + b for a, b in itertools.pairwise(widths))
    assert dense + (widths[-1] + 1) * 3 == PARAMETERS
    assert 24_000_000 < PARAMETERS < 27_000_000


def test_the_timed_learner_records_its_work(tmp_path: Path) -> None:
    """Train in one process: 40 turns, a checkpoint every 10 turns and a publication every turn."""
    text = config_of(Kind("synchronous", "{ updates = 10 }"), middleware=[8])
    config = load_config("bench.toml", ["run.steps=640"], text=text)
    directory = RunDirectory.create(tmp_path, "timed")
    outcome = run_inline(topology(config, directory.path), seconds=LIMIT_S)
    assert outcome.state == "finished"
    records = records_in((directory.path / TIMES).read_bytes())
    assert [r.kind for r in records[:3]] == [BORN, PUBLISH, SETUP]  # the order of their ends
    turns = [r for r in records if r.kind == TURN]
    assert [r.turn for r in turns] == list(range(1, 41))
    assert all(r.start < r.end for r in records)
    handed_over = [r.turn for r in records if r.kind == CHECKPOINT and r.mark]
    assert handed_over
    assert set(handed_over) <= {10, 20, 30, 40}
    published = sum(r.kind == PUBLISH for r in records)
    assert published >= 40
    assert sum(r.kind == UNIT for r in records) == published // PUBLICATIONS_PER_UNIT


@pytest.mark.full(reason="measures for seconds")
def test_it_measures_a_real_run() -> None:
    """hive up, checkpoints, a kill and hive down, with a tiny network."""
    found = measure_checkpoints(Kind("pipelined", "{ updates = 20 }"), seconds=1.0, kills=1, middleware=[8])
    assert len(found["recovery"]) == len(found["taken_up"]) == 1
    assert found["recovery"][0] > found["born"][0] > 0.0
    assert all(ms > 0.0 for name in ("pause", "turn", "gap", "publish", "copy") for ms in found[name])
    assert found["skipped"] >= 0


# --- the report


def results(**changed: list[float]) -> dict[str, Any]:
    figures: dict[str, Any] = {**figures_of(a_run(), [4000 * MS]), **changed}
    return {**figures, "skipped": 1}


def verdicts(found: dict[str, Any], cores: int = MANY_CORES) -> list[tuple[str, bool | None]]:
    return [(check.measured, check.passed) for check in checks_of("asynchronous", found, cores)]


def test_the_promises_are_judged() -> None:
    assert verdicts(results()) == [
        ("0.50 ms, at most 0.50 ms", True),
        ("1.38", True),  # 11 ms of publishing, 8 of a plain copy
        ("0.25", True),
    ]
    assert verdicts(results(publish=[12.1], taken_up=[4.1])) == [
        ("0.50 ms, at most 0.50 ms", True),
        ("1.51", False),
        ("0.51", False),
    ]


def test_the_longest_pause_counts() -> None:
    assert verdicts(results(pause=[0.2, 0.2, 6.0]))[0] == ("0.20 ms, at most 6.00 ms", False)


def test_time_of_other_processes_on_its_core_does_not_fail_the_pause() -> None:
    long = results(pause=[0.2, 0.2, 6.0], pause_cpu=[0.2, 0.2, 0.3])
    assert verdicts(long, cores=2)[0] == ("0.20 ms, at most 6.00 ms, 0.30 ms of CPU: fewer cores than processes", None)
    assert verdicts(long, cores=4)[0][1] is False
    assert verdicts(results(pause=[6.0], pause_cpu=[5.5]), cores=2)[0][1] is False


def test_without_a_kill_there_are_no_figures_of_recoveries() -> None:
    found = results(recovery=[], born=[], constructed=[], taken_up=[], first_turn=[])
    assert len(checks_of("asynchronous", found, MANY_CORES)) == 2
    assert not any("recovery" in line for line in table("asynchronous", found))
