"""Parts of an observation for the critic alone: the policy cannot depend on them, natively and by torch."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from hive.envs import Box, Discrete
from hive.envs.spaces.observation import observation_spec
from hive.errors import NetworkError
from hive.networks import (
    FlatParameters,
    GRUMiddlewareParameters,
    HeadParameters,
    InputEmbedderParameters,
    NetworkParameters,
    Spaces,
    build_network,
)
from hive.networks.build.network import compute_natively
from hive.networks.rows.inputs import RECURRENT_STATE

SEEN = observation_spec(
    "Parts",
    spaces.Dict(
        {
            "arm": spaces.Box(-1, 1, (3,), np.float32),
            "far": spaces.Dict(
                {"byte": spaces.Box(0, 255, (2,), np.uint8), "state": spaces.Box(-1, 1, (4,), np.float32)}
            ),
            "goal": spaces.Box(-1, 1, (2,), np.float32),
        }
    ),
)
DISCRETE, BOX = Spaces({"observation": SEEN}, Discrete(2)), Spaces({"observation": SEEN}, Box((1,), (-1.0,), (1.0,)))
N = 6


def parameters(**given: Any) -> NetworkParameters:
    usual: dict[str, Any] = {
        "critic_parts": ["far"],
        "use_separate_networks_per_head": True,
        "input_embedders_parameters": {"observation": InputEmbedderParameters()},
    }
    return NetworkParameters(**(usual | given))


def built(spaces: Spaces = DISCRETE, **given: Any) -> nn.Module:
    return build_network(parameters(**given), spaces, torch.Generator().manual_seed(0))


def rows(seed: int, **parts: float) -> Tensor:
    """Rows of random numbers, in which some parts have a constant."""
    packed = np.zeros((N, *SEEN.shape), np.uint8)
    random = np.random.default_rng(seed)
    for part in SEEN.parts:
        part.view(packed)[...] = parts.get(part.name, random.uniform(0, 9, (N, *part.shape)))
    return torch.from_numpy(packed)


def changed(**parts: float) -> tuple[Tensor, Tensor]:
    """The same rows with two values of some parts."""
    return rows(1), rows(1, **parts)


@pytest.mark.parametrize("more", [{}, {"normalize_observations": True}, {"critic_parts": ["far.byte", "far.state"]}])
def test_the_policy_does_not_depend_on_them_and_the_value_does(more: dict[str, Any]) -> None:
    network = built(**more)
    for part in ("far.state", "far.byte"):
        (policy, value), (other, another) = (
            network(one) for one in changed(**{part: 0.5 if part == "far.state" else 77})
        )
        assert torch.equal(policy, other)
        assert not torch.equal(value, another)
    (policy, _), (other, _) = (network(one) for one in changed(goal=0.5))
    assert not torch.equal(policy, other)


def test_a_recurrent_policy_neither() -> None:
    network = built(middleware_parameters=GRUMiddlewareParameters([8], number_of_gru_cells=4, dense_last=True))
    state = torch.zeros(N, 8)
    one, other = (network({"observation": given, RECURRENT_STATE: state}) for given in changed(**{"far.state": 0.5}))
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], other[1])
    assert torch.equal(one[2][:, :4], other[2][:, :4])  # the state of the policy


def test_of_an_agent_the_critics_see_all() -> None:
    network: Any = built(
        BOX, heads_parameters=[HeadParameters("squashed_policy")], critics=2, use_separate_networks_per_head=False
    )
    one, other = changed(**{"far.state": 0.5})
    assert torch.equal(network(one)[0], network(other)[0])
    actions = torch.zeros(N, 1)
    assert (network.critic(one, actions) != network.critic(other, actions)).all()
    assert not torch.equal(network(one)[0], network(rows(1, arm=0.5))[0])


def test_native_passes_equal_those_of_torch() -> None:
    """Outputs and gradients, each network by itself."""
    network = built()
    reference = copy.deepcopy(network)
    compute_natively(network, FlatParameters(network), "native")
    results = []
    for one in (network, reference):
        policy, value = one(rows(2))
        (policy.square().sum() + value.square().sum()).backward()
        results.append([policy, value, *(parameter.grad for parameter in one.parameters())])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    (policy, value), (other, another) = (network(one) for one in changed(**{"far.state": 0.5}))
    assert torch.equal(policy, other)
    assert not torch.equal(value, another)


WHOLE = observation_spec("Box", gymnasium.spaces.Box(-1, 1, (3,), np.float32))


@pytest.mark.parametrize(
    ("given", "space", "text", "hint"),
    [
        ({"critic_parts": ["fare"]}, DISCRETE, '"fare", which is no part', "arm, far.state, goal, far.byte"),
        ({"critic_parts": ["fa"]}, DISCRETE, '"fa", which is no part', "its parts are"),
        ({"critic_parts": ["far", "arm", "goal"]}, DISCRETE, "leaves the policy no part", "its parts are"),
        ({}, Spaces({"observation": WHOLE}, Discrete(2)), "needs observations of several parts", "env.wrappers"),
        ({"use_separate_networks_per_head": False}, DISCRETE, "needs separate networks", "network.separate_networks"),
        ({"heads_parameters": [HeadParameters("q")]}, DISCRETE, "needs a critic", "use ppo"),
        ({"module": nn.Identity}, DISCRETE, "cannot be combined with `module`", "what its policy sees"),
    ],
)
def test_what_cannot_be_hidden(given: dict[str, Any], space: Spaces, text: str, hint: str) -> None:
    with pytest.raises(NetworkError) as caught:
        built(space, **given)
    assert text in str(caught.value)
    assert hint in caught.value.hint


class Sums(nn.Module):
    """Features are the sums of the parts that it is given."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.names = sorted(spaces.observations)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, parts: Any) -> Tensor:
        return torch.stack([parts[name].flatten(1).sum(1) for name in self.names], 1) * self.scale


def test_an_extractor_of_the_policy_is_not_given_them() -> None:
    network: Any = built(extractor=Sums)
    policy, value = (branch.extractor.own.names for branch in network.network.branches)
    assert policy == ["arm", "goal"]
    assert value == ["arm", "far.byte", "far.state", "goal"]
    one, other = (network(given) for given in changed(**{"far.state": 0.5}))
    assert torch.equal(one[0], other[0])
    assert not torch.equal(one[1], other[1])
