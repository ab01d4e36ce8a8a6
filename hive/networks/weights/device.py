"""Networks on a GPU: their weights are copies of the block that they are bound to.

    block v, host ── bind: one copy ──> weights on the device ─ passes ─ gradients on the device ── one copy ──> slot

The learner's state, its optimizer and all that other processes read stay in host memory, as on the CPU. So a checkpoint
does not depend on the device, a gradient worker that is killed has lost nothing, and an optimizer step has the same
bits with every device. One update moves the weights there and a gradient back.

`PinnedMemory` registers shared memory with CUDA, so that the device reads and writes it without a copy in between.
`CapturedPasses` makes one call of the dozens of kernels of a small pass.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hive.networks.rows.inputs import Sequences
from hive.networks.weights.flat import Bytes, FlatField, FlatParameters, Floats

PAGE = 4096  # bytes; what CUDA registers is whole pages
READ_ONLY = 8  # cudaHostRegisterReadOnly, for memory that this process may not write


class PinnedMemory:
    """The ranges of host memory that are registered with CUDA, which must stay mapped as long as the process runs.

    A transfer that begins in a registered page and ends outside fails, so an array is copied first where a page of it
    belongs to another range.
    """

    def __init__(self) -> None:
        self._ranges: dict[int, int] = {}  # first byte -> last byte + 1
        self.refused: set[int] = set()
        """First bytes of ranges that CUDA has refused, for example by a limit on locked memory; they are copied."""

    def register(self, array: npt.NDArray[Any]) -> None:
        """Register the pages of a contiguous array of shared memory, unless some of them are registered already."""
        first, end = _pages(array.ctypes.data, array.nbytes)
        if first in self.refused or self.touches(array.ctypes.data, array.nbytes):
            return
        for flags in (0, READ_ONLY):
            if torch.cuda.cudart().cudaHostRegister(first, end - first, flags) == 0:
                self._ranges[first] = end
                return
            _forget_error()
        self.refused.add(first)

    def touches(self, start: int, size: int) -> bool:
        """Return whether some pages of these bytes, from the address `start` on, are registered."""
        first, end = _pages(start, size)
        return any(first < its_end and its < end for its, its_end in self._ranges.items())

    def splits(self, start: int, size: int) -> bool:
        """Return whether some pages of these bytes are registered and others are not, or elsewhere."""
        first, end = _pages(start, size)
        within = any(its <= first and end <= its_end for its, its_end in self._ranges.items())
        return not within and self.touches(start, size)


pinned = PinnedMemory()


def _pages(start: int, size: int) -> tuple[int, int]:
    """Return the address of the first page of these bytes, and of the end of their last one."""
    return start // PAGE * PAGE, -(-(start + size) // PAGE) * PAGE


def _forget_error() -> None:
    """Take CUDA's last error away, which would otherwise be raised by the next operation."""
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError:
        pass


def prepare_device(device: torch.device, *, deterministic: bool) -> None:
    """Set up CUDA in this process, before its first use. It must not have been forked from one that used CUDA.

    deterministic: use kernels that always give the same bits, and refuse operations that have none (RuntimeError).
    float32 means float32: torch's default would multiply in convolutions with 10 bits of mantissa (TF32).
    """
    if device.type != "cuda":
        return
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # the order of the driver's own list (hive.gpus)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with such a setting
        torch.use_deterministic_algorithms(True)
        settings: Any = torch.utils.deterministic
        settings.fill_uninitialized_memory = False  # it only shows reads of memory that was never written
    torch.cuda.set_device(device)


