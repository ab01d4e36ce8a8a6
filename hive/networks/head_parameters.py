"""Parameters of the heads that need more than `HeadParameters`; each has the name that `make_head` knows it by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hive.networks.field_rules import Rule, Rules
from hive.networks.parameters import HeadParameters

__all__ = [
    "CategoricalQHeadParameters",
    "DuelingQHeadParameters",
    "PPOHeadParameters",
    "PolicyHeadParameters",
    "QuantileQHeadParameters",
    "SquashedPolicyHeadParameters",
]


@dataclass(slots=True)
class DuelingQHeadParameters(HeadParameters):
    """hidden: the width of the layer that each of the two streams has of its own; 0: none. 512 in the paper."""

    RULES: ClassVar[Rules] = {**HeadParameters.RULES, "hidden": Rule.whole(0)}

    name: str = "dueling_q"
    hidden: int = 0


@dataclass(slots=True)
class CategoricalQHeadParameters(HeadParameters):
    """`atoms` equally spaced returns from `v_min` to `v_max`; the defaults are those of the paper."""

    RULES: ClassVar[Rules] = {
        **HeadParameters.RULES,
        "atoms": Rule.whole(2),
        "v_min": Rule.number(),
        "v_max": Rule.number(),
    }

    name: str = "categorical_q"
    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0


@dataclass(slots=True)
class QuantileQHeadParameters(HeadParameters):
    """atoms: the number of quantiles. huber_loss_interval: the paper's kappa, up to which errors count squared."""

    RULES: ClassVar[Rules] = {**HeadParameters.RULES, "atoms": Rule.whole(1), "huber_loss_interval": Rule.number(0)}

    name: str = "quantile_q"
    atoms: int = 200
    huber_loss_interval: float = 1.0


@dataclass(slots=True)
class PolicyHeadParameters(HeadParameters):
    """beta_entropy: so many times its entropy is taken from the loss."""

    RULES: ClassVar[Rules] = {**HeadParameters.RULES, "beta_entropy": Rule.number()}

    name: str = "policy"
    beta_entropy: float = 0.0


@dataclass(slots=True)
class SquashedPolicyHeadParameters(HeadParameters):
    """A Gaussian within the bounds of the action; it has no more parameters."""

    name: str = "squashed_policy"


@dataclass(slots=True)
class PPOHeadParameters(HeadParameters):
    """PPO's loss.

    clip_likelihood_ratio_using_epsilon: how far the ratio of the probabilities may be from 1; None: any way.
    beta_entropy: so many times its entropy is taken from the loss.
    initial_kl_coefficient: what the variable `kl_coefficient` of the head starts with, the factor of the
        divergence from the old policy in the loss.
    """

    RULES: ClassVar[Rules] = {
        **HeadParameters.RULES,
        "clip_likelihood_ratio_using_epsilon": Rule.number(above=0).or_none(),
        "beta_entropy": Rule.number(),
        "initial_kl_coefficient": Rule.number(0),
    }

    name: str = "ppo"
    clip_likelihood_ratio_using_epsilon: float | None = 0.2
    beta_entropy: float = 0.01
    initial_kl_coefficient: float = 0.0
