"""Further policy heads: a Gaussian squashed into the action's bounds, a deterministic policy, and PPO's loss."""

from __future__ import annotations

import torch
from torch import Tensor

from hive.networks.head_parameters import PPOHeadParameters
from hive.networks.heads import Head, PolicyHead, refuse_unknown_actions
from hive.networks.parameters import HeadParameters
from hive.networks.spaces import ActionSpec
from hive.networks.squashed import clamp_log_std, squashed_distribution_for

__all__ = ["DeterministicPolicyHead", "PPOHead", "SquashedPolicyHead"]


class SquashedPolicyHead(Head):
    """A Gaussian squashed into the action's bounds (Haarnoja et al. 2018): float32 [N, 2 * D].

    The outputs are means and log standard deviations. Both depend on the observation; the latter are clamped to
    LOG_STD_BOUNDS. Target: advantages [N]; extra input: the actions. Loss: -log_prob(action) * advantage. A soft
    actor-critic computes its loss with `distribution.sample_and_log_prob` instead.

    Raises NetworkError for an action without finite bounds.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.distribution = squashed_distribution_for(action)
        self.width = self.distribution.width
        self.output_shape = (self.width,)
        self.extra_inputs = (("float32", self.distribution.action_shape),)

    def forward(self, columns: Tensor) -> Tensor:
        return clamp_log_std(columns)

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        return -self.distribution.log_prob(output, extra[0]) * target


class DeterministicPolicyHead(Head):
    """A deterministic policy (Silver et al. 2014; Lillicrap et al. 2016): float32 [N, D], before tanh.

    `hive.networks.off_policy_actions.NoisyActions` reads the outputs. Target: the gradient of the value of the policy's
    actions with respect to the outputs, [N, D]. Loss: -output * target, so an update raises the value. Raises
    NetworkError for an action without finite bounds.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.width = squashed_distribution_for(action).width // 2
        self.output_shape = self.target_shape = (self.width,)

    def forward(self, columns: Tensor) -> Tensor:
        return columns

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        return -(output * target).sum(-1)


class PPOHead(PolicyHead):
    """The plain policy with PPO's loss (Schulman et al. 2017, "Proximal Policy Optimization Algorithms").

    Target: advantages A [N]. Extra inputs: the actions, and their log probabilities under the old policy, which took
    them, float32 [N]. With r the probability ratio new / old, the loss (equations 7 and 8) is

        -min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) + kl_coefficient * KL - beta_entropy * entropy

    KL(old || new) is estimated for each sample by r - 1 - log r, which is unbiased and never
    negative (Schulman 2020, "Approximating KL Divergence"). `kl_coefficient` is a buffer float32 [], a variable
    that an agent adapts with `set_variable_value`.
    """

    kl_coefficient: Tensor

    def __init__(self, parameters: PPOHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.epsilon = parameters.clip_likelihood_ratio_using_epsilon
        self.extra_inputs = (*self.extra_inputs, ("float32", ()))
        self.register_buffer("kl_coefficient", torch.tensor(parameters.initial_kl_coefficient, dtype=torch.float32))

    def loss(self, output: Tensor, target: Tensor, *extra: Tensor) -> Tensor:
        actions, old_log_probs = extra
        refuse_unknown_actions(actions, self.action)
        log_probs, entropy = self.distribution.log_prob_and_entropy(output, actions)
        log_ratio = log_probs - old_log_probs
        ratio = log_ratio.exp()
        gain = ratio * target
        if self.epsilon is not None:
            gain = torch.minimum(gain, ratio.clamp(1.0 - self.epsilon, 1.0 + self.epsilon) * target)
        return -gain + self.kl_coefficient * (ratio - 1.0 - log_ratio) - self.beta_entropy * entropy
