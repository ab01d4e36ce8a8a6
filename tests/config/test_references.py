"""References to modules and files: loading from any folder, and errors that name the missing part."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive.config import absolute, load_reference, why_not_found
from hive.config.keys import is_topology_reference
from hive.envs import Recipe, describe
from hive.errors import EnvironmentMissing, NetworkError, TopologyError
from hive.networks.build.configured import load_module

SOURCE = """
from neighbour_of_it import FOUND
loaded = 0

def topology():
    return FOUND

class Other:
    pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "neighbour_of_it.py").write_text("FOUND = 17\n")
    path = tmp_path / "own_reference.py"
    path.write_text(SOURCE)
    modules, folders = set(sys.modules), list(sys.path)
    yield path
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    sys.path[:] = folders


def test_a_module_that_another_one_hides_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder comes last, so that a user's `code.py` or `random.py` hides no module of Python."""
    for file in ("random.py", "time.py", "json/envs.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("class Env: ...\n")
    (tmp_path / "bin").mkdir()
    for program in ("pytest", "random"):
        (tmp_path / "bin" / program).write_text("#!/usr/bin/env python\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "bin"), *sys.path, str(tmp_path)])
    for reference, found, file in (
        ("random:Env", "lib/python", "random.py"),
        ("time:Env", "a module inside Python", "time.py"),
        ("json.envs:Env", "json/__init__.py", "json"),
    ):
        with pytest.raises(TopologyError, match=f"{found}.*, which hides {tmp_path / file}") as caught:
            load_reference(reference)
        assert caught.value.hint.startswith(f"rename {file}: ")
        with pytest.raises(EnvironmentMissing, match=f"{found}.*, which hides {tmp_path / file}"):
            describe(Recipe(reference))
        with pytest.raises(EnvironmentMissing, match=f"{found}.*, which hides {tmp_path / file}"):
            describe(Recipe("CartPole-v1", wrappers=[reference]))
        with pytest.raises(NetworkError, match=f"{found}.*, which hides {tmp_path / file}"):
            load_module(reference)
    assert why_not_found("pytest:Env") == why_not_found("no_such_module:Env") == ("", "")


def test_a_class_of_the_running_script_is_explained() -> None:
    with pytest.raises(EnvironmentMissing, match="`__main__` is the script that starts a run") as caught:
        describe(Recipe("__main__:Coin"))
    assert caught.value.hint.endswith("name that: custom:Coin")
    with pytest.raises(TopologyError, match="`__main__` is the script that starts a run"):
        load_reference("__main__:coin")


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("package.module:name", True),
        ("package", True),
        ("a/b c.py:name", True),
        ("/x/y.py", True),
        ("", False),
        ("package.:name", False),
        ("package:na me", False),
        ("x.py:", False),
        ("x\n.py", False),
    ],
)
def test_what_a_place_looks_like(text: str, good: bool) -> None:
    assert is_topology_reference(text) is good


def test_a_file_and_its_neighbours(file: Path) -> None:
    assert load_reference(f"{file}:topology")() == 17
    assert load_reference(str(file), "Other").__name__ == "Other"
    assert load_reference(f"{file}:Other") is load_reference(f"{file}:Other")  # imported once


def test_a_file_is_found_from_everywhere(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    text = absolute("own_reference.py:topology")
    assert text == f"{file}:topology"
    monkeypatch.chdir("/")
    assert load_reference(text)() == 17
    assert absolute("package.module:name") == "package.module:name"


def test_two_files_of_one_name(file: Path, tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    other = tmp_path / "deeper" / file.name
    other.write_text("def topology():\n    return 18\n")
    assert load_reference(f"{file}:topology")() == 17
    assert load_reference(f"{other}:topology")() == 18
    assert load_reference(f"{file}:topology")() == 17


def test_a_module() -> None:
    assert load_reference("pathlib:Path") is Path
    assert load_reference("collections.abc", "Mapping").__name__ == "Mapping"


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("no_such_package_of_ours.x:y", "there is no module `no_such_package_of_ours.x`", "current folder"),
        ("collections.no_such:y", "there is no module `collections.no_such`", "current folder"),
        ("no/such/file.py:y", "there is no file `.*no/such/file.py`", ""),
        ("bisect:no_such", "`bisect` has no `no_such`", "bisect_left"),
    ],
)
def test_what_is_missing_is_named(text: str, wrong: str, hint: str) -> None:
    with pytest.raises(TopologyError, match=wrong) as caught:
        load_reference(text)
    assert hint in caught.value.hint


def test_what_a_module_of_ones_own_needs_is_its_own_affair(file: Path) -> None:
    """The traceback says where; nothing half imported stays behind."""
    file.write_text("import no_such_package_of_ours\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_package_of_ours"):
            load_reference(f"{file}:topology")
