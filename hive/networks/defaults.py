"""torch's defaults as hive's networks need them, whatever the host process has set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch

__all__ = ["DEVICE", "own_defaults"]

CPU = torch.device("cpu")

DEVICE: ContextVar[torch.device] = ContextVar("device", default=CPU)
"""Where networks are built; "meta" for a network without memory (hive.networks.sketch)."""


@contextlib.contextmanager
def own_defaults() -> Iterator[None]:
    """Makes new tensors float32 in host memory and trainable inside, and restores the defaults of the process after it.

    A script may have called torch.set_default_dtype or set_default_device, or be inside of torch.inference_mode or
    torch.no_grad. The default dtype belongs to the whole process, and other threads see it change: use this where
    modules are built, not where they are called.
    """
    dtype = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        if dtype != torch.float32:
            torch.set_default_dtype(torch.float32)
            stack.callback(torch.set_default_dtype, dtype)
        if torch.get_default_device() != (device := DEVICE.get()):
            stack.enter_context(device)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        yield
