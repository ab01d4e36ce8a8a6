"""Normalised observations: statistics that do not depend on the split of the rows, and networks that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hive.envs import Discrete, ObservationSpec
from hive.errors import NetworkError
from hive.networks import (
    FlatParameters,
    InputArray,
    NetworkParameters,
    Spaces,
    aligned_block,
    build_network,
)
from hive.networks.build.custom import buffers_that_training_changes
from hive.networks.build.network import heads_of
from hive.networks.rows.normalization import (
    NormalizedNetwork,
    Normalizer,
    add_rows,
    merge,
    observed_elements,
    other_scale,
    replace,
)

SEEN = ObservationSpec((3,), "float32")
SPACES = Spaces({"observation": SEEN}, Discrete(2))
FAR = np.array([1e4, -3.0, 0.5]), np.array([0.01, 2.0, 100.0])  # means and deviations


def rows(count: int, seed: int = 0) -> NDArray[np.float32]:
    mean, deviation = FAR
    return (np.random.default_rng(seed).standard_normal((count, 3)) * deviation + mean).astype(np.float32)


def moments(*parts: NDArray[Any]) -> NDArray[np.float64]:
    out = np.zeros(observed_elements((3,)))
    for part in parts:
        add_rows(part, out)
    return out


def network(**changes: Any) -> torch.nn.Module:
    parameters = NetworkParameters(normalize_observations=True, **changes)
    return build_network(parameters, SPACES, torch.Generator().manual_seed(1))


def test_moments_are_those_of_all_rows() -> None:
    """Exact even for a mean a million deviations from 0, where sums of squares lose all digits."""
    every = rows(1000)
    found, exact = moments(every), every.astype(np.float64)
    assert found[0] == 1000
    np.testing.assert_allclose(found[1:4], exact.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found[4:] / 1000, exact.var(0), rtol=1e-9)


@pytest.mark.parametrize("cuts", [[1, 2, 3], [500], [0, 999], [10, 10, 700]])
def test_they_are_the_same_however_rows_are_dealt_out(cuts: list[int]) -> None:
    every = rows(1000)
    np.testing.assert_allclose(moments(*np.split(every, cuts)), moments(every), rtol=1e-9)


def test_observations_of_any_shape_are_rows() -> None:
    out = np.zeros(observed_elements((2, 3)))
    images = rows(40).reshape(20, 2, 3)
    add_rows(images, out)
    np.testing.assert_allclose(out[1:7], images.astype(np.float64).mean(0).ravel())


def test_no_rows_change_nothing() -> None:
    before = moments(rows(5))
    after = before.copy()
    add_rows(rows(0), after)
    assert np.array_equal(before, after)
    module = network()
    flat = FlatParameters(module)
    merge([moments(), moments()], flat.buffer_arrays(flat.block))
    assert isinstance(module, NormalizedNetwork)
    assert (module.normalizer.scale == 1).all()


def test_a_network_without_statistics_does_not_change_observations() -> None:
    plain = build_network(NetworkParameters(), SPACES, torch.Generator().manual_seed(1))
    few = torch.from_numpy(rows(4)) / 1e4
    for mine, its in zip(network()(few), plain(few), strict=True):
        assert torch.equal(mine, its)


def test_it_sees_mean_0_and_deviation_1() -> None:
    module, every = network(), rows(4000)
    flat = FlatParameters(module)
    merge([moments(every[:1000]), moments(every[1000:])], flat.buffer_arrays(flat.block))
    assert isinstance(module, NormalizedNetwork)
    seen = module.normalizer(torch.from_numpy(every))
    # 1e4 in float32 is exact to 0.001, a tenth of its deviation here
    np.testing.assert_allclose(seen.mean(0), 0.0, atol=0.05)
    np.testing.assert_allclose(seen.std(0), 1.0, rtol=0.01)
    assert module.normalizer(torch.full((1, 3), 1e9)).tolist() == [[10.0] * 3]
    assert module.normalizer(torch.full((1, 3), -1e9)).tolist() == [[-10.0] * 3]


def test_sums_of_all_rows_replace_those_of_a_version() -> None:
    """As if they had been merged; without a row, or a new one, nothing changes."""
    merged, module = network(normalize_rewards=True), network(normalize_rewards=True)
    flats = [FlatParameters(one) for one in (merged, module)]
    buffers = flats[1].buffer_arrays(flats[1].block)
    replace(moments(), buffers)
    assert isinstance(module, NormalizedNetwork)
    assert module.scales() is None, "neither observations nor rewards are known"
    merge([moments(rows(10))], flats[0].buffer_arrays(flats[0].block))
    replace(moments(rows(10)), buffers)
    assert flats[0].block.tobytes() == flats[1].block.tobytes()
    assert module.scales() is None, "rewards are not known"
    replace(np.array([4.0, 1.0, 16.0]), buffers, "reward_normalizer.")
    scales = module.scales()
    assert scales is not None
    assert scales.reward == pytest.approx(0.5)
    assert scales.scale.tolist() == module.normalizer.scale.tolist()
    replace(moments(rows(10)) + np.array([0.0, *[1.0] * 6]), buffers)
    assert module.normalizer.seen.tolist() == moments(rows(10)).tolist()


def test_a_constant_element_becomes_0() -> None:
    module = Normalizer((3,))
    arrays = {f"normalizer.{name}": buffer.numpy() for name, buffer in module.named_buffers()}
    merge([moments(np.full((9, 3), 0.1, np.float32))], arrays)
    assert module(torch.full((2, 3), 0.1)).tolist() == [[0.0] * 3] * 2


def test_the_observations_stay_as_they_are() -> None:
    given = torch.ones(2, 3)
    network()(given)
    assert (given == 1).all()


def test_statistics_lie_in_the_block_and_a_forward_pass_changes_none() -> None:
    module = network(use_separate_networks_per_head=True)
    flat = FlatParameters(module)
    assert [field.name for field in flat.buffers] == ["normalizer.seen", "normalizer.shift", "normalizer.scale"]
    assert flat.buffer_arrays(flat.block).keys() == {field.name for field in flat.buffers}
    assert buffers_that_training_changes(module, SPACES) == []
    other = aligned_block(flat.block_bytes)
    flat.initialize_into(other)
    merge([moments(rows(100))], flat.buffer_arrays(other))
    before, few = module(torch.from_numpy(rows(4))), torch.from_numpy(rows(4))
    flat.bind(other, read_only=True)
    assert not torch.equal(module(few)[0], before[0])


def test_its_heads_are_those_of_the_network() -> None:
    heads = heads_of(network(use_separate_networks_per_head=True))
    assert heads is not None
    assert len(heads) == 2


@pytest.mark.parametrize("spec", [ObservationSpec((3,), "uint8"), InputArray((4, 4, 3), "uint8")])
def test_bytes_are_not_normalised_because_their_bounds_scale_them(spec: Any) -> None:
    parameters = NetworkParameters(normalize_observations=True, normalize_rewards=True)
    built = build_network(parameters, Spaces({"observation": spec}, Discrete(2)), torch.Generator())
    assert isinstance(built, NormalizedNetwork)
    assert (built.normalizer, built.reward_normalizer is None) == (None, False)


def test_several_observations_cannot_be_normalised() -> None:
    two = Spaces({"observation": SEEN, "measurements": InputArray((2,), "float32")}, Discrete(2))
    with pytest.raises(NetworkError, match="needs a single observation"):
        build_network(NetworkParameters(normalize_observations=True), two, torch.Generator())


@pytest.mark.parametrize(
    ("factor", "shift", "what"),
    [
        (1.0, 0.0, ""),
        (0.05, 0.5, ""),  # the first observations of episodes vary less
        (0.001, 0.0, "no observation differs"),
        (1000.0, 0.0, "lie beyond 10"),
        (1.0, 1e4, "lie beyond 10"),
    ],
)
def test_data_of_another_scale_are_told_apart(factor: float, shift: float, what: str) -> None:
    drawn = np.random.default_rng(0).standard_normal((1000, 3)).astype(np.float32)
    found = other_scale(drawn[:100] * factor + shift, moments(drawn))
    assert what in found if what else found == ""
    assert other_scale(drawn * 1000, moments()) == "", "nothing was seen"
