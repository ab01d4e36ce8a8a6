"""The seam of algorithms: one of our own, written from the docstring, works in the gradient worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.algorithms import A2C, Algorithm, Loss, Step
from hive.config import A2CConfig
from hive.gradients import SAMPLES, gradient_layout
from hive.networks import Categorical, aligned_block
from hive.storage import LENGTH, Rollout, rollout_layout
from hive.workers import GWorker


class Reinforce:
    """REINFORCE (Williams 1992) on single steps, one gradient; it also asks for what it was called with."""

    statistics = ("loss", "rows")

    def __init__(self) -> None:
        self.distribution = Categorical(2)
        self.asked: list[tuple[int, ...]] = []

    def steps(self, rollouts: Sequence[Rollout]) -> Iterator[Step]:
        for rollout in rollouts:
            inputs = torch.from_numpy(rollout.observations[:-1].reshape(-1, 3))
            yield Step(inputs, rollout.samples, lambda outputs, rollout=rollout: self.loss(rollout, outputs))

    def loss(self, rollout: Rollout, outputs: tuple[Tensor, ...]) -> Loss:
        self.asked.append(tuple(outputs[0].shape))
        log_prob = self.distribution.log_prob(outputs[0], torch.from_numpy(rollout.actions.reshape(-1)))
        total = -(log_prob * torch.from_numpy(rollout.rewards.reshape(-1))).mean()
        return Loss(total, (total.item(), float(len(outputs[0]))))


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, observations: Tensor) -> tuple[Tensor, ...]:
        return (self.layer(observations),)


def rollout() -> dict[str, Any]:
    layout = rollout_layout(4, 2, ((3,), "float32"), ((), "int64"), 1)
    arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    generator = np.random.default_rng(1)
    arrays["header"][LENGTH] = 4
    arrays["observations"][:] = generator.normal(size=(5, 2, 3))
    arrays["actions"][:] = generator.integers(2, size=(4, 2))
    arrays["rewards"][:], arrays["valid"][:] = generator.normal(size=(4, 2)), 1
    return arrays


def slot_of(worker: GWorker) -> dict[str, Any]:
    layout = gradient_layout(worker.flat.parameter_elements, 2, 2, 8)
    return layout.views(aligned_block(layout.bytes))


def test_an_algorithm_of_our_own_makes_gradients() -> None:
    algorithm: Algorithm = Reinforce()
    network = Policy()
    worker = GWorker(network, algorithm, seed=1)
    arrays, out = rollout(), slot_of(worker)
    worker.compute([arrays], out, sequence=0, version=0)
    logits = network(torch.from_numpy(arrays["observations"][:-1].reshape(-1, 3)))[0]
    chosen = logits.log_softmax(-1)[range(8), arrays["actions"].reshape(-1)]
    loss = -(chosen * torch.from_numpy(arrays["rewards"].reshape(-1))).mean()
    weight, bias = torch.autograd.grad(loss, [network.layer.weight, network.layer.bias])
    np.testing.assert_allclose(out["gradient"][:6], weight.numpy().reshape(-1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(out["gradient"][16:18], bias.numpy(), rtol=1e-5, atol=1e-7)
    assert out["statistics"].tolist() == pytest.approx([loss.item(), 8.0])
    assert out["header"][SAMPLES] == 8


def test_the_loss_is_asked_once_for_each_step() -> None:
    algorithm = Reinforce()
    worker = GWorker(Policy(), algorithm, seed=1)
    worker.compute([rollout(), rollout()], slot_of(worker), sequence=0, version=0)
    assert algorithm.asked == [(8, 2), (8, 2)]


def test_a_step_makes_no_loss_before_it_is_asked() -> None:
    """Targets may depend on the outputs: there are none before the forward pass."""
    algorithm = Reinforce()
    (step,) = algorithm.steps([Rollout(rollout())])
    assert algorithm.asked == []
    step.loss(Policy()(step.inputs))
    assert algorithm.asked == [(8, 2)]


def test_steps_and_losses_are_values() -> None:
    step = Step(torch.zeros(1, 3), 1, lambda outputs: Loss(outputs[0].sum(), ()))
    with pytest.raises(FrozenInstanceError):
        step.samples = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        step.loss((torch.ones(1),)).total = torch.zeros(())  # type: ignore[misc]


def test_a2c_is_one() -> None:
    algorithm: Algorithm = A2C(A2CConfig(), Categorical(2))
    assert algorithm.distribution == Categorical(2)
    (step,) = algorithm.steps([Rollout(rollout())])
    loss = step.loss((torch.zeros(10, 2), torch.zeros(10)))
    assert len(loss.statistics) == len(algorithm.statistics)
    assert loss.total.shape == ()
