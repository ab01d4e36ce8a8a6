"""Rewards for novelty, with any algorithm: RND (Burda et al. 2018, "Exploration by Random Network Distillation").

    reward_t + weight * min(novelty(s_t+1) / deviation of all novelties so far, 10)

hive.networks.rows.novelty defines the novelty. Its predictor learns with each gradient of the algorithm, from as many
of the round's observations as that gradient has samples; the two losses are added and share the optimizer. Burda et al.
give novelty a value head and a discount of its own; here it is part of the only reward, as in their baseline with one
value head, so that every algorithm and every network works with it. The value of a policy then contains the novelty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.algorithms.algorithm import Algorithm, AnyOptimizer, Gradients
from hive.algorithms.batches.rows import STACKS, flat
from hive.errors import NetworkError
from hive.experience import Rollout
from hive.learning import AnyPart, GradientReceiver, Part, Remote, TargetNetwork, on_host
from hive.networks.rows.novelty import Novelty

Outputs = TypeVar("Outputs")


class SeeksNovelty:
    """An algorithm that adds `weight` times the novelty to the rewards of another one, and trains the predictor.

    The network has the parts that `network.novelty_weight` adds. `novelty` is its loss, as the last of the statistics.
    """

    def __init__(self, algorithm: Algorithm, weight: float) -> None:
        self.algorithm = algorithm
        self.weight = weight
        self.distribution = algorithm.distribution
        self.statistics = (*algorithm.statistics, "novelty")
        self.gradients_per_round = algorithm.gradients_per_round
        self.asks_for_moments = algorithm.asks_for_moments
        self.behaviour_log_probs = algorithm.behaviour_log_probs

    def __getattr__(self, name: str) -> Any:
        """The rest, `config`, `reconfigure` and `heads`, is that of the algorithm, if it has it."""
        return getattr(self.algorithm, name)

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Connect the algorithm to the network. Raises NetworkError for an optimizer of torch."""
        if not isinstance(optimizer, GradientReceiver):
            raise NetworkError("novelty is learned in runs only", hint="use hive.run or a GWorker")
        novelty: Any = network.novelty
        self._teacher = _Teacher(optimizer, novelty, len(self.algorithm.statistics))
        self.algorithm.connect(network, self._teacher, target)

    def gradients(self, rollouts: Sequence[Rollout], noise: np.random.Generator | None = None) -> Gradients:
        """Add the novelty to the rewards, then yield what the algorithm yields, with gradients of the predictor."""
        for rollout in rollouts:
            rollout.novelty = self._teacher.novelty_of(rollout.observations[1:])
            self._set_ends(rollout, rollout.novelty)
            rollout.rewards = rollout.rewards + np.float32(self.weight) * self._teacher.novelty.rewards(rollout.novelty)
        valid = flat([rollout.valid for rollout in rollouts]).astype(bool)
        acted = flat([rollout.observations[:-1] for rollout in rollouts])
        order = (noise or np.random.default_rng(0)).permutation(np.flatnonzero(valid))
        self._teacher.begin(torch.from_numpy(acted), torch.from_numpy(order))
        yield from self.algorithm.gradients(rollouts, noise)

    def _set_ends(self, rollout: Rollout, novelty: NDArray[np.float32]) -> None:
        """Replace the novelty of what follows an end, the next episode's first observation, by that of the true last.

        It is 0 where this is not stored: after a termination, unless the environment is reset in a step of its own.
        """
        ends, finals = rollout.final_index >= 0, rollout.final_observations
        if ends.any():
            novelty[ends] = self._teacher.novelty_of(finals[rollout.final_index[ends]][None])[0]
        unknown = (rollout.terminated > 0) & ~ends
        unknown[:-1] &= rollout.valid[1:] > 0
        novelty[unknown] = 0.0


class _Teacher:
    """A GradientReceiver that adds the predictor's loss to each gradient, and passes it on to `receiver`.

    statistics: the number of statistics that the algorithm names; the predictor's loss follows them.
    """

    def __init__(self, receiver: GradientReceiver, novelty: Novelty, statistics: int) -> None:
        self.receiver = receiver
        self.novelty = novelty
        self.statistics = statistics
        self.device = getattr(receiver, "device", None)
        self._call: Callable[..., Any] = novelty if self.device is None else Remote(novelty, self.device)

    def novelty_of(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Return the novelty of observations [T, B, ...], float32 [T, B]."""
        rows = torch.from_numpy(observations.reshape(-1, *observations.shape[2:]))
        with torch.no_grad():
            parts = [on_host(self._call(some)) for some in rows.split(STACKS)]
        return np.concatenate(parts).reshape(observations.shape[:2])

    def begin(self, observations: Tensor, order: Tensor) -> None:
        """Learn from these observations [N, ...] of a round, again and again in this order, int64 [n]."""
        self.observations, self.order, self.next = observations, order, 0

    def watch(self, outputs: Outputs) -> Outputs:
        """Mark outputs as `receiver` does."""
        return self.receiver.watch(outputs)

    def reinforce(self, parts: Sequence[AnyPart], samples: int | None, statistics: Sequence[float]) -> None:
        """Write the gradient of the algorithm's parts and of the predictor's loss over as many observations."""
        if not parts or not samples:
            self.receiver.reinforce(parts, samples, statistics)
            return
        rows = self.order[torch.arange(self.next, self.next + samples) % len(self.order)]
        self.next = (self.next + samples) % len(self.order)
        observations = self.observations.index_select(0, rows)
        loss = self._call(observations).mean()
        missing = [0.0] * (self.statistics - len(statistics))
        self.receiver.reinforce([*parts, Part(loss, (observations,))], samples, [*statistics, *missing, loss.item()])
