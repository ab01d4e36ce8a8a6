"""Checks the network of a run, above all one with code of the user, before any actor starts."""

from __future__ import annotations

import random
import re

import numpy as np
import torch
from torch import nn

from hive.envs import seed_globals
from hive.errors import NetworkError
from hive.networks.build.custom import buffers_that_training_changes, keeps_numbers_elsewhere, mixes_rows
from hive.networks.build.naming import shown_name
from hive.networks.build.network import build_network
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import Spaces

__all__ = ["check_custom_network", "check_trainable"]

BUFFERS_SHOWN = 3  # maximum buffers named in an error; one BatchNorm has three


def check_custom_network(network: nn.Module, parameters: NetworkParameters, spaces: Spaces, name: str) -> None:
    """Raise NetworkError for a network that collectors, gradient workers and a loaded policy cannot share."""
    _check_buffers(network, spaces, name)
    _check_copies(network, parameters, spaces, name)
    _check_rows(network, spaces, name)


def _check_buffers(network: nn.Module, spaces: Spaces, name: str) -> None:
    """Raise NetworkError for a network whose buffers change in training, because only parameters are published."""
    if changed := buffers_that_training_changes(network, spaces):
        names = [shown_name(buffer, network) for buffer in changed]
        shown = ", ".join(names[:BUFFERS_SHOWN]) + (", ..." if len(names) > BUFFERS_SHOWN else "")
        layer = re.sub(r"^branches\.\d+", "branches.*", names[0].rpartition(".")[0])
        raise NetworkError(
            f"{name} changes its buffers while it trains: {shown}",
            hint="collectors would keep the initial values of these buffers; use LayerNorm or GroupNorm instead of "
            f'BatchNorm; to keep those of a pretrained one, set network.frozen = ["{layer}.*"]',
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
    if keeps_numbers_elsewhere(network, copy, spaces):
        raise NetworkError(
            f"{name} draws numbers that are neither parameters nor buffers, so that every process, "
            "and a loaded policy, would compute with other ones",
            hint="keep them with self.register_buffer(name, tensor) in the constructor",
        )


def _check_rows(network: nn.Module, spaces: Spaces, name: str) -> None:
    """Raise NetworkError for a network that computes the outputs of an observation from others, too."""
    if mixes_rows(network, spaces):
        raise NetworkError(
            f"{name} computes the outputs of an observation from the others of its batch, too",
            hint="collectors, gradient workers and a loaded policy call it with different batches; compute each of "
            "the N rows from itself alone, for example with LayerNorm, and with dim=1 or -1 where it sums",
        )


def check_trainable(network: nn.Module) -> None:
    """Raise NetworkError for a network that cannot learn, because all of its parameters are frozen."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise NetworkError(
            f"`{type(network).__name__}` has nothing to learn: none of its parameters requires a gradient",
            hint="leave requires_grad of some of its parameters True",
        )
