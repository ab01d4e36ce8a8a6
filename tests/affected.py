"""Which tests a change can reach: `pytest --affected`.

A changed file of hive reaches the tests of its room, each test file that imports it or a module that imports it, and
the live tests that name its room. What lies further up sees the change through modules between, whose own tests run;
the whole suite looks there. A name that a package passes on leads to the module that it comes from.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
EVERYTHING = ("pyproject.toml", "tests/conftest.py", "tests/warm.py", ".ci/", "native/CMakeLists.txt")
FROM_NATIVE = re.compile(r"\b_native\b")
# An import statement: module and names, in parentheses or not, or modules. Parsing takes ten times as long.
IMPORTS = re.compile(r"^\s*(?:from ([\w.]+) import (?:\(([^)]*)\)|(.*))|import (.*))", re.MULTILINE)


class NoChanges(Exception):
    """Raised when git cannot say what has changed."""


def changed_since(revision: str) -> list[str]:
    """Return the paths of files, relative to the project, that differ from a revision or are not in git."""
    found: list[str] = []
    for words in (
        ("diff", "--name-only", "--no-renames", revision, "--"),
        ("ls-files", "--others", "--exclude-standard"),
    ):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoChanges(done.stderr.strip())
        found += done.stdout.splitlines()
    return found


def affected(changed: list[str]) -> set[Path] | None:
    """Return the test files that these changes can reach; None: all."""
    if any(path.startswith(EVERYTHING) for path in changed):
        return None
    modules = {ROOT / path for path in changed if path.startswith("hive/")}
    is_native = any(path.startswith("native/") for path in changed)
    users = {path for path in sources(ROOT / "hive") if is_native and FROM_NATIVE.search(path.read_text())}
    reached = modules | users | {path for path in sources(ROOT / "hive") if imported(path) & modules}
    rooms = {room_of(path) for path in modules} | {room for path in changed for room in readers_of(path)}
    helpers = {ROOT / path for path in changed if path.startswith("tests/")}
    found = {ROOT / path for path in changed if Path(path).match("test_*.py")}
    for path in sources(TESTS):
        if not path.name.startswith("test_"):
            continue
        inside = path.relative_to(TESTS).parts[0]
        is_live = inside == "live" and any(re.search(rf"\b{room}\b", path.read_text()) for room in rooms)
        if is_live or inside in rooms or imported(path) & (reached | helpers) or helpers & data_beside(path):
            found.add(path)
    return found | {TESTS / "test_house.py"}


def readers_of(path: str) -> tuple[str, ...]:
    """Return the rooms of the tests of a file outside of hive."""
    if path.startswith("scripts/"):
        return ("scripts",)
    if path.startswith("native/"):
        return ("native", "founding")
    return ("guide", "examples") if path.startswith("examples/") or path.endswith(".md") else ()


def room_of(path: Path) -> str:
    """Return the first folder below hive/ of a file, or the name of a module at the top."""
    return path.relative_to(ROOT / "hive").parts[0].removesuffix(".py")


def data_beside(path: Path) -> set[Path]:
    """Return the files without tests in the folder of a test, which it may read."""
    return {one for one in path.parent.iterdir() if one.is_file() and not one.name.startswith("test_")}


@functools.cache
def sources(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(folder.rglob("*.py")))


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """Return the files of hive and of the tests that a file imports, or a program in its text."""
    found = set()
    for module, several, names, modules in IMPORTS.findall(path.read_text()):
        for name in re.findall(r"\w+", re.sub(r"#.*| as \w+", "", several or names)):
            found |= set(defining(module, name))
        found |= {file for name in re.sub(r"#.*| as \w+", "", modules).split(",") if (file := file_of(name.strip()))}
    return frozenset(found)


def defining(module: str, name: str) -> Iterator[Path]:
    """Yield the file that `from module import name` reads: the module `name`, or where the package has it from."""
    if (file := file_of(f"{module}.{name}")) is not None:
        yield file
    elif (file := file_of(module)) is not None:
        origin = passed_on(file).get(name) if file.name == "__init__.py" else None
        yield (file_of(origin) if origin else None) or file


@functools.cache
def passed_on(package: Path) -> dict[str, str]:
    """Return name -> module for what a package imports from its own modules."""
    nodes = [node for node in ast.walk(ast.parse(package.read_text())) if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name: node.module for node in nodes if node.module for name in node.names}


@functools.cache
def file_of(module: str) -> Path | None:
    """Return the file of a module of hive or of the tests; None: it is another's."""
    parts = module.split(".")
    for root in (ROOT,) if parts[0] == "hive" else (TESTS, ROOT):
        for file in (root.joinpath(*parts).with_suffix(".py"), root.joinpath(*parts, "__init__.py")):
            if file.is_file():
                return file
    return None
