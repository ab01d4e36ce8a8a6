"""Update hooks are user-defined functions that are called with every update, in the learner's process.

    [run] update_hook = "mine:watch"

    def watch(update: hive.Update) -> dict[str, float]:
        return {"mine/weight_norm": float(np.linalg.norm(update.weights["policy.weight"]))}

The learner waits for the hook, and its status page shows the time spent. The returned numbers are added to the next
metrics. An exception in the hook ends the learner. The weights are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

__all__ = ["Update", "UpdateHook"]


@dataclass(frozen=True)
class Update:
    """One update, as passed to a hook."""

    number: int  # updates so far
    env_steps: int
    mean_return_100: float  # mean of the last 100 returns; NaN before the first episode
    gradient_norm: float  # L2 norm before clipping
    learning_rate: float
    statistics: Mapping[str, float]  # the algorithm's statistics, means over the update's samples
    weights: Mapping[str, NDArray[Any]]  # read-only views by parameter name, valid during the call only


UpdateHook: TypeAlias = Callable[[Update], Mapping[str, float] | None]
