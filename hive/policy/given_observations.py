"""Turns observations that a caller gives to a loaded policy into stored rows, or refuses them.

    given                                             stored
    one observation of the environment                [1, *shape]
    a batch: [B, ...] in the place of every array     [B, *shape], with B = 0 for an empty batch

Arrays, torch tensors, numbers and lists of any dtype are accepted if the observation space holds their values: whole
numbers from 0 to 255 for bytes, whole numbers for integers, 0 and 1 for bits, known values for Discrete and
MultiDiscrete, finite numbers for floats. Bounds are not checked, because many environments exceed theirs. One-hot
float vectors stand for discrete values, as they are stored.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import ObservationPart, ObservationSpec
from hive.envs.spaces.observation import BESIDE_MASK, MASK_KEY, ArraySpec, MaskPart
from hive.envs.vectors.checks import fault_of, store

Tree = Mapping[str | int, Any]
"""Keys of dictionaries, or positions in tuples, to further trees, or to None at the end of a path."""

NUMBERS = "biuf"  # kinds of dtypes: booleans, integers, unsigned integers, floats


class GivenObservations:
    """Converts observations of the environment to rows of `spec`."""

    def __init__(self, spec: ObservationSpec) -> None:
        self.spec = spec
        self._inputs = [_Input(one) for one in spec.inputs]
        mask = spec.mask
        paths = [part.path for part in spec.parts] + ([] if mask is None else [mask.path])
        self._tree = _tree(paths)
        self._unread = _tree([part.path for part in spec.hidden])  # may be missing
        beside = {part.path[:1] for part in spec.parts} == {(BESIDE_MASK,)}
        self._mask_from_info = mask is not None and mask.path == (MASK_KEY,) and beside

    def __call__(self, observation: Any, action_mask: Any) -> tuple[NDArray[Any], bool]:
        """Return rows [B, *shape] of the stored dtype, and whether the observation was a single one.

        action_mask: the mask, or masks [B, actions], beside the observation; None if there is none. Raises ValueError,
        which names the part, for whatever the observation space does not hold.
        """
        pair = isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict)
        if pair and 0 not in (self._tree or ()):  # the space is not one of tuples
            raise ValueError("got the pair of env.reset(): observation, info = env.reset(), then policy(observation)")
        if action_mask is not None:
            observation = self._with_mask(observation, action_mask)
        if not self.spec.parts:
            return self._inputs[0].rows(observation)
        if self._mask_from_info and not (isinstance(observation, Mapping) and MASK_KEY in observation):
            hint = f'policy(observation, action_mask=info["{MASK_KEY}"])'
            raise ValueError(f"this policy was trained with action masks: call {hint}")
        if self._tree:  # else the only part is the observation itself, a number of many values
            _check_tree(self._tree, self._unread, observation, ())
        return self._packed(observation)

    def _with_mask(self, observation: Any, action_mask: Any) -> Any:
        """Return the observation and the mask beside it as one dictionary."""
        mask = self.spec.mask
        if mask is None:
            raise ValueError("this policy was trained without action masks: leave action_mask out")
        if not self._mask_from_info:
            name = ".".join(map(str, mask.path))
            raise ValueError(f"this policy reads its action mask from part `{name}`: leave action_mask out")
        return {BESIDE_MASK: observation, MASK_KEY: action_mask}

    def _packed(self, observation: Any) -> tuple[NDArray[np.uint8], bool]:
        """Return observations of several parts as rows [B, bytes]."""
        pairs = zip(self._inputs, self.spec.parts, strict=True)
        stored = [(one.name, *one.rows(part.of(observation))) for one, part in pairs]
        first, rows, single = stored[0]
        for name, other, alone in stored:
            if alone != single:
                batch, one = (first, name) if alone else (name, first)
                raise ValueError(f"got a batch of the part `{batch}` and a single observation of the part `{one}`")
            if len(other) != len(rows):
                raise ValueError(
                    f"got {len(rows)} observations of the part `{first}` and {len(other)} of the part `{name}`"
                )
        packed = np.zeros((len(rows), *self.spec.shape), np.uint8)
        for part, (_, own, _) in zip(self.spec.parts, stored, strict=True):
            part.view(packed)[...] = own
        if self.spec.mask is not None:
            self.spec.mask.view(packed)[...] = _masks(self.spec.mask, observation, len(rows), single=single)
        return packed, single


class _Input:
    """The conversion of one stored array. name: of a part, else ""."""

    def __init__(self, spec: ArraySpec) -> None:
        self.spec = spec
        self.name = spec.name if isinstance(spec, ObservationPart) else ""
        own = {field.name: getattr(spec, field.name) for field in dataclasses.fields(ArraySpec)}
        self._alone = ObservationSpec(**own)  # for the checks of a vector
        self._limits = _limits(spec)
        self._exact = np.dtype(spec.env_dtype or spec.dtype)  # an array of this dtype has no values to check

    def rows(self, given: Any) -> tuple[NDArray[Any], bool]:
        """Return B arrays [B, *shape] in the stored dtype, and whether a single one was given."""
        array, spec = self._numbers(given), self.spec
        if array.shape == (0,) and spec.shape != (0,):
            return np.zeros((0, *spec.shape), spec.dtype), False
        if spec.counts and array.dtype.kind != "f":
            single = _is_single(spec, array.shape)
            return self._one_hot(array[None] if single else array), single
        single = array.shape == spec.shape
        if not single and (array.ndim == 0 or array.shape[1:] != spec.shape):
            if spec.counts:  # a vector of floats is a one-hot vector, and this is none
                raise self._refused(fault_of(self._alone, given)[0])
            raise self._refused(
                f"observations of shape {list(array.shape)}, expected {list(spec.shape)} or a batch of these"
            )
        return self._checked(array[None] if single else array), single

    def _numbers(self, given: Any) -> NDArray[Any]:
        """Return what is given as an array of numbers."""
        if isinstance(given, torch.Tensor):
            given = given.detach().to("cpu")
            given = (given.float() if given.dtype == torch.bfloat16 else given).numpy()
        try:
            array = np.asarray(given)
        except (ValueError, TypeError):
            raise self._refused("observations that are not an array: their elements have different shapes") from None
        if array.dtype.kind not in NUMBERS:
            raise self._refused(f"observations of type {type(given).__name__} ({array.dtype}), expected numbers")
        return array

    def _one_hot(self, batch: NDArray[Any]) -> NDArray[np.float32]:
        """Return values [B, ...] of Discrete or MultiDiscrete spaces in their stored form."""
        rows = np.zeros((len(batch), *self.spec.shape), self.spec.dtype)
        whole = batch.astype(np.int64)
        if len(batch) and not store(self._alone, whole, rows):
            fault = next((one for one in whole if not store(self._alone, one[None], rows[:1])), whole[0])
            raise self._refused(fault_of(self._alone, fault)[0])
        return rows

    def _checked(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Return values [B, *shape] in the stored dtype. Raises ValueError for one that the space does not hold."""
        spec = self.spec
        if self._limits is not None and batch.dtype != self._exact:
            lowest, highest = self._limits
            held = batch.size == 0 or (batch.min() >= lowest and batch.max() <= highest)
            if not held or (batch.dtype.kind == "f" and not np.array_equal(batch, np.rint(batch))):
                odd = batch[~((batch >= lowest) & (batch <= highest) & (batch == np.rint(batch)))].ravel()[0]
                scaled = "; give what the environment returns, not scaled to 0 ... 1" if spec.dtype == "uint8" else ""
                expected = f"whole numbers from {lowest} to {highest}{scaled}"
                raise self._refused(f"{odd} in an observation, expected {expected}")
        if spec.origin:
            batch = spec.relative(batch)
        if batch.dtype == spec.dtype:
            stored = np.ascontiguousarray(batch)
        else:
            with np.errstate(over="ignore"):  # a number beyond 3.4e38 becomes infinite, which is refused below
                stored = batch.astype(spec.dtype)
        if spec.dtype != "uint8" and not (math.isfinite(np.vdot(stored, stored)) or np.isfinite(stored).all()):
            odd = batch[~np.isfinite(stored)].ravel()[0]
            raise self._refused(f"{odd} in an observation, expected finite numbers of float32")
        if spec.counts:
            self._check_one_hot(stored)
        return stored

    def _check_one_hot(self, stored: NDArray[Any]) -> None:
        groups = np.split(stored, np.cumsum(self.spec.counts)[:-1], axis=1)
        if ((stored != 0) & (stored != 1)).any() or any((group.sum(1) != 1).any() for group in groups):
            pairs = zip(self.spec.firsts, self.spec.counts, strict=True)
            limits = [f"{first} to {first + count - 1}" for first, count in pairs]
            raise self._refused(f"floats that are no one-hot vectors, expected integers from {', '.join(limits)}")

    def _refused(self, what: str) -> ValueError:
        return ValueError(f"part `{self.name}`: got {what}" if self.name else f"got {what}")


