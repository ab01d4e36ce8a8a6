"""Merging embeddings."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hive.errors import NetworkError
from hive.networks import EmbeddingMergerType, MiddlewareParameters
from hive.networks.build.embedders import Merger, middleware_layers

OBSERVATIONS = {
    "a": torch.tensor([[1.0, 2.0]]),
    "b": torch.tensor([[10.0, 20.0]]),
    "c": torch.tensor([[0.0]]),
}


def test_concat_keeps_the_order_of_the_names() -> None:
    merger = Merger(["b", "a"], [nn.Identity(), nn.Identity()], [2, 2], EmbeddingMergerType.Concat)
    assert merger.width == 4
    assert merger(OBSERVATIONS).tolist() == [[10.0, 20.0, 1.0, 2.0]]


def test_sum_adds_equal_widths_and_refuses_others() -> None:
    merger = Merger(["a", "b"], [nn.Identity(), nn.Identity()], [2, 2], EmbeddingMergerType.Sum)
    assert merger.width == 2
    assert merger(OBSERVATIONS).tolist() == [[11.0, 22.0]]
    with pytest.raises(NetworkError, match="cannot be added: `a` 2, `c` 1"):
        Merger(["a", "c"], [nn.Identity(), nn.Identity()], [2, 1], EmbeddingMergerType.Sum)


def test_the_middleware_may_be_empty() -> None:
    assert middleware_layers(MiddlewareParameters(widths=()), 5) == ([], 5)
    layers, width = middleware_layers(MiddlewareParameters(widths=(3,), activation="elu"), 5)
    assert [type(layer) for layer in layers] == [nn.Linear, nn.ELU]
    assert width == 3
