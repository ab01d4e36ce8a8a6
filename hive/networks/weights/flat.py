"""Flat parameters: a network whose parameters are views of one block of bytes.

    block    | weight 0 | pad | bias 0 | pad | .. | last bias | pad | buffer 0 | pad | .. | buffer k | pad |
             0                                                      parameter_bytes               block_bytes
    gradient | weight 0 | pad | bias 0 | pad | .. | last bias | pad |   float32 [parameter_elements]

Every parameter (float32) and every buffer starts at a multiple of 64 bytes, and the padding is zero.
Publishing, reduction, optimizer steps, target updates and checkpoints are then passes over one block, independent of
the layers. A network reads the weights that another process wrote in place: `bind` copies no weights, it exchanges
addresses.

Do not call `bind` between a forward pass and its backward pass: the backward pass would read the new
weights. The caller owns the memory; this module neither maps, locks nor versions it. Only host memory is supported.

An agent of several networks is one module, so that its weights are one block. A module names the contiguous ranges that
an update may step separately in the attribute `parameter_groups`: a group is named like the child of the module that
holds its parameters, or by the path of a child further down: "network.actor" is the group "actor". The groups follow
each other in the order of the parameters and contain all of them. A module without this attribute has one group.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hive import _native
from hive.errors import NetworkError

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Bytes of a cache line and of the widest vector register. The alignment of an operand changes the bits of a matrix
# product, so equal weights give bit-identical outputs in every process only at equally aligned addresses.
ALIGNMENT = 64

# Blocks whose views are cached; when it is full the whole cache is cleared. Blocks recur: a board has two more than
# readers, a slab a few. The limit exceeds the blocks of a run, and bounds the memory for a caller with ever new blocks.
CACHED_BLOCKS = 128

NUMPY_OF_BUFFER = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int64: "int64",
    torch.uint8: "uint8",
    torch.bool: "bool",
}


WHOLE = "network"  # name of the only group of a module that names none


@dataclass(frozen=True, slots=True)
class FlatField:
    """The place of one parameter or buffer in a block: `offset` and `nbytes` in bytes, `dtype` as NumPy names it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """`parameters`: the numbers of its parameters. `elements`: its range in a flat vector, padding included."""

    name: str
    parameters: slice
    elements: slice

    def has_gradient(self, mask: npt.NDArray[np.uint8]) -> bool:
        """Whether a gradient with this mask, uint8 [parameters], contains one of the group's parameters."""
        return bool(mask[self.parameters].any())


class GroupUpdate(NamedTuple):
    """The update of one group. step: its number among the updates of the group, from 1 on; 0 keeps the group.

    norm: of the group's gradient before clipping; not read without clipping.
    """

    elements: slice
    norm: float
    step: int
    learning_rate: float


@dataclass(frozen=True, slots=True)
class _Bound:
    """A block that was bound: its bytes, and the views for parameters and buffers."""

    block: Bytes | memoryview
    data: Bytes
    weights: Floats
    parameters: list[Tensor]
    buffers: list[Tensor]


