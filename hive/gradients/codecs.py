"""Compression of gradients: the fields of a slot that replace the float32 gradient of P elements.

    none     gradient [P] float32
    bf16     gradient [P] uint16, the bits of bfloat16                               half the bytes
    fp16     gradient [P] uint16, the bits of float16 of gradient * scale            half the bytes
    top-k    values [k] float32 · indices [k] uint32, the k largest of               8 k of 4 P bytes
             gradient + residual; the rest is the next residual

    coding   [2] float64: scale, and the relative error: norm of the difference / norm of gradient + residual

A `Codec` has no state: it defines the fields of slots and encodes into them, in C++. GradAccumulator decodes slots
while it reduces them, with float32 sums in the order of adoption, so all replicas compute bit-identical results. The
gradient worker stores the residual of top-k (error feedback, Stich et al. 2018). It resets the residual at every resume
barrier, where collectors reset their environments, so a run resumed from a barrier is bit-identical to one that was
not stopped. A worker that is killed loses its residual.

A codec never receives a non-finite gradient: the worker sends zeros instead, with the cause in the header.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.errors import TopologyError
from hive.runtime.memory.segments import Arrays

COMPRESSIONS = ("none", "bf16", "fp16", "top-k")
TOP_K = 0.1  # default share of the elements that top-k sends, a fifth of the bytes

ERROR = 1  # position of the relative error in `coding`; only the accumulator reads the scale at position 0

Floats = NDArray[np.float32]
Fields = dict[str, tuple[str, tuple[int, ...]]]


class Codec(Protocol):
    """The interface of a compression: the fields of a slot and the encoder."""

    @property
    def name(self) -> str:
        """One of COMPRESSIONS."""

    @property
    def in_place(self) -> bool:
        """Whether the slot's `gradient` is the float32 gradient itself, which needs no encoding."""

    def fields(self, elements: int) -> Fields:
        """Return the fields of a slot, name -> (dtype, shape), for a gradient of `elements` elements."""

    def residual(self, elements: int) -> Floats:
        """Return a new residual, float32 zeros [elements], or [0] for a codec without one."""

    def encode(self, gradient: Floats, out: Arrays, residual: Floats) -> None:
        """Write a finite gradient, float32 [P], into the slot `out`, and updates the residual in place."""

    def clear(self, out: Arrays) -> None:
        """Make the encoded fields a valid gradient of zeros; does nothing if any bytes are valid."""

    def sent_bytes(self, gradient: Arrays) -> int:
        """Return the size of the encoded gradient in this slot, in bytes."""


@dataclass(frozen=True)
class Plain:
    """Uncompressed float32."""

    name: str = "none"
    in_place: bool = True

    def fields(self, elements: int) -> Fields:
        return {"gradient": ("float32", (elements,))}

    def residual(self, elements: int) -> Floats:
        return np.zeros(0, np.float32)

    def encode(self, gradient: Floats, out: Arrays, residual: Floats) -> None:
        out["gradient"][:] = gradient

    def clear(self, out: Arrays) -> None:
        """Do nothing: any bytes are a float32 gradient."""

    def sent_bytes(self, gradient: Arrays) -> int:
        return gradient["gradient"].nbytes


@dataclass(frozen=True)
class Half:
    """16-bit floats, bfloat16 or float16, rounded to nearest."""

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
    """The `fraction` of the elements with the largest magnitudes, at least one element."""

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
    """Return the codec of that name, one of COMPRESSIONS; `top_k` is the share of the elements that top-k sends.

    Raises TopologyError for another name, and for a share outside of (0, 1].
    """
    match compression:
        case "none":
            return PLAIN
        case "bf16" | "fp16":
            return Half(compression)
        case "top-k":
            if not 0 < top_k <= 1:
                raise TopologyError(f"top-k sends a share of the elements in (0, 1], got {top_k}")
            return TopK(top_k)
    raise TopologyError(f"unknown gradient compression `{compression}`", hint=f"one of: {', '.join(COMPRESSIONS)}")
