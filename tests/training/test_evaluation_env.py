"""[evaluation.env]: evaluations play another environment than training, with the same spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import config_of

import hive
from hive.config import load_config
from hive.errors import ConfigError
from hive.records import read_jsonl
from hive.training import Blueprint, EvaluationDue, Evaluator, evaluate

ENV = "small_environments:OneState"
OPTIONS = "{ terminates = 3 }"


def config(**values: Any) -> Any:
    return config_of(ENV, env__options=OPTIONS, evaluation__episodes=4, **values)


def test_its_keys_replace_those_of_training_and_its_options_are_added() -> None:
    changed = config(evaluation__env='{ options = { truncates = 2 }, wrappers = ["FlattenObservation"] }')
    env = changed.evaluation_env
    assert env.options == {"terminates": 3, "truncates": 2}
    assert (env.id, env.wrappers) == (ENV, ("FlattenObservation",))
    other = config(evaluation__env='{ id = "CartPole-v1" }').evaluation_env
    assert (other.id, other.options) == ("CartPole-v1", {})
    assert (changed.env.options, changed.env.wrappers) == ({"terminates": 3}, ())
    assert config().evaluation_env == config().env


def test_the_evaluator_plays_it_and_collectors_do_not() -> None:
    blueprint = Blueprint(config(evaluation__env="{ options = { terminates = 5 } }"))
    assert Evaluator.of_run(blueprint).evaluate(EvaluationDue(0, 0, 0, 0, 0.0)).mean_length == 5.0
    assert Evaluator.of_run(Blueprint(config())).evaluate(EvaluationDue(0, 0, 0, 0, 0.0)).mean_length == 3.0
    assert blueprint.vector().environments[0].ends == (3, 0)  # type: ignore[attr-defined]


def test_an_episode_of_a_game_that_is_cut_has_the_score_of_the_game() -> None:
    pytest.importorskip("ale_py", reason="needs the extra atari")
    options = {"env__preset": '"atari"', "evaluation__max_steps": 90, "evaluation__episodes": 2, "evaluation__envs": 2}
    evaluator = Evaluator.of_run(Blueprint(config_of("ALE/MsPacman-v5", **options)))
    found = evaluator.evaluate(EvaluationDue(0, 0, 0, 0, 0.0))
    evaluator.close()
    assert (found.cut, found.min % 10) == (2, 0)
    assert found.min > 50, "points come in tens"


def test_evaluations_of_a_run_and_of_a_checkpoint_play_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    path = tmp_path / "evaluated.toml"
    path.write_text(
        f'[env]\nid = "{ENV}"\n[env.options]\nterminates = 3\n[evaluation.env.options]\nterminates = 5\n'
        "[evaluation]\nevery = { updates = 4 }\nepisodes = 4\n[collection]\nworkers = 0\nenvs = 2\nrollout = 8\n"
        "[gradients]\nworkers = 0\n[run]\nsteps = 128\n"
    )
    result = hive.train(path, inline=True, quiet=True)
    lines = list(read_jsonl(Path(result.directory) / "evaluations.jsonl"))
    assert {line["mean_length"] for line in lines} == {5.0}
    resolved = load_config(Path(result.directory) / "resolved.toml")
    assert evaluate(hive.load(result.directory), resolved, episodes=2).mean_length == 5.0


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ('{ id = "CartPole-v1" }', "the observations of [env] and of [evaluation.env] differ in shape: (1,) and (4,)"),
        (
            '{ id = "small_environments:Doors" }',
            "the observations of [env] and of [evaluation.env] differ in parts: one array (1,) and `near` float32 "
            "(3,), `far` uint8 (2,)",
        ),
        ('{ id = "small_environments:Differs" }', "the actions of [env] and of [evaluation.env] differ in n: 2 and 3"),
    ],
)
def test_other_spaces_are_refused_before_a_run(table: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import small_environments
    from gymnasium import spaces

    class Differs(small_environments.OneState):
        action_space = spaces.Discrete(3)

    class Doors(small_environments.OneState):
        observation_space = spaces.Dict({"near": spaces.Discrete(3), "far": spaces.Box(0, 255, (2,), np.uint8)})

    monkeypatch.setattr(small_environments, "Differs", Differs, raising=False)
    monkeypatch.setattr(small_environments, "Doors", Doors, raising=False)
    with pytest.raises(ConfigError) as caught:
        Blueprint(config(evaluation__env=table))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ('{ preset_ = "atari" }', "[env] has no key `preset_`, did you mean `preset`?"),
        ('{ preset = "ataari" }', 'preset: expected "none" or "atari", got "ataari"'),
        ("{ wrappers = [3] }", "wrappers: expected an array of names"),
    ],
)
def test_wrong_keys_are_refused(table: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(evaluation__env=table)
    assert text in str(caught.value)
