"""The guide's programs run as written, and print what the guide says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "examples" / "GUIDE.md").read_text()
PROGRAMS = re.findall(r"^## (\d+\.[^\n]*)\n+```python\n(.*?)```\n+```\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE)
TWELVE = 12  # lines of the first program, as in the title of the page
EXAMPLE = "dqn.py"  # the last program is this example, which tests/examples runs in a shorter form


@pytest.mark.parametrize(
    ("program", "expected"), [part[1:] for part in PROGRAMS[:-1]], ids=[p[0] for p in PROGRAMS[:-1]]
)
def test_its_programs_run(program: str, expected: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HIVE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


def test_the_last_is_an_example_as_it_is() -> None:
    assert PROGRAMS[-1][1] == (ROOT / "examples" / EXAMPLE).read_text()
    assert (ROOT / "tests" / "examples" / f"test_{EXAMPLE}").exists()


def test_every_program_is_among_them() -> None:
    assert len(PROGRAMS) == TEXT.count("```python") == len(re.findall(r"^## ", TEXT, re.MULTILINE)) >= 10


def test_the_first_has_twelve_lines_at_most() -> None:
    assert len(PROGRAMS[0][1].splitlines()) <= TWELVE


def test_the_files_it_names_exist() -> None:
    names = re.findall(r"`((?:tests|examples)/[\w/.]+)`", TEXT)
    assert names
    for name in names:
        assert (ROOT / name).exists(), name
