"""Evaluation mode for a block, and every module's own mode afterwards."""

from __future__ import annotations

import pytest
from torch import nn

from hive.approximation.modes import evaluating


def network_with_frozen_part() -> nn.Sequential:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    network[1].eval()
    return network


def test_all_evaluate_inside_and_each_has_its_mode_again_outside() -> None:
    network = network_with_frozen_part()
    with evaluating(network):
        assert not any(child.training for child in network.modules())
    assert [child.training for child in network.modules()] == [True, True, False, True]


def test_a_block_that_raises_gives_the_modes_back() -> None:
    network = network_with_frozen_part()
    with pytest.raises(ZeroDivisionError), evaluating(network):
        raise ZeroDivisionError
    assert [child.training for child in network.modules()] == [True, True, False, True]
