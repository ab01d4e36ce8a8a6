"""Named parameters: selection of their gradients, and errors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hive.compat.rlpack.named import checked_names, gradients_of


def test_frozen_and_unused_parameters_have_no_gradient() -> None:
    used, unused, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    used.grad = frozen.grad = torch.ones(2)
    frozen.requires_grad_(False)
    found = gradients_of(["used", "unused", "frozen"], [used, unused, frozen], strict=False)
    assert found[0] is used.grad
    assert found[1:] == [None, None]
    with pytest.raises(RuntimeError, match="no gradient of `unused`"):
        gradients_of(["used", "unused"], [used, unused], strict=True)
    with pytest.raises(RuntimeError, match="no gradient of `unused`"):
        gradients_of(["unused", "frozen"], [unused, frozen], strict=False)
    assert gradients_of(["frozen"], [frozen], strict=True) == [None]


def test_names_are_unique_texts() -> None:
    assert checked_names(["b", "a"]) == ("b", "a")
    with pytest.raises(ValueError, match="names `b` twice"):
        checked_names(["b", "a", "b"])
    with pytest.raises(TypeError, match="a sequence of names"):
        checked_names(["b", 1])  # type: ignore[list-item]
