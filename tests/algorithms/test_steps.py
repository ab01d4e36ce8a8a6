"""The seam of algorithms: one of our own, written from the docstring, works in the gradient worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.algorithms import (
    A2C,
    IMPALA,
    PPO,
    Algorithm,
    Evaluate,
    Loss,
    Moments,
    Step,
    Steps,
    make_algorithm,
)
from hive.config import A2CConfig, AlgorithmConfig, IMPALAConfig, PPOConfig
from hive.gradients import ENV_STEPS, SAMPLES, gradient_layout
from hive.networks import Categorical, aligned_block
from hive.storage import LENGTH, Purpose, Rollout, rollout_layout, stream
from hive.workers import GradientWorker


class Reinforce:
    """REINFORCE (Williams 1992) on single steps, a gradient of each rollout; it keeps what it was called with."""

    statistics: tuple[str, ...] = ("loss", "rows")
    asks_for_moments = False
    behaviour_log_probs = False

    def __init__(self, rollouts: int = 1) -> None:
        self.distribution = Categorical(2)
        self.gradients_per_round = rollouts
        self.asked: list[tuple[int, ...]] = []

    def steps(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Steps:
        for rollout in rollouts:
            inputs = torch.from_numpy(rollout.observations[:-1].reshape(-1, 3))
            yield Step(inputs, rollout.samples, lambda outputs, rollout=rollout: self.loss(rollout, outputs))

    def loss(self, rollout: Rollout, outputs: tuple[Tensor, ...]) -> Loss:
        self.asked.append(tuple(outputs[0].shape))
        log_prob = self.distribution.log_prob(outputs[0], torch.from_numpy(rollout.actions.reshape(-1)))
        total = -(log_prob * torch.from_numpy(rollout.rewards.reshape(-1))).mean()
        return Loss(total, (total.item(), float(len(outputs[0]))))


class Asks(Reinforce):
    """Before its gradient it asks for the outputs of the network, and for what all workers of the round have."""

    def __init__(self) -> None:
        super().__init__(rollouts=2)
        self.answers: list[Any] = []

    def steps(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Steps:
        assert noise is not None
        self.answers.append(noise.random())
        (step,) = super().steps(rollouts, noise)
        self.answers.append((yield Evaluate(step.inputs)))
        self.answers.append((yield Moments(8, 4.0, 3.0)))
        yield step


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, observations: Tensor) -> tuple[Tensor, ...]:
        return (self.layer(observations),)


def rollout(seed: int = 1) -> dict[str, Any]:
    layout = rollout_layout(4, 2, ((3,), "float32"), ((), "int64"), 1)
    arrays = layout.views(np.zeros(layout.bytes, np.uint8))
    generator = np.random.default_rng(seed)
    arrays["header"][LENGTH] = 4
    arrays["observations"][:] = generator.normal(size=(5, 2, 3))
    arrays["actions"][:] = generator.integers(2, size=(4, 2))
    arrays["rewards"][:], arrays["valid"][:] = generator.normal(size=(4, 2)), 1
    return arrays


def slot_of(worker: GradientWorker) -> dict[str, Any]:
    layout = gradient_layout(worker.flat.parameter_elements, 2, 2, 8)
    return layout.views(aligned_block(layout.bytes))


def test_an_algorithm_of_our_own_makes_gradients() -> None:
    algorithm: Algorithm = Reinforce()
    network = Policy()
    worker = GradientWorker(network, algorithm, seed=1)
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


def test_gradients_of_a_round_are_made_one_after_the_other() -> None:
    """Each on the weights of its moment; the first also tells of the whole round."""
    algorithm, share = Reinforce(rollouts=2), [rollout(1), rollout(2)]
    worker = GradientWorker(Policy(), algorithm, seed=1)
    outs = [slot_of(worker), slot_of(worker)]
    for sequence, out in enumerate(outs):
        worker.compute(share, out, sequence=sequence, version=sequence)
        assert algorithm.asked == [(8, 2)] * (sequence + 1)
    for arrays, out in zip(share, outs, strict=True):
        alone = slot_of(worker)
        GradientWorker(worker.network, Reinforce(), seed=1).compute([arrays], alone, sequence=0, version=0)
        assert np.array_equal(out["gradient"], alone["gradient"])
    assert [out["header"][[SAMPLES, ENV_STEPS]].tolist() for out in outs] == [[8, 16], [8, 0]]


def test_a_round_that_another_worker_began_is_not_gone_on_with() -> None:
    """What is left of a dead worker's round are gradients of zero samples; the next round is whole."""
    worker = GradientWorker(Policy(), Reinforce(rollouts=2), seed=1)
    samples = []
    for sequence in (0, 3, 4, 5):
        out = slot_of(worker)
        worker.compute([rollout(1), rollout(2)], out, sequence=sequence, version=0)
        samples.append(int(out["header"][SAMPLES]))
    assert samples == [8, 0, 8, 8]


