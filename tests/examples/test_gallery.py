"""Every example is short, documents how to run it, is listed in the gallery, and uses nothing private."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest
from short_runs import EXAMPLES

MOST_LINES, MOST_OF_PAGE = 125, 350
ALGORITHMS = {"ppo", "sac"}  # a whole algorithm on one page, without hive
PLAIN_SCRIPTS = {"actor_critic", "c51", "ddpg", "dqn", "play_onnx", "workers"} | ALGORITHMS  # without processes of hive
GALLERY = (EXAMPLES / "guide" / "gallery.md").read_text()
ENVIRONMENTS = {"cartpole_positions"}  # those that a config in this folder names
PROGRAMS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem not in ENVIRONMENTS)
every_program = pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)


def test_there_are_nine_topologies_and_the_plain_scripts() -> None:
    assert len(PROGRAMS) == 9 + len(PLAIN_SCRIPTS)
    assert {path.stem for path in PROGRAMS} > PLAIN_SCRIPTS


@every_program
def test_it_is_short_and_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= (MOST_OF_PAGE if path.stem in ALGORITHMS else MOST_LINES)
    documentation = ast.get_docstring(ast.parse(text))
    assert documentation is not None
    line = next(line for line in documentation.splitlines() if f"python examples/{path.name}" in line)
    assert line.rstrip().endswith(" s"), "the line must end with the time that it takes"
    main = text.partition('if __name__ == "__main__":')[2]
    assert main
    assert ("hive.run(topology" in main) != (path.stem in PLAIN_SCRIPTS)


@every_program
def test_it_is_in_the_gallery_and_tested(path: Path) -> None:
    assert f"| `{path.name}` |" in GALLERY
    assert (Path(__file__).parent / f"test_{path.name}").exists()


@every_program
def test_it_uses_no_private_attribute(path: Path) -> None:
    """tests/test_public_names.py checks the names of hive that it uses."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_") or node.attr.startswith("__"), node.attr


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_page_numbers_its_details_and_imports_nothing_of_hive(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    details = [int(number) for number in re.findall(r"^ *# (\d+)\. ", text, re.MULTILINE)]
    assert details == list(range(1, len(details) + 1))
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {name.partition(".")[0] for name in names if name} - sys.stdlib_module_names == {
        *("gymnasium", "numpy", "torch")
    }
