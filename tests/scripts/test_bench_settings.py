"""The settings of scripts/bench: hive's configs are valid, and both sides train as many weights on as much work."""

from __future__ import annotations

import importlib
import math
from fractions import Fraction
from typing import Any

import pytest
from benchmarks.contender import Pythons, contenders_of
from benchmarks.settings import PLACEMENTS, SETTINGS, Setting, keys_of

from hive.config import Config, load_config
from hive.training import Blueprint

EACH = pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)


def config_of(setting: Setting, placement: str) -> Config:
    return load_config("bench.toml", keys_of(setting, placement), text="")


@EACH
def test_every_placement_has_a_valid_config_with_the_same_round(setting: Setting) -> None:
    for placement in setting.placements:
        config = config_of(setting, placement)
        collectors = max(config.collection.workers, 1)
        assert config.collection.envs * collectors == setting.work.get("envs", 1), placement
        assert config.collection.rollout == setting.work["rollout"], placement
        assert list(config.network.middleware) == list(setting.work["layers"]), placement
        assert config.algorithm.discount == setting.work["discount"], placement
        assert config.algorithm.learning_rate == setting.work["learning_rate"], placement


@EACH
def test_the_settings_of_one_name_are_complete(setting: Setting) -> None:
    assert SETTINGS[setting.name] is setting
    assert set(setting.placements) <= set(PLACEMENTS)
    assert set(setting.goals) <= set(setting.peers)
    shapes = [contender.shape for contender in contenders_of(setting, Pythons())]
    assert len(set(shapes)) == len(shapes)


def test_a_placement_is_what_its_name_says() -> None:
    setting = SETTINGS["a2c-python-16"]
    found = {
        placement: (config.collection.workers, config.collection.envs, config.gradients.workers, config.run.carrier)
        for placement in setting.placements
        if (config := config_of(setting, placement))
    }
    assert found["single"] == (0, 16, 0, "slots")
    assert found["1-collector"] == (1, 16, 0, "slots")
    assert found["1-collector-zmq"] == (1, 16, 0, "zmq")
    assert found["2-collectors"] == (2, 8, 0, "slots")
    assert config_of(SETTINGS["sac-halfcheetah"], "2-workers").gradients.workers == 2


@EACH
def test_a_replay_memory_is_measured_without_a_decrease_of_random_actions(setting: Setting) -> None:
    if not setting.learns_from_memory:
        assert "learning_starts" not in setting.work
        return
    given: Any = config_of(setting, "default").algorithm
    assert given.batch_size == setting.work["batch"]
    assert Fraction(given.updates_per_step) == Fraction(setting.work["updates"], setting.work["rollout"])
    assert given.learning_starts <= 1000
    assert getattr(given, "exploration_steps", 1000) == 1000


def weights_of_hive(setting: Setting) -> int:
    """Return the number of trained weights of hive's network, without padding and target networks."""
    flat = Blueprint(config_of(setting, "default")).flat
    return sum(math.prod(field.shape) for field in flat.parameters)


@pytest.mark.parametrize("setting", [s for s in SETTINGS.values() if "plain" in s.peers], ids=lambda s: s.name)
def test_a_plain_loop_trains_as_many_weights_and_counts_its_steps(setting: Setting) -> None:
    """Three rounds of the real loop."""
    train = importlib.import_module(f"benchmarks.plain.{setting.work['algorithm']}").train
    seen: list[tuple[int, int]] = []

    def round_ended(steps: int, updates: int) -> bool:
        seen.append((steps, updates))
        return len(seen) == 3

    few = {**setting.work, "epochs": 1}
    network = train(few, round_ended)
    assert sum(parameter.numel() for parameter in network.parameters()) == weights_of_hive(setting)
    assert seen[0] == (0, 0)
    round_steps = setting.work["envs"] * setting.work["rollout"]
    assert 0.8 * round_steps < seen[1][0] <= round_steps, "steps that only reset do not count"
    assert seen[2][1] == 2 * seen[1][1] > 0


@pytest.mark.full(reason="constructs a dozen agents and their games")
@pytest.mark.parametrize("setting", [s for s in SETTINGS.values() if "sb3" in s.peers], ids=lambda s: s.name)
def test_stable_baselines3_trains_as_many_weights(setting: Setting) -> None:
    pytest.importorskip("stable_baselines3", reason="pip install '.[peers]'")
    if setting.name.endswith("pong-16"):
        pytest.importorskip("ale_py", reason="pip install '.[atari]'")
    sb3_rates = importlib.import_module("benchmarks.peers.sb3_rates")
    assert sb3_rates.weights_of(sb3_rates.model_of(dict(setting.work))) == weights_of_hive(setting)


def test_the_advantages_of_a_plain_loop_end_with_episodes() -> None:
    """Two environments: one terminates, one is truncated; both reset one step later, which counts for nothing."""
    torch = pytest.importorskip("torch")
    parts = importlib.import_module("benchmarks.plain.parts")
    a2c = importlib.import_module("benchmarks.plain.a2c")
    play = parts.Play.__new__(parts.Play)
    play.rewards = torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    play.terminated = torch.tensor([[False, False], [True, False], [False, False], [False, False]])
    play.truncated = torch.tensor([[False, False], [False, True], [False, False], [False, False]])
    play.valid = torch.tensor([[True, True], [True, True], [False, False], [True, True]])
    values = torch.tensor([[3.0, 3.0], [5.0, 5.0], [7.0, 7.0], [2.0, 2.0], [4.0, 4.0]])
    found = a2c.advantages_of(play, values, 0.5, 1.0)
    returns = (found + values[:-1])[play.valid]
    terminated, truncated = 1.0, 1.0 + 0.5 * 7.0
    expected = [[1.0 + 0.5 * terminated, 1.0 + 0.5 * truncated], [terminated, truncated], [1.0 + 0.5 * 4.0] * 2]
    assert returns.tolist() == [value for row in expected for value in row]
