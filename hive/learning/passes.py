"""Forward and backward passes of a model in a run: by hive._native, on a device, or by torch.

hive._native computes networks of hive.networks, possibly inside modules that only choose their output or normalize
their input. On a device everything around the network stays in host memory, so that an algorithm is the same for every
device, and a loss that hive._native differentiates has the same bits for the same outputs:

    inputs ──> model on the device ──> outputs, host ── loss, native ──> slopes ──> backward pass on the device

A large input that several passes read is moved once, by the algorithm (`hive.algorithms.batches.rows.input_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive.learning.described import Step
from hive.learning.loss import Floats
from hive.networks.build.agents import Critics
from hive.networks.build.network import Network, NetworkPerHead
from hive.networks.build.spaces import InputSpec
from hive.networks.rows.inputs import ACTION_INPUT, with_observation
from hive.networks.rows.normalization import NormalizedNetwork, Normalizer, PackedNormalizer
from hive.networks.rows.packed import PackedNetwork, StackedNetwork
from hive.networks.weights.dense import Dense, DensePass
from hive.networks.weights.device import CapturedPasses, to_device, to_host
from hive.networks.weights.unpacking import unpacking_of

KNOWN_NORMALIZERS = (Normalizer, PackedNormalizer, type(None))


class GraphPass:
    """A forward pass by torch. `tensors`: what the model returned, with their graph."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = tensors

    @property
    def outputs(self) -> tuple[Floats, ...]:
        """The values of a model that returns a tuple, float32 [N, ...] each."""
        return tuple(tensor.detach().numpy() for tensor in self.tensors)


class RemotePass:
    """A forward pass on a device. `tensors`: what the model returned there. `outputs`: their values in host memory."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self.tensors = tensors
        self.outputs = tuple(map(on_host, tensors))


Slopes: TypeAlias = Callable[[Sequence[Floats]], Sequence[Floats]]
"""Maps the values of critics, float32 [N] of each, to the gradients of a loss with respect to them."""
Joins: TypeAlias = StackedNetwork | PackedNetwork
"""A network that calls another one with its rows in another form."""
Forward: TypeAlias = DensePass | RemotePass | GraphPass
"""A forward pass whose backward pass comes later."""


class Remote:
    """`model` on `device`, with the call of a model in host memory."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.model = model
        self.device = device
        self._captured = CapturedPasses(model)

    def __call__(self, *inputs: Any) -> Any:
        return to_host(self.outputs(*inputs))

    def outputs(self, *inputs: Any) -> Any:
        """Return the outputs on the device."""
        return self.model(*to_device(inputs, self.device))

    def repeated(self, inputs: Any) -> Any:
        """Return the same of a model that returns a tuple. The next call overwrites these outputs."""
        return self._captured(to_device(inputs, self.device))

    def climb(self, observations: Any, actions: Floats, count: int | None, slopes: Slopes) -> Floats | None:
        """Return the gradient of the actions of critics; see hive.algorithms.losses.agents.CriticOfActions."""
        if not isinstance(self.model, Critics):
            return None
        with torch.enable_grad():
            given = torch.from_numpy(actions).to(self.device).requires_grad_()
            values = self.outputs(observations, given, count)
        to_values = torch.from_numpy(np.stack(slopes(tuple(on_host(values))))).to(self.device)
        (gradient,) = torch.autograd.grad(values, given, to_values)
        return on_host(gradient)


