"""A2C: synchronous advantage actor-critic (Mnih et al. 2016), with generalised advantages (Schulman et al. 2016).

    loss = -mean(log pi(a|s) A) + value_loss_weight mean((R - V)^2) - entropy_weight mean(H)

over the valid steps of a share of a round. A and the lambda-returns R = A + V come from the values of the very forward
pass that the loss differentiates, as constants: one pass over [T+1, B] rows and the last observations of truncated
episodes gives policies, values and bootstraps. A truncated episode is bootstrapped with the value of its true last
observation, a terminated one with nothing. `gae_lambda = 1` gives n-step returns to the rollout's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive import _native
from hive.algorithms.steps import Loss, Step
from hive.config import A2CConfig
from hive.networks import ActionDistribution
from hive.storage import Rollout

__all__ = ["A2C"]

EPSILON = 1e-8  # keeps the normalisation of constant advantages finite

Floats = NDArray[np.float32]


class A2C:
    """One gradient per share of a round."""

    statistics: tuple[str, ...] = ("policy_loss", "value_loss", "entropy", "value_mean")

    def __init__(self, config: A2CConfig, distribution: ActionDistribution) -> None:
        self.config = config
        self.distribution = distribution

    def steps(self, rollouts: Sequence[Rollout]) -> Iterator[Step]:
        samples = sum(rollout.samples for rollout in rollouts)
        if samples:
            yield Step(_inputs(rollouts), samples, lambda outputs: self._loss(rollouts, samples, outputs))

    def _loss(self, rollouts: Sequence[Rollout], samples: int, outputs: tuple[Tensor, ...]) -> Loss:
        policy, values = outputs[0], outputs[1]
        advantages, targets = self._targets(rollouts, values.detach().numpy())
        keep = _acted_rows(rollouts)
        if keep is None:  # one rollout: its acted rows come first, no gather is needed
            count = rollouts[0].length * rollouts[0].rewards.shape[1]
            policy, values = policy[:count], values[:count]
        else:
            policy, values = policy[keep], values[keep]
        actions = torch.from_numpy(_flat([rollout.actions for rollout in rollouts]))
        weight = torch.from_numpy(_flat([rollout.valid for rollout in rollouts]).astype(np.float32) / samples)
        policy_loss = -(self.distribution.log_prob(policy, actions) * torch.from_numpy(advantages) * weight).sum()
        value_loss = ((torch.from_numpy(targets) - values).square() * weight).sum()
        entropy = (self.distribution.entropy(policy) * weight).sum()
        total = policy_loss + self.config.value_loss_weight * value_loss - self.config.entropy_weight * entropy
        with torch.no_grad():
            shown = torch.stack([policy_loss, value_loss, entropy, (values * weight).sum()]).tolist()
        return Loss(total, tuple(shown))

    def _targets(self, rollouts: Sequence[Rollout], values: Floats) -> tuple[Floats, Floats]:
        """Advantages and value targets of all acted rows, flat."""
        advantages, targets = [], []
        for rollout, mine, final_values in _split(rollouts, values):
            following = mine[1:].copy()
            cut = rollout.final_index >= 0
            if final_values.size:
                following[cut] = final_values[rollout.final_index[cut]]
            a, r = np.empty_like(rollout.rewards), np.empty_like(rollout.rewards)
            _native.gae(
                rollout.rewards,
                np.ascontiguousarray(mine[:-1]),
                following,
                rollout.terminated,
                rollout.truncated,
                rollout.valid,
                a,
                r,
                discount=self.config.discount,
                gae_lambda=self.config.gae_lambda,
            )
            advantages.append(a)
            targets.append(r)
        flat, valid = _flat(advantages), _flat([rollout.valid for rollout in rollouts]).astype(bool)
        if self.config.normalize_advantages:
            flat = ((flat - flat[valid].mean()) / (flat[valid].std() + EPSILON)).astype(np.float32)
        return flat, _flat(targets)


def _inputs(rollouts: Sequence[Rollout]) -> Tensor:
    """All observations, [N, ...]: for each rollout its rows 0..length, then its final observations."""
    parts = []
    for rollout in rollouts:
        rows = rollout.observations
        parts.append(rows.reshape(-1, *rows.shape[2:]))
        if len(rollout.final_observations):
            parts.append(rollout.final_observations)
    return torch.from_numpy(parts[0] if len(parts) == 1 else np.concatenate(parts))


def _split(rollouts: Sequence[Rollout], values: Floats) -> Iterator[tuple[Rollout, Floats, Floats]]:
    """Cuts values [N] into each rollout's [length + 1, B] and those of its final observations."""
    start = 0
    for rollout in rollouts:
        envs = rollout.rewards.shape[1]
        rows, finals = (rollout.length + 1) * envs, len(rollout.final_observations)
        yield rollout, values[start : start + rows].reshape(-1, envs), values[start + rows : start + rows + finals]
        start += rows + finals


def _acted_rows(rollouts: Sequence[Rollout]) -> Tensor | None:
    """Which rows of the inputs had an action; None when they are simply the first ones."""
    if len(rollouts) == 1:
        return None
    rows, start = [], 0
    for rollout in rollouts:
        envs = rollout.rewards.shape[1]
        rows.append(np.arange(start, start + rollout.length * envs))
        start += (rollout.length + 1) * envs + len(rollout.final_observations)
    return torch.from_numpy(np.concatenate(rows))


def _flat(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """[T, B, ...] each -> [sum of T * B, ...]."""
    flat = [part.reshape(-1, *part.shape[2:]) for part in parts]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)
