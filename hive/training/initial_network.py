"""The network of a run before its first update: its parameters, a sketch without memory, and its initial weights."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from hive.config import Config, is_reference
from hive.config.algorithms import ActorCriticConfig
from hive.envs import seed_globals
from hive.errors import MemoryShort, NetworkError
from hive.experience import Purpose, stream_seed
from hive.free_memory import allocation_limit, free_memory, size_text
from hive.networks.build.configured import network_parameters
from hive.networks.build.convolutions import has_bfloat16_instructions
from hive.networks.build.custom import (
    buffers_that_training_changes,
    keeps_numbers_elsewhere,
    mixes_rows,
    shared_tensor,
    varies,
)
from hive.networks.build.layers import without_memory
from hive.networks.build.naming import shown_name
from hive.networks.build.network import build_network, check_network_device
from hive.networks.build.parameters import HeadParameters, NetworkParameters
from hive.networks.build.spaces import Spaces
from hive.networks.weights.flat import FlatParameters, InitialWeights
from hive.training.given_weights import GivenWeights

BUFFERS_SHOWN = 3  # maximum buffers named in an error; one BatchNorm has three


class InitialNetwork:
    """Builds the network of a run, and makes its initial weights.

    trained_parameters, parameters: those of networks on `device` and on the CPU. `sketch`: the network without memory
    for its parameters; with code of the user the network itself, because only its author knows what its constructor
    needs. `flat`: the layout of the parameters in a block; `flat.made` has the initial weights, made when first used.

    weights: `network.weights`, the files that a new run begins with. Raises NetworkError for a network that cannot
    learn or that processes cannot share, and MemoryShort for one that no machine, or a custom one that this machine,
    has memory for.
    """

    def __init__(
        self,
        config: Config,
        spaces: Spaces,
        heads: Sequence[str | HeadParameters],
        device: torch.device | None,
        weights: Mapping[str, Any],
    ) -> None:
        self.config = config
        self.spaces = spaces
        self.trained_parameters = network_parameters(config.network, config.algorithm.learning_rate, heads)
        check_network_device(self.trained_parameters, device)
        self.parameters = self.trained_parameters
        if device is not None and not has_bfloat16_instructions():  # the GPU alone uses bfloat16 then
            self.parameters = dataclasses.replace(self.parameters, precision="float32")
        torch.set_num_threads(1)  # a custom network's module may have set another number
        self.sketch = self._build_sketch()
        torch.set_num_threads(1)  # ... or its constructor
        check_trainable(self.sketch)
        self.given = GivenWeights(weights, self.sketch)
        self.flat = InitialWeights(self.sketch, self._first_weights)

    @property
    def is_custom(self) -> bool:
        """Whether code of the user builds a part of the network."""
        whole = self.parameters.module or self.parameters.extractor
        return whole is not None or any(head.cls is not None for head in self.parameters.heads_parameters)

    def generator(self) -> torch.Generator:
        """Return a generator of the run's initial weights."""
        return torch.Generator().manual_seed(stream_seed(self.config.run.seed, Purpose.initial_weights, 0, 0))

    def _build(self) -> nn.Module:
        return build_network(self.parameters, self.spaces, self.generator())

    def _build_sketch(self) -> nn.Module:
        if not self.is_custom:
            with without_memory():
                return self._build()
        network = self.config.network
        references = [network.module, network.extractor, network.policy_head, network.value_head]
        names = "`, `".join(filter(None, references))
        name = f"the network of `{names}`" if names else "the network"
        with allocation_limit(name):
            module = self._build()
            algorithm = self.config.algorithm
            is_one = isinstance(algorithm, ActorCriticConfig) and not is_reference(algorithm.name)
            check_custom_network(module, self.parameters, self.spaces, name, algorithm.name if is_one else "")
        return module

    def _first_weights(self) -> FlatParameters:
        """Make the network with its initial weights."""
        if not self.is_custom and self.flat.block_bytes > (free := free_memory()).usable:
            # Only a caller that has not checked the memory of the whole run comes here.
            raise MemoryShort(
                f"the network needs {size_text(self.flat.block_bytes)} for {self.flat.count:,} parameters, and {free} "
                "are free",
                hint="lower network.middleware, or give it observations of fewer elements",
            )
        flat = FlatParameters(self.sketch if self.is_custom else self._build())
        self.given.write(flat.arrays(flat.block))
        return flat


