"""Each environment knows who it is: its constructor, the variables, placeholders, and options of its own."""

from __future__ import annotations

import copy
import dataclasses
import os
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.config import EnvConfig
from hive.config.each import has_placeholders
from hive.envs import Recipe, StepRow, make_environment, make_vector, recipe_of
from hive.envs.agents.interface import describe_agents
from hive.envs.agents.table import make_table, seat_of_all
from hive.envs.configured import changed_env
from hive.envs.context import EnvContext, filled
from hive.envs.make import make_each, takes_context, takes_native
from hive.envs.vectors.vector import vector_of
from hive.errors import ConfigError, EnvironmentFailed

HERE = "test_context"
CONTEXT = EnvContext(3, 17, 2, "cars-1")


class Knows(gymnasium.Env[Any, Any]):
    """Keeps what it is told, and shows it. Episodes have two steps; `size`: of its observations."""

    def __init__(
        self, size: int = 4, env_context: EnvContext | None = None, fails: bool = False, **others: Any
    ) -> None:
        if fails:
            raise ValueError("no map")
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.told, self.others = env_context, others
        self.variables = {name: value for name, value in os.environ.items() if name.startswith("HIVE_ENV_")}
        self.resets: list[Any] = []
        self.level = 0
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets.append((seed, self.level, copy.deepcopy(options)))
        if options is not None:
            options["deep"].clear()
        self.steps = 0
        return np.zeros(self.observation_space.shape or (), np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(self.observation_space.shape or (), np.float32), 1.0, self.steps == 2, False, {}

    def close(self) -> None:
        self.closed = True


class NoOptions(Knows):
    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


def by_keyword(*, env_context: EnvContext) -> Knows:
    return Knows(env_context=env_context)


def by_any_keyword(**options: Any) -> Knows:
    return Knows(**options)


class Pair:
    """Two agents who act at once, for two steps."""

    possible_agents = ("a", "b")

    def __init__(self, env_context: EnvContext) -> None:
        self.told, self.resets = env_context, list[Any]()

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.resets.append((seed, options))
        self.agents, self.steps = ["a", "b"], 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        seen = {agent: np.zeros(2, np.float32) for agent in self.agents}
        rewards, no = dict.fromkeys(seen, 1.0), dict.fromkeys(seen, False)
        ended = dict.fromkeys(seen, self.steps == 2)
        self.agents = [] if self.steps == 2 else self.agents
        return seen, rewards, ended, no, {}

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{index}", 3),
        ("{index + 47000}", 47003),
        ("{index+1}", 4),
        ("{index - 5}", -2),
        ("{seed}", 17),
        ("{incarnation}", 2),
        ("{run}", "cars-1"),
        ("/tmp/{run}/{index}-{index + 1}", "/tmp/cars-1/3-4"),
        (["{index}", {"a": {"{index}": "{index}"}}], [3, {"a": {"{index}": 3}}]),
        ({"port": 3, "on": True, "x": 0.5}, {"port": 3, "on": True, "x": 0.5}),
        ("{index * 2}", "{index * 2}"),
        ("{seed + 1}", "{seed + 1}"),
        ("{index + -1}", "{index + -1}"),
        ("{ index }", "{ index }"),
        ("{index.__class__}", "{index.__class__}"),
        ("{0} {} {{index}}", "{0} {} {3}"),
        ('{"index": 1}', '{"index": 1}'),
    ],
)
def test_placeholders_are_filled_and_nothing_is_evaluated(given: Any, expected: Any) -> None:
    assert filled(given, CONTEXT) == expected
    assert type(filled(given, CONTEXT)) is type(expected)
    assert has_placeholders(given) == (filled(given, CONTEXT) != given)


