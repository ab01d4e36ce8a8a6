"""scripts/soak: what it judges, what it reads from the kernel, and one real run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.programs import BenchError
from chaotic.leaks import name_of
from chaotic.soak import MOST_MB_PER_MINUTE, Measured, Sample, failures_of, growth_of, lines_of, main, measured, soak

ROOT = Path(__file__).parents[2]
EVERY_S = 10.0


def samples(
    learner_mb: list[float], learner_fds: list[int] | None = None, pids: list[int] | None = None
) -> list[Sample]:
    """Return samples of two processes; the collector always has 50 MB and 12 descriptors."""
    fds, numbers = learner_fds or [10] * len(learner_mb), pids or [7] * len(learner_mb)
    return [
        Sample(EVERY_S * i, {"learner-0": Measured(pid, mb, count), "collector-0": Measured(8, 50.0, 12)})
        for i, (mb, count, pid) in enumerate(zip(learner_mb, fds, numbers, strict=True))
    ]


def test_only_the_second_half_counts() -> None:
    """Memory grows by 60 MB a minute in the first half and by 0.5 in the second, in samples 10 s apart."""
    climbing = samples([10.0 * i for i in range(7)] + [60.0 + i / 12 for i in range(1, 7)])
    assert growth_of(climbing) == {
        "learner-0": (0.0, 60.5, pytest.approx(0.5)),
        "collector-0": (50.0, 50.0, 0.0),
        "all": (50.0, 110.5, pytest.approx(0.5)),
    }
    assert failures_of(climbing) == []
    assert lines_of(climbing)[-1] == "pass: memory is flat, descriptors are constant"
    with pytest.raises(BenchError, match="3 samples in the second half"):
        growth_of(samples([1.0] * 5))


def test_memory_that_grows_is_a_failure() -> None:
    just_below = samples([0.99 * MOST_MB_PER_MINUTE * i * EVERY_S / 60 for i in range(12)])
    just_above = samples([1.01 * MOST_MB_PER_MINUTE * i * EVERY_S / 60 for i in range(12)])
    assert failures_of(just_below) == []
    assert failures_of(just_above) == ["memory grows by 1.01 MB a minute"]
    assert lines_of(just_above)[-1] == "FAIL: memory grows by 1.01 MB a minute"


def test_only_the_sum_over_processes_is_checked() -> None:
    """Shared pages move between processes in the count; only the sum is checked."""
    moved = [
        Sample(one.at, {**one.processes, "collector-0": Measured(8, 50.0 - one.processes["learner-0"].mb, 12)})
        for one in samples([4.0 * i for i in range(12)])
    ]
    assert growth_of(moved)["learner-0"][2] == pytest.approx(24.0)
    assert failures_of(moved) == []


def test_a_descriptor_that_is_never_closed_is_a_failure() -> None:
    assert failures_of(samples([1.0] * 12, learner_fds=[10, 11] * 6)) == []  # a file may be open during one sample
    leaking = samples([1.0] * 12, learner_fds=[10] * 9 + [11] * 3)
    assert failures_of(leaking) == ["learner-0 had 10 descriptors in the third quarter and 11 in the last"]


def test_a_restarted_process_is_a_failure() -> None:
    restarted = samples([1.0] * 12, pids=[7] * 6 + [9] * 6)
    assert failures_of(restarted) == ["processes started or exited: learner-0"]
    assert lines_of(restarted) == ["FAIL: processes started or exited: learner-0"]


def test_a_process_is_read_from_the_kernel() -> None:
    before = measured(os.getpid())
    line = os.open(os.devnull, os.O_RDONLY)
    try:
        after = measured(os.getpid())
    finally:
        os.close(line)
    assert before.pid == os.getpid()
    assert 1.0 < before.mb < 100_000.0
    assert after.descriptors == before.descriptors + 1
    with pytest.raises(BenchError, match=r"process 4194305 of the run has exited"):
        measured(4194305)  # above the greatest pid of Linux


@pytest.mark.full(reason="measures for seconds")
def test_a_real_run_is_sampled_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """hive up, one sample, hive down."""
    (sample,) = soak(ROOT / "examples" / "cartpole.toml", ["collection.envs=2"], 0.0)
    assert set(sample.processes) == {
        *("supervisor", "fork-server", "collector-0", "gradient-worker-0 + learner-0", "recorder"),
    }
    assert all(process.mb > 1.0 and process.descriptors > 3 for process in sample.processes.values())
    assert not any(name_of(process.pid) for process in sample.processes.values())  # none lives, but for zombies
    assert "a second" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", [["--minutes", "0.5"], ["--minutes", "x"], ["--minutes", "nan"]])
def test_what_cannot_be_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--config", "cartpole.toml", *words])
    assert end.value.code == 2
    assert "minutes" in capsys.readouterr().err
