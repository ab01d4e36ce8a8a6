"""One update of several approximations.

`jointly` is for agents with several networks. Each loss reaches only the parameters of its approximation, whatever else
its graph contains, and all steps follow all backward passes:

    jointly((critic, critic_loss), (policy, policy_loss))

`reinforce_jointly` is for heads on shared features, trained by one backward pass:

    reinforce_jointly([(v, value_loss), (policy, policy_loss)], [features])

is

    (v.scaled(value_loss) + policy.scaled(policy_loss)).backward()
    v.step(); policy.step(); features.step()

with the `loss_scaling` and `accumulate_steps` of each. Features may have either style, or be an Identity.

`OptimizerReceiver` is for an algorithm of hive.algorithms in a script, which learns by gradients in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from hive.compat.autonomous.approximation import Approximation
from hive.compat.autonomous.stepping import refuse_weight
from hive.errors import NetworkError
from hive.learning import AnyPart, NativePart, TargetNetwork
from hive.learning.approximation import own_parameters
from hive.learning.loss import Loss

Outputs = TypeVar("Outputs")

Losses = Sequence[tuple[Approximation, Tensor]]


def jointly(
    *parts: tuple[Approximation, Tensor | Loss],
    samples: int | None = None,
    statistics: Sequence[float] = (),
) -> tuple[Approximation, ...]:
    """Make a backward pass for each (approximation, loss), then the step of each; return the approximations.

    An approximation with several losses learns from their sum. samples, statistics: as for `Approximation.reinforce`.

    Raises NetworkError, before any backward pass, if two approximations share a parameter, and where `reinforce` raises
    it.
    """
    if not parts:
        raise NetworkError("no losses are given")
    approximations = tuple(dict.fromkeys(approximation for approximation, _ in parts))
    groups = own_parameters(approximations)
    if samples == 0:
        return approximations
    _refuse_untrainable(approximations)
    values = [(approximation, approximation.value_of(loss, statistics)) for approximation, loss in parts]
    for owner, total in [(approximation, approximation.scaled(value)) for approximation, value in values]:
        torch.autograd.backward(total, inputs=groups[owner])
    for approximation in approximations:
        approximation.finish_backward(*[value for owner, value in values if owner is approximation])
    return approximations


def accumulate_jointly(losses: Losses, features: Sequence[Approximation] = (), weight: float = 1.0) -> None:
    """Make one backward pass of all losses, each scaled by its head, without a step.

    losses: pairs of a head and a scalar loss; a head may have several. weight: that of the gradients in the mean of the
    next step. Raises NetworkError as `accumulate`, and for a head with a GradScaler, because losses with different
    scales cannot be summed.
    """
    _refuse_unpaired(losses, features)
    refuse_weight(weight)
    everyone = (*_heads(losses), *features)
    _refuse_untrainable(everyone)
    torch.autograd.backward(_total(losses))
    for approximation in everyone:
        approximation.count_backward(weight)


def reinforce_jointly(
    losses: Losses,
    features: Sequence[Approximation] = (),
    *,
    samples: int | None = None,
    statistics: Sequence[float] = (),
) -> tuple[Approximation, ...]:
    """Make one backward pass of all losses, then a step of each head, in order, and of each of the features.

    samples, statistics: as for `Approximation.reinforce`. Other arguments and errors: as for `accumulate_jointly`.
    Returns the approximations.
    """
    _refuse_unpaired(losses, features)
    everyone = (*_heads(losses), *features)
    if samples == 0:
        return everyone
    _refuse_untrainable(everyone)
    torch.autograd.backward(_total(losses))
    for approximation in features:
        approximation.pass_on()
    for head in _heads(losses):
        head.finish_backward(*[loss for owner, loss in losses if owner is head])
    for approximation in features:
        approximation.finish_backward()
    return everyone


def _refuse_untrainable(approximations: Iterable[Approximation]) -> None:
    """Raise NetworkError if one of them has no optimizer: before the backward pass, so that no gradients are left."""
    for approximation in approximations:
        approximation.refuse_untrainable()


def _total(losses: Losses) -> Tensor:
    """Return the sum of all losses, each scaled by its head."""
    for head, _ in losses:
        if head.scaler is not None:
            raise NetworkError(f"`{head.name}` has a GradScaler, which a joint backward pass cannot apply")
    return torch.stack([head.scaled(loss) for head, loss in losses]).sum()


def _refuse_unpaired(losses: Any, features: Any) -> None:
    if not losses:
        raise NetworkError("no losses are given")
    for pair in losses:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], Approximation):
            raise NetworkError("losses must be a list of pairs, each a head and its loss")
    if not isinstance(features, list | tuple):
        raise NetworkError("features must be a list", hint="reinforce_jointly(losses, [features])")


def _heads(losses: Losses) -> list[Approximation]:
    return list(dict.fromkeys(head for head, _ in losses))


class OptimizerReceiver:
    """A GradientReceiver that steps a torch optimizer: it takes the place of a run for an algorithm of hive.algorithms.

        algorithm.connect(network, OptimizerReceiver(torch.optim.Adam(network.parameters())))
        for _ in algorithm.gradients(rollouts):     # each gradient is an update
            ...

    target: follows the network after each update. `updates` counts them.
    """

    def __init__(self, optimizer: Optimizer, target: TargetNetwork | None = None) -> None:
        self.optimizer = optimizer
        self.target = target
        self.updates = 0

    def watch(self, outputs: Outputs) -> Outputs:
        """Return the outputs: a script changes weights in place, and torch notices it."""
        return outputs

    def reinforce(self, parts: Sequence[AnyPart], samples: int | None, statistics: Sequence[float]) -> None:
        """Make an update with the sum of the parts' gradients; without parts do nothing."""
        if any(isinstance(part, NativePart) for part in parts):
            raise NetworkError("the weights of this network belong to a run", hint="build a network for the script")
        for part in parts:
            part.backward()  # type: ignore[union-attr]  # a part of torch
        if parts:
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.updates += 1
            if self.target is not None:
                self.target.update()
