"""Output of a process: written to its file line by line, and rotated when the file is too long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from hive.runtime.process import output

output.OUTPUT_BYTES = 1000
path = Path(sys.argv[1])
output.redirect_output(path)
{}
"""


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", PROGRAM.format(body), str(folder / "a.out")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_all_output_is_written_however_the_process_ends(tmp_path: Path) -> None:
    """Also if the process is killed: its last lines matter most."""
    done = run(
        tmp_path, "print('one'); print('two', file=sys.stderr); os.system('echo three'); os.kill(os.getpid(), 9)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (-9, "", "")
    assert (tmp_path / "a.out").read_text() == "one\ntwo\nthree\n"


def test_a_later_incarnation_appends_to_the_same_file(tmp_path: Path) -> None:
    for word in ("one", "two"):
        run(tmp_path, f"print('{word}')")
    assert (tmp_path / "a.out").read_text() == "one\ntwo\n"


def test_a_file_that_is_too_long_is_rotated(tmp_path: Path) -> None:
    body = "for n in range(50):\n    print(n, 'x' * 200)\n    output.rotate_output(path)"
    assert run(tmp_path, body).returncode == 0
    lines = [(tmp_path / name).read_text().splitlines() for name in ("a.out.1", "a.out")]
    notes = [line for part in lines for line in part if line.startswith("hive: ")]
    assert len(notes) == 2
    assert all(line.endswith(" bytes of earlier output were dropped here") for line in notes)
    numbers = [int(line.split()[0]) for part in lines for line in part if line not in notes]
    assert numbers == [*range(numbers[0], 50)]  # no line is missing between the two files
    assert all(sum(map(len, part)) < 1400 for part in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.out", "a.out.1"]


def test_a_short_file_is_not_rotated(tmp_path: Path) -> None:
    run(tmp_path, "print('x'); output.rotate_output(path); print('y')")
    assert (tmp_path / "a.out").read_text() == "x\ny\n"


def test_a_removed_file_is_begun_again(tmp_path: Path) -> None:
    run(tmp_path, "print('x'); path.unlink(); output.rotate_output(path); print('y')")
    assert (tmp_path / "a.out").read_text() == "y\n"


@pytest.mark.parametrize("harm", ["path.parent.rename(f'{path.parent}-gone')", "(path.parent / 'a.out.1').mkdir()"])
def test_a_file_that_cannot_be_rotated_continues_to_grow(tmp_path: Path, harm: str) -> None:
    body = f"print('x' * 2000); {harm}; output.rotate_output(path); print('y')"
    assert run(tmp_path, body).returncode == 0
