"""A key of [algorithm] that changes while a run goes on: the same limits as in the file, and some keys are fixed.

A key that decides the shape of what lies in shared memory, or how many gradients are made of a round, says so where
it is declared (`fixed`). It changes no running thing; who does: hive.algorithms.parameters.
"""

from __future__ import annotations

import dataclasses

from hive.config.algorithms import AlgorithmConfig
from hive.config.keys import keys_of
from hive.config.values import SHOWN_LENGTH, closest, printable, shown
from hive.errors import ConfigError

__all__ = ["with_parameter"]


def with_parameter(config: AlgorithmConfig, name: str, value: object) -> AlgorithmConfig:
    """The same table of [algorithm] with another value of the key `name`, which may be `algorithm.NAME` too.

    Raises ConfigError for a name that this algorithm does not have, one that is fixed, and a value that the key does
    not take.
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
            hint="set it in the config of a new run, which may begin with this one's weights (run.init_from)",
        )
    if key.fault(value) is not None:
        raise ConfigError(f"{name}: expected {key.expected()}, got {shown(value)}", hint=f"{name} is {key.limits.doc}")
    return dataclasses.replace(config, **{name: key.convert(value)})
