"""The memory of an accumulator's rounds, and the passes over them: in C++ on the CPU, otherwise in torch.

A *round* is the gradients of one backward pass. Both classes have the same methods. The dtypes and devices of the first
gradients select one of them:

    NativeRounds   float32, float64, bfloat16 and float16 on the CPU. A round is one block of bytes that begins at a
                   multiple of 64, with the layout of gather.hpp; torch's tensors are views of it. C++ gets addresses.
    TorchRounds    any device and dtype that torch can add. A round is a list of tensors; the passes are foreach calls,
                   and the host waits for the device once per pass, for the norm and the finite check together.

16-bit floats are summed in float32, all other types in their own; sums are divided once, at the end. GradAccumulator
decides how to treat non-finite gradients and which rounds to hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hive import _native

NATIVE = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16", torch.float16: "float16"}
SUMMED_IN_FLOAT32 = (torch.bfloat16, torch.float16)

GradientSequence = Sequence[Tensor | None]


@dataclass(frozen=True, slots=True)
class GradientField:
    """The shape, dtype and device of the gradient of a parameter."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class ReductionOutcome(NamedTuple):
    """The outcome of a reduction: its Euclidean norm, and whether it is finite.

    `bad_field` is the index of the first non-finite field, `bad_round` that of the first round with one; -1: none or
    unknown.
    """

    norm: float
    finite: bool
    bad_field: int
    bad_round: int = -1


class RoundBlock:
    """The memory of one round, of a result, or of running sums."""

    def __init__(self, owner: Rounds, memory: Any) -> None:
        self.owner = owner
        self.memory = memory  # uint8 [bytes], or a list of tensors
        self.lent = False  # whether the caller may still hold views of it

    @cached_property
    def array(self) -> npt.NDArray[np.uint8]:
        array: npt.NDArray[np.uint8] = self.memory.numpy()
        return array

    @cached_property
    def tensors(self) -> Sequence[Tensor]:
        """One tensor for each field."""
        return self.owner.views(self.memory)


class NativeRounds:
    """Rounds in host memory, computed by `native`."""

    def __init__(self, native: _native.GradAccumulator, fields: Sequence[GradientField]) -> None:
        native.lay_out([NATIVE[field.dtype] for field in fields], [field.shape.numel() for field in fields])
        self._native = native
        self.fields = fields
        self._offsets = native.offsets
        self._expected = [(field.dtype, field.shape) for field in fields]

    def new_block(self) -> RoundBlock:
        return self._zeros(self._native.bytes)

    def new_sums(self) -> RoundBlock:
        return self._zeros(self._native.sum_bytes)

    def _zeros(self, size: int) -> RoundBlock:
        with torch.inference_mode(False):  # ordinary tensors even if the caller is in inference mode
            return RoundBlock(self, torch.zeros(size, dtype=torch.uint8))  # torch aligns them to 64 bytes

    def views(self, memory: Tensor) -> list[Tensor]:
        found = []
        for field, offset in zip(self.fields, self._offsets, strict=True):
            part = memory[offset : offset + field.shape.numel() * field.dtype.itemsize]
            found.append(part.view(field.dtype).view(field.shape))
        return found

    def _addresses(self, gradients: GradientSequence) -> tuple[list[int], list[Tensor]]:
        """Return the addresses of the gradients (0 for None), and the tensors to keep alive while they are used."""
        addresses, alive = [], []
        for index, (gradient, (dtype, shape)) in enumerate(zip(gradients, self._expected, strict=True)):
            if gradient is None:
                addresses.append(0)
                continue
            if not (gradient.dtype is dtype and gradient.is_cpu and gradient.shape == shape):
                raise _unlike(self.fields[index], gradient)
            if not gradient.is_contiguous():  # True for sparse gradients too
                gradient = _dense(gradient).contiguous()
                alive.append(gradient)
            addresses.append(gradient.data_ptr())
        return addresses, alive

    def gather(self, gradients: GradientSequence, block: RoundBlock) -> int:
        """Copy the gradients, None as zeros; returns the index of the first non-finite one, or -1."""
        addresses, _alive = self._addresses(gradients)
        return self._native.gather(addresses, block.array)

    def first_bad(self, gradients: GradientSequence) -> int:
        """Return the index of the first non-finite gradient, or -1."""
        addresses, _alive = self._addresses(gradients)
        return self._native.first_bad(addresses)

    def add(self, gradients: GradientSequence, weight: float, sums: RoundBlock, onto: bool) -> None:
        """Add weighted gradients to the sums, or with `onto` False overwrites the sums."""
        addresses, _alive = self._addresses(gradients)
        self._native.add(addresses, weight, sums.array, onto)

    def reduce(
        self, blocks: Sequence[RoundBlock], weights: Sequence[float], divisor: float, out: RoundBlock
    ) -> ReductionOutcome:
        """Write the weighted sum of the blocks, divided by `divisor`, to `out`."""
        found = self._native.reduce([block.array for block in blocks], weights, divisor, out.array)
        return ReductionOutcome(found.norm, found.finite, found.bad_index, found.bad_input)

    def finish(self, sums: RoundBlock, divisor: float, out: RoundBlock) -> ReductionOutcome:
        """Write the sums, divided by `divisor`, to `out`."""
        found = self._native.finish(sums.array, divisor, out.array)
        return ReductionOutcome(found.norm, found.finite, found.bad_index)


