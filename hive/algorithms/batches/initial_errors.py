"""The first TD errors of steps, computed by the collector that made them (Ape-X, Horgan et al. 2018).

    |r_t + discount r_t+1 + ... + discount^n max_a Q(s_t+n, a) - Q(s_t, a_t)|

with the values Q that the policy has acted by. They need no further pass of the network, but later steps: the error is
unknown where the rollout ends before row t + n, and where an episode was truncated on the way. So it is where a column
of an agent that acts in turn ends before: its rows after that are not valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.networks.rows.normalization import clipped_rewards

Arrays = Mapping[str, NDArray[Any]]


def n_step_errors(
    rollout: Arrays, values: NDArray[np.float32], n_step: int, discount: float, reward_scale: float = 0.0
) -> NDArray[np.float32]:
    """Return the absolute errors of the first T steps of a rollout, float32 [T, B]; NaN where unknown or not valid.

    rollout: arrays of hive.experience.rollouts. values: float32 [T, B, A], those of all actions in these rows.
    reward_scale: see hive.networks.rows.normalization.Scales.
    """
    steps, shape = len(values), values.shape[:2]
    terminated, truncated, valid = (rollout[name][:steps] > 0 for name in ("terminated", "truncated", "valid"))
    rewards = rollout["rewards"][:steps]
    if reward_scale:
        rewards = clipped_rewards(rewards, np.float32(reward_scale))
    returns, going, known = np.zeros(shape, np.float32), np.ones(shape, bool), valid.copy()
    factor = 1.0
    for k in range(n_step):
        here, there = slice(0, max(steps - k, 0)), slice(k, None)
        known[steps - k :] &= ~going[steps - k :]
        returns[here] += np.float32(factor) * rewards[there] * going[here]
        known[here] &= ~(going[here] & (truncated[there] | ~valid[there]))
        going[here] &= ~terminated[there]
        factor *= discount
    last = max(steps - n_step, 0)
    known[last:] &= ~going[last:]
    returns[:last] += np.float32(factor) * values[n_step:].max(-1) * going[:last]
    taken = np.take_along_axis(values, rollout["actions"][:steps, :, None], -1)[..., 0]
    return np.where(known, np.abs(returns - taken), np.float32(np.nan))
