"""A carrier that does not fit its ports does not type-check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import hive

class M(hive.Message): ...

class A(hive.Actor):
    slots = hive.SlotOutlet(M)
    out = hive.Outlet(M)
    weights = hive.Publication(M)

class B(hive.Actor):
    slots = hive.SlotInlet(M)
    inn = hive.Inlet(M)
    weights = hive.Subscription(M)

t = hive.Topology()
a, b, layout = t.add(A), t.add(B), hive.Layout({})
t.connect(a.port(A.slots), b.port(B.slots), hive.Slots(layout))
t.connect(a.port(A.slots), b.port(B.slots))  # wrong
t.connect(a.port(A.slots), b.port(B.slots), hive.Messages())  # wrong
t.connect(a.port(A.out), b.port(B.slots), hive.Zmq(layout))
t.connect(a.port(A.out), b.port(B.slots))  # wrong
t.connect(a.port(A.out), b.port(B.inn))
t.connect(a.port(A.out), b.port(B.inn), hive.Slots(layout))
t.connect(a.port(A.out), b.port(B.inn), hive.Board(8))  # wrong
t.connect(a.port(A.out), b.port(B.weights))  # wrong
t.connect(a.port(A.weights), b.port(B.weights), hive.Board(8))
t.connect(a.port(A.weights), b.port(B.weights), hive.Slots(layout))  # wrong
t.connect(a.out, b.inn, hive.Messages(window=3))
t.connect(a.out, b.inn, hive.Messages(slots=3))  # wrong
t.connect(a.out, b.inn, hive.Slots(layout, window=3))  # wrong
"""


@pytest.mark.full(reason="mypy takes seconds")
def test_a_carrier_that_does_not_fit_does_not_type_check(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", str(program)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    expected = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == expected, done.stdout + done.stderr
