"""Methods of the algorithms that a user's class overrides to change a loss.

    added_loss(batch, outputs)           a scalar with a graph, added to the loss; of SAC, TD3 and DDPG to the critics'
    added_actor_loss(batch, outputs)     the same, added to the actor's loss of SAC, TD3 and DDPG
    targets(batch, targets)              float32 [N], in place of the targets
    advantages(rollout, advantages)      float32 [T, B], in place of the advantages, before they are normalized

A loss with an addition is computed by torch, so its gradients are no part of native rounds; nor are those of changed
targets, which Python makes of each batch. Advantages are computed once a round, before its native calls.

What a method returns is checked, and an error names its class and line. A value that is not finite is the method's
fault only if the rest was finite: otherwise it is reported as in any other run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms.batches.rows import flat, unflat
from hive.algorithms.losses.actor_critic import A2CLoss, RolloutBatch
from hive.algorithms.replaying import Batch
from hive.errors import NetworkError
from hive.experience import Rollout
from hive.learning.loss import Floats, Loss, LossValue
from hive.records.summary import OVERRIDDEN
from hive.runtime.actor.error_location import place_of_function

ADDITIONS = ("added_loss", "added_actor_loss")
METHODS = (*ADDITIONS, "targets", "advantages")


def user_class(cls: type, method: str) -> type | None:
    """Return the class of a user whose method is in force; None where it is hive's own, or there is none."""
    owner = next((one for one in cls.__mro__ if method in vars(one)), None)
    return None if owner is None or owner.__module__.startswith("hive.") else owner


