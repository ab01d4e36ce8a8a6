"""An Approximation: a model with its optimizer and all stages of an update.

    reinforce(loss)   loss * loss_scaling, backward pass, step
    step()            average, check, clip, optimizer, zero_grad, scheduler, target, checkpoint (see stepping.py)

Model and optimizer are an ordinary torch.nn.Module and torch.optim.Optimizer, on any device. `step` is the control loop
of autonomous-learning-library's documentation, in a fixed order; `report` describes the last one.

A script can make an update in three ways:

- `reinforce(loss)`, a scalar or a typed loss (hive.algorithms.Loss). With `accumulate_steps=k` every k-th call makes
  the step, on the mean of the k gradients.
- Any number of `accumulate(loss, weight)`, then `step()`: the mean is weighted by `weight`, for example the number of
  samples. A GradAccumulator holds the sums, so `.grad` is None in between; the step sets it.
- A custom backward pass, then `step()`. If `loss_scaling` is not 1, backpropagate `scaled(loss)`: a step on
  gradients that were not scaled is refused, because the setting would have no effect. For several heads on shared
  features see `accumulate_jointly`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from hive.compat.autonomous.checkpointers import Checkpointer, DummyCheckpointer, PeriodicCheckpointer
from hive.compat.autonomous.means import GradientMean
from hive.compat.autonomous.stepping import (
    StepReport,
    clip_gradients,
    gradient_norm,
    not_finite_name,
    parameters_with_gradients,
    refuse_weight,
)
from hive.compat.autonomous.targets import TrivialTarget
from hive.compat.autonomous.writers import DummyWriter, Writer
from hive.errors import HiveError, NetworkError, NotFinite
from hive.learning.approximation import Approximation as RunApproximation
from hive.learning.approximation import is_typed, scalar, tensors_of
from hive.learning.loss import Loss
from hive.learning.passes import Forward, GraphPass
from hive.learning.targets import TargetNetwork
from hive.networks.build.field_rules import FieldRule, FieldRules

CHECKPOINT_FREQUENCY = 200  # updates between checkpoints, the default of autonomous-learning-library

NonFinite = Literal["raise", "skip", "accept"]

SILENT = DummyWriter()

RULES: FieldRules = {
    "clip_grad": FieldRule.number(0),
    "loss_scaling": FieldRule.number(),
    "accumulate_steps": FieldRule.whole(1),
    "keep_gradients": FieldRule.flag(),
    "non_finite": FieldRule.choice(get_args(NonFinite)),
    "optimizer": FieldRule.having("param_groups").or_none(),
    "scheduler": FieldRule.having("step").or_none(),
    "scaler": FieldRule.having("unscale_").or_none(),
    "target_network": FieldRule.having("init"),
    "writer": FieldRule.having("log_dir"),
}


class Approximation(RunApproximation):
    """A function approximator.

    model: a torch module. optimizer: a torch optimizer of its parameters; None: the model can be called but not
        trained.
    checkpointer: None: a PeriodicCheckpointer(200) that saves below the writer's `log_dir`; without a writer, none.
    clip_grad: the greatest norm of the gradient; 0: no clipping.
    device: the model's device; None: that of its first parameter or buffer. Required for a model without any.
    loss_scaling: multiplies the loss before the backward pass.
    name: identifies logs and checkpoints.
    scheduler: a learning rate scheduler; it steps after every update.
    target: None: a TrivialTarget. writer: see hive.compat.autonomous.writers.

    non_finite: how a step treats a gradient with NaN or infinity. "raise": raises NotFinite, which names the parameter;
        "skip": clears the gradient and changes nothing; "accept": does not check.
    accumulate_steps: the number of `reinforce` calls per update.
    keep_gradients: keep the applied gradient in `.grad` until `zero_grad`. A backward pass before that adds to it, as
        in torch.
    scaler: a torch.amp.GradScaler. It skips a step whose scaled gradient overflows.

    Raises NetworkError for invalid arguments and for arguments that contradict each other.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
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
        super().__init__(model, None, name)
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.target_network: TargetNetwork = TrivialTarget() if target is None else target
        self.writer = writer if logger is None else logger
        self.clip_grad = clip_grad
        self.loss_scaling = loss_scaling
        self.non_finite = non_finite
        self.accumulate_steps = accumulate_steps
        self.keep_gradients = keep_gradients
        self.scaler = scaler
        self.updates = 0
        self.report: StepReport | None = None
        self._given_device = None if device is None else torch.device(device)
        self._was_scaled = False
        self._mean = GradientMean()  # mean gradient of the backward passes since the last step
        self._refuse_contradictions()
        self.target_network.init(model)
        if checkpointer is None:
            silent = type(self.writer) is DummyWriter
            checkpointer = DummyCheckpointer() if silent else PeriodicCheckpointer(CHECKPOINT_FREQUENCY)
        self.checkpointer = checkpointer
        self.checkpointer.init(model, str(Path(self.writer.log_dir) / f"{name}.pt"))
        if isinstance(self.checkpointer, Checkpointer):
            self.checkpointer.include(self)

    @property
    def device(self) -> torch.device:
        """The current device of the model."""
        here = next((tensor.device for tensor in tensors_of(self.model)), self._given_device)
        assert here is not None
        return here

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """The current parameters of the model."""
        return list(self.model.parameters())

    def reinforce(
        self,
        loss: Tensor | Loss | None = None,
        *,
        samples: int | None = None,
        statistics: Sequence[float] = (),
        forward: Forward | None = None,
    ) -> Self:
        """Make a backward pass of `loss * loss_scaling`, then a step; return self.

        loss: a scalar with a graph, or a typed loss, whose forward pass is made here. The unscaled loss is logged. With
            `accumulate_steps=k` only every k-th call makes the step.
        samples: the number of samples in the mean loss. With 0 there is no update.
        statistics: numbers stored in `statistics`; a typed loss replaces them by its statistics.
        forward: ignored, because the forward pass is always made here.

        Raises NetworkError without a loss, for one that does not depend on any parameter, and in the cases of `step`.
        """
        if samples == 0:
            return self
        self.refuse_untrainable()
        value = None if loss is None else self.value_of(loss, statistics)
        self._backward(value)
        return self.finish_backward(*[] if value is None else [value])

    def value_of(self, loss: Tensor | Loss, statistics: Sequence[float] = ()) -> Any:
        """Return the scalar of a loss. A typed loss is computed here by torch, and its statistics are stored."""
        self.statistics = tuple(statistics)
        return self.computed(loss, GraphPass(self._call(loss.inputs))) if is_typed(loss) else loss

    def refuse_untrainable(self) -> None:
        """Raise NetworkError without an optimizer: before the backward pass, so that no gradients are left."""
        self.require_optimizer("learn")

    def finish_backward(self, *losses: Tensor) -> Self:
        """Log `losses` after their backward pass; every `accumulate_steps`-th call makes a step. Return self."""
        for loss in losses:
            self.writer.add_loss(self.name, loss.detach())
        if self.accumulate_steps > 1 or self._mean.rounds:
            self._add_to_mean(1.0)
            return self.step() if self._mean.rounds >= self.accumulate_steps else self
        return self.step()

    def pass_on(self) -> None:
        """Continue a joint backward pass below the heads; do nothing except in a FeatureNetwork."""

    def accumulate(self, loss: Tensor | Loss | None = None, weight: float = 1.0) -> Self:
        """Make a backward pass of `loss * loss_scaling`, without a step; return self.

        The next step applies the mean of the gradients since the last one, weighted by `weight`, which is positive and
        finite. Without an optimizer the gradient of `weight * loss` is added to `.grad`; `step` then raises an error.
        Raises NetworkError for another weight, and for a loss that `reinforce` refuses.
        """
        refuse_weight(weight)
        value = None if loss is None else self.value_of(loss)
        self._backward(value, 1.0 if self.optimizer is not None else weight)
        self._add_to_mean(weight)
        return self

    def _backward(self, loss: Tensor | None, weight: float = 1.0) -> None:
        total = self.scaled(loss)
        torch.autograd.backward(total if weight == 1.0 else weight * total)

    def scaled(self, loss: Any) -> Tensor:
        """Return `loss * loss_scaling`, for a custom backward pass of several losses. Then `step()` each of them.

        Raises NetworkError for anything but a scalar tensor with a graph.
        """
        loss = scalar(self.name, loss)
        self._was_scaled = True
        total = loss if self.loss_scaling == 1 else self.loss_scaling * loss
        return total if self.scaler is None else cast(Tensor, self.scaler.scale(total))

    def count_backward(self, weight: float = 1.0) -> None:
        """Move the gradient of a finished backward pass from `.grad` into the mean for the next step.

        Raises NetworkError if no parameter has a gradient, and for a weight that is not positive and finite.
        """
        refuse_weight(weight)
        self._add_to_mean(weight)

    def _add_to_mean(self, weight: float) -> None:
        if self.optimizer is not None and not self._mean.add(self.optimizer, weight):
            raise self._no_gradient()

    def step(self, loss: Tensor | None = None) -> Self:
        """Make an update with the present gradients and set `report`; return self.

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
        """Clear the gradients of all tensors of the optimizer, and the accumulated ones; return self."""
        if self.optimizer is None:
            self.model.zero_grad()
        else:
            self.optimizer.zero_grad()
        self._mean.clear()
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the state of model, optimizer, scheduler, scaler and target network, and the count of updates.

        It contains no gradients. Its tensors are not copied.
        """
        state: dict[str, Any] = {"updates": self.updates, "model": self.model.state_dict()}
        for name, part in self._parts():
            state[name] = part.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`, all of it or, after an error, nothing.

        Raises NetworkError, which names the first part that is missing or does not fit.
        """
        missing = [name for name, _ in [("updates", None), ("model", None), *self._parts()] if name not in state]
        if missing:
            raise NetworkError(f"the state for `{self.name}` has no {missing[0]}", hint=f"it has: {', '.join(state)}")
        updates = int(FieldRule.whole(0).checked("this state", "updates", state["updates"]))
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

    def require_optimizer(self, what: str) -> Optimizer:
        """Return the torch optimizer. Without one, raises NetworkError, which names the action `what`."""
        if self.optimizer is None:
            raise NetworkError(f"`{self.name}` has no optimizer, so it cannot {what}", hint="construct it with one")
        return self.optimizer

    def _no_gradient(self) -> NetworkError:
        return NetworkError(
            f"no gradient has reached `{self.name}`", hint="call backward before step, or use reinforce(loss)"
        )

    def _follow_up(self, rate: float) -> list[str]:
        """Run the stages after the optimizer's step and return their names.

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
        """Clear and report a non-finite gradient, then raise NotFinite or skip the step."""
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
        if isinstance(self.optimizer, torch.optim.LBFGS):
            raise NetworkError(
                "LBFGS evaluates the loss several times per step, an Approximation only once",
                hint="use another optimizer, or TorchArchitecture with optimizer_type LBFGS",
            )
        if isinstance(self.scheduler, ReduceLROnPlateau):
            raise NetworkError("the scheduler ReduceLROnPlateau needs a metric every step", hint="step it yourself")
        here = next((tensor.device for tensor in tensors_of(self.model)), None)
        if here is None and self._given_device is None:
            raise NetworkError(f"the model of `{self.name}` has no parameters", hint="pass its device: device=")
        if here is not None and self._given_device is not None and not _same(here, self._given_device):
            raise NetworkError(
                f"the model of `{self.name}` is on {here}, but device is {self._given_device}",
                hint="move the model first, with model.to(device)",
            )


def _same(device: torch.device, other: torch.device) -> bool:
    return device == other or (device.type == other.type and None in (device.index, other.index))
