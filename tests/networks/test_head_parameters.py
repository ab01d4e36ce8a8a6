"""Parameters of heads: names, papers' defaults, and no misspelt attribute."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from hive.networks import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    HeadParameters,
    PolicyHeadParameters,
    PPOHeadParameters,
    QuantileQHeadParameters,
    SquashedPolicyHeadParameters,
)
from hive.networks.build.head_kinds import HEADS

DEVIATIONS = {
    "action_distribution": "gaussian",
    "features": 0,
    "action_deviation": "parameter",
    "initial_deviation": 1.0,
}
OWN: list[tuple[Any, str, dict[str, Any]]] = [
    (PolicyHeadParameters, "policy", {"beta_entropy": 0.0, **DEVIATIONS}),
    (SquashedPolicyHeadParameters, "squashed_policy", {}),
    (DuelingQHeadParameters, "dueling_q", {"hidden": 0}),
    (CategoricalQHeadParameters, "categorical_q", {"atoms": 51, "v_min": -10.0, "v_max": 10.0, "dueling": 0}),
    (QuantileQHeadParameters, "quantile_q", {"atoms": 200, "huber_loss_interval": 1.0, "dueling": 0}),
    (
        PPOHeadParameters,
        "ppo",
        {
            "clip_likelihood_ratio_using_epsilon": 0.2,
            "beta_entropy": 0.01,
            "initial_kl_coefficient": 0.0,
            **DEVIATIONS,
        },
    ),
]


@pytest.mark.parametrize(("kind", "name", "own"), OWN, ids=lambda value: getattr(value, "__name__", None))
def test_names_and_defaults(kind: Any, name: str, own: dict[str, Any]) -> None:
    parameters = kind()
    assert name in HEADS
    assert asdict(parameters) == {**asdict(HeadParameters(name)), **own}
    assert kind(loss_weight=0.5).loss_weight == 0.5
    with pytest.raises(AttributeError, match="atmos"):
        parameters.atmos = 3