class FlatLayout:
    """Where the parameters and buffers of a module lie in one block. It allocates nothing; `module` may be on "meta".

    `parameters` and `buffers` are the fields of the block in the module's order; a tied parameter is one
    field. `names`, `shapes` and `offsets` (bytes) are those of the parameters. `parameter_bytes` is a
    multiple of 64, `parameter_elements` a quarter of it (padding included), `block_bytes` includes the
    buffers. `groups` are the parameter groups (hive.networks.weights.flat).

    Raises NetworkError for parameters that are not dense float32 in host memory, and for buffers of a dtype
    other than float32, float64, int64, uint8 or bool, and for parameter groups that do not fit the parameters.
    """

    def __init__(self, module: nn.Module) -> None:
        named_parameters = list(module.named_parameters())
        named_buffers = list(module.named_buffers())
        for name, parameter in named_parameters:
            _check(name, parameter, {torch.float32})
        for name, buffer in named_buffers:
            _check(name, buffer, NUMPY_OF_BUFFER.keys())
        self._parameters: list[Tensor] = [parameter for _, parameter in named_parameters]
        self.parameters, self.parameter_bytes = _lay_out(named_parameters, 0)
        self._fields = {id(own): field for own, field in zip(self._parameters, self.parameters, strict=True)}
        self.buffers, self.block_bytes = _lay_out(named_buffers, self.parameter_bytes)
        self.parameter_elements = self.parameter_bytes // 4
        self.names = tuple(field.name for field in self.parameters)
        self.shapes = tuple(field.shape for field in self.parameters)
        self.offsets = tuple(field.offset for field in self.parameters)
        starts = [offset // 4 for offset in self.offsets]
        self.groups = parameter_groups(
            tuple(getattr(module, "parameter_groups", ())), self.names, starts, self.parameter_elements
        )

    def field_of(self, parameter: nn.Parameter) -> FlatField:
        """Return the place of a parameter. Raises KeyError for one that is not of this module."""
        return self._fields[id(parameter)]

    @property
    def count(self) -> int:
        """The number of parameters, without padding."""
        return sum(map(prod, self.shapes))

    def frozen(self) -> tuple[slice, ...]:
        """Return the ranges of a flat vector whose parameters require no gradient at present, in order.

        No optimizer changes them, and a target network keeps them (`keep_frozen`). A parameter of which a hook clears
        a part of the gradient is not frozen: the optimizer's decay and momentum apply to all of it, as in torch.
        """
        ranges: list[slice] = []
        for field, parameter in zip(self.parameters, self._parameters, strict=True):
            if not parameter.requires_grad:
                start, end = field.offset // 4, (field.offset + field.nbytes) // 4
                ranges.append(slice(start, end))
        return tuple(ranges)

    def describe(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the name and shape of every parameter, in the order of the block."""
        return list(zip(self.names, self.shapes, strict=True))

    def arrays(self, block: Bytes | memoryview) -> dict[str, npt.NDArray[Any]]:
        """Return named NumPy views of `block`, uint8 [>= block_bytes]: parameters first, then buffers."""
        data = self._bytes_of(block)
        return {field.name: _array(data, field) for field in self.parameters + self.buffers}

    def buffer_arrays(self, block: Bytes | memoryview) -> dict[str, npt.NDArray[Any]]:
        """Return named NumPy views of the buffers in `block`."""
        data = self._bytes_of(block)
        return {field.name: _array(data, field) for field in self.buffers}

    def hollow_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return named arrays of all shapes and dtypes whose elements share one place in memory, to check a copy."""
        fields = self.parameters + self.buffers
        return {
            f.name: np.lib.stride_tricks.as_strided(np.zeros(1, f.dtype), f.shape, (0,) * len(f.shape)) for f in fields
        }

    def gradient_arrays(self, gradient: Floats) -> list[Floats]:
        """Return a NumPy view of a gradient block, float32 [parameter_elements], for each parameter."""
        return [_array(gradient.view(np.uint8), field) for field in self.parameters]

    def _bytes_of(self, block: Bytes | memoryview) -> Bytes:
        data = np.frombuffer(block, np.uint8)
        if data.nbytes < self.block_bytes:
            raise NetworkError(f"a block of {data.nbytes} bytes is too small for {self.block_bytes} bytes of weights")
        return data


class InitialWeights(FlatLayout):
    """The layout of a network, and its initial weights, which `make` makes when they are needed first."""

    def __init__(self, module: nn.Module, make: Callable[[], FlatParameters]) -> None:
        super().__init__(module)
        self._factory = make

    @functools.cached_property
    def made(self) -> FlatParameters:
        """The network with its initial weights. Raises what `make` raises."""
        return self._factory()

    def initialize_into(self, block: Bytes | memoryview) -> None:
        """Copy the initial weights into a writable `block`, uint8 [>= block_bytes], and zeros into its padding."""
        self.made.initialize_into(block)


class FlatParameters(FlatLayout):
    """Makes the parameters and buffers of `module` views of one block, and rebinds them to other blocks.

    `block` is the bound block, `weights` its parameters, float32 [parameter_elements]. The names of
    `module.state_dict()` do not change. Raises NetworkError as FlatLayout does.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.is_meta:
                raise NetworkError(f"`{name}` is on meta, without values", hint="build the module on the cpu")
        self._positions = {id(own): position for position, own in enumerate(self._parameters)}
        self._buffers = list(module.buffers())
        self._private_buffers = [torch.empty_like(buffer) for buffer in self._buffers]
        self._bound: dict[tuple[int, bool], _Bound] = {}
        self._views: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._gradient_views: dict[int, tuple[Floats, list[Tensor]]] = {}
        block = aligned_block(self.block_bytes)
        self.initialize_into(block)
        self.bind(block)
        for child in module.modules():
            dense: Any = getattr(child, "dense", None)  # or what a user's module calls so
            if callable(getattr(dense, "over", None)):  # it computes with an earlier FlatParameters' block
                child.dense = dense.over(self)

    def bind(self, block: Bytes | memoryview, *, read_only: bool = False) -> None:
        """Point every parameter and buffer at `block`, without copying; takes about 0.5 us per parameter.

        block: uint8 [>= block_bytes], starting at a multiple of 64 bytes. This object keeps it alive. Pass the same
            array object again where you can: its views are cached.
        read_only: never write into the block; implied if the array is not writeable.

        With a read-only block only the parameters are read in place. The buffers are copied, because layers such as
        BatchNorm write into theirs: other processes would read the change, or read-only memory would end this one.
        Raises NetworkError for a block of another dtype, size or alignment.
        """
        bound = self._bound.get((id(block), read_only)) or self._first_bound(block, read_only)
        for tensor, view in zip(self._parameters, bound.parameters, strict=True):
            tensor.data = view
        if self._buffers:
            buffers = bound.buffers
            if not bound.data.flags.writeable:
                torch._foreach_copy_(self._private_buffers, buffers)
                buffers = self._private_buffers
            for tensor, view in zip(self._buffers, buffers, strict=True):
                tensor.data = view
        self.block, self.weights = bound.data, bound.weights

    def initialize_into(self, block: Bytes | memoryview) -> None:
        """Copy the present values into a writable `block`, uint8 [>= block_bytes], and zeros into its padding."""
        values = aligned_block(self.block_bytes)
        for array, tensor in zip(self.arrays(values).values(), self._parameters + self._buffers, strict=True):
            array[...] = tensor.detach().numpy()
        self._bytes_of(block)[: self.block_bytes] = values

    def gradient(self, out: Floats) -> npt.NDArray[np.uint8]:
        """Copy every parameter's `.grad` into `out` and return which parameters had one.

        out: float32 [parameter_elements], aligned to 64 bytes; its padding stays zero. Pass the same array object
            again where you can: its views are cached.
        Return uint8 [parameters]: 0 where `.grad` is None (a frozen or unused parameter) and `out` gets zeros.
        Raises NetworkError for an `out` of another dtype, shape or alignment.
        """
        return self._copy_gradients(self._gradient_views_of(out))

    def _copy_gradients(self, views: Sequence[Tensor]) -> npt.NDArray[np.uint8]:
        """Copy every `.grad`, or zeros for None, into the view at its position, and return which had one."""
        mask = np.ones(len(views), np.uint8)
        found = [parameter.grad for parameter in self._parameters]
        for index, gradient in enumerate(found):
            if gradient is None:
                mask[index] = 0
                views[index].zero_()
        sources = [gradient for gradient in found if gradient is not None]
        if sources:
            targets = [view for view, gradient in zip(views, found, strict=True) if gradient is not None]
            with torch.no_grad():  # with create_graph=True the gradients have a graph themselves
                torch._foreach_copy_(targets, sources)
        return mask

    def add_gradient(
        self,
        out: Floats,
        mask: npt.NDArray[np.uint8],
        parameters: Sequence[nn.Parameter],
        found: Sequence[Tensor | None],
    ) -> None:
        """Add gradients of some parameters, None for none, to `out` and set their elements of `mask` (`gradient`)."""
        views = self._gradient_views_of(out)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, found, strict=True):
                if gradient is not None:
                    position = self._positions[id(parameter)]
                    views[position] += gradient
                    mask[position] = 1

    def clear_gradient(self, out: Floats) -> None:
        """Set a gradient block, float32 [parameter_elements], to zero. Raises NetworkError as `gradient` does."""
        self._gradient_views_of(out)
        out[:] = 0

    def release_gradients(self) -> None:
        """Set every `.grad` to None, so that the next backward pass assigns tensors instead of adding to them."""
        for parameter in self._parameters:
            parameter.grad = None

    def _first_bound(self, block: Bytes | memoryview, read_only: bool) -> _Bound:
        """Cache the block by its `id`, which stays unique because the cache keeps the block alive."""
        data = self._bytes_of(block)
        if read_only:
            data.flags.writeable = False
        bound = _Bound(block, data, data[: self.parameter_bytes].view(np.float32), *self._views_of(data))
        _remember(self._bound, (id(block), read_only), bound)
        return bound

    def _views_of(self, data: Bytes) -> tuple[list[Tensor], list[Tensor]]:
        address = data.ctypes.data
        if address not in self._views:
            views = _tensors(data, self.parameters + self.buffers)
            count = len(self.parameters)
            _remember(self._views, address, (views[:count], views[count:]))
        return self._views[address]

    def _gradient_views_of(self, out: Floats) -> list[Tensor]:
        known = self._gradient_views.get(id(out))
        if known is not None:
            return known[1]
        if out.dtype != np.float32 or out.shape != (self.parameter_elements,):
            expected = f"float32 [{self.parameter_elements}]"
            raise NetworkError(f"a gradient block is {expected}, got {out.dtype} {list(out.shape)}")
        out[:] = 0  # clears the padding once; no later pass writes to it
        views = _tensors(out.view(np.uint8), self.parameters)
        _remember(self._gradient_views, id(out), (out, views))
        return views


def parameter_groups(
    prefixes: Sequence[str], names: Sequence[str], starts: Sequence[int], elements: int
) -> tuple[ParameterGroup, ...]:
    """Return the groups of a flat vector.

    prefixes: the names of the groups; () for a single one. names, starts: name and first element of each parameter, in
        the order of the vector. elements: the length of the vector.

    Raises NetworkError unless each parameter belongs to a group, and the groups follow each other and are not empty.
    """
    if not prefixes:
        return (ParameterGroup(WHOLE, slice(0, len(names)), slice(0, elements)),)
    owners = [
        next((prefix for prefix in prefixes if name.startswith(f"{prefix}.")), name.partition(".")[0]) for name in names
    ]
    firsts = [owners.index(prefix) if prefix in owners else -1 for prefix in prefixes]
    ends = [*firsts[1:], len(owners)]
    expected = [prefix for prefix, first, end in zip(prefixes, firsts, ends, strict=True) for _ in range(first, end)]
    if owners != expected or len(set(prefixes)) != len(prefixes) or -1 in firsts:
        raise NetworkError(
            f"the parameters {', '.join(dict.fromkeys(owners))} do not form the groups {', '.join(prefixes)}",
            hint="`parameter_groups` names children of the module, in their order, that hold all parameters",
        )
    edges = [starts[first] for first in firsts] + [elements]
    return tuple(
        ParameterGroup(prefix.rpartition(".")[2], slice(first, end), slice(edges[number], edges[number + 1]))
        for number, (prefix, first, end) in enumerate(zip(prefixes, firsts, ends, strict=True))
    )


def keep_frozen(ranges: Sequence[slice], before: Sequence[Floats], after: Sequence[Floats]) -> None:
    """Copy the frozen ranges of each array of `before` to the array of `after` at its position.

    An optimizer's pass steps whole blocks, and its decay would change parameters without a gradient.
    """
    for old, new in zip(before, after, strict=True):
        for elements in ranges:
            new[elements] = old[elements]


def polyak(target: Floats, source: Floats, out: Floats, rate: float, frozen: Sequence[slice] = ()) -> None:
    """Write (1 - rate) * target + rate * source to `out`, which may be `target`: the Polyak step of target networks.

    frozen: ranges of parameters without a gradient. Where they are equal in both they stay so, because the mean of two
    equal numbers may differ from them in the last bit. (Polyak and Juditsky 1992; Lillicrap et al. 2016.)
    """
    equal = [e for e in frozen if np.array_equal(target[e].view(np.uint32), source[e].view(np.uint32))]
    _native.polyak(target, source, out, rate)
    for elements in equal:
        out[elements] = source[elements]


def aligned_block(nbytes: int) -> Bytes:
    """Return a new block of zeros, uint8 [nbytes], that starts at a multiple of 64 bytes."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _check(name: str, tensor: Tensor, dtypes: Iterable[torch.dtype]) -> None:
    if tensor.dtype not in dtypes:
        found, *allowed = (str(dtype).removeprefix("torch.") for dtype in (tensor.dtype, *dtypes))
        raise NetworkError(
            f"`{name}` is {found}, a flat block holds {', '.join(allowed)} there",
            hint="call .float() on the module, and cast inside its forward for another precision"
            if tensor.is_floating_point()
            else "keep it as int64, by .long()",
        )
    if tensor.device.type not in ("cpu", "meta") or tensor.layout != torch.strided:
        raise NetworkError(
            f"`{name}` is {tensor.layout} on {tensor.device}, a flat block is dense host memory",
            hint="build the module on the cpu with dense parameters",
        )


def _lay_out(named: list[tuple[str, Any]], offset: int) -> tuple[tuple[FlatField, ...], int]:
    """Return the fields of `named` tensors from `offset` on, and the offset after the last one."""
    fields = []
    for name, tensor in named:
        nbytes = prod(tensor.shape) * tensor.element_size()
        fields.append(FlatField(name, tuple(tensor.shape), NUMPY_OF_BUFFER[tensor.dtype], offset, nbytes))
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return tuple(fields), offset


def _array(data: Bytes, field: FlatField) -> npt.NDArray[Any]:
    return data[field.offset : field.offset + field.nbytes].view(field.dtype).reshape(field.shape)


def _tensors(data: Bytes, fields: tuple[FlatField, ...]) -> list[Tensor]:
    """Return a view of `data` for each field. They are ordinary, trainable tensors even in inference mode."""
    if fields and data.ctypes.data % ALIGNMENT:
        raise NetworkError(f"a block must start at a multiple of {ALIGNMENT} bytes, this one does not")
    with warnings.catch_warnings(), torch.inference_mode(False):
        warnings.filterwarnings("ignore", message=".*not writable")  # a warning about writes, which never happen
        return [torch.from_numpy(_array(data, field)) for field in fields]


def _remember(cache: dict[Any, Any], key: object, views: object) -> None:
    if len(cache) >= CACHED_BLOCKS:
        cache.clear()
    cache[key] = views
