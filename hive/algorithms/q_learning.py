"""The bases of algorithms that learn the value of every action, or the distribution of its return.

    QLearning             values; acts epsilon-greedily                     n-step Q-learning, PQN
    ReplayedValues        values learned from a replay memory               DQN
    ReturnDistributions   distributions, compared by expected returns       C51, QR-DQN

Epsilon decreases with the number of the rollout (`hive.networks.EpsilonGreedy`), so it is no state of the run.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

from torch import nn

from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.overrides import OfBatches
from hive.algorithms.replaying import Batch, updates_in_round, warmup_rounds
from hive.config import EpsilonGreedyConfig, ReplayedValuesConfig
from hive.config.refusals import ONE_DISCRETE
from hive.errors import TopologyError
from hive.experience import Replay
from hive.learning import Approximation, SingleOutput, TargetNetwork
from hive.learning.described import BACKWARD, TORCH_COMPUTES, Described, Step, described
from hive.networks.act.distributions import ActionDistribution, Categorical
from hive.networks.act.exploration import EpsilonGreedy, epsilon_greedy
from hive.networks.build.parameters import HeadParameters
from hive.networks.weights.flat import Floats


class QLearning:
    """Holds the action values, `q`, and the epsilon-greedy distribution of the policy.

    distribution: Categorical, that of a discrete action. workers: not used. round_steps: environment steps in a round
    over all collectors; it converts `exploration_steps` to rollouts. Raises TopologyError for other actions.
    """

    statistics: tuple[str, ...] = ("q_loss", "q_mean", "q_max", "td_error")
    asks_for_moments = False
    behaviour_log_probs = False
    q: Approximation

    def __init__(
        self, config: EpsilonGreedyConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        if not isinstance(distribution, Categorical):
            raise TopologyError(f"{config.name} {ONE_DISCRETE.reason}", hint=ONE_DISCRETE.instead)
        rollouts = math.ceil(config.exploration_steps / round_steps)
        start, end = config.exploration_start, config.exploration_end
        self.reconfigure(config)
        self.distribution: ActionDistribution = epsilon_greedy(self.heads[0], distribution.n, start, end, rollouts)

    @property
    def heads(self) -> tuple[str | HeadParameters, ...]:
        """The heads of the network, whose first output the policy compares actions by."""
        return ("q",)

    def reconfigure(self, config: Any) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the action values that learn, with their target network if the algorithm has one."""
        self.q = Approximation(SingleOutput(network), optimizer, "q", target)


class ReplayedValues(QLearning, OfBatches):
    """Makes one gradient per batch. Arguments: see QLearning. Raises TopologyError for a fraction of an update."""

    config: ReplayedValuesConfig
    gradients_per_batch = 1

    def __init__(
        self, config: ReplayedValuesConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        super().__init__(config, distribution, workers, round_steps)
        self.gradients_per_round = updates_in_round(config, round_steps) * self.gradients_per_batch
        explores = cast(EpsilonGreedy, self.distribution)
        warmup = warmup_rounds(config, round_steps)
        self.distribution = dataclasses.replace(explores, warmup=warmup, spread=config.exploration_spread)

    def described_values(self, memory: Replay, targets: Step, loss: Step) -> Described | str:
        """Return the gradients of batches of this memory for hive._native, or why only `gradient` makes them.

        targets: the step from what the network returns for the next observations to the register `targets`. loss: that
        from `values` and `targets` to `to_values`.
        """
        passes, config = self.q.native, self.config
        if passes.dense is None:
            return TORCH_COMPUTES
        chooses = "next_online" if config.double else "next_values"
        steps = [
            memory.described(config.n_step, config.discount, config.loss_exponent),
            passes.unpack("observations", "rows", memory.observation),
            passes.unpack("next_observations", "next_rows", memory.observation),
            passes.described("next_rows", ("next_values",), of_target=True),
            *([passes.described("next_rows", (chooses,))] if config.double else []),
            (targets[0], {**targets[1], "chooses": chooses, "values": "next_values"}),
            passes.described("rows", ("values",), ("to_values",)),
            loss,
            BACKWARD,
        ]
        return described(steps, passes.dense.mask)


class ReturnDistributions(ReplayedValues):
    """Holds the distributions of all actions as `q`. Arguments: see QLearning."""

    def following(self, batch: Batch) -> tuple[Floats, Floats, Floats, Floats]:
        """Return two distributions [N, actions, atoms] for the next observation, and the returns and discounts [N].

        The first chooses the best action: that of the online network with `double`, otherwise that of the target
        network, which is the second.
        """
        outputs: Floats = self.q.target(batch.next_observations).numpy()
        chooses = self.q.no_grad(batch.next_observations).numpy() if self.config.double else outputs
        return chooses, outputs, batch.returns.numpy(), batch.discounts.numpy()
