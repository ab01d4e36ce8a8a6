"""Networks of rows: the outputs of the network of the parts, and none for forbidden actions."""

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
from hive.envs.vectors.checks import store
from hive.learning.passes import native_passes
from hive.networks import (
    Categorical,
    CategoricalQHeadParameters,
    EpsilonGreedy,
    HeadParameters,
    NetworkParameters,
    QuantileQHeadParameters,
    Spaces,
    build_network,
)
from hive.networks.act.exploration import epsilon_greedy
from hive.networks.build.network import compute_natively, heads_of
from hive.networks.rows.normalization import NormalizedNetwork, add_rows, merge, observed_elements
from hive.networks.rows.packed import FORBIDDEN, PackedNetwork
from hive.networks.weights.dense import Dense
from hive.networks.weights.flat import FlatParameters, aligned_block
from hive.networks.weights.unpacking import unpacking_of

PARTS: dict[str, Any] = {
    "image": spaces.Box(0, 255, (8, 8), np.uint8),
    "speed": spaces.Box(-9, 9, (3,), np.float32),
    "gear": spaces.Discrete(4),
}


def spec_of(*, masked: bool = False) -> ObservationSpec:
    if not masked:
        return observation_spec("Any-v0", spaces.Dict(PARTS))
    parts = {**PARTS, "mask": spaces.MultiBinary(5)}
    return observation_spec("Any-v0", MaskedSpace(parts, ("mask",), (5,)))


def some_rows(spec: ObservationSpec, count: int) -> Tensor:
    rng = np.random.default_rng(3)
    rows = np.zeros((count, *spec.shape), np.uint8)
    made = [{name: space.sample() for name, space in PARTS.items()} for _ in range(count)]
    for one in made:
        one["speed"] = rng.standard_normal(3).astype(np.float32) * 100.0
        one["mask"] = np.array([1, 0, 1, 0, 1])
    assert store(spec, made, rows)
    return torch.from_numpy(rows)


def built(spec: ObservationSpec, **changes: Any) -> torch.nn.Module:
    parameters = NetworkParameters(**changes)
    return build_network(parameters, Spaces({"observation": spec}, Discrete(5)), torch.Generator().manual_seed(1))


MIXED = spaces.Dict(
    bounded=spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 8.0], np.float32)),
    bytes=spaces.Box(0, 200, (2, 3), np.uint8),
    gear=spaces.Discrete(4),
    nested=spaces.Tuple([spaces.MultiBinary(3), spaces.Box(-np.inf, np.inf, (2,), np.float32)]),
)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("space", [MIXED, *MIXED.values()])
def test_unpacked_rows_are_what_torch_reads(space: Any, normalized: bool) -> None:
    """To the bit, in the scale of each part, which numbers lose that are normalized instead."""
    spec = observation_spec("Any-v0", space)
    module: Any = built(spec, normalize_observations=normalized)
    network = module.network if isinstance(module, NormalizedNetwork) else module
    joins = network if isinstance(network, PackedNetwork) else None
    compute_natively(module, FlatParameters(module))
    dense: Dense | None = (network if joins is None else joins.network).dense
    assert dense is not None
    space.seed(1)
    rows = np.zeros((50, *spec.shape), spec.dtype)
    assert store(spec, [space.sample() for _ in range(50)], rows)
    read = torch.from_numpy(rows)
    read = read if joins is None else joins.joined(read)
    expected = dense.rows(read)
    unpacking = unpacking_of(dense.before, spec, joins)
    assert expected is not None
    assert unpacking is not None
    found = np.empty_like(expected.numpy())
    unpacking(rows.reshape(50, -1).view(np.uint8), found)
    np.testing.assert_array_equal(found, expected.numpy())


