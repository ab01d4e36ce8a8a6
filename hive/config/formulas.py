"""Defaults that follow other keys, so that no default excludes a value that a user gives.

A default that a formula has does not apply if the key is given. `Formula.value` is called with the default, that of the
scheme or of the key, and with the config in which it is the value; it returns what the default should be there. A value
that the user has to choose instead, because no default would fit, stays as it is, and the check of it reports an error.

A default of a scheme that has no formula and breaks a rule (hive.config.rules) with a key that is given is replaced by
the default of the key itself, unless it defines what the scheme is (hive.config.schemes.DEFINING).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hive.config.algorithms import ReplayConfig, is_ratio
from hive.config.keys import keys_of
from hive.config.schema import Config


@dataclass(frozen=True)
class Formula:
    """The default of the key `name`; see the module."""

    name: str
    value: Callable[[Any, Config], Any]


def _collectors(default: int, config: Config) -> int:
    """Return at least one collector for each host, and as many for each gradient worker that owns collectors."""
    least = max(default, len(config.collection.hosts))
    owners = max(config.gradients.workers, 1) if config.collection.ownership == "gradient_worker" else 1
    return -(-least // owners) * owners


def _gradient_workers(default: int, config: Config) -> int:
    """Return the most gradient workers that can own the same number of collectors, up to the default."""
    collectors = config.collection.workers
    if config.collection.ownership == "pool" or not collectors or not default:
        return default
    return next(workers for workers in range(default, 0, -1) if collectors % workers == 0)


def _updates_per_step(default: str, config: Config) -> str:
    """Return the nearest ratio that makes a whole number of updates, and at least one, of a round."""
    if not isinstance(config.algorithm, ReplayConfig):
        return default
    updates = Fraction(default) * _round_steps(config)
    if updates.denominator == 1:
        return default
    nearest = str(Fraction(max(round(updates), 1), _round_steps(config)))
    return nearest if is_ratio(nearest) else default


def _batch_size(default: int, config: Config) -> int:
    """Return the next multiple of the number of gradient workers, which share a batch."""
    workers = max(config.gradients.workers, 1)
    return -(-default // workers) * workers


def _learning_starts(default: int, config: Config) -> int:
    """Return a tenth of a run that would end before its first update, or 0 if that is too late as well."""
    size, steps = _round_steps(config), config.run.steps
    return next(starts for starts in (default, steps // 10, 0) if not starts or -(-starts // size) * size < steps)


def _exploration(name: str) -> Callable[[float, Config], float]:
    """Return the formula of a probability of random actions, which may be 0 where the noise of weights explores."""

    def value(default: float, config: Config) -> float:
        if default or config.network.noisy_deviation:
            return default
        table: type = type(config.algorithm)
        usual: float = keys_of(table)[name].default
        return usual

    return value


def _round_steps(config: Config) -> int:
    """Return the environment steps of a round."""
    return config.collectors * config.collection.envs * config.collection.rollout


FORMULAS = (
    Formula("collection.workers", _collectors),
    Formula("gradients.workers", _gradient_workers),
    Formula("algorithm.updates_per_step", _updates_per_step),
    Formula("algorithm.batch_size", _batch_size),
    Formula("algorithm.learning_starts", _learning_starts),
    *(Formula(f"algorithm.{name}", _exploration(name)) for name in ("exploration_start", "exploration_end")),
)
"""All formulas, in the order in which they are applied."""
