"""Parameters of the heads that need more than `HeadParameters`; `name` is their key in `head_kinds.HEADS`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hive.networks.build.field_rules import Rule, Rules
from hive.networks.build.parameters import HeadParameters

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
    """Parameters of a DuelingQHead.

    hidden: the width of the hidden layer of each of the two streams; 0: none. Wang et al. 2016 have 512.
    """

    RULES: ClassVar[Rules] = {**HeadParameters.RULES, "hidden": Rule.whole(0)}

    name: str = "dueling_q"
    hidden: int = 0


@dataclass(slots=True)
class CategoricalQHeadParameters(HeadParameters):
    """Parameters of a CategoricalQHead: `atoms` equally spaced returns from `v_min` to `v_max`.

    dueling: the width of the hidden layers of two streams, state value and advantages; 0: no streams. The other
    defaults are those of Bellemare, Dabney and Munos 2017. The returns have the unit of the rewards.
    """

    RULES: ClassVar[Rules] = {
        **HeadParameters.RULES,
        "atoms": Rule.whole(2),
        "v_min": Rule.number(),
        "v_max": Rule.number(),
        "dueling": Rule.whole(0),
    }

    name: str = "categorical_q"
    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0
    dueling: int = 0


@dataclass(slots=True)
class QuantileQHeadParameters(HeadParameters):
    """Parameters of a QuantileQHead; the defaults are those of Dabney et al. 2018.

    atoms: the number of quantiles. huber_loss_interval: the paper's kappa; smaller errors count squared. dueling: as
    of CategoricalQHeadParameters.
    """

    RULES: ClassVar[Rules] = {
        **HeadParameters.RULES,
        "atoms": Rule.whole(1),
        "huber_loss_interval": Rule.number(0),
        "dueling": Rule.whole(0),
    }

    name: str = "quantile_q"
    atoms: int = 200
    huber_loss_interval: float = 1.0
    dueling: int = 0


@dataclass(slots=True)
class PolicyHeadParameters(HeadParameters):
    """Parameters of a PolicyHead; the last four are for box actions.

    beta_entropy: the factor of the entropy bonus, which is subtracted from the loss.
    action_distribution: `"gaussian"`, `"squashed"`: a Gaussian mapped into the bounds of the action by tanh, or
        `"gsde"`: noise that depends on the last layer's outputs (hive.networks.act.gsde).
    features: the width of that layer, which "gsde" needs.
    action_deviation: the log standard deviation of each action element is a trained `"parameter"`, the same for all
        observations, or an `"output"` of the last layer, clamped to LOG_STD_BOUNDS.
    initial_deviation: the standard deviation of each action element before training, for every observation; of a
        squashed Gaussian, before tanh; of "gsde", of each weight of the noise.
    """

    RULES: ClassVar[Rules] = {
        **HeadParameters.RULES,
        "beta_entropy": Rule.number(),
        "action_distribution": Rule.choice(("gaussian", "squashed", "gsde")),
        "features": Rule.whole(0),
        "action_deviation": Rule.choice(("parameter", "output")),
        "initial_deviation": Rule.number(above=0),
    }

    name: str = "policy"
    beta_entropy: float = 0.0
    action_distribution: str = "gaussian"
    features: int = 0
    action_deviation: str = "parameter"
    initial_deviation: float = 1.0


@dataclass(slots=True)
class SquashedPolicyHeadParameters(HeadParameters):
    """Parameters of a SquashedPolicyHead: those of HeadParameters."""

    name: str = "squashed_policy"


@dataclass(slots=True)
class PPOHeadParameters(PolicyHeadParameters):
    """Parameters of a PPOHead: those of a PolicyHead, with another default of `beta_entropy`, and PPO's.

    clip_likelihood_ratio_using_epsilon: the greatest distance of the probability ratio from 1; None: no clipping.
    initial_kl_coefficient: the initial value of the head's variable `kl_coefficient`, the factor of the
        divergence from the old policy in the loss.
    """

    RULES: ClassVar[Rules] = {
        **PolicyHeadParameters.RULES,
        "clip_likelihood_ratio_using_epsilon": Rule.number(above=0).or_none(),
        "initial_kl_coefficient": Rule.number(0),
    }

    name: str = "ppo"
    beta_entropy: float = 0.01
    clip_likelihood_ratio_using_epsilon: float | None = 0.2
    initial_kl_coefficient: float = 0.0
