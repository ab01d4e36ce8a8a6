"""Output of a process: written to its file line by line, and bounded from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hive.runtime.process import output
from hive.runtime.process.output import BoundedOutput

PROGRAM = """
import os, sys
from pathlib import Path
from hive.runtime.process import output

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


def test_a_removed_file_is_begun_again(tmp_path: Path) -> None:
    run(tmp_path, "print('x'); path.unlink(); output.keep_output(path); print('y')")
    assert (tmp_path / "a.out").read_text() == "y\n"


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    run(tmp_path, "print('x'); output.keep_output(path); print('y')")
    assert (tmp_path / "a.out").read_text() == "x\ny\n"


# --- bounded from outside


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "OUTPUT_BYTES", 1000)


def lines(first: int, last: int) -> str:
    return "".join(f"{number:09}\n" for number in range(first, last))


def read(folder: Path) -> tuple[str, str]:
    return (folder / "a.out.1").read_text(), (folder / "a.out").read_text()


def test_a_file_that_is_too_long_moves_to_the_second_file(tmp_path: Path) -> None:
    with open(tmp_path / "a.out", "a") as file:
        file.write(lines(0, 120))
        file.flush()
        bounded = BoundedOutput(tmp_path)
        assert bounded.look()
        file.write(lines(120, 125))  # the writer has the file open, as a process has
    assert read(tmp_path) == (lines(0, 120), lines(120, 125))
    assert bounded.dropped == {}
    assert not bounded.look()


def test_what_is_dropped_is_counted_and_noted(tmp_path: Path) -> None:
    (tmp_path / "a.out").write_text(lines(0, 1000))
    bounded = BoundedOutput(tmp_path)
    assert bounded.look()
    kept, note = read(tmp_path)
    assert kept == lines(1000 - len(kept) // 10, 1000)  # whole lines
    assert len(kept) <= output.COPIES * output.OUTPUT_BYTES
    assert bounded.dropped == {"a": 10_000 - len(kept)}
    assert note == f"hive: {10_000 - len(kept):,} bytes of earlier output were dropped; `a.out.1` has what was kept\n"


def test_a_flood_is_copied_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [5.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    bounded, written = BoundedOutput(tmp_path), 0
    for step in range(30):
        now[0] += 0.1
        with open(tmp_path / "a.out", "a") as file:
            written += file.write(lines(step * 200, step * 200 + 200))
        assert bounded.look()
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3200
    kept = sum(len([line for line in part.splitlines() if line.isdigit()]) for part in read(tmp_path))
    notes = bounded.dropped["a"] - (written - 10 * kept)
    assert 0 <= notes <= 30 * 100  # bytes of dropped notes, which are output too


def test_any_writer_is_bounded_and_none_waits(tmp_path: Path) -> None:
    """A process that never returns to Python, and its subprocess, write on while the file is truncated."""
    program = PROGRAM.format("import subprocess; subprocess.run(['sh', '-c', 'yes hive | head -c 300000; echo end'])")
    process = subprocess.Popen([sys.executable, "-P", "-c", program, str(tmp_path / "a.out")])
    bounded = BoundedOutput(tmp_path)
    while process.poll() is None:
        bounded.look()
    bounded.look()
    assert process.returncode == 0
    assert (tmp_path / "a.out").stat().st_size <= 1100
    assert bounded.dropped["a"] > 200_000


@pytest.mark.parametrize("harm", ["folder", "link", "pipe"])
def test_only_regular_files_are_truncated(tmp_path: Path, harm: str) -> None:
    path, other = tmp_path / "a.out", tmp_path / "other"
    other.write_text(lines(0, 500))
    if harm == "folder":
        path.write_text(lines(0, 500))
        (tmp_path / "a.out.1").mkdir()
    elif harm == "link":
        path.symlink_to(other)
    else:
        os.mkfifo(path)
    BoundedOutput(tmp_path).look()
    assert other.read_text() == lines(0, 500)
    assert harm != "folder" or path.stat().st_size < 200
