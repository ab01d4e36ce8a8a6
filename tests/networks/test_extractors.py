"""Extractors: what they are given, what is built behind them, and which are refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from hive.config import NetworkConfig
from hive.envs import Box, Discrete, ObservationSpec
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.checks import store
from hive.errors import NetworkError
from hive.networks import FlatParameters, HeadParameters, Spaces, build_network
from hive.networks.build.agents import AgentNetwork
from hive.networks.build.configured import network_parameters
from hive.networks.build.custom import ExtractedNetwork, Extractor
from hive.networks.build.layers import NoisyLinear
from hive.networks.build.network import compute_natively
from hive.networks.build.parameters import NetworkParameters

BOX = Box((2,), (-1.0, -3.0), (1.0, 3.0))
VECTOR = ObservationSpec((3,), "float32")
AGENT = ("squashed_policy", "critic", "critic", "temperature")


class Seen(nn.Module):
    """Four features of all elements; keeps the spaces and what it was called with last."""

    def __init__(self, given: Spaces, width: int = 4) -> None:
        super().__init__()
        self.given = given
        self.last: Any = None
        elements = sum(int(np.prod(spec.shape)) for spec in given.observations.values())
        self.layer = nn.Linear(elements, width)

    def forward(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        self.last = observations
        parts = [observations] if isinstance(observations, Tensor) else [*observations.values()]
        features: Tensor = self.layer(torch.cat([part.reshape(part.shape[0], -1) for part in parts], 1))
        return features


def built(
    observation: Any = VECTOR,
    action: Any = BOX,
    heads: Any = ("policy", "value"),
    make: Any = Seen,
    **network: Any,
) -> nn.Module:
    """A network with the extractor and a middleware of one layer; weights that matter."""
    parameters = network_parameters(NetworkConfig(**{"middleware": (5,), **network}), heads=heads)
    parameters.extractor = make
    made = build_network(parameters, Spaces({"observation": observation}, action), torch.Generator().manual_seed(3))
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5))
    return made


def extractors(network: nn.Module) -> list[Any]:
    return [module.own for module in network.modules() if isinstance(module, Extractor)]


def given_for(space: spaces.Space[Any], value: Any, **network: Any) -> tuple[Any, Any]:
    """What an extractor is given for one observation of a space: its specs, and its argument."""
    spec = observation_spec("Any-v0", space)
    made = built(spec, Discrete(2), ("q",), **network)
    rows = np.zeros((2, *spec.shape), spec.dtype)
    assert store(spec, [value] * 2, rows)
    made(torch.from_numpy(rows))
    (own,) = extractors(made)
    return own.given.observations, own.last


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), [3.0, -5.0], [3.0, -5.0]),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), np.full((8, 8, 3), 51, np.uint8), np.full((8, 8, 3), 0.2)),
        (spaces.Box(-5, 5, (2,), np.int32), [-5, 0], [0.0, 0.5]),
        (spaces.Discrete(3, start=2), 4, [0, 0, 1]),
        (spaces.Discrete(5000, start=2), 4001, [3999]),
        (spaces.Tuple([spaces.MultiDiscrete([3000, 2])]), (np.array([2999, 1]),), [2999, 1]),
        (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
        (spaces.Dict({"only": spaces.Box(-np.inf, np.inf, ())}), {"only": 7.0}, 7.0),
    ],
)
def test_it_is_given_numbers_in_their_scale(space: spaces.Space[Any], value: Any, expected: Any) -> None:
    specs, seen = given_for(space, value)
    (spec,) = specs.values()
    assert (*specs,) == ("observation",)
    assert (spec.dtype, seen.dtype) == ("float32", torch.float32)
    assert tuple(seen.shape) == (2, *spec.shape)
    np.testing.assert_allclose(seen[0], np.float32(expected), rtol=1e-6)


def test_parts_are_given_by_name() -> None:
    space = spaces.Dict({"arm": spaces.Dict({"grip": spaces.Discrete(3000)}), "eye": spaces.Box(0, 255, (8, 8), "u1")})
    specs, seen = given_for(space, {"arm": {"grip": 2000}, "eye": np.full((8, 8), 255, np.uint8)})
    assert {name: spec.shape for name, spec in specs.items()} == {"arm.grip": (1,), "eye": (8, 8)}
    assert seen["arm.grip"].tolist() == [[2000.0]] * 2
    assert torch.equal(seen["eye"], torch.ones(2, 8, 8))
    twice = spaces.Dict({"a": spaces.Dict({"b": spaces.Discrete(2)}), "a.b": spaces.Discrete(2)})
    with pytest.raises(NetworkError, match=r"two parts of the observation are called `a\.b`"):
        built(observation_spec("Any-v0", twice))


def test_normalised_numbers_have_no_other_scale() -> None:
    space = spaces.Dict({"speed": spaces.Box(-4, 4, (1,)), "eye": spaces.Box(0, 255, (8, 8), "u1")})
    value = {"speed": np.float32([2]), "eye": np.full((8, 8), 51, np.uint8)}
    for normalised, speed in ((False, given_for(space, value)[1]["speed"][0, 0]), (True, 2.0)):
        _, seen = given_for(space, value, normalize_observations=normalised)
        assert seen["speed"].tolist() == [[speed]] * 2  # with the statistics of no observations
        assert seen["eye"][0, 0, 0] == pytest.approx(0.2)


def test_frames_are_joined() -> None:
    space = ObservationSpec((8, 8), "uint8", stack=4)
    made = built(space, Discrete(2), ("q",))
    made(torch.zeros(2, 4, 8, 8, dtype=torch.uint8))
    (own,) = extractors(made)
    assert (own.given.observations["observation"].shape, own.last.shape) == ((4, 8, 8), (2, 4, 8, 8))


@pytest.mark.parametrize("heads", [("policy", "value"), AGENT])
def test_each_network_has_its_own(heads: Any) -> None:
    owns = extractors(built(heads=heads))
    assert len(owns) == (2 if heads[0] == "policy" else 3)
    assert len({id(parameter) for own in owns for parameter in own.parameters()}) == 2 * len(owns)
    assert not torch.equal(owns[0].layer.weight, owns[1].layer.weight)
    assert len(extractors(built(separate_networks=False))) == 1


def test_the_action_of_a_critic_follows_the_features() -> None:
    for observation in (VECTOR, observation_spec("Any-v0", spaces.Dict({"a": spaces.Box(-1, 1, (1,)), "b": BOTH}))):
        network = built(observation, heads=AGENT)
        assert isinstance(network, AgentNetwork)
        rows = torch.zeros(6, *observation.shape, dtype=getattr(torch, observation.dtype))
        actions = torch.randn(6, 2, requires_grad=True)
        values = network.critic(rows, actions)
        (slopes,) = torch.autograd.grad(values.sum(), actions)
        assert slopes.abs().min() > 0
        assert (values.shape, len(extractors(network))) == ((2, 6), 3)


BOTH = spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize("heads", [("policy", "value"), ("q",), AGENT])
def test_what_is_behind_it_computes_natively_as_torch_does(heads: Any) -> None:
    """Outputs and all gradients, those of the extractor included."""
    action = Discrete(3) if heads == ("q",) else BOX
    network = built(action=action, heads=heads, middleware=(7, 6), value_middleware=None if heads == ("q",) else (20,))
    native = copy.deepcopy(network)
    compute_natively(native, FlatParameters(native), "native")
    rows, actions = torch.randn(40, 3), torch.rand(40, 2)
    found = []
    for one in (network, native):
        one.zero_grad()
        outputs: Any = one(rows)
        if isinstance(one, AgentNetwork):
            outputs = (*outputs, one.critic(rows, actions))
        sum(output.square().sum() for output in outputs).backward()
        found.append([*outputs, *(p.grad for p in one.parameters() if p.grad is not None)])
    for expected, own in zip(*found, strict=True):
        largest = float(expected.detach().abs().max())
        np.testing.assert_allclose(own.detach(), expected.detach(), rtol=0, atol=1e-6 * max(1.0, largest))
    with torch.no_grad():
        np.testing.assert_allclose(native(rows)[0], network(rows)[0], rtol=1e-5, atol=1e-6)


def test_only_layers_behind_it_are_noisy_and_it_may_stand_before_a_memory() -> None:
    noisy = built(action=Discrete(2), heads=("q",), noisy_deviation=0.5)
    assert isinstance(noisy, ExtractedNetwork)
    assert not any(isinstance(module, NoisyLinear) for module in noisy.extractor.modules())
    assert sum(isinstance(module, NoisyLinear) for module in noisy.network.modules()) == 2
    recurrent = built(memory="gru", memory_size=4)
    outputs: Any = recurrent({"observation": torch.randn(2, 3), "recurrent_state": torch.zeros(2, 8)})
    assert [tuple(output.shape) for output in outputs] == [(2, 4), (2,), (2, 8)]


def changed(change: Any) -> Any:
    """An extractor whose features are changed."""

    class Changed(Seen):
        def forward(self, observations: Any) -> Any:
            return change(super().forward(observations))

    return Changed


class Overwrites(Seen):
    def forward(self, observations: Any) -> Tensor:
        return super().forward(observations.clamp_(0, 0.5))


@pytest.mark.parametrize(
    ("make", "fault", "hint"),
    [
        (changed(lambda features: features.double()), r"float64 \[2, 4\] for 2 observations", r"float32 \[N, F\]"),
        (changed(lambda features: features.sum(1)), r"float32 \[2\] for 2 observations", r"\[N, F\]"),
        (changed(lambda features: features[:1]), r"float32 \[1, 4\] for 2 observations", r"\[N, F\]"),
        (changed(lambda features: features[:, :0]), r"float32 \[2, 0\] for 2 observations", r"\[N, F\]"),
        (changed(lambda features: features.squeeze(0)), r"float32 \[4\] for a single observation", r"\[N, 4\]"),
        (changed(lambda features: (features,)), "tuple for 2 observations", r"\[N, F\]"),
        (changed(lambda features: features / 0), "NaN or infinity", "divisions"),
        (changed(lambda features: features.detach()), "no gradient path to its parameters", "no_grad, detach"),
        (Overwrites, "but changes its observations", "copies"),
        (lambda _: 3, "a int, not a torch.nn.Module", "must return the module"),
    ],
)
def test_what_breaks_the_contract_is_refused(make: Any, fault: str, hint: str) -> None:
    with pytest.raises(
        NetworkError, match=rf"the extractor `(Changed|Overwrites|<lambda>)` returns .*{fault}"
    ) as caught:
        built(make=make)
    assert hint.replace("\\", "") in caught.value.hint


def test_it_may_have_no_parameters_frozen_ones_and_lazy_ones() -> None:
    class Squares(nn.Module):
        def __init__(self, given: Spaces) -> None:
            super().__init__()

        def forward(self, observations: Tensor) -> Tensor:
            return torch.cat([observations, observations.square()], 1)

    for make in (Squares, lambda given: Seen(given).requires_grad_(False), lambda given: nn.LazyLinear(6)):
        network = built(make=make)
        outputs: Any = network(torch.randn(1, 3))
        assert outputs[0].shape == (1, 4)
        FlatParameters(network)


def test_the_mode_of_its_layers_is_kept() -> None:
    def make(given: Spaces) -> nn.Module:
        return nn.Sequential(Seen(given), nn.Dropout(0.5).eval())

    (own,) = extractors(built(action=Discrete(2), heads=("q",), make=make))
    assert [layer.training for layer in own] == [True, False]


def test_options_that_it_does_not_take_are_refused() -> None:
    reference = f"{__name__}:Seen"
    made = network_parameters(NetworkConfig(extractor=reference, extractor_options={"width": 9}))
    assert made.extractor is not None
    spec = Spaces({"observation": VECTOR}, BOX)
    assert made.extractor(spec).layer.out_features == 9
    for options, cause in (({"wdith": 9}, "unexpected keyword argument 'wdith'"), ({"given": 1}, "multiple values")):
        with pytest.raises(NetworkError, match=rf"extractor `.*:Seen` cannot be called with \(spaces, .*{cause}"):
            network_parameters(NetworkConfig(extractor=reference, extractor_options=options))


def test_contradictions_are_refused() -> None:
    observation = Spaces({"observation": VECTOR}, BOX)
    with pytest.raises(NetworkError, match="`module` replaces the whole network"):
        build_network(NetworkParameters(module=Seen, extractor=Seen), observation, torch.Generator())
    for given in (
        {"heads_parameters": [HeadParameters("policy")], "use_separate_networks_per_head": True},
        {"use_separate_networks_per_head": False},
    ):
        wide: Any = network_parameters(NetworkConfig(value_middleware=(9,))).value_middleware_parameters
        with pytest.raises(NetworkError, match="are for a value head with a network of its own, or for critics"):
            build_network(NetworkParameters(value_middleware_parameters=wide, **given), observation, torch.Generator())
