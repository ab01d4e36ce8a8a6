"""The losses of a batch: every head's standard loss, weighted, and the L2 regularization.

Coach's heads have their losses inside. Those of hive.networks have none, because a run takes its losses from
hive.algorithms.losses, which also has the formulas used here. The arrays of the caller are checked, because a target
[N, 1] and an output [N] would broadcast to [N, N] and train on nonsense without an error.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hive.algorithms.losses.actor_critic import clipped_surrogate, divergences
from hive.algorithms.losses.q_learning import cross_entropies, quantile_losses
from hive.compat.coach.architecture import Array, Inputs, Targets
from hive.errors import NetworkError
from hive.networks.build.heads import DeterministicPolicyHead, Head, PolicyHead, PPOHead, SquashedPolicyHead, ValueHead
from hive.networks.build.spaces import ActionSpec, CompositeAction, DiscreteAction, MultiDiscreteAction, simple_actions
from hive.networks.build.value_heads import CategoricalQHead, QHead, QuantileQHead, select_actions

ACTIONS_TAKEN = (("int64", ()),)

# The greatest distance of a target's sum from 1; the rounding of float32 sums of hundreds of atoms stays below it.
MASS_TOLERANCE = 1e-3


@dataclass(frozen=True)
class HeadLoss:
    """`loss(output, target, *extra)` returns the loss of each sample, float32 [N], without `weight`.

    target_shape: that of one sample. extra_inputs: dtype and shape of one sample of each further array.
    """

    loss: Callable[..., Tensor]
    target_shape: tuple[int, ...] = ()
    extra_inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    weight: float = 1.0


def head_loss(head: Head, *, huber: bool = False) -> HeadLoss:
    """Return the loss of a head. A method `loss` of a custom head, and its attributes of these names, come first.

    huber: whether heads of values use the Huber loss with delta 1 instead of the squared error. Raises NetworkError for
    a head that derives from no known one and has no `loss`.
    """
    usual = next((make(head, huber) for kind, make in LOSSES.items() if isinstance(head, kind)), None)
    names = ("loss", "target_shape", "extra_inputs")
    custom = {name: getattr(head, name) for name in names if hasattr(head, name)}
    if usual is None and "loss" not in custom:
        raise NetworkError(
            f"the {head.settings.name} head {type(head).__name__} has no loss",
            hint="define loss(output, target, *extra), which returns that of each sample",
        )
    return dataclasses.replace(usual or HeadLoss(custom["loss"]), weight=head.settings.loss_weight, **custom)


def _value(head: ValueHead, huber: bool) -> HeadLoss:
    """Target: returns [N]."""
    return HeadLoss(lambda output, target: _errors(output, target, huber))


def _q(head: QHead, huber: bool) -> HeadLoss:
    """Target: [N], the return of the action taken; extra input: those actions. No other action enters the loss.

    Coach's targets are [N, actions], a copy of the prediction with one number replaced in each row, and its loss is the
    mean over them, so one sample has weight 1 / actions; here it has weight 1.
    """

    def loss(output: Tensor, target: Tensor, actions: Tensor) -> Tensor:
        refuse_unknown_actions(actions, head.action)
        return _errors(select_actions(output, actions), target, huber)

    return HeadLoss(loss, extra_inputs=ACTIONS_TAKEN)


def _categorical(head: CategoricalQHead, huber: bool) -> HeadLoss:
    """Target: probabilities [N, atoms] of the return of the action taken, projected by `project_categorical`."""

    def loss(output: Tensor, target: Tensor, actions: Tensor) -> Tensor:
        refuse_unknown_actions(actions, head.action)
        wrong = (target < 0).any(-1) | ((target.sum(-1) - 1).abs() > MASS_TOLERANCE)
        if bool(wrong.any()):
            row = int(wrong.to(torch.uint8).argmax())
            raise NetworkError(
                f"the target of sample {row} is not a distribution: its sum is {float(target[row].sum()):.4g}",
                hint="project_categorical keeps all mass",
            )
        return cross_entropies(select_actions(output, actions), target)

    return HeadLoss(loss, (head.atoms,), ACTIONS_TAKEN)


def _quantile(head: QuantileQHead, huber: bool) -> HeadLoss:
    """Target: [N, atoms], equally likely returns of the action taken, in any order."""
    kappa: float = head.settings.huber_loss_interval  # type: ignore[attr-defined]

    def loss(output: Tensor, target: Tensor, actions: Tensor) -> Tensor:
        refuse_unknown_actions(actions, head.action)
        return quantile_losses(select_actions(output, actions), target, head.midpoints, kappa)

    return HeadLoss(loss, (head.atoms,), ACTIONS_TAKEN)


def _policy(head: PolicyHead, huber: bool) -> HeadLoss:
    """Target: advantages [N]; extra input: the actions. -log_prob(action) * advantage - beta_entropy * entropy."""
    beta = getattr(head.settings, "beta_entropy", 0.0)

    def loss(output: Tensor, target: Tensor, actions: Tensor) -> Tensor:
        refuse_unknown_actions(actions, head.action)
        loss = -head.distribution.log_prob(output, actions) * target
        return loss - beta * head.distribution.entropy(output) if beta else loss

    return HeadLoss(loss, extra_inputs=((head.distribution.action_dtype, head.distribution.action_shape),))


def _ppo(head: PPOHead, huber: bool) -> HeadLoss:
    """Target: advantages A [N]. Extra inputs: actions, and their log probabilities under the old policy, float32 [N].

    With r the ratio of probabilities new / old (Schulman et al. 2017, equations 7 and 8):

        -min(r A, clip(r, 1 - epsilon, 1 + epsilon) A) + kl_coefficient * KL - beta_entropy * entropy

    `kl_coefficient` is a variable that an agent adapts with `set_variable_value`.
    """
    settings: Any = head.settings
    limit, beta = settings.clip_likelihood_ratio_using_epsilon, settings.beta_entropy

    def loss(output: Tensor, target: Tensor, actions: Tensor, old_log_probs: Tensor) -> Tensor:
        refuse_unknown_actions(actions, head.action)
        log_probs, entropy = head.distribution.log_prob_and_entropy(output, actions)
        log_ratio = log_probs - old_log_probs
        ratio = log_ratio.exp()
        losses = clipped_surrogate(ratio, target, math.inf if limit is None else limit)
        total: Tensor = losses + head.kl_coefficient * divergences(ratio, log_ratio) - beta * entropy
        return total

    policy = _policy(head, huber)
    return HeadLoss(loss, extra_inputs=(*policy.extra_inputs, ("float32", ())))


def _squashed(head: SquashedPolicyHead, huber: bool) -> HeadLoss:
    """Target: advantages [N]; extra input: the actions. -log_prob(action) * advantage."""
    distribution = head.distribution
    return HeadLoss(
        lambda output, target, actions: -distribution.log_prob(output, actions) * target,
        extra_inputs=(("float32", distribution.action_shape),),
    )


def _deterministic(head: DeterministicPolicyHead, huber: bool) -> HeadLoss:
    """Target: the gradient of the value of the policy's actions by the outputs, [N, D]. An update raises the value."""
    return HeadLoss(lambda output, target: -(output * target).sum(-1), head.output_shape)


