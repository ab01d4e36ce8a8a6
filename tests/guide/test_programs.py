"""The Python of README and of the guide.

    ```python   a program. A block without imports continues the one above it. The block below it, without a language,
                is what it prints.
    ```py       a part of a program of the reader, or another library's code. It is executed, unless it uses names
                that it does not define or modules that hive does not need; then it is compiled.

The everyday tier runs each program in this process. Its trainings are inline and have one round of a few steps, so what
a training prints is compared in the full tier, which runs each program as a script, as written.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import runpy
import subprocess
import symtable
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pages import BLOCKS, ROOT, Block

import hive
from hive.api.result import Result

RETURNS = {"cartpole": 100.0, "coin": 9.0}  # least returns of trained runs, by the first word of a run's name
TRAINED = ("README.md", "examples/guide/python.md")  # their runs must learn
EXAMPLE = "dqn.py"  # this example is the program of plain-scripts.md; tests/examples runs it in a shorter form
STARTS = re.compile(r"\bhive\.(?:train|run)\(|\.resume\(")
THOUSANDS = re.compile(r"\b\d+_000\b")  # lengths of trainings, in steps
KILLS = "os.kill("  # such a program needs processes

EVERYWHERE = {*sys.stdlib_module_names, "hive", "gymnasium", "numpy", "safetensors", "torch"}

FRAGMENTS = [block for block in BLOCKS if block.language == "py"]


def chains() -> list[Block]:
    """Return the programs: each block that imports something, with those that continue it. One output is kept."""
    found: list[Block] = []
    for block in BLOCKS:
        if block.language != "python":
            continue
        if re.search(r"^(?:import|from) ", block.text, re.MULTILINE):
            found.append(block)
        else:
            first = found.pop()
            assert first.page == block.page, f"{block.place} continues no program of its page"
            found.append(Block(first.page, first.line, "python", first.text + block.text, block.output))
    return found


PROGRAMS = [program for program in chains() if program.text != (ROOT / "examples" / EXAMPLE).read_text()]
EVERYDAY = [program for program in PROGRAMS if KILLS not in program.text]
TRAININGS = [program for program in PROGRAMS if STARTS.search(program.text)]
places = {"ids": lambda block: block.place}


def short(start: Callable[..., Result]) -> Callable[..., Result]:
    """Return hive.train or hive.run in this process, with rounds of a few steps."""

    def started(*arguments: Any, sets: Sequence[str] = (), **keys: Any) -> Result:
        if "steps" in keys:
            sets = [*sets, "collection.rollout=32"]
        return start(*arguments, sets=sets, **{**keys, "inline": True, "quiet": True})

    return started


@pytest.mark.parametrize("program", EVERYDAY, **places)
def test_a_program_runs(
    program: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    trains = program in TRAININGS
    script.write_text(THOUSANDS.sub("1", program.text) if trains else program.text)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    monkeypatch.setattr(hive, "train", short(hive.train))
    monkeypatch.setattr(hive, "run", short(hive.run))
    monkeypatch.setattr(Result, "resume", lambda result, **keys: result)
    policy = Result.policy  # after one round there is no best one
    monkeypatch.setattr(Result, "policy", lambda result, which="latest", **keys: policy(result, **keys))
    runpy.run_path(str(script), run_name="__main__")
    assert trains or program.output in (None, capsys.readouterr().out)


@pytest.mark.full(reason="trainings of their true lengths: seconds each")
@pytest.mark.parametrize("program", TRAININGS, **places)
def test_a_training_prints_what_the_page_shows(program: Block, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program.text)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "HIVE_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(script)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert program.output in (None, done.stdout)
    assert all(reason in done.stdout for reason in re.findall(r'self\.end_run\("(.*)"\)', program.text))
    if program.page in TRAINED:
        for run in [Result.open(folder) for folder in tmp_path.glob("*-[0-9]")]:
            assert run.state == "finished"
            assert run.mean_return_100 is not None
            assert run.mean_return_100 >= RETURNS[run.name.partition("-")[0]]
            assert not any(run.restarts.values())


def test_a_plain_script_is_an_example_as_it_is() -> None:
    assert [program.page for program in chains() if program not in PROGRAMS] == ["examples/guide/plain-scripts.md"]
    assert (ROOT / "tests" / "examples" / f"test_{EXAMPLE}").exists()


def needs(text: str) -> set[str]:
    """Return the names that a block uses without defining them, and the modules that not every reader has."""
    imported = [
        name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    ]
    tables = [symtable.symtable(text, "block", "exec")]
    defined = {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used: set[str] = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or not s.is_local())}
        if table.get_type() == "module":
            used |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and not s.is_assigned()}
    free = {name for name in used if name not in defined and not hasattr(builtins, name)}
    local = {s.get_name() for t in everything(text) for s in t.get_symbols() if s.is_local() and s.is_assigned()}
    return (free - local) | {module for module in imported if module.partition(".")[0] not in EVERYWHERE}


def everything(text: str) -> list[symtable.SymbolTable]:
    """Return the scopes of a text."""
    tables = [symtable.symtable(text, "block", "exec")]
    for table in tables:
        tables += table.get_children()
    return tables


@pytest.mark.parametrize("fragment", FRAGMENTS, **places)
def test_a_fragment_is_python(fragment: Block) -> None:
    code = compile(fragment.text, fragment.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if "await" not in fragment.text and not needs(fragment.text):
        assert not STARTS.search(fragment.text), "a whole program is a block of `python`"
        exec(code, {"__name__": "fragment"})


@pytest.mark.parametrize("text", ["f(x)", "import no_such_module", "def f():\n    return missing"])
def test_what_a_fragment_needs_is_found(text: str) -> None:
    assert needs(text)


@pytest.mark.parametrize("text", ["x = 1\nprint(x)", "def f(a):\n    b = a\n    return b", "[i for i in range(3)]"])
def test_a_whole_fragment_needs_nothing(text: str) -> None:
    assert not needs(text)


def test_a_program_names_the_extra_that_it_needs() -> None:
    """Without it, a program of a page fails after README's first command."""
    lines = [line for program in PROGRAMS for line in program.text.splitlines() if ".plot(" in line]
    assert lines
    assert [line for line in lines if "[plot]" not in line] == []