def test_a_recipe_of_one_environment_has_what_env_each_has_for_it() -> None:
    each: list[dict[str, Any]] = [
        {"index": [2, 3], "options": {"map": "b", "port": "{index + 10}"}},
        {"index": 3, "options": {"map": "c"}, "reset_options": {"level": "{seed}"}},
    ]
    recipe = Recipe("x", {"map": "a", "folder": "{run}"}, reset_options={"level": 1, "mode": "day"}, each=each)
    found = [recipe.at(EnvContext(index, 7, run="r")) for index in (1, 2, 3)]
    assert [one.options for one in found] == [
        {"map": "a", "folder": "r"},
        {"map": "b", "folder": "r", "port": 12},
        {"map": "c", "folder": "r", "port": 13},
    ]
    assert [one.reset_options["level"] for one in found] == [1, 1, 7]
    assert found[2].reset_options["mode"] == "day"
    assert recipe.options == {"map": "a", "folder": "{run}"}


def test_later_options_replace_those_of_env_each() -> None:
    env = EnvConfig(id=f"{HERE}:Knows", each=({"index": 1, "options": {"a": 1, "b": 2}},))
    changed = recipe_of(changed_env(env, {"a": "{index + 5}"}))
    assert changed.at(EnvContext(1)).options == {"a": 6, "b": 2}
    assert changed.at(EnvContext(0)).options == {"a": 5}


@pytest.mark.parametrize("name", ["Knows", "by_keyword"])
def test_a_constructor_gets_the_context_and_the_variables(name: str) -> None:
    before = dict(os.environ)
    vector: Any = vector_of(Recipe(f"{HERE}:{name}"), 2, contexts=[CONTEXT, EnvContext(4)])
    first, second = vector.environments
    assert (first.told, second.told) == (CONTEXT, EnvContext(4))
    assert first.variables == CONTEXT.variables()
    assert first.variables["HIVE_ENV_INDEX"] == "3"
    assert second.variables["HIVE_ENV_RUN"] == ""
    assert dict(os.environ) == before


def test_a_registered_entry_point_gets_it_and_options_of_the_same_name_come_first() -> None:
    gymnasium.register("Knows-v0", f"{HERE}:Knows", kwargs={"size": 5})
    environment: Any = make_environment(Recipe("Knows-v0").at(CONTEXT)).unwrapped
    assert environment.told == CONTEXT
    assert environment.observation_space.shape == (5,)
    environment = make_environment(Recipe("Knows-v0", {"env_context": 3})).unwrapped
    assert environment.told == 3


def test_only_a_parameter_of_the_name_gets_it() -> None:
    environment: Any = make_environment(Recipe(f"{HERE}:by_any_keyword"))
    assert environment.told is None
    assert environment.variables["HIVE_ENV_INDEX"] == "0"
    assert not takes_context("x", lambda env_contexts: None)
    assert takes_context("x", lambda a=1, *, env_context=None: None)
    assert not takes_context("x", lambda *env_context: None)


def test_options_come_with_every_reset_in_a_copy_also_after_attributes() -> None:
    recipe = Recipe(f"{HERE}:Knows", reset_options={"level": "{index + 1}", "deep": {"x": [1]}})
    vector: Any = vector_of(recipe, 2, first=3)
    row = StepRow.allocate(vector.observation, 2)
    vector.reset([8, 9], row.observations)
    vector.set_attributes({"level": 6})
    for _ in range(4):
        vector.step(np.zeros(2, np.int64), row)
    own = [{"level": level, "deep": {"x": [1]}} for level in (4, 5)]
    assert [one.resets for one in vector.environments] == [
        [(8, 0, own[0]), (None, 6, own[0]), (None, 6, own[0])],
        [(9, 0, own[1]), (None, 6, own[1]), (None, 6, own[1])],
    ]


def test_without_options_reset_needs_no_such_argument() -> None:
    row = StepRow.allocate(make_vector(f"{HERE}:NoOptions", {}, 1).observation, 1)  # type: ignore[attr-defined]
    make_vector(f"{HERE}:NoOptions", {}, 1).reset([0], row.observations)
    refuses = vector_of(Recipe(f"{HERE}:NoOptions", reset_options={"a": 1}), 1)
    with pytest.raises(EnvironmentFailed, match=r"raised TypeError.*'options'") as caught:
        refuses.reset([0], row.observations)
    assert "options=None" in caught.value.hint
    assert caught.value.permanent


