"""One update of several approximations.

`jointly` for agents of several networks: each loss reaches only the parameters of its own approximation, whatever else
its graph contains, and all steps come after all backward passes. In a run it is one gradient, and one `yield`:

    yield jointly((critic, critic_loss), (policy, policy_loss), samples=n)

`reinforce_jointly` for heads on shared features, learned by one backward pass:

    reinforce_jointly([(v, value_loss), (policy, policy_loss)], [features])

is

    (v.scaled(value_loss) + policy.scaled(policy_loss)).backward()
    v.step(); policy.step(); features.step()

with each one's `loss_scaling` and `accumulate_steps` honoured. Features may be of either style, or an Identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hive.approximation.approximation import Approximation
from hive.approximation.stepping import refuse_weight
from hive.errors import NetworkError
from hive.losses import Loss

__all__ = ["accumulate_jointly", "jointly", "reinforce_jointly"]

Losses = Sequence[tuple[Approximation, Tensor]]


def jointly(
    *parts: tuple[Approximation, Tensor | Loss], samples: int | None = None, statistics: Sequence[float] = ()
) -> tuple[Approximation, ...]:
    """A backward pass for each (approximation, loss), then the step of each; in a run, one gradient of them all.

    Returns the approximations, so that a typed generator can yield it.

    samples, statistics: as of `Approximation.reinforce`; without any, the statistics of typed losses, one after the
        other. Raises NetworkError where two approximations share a parameter, where only some are part of a run, and as
        `reinforce`.
    """
    if not parts:
        raise NetworkError("there are no losses to learn from")
    approximations = tuple(approximation for approximation, _ in parts)
    groups = _own_parameters(approximations)
    receivers = {id(approximation.receiver): approximation.receiver for approximation in approximations}
    if len(receivers) > 1:
        raise NetworkError("some of these approximations belong to a run and some do not", hint="connect all of them")
    (receiver,) = receivers.values()
    if samples == 0:  # as in `Approximation.reinforce`: no update, but a gradient of a run
        if receiver is not None:
            receiver.reinforce([], 0, ())
        return approximations
    losses = [approximation.value_of(loss) for approximation, loss in parts]
    own_statistics = statistics or [value for approximation, _ in parts for value in approximation.statistics]
    made = [a.part_of(loss, group) for (a, _), loss, group in zip(parts, losses, groups, strict=True)]
    if receiver is not None:
        receiver.reinforce(made, samples, own_statistics)
        return approximations
    for approximation in approximations:
        approximation.require_optimizer("learn")
    for part in made:
        torch.autograd.backward(part.loss, inputs=list(part.parameters or ()))
    for (approximation, _), loss in zip(parts, losses, strict=True):
        approximation.count_backward()
        approximation.step_if_due(loss)
    return approximations


def _own_parameters(approximations: Sequence[Approximation]) -> list[list[nn.Parameter]]:
    """The trainable parameters of each. Raises NetworkError for one that two of them have."""
    owners: dict[int, Approximation] = {}
    groups = []
    for approximation in approximations:
        group = [parameter for parameter in approximation.model.parameters() if parameter.requires_grad]
        for parameter in group:
            other = owners.setdefault(id(parameter), approximation)
            if other is not approximation:
                raise NetworkError(
                    f"`{other.name}` and `{approximation.name}` share parameters, and jointly() keeps them apart",
                    hint="heads on shared features are learned by reinforce_jointly",
                )
        groups.append(group)
    return groups


def accumulate_jointly(losses: Losses, features: Sequence[Approximation] = (), weight: float = 1.0) -> None:
    """One backward pass of all losses, each scaled by its head, times `weight`; no step.

    losses: heads with their losses, scalars; a head may have several. Raises NetworkError as `accumulate`, and for a
    head with a GradScaler: the scales of several have no sum.
    """
    _refuse_unpaired(losses, features)
    refuse_weight(weight)
    for head, _ in losses:
        if head.scaler is not None:
            raise NetworkError(f"`{head.name}` has a GradScaler, which a joint backward pass cannot honour")
    total = torch.stack([head.scaled(loss) for head, loss in losses]).sum()
    torch.autograd.backward(total if weight == 1.0 else weight * total)
    for approximation in (*_heads(losses), *features):
        approximation.count_backward(weight)


def reinforce_jointly(losses: Losses, features: Sequence[Approximation] = ()) -> None:
    """`accumulate_jointly`, then a step of each head, in order, and of each of the features."""
    _refuse_unpaired(losses, features)
    for approximation in (*_heads(losses), *features):
        approximation.refuse_untrainable()
    accumulate_jointly(losses, features)
    for head in _heads(losses):
        head.step_if_due(*[loss for owner, loss in losses if owner is head])
    for approximation in features:
        approximation.step_if_due()


def _refuse_unpaired(losses: Any, features: Any) -> None:
    if not losses:
        raise NetworkError("there are no losses to learn from")
    for pair in losses:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], Approximation):
            raise NetworkError("what is learned from is a list of pairs, each a head and its loss")
    if not isinstance(features, list | tuple):
        raise NetworkError("features are given as a list", hint="reinforce_jointly(losses, [features])")


def _heads(losses: Losses) -> list[Approximation]:
    return list(dict.fromkeys(head for head, _ in losses))
