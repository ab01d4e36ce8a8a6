"""Random network distillation (RND; Burda et al. 2018, "Exploration by Random Network Distillation").

    observation ─ normalizer ─┬ target, never trained ─ features ─┐
                              └ predictor, trained ──── features ─┴ mean squared difference: the novelty

The predictor learns the target's features of the observations that the policy meets, so the novelty is large where few
like it were met before. The target is random and part of the network's buffers, as are the statistics: `normalizer` of
observations and `spread` of novelties. Both networks have the embedders of the policy's network, and dense layers. The
observation is the newest one alone, also if the policy sees several or has a memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.networks.build.embedders import embedded_inputs, hidden_gain
from hive.networks.build.layers import dense_layers, hidden_layer
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import InputArray, InputSpec, Spaces, channels_at
from hive.networks.rows.inputs import OBSERVATION, InputName
from hive.networks.rows.normalization import LIMIT, Normalizer, PackedNormalizer, scale_of
from hive.networks.rows.packed import PackedSpec, Parts, part_key

FEATURES = 128  # of an observation, and the width of the dense layers before them
TARGET_LAYERS, PREDICTOR_LAYERS = (
    1,
    2,
)  # dense layers before the features; as in Burda et al., one more in the predictor
CLIP = 5.0  # greatest distance of an observation's element from its mean, in deviations, as in Burda et al.


class Novelty(nn.Module):
    """Returns the novelty of observations, float32 [N], given as they are stored: [N, *shape].

    observation: one stored observation. parameters: of the policy's network.
    """

    def __init__(self, observation: InputSpec, parameters: NetworkParameters, spaces: Spaces) -> None:
        super().__init__()
        packed = observation if isinstance(observation, PackedSpec) and observation.parts else None
        self.parts = None if packed is None else Parts(packed, 1)
        self.normalizer = PackedNormalizer([packed.floats], CLIP) if packed else Normalizer(observation.shape, CLIP)
        self.spread = Normalizer(())
        self.predictor = _features(parameters, spaces, PREDICTOR_LAYERS)
        self.target = _features(parameters, spaces, TARGET_LAYERS)
        _freeze(self.target)

    def forward(self, observations: Tensor) -> Tensor:
        normalized: Any = self.normalizer(observations)
        inputs = normalized if self.parts is None else self.parts(*normalized)
        distance: Tensor = self.predictor(inputs) - self.target(inputs)
        return distance.square().mean(-1)

    def rewards(self, novelty: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return novelties divided by their deviation over all steps so far, at most LIMIT; zeros in the first round.

        They keep their mean, as the rewards of `scaled_rewards` do.
        """
        seen = self.spread.seen.cpu().numpy()
        if not seen[0]:
            return np.zeros_like(novelty)
        rewards: NDArray[np.float32] = np.minimum(novelty * scale_of(seen), LIMIT, dtype=np.float32)
        return rewards


def novelty_inputs(observation: InputSpec) -> Mapping[InputName, InputSpec]:
    """Return the inputs of the two networks by path: of normalized numbers, and of bytes for parts that are bytes."""
    if isinstance(observation, PackedSpec) and observation.parts:
        return {part_key(part): part for part in observation.parts}
    return {OBSERVATION: InputArray(tuple(observation.shape), "float32", channels=channels_at(observation))}


def _features(parameters: NetworkParameters, spaces: Spaces, dense: int) -> nn.Sequential:
    """Return embedders, so many dense layers and a linear layer: inputs -> features, float32 [N, FEATURES]."""
    layers, width = embedded_inputs(parameters, spaces, normalized=True)
    middleware = parameters.middleware_parameters
    activation = "relu" if middleware is None else middleware.activation
    more, width = dense_layers(width, [FEATURES] * dense, activation, hidden_gain(parameters))
    return nn.Sequential(*layers, *more, hidden_layer(nn.Linear(width, FEATURES), hidden_gain(parameters)))


def _freeze(network: nn.Module) -> None:
    """Make the parameters buffers: part of every checkpoint, but not of gradients and of the optimizer's state."""
    for module in network.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            delattr(module, name)
            module.register_buffer(name, parameter.detach())
