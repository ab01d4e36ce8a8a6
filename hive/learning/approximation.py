"""What an algorithm calls and learns with in a run: a network, its target network, and the receiver of its gradients.

    reinforce(loss)     forward pass, loss and its slopes -> the receiver makes the backward pass into its slot

The learner makes the updates. A typed loss (hive.algorithms.losses) that knows its slopes is computed by hive._native
where that has the network's layers, and by torch elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeGuard

import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.learning.loss import Floats, Loss
from hive.learning.passes import Forward, GraphPass, NativePasses, Remote, RemotePass, Slopes, native_passes
from hive.learning.receivers import AnyPart, ComputedPart, GradientReceiver, NativePart, Part, RemotePart
from hive.learning.targets import TargetNetwork
from hive.networks.build.field_rules import FieldRule


class Approximation:
    """A network that learns in a run.

    model: a torch module. optimizer: the GradientReceiver of the process; None: the model can be called but not
    trained. name: identifies it in errors. target: computes `target(...)`; None: the model itself.

    Raises NetworkError for other arguments.
    """

    gives_several: ClassVar[bool] = False
    """Whether `model` returns a tuple, whose tensors a typed loss takes one by one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: GradientReceiver | None = None,
        name: str = "approximation",
        target: TargetNetwork | None = None,
    ) -> None:
        for field, rule, value in (("model", FieldRule.part(nn.Module), model), ("name", FieldRule.name(), name)):
            rule.checked(type(self).__name__, field, value)
        if optimizer is not None and not isinstance(optimizer, GradientReceiver):
            raise NetworkError(
                f"`{name}` is given a {type(optimizer).__name__}, but it learns from gradients that a run receives",
                hint="in a script use hive.compat.autonomous: its classes, or OptimizerReceiver(optimizer)",
            )
        self.model = model
        self.receiver = optimizer
        self.name = name
        self.target_network = target
        self.statistics: tuple[float, ...] = ()
        """The statistics of the last loss; empty if it had none."""
        self.inputs: tuple[Any, ...] = ()
        """The inputs of the last forward pass with a graph, for reports of non-finite values."""
        place: torch.device | None = getattr(optimizer, "device", None)
        self._remote = None if place is None else Remote(model, place)
        self._call: Callable[..., Any] = self._remote or model
        self._parameters = tuple(model.parameters())
        if target is not None:
            target.init(model)

    def __call__(self, *inputs: Any) -> Any:
        """Call the model in its current mode, recording the autograd graph, and return its outputs."""
        outputs = self._call(*inputs)
        self.inputs = inputs
        return outputs if self.receiver is None else self.receiver.watch(outputs)

    @property
    def device(self) -> torch.device:
        """The current device of the model; the CPU for a model without parameters and buffers."""
        tensors = self._parameters or tensors_of(self.model)
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The parameters of the model, which are always the same ones."""
        return self._parameters

    @functools.cached_property
    def native(self) -> NativePasses:
        """The native passes of the model."""
        return native_passes(self.model, None if self._remote is None else self._remote.device)

    def no_grad(self, *inputs: Any) -> Any:
        """Call the model without a graph, in its current mode, and return its outputs."""
        return self.native(*inputs)

    def eval(self, *inputs: Any) -> Any:
        """Call the model without a graph in evaluation mode, then restore the mode of every module."""
        with torch.no_grad(), evaluating(self.model):
            return self._call(*inputs)

    def fixed(self, *inputs: Any) -> Any:
        """Call the model with a graph of its inputs, not of its parameters, and return its outputs.

        Its backward pass is shorter than that of a call, for losses that this approximation does not learn from.
        """
        learning = [parameter for parameter in self.parameters if parameter.requires_grad]
        for parameter in learning:
            parameter.requires_grad_(False)
        try:
            return self(*inputs)
        finally:
            for parameter in learning:
                parameter.requires_grad_(True)

    def target(self, *inputs: Any) -> Any:
        """Call the target network without a graph and return its outputs."""
        return self.eval(*inputs) if self.target_network is None else self.target_network(*inputs)

    def climb(self, observations: Any, actions: Floats, count: int | None, slopes: Slopes) -> Floats | None:
        """Return the gradient of the actions of critics; see hive.algorithms.losses.agents.CriticOfActions."""
        return self.native.climb(observations, actions, count, slopes)

    def begin(self, inputs: Any, *, native: bool, kept: bool = False) -> Forward:
        """Make a forward pass that `reinforce` or `computed` differentiates.

        native: whether the loss knows its slopes. kept: whether other passes may come before the backward pass.
        """
        if native and self._remote is not None and self.gives_several:
            return RemotePass(self._remote.outputs(inputs) if kept else self._remote.repeated(inputs))
        made = self.native.begin(inputs) if native else None
        return made or GraphPass(self._call(inputs))

    def reinforce(
        self,
        loss: Tensor | Loss | None = None,
        *,
        samples: int | None = None,
        statistics: Sequence[float] = (),
        forward: Forward | None = None,
    ) -> Self:
        """Give the receiver the gradient of a loss; return self.

        loss: a scalar with a graph, or a typed loss, whose forward pass is `forward`, or is made here. samples: the
        number of samples in the mean loss, the weight of the gradient; 0: a gradient of zero samples, which the learner
        waits for. statistics: numbers for the metrics; a typed loss replaces them by its own.

        Raises NetworkError without a receiver, without a loss, for one that depends on no parameter, without `samples`,
        and for a loss of outputs of earlier weights.
        """
        receiver = self.receiver
        if samples == 0:
            if receiver is not None:
                receiver.reinforce([], 0, ())
            return self
        if receiver is None:
            raise NetworkError(
                f"`{self.name}` has no optimizer, so it cannot learn",
                hint="construct it with the `optimizer` of `connect`; in a script use hive.compat.autonomous",
            )
        self.statistics = tuple(statistics)
        value: Any = loss
        if is_typed(loss):
            value = self.computed(loss, forward or self.begin(loss.inputs, native=getattr(loss, "is_native", False)))
        part = value if isinstance(value, ComputedPart) else self.part_of(value)
        receiver.reinforce([part], samples, self.statistics)
        return self

    def computed(self, loss: Loss, forward: Forward | None = None) -> Any:
        """Compute a typed loss from its forward pass and store its statistics; return a scalar or a ComputedPart.

        forward: made here if it is None; other forward passes may follow before the backward pass.
        """
        typed: Any = loss  # the slopes are no part of the protocol: a loss may have none
        if forward is None:
            forward = self.begin(typed.inputs, native=getattr(typed, "is_native", False), kept=True)
        self.inputs = (typed.inputs,)
        if not isinstance(forward, GraphPass):
            slopes = typed.differentiate(forward.outputs)
            if slopes is not None:
                self.statistics = slopes.statistics
                if isinstance(forward, RemotePass):
                    return RemotePart(slopes.total, self.inputs, forward, slopes.slopes)
                return NativePart(slopes.total, self.inputs, forward, slopes.slopes)
            forward = GraphPass(self._call(typed.inputs))
        value = typed(forward.tensors)
        self.statistics = value.statistics
        return value.total

    def part_of(self, loss: Any, parameters: Sequence[nn.Parameter] | None = None) -> Part:
        """Return the Part of this loss. Raises NetworkError for anything but a scalar with a graph."""
        return Part(scalar(self.name, loss), self.inputs, parameters)


class ActorCritic(Approximation):
    """An Approximation whose `model` returns (policy [N, W], value [N]). Other arguments: as for Approximation."""

    gives_several = True

    def __init__(
        self,
        model: nn.Module,
        optimizer: GradientReceiver | None = None,
        name: str = "actor_critic",
        target: TargetNetwork | None = None,
    ) -> None:
        super().__init__(model, optimizer, name, target)


class SingleOutput(nn.Module):
    """Calls a network and returns the first of its outputs, for networks that return a tuple as hive.networks' do.

    A result that is not a tuple is returned unchanged.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    @property
    def computes_as(self) -> nn.Module:
        """The module whose only output this module returns."""
        return self.network

    def forward(self, observations: Any) -> Any:
        outputs = self.network(observations)
        return outputs[0] if isinstance(outputs, tuple) else outputs


