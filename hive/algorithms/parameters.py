"""Live change of one hyper-parameter: of an algorithm, of a learner, of whatever keeps a table of [algorithm].

    update_parameter(algorithm, "entropy_weight", 0.02)     the next loss has it
    update_parameter(learner, "learning_rate", 1e-4)        the next turn steps by it

The value is checked against the key as in a config file, then the whole table is exchanged, so that a loss sees the
old table or the new one and what is derived from it follows. Keys that decide the shape of a run are refused
(hive.config.live). It knows no processes: whoever owns several such objects tells each of them.
"""

from __future__ import annotations

from typing import Any, Protocol

from hive.config import AlgorithmConfig, with_parameter
from hive.errors import ConfigError

__all__ = ["Configured", "update_parameter"]


class Configured(Protocol):
    """What works by a table of [algorithm] and can exchange it: the algorithms, and the learner."""

    @property
    def config(self) -> AlgorithmConfig:
        """The table it works by."""

    def reconfigure(self, config: Any) -> None:
        """Works by this table of the same type from now on."""


def update_parameter(algorithm: Configured, name: str, value: object) -> Any:
    """Sets one typed hyper-parameter, `entropy_weight` or `algorithm.entropy_weight`; returns the value before.

    It holds from the next loss, learning rate or clipping on. Raises ConfigError, and changes nothing, for a name that
    the algorithm does not have, a value of another type or out of range, a key that is fixed for a run, and an
    algorithm of one's own without `config` and `reconfigure`.
    """
    if not (isinstance(getattr(algorithm, "config", None), AlgorithmConfig) and hasattr(algorithm, "reconfigure")):
        raise ConfigError(
            f"{type(algorithm).__name__} takes no change of `{name}`: it has no `config` with a `reconfigure(config)`",
            hint="hive.algorithms.Configured says what an algorithm of your own needs for it",
        )
    before = algorithm.config
    after = with_parameter(before, name, value)
    algorithm.reconfigure(after)
    return getattr(before, name.removeprefix("algorithm."))
