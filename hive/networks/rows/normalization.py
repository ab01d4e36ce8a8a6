"""Normalization of observations and rewards, with statistics stored in the network.

    gradient worker     add_rows(...)        count, means and sums of squared distances of a round's rows
    learner             merge(...)           adds them, worker after worker, to those of the previous version
    any forward pass    NormalizedNetwork    clip((observation - shift) * scale)
    gradient worker     clipped_rewards(...) clip(reward * scale), before any loss

With a replay memory, whose rows are raw and are used by many versions:

    learner             add_rows(...)        adds the rows of a rollout to the sums of the ledger when it admits them
    learner             replace(...)         sets those of a version to the ledger's
    gradient worker     Scales               normalizes rows as they are gathered, by the statistics of its version

Rewards keep their mean. They are divided by the deviation of their discounted sum since the episode began, as in
Stable-Baselines3's VecNormalize and OpenAI's Baselines.

The statistics are buffers of the network, so they lie in the block of its version. Weights of version v are therefore
always used with the statistics of version v, and a checkpoint contains them. A forward pass changes none of them. All
sums are float64 in a fixed order, so merging the same round gives bit-identical results in every process.

Sums of several parts: Chan, Golub and LeVeque 1979. Clipping at 10 deviations and 1e-8 in the root, as in OpenAI's
Baselines and Stable-Baselines3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.networks.build.spaces import InputSpec
from hive.networks.rows.inputs import state_width_of, with_observation
from hive.networks.rows.packed import PackedSpec, views_of
from hive.networks.weights.flat import FlatLayout

OBSERVATIONS = "normalizer."
MOMENTS_OF = {
    "observed": (OBSERVATIONS, "novelty.normalizer."),
    "rewarded": ("reward_normalizer.",),
    "novelty": ("novelty.spread.",),
}
"""Moments in a gradient's slot -> prefixes of the names of the network's buffers that they are added to."""

LIMIT = 10.0  # greatest distance from the mean, in deviations
CHUNK = 1 << 22  # elements that are converted to float64 at once: 32 MiB
EPSILON = 1e-8  # added to the variance, so that an element that never changes becomes 0 instead of 0 / 0

SAME_VALUE = 0.01  # in deviations of other data: what varies less in all elements is one value to a network
MANY_BEYOND = 0.05  # share of the values of an element; hardly any are of data with the same scale

NOTHING = np.zeros(0, np.float32)

RunningMoments = NDArray[np.float64]
"""[1 + 2 n]: the count of rows, then the n means, then the n sums of squared distances from them."""


class Normalizer(nn.Module):
    """Maps numbers [N, *shape] to normalized ones, float32 of the same shape, at most `limit` deviations from 0.

    Buffers: `seen`, the moments of all observations, float64 [1 + 2 n]; `shift` and `scale`, which are computed from
    them, float32 [*shape].
    """

    seen: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], limit: float = LIMIT) -> None:
        super().__init__()
        self._limit = limit
        self.register_buffer("seen", torch.zeros(1 + 2 * prod(shape), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(tuple(shape)))
        self.register_buffer("scale", torch.ones(tuple(shape)))

    def forward(self, observations: Tensor) -> Tensor:
        return observations.sub(self.shift).mul_(self.scale).clamp_(-self._limit, self._limit)


class PackedNormalizer(Normalizer):
    """Normalizes the numbers with which rows of bytes begin, float32 [N, floats]; returns them and the rows.

    rows: uint8 [N, bytes], or the pair that `numbers_and_bytes` returns.
    """

    def forward(self, rows: Tensor | tuple[Tensor, Tensor]) -> Any:
        numbers, whole = views_of(rows, self.shift.shape[0])
        return super().forward(numbers), whole


class Scales(NamedTuple):
    """Normalizes stored rows: the numbers of an observation by `shift` and `scale`, rewards by `reward`.

    shift, scale: float32 [n] for the n numbers that an observation begins with; [0]: observations stay as they are.
    reward: 0: rewards stay as they are. `Scales()` leaves everything as it is.
    """

    shift: NDArray[np.float32] = NOTHING
    scale: NDArray[np.float32] = NOTHING
    reward: float = 0.0


class NormalizedNetwork(nn.Module):
    """Holds statistics of observations and of rewards, and novelty; calls `network` with normalized observations.

    Observations are float32 [N, *shape], or rows of bytes, of which the numbers are normalized; alone or among the
    inputs of a recurrent network. observation: None if they are not normalized. One that is all bytes never
    is: bytes are scaled by their bounds. rewards: whether there are statistics of rewards. novelty: the module of
    hive.networks.rows.novelty, which only gradient workers call.
    """

    def __init__(
        self,
        observation: InputSpec | None,
        network: nn.Module,
        rewards: bool = False,
        novelty: nn.Module | None = None,
    ) -> None:
        super().__init__()
        packed = observation if isinstance(observation, PackedSpec) and observation.parts else None
        self.normalizer: Normalizer | None = None
        if observation is not None and (packed.floats if packed else observation.dtype == "float32"):
            self.normalizer = PackedNormalizer([packed.floats]) if packed else Normalizer(observation.shape)
        self.reward_normalizer = Normalizer(()) if rewards else None
        self.novelty = novelty
        self.network = network
        self.state_width = state_width_of(network)
        self.parameter_groups = tuple(f"network.{name}" for name in getattr(network, "parameter_groups", ()))

    def forward(self, inputs: Any) -> Any:
        return self.network(inputs if self.normalizer is None else with_observation(inputs, self.normalizer))

    def scales(self) -> Scales | None:
        """Return what normalizes stored rows by the bound statistics; None before they count a row."""
        found = Scales()
        if self.normalizer is not None:
            if not self.normalizer.seen[0]:
                return None
            buffers = self.normalizer.shift, self.normalizer.scale
            shift, scale = (buffer.cpu().numpy().reshape(-1) for buffer in buffers)
            found = Scales(shift, scale)
        if self.reward_normalizer is not None:
            if not self.reward_normalizer.seen[0]:
                return None
            found = found._replace(reward=self.reward_normalizer.scale.item())
        return found


def statistic_places(flat: FlatLayout) -> dict[str, dict[str, int]]:
    """Return where the statistics of a NormalizedNetwork lie in a block of this layout, in bytes.

    "observed" and "rewarded", if there are, have the places of the buffers `seen`, `shift` and `scale`, and `numbers`,
    the elements of the last two.
    """
    fields = {field.name: field for field in flat.buffers}
    prefixes = {name: MOMENTS_OF[name][0] for name in ("observed", "rewarded")}
    return {
        name: {
            **{buffer: fields[f"{prefix}{buffer}"].offset for buffer in ("seen", "shift", "scale")},
            "numbers": fields[f"{prefix}scale"].nbytes // 4,
        }
        for name, prefix in prefixes.items()
        if f"{prefix}seen" in fields
    }


def observed_elements(shape: Sequence[int]) -> int:
    """Return the length of the moments of rows of this shape, 1 + 2 n."""
    return 1 + 2 * prod(shape)


def add_rows(rows: NDArray[Any], out: RunningMoments) -> None:
    """Add rows [N, ...] to the moments `out`, float64 [1 + 2 n], in place."""
    rows = rows.reshape(len(rows), len(out) // 2)
    step = max(1, CHUNK // max(1, rows.shape[1]))
    for some in (rows[start : start + step] for start in range(0, len(rows), step)):
        values = some.astype(np.float64)
        mean = values.mean(0)
        values -= mean
        values *= values
        # NumPy sums over the first axis row after row, so the bits do not depend on the alignment of the memory.
        add_moments(np.concatenate(([len(some)], mean, values.sum(0))), out)


def other_scale(rows: NDArray[Any], seen: RunningMoments) -> str:
    """Return how numbers [N, ...] differ from the scale of the moments `seen`, if little is left of them; else "".

    They vary less than SAME_VALUE deviations in every element, or many lie beyond LIMIT deviations in one.
    """
    count, elements = seen[0], len(seen) // 2
    if not count or len(rows) < 2:
        return ""
    deviation = np.sqrt(seen[1 + elements :] / count + EPSILON)
    distance = (rows.reshape(len(rows), elements).astype(np.float64) - seen[1 : 1 + elements]) / deviation
    most = float(distance.std(0).max())
    if most < SAME_VALUE:
        return f"no observation differs from others by more than {most:.2g} of their deviations"
    beyond = float((np.abs(distance) > LIMIT).mean(0).max())
    return f"{beyond:.0%} of the values of an element lie beyond {LIMIT:g} of their deviations" * (beyond > MANY_BEYOND)


def reward_scale(seen: RunningMoments, own: RunningMoments) -> np.float32 | None:
    """Return 1 / the deviation of the discounted sums counted in `seen`, by which rewards are multiplied.

    own: the moments of the discounted sums of these rewards, used while `seen` is empty, in the first rounds. None
    before the first.
    """
    moments = seen if seen[0] else own
    return scale_of(moments) if moments[0] else None


def clipped_rewards(rewards: NDArray[np.float32], scale: np.float32, limit: float = LIMIT) -> NDArray[np.float32]:
    """Return rewards times `scale`, clipped to +-limit."""
    scaled: NDArray[np.float32] = np.clip(rewards * scale, -limit, limit, dtype=np.float32)
    return scaled


def count_clipped(rewards: NDArray[np.float32], scale: np.float32, limit: float, out: NDArray[np.float64]) -> None:
    """Add to `out` [4]: the rewards [N], those that are clipped, the sizes of the others, and of these before it."""
    sizes = np.abs(rewards.astype(np.float64) * scale)
    is_clipped = sizes > limit
    count, whole = int(is_clipped.sum()), float(sizes.sum())
    cut = float(sizes[is_clipped].sum()) if count else 0.0
    out += len(sizes), count, whole - cut, cut


def scale_of(moments: RunningMoments) -> np.float32:
    """Return 1 / the deviation of a single number, whose moments are float64 [3] and count at least one row."""
    return np.float32(1.0 / np.sqrt(moments[2] / moments[0] + EPSILON))


def merge(parts: Sequence[RunningMoments], buffers: Mapping[str, NDArray[Any]], prefix: str = OBSERVATIONS) -> None:
    """Add moments, in this order, to the buffers of a Normalizer, and update `shift` and `scale`, in place.

    parts: each float64 [1 + 2 n]. buffers: arrays of a block, named as in a NormalizedNetwork. prefix: that of the
    Normalizer's names, one of MOMENTS_OF.
    """
    seen: RunningMoments = buffers[f"{prefix}seen"]
    parts = [part for part in parts if part[0]]
    for part in parts:
        add_moments(part, seen)
    if parts:
        _rescale(buffers, prefix)


def replace(moments: RunningMoments, buffers: Mapping[str, NDArray[Any]], prefix: str = OBSERVATIONS) -> None:
    """Set the buffers of a Normalizer to these moments of all rows; without a row or a new one they stay as they are.

    Arguments: see `merge`.
    """
    seen: RunningMoments = buffers[f"{prefix}seen"]
    if moments[0] and moments[0] != seen[0]:
        seen[:] = moments
        _rescale(buffers, prefix)


def _rescale(buffers: Mapping[str, NDArray[Any]], prefix: str) -> None:
    """Set `shift` and `scale` to those of `seen`, which counts at least one row."""
    seen: RunningMoments = buffers[f"{prefix}seen"]
    count, elements = seen[0], len(seen) // 2
    shift, scale = (buffers[f"{prefix}{name}"] for name in ("shift", "scale"))
    with np.errstate(over="ignore"):  # a mean beyond float32 becomes infinite, and the next loss is not finite
        shift[...] = seen[1 : 1 + elements].reshape(shift.shape)
    scale[...] = (1.0 / np.sqrt(seen[1 + elements :] / count + EPSILON)).reshape(scale.shape)


def add_moments(part: RunningMoments, total: RunningMoments) -> None:
    """Add `part`, which has at least one row, to `total` in place."""
    elements = len(part) // 2
    before, more = total[0], part[0]
    count = before + more
    distance = part[1 : 1 + elements] - total[1 : 1 + elements]
    total[0] = count
    total[1 : 1 + elements] += distance * (more / count)
    total[1 + elements :] += part[1 + elements :] + distance * distance * (before * more / count)
