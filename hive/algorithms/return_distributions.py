"""The base of algorithms that learn the distribution of the return of every action: C51 and QR-DQN.

The policy and the targets compare actions by their expected returns.
"""

from __future__ import annotations

from torch import Tensor, nn

from hive.algorithms.algorithm import AnyOptimizer
from hive.algorithms.replayed_values import ReplayedValues
from hive.algorithms.replaying import Batch
from hive.learning import Approximation, SingleOutput, TargetNetwork
from hive.networks.build.value_heads import expected_return, select_actions

__all__ = ["ReturnDistributions"]


class ReturnDistributions(ReplayedValues):
    """Holds the distributions of all actions as `q`. Arguments: see QLearning.

    support: float32 [atoms], the returns of outputs that are log probabilities; None: the outputs are quantiles.
    """

    q: Approximation
    support: Tensor | None = None

    def connect(self, network: nn.Module, optimizer: AnyOptimizer = None, target: TargetNetwork | None = None) -> None:
        """Make the distributions that learn, with their target network."""
        self.q = Approximation(SingleOutput(network), optimizer, name="q", target=target)

    def following(self, batch: Batch) -> Tensor:
        """Return the target network's distribution [N, atoms] of the best action in the next observation.

        With `double` the online network chooses this action, otherwise the target network.
        """
        outputs: Tensor = self.q.target(batch.next_observations)
        chooses = self.q.no_grad(batch.next_observations) if self.config.double else outputs
        return select_actions(outputs, expected_return(chooses, self.support).argmax(-1))
