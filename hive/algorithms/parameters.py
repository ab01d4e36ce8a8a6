"""Changes one hyper-parameter of an algorithm, a learner, or another object with a table of [algorithm].

    update_parameter(algorithm, "entropy_weight", 0.02)     from the next loss on
    update_parameter(learner, "learning_rate", 1e-4)        from the next turn on

The value is validated as in a config file. Then the whole table is replaced, so a loss uses either the old table or the
new one, and derived values are recomputed. Keys that determine the shape of a run are refused (hive.config.live). The
function changes one object in this process; a caller with several objects calls it for each.
"""

from __future__ import annotations

from typing import Any, Protocol

from hive.config import AlgorithmConfig, with_parameter
from hive.errors import ConfigError

__all__ = ["Configured", "update_parameter"]


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
