"""Networks: their parts and parameters, and weights in flat blocks.

This package exports the names that users write networks and heads with (`network.module`, `network.policy_head`):

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
    FlatParameters, FlatOptimizer  weights in one block (aligned_block), optimizer steps on blocks (OptimizerSettings)

`hive.compat.coach` has the classes of Coach, for training in a script. All other names belong to the modules that
define them, and other packages of hive import from the modules:

    build/    spaces, parameters -> embedders, heads -> network    build a network
              head_kinds: heads, value_heads                      the heads
              agents                                              an actor and its critics as one network
              custom, configured                                  modules of users, networks from a config file
              layers, convolutions, field_rules, naming           what these are made of and checked by
    rows/     packed, inputs, recurrent                           networks of stored rows, stacks and sequences
              normalization, novelty                              statistics of observations, how new they are (RND)
    act/      distributions, bounded, gsde, product, projection   actions and values computed from the outputs
              exploration                                         actions that explore
    weights/  flat, optimizers                                    weights in one block, optimizer steps on blocks
              state, wrapper                                      the copies of the network in a run
              dense, device                                       native passes, and those on a GPU

This package does not depend on environments, processes or shared memory.
"""

from __future__ import annotations

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