def jointly(
    *parts: tuple[Approximation, Tensor | Loss | ComputedPart],
    samples: int | None = None,
    statistics: Sequence[float] = (),
) -> tuple[Approximation, ...]:
    """Give the receiver one gradient of several approximations, each with its loss; return the approximations.

    Each loss reaches only the parameters of its approximation, whatever else its graph contains. An approximation with
    several losses learns from their sum: `yield jointly((critic, critic_loss), (policy, policy_loss), samples=n)`.

    samples, statistics: as for `Approximation.reinforce`; the default statistics are those of typed losses, in order.
    Raises NetworkError if two approximations share a parameter, if they have no common receiver, and where `reinforce`
    raises it.
    """
    if not parts:
        raise NetworkError("no losses are given")
    approximations = tuple(dict.fromkeys(approximation for approximation, _ in parts))
    groups = own_parameters(approximations)
    receivers = {id(approximation.receiver): approximation.receiver for approximation in approximations}
    if len(receivers) > 1:
        raise NetworkError("some of these approximations belong to a run and some do not", hint="connect all of them")
    (receiver,) = receivers.values()
    if samples == 0:
        if receiver is not None:
            receiver.reinforce([], 0, ())
        return approximations
    if receiver is None:
        raise NetworkError(
            f"`{approximations[0].name}` has no optimizer, so it cannot learn",
            hint="construct it with the `optimizer` of `connect`; in a script use hive.compat.autonomous.jointly",
        )
    passes: list[AnyPart] = []
    reported: list[float] = []
    for approximation, given in parts:
        loss: Any = given
        if is_typed(loss):
            loss = approximation.computed(loss)
            reported += approximation.statistics
        passes.append(loss if isinstance(loss, ComputedPart) else approximation.part_of(loss, groups[approximation]))
    receiver.reinforce(passes, samples, statistics or reported)
    return approximations


