"""The one Polyak step: native for float32 in host memory, torch for all else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hive.compat.autonomous.polyak import polyak_step
from hive.errors import NetworkError
from hive.networks import aligned_block


def tensors(dtype: torch.dtype, seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator).to(dtype) for shape in [(5, 3), (), (0,), (7,)]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.0, 0.005, 0.7, 1.0])
def test_every_tensor_moves_by_the_rate(dtype: torch.dtype, rate: float) -> None:
    targets, sources = tensors(dtype, 1), tensors(dtype, 2)
    expected = [(1 - rate) * t.double() + rate * s.double() for t, s in zip(targets, sources, strict=True)]
    sources_before = [source.clone() for source in sources]
    polyak_step(targets, sources, rate)
    for target, wanted, source, before in zip(targets, expected, sources, sources_before, strict=True):
        torch.testing.assert_close(target, wanted.to(dtype), rtol=0.01 if dtype == torch.bfloat16 else 1e-6, atol=0)
        assert torch.equal(source, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rates_0_and_1_are_exact_even_for_non_finite_values(dtype: torch.dtype) -> None:
    target, source = torch.tensor([-0.0, 0.1], dtype=dtype), torch.tensor([torch.inf, 0.3], dtype=dtype)
    polyak_step([target], [source], 0.0)
    assert target.tolist() == torch.tensor([-0.0, 0.1], dtype=dtype).tolist()
    assert bool(target.signbit()[0])
    polyak_step([target], [source], 1.0)
    assert torch.equal(target, source)


def test_whole_numbers_are_copied_at_every_rate() -> None:
    targets = [torch.tensor([1, 2]), torch.tensor(True), torch.tensor([1.0])]
    polyak_step(targets, [torch.tensor([7, 8]), torch.tensor(False), torch.tensor([3.0])], 0.5)
    assert [target.tolist() for target in targets] == [[7, 8], False, [2.0]]


def test_a_flat_block_and_strided_tensors_get_the_same_numbers() -> None:
    new, old = (torch.rand(32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    block = aligned_block(128).view(np.float32)
    block[:] = old.numpy()
    source = new.numpy().copy()
    source.flags.writeable = False
    polyak_step([block], [source], 0.25)
    strided = torch.stack([old, old], 1)[:, 0]
    assert not strided.is_contiguous()
    polyak_step([strided], [new], 0.25)
    parameter = torch.nn.Parameter(old.clone())
    polyak_step([parameter], [torch.nn.Parameter(new)], 0.25)
    np.testing.assert_array_equal(parameter.detach().numpy(), block)
    np.testing.assert_allclose(strided.numpy(), block, rtol=1e-6)


@pytest.mark.parametrize(
    ("targets", "sources", "rate", "cause"),
    [
        ([torch.zeros(2)], [torch.ones(2)], 1.5, "from 0 to 1, got 1.5"),
        ([torch.zeros(2)], [torch.ones(2)], float("nan"), "from 0 to 1, got nan"),
        ([torch.zeros(2)], [torch.ones(1)], 0.5, r"shapes \[\(1,\)\] cannot update weights of shapes \[\(2,\)\]"),
        ([torch.zeros(2)], [], 0.5, r"weights of shapes \[\] cannot"),
        ([torch.zeros(2), np.zeros(2)], [torch.ones(2), np.ones(2)], 0.5, "this array is float64"),
    ],
)
def test_arguments_that_do_not_fit_change_nothing(targets: Any, sources: Any, rate: float, cause: str) -> None:
    with pytest.raises(NetworkError, match=cause):
        polyak_step(targets, sources, rate)
    assert not any(target.any() for target in targets)
