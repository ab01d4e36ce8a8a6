"""One step of DQN against its loss written out, for batches with ends, importance weights and a different target."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from small_algorithms import SPECS
from torch import Tensor, nn

from hive.algorithms import DQN, Batch
from hive.algorithms.replaying import updates_in_round, warmup_rounds
from hive.approximation import TrivialTarget
from hive.config import DQNConfig
from hive.errors import TopologyError
from hive.networks import distribution_for

ROWS, SIZE, ACTIONS = 9, 3, 4


class Values(nn.Module):
    """Values of four actions, as the only output."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.linear = nn.Linear(SIZE, ACTIONS)

    def forward(self, observations: Tensor) -> tuple[Tensor]:
        return (self.linear(observations),)


class Copied(TrivialTarget):
    """A target network with weights of its own."""

    def __init__(self, weights: nn.Module) -> None:
        super().__init__()
        self.weights = weights.state_dict()

    def init(self, model: nn.Module) -> None:
        copied = copy.deepcopy(model)
        copied.get_submodule("model.network").load_state_dict(self.weights)
        super().init(copied)


def batch() -> Batch:
    torch.manual_seed(5)
    discounts = torch.full((ROWS,), 0.9**3)
    discounts[0], discounts[1] = 0.0, 0.9  # a termination, and a truncation after one step
    return Batch(
        observations=torch.randn(ROWS, SIZE),
        actions=torch.randint(ACTIONS, (ROWS,)),
        returns=2.0 * torch.randn(ROWS),
        discounts=discounts,
        next_observations=torch.randn(ROWS, SIZE),
        importance=0.1 + 0.9 * torch.rand(ROWS),
        errors=np.full(ROWS, np.nan, np.float32),
    )


def config_of(**options: Any) -> DQNConfig:
    return DQNConfig(updates_per_step="1", **options)


@pytest.mark.parametrize("huber", [True, False])
@pytest.mark.parametrize("double", [True, False])
def test_one_step_is_that_of_the_loss_written_out(double: bool, huber: bool) -> None:
    online, target, given = Values(1), Values(2), batch()
    expected = copy.deepcopy(online)
    following = target(given.next_observations)[0]
    chooses = expected(given.next_observations)[0] if double else following
    assert (chooses.argmax(1) != following.argmax(1)).any() == double  # otherwise the test shows nothing
    bootstrap = following[range(ROWS), chooses.argmax(1)].detach()
    errors = given.returns + given.discounts * bootstrap - expected(given.observations)[0][range(ROWS), given.actions]
    size = errors.abs()
    losses = torch.where(size > 1, size - 0.5, 0.5 * size**2) if huber else size**2
    (given.importance * losses).mean().backward()  # type: ignore[no-untyped-call]
    algorithm = DQN(config_of(double=double, huber_loss=huber), distribution_for(SPECS["discrete"]))
    algorithm.connect(online, torch.optim.SGD(online.parameters(), lr=1.0), Copied(target))
    before = [parameter.detach().clone() for parameter in online.parameters()]
    algorithm.gradient(given)
    for was, now, reference in zip(before, online.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(was - now, reference.grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(given.errors, size.detach(), rtol=1e-5)


def test_updates_belong_to_steps_however_many_environments_make_them() -> None:
    config = DQNConfig(updates_per_step="3/4", learning_starts=100)
    assert [updates_in_round(config, steps) for steps in (4, 8, 32)] == [3, 6, 24]
    assert [warmup_rounds(config, steps) for steps in (4, 8, 32)] == [25, 13, 4]
    with pytest.raises(TopologyError, match=r"makes 4\.5 updates of a round of 6 environment steps"):
        updates_in_round(config, 6)
