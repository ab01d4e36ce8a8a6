"""Evaluation mode for the length of a forward pass.

A module has a mode, `training`, and so has every module in it: a frozen BatchNorm stays in evaluation mode while the
network around it is trained. `module.train(mode)` would give them all one mode; here each gets back its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluating"]


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Runs the block with `module` and all modules in it in evaluation mode, and gives each its own mode back.

    Also when the block raises.
    """
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, mode in modes:
            child.training = mode
