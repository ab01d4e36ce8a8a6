"""Runs from a script: forms of configs and of functions. (live/test_scripting.py tests real runs.)"""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import gymnasium.envs.classic_control
import numpy as np
import pytest

import hive
from hive.api.runs import _deferred
from hive.config import load_config, load_reference
from hive.envs import Recipe, describe
from hive.errors import ConfigError, HiveError, RecordError, UsageError
from hive.records import RunDirectory, Summary
from hive.session.given import GivenConfig, toml_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path / "runs"))
    return tmp_path / "runs"


TABLES: list[dict[str, Any]] = [
    {"run": {"steps": 5, "name": 'odd "name"'}, "env": {"id": "CartPole-v1", "options": {"a": [1, 2.5, True]}}},
    {"custom": {"curriculum": {"level": 3, "table": {"x": 1}}, "other": {}}},
    {"checkpoint": {"every": {"updates": 3}}, "run": {"steps": 1}},
    {"evaluation": {"episodes": 3}, "workers": 4},
    {},
]


@pytest.mark.parametrize("tables", TABLES)
def test_a_mapping_of_tables_equals_its_toml(tables: dict[str, Any]) -> None:
    assert tomllib.loads(toml_of(tables)) == tables


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
        lambda: describe(Recipe("trains_at_import:Env")),
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
    of_file = _deferred(file, {}, ["run.seed=3"], None, inline=False, quiet=False)()
    of_text = _deferred(str(file), {}, ["run.seed=3"], None, inline=False, quiet=False)()
    of_mapping = _deferred(
        {"env": {"id": "CartPole-v1"}, "run": {"steps": 7}}, {}, ["run.seed=3"], None, inline=False, quiet=False
    )()
    of_config = _deferred(load_config(file), {}, ["run.seed=3"], None, inline=False, quiet=False)()
    assert config_of(of_file) == config_of(of_text) == config_of(of_mapping) == config_of(of_config)
    assert [d.name for d in (of_file, of_text, of_mapping, of_config)] == [
        f"{config_of(of_file).run.name}-{n}" for n in range(1, 5)
    ]
    assert of_file.config_file.read_bytes() == file.read_bytes()