def test_parts_whose_names_hive_uses_are_read_as_they_are_named() -> None:
    """A module of a user gets parts by name, and one may be called "observation" or "action"."""
    box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    spec = observation_spec("Any-v0", spaces.Dict(action=box, goal=box, observation=box))
    places: Any = {part.name: part for part in spec.parts}
    module: Any = build_network(NetworkParameters(), Spaces(places, Discrete(5)), torch.Generator().manual_seed(1))
    network = PackedNetwork(spec, module, named=True)
    compute_natively(module, FlatParameters(module))
    rows = np.arange(9, dtype=np.float32).view(np.uint8)[None]
    unpacking = unpacking_of(module.dense.before, spec, network)
    expected = module.dense.rows(network.joined(torch.from_numpy(rows))).numpy()
    assert unpacking is not None
    unpacking(rows, found := np.empty_like(expected))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("separate", [False, True])
def test_the_outputs_are_those_of_the_parts(separate: bool) -> None:
    spec = spec_of()
    network = built(spec, use_separate_networks_per_head=separate)
    assert isinstance(network, PackedNetwork)
    rows = some_rows(spec, 7)
    parts = {part.path: torch.from_numpy(part.view(rows.numpy())) for part in spec.parts}
    for given, expected in zip(network(rows), network.network(parts), strict=True):
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
    assert len(heads_of(network) or ()) == 2


def test_numbers_are_normalised_and_bytes_are_not() -> None:
    spec = spec_of()
    plain, network = built(spec), built(spec, normalize_observations=True)
    assert isinstance(network, NormalizedNetwork)
    assert isinstance(plain, PackedNetwork)
    rows = some_rows(spec, 50)
    moments = np.zeros(observed_elements((spec.floats,)))
    add_rows(spec.numbers(rows.numpy()), moments)
    merge([moments], {name: buffer.numpy() for name, buffer in network.named_buffers()})
    parts = {part.path: torch.from_numpy(part.view(rows.numpy())) for part in spec.parts}
    assert network.normalizer is not None
    shift, scale = network.normalizer.shift, network.normalizer.scale
    for name, columns in (("gear", slice(0, 4)), ("speed", slice(4, 7))):
        parts[name,] = ((parts[name,] - shift[columns]) * scale[columns]).clamp(-10, 10)
    torch.testing.assert_close(network(rows)[0], plain.network(parts)[0], rtol=1e-6, atol=1e-6)


def test_rows_without_numbers_are_not_normalised() -> None:
    spec = observation_spec("Any-v0", spaces.Dict({"a": PARTS["image"], "b": PARTS["image"]}))
    assert built(spec, normalize_observations=True).normalizer is None


