"""`python -m hive`, in a new Python process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from canned_status import status

if TYPE_CHECKING:
    from conftest import Place

# Gives every command in a list, and prints what torch-free commands must not have loaded.
GIVE = """
import contextlib, io, sys
from hive.cli import main
for words in {commands!r}:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main(words)
    except SystemExit as ended:
        assert ended.code == 0, (words, ended.code)
    assert said.getvalue(), words
print(sorted({{"torch", "gymnasium"}} & sys.modules.keys()))
"""


def python(*words: str, unbuffered: bool = False, out: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    env |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    command = [sys.executable, "-P", *words]
    return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=env, timeout=60, check=False)


def test_it_is_the_command(place: Place) -> None:
    place.ended()
    done = python("-m", "hive", "ls")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].split()[:4] == ["cartpole-1", "CartPole-v1", "ppo", "finished"]
    wrong = python("-m", "hive", "pss")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: no command `pss`; did you mean `ps`?\n")


def test_commands_that_look_do_not_load_torch(place: Place) -> None:
    run = place.live(status())
    run.log_file("learner-0").write_text("2026-11-21 01:12:37.221 learner-0 INFO hello\n")
    config = str(place.config())
    commands = [["--help"], ["up", "--help"], ["ls"], ["ls", "--json"], ["ps"], ["logs"], ["config", config]]
    done = python("-c", GIVE.format(commands=commands))
    assert (done.returncode, done.stderr) == (0, "run cartpole-1, running\n")  # `logs` says which run it took
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("words", [["ls"], ["--help"]])
def test_a_closed_pipe_is_not_an_error(place: Place, words: list[str], unbuffered: bool) -> None:
    """`hive logs | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = python("-m", "hive", *words, unbuffered=unbuffered, out=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