def _limits(spec: ArraySpec) -> tuple[int, int] | None:
    """Return the lowest and highest whole number that an element can be; None for floats and for discrete values."""
    dtype = spec.env_dtype or ("uint8" if spec.dtype == "uint8" else "float32")
    if spec.counts or np.dtype(dtype).kind == "f":
        return None
    if dtype == "bool":
        return 0, 1
    known = np.iinfo(dtype)
    return int(known.min), int(known.max)


def _is_single(spec: ArraySpec, shape: tuple[int, ...]) -> bool:
    """Return whether integers of this shape are one observation of a space of discrete values; else a batch.

    For descriptions without the environment's shape, and for flat arrays, it follows from the number of elements.
    """
    elements, known = len(spec.counts), spec.env_shape
    if known is not None and known in (shape, shape[1:]) and shape:
        return shape == known
    if elements == 1:
        return shape == ()
    one_row = len(shape) > 2 and shape[0] == 1  # a batch of one observation
    return shape[1:] != (elements,) and not one_row and (len(shape) == 1 or math.prod(shape) == elements)


def _masks(part: MaskPart, observation: Any, count: int, *, single: bool) -> NDArray[np.uint8]:
    """Return the masks of `count` observations, uint8 [count, actions]."""
    mask, actions = np.asarray(part.of(observation)), sum(part.choices)
    leading = 1 if single else len(mask) if mask.ndim else -1
    if mask.dtype.kind not in NUMBERS or leading != count or mask.size != count * actions:
        expected = f"{actions} zeros and ones" + ("" if single else f" for each of {count} observations")
        raise ValueError(f"got an action mask of {mask.dtype} {list(mask.shape)}, expected {expected}")
    rows = mask.reshape(count, actions)
    odd = rows[(rows != 0) & (rows != 1)]
    if odd.size:
        raise ValueError(f"got an action mask with {odd[0]} in it, expected 1 for allowed actions and 0 for others")
    masks = rows.astype(np.uint8)
    if fault := next(filter(None, map(part.fault, masks)), ""):
        raise ValueError(f"got {fault}")
    return masks


