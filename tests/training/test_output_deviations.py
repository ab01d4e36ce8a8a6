"""Updates of A2C on a Gaussian policy whose deviations are outputs, against torch.distributions and autograd.

The oracle is written out: its own layers with the initial weights of the run, returns by a loop, the clamp of the log
deviations as a maximum and a minimum, the optimizer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import Trainer, config_of
from torch import Tensor, nn

DISCOUNT, LEARNING_RATE, ENTROPY_WEIGHT, VALUE_WEIGHT, LONGEST = 0.9, 0.01, 0.1, 0.5, 0.5
ROUNDS, STEPS, ENVS = 4, 8, 2
CLOSE = 4e-6  # a small gradient divided by its own root multiplies rounding


class Oracle:
    """Two networks of one hidden layer; the policy has two means and two log deviations."""

    def __init__(self, weights: dict[str, NDArray[Any]]) -> None:
        self.take(weights)
        self.squares = {name: torch.zeros(array.shape) for name, array in weights.items()}

    def take(self, weights: dict[str, NDArray[Any]]) -> None:
        """Begin the next update with these weights: a small deviation enlarges differences of rounding."""
        self.parameters = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in weights.items()}

    def outputs(self, branch: int, observations: Tensor) -> Tensor:
        def linear(layer: int, inputs: Tensor) -> Tensor:
            weight, bias = (self.parameters[f"branches.{branch}.trunk.{layer}.{part}"] for part in ("weight", "bias"))
            return nn.functional.linear(inputs, weight, bias)

        return linear(2, torch.tanh(linear(0, observations)))

    def normal(self, observations: Tensor) -> torch.distributions.Normal:
        mean, log_std = self.outputs(0, observations).split(2, -1)
        log_std = torch.minimum(torch.maximum(log_std, torch.tensor(-20.0)), torch.tensor(2.0))
        return torch.distributions.Normal(mean, torch.exp(log_std))

    def returns(self, rollout: dict[str, NDArray[Any]]) -> Tensor:
        """Discounted rewards up to the end of each episode or the rollout; then the value of what follows."""
        found = np.zeros((STEPS, ENVS), np.float32)
        for env in range(ENVS):
            following = self.value_of(rollout["observations"][STEPS, env])
            for t in reversed(range(STEPS)):
                if rollout["terminated"][t, env]:
                    following = 0.0
                elif rollout["truncated"][t, env]:
                    following = self.value_of(rollout["final_observations"][rollout["final_index"][t, env]])
                following = float(rollout["rewards"][t, env]) + DISCOUNT * following
                found[t, env] = following
        return torch.from_numpy(found)

    def value_of(self, observation: NDArray[np.float32]) -> float:
        with torch.no_grad():
            return float(self.outputs(1, torch.from_numpy(observation.copy())))

    def update(self, rollout: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
        """Make one update of A2C and return the gradient before it is clipped."""
        observations = torch.from_numpy(rollout["observations"][:STEPS].copy())
        normal, values = self.normal(observations), self.outputs(1, observations).squeeze(-1)
        returns = self.returns(rollout)
        log_probs = normal.log_prob(torch.from_numpy(rollout["actions"].copy())).sum(-1)
        loss = -(log_probs * (returns - values.detach())).mean()
        loss = loss + VALUE_WEIGHT * (returns - values).square().mean()
        loss = loss - ENTROPY_WEIGHT * normal.entropy().sum(-1).mean()
        gradient = dict(zip(self.parameters, torch.autograd.grad(loss, list(self.parameters.values())), strict=True))
        self.step(gradient)
        return gradient

    def step(self, gradient: dict[str, Tensor]) -> None:
        """Clip the gradient and make a step of RMSprop."""
        norm = torch.cat([part.flatten() for part in gradient.values()]).norm()
        for name, part in gradient.items():
            clipped = part * min(1.0, LONGEST / float(norm))
            self.squares[name] = 0.99 * self.squares[name] + 0.01 * clipped.square()
            with torch.no_grad():
                self.parameters[name] -= LEARNING_RATE * clipped / (self.squares[name].sqrt() + 1e-5)


def weights_of(trainer: Trainer) -> dict[str, NDArray[Any]]:
    flat = trainer.blueprint.flat
    return flat.arrays(trainer.weights[trainer.turns % 2][: flat.block_bytes])


@pytest.mark.parametrize("deviation", [1.0, 0.135, 7.38], ids=["1", "small", "at the clamp"])
def test_a_gradient_and_the_next_weights_are_those_of_the_oracle(deviation: float) -> None:
    """At the clamp: some samples leave it with the second update, and have no gradient from then on."""
    config = config_of(
        "small_environments:Drift",
        env__options="{actions='box', truncates=9}",
        env__scale_actions="false",  # the oracle acts in the units of the environment
        network__separate_networks="true",
        network__action_deviation='"output"',
        network__initial_deviation=deviation,
        network__policy_gain=1.0,
        algorithm__discount=DISCOUNT,
        algorithm__learning_rate=LEARNING_RATE,
        algorithm__entropy_weight=ENTROPY_WEIGHT,
        algorithm__value_loss_weight=VALUE_WEIGHT,
        algorithm__clip_gradients=LONGEST,
        algorithm__optimizer='"rmsprop"',
    )
    trainer = Trainer(config)
    before = {name: array.copy() for name, array in weights_of(trainer).items()}
    oracle, clamped = Oracle(before), 0
    for _ in range(ROUNDS):
        oracle.take(weights_of(trainer))
        trainer.round()
        rollout = {name: array.copy() for name, array in trainer.rollouts[0].items()}
        observations = torch.from_numpy(rollout["observations"][:STEPS])
        clamped += int((oracle.outputs(0, observations)[..., 2:] > 2.0).sum())
        expected = oracle.update(rollout)
        norm = max(1.0, *(float(part.norm()) for part in expected.values()))
        gradient = trainer.blueprint.flat.gradient_arrays(trainer.gradient["gradient"])
        for name, array in zip(trainer.blueprint.flat.names, gradient, strict=True):
            np.testing.assert_allclose(array, expected[name].numpy(), rtol=0, atol=CLOSE * norm, err_msg=name)
        for name, array in weights_of(trainer).items():
            np.testing.assert_allclose(
                array, oracle.parameters[name].detach().numpy(), rtol=0, atol=CLOSE, err_msg=name
            )
    assert (clamped > 0) is (deviation > 7)
    assert max(float(np.abs(array - before[name]).max()) for name, array in weights_of(trainer).items()) > 100 * CLOSE
