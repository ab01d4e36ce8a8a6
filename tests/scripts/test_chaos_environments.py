"""scripts/chaos_environments: what it judges, and whom it strikes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaotic.environments import LEAST_SAMPLES, Seen, Strike, broken_by, growth_in, send
from chaotic.soak import Measured


def samples(*collectors: Measured) -> list[dict[str, Measured]]:
    """Return the samples of one collector, each of them for a quarter of the time."""
    return [{"collector-0": one} for one in collectors for _ in range(LEAST_SAMPLES // 4)]


FLAT = Measured(7, 50.0, 40)


def test_each_strike_is_one_failure_and_each_failure_has_a_strike() -> None:
    strikes = [Strike(0.0, 3, 11, "SIGKILL"), Strike(1.0, 4, 12, "SIGSTOP")]
    broken = broken_by(Seen(strikes, failures={3: 1, 4: 0, 5: 1}, down=["env 4"]), None, {"processes": ["9 hive:env"]})
    assert broken == [
        "env 4 was struck 1 times and failed 0 times",
        "env 5 was struck 0 times and failed 1 times",
        "env 4 did not come back",
        "the run ended as None: None",
        "left behind: processes 9 hive:env",
    ]


@pytest.mark.parametrize(
    ("last", "broken"),
    [
        (FLAT, []),
        (Measured(7, 50.0, 41), ["collector-0 had 40 descriptors at the beginning and 41 at the end"]),
        (Measured(7, 53.0, 40), ["the memory of collector-0 grew from 50.0 MB to 53.0 MB"]),
        (Measured(8, 50.0, 40), ["collector-0 was restarted"]),
    ],
)
def test_growth_of_a_collector(last: Measured, broken: list[str]) -> None:
    assert growth_in(samples(FLAT, FLAT, FLAT, last)) == broken


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "100"], env={**os.environ, "HIVE_HOME": str(tmp_path)}) as process:
        yield process
        process.kill()


def test_only_living_processes_of_the_run_are_struck(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert not send(sleeper.pid, signal.SIGKILL, tmp_path / "other")
    assert send(sleeper.pid, signal.SIGKILL, tmp_path)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not send(sleeper.pid, signal.SIGKILL, tmp_path)
