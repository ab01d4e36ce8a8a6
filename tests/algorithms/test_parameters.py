"""A hyper-parameter changed live acts on the very next loss, learning rate or clipping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hive.algorithms import A2C, IMPALA, PPO, Algorithm, Evaluate, Step, update_parameter
from hive.config import A2CConfig, IMPALAConfig, PPOConfig
from hive.envs import Discrete
from hive.errors import ConfigError
from hive.gradients import SAMPLES, gradient_layout
from hive.networks import aligned_block, distribution_for
from hive.storage import FINALS, LENGTH, Rollout, rollout_layout
from hive.workers import Learner

ACTIONS = distribution_for(Discrete(2))

ALGORITHMS: list[Any] = [A2C(A2CConfig(), ACTIONS), PPO(PPOConfig(), ACTIONS), IMPALA(IMPALAConfig(), ACTIONS)]


def rollout() -> Rollout:
    layout = rollout_layout(4, 2, ((1,), "float32"), ((), "int64"), 8)
    arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    arrays["header"][[LENGTH, FINALS]] = 4, 0
    arrays["valid"][:] = True
    arrays["rewards"][:] = np.arange(8).reshape(4, 2)
    arrays["log_probs"][:] = -0.3
    arrays["final_index"][:] = -1
    return Rollout(arrays)


def first_loss(algorithm: Algorithm) -> float:
    """The loss of the first gradient of a round, of outputs that lean to one action."""
    outputs = [torch.tensor([[0.5, -0.5]]).expand(10, 2), torch.linspace(0, 1, 10)]
    steps = algorithm.steps([rollout()], np.random.default_rng(0))
    item = next(steps)
    while isinstance(item, Evaluate):
        item = steps.send(tuple(outputs))
    assert isinstance(item, Step)
    return float(item.loss(tuple(part[: len(item.inputs)] for part in outputs)).total)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize(
    ("name", "value"), [("entropy_weight", 0.5), ("value_loss_weight", 2), ("discount", 0.5), ("gae_lambda", 0.25)]
)
def test_the_next_loss_has_the_new_value(algorithm: Any, name: str, value: float) -> None:
    made = type(algorithm)(algorithm.config, ACTIONS)
    before = first_loss(made)
    assert update_parameter(made, name, value) == getattr(algorithm.config, name)
    after = first_loss(made)
    assert after != before
    built_so = type(algorithm)(type(algorithm.config)(**{name: float(value)}), ACTIONS)
    assert after == first_loss(built_so)


def test_a_parameter_of_one_algorithm_acts() -> None:
    ppo, impala = PPO(PPOConfig(), ACTIONS), IMPALA(IMPALAConfig(), ACTIONS)
    for made, name, value in ((ppo, "clip_range", 0.01), (impala, "rho_clip", 0.1), (impala, "c_clip", 0.1)):
        before = first_loss(made)
        update_parameter(made, name, value)
        assert first_loss(made) != before


def test_a_round_in_progress_has_it_too() -> None:
    made = PPO(PPOConfig(), ACTIONS)
    steps = made.steps([rollout()], np.random.default_rng(0))
    outputs = torch.tensor([[0.5, -0.5]]).expand(10, 2), torch.linspace(0, 1, 10)
    next(steps)
    first = steps.send(outputs)
    rows = tuple(part[: len(first.inputs)] for part in outputs)
    before = float(first.loss(rows).total)
    update_parameter(made, "entropy_weight", 1.0)
    assert float(first.loss(rows).total) != before


def turned(learner: Learner) -> np.ndarray[Any, Any]:
    """The weights after one turn from zeros, by a gradient of threes and fours."""
    layout = gradient_layout(2, 1, 1, 1)
    gradient = layout.views(np.zeros(layout.bytes, np.uint8))
    gradient["gradient"][:] = 3.0, 4.0
    gradient["mask"][:] = True
    gradient["header"][SAMPLES] = 1
    weights, out = np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    ledgers = [aligned_block(learner.layout.bytes) for _ in range(2)]
    learner.turn([gradient], weights, ledgers[0], out, ledgers[1])
    return out.view(np.float32)


def test_a_learner_steps_by_the_new_rate_and_clip() -> None:
    learner = Learner(A2CConfig(optimizer="sgd", learning_rate=1.0, clip_gradients=0.0), 2, 100)
    assert turned(learner).tolist() == [-3.0, -4.0]
    assert update_parameter(learner, "learning_rate", 0.5) == 1.0
    assert turned(learner).tolist() == [-1.5, -2.0]
    update_parameter(learner, "clip_gradients", 2.5)
    assert turned(learner).tolist() == pytest.approx([-0.75, -1.0], rel=1e-6)
    update_parameter(learner, "weight_decay", 0.1)
    assert learner.optimizer.settings.weight_decay == 0.1


def test_what_is_refused_changes_nothing() -> None:
    made = PPO(PPOConfig(), ACTIONS)
    for name, value in (("clip_rage", 0.1), ("clip_range", -1), ("clip_range", None), ("minibatches", 2)):
        with pytest.raises(ConfigError):
            update_parameter(made, name, value)
    assert made.config == PPOConfig()


def test_an_algorithm_of_ones_own_says_whether_it_takes_changes() -> None:
    class Own:
        def __init__(self) -> None:
            self.config = A2CConfig()

    with pytest.raises(ConfigError, match=r"Own takes no change of `discount`") as caught:
        update_parameter(Own(), "discount", 0.5)  # type: ignore[arg-type]
    assert "Configured" in caught.value.hint