LOSSES: Mapping[type[Head], Callable[[Any, bool], HeadLoss]] = {
    PPOHead: _ppo,
    PolicyHead: _policy,
    ValueHead: _value,
    QHead: _q,
    CategoricalQHead: _categorical,
    QuantileQHead: _quantile,
    SquashedPolicyHead: _squashed,
    DeterministicPolicyHead: _deterministic,
}
"""The loss of each head and of those that derive from it; a derived head stands before its base."""


def _errors(output: Tensor, target: Tensor, huber: bool) -> Tensor:
    loss = nn.functional.huber_loss if huber else nn.functional.mse_loss
    return loss(output, target, reduction="none")


def refuse_unknown_actions(actions: Tensor, action: ActionSpec) -> None:
    """Raise NetworkError unless 0 <= action < number of actions for all discrete `actions` [N, ...]."""
    if isinstance(action, CompositeAction):
        parts = simple_actions(action)
        sizes = [math.prod(getattr(part, "shape", ())) for part in parts]
        for part, columns in zip(parts, actions.split_with_sizes(sizes, -1), strict=True):
            refuse_unknown_actions(columns, part)
        return
    if isinstance(action, DiscreteAction):
        limits = torch.tensor(int(action.n), device=actions.device)
    elif isinstance(action, MultiDiscreteAction):
        limits = torch.tensor([int(n) for n in action.nvec], device=actions.device)
    else:
        return
    if bool(((actions < 0) | (actions >= limits)).any()):
        raise NetworkError(
            f"actions range from {int(actions.min())} to {int(actions.max())}, but there are only {limits.tolist()}",
            hint="actions are counted from 0",
        )


