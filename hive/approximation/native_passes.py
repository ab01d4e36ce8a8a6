"""The native forward and backward pass of a model, for losses that compute their own gradients.

A model is a network of hive.networks, possibly inside modules that only choose its output or normalise its input. For
any other model, `outputs` returns None, and torch makes the passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.losses import Floats
from hive.networks.dense import Dense
from hive.networks.network import Network, NetworkPerHead
from hive.networks.normalization import NormalizedNetwork, Normalizer

__all__ = ["NativePasses", "native_passes"]


class NativePasses:
    """The passes of `network`, which has a `dense` attribute, or None. `normalizer`: maps its observations first."""

    def __init__(self, network: nn.Module | None, normalizer: Normalizer | None, *, single: bool) -> None:
        """single: whether the loss takes the only output of the network, and not a tuple of several."""
        self._network = network
        self._normalizer = normalizer
        self._single = single

    def outputs(self, inputs: Any) -> tuple[Floats, ...] | None:
        """Return the outputs of the network for these inputs, and keep what `differentiate` needs, or return None."""
        dense: Dense | None = getattr(self._network, "dense", None)
        if dense is None:
            return None
        found = dense.outputs(inputs if self._normalizer is None else self._normalizer(inputs))
        return None if found is None or (self._single and len(found) != 1) else found

    def evaluate(self, inputs: Any) -> Any:
        """Return what the model returns for rows of observations, without a graph; None if torch makes the pass."""
        dense: Dense | None = getattr(self._network, "dense", None)
        if dense is None or not isinstance(inputs, Tensor):
            return None
        found = dense.outputs(inputs if self._normalizer is None else self._normalizer(inputs), keep=False)
        if found is None or (self._single and len(found) != 1):
            return None
        tensors = tuple(map(torch.from_numpy, found))
        return tensors[0] if self._single else tensors

    def differentiate(self, slopes: Sequence[Floats], gradient: Floats) -> NDArray[np.uint8]:
        """Write the gradient of the weights from those of the last outputs; see hive.networks.dense."""
        dense: Dense = self._network.dense  # type: ignore[union-attr, assignment]
        return dense.differentiate(slopes, gradient)


def native_passes(model: nn.Module) -> NativePasses:
    """Return the passes of a model."""
    network, normalizer, single = model, None, False
    while True:
        if isinstance(network, NormalizedNetwork) and type(network.normalizer) in (Normalizer, type(None)):
            normalizer, network = network.normalizer, network.network
        elif (inner := getattr(network, "computes_as", None)) is not None:
            network, single = inner, True
        else:
            known = isinstance(network, Network | NetworkPerHead)
            return NativePasses(network if known else None, normalizer, single=single)
