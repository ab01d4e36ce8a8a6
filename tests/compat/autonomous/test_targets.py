"""Target networks: when and how far they move, and the mode of their forward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous import (
    FixedTarget,
    PolyakTarget,
    TargetNetwork,
    TrivialTarget,
)
from hive.compat.coach.wrapper import NetworkWrapper
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import NetworkParameters, Spaces


def network(weight: float = 1.0) -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False)
    set_weight(layer, weight)
    return layer


def set_weight(layer: nn.Linear, weight: float) -> None:
    with torch.no_grad():
        layer.weight.fill_(weight)


ONE = torch.ones(1, 1)
SPACES = Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2))


def values(target: TargetNetwork) -> float:
    return float(target(ONE))


def test_the_trivial_target_is_the_network_without_a_graph() -> None:
    layer, target = network(), TrivialTarget()
    target.init(layer)
    set_weight(layer, 3.0)
    target.update()
    assert values(target) == 3.0
    assert not target(ONE).requires_grad


@pytest.mark.parametrize("frequency", [1, 3])
def test_a_fixed_target_is_replaced_every_update_frequency_updates(frequency: int) -> None:
    layer, target = network(0.0), FixedTarget(frequency)
    target.init(layer)
    seen = []
    for update in range(1, 8):
        set_weight(layer, float(update))
        target.update()
        seen.append(values(target))
    assert seen == [update - update % frequency for update in range(1, 8)]
    assert not target(ONE).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_polyak_target_moves_by_its_rate(dtype: torch.dtype) -> None:
    layer, target = network(1.0).to(dtype), PolyakTarget(0.25)
    target.init(layer)
    set_weight(layer, 2.0)
    target.update()
    assert float(target(ONE.to(dtype))) == 1.25
    target.update()
    assert float(target(ONE.to(dtype))) == pytest.approx(1.4375)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_the_ends_of_the_rate_are_exact(rate: float) -> None:
    layer, target = network(0.1), PolyakTarget(rate)
    target.init(layer)
    set_weight(layer, 0.3)
    target.update()
    assert values(target) == float(torch.tensor(0.3 if rate else 0.1))


@pytest.mark.parametrize(("buffers", "mean"), [("copy", 8.0), ("average", 2.0), ("ignore", 0.0)])
def test_buffers_follow_by_their_policy(buffers: Any, mean: float) -> None:
    layer, target = nn.BatchNorm1d(1), PolyakTarget(0.25, buffers=buffers)
    target.init(layer)
    with torch.no_grad():
        layer.running_mean.fill_(8.0)
        layer.num_batches_tracked.fill_(7)
    target.update()
    state = target.state_dict()["model"]
    assert float(state["running_mean"]) == mean
    assert int(state["num_batches_tracked"]) == (0 if buffers == "ignore" else 7)


def test_a_fixed_target_copies_buffers_except_with_buffers_ignore() -> None:
    for buffers, mean in (("copy", 8.0), ("ignore", 0.0)):
        layer, target = nn.BatchNorm1d(1), FixedTarget(1, buffers=buffers)  # type: ignore[arg-type]
        target.init(layer)
        layer.running_mean.fill_(8.0)
        target.update()
        assert float(target.state_dict()["model"]["running_mean"]) == mean


@pytest.mark.parametrize("kind", [TrivialTarget, lambda **k: FixedTarget(1, **k), lambda **k: PolyakTarget(0.5, **k)])
def test_targets_are_in_evaluation_mode_except_with_mode_train(kind: Any) -> None:
    dropout = nn.Dropout(0.5)
    for mode in ("eval", "train"):
        target = kind(mode=mode)
        target.init(dropout)
        ones = torch.ones(64)
        assert torch.equal(target(ones), ones) == (mode == "eval")
        assert dropout.training


def test_a_target_can_count_environment_steps() -> None:
    layer, fixed, polyak = network(0.0), FixedTarget(10, counts="env_steps"), PolyakTarget(0.5, counts="env_steps")
    fixed.init(layer)
    polyak.init(layer)
    set_weight(layer, 8.0)
    for target in (fixed, polyak):
        target.update()
        assert values(target) == 0.0
    fixed.advance(9)
    assert values(fixed) == 0.0
    fixed.advance(4)
    assert fixed.state_dict()["since"] == 3
    polyak.advance(2)
    polyak.advance(0)
    assert (values(fixed), values(polyak)) == (8.0, 6.0)


def test_a_target_is_restored() -> None:
    layer, target = network(1.0), FixedTarget(3)
    target.init(layer)
    set_weight(layer, 2.0)
    target.update()
    other = FixedTarget(3)
    other.init(network(9.0))
    other.load_state_dict(target.state_dict())
    assert values(other) == 1.0
    other.update()
    other.update()
    assert values(other) == 9.0, "the third update since the copy, one of them before it was saved"


def test_a_copy_follows_its_network_to_another_device() -> None:
    layer = network()
    target = PolyakTarget(0.5)
    target.init(layer)
    layer.to("meta")
    target.update()
    assert target(ONE.to("meta")).device.type == "meta"


def test_a_network_with_a_stored_graph_is_copied() -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = network()

        def forward(self, x: Tensor) -> Tensor:
            self.last = self.layer(x)
            return self.last

    model = Remembering()
    model(ONE)
    target = FixedTarget(1)
    target.init(model)
    set_weight(model.layer, 5.0)
    target.update()
    assert values(target) == 5.0


def test_tied_weights_stay_tied_and_move_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    model, target = Tied(), PolyakTarget(0.5)
    target.init(model)
    set_weight(model.first, 3.0)
    target.update()
    assert values(target) == 4.0


def test_the_same_numbers_as_a_network_wrapper() -> None:
    wrapper = NetworkWrapper(
        {"main": NetworkParameters()},
        True,
        False,
        "main",
        Spaces({"observation": ObservationSpec((3,), "float32")}, Discrete(2)),
    )
    target = PolyakTarget(0.3)
    target.init(wrapper.online_network.module)
    wrapper.online_network.set_weights([weight + 1 for weight in wrapper.online_network.get_weights()])
    wrapper.update_target_network(0.3)
    target.update()
    assert wrapper.target_network is not None
    for name, weight in wrapper.target_network.weights_view.items():
        np.testing.assert_allclose(target.state_dict()["model"][name].numpy(), weight, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: FixedTarget(0), "update_frequency = 0"),
        (lambda: FixedTarget(1.5), "update_frequency = 1.5 is not a whole number"),  # type: ignore[arg-type]
        (lambda: PolyakTarget(1.5), "from 0 to 1, got 1.5"),
        (lambda: PolyakTarget("0.5"), "rate = '0.5' is not a finite number"),  # type: ignore[arg-type]
        (lambda: FixedTarget(1, counts="env_steps").advance(float("nan")), "env_steps = nan"),  # type: ignore[arg-type]
        (lambda: PolyakTarget(0.5, buffers="sum"), "buffers = 'sum'"),  # type: ignore[arg-type]
        (lambda: TrivialTarget(mode="test"), "mode = 'test'"),  # type: ignore[arg-type]
        (lambda: FixedTarget(1)(ONE), "has no network yet"),
        (lambda: FixedTarget(1).advance(1), "counts updates"),
        (lambda: FixedTarget(1, counts="env_steps").advance(-1), "env_steps = -1 is not a whole number"),
        (lambda: TrivialTarget().load_state_dict({"model": {}}), "has no state, but is given model"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, cause: str) -> None:
    with pytest.raises(NetworkError, match=cause):
        make()