def test_agents_get_both_too() -> None:
    recipe = Recipe(f"{HERE}:Pair", reset_options={"map": "{index}"})
    spec = describe_agents("x", Pair(EnvContext(0)), recipe)
    contexts = [EnvContext(4, 1), EnvContext(5, 2)]
    table: Any = make_table(recipe, 2, [seat_of_all("", spec)], contexts=contexts)
    row = StepRow.allocate(spec.observation, 4)
    table.reset([1, 2], [row.observations])
    for _ in range(2):
        table.step([np.zeros(4, np.int64)], [row])
    assert [one.told for one in table.environments] == contexts
    assert [one.resets for one in table.environments] == [
        [(1, {"map": 4}), (None, {"map": 4})],
        [(2, {"map": 5}), (None, {"map": 5})],
    ]


def test_spaces_that_differ_are_refused_before_the_first_step() -> None:
    with pytest.raises(
        EnvironmentFailed, match=r"env 0 and of env 1 of .* differ in shape: \(4,\) and \(5,\)"
    ) as caught:
        vector_of(Recipe(f"{HERE}:Knows", {"size": "{index + 4}"}), 2)
    assert "pad" in caught.value.hint
    with pytest.raises(EnvironmentFailed, match=r"raised ValueError.*\(environment 7 of the run\)"):
        vector_of(Recipe(f"{HERE}:Knows", each=[{"index": 7, "options": {"fails": True}}]), 2, first=6)


def test_arguments_of_wrappers_have_placeholders_too() -> None:
    recipe = Recipe("CartPole-v1", wrappers=[{"name": "TimeLimit", "max_episode_steps": "{index + 5}"}, "Autoreset"])
    _, environments, _ = make_each(recipe, [EnvContext(n) for n in (0, 3)])
    assert [one.get_wrapper_attr("_max_episode_steps") for one in environments] == [5, 8]
    assert recipe.differs == "a placeholder in env.wrappers"


def test_a_failed_constructor_closes_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(f"{HERE}.Knows.close", lambda self: closed.append(self.told.index))
    with pytest.raises(EnvironmentFailed):
        make_each(
            Recipe(f"{HERE}:Knows", each=[{"index": 2, "options": {"fails": True}}]), [EnvContext(n) for n in range(4)]
        )
    assert closed == [0, 1]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"options": {"max_episode_steps": "{index + 5}"}}, "a placeholder in env.options"),
        ({"reset_options": {"low": -0.1}}, "env.reset_options"),
        ({"each": [{"index": 0, "options": {"max_episode_steps": 5}}]}, "env.each"),
    ],
)
def test_compiled_and_vectorized_forms_cannot_differ(given: dict[str, Any], what: str) -> None:
    recipe = Recipe("CartPole-v1", **given)
    assert type(vector_of(recipe, 2)).__name__ == "PythonVector"
    with pytest.raises(ConfigError, match=f"{what} needs single environments"):
        vector_of(dataclasses.replace(recipe, kind="native"), 2)


def test_neither_can_a_vectorized_class_whose_single_form_asks_who_it_is() -> None:
    gymnasium.register("Both-v0", f"{HERE}:Knows", vector_entry_point=f"{HERE}:Knows")
    gymnasium.register("KnowingVectorised-v0", vector_entry_point=f"{HERE}:Knows")
    assert not takes_native(Recipe("Both-v0"))
    with pytest.raises(ConfigError, match="the parameter `env_context` of its constructor needs single"):
        takes_native(Recipe("Both-v0", kind="native"))
    with pytest.raises(ConfigError, match="`KnowingVectorised-v0` is a vectorized class only"):
        takes_native(Recipe("KnowingVectorised-v0", reset_options={"a": 1}))
