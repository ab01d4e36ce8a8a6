"""CUDA graphs of a network's passes: one call replays all kernels of a forward pass, another those of its backward.

The passes of small batches launch some dozens of kernels that take microseconds each, while Python takes more to launch
one. A graph belongs to one shape of input and to one memory for weights, which a network on a device always has
(hive.networks.weights.device). Large batches keep the GPU busy as they are, and a graph would keep their memory.

Only networks of hive's own layers are captured: a layer of a user may wait for a result or use the CPU, which no graph
can repeat.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CapturedPasses"]

USES = 3  # calls of one shape before it is captured: libraries have chosen and loaded their kernels then
LARGEST_BYTES = 32 << 20  # of an input that is captured, a thousand Atari frames; larger ones keep a GPU busy
MOST_SHAPES = 8  # captured; minibatches have two, and each keeps its memory
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
OWN = ("hive.", "torch.nn.modules.")  # packages of layers that can be captured


class CapturedPasses:
    """Calls `model`, which returns a tuple of tensors, with rows on its device, and with a graph for each usual shape.

    Its outputs are overwritten by the next call.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._uses: dict[tuple[torch.Size, torch.dtype], int] = {}
        self._made: dict[tuple[torch.Size, torch.dtype], Any] = {}
        self._can_be = _can_be_captured(model)

    def __call__(self, rows: Any) -> Any:
        captured = self._captured(rows) if isinstance(rows, Tensor) and rows.is_cuda and self._can_be else None
        return (captured or self.model)(rows)

    def _captured(self, rows: Tensor) -> Any:
        key = rows.shape, rows.dtype
        if key in self._made:
            return self._made[key]
        if rows.nbytes > LARGEST_BYTES or len(self._made) >= MOST_SHAPES:
            return None
        self._uses[key] = self._uses.get(key, 0) + 1
        if self._uses[key] <= USES:
            return None
        try:
            self._made[key] = _capture(self.model, rows)
        except RuntimeError:  # no memory for another copy of the layers' outputs, or a layer that waits for a result
            self._made[key] = None
        return self._made[key]


def _can_be_captured(model: nn.Module) -> bool:
    """Return whether a graph does what the model does: hooks of a user would run at the capture alone, or twice."""
    own = all(type(layer).__module__.startswith(OWN) for layer in model.modules())
    hooks = any(getattr(layer, name) for layer in model.modules() for name in HOOKS)
    return own and not hooks and not any(parameter._backward_hooks for parameter in model.parameters())


def _capture(model: nn.Module, rows: Tensor) -> Any:
    # The warm-up draws numbers if a layer does, which a process that captures at another gradient would not have drawn.
    with torch.cuda.device(rows.device), torch.random.fork_rng([rows.device]), warnings.catch_warnings():
        # It passes over the warm-up and the capture on two streams, between which torch waits.
        warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
        return torch.cuda.make_graphed_callables(_Passes(model), (rows.clone(),), allow_unused_input=True)


class _Passes(nn.Module):
    """The model once more, so that its own `forward` stays as it is: make_graphed_callables replaces that."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = model.training

    def forward(self, rows: Tensor) -> Any:
        return self.model(rows)
