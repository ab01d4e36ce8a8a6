"""Networks: their parts and parameters, flat blocks of weights, and Coach's Architecture and NetworkWrapper.

    spaces, parameters -> embedders, middleware, heads -> network     build a network
    head_kinds: heads, value_heads, distributional_heads, policy_heads   the heads
    recurrent                                                         networks with an LSTM
    normalization                                                     networks that normalise their observations
    configured                                                        networks from a config file
    field_rules                                                       the valid values of each parameter
    flat, optimizers                                                  weights in one block, optimizer steps on blocks
    distributions, squashed, projection                               actions and values computed from the outputs
    architecture, torch_architecture, losses, wrapper, worker_group   training in a script
    clipping, polyak                                                  gradient clipping, target network updates

This package does not depend on environments, processes or shared memory.
"""

from __future__ import annotations

from hive.networks.architecture import Architecture, Array, Inputs, Targets, TrainingResult
from hive.networks.arrays import (
    checked_inputs,
    chosen_outputs,
    common_rows,
    first_not_finite,
    is_output_number,
    merged_inputs,
    refuse_misfits,
)
from hive.networks.clipping import clip_factor, clip_gradient
from hive.networks.configured import copy_arrays, load_module, network_parameters
from hive.networks.distributional_heads import CategoricalQHead, QuantileQHead
from hive.networks.distributions import (
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    distribution_for,
)
from hive.networks.embedders import ACTION_INPUT, ImageInput, VectorInput, embedder_layers, network_inputs
from hive.networks.exploration import EpsilonGreedy
from hive.networks.field_rules import CheckedFields, Rule, Rules
from hive.networks.flat import ALIGNMENT, FlatField, FlatParameters, aligned_block
from hive.networks.head_kinds import HEADS, make_head
from hive.networks.head_parameters import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    PolicyHeadParameters,
    PPOHeadParameters,
    QuantileQHeadParameters,
    SquashedPolicyHeadParameters,
)
from hive.networks.heads import Head, PolicyHead, ValueHead, refuse_unknown_actions
from hive.networks.layers import (
    ACTIVATIONS,
    HIDDEN_GAIN,
    activation_layer,
    dense_layers,
    hidden_layer,
    orthogonal,
    seeded,
)
from hive.networks.losses import (
    as_array,
    checked_tensor,
    extra_input_names,
    l2_loss,
    one_for_each,
    weighted_losses,
)
from hive.networks.middleware import Merger, middleware_layers
from hive.networks.network import (
    Network,
    NetworkPerHead,
    Observations,
    buffers_that_training_changes,
    build_network,
    from_module,
    heads_of,
)
from hive.networks.normalization import (
    NormalizedNetwork,
    Normalizer,
    merge,
    moments_of,
    observed_elements,
    scaled_rewards,
)
from hive.networks.optimizers import FlatOptimizer, LimitedMemoryBFGS, OptimizerSettings
from hive.networks.parallel import predict_in_parallel
from hive.networks.parameters import (
    EmbeddingMergerType,
    GradientClippingMethod,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
    network_parameters_of,
)
from hive.networks.policy_heads import PPOHead, SquashedPolicyHead
from hive.networks.polyak import polyak_step
from hive.networks.projection import categorical_support, point_mass, project_categorical
from hive.networks.recurrent import (
    EPISODE_STARTS,
    RECURRENT_STATE,
    RecurrentNetwork,
    RecurrentNetworkPerHead,
    lstm_cell,
)
from hive.networks.shared_network import SharedNetwork, Version
from hive.networks.spaces import (
    ActionSpec,
    BoundedAction,
    BoxAction,
    DiscreteAction,
    InputArray,
    InputSpec,
    MultiDiscreteAction,
    Spaces,
)
from hive.networks.squashed import LOG_STD_BOUNDS, SquashedGaussian, clamp_log_std, squashed_distribution_for
from hive.networks.state import StateLayout
from hive.networks.torch_architecture import TorchArchitecture
from hive.networks.value_heads import DuelingQHead, QHead, action_count, select_actions
from hive.networks.worker_group import WorkerGroup
from hive.networks.wrapper import NetworkWrapper

__all__ = [
    "ACTION_INPUT",
    "ACTIVATIONS",
    "ALIGNMENT",
    "EPISODE_STARTS",
    "HEADS",
    "HIDDEN_GAIN",
    "LOG_STD_BOUNDS",
    "RECURRENT_STATE",
    "ActionDistribution",
    "ActionSpec",
    "Architecture",
    "Array",
    "BoundedAction",
    "BoxAction",
    "Categorical",
    "CategoricalQHead",
    "CategoricalQHeadParameters",
    "CheckedFields",
    "DiagonalGaussian",
    "DiscreteAction",
    "DuelingQHead",
    "DuelingQHeadParameters",
    "EmbeddingMergerType",
    "EpsilonGreedy",
    "FlatField",
    "FlatOptimizer",
    "FlatParameters",
    "GradientClippingMethod",
    "Head",
    "HeadParameters",
    "ImageInput",
    "InputArray",
    "InputEmbedderParameters",
    "InputSpec",
    "Inputs",
    "LSTMMiddlewareParameters",
    "LimitedMemoryBFGS",
    "Merger",
    "MiddlewareParameters",
    "MultiCategorical",
    "MultiDiscreteAction",
    "Network",
    "NetworkParameters",
    "NetworkPerHead",
    "NetworkWrapper",
    "NormalizedNetwork",
    "Normalizer",
    "Observations",
    "OptimizerSettings",
    "PPOHead",
    "PPOHeadParameters",
    "PolicyHead",
    "PolicyHeadParameters",
    "QHead",
    "QuantileQHead",
    "QuantileQHeadParameters",
    "RecurrentNetwork",
    "RecurrentNetworkPerHead",
    "Rule",
    "Rules",
    "SharedNetwork",
    "Spaces",
    "SquashedGaussian",
    "SquashedPolicyHead",
    "SquashedPolicyHeadParameters",
    "StateLayout",
    "Targets",
    "TorchArchitecture",
    "TrainingResult",
    "ValueHead",
    "VectorInput",
    "Version",
    "WorkerGroup",
    "action_count",
    "activation_layer",
    "aligned_block",
    "as_array",
    "buffers_that_training_changes",
    "build_network",
    "categorical_support",
    "checked_inputs",
    "checked_tensor",
    "chosen_outputs",
    "clamp_log_std",
    "clip_factor",
    "clip_gradient",
    "common_rows",
    "copy_arrays",
    "dense_layers",
    "distribution_for",
    "embedder_layers",
    "extra_input_names",
    "first_not_finite",
    "from_module",
    "heads_of",
    "hidden_layer",
    "is_output_number",
    "l2_loss",
    "load_module",
    "lstm_cell",
    "make_head",
    "merge",
    "merged_inputs",
    "middleware_layers",
    "moments_of",
    "network_inputs",
    "network_parameters",
    "network_parameters_of",
    "observed_elements",
    "one_for_each",
    "orthogonal",
    "point_mass",
    "polyak_step",
    "predict_in_parallel",
    "project_categorical",
    "refuse_misfits",
    "refuse_unknown_actions",
    "scaled_rewards",
    "seeded",
    "select_actions",
    "squashed_distribution_for",
    "weighted_losses",
]
