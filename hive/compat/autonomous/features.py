"""Features that several heads share: one forward pass and one backward pass, for any number of heads.

Style "detached" is that of autonomous-learning-library. The heads get a leaf, and the graph of the features waits:

    states ── model ── features ┊ leaf ──┬── v       v.reinforce(loss)        leaf.grad  = dloss/dleaf
                          ^     ┊        └── policy  policy.reinforce(loss)   leaf.grad += dloss/dleaf
                          └─────┊─ one backward pass by reinforce(): features <- leaf.grad * loss_scaling

The sum of the heads' gradients is the gradient of the sum of their losses, so this is joint backpropagation in which
each head has its loss scaling, its optimizer and its time of stepping.

Style "shared" does not detach. The program or `accumulate_jointly` adds the losses and backpropagates once.

A model that is frozen or has no parameters makes no steps, with or without an optimizer. Its backward pass still
reaches what lies below it, in both styles. If nothing lies below it, "detached" features are a leaf nevertheless, to
which losses may be backpropagated. An Identity replaces a FeatureNetwork if there is nothing to learn: heads
backpropagate through it, and its own `reinforce` and `step` do nothing.

In both styles `loss_scaling` multiplies the gradient that enters the model from its features; it does not affect the
heads.

A waiting graph costs memory. It is released when no gradient can arrive any more, because the program has dropped its
features and everything computed from them. `cache_size` bounds the number of the graphs that still wait.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hive.compat.autonomous.approximation import Approximation
from hive.compat.autonomous.states import States, observation_of, over_live_states, with_observation
from hive.compat.autonomous.stepping import parameters_with_gradients, refuse_weight
from hive.errors import NetworkError
from hive.learning.approximation import scalar
from hive.learning.loss import Loss
from hive.learning.passes import Forward
from hive.networks.build.field_rules import FieldRule

# Greatest number of forward passes that wait for their gradient. A program that calls the features step by step has one
# per step of its rollout; one that never calls reinforce gets an error before it runs out of memory.
CACHE_SIZE = 256

Style = Literal["detached", "shared"]


class FeatureModule(nn.Module):
    """Maps states to the same states with features [*leading, *shape] as observations; the mask does not change.

    A terminal state whose observation is not finite gets the features of another state, see states.py.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, states: States) -> States:
        return with_observation(states, over_live_states(self.model, states, keep_finite=True))


