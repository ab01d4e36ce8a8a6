"""Makes the algorithm that a config names."""

from __future__ import annotations

from collections.abc import Callable

from hive.algorithms.a2c import A2C
from hive.algorithms.algorithm import Algorithm
from hive.algorithms.c51 import C51
from hive.algorithms.ddpg import DDPG
from hive.algorithms.dqn import DQN
from hive.algorithms.impala import IMPALA
from hive.algorithms.nstep_q import NStepQ
from hive.algorithms.ppo import PPO
from hive.algorithms.pqn import PQN
from hive.algorithms.qr_dqn import QRDQN
from hive.algorithms.replaying import ReplayAlgorithm
from hive.algorithms.sac import SAC
from hive.algorithms.td3 import TD3
from hive.config import (
    A2CConfig,
    AlgorithmConfig,
    C51Config,
    DDPGConfig,
    DQNConfig,
    IMPALAConfig,
    NStepQConfig,
    PPOConfig,
    PQNConfig,
    QRDQNConfig,
    ReplayConfig,
    SACConfig,
    TD3Config,
    is_reference,
    load_reference,
)
from hive.errors import TopologyError
from hive.networks.distributions import ActionDistribution
from hive.networks.parameters import HeadParameters

__all__ = ["heads_of_algorithm", "make_algorithm"]

MEMBERS = (
    *("distribution", "statistics", "gradients_per_round", "asks_for_moments", "behaviour_log_probs"),
    "connect",
)
HEADS = ("policy", "value")  # heads of the network, unless the algorithm names others


def make_algorithm(
    config: AlgorithmConfig, distribution: ActionDistribution, workers: int, round_steps: int = 1
) -> Algorithm | ReplayAlgorithm:
    """Make the algorithm that [algorithm] names, not yet connected to a network.

    distribution: that of the environment's actions. workers: gradient workers that share a round. round_steps:
    environment steps in a round of the whole run. A user-defined algorithm is called with (config, distribution,
    workers, **config.options). Raises TopologyError if it cannot be loaded or is no `Algorithm`.
    """
    if is_reference(config.name):
        make: Callable[..., Algorithm | ReplayAlgorithm] = load_reference(config.name)
        algorithm = make(config, distribution, workers, **config.options)
        learns = "gradient" if isinstance(config, ReplayConfig) else "gradients"
        missing = [name for name in (*MEMBERS, learns) if not hasattr(algorithm, name)]
        if missing:
            raise TopologyError(
                f"the algorithm `{config.name}` has no {', '.join(missing)}",
                hint="hive.algorithms.Algorithm documents the interface of an algorithm",
            )
        return algorithm
    match config:
        case A2CConfig():
            return A2C(config, distribution, workers)
        case PPOConfig():
            return PPO(config, distribution, workers)
        case IMPALAConfig():
            return IMPALA(config, distribution)
        case NStepQConfig():
            return NStepQ(config, distribution, workers, round_steps)
        case PQNConfig():
            return PQN(config, distribution, workers, round_steps)
        case DQNConfig():
            return DQN(config, distribution, workers, round_steps)
        case C51Config():
            return C51(config, distribution, workers, round_steps)
        case QRDQNConfig():
            return QRDQN(config, distribution, workers, round_steps)
        case SACConfig():
            return SAC(config, distribution, workers, round_steps)
        case TD3Config():
            return TD3(config, distribution, workers, round_steps)
        case DDPGConfig():
            return DDPG(config, distribution, workers, round_steps)
    raise TypeError(f"no algorithm for {type(config).__name__}")


def heads_of_algorithm(algorithm: Algorithm | ReplayAlgorithm) -> tuple[str | HeadParameters, ...]:
    """Return the heads that the algorithm's network ends in: names, or parameters that are not in [network]."""
    return tuple(getattr(algorithm, "heads", HEADS))
