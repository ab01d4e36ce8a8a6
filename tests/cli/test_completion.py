"""Completion: what hive answers, for each argument of each command; and the scripts in real shells."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive.cli import parser
from hive.cli.completion import COMPLETERS, SHELLS
from hive.native import source_folder
from hive.paths import user_path

if TYPE_CHECKING:
    from conftest import Place

ROOT = source_folder() or Path(__file__).parents[2]
FREE = {
    "SEEDS",
    "host",
    "MS",
    "SECONDS",
    "VALUE",
    "TEXT",
    "port",
    "N",
    "SEED",
    "DAYS",
    "NAME",
    "1..5",
    "actor",
    "seed",
    "name",
    "episodes",
}  # numbers and texts that have no candidates


def candidates(line: str, folder: Path) -> list[str]:
    """What hive answers for this command line with the cursor at its end."""
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked |= {"COMP_TYPE": "9", "PYTHONPATH": str(ROOT), "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "answer")}
    code = "import hive.cli, sys; assert 'torch' not in sys.modules; hive.cli.main()"
    done = subprocess.run([sys.executable, "-P", "-c", code], env=os.environ | asked, cwd=folder, timeout=60)
    assert done.returncode == 0
    return (folder / "answer").read_text().split()


@pytest.fixture
def folder(place: Place) -> Path:
    run = place.ended("cart")
    (run.logs / "learner-0.log").touch()
    (run.checkpoints / "000040").mkdir(parents=True)
    (place.folder / "a.toml").touch()
    (place.folder / "a.txt").touch()
    return place.folder


def test_answers(folder: Path) -> None:
    assert candidates("hive logs ", folder) == ["cart-1", "latest"]
    assert candidates("hive up a.toml -s network.memory=g", folder) == ["network.memory=gru"]


@pytest.mark.full(reason="starts a Python for each answer: 2 s")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hive mon", "monitor"),
        ("hive monitor --re", "--readonly"),
        ("hive logs cart-1 ", "learner-0"),
        ("hive eval cart-1 --which b", "best"),
        ("hive eval --which 0", "000040"),
        ("hive export cart-1 --which ", "latest best 000040"),
        ("hive play --which a", ""),  # only `hive eval` takes all
        ("hive up a", "a.toml"),
        ("hive set cart-1 collection.w", ""),
        ("hive set cart-1 algorithm.clip_range_", "algorithm.clip_range_schedule="),
    ],
)
def test_more_answers(folder: Path, line: str, expected: str) -> None:
    assert candidates(line, folder) == expected.split()


def test_a_completed_command_does_not_wait_for_slow_modules() -> None:
    """NumPy and the config take most of 0.3 s."""
    code = (
        "import sys, hive.cli\n"
        "for command in ('eval', 'export', 'play', 'resume', 'logs'): hive.cli.parser(only=command)\n"
        "print(*{'numpy', 'gymnasium', 'hive.config'} & set(sys.modules))"
    )
    run = [sys.executable, "-P", "-c", code]
    done = subprocess.run(run, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_every_argument_has_candidates_or_is_free() -> None:
    """A new argument gets a completer of its metavar, or is one of FREE."""
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        for action in command._actions:
            key = action.metavar or action.dest
            known = action.nargs == 0 or action.choices or action.type in (Path, user_path) or key in COMPLETERS
            assert known or (name, key) in COMPLETERS or key in FREE, f"hive {name}: {key}"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(place: Place, shell: str) -> None:
    done = place.hive("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_ARGCOMPLETE" in done.out
    assert "\nexample: hive completion bash" in place.hive("completion", "--help").out


BASH = """source {script}
COMP_LINE={line!r} COMP_POINT={point} COMP_WORDS=({line}) COMP_CWORD={word} COMP_TYPE=9
_python_argcomplete hive
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -U compinit && compinit -u -D; source {script}; PS1=; cd {folder}; echo re""ady'
zpty -r shell out '*ready*'
zpty -w -n shell $'{line}\\t'
zpty -r shell out '*{expected}*' && print -r -- $out
"""
FISH = "source {script}; complete --do-complete '{line}'"


@pytest.mark.parametrize(("shell", "text"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
@pytest.mark.parametrize(
    ("line", "expected"),
    [("hive moni", "monitor"), ("hive logs ca", "cart-1"), ("hive up -s collection.wo", "collection.workers=")],
)
@pytest.mark.full(reason="starts real shells")
def test_real_shells(place: Place, shell: str, text: str, line: str, expected: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    place.ended("cart")
    script, folder = place.folder / "script", place.folder
    script.write_text(place.hive("completion", shell).out)
    program = folder / "hive"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m hive "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder), "HOME": str(folder)}
    values = {"script": script, "folder": folder, "line": line, "expected": expected}
    code = text.format(**values, point=len(line), word=len(line.split()) - 1)
    done = subprocess.run([shell, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, timeout=20)
    assert expected in done.stdout, done.stderr
