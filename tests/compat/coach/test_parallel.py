"""Predictions of several networks: in order, with one call per network where rows are independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.compat.coach.parallel import predict_in_parallel
from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import NetworkParameters, Spaces

SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))
RNG = np.random.default_rng(0)


class Counting(nn.Module):
    """A network that counts its calls, optionally with batch normalisation."""

    def __init__(self, spaces: Spaces, normalise: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3) if normalise else nn.Identity()
        self.layer = nn.Linear(3, 3)
        self.batches: list[int] = []

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.batches.append(len(x))
        outputs = self.layer(self.norm(x))
        return outputs[:, :2], outputs[:, 2]


def network(seed: int = 0, module: Any = Counting) -> TorchArchitecture:
    made = TorchArchitecture(NetworkParameters(module=module), SPACES, generator=torch.Generator().manual_seed(seed))
    made.module.batches.clear()  # the probe
    return made


def rows(count: int) -> dict[str, np.ndarray]:
    return {"observation": RNG.standard_normal((count, 3), dtype=np.float32)}


def test_the_inputs_of_a_network_are_one_batch() -> None:
    one, two = network(1), network(2)
    pairs = [(one, rows(2)), (two, rows(3)), (one, rows(4)), (two, rows(1)), (one, rows(1))]
    outputs = predict_in_parallel(pairs)
    assert (one.module.batches, two.module.batches) == ([7], [4])
    assert len(outputs) == 10
    for place, (asked, inputs) in enumerate(pairs):
        for found, alone in zip(outputs[2 * place : 2 * place + 2], asked.predict(inputs), strict=True):
            np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-7)


def test_a_pair_alone_is_its_prediction_to_the_bit() -> None:
    one, inputs = network(), rows(5)
    found = predict_in_parallel([(one, inputs)])
    assert all(np.array_equal(a, b) for a, b in zip(found, one.predict(inputs), strict=True))
    assert predict_in_parallel([]) == ()


def test_a_network_with_batch_statistics_gets_one_call_per_pair() -> None:
    one = network(module=lambda spaces: Counting(spaces, normalise=True))
    pairs = [(one, rows(4)), (one, rows(4))]
    predict_in_parallel(pairs)
    assert one.module.batches == [4, 4]
    one.set_is_training(False)
    predict_in_parallel(pairs)
    assert one.module.batches == [4, 4, 8]


def test_wrong_inputs_are_refused_as_by_predict() -> None:
    one = network()
    with pytest.raises(NetworkError, match="needs the input `observation`"):
        predict_in_parallel([(one, rows(2)), (one, {})])
    wrong = {"observation": np.zeros((2, 4), np.float32)}
    with pytest.raises(NetworkError, match=r"input `observation` is float32 \[4, 4\], expected float32 \[4, 3\]"):
        predict_in_parallel([(one, wrong), (one, wrong)])
    for entry in ((None, rows(2)), one, (one, None), (one,)):
        with pytest.raises(NetworkError, match="entry 1 is not a pair"):
            predict_in_parallel([(one, rows(2)), entry])  # type: ignore[list-item]