class TorchRounds:
    """Rounds in torch tensors, for example on a GPU. The methods are those of NativeRounds."""

    def __init__(self, fields: Sequence[GradientField]) -> None:
        self.fields = fields

    def new_block(self) -> RoundBlock:
        return self._zeros([field.dtype for field in self.fields])

    def new_sums(self) -> RoundBlock:
        return self._zeros([_sum_dtype(field.dtype) for field in self.fields])

    def _zeros(self, dtypes: Sequence[torch.dtype]) -> RoundBlock:
        with torch.inference_mode(False):
            zeros = [torch.zeros(f.shape, dtype=d, device=f.device) for f, d in zip(self.fields, dtypes, strict=True)]
        return RoundBlock(self, zeros)

    def views(self, memory: list[Tensor]) -> list[Tensor]:
        return memory

    def gather(self, gradients: GradientSequence, block: RoundBlock) -> int:
        torch._foreach_copy_(block.memory, self._filled(gradients))
        return self._first_bad(block.memory)

    def first_bad(self, gradients: GradientSequence) -> int:
        return self._first_bad(self._filled(gradients))

    def add(self, gradients: GradientSequence, weight: float, sums: RoundBlock, onto: bool) -> None:
        terms = self._weighted(self._filled(gradients), weight)
        if onto:
            torch._foreach_add_(sums.memory, terms)
        else:
            torch._foreach_copy_(sums.memory, terms)

    def reduce(
        self, blocks: Sequence[RoundBlock], weights: Sequence[float], divisor: float, out: RoundBlock
    ) -> ReductionOutcome:
        sums = self.new_sums()
        onto = False
        for block, weight in zip(blocks, weights, strict=True):
            if weight:
                self.add(block.memory, weight, sums, onto)
                onto = True
        outcome = self.finish(sums, divisor, out)
        if outcome.finite:
            return outcome
        bad = (k for k, weight in enumerate(weights) if weight and self._first_bad(blocks[k].memory) >= 0)
        return outcome._replace(bad_round=next(bad, -1))

    def finish(self, sums: RoundBlock, divisor: float, out: RoundBlock) -> ReductionOutcome:
        torch._foreach_copy_(out.memory, torch._foreach_div(sums.memory, divisor))
        home = self.fields[0].device
        exact = [tensor.detach().to(_norm_dtype(tensor.dtype)) for tensor in out.memory]
        norm = float(torch.linalg.vector_norm(torch.stack([n.to(home) for n in torch._foreach_norm(exact)])))
        bad = -1 if norm - norm == 0.0 else self._first_bad(out.memory)
        return ReductionOutcome(norm, bad < 0, bad)

    def _filled(self, gradients: GradientSequence) -> list[Tensor]:
        filled = []
        for field, gradient in zip(self.fields, gradients, strict=True):
            if gradient is None:
                gradient = torch.zeros(field.shape, dtype=field.dtype, device=field.device)
            elif (gradient.dtype, gradient.device, gradient.shape) != (field.dtype, field.device, field.shape):
                raise _unlike(field, gradient)
            filled.append(_dense(gradient))
        return filled

    def _weighted(self, tensors: Sequence[Tensor], weight: float) -> list[Tensor]:
        wide = [tensor.to(_sum_dtype(tensor.dtype)) for tensor in tensors]
        return list(torch._foreach_mul(wide, weight))

    def _first_bad(self, tensors: Sequence[Tensor]) -> int:
        home = self.fields[0].device
        finite = torch.stack([torch.isfinite(tensor).all().to(home) for tensor in tensors])
        values: list[bool] = finite.tolist()  # waits for the device
        return -1 if all(values) else values.index(False)


Rounds = NativeRounds | TorchRounds


def rounds_for(native: _native.GradAccumulator, fields: Sequence[GradientField]) -> Rounds:
    """Return NativeRounds if C++ supports all fields, otherwise TorchRounds. Raises TypeError for integer dtypes."""
    for field in fields:
        if not (field.dtype.is_floating_point or field.dtype.is_complex):
            raise TypeError(f"`{field.name}` is {_short(field.dtype)}, gradients must be floats")
    if all(field.device.type == "cpu" and field.dtype in NATIVE for field in fields):
        return NativeRounds(native, fields)
    return TorchRounds(fields)


def zero_bad(tensors: Iterable[Tensor]) -> int:
    """Set NaN and infinities to zero, in place; returns their number."""
    count = 0
    for tensor in tensors:
        bad = ~torch.isfinite(tensor)
        count += int(bad.sum())
        tensor[bad] = 0
    return count


def _dense(gradient: Tensor) -> Tensor:
    gradient = gradient.detach()
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in SUMMED_IN_FLOAT32 else dtype


def _norm_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype in which the squares of the values do not overflow."""
    return torch.complex128 if dtype.is_complex else torch.float64


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _unlike(field: GradientField, gradient: Tensor) -> ValueError:
    return ValueError(
        f"the gradient of `{field.name}` is {_short(gradient.dtype)} {list(gradient.shape)} on {gradient.device}, "
        f"in earlier rounds it was {_short(field.dtype)} {list(field.shape)} on {field.device}"
    )
