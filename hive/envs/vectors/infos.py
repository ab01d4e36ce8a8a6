"""Writes chosen values of `info` at the ends of episodes into a row; NaN everywhere else.

A value is one number or boolean. An episode that ends without it has NaN, and does not count in the means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.envs.vectors.checks import Checks, as_array


class Infos:
    """The chosen `names`, the keys of `info` in the order of a row's columns."""

    __slots__ = ("_checks", "names")

    def __init__(self, checks: Checks, names: Sequence[str]) -> None:
        self._checks = checks
        self.names = names

    def write(self, ended: Mapping[int, Mapping[str, Any]], out: NDArray[np.float32]) -> None:
        """Write the values of the episodes that ended into `out` [B, K].

        ended: environment -> the `info` of the step that ended its episode. Raises EnvironmentFailed for a value that
        is not one number.
        """
        out.fill(np.nan)
        for index, info in ended.items():
            values = self.of_one(index, info)
            for column, name in enumerate(self.names):
                if name in values:
                    out[index, column] = values[name]

    def of_one(self, index: int, info: Any) -> dict[str, float]:
        """Return the values that the `info` of environment `index` has. Raises as `write`."""
        if not isinstance(info, Mapping):
            raise self._checks.violation(f"an info of type {type(info).__name__}, expected a dictionary", index)
        return {name: self._number(index, name, info[name]) for name in self.names if name in info}

    def of_vector(self, infos: Mapping[str, Any], index: int) -> dict[str, Any]:
        """Return the values of environment `index` in the `info` of a vectorized class: an array [B] for each key.

        Gymnasium marks the environments that have a key in a boolean array, the key of which begins with "_".
        """
        found = {}
        for name in self.names:
            if name in infos and np.all(np.asarray(infos.get(f"_{name}", True)).reshape(-1)[index:][:1]):
                found[name] = infos[name][index]
        return found

    def _number(self, index: int, name: str, value: Any) -> float:
        array = as_array(value)
        if array.size != 1 or array.dtype.kind not in "biuf":
            kind = f"an array of shape {array.shape}" if array.size != 1 else f"of type {type(value).__name__}"
            raise self._checks.violation(f"`{name}` in `info` that is {kind}, expected one number", index)
        return float(array.reshape(())[()])
