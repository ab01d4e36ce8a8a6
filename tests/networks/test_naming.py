"""Names as users see them, and freezing by patterns of these names."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hive.envs import Box, Discrete, ObservationSpec
from hive.errors import NetworkError
from hive.networks import HeadParameters, NetworkParameters, Spaces, build_network
from hive.networks.build.naming import frozen_text, parameter_rows, set_training, shown_name, shown_tensors

DISCRETE = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))
BOX = Spaces({"observation": ObservationSpec((3,), "float32")}, Box((1,), (-1.0,), (1.0,)))


def built(spaces: Spaces = DISCRETE, **parameters: Any) -> nn.Module:
    return build_network(NetworkParameters(**parameters), spaces, torch.Generator().manual_seed(0))


def agent(**parameters: Any) -> nn.Module:
    return built(BOX, heads_parameters=[HeadParameters("squashed_policy")], critics=2, temperature=True, **parameters)


def frozen(module: nn.Module) -> list[str]:
    return [name for name, _, is_frozen in parameter_rows(module) if is_frozen]


def test_names_do_not_depend_on_what_hive_puts_around_a_network() -> None:
    plain = list(shown_tensors(built()))
    assert plain[0] == "trunk.0.weight"
    around = built(normalize_observations=True)
    assert {*plain} <= shown_tensors(around).keys()
    assert shown_name("network.trunk.0.weight", around) == "trunk.0.weight"
    stacked = built(Spaces({"observation": ObservationSpec((3,), "float32", stack=2)}, Discrete(2)))
    assert list(shown_tensors(stacked)) == plain


def test_patterns_choose_by_name() -> None:
    assert frozen(built(frozen=["trunk.0.*"])) == ["trunk.0.weight", "trunk.0.bias"]
    assert frozen(built(frozen=["*.bias", "trunk.2.?eight"])) == [
        *("trunk.0.bias", "trunk.2.weight", "trunk.2.bias", "trunk.4.bias"),
    ]
    assert frozen(built(normalize_observations=True, frozen=["trunk.0.bias"])) == ["trunk.0.bias"]
    assert frozen(agent(frozen=["temperature.log"])) == ["temperature.log"]


def test_how_much_is_frozen() -> None:
    assert frozen_text(built()) == ""
    assert frozen_text(built(frozen=["trunk.0.*"])) == "256 of 4,611 parameters"


@pytest.mark.parametrize(
    ("make", "patterns", "text", "hint"),
    [
        (built, ["trunk.0.*", "Trunk.*"], '"Trunk.*" matches no parameter', "there are trunk.0.weight, trunk.0.bias"),
        (built, ["trunk"], '"trunk" matches no parameter', '"trunk.*" matches the parameters of `trunk`'),
        (built, ["*"], "leaves nothing to learn in the network", "hive check --parameters"),
        (agent, ["actor.*"], "leaves nothing to learn in the actor", "hive check --parameters"),
        (agent, ["*trunk*"], "leaves nothing to learn in the actor", "hive check --parameters"),
        (agent, ["critic.*"], "leaves nothing to learn in the critic", "hive check --parameters"),
    ],
)
def test_patterns_that_cannot_be_meant(make: Any, patterns: list[str], text: str, hint: str) -> None:
    with pytest.raises(NetworkError) as caught:
        make(frozen=patterns)
    assert text in str(caught.value)
    assert hint in caught.value.hint


class Pretrained(nn.Module):
    def __init__(self, spaces: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Dropout(0.5)))
        self.policy, self.value = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(observations)
        return self.policy(hidden), self.value(hidden)[:, 0]


def test_what_is_frozen_as_a_whole_stays_in_evaluation_mode() -> None:
    module = built(module=Pretrained, frozen=["body.*"])
    for training in (True, False, True):
        set_training(module, training)
        assert module.training is training
        assert not any(child.training for child in module.body.modules())
    rows = torch.randn(8, 3)
    assert torch.equal(module(rows)[0], module(rows)[0])
    assert module.body[1].num_batches_tracked == 0
    partly = built(module=Pretrained, frozen=["body.0.*"])
    set_training(partly, True)
    assert [child.training for child in partly.body] == [False, True, True]
