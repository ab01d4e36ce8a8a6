"""README and the guide: programs run and print what the page shows, commands are understood, links lead somewhere."""

from __future__ import annotations

import ast
import functools
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hive.api.result import Result
from hive.cli import parser
from hive.config.other_names import is_key, other_names

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "examples" / "guide"
README = ROOT / "README.md"
PAGES = [README, *sorted(GUIDE.glob("*.md"))]
LINKED = [*PAGES, ROOT / "ARCHITECTURE.md", *sorted((GUIDE / "decisions").glob("*.md"))]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in PAGES}

WORDS = range(600, 901)  # length of README: one screen and a half
MOST_LINES = 13  # README's program, with its imports
TWELVE = 12  # lines of the first program of topologies.md, as its first paragraph says
RETURNS = {"cartpole": 100.0, "coin": 9.0}  # by the first word of a run's name; at random 22 and 5
DEVELOPMENT = {"peers", "release", "test"}  # extras for work on hive itself
EXAMPLE = "dqn.py"  # this example is the program of plain-scripts.md; tests/examples runs it in a shorter form

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PROGRAM = re.compile(r"```python\n(.*?)```\n+(?:```\n(.*?)```)?", re.DOTALL)
PROGRAMS = {
    f"{name}:{text.count(chr(10), 0, found.start()) + 1}": found.groups()
    for name, text in TEXTS.items()
    for found in PROGRAM.finditer(text)
}
SHOWN = {place: program for place, program in PROGRAMS.items() if program[1] and "plain-scripts" not in place}
TRAINING = {  # pages whose programs begin with names of the earlier ones, and print what depends on the processor
    name: "".join(program for place, (program, _) in PROGRAMS.items() if place.startswith(f"{name}:"))
    for name in ("README.md", "examples/guide/python.md")
}


def blocks(text: str, kind: str) -> list[str]:
    return [found[2] for found in BLOCK.findall(text) if found[1] == kind]


COMMANDS = {name: [line for block in blocks(text, "sh") for line in block.splitlines()] for name, text in TEXTS.items()}


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.full(reason="a training: 3 s")) if "hive.train(" in program else place
        for place, (program, _) in SHOWN.items()
    ],
)
def test_its_programs_run(place: str, tmp_path: Path) -> None:
    program, expected = SHOWN[place]
    assert printed(program, tmp_path) == expected


@pytest.mark.full(reason="five trainings and a resumed one: half a minute")
@pytest.mark.parametrize("name", TRAINING)
def test_its_trainings_end_and_learn(name: str, tmp_path: Path) -> None:
    program = TRAINING[name]
    lines = printed(program, tmp_path)
    runs = [Result.open(folder) for folder in tmp_path.glob("*-[0-9]")]
    assert len(runs) == len(re.findall(r"^\w+ = hive\.(?:train|run)\(", program, re.MULTILINE)) > 0
    for run in runs:
        assert run.state == "finished"
        assert run.mean_return_100 >= RETURNS[run.name.partition("-")[0]]
        assert not any(run.restarts.values())
    assert all(reason in lines for reason in re.findall(r'self\.end_run\("(.*)"\)', program))


def printed(program: str, folder: Path) -> str:
    """Return what a program of a page prints, as a script in `folder`, which also gets its runs."""
    script = folder / "program.py"
    script.write_text(program)
    environment = {**os.environ, "HIVE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", str(script)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plain_script_is_an_example_as_it_is() -> None:
    (program,) = (program for place, (program, _) in PROGRAMS.items() if "plain-scripts" in place)
    assert program == (ROOT / "examples" / EXAMPLE).read_text()
    assert (ROOT / "tests" / "examples" / f"test_{EXAMPLE}").exists()


def test_every_step_of_the_tutorial_has_a_program() -> None:
    text = TEXTS["examples/guide/topologies.md"]
    assert text.count("```python") == len(re.findall(r"^## \d+\. ", text, re.MULTILINE)) >= 10
    assert len(blocks(text, "python")[0].splitlines()) <= TWELVE


@pytest.mark.parametrize("name", TEXTS)
def test_its_fragments_are_python(name: str) -> None:
    for block in blocks(TEXTS[name], "py"):
        compile(block, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("name", TEXTS)
def test_its_commands_are_understood(name: str) -> None:
    for line in COMMANDS[name]:
        if line.startswith("hive "):
            words = shlex.split(line, comments=True)[1:]
            assert parser().parse_args(words).command == words[0]


def test_readme_has_its_two_commands() -> None:
    assert "pip install . && hive up examples/cartpole.toml" in COMMANDS["README.md"]
    assert "pip install '.[test]' && pytest" in COMMANDS["README.md"]


def test_readme_is_one_screen_and_a_half() -> None:
    text = TEXTS["README.md"]
    assert len(text.split()) in WORDS
    assert len(blocks(text, "python")[0].splitlines()) <= MOST_LINES


def test_a_program_names_the_extra_that_it_needs() -> None:
    """Without it, a program of a page fails after README's first command."""
    lines = [line for program, _ in PROGRAMS.values() for line in program.splitlines() if ".plot(" in line]
    assert lines
    assert [line for line in lines if "[plot]" not in line] == []


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_its_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(BLOCK.sub("", path.read_text())):
        place, _, anchor = link.partition("#")
        if "://" not in place:
            target = (path.parent / place).resolve() if place else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", TEXTS)
def test_the_files_it_names_exist(name: str) -> None:
    for file in re.findall(r"`((?:tests|native|examples|scripts)/[\w/.]+)`", TEXTS[name]):
        assert (ROOT / file).exists(), file


def test_the_index_lists_every_page() -> None:
    index = set(LINK.findall(TEXTS["examples/guide/README.md"]))
    assert {path.name for path in GUIDE.glob("*.md")} - {"README.md"} <= index


def test_the_index_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = TEXTS["examples/guide/README.md"].partition("\n## Extras\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(extras) - DEVELOPMENT


def test_names_of_other_trainers_are_those_of_the_hints() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", TEXTS["examples/guide/from-sb3.md"], re.MULTILINE)
    assert len(rows) >= 20
    assert [row for row in rows if other_names("keys").get(row[0], row[1]) != row[1]] == []
    assert [row for row in rows if not is_key(row[1])] == []
