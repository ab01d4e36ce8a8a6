"""Changes to a key of [algorithm]: checked as in a file, refused for keys that are fixed in a run."""

from __future__ import annotations

import pytest

from hive.config import A2CConfig, PPOConfig, with_parameter
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.errors import ConfigError


def refused(config: A2CConfig | PPOConfig, name: str, value: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        with_parameter(config, name, value)
    return caught.value


def test_one_key_changes_and_the_rest_stays() -> None:
    before = PPOConfig(entropy_weight=0.03)
    after = with_parameter(before, "clip_range", 0.1)
    assert after == PPOConfig(entropy_weight=0.03, clip_range=0.1)
    assert before.clip_range == 0.2
    assert with_parameter(before, "algorithm.clip_range", 0.1) == after


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate_schedule", "cosine"),
        ("entropy_weight_schedule", "linear"),
        ("clip_range_schedule", "cosine"),
        ("value_clip_range", 0.2),
        ("target_kl", 0.02),
    ],
)
def test_options_of_ppo_change_while_it_runs(name: str, value: object) -> None:
    assert getattr(with_parameter(PPOConfig(), name, value), name) == value


def test_an_integer_becomes_the_number_that_the_key_has() -> None:
    discount = with_parameter(A2CConfig(), "discount", 1).discount
    assert (discount, type(discount)) == (1.0, float)


def test_a_name_that_is_not_there_is_told_with_the_nearest() -> None:
    error = refused(A2CConfig(), "entropy_wieght", 0.1)
    assert (str(error), error.hint) == ("a2c has no parameter `entropy_wieght`", "did you mean `entropy_weight`?")
    error = refused(A2CConfig(), "clip_range", 0.1)
    assert str(error) == "a2c has no parameter `clip_range`"
    assert refused(A2CConfig(), "zzz", 1).hint.startswith("it has discount, learning_rate, learning_rate_schedule")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("discount", 1.5, "discount: expected a number >= 0 and <= 1, got 1.5"),
        ("discount", "high", 'discount: expected a number >= 0 and <= 1, got "high"'),
        ("learning_rate", 0, "learning_rate: expected a number > 0, got 0"),
        ("learning_rate", float("nan"), "learning_rate: expected a number > 0, got nan (not finite)"),
        ("entropy_weight", True, "entropy_weight: expected a number >= 0, got true"),
        (
            *("learning_rate_schedule", "step"),
            'learning_rate_schedule: expected "constant", "linear", "cosine" or points such as '
            '[[0, 3e-4], [200_000, 1e-5]], got "step"',
        ),
    ],
)
def test_what_a_key_does_not_take_is_told(name: str, value: object, message: str) -> None:
    assert str(refused(A2CConfig(), name, value)) == message


def test_what_decides_the_shape_of_a_run_is_fixed() -> None:
    fixed = {name for table in ALGORITHMS.values() for name, key in keys_of(table).items() if key.limits.fixed}
    of_all = {"name", "options", "optimizer", "momentum"}
    exploration = {"exploration_start", "exploration_end", "exploration_steps", "exploration_spread"}
    replay = {
        "replay_from",
        "given_weight",
        "replay_capacity",
        "batch_size",
        "updates_per_step",
        "learning_starts",
        "n_step",
    }
    priorities = {"priority_exponent", "initial_errors"}
    layers = {"dueling", "network_of", "atoms", "v_min", "v_max", "quantiles"}
    rounds = {"normalize_advantages", "normalize_over", "epochs", "minibatches"}
    agents = {"learn_temperature", "temperature", "critic_first", "exploration_noise"}
    assert fixed == {*of_all, *rounds, *exploration, *replay, *priorities, *layers, *agents}
    error = refused(PPOConfig(), "epochs", 8)
    assert str(error) == "`epochs` is fixed for a run: it determines the number of gradients in a round"
    assert "run.init_from" in error.hint
