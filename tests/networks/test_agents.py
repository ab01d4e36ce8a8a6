"""Agents of several networks: what critics see, and the order of the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hive.envs.spaces.actions import Box, Discrete, MultiDiscrete
from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.envs.vectors.checks import store
from hive.errors import NetworkError
from hive.networks import FlatParameters, HeadParameters, MiddlewareParameters, NetworkParameters, Spaces, build_network
from hive.networks.build.agents import AgentNetwork
from hive.networks.build.parameters import LSTMMiddlewareParameters

BOX = Box((2,), (-1.0, -3.0), (1.0, 3.0))
VECTOR = ObservationSpec((3,), "float32")
PARTS: dict[str, Any] = {"image": spaces.Box(0, 255, (8, 8), np.uint8), "speed": spaces.Box(-9, 9, (3,), np.float32)}


def agent(observation: Any, action: Any = BOX, head: str = "squashed_policy", **given: Any) -> AgentNetwork:
    layers = MiddlewareParameters((8,), "relu")
    values: dict[str, Any] = {"critics": 2, "middleware_parameters": layers, **given}
    parameters = NetworkParameters(heads_parameters=[HeadParameters(head)], **values)
    network = build_network(parameters, Spaces({"observation": observation}, action), torch.Generator().manual_seed(3))
    assert isinstance(network, AgentNetwork)
    return network


def test_the_actor_comes_first_and_critics_differ() -> None:
    network = agent(VECTOR, temperature=True)
    flat = FlatParameters(network)
    assert [group.name for group in flat.groups] == ["actor", "critic", "temperature"]
    assert [name.partition(".")[0] for name in flat.names] == ["actor"] * 4 + ["critic"] * 8 + ["temperature"]
    observations, actions = torch.randn(5, 3), torch.rand(5, 2)
    (outputs,) = network(observations)
    assert outputs.shape == (5, 4)
    values = network.critic(observations, actions)
    assert values.shape == (2, 5)
    assert not torch.equal(values[0], values[1])
    assert torch.equal(network.critic(observations, actions, 1), values[:1])
    assert network.temperature is not None
    assert network.temperature().item() == 0.0


def test_critics_of_a_discrete_action_value_every_action() -> None:
    network = agent(VECTOR, Discrete(4), "policy")
    assert network.temperature is None
    assert network(torch.randn(5, 3))[0].shape == (5, 4)
    assert network.critic(torch.randn(5, 3)).shape == (2, 5, 4)


def packed(parts: dict[str, Any], stack: int = 1) -> ObservationSpec:
    spec = observation_spec("Any-v0", spaces.Dict(parts))
    return ObservationSpec(spec.shape, spec.dtype, parts=spec.parts, mask=spec.mask, stack=stack)


SEEN = {
    "image": ObservationSpec((8, 8), "uint8"),
    "stack": ObservationSpec((8, 8), "uint8", stack=3),
    "vectors": ObservationSpec((3,), "float32", stack=2),
    "parts": packed(PARTS),
    "stacked parts": packed(PARTS, 2),
    "one part": packed({"speed": PARTS["speed"]}),
}


@pytest.mark.parametrize("kind", SEEN)
def test_critics_see_observations_of_every_kind_and_the_action(kind: str) -> None:
    spec = SEEN[kind]
    network = agent(spec)
    seen = (spec.stack, *spec.shape) if spec.stack > 1 else spec.shape
    rows = np.zeros((2, *seen), spec.dtype)
    if spec.parts:
        names = [part.name for part in spec.parts]
        made = [{name: PARTS[name].sample() for name in names} for _ in range(2)]
        assert all(store(spec, made, rows if spec.stack == 1 else rows[:, last]) for last in range(spec.stack))
    else:
        rows[:] = np.random.default_rng(1).integers(0, 9, rows.shape)
    observations = torch.from_numpy(rows)
    values = network.critic(observations, torch.tensor([[0.0, 0.5], [0.0, 0.5]]))
    assert network(observations)[0].shape == (2, 4)
    assert values.shape == (2, 2)
    assert not torch.equal(values, network.critic(observations, torch.zeros(2, 2))), "the action matters"
    assert not torch.equal(values[:, 0], values[:, 1]), "the observation matters"


def test_what_critics_cannot_take_is_refused() -> None:
    with pytest.raises(NetworkError, match="critics need a box action with bounds or a discrete one"):
        agent(VECTOR, MultiDiscrete((2, 3)), "policy")
    with pytest.raises(NetworkError, match="a memory cannot be combined with critics"):
        agent(VECTOR, middleware_parameters=LSTMMiddlewareParameters())
    with pytest.raises(NetworkError, match="novelty cannot be combined with critics"):
        agent(VECTOR, novelty=True)
