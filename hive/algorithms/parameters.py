"""Hyper-parameters during a run: those that follow a schedule, and those that a user changes.

    update_parameter(algorithm, "entropy_weight", 0.02)     from the next loss on
    update_parameter(learner, "learning_rate", 1e-4)        from the next turn on

A new value is validated as in a config file. Then the whole table is replaced, so a loss uses either the old table or
the new one, and derived values are recomputed. Keys that determine the shape of a run are refused (hive.config.live).
`update_parameter` changes one object in this process; a caller with several objects calls it for each.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, NamedTuple, Protocol

from hive.config import AlgorithmConfig, Points, Schedule, with_parameter
from hive.errors import ConfigError


class Progress(NamedTuple):
    """How much of a run is done. share: of run.steps, 0 to 1. env_steps: environment steps since it began."""

    share: float
    env_steps: float


def scheduled(value: float, schedule: Schedule, progress: Progress) -> float:
    """Return the value of a hyper-parameter at this progress. value: that of its key, which points do not use.

    linear: value * (1 - share). cosine: value * (1 + cos(pi * share)) / 2, the schedule of Loshchilov and Hutter
    (2017, "SGDR") without restarts. Both end at 0. Points: linear between them, constant before the first and after the
    last.
    """
    if not isinstance(schedule, str):
        return _between(schedule, progress.env_steps)
    if schedule == "linear":
        return value * (1.0 - progress.share)
    if schedule == "cosine":
        return value * 0.5 * (1.0 + math.cos(math.pi * progress.share))
    return value


def is_steady(schedule: Schedule, env_steps: float) -> bool:
    """Return whether the scheduled value stays as it is from this number of environment steps on."""
    return schedule == "constant" if isinstance(schedule, str) else len(schedule) == 1 or env_steps >= schedule[-1][0]


def _between(points: Points, env_steps: float) -> float:
    number = bisect_right(points, env_steps, key=lambda point: point[0])  # index of the next point
    if number in (0, len(points)):
        return points[max(number - 1, 0)][1]
    (start, first), (end, last) = points[number - 1 : number + 1]
    return first + (last - first) * ((env_steps - start) / (end - start))


class Configured(Protocol):
    """Protocol of an object with a replaceable table of [algorithm]: the algorithms and the learner."""

    @property
    def config(self) -> AlgorithmConfig:
        """The current table."""

    def reconfigure(self, config: Any) -> None:
        """Use this table, of the same type, from now on."""


def update_parameter(algorithm: Configured, name: str, value: object) -> Any:
    """Set one typed hyper-parameter, `entropy_weight` or `algorithm.entropy_weight`, and return its previous value.

    It takes effect with the next loss, learning rate or clipping. Raises ConfigError, and changes nothing, for an
    unknown name, a value of another type or out of range, a key that is fixed for a run, and a user-defined algorithm
    without `config` and `reconfigure`.
    """
    if not (isinstance(getattr(algorithm, "config", None), AlgorithmConfig) and hasattr(algorithm, "reconfigure")):
        raise ConfigError(
            f"`{name}` of {type(algorithm).__name__} cannot be changed: it has no `config` and `reconfigure(config)`",
            hint="hive.algorithms.Configured documents the interface that a user-defined algorithm needs",
        )
    before = algorithm.config
    after = with_parameter(before, name, value)
    algorithm.reconfigure(after)
    return getattr(before, name.removeprefix("algorithm."))
