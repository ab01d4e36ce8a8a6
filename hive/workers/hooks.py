"""Update hooks: a function of a user's own that is shown every update, in the learner's process.

    [run] update_hook = "mine:watch"

    def watch(update: hive.workers.Update) -> dict[str, float]:
        return {"mine/weight_norm": float(np.linalg.norm(update.weights["policy.weight"]))}

What it takes is time of the learner, which its status page shows; what it returns goes into the metrics of its moment.
What it raises ends the learner like an error of its own. It sees weights and changes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

__all__ = ["Update", "UpdateHook"]


@dataclass(frozen=True)
class Update:
    """One update. `statistics` are the algorithm's means; `weights` read-only views, of now only, by name."""

    number: int
    env_steps: int
    mean_return_100: float  # NaN before the first episode
    gradient_norm: float
    learning_rate: float
    statistics: Mapping[str, float]
    weights: Mapping[str, NDArray[Any]]


UpdateHook: TypeAlias = Callable[[Update], Mapping[str, float] | None]