class NativePasses:
    """The passes of `model` by its `network`, which has a `dense` attribute; None: torch makes them.

    normalizer: maps the observations of the network first. joins: then takes their rows apart, or joins the frames of
    several. remote: calls the model where it computes on a device.
    """

    def __init__(
        self,
        model: nn.Module,
        network: nn.Module | None,
        normalizer: Normalizer | None,
        *,
        single: bool,
        remote: Remote | None = None,
        joins: Joins | None = None,
    ) -> None:
        """single: whether the loss takes the only output of the network, and not a tuple of several."""
        self._model = remote or model
        self._remote = remote
        self._network = network
        self.normalizer = normalizer
        self._joins = joins
        self.single = single

    @property
    def dense(self) -> Dense | None:
        """The native form of the network; None: torch makes its passes."""
        return getattr(self._network, "dense", None)

    def __call__(self, *inputs: Any) -> Any:
        """Return what the model returns for these inputs, without a graph."""
        dense, outputs = self.dense, None
        with torch.no_grad():
            if dense is not None and inputs and isinstance(inputs[0], Tensor):
                if len(inputs) == 1:
                    outputs = dense.outputs(*self._given(inputs[0]))
                elif len(inputs) == 2 and isinstance(self._network, Critics):
                    outputs = dense.outputs(*self._given({"observation": inputs[0], ACTION_INPUT: inputs[1]}))
            if outputs is None or (self.single and len(outputs) != 1):
                return self._model(*inputs)
        if isinstance(self._network, Critics):
            return torch.from_numpy(np.stack(outputs))
        tensors = tuple(map(torch.from_numpy, outputs))
        return tensors[0] if self.single else tensors

    def prepared(self, inputs: Any) -> Any:
        """Return what the network is called with for these inputs of the model."""
        normalized = inputs if self.normalizer is None else self.normalizer(inputs)
        return normalized if self._joins is None else with_observation(normalized, self._joins.joined)

    def _given(self, inputs: Any) -> tuple[Any, NDArray[np.bool_] | None]:
        """Return what `prepared` does, and which actions the mask of the inputs forbids; None without a mask."""
        forbidden = None if self._joins is None else self._joins.forbidden(inputs)
        return self.prepared(inputs), None if forbidden is None else forbidden.numpy()

    def begin(self, inputs: Any) -> DensePass | None:
        """Begin a pass that is differentiated later; None if torch makes it."""
        dense = None if self._remote is not None else self.dense
        made = None if dense is None else dense.begin(*self._given(inputs))
        return None if made is None or (self.single and len(made.outputs) != 1) else made

    @property
    def is_masked(self) -> bool:
        """Whether a mask forbids actions. A described pass then reads the stored rows."""
        return self._joins is not None and self._joins.mask is not None

    def rows(self, inputs: Any) -> Floats | None:
        """Return what the network's first linear layer reads, float32 [N, inputs]; None if torch computes it."""
        dense = self.dense
        if dense is None or self._remote is not None:
            return None
        with torch.no_grad():
            rows = dense.rows(self.prepared(inputs))
        return None if rows is None else np.ascontiguousarray(rows.numpy())

    def described(
        self, rows: str, outputs: Sequence[str], slopes: Sequence[str] | None = None, **options: Any
    ) -> tuple[str, dict[str, Any]] | None:
        """Return a pass as a step of a `_native.Program`; None if torch has a part in it. See `Dense.described`.

        If `is_masked`, it reads the masks of the register `observations`, which has them as they are stored; for rows
        of a register next_* those of `next_observations`.
        """
        dense = None if self._remote is not None else self.dense
        if dense is None:
            return None
        columns = None if self._joins is None else self._joins.mask
        stored = "next_observations" if rows.startswith("next_") else "observations"
        mask = None
        if columns is not None:
            mask = {"of": stored, "offset": columns.earlier + columns.offset, "actions": columns.actions}
        return dense.described(rows, outputs, slopes, mask=mask, **options)

    def unpack(self, observations: str, into: str, spec: InputSpec) -> Step | None:
        """Return the step from a register of stored observations to what the first linear layer reads of them.

        None if torch has a part in it.
        """
        dense = None if self._remote is not None or self.normalizer is not None else self.dense
        unpacking = None if dense is None else unpacking_of(dense.before, spec, self._joins)
        return None if unpacking is None else ("unpack", {"from": observations, "into": into, "unpacking": unpacking})

    def climb(self, observations: Any, actions: Floats, count: int | None, slopes: Slopes) -> Floats | None:
        """Return the gradient of the actions of critics; see hive.algorithms.losses.agents.CriticOfActions."""
        if self._remote is not None:
            return self._remote.climb(observations, actions, count, slopes)
        dense = self.dense
        if dense is None or not isinstance(self._network, Critics):
            return None
        columns = dense.columns_of(ACTION_INPUT)
        given = torch.from_numpy(actions)
        with torch.set_grad_enabled(columns is None):
            action = given.requires_grad_(columns is None)
            rows = dense.rows(self.prepared({"observation": observations, ACTION_INPUT: action}))
        if rows is None:
            return None
        made = DensePass(dense, rows.detach().numpy(), count or len(dense.heads))
        to_rows = made.to_rows(slopes(made.outputs))
        if columns is not None:
            return np.ascontiguousarray(to_rows[:, columns])
        (gradient,) = torch.autograd.grad(rows, given, torch.from_numpy(to_rows))
        return np.ascontiguousarray(gradient.numpy())


def native_passes(model: nn.Module, device: torch.device | None = None) -> NativePasses:
    """Return the passes of a model. device: that on which it computes in a run; None: the CPU."""
    remote = None if device is None else Remote(model, device)
    network, normalizer, joins, single = model, None, None, False
    while True:
        if isinstance(network, NormalizedNetwork) and type(network.normalizer) in KNOWN_NORMALIZERS:
            normalizer, network = network.normalizer, network.network
        elif (inner := getattr(network, "computes_as", None)) is not None:
            network, single = inner, True
        elif isinstance(network, StackedNetwork | PackedNetwork) and joins is None:
            joins, network = network, network.network
        else:
            known = network if isinstance(network, Network | NetworkPerHead | Critics) else None
            joins = known.joins if isinstance(known, Critics) else joins
            return NativePasses(model, known, normalizer, single=single, remote=remote, joins=joins)


def on_host(tensor: Tensor) -> Floats:
    """Return the values of a tensor as a contiguous array in host memory."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
