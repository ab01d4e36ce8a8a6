"""The base of agents of an actor and critics that learn from a replay memory: SAC, TD3 and DDPG.

    number of a gradient      0        1       2        3
    critic_first = false      all      all     all      all         one gradient of all networks at the same weights
    critic_first = true       critic   actor   critic   actor       two per batch; the actor's reads the new critic

With critic_first the order of updates is that of Stable-Baselines3. Which networks a gradient has follows from its
number. The learner steps only the parameter groups that a gradient has (hive.networks.weights.flat).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hive import _native
from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.losses.agents import CriticLoss
from hive.algorithms.overrides import OfBatches
from hive.algorithms.replaying import Batch, updates_in_round
from hive.config import AgentConfig
from hive.errors import TopologyError
from hive.experience import Replay
from hive.learning import Approximation, ComputedPart, SingleOutput, TargetNetwork, jointly
from hive.learning.described import TORCH_COMPUTES, Described, Step, kind, nothing
from hive.learning.loss import Loss
from hive.networks.act.bounded import BoundedColumns
from hive.networks.act.distributions import ActionDistribution
from hive.networks.build.agents import AgentNetwork, Critics
from hive.networks.rows.inputs import ACTION_INPUT
from hive.networks.weights.flat import Floats

Mask = NDArray[np.uint8]
Losses = list[tuple[Approximation, Tensor | ComputedPart]]
Statistics = dict[str, float]

TARGETS, ACTIONS = range(2)  # uses of noise: actions of the critics' targets, and those that the actor learns from
USES = 2

ACTOR_ROWS, CRITIC_ROWS = "actor_rows", "critic_rows"  # registers: the numbers that each reads of an observation
UNKNOWN = float("nan")  # a statistic of a network that this gradient does not have


class ActorWithCritics(OfBatches):
    """Holds `actor` and `critic`. A subclass computes their losses from a batch.

    round_steps: environment steps in a round over all collectors. Raises TopologyError for a fraction of an update.
    """

    statistics: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    gradients_per_round: int
    gradients_per_batch: int
    asks_for_moments = False
    behaviour_log_probs = False
    critic_factor = 1.0  # of the squared errors of critics
    distribution: ActionDistribution
    actor: Approximation
    critic: Approximation

    def __init__(self, config: AgentConfig, distribution: ActionDistribution, round_steps: int = 1) -> None:
        self.distribution = distribution
        self.gradients_per_batch = 2 if config.critic_first else 1
        self.gradients_per_round = updates_in_round(config, round_steps) * self.gradients_per_batch
        self.reconfigure(config)

    def reconfigure(self, config: Any) -> None:
        """Use these keys from the next loss on."""
        self.config = config

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the actor and the critic that learn, with their targets. Raises TopologyError without critics."""
        if not isinstance(network, AgentNetwork):
            raise TopologyError(
                f"{self.config.name} needs a network with critics, not {type(network).__name__}",
                hint=f"its heads are {', '.join(self.heads)}",
            )
        self.actor, self.critic = (
            Approximation(model, optimizer, name=name, target=copy.copy(target))
            for name, model in (("actor", SingleOutput(network.actor)), ("critic", network.critic))
        )

    def gradient(self, batch: Batch) -> None:
        """Make gradient `batch.number`. A gradient that has the critic fills the errors of the batch."""
        part = batch.number % self.gradients_per_batch
        losses: Losses = []
        found: Statistics = {}
        if part == 0:
            losses, found = self.critic_losses(batch)
        if part == self.gradients_per_batch - 1 and self.actor_is_due(batch.number // self.gradients_per_batch):
            further, more = self.actor_losses(batch)
            losses, found = losses + further, found | more
        if not losses:
            self.critic.reinforce(samples=0)
            return
        jointly(*losses, samples=len(batch), statistics=[found.get(name, UNKNOWN) for name in self.statistics])

    def actor_is_due(self, number: int) -> bool:
        """Whether the actor learns from batch `number`, counted from 0."""
        return True

    def critic_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        """Return the losses of the critic, and statistics by name."""
        raise NotImplementedError

    def actor_losses(self, batch: Batch) -> tuple[Losses, Statistics]:
        """Return the losses of the actor and of what learns with it, and statistics by name."""
        raise NotImplementedError

    def draw(self, batch: Batch, use: int, shape: Sequence[int]) -> Tensor:
        """Return normal noise float32 [N, *shape] of the gradient of a batch.

        Its stream is that of the seed of torch's generator, which is seeded for each gradient, of the gradient's number
        and of its `use`, TARGETS or ACTIONS.
        """
        noise = np.empty(len(batch) * math.prod(shape), np.float32)
        _native.philox_normals(torch.default_generator.initial_seed(), USES * batch.number + use, noise)
        return torch.from_numpy(noise.reshape(-1, *shape))

    def fit(
        self, inputs: Any, targets: Tensor, batch: Batch, *, factor: float, actions: Tensor | None = None
    ) -> tuple[Losses, Statistics]:
        """Return the squared errors of the critics to targets [N], times `factor`, and fill the errors of the batch.

        inputs: those of the critics. actions: int64 [N], if they return the values of all actions.
        """
        targets = torch.from_numpy(self.replaced("targets", batch, targets.numpy()))
        loss = CriticLoss(inputs, targets, batch.importance, batch.errors, factor, actions)
        computed, statistics, added = self.extended(self.critic, loss, batch, "added_loss")
        names = ("critic_loss", "q_mean", "td_error")
        return [(self.critic, computed)], dict(zip(names, statistics, strict=True)) | added

    def added_actor_loss(self, batch: Batch, outputs: Tensor) -> Tensor:
        """Return a scalar with a graph, a mean over the N transitions of `batch`, which is added to the actor's loss.

        outputs: what the actor returned for `batch.observations`, float32 [N, W] with a graph, which `distribution`
        reads.
        """
        return torch.zeros(())

    def extended(
        self, of: Approximation, loss: Loss, batch: Batch, method: str
    ) -> tuple[Tensor | ComputedPart, Sequence[float], Statistics]:
        """Return the computed loss of an approximation with what a method adds, its statistics, and the addition's."""
        computed = of.computed(self.with_addition(loss, lambda: batch, method))
        added = [method] if self.overrides(method) else []
        return computed, of.statistics[len(added) :], dict(zip(added, of.statistics, strict=False))

    def bootstrapped(
        self, batch: Batch, values: Tensor, log_probs: Floats | None = None, weight: float = 0.0
    ) -> Tensor:
        """Return the targets [N] of values [critics, N] of the following actions; see _native.soft_targets."""
        targets = np.empty(len(batch), np.float32)
        returns, discounts = batch.returns.numpy(), batch.discounts.numpy()
        _native.soft_targets(tuple(values.numpy()), log_probs, weight, returns, discounts, targets)
        return torch.from_numpy(targets)

    def taken(self, batch: Batch) -> dict[str, Tensor]:
        """Return the inputs of critics that take the actions of the batch, scaled to -1 ... 1."""
        scaled = cast(BoundedColumns, self.distribution).scaled(batch.actions)
        return {"observation": batch.observations, ACTION_INPUT: scaled}

    # --- its gradients for hive._native

    def described_kinds(
        self, memory: Replay, targets: Sequence[Step | None], actor: Sequence[Step | None], masks: Sequence[Mask] = ()
    ) -> Described | str:
        """Return the kinds of gradients that `gradient` makes; or why only that makes them.

        targets: the steps to the register of this name. actor: those of the actor's loss, and of what learns with it,
        whose parameters have these `masks`.
        """
        config, actors, critics = self.config, self.actor.native, self.critic.native
        actions = "float32" if self._takes_actions else "int64"
        if actors.dense is None or critics.dense is None:
            return TORCH_COMPUTES
        batch = memory.described(config.n_step, config.discount, config.loss_exponent, actions=actions)
        unpacked = [
            passes.unpack(f"{which}observations", f"{which}{rows}", memory.observation)
            for passes, rows in ((actors, ACTOR_ROWS), (critics, CRITIC_ROWS))
            for which in ("", "next_")
        ]
        begin: list[Step | None] = [batch, *unpacked, ("unknown", {})]
        learning = [*targets, *self._described_fit(), described_backward("critics")]
        of_critics, of_actor = critics.dense.mask, np.bitwise_or.reduce([actors.dense.mask, *masks])
        alone = kind([*begin, *learning], of_critics)
        found = [alone, kind([*begin, *learning, *actor], of_critics | of_actor)]
        if self.gradients_per_batch > 1:
            found = [alone, kind([*begin, *actor], of_actor), nothing(len(of_critics))]
        kinds = tuple(one for one in found if one is not None)
        return Described(kinds, None, self._kind_of) if len(kinds) == len(found) else TORCH_COMPUTES

    def _kind_of(self, number: int) -> int:
        """Return which of its kinds gradient `number` is; the third one has no losses."""
        batch, part = divmod(number, self.gradients_per_batch)
        if self.gradients_per_batch == 1:
            return 1 if self.actor_is_due(batch) else 0
        if part == 0:
            return 0
        return 1 if self.actor_is_due(batch) else 2

    def _described_fit(self) -> Sequence[Step | None]:
        """Return the steps of the critics' loss, from `targets` and the actions of the batch."""
        places = [self.statistics.index(name) for name in ("critic_loss", "q_mean", "td_error")]
        names = {"values": self.described_names("q"), "slopes": self.described_names("to_q")}
        loss = {**names, "factor": self.critic_factor, "places": places}
        if not self._takes_actions:
            values = self.described_critics(CRITIC_ROWS, "q", learns="critics")
            return values, ("critic_loss", {**loss, "actions": "actions"})
        middle, reach = cast(BoundedColumns, self.distribution).middle_and_reach
        return (
            ("scale", {"middle": middle.ravel().tolist(), "reach": reach.ravel().tolist(), "into": "scaled"}),
            self.described_join(CRITIC_ROWS, "scaled", "taken"),
            self.described_critics("taken", "q", learns="critics"),
            ("critic_loss", {**loss, "actions": None}),
        )

    def described_targets(
        self, values: str, *, log_probs: str | None = None, temperature: float = 0.0, log: int = -1
    ) -> Step:
        """Return the step from the critics' values of the next actions to the register `targets`."""
        entropy = {"log_probs": log_probs, "temperature": temperature, "log": log}
        return "soft_targets", {"values": self.described_names(values), **entropy}

    def described_join(self, rows: str, actions: str, into: str) -> Step | None:
        """Return the step that lays actions beside the critics' part of observations, as they read them."""
        columns = self._action_columns
        if columns is None:
            return None
        return "join", {"observations": rows, "actions": actions, "at": columns.start, "into": into}

    @property
    def _action_columns(self) -> slice | None:
        dense = self.critic.native.dense
        return None if dense is None else dense.columns_of(ACTION_INPUT)

    def described_critics(
        self, rows: str, values: str, *, learns: str = "", count: int | None = None, of_target: bool = False
    ) -> Step | None:
        """Return the pass of the first `count` critics. learns: its name, if a backward pass follows.

        rows: those of `described_join`, or CRITIC_ROWS for critics that return the values of all actions.
        """
        names = self.described_names(values)[:count]
        slopes = [f"to_{name}" for name in names] if learns else None
        return self.critic.native.described(rows, names, slopes, of_target=of_target, name=learns)

    def described_actor(
        self, sample: Sequence[Step], count: int | None, loss: Mapping[str, Any]
    ) -> Sequence[Step | None]:
        """Return the steps of an actor's loss and gradient.

        sample: those from the register `policy` to `chosen`, actions that the first `count` critics judge. loss: the
        other keys of the step actor_loss.
        """
        columns = self._action_columns
        values = self.described_names("judged")[:count]
        given = {"outputs": "policy", "actions": "chosen", "to_rows": "to_chosen", "slopes": "to_policy"}
        return (
            self.actor.native.described(ACTOR_ROWS, ("policy",), ("to_policy",), name="actor"),
            *sample,
            self.described_join(CRITIC_ROWS, "chosen", "judged_rows"),
            self.described_critics("judged_rows", "judged", learns="judges", count=count),
            ("least_value", {"values": values, "slopes": [f"to_{name}" for name in values]}),
            described_backward("judges", "to_chosen"),
            None if columns is None else ("actor_loss", {**given, "at": columns.start, **loss}),
            described_backward("actor"),
        )

    @property
    def _takes_actions(self) -> bool:
        return cast(Critics, self.critic.model).takes_actions

    def described_names(self, values: str) -> list[str]:
        """Return the registers of the values of each critic."""
        return [f"{values}{number}" for number in range(len(cast(Critics, self.critic.model).branches))]


def described_backward(of: str, to_rows: str | None = None) -> Step:
    """Return the backward pass of a forward pass, to the gradient, or to the register `to_rows`."""
    return "backward", {"of": of, "to_rows": to_rows}
