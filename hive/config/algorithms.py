"""The keys of [algorithm]. `name` chooses the table: what all algorithms share, and what is its own.

A key that stands in another algorithm's table only is unknown, and the error says whose it is. An algorithm of a
user's own has the table of the one that the scheme names, for it may be a class of that. A default of its
own that an algorithm has for a shared key is declared again, by `with_default`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.keys import is_reference, key, with_default

__all__ = [
    "ALGORITHMS",
    "SCHEDULES",
    "A2CConfig",
    "ActorCriticConfig",
    "AlgorithmConfig",
    "IMPALAConfig",
    "NStepQConfig",
    "PPOConfig",
    "TargetConfig",
]

SCHEDULES = ("constant", "linear", "cosine")
COLLECTORS_KNOW = "collectors have made their schedule of it"


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """[algorithm]: the keys that every algorithm has."""

    name: str = key(
        "a2c",
        'the algorithm, or "package.module:Class", with the keys of the scheme\'s; default: as the scheme',
        choices=("a2c", "ppo", "impala", "nstep-q"),
        accepts=is_reference,
        expected='"a2c", "ppo", "impala", "nstep-q" or "package.module:Class"',
        fixed="another algorithm is another run",
    )
    options: Mapping[str, Any] = key(
        {}, "of an algorithm of your own: keyword arguments of its class", fixed="the algorithm has been made with them"
    )
    discount: float = key(0.99, "of the reward one step later", minimum=0, maximum=1)
    learning_rate: float = key(7e-4, "step size of the optimizer", above=0)
    learning_rate_schedule: str = key(
        "constant",
        'of learning_rate: "constant", or falling to 0 at run.steps, "linear" or "cosine"',
        choices=SCHEDULES,
    )
    optimizer: str = key(
        "adam",
        "adam, adamw, rmsprop or sgd",
        choices=("adam", "adamw", "rmsprop", "sgd"),
        fixed="its moments lie in the learner's optimizer state",
    )
    adam_optimizer_beta1: float = key(0.9, "decay of adam's mean of gradients", minimum=0, below=1)
    adam_optimizer_beta2: float = key(0.999, "decay of adam's mean of squares", minimum=0, below=1)
    rms_prop_optimizer_decay: float = key(0.99, "decay of rmsprop's mean of squares", minimum=0, below=1)
    optimizer_epsilon: float = key(1e-5, "added to the root of that mean", above=0)
    momentum: float = key(
        0.0,
        "of sgd and rmsprop",
        minimum=0,
        below=1,
        fixed="it decides how many moments lie in the learner's optimizer state",
    )
    weight_decay: float = key(0.0, "decoupled in adamw, added to the gradient in the others", minimum=0)
    clip_gradients: float = key(0.5, "largest norm of the whole gradient; 0: no clipping", minimum=0)


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(AlgorithmConfig):
    """[algorithm] of an algorithm with a policy and a value."""

    gae_lambda: float = key(1.0, "of generalised advantages; 1: n-step returns", minimum=0, maximum=1)
    value_loss_weight: float = key(0.5, "of the value loss in the sum", minimum=0)
    entropy_weight: float = key(0.01, "of the policy's entropy in the sum", minimum=0)
    entropy_weight_schedule: str = key("constant", "of entropy_weight, as learning_rate_schedule", choices=SCHEDULES)


@dataclass(frozen=True, kw_only=True)
class TargetConfig(AlgorithmConfig):
    """[algorithm] of an algorithm with a target network."""

    target_interval: int = key(100, "updates between two changes of the target network", minimum=1)
    target_rate: float = key(
        1.0, "the part of a changed target network that is new; 1: a copy of the weights", above=0, maximum=1
    )


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    """[algorithm] with name = "a2c"."""

    normalize_advantages: bool = key(
        False,
        "advantages of a batch get mean 0 and deviation 1",
        fixed="it decides how many gradients a round has",
    )


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    """[algorithm] with name = "ppo"."""

    name: str = with_default("ppo", AlgorithmConfig, "name")
    gae_lambda: float = with_default(0.95, ActorCriticConfig, "gae_lambda")
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
    normalize_over: str = key(
        "minibatch",
        'whose mean and deviation normalise advantages: those of each "minibatch", or of the whole "round"',
        choices=("minibatch", "round"),
        fixed="it decides how many gradients a round has",
    )
    clip_range: float = key(0.2, "distance from 1 at which the ratio of probabilities is clipped", above=0)
    clip_range_schedule: str = key("constant", "of clip_range, as learning_rate_schedule", choices=SCHEDULES)
    value_clip_range: float = key(
        0.0, "largest change of a value in one round that still reduces the value loss; 0: no clipping", minimum=0
    )
    target_kl: float = key(
        0.0,
        "a minibatch whose KL divergence exceeds 1.5 times this ends the gradients of its round; 0: none does",
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(ActorCriticConfig):
    """[algorithm] with name = "impala"."""

    name: str = with_default("impala", AlgorithmConfig, "name")
    rho_clip: float = key(1.0, "largest importance weight of a temporal difference in V-trace", above=0)
    c_clip: float = key(1.0, "largest importance weight of a step in the trace of V-trace", above=0)


@dataclass(frozen=True, kw_only=True)
class NStepQConfig(TargetConfig):
    """[algorithm] with name = "nstep-q".

    Without a replay the action values stay apart only as long as all actions are taken, so exploration falls slowly.
    The learning rate falls too: at a constant rate a good policy is often lost again.
    """

    name: str = with_default("nstep-q", AlgorithmConfig, "name")
    learning_rate: float = with_default(2e-3, AlgorithmConfig, "learning_rate")
    learning_rate_schedule: str = with_default("linear", AlgorithmConfig, "learning_rate_schedule")
    target_interval: int = with_default(40, TargetConfig, "target_interval")
    clip_gradients: float = with_default(10.0, AlgorithmConfig, "clip_gradients")
    n_step: int = key(16, "rewards that a return adds up before the target network's value", minimum=1)
    huber_loss: bool = key(True, "Huber's loss with delta 1; false: the squared error")
    exploration_start: float = key(
        1.0, "probability of a random action at first", minimum=0, maximum=1, fixed=COLLECTORS_KNOW
    )
    exploration_end: float = key(
        0.02, "and in the end, in evaluations that draw actions too", minimum=0, maximum=1, fixed=COLLECTORS_KNOW
    )
    exploration_steps: int = key(
        200_000, "environment steps until then; a rollout's number decides", minimum=1, fixed=COLLECTORS_KNOW
    )


ALGORITHMS: Mapping[str, type] = {
    "a2c": A2CConfig,
    "ppo": PPOConfig,
    "impala": IMPALAConfig,
    "nstep-q": NStepQConfig,
}
"""Name -> the dataclass of [algorithm]."""
