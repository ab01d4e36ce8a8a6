"""Updates of SAC, TD3 and DDPG give Stable-Baselines3's weights: the same batch and noise, the same order, to 1e-6.

Needs `pip install '.[peers]'`; without it these tests are skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1] / "algorithms"))

from agent_loop import PENDULUM, AgentLoop, batch_for, blueprint_of, numbered

from hive.algorithms import Batch
from hive.networks.build.agents import AgentNetwork

pytestmark = pytest.mark.full(reason="needs the extra `peers`")
sb3 = pytest.importorskip("stable_baselines3", reason="pip install '.[peers]'")

SIZE, BATCHES = 64, 4
WIDTHS = [32, 32]


def linears(network: nn.Module) -> list[nn.Linear]:
    return [layer for layer in network.modules() if isinstance(layer, nn.Linear)]


def pairs(ours: AgentNetwork, theirs: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """All parameters of both, in one form: the first critic layers of theirs have the action after the observation."""
    found = []
    for mine, other in zip(linears(ours.actor), actor_layers(theirs.actor), strict=True):
        found += [(mine.weight, other[0]), (mine.bias, other[1])]
    critics = [linears(network) for network in theirs.critic.q_networks]
    for branch, layers in zip(ours.critic.branches, critics, strict=True):
        for number, (mine, other) in enumerate(zip(linears(branch), layers, strict=True)):
            size = ours_action_size(theirs)
            weight = other.weight if number else torch.cat([other.weight[:, -size:], other.weight[:, :-size]], 1)
            found += [(mine.weight, weight), (mine.bias, other.bias)]
    return found


def ours_action_size(theirs: Any) -> int:
    return int(np.prod(theirs.actor.action_space.shape))


def actor_layers(actor: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if hasattr(actor, "log_std"):
        layers = [(layer.weight, layer.bias) for layer in linears(actor.latent_pi)]
        ends = actor.mu, actor.log_std
        return [*layers, (torch.cat([e.weight for e in ends]), torch.cat([e.bias for e in ends]))]
    return [(layer.weight, layer.bias) for layer in linears(actor.mu)]


def copy_to(theirs: Any, ours: AgentNetwork) -> None:
    """Copies our weights to theirs."""
    size = ours_action_size(theirs)
    with torch.no_grad():
        *hidden, last = linears(ours.actor)
        layers = linears(theirs.actor.latent_pi if hasattr(theirs.actor, "log_std") else theirs.actor.mu)
        for mine, other in zip([*hidden, last], layers, strict=False):
            other.weight.copy_(mine.weight)
            other.bias.copy_(mine.bias)
        if hasattr(theirs.actor, "log_std"):
            for part, number in ((theirs.actor.mu, 0), (theirs.actor.log_std, 1)):
                part.weight.copy_(last.weight[number * size : (number + 1) * size])
                part.bias.copy_(last.bias[number * size : (number + 1) * size])
        for branch, network in zip(ours.critic.branches, theirs.critic.q_networks, strict=True):
            for number, (mine, other) in enumerate(zip(linears(branch), linears(network), strict=True)):
                other.weight.copy_(
                    mine.weight if number else torch.cat([mine.weight[:, size:], mine.weight[:, :size]], 1)
                )
                other.bias.copy_(mine.bias)
        theirs.actor_target.load_state_dict(theirs.actor.state_dict()) if hasattr(theirs, "actor_target") else None
        theirs.critic_target.load_state_dict(theirs.critic.state_dict())


def model_of(kind: str) -> Any:
    from stable_baselines3.common.logger import Logger

    model = getattr(sb3, kind.upper())(
        "MlpPolicy", gymnasium.make(PENDULUM), policy_kwargs={"net_arch": WIDTHS}, device="cpu", buffer_size=10
    )
    model.set_logger(Logger(None, []))
    return model


def sample_of(batch: Batch) -> Any:
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    dones = (batch.discounts == 0.0).float()[:, None]
    given = batch.observations, batch.actions / 2.0, batch.next_observations, dones, batch.returns[:, None]
    names = ReplayBufferSamples._fields
    return ReplayBufferSamples(*given, **dict.fromkeys(names[len(given) :]))


def noise_of(kind: str, seed: int) -> list[torch.Tensor]:
    """The noise that they draw after this seed, in the order in which our gradients need it."""
    torch.manual_seed(seed)
    if kind == "sac":
        of_actor, of_target = (torch.normal(torch.zeros(SIZE, 1), torch.ones(SIZE, 1)) for _ in range(2))
        return [of_target, of_actor]
    return [torch.empty(SIZE, 1).normal_(0, 0.2) / 0.2]


@pytest.mark.parametrize("kind", ["sac", "td3", "ddpg"])
def test_updates_in_the_order_of_stable_baselines_give_its_weights(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = AgentLoop(blueprint_of(kind, network__middleware=WIDTHS, algorithm__critic_first="true"))
    model = model_of(kind)
    copy_to(model, loop.network)
    for number in range(BATCHES):
        batch = batch_for(loop.blueprint, SIZE, seed=number)
        drawn = iter(noise_of(kind, number))
        monkeypatch.setattr(loop.algorithm, "draw", lambda *_, drawn=drawn: next(drawn))
        loop.update(numbered(batch, number))
        monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, batch=batch, **__: sample_of(batch))
        torch.manual_seed(number)
        model.train(gradient_steps=1, batch_size=SIZE)
        for mine, other in pairs(loop.network, model):
            np.testing.assert_allclose(mine.detach(), other.detach(), atol=1e-6, rtol=0)
        targets = zip(loop.target.critic.parameters(), model.critic_target.parameters(), strict=True)  # type: ignore[union-attr, operator]
        shaped = [(mine, other) for mine, other in targets if mine.shape == other.shape]
        for mine, other in shaped[1:]:  # the first layer has another order of columns
            if mine.shape[-1] != 4:
                np.testing.assert_allclose(mine.detach(), other.detach(), atol=1e-6, rtol=0)
    if kind == "sac":
        learned = loop.network.temperature
        assert learned is not None
        np.testing.assert_allclose(learned.log.item(), model.log_ent_coef.item(), atol=1e-6)
