"""Gives declared spaces their meaning for a network: the scale of numbers, and which arrays are images.

Bounds decide, not dtypes or sizes. Integers with declared bounds are scaled: `low` becomes 0 and `high` becomes 1.
Bounds of more than 2^16 values stand for "any number" and declare nothing, in any dtype; nor do the limits of a signed
one, as of int8, which boards have for -1, 0 and 1, and those of uint16 but for images. Floats stay as they are.

An image is an array of three axes, or one of two axes whose declared bounds are 0 and 255. Of three axes, the first or
the last has the channels: the one without which the two others are more alike.

    8 x 8 x 111     last      84 x 96 x 3     last      7 x 7 x 7     last, as both leave a square
    111 x 8 x 8     first     4 x 84 x 84     first

`hive check` prints the result for each part, and env.images and env.scale_observations replace these rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

FIRST, LAST, ABSENT, NO_IMAGE = "first", "last", "absent", "none"
"""Where an array has the channels of an image: its first axis, its last, no axis (one channel); or it is no image."""

LARGEST_BOUND = 1e15
"""Bounds of floats beyond it stand for infinity: environments give 1e30, or the largest float, in its place."""

MOST_VALUES = 1 << 16
"""Bounds of integers with more values declare no scale: with it, small numbers would become one constant."""

EXACT = 1 << 24
"""float32 holds every whole number up to this one, and not all beyond it."""

Bounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""Numbers that become 0 and 1: one for all elements or one for each, flat; both empty: numbers stay as they are."""

PIXELS: Bounds = (0.0,), (255.0,)

MOST_STACKED, LEAST_SIDE, CHANNELS = 16, 16, (1, 3, 4)
"""Of stacked pictures: most pictures, least pixels of a side, and possible channels. Others are grids of their own."""

NUMBER_BYTES = 4
"""Bytes of a discrete value that is stored as a number, lowest byte first."""


def channels_of(shape: Sequence[int], bounds: Bounds) -> str:
    """Return FIRST, LAST or ABSENT for an image of this shape, NO_IMAGE for any other array."""
    if len(shape) == 2:
        return ABSENT if bounds == PIXELS else NO_IMAGE
    if len(shape) != 3:
        return NO_IMAGE
    first, middle, last = shape
    # The ratios of the sides that remain, compared without a division.
    if max(first, middle) * min(middle, last) <= max(middle, last) * min(first, middle):
        return LAST
    return FIRST


def stacked_pictures(shape: Sequence[int]) -> int:
    """Return how many pictures an array of four axes seems to stack, as wrappers of Gymnasium do; 0 for none.

    The first axis has them; of the other three, the first or last has one, three or four channels.
    """
    if len(shape) != 4 or shape[0] > MOST_STACKED:
        return 0
    first, middle, last = shape[1:]
    sides = (first, middle) if last in CHANNELS else (middle, last) if first in CHANNELS else (0, 0)
    return shape[0] if min(sides) >= LEAST_SIDE else 0


def declared_bounds(low: Sequence[float], high: Sequence[float], limits: tuple[float, float]) -> Bounds:
    """Return the bounds that integers are scaled by; both empty if no element declares any.

    low, high: those of each element, flat. limits: those of the dtype. An element that declares nothing gets 0 and 1,
    which leave it as it is. A constant element becomes 0.
    """
    elements = {
        pair: _range(*pair) if declares(*pair, limits) else (0.0, 1.0) for pair in set(zip(low, high, strict=True))
    }
    if all(found == (0.0, 1.0) for found in elements.values()):
        return (), ()
    if len(elements) == 1:
        ((first, second),) = elements.values()
        return (first,), (second,)
    found = [elements[pair] for pair in zip(low, high, strict=True)]
    return tuple(first for first, _ in found), tuple(second for _, second in found)


def declares(low: float, high: float, limits: tuple[float, float]) -> bool:
    """Whether the bounds of an integer say anything about its values. limits: those of its dtype."""
    at_limits = low <= limits[0], high >= limits[1]
    says_nothing = any(at_limits) if limits[0] < 0 else all(at_limits) and limits[1] > PIXELS[1][0]
    return not says_nothing and high - low < MOST_VALUES


def is_bound(value: float) -> bool:
    """Whether a bound of floats declares anything: it is neither infinite nor a number that stands for infinity."""
    return abs(value) < LARGEST_BOUND


def _range(low: float, high: float) -> tuple[float, float]:
    return (float(low), float(high)) if high > low else (float(low), float(low) + 1.0)


def is_within(part: str, names: Sequence[str]) -> bool:
    """Return whether one of the names is that of a part, or of a dictionary or tuple that the part is in."""
    return any(part == name or part.startswith(f"{name}.") for name in names)
