"""A topology of a notebook is written as a module. The cells here are compiled as IPython compiles them."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hive.cli.scripting import _prepared_for
from hive.cli.session_source import source_of
from hive.config import load_config
from hive.errors import TopologyError
from hive.schemes import load

Cells = Callable[..., dict[str, Any]]

IMPORTS = "import hive\nimport hive.testing\nfrom math import inf as forever, pi\nsummary = object()\n"
MESSAGE = "class Number(hive.Message):\n    value: int\n"
ACTORS = """
AMOUNT = 10

class Counter(Base):
    numbers = hive.Outlet(Number, optional=True)
    amounts = [half(AMOUNT) for _ in range(2)]

    async def run(self) -> None:
        for value in range(self.amounts[0]):
            await self.numbers.send(Number(value))
        self.end_run(f"{later()} of {summary_of(self)}")

def later() -> str: return Counter.__name__
"""
BASE = "class Base(hive.Actor):\n    def other(self) -> type: return Counter\n\ndef half(n): return n // 2\n"
TOPOLOGY = """
def summary_of(actor): return pi if forever else 0

def topology(config):
    summary = hive.Topology()
    summary.add(Counter)
    return summary
"""


@pytest.fixture
def cells() -> Iterator[Cells]:
    """Return a function that executes cells and returns their namespace."""
    before, namespace = dict(linecache.cache), {"__name__": "__main__"}

    def execute(*sources: str) -> dict[str, Any]:
        for number, source in enumerate(sources):
            file = f"/tmp/ipykernel_7/{len(linecache.cache)}{number}.py"
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
            exec(compile(source, file, "exec", dont_inherit=True), namespace)
        return namespace

    yield execute
    linecache.cache.clear()
    linecache.cache.update(before)


def test_the_module_has_all_that_the_function_refers_to_and_nothing_else(cells: Cells) -> None:
    session = cells(IMPORTS, "AMOUNT = 1\ndef half(n): return None\n", MESSAGE, BASE, ACTORS, TOPOLOGY, "AMOUNT = 8\n")
    source = source_of(session["topology"])
    assert source is not None
    assert "summary = object()" not in source
    module: dict[str, Any] = {"__name__": "session"}
    exec(compile(source, "session.py", "exec", dont_inherit=True), module)
    assert module["Counter"].amounts == [4, 4]  # the present values and definitions
    assert module["later"]() == "Counter"
    assert [*module["topology"](None).groups] == ["counter"]


def test_a_class_follows_its_base_although_the_base_refers_to_it(cells: Cells) -> None:
    session = cells("class A:\n    def make(self): return B()\n", "class B(A): ...\n", "def topology(config): B\n")
    source = source_of(session["topology"])
    assert source is not None
    assert source.index("class A") < source.index("class B") < source.index("def topology")


def test_the_last_definition_counts(cells: Cells) -> None:
    session = cells("class A:\n    old: int\n", "class A:\n    new: int\n", "def topology(config): A\n")
    assert "new: int" in str(source_of(session["topology"]))


def test_postponed_annotations_stay_postponed(cells: Cells) -> None:
    session = cells("from __future__ import annotations\nimport hive\ndef topology(config: hive.Config): ...\n")
    assert str(source_of(session["topology"])).startswith("from __future__ import annotations\n")


def test_an_object_without_a_source_is_refused_with_the_way_out(cells: Cells) -> None:
    session = cells("import hive\nnetwork = object()\n", "def topology(config): return network\n")
    with pytest.raises(TopologyError, match=r"`topology` uses `network`, an object of .* of type `object`") as caught:
        source_of(session["topology"])
    assert "make `network` inside a function, put the code into a file, or pass inline=True" in caught.value.hint


def test_functions_without_a_source_have_no_module(cells: Cells) -> None:
    session = cells("one = lambda config: None\ndef outer():\n    def inner(config): ...\n    return inner\n")
    exec("def prompt(config): ...", session)
    assert [source_of(f) for f in (session["one"], session["outer"](), session["prompt"])] == [None, None, None]


def test_the_run_directory_holds_the_module(cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    topology = cells(IMPORTS, MESSAGE, BASE, ACTORS, TOPOLOGY)["topology"]
    directory = _prepared_for(topology, None, [], inline=False)
    assert directory.name == "session-1"
    assert load_config(directory.resolved_file).run.topology == f"{directory.session_file}:topology"
    assert [*load(str(directory.path)).groups] == ["counter"]
