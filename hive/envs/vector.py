"""B environments as one thing: what a collector steps.

There are two kinds, which write the same rows (`hive.envs.rows`) with the same meaning: `PythonVector` steps
B single environments in a loop, `NativeVector` calls an environment's own vectorised class. Which is faster
depends on the environment; only the second has steps that are not valid.

Nothing here runs in parallel: hive's parallelism is collectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from hive.envs.make import make_environment, make_native, takes_native
from hive.envs.native_vector import NativeVector
from hive.envs.python_vector import PythonVector
from hive.envs.rows import StepRow

__all__ = ["VectorEnvironment", "make_vector"]


class VectorEnvironment(Protocol):
    """`count` environments, stepped together, each reset by itself when its episode ends.

    Whatever an environment does wrong raises EnvironmentFailed, with its number and the step: permanent
    where it broke its spaces or returned NaN, not permanent where it raised. The row is then half written
    and of no use.
    """

    count: int

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        """Starts an episode in every environment and writes the first observations [B, ...].

        The same `seeds` [B] give the same trajectories for the same actions, if the environment draws only
        from its own generator. Open episodes are dropped, uncounted.
        """

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        """Steps every environment with `actions` [B, ...] as the action spec stores them; writes `row`."""

    def close(self) -> None:
        """Frees what the environments hold."""


def make_vector(id: str, options: Mapping[str, Any], count: int, kind: str = "auto") -> VectorEnvironment:
    """`count` environments of one id, each built with `options`.

    `kind` is "python", "native", or "auto": native where the environment exists only as a vectorised class.
    Raises EnvironmentMissing, EnvironmentFailed, or ConfigError for "native" where there is no such class.
    """
    if takes_native(id, kind):
        return NativeVector(id, make_native(id, options, count))
    return PythonVector(id, [make_environment(id, options) for _ in range(count)])