def test_all_problems_of_a_mapping_are_reported(home: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        _deferred({"run": {"steps": "many"}, "colection": {}}, {}, [], None, inline=False, quiet=False)()
    assert "run.steps: expected an integer" in str(caught.value)
    assert "did you mean `collection`?" in str(caught.value)
    assert not home.exists()


def own(config: Any) -> Any: ...


def test_functions_of_modules_are_references() -> None:
    given = GivenConfig.of(
        {"env": {"id": gymnasium.envs.classic_control.CartPoleEnv}}, {"update_hook": own}, inline=False
    )
    assert 'id = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"' in given.text
    assert given.source is not None
    assert f"from {__name__} import own" in given.source
    assert 'update_hook = "session.py:own"' in given.text


class Coin(gymnasium.Env[Any, Any]):
    """An environment of this module."""


SENT: list[tuple[dict[str, Any], str]] = [
    ({"env": Coin}, 'id = "session.py:Coin"'),
    ({"env": lambda: Coin()}, 'id = "session.py:coin"'),
    ({"env": functools.partial(Coin)}, 'id = "session.py:coin"'),
    ({"env": {"id": "A-v0", "wrappers": [Coin, {"name": Coin, "size": 3}, "TimeLimit"]}}, '["session.py:Coin", {name'),
    ({"env": "A-v0", "sinks": ["jsonl", Coin]}, 'sinks = ["jsonl", "session.py:Coin"]'),
    ({"env": "A-v0", "network": {"module": Coin}}, 'module = "session.py:Coin"'),
    ({"env": "A-v0", "network": {"extractor": Coin}}, 'extractor = "session.py:Coin"'),
    ({"env": gymnasium.spec("CartPole-v1")}, 'id = "CartPole-v1"'),
    ({"env": "A-v0", "learning_rate": np.float32(0.5), "seed": np.int64(3)}, "learning_rate = 0.5"),
    ({"env": "A-v0", "replay_folder": Path("a/b")}, 'replay_folder = "a/b"'),
    ({"env": "A-v0", "collection.workers": 3}, "workers = 3"),
    ({"env": "A-v0", "collection": {"workers": 3}, "rollout": 7}, "[collection]\nworkers = 3\nrollout = 7"),
    ({"env": "A-v0", "custom": {"group": {"level": 3}}}, "[custom.group]\nlevel = 3"),
]


@pytest.mark.parametrize(("keywords", "text"), SENT)
def test_keywords_are_keys(keywords: dict[str, Any], text: str) -> None:
    given = GivenConfig.of("ppo", keywords, inline=False)
    assert text in given.text
    assert given.text.startswith('[run]\nscheme = "ppo"')
    assert (given.source is not None) == ("session.py" in given.text)
    assert GivenConfig.of("cartpole.toml", keywords, inline=False).overrides


@pytest.mark.parametrize("where", ["keyword", "table", "file", "set", "not"])
def test_inline_sends_what_processes_of_environments_import(where: str, tmp_path: Path) -> None:
    config: Any = {"keyword": "ppo", "table": {"env": {"processes": "each"}}}.get(where, {})
    if where == "file":
        config = tmp_path / "t.toml"
        config.write_text("[env]\nprocesses = 2\n")
    keywords = {"env.processes": 2} if where == "keyword" else {}
    sets = ["env.processes=2"] if where == "set" else ["env.processes=0"]
    keywords |= {"env.id": Coin, "env.wrappers": [Coin], "update_hook": own}
    given = GivenConfig.of(config, keywords, inline=True, sets=sets if where in ("set", "not") else ())
    text = given.text + "\n".join(given.overrides)
    assert ("session.py:Coin" in text and "wrappers=" in text.replace(" = ", "=")) == (where != "not")
    assert (given.source is not None) == (where != "not")
    assert re.search(r'update_hook ?= ?"inline_', text)


WRONG: list[tuple[Any, dict[str, Any], str, str]] = [
    ("CartPole-v1", {}, "`CartPole-v1` is neither a config file nor a scheme", 'env="CartPole-v1"'),
    ("PPO", {}, "`PPO` is neither a config file nor a scheme", "did you mean `ppo`?"),
    ("qqq", {}, "`qqq` is neither", "the schemes are"),
    ("ppo", {"workers": 2}, "workers: several keys .* `collection.workers`, `gradients.workers`", ""),
    (
        "ppo",
        {"gamma": 0.9, "learn_rate": 1},
        "hive calls it `algorithm.discount`(.|\n)*did you mean `learning_rate`",
        "",
    ),
    ("ppo", {"collection": 3}, "collection: the name of a table", ""),
    ("ppo", {"env": Coin()}, "`env` is an environment that exists already", "give the class"),
    ("ppo", {"env": gymnasium.make("CartPole-v1")}, "an environment that exists already", 'env="CartPole-v1"'),
    ("ppo", {"env": [Coin, Coin]}, "`env` is a list", "collection.envs"),
    ("ppo", {"env": "A-v0", "learning_rate": lambda left: left}, "takes no class", "learning_rate_schedule = [[0, "),
    ("ppo", {"env": "A-v0", "gae_lambda": lambda left: left}, "gae_lambda takes no .*: expected a number", ""),
    ("ppo", {"env": "A-v0", "seed": None}, "run.seed: None cannot be written", "out, so that it has its default"),
    ("ppo", {"env": {"id": "A-v0", "wrappers": [{"id": "T"}]}}, r"env.wrappers: expected an array .* name = ", ""),
    ("ppo", {"env": Coin().reset}, "`Env.reset` cannot be sent to other processes: it is a method", "lambda"),
]


@pytest.mark.parametrize(("config", "keywords", "message", "hint"), WRONG)
def test_what_is_no_config_is_named_with_the_way_out(
    config: Any, keywords: dict[str, Any], message: str, hint: str, home: Path
) -> None:
    with pytest.raises(HiveError, match=message) as caught:
        hive.train(config, **keywords)
    assert hint in caught.value.hint
    assert not home.exists()


CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: hive.train("ppo", "CartPole-v1"), 'hive.train("ppo", env="CartPole-v1")'),  # type: ignore[misc,arg-type]
    (lambda: hive.train("MlpPolicy", Coin(), 10_000), 'hive.train("ppo", env=Coin, steps=10_000)'),  # type: ignore[misc]
    (lambda: hive.train(Coin, "SAC"), 'hive.train("sac", env=Coin)'),  # type: ignore[misc,arg-type]
    (lambda: hive.train(Coin), 'hive.train("ppo", env=Coin)'),  # type: ignore[arg-type]
    (lambda: hive.train(Coin(), verbose=1), 'hive.train("ppo", env=Coin)'),  # type: ignore[arg-type]
    (lambda: hive.train("MlpPolicy", env=Coin), 'hive.train("ppo", env=...)'),
    (lambda: hive.run(own, "ppo", 3), "hive.run(topology, config,"),  # type: ignore[misc]
    (lambda: asyncio.run(hive.train_async("ppo", Coin)), 'hive.train("ppo", env=Coin)'),  # type: ignore[misc,arg-type]
    (lambda: hive.Result.resume(None, 2_000), "result.resume(steps=2000)"),  # type: ignore[misc,arg-type]
    (lambda: hive.train("ppo", env="Mine"), "env=Mine"),
    (lambda: hive.train("ppo", config={"lr": 1}, env=Coin), "arguments of their own"),  # type: ignore[misc]
]


