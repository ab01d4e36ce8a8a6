"""Compression of gradients: what a slot holds in the place of float32.

    none     gradient [P] float32
    bf16     gradient [P] uint16, the bits of bfloat16                               half the bytes
    fp16     gradient [P] uint16, the bits of float16 of gradient * scale            half the bytes
    top-k    values [k] float32 · indices [k] uint32, the k largest of               8 k of 4 P bytes
             gradient + residual; the rest is the next residual

    coding   [2] float64: scale, and the relative error: norm of what is missing / norm of what was to be sent

A `Codec` has no state: it lays out slots and encodes into them, natively. GradAccumulator decodes them while it reduces
them, with the sums in float32 and in the order given, so every replica gets the same bytes. What top-k keeps back lies
with its gradient worker (`residual`: error feedback, Stich et al. 2018) and is let go at every cut, as environments
are: so a run that is resumed from a cut is the run that was not stopped. With a worker that dies goes what its last
gradients kept back.

It decides no weights, and it never sees a gradient that is not finite: what made one is told, and zeros are sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.errors import TopologyError

__all__ = ["COMPRESSIONS", "ERROR", "PLAIN", "TOP_K", "Codec", "Half", "Plain", "TopK", "codec_for"]

COMPRESSIONS = ("none", "bf16", "fp16", "top-k")
TOP_K = 0.1  # of the elements, where nobody says how many: a fifth of the bytes

ERROR = 1  # position in `coding`; the scale, at 0, is the accumulator's

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float32]
Fields = dict[str, tuple[str, tuple[int, ...]]]


class Codec(Protocol):
    """How gradients lie in slots."""

    @property
    def name(self) -> str:
        """One of COMPRESSIONS."""

    @property
    def in_place(self) -> bool:
        """Whether `gradient` of the slot is the float32 gradient itself, so that nothing has to be encoded."""

    def fields(self, elements: int) -> Fields:
        """The fields of a slot for a gradient of so many elements."""

    def residual(self, elements: int) -> Floats:
        """A new residual of zeros, [elements], or [0] where nothing is kept back."""

    def encode(self, gradient: Floats, out: Arrays, residual: Floats) -> None:
        """Writes a finite gradient [P] into a slot; changes the residual."""

    def clear(self, out: Arrays) -> None:
        """Makes what is sent zeros where a slot's bytes would not be a gradient at all."""

    def sent_bytes(self, gradient: Arrays) -> int:
        """What the gradient takes in this slot."""


@dataclass(frozen=True)
class Plain:
    """float32, as it is."""

    name: str = "none"
    in_place: bool = True

    def fields(self, elements: int) -> Fields:
        return {"gradient": ("float32", (elements,))}

    def residual(self, elements: int) -> Floats:
        return np.zeros(0, np.float32)

    def encode(self, gradient: Floats, out: Arrays, residual: Floats) -> None:
        out["gradient"][:] = gradient

    def clear(self, out: Arrays) -> None:
        """Float32 of any bits is a gradient."""

    def sent_bytes(self, gradient: Arrays) -> int:
        return gradient["gradient"].nbytes


@dataclass(frozen=True)
class Half:
    """16-bit floats, rounded to the nearest."""

    name: Literal["bf16", "fp16"]
    in_place: bool = False

    def fields(self, elements: int) -> Fields:
        return {"gradient": ("uint16", (elements,)), "coding": ("float64", (2,))}

    def residual(self, elements: int) -> Floats:
        return np.zeros(0, np.float32)

    def encode(self, gradient: Floats, out: Arrays, residual: Floats) -> None:
        if self.name == "bf16":
            out["coding"][:] = 1.0, _native.encode_bf16(gradient, out["gradient"])
        else:
            out["coding"][:] = _native.encode_fp16(gradient, out["gradient"])

    def clear(self, out: Arrays) -> None:
        out["gradient"][:] = 0
        out["coding"][:] = 1.0, 0.0

    def sent_bytes(self, gradient: Arrays) -> int:
        return gradient["gradient"].nbytes + gradient["coding"].nbytes


@dataclass(frozen=True)
class TopK:
    """The largest `fraction` of the elements, at least one."""

    fraction: float = TOP_K
    name: str = "top-k"
    in_place: bool = False

    def fields(self, elements: int) -> Fields:
        count = min(elements, max(1, math.ceil(round(self.fraction * elements, 6))))
        return {"values": ("float32", (count,)), "indices": ("uint32", (count,)), "coding": ("float64", (2,))}

    def residual(self, elements: int) -> Floats:
        return np.zeros(elements, np.float32)

    def encode(self, gradient: Floats, out: Arrays, residual: Floats) -> None:
        out["coding"][:] = 1.0, _native.encode_top_k(gradient, residual, out["values"], out["indices"])

    def clear(self, out: Arrays) -> None:
        out["values"][:] = 0.0
        out["indices"][:] = 0
        out["coding"][:] = 1.0, 0.0

    def sent_bytes(self, gradient: Arrays) -> int:
        return sum(gradient[name].nbytes for name in ("values", "indices", "coding"))


PLAIN = Plain()


def codec_for(compression: str, top_k: float = TOP_K) -> Codec:
    """The codec of that name, one of COMPRESSIONS; `top_k` is the share of the elements that top-k sends."""
    match compression:
        case "none":
            return PLAIN
        case "bf16" | "fp16":
            return Half(compression)
        case "top-k":
            if not 0 < top_k <= 1:
                raise TopologyError(f"top-k sends a share of the elements in (0, 1], got {top_k}")
            return TopK(top_k)
    raise TopologyError(f"no gradient compression `{compression}`", hint=f"one of: {', '.join(COMPRESSIONS)}")
