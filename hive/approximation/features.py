"""Features that several heads share: one forward pass, one backward pass, whatever the heads do in between.

Style "detached", the documented one. The heads see a leaf, and the graph of the features waits:

    states ── model ── features ┊ leaf ──┬── v       v.reinforce(loss)        leaf.grad  = dloss/dleaf
                          ^     ┊        └── policy  policy.reinforce(loss)   leaf.grad += dloss/dleaf
                          └─────┊─ one backward pass by reinforce(): features <- leaf.grad * loss_scaling

The sum of the heads' gradients is the gradient of the sum of their losses, so this is joint backpropagation with the
heads' own loss scaling, optimizers and order of steps.

Style "shared": no cut. Losses are added and backpropagated once, by the program or by `accumulate_jointly`. It is the
one for a run, where all losses are one gradient: `yield reinforce_jointly(losses, [features], samples=n)`.

A model with nothing to learn, because it is frozen or has no parameters, makes no steps. In both styles, with an
optimizer or without, its `reinforce`, `count_backward` and `step` change nothing.

In both styles `loss_scaling` multiplies the gradient that enters the model from its features, and nothing of the
heads.

A waiting graph costs memory. It is let go when no gradient can come any more: when nobody holds its features, nor
anything computed from them. What is held all the same, is bounded: `cache_size`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from hive.approximation.approximation import Approximation
from hive.approximation.receivers import GradientReceiver
from hive.approximation.states import States, observation_of, over_live_states, with_observation
from hive.approximation.stepping import parameters_with_gradients, refuse_weight
from hive.errors import NetworkError
from hive.losses import Loss
from hive.networks.field_rules import Rule

__all__ = ["CACHE_SIZE", "FeatureModule", "FeatureNetwork"]

# Forward passes that wait for their gradient. A program that calls the features step by step has as many as its
# rollout has steps; one that never calls reinforce is told after so many instead of running out of memory.
CACHE_SIZE = 256

Style = Literal["detached", "shared"]


class FeatureModule(nn.Module):
    """States in, the same states with features [*leading, *shape] for observations out; the mask stays as it is.

    A terminal state whose observation is not finite gets the features of another state, see states.py.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, states: States) -> States:
        return with_observation(states, over_live_states(self.model, states, keep_finite=True))


