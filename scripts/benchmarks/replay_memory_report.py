"""The report of `bench replay`. Required: a million rows of Atari frames take less than 7.5 GB."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.replay_memory import FRAME, STACK
from benchmarks.report import Check
from benchmarks.table import aligned, number

__all__ = ["checks_of", "document_of", "text_of"]

MILLION, MOST_GB = 1_000_000, 7.5


def gigabytes(bytes_per_row: float) -> float:
    """Return the GB (10^9 bytes) of a million rows."""
    return bytes_per_row * MILLION / 1e9


def checks_of(computed: int, measured: float) -> list[Check]:
    """Return the checks. computed, measured: bytes of a row."""
    ways = {"computed": computed, "measured": measured}
    return [
        Check(f"1,000,000 rows < {MOST_GB} GB, {way}", f"{gigabytes(size):.2f} GB", gigabytes(size) < MOST_GB)
        for way, size in ways.items()
    ]


def document_of(computed: int, found: Mapping[str, float], machine: Mapping[str, object]) -> dict[str, Any]:
    """Return all results as one JSON document with stable keys. `machine` comes from `machine_facts`."""
    return {
        "bench": "replay",
        "machine": dict(machine),
        "computed_bytes_per_row": computed,
        "measured": dict(found),
        "checks": [dataclasses.asdict(check) for check in checks_of(computed, found["bytes_per_row"])],
    }


def text_of(computed: int, found: Mapping[str, float]) -> str:
    """Return the table and the checks as text."""
    height, width = FRAME[0]
    whole = 2 * STACK * height * width
    ways = {
        "computed from the layout": computed,
        f"resident memory of {found['rows']:,.0f} rows": found["bytes_per_row"],
        "two whole stacks a row, computed": whole,
    }
    rows = [(f"  {way}", number(size, 1), number(gigabytes(size), 2)) for way, size in ways.items()]
    checks = [
        (check.promise, check.measured, "pass" if check.passed else "FAIL")
        for check in checks_of(computed, found["bytes_per_row"])
    ]
    title = f"frames of {height} x {width} bytes, {STACK} in a stack"
    head = aligned((title, "bytes a row", "GB of 1,000,000"), rows)
    return "\n".join([*head, "", *aligned(("checks", "measured", ""), checks)])