class DeviceParameters(FlatParameters):
    """FlatParameters of a module on a device, which it moves there, with all constants that its layers hold.

    `block` is the block in host memory that was bound last; `device` may also be the CPU, as in tests.
    """

    _weights: Tensor | None = None

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        super().__init__(module)
        self.device = device
        self._weights = torch.zeros(self.block_bytes, dtype=torch.uint8, device=device)
        self._gradient = torch.zeros(self.parameter_elements, dtype=torch.float32, device=device)
        self._pieces = [_piece(self._gradient.view(torch.uint8), field) for field in self.parameters]
        for tensor, field in zip(self._parameters + self._buffers, self.parameters + self.buffers, strict=True):
            tensor.data = _piece(self._weights, field)
        _move_constants(module, device)
        self.bind(self.block)

    def bind(self, block: Bytes | memoryview, *, read_only: bool = False) -> None:
        """Copy `block` to the device. Later writes into it have no effect."""
        if self._weights is None:
            super().bind(block, read_only=read_only)
            return
        data = self._bytes_of(block)
        self.block, self.weights = data, data[: self.parameter_bytes].view(np.float32)
        copy_to_device(data[: self.block_bytes], self._weights)

    def initialize_into(self, block: Bytes | memoryview) -> None:
        if self._weights is None:
            super().initialize_into(block)
        else:
            self._bytes_of(block)[: self.block_bytes] = self._weights.cpu().numpy()

    def gradient(self, out: Floats) -> npt.NDArray[np.uint8]:
        mask = self._copy_gradients(self._pieces)
        self._fetch(out)
        return mask

    def add_gradient(
        self,
        out: Floats,
        mask: npt.NDArray[np.uint8],
        parameters: Sequence[nn.Parameter],
        found: Sequence[Tensor | None],
    ) -> None:
        with torch.no_grad():
            for parameter, gradient in zip(parameters, found, strict=True):
                if gradient is not None:
                    position = self._positions[id(parameter)]
                    self._pieces[position] += gradient
                    mask[position] = 1
        self._fetch(out)

    def clear_gradient(self, out: Floats) -> None:
        self._gradient.zero_()
        super().clear_gradient(out)

    def _fetch(self, out: Floats) -> None:
        """Copy the gradient block from the device and wait for it, and so for all that was computed before."""
        self._gradient_views_of(out)  # raises for another layout
        if pinned.splits(out.ctypes.data, out.nbytes):
            out[:] = self._gradient.cpu().numpy()
        else:
            torch.from_numpy(out).copy_(self._gradient)


def copy_to_device(array: npt.NDArray[Any], target: Tensor) -> None:
    """Copy a contiguous array to a tensor of its shape on a device.

    It may still be read when this returns: the caller changes it only after a later result has arrived from the device.
    """
    if pinned.splits(array.ctypes.data, array.nbytes):
        array = array.copy()
    target.copy_(_tensor(array), non_blocking=True)


def to_device(value: Any, device: torch.device) -> Any:
    """Return tensors, also in a tuple, list, dictionary or Sequences, on `device`; all else stays as it is."""
    if isinstance(value, Tensor):
        if value.device.type == "cpu" and pinned.splits(value.data_ptr(), value.nbytes):
            value = value.clone()
        return value.to(device, non_blocking=True)
    if isinstance(value, Sequences):
        parts = (value.observation, value.state, value.rows, value.finals, value.after, value.order)
        observation, state, rows, finals, after, order = (to_device(part, device) for part in parts)
        return Sequences(observation, state, value.sizes, rows, finals, after, order)  # sizes belong to the host
    if isinstance(value, Mapping):
        return {name: to_device(part, device) for name, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(to_device(part, device) for part in value)
    if isinstance(value, tuple):  # a NamedTuple
        return type(value)(*(to_device(part, device) for part in value))
    return value


def to_host(value: Any) -> Any:
    """Return tensors, also in a tuple or list, in host memory, with their graphs."""
    if isinstance(value, Tensor):
        return value.cpu()
    return type(value)(map(to_host, value)) if type(value) in (tuple, list) else value


def _move_constants(module: nn.Module, device: torch.device) -> None:
    """Move tensors that layers hold besides parameters and buffers, such as the bounds of an observation."""
    kept = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for layer in module.modules():
        for name, value in list(vars(layer).items()):
            if name not in ("_parameters", "_buffers", "_modules") and _has_constant(value, kept):
                setattr(layer, name, to_device(value, device))


def _has_constant(value: Any, kept: set[int]) -> bool:
    if isinstance(value, Tensor):
        return id(value) not in kept
    if isinstance(value, Mapping):
        value = list(value.values())
    return isinstance(value, tuple | list) and any(_has_constant(part, kept) for part in value)


def _piece(block: Tensor, field: FlatField) -> Tensor:
    """Return the view of one field in a block of bytes on a device."""
    return block[field.offset : field.offset + field.nbytes].view(getattr(torch, field.dtype)).view(field.shape)


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # a warning about writes, which never happen
        return torch.from_numpy(array)


USES = 3  # calls of one shape before it is captured: libraries have chosen and loaded their kernels then
LARGEST_BYTES = 32 << 20  # of an input that is captured, a thousand Atari frames; larger ones keep a GPU busy
MOST_SHAPES = 8  # captured; minibatches have two, and each keeps its memory
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
OWN = ("hive.", "torch.nn.modules.")  # packages of layers that can be captured


class CapturedPasses:
    """Calls `model`, which returns a tuple of tensors, with rows on its device, and with a graph for each usual shape.

    The passes of small batches launch dozens of kernels that take microseconds each, while Python takes more to launch
    one. A graph (CUDA) replays all kernels of a forward pass, another those of its backward; it belongs to one shape of
    input and to one memory for weights, which DeviceParameters have. Large batches keep the GPU busy as they are. Only
    networks of hive's own layers are captured: a user's layer may wait for a result or use the CPU, which no graph can
    repeat. The outputs are overwritten by the next call.
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
