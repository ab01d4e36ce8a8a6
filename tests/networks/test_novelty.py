"""The novelty of observations of every kind: it falls for those that the predictor learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from hive.envs import Discrete
from hive.envs.spaces.masked_space import MaskedSpace
from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.errors import NetworkError
from hive.networks import FlatParameters, InputArray, NetworkParameters, Spaces, build_network
from hive.networks.rows.normalization import LIMIT, MOMENTS_OF, NormalizedNetwork, add_rows, merge, observed_elements
from hive.networks.rows.novelty import CLIP, FEATURES, Novelty

DISCRETE = Discrete(3)
VECTOR = spaces.Box(-9, 9, (4,), np.float32)
DICTIONARY: dict[str, Any] = {"image": spaces.Box(0, 255, (8, 8), np.uint8), "speed": VECTOR}
KINDS: dict[str, Any] = {
    "vector": VECTOR,
    "state": spaces.Discrete(5),
    "image": spaces.Box(0, 255, (40, 40), np.uint8),
    "colours": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "bytes": spaces.Box(0, 255, (6,), np.uint8),
    "dictionary": spaces.Dict(DICTIONARY),
    "masked": MaskedSpace({**DICTIONARY, "mask": spaces.MultiBinary(3)}, ("mask",), (3,)),
}


def built(spec: ObservationSpec, **changes: Any) -> NormalizedNetwork:
    parameters = NetworkParameters(novelty=True, **changes)
    network = build_network(parameters, Spaces({"observation": spec}, DISCRETE), torch.Generator().manual_seed(1))
    assert isinstance(network, NormalizedNetwork)
    return network


def novelty_of(network: NormalizedNetwork) -> Novelty:
    assert isinstance(network.novelty, Novelty)
    return network.novelty


def some_rows(spec: ObservationSpec, count: int, seed: int = 1) -> Tensor:
    generator = np.random.default_rng(seed)
    if spec.dtype == "float32":
        return torch.from_numpy(generator.standard_normal((count, *spec.shape)).astype(np.float32))
    rows = generator.integers(0, 256, (count, *spec.shape)).astype(np.uint8)
    if spec.parts:
        numbers = generator.standard_normal((count, spec.floats)).astype(np.float32)
        rows[:, : 4 * spec.floats] = numbers.view(np.uint8)
    return torch.from_numpy(rows)


@pytest.mark.rotates
@pytest.mark.parametrize("kind", KINDS)
def test_it_falls_where_the_predictor_learns(kind: str) -> None:
    spec = observation_spec("Any-v0", KINDS[kind])
    novelty = novelty_of(built(spec))
    rows = some_rows(spec, 60)
    moments = np.zeros(observed_elements((spec.numbers_each,)))
    add_rows(spec.numbers(rows.numpy()), moments)
    merge([moments], {f"normalizer.{name}": one.numpy() for name, one in novelty.normalizer.named_buffers()})
    before = novelty(rows)
    assert before.shape == (60,)
    optimizer = torch.optim.Adam(novelty.parameters(), 1e-3)
    for _ in range(60):
        optimizer.zero_grad()
        novelty(rows[:5]).mean().backward()
        optimizer.step()
    with torch.no_grad():
        left = novelty(rows) / before
    assert left[:5].mean() < 0.1
    assert left[50:].mean() > 4 * left[:5].mean()


def test_the_target_is_part_of_the_buffers_and_not_of_the_parameters() -> None:
    network = built(observation_spec("Any-v0", VECTOR))
    flat = FlatParameters(network)
    buffers = {field.name for field in flat.buffers}
    assert {"novelty.target.0.weight", "novelty.normalizer.seen", "novelty.spread.seen"} <= buffers
    assert not [name for name in flat.names if "target" in name]
    assert [name for name in flat.names if name.startswith("novelty.predictor.")]


def test_the_policy_is_the_same_with_novelty_and_without() -> None:
    spec = observation_spec("Any-v0", KINDS["dictionary"])
    spaces_of_it = Spaces({"observation": spec}, DISCRETE)
    plain = build_network(NetworkParameters(), spaces_of_it, torch.Generator().manual_seed(1))
    rows = some_rows(spec, 4)
    for given, expected in zip(built(spec)(rows), plain(rows), strict=True):
        torch.testing.assert_close(given, expected, rtol=0, atol=0)


def test_observations_are_normalised_and_clipped() -> None:
    novelty = novelty_of(built(observation_spec("Any-v0", VECTOR)))
    novelty.normalizer.shift.fill_(2.0)
    novelty.normalizer.scale.fill_(0.5)
    far, at_limit = torch.full((1, 4), 1000.0), torch.full((1, 4), 2.0 + CLIP / 0.5)
    torch.testing.assert_close(novelty(far), novelty(at_limit))
    assert novelty(far) != novelty(torch.full((1, 4), 2.0))


def test_the_novelty_is_the_mean_squared_difference_of_the_features() -> None:
    novelty = novelty_of(built(observation_spec("Any-v0", VECTOR)))
    rows = some_rows(observation_spec("Any-v0", VECTOR), 3).clamp(-CLIP, CLIP)
    predicted, features = novelty.predictor(rows), novelty.target(rows)
    assert features.shape == (3, FEATURES)
    torch.testing.assert_close(novelty(rows), (predicted - features).pow(2).sum(-1) / FEATURES)


def test_rewards_are_novelties_in_deviations() -> None:
    novelty = novelty_of(built(observation_spec("Any-v0", VECTOR)))
    mine = np.array([1.0, 3.0, 100.0], np.float32)
    assert not novelty.rewards(mine).any()  # the first round only counts
    (prefix,) = MOMENTS_OF["novelty"]
    buffers = {f"{prefix}{name}": buffer.numpy() for name, buffer in novelty.spread.named_buffers()}
    merge([np.array([4.0, 2.0, 16.0])], buffers, prefix)
    np.testing.assert_allclose(novelty.rewards(mine), [0.5, 1.5, LIMIT], rtol=1e-6)


def test_it_needs_a_single_observation() -> None:
    two = Spaces({name: InputArray((2,), "float32") for name in "ab"}, DISCRETE)
    with pytest.raises(NetworkError, match="novelty needs a single observation"):
        build_network(NetworkParameters(novelty=True), two, torch.Generator())