class FeatureNetwork(Approximation):
    """An Approximation that maps states (see states.py) to states with features, the inputs of heads.

    style: "detached" or "shared", see the module. cache_size: the greatest number of forward passes that wait for
        `reinforce` in style "detached". Other arguments: as for Approximation, without a GradScaler, because the heads
        have theirs.

    A model without parameters and buffers needs no `device`.

    Raises NetworkError for an unknown style and for a GradScaler.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        name: str = "feature",
        *,
        style: Style = "detached",
        cache_size: int = CACHE_SIZE,
        **kwargs: Any,
    ) -> None:
        if style not in get_args(Style):
            raise NetworkError(f"style = {style!r} is not known", hint=f"one of: {', '.join(get_args(Style))}")
        FieldRule.whole(1).checked(type(self).__name__, "cache_size", cache_size)
        if kwargs.get("scaler") is not None:
            raise NetworkError(f"`{name}` takes no scaler: the heads scale the gradient of its features")
        if kwargs.get("device") is None and not any(True for _ in (*model.parameters(), *model.buffers())):
            # Nothing of it lies anywhere: features are where states are. torch.get_default_device of 2.8 raises after a
            # `with torch.device` block.
            kwargs["device"] = torch.empty(0).device
        super().__init__(FeatureModule(model), optimizer, name=name, **kwargs)
        self.style = style
        self.cache_size = cache_size
        self._waiting: list[_Pass] = []

    def __call__(self, states: States) -> States:
        """Return the states with features as observations. Raises NetworkError if `cache_size` passes wait."""
        result = super().__call__(states)
        features = observation_of(result)
        if not features.requires_grad:
            if self.style == "shared" or not (torch.is_grad_enabled() and features.is_floating_point()):
                return result
            return with_observation(result, features.detach().requires_grad_())  # heads may backpropagate to it
        if self.style == "shared":
            scaling = self.loss_scaling
            if scaling != 1:
                features.register_hook(lambda gradient: gradient * scaling)
            return result
        self._waiting = [waiting for waiting in self._waiting if waiting.may_learn()]
        if len(self._waiting) >= self.cache_size:
            raise NetworkError(
                f"{self.cache_size} forward passes of `{self.name}` wait for reinforce()",
                hint="use no_grad() or eval() for passes without learning, or increase cache_size",
            )
        leaf = features.detach().requires_grad_()
        self._waiting.append(_Pass(features, leaf))
        return with_observation(result, leaf)

    def reinforce(
        self,
        loss: Tensor | Loss | None = None,
        *,
        samples: int | None = None,
        statistics: Sequence[float] = (),
        forward: Forward | None = None,
    ) -> Self:
        """Make the backward pass of the model and a step; return self.

        Style "detached": call `reinforce()` after that of the heads. Style "shared": call `reinforce(loss)` with
        the sum of the heads' scaled losses, then `step()` of the heads. samples, statistics: as for Approximation.
        Raises NetworkError if no gradient has arrived from the heads.
        """
        return super().reinforce(loss, samples=samples, statistics=statistics)

    def accumulate(self, loss: Tensor | Loss | None = None, weight: float = 1.0) -> Self:
        """Make the backward pass without a step; return self.

        weight: in style "detached" the weight of the heads' losses. Call this once for each weight, because all
            gradients that have arrived since the last call get the same one.
        """
        if self.style == "shared":
            return super().accumulate(loss, weight)
        refuse_weight(weight)
        self._pass_on(loss)
        self._add_to_mean(weight)
        return self

    def _backward(self, loss: Tensor | None, weight: float = 1.0) -> None:
        if self.style == "shared":
            super()._backward(loss, weight)
        else:
            self._pass_on(loss)

    def _pass_on(self, loss: Any) -> None:
        """Make the backward pass of the model in style "detached"."""
        if loss is not None:
            raise NetworkError(
                f"`{self.name}` is given a loss, but its gradient comes from the heads",
                hint='call reinforce() without one, or construct it with style="shared"',
            )
        arrived = [waiting for waiting in self._waiting if waiting.gradient is not None]
        if not arrived and self._learns_nothing:
            return
        if not arrived:
            raise NetworkError(f"no gradient has reached `{self.name}` from a head", hint="reinforce the heads first")
        self._waiting = []
        gradients = [waiting.gradient * self.loss_scaling for waiting in arrived if waiting.gradient is not None]
        torch.autograd.backward([waiting.features for waiting in arrived], gradients)

    def _add_to_mean(self, weight: float) -> None:
        if not self._has_nothing():
            super()._add_to_mean(weight)

    def scaled(self, loss: Any) -> Tensor:
        """Return `loss` itself, because `loss_scaling` is applied where the gradient enters the model.

        Raises NetworkError for anything but a scalar tensor with a graph.
        """
        return scalar(self.name, loss)

    def count_backward(self, weight: float = 1.0) -> None:
        """Accumulate the gradient that a backward pass of `weight` * the heads' losses has just left."""
        if self.style == "detached":
            self.accumulate(weight=weight)
        else:
            super().count_backward(weight)

    def pass_on(self) -> None:
        """Backpropagate the heads' gradients through the model; style "shared" has done so already."""
        if self.style == "detached":
            self._pass_on(None)

    def step(self, loss: Tensor | None = None) -> Self:
        """Make a step as Approximation does; do nothing for a model without trainable parameters."""
        return self if self._has_nothing() and not self._mean.rounds else super().step(loss)

    def refuse_untrainable(self) -> None:
        """Raise NetworkError without an optimizer or a waiting pass, unless the model has nothing to learn."""
        if self._learns_nothing:
            return
        if self.style == "detached" and not any(waiting.may_learn() for waiting in self._waiting):
            raise NetworkError(f"no gradient has reached `{self.name}` from a head", hint="call heads on its features")
        super().refuse_untrainable()

    def _has_nothing(self) -> bool:
        """Return whether the model cannot learn and no other parameter of the optimizer has a gradient."""
        return self._learns_nothing and not (self.optimizer and parameters_with_gradients(self.optimizer))

    @property
    def _learns_nothing(self) -> bool:
        """Whether the model is frozen or has no parameters. Gradients still pass through it to modules below."""
        return not any(parameter.requires_grad for parameter in self.model.parameters())

    def _refuse_step(self, parameters: list[Tensor]) -> None:
        self._was_scaled = True
        super()._refuse_step(parameters)


class Identity(Approximation):
    """Returns its input. It has no parameters, so `reinforce`, `accumulate` and `step` do nothing, also with a loss.

    Gradients of losses that heads or the program backpropagate pass through it to what lies below.

    device: required, because no parameters determine it. Other arguments: as for Approximation, without model and
        optimizer.
    """

    def __init__(self, device: torch.device | str, name: str = "identity", **kwargs: Any) -> None:
        super().__init__(nn.Identity(), device=device, name=name, **kwargs)

    def reinforce(
        self,
        loss: Tensor | Loss | None = None,
        *,
        samples: int | None = None,
        statistics: Sequence[float] = (),
        forward: Forward | None = None,
    ) -> Self:
        """Do nothing; return self."""
        return self

    def accumulate(self, loss: Tensor | Loss | None = None, weight: float = 1.0) -> Self:
        """Do nothing; return self."""
        return self

    def refuse_untrainable(self) -> None:
        """Do nothing: it needs no optimizer."""

    def finish_backward(self, *losses: Tensor) -> Self:
        return self

    def count_backward(self, weight: float = 1.0) -> None:
        pass

    def step(self, loss: Tensor | None = None) -> Self:
        """Do nothing, with a loss or without; return self."""
        return self


class _Pass:
    """A waiting forward pass: its features with their graph, and the gradient that has arrived at the leaf."""

    def __init__(self, features: Tensor, leaf: Tensor) -> None:
        self.features = features
        self.gradient: Tensor | None = None
        self._leaf = weakref.ref(leaf)  # alive as long as the program or a graph can produce its gradient
        leaf.register_post_accumulate_grad_hook(self._arrived)

    def may_learn(self) -> bool:
        return self.gradient is not None or self._leaf() is not None

    def _arrived(self, leaf: Tensor) -> None:
        self.gradient = leaf.grad
