"""DDPG in a plain script."""

from __future__ import annotations

import ddpg
import numpy as np
import pytest
import torch

LEARNED = -800.0  # untrained -1,200; seeds 0 to 2 reach -356 to -541 in their third five episodes


def batch(seed: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    draw = [torch.randn(size, generator=random) for size in ((16, 3), (16, 1), (16,), (16, 3))]
    return draw


def test_an_update_moves_both_networks_and_their_targets() -> None:
    critic, actor = ddpg.agent(0)
    states, actions = batch(1)[:2]
    before = [part.no_grad(*given) for part, given in ((critic, (states, actions)), (actor, (states,)))]
    ddpg.learn(critic, actor, batch(0))
    for part, given, old in ((critic, (states, actions), before[0]), (actor, (states,), before[1])):
        target = part.target(*given)
        assert part.updates == 1
        assert not torch.equal(part.no_grad(*given), old)
        assert 0 < (target - old).abs().max() < (part.no_grad(*given) - old).abs().max()


def test_the_actor_goes_where_the_critic_sees_value() -> None:
    """With the reward -(action - 0.5) ** 2 and nothing after it."""
    critic, actor = ddpg.agent(0)
    random = torch.Generator().manual_seed(0)
    for _ in range(250):
        states, actions = torch.rand(64, 3, generator=random), 2 * torch.rand(64, 1, generator=random) - 1
        rewards = -((actions - 0.5) ** 2).squeeze(1)
        following = critic.target(states, actor.target(states))
        ddpg.learn(critic, actor, [states, actions, rewards - ddpg.DISCOUNT * following, states])
    assert (actor.no_grad(torch.rand(64, 3, generator=random)) - 0.5).abs().mean() < 0.1


@pytest.mark.full("five seconds, in which the environment is what is slow")
def test_a_short_form_learns() -> None:
    returns = ddpg.train(3_000, seed=0)
    assert np.mean(returns[-5:]) >= LEARNED
    assert np.mean(returns[:10]) < LEARNED
