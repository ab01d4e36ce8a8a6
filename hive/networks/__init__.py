"""Networks: flat parameters, what a network is made of, and Coach's Architecture and NetworkWrapper.

    spaces, parameters -> embedders, middleware, heads -> network     building one
    flat, optimizers                                                  its weights as a block, and steps on it
    distributions                                                     reading actions out of its outputs
    architecture, torch_architecture, losses, wrapper                 training it as a library

Nothing here knows environments, processes or shared memory.
"""

from __future__ import annotations

from hive.networks.architecture import Architecture, Array, Inputs, Targets, TrainingResult
from hive.networks.distributions import (
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    distribution_for,
)
from hive.networks.embedders import ImageInput, VectorInput, embedder_layers
from hive.networks.flat import ALIGNMENT, FlatField, FlatParameters, aligned_block
from hive.networks.heads import Head, PolicyHead, ValueHead, make_head
from hive.networks.layers import ACTIVATIONS, HIDDEN_GAIN, activation_layer, dense_layers, orthogonal, seeded
from hive.networks.losses import checked_tensor, extra_input_names, l2_loss, weighted_losses
from hive.networks.middleware import Merger, middleware_layers
from hive.networks.network import Network, NetworkPerHead, Observations, build_network, from_module
from hive.networks.optimizers import FlatOptimizer, LimitedMemoryBFGS, OptimizerSettings
from hive.networks.parameters import (
    EmbeddingMergerType,
    GradientClippingMethod,
    HeadParameters,
    InputEmbedderParameters,
    MiddlewareParameters,
    NetworkParameters,
    network_parameters_of,
)
from hive.networks.spaces import ActionSpec, BoxAction, DiscreteAction, InputSpec, MultiDiscreteAction, Spaces
from hive.networks.torch_architecture import TorchArchitecture
from hive.networks.wrapper import NetworkWrapper

__all__ = [
    "ACTIVATIONS",
    "ALIGNMENT",
    "HIDDEN_GAIN",
    "ActionDistribution",
    "ActionSpec",
    "Architecture",
    "Array",
    "BoxAction",
    "Categorical",
    "DiagonalGaussian",
    "DiscreteAction",
    "EmbeddingMergerType",
    "FlatField",
    "FlatOptimizer",
    "FlatParameters",
    "GradientClippingMethod",
    "Head",
    "HeadParameters",
    "ImageInput",
    "InputEmbedderParameters",
    "InputSpec",
    "Inputs",
    "LimitedMemoryBFGS",
    "Merger",
    "MiddlewareParameters",
    "MultiCategorical",
    "MultiDiscreteAction",
    "Network",
    "NetworkParameters",
    "NetworkPerHead",
    "NetworkWrapper",
    "Observations",
    "OptimizerSettings",
    "PolicyHead",
    "Spaces",
    "Targets",
    "TorchArchitecture",
    "TrainingResult",
    "ValueHead",
    "VectorInput",
    "activation_layer",
    "aligned_block",
    "build_network",
    "checked_tensor",
    "dense_layers",
    "distribution_for",
    "embedder_layers",
    "extra_input_names",
    "from_module",
    "l2_loss",
    "make_head",
    "middleware_layers",
    "network_parameters_of",
    "orthogonal",
    "seeded",
    "weighted_losses",
]
