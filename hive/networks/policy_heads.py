"""Further policy heads: a Gaussian squashed into the action's bounds, a deterministic policy, and PPO's."""

from __future__ import annotations

import torch
from torch import Tensor

from hive.networks.head_parameters import PPOHeadParameters
from hive.networks.heads import Floats, Head, ParameterSlopes, PolicyHead
from hive.networks.parameters import HeadParameters
from hive.networks.spaces import ActionSpec
from hive.networks.squashed import LOG_STD_BOUNDS, clamp_log_std, squashed_distribution_for

__all__ = ["DeterministicPolicyHead", "PPOHead", "SquashedPolicyHead"]


class SquashedPolicyHead(Head, direct=True):
    """A Gaussian squashed into the action's bounds (Haarnoja et al. 2018): float32 [N, 2 * D].

    The outputs are means and log standard deviations. Both depend on the observation; the latter are clamped to
    LOG_STD_BOUNDS.

    Raises NetworkError for an action without finite bounds.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.distribution = squashed_distribution_for(action)
        self.width = self.distribution.width
        self.output_shape = (self.width,)

    def forward(self, columns: Tensor) -> Tensor:
        return clamp_log_std(columns)

    def numpy_output(self, columns: Floats) -> Floats:
        output: Floats = clamp_log_std(torch.from_numpy(columns)).numpy()
        return output

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        least, most = LOG_STD_BOUNDS  # a clamped deviation has no gradient
        half = columns.shape[1] // 2
        slopes = slopes.copy()
        slopes[:, half:][(columns[:, half:] < least) | (columns[:, half:] > most)] = 0.0
        return slopes, ()


class DeterministicPolicyHead(Head, direct=True):
    """A deterministic policy (Silver et al. 2014; Lillicrap et al. 2016): float32 [N, D], before tanh.

    `hive.networks.off_policy_actions.NoisyActions` reads the outputs. Raises NetworkError for an action without finite
    bounds.
    """

    gain = 0.01

    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters)
        self.width = squashed_distribution_for(action).width // 2
        self.output_shape = (self.width,)

    def forward(self, columns: Tensor) -> Tensor:
        return columns

    def numpy_output(self, columns: Floats) -> Floats:
        return columns

    def numpy_slopes(self, slopes: Floats, columns: Floats) -> tuple[Floats, ParameterSlopes]:
        return slopes, ()


class PPOHead(PolicyHead, direct=True):
    """The plain policy and a buffer float32 [], `kl_coefficient`: the factor of the divergence in Coach's loss."""

    kl_coefficient: Tensor

    def __init__(self, parameters: PPOHeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.register_buffer("kl_coefficient", torch.tensor(parameters.initial_kl_coefficient, dtype=torch.float32))