def _tree(paths: list[tuple[str | int, ...]]) -> Tree:
    """Return the keys of all paths as a tree."""
    tree: dict[str | int, Any] = {}
    for path in paths:
        inner = tree
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        if path:
            inner[path[-1]] = None
    return tree


def _check_tree(tree: Tree, unread: Tree, given: Any, above: tuple[str | int, ...]) -> None:
    """Raise ValueError, which names them, for missing parts and for parts that the space does not have.

    unread: parts that may be missing.
    """
    keys = _keys(tree, given, above)
    if missing := [key for key in tree if key not in keys]:
        raise ValueError(f"got an observation without its part {_listed(missing, above)}")
    if unknown := [key for key in keys if key not in tree and key not in unread]:
        raise ValueError(
            f"got an observation with the part {_listed(unknown, above)}, which the policy has not seen; "
            f"its parts are {_listed(tree, above)}"
        )
    for key, inner in tree.items():
        if inner is not None:
            _check_tree(inner, unread.get(key) or {}, given[key], (*above, key))


def _keys(tree: Tree, given: Any, above: tuple[str | int, ...]) -> list[Any]:
    """Return the keys of a dictionary, or the positions in a tuple. Raises ValueError for anything else."""
    if isinstance(given, Mapping):
        return list(given)
    if isinstance(given, tuple | list):
        return list(range(len(given)))
    kind = "a tuple of" if all(isinstance(key, int) for key in tree) else "a dictionary with"
    place = f"part `{_joined(above)}`: " if above else ""
    raise ValueError(f"{place}got {type(given).__name__}, expected {kind} the parts {_listed(tree, above)}")


def _listed(keys: Any, above: tuple[str | int, ...]) -> str:
    return ", ".join(f"`{_joined((*above, key))}`" for key in keys)


def _joined(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))
