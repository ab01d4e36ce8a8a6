"""Every failure to find or build an environment has an error of one sentence and a hint."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_environments
import gymnasium
import pytest

from hive.envs.loading import EXTRAS
from hive.envs.make import describe, limit_advice, make_environment, make_native, takes_native
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import Discrete, MultiDiscrete
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.vectors.attributes import set_attribute
from hive.envs.ways_out import OTHER_VERSION
from hive.errors import ConfigError, EnvironmentFailed, EnvironmentMissing

COUNTING = "fake_environments:Counting"


@pytest.fixture
def _registered() -> Iterator[None]:
    """Two environments of ours, registered: one with a time limit, one that is only vectorized."""
    gymnasium.register("Counting-v7", COUNTING, max_episode_steps=9)
    gymnasium.register(
        "OnlyVectorised-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
    )
    yield
    del gymnasium.registry["Counting-v7"], gymnasium.registry["OnlyVectorised-v0"]


def test_describe_a_registered_environment() -> None:
    expected = EnvironmentSpec("CartPole-v1", ObservationSpec((4,), "float32"), Discrete(2), 500)
    assert describe(Recipe("CartPole-v1")) == expected
    assert describe(Recipe("CartPole-v1", kind="native")) == expected
    assert describe(Recipe("CartPole-v1", {"max_episode_steps": 7})).max_episode_steps == 7
    assert describe(Recipe("CartPole-v1", {"max_episode_steps": 7}, "native")).max_episode_steps == 7


def test_describe_a_class_of_the_user() -> None:
    spec = describe(Recipe("fake_environments:Images"))
    assert spec.observation == ObservationSpec((2, 3, 1), "uint8")
    assert spec.action == MultiDiscrete((3, 4), (1, 2))
    assert spec.max_episode_steps is None
    assert describe(Recipe("fake_environments:Cells")).observation == ObservationSpec((4,), "float32", (4,), (5,))


def test_describe_closes_what_it_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[fake_environments.Counting] = []
    for kind in (fake_environments.Counting, fake_environments.Words):
        monkeypatch.setattr(
            fake_environments, "remembered", lambda k=kind: built.append(k()) or built[-1], raising=False
        )
        if kind is fake_environments.Words:
            with pytest.raises(EnvironmentFailed, match="has Text observations"):
                describe(Recipe("fake_environments:remembered"))
        else:
            describe(Recipe("fake_environments:remembered"))
    assert [environment.closed for environment in built] == [True, True]


def test_options_reach_the_constructor() -> None:
    environment: Any = make_environment(Recipe(COUNTING, {"terminates": 3, "truncates": 5}))
    assert environment.ends == (3, 5)
    registered: Any = make_environment(Recipe("CartPole-v1", {"sutton_barto_reward": True}))
    assert registered.unwrapped._sutton_barto_reward is True


def test_only_the_time_limit_is_wrapped_around_a_registered_environment() -> None:
    environment = make_environment(Recipe("CartPole-v1"))
    assert isinstance(environment, gymnasium.wrappers.TimeLimit)
    assert environment.env is environment.unwrapped
    assert gymnasium.registry["CartPole-v1"].order_enforce, "the registry is not ours to change"


@pytest.mark.usefixtures("_registered")
def test_an_id_may_name_the_module_that_registers_it() -> None:
    environment = make_environment(Recipe("fake_environments:Counting-v7"))
    assert isinstance(environment.unwrapped, fake_environments.Counting)
    assert describe(Recipe("fake_environments:Counting-v7")).max_episode_steps == 9


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("LunarLander-v2", "LunarLander-v3"),
        ("fake_environments:Countin", "fake_environments:Counting"),
        ("fake_environments:CartPol-v1", "fake_environments:CartPole-v1"),
    ],
)
def test_an_unknown_id_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe(wrong))
    assert str(caught.value) == f"no environment `{wrong}`"
    assert caught.value.hint == f"did you mean `{right}`?"


def test_an_unknown_id_names_several_that_are_near_but_one_version_of_each() -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("InvertedDoublPendulum-v5"))
    assert caught.value.hint == "did you mean `InvertedDoublePendulum-v5` or `InvertedPendulum-v5`?"


def test_an_unknown_id_with_nothing_near_says_how_to_name_ones_own() -> None:
    with pytest.raises(EnvironmentMissing, match=r"(?m)^no environment `Xyzzyplugh`$") as caught:
        make_environment(Recipe("Xyzzyplugh"))
    assert '"package.module:Class"' in caught.value.hint


def test_atari_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ale_py", None)
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("ALE/Breakout-v5"))
    assert str(caught.value) == "`ALE/Breakout-v5` needs the module `ale_py`, which is not installed"
    assert caught.value.hint == "install it with: `pip install 'hive-trainer[atari]'`"


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("no_such_module.inner:Class"))
    assert str(caught.value) == "no environment `no_such_module.inner:Class`: there is no module `no_such_module`"
    assert caught.value.hint.startswith("start hive in a folder from which the module can be imported, or install")


def test_a_module_that_imports_what_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_something.py").write_text("import not_installed_at_all.part\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("needs_something:Class"))
    assert (
        str(caught.value) == "`needs_something:Class` needs the module `not_installed_at_all`, which is not installed"
    )
    assert caught.value.hint == "install it with: `pip install not_installed_at_all`"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "import gymnasium.gone",
            "`needs_another:Class` needs the module `gymnasium.gone`, which gymnasium {} does not",
        ),
        ("from gymnasium import gone", "importing `needs_another` raised ImportError: cannot import name 'gone'"),
    ],
)
def test_what_an_installed_package_lacks_is_a_matter_of_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str
) -> None:
    (tmp_path / "needs_another.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((EnvironmentMissing, EnvironmentFailed)) as caught:
        make_environment(Recipe("needs_another:Class"))
    assert str(caught.value).startswith(sentence.format(gymnasium.__version__))
    assert caught.value.hint == OTHER_VERSION
    with pytest.raises(EnvironmentMissing, match=r"gymnasium .* has no module `gymnasium\.gone`"):
        make_environment(Recipe("gymnasium.gone:Class"))


def test_a_package_registers_its_ids_in_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "skies").mkdir()
    (tmp_path / "skies" / "__init__.py").write_text(
        "import gymnasium\n"
        "def register_envs():\n    gymnasium.register('Glide-v0', entry_point='fake_environments:Counting')\n"
    )
    (tmp_path / "skies" / "low.py").write_text("from gymnasium import register_envs\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("skies.low:Glid-v0"))
    assert caught.value.hint == "did you mean `skies.low:Glide-v0`?"
    del gymnasium.registry["Glide-v0"]
    for id in ("skies.low:Glide-v0", "skies:Glide-v0"):
        assert isinstance(make_environment(Recipe(id)).unwrapped, fake_environments.Counting)
    del gymnasium.registry["Glide-v0"]


def test_the_advice_about_the_environments_of_other_processes_imports_nothing() -> None:
    at_id, in_class = (limit_advice(Recipe(f"nowhere:{name}"), apart=True) for name in ("Glide-v0", "Glide"))
    assert at_id == "env.options = { max_episode_steps = 1000 }"
    assert in_class.startswith("env.wrappers = [{ name = ")


def test_a_module_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_on_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentFailed) as caught:
        make_environment(Recipe("raises_on_import:Class"))
    place = f"{tmp_path / 'raises_on_import.py'}:1"
    assert str(caught.value) == f"importing `raises_on_import` raised ZeroDivisionError: division by zero ({place})"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_constructor_that_lacks_a_package() -> None:
    text = 'Gears is not installed, you can run `pip install swig` followed by `pip install "gym[gears]"`'
    error = gymnasium.error.DependencyNotInstalled(text)
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("fake_environments:Broken", {"error": error}))
    assert str(caught.value) == "`fake_environments:Broken` cannot be built: Gears is not installed"
    assert caught.value.hint == 'install it with: `pip install swig` and `pip install "gym[gears]"`'
    silent = gymnasium.error.DependencyNotInstalled("the simulator is not installed")
    with pytest.raises(EnvironmentMissing) as caught:
        make_environment(Recipe("fake_environments:Broken", {"error": silent}))
    assert caught.value.hint == ""
    with pytest.raises(EnvironmentMissing, match=r"needs the module `sim.core`, which is not installed") as caught:
        make_environment(Recipe("fake_environments:Broken", {"error": ModuleNotFoundError("", name="sim.core")}))
    assert caught.value.hint == "install it with: `pip install sim`"


@pytest.mark.parametrize(("extra", "module"), [("box2d", "Box2D"), ("mujoco", "mujoco")])
def test_an_extra_of_gymnasium_is_installed_by_hives(extra: str, module: str) -> None:
    text = f'It is not installed, you can run `pip install swig` followed by `pip install "gymnasium[{extra}]"`'
    for error in (gymnasium.error.DependencyNotInstalled(text), ModuleNotFoundError("", name=module)):
        with pytest.raises(EnvironmentMissing) as caught:
            make_environment(Recipe("fake_environments:Broken", {"error": error}))
        assert caught.value.hint == f"install it with: `pip install 'hive-trainer[{extra}]'`"


ENDS: list[tuple[BaseException, str]] = [
    (OSError("no display"), "OSError: no display"),
    (KeyError(), "KeyError"),
    (SystemExit(2), "SystemExit: 2"),
    (asyncio.CancelledError(), "CancelledError"),
]


@pytest.mark.parametrize(("error", "text"), ENDS)
def test_a_constructor_that_raises(error: BaseException, text: str) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        make_environment(Recipe("fake_environments:Broken", {"error": error}))
    said, _, place = str(caught.value).rpartition(" (")
    assert said == f"`fake_environments:Broken` cannot be built: its constructor raised {text}"
    assert re.fullmatch(r".*fake_environments\.py:\d+\)", place)
    assert caught.value.__cause__ is error
    assert not caught.value.permanent


@pytest.mark.parametrize("id", ["CartPole-v1", COUNTING])
def test_an_option_that_the_constructor_does_not_know(id: str) -> None:
    with pytest.raises(EnvironmentFailed, match=r"raised TypeError: .*'colour'") as caught:
        make_environment(Recipe(id, {"colour": "red"}))
    assert "env.options" in caught.value.hint


def test_an_option_that_the_constructor_lacks() -> None:
    with pytest.raises(EnvironmentFailed, match="missing 1 required positional argument: 'error'") as caught:
        make_environment(Recipe("fake_environments:Broken"))
    assert "env.options" in caught.value.hint


class Bare:
    """The interface of gymnasium.Env without the base class."""

    observation_space = fake_environments.Counting.observation_space
    action_space = fake_environments.Counting.action_space
    level = 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.at = 0
        return self.observation_space.sample(), {"seed": seed}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self.observation_space.sample(), 1.0, self.at == 3, False, {}


def test_a_class_needs_the_interface_and_not_the_base_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_environments, "Bare", Bare, raising=False)
    limited = {"name": "TimeLimit", "max_episode_steps": 2}
    environment: Any = make_environment(Recipe("fake_environments:Bare", wrappers=[limited]))
    assert environment.reset(seed=5)[1] == {"seed": 5}
    assert [environment.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    set_attribute(environment, "level", 2)
    assert (environment.env.level, environment.env.env.level) == (2, 2)
    inner = environment.unwrapped
    for name, value in {"level": 7, "new": 8, "observation_space": 9, "render_mode": "x", "np_random": 4}.items():
        setattr(inner, name, value)  # as wrappers do
        assert vars(inner.env)[name] == getattr(inner, name) == value
    environment.close()  # which it does not have
    monkeypatch.setattr(Bare, "action_space", None)
    with pytest.raises(EnvironmentFailed, match="`fake_environments:Bare` has no action_space"):
        describe(Recipe("fake_environments:Bare"))


def test_an_object_that_is_no_environment() -> None:
    with pytest.raises(EnvironmentFailed, match="built an object of type NotAnEnvironment") as caught:
        make_environment(Recipe("fake_environments:NotAnEnvironment"))
    assert caught.value.permanent


def test_the_vectorized_class() -> None:
    vector = make_native(Recipe("CartPole-v1", {"max_episode_steps": 30}), 5)
    assert vector.num_envs == 5
    assert vector.max_episode_steps == 30  # type: ignore[attr-defined]


@pytest.mark.parametrize("id", ["Acrobot-v1", COUNTING])
def test_no_vectorized_class(id: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_native(Recipe(id), 2)
    assert str(caught.value) == f"`{id}` has no vectorized class"
    assert caught.value.hint == 'set env.vector = "python"'


@pytest.mark.usefixtures("_registered")
def test_auto_means_native_only_where_there_is_nothing_else() -> None:
    assert not takes_native(Recipe("CartPole-v1", kind="auto"))
    assert not takes_native(Recipe(COUNTING, kind="auto"))
    assert takes_native(Recipe("OnlyVectorised-v0", kind="auto"))
    assert not takes_native(Recipe("CartPole-v1", kind="native")), "its compiled form is preferred"
    assert takes_native(Recipe("OnlyVectorised-v0", kind="native"))
    assert not takes_native(Recipe("OnlyVectorised-v0", kind="python"))
    assert describe(Recipe("OnlyVectorised-v0")).action == Discrete(2)


def test_no_environment_is_named() -> None:
    with pytest.raises(EnvironmentMissing, match="the config names no environment") as caught:
        make_environment(Recipe(""))
    assert "--set env.id=" in caught.value.hint


def test_what_a_package_registers_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(7):
        spec = gymnasium.envs.registration.EnvSpec(f"Odd/Name{index}-v0", entry_point="fake_environments:Counting")
        monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    with pytest.raises(EnvironmentMissing) as error:
        describe(Recipe("fake_environments:xyz-v1"))
    first = ", ".join(f"`fake_environments:Odd/Name{index}-v0`" for index in range(5))
    assert error.value.hint == f"`fake_environments` registers {first} and 2 more"


def test_an_extra_that_is_named_for_a_module_is_one_of_hives() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])
