"""Several predictions in one call.

Several inputs of one network form one batch, whose outputs are split afterwards. Networks with different weights are
called one after the other. A batched matrix product over their stacked weights (`torch.func.vmap`) would be a single
call, but stacking the weights and vmap itself cost more than they save: for four networks of two layers and 16 rows
1.0 ms instead of 0.45 (64 wide), 3.5 instead of 1.9 (512 wide). Outputs of the same rows in a larger batch may differ
in the last bit, because the kernels of a matrix product depend on its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hive.compat.coach.architecture import Architecture, Array, Inputs
from hive.errors import NetworkError


def predict_in_parallel(network_input_tuples: Sequence[tuple[Architecture, Inputs]]) -> tuple[Array, ...]:
    """Return the outputs of every pair as one flat tuple, in order; see `Architecture.parallel_predict`.

    A network may appear several times. Pairs of one network share a call if its rows do not depend on each other
    and the inputs have the same names and, except for the number of rows, the same shapes.

    Raises NetworkError for an entry that is not a pair, and as `Architecture.predict`.
    """
    pairs = list(network_input_tuples)
    results: dict[int, tuple[Array, ...]] = {}
    for indices in _calls(pairs):
        network, inputs = pairs[indices[0]][0], [pairs[index][1] for index in indices]
        results.update(zip(indices, _outputs(network, inputs), strict=True))
    return tuple(output for index in range(len(pairs)) for output in results[index])


def _calls(pairs: Sequence[tuple[Architecture, Inputs]]) -> list[list[int]]:
    """Return the positions of the pairs that share a call, for each call."""
    calls: dict[Any, list[int]] = {}
    for index, pair in enumerate(pairs):
        is_pair = isinstance(pair, Sequence) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], Architecture) or not isinstance(pair[1], Mapping):
            raise NetworkError(f"entry {index} is not a pair of a network and its inputs")
        calls.setdefault(_key(*pair, index), []).append(index)
    return list(calls.values())


def _outputs(network: Architecture, inputs: Sequence[Inputs]) -> list[tuple[Array, ...]]:
    """Return the outputs for each of the inputs, of one call with the rows of all of them."""
    if len(inputs) == 1:
        return [network.predict(inputs[0], squeeze_output=False)]
    ends = np.cumsum([_rows(part) for part in inputs])[:-1]
    batch = {name: np.concatenate([part[name] for part in inputs]) for name in inputs[0]}
    split = [np.split(output, ends) for output in network.predict(batch, squeeze_output=False)]
    return list(zip(*split, strict=True))


def _key(network: Architecture, inputs: Inputs, index: int) -> Any:
    """Return a key that is equal for pairs that may share a call."""
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    if not getattr(network, "rows_are_independent", False) or not _even(arrays):
        return index
    return id(network), tuple((name, array.dtype.str, array.shape[1:]) for name, array in sorted(arrays.items()))


def _even(arrays: Mapping[str, Array]) -> bool:
    """Return whether all arrays have the same number of rows. If not, `predict` refuses them in a separate call."""
    return len({array.shape[:1] for array in arrays.values()}) == 1 and all(array.ndim for array in arrays.values())


def _rows(inputs: Inputs) -> int:
    return len(next(iter(inputs.values())))
