"""A hyper-parameter changed live acts on the very next loss, learning rate or clipping."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small_algorithms import ActionValues, gradients_of, one_environment, values_for, wrapper_for
from torch import Tensor, nn

from hive.algorithms import A2C, IMPALA, PPO, PQN, Algorithm, NStepQ
from hive.algorithms.parameters import update_parameter
from hive.config import A2CConfig, IMPALAConfig, NStepQConfig, PPOConfig, PQNConfig, with_parameter
from hive.envs import Discrete
from hive.errors import ConfigError
from hive.experience import Rollout
from hive.gradients import ENV_STEPS, SAMPLES, gradient_layout
from hive.networks import aligned_block, distribution_for
from hive.training import Learner

ACTIONS = distribution_for(Discrete(4))

FEW = PPOConfig(epochs=4, minibatches=4, entropy_weight=0.01)
ALGORITHMS: list[Any] = [A2C(A2CConfig(), ACTIONS), PPO(FEW, ACTIONS), IMPALA(IMPALAConfig(), ACTIONS)]


class Leans(nn.Module):
    """A policy that prefers one action, and values from 0 to 1."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.5, -0.5, 0.0, 0.1]))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(observations)
        return self.logits.expand(rows, 4), torch.linspace(0, 1, rows)


class Shifted(Leans):
    """The same, with values that can be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(()))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        policy, values = super().forward(observations)
        return policy, values + self.values


def rollout() -> Rollout:
    rewards = [float(reward) for reward in range(8)]
    arrays = one_environment(rewards, [*rewards, 0.0])
    arrays["log_probs"][:] = -0.95  # by `Leans` it is -0.973
    return Rollout(arrays)


def losses(algorithm: Algorithm, **options: Any) -> list[float]:
    """The loss of each gradient of a round."""
    network = values_for(3) if isinstance(algorithm, NStepQ | PQN) else Leans()
    gradients = gradients_of(algorithm, network, [rollout()], np.random.default_rng(0), **options)
    return [gradient.loss for gradient in gradients]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize(
    ("name", "value"), [("entropy_weight", 0.5), ("value_loss_weight", 2), ("discount", 0.5), ("gae_lambda", 0.25)]
)
def test_the_next_loss_has_the_new_value(algorithm: Any, name: str, value: float) -> None:
    made = type(algorithm)(algorithm.config, ACTIONS)
    before = losses(made)[0]
    assert update_parameter(made, name, value) == getattr(algorithm.config, name)
    after = losses(made)[0]
    assert after != before
    built_so = type(algorithm)(dataclasses.replace(algorithm.config, **{name: float(value)}), ACTIONS)
    assert after == losses(built_so)[0]


def test_a_parameter_of_one_algorithm_acts() -> None:
    ppo, impala, nstep_q = PPO(FEW, ACTIONS), IMPALA(IMPALAConfig(), ACTIONS), NStepQ(NStepQConfig(), ACTIONS)
    pqn = PQN(PQNConfig(), ACTIONS)
    for made, name, value in (
        (ppo, "clip_range", 0.01),
        (impala, "rho_clip", 0.1),
        (impala, "c_clip", 0.1),
        (nstep_q, "discount", 0.5),
        (nstep_q, "n_step", 2),
        (nstep_q, "huber_loss", False),
        (pqn, "discount", 0.5),
        (pqn, "q_lambda", 0.1),
        (pqn, "huber_loss", True),
    ):
        before = losses(made)
        update_parameter(made, name, value)
        assert losses(made) != before


def test_a_round_in_progress_has_it_too() -> None:
    made = PPO(FEW, ACTIONS)
    before = losses(made)
    after = losses(made, after=lambda count: update_parameter(made, "entropy_weight", 1.0))
    assert after[0] == before[0]
    assert all(one != other for one, other in zip(after[1:], before[1:], strict=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clip_range_schedule", "linear"),
        ("clip_range_schedule", "cosine"),
        ("entropy_weight_schedule", "linear"),
        ("entropy_weight_schedule", "cosine"),
        ("value_clip_range", 0.05),
    ],
)
def test_schedules_and_value_clipping_act_on_a_round_in_progress(name: str, value: object) -> None:
    """From the second gradient on, the losses are those of an algorithm that was made with the value."""

    def losses_of(algorithm: PPO, change: bool) -> list[float]:
        network, half = Shifted(), rollout()
        half.progress = 0.5

        def after(made: int) -> None:
            with torch.no_grad():
                network.values += 0.1
            if change and made == 1:
                update_parameter(algorithm, name, value)

        generator = np.random.default_rng(0)
        return [gradient.loss for gradient in gradients_of(algorithm, network, [half], generator, after=after)]

    config = dataclasses.replace(FEW, clip_range=0.03)
    before, after = losses_of(PPO(config, ACTIONS), False), losses_of(PPO(config, ACTIONS), True)
    built_so = losses_of(PPO(with_parameter(config, name, value), ACTIONS), False)
    assert after[0] == before[0]
    assert after[1:] == built_so[1:]
    assert all(one != other for one, other in zip(after[1:], before[1:], strict=True))


def test_a_round_in_progress_ends_by_a_new_target() -> None:
    """The policy that acted differs by a divergence of about 3e-4."""
    made = PPO(FEW, ACTIONS)
    before = losses(made)
    ended = losses(made, after=lambda count: update_parameter(made, "target_kl", 1e-6) if count == 5 else None)
    assert (ended, len(before)) == (before[:5], 16)
    update_parameter(made, "target_kl", 0)
    assert losses(made) == before


def turned(learner: Learner, env_steps: int = 0) -> list[float]:
    """The first two weights after one turn from zeros, by a gradient of a three and a four."""
    flat, state = learner.flat, learner.network.state
    layout = gradient_layout(flat.parameter_elements, len(flat.parameters), 1, 1)
    gradient = layout.views(aligned_block(layout.bytes))
    gradient["gradient"][:2] = 3.0, 4.0
    gradient["mask"][:] = True
    gradient["header"][[SAMPLES, ENV_STEPS]] = 1, env_steps
    weights, out = aligned_block(state.bytes), aligned_block(state.bytes)
    optimizer_states = [aligned_block(learner.layout.bytes) for _ in range(2)]
    learner.turn([gradient], weights, optimizer_states[0], out, optimizer_states[1])
    changed: list[float] = state.parameters(out)[:2].tolist()
    return changed


def test_a_learner_steps_by_the_new_rate_and_clip() -> None:
    config = A2CConfig(optimizer="sgd", learning_rate=1.0, clip_gradients=0.0)
    learner = Learner(config, wrapper_for(ActionValues()), 100)
    assert turned(learner) == [-3.0, -4.0]
    assert update_parameter(learner, "learning_rate", 0.5) == 1.0
    assert turned(learner) == [-1.5, -2.0]
    update_parameter(learner, "clip_gradients", 2.5)
    assert turned(learner) == pytest.approx([-0.75, -1.0], rel=1e-6)
    update_parameter(learner, "learning_rate_schedule", "cosine")
    assert turned(learner, env_steps=50) == pytest.approx([-0.375, -0.5], rel=1e-6)
    assert turned(learner, env_steps=100) == [0.0, 0.0]
    update_parameter(learner, "weight_decay", 0.1)
    assert learner.network.optimizer.settings.weight_decay == 0.1


def test_a_refused_change_changes_nothing() -> None:
    made = PPO(FEW, ACTIONS)
    for name, value in (("clip_rage", 0.1), ("clip_range", -1), ("clip_range", None), ("minibatches", 2)):
        with pytest.raises(ConfigError):
            update_parameter(made, name, value)
    assert made.config == FEW


def test_a_user_defined_algorithm_may_not_be_configurable() -> None:
    class Own:
        def __init__(self) -> None:
            self.config = A2CConfig()

    with pytest.raises(ConfigError, match=r"`discount` of Own cannot be changed") as caught:
        update_parameter(Own(), "discount", 0.5)  # type: ignore[arg-type]
    assert "Configured" in caught.value.hint
