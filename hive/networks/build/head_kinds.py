"""The table of heads by name, and `make_head`, which builds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hive.config.references import calls_user_code
from hive.errors import NetworkError
from hive.networks.build.heads import DeterministicPolicyHead, Head, PolicyHead, PPOHead, SquashedPolicyHead, ValueHead
from hive.networks.build.parameters import (
    CategoricalQHeadParameters,
    DuelingQHeadParameters,
    HeadParameters,
    PolicyHeadParameters,
    PPOHeadParameters,
    QuantileQHeadParameters,
    SquashedPolicyHeadParameters,
)
from hive.networks.build.spaces import ActionSpec
from hive.networks.build.value_heads import (
    CategoricalQHead,
    DuelingCategoricalQHead,
    DuelingQHead,
    DuelingQuantileQHead,
    QHead,
    QuantileQHead,
)


@dataclass(frozen=True)
class HeadKind:
    """A row of the table of heads.

    parameters: the class with all parameters of the head; a description of a policy is read as this class.
    make: the constructor, called with the parameters and the action.
    complete: whether the head refuses plain HeadParameters, which then would leave out what its layers depend on.
    """

    parameters: type[HeadParameters]
    make: Callable[[Any, ActionSpec], Head]
    complete: bool = False


HEADS = {
    "policy": HeadKind(PolicyHeadParameters, PolicyHead),
    "value": HeadKind(HeadParameters, ValueHead),
    "q": HeadKind(HeadParameters, QHead),
    "dueling_q": HeadKind(DuelingQHeadParameters, DuelingQHead),
    "categorical_q": HeadKind(
        CategoricalQHeadParameters,
        lambda parameters, action: (DuelingCategoricalQHead if parameters.dueling else CategoricalQHead)(
            parameters, action
        ),
        complete=True,
    ),
    "quantile_q": HeadKind(
        QuantileQHeadParameters,
        lambda parameters, action: (DuelingQuantileQHead if parameters.dueling else QuantileQHead)(parameters, action),
        complete=True,
    ),
    "squashed_policy": HeadKind(SquashedPolicyHeadParameters, SquashedPolicyHead),
    "deterministic_policy": HeadKind(HeadParameters, DeterministicPolicyHead),
    "ppo": HeadKind(PPOHeadParameters, PPOHead, complete=True),
}
"""All heads by name."""


def make_head(parameters: HeadParameters, action: ActionSpec) -> Head:
    """Build the head that `parameters` describe.

    Raises NetworkError for an unknown name, parameters of another class, or a custom class (`parameters.cls`) that
    returns anything but a head with the same output shape.
    """
    if parameters.name not in HEADS:
        raise NetworkError(f"unknown head `{parameters.name}`", hint=f"one of: {', '.join(HEADS)}")
    kind = HEADS[parameters.name]
    if kind.complete and not isinstance(parameters, kind.parameters):
        raise NetworkError(
            f"head `{parameters.name}` is described by {type(parameters).__name__}",
            hint=f"use {kind.parameters.__name__}, which has the parameters it needs",
        )
    head = kind.make(parameters, action)
    return head if parameters.cls is None else _own_head(parameters, action, head)


@calls_user_code("network.policy_head", "network.value_head")
def _own_head(parameters: HeadParameters, action: ActionSpec, usual: Head) -> Head:
    assert parameters.cls is not None
    head = parameters.cls(parameters, action)
    if not isinstance(head, Head):
        raise NetworkError(
            f"the {parameters.name} head is {type(head).__name__}, not a hive.networks.Head",
            hint="derive it from hive.networks.Head, or from one of the heads there",
        )
    if head.output_shape != usual.output_shape:
        raise NetworkError(
            f"the {parameters.name} head {type(head).__name__} has outputs of shape {list(head.output_shape)}",
            hint=f"{type(usual).__name__}, which it replaces, has {list(usual.output_shape)}",
        )
    return head
