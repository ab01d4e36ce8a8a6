"""`bench channel`: the checks use medians of ratios by repetition, and every way carries messages."""

from __future__ import annotations

import sys

import pytest
from benchmarks.channel import checks_of
from benchmarks.programs import BenchError, here, last_json, run_program


def measured(arrays: float, small: float, call: float) -> dict[str, list[dict[str, float]]]:
    """Return hive's given figures; the other ways have 10 GB/s and round trips of 100 us."""
    return {
        "arrays/hive": [{"rate": arrays}, {"rate": arrays}, {"rate": 0.1}],
        "arrays/bare ring": [{"rate": 10.0}] * 3,
        "small/hive": [{"rate": small}] * 3,
        "call/hive": [{"rate": 1.0, "p50_us": call}, {"rate": 1.0, "p50_us": call}, {"rate": 1.0, "p50_us": 999.0}],
        "call/zmq.asyncio": [{"rate": 1.0, "p50_us": 100.0}] * 3,
    }


@pytest.mark.parametrize(
    ("figures", "passed"),
    [((8.0, 1e5, 150.0), [True, True, True]), ((7.9, 99_999.0, 151.0), [False, False, False])],
)
def test_checks_compare_medians_with_the_promises(figures: tuple[float, float, float], passed: list[bool]) -> None:
    assert [check.passed for check in checks_of(measured(*figures))] == passed


@pytest.mark.full(reason="measures for seconds")
@pytest.mark.parametrize(
    "name",
    ["arrays/hive", "small/hive", "call/hive", "arrays/bare ring", "small/pyzmq", "call/zmq.asyncio"],
)
def test_it_measures_two_real_processes(name: str) -> None:
    found = run_program([sys.executable, here("channel_ways.py"), name, 0.2], 0.2, rate="rate")
    assert found["rate"] > 0
    assert ("p50_us" in found) == name.startswith("call/")


def test_a_program_that_says_no_rate_is_an_error() -> None:
    assert last_json('talk\n{"rate": 2.5}', "it", "rate") == {"rate": 2.5}
    with pytest.raises(BenchError, match="printed no JSON object with rate above 0"):
        last_json('{"steps_per_s": 2.5}', "it", "rate")
