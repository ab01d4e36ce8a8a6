"""hive.training.gradient.threads: the threads that "auto" gives, what they change, and that torch has them for
gradients only.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import allocate, config_of

from hive import _native
from hive.gradients import clear, codec_for, gradient_layout
from hive.networks import FlatParameters
from hive.training.gradient.gradient_slot import GradientSlot
from hive.training.gradient.threads import SPIN_REPLAY_US, Threads, threads_of


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    yield
    _native.set_threads(1)
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("cores", "values", "expected"),
    [
        (2, {}, 2),
        (64, {}, 4),
        (8, {"gradients__workers": 1}, 4),
        (8, {"gradients__workers": 3}, 2),
        (4, {"gradients__workers": 5}, 1),
    ],
)
def test_auto_is_a_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, values: dict[str, Any], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    config = config_of("CartPole-v1", gradients__threads='"auto"', **values)
    assert threads_of(config) == Threads(torch=1, native=expected)


def test_a_number_is_taken_as_it_is() -> None:
    assert threads_of(config_of("CartPole-v1", gradients__threads=7)) == Threads(7, 7)
    replayed = config_of("CartPole-v1", run__scheme='"dqn"', gradients__threads=7)
    assert threads_of(replayed) == Threads(7, 7, SPIN_REPLAY_US)


def test_torch_has_its_threads_while_a_gradient_is_computed() -> None:
    flat = FlatParameters(torch.nn.Linear(2, 2))
    slot = GradientSlot(flat, codec_for("none"), Threads(3, 5))
    assert _native.threads() == 5
    assert torch.get_num_threads() == 1
    layout = gradient_layout(flat.parameter_elements, len(flat.parameters), 0, 0, codec_for("none"))
    out = allocate(layout)
    clear(out, 0)
    with slot.filling(out):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == 1


def test_threads_change_no_byte_of_a_native_pass() -> None:
    layer = {"inputs": 256, "outputs": 256, "weight": 0, "bias": 256 * 256, "activation": "relu"}
    last = {"inputs": 256, "outputs": 3, "weight": 257 * 256, "bias": 260 * 256, "activation": "none"}
    rng = np.random.default_rng(1)
    block, rows, slopes = (rng.standard_normal(shape, np.float32) for shape in (260 * 256 + 16, (250, 256), (250, 3)))
    seen = set()
    for threads in (1, 2, 3):
        _native.set_threads(threads)
        network = _native.DenseNetwork([[layer, last]], len(block))
        output, gradient, to_rows = np.empty((250, 3), np.float32), np.zeros_like(block), np.empty_like(rows)
        network.forward(block, rows, [output], keep=True)
        network.backward(block, rows, [slopes], gradient, to_observations=to_rows)
        seen.add(output.tobytes() + gradient.tobytes() + to_rows.tobytes())
    assert len(seen) == 1
    stepped = set()
    for threads in (1, 2, 3):
        _native.set_threads(threads)
        given, out = [block, gradient, block, block * block], [np.empty_like(block) for _ in range(4)]
        rates = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.0}
        constants = {**rates, "decoupled": False, "rectified": False}
        assert _native.adam_step(
            *(given[0], out[0], given[1], given[2], out[1], given[3], out[2]), step=3, gradient_scale=0.5, **constants
        )
        _native.polyak(block, gradient, out[3], 0.3)
        stepped.add(b"".join(each.tobytes() for each in out))
    assert len(stepped) == 1
    with pytest.raises(ValueError, match="1 to 256"):
        _native.set_threads(0)