class Overridable:
    """The base of algorithms that have some of METHODS. Their first statistics are what a method adds to a loss."""

    statistics: tuple[str, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if new := [name for name in ADDITIONS if user_class(cls, name) and name not in cls.statistics]:
            cls.statistics = (*new, *cls.statistics)

    @property
    def obstacle(self) -> str | None:
        """Which overridden method keeps the updates from native calls, one of hive.records.summary.ROUNDS."""
        return next((OVERRIDDEN + name for name in METHODS[:-1] if self.overrides(name)), None)

    def overrides(self, method: str) -> bool:
        """Return whether a user's class overrides a method."""
        return user_class(type(self), method) is not None

    def with_addition(
        self, loss: Any, batch: Callable[[], Any], name: str = "added_loss", rows: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return a typed loss with what a method adds to it; the loss itself if the method is not overridden.

        batch, rows: make the arguments of the method, which are made only then, the second of the network's outputs.
        """
        return _Extended(loss, self, name, batch, rows or (lambda outputs: outputs)) if self.overrides(name) else loss

    def replaced(self, name: str, of: Any, given: NDArray[Any]) -> Floats:
        """Return what a method makes of an array; the array itself if the method is not overridden.

        of: the method's first argument. Its second one, and what it returns, are tensors if this is a Batch.
        """
        if not self.overrides(name):
            return given
        finite = bool(np.isfinite(given).all())
        found = getattr(self, name)(of, torch.from_numpy(given) if isinstance(of, Batch) else given)
        try:
            array = np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, np.float32)
        except (TypeError, ValueError):
            array = np.zeros((0, 0, 0), np.float32)  # of another shape than all
        expected = f"float32 {list(given.shape)}"
        if array.shape != given.shape:
            self.refuse(name, found, expected, f"return one number for each of those in `{name}`")
        if finite and not np.isfinite(array).all():
            place = np.argwhere(~np.isfinite(array))[0].tolist()
            self.refuse(name, f"{array[tuple(place)]} at {place}", "finite numbers", NOT_FINITE)
        return array

    def refuse(self, name: str, found: Any, expected: str, hint: str) -> NoReturn:
        """Raise NetworkError for what an overridden method has returned."""
        owner = user_class(type(self), name)
        assert owner is not None
        what = found if isinstance(found, str) else _described(found)
        named = f"`{owner.__name__}.{name}` ({place_of_function(getattr(owner, name))})".removesuffix(" ()")
        error = NetworkError(f"{named} returned {what}, expected {expected}", hint=hint)
        error.permanent = True  # it would return the same after a restart
        raise error


def _described(found: Any) -> str:
    kind = "a tensor" if isinstance(found, Tensor) else "an array"
    return f"{kind} of shape {list(found.shape)}" if hasattr(found, "shape") else f"{found!r:.60}"


NOT_FINITE = "look for a division by zero, or a logarithm or root of numbers that are not positive"


@dataclass(frozen=True, eq=False, slots=True)
class _Extended:
    """A typed loss and what a user's method adds to it. It knows no slopes, so torch computes it."""

    loss: Loss
    algorithm: Overridable
    name: str
    batch: Callable[[], Any]
    rows: Callable[[Any], Any]

    @property
    def inputs(self) -> Any:
        return self.loss.inputs

    def __call__(self, outputs: Any) -> LossValue:
        value = self.loss(outputs)
        added = getattr(self.algorithm, self.name)(self.batch(), self.rows(outputs))
        refuse = functools.partial(self.algorithm.refuse, self.name)
        if not isinstance(added, Tensor) or added.dim():
            refuse(added, "a scalar tensor", "return a mean over the rows, such as `... .mean()`")
        if not added.requires_grad:
            refuse("a tensor without a graph", "one that depends on `outputs`", "leave out detach(), item(), no_grad()")
        number = added.item()
        if not math.isfinite(number) and math.isfinite(value.total.item()):
            refuse(f"{number}", "a finite number", NOT_FINITE)
        return LossValue(value.total + added, (number, *value.statistics))


class OfRollouts(Overridable):
    """What a user's class overrides in an algorithm that learns from rollouts."""

    def added_loss(self, batch: RolloutBatch, outputs: tuple[Tensor, ...]) -> Tensor:
        """Return a scalar with a graph, a mean over the M rows of `batch`, which is added to the loss.

        outputs: what the network returned for these rows, with a graph: the policy's, float32 [M, W], which
        `distribution` reads, and the values, float32 [M].
        """
        return torch.zeros(())

    def advantages(self, rollout: Rollout, advantages: Floats) -> Floats:
        """Return the advantages of a rollout in place of those given, float32 [T, B], before they are normalized.

        They must be finite also where `rollout.valid` is 0. The targets of the values stay as they are.
        """
        return advantages

    def with_rollouts(self, loss: A2CLoss, rollouts: Sequence[Rollout]) -> Any:
        """Return the loss with what `added_loss` adds to it."""
        return self.with_addition(
            loss, lambda: loss.batch(flat([rollout.log_probs for rollout in rollouts])), rows=loss.batch_rows
        )

    def replaced_advantages(self, rollouts: Sequence[Rollout], advantages: Floats) -> Floats:
        """Return the advantages of all acted rows, float32 [sum of T * B], as `advantages` makes them."""
        if not self.overrides("advantages"):
            return advantages
        parts = zip(rollouts, unflat(rollouts, advantages), strict=True)
        return flat([self.replaced("advantages", rollout, part) for rollout, part in parts])


class OfBatches(Overridable):
    """What a user's class overrides in an algorithm that learns from a replay memory."""

    def added_loss(self, batch: Batch, outputs: Tensor) -> Tensor:
        """Return a scalar with a graph, a mean over the N transitions of `batch`, which is added to the loss.

        outputs: what the network that has the loss returned for `batch.observations`, float32 with a graph: of DQN the
        values of all actions [N, A]; of C51 their log probabilities and of QR-DQN their quantiles, both [N, A, atoms];
        of SAC, TD3 and DDPG the critics' values of `batch.actions` [critics, N], with discrete actions those of all
        actions [critics, N, A].
        """
        return torch.zeros(())

    def targets(self, batch: Batch, targets: Tensor) -> Tensor:
        """Return the targets in place of those given, float32 [N]; of C51 and QR-DQN [N, atoms]. They are constants."""
        return targets
