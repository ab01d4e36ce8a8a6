"""Of the tests that show again what others show, each commit runs a quarter, and four commits can run all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

TESTPATHS, ARGS = pytest.Config.ArgsSource.TESTPATHS, pytest.Config.ArgsSource.ARGS
NAMES = [f"tests/test_it.py::test_again[{number}]" for number in range(40)]


@pytest.fixture
def suite(pytestconfig: pytest.Config) -> Any:
    """tests/conftest.py."""
    return next(one for one in pytestconfig.pluginmanager.get_plugins() if hasattr(one, "ROTATIONS"))


def session(given: object, source: pytest.Config.ArgsSource = TESTPATHS) -> Any:
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    return SimpleNamespace(getoption=lambda name: given, args_source=source, hook=hook)


def item(name: str, **marks: pytest.Mark) -> Any:
    return SimpleNamespace(nodeid=name, get_closest_marker=marks.get)


def chosen(suite: Any, config: Any, **marks: pytest.Mark) -> set[str]:
    """Return which tests with these marks run."""
    items = [item(name, **marks) for name in NAMES]
    suite._leave_out_repeating(config, items)
    return {one.nodeid for one in items}


@pytest.mark.parametrize("mark", [pytest.mark.rotates, pytest.mark.full("slow", rotates=True)], ids=["rotates", "full"])
def test_each_test_runs_in_one_rotation_and_always_in_the_same(suite: Any, mark: pytest.MarkDecorator) -> None:
    marks = {mark.name: mark.mark}
    parts = [chosen(suite, session(str(number)), **marks) for number in range(suite.ROTATIONS)]
    assert all(parts)
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert parts == [chosen(suite, session(str(number)), **marks) for number in range(suite.ROTATIONS)]
    assert chosen(suite, session("all"), **marks) == {*NAMES}


def test_other_tests_and_named_paths_always_run(suite: Any) -> None:
    assert chosen(suite, session("1")) == {*NAMES}
    assert chosen(suite, session("1"), full=pytest.mark.full("slow").mark) == {*NAMES}
    assert chosen(suite, session(None, ARGS), rotates=pytest.mark.rotates.mark) == {*NAMES}


def test_a_commit_fixes_the_rotation(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for head in (16**39 + 3, 16**39 + 4):
        git = SimpleNamespace(stdout=f"{head:x}\n")
        with monkeypatch.context() as patch:
            patch.setattr(suite.subprocess, "run", lambda command, git=git, **more: git)
            assert [suite.rotation(session(None)) for _ in range(2)] == [str(head % suite.ROTATIONS)] * 2
            assert suite.rotation(session("2")) == "2"
    monkeypatch.setenv("PATH", "")
    assert suite.rotation(session(None)) == "0"  # without git
