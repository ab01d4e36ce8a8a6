"""README's code runs as written; its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hive.cli import parser

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
EXPECTED = [
    "the sum is 999000 {'produced': 1000, 'consumed': 1000, 'dropped': {}, 'in_flight': 0}",
    "(9184,)",
    "10 256 5.0",
]


@pytest.mark.parametrize(("program", "expected"), list(zip(PROGRAMS, EXPECTED, strict=True)))
def test_its_programs_run(program: str, expected: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("hive ")])
def test_its_commands_are_understood(line: str) -> None:
    words = line.partition("#")[0].split()[1:]
    options = parser().parse_args(words)
    assert options.command == words[0]


def test_its_two_commands_are_there() -> None:
    assert "pip install . && hive up examples/cartpole.toml" in COMMANDS
    assert "pip install '.[test]' && pytest" in COMMANDS


def test_the_files_it_names_exist() -> None:
    for name in re.findall(r"`((?:tests|native|examples)/[\w/.]+)`", TEXT):
        assert (ROOT / name).exists(), name