def test_questions_are_answered() -> None:
    algorithm = Asks()
    worker = GradientWorker(Policy(), algorithm, seed=5, source=2)
    arrays, asking, made = rollout(), slot_of(worker), slot_of(worker)
    worker.compute([arrays], asking, sequence=6, version=0)
    assert asking["header"][[SAMPLES, ENV_STEPS]].tolist() == [0, 8]
    assert asking["moments"].tolist() == [8.0, 4.0, 3.0]
    worker.compute([arrays], made, sequence=7, version=0, moments=(0.5, 2.0))
    noise, outputs, moments = algorithm.answers
    assert noise == stream(5, Purpose.minibatches, 2, 3).random()
    assert tuple(outputs[0].shape) == (8, 2)
    assert not outputs[0].requires_grad
    assert moments == (0.5, 2.0)
    assert made["header"][SAMPLES] == 8
    assert not made["moments"].any()


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


def test_a_loss_of_terms_is_the_sum_of_their_weighted_means() -> None:
    one, two = (torch.tensor(values, requires_grad=True) for values in ([1.0, 2.0, 5.0], [4.0, 8.0, 7.0]))
    weight, factors = torch.tensor([0.25, 0.75, 0.0]), torch.tensor([1.0, -2.0, 0.0])
    loss = Loss.of_terms((one, two, two.detach()), weight, factors)
    assert loss.statistics == (1.75, 7.0, 7.0)
    assert loss.total.item() == 1.75 - 2.0 * 7.0
    loss.total.backward()
    assert one.grad is not None
    assert two.grad is not None
    assert (one.grad.tolist(), two.grad.tolist()) == ([0.25, 0.75, 0.0], [-0.5, -1.5, 0.0])


@pytest.mark.parametrize(
    ("config", "kind"), [(A2CConfig(), A2C), (PPOConfig(epochs=1, minibatches=1), PPO), (IMPALAConfig(), IMPALA)]
)
def test_the_built_in_ones_are_such(config: AlgorithmConfig, kind: type) -> None:
    algorithm = make_algorithm(config, Categorical(2), 1)
    assert type(algorithm) is kind
    assert algorithm.distribution == Categorical(2)
    assert (algorithm.gradients_per_round, algorithm.asks_for_moments) == (1, False)
    steps = algorithm.steps([Rollout(rollout())])
    item = next(steps)
    if isinstance(item, Evaluate):
        item = steps.send((torch.zeros(10, 2), torch.zeros(10)))
    assert isinstance(item, Step)
    rows = len(item.inputs)
    loss = item.loss((torch.zeros(rows, 2), torch.zeros(rows)))
    assert len(loss.statistics) == len(algorithm.statistics)
    assert loss.total.shape == ()
    assert item.samples == 8
    assert list(steps) == []


def test_an_algorithm_knows_how_many_workers_there_are() -> None:
    configs = A2CConfig(normalize_advantages=True), PPOConfig(), IMPALAConfig()
    alone, together = ([make_algorithm(config, Categorical(2), workers) for config in configs] for workers in (1, 2))
    assert [a.asks_for_moments for a in alone] == [False, False, False]
    assert [a.asks_for_moments for a in together] == [True, True, False]
    assert [b.gradients_per_round - a.gradients_per_round for a, b in zip(alone, together, strict=True)] == [1, 1, 0]


def test_a_table_without_an_algorithm() -> None:
    with pytest.raises(TypeError, match="no algorithm for AlgorithmConfig"):
        make_algorithm(AlgorithmConfig(), Categorical(2), 1)
