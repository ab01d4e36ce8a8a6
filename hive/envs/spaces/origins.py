"""Finds what is subtracted from numbers of which float32 would keep few values: time stamps, prices, coordinates, ids.

    numbers of the environment, float64 or int64  ── less `origin`, without rounding ──>  float32, as they are stored

The origin of an element is its first value, if float32 does not hold how the first observations of a run differ. They
are read once for all processes of a run, with its spaces; later starts read them in spaces.json. Checkpoints and
exports have them in the description of the policy, which a run that begins with its weights takes over. Elements whose
differences float32 holds have no origin, and are stored with the same bits as without this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hive.declared import EXACT
from hive.envs.spaces.observation import ArraySpec, ObservationPart, ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec

WIDE = ("float64", "int32", "uint32", "int64", "uint64")
"""dtypes that hold numbers which float32 does not."""

LEAST = 16.0
"""Size of numbers below which float32 holds differences of 1e-6, so none of them has an origin."""

COARSE = 2.0**17
"""Numbers are as many times as large as their differences if float32, of 24 bits, leaves 7 bits of these."""

ROUNDING = 2.0**40
"""Numbers are as many times as large as differences that come from the rounding of float64, of 53 bits."""

AnyArray = TypeVar("AnyArray", bound=ArraySpec)


def may_need(spec: ObservationSpec) -> bool:
    """Whether a part of the observations may have an origin that play finds: it is WIDE, and declares no scale."""
    return any(_may_need(one) for one in spec.inputs)


def are_small(spec: ObservationSpec, observations: Sequence[Any]) -> bool:
    """Whether no number of these observations is so large that it can have an origin."""
    found = [_numbers(one, observations) for one in spec.inputs if _may_need(one)]
    return all(one is None or np.abs(one.astype(np.float64)).max() < LEAST for one in found)


def with_found_origins(spec: ObservationSpec, observations: Sequence[Any]) -> ObservationSpec:
    """Return the spec with the origins that the first observations of an environment show to be needed."""
    inputs = [replace(one, origin=_found(one, observations)) if _may_need(one) else one for one in spec.inputs]
    return with_inputs(spec, inputs)


def with_origins(spec: ObservationSpec, its: ObservationSpec | None) -> ObservationSpec:
    """Return the spec with the origins of `its`, part by part. None, or a part that it lacks: as they are."""
    if its is None:
        return spec
    known = {_place(one): one for one in (*its.inputs, *its.hidden)}
    pairs = [(one, known.get(_place(one))) for one in spec.inputs]
    return with_inputs(spec, [one if other is None else _with_origin_of(one, other) for one, other in pairs])


def has_origins_of(mine: ObservationSpec, its: ObservationSpec) -> bool:
    """Whether observations in the form of two equal specs are stored with the same origins."""
    return [one.origin for one in mine.inputs] == [one.origin for one in its.inputs]


def with_origins_of(spec: EnvironmentSpec, its: EnvironmentSpec) -> EnvironmentSpec:
    """Return the spec of an environment, and of its agents, with the origins of `its`."""
    known = {agent.name: agent.observation for agent in its.agents}
    agents = tuple(replace(one, observation=with_origins(one.observation, known.get(one.name))) for one in spec.agents)
    return replace(spec, observation=with_origins(spec.observation, its.observation), agents=agents)


def _may_need(one: ArraySpec) -> bool:
    return one.dtype == "float32" and not one.counts and not one.low and one.env_dtype in WIDE


def _place(one: ArraySpec) -> tuple[Any, ...]:
    return one.shape, one.dtype, one.counts, one.path if isinstance(one, ObservationPart) else ()


def _with_origin_of(one: AnyArray, other: ArraySpec) -> AnyArray:
    """Return `one` with the origin of `other`; and with its scale, which counts from there, if the origins differ."""
    if one.origin == other.origin:
        return one
    return replace(one, origin=other.origin, low=other.low, high=other.high)


def with_inputs(spec: ObservationSpec, inputs: list[Any]) -> ObservationSpec:
    """Return the spec with these arrays in the place of its `inputs`."""
    if spec.parts:
        return replace(spec, parts=tuple(inputs))
    (whole,) = inputs
    return whole  # type: ignore[no-any-return]


def _numbers(one: ArraySpec, observations: Sequence[Any]) -> NDArray[Any] | None:
    """Return the numbers of a part [N, elements]; None for what is no array of them, which is refused elsewhere."""
    try:
        each = [np.asarray(one.of(seen) if isinstance(one, ObservationPart) else seen) for seen in observations]
        numbers = np.stack(each).reshape(len(each), prod(one.shape))
    except (LookupError, TypeError, ValueError):
        return None
    kinds = "iub" if np.dtype(one.env_dtype).kind in "iu" else "iubf"
    return numbers if numbers.dtype.kind in kinds and np.isfinite(numbers).all() else None


def _found(one: ArraySpec, observations: Sequence[Any]) -> tuple[float, ...]:
    """Return the origin of a part; () if no element needs one."""
    numbers = _numbers(one, observations)
    if numbers is None or not numbers.size:
        return ()
    first = tuple(numbers[0].tolist())
    is_whole = np.dtype(one.env_dtype).kind in "iu"
    base = first if is_whole else tuple(map(float, first))
    flat = ArraySpec((len(first),), "float32", env_dtype=one.env_dtype, origin=base)
    moved = flat.relative(numbers).astype(np.float64)
    spread = moved.max(0) - moved.min(0)
    size = np.abs(numbers.astype(np.float64)).max(0)
    differs = spread > size / ROUNDING
    coarse = np.where(differs, spread < size / COARSE, size > EXACT) & (size > (EXACT if is_whole else LEAST))
    zero = 0 if is_whole else 0.0
    return tuple(value if needed else zero for value, needed in zip(base, coarse, strict=True)) if coarse.any() else ()
