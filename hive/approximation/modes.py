"""Evaluation mode for the duration of a forward pass.

Every submodule has a mode, `training`, of its own: a frozen BatchNorm stays in evaluation mode while the network
around it is trained. `module.train(mode)` would set all to one mode, so each mode is saved and restored here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Runs the block with `module` and its submodules in evaluation mode, and restores all modes even if it raises."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, mode in modes:
            child.training = mode