def weighted_losses(
    heads: Sequence[HeadLoss],
    outputs: Sequence[Tensor],
    inputs: Inputs,
    targets: Targets,
    importance_weights: Array | Sequence[Array] | None = None,
) -> list[Tensor]:
    """Return the mean loss of every output times its head's weight, scalars with a graph.

    Arguments and errors are those of `Architecture.accumulate_gradients`.
    """
    if callable(targets):
        targets = targets(tuple(output.detach().numpy() for output in outputs))
    each_target = one_for_each(targets, len(heads), "targets")
    each_weights: Sequence[Array | None] = [None] * len(heads)
    if isinstance(importance_weights, np.ndarray):
        each_weights = [importance_weights] * len(heads)
    elif importance_weights is not None:
        each_weights = one_for_each(importance_weights, len(heads), "importance weights")
    losses = []
    for index, (head, target, weights) in enumerate(zip(heads, each_target, each_weights, strict=True)):
        output = outputs[index]
        batch = (len(output),)
        wanted = checked_tensor(target, "float32", batch + head.target_shape, f"target {index}")
        extra = [
            checked_tensor(inputs.get(name), dtype, batch + shape, f"input `{name}`")
            for name, (dtype, shape) in zip(_names_of(index, head), head.extra_inputs, strict=True)
        ]
        loss = head.loss(output, wanted, *extra)
        if weights is not None:
            loss = loss * checked_tensor(weights, "float32", batch, f"importance weights of output {index}")
        losses.append(head.weight * loss.mean())
    return losses


def one_for_each(arrays: Any, outputs: int, what: str) -> Sequence[Array]:
    """Return a list of one array for each output. Raises NetworkError for anything but such a list or a single array.

    what: names the arrays in the message.
    """
    if isinstance(arrays, np.ndarray):
        arrays = [arrays]
    if not isinstance(arrays, Sequence | Tensor) or isinstance(arrays, str):
        found = "missing" if arrays is None else f"given as {type(arrays).__name__}"
        raise NetworkError(f"the {what} are {found}", hint="an array for each output, in order")
    if len(arrays) != outputs:
        raise NetworkError(f"there are {outputs} outputs and {len(arrays)} {what}", hint="one for each, in order")
    return arrays  # type: ignore[return-value]


def l2_loss(module: nn.Module, weight: float) -> Tensor:
    """Return `weight` times half the sum of squares of the trainable matrices and kernels, without biases."""
    squares = [p.square().sum() for p in module.parameters() if p.requires_grad and p.dim() > 1]
    return 0.5 * weight * sum(squares, torch.zeros((), dtype=torch.float32, device="cpu"))


def extra_input_names(heads: Sequence[HeadLoss]) -> list[str]:
    """Return the names of all extra inputs of the losses: `output_0_0` is the first one of output 0."""
    return [name for index, head in enumerate(heads) for name in _names_of(index, head)]


def checked_tensor(array: Array | None, dtype: str, shape: tuple[int, ...], what: str) -> Tensor:
    """Return `array` as a tensor of that dtype and `shape`; raises NetworkError if it is None or does not fit."""
    if array is None:
        raise NetworkError(f"{what} is missing", hint=f"expected {dtype} {list(shape)}")
    values = caller_array(array, what)
    if values.shape != shape or not np.can_cast(values.dtype, dtype, "same_kind"):
        raise NetworkError(f"{what} is {values.dtype} {list(values.shape)}, expected {dtype} {list(shape)}")
    return torch.from_numpy(np.ascontiguousarray(values, dtype))


def caller_array(values: Any, what: str) -> Array:
    """Return `values` as an array. Raises NetworkError if that fails, for example for rows of unequal lengths."""
    try:
        return np.asarray(values.detach() if isinstance(values, Tensor) else values)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"{what} is not an array: {error}") from None


def _names_of(index: int, head: HeadLoss) -> list[str]:
    return [f"output_{index}_{position}" for position in range(len(head.extra_inputs))]
