"""Networks as a config describes them and a checkpoint keeps them: parameters from [network], arrays by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hive.config import NetworkConfig
from hive.errors import NetworkError, RecordError
from hive.networks.parameters import (
    HeadParameters,
    InputEmbedderParameters,
    MiddlewareParameters,
    NetworkParameters,
)

__all__ = ["copy_arrays", "load_module", "network_parameters"]


def network_parameters(
    network: NetworkConfig, learning_rate: float = 0.0, heads: Sequence[str] = ("policy", "value")
) -> NetworkParameters:
    """[network] of a config as Coach's NetworkParameters. Raises NetworkError for a class that cannot be loaded.

    heads: the names of what it ends in, as the algorithm asks for it.
    """
    parameters = NetworkParameters()
    parameters.middleware_parameters = MiddlewareParameters(list(network.middleware), network.activation)
    parameters.input_embedders_parameters = {"observation": InputEmbedderParameters()}
    parameters.use_separate_networks_per_head = network.separate_networks and len(heads) > 1
    parameters.normalize_observations = network.normalize_observations
    parameters.normalize_rewards = network.normalize_rewards
    parameters.learning_rate = learning_rate
    if network.module is not None:
        parameters.module = load_module(network.module)
    own = {"policy": network.policy_head, "value": network.value_head}
    for name, reference in own.items():
        if reference is not None and name not in heads:
            raise NetworkError(
                f"[network] {name}_head `{reference}` has no place: this algorithm has the heads {', '.join(heads)}",
                hint=f"leave {name}_head out, or bring a whole network as [network] module",
            )
    parameters.heads_parameters = [
        HeadParameters(name, cls=None if own.get(name) is None else load_module(str(own[name]), f"{name}_head"))
        for name in heads
    ]
    return parameters


def load_module(reference: str, key: str = "module") -> Callable[..., nn.Module]:
    """The class behind "package.module:Class", which a key of [network] names."""
    name, _, attribute = reference.partition(":")
    try:
        found: Any = getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError) as error:
        raise NetworkError(
            f"[network] {key} `{reference}` cannot be loaded: {error}",
            hint="it is looked up as package.module:Class on the Python path",
        ) from None
    if not callable(found):
        hint = f"it is called with {'the spaces' if key == 'module' else 'its HeadParameters and the action'}"
        raise NetworkError(f"[network] {key} `{reference}` is {found!r}, not a class", hint=hint)
    return found  # type: ignore[no-any-return]


def copy_arrays(given: Mapping[str, NDArray[Any]], own: Mapping[str, NDArray[Any]], place: str) -> None:
    """Overwrites every array of `own` with the one of its name. Raises RecordError where they do not fit."""
    for name, array in own.items():
        theirs = given.get(name)
        if theirs is None or theirs.shape != array.shape or theirs.dtype != array.dtype:
            found = "is not there" if theirs is None else f"is {theirs.dtype}{list(theirs.shape)}"
            raise RecordError(
                f"`{name}` of {place} {found}, this network has {array.dtype}{list(array.shape)}",
                hint="the weights need the same network, observations and actions",
            )
        np.copyto(array, theirs)
