"""Keeps settings of torch and NumPy apart: those of environments, of a host script, and those that hive computes with.

`torch.set_default_dtype`, `torch.set_default_device`, `torch.set_grad_enabled` and `torch.set_num_threads` hold for the
whole process (or thread). hive computes with float32, on the CPU, and with gradients,
whatever a script has set before it calls hive: `hive_torch`. An environment that sets them when its module is imported
or in its constructor has them while its code runs, and nowhere else: `environment_torch`. So it is with NumPy's
`seterr` and `set_printoptions`, which would make hive's own sums raise.

This layer does not import torch; without torch there is nothing of it to keep.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

PRINTING = ("edgeitems", "threshold", "floatmode", "precision", "suppress", "linewidth", "nanstr", "infstr", "sign")
"""Arguments of numpy.set_printoptions that are kept: plain values."""

DEVICE: ContextVar[str] = ContextVar("device", default="cpu")
"""Where hive makes tensors; "meta" while it builds a network without memory (hive.networks.build.layers)."""


@dataclass(frozen=True)
class TorchState:
    """The default dtype and device of new tensors, the threads of an operation, and whether gradients are recorded."""

    dtype: Any
    device: Any
    threads: int
    gradients: bool

    @classmethod
    def now(cls) -> TorchState | None:
        """Return the current settings; None if torch is not imported."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "is_grad_enabled"):  # it is being imported
            return None
        new = torch.empty(0)  # a tenth of the time of torch.get_default_device
        return cls(new.dtype, new.device, torch.get_num_threads(), torch.is_grad_enabled())

    def restore(self) -> None:
        """Make these the current settings; those that did not change are left alone."""
        torch, now = sys.modules["torch"], self.now()
        assert now is not None
        if now.dtype != self.dtype:
            torch.set_default_dtype(self.dtype)
        if now.device != self.device:  # None is the CPU, without the cost of a default device at each call of torch
            torch.set_default_device(None if self.device.type == "cpu" else self.device)
        if now.threads != self.threads:
            torch.set_num_threads(self.threads)
        if now.gradients != self.gradients:
            torch.set_grad_enabled(self.gradients)


@dataclass(frozen=True)
class NumpyState:
    """NumPy's settings for floating-point errors and for printing arrays."""

    errors: Mapping[str, Any]
    printing: Mapping[str, Any]

    @classmethod
    def now(cls) -> NumpyState:
        """Return the current settings."""
        return cls(np.geterr(), {name: value for name, value in np.get_printoptions().items() if name in PRINTING})

    def restore(self) -> None:
        """Make these the current settings."""
        np.seterr(**self.errors)
        np.set_printoptions(**self.printing)


_environments: TorchState | None = None  # that of the environments of this process, if it is not hive's
_numpy: NumpyState | None = None  # the same of NumPy


def environments_differ() -> bool:
    """Return whether an environment of this process has changed the settings that its code runs with."""
    return _environments is not None or _numpy is not None


def environments_begin_with(numpy: NumpyState | None = None, *, dtype: str = "", gradients: bool = True) -> None:
    """Let environments of this process have these settings: those of the script that started the run.

    dtype: the default one of torch, "" for hive's. They replace none that an environment has made itself.
    """
    global _environments, _numpy
    _numpy = _numpy or numpy
    if (dtype or not gradients) and _environments is None:
        import_module("torch")
        mine = TorchState.now()
        assert mine is not None
        _environments = replace(mine, gradients=gradients)
        if dtype:
            _environments = replace(_environments, dtype=getattr(sys.modules["torch"], dtype))


@contextmanager
def environment_torch() -> Iterator[None]:
    """Run code of an environment with the settings that environments of this process have made; restore hive's."""
    global _environments, _numpy
    mine, my_numpy = TorchState.now(), NumpyState.now()
    if _environments is not None and mine is not None:
        _environments.restore()
    if _numpy is not None:
        _numpy.restore()
    given = _environments, _numpy
    try:
        yield
    finally:
        now, numpy_now = TorchState.now(), NumpyState.now()
        if (_environments, _numpy) == given:  # else the code has called `environments_begin_with`
            _numpy = None if numpy_now == my_numpy else numpy_now
            if mine is not None:
                _environments = None if now == mine else now
        my_numpy.restore()
        if mine is not None:
            mine.restore()


@contextmanager
def hive_torch(*, whole_run: bool = False) -> Iterator[None]:
    """Compute with hive's settings, whatever those of the caller are, and restore the caller's.

    New tensors are float32, on DEVICE and trainable, also inside of torch.inference_mode and of `with torch.device`.
    The default dtype belongs to the whole process, and other threads see it change. Threads are left alone: a
    `Blueprint` sets those of a run, and a loaded policy computes with the caller's. After a whole run the caller's
    number of threads is restored, too.
    """
    callers = TorchState.now()
    if callers is None:
        yield
        return
    torch = sys.modules["torch"]
    hives = replace(callers, dtype=torch.float32, device=torch.device(DEVICE.get()), gradients=True)
    try:
        with ExitStack() as stack:
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            replace(hives, device=callers.device).restore()
            if callers.device != hives.device:  # by a context, which also holds inside of `with torch.device`
                stack.enter_context(hives.device)
            try:
                yield
            finally:  # here too, because contexts must be left in the order in which they were entered
                replace(hives, threads=torch.get_num_threads()).restore()
    finally:
        (callers if whole_run else replace(callers, threads=torch.get_num_threads())).restore()
