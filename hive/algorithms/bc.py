"""Behaviour cloning (Pomerleau 1988): a policy that gives the actions of given transitions the highest likelihood.

    loss = mean of -log pi(a|s) - entropy_weight H(pi(.|s))

For discrete actions this is the cross entropy, for box actions the likelihood of a Gaussian, whose deviation is learned
too. The small weight of the entropy keeps it from 0, as in the package `imitation` (Gleave et al. 2022).

Batches are drawn from the transitions of `algorithm.replay_from`. The steps of the run itself enter no memory: the
collectors play the policy so that the run has returns, and so that its length, its evaluations and its checkpoints are
counted as those of any other. `updates_per_step` says how many updates are made for each of them.

    network_of   heads                                             a run that can begin with the weights
    "ppo"        policy, value                                     PPO, A2C, IMPALA
    "sac"        policy, or squashed policy; two critics; temperature     SAC

Only the policy learns. Critics and values stay as they were initialized.

With a squashed Gaussian, actions at the bounds have no finite likelihood. So scaled actions are first moved within
+-WITHIN, where atanh is at most 3: the most likely action is then at least 99.5 % of the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.losses.actor_critic import A2CLoss, is_native
from hive.algorithms.replaying import Batch, updates_in_round
from hive.config import BCConfig
from hive.config.refusals import BOUNDED_OR_DISCRETE
from hive.errors import TopologyError
from hive.learning import ActorCritic, Approximation, SingleOutput, TargetNetwork, jointly
from hive.networks.act.bounded import SquashedGaussian
from hive.networks.act.distributions import ActionDistribution, Categorical
from hive.networks.build.agents import AgentNetwork

WITHIN = 0.995


class BC:
    """Makes one gradient per batch. workers: not used. round_steps: environment steps in a round over all collectors.

    Raises TopologyError for actions that the network of `network_of` does not serve, and for a fraction of an update.
    """

    statistics: tuple[str, ...] = ("policy_loss", "entropy")
    gradients_per_batch = 1
    asks_for_moments = False
    behaviour_log_probs = False
    model: Approximation

    def __init__(
        self, config: BCConfig, distribution: ActionDistribution, workers: int = 1, round_steps: int = 1
    ) -> None:
        self.distribution = distribution
        self.gradients_per_round = updates_in_round(config, round_steps)
        self.reconfigure(config)
        if config.network_of == "sac" and not isinstance(distribution, SquashedGaussian | Categorical):
            raise TopologyError(
                f'algorithm.network_of = "sac" {BOUNDED_OR_DISCRETE.reason}', hint='set it to "ppo", or leave it out'
            )
        self.heads: tuple[str, ...] = ("policy", "value")
        if config.network_of == "sac":
            policy = "squashed_policy" if isinstance(distribution, SquashedGaussian) else "policy"
            self.heads = (policy, "critic", "critic", "temperature")

    def reconfigure(self, config: Any) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the policy that learns. It has no target network, so `target` is ignored."""
        if isinstance(network, AgentNetwork):
            self.model = Approximation(SingleOutput(network.actor), optimizer, "policy")
        else:
            self.model = ActorCritic(network, optimizer)

    def gradient(self, batch: Batch) -> None:
        """Make the gradient of a batch."""
        batch.errors[:] = 0.0
        if not isinstance(self.model, ActorCritic):
            self._of_policy(batch)
            return
        count, weight = len(batch), self.config.entropy_weight
        forward = self.model.begin(batch.observations, native=is_native(self.distribution))
        ones, values = np.ones(count, np.float32), forward.outputs[1].reshape(-1).copy()  # no loss of the values
        share = torch.full((count,), 1.0 / count)
        given = batch.observations, self._within(batch.actions), share, (count, 0), self.distribution, ones, values
        loss = A2CLoss(*given, value_loss_weight=0.0, entropy_weight=weight)
        computed = self.model.computed(loss, forward)
        policy_loss, _, entropy = self.model.statistics[:3]
        jointly((self.model, computed), samples=count, statistics=(policy_loss, entropy))

    def _of_policy(self, batch: Batch) -> None:
        """Make the gradient of a network that has no values."""
        outputs = self.model(batch.observations)
        log_probs, entropies = self.distribution.log_prob_and_entropy(outputs, self._within(batch.actions))
        policy_loss, entropy = -log_probs.mean(), entropies.mean()
        statistics = policy_loss.item(), entropy.item()
        loss = policy_loss - self.config.entropy_weight * entropy
        self.model.reinforce(loss, samples=len(batch), statistics=statistics)

    def _within(self, actions: Tensor) -> Tensor:
        """Return actions of the batch, those at the bounds of a squashed Gaussian a little within them."""
        if not isinstance(self.distribution, SquashedGaussian):
            return actions
        return self.distribution.unscaled(self.distribution.scaled(actions).clamp(-WITHIN, WITHIN))
