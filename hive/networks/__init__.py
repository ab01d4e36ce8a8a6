"""Networks: their parts and parameters, flat blocks of weights, and Coach's Architecture and NetworkWrapper.

This package exports the names that users write networks, heads and training scripts with:

    build_network, Network         a network from NetworkParameters, with InputEmbedderParameters, EmbeddingMergerType,
                                   MiddlewareParameters, LSTMMiddlewareParameters, GRUMiddlewareParameters and the
                                   HeadParameters below
    HeadParameters                 of the heads: PolicyHeadParameters, PPOHeadParameters, SquashedPolicyHeadParameters,
                                   DuelingQHeadParameters, CategoricalQHeadParameters, QuantileQHeadParameters
    Head, PolicyHead, ValueHead    bases of custom heads
    Spaces, InputArray             the inputs and actions that a network is built for; Observations are its input
    ActionDistribution             the meaning of policy outputs: Categorical, MultiCategorical, DiagonalGaussian,
                                   SquashedGaussian and the ProductDistribution of several actions, chosen by
                                   distribution_for and squashed_distribution_for
    EpsilonGreedy, select_actions  acting with action values
    Architecture, NetworkWrapper   training in a script with TorchArchitecture, GradientClippingMethod and WorkerGroup;
                                   they take and return Inputs, Targets and TrainingResult
    FlatParameters, FlatOptimizer  weights in one block (aligned_block), optimizer steps on blocks (OptimizerSettings)

All other names belong to the modules that define them, and other packages of hive import from the modules:

    spaces, parameters -> embedders, middleware, heads -> network     build a network
    head_kinds: heads, value_heads, distributional_heads, policy_heads   the heads
    recurrent, sequences, inputs, memory                              networks with an LSTM or a GRU, and their rows
    normalization                                                     networks that normalise their observations
    novelty                                                           how new an observation is (RND)
    agents                                                            an actor and its critics as one network
    configured                                                        networks from a config file
    noisy                                                             layers with noise in their weights (NoisyNet)
    field_rules                                                       the valid values of each parameter
    flat, optimizers                                                  weights in one block, optimizer steps on blocks
    distributions, squashed, gsde, product, projection                actions and values computed from the outputs
    exploration, off_policy_actions                                   actions that explore
    architecture, torch_architecture, losses, wrapper, worker_group   training in a script
    clipping, polyak                                                  gradient clipping, target network updates
    groups                                                            ranges of a block that are stepped separately

This package does not depend on environments, processes or shared memory.
"""

from __future__ import annotations

from hive.networks.architecture import Architecture, Inputs, Targets, TrainingResult
from hive.networks.distributions import (
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
)
from hive.networks.exploration import EpsilonGreedy
from hive.networks.flat import FlatParameters, aligned_block
from hive.networks.head_parameters import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    PolicyHeadParameters,
    PPOHeadParameters,
    QuantileQHeadParameters,
    SquashedPolicyHeadParameters,
)
from hive.networks.heads import Head, PolicyHead, ValueHead
from hive.networks.network import Network, Observations, build_network
from hive.networks.optimizers import FlatOptimizer, OptimizerSettings
from hive.networks.parameters import (
    EmbeddingMergerType,
    GradientClippingMethod,
    GRUMiddlewareParameters,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
)
from hive.networks.product import ProductDistribution, distribution_for
from hive.networks.spaces import InputArray, Spaces
from hive.networks.squashed import SquashedGaussian, squashed_distribution_for
from hive.networks.torch_architecture import TorchArchitecture
from hive.networks.value_heads import select_actions
from hive.networks.worker_group import WorkerGroup
from hive.networks.wrapper import NetworkWrapper

__all__ = [
    "ActionDistribution",
    "Architecture",
    "Categorical",
    "CategoricalQHeadParameters",
    "DiagonalGaussian",
    "DuelingQHeadParameters",
    "EmbeddingMergerType",
    "EpsilonGreedy",
    "FlatOptimizer",
    "FlatParameters",
    "GRUMiddlewareParameters",
    "GradientClippingMethod",
    "Head",
    "HeadParameters",
    "InputArray",
    "InputEmbedderParameters",
    "Inputs",
    "LSTMMiddlewareParameters",
    "MiddlewareParameters",
    "MultiCategorical",
    "Network",
    "NetworkParameters",
    "NetworkWrapper",
    "Observations",
    "OptimizerSettings",
    "PPOHeadParameters",
    "PolicyHead",
    "PolicyHeadParameters",
    "ProductDistribution",
    "QuantileQHeadParameters",
    "Spaces",
    "SquashedGaussian",
    "SquashedPolicyHeadParameters",
    "Targets",
    "TorchArchitecture",
    "TrainingResult",
    "ValueHead",
    "WorkerGroup",
    "aligned_block",
    "build_network",
    "distribution_for",
    "select_actions",
    "squashed_distribution_for",
]
