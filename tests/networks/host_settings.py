"""What a host process may have set in torch before it uses hive. (The number of threads changes the bits of sums.)"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch

__all__ = ["SETTINGS"]


@contextlib.contextmanager
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    torch.set_default_device("meta")  # every machine has this device, and none of its tensors has values
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "set_default_dtype": _double,
    "set_default_device": _elsewhere,
    "device": lambda: torch.device("meta"),
    "use_deterministic_algorithms": _deterministic,
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
}
