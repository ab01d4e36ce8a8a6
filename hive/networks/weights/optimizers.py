"""Optimizers over flat blocks: native passes that read one version of the weights and write the next.

    parameters v, gradient, moments v  --step-->  parameters v+1, moments v+1

`FlatOptimizer` has no state. The moments are arrays of the caller, so they can lie in shared memory and be versioned
and checkpointed like weights, and an interrupted step leaves version v intact. An output may be the same array as its
input. The formulas are those of torch.optim; clipping is a factor, `gradient_scale`, applied in the same pass. The
whole block is one parameter group. Callers restore frozen parameters after a step
(hive.networks.weights.flat.keep_frozen).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hive import _native
from hive.errors import NetworkError
from hive.networks.build.field_rules import FieldRule
from hive.networks.weights.flat import Floats

NAMES = ("adam", "adamw", "radam", "rmsprop", "sgd", "lbfgs")
ADAMS = ("adam", "adamw", "radam")  # those that count steps and average the gradient and its square

MARGIN = 1e-6  # added to the norm as torch.nn.utils.clip_grad_norm_ does, which avoids a division by 0

BETA = MOMENTUM = FieldRule.number(0, below=1)
EPSILON = FieldRule.number(above=0)  # with 0, an element whose gradient is always 0 (padding) would become 0 / 0


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """The name and constants of an optimizer, with torch's defaults.

    name: adam (Kingma and Ba 2015), adamw (Loshchilov and Hutter 2019), radam (Liu et al. 2020), rmsprop, sgd or lbfgs.
    betas: for adam, adamw and radam. epsilon: for these and rmsprop. decay: for rmsprop, torch's alpha.
    momentum: for rmsprop and sgd. weight_decay: decoupled in adamw, added to the gradient in the others.

    Raises NetworkError for an unknown name and for constants out of range.
    """

    name: str = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: float = 0.99
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise NetworkError(f"unknown optimizer `{self.name}`", hint=f"one of: {', '.join(NAMES)}")
        rules = {"epsilon": EPSILON, "decay": BETA, "momentum": MOMENTUM, "weight_decay": FieldRule.number(0)}
        values = [(name, rule, getattr(self, name)) for name, rule in rules.items()]
        for name, rule, value in (
            *values,
            *((f"betas[{position}]", BETA, beta) for position, beta in enumerate(self.betas)),
        ):
            rule.checked(type(self).__name__, name, value)


class FlatOptimizer:
    """Adam, AdamW, RAdam, RMSProp or SGD on blocks. `moment_blocks` is the number of moment arrays of a step.

    The Adams: the averages of the gradient and of its square. RMSProp: the average of the square, and
    with `momentum` the velocity. SGD: with `momentum` the velocity. All must be zeros before the first step.

    Raises NetworkError for lbfgs.
    """

    def __init__(self, settings: OptimizerSettings) -> None:
        name, momentum = settings.name, settings.momentum
        self._pass: Callable[..., bool]
        self._constants: dict[str, float]
        self._counts_steps = name in ADAMS
        if self._counts_steps:
            beta1, beta2 = settings.betas
            self._pass, self.moment_blocks = _native.adam_step, 2
            self._constants = {"beta1": beta1, "beta2": beta2, "epsilon": settings.epsilon}
            self._constants |= {"decoupled": name == "adamw", "rectified": name == "radam"}
        elif name == "rmsprop":
            self._pass, self.moment_blocks = _native.rmsprop_step, 2 if momentum else 1
            self._constants = {"decay": settings.decay, "epsilon": settings.epsilon, "momentum": momentum}
        elif name == "sgd":
            self._pass, self.moment_blocks = _native.sgd_step, 1 if momentum else 0
            self._constants = {"momentum": momentum}
        else:
            raise NetworkError(f"{name} stores its history outside of blocks", hint="in a run use adam or sgd")
        self.settings = settings

    def step(
        self,
        parameters_in: Floats,
        parameters_out: Floats,
        gradient: Floats,
        moments_in: Sequence[Floats],
        moments_out: Sequence[Floats],
        *,
        step: int,
        learning_rate: float,
        gradient_scale: float = 1.0,
    ) -> bool:
        """Write the weights and moments after one update. All arrays: float32 [parameter_elements].

        Return whether all written values are finite.

        step: the number of this update, starting at 1.
        gradient_scale: multiplies the gradient; the array `gradient` is not changed.

        Raises NetworkError unless there are `moment_blocks` moment arrays.
        """
        if len(moments_in) != self.moment_blocks or len(moments_out) != self.moment_blocks:
            given = f"{len(moments_in)} and {len(moments_out)}"
            raise NetworkError(f"{self.settings.name} needs {self.moment_blocks} moment arrays, got {given}")
        moments: list[Floats | None] = [a for pair in zip(moments_in, moments_out, strict=True) for a in pair]
        if not self._counts_steps and not self.settings.momentum:
            moments += [None, None]
        return self._pass(
            parameters_in,
            parameters_out,
            gradient,
            *moments,
            learning_rate=learning_rate,
            weight_decay=self.settings.weight_decay,
            gradient_scale=gradient_scale,
            **self._constants,
            **({"step": step} if self._counts_steps else {}),
        )


def clip_factor(norm: float, limit: float | None) -> float:
    """Return min(1, limit / (norm + 1e-6)), the factor of torch's clip_grad_norm_ (Pascanu et al. 2013).

    limit: the greatest norm; None or 0: no clipping. Up to a norm of `limit - 1e-6` the factor is exactly 1, so the
        gradient stays bit-identical.
    """
    return min(1.0, limit / (norm + MARGIN)) if limit else 1.0
