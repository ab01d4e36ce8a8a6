"""The keys of [algorithm]. `name` chooses the table: what all algorithms share, and what is its own.

A key that stands in another algorithm's table only is unknown, and the error says whose it is. A default of its
own that an algorithm has for a shared key is declared again, by `with_default`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.keys import is_reference, key, with_default

__all__ = ["ALGORITHMS", "A2CConfig", "AlgorithmConfig", "IMPALAConfig", "PPOConfig"]


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """[algorithm]: the keys that every algorithm has."""

    name: str = key(
        "a2c",
        'the algorithm, or your own: "package.module:Class"; default: as the scheme',
        choices=("a2c", "ppo", "impala"),
        accepts=is_reference,
        expected='"a2c", "ppo", "impala" or "package.module:Class"',
        fixed="another algorithm is another run",
    )
    options: Mapping[str, Any] = key(
        {}, "of an algorithm of your own: keyword arguments of its class", fixed="the algorithm has been made with them"
    )
    discount: float = key(0.99, "of the reward one step later", minimum=0, maximum=1)
    gae_lambda: float = key(1.0, "of generalised advantages; 1: n-step returns", minimum=0, maximum=1)
    learning_rate: float = key(7e-4, "step size of the optimizer", above=0)
    learning_rate_schedule: str = key(
        "constant", '"constant", or "linear": falls to 0 at run.steps', choices=("constant", "linear")
    )
    optimizer: str = key(
        "adam",
        "adam, adamw, rmsprop or sgd",
        choices=("adam", "adamw", "rmsprop", "sgd"),
        fixed="its moments lie in the learner's ledger",
    )
    adam_optimizer_beta1: float = key(0.9, "decay of adam's mean of gradients", minimum=0, below=1)
    adam_optimizer_beta2: float = key(0.999, "decay of adam's mean of squares", minimum=0, below=1)
    rms_prop_optimizer_decay: float = key(0.99, "decay of rmsprop's mean of squares", minimum=0, below=1)
    optimizer_epsilon: float = key(1e-5, "added to the root of that mean", above=0)
    momentum: float = key(
        0.0, "of sgd and rmsprop", minimum=0, below=1, fixed="it decides how many moments lie in the learner's ledger"
    )
    weight_decay: float = key(0.0, "decoupled in adamw, added to the gradient in the others", minimum=0)
    value_loss_weight: float = key(0.5, "of the value loss in the sum", minimum=0)
    entropy_weight: float = key(0.01, "of the policy's entropy in the sum", minimum=0)
    clip_gradients: float = key(0.5, "largest norm of the whole gradient; 0: no clipping", minimum=0)


@dataclass(frozen=True, kw_only=True)
class A2CConfig(AlgorithmConfig):
    """[algorithm] with name = "a2c"."""

    normalize_advantages: bool = key(
        False,
        "advantages of a batch get mean 0 and deviation 1",
        fixed="it decides how many gradients a round has",
    )


@dataclass(frozen=True, kw_only=True)
class PPOConfig(AlgorithmConfig):
    """[algorithm] with name = "ppo"."""

    name: str = with_default("ppo", AlgorithmConfig, "name")
    gae_lambda: float = with_default(0.95, AlgorithmConfig, "gae_lambda")
    learning_rate: float = with_default(3e-4, AlgorithmConfig, "learning_rate")
    normalize_advantages: bool = with_default(True, A2CConfig, "normalize_advantages")
    epochs: int = key(
        4, "passes over the rollouts of a round", minimum=1, fixed="it decides how many gradients a round has"
    )
    minibatches: int = key(
        4,
        "slices of a worker's share in an epoch, an update each",
        minimum=1,
        fixed="it decides how many gradients a round has",
    )
    clip_range: float = key(0.2, "distance from 1 at which the ratio of probabilities is clipped", above=0)


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(AlgorithmConfig):
    """[algorithm] with name = "impala"."""

    name: str = with_default("impala", AlgorithmConfig, "name")
    rho_clip: float = key(1.0, "largest importance weight of a temporal difference in V-trace", above=0)
    c_clip: float = key(1.0, "largest importance weight of a step in the trace of V-trace", above=0)


ALGORITHMS: Mapping[str, type] = {"a2c": A2CConfig, "ppo": PPOConfig, "impala": IMPALAConfig}
"""Name -> the dataclass of [algorithm]."""
