"""Networks of scripts are built, train and predict as ever, whatever defaults of torch the host process has set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from host_settings import SETTINGS

from hive.compat.coach.losses import head_loss
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs import ActionSpec, Box, Discrete, ObservationSpec
from hive.networks import HeadParameters, NetworkParameters, Spaces
from hive.networks.build.head_kinds import HEADS
from hive.runtime.process.user_code.torch_state import hive_torch

BOX = Box((2,), (-1.0, -1.0), (1.0, 1.0))
BOXED = ("squashed_policy", "deterministic_policy")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in HEADS},
    "normalised": ("policy", {"normalize_observations": True, "initialization": "uniform"}),
    "noisy": ("q", {"noisy_deviation": 0.5}),
    "L-BFGS": ("policy", {"optimizer_type": "LBFGS", "l2_regularization": 0.1}),
}


def trained(name: str) -> list[bytes]:
    """Return the weights of a network after two updates, and what it predicts."""
    kind, options = CASES[name]
    action: ActionSpec = BOX if kind in BOXED else Discrete(3)
    heads = [HEADS[kind].parameters(name=kind), HeadParameters("value")]
    spaces = Spaces({"observation": ObservationSpec((4,), "float32")}, action)
    torch.manual_seed(1)
    network = TorchArchitecture(NetworkParameters(heads_parameters=heads, **options), spaces)
    loss = head_loss(network.heads[0])
    observations = {"observation": np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)}
    inputs = observations | {
        f"output_0_{place}": np.zeros((5, *shape), dtype) for place, (dtype, shape) in enumerate(loss.extra_inputs)
    }
    target = np.full((5, *loss.target_shape), 1 / max(1, *loss.target_shape, 1), np.float32)
    losses = [network.train_on_batch(inputs, [target, np.zeros(5, np.float32)])[0] for _ in range(2)]
    network.set_is_training(False)
    found = [*network.get_weights(), *network.predict(observations), np.array(losses)]
    return [array.tobytes() for array in found]


@pytest.mark.parametrize("name", CASES)
def test_settings_of_the_host_change_no_bits(name: str) -> None:
    usual = trained(name)
    for setting, context in SETTINGS.items():
        with context():
            assert trained(name) == usual, setting


@pytest.mark.parametrize("device", ["set_default_device", "device"])
def test_settings_of_hive_end_with_their_block(device: str) -> None:
    with SETTINGS["set_default_dtype"](), SETTINGS[device](), torch.inference_mode():
        with hive_torch():
            made = torch.ones(2, requires_grad=True)
            assert (made.dtype, made.device.type, made.is_inference()) == (torch.float32, "cpu", False)
        made = torch.ones(2)
        assert (made.dtype, made.device.type, made.is_inference()) == (torch.float64, "meta", True)
