"""Spaces that a child reads: the same descriptions, errors, and what the parent imports."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from hive.config import EnvConfig, load_config
from hive.envs import Recipe, configured, configured_spec, describe
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.observation import observation_spec
from hive.envs.spaces.plain_specs import from_plain, to_plain
from hive.envs.spaces.reading_spaces import described_by_child
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors import compiled
from hive.errors import EnvironmentFailed, EnvironmentMissing
from hive.records import RunDirectory, write_resume_point
from hive.training import environment_of

leaf = st.sampled_from(
    [
        spaces.Box(-1, np.inf, (2, 3), np.float32),
        spaces.Box(0, 255, (4, 4, 1), np.uint8),
        spaces.Box(-0.1, 1e30, (), np.float64),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary((2, 2)),
    ]
)
space = st.recursive(
    leaf,
    lambda inner: (
        st.dictionaries(st.text(max_size=4), inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=5,
)


@given(space, space, st.none() | st.integers(1, 10**6))
def test_descriptions_survive_as_plain_data(observed: Any, acted: Any, limit: int | None) -> None:
    try:
        described = EnvironmentSpec("mine", observation_spec("mine", observed), action_spec("mine", acted), limit)
    except EnvironmentFailed:  # names that are the same with dots
        return
    again = from_plain(json.loads(json.dumps(to_plain(described))))
    assert again == described
    assert repr(again) == repr(described)  # also fields that are not compared


def test_what_is_not_plain_is_an_error_that_shows_it() -> None:
    observed = observation_spec("mine", spaces.Dict({frozenset("a"): spaces.Discrete(2)}))
    with pytest.raises(EnvironmentFailed, match="frozenset"):
        to_plain(observed)


@pytest.mark.parametrize("id", ["CartPole-v1", "fake_environments:Counting"])
def test_a_child_describes_what_this_process_would(id: str) -> None:
    assert described_by_child(Recipe(id)) == describe(Recipe(id))


@pytest.mark.parametrize(
    ("sets", "limit_s"), [([], 300.0), (["supervision.phase_limit_s=900"], 900.0), (["env.start_limit_s=2"], 2.0)]
)
def test_the_limit_of_the_child_is_that_of_a_run(
    sets: list[str], limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def described(recipe: Recipe, limit_s: float, **given: Any) -> EnvironmentSpec:
        limits.append(limit_s)
        return describe(recipe)

    monkeypatch.setattr(configured, "forks", lambda: True)
    monkeypatch.setattr(configured, "described_by_child", described)
    text = '[env]\nid = "CartPole-v1"\n[evaluation]\nenv = { vector = "python" }\n'
    environment_of(load_config("run.toml", sets, text=text))
    assert limits == [limit_s, limit_s]


@pytest.mark.parametrize(
    ("update", "changed", "looks"), [(0, [], True), (8, [], False), (8, ["env.options"], True), (8, ["run.x"], False)]
)
def test_a_resumed_run_looks_again_only_at_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int, changed: list[str], looks: bool
) -> None:
    asked = []

    def described(recipe: Recipe, limit_s: float, **given: Any) -> EnvironmentSpec:
        asked.append(given["environments"] > 0)
        return describe(recipe)

    monkeypatch.setattr(configured, "forks", lambda: True)
    monkeypatch.setattr(configured, "described_by_child", described)
    directory = RunDirectory.create(tmp_path, "run")
    config = load_config("run.toml", text='[env]\nid = "CartPole-v1"\n')
    environment_of(config, directory)
    write_resume_point(directory, update, changed=changed)
    environment_of(config, directory)
    assert asked == [True, looks]


def test_the_comparison_of_a_compiled_environment_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "COMPARED", {})
    described_by_child(Recipe("CartPole-v1"))
    assert [*compiled.COMPARED.values()] == [True]


SIMPLE = """
import gymnasium, threading, time
from gymnasium import spaces
class Env(gymnasium.Env):
    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)
    def __init__(self):
        threading.Thread(target=time.sleep, args=(1000,)).start()
"""


@pytest.mark.parametrize(("more", "shared"), [("", True), ("Env()\n", False), ("FILE = open(__file__)\n", False)])
def test_a_module_is_imported_here_only_if_its_import_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, shared: bool
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "read_by_child.py").write_text(SIMPLE + more)
    monkeypatch.setattr(configured, "forks", lambda: True)  # as in a fork server
    assert configured_spec(EnvConfig(id="read_by_child:Env")).action.shape == ()
    assert (sys.modules.pop("read_by_child", None) is not None) == shared


def test_errors_of_a_child_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for id in ("no_such_module:Env", "CartPole-v17", "fake_environments:Nothing"):
        messages = []
        for forking in (False, True):
            monkeypatch.setattr(configured, "forks", lambda forking=forking: forking)
            with pytest.raises(EnvironmentMissing) as caught:
                configured_spec(dataclasses.replace(EnvConfig(id="x"), id=id))
            messages.append((str(caught.value), caught.value.hint))
        assert messages[0] == messages[1]
