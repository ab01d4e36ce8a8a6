"""Checks a change to a key of [algorithm] during a run: the limits for a config file apply, and some keys are fixed.

A key is fixed if it determines the layout of shared memory or the number of gradients in a round; its declaration gives
the reason (`fixed`). This module only returns a new table; hive.algorithms.parameters applies it to running objects.
"""

from __future__ import annotations

import dataclasses

from hive.config.algorithms import AlgorithmConfig, unused_keys
from hive.config.keys import keys_of
from hive.config.points import SCHEDULE
from hive.config.values import SHOWN_LENGTH, closest
from hive.errors import ConfigError
from hive.printable import printable


def with_parameter(config: AlgorithmConfig, name: str, value: object) -> AlgorithmConfig:
    """Return a copy of the [algorithm] table in which the key `name` (also `algorithm.NAME`) has another value.

    Raises ConfigError if this algorithm has no such key, if the key is fixed or points of its schedule give its values,
    and if the value is not allowed.
    """
    given, name = name, name.removeprefix("algorithm.")
    table: type = type(config)
    keys = keys_of(table)
    if name not in keys:
        free = [known for known, key in keys.items() if not key.limits.fixed]
        near = closest(name, free)
        raise ConfigError(
            f"{config.name} has no parameter `{printable(given, SHOWN_LENGTH)}`",
            hint=f"did you mean `{near}`?" if near else f"it has {', '.join(free)}",
        )
    key = keys[name]
    if key.limits.fixed:
        raise ConfigError(
            f"`{name}` is fixed for a run: {key.limits.fixed}",
            hint="set it in the config of a new run, which can start with this run's weights (run.init_from)",
        )
    if name in unused_keys(config):
        raise ConfigError(
            f"`{name}` has no effect: the points of {name}{SCHEDULE} give its values",
            hint=f'change {name}{SCHEDULE}, or set it to "constant" first',
        )
    if (fault := key.fault(value)) is not None:
        raise ConfigError(f"{name}: {key.message(value, fault)}", hint=f"{name}: {key.limits.doc}")
    return dataclasses.replace(config, **{name: key.convert(value)})
