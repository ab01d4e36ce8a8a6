"""One update of several approximations.

`jointly` is for agents with several networks. Each loss reaches only the parameters of its approximation, whatever else
its graph contains, and all steps follow all backward passes. In a run the result is one gradient, and one `yield`:

    yield jointly((critic, critic_loss), (policy, policy_loss), samples=n)

`reinforce_jointly` is for heads on shared features, trained by one backward pass:

    reinforce_jointly([(v, value_loss), (policy, policy_loss)], [features])

is

    (v.scaled(value_loss) + policy.scaled(policy_loss)).backward()
    v.step(); policy.step(); features.step()

with the `loss_scaling` and `accumulate_steps` of each. Features may have either style, or be an Identity. In a run the
result is one gradient too, and `samples` is required.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hive.approximation.approximation import Approximation
from hive.approximation.identity import Identity
from hive.approximation.receivers import AnyPart, ComputedPart, GradientReceiver, Part
from hive.approximation.stepping import refuse_weight
from hive.errors import NetworkError
from hive.losses import Loss

__all__ = ["accumulate_jointly", "jointly", "reinforce_jointly"]

Losses = Sequence[tuple[Approximation, Tensor]]


def jointly(
    *parts: tuple[Approximation, Tensor | Loss | ComputedPart],
    samples: int | None = None,
    statistics: Sequence[float] = (),
) -> tuple[Approximation, ...]:
    """Makes a backward pass for each (approximation, loss), then the step of each; in a run, one gradient of all.

    Returns the approximations, so that a typed generator can yield the call. An approximation with several losses
    learns from their sum.

    samples, statistics: as for `Approximation.reinforce`; the default statistics are those of typed losses, in order.

    Raises NetworkError, before any backward pass, if two approximations share a parameter, if only some are part of a
    run, and where `reinforce` raises it.
    """
    if not parts:
        raise NetworkError("no losses are given")
    approximations = tuple(dict.fromkeys(approximation for approximation, _ in parts))
    groups = _own_parameters(approximations)
    receiver = _receiver_of(approximations)
    if samples == 0:
        if receiver is not None:
            receiver.reinforce([], 0, ())
        return approximations
    if receiver is None:
        _refuse_untrainable(approximations)
    values: defaultdict[Approximation, list[Tensor]] = defaultdict(list)
    passes: list[AnyPart] = []
    reported: list[float] = []
    for approximation, loss in parts:
        if isinstance(loss, ComputedPart):  # made by `computed`, in a run
            passes.append(loss)
            continue
        value = approximation.value_of(loss)
        values[approximation].append(value)
        passes.append(approximation.part_of(value, groups[approximation]))
        reported += approximation.statistics
    if receiver is not None:
        receiver.reinforce(passes, samples, statistics or reported)
        return approximations
    for part in passes:
        assert isinstance(part, Part)
        torch.autograd.backward(part.loss, inputs=list(part.parameters or ()))
    for approximation in approximations:
        approximation.finish_backward(*values[approximation])
    return approximations


def _receiver_of(approximations: Iterable[Approximation]) -> GradientReceiver | None:
    """Returns the common receiver, None in a script. Raises NetworkError if there are several."""
    receivers = {id(approximation.receiver): approximation.receiver for approximation in approximations}
    if len(receivers) > 1:
        raise NetworkError("some of these approximations belong to a run and some do not", hint="connect all of them")
    return next(iter(receivers.values()), None)


def _own_parameters(approximations: Sequence[Approximation]) -> dict[Approximation, list[nn.Parameter]]:
    """Returns the trainable parameters of each. Raises NetworkError for shared ones, and if one has none."""
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
                    hint="train heads on shared features with reinforce_jointly",
                )
        groups[approximation] = group
    return groups


def accumulate_jointly(losses: Losses, features: Sequence[Approximation] = (), weight: float = 1.0) -> None:
    """Makes one backward pass of all losses, each scaled by its head, without a step.

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
    """Makes one backward pass of all losses, then a step of each head, in order, and of each of the features.

    samples, statistics: as for `Approximation.reinforce`. Other arguments and errors: as for `accumulate_jointly`.
    Returns the approximations.
    """
    _refuse_unpaired(losses, features)
    everyone = (*_heads(losses), *features)
    receiver = _receiver_of(one for one in everyone if not isinstance(one, Identity))
    if receiver is not None:
        inputs = tuple(value for one in everyone for value in one.inputs)
        receiver.reinforce([Part(_total(losses), inputs)] if samples != 0 else [], samples, statistics)
    if receiver is not None or samples == 0:
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
    """Raises NetworkError if one of them has no optimizer: before the backward pass, so that no gradients are left."""
    for approximation in approximations:
        approximation.refuse_untrainable()


def _total(losses: Losses) -> Tensor:
    """Returns the sum of all losses, each scaled by its head."""
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
