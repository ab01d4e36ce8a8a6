"""Makes the algorithm that a config names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from hive.algorithms.a2c import A2C
from hive.algorithms.algorithm import Algorithm
from hive.algorithms.bc import BC
from hive.algorithms.c51 import C51
from hive.algorithms.ddpg import DDPG
from hive.algorithms.dqn import DQN
from hive.algorithms.impala import IMPALA
from hive.algorithms.nstep_q import NStepQ
from hive.algorithms.overrides import METHODS, user_class
from hive.algorithms.ppo import PPO
from hive.algorithms.pqn import PQN
from hive.algorithms.qr_dqn import QRDQN
from hive.algorithms.replaying import ReplayAlgorithm
from hive.algorithms.sac import SAC
from hive.algorithms.td3 import TD3
from hive.config import (
    A2CConfig,
    AlgorithmConfig,
    BCConfig,
    C51Config,
    Config,
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
from hive.config.keys import keys_of
from hive.errors import TopologyError
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.exploration import SoftChoices
from hive.networks.build.parameters import HeadParameters
from hive.runtime.process.user_code.setup import set_up

MEMBERS = (
    *("distribution", "statistics", "gradients_per_round", "asks_for_moments", "behaviour_log_probs"),
    "connect",
)
# Config -> the algorithm, and how many of (workers, round_steps) it takes.
BUILT_IN: Mapping[type[AlgorithmConfig], tuple[Callable[..., Algorithm | ReplayAlgorithm], int]] = {
    A2CConfig: (A2C, 1),
    PPOConfig: (PPO, 1),
    IMPALAConfig: (IMPALA, 0),
    NStepQConfig: (NStepQ, 2),
    PQNConfig: (PQN, 2),
    DQNConfig: (DQN, 2),
    C51Config: (C51, 2),
    QRDQNConfig: (QRDQN, 2),
    SACConfig: (SAC, 2),
    TD3Config: (TD3, 2),
    DDPGConfig: (DDPG, 2),
    BCConfig: (BC, 2),
}
HEADS = ("policy", "value")  # heads of the network, unless the algorithm names others


def make_algorithm(
    config: AlgorithmConfig, distribution: ActionDistribution, workers: int, round_steps: int = 1
) -> Algorithm | ReplayAlgorithm:
    """Make the algorithm that [algorithm] names, not yet connected to a network.

    distribution: that of the environment's actions. workers: gradient workers that share a round. round_steps:
    environment steps in a round of the whole run. A user-defined algorithm is called with (config, distribution,
    workers, **config.options), and with round_steps=... if it or the class that it extends takes that. Raises
    TopologyError if it cannot be loaded or is no `Algorithm`.
    """
    if is_reference(config.name):
        set_up()
        make: Callable[..., Algorithm | ReplayAlgorithm] = load_reference(config.name)
        more = {"round_steps": round_steps} if _takes_round_steps(make) else {}
        algorithm = make(config, distribution, workers, **{**more, **config.options})
        learns = "gradient" if isinstance(config, ReplayConfig) else "gradients"
        missing = [name for name in (*MEMBERS, learns) if not hasattr(algorithm, name)]
        if missing:
            raise TopologyError(
                f"the algorithm `{config.name}` has no {', '.join(missing)}",
                hint="hive.algorithms.Algorithm documents the interface of an algorithm",
            )
        _check_overrides(type(algorithm))
        return algorithm
    if type(config) not in BUILT_IN:
        raise TypeError(f"no algorithm for {type(config).__name__}")
    make_built_in, takes = BUILT_IN[type(config)]
    return make_built_in(config, distribution, *(workers, round_steps)[:takes])


def _check_overrides(cls: type) -> None:
    """Raise TopologyError for a method that a user's class overrides, and that the algorithm never calls."""
    built_in = [make for make, _ in BUILT_IN.values() if isinstance(make, type)]
    base = next((one for one in cls.__mro__ if one in built_in), None)
    for method in METHODS:
        owner = user_class(cls, method)
        if base is not None and owner is not None and not hasattr(base, method):
            have = ", ".join(one.__name__ for one in built_in if hasattr(one, method))
            raise TopologyError(
                f"`{owner.__name__}.{method}` would have no effect: {base.__name__} never calls it",
                hint=f"{have} do; give a function of your own another name",
            )


def _takes_round_steps(make: Callable[..., object]) -> bool:
    """Whether a class, or one that its constructor passes its arguments on to, has a parameter `round_steps`."""
    for one in make.__mro__ if isinstance(make, type) else (make,):
        own = vars(one).get("__init__") if isinstance(one, type) else one
        if own is None or not callable(own):
            continue
        try:
            parameters = inspect.signature(own).parameters
        except (TypeError, ValueError):
            return False
        if "round_steps" in parameters:
            return True
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return False
    return False


def check_effect(config: Config, distribution: ActionDistribution, columns: int) -> None:
    """Raise TopologyError for a key of [algorithm] that is given and has no effect in this environment.

    distribution: that of the algorithm. columns: environments of the run, or all agents in them. Keys that other keys
    leave without an effect are in hive.config.rules.
    """
    sac, discrete = isinstance(config.algorithm, SACConfig), isinstance(distribution, SoftChoices)
    idle = (
        ("target_entropy", sac and discrete, "a discrete action", "set algorithm.target_entropy_share instead"),
        ("target_entropy_share", sac and not discrete, "a box action", "set algorithm.target_entropy instead"),
        ("exploration_spread", columns == 1, "a single environment", "raise collection.envs, or leave it out"),
    )
    table: type = type(config.algorithm)
    for name, has_none, what, way_out in idle:
        if not has_none or name not in keys_of(table):
            continue
        value, default = getattr(config.algorithm, name), keys_of(table)[name].default
        if value != config.unset.get(f"algorithm.{name}", default):
            raise TopologyError(f"algorithm.{name} = {value} has no effect with {what}", hint=way_out)


def heads_of_algorithm(algorithm: Algorithm | ReplayAlgorithm) -> tuple[str | HeadParameters, ...]:
    """Return the heads that the algorithm's network ends in: names, or parameters that are not in [network]."""
    return tuple(getattr(algorithm, "heads", HEADS))