class FeatureNetwork(Approximation):
    """An Approximation whose output, states with features, goes into heads. Called with states (see states.py).

    style: "detached" or "shared", see above. cache_size: how many forward passes may wait for `reinforce`, in style
    "detached". Other arguments: as of Approximation; no GradScaler, the heads' losses are scaled by their own.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | GradientReceiver | None = None,
        name: str = "feature",
        *,
        style: Style = "detached",
        cache_size: int = CACHE_SIZE,
        **kwargs: Any,
    ) -> None:
        if style not in get_args(Style):
            raise NetworkError(f"style = {style!r} is not known", hint=f"one of: {', '.join(get_args(Style))}")
        Rule.whole(1).checked(type(self).__name__, "cache_size", cache_size)
        if style == "detached" and isinstance(optimizer, GradientReceiver):
            raise NetworkError(
                f"`{name}` cannot wait for the gradients of heads in a run, where each yield is a whole gradient",
                hint='make it with style="shared", and yield reinforce_jointly(losses, [features], samples=n)',
            )
        if kwargs.get("scaler") is not None:
            raise NetworkError(f"`{name}` has features, whose gradient the heads have scaled", hint="no scaler here")
        super().__init__(FeatureModule(model), optimizer, name=name, **kwargs)
        self.style = style
        self.cache_size = cache_size
        self._waiting: list[_Pass] = []

    def __call__(self, states: States) -> States:
        """The states with features for observations. Raises NetworkError when too many passes wait."""
        result = super().__call__(states)
        features = observation_of(result)
        if not features.requires_grad:
            return result
        if self.style == "shared":
            scaling = self.loss_scaling
            if scaling != 1:
                features.register_hook(lambda gradient: gradient * scaling)
            return result
        self._waiting = [waiting for waiting in self._waiting if waiting.may_learn()]
        if len(self._waiting) >= self.cache_size:
            raise NetworkError(
                f"{self.cache_size} forward passes of `{self.name}` wait for reinforce()",
                hint="use no_grad() or eval() where nothing is learned, or raise cache_size",
            )
        leaf = features.detach().requires_grad_()
        self._waiting.append(_Pass(features, leaf))
        return with_observation(result, leaf)

    def reinforce(
        self, loss: Tensor | Loss | None = None, *, samples: int | None = None, statistics: Sequence[float] = ()
    ) -> Self:
        """The backward pass of the model, and a step; returns self.

        Style "detached": `reinforce()`, after the heads have been reinforced. Style "shared": `reinforce(loss)` with
        the sum of the heads' scaled losses; the heads then make their own `step()`. Raises NetworkError where no
        gradient has come from the heads. samples, statistics: as of Approximation.
        """
        return super().reinforce(loss, samples=samples, statistics=statistics)

    def accumulate(self, loss: Tensor | Loss | None = None, weight: float = 1.0) -> Self:
        """The backward pass without a step; returns self.

        weight: in style "detached" that of the heads' losses. Call it after each of their weights: the gradient that
            has come from them is taken as one.
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
        """Style "detached": the backward pass of the model."""
        if loss is not None:
            raise NetworkError(
                f"`{self.name}` is given a loss, and takes its gradient from the heads",
                hint='call reinforce() without one, or make it with style="shared"',
            )
        arrived = [waiting for waiting in self._waiting if waiting.gradient is not None]
        if not arrived and self._learns_nothing:
            return
        if not arrived:
            raise NetworkError(f"no gradient has come to `{self.name}` from a head", hint="reinforce the heads before")
        self._waiting = []
        gradients = [waiting.gradient * self.loss_scaling for waiting in arrived if waiting.gradient is not None]
        torch.autograd.backward([waiting.features for waiting in arrived], gradients)

    def _add_to_mean(self, weight: float) -> None:
        if not self._has_nothing():
            super()._add_to_mean(weight)

    def scaled(self, loss: Any) -> Tensor:
        """`loss` itself: `loss_scaling` acts where the gradient enters the model."""
        if not isinstance(loss, Tensor) or loss.dim() != 0 or not loss.requires_grad:
            raise NetworkError(f"`{self.name}` is given a loss that is no scalar with a graph")
        return loss

    def count_backward(self, weight: float = 1.0) -> None:
        """Says that a backward pass of the heads' losses times `weight` has been made."""
        if self.style == "detached":
            self.accumulate(weight=weight)
        else:
            super().count_backward(weight)

    def pass_on(self) -> None:
        """The backward pass of the model from the gradients of the heads; in style "shared" it has been made."""
        if self.style == "detached":
            self._pass_on(None)

    def step(self, loss: Tensor | None = None) -> Self:
        """As Approximation's; does nothing where there is nothing to learn."""
        return self if self._has_nothing() and not self._mean.rounds else super().step(loss)

    def refuse_untrainable(self) -> None:
        """Raises NetworkError without an optimizer or a pass that waits, unless there is nothing to learn."""
        if self._learns_nothing:
            return
        if self.style == "detached" and not any(waiting.may_learn() for waiting in self._waiting):
            raise NetworkError(f"no gradient has come to `{self.name}` from a head", hint="give the heads its features")
        super().refuse_untrainable()

    def _has_nothing(self) -> bool:
        """Whether there is nothing to learn and no gradient for whatever else the optimizer holds."""
        return self._learns_nothing and not (self.optimizer and parameters_with_gradients(self.optimizer))

    @property
    def _learns_nothing(self) -> bool:
        """Whether the model is frozen or has no parameters. A gradient for what lies below still passes through it."""
        return not any(parameter.requires_grad for parameter in self.model.parameters())

    def _refuse_step(self, parameters: list[Tensor]) -> None:
        self._was_scaled = True
        super()._refuse_step(parameters)


class _Pass:
    """A forward pass that waits: its features with their graph, and the gradient that has come to the leaf."""

    def __init__(self, features: Tensor, leaf: Tensor) -> None:
        self.features = features
        self.gradient: Tensor | None = None
        self._leaf = weakref.ref(leaf)  # alive as long as somebody, or a graph, can give it a gradient
        leaf.register_post_accumulate_grad_hook(self._arrived)

    def may_learn(self) -> bool:
        return self.gradient is not None or self._leaf() is not None

    def _arrived(self, leaf: Tensor) -> None:
        self.gradient = leaf.grad