def own_parameters(approximations: Sequence[Approximation]) -> Mapping[Approximation, list[nn.Parameter]]:
    """Return the trainable parameters of each. Raises NetworkError for shared ones, and if one has none."""
    owners: dict[int, Approximation] = {}
    groups = {}
    for approximation in approximations:
        group = [parameter for parameter in approximation.parameters if parameter.requires_grad]
        if not group:
            raise NetworkError(f"`{approximation.name}` has no parameter that can learn", hint="leave it out")
        for parameter in group:
            other = owners.setdefault(id(parameter), approximation)
            if other is not approximation:
                raise NetworkError(
                    f"`{other.name}` and `{approximation.name}` share parameters, which jointly() does not support",
                    hint="give each its own layers; scripts have hive.compat.autonomous.reinforce_jointly",
                )
        groups[approximation] = group
    return groups


def scalar(name: str, loss: Any) -> Tensor:
    """Return `loss` itself, for `name`. Raises NetworkError for anything but a scalar tensor with a graph."""
    if loss is None:
        raise NetworkError(f"`{name}` has no loss to learn from", hint="pass it: reinforce(loss)")
    if not isinstance(loss, Tensor):
        raise NetworkError(f"`{name}` is given a loss {loss!r}", hint="a scalar tensor with a graph is expected")
    if loss.dim() != 0 or not loss.requires_grad:
        kind = f"of shape {list(loss.shape)}" if loss.dim() else "that depends on no parameter"
        raise NetworkError(f"`{name}` is given a loss {kind}", hint="a scalar with a graph is expected")
    return loss


def is_typed(loss: Any) -> TypeGuard[Loss]:
    """Return whether this is a typed loss. `isinstance(loss, Loss)`, a protocol, takes 20 us for every gradient."""
    return not isinstance(loss, Tensor) and callable(loss) and hasattr(loss, "inputs")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run the block with `module` and its submodules in evaluation mode, and restore the modes even if it raises.

    Every submodule has its own mode: a frozen BatchNorm stays in evaluation mode while the network around it is
    trained, so `module.train(mode)` would not restore it.
    """
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, mode in modes:
            child.training = mode


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """Yield parameters, then buffers; lazily, because the caller usually needs only the first."""
    yield from model.parameters()
    yield from model.buffers()
