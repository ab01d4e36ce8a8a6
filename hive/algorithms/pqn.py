"""PQN (Gallici et al. 2025, "Simplifying Deep Temporal Difference Learning"): Q(lambda) without target and replay.

    V_t  = max_a Q(s_t, a)
    R_t  = r_t + discount (lambda R_t+1 + (1 - lambda) V_t+1)
    loss = mean of (R_t - Q(s_t, a_t))^2

The returns R are computed once, with the weights at the beginning of the round. R_t = r_t after a termination, and
r_t + discount V of the true last observation after a truncation and at the end of the rollout. These are the
lambda-returns of V, which `hive.algorithms.batches.advantages` computes. As in PPO, each of `epochs` epochs permutes
the share and divides it into `minibatches` slices, and all workers together make one update from slice m of epoch e of
every worker.

In place of a target network, `network.layer_norm` keeps the values bounded (section 3 of the paper); the scheme `pqn`
sets it. The policy is epsilon-greedy, and epsilon decreases with the number of the rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from hive.algorithms.algorithm import Gradients
from hive.algorithms.batches.advantages import generalized_advantages
from hive.algorithms.batches.frames import StackedRows
from hive.algorithms.batches.rows import (
    Batches,
    acted_inputs,
    evaluated,
    flat,
    input_rows,
    minibatches,
    picked,
    row_counts,
    together,
)
from hive.algorithms.losses.q_learning import QLoss, described_q_loss
from hive.algorithms.q_learning import QLearning
from hive.config import PQNConfig
from hive.experience import Rollout
from hive.learning.described import BACKWARD, MEMORY, TORCH_COMPUTES, Described, Step, described
from hive.networks.act.distributions import ActionDistribution


class PQN(QLearning):
    """Makes `epochs` x `minibatches` gradients per share of a round. Arguments: see QLearning."""

    config: PQNConfig
    _round: tuple[tuple[Tensor | StackedRows, Tensor, Tensor], Batches] | None = None  # the round in progress

    def __init__(
        self, config: PQNConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        super().__init__(config, distribution, workers, round_steps)
        self.gradients_per_round = config.epochs * config.minibatches

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Yield the gradients of all minibatches, permuted by `noise`."""
        config = self.config
        inputs = input_rows(rollouts, self.q.device)
        (values,) = evaluated(lambda rows: (self.q.no_grad(rows).amax(-1),), rollouts, inputs)
        _, returns = generalized_advantages(rollouts, values, config.discount, config.q_lambda)
        valid = flat([rollout.valid for rollout in rollouts]).astype(bool)
        batch = (
            acted_inputs(inputs, row_counts(rollouts))[torch.from_numpy(valid)],
            torch.from_numpy(flat([rollout.actions for rollout in rollouts])[valid]),
            torch.from_numpy(returns[valid]),
        )
        numbers = minibatches(len(returns[valid]), config.epochs, config.minibatches, noise)
        parts = Batches(iter(numbers), lambda rows: (rows, picked(batch[0], cast(Tensor, rows))))
        self._round = batch, parts
        for rows, seen in parts:
            assert rows is not None
            assert isinstance(seen, Tensor)
            actions, targets = (picked(column, rows) for column in batch[1:])
            yield self.q.reinforce(QLoss(seen, actions, targets, huber=self.config.huber_loss), samples=len(rows))

    def described(self) -> Described | str:
        """Return the gradients that are left of the round for hive._native, or why only `gradients` makes them."""
        if self._round is None:
            return MEMORY
        (observations, actions, targets), parts = self._round
        passes = self.q.native
        seen = together(observations)
        rows = None if passes.dense is None else passes.rows(seen)
        if rows is None or passes.dense is None:
            return TORCH_COMPUTES
        columns = {"rows": rows, "actions": actions.numpy(), "targets": targets.numpy()}
        if passes.is_masked:
            columns["observations"] = seen.numpy()
        picks: list[Step | None] = [("pick", {"source": source, "into": into}) for into, source in columns.items()]
        forward = passes.described("rows", ("values",), ("to_values",))
        loss = described_q_loss(huber=self.config.huber_loss, importance=False)
        return described([*picks, forward, loss, BACKWARD], passes.dense.mask, parts)
