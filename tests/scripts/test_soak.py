"""scripts/soak: its checks, its readings from the kernel, and its report."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from benchmarks.programs import BenchError
from benchmarks.soak import parser, sampled, soak
from benchmarks.soak_figures import (
    MOST_MB_PER_MINUTE,
    Measured,
    Sample,
    document_of,
    failures_of,
    growth_of,
    kilobytes,
    second_half,
    slope,
)

ROOT = Path(__file__).parents[2]
EVERY_S = 10.0


def samples(
    learner_mb: list[float], learner_fds: list[int] | None = None, pids: list[int] | None = None
) -> list[Sample]:
    """Return samples of two processes; the collector always has 50 MB and 12 descriptors."""
    fds, numbers = learner_fds or [10] * len(learner_mb), pids or [7] * len(learner_mb)
    return [
        Sample(EVERY_S * i, {"learner-0": Measured(pid, mb, count, 70.0), "collector-0": Measured(8, 50.0, 12, 30.0)})
        for i, (mb, count, pid) in enumerate(zip(learner_mb, fds, numbers, strict=True))
    ]


# --- the line


def test_the_slope_is_that_of_the_best_line() -> None:
    assert slope([0.0, 1.0, 2.0], [5.0, 7.0, 9.0]) == 2.0
    assert slope([0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 1.0, 3.0]) == pytest.approx(0.8)
    assert slope([3.0, 4.0], [1.5, 1.5]) == 0.0


def test_a_line_needs_two_times() -> None:
    with pytest.raises(ValueError, match="two distinct times"):
        slope([1.0, 1.0], [2.0, 3.0])


def test_only_the_second_half_counts() -> None:
    """Memory grows by 60 MB a minute in the first half and by 0.5 in the second, in samples 10 s apart."""
    climbing = samples([10.0 * i for i in range(7)] + [60.0 + i / 12 for i in range(1, 7)])
    assert [sample.at for sample in second_half(climbing)] == [60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0]
    learner, collector, everybody = growth_of(climbing)
    assert learner.mb_per_minute == pytest.approx(0.5)
    assert (learner.start_mb, learner.end_mb) == (0.0, 60.5)
    assert collector.mb_per_minute == 0.0
    assert (everybody.name, everybody.start_mb, everybody.end_mb) == ("all", 50.0, 110.5)
    assert everybody.mb_per_minute == pytest.approx(0.5)
    assert failures_of(climbing) == []


def test_a_second_half_of_three_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 samples in the second half"):
        growth_of(samples([1.0] * 5))


# --- what is judged


def test_memory_that_grows_is_a_failure() -> None:
    just_below = samples([0.99 * MOST_MB_PER_MINUTE * i * EVERY_S / 60 for i in range(12)])
    just_above = samples([1.01 * MOST_MB_PER_MINUTE * i * EVERY_S / 60 for i in range(12)])
    assert failures_of(just_below) == []
    assert failures_of(just_above) == ["memory grows by 1.01 MB a minute"]


def test_only_the_sum_over_processes_is_checked() -> None:
    """Shared pages move between processes in the count; only the sum is checked."""
    moved = [
        Sample(one.at, {**one.processes, "collector-0": Measured(8, 50.0 - one.processes["learner-0"].mb, 12)})
        for one in samples([4.0 * i for i in range(12)])
    ]
    assert growth_of(moved)[0].mb_per_minute == pytest.approx(24.0)
    assert failures_of(moved) == []


def test_a_descriptor_that_is_never_closed_is_a_failure() -> None:
    leaking = samples([1.0] * 12, learner_fds=[10] * 10 + [11] * 2)
    assert failures_of(leaking) == []  # a file may be open during one sample
    leaking = samples([1.0] * 12, learner_fds=[10] * 9 + [11] * 3)
    assert failures_of(leaking) == ["learner-0 had 10 descriptors in the third quarter and 11 in the last"]


def test_a_file_that_is_open_for_a_moment_is_not_a_failure() -> None:
    assert failures_of(samples([1.0] * 12, learner_fds=[10, 11] * 6)) == []


def test_a_restarted_process_is_a_failure() -> None:
    assert failures_of(samples([1.0] * 12, pids=[7] * 6 + [9] * 6)) == ["processes started or exited: learner-0"]


# --- what is read


def test_a_field_of_the_kernels_file() -> None:
    text = "55d0-7fff ---p 00000000 00:00 0  [rollup]\nRss:   2048 kB\nPss:    1536 kB\nPss_Anon:  12 kB\n"
    assert kilobytes(text, "Pss") == 1536
    with pytest.raises(KeyError):
        kilobytes(text, "Swap")


def test_a_process_is_read_from_the_kernel() -> None:
    before = sampled(os.getpid())
    line = os.open(os.devnull, os.O_RDONLY)
    try:
        after = sampled(os.getpid())
    finally:
        os.close(line)
    assert before.pid == os.getpid()
    assert 1.0 < before.mb < 100_000.0
    assert 0.1 < before.files_mb < 100_000.0
    assert after.descriptors == before.descriptors + 1


def test_a_process_that_is_gone_is_an_error() -> None:
    with pytest.raises(BenchError, match=r"process 4194305 of the run has exited"):
        sampled(4194305)  # above the greatest pid of Linux


@pytest.mark.full(reason="measures for seconds")
def test_a_real_run_is_sampled_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """hive up, one sample, hive down."""
    (sample,) = soak(ROOT / "examples" / "cartpole.toml", ["collection.envs=2"], 0.0)
    assert set(sample.processes) == {
        *("supervisor", "fork-server", "collector-0", "gradient-worker-0 + learner-0", "recorder"),
    }
    assert all(one.mb > 1.0 and one.descriptors > 3 for one in sample.processes.values())
    assert len({one.pid for one in sample.processes.values()}) == 5
    assert not any(lives(one.pid) for one in sample.processes.values())
    assert "a second" in capsys.readouterr().err.splitlines()[-1]


def lives(pid: int) -> bool:
    """A zombie does not: it has no command line."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes() != b""
    except OSError:
        return False


def test_a_config_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[env]\n")
    with pytest.raises(BenchError, match="`hive up` ended with code 2"):
        soak(tmp_path / "wrong.toml", [], 0.0)


# --- the report


def test_the_document_holds_every_sample_and_is_json() -> None:
    document = json.loads(json.dumps(document_of(samples([1.0] * 12), "cartpole.toml", 2.0, {"cpu": "A CPU"})))
    assert (document["soak"], document["minutes"], document["machine"]) == ("cartpole.toml", 2.0, {"cpu": "A CPU"})
    assert len(document["samples"]) == 12
    learner = document["samples"][1]["processes"]["learner-0"]
    assert learner == {"pid": 7, "mb": 1.0, "descriptors": 10, "files_mb": 70.0}
    assert [growth["name"] for growth in document["growth"]] == ["learner-0", "collector-0", "all"]
    assert document["failures"] == []


@pytest.mark.parametrize("words", [["--minutes", "0.5"], ["--minutes", "x"], ["--minutes", "nan"]])
def test_what_cannot_be_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(["--config", "cartpole.toml", *words])
    assert end.value.code == 2
    assert "expected minutes" in capsys.readouterr().err


def test_what_is_given_is_taken() -> None:
    options = parser().parse_args(["--config", "cartpole.toml", "--set", "run.seed=2"])
    assert (options.config, options.minutes, options.set) == (Path("cartpole.toml"), 30.0, ["run.seed=2"])