@pytest.mark.parametrize("normalized", [False, True])
def test_a_mask_holds_in_native_passes_as_in_torchs(normalized: bool) -> None:
    parts = {"speed": PARTS["speed"], "gear": PARTS["gear"], "mask": spaces.MultiBinary(5)}
    spec = observation_spec("Any-v0", MaskedSpace(parts, ("mask",), (5,)))
    torchs, natives = (built(spec, normalize_observations=normalized) for _ in range(2))
    flat = FlatParameters(natives)
    compute_natively(natives, flat)
    passes, rows = native_passes(natives), some_rows(spec, 6)
    expected = torchs(rows)
    slopes = [torch.randn(output.shape, generator=torch.Generator().manual_seed(1)) for output in expected]
    torch.autograd.backward(list(expected), slopes)
    for found, wanted in zip(passes(rows), expected, strict=True):
        torch.testing.assert_close(found, wanted.detach(), rtol=1e-5, atol=1e-6)
    made = passes.begin(rows)
    assert made is not None
    for output, wanted in zip(made.outputs, expected, strict=True):
        np.testing.assert_allclose(output, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    gradient = aligned_block(flat.parameter_bytes).view(np.float32)
    made.differentiate([slope.numpy() for slope in slopes], gradient)
    for mine, its in zip(natives.parameters(), torchs.parameters(), strict=True):
        place = flat.field_of(mine).offset // 4
        assert its.grad is not None
        np.testing.assert_allclose(
            gradient[place : place + its.numel()], its.grad.numpy().ravel(), rtol=1e-4, atol=1e-5
        )


def test_forbidden_actions_have_no_probability_and_no_gradient() -> None:
    """The losses of the masked logits are those of a distribution over the allowed actions alone."""
    spec = spec_of(masked=True)
    network, distribution = built(spec), Categorical(5)
    logits = network(some_rows(spec, 6))[0]
    assert (logits[:, [1, 3]] == FORBIDDEN).all()
    logits.retain_grad()
    actions = torch.tensor([0, 2, 4, 0, 2, 4])
    log_probs, entropies = distribution.log_prob_and_entropy(logits, actions)
    allowed = torch.distributions.Categorical(logits=logits[:, [0, 2, 4]].detach())
    torch.testing.assert_close(log_probs, allowed.log_prob(actions // 2))
    torch.testing.assert_close(entropies, allowed.entropy())
    (log_probs + entropies).sum().backward()
    assert logits.grad is not None
    assert not logits.grad[:, [1, 3]].any()
    noise = distribution.draw_noise(np.random.default_rng(1), 1000, 6)
    drawn = distribution.sample_numpy(logits.detach().numpy(), noise)
    assert set(np.unique(drawn)) == {0, 2, 4}


@pytest.mark.parametrize("head", [CategoricalQHeadParameters(), QuantileQHeadParameters(atoms=7)])
def test_distributions_of_returns_are_masked_too(head: HeadParameters) -> None:
    """Even where all allowed actions have negative expected returns, as the return 0 is no forbidden action's."""
    spec = spec_of(masked=True)
    network, greedy = built(spec, heads_parameters=[head]), epsilon_greedy(head, 5, 0.5, 0.5)
    with torch.no_grad():
        (outputs,) = network(some_rows(spec, 600))
        favoured = torch.linspace(9.0, 0.0, outputs.shape[-1]) if head.name == "categorical_q" else -50.0
        outputs = torch.where(outputs > FORBIDDEN, outputs + favoured, FORBIDDEN)
    assert (outputs[:, [1, 3]] == FORBIDDEN).all()
    assert set(greedy.mode(outputs).tolist()) <= {0, 2, 4}
    noise = greedy.draw_noise(np.random.default_rng(1), 600)
    assert set(np.unique(greedy.sample_numpy(outputs.numpy(), noise))) == {0, 2, 4}
    assert greedy.log_prob(outputs, torch.ones(600, dtype=torch.int64)).exp().max() == 0.0


def test_a_value_is_not_masked() -> None:
    spec = spec_of(masked=True)
    assert built(spec)(some_rows(spec, 6))[1].abs().max() < 100


@pytest.mark.parametrize("numpy", [True, False])
def test_exploration_draws_allowed_actions_equally(numpy: bool) -> None:
    exploration, values = EpsilonGreedy(5, 1.0, 1.0), np.full((3000, 5), 1.0, np.float32)
    values[:, [1, 3]] = FORBIDDEN
    noise = exploration.draw_noise(np.random.default_rng(1), 3000)
    if numpy:
        drawn = exploration.sample_numpy(values, noise)
    else:
        drawn = exploration.sample(torch.from_numpy(values), torch.from_numpy(noise)).numpy()
    counts = np.bincount(drawn, minlength=5)
    assert not counts[[1, 3]].any()
    assert min(counts[[0, 2, 4]]) > 900


def test_the_probabilities_of_exploration_are_those_of_the_allowed_actions() -> None:
    exploration, values = EpsilonGreedy(5, 0.3, 0.3), torch.tensor([[1.0, FORBIDDEN, 3.0, FORBIDDEN, 2.0]])
    chances = torch.stack([exploration.log_prob(values, torch.tensor([a])).exp()[0] for a in range(5)])
    torch.testing.assert_close(chances, torch.tensor([0.1, 0.0, 0.8, 0.0, 0.1]))
    expected = torch.distributions.Categorical(probs=torch.tensor([[0.1, 0.8, 0.1]])).entropy()
    torch.testing.assert_close(exploration.entropy(values), expected)
