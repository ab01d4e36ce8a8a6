"""The algorithms, and what a custom one is written with. `algorithm.name = "module:Class"` names a custom algorithm.

    A2C, PPO, IMPALA, NStepQ, PQN            learn from rollouts
    DQN, C51, QRDQN, SAC, TD3, DDPG          learn from a replay memory
    BC                                       learns from given transitions in a replay memory
    Algorithm, Gradients, Moments            the interface of those that learn from rollouts
    ReplayAlgorithm, Batch                   the interface of those that learn from a replay memory
    RolloutBatch                             the rows of rollouts that `added_loss` gets
    Configured                               the interface of those whose keys may change in a run (`hive set`)
    Approximation, ActorCritic, jointly      networks that learn: `yield self.model.reinforce(loss, samples=n)`
    TargetNetwork, AnyOptimizer              types of the arguments of `connect`
    Loss, LossValue, QLoss                   the interface of a typed loss, and that of Q-learning; a torch scalar is a
                                             loss too

Most custom algorithms derive from one of the classes above and override one method: `added_loss`, `advantages` or
`targets` (hive.algorithms.overrides), or `reconfigure`, which gets the keys of [algorithm]:

    class Smooth(hive.algorithms.PPO):
        def added_loss(self, batch, outputs):
            return 0.001 * outputs[0].square().mean()
"""

from __future__ import annotations

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