@pytest.mark.parametrize(("call", "meant"), CALLS)
def test_a_call_in_the_form_of_other_trainers_is_answered_in_two_lines(
    call: Callable[[], Any], meant: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "Mine", Coin, raising=False)
    with pytest.raises(HiveError) as caught:
        call()
    assert meant in caught.value.hint
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= (9 if "async" in str(call.__code__.co_names) else 2)
    assert not home.exists()


def test_errors_show_the_line_of_the_caller_and_none_of_hive(home: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: hive.load("nobody"),
        lambda: hive.Result.open("nobody"),
        lambda: hive.export("nobody", "a.onnx"),
        lambda: hive.evaluate("nobody"),
        lambda: hive.load_config("nowhere.toml"),
        lambda: hive.make_vector("Nobody-v0", {}, 1),
    ]
    for call in calls:
        with pytest.raises(HiveError) as caught:
            call()
        assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


def test_an_environment_that_a_program_registered_goes_with_it() -> None:
    gymnasium.register("OfATest-v3", Coin, max_episode_steps=7, kwargs={"size": 3})
    try:
        given = GivenConfig.of("ppo", {"env": "OfATest-v3"}, inline=False)
    finally:
        del gymnasium.registry["OfATest-v3"]
    assert 'id = "session.py:OfATest-v3"' in given.text
    assert "register(id='OfATest-v3', entry_point=Coin, max_episode_steps=7, kwargs={'size': 3})" in str(given.source)


def test_the_run_directory_holds_the_module_and_may_move(home: Path) -> None:
    directory = _deferred("ppo", {"env": "CartPole-v1", "update_hook": own}, [], "here", inline=False, quiet=False)()
    assert config_of(directory).run.update_hook == f"{directory.session_file}:own"
    moved = home / "there"
    directory.path.rename(moved)
    config = config_of(RunDirectory(moved))
    assert config.run.update_hook == f"{moved}/session.py:own"
    assert load_reference(str(config.run.update_hook)) is own


def test_inline_runs_take_any_object(home: Path) -> None:
    heard = []
    result = hive.train(
        "a2c",
        env="CartPole-v1",
        steps=600,
        update_hook=lambda update: heard.append(update.number),
        inline=True,
        quiet=True,
    )
    assert len(heard) == result.updates > 0


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
    config = {"env": {"id": "CartPole-v1"}, "run": {"steps": 400}, "record": {"sinks": ["jsonl", "episodes"]}}
    result = hive.train(config, inline=True, quiet=True)
    assert RunDirectory(result.directory).summary_file.exists()
    assert result.policy()(np.zeros((2, 4), np.float32)).shape == (2,)
    with pytest.raises(ValueError, match=r"got observations of shape \[7\]") as caught:
        result.policy()(np.zeros(7))
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}
    with pytest.raises(RecordError):
        result.policy("best")
    assert repr(result).startswith(f"<hive.Result {result.name}, finished: 400 steps")
    assert repr(hive.Result.open(result.name)) == repr(hive.Result.open(result.directory)) == repr(result)
    metrics = result.metrics()
    assert (type(metrics), type(metrics["steps"]), metrics["steps"][-1]) == (dict, np.ndarray, result.env_steps)
    assert result.evaluations() == {}
    (result.directory / "evaluations.jsonl").write_text('{"steps": 300, "turn": 3}\n{"steps": 200, "turn": 2}\n')
    assert [*result.evaluations()["turn"]] == [2, 3], "evaluators write out of order"
    assert [*result.episodes()["episode"]] == [*range(1, result.episodes + 1)]
    (result.directory / "episodes.jsonl").unlink()
    with pytest.raises(RecordError, match="did not list its episodes"):
        result.episodes()
    assert result.plot()._repr_png_().startswith(b"\x89PNG")
    assert result.plot().axes[0].get_xlabel() == "environment steps"


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
