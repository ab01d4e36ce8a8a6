"""Networks from a config and from a checkpoint: parameters from [network], weights copied by name."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hive.config import NetworkConfig, module_of, why_not_found
from hive.config.references import calls_user_code
from hive.errors import NetworkError, RecordError, TopologyError
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.product import distribution_for
from hive.networks.build.agents import AGENT_PARTS
from hive.networks.build.parameters import (
    GRUMiddlewareParameters,
    HeadParameters,
    InputEmbedderParameters,
    LSTMMiddlewareParameters,
    MiddlewareParameters,
    NetworkParameters,
    PolicyHeadParameters,
)
from hive.networks.build.spaces import ActionSpec
from hive.runtime.process.user_code.setup import set_up

GAINS = {
    "policy": "policy_gain",
    "squashed_policy": "policy_gain",
    "deterministic_policy": "policy_gain",
    "value": "value_gain",
    "q": "value_gain",
    "dueling_q": "value_gain",
    "critic": "value_gain",
}
"""Head -> the key of [network] that is the gain of its last layer; other heads keep the gain of their class."""

DEVIATIONS = ("action_distribution", "action_deviation", "initial_deviation")
"""Keys of [network] that only a `policy` head has."""


def network_parameters(
    network: NetworkConfig, learning_rate: float = 0.0, heads: Sequence[str | HeadParameters] = ("policy", "value")
) -> NetworkParameters:
    """Return [network] of a config as Coach's NetworkParameters.

    heads: the heads that the algorithm needs: names, or parameters that are not in [network]. In an agent of several
        networks these are the heads of the actor, "critic" for each critic, and "temperature"
        (hive.networks.build.agents).

    Raises NetworkError for a class that cannot be loaded, and for a custom head or another setting of a head that the
    algorithm does not have.
    """
    parameters = NetworkParameters()
    layer_norm = network.layer_norm
    parameters.middleware_parameters = _middleware_parameters(network, network.middleware)
    if network.value_middleware is not None:
        parameters.value_middleware_parameters = _middleware_parameters(network, network.value_middleware)
    parameters.input_embedders_parameters = {"observation": InputEmbedderParameters(layer_norm=layer_norm)}
    own = [head for head in heads if head not in AGENT_PARTS]
    parameters.use_separate_networks_per_head = network.separate_networks and len(own) > 1
    parameters.normalize_observations = network.normalize_observations
    parameters.normalize_rewards = network.normalize_rewards
    parameters.novelty = network.novelty_weight > 0
    parameters.initialization = network.initialization
    parameters.hidden_gain = network.hidden_gain
    parameters.noisy_deviation = network.noisy_deviation
    parameters.backend = network.backend  # type: ignore[assignment]  # the config has checked it
    parameters.precision = network.precision  # type: ignore[assignment]  # likewise
    parameters.learning_rate = learning_rate
    parameters.frozen = network.frozen
    parameters.critic_parts = network.critic_parts
    if network.module is not None:
        parameters.module = load_module(network.module)
    if network.extractor is not None:
        parameters.extractor = _extractor(network.extractor, network.extractor_options)
    _refuse_unused(network, [head if isinstance(head, str) else head.name for head in heads])
    parameters.heads_parameters = [_head_parameters(network, head) for head in own]
    if "critic" in heads:
        parameters.critics = list(heads).count("critic")
        parameters.critic_gain = network.value_gain
        parameters.temperature = "temperature" in heads
    return parameters


def _extractor(reference: str, options: Mapping[str, Any]) -> Callable[..., nn.Module]:
    """Return the class with its options. Raises NetworkError for options that it does not take."""
    make = load_module(reference, "extractor")
    with contextlib.suppress(ValueError):  # a class of an extension module may have no signature
        try:
            inspect.signature(make).bind(None, **options)
        except TypeError as error:
            given = ", ".join(["spaces", *(f"{name}={value!r}" for name, value in options.items())])
            raise NetworkError(
                f"[network] extractor `{reference}` cannot be called with ({given}): {error}",
                hint="it is called with the spaces, and with network.extractor_options as keyword arguments",
            ) from None
    return functools.partial(make, **options)


def _middleware_parameters(network: NetworkConfig, widths: Sequence[int]) -> MiddlewareParameters:
    """Return dense layers of these widths, and the cell before them if the network has a memory."""
    dense: Any = {
        "widths": list(widths),
        "activation": network.activation,
        "layer_norm": network.layer_norm,
    }
    after = {**dense, "dense_last": True}
    match network.memory:
        case "lstm":
            return LSTMMiddlewareParameters(**after, number_of_lstm_cells=network.memory_size)
        case "gru":
            return GRUMiddlewareParameters(**after, number_of_gru_cells=network.memory_size)
    return MiddlewareParameters(**dense)


def _refuse_unused(network: NetworkConfig, heads: Sequence[str]) -> None:
    """Raise NetworkError for a key with another value than its default that belongs to a head not in `heads`."""
    owners = {"policy_head": ["policy"], "value_head": ["value"], **{key: ["policy"] for key in DEVIATIONS}}
    owners["value_middleware"] = ["value", "critic"]
    owners |= {gain: [head for head, key in GAINS.items() if key == gain] for gain in GAINS.values()}
    usual = NetworkConfig()
    for key, users in owners.items():
        value = getattr(network, key)
        if value != getattr(usual, key) and not set(users) & set(heads):
            instead = ", or set [network] module to a whole network" if key.endswith("_head") else ""
            raise NetworkError(
                f"[network] {key} `{value}` is not used: this algorithm has the heads {', '.join(heads)}",
                hint=f"leave {key} out{instead}",
            )


def _head_parameters(network: NetworkConfig, head: str | HeadParameters) -> HeadParameters:
    name = head if isinstance(head, str) else head.name
    reference = {"policy": network.policy_head, "value": network.value_head}.get(name)
    if reference is not None:
        return HeadParameters(name, cls=load_module(reference, f"{name}_head"))
    gain = getattr(network, GAINS[name]) if name in GAINS else None
    if not isinstance(head, str):
        return dataclasses.replace(head, gain=gain) if gain is not None else head
    if name != "policy":
        return HeadParameters(name, gain=gain)
    deviations = {key: getattr(network, key) for key in DEVIATIONS}
    return PolicyHeadParameters(name, gain=gain, features=_features(network), **deviations)


def configured_distribution(
    network: NetworkConfig, action: ActionSpec, *, squashed: bool = False
) -> ActionDistribution:
    """Return the distribution of an action that [network] of a config chooses. Raises what `distribution_for` does.

    squashed: whether the algorithm needs box actions that are squashed into their bounds, whatever [network] chooses.
    """
    box = "squashed" if squashed else network.action_distribution
    return distribution_for(action, box, features=_features(network), noise_steps=network.noise_steps)


def _features(network: NetworkConfig) -> int:
    """Return the width of the last layer before the policy head if its noise depends on it, otherwise 0."""
    return network.middleware[-1] if network.action_distribution == "gsde" and network.middleware else 0


@calls_user_code("network.module")
def load_module(reference: str, key: str = "module") -> Callable[..., nn.Module]:
    """Import and return the class or function "package.module:Class" or "file.py:Class" of a [network] key.

    Raises NetworkError if it cannot be imported or is not callable.
    """
    set_up()
    name, _, attribute = reference.rpartition(":")
    try:
        module = module_of(name) if name.endswith(".py") else importlib.import_module(name)
        found: Any = getattr(module, attribute)
    except (ImportError, AttributeError, TopologyError) as error:
        clause, hint = why_not_found(reference)
        raise NetworkError(
            f"[network] {key} `{reference}` cannot be loaded: {clause or error}",
            hint=hint or "it is looked up as package.module:Class on the Python path",
        ) from None
    if not callable(found):
        hint = f"it is called with {'its HeadParameters and the action' if 'head' in key else 'the spaces'}"
        raise NetworkError(f"[network] {key} `{reference}` is {found!r}, not a class", hint=hint)
    return found  # type: ignore[no-any-return]


def copy_arrays(given: Mapping[str, NDArray[Any]], own: Mapping[str, NDArray[Any]], place: str) -> None:
    """Copy into every array of `own` the array of that name in `given`.

    place: the origin of `given`, for messages. Raises RecordError as `check_arrays` does, before any is copied.
    """
    check_arrays(given, own, place)
    for name, array in own.items():
        np.copyto(array, given[name])


def check_arrays(given: Mapping[str, NDArray[Any]], own: Mapping[str, NDArray[Any]], place: str) -> None:
    """Raise RecordError if `given` lacks an array of `own`, or has it in another shape or dtype."""
    for name, array in own.items():
        theirs = given.get(name)
        if theirs is None or theirs.shape != array.shape or theirs.dtype != array.dtype:
            found = "is missing" if theirs is None else f"is {theirs.dtype}{list(theirs.shape)}"
            raise RecordError(
                f"`{name}` of {place} {found}, this network has {array.dtype}{list(array.shape)}",
                hint=_way_to_fit(given, own) or "weights fit only the same network, observations and actions",
            )


STATISTICS = {"normalizer": "network.normalize_observations", "reward_normalizer": "network.normalize_rewards"}
"""Module that holds statistics -> the key of the config that adds it to the network."""


def _way_to_fit(given: Iterable[str], own: Iterable[str]) -> str:
    """Return a hint if only one of two networks, by the names of their arrays, normalizes; otherwise ""."""
    theirs, ours = (
        {STATISTICS[module] for name in names if (module := name.split(".")[-2:][0]) in STATISTICS}
        for names in (given, own)
    )
    words = [f"{key} = {'true' if key in theirs else 'false'}" for key in sorted(theirs ^ ours)]
    return f"the network with these weights has {' and '.join(words)}" if words else ""
