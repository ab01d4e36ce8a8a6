"""Runs from a script: forms of configs and of functions. (live/test_scripting.py tests real runs.)"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hive
from hive.cli.scripting import _prepared, _reference, _toml
from hive.config import load_config, load_reference
from hive.envs import describe
from hive.errors import ConfigError, RecordError, TopologyError, UsageError
from hive.records import RunDirectory, Summary


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path / "runs"))
    return tmp_path / "runs"


TABLES: list[dict[str, Any]] = [
    {"run": {"steps": 5, "name": 'odd "name"'}, "env": {"id": "CartPole-v1", "options": {"a": [1, 2.5, True]}}},
    {"custom": {"curriculum": {"level": 3, "table": {"x": 1}}, "other": {}}},
    {"checkpoint": {"every": {"updates": 3}}, "run": {"steps": 1}},
    {},
]


@pytest.mark.parametrize("tables", TABLES)
def test_a_mapping_of_tables_equals_its_toml(tables: dict[str, Any]) -> None:
    assert tomllib.loads(_toml(tables)) == tables


SCRIPT = """
import hive
{call}
class Env: ...
"""


@pytest.mark.parametrize(
    "call",
    [
        'hive.train({"env": {"id": "CartPole-v1"}}, inline=True)',
        "hive.run(lambda config: None, inline=True)",
        'import asyncio; asyncio.run(hive.train_async({"env": {"id": "CartPole-v1"}}))',
        "import asyncio; asyncio.run(hive.run_async(lambda config: None))",
    ],
)
def test_a_script_starts_no_run_while_a_run_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path, call: str
) -> None:
    (tmp_path / "trains_at_import.py").write_text(SCRIPT.format(call=call))
    monkeypatch.syspath_prepend(tmp_path)
    loads: list[Callable[[], Any]] = [
        lambda: describe("trains_at_import:Env", {}),
        lambda: load_reference("trains_at_import:Env"),
        lambda: load_reference(f"{tmp_path / 'trains_at_import.py'}:Env"),
    ]
    for load in loads:
        with pytest.raises(UsageError, match="`trains_at_import` starts a run while a process of a run imports it"):
            load()
    assert not home.exists()


def config_of(directory: RunDirectory) -> Any:
    return load_config(directory.resolved_file)


def test_a_config_may_be_a_file_a_mapping_or_a_config(tmp_path: Path) -> None:
    file = tmp_path / "cart.toml"
    file.write_text('[env]\nid = "CartPole-v1"\n[run]\nsteps = 7\n')
    of_file = _prepared(file, ["run.seed=3"])
    of_text = _prepared(str(file), ["run.seed=3"])
    of_mapping = _prepared({"env": {"id": "CartPole-v1"}, "run": {"steps": 7}}, ["run.seed=3"])
    of_config = _prepared(load_config(file), ["run.seed=3"])
    assert config_of(of_file) == config_of(of_text) == config_of(of_mapping) == config_of(of_config)
    assert [d.name for d in (of_file, of_text, of_mapping, of_config)] == [
        f"{config_of(of_file).run.name}-{n}" for n in range(1, 5)
    ]
    assert of_file.config_file.read_bytes() == file.read_bytes()


def test_all_problems_of_a_mapping_are_reported(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _prepared({"run": {"steps": "many"}, "colection": {}}, [])
    assert "run.steps: expected an integer" in str(caught.value)
    assert "did you mean `collection`?" in str(caught.value)
    assert not home.exists()


def own(config: Any) -> Any: ...


def test_a_function_of_a_file_is_found_by_its_place() -> None:
    assert _reference(own, inline=False) == (f"{Path(__file__).resolve()}:own", None)


def nested() -> Callable[..., Any]:
    def inner(config: Any) -> Any: ...

    return inner


@pytest.mark.parametrize("function", [lambda config: None, nested(), len, object()])
def test_a_function_that_others_cannot_import_only_runs_inline(function: Any) -> None:
    with pytest.raises(TopologyError, match="cannot be imported by other processes") as caught:
        _reference(function, inline=False)
    assert "inline=True" in caught.value.hint
    assert _reference(function, inline=True) == ("inline.py:topology", None)


class Three(hive.Actor):
    async def run(self) -> None:
        self.end_run("three")


class Waiting(hive.Actor):
    started: asyncio.Event
    loop: asyncio.AbstractEventLoop

    async def run(self) -> None:
        self.loop.call_soon_threadsafe(self.started.set)
        await asyncio.get_running_loop().create_future()


def three(config: hive.Config | None) -> hive.Topology:
    topology = hive.Topology()
    topology.add(Three)
    return topology


def waiting(config: hive.Config) -> hive.Topology:
    topology = hive.Topology()
    topology.add(Waiting)
    return topology


async def test_an_inline_run_inside_a_running_loop() -> None:
    assert hive.run(three, inline=True).stop_reason == "three"
    assert hive.testing.run_inline(three(None)).reason == "three"


async def test_runs_that_are_awaited_leave_the_loop_running() -> None:
    summaries = await asyncio.gather(*(hive.run_async(three, inline=True, name=name) for name in "ab"))
    assert [summary.stop_reason for summary in summaries] == ["three", "three"]
    with pytest.raises(ConfigError):
        await hive.train_async({"colection": {}})


async def test_cancelling_the_call_ends_the_run(home: Path) -> None:
    Waiting.started, Waiting.loop = asyncio.Event(), asyncio.get_running_loop()
    run = asyncio.create_task(hive.run_async(waiting, inline=True, name="w"))
    await Waiting.started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    summary = Summary.read(RunDirectory.open(home / "w-1").summary_file)
    assert (summary.state, summary.stop_reason) == ("stopped", "cancellation")


def test_the_result_of_a_run_has_its_files_and_its_policy() -> None:
    config = {"env": {"id": "CartPole-v1"}, "run": {"steps": 400}}
    result = hive.train(config, inline=True, quiet=True)
    assert RunDirectory(result.directory).summary_file.exists()
    assert result.policy()(np.zeros((2, 4), np.float32)).shape == (2,)
    with pytest.raises(RecordError):
        result.policy("best")


@pytest.mark.parametrize(
    "tables",
    [
        {"env": {"id": "CartPole-v1", "options": {"rows": np.zeros(3)}}},
        {"env": {"id": "CartPole-v1", "options": {"rows": None}}},
        {"env": {"rows": object()}},
        {"custom": {"group": {"rows": [None]}}},
        {"env": {3: 4}},
    ],
)
def test_a_value_that_toml_cannot_hold_is_named(tables: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"rows|env, its key 3"):
        hive.train(tables)
