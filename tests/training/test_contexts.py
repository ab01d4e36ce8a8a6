"""Who the environments of collectors, their helpers and evaluators are: indices, seeds and the run."""

from __future__ import annotations

from typing import Any

import pytest
from small_environments import OneState
from small_trainer import config_of

from hive.config import load_config
from hive.envs import EnvContext
from hive.errors import ConfigError, EnvironmentFailed
from hive.training import Blueprint, Evaluator
from hive.training.collect.collector import contexts_of

ENV = "test_contexts:Tells"


class Tells(OneState):
    """Keeps who it is, the seeds of its resets, and its options; `wide` has other actions."""

    def __init__(self, env_context: EnvContext, wide: int = 2, **options: Any) -> None:
        super().__init__(terminates=3)
        self.told, self.options = env_context, options
        self.action_space = type(self.action_space)(wide)
        self.seeds: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        return super().reset(seed=seed)


def told(vector: Any) -> list[EnvContext]:
    return [environment.told for environment in vector.environments]


def test_indices_count_on_over_collectors_and_evaluators() -> None:
    config = config_of(
        ENV,
        collection__workers=2,
        collection__envs=3,
        evaluation__episodes=4,
        evaluation__envs=2,
        evaluation__workers=2,
        evaluation__every="{ updates = 4 }",
    )
    blueprint = Blueprint(config)
    blueprint.run = "tells-1"
    collectors: list[Any] = [blueprint.collector(source) for source in range(2)]
    evaluators: list[Any] = [Evaluator.of_run(blueprint, number=number) for number in range(2)]
    vectors = [*(one.vector for one in collectors), *(one.play.table.vector for one in evaluators)]
    found = [told(one) for one in vectors]
    assert [[one.index for one in each] for each in found] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert (config.training_indices, config.evaluator_indices) == (range(6), range(6, 10))
    assert {(one.run, one.incarnation) for each in found for one in each} == {("tells-1", 0)}
    assert [one.seed for one in found[2]] == [one.seed for one in found[3]]


@pytest.mark.parametrize(("start", "incarnation"), [(0, 0), (7, 0), (7, 3)])
def test_the_seed_is_that_of_the_reset_that_follows(start: int, incarnation: int) -> None:
    blueprint = Blueprint(config_of(ENV, collection__envs=2))
    vector = blueprint.vector(contexts=blueprint.contexts(1, start, incarnation))
    collector = blueprint.collector(1, incarnation, vector=vector)
    collector.reset(start)
    environments: Any = vector.environments  # type: ignore[attr-defined]
    assert [one.told.seed for one in environments] == [one.seeds[0] for one in environments]
    assert [one.told.incarnation for one in environments] == [incarnation] * 2
    assert len({one.told.seed for one in environments}) == 2


def test_the_seed_of_agents_of_one_policy_is_that_of_the_first_row() -> None:
    found = contexts_of(1, 2, 3, rows=2)
    rows = contexts_of(1, 2, 6)
    assert [one.seed for one in found] == [one.seed for one in rows[::2]]
    assert [one.index for one in found] == [6, 7, 8]


def test_spaces_of_all_collectors_are_compared_with_those_of_the_run() -> None:
    blueprint = Blueprint(config_of(ENV, collection__envs=2, env__options='{ x = "{index}" }'))
    assert [one.options for one in blueprint.vector(x=5).environments] == [{"x": 5}] * 2  # type: ignore[attr-defined]
    later = blueprint.contexts(1)
    with pytest.raises(EnvironmentFailed, match="the actions of the environment 0 and of the environment 2 of the run"):
        blueprint.vector(contexts=later, wide=3)


@pytest.mark.parametrize(
    ("sets", "error"),
    [
        (
            {"env__each": "[{ index = 1, options = { wide = 3 } }]"},
            "the actions of .* index 1 of env.each differ in n: 2",
        ),
        ({"env__each": "[{ index = 1, options = { wide = -3 } }]"}, "index 1 of env.each: .* cannot be built"),
        (
            {
                "evaluation__every": "{ updates = 4 }",
                "evaluation__env": "{ each = [{ index = 2, options = { wide = 3 } }] }",
            },
            "index 2 of env.each differ",
        ),
    ],
)
def test_spaces_of_every_index_are_compared_before_a_run(sets: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Blueprint(config_of(ENV, collection__envs=2, evaluation__episodes=1, **sets))


@pytest.mark.parametrize(
    ("sets", "error"),
    [
        (["env.each=[{ index = 6, options = {} }]"], "index 6 is none .* collectors are 0 to 5"),
        (["env.each=[{ index = [0, 9], options = {} }]", "evaluation.every={ updates = 4 }"], "6 to 7"),
        (["evaluation.env={ each = [{ index = 5, options = {} }] }"], "evaluators are 6 to 7 .* follow"),
        (['env.vector="native"', 'env.options={ x = "{index}" }'], "no single environments that could differ"),
        (['env.vector="native"', "env.reset_options={ x = 1 }"], "no single environments that could differ"),
        (['env.vector="native"', "env.each=[{ index = 0, options = {} }]"], "no single environments that could differ"),
    ],
)
def test_what_cannot_be_is_refused_in_the_config(sets: list[str], error: str) -> None:
    base = ['env.id="CartPole-v1"', "collection.workers=2", "collection.envs=3", "evaluation.episodes=2"]
    with pytest.raises(ConfigError, match=error):
        load_config("run.toml", [*base, *sets], text="")


def test_indices_of_evaluators_may_be_given_in_either_table() -> None:
    each = "[{ index = 3, reset_options = { a = 1 } }]"
    sets = ['env.id="CartPole-v1"', "collection.workers=1", "collection.envs=3", f"env.each={each}"]
    more = ["evaluation.every={ updates = 4 }", "evaluation.episodes=2"]
    config = load_config("run.toml", [*sets, *more, "evaluation.env.each=[{ index = 4, options = {} }]"], text="")
    assert [entry["index"] for entry in config.evaluation_env.each] == [3, 4]
    other = load_config("run.toml", [*sets, *more, 'evaluation.env.id="Acrobot-v1"'], text="").evaluation_env
    assert other.each == ()


def test_environments_are_closed_before_others_are_made_in_their_place_and_once() -> None:
    collector = Blueprint(config_of(ENV, collection__envs=1)).collector(0)
    closed: list[int] = []
    for number in range(2):
        old, old.close = collector.vector, lambda: closed.append(1)
        collector.close()
        assert len(closed) == number + 1
        collector.rebuild(Blueprint(config_of(ENV, collection__envs=1)).vector(), 0)
    assert len(closed) == 2
    collector.close()
