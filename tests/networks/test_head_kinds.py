"""Every head by its name, in a network that trains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.compat.coach.losses import head_loss
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs.spaces.actions import Box, Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    HeadParameters,
    NetworkParameters,
    PolicyHead,
    PPOHeadParameters,
    QuantileQHeadParameters,
    Spaces,
    build_network,
)
from hive.networks.build.head_kinds import HEADS, make_head
from hive.networks.build.spaces import ActionSpec

PARAMETERS = {
    "policy": HeadParameters("policy"),
    "value": HeadParameters("value"),
    "q": HeadParameters("q"),
    "dueling_q": DuelingQHeadParameters(hidden=4),
    "categorical_q": CategoricalQHeadParameters(),
    "quantile_q": QuantileQHeadParameters(atoms=7),
    "squashed_policy": HeadParameters("squashed_policy"),
    "deterministic_policy": HeadParameters("deterministic_policy"),
    "ppo": PPOHeadParameters(),
}


BOUNDED = ("squashed_policy", "deterministic_policy")  # heads of box actions with bounds


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_every_head_predicts_and_trains(name: str, separate: bool) -> None:
    action = Box((2,), (-1.0, -1.0), (1.0, 1.0)) if name in BOUNDED else Discrete(3)
    parameters = NetworkParameters(
        heads_parameters=[PARAMETERS[name], HeadParameters("value")], use_separate_networks_per_head=separate
    )
    network = TorchArchitecture(parameters, Spaces({"observation": ObservationSpec((4,), "float32")}, action))
    head = network.heads[0]
    loss = head_loss(head)
    observations = np.random.default_rng(0).standard_normal((5, 4), dtype=np.float32)
    inputs = {"observation": observations}
    for place, (dtype, shape) in enumerate(loss.extra_inputs):
        inputs[f"output_0_{place}"] = np.zeros((5, *shape), dtype)
    target = np.full((5, *loss.target_shape), 1 / max(1, *loss.target_shape, 1), np.float32)
    before, _ = network.predict({"observation": observations})
    assert before.shape == (5, *head.output_shape)
    total, losses, *_ = network.train_on_batch(inputs, [target, np.zeros(5, np.float32)])
    assert len(losses) == 2
    assert np.isfinite(total)
    assert not np.array_equal(network.predict({"observation": observations})[0], before)


def test_the_table_has_every_name() -> None:
    assert list(HEADS) == list(PARAMETERS)


def test_unknown_heads_and_parameters_of_another_are_refused() -> None:
    with pytest.raises(NetworkError, match="unknown head `naf`") as error:
        make_head(HeadParameters("naf"), Discrete(2))
    assert error.value.hint == f"one of: {', '.join(HEADS)}"
    for name in ("categorical_q", "quantile_q", "ppo"):
        with pytest.raises(NetworkError, match=f"head `{name}` is described by HeadParameters") as error:
            make_head(HeadParameters(name), Discrete(2))
        assert "HeadParameters, which has the parameters it needs" in error.value.hint


# --- custom heads

SPACES = Spaces({"observation": ObservationSpec((4,), "float32")}, Discrete(3))


class Warm(PolicyHead):
    """Logits at half of the temperature."""

    def forward(self, columns: Tensor) -> Tensor:
        return super().forward(columns) * 2.0


class Wide(PolicyHead):
    def __init__(self, parameters: HeadParameters, action: ActionSpec) -> None:
        super().__init__(parameters, action)
        self.output_shape = (7,)


def logits(cls: type[PolicyHead] | None) -> Tensor:
    heads = [HeadParameters("policy", cls=cls), HeadParameters("value")]
    network = build_network(NetworkParameters(heads_parameters=heads), SPACES, torch.Generator().manual_seed(1))
    found: Tensor = network(torch.ones(2, 4))[0]
    return found


def test_a_custom_head_replaces_the_usual_one() -> None:
    assert torch.equal(logits(Warm), logits(None) * 2.0)


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (lambda parameters, action: nn.Linear(3, 3), "the policy head is Linear, not a hive.networks.Head"),
        (Wide, r"the policy head Wide has outputs of shape \[7\]"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(cls: Any, text: str) -> None:
    with pytest.raises(NetworkError, match=text) as caught:
        logits(cls)
    assert caught.value.hint
