"""The bench of environment processes: what its figures mean, and its promises."""

from __future__ import annotations

from benchmarks.env_processes import WAYS, checks_of, table_of


def rows(kind: str, ms: float, rates: dict[str, float], ideal: float) -> list[dict[str, object]]:
    return [
        {"kind": kind, "ms": ms, "way": way, "steps_per_s": rates[way], "of_ideal": rates[way] / ideal, "repetition": 0}
        for way in WAYS
    ]


def test_promises_compare_with_async_vector_env_or_with_the_ideal() -> None:
    rates = dict.fromkeys(WAYS, 100.0) | {"hive": 160.0, "hive, cores": 190.0}
    fast, slow = rows("busy", 0.1, rates, 200.0), rows("busy", 1.0, rates, 200.0)
    sleeping = rows("sleeping", 10.0, rates, 162.0)
    checks = checks_of([*fast, *slow, *sleeping])
    assert [(check.measured.split()[0], check.passed) for check in checks] == [
        ("1.60", True),
        ("95.0%", False),
        ("98.8%", True),
    ]
    assert "busy 1 ms, hive, cores" in "\n".join(table_of(slow))