def check_custom_network(
    network: nn.Module, parameters: NetworkParameters, spaces: Spaces, name: str, algorithm: str
) -> None:
    """Raise NetworkError for a network that collectors, gradient workers and a loaded policy cannot share.

    algorithm: one that takes the policy that acted and the one in training for one; "" for any other.
    """
    _check_buffers(network, spaces, name)
    _check_copies(network, parameters, spaces, name)
    if algorithm:
        _check_acting(network, spaces, name, algorithm)
    _check_rows(network, spaces, name)


def _check_buffers(network: nn.Module, spaces: Spaces, name: str) -> None:
    """Raise NetworkError for a network whose buffers change in training, because only parameters are published."""
    if changed := buffers_that_training_changes(network, spaces):
        names = [shown_name(buffer, network) for buffer in changed]
        shown = ", ".join(names[:BUFFERS_SHOWN]) + (", ..." if len(names) > BUFFERS_SHOWN else "")
        layer = re.sub(r"^branches\.\d+", "branches.*", names[0].rpartition(".")[0])
        owner = network.get_submodule(changed[0].rpartition(".")[0])
        freezes = any(True for _ in owner.parameters(recurse=False))
        kept = f'; to keep those of a pretrained one, set network.frozen = ["{layer}.*"]' if freezes else ""
        raise NetworkError(
            f"{name} changes its buffers while it trains: {shown}",
            hint="collectors would keep the initial values of these buffers; use LayerNorm or GroupNorm instead of "
            f"BatchNorm{kept}",
        )


def _check_copies(network: nn.Module, parameters: NetworkParameters, spaces: Spaces, name: str) -> None:
    """Raise NetworkError for a network that draws numbers which are neither parameters nor buffers.

    Each process builds its own copy, with the weights of the learner and other such numbers.
    """
    if parameters.noisy_deviation:  # a pass draws noise
        return
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        seed_globals(1)
        copy = build_network(parameters, spaces, torch.Generator().manual_seed(1))
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
    if shared := shared_tensor(network, copy):
        raise NetworkError(
            f"{name} shares `{shown_name(shared, network)}` with other networks, so that each would change the others",
            hint="construct it in the constructor, or take copy.deepcopy(...) of it there",
        )
    if keeps_numbers_elsewhere(network, copy, spaces):
        raise NetworkError(
            f"{name} computes with numbers that are neither parameters nor buffers, so that every process, "
            "and a loaded policy, would compute with other ones",
            hint="keep them with self.register_buffer(name, tensor) in the constructor; take a view of a weight, such "
            "as its transpose, in forward()",
        )


def _check_rows(network: nn.Module, spaces: Spaces, name: str) -> None:
    """Raise NetworkError for a network that computes the outputs of an observation from others, too."""
    if mixes_rows(network, spaces):
        raise NetworkError(
            f"{name} computes the outputs of an observation from the others of its batch, too",
            hint="collectors, gradient workers and a loaded policy call it with different batches; compute each of "
            "the N rows from itself alone, for example with LayerNorm, and with dim=1 or -1 where it sums",
        )


def _check_acting(network: nn.Module, spaces: Spaces, name: str, algorithm: str) -> None:
    """Raise NetworkError for a network whose policy in training is another one than the one that acts."""
    if what := varies(network, spaces):
        raise NetworkError(
            f"{what} makes {name} another policy in training than the one that acted; {algorithm} needs one",
            hint="leave it out, or set its probability to 0: entropy_weight keeps a policy from overfitting; dqn "
            "and others with action values take it",
        )


def check_trainable(network: nn.Module) -> None:
    """Raise NetworkError for a network that cannot learn, because all of its parameters are frozen."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise NetworkError(
            f"`{type(network).__name__}` has nothing to learn: none of its parameters requires a gradient",
            hint="leave requires_grad of some of its parameters True",
        )
