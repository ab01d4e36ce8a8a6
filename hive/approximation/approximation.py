"""An Approximation: a model with its optimizer and all stages of an update.

    reinforce(loss)   loss * loss_scaling, backward pass, step
    step()            average, check, clip, optimizer, zero_grad, scheduler, target, checkpoint (see stepping.py)

Model and optimizer are an ordinary torch.nn.Module and torch.optim.Optimizer, on any device. `step` is the control loop
of autonomous-learning-library's documentation, in a fixed order; `report` describes the last one.

In a run the same object has a GradientReceiver, which writes the gradient worker's slot, instead of an optimizer (see
receivers.py). `reinforce` then computes one gradient, the learner steps, and the target is a block of its state.

A script can make an update in three ways:

- `reinforce(loss)`, a scalar or a typed loss of hive.losses. With `accumulate_steps=k` every k-th call makes the step,
  on the mean of the k gradients.
- Any number of `accumulate(loss, weight)`, then `step()`: the mean is weighted by `weight`, for example the number of
  samples. A GradAccumulator (hive.gradients) holds the sums, so `.grad` is None in between; the step sets it.
- A custom backward pass, then `step()`. If `loss_scaling` is not 1, backpropagate `scaled(loss)`: a step on
  gradients that were not scaled is refused, because the setting would have no effect. For several heads on shared
  features see `accumulate_jointly`.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from hive.approximation.checkpointers import Checkpointer, DummyCheckpointer, PeriodicCheckpointer
from hive.approximation.means import GradientMean
from hive.approximation.modes import evaluating
from hive.approximation.native_passes import NativePasses, native_passes
from hive.approximation.receivers import ComputedPart, GradientReceiver, NativePart, Part, RemotePart
from hive.approximation.remote import Remote, on_host
from hive.approximation.stepping import (
    StepReport,
    clip_gradients,
    gradient_norm,
    not_finite_name,
    parameters_with_gradients,
    refuse_weight,
)
from hive.approximation.targets import SharedTarget, TargetNetwork, TrivialTarget
from hive.approximation.writers import DummyWriter, Writer
from hive.errors import HiveError, NetworkError, NotFinite
from hive.losses import Floats, Loss, LossSlopes
from hive.networks.field_rules import Rule, Rules

__all__ = ["CHECKPOINT_FREQUENCY", "Approximation"]

CHECKPOINT_FREQUENCY = 200  # updates between checkpoints, the default of autonomous-learning-library

NonFinite = Literal["raise", "skip", "accept"]

SILENT = DummyWriter()

RULES: Rules = {
    "clip_grad": Rule.number(0),
    "loss_scaling": Rule.number(),
    "accumulate_steps": Rule.whole(1),
    "keep_gradients": Rule.flag(),
    "non_finite": Rule.choice(get_args(NonFinite)),
    "name": Rule.name(),
    "model": Rule.part(nn.Module),
    "optimizer": Rule.having("param_groups").or_none(),
    "scheduler": Rule.having("step").or_none(),
    "scaler": Rule.having("unscale_").or_none(),
    "target_network": Rule.having("init"),
    "writer": Rule.having("log_dir"),
}


class Approximation:
    """A function approximator.

    model: a torch module. optimizer: a torch optimizer of its parameters, or a GradientReceiver; None: the model can be
        called but not trained.
    checkpointer: None: a PeriodicCheckpointer(200) that saves below the writer's `log_dir`; without a writer, none.
    clip_grad: the greatest norm of the gradient; 0: no clipping.
    device: the model's device; None: that of its first parameter or buffer. Required for a model without any.
    loss_scaling: multiplies the loss before the backward pass.
    name: identifies logs and checkpoints.
    scheduler: a learning rate scheduler; it steps after every update.
    target: None: a TrivialTarget. writer: see hive.approximation.writers.

    non_finite: how a step treats a gradient with NaN or infinity. "raise": raises NotFinite, which names the parameter;
        "skip": clears the gradient and changes nothing; "accept": does not check.
    accumulate_steps: the number of `reinforce` calls per update.
    keep_gradients: keep the applied gradient in `.grad` until `zero_grad`. A backward pass before that adds to it, as
        in torch.
    scaler: a torch.amp.GradScaler. It skips a step whose scaled gradient overflows.

    Raises NetworkError for invalid arguments and for arguments that contradict each other.
    """

    gives_several: ClassVar[bool] = False
    """Whether `model` returns a tuple, whose tensors a typed loss takes one by one."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | GradientReceiver | None = None,
        checkpointer: Checkpointer | None = None,
        clip_grad: float = 0,
        device: torch.device | str | None = None,
        loss_scaling: float = 1,
        name: str = "approximation",
        scheduler: LRScheduler | None = None,
        target: TargetNetwork | None = None,
        writer: Writer = SILENT,
        *,
        logger: Writer | None = None,
        non_finite: NonFinite = "raise",
        accumulate_steps: int = 1,
        keep_gradients: bool = False,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        if logger is not None and writer is not SILENT:
            raise NetworkError(f"`{name}` is given a writer and a logger", hint="they are the same: give only one")
        self.model = model
        self.receiver = optimizer if isinstance(optimizer, GradientReceiver) else None
        self.optimizer: Optimizer | None = None if isinstance(optimizer, GradientReceiver) else optimizer
        self.scheduler = scheduler
        self.target_network = TrivialTarget() if target is None else target
        self.writer = writer if logger is None else logger
        self.name = name
        self.clip_grad = clip_grad
        self.loss_scaling = loss_scaling
        self.non_finite = non_finite
        self.accumulate_steps = accumulate_steps
        self.keep_gradients = keep_gradients
        self.scaler = scaler
        self.updates = 0
        self.report: StepReport | None = None
        self.statistics: tuple[float, ...] = ()
        """The statistics of the last loss; empty if it had none."""
        self.inputs: tuple[Any, ...] = ()
        """The inputs of the last forward pass with a graph, for reports of non-finite values."""
        self._given_device = None if device is None else torch.device(device)
        self._was_scaled = False
        self._parameters: Sequence[nn.Parameter] | None = None
        self._mean = GradientMean()  # mean gradient of the backward passes since the last step
        self._refuse_contradictions()
        place: torch.device | None = getattr(self.receiver, "device", None)
        self._remote = None if place is None else Remote(model, place)
        self._call: Callable[..., Any] = self._remote or model
        self.target_network.init(model)
        if checkpointer is None:
            silent = type(self.writer) is DummyWriter
            checkpointer = DummyCheckpointer() if silent else PeriodicCheckpointer(CHECKPOINT_FREQUENCY)
        self.checkpointer = checkpointer
        self.checkpointer.init(model, str(Path(self.writer.log_dir) / f"{name}.pt"))
        if isinstance(self.checkpointer, Checkpointer):
            self.checkpointer.include(self)

    def __call__(self, *inputs: Any) -> Any:
        """Calls the model in its current mode, recording the autograd graph, and returns its outputs."""
        outputs = self._call(*inputs)
        self.inputs = inputs
        return outputs if self.receiver is None else self.receiver.watch(outputs)

    @property
    def device(self) -> torch.device:
        """The current device of the model."""
        found = next((tensor.device for tensor in _tensors(self.model)), self._given_device)
        assert found is not None
        return found

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The parameters of the model. In a run they never change, so that they are listed once."""
        if self.receiver is None:
            return list(self.model.parameters())
        if self._parameters is None:
            self._parameters = list(self.model.parameters())
        return self._parameters

    def no_grad(self, *inputs: Any) -> Any:
        """Calls the model without a graph, in its current mode, and returns its outputs."""
        return self.native(*inputs)

    @functools.cached_property
    def native(self) -> NativePasses:
        """The native passes of the model."""
        return native_passes(self.model, None if self._remote is None else self._remote.device)

    def fixed(self, *inputs: Any) -> Any:
        """Calls the model with a graph of its inputs, not of its parameters, and returns its outputs.

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

    def eval(self, *inputs: Any) -> Any:
        """Calls the model without a graph in evaluation mode, then restores the mode of every module."""
        with torch.no_grad(), evaluating(self.model):
            return self._call(*inputs)

    def target(self, *inputs: Any) -> Any:
        """Calls the target network without a graph and returns its outputs."""
        return self.target_network(*inputs)

    def reinforce(
        self, loss: Tensor | Loss | None = None, *, samples: int | None = None, statistics: Sequence[float] = ()
    ) -> Self:
        """Makes a backward pass of `loss * loss_scaling`, then a step; returns self.

        loss: a scalar with a graph, or a typed loss, whose forward pass is made here. The unscaled loss is logged. With
            `accumulate_steps=k` only every k-th call makes the step.
        samples: the number of samples in the mean loss, in a run the weight of the gradient. With 0 there is no update.
        statistics: numbers stored in `statistics`; a typed loss replaces them by its statistics.

        Raises NetworkError without a loss, for one that does not depend on any parameter, and in the cases of `step`;
        in a run also without `samples`, and for a loss of outputs of earlier weights.
        """
        if samples == 0:  # no update; in a run it is a gradient of weight 0, which the learner waits for
            if self.receiver is not None:
                self.receiver.reinforce([], 0, ())
            return self
        if self.receiver is not None:
            part = self._native_part(loss, at_once=True) or self.part_of(
                None if loss is None else self.value_of(loss, statistics)
            )
            self.receiver.reinforce([part], samples, self.statistics)
            return self
        self.refuse_untrainable()
        value = None if loss is None else self.value_of(loss, statistics)
        self._backward(value)
        return self.finish_backward(*[] if value is None else [value])

    def value_of(self, loss: Tensor | Loss, statistics: Sequence[float] = ()) -> Tensor:
        """Returns the scalar of a loss. A typed loss is computed here, and its statistics are stored."""
        self.statistics = tuple(statistics)
        # Not isinstance(loss, Loss): with a protocol it takes 20 us, for every gradient.
        if isinstance(loss, Tensor) or not (callable(loss) and hasattr(loss, "inputs")):
            return cast(Tensor, loss)  # `scaled` refuses anything but a scalar tensor
        self.inputs = (loss.inputs,)
        value = loss(self._call(loss.inputs))
        self.statistics = value.statistics
        return value.total

    def _native_part(self, loss: Tensor | Loss | None, *, at_once: bool = False) -> ComputedPart | None:
        """Returns the backward pass of a typed loss if hive._native can make it, and stores the loss's statistics.

        On a device it makes the part of the loss, with a policy and a value as the outputs of the network. at_once:
        whether the backward pass comes before the next forward pass.
        """
        if self.loss_scaling != 1 or not getattr(loss, "is_native", False):
            return None
        made: Any = loss
        if self._remote is not None:
            return self._remote_part(made, self._remote, at_once) if self.gives_several else None
        begun = self.native.begin(made.inputs)
        if begun is None:
            return None
        found: LossSlopes | None = made.differentiate(begun.outputs)
        if found is None:
            return None
        self.inputs, self.statistics = (made.inputs,), found.statistics
        return NativePart(found.total, self.inputs, begun.mask, partial(begun.differentiate, found.slopes))

    def _remote_part(self, loss: Any, remote: Remote, at_once: bool) -> RemotePart:
        outputs = remote.repeated(loss.inputs) if at_once else remote.outputs(loss.inputs)
        found: LossSlopes = loss.differentiate(tuple(map(on_host, outputs)))
        self.inputs, self.statistics = (loss.inputs,), found.statistics
        return RemotePart(found.total, self.inputs, outputs[: len(found.slopes)], found.slopes)

    def computed(self, loss: Loss) -> Tensor | ComputedPart:
        """Computes a typed loss for `jointly`, and stores its statistics: in a run without a graph where it can be."""
        part = None if self.receiver is None else self._native_part(loss)
        return self.value_of(loss) if part is None else part

    def climb(
        self, observations: Any, actions: Tensor, count: int | None, slopes: Callable[[Floats], Floats]
    ) -> tuple[Floats, Floats] | None:
        """Returns the values of critics and the gradient of the actions; see hive.losses.CriticOfActions."""
        return self.native.climb(observations, actions, count, slopes)

    def part_of(self, loss: Tensor | None, parameters: Sequence[nn.Parameter] | None = None) -> Part:
        """Returns the Part of this loss for a GradientReceiver. Raises NetworkError for the same losses as `scaled`."""
        if loss is None:
            raise self._no_loss()
        return Part(self.scaled(loss), self.inputs, parameters)

    def refuse_untrainable(self) -> None:
        """Raises NetworkError without an optimizer: before the backward pass, so that no gradients are left."""
        self.require_optimizer("learn")

    def finish_backward(self, *losses: Tensor) -> Self:
        """Logs `losses` after their backward pass; every `accumulate_steps`-th call makes a step. Returns self."""
        for loss in losses:
            self.writer.add_loss(self.name, loss.detach())
        if self.accumulate_steps > 1 or self._mean.rounds:
            self._add_to_mean(1.0)
            return self.step() if self._mean.rounds >= self.accumulate_steps else self
        return self.step()

    def pass_on(self) -> None:
        """Continues a joint backward pass below the heads; does nothing except in a FeatureNetwork."""

    def accumulate(self, loss: Tensor | Loss | None = None, weight: float = 1.0) -> Self:
        """Makes a backward pass of `loss * loss_scaling`, without a step; returns self.

        The next step applies the mean of the gradients since the last one, weighted by `weight`, which is positive and
        finite. Without an optimizer the gradient of `weight * loss` is added to `.grad`. Raises NetworkError in
        the cases of `reinforce`, and always in a run.
        """
        refuse_weight(weight)
        if self.receiver is not None:
            raise self._steps_in_a_run()
        value = None if loss is None else self.value_of(loss)
        self._backward(value, 1.0 if self.optimizer is not None else weight)
        self._add_to_mean(weight)
        return self

    def _backward(self, loss: Tensor | None, weight: float = 1.0) -> None:
        if loss is None:
            raise self._no_loss()
        total = self.scaled(loss)
        torch.autograd.backward(total if weight == 1.0 else weight * total)

    def scaled(self, loss: Any) -> Tensor:
        """Returns `loss * loss_scaling`, for a custom backward pass of several losses. Then `step()` each of them.

        Raises NetworkError for anything but a scalar tensor with a graph.
        """
        if not isinstance(loss, Tensor):
            raise NetworkError(
                f"`{self.name}` is given a loss {loss!r}", hint="a scalar tensor with a graph is expected"
            )
        if loss.dim() != 0 or not loss.requires_grad:
            found = f"of shape {list(loss.shape)}" if loss.dim() else "that depends on no parameter"
            raise NetworkError(f"`{self.name}` is given a loss {found}", hint="a scalar with a graph is expected")
        self._was_scaled = True
        total = loss if self.loss_scaling == 1 else self.loss_scaling * loss
        return total if self.scaler is None else self.scaler.scale(total)

    def count_backward(self, weight: float = 1.0) -> None:
        """Moves the gradient of a finished backward pass from `.grad` into the mean for the next step.

        Raises NetworkError if no parameter has a gradient, and for a weight that is not positive and finite.
        """
        refuse_weight(weight)
        self._add_to_mean(weight)

    def _add_to_mean(self, weight: float) -> None:
        if self.optimizer is not None and not self._mean.add(self.optimizer, weight):
            raise self._no_gradient()

    def step(self, loss: Tensor | None = None) -> Self:
        """Makes an update with the present gradients and sets `report`; returns self.

        loss: only logged. Raises NetworkError without an optimizer or gradients, NotFinite if non_finite="raise";
        the gradient is then cleared, and nothing else changes.
        """
        optimizer = self.require_optimizer("step")
        averaged = self._mean.restore()
        parameters = parameters_with_gradients(optimizer)
        self._refuse_step(parameters)
        if loss is not None:
            self.writer.add_loss(self.name, loss.detach())
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        stages = ["unscale"] if averaged or self.scaler is not None else []
        rate = float(optimizer.param_groups[0].get("lr", math.nan))
        norm, clipped, bad = None, None, ""
        if self.clip_grad or self._checks:
            total = gradient_norm(parameters)
            clipped = norm = float(total)
            if self._checks:
                stages.append("check")
                bad = "" if math.isfinite(norm) else not_finite_name(optimizer, self.model)
        if bad:
            return self._refuse_gradient(optimizer, [*stages, "zero_grad"], norm, rate, bad)
        if self.clip_grad:
            clipped = clip_gradients(parameters, self.clip_grad, total)
            stages.append("clip")
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()
        stages.append("optimizer")
        self.updates += 1
        stages += self._follow_up(rate)
        self.report = StepReport(self.updates, tuple(stages), norm, clipped, rate)
        self.checkpointer()
        return self

    def zero_grad(self) -> Self:
        """Clears the gradients of all tensors of the optimizer, and the accumulated ones; returns self."""
        if self.optimizer is None:
            self.model.zero_grad()
        else:
            self.optimizer.zero_grad()
        self._mean.clear()
        return self

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of model, optimizer, scheduler, scaler and target network, and the count of updates.

        It contains no gradients. Its tensors are not copied.
        """
        state: dict[str, Any] = {"updates": self.updates, "model": self.model.state_dict()}
        for name, part in self._parts():
            state[name] = part.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a state from `state_dict`, all of it or, after an error, nothing.

        Raises NetworkError, which names the first part that is missing or does not fit.
        """
        missing = [name for name, _ in [("updates", None), ("model", None), *self._parts()] if name not in state]
        if missing:
            raise NetworkError(f"the state for `{self.name}` has no {missing[0]}", hint=f"it has: {', '.join(state)}")
        updates = int(Rule.whole(0).checked("this state", "updates", state["updates"]))
        before = copy.deepcopy(self.state_dict())
        for name, part in (parts := [("model", self.model), *self._parts()]):
            try:
                part.load_state_dict(state[name])
            except (HiveError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
                for touched, its in parts[: parts.index((name, part)) + 1]:
                    its.load_state_dict(before[touched])
                raise NetworkError(
                    f"the {name} of `{self.name}` does not fit the state: {str(error).strip()}",
                    hint="build it with the settings of the saved training",
                ) from error
        self.updates = updates
        self.zero_grad()

    @property
    def _checks(self) -> bool:
        """Whether a step checks its gradient. It always does with a GradScaler, which overflows on purpose."""
        return self.non_finite != "accept" or self.scaler is not None

    def _parts(self) -> list[tuple[str, Any]]:
        parts = ("optimizer", self.optimizer), ("scheduler", self.scheduler), ("scaler", self.scaler)
        target = self.target_network if isinstance(self.target_network, TargetNetwork) else None
        return [(name, part) for name, part in (*parts, ("target", target)) if part is not None]

    def _no_loss(self) -> NetworkError:
        return NetworkError(
            f"`{self.name}` has no loss to learn from", hint="pass it, or call backward yourself and then step()"
        )

    def require_optimizer(self, what: str) -> Optimizer:
        """Returns the torch optimizer. Without one, raises NetworkError, which names the action `what`."""
        if self.receiver is not None:
            raise self._steps_in_a_run()
        if self.optimizer is None:
            raise NetworkError(f"`{self.name}` has no optimizer, so it cannot {what}", hint="construct it with one")
        return self.optimizer

    def _steps_in_a_run(self) -> NetworkError:
        return NetworkError(
            f"`{self.name}` cannot make a step in a run: the learner does",
            hint="yield reinforce(loss, samples=n), or jointly(...)",
        )

    def _no_gradient(self) -> NetworkError:
        return NetworkError(
            f"no gradient has reached `{self.name}`", hint="call backward before step, or use reinforce(loss)"
        )

    def _follow_up(self, rate: float) -> list[str]:
        """Runs the stages after the optimizer's step and returns their names.

        `step` calls the checkpointer itself, after it has set the report.
        """
        stages = []
        self._was_scaled = False
        if not self.keep_gradients:
            self.zero_grad()
            stages.append("zero_grad")
        if self.scheduler is not None:
            self.writer.add_schedule(f"{self.name}/lr", rate)
            self.scheduler.step()
            stages.append("scheduler")
        self.target_network.update()
        if not isinstance(self.target_network, TrivialTarget):
            stages.append("target")
        if not isinstance(self.checkpointer, DummyCheckpointer):
            stages.append("checkpoint")
        return stages

    def _refuse_gradient(
        self, optimizer: Optimizer, stages: list[str], norm: float | None, rate: float, bad: str
    ) -> Self:
        """Clears and reports a non-finite gradient, then raises NotFinite or skips the step."""
        if self.scaler is not None:
            self.scaler.update()  # unscale_ has detected the overflow; this lowers the scale factor
        self._was_scaled = False
        self.zero_grad()
        self.report = StepReport(self.updates, tuple(stages), norm, norm, rate, not_finite=bad)
        if self.non_finite == "raise" and self.scaler is None:
            raise NotFinite(
                f"the gradient of `{bad}` in `{self.name}` is not finite; it was not applied",
                hint='look for NaN in this batch, lower the learning rate, or set non_finite="skip"',
            )
        return self

    def _refuse_step(self, parameters: list[Tensor]) -> None:
        if not parameters:
            raise self._no_gradient()
        if self.loss_scaling != 1 and not self._was_scaled:
            raise NetworkError(
                f"loss_scaling = {self.loss_scaling} of `{self.name}` was not applied to this gradient",
                hint="backpropagate scaled(loss), use reinforce(loss), or leave loss_scaling at 1",
            )

    def _refuse_contradictions(self) -> None:
        for name, rule in RULES.items():
            rule.checked(type(self).__name__, name, getattr(self, name))
        self._refuse_steps_of_a_run()
        if isinstance(self.optimizer, torch.optim.LBFGS):
            raise NetworkError(
                "LBFGS evaluates the loss several times per step, an Approximation only once",
                hint="use another optimizer, or TorchArchitecture with optimizer_type LBFGS",
            )
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise NetworkError("the scheduler ReduceLROnPlateau needs a metric every step", hint="step it yourself")
        here = next((tensor.device for tensor in _tensors(self.model)), None)
        if here is None and self._given_device is None:
            raise NetworkError(f"the model of `{self.name}` has no parameters", hint="pass its device: device=")
        if here is not None and self._given_device is not None and not _same(here, self._given_device):
            raise NetworkError(
                f"the model of `{self.name}` is on {here}, but device is {self._given_device}",
                hint="move the model first, with model.to(device)",
            )

    def _refuse_steps_of_a_run(self) -> None:
        """Refuses settings of a step in a run, where the learner steps and they would have no effect."""
        settings: dict[str, bool] = {
            "clip_grad": self.clip_grad != 0,
            "accumulate_steps": self.accumulate_steps != 1,
            "scheduler": self.scheduler is not None,
            "scaler": self.scaler is not None,
            "target": not isinstance(self.target_network, TrivialTarget | SharedTarget),
        }
        given = [name for name, is_given in settings.items() if is_given]
        if self.receiver is not None and given:
            raise NetworkError(
                f"`{self.name}` is stepped by the learner of a run, so its {given[0]} would have no effect",
                hint="set it in [algorithm] of the config; the run provides the target",
            )


def _tensors(model: nn.Module) -> Any:
    """Yields parameters, then buffers; lazily, because the caller usually needs only the first."""
    yield from model.parameters()
    yield from model.buffers()


def _same(device: torch.device, other: torch.device) -> bool:
    return device == other or (device.type == other.type and None in (device.index, other.index))
