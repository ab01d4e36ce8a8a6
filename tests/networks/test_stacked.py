"""Stacked observations become channels of images and elements of vectors, oldest first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hive.envs import Discrete
from hive.envs.spaces.masked_space import MaskedSpace
from hive.envs.spaces.observation import ArraySpec, ObservationSpec, observation_spec
from hive.networks import NetworkParameters, Spaces, build_network
from hive.networks.build.network import heads_of
from hive.networks.rows.packed import FORBIDDEN, join_frames, stacked_spec


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((84, 84), "uint8", (4, 84, 84)),
        ((10, 10, 3), "uint8", (10, 10, 12)),
        ((3, 10, 10), "uint8", (12, 10, 10)),
        ((10, 10, 3), "float32", (10, 10, 12)),
        ((5,), "float32", (20,)),
        ((128,), "uint8", (512,)),
        ((2, 3), "float32", (24,)),
    ],
)
def test_frames_become_one_input(shape: tuple[int, ...], dtype: str, expected: tuple[int, ...]) -> None:
    spec = ArraySpec(shape, dtype)
    frames = torch.arange(2 * 4 * int(np.prod(shape))).reshape(2, 4, *shape)
    together = join_frames(frames, spec, 4)
    assert together.shape[1:] == stacked_spec(spec, 4).shape == expected
    if len(shape) == 3:  # channels of the oldest frame come first
        axis, first = (-1, frames[:, 0]) if shape[2] < shape[0] else (1, frames[:, 0])
        torch.testing.assert_close(together.narrow(axis, 0, 3), first)
    else:
        torch.testing.assert_close(together.reshape(2, 4, *shape), frames)


def built(spec: ObservationSpec, **changes: Any) -> torch.nn.Module:
    spaces_of_it = Spaces({"observation": spec}, Discrete(3))
    return build_network(NetworkParameters(**changes), spaces_of_it, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("normalize", [False, True])
def test_a_network_of_stacks(normalize: bool) -> None:
    spec = ObservationSpec((5,), "float32", stack=3)
    network = built(spec, normalize_observations=normalize)
    rows = torch.randn(7, 3, 5)
    policy, value = network(rows)
    assert (policy.shape, value.shape) == ((7, 3), (7,))
    assert len(heads_of(network) or ()) == 2
    plain = built(ObservationSpec((15,), "float32"))
    torch.testing.assert_close(plain(rows.flatten(1))[1], value)  # statistics without rows change nothing


def test_stacked_parts_and_the_newest_mask() -> None:
    parts = {"a": spaces.Box(0, 255, (8, 8), np.uint8), "b": spaces.Box(-1, 1, (2,)), "mask": spaces.MultiBinary(3)}
    spec = observation_spec("Any-v0", MaskedSpace(parts, ("mask",), (3,)))
    stacked = ObservationSpec(**{**vars(spec), "stack": 2})
    rows = torch.zeros((5, 2, *spec.shape), dtype=torch.uint8)
    assert spec.mask is not None
    masks = spec.mask.view(rows.numpy())
    masks[:, 0] = 1
    masks[:, 1] = [0, 1, 1]
    policy, _ = built(stacked, normalize_observations=True)(rows)
    assert (policy[:, 0] == FORBIDDEN).all()
    assert policy[:, 1:].abs().max() < 10
