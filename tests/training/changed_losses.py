"""Subclasses of hive's algorithms that override its methods, for runs that name them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hive.algorithms import A2C, C51, DDPG, DQN, IMPALA, PPO, PQN, QRDQN, SAC, TD3
from hive.experience import Rollout


class AddsZero:
    """Adds 0 by each method, after a look at what it is given."""

    distribution: Any

    def added_loss(self, batch: Any, outputs: tuple[Tensor, ...]) -> Tensor:
        policy, values = outputs
        columns = values, batch.observations, batch.actions, batch.log_probs, batch.advantages, batch.returns
        assert {len(column) for column in columns} == {len(batch)}
        log_probs, _ = self.distribution.log_prob_and_entropy(policy, batch.actions)
        assert (log_probs - batch.log_probs).abs().max() < 0.5, "they belong to the actions, and the policy is close"
        return 0.0 * (log_probs.sum() + values.sum())

    def advantages(self, rollout: Rollout, advantages: NDArray[np.float32]) -> NDArray[np.float32]:
        assert advantages.shape == rollout.valid.shape
        return advantages + np.float64(0.0)


class ZeroPPO(AddsZero, PPO):
    pass


class ZeroA2C(AddsZero, A2C):
    pass


class ZeroIMPALA(AddsZero, IMPALA):
    pass


class AddsZeroToBatches:
    """The same in algorithms that learn from a replay memory."""

    def added_loss(self, batch: Any, outputs: Tensor) -> Tensor:
        assert len(batch) in outputs.shape[:2]
        return 0.0 * outputs.exp().clamp(max=1.0).sum()

    def targets(self, batch: Any, targets: Tensor) -> Tensor:
        assert len(targets) == len(batch)
        return targets + 0.0


class AddsZeroToActors(AddsZeroToBatches):
    actor: Any

    def added_actor_loss(self, batch: Any, outputs: Tensor) -> Tensor:
        assert torch.equal(outputs, self.actor.model(batch.observations))
        return 0.0 * outputs.sum()


class ZeroDQN(AddsZeroToBatches, DQN):
    pass


class ZeroC51(AddsZeroToBatches, C51):
    pass


class ZeroQRDQN(AddsZeroToBatches, QRDQN):
    pass


class ZeroSAC(AddsZeroToActors, SAC):
    pass


class ZeroTD3(AddsZeroToActors, TD3):
    pass


class ZeroDDPG(AddsZeroToActors, DDPG):
    pass


class Shifted(DQN):
    """Adds a constant to the targets alone."""

    def __init__(self, *given: Any, by: float = 0.0, **keys: Any) -> None:
        self.by = by
        super().__init__(*given, **keys)

    def targets(self, batch: Any, targets: Tensor) -> Tensor:
        return targets.double() + self.by


class Conservative(SAC):
    """That of the guide, and a penalty of the actor."""

    def added_loss(self, batch: Any, outputs: Tensor) -> Tensor:
        drawn = 2 * torch.rand_like(batch.actions) - 1
        return (self.critic(batch.observations, drawn) - outputs).mean()

    def added_actor_loss(self, batch: Any, outputs: Tensor) -> Tensor:
        return outputs.square().mean()


class Steady(A2C):
    """Adds a loss that takes a second pass, and changes the advantages."""

    def added_loss(self, batch: Any, outputs: tuple[Tensor, ...]) -> Tensor:
        other = self.model(batch.observations + 0.1)
        return (other[0] - outputs[0]).square().mean() + (outputs[1] * batch.log_probs).mean()

    def advantages(self, rollout: Rollout, advantages: NDArray[np.float32]) -> NDArray[np.float32]:
        return advantages + 0.1 * rollout.observations[1:].mean(-1)


class Halved(PPO):
    """Half the advantages, which minibatches normalize, and a constructor and a helper that change nothing."""

    def __init__(self, config: Any, distribution: Any, workers: int = 1, *, factor: float = 0.5) -> None:
        self.factor = factor
        super().__init__(config, distribution, workers)

    def advantages(self, rollout: Rollout, advantages: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.scaled(advantages)

    def scaled(self, advantages: NDArray[np.float32]) -> NDArray[np.float32]:
        return self.factor * advantages


class Wrong(PPO):
    """Returns what the options name in place of a loss or of advantages."""

    def __init__(self, config: Any, distribution: Any, workers: int = 1, *, loss: str = "", gained: str = "") -> None:
        self.names = {"loss": loss, "gained": gained}
        super().__init__(config, distribution, workers)

    def added_loss(self, batch: Any, outputs: Any) -> Any:
        return eval(self.names["loss"] or "0.0 * outputs[1].sum()")

    def advantages(self, rollout: Rollout, advantages: Any) -> Any:
        return eval(self.names["gained"] or "advantages")


class WrongDQN(DQN):
    def targets(self, batch: Any, targets: Tensor) -> Any:
        return targets[:1]


class Unheard(PQN):
    def added_loss(self, batch: Any, outputs: Any) -> Tensor:
        return torch.zeros(())
