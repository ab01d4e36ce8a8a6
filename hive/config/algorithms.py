"""Declares the keys of [algorithm]. `name` selects the table: keys that all algorithms share, and keys of its own.

A key that only another algorithm has is unknown, and the error names that algorithm. A custom algorithm has the table
of the scheme's algorithm, because it may be a subclass of it. An algorithm with a different default for a shared key
declares the key again, by `with_default`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from hive.config.keys import is_reference, key, schedule_of, with_default
from hive.config.points import SCHEDULE

NAMES = ("a2c", "ppo", "impala", "nstep-q", "pqn", "dqn", "c51", "qr-dqn", "sac", "td3", "ddpg", "bc")
SCHEDULE_FIXED = "collectors computed their exploration schedule from it"
LEARNED_FIXED = "the learned temperature is a multiple of it"
ROUND_FIXED = "it determines the number of gradients in a round"
LAYERS_FIXED = "it determines the layers of the network"
MEMORY_FIXED = "the replay memory has this size from the start"
MINIBATCH = 64  # steps of a minibatch by default, as in Stable-Baselines3 and in CleanRL's PPO for MuJoCo
LARGEST_INTEGER = 2**63 - 1  # in TOML
LARGEST_TERM = 10_000  # of the fraction in updates_per_step: more is a typing error, and counts stay exact


def unused_keys(table: AlgorithmConfig) -> frozenset[str]:
    """Return the keys of a table that have no effect, because points of their schedules give the values."""
    names = [field.name for field in fields(table) if field.name.endswith(SCHEDULE)]
    return frozenset(name.removesuffix(SCHEDULE) for name in names if not isinstance(getattr(table, name), str))


def is_ratio(text: str) -> bool:
    """Whether `text` is a positive fraction of small whole numbers, "3", "1/4" or "0.25"."""
    try:
        ratio = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return False
    return ratio > 0 and max(ratio.numerator, ratio.denominator) <= LARGEST_TERM


def _minibatches(tables: Mapping[str, Any]) -> int:
    """Return the default `minibatches`: those of MINIBATCH steps in a round, whoever computes their gradients.

    A memory, which a custom network may have too, sees whole sequences: at most one minibatch for each environment of
    a gradient worker.
    """
    collection, gradients, network = tables["collection"], tables["gradients"], tables["network"]
    workers = max(gradients.workers, 1)
    asynchronous = collection.communication == "asynchronous"  # a gradient worker takes one rollout at a time
    rollouts = workers if asynchronous else collection.workers or workers
    parts: int = min(max(rollouts * collection.envs * collection.rollout // MINIBATCH, 1), LARGEST_INTEGER)
    if network.memory == "none" and network.module is None:
        return parts
    columns: int = max(rollouts // workers, 1) * collection.envs
    return min(parts, columns)


def _fifth(tables: Mapping[str, Any]) -> int:
    """Return the default `exploration_steps` without a replay memory, as that of PQN's authors."""
    return max(int(tables["run"].steps) // 5, 1)


def _tenth(tables: Mapping[str, Any]) -> int:
    """Return the default `exploration_steps` with a replay memory, as that of Stable-Baselines3."""
    return max(int(tables["run"].steps) // 10, 1)


def _warmup(tables: Mapping[str, Any]) -> int:
    """Return the default `learning_starts` of action values: a hundredth of the run, but 1,000 steps are enough."""
    return min(int(tables["run"].steps) // 100, 1_000)


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """[algorithm]: the keys that every algorithm has."""

    name: str = key(
        "a2c",
        "algorithm, or custom \"package.module:Class\" with the keys of the scheme's; if not set: the scheme's",
        choices=NAMES,
        accepts=is_reference,
        expected=", ".join(f'"{name}"' for name in NAMES) + ' or "package.module:Class"',
        fixed="another algorithm needs another run",
    )
    options: Mapping[str, Any] = key(
        {}, "keyword arguments of a custom algorithm's class", fixed="the algorithm was constructed with them"
    )
    discount: float = key(0.99, "discount factor of rewards, per step", minimum=0, maximum=1)
    learning_rate: float = key(7e-4, "step size of the optimizer", above=0)
    learning_rate_schedule: str | tuple[tuple[int, float], ...] = schedule_of(
        learning_rate,
        '"constant"; decreasing to 0 at run.steps: "linear", "cosine"; points [step, rate], not learning_rate',
    )
    optimizer: str = key(
        "adam",
        "optimizer: adam, adamw, radam, rmsprop or sgd",
        choices=("adam", "adamw", "radam", "rmsprop", "sgd"),
        fixed="it determines which moments the learner's optimizer state holds",
    )
    adam_beta1: float = key(0.9, "decay rate of adam's running mean of gradients", minimum=0, below=1)
    adam_beta2: float = key(0.999, "decay rate of adam's running mean of squared gradients", minimum=0, below=1)
    rmsprop_decay: float = key(0.99, "decay rate of rmsprop's running mean of squared gradients", minimum=0, below=1)
    optimizer_epsilon: float = key(1e-5, "added to the root of the mean square, so that no step divides by 0", above=0)
    momentum: float = key(
        0.0,
        "momentum of sgd and rmsprop; 0: none",
        minimum=0,
        below=1,
        fixed="it determines which moments the learner's optimizer state holds",
    )
    weight_decay: float = key(
        0.0,
        "weight decay, of a temperature too: decoupled in adamw, added to the gradient in other optimizers",
        minimum=0,
    )
    # Networks: the actor, the critics together, and the temperature.
    clip_gradients: float = key(0.5, "maximum gradient norm (sac, td3, ddpg: of each network); 0: no limit", minimum=0)


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(AlgorithmConfig):
    """[algorithm]: the keys of algorithms with a policy and a value function."""

    gae_lambda: float = key(
        1.0, "lambda of generalized advantage estimation (GAE); 1: n-step returns", minimum=0, maximum=1
    )
    value_loss_weight: float = key(0.5, "weight of the value loss in the total loss", minimum=0)
    entropy_weight: float = key(0.0, "weight of the policy's entropy in the total loss", minimum=0)
    entropy_weight_schedule: str | tuple[tuple[int, float], ...] = schedule_of(
        entropy_weight, "as learning_rate_schedule, for entropy_weight"
    )


@dataclass(frozen=True, kw_only=True)
class TargetConfig(AlgorithmConfig):
    """[algorithm]: the keys of algorithms with a target network."""

    target_interval: int = key(100, "updates between two changes of the target network", minimum=1)
    target_rate: float = key(
        1.0, "weight of the new values when the target network changes; 1: it becomes a copy", above=0, maximum=1
    )


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(AlgorithmConfig):
    """[algorithm]: the keys of algorithms that learn from a replay memory."""

    replay_from: str = key(
        "",
        'run, checkpoint or .npz file whose transitions a new run has in its memory at the start; "": none',
        accepts=str.isprintable,
        fixed="they entered the replay memory at the start",
    )
    given_weight: float = key(
        1.0,
        "how often a given transition is drawn beside one of the run; with priorities, its first priority",
        above=0,
        maximum=1,
        fixed="they entered the replay memory with it",
    )
    replay_capacity: int = key(
        100_000, "steps in the replay memory, of all collectors together", minimum=1, fixed=MEMORY_FIXED
    )
    batch_size: int = key(
        256, "steps drawn for one update, over all gradient workers", minimum=1, fixed="gradient workers share it"
    )
    updates_per_step: str = key(
        "1",
        'updates per environment step: 1, 20, or a fraction, "1/4"',
        accepts=is_ratio,
        expected='a positive number or a fraction such as "1/4"',
        numbers=True,
        fixed=ROUND_FIXED,
    )
    learning_starts: int = key(
        1_000,
        "environment steps before the first update, with uniformly drawn actions; rounded up to rounds",
        minimum=0,
        fixed=ROUND_FIXED,
    )
    n_step: int = key(
        1,
        "rewards that a target sums before it adds the target network's value",
        minimum=1,
        fixed="steps enter the replay memory by it",
    )
    priority_exponent: float = key(
        0.0,
        "how much a step's TD error raises its chance to be drawn (alpha); 0: all are equally likely",
        minimum=0,
        maximum=1,
        fixed="the priorities in the replay memory were computed with it",
    )
    importance_exponent: float = key(
        0.4, "how much the losses of likely steps are reduced in return (beta)", minimum=0, maximum=1
    )

    @property
    def loss_exponent(self) -> float:
        """The exponent of the weights of losses: 0 without priorities, where chances are meant as they are."""
        return self.importance_exponent if self.priority_exponent else 0.0


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedyConfig(AlgorithmConfig):
    """[algorithm]: the keys of algorithms that learn a value for every action and act epsilon-greedily.

    Without a replay buffer the values of actions stay distinct only while all actions are taken, so exploration
    decreases more slowly. The learning rate decreases too: at a constant rate a good policy is often lost again.
    """

    learning_rate_schedule: str | tuple[tuple[int, float], ...] = with_default(
        "linear", AlgorithmConfig, "learning_rate_schedule"
    )
    clip_gradients: float = with_default(10.0, AlgorithmConfig, "clip_gradients")
    exploration_start: float = key(
        1.0, "initial probability of a random action", minimum=0, maximum=1, fixed=SCHEDULE_FIXED
    )
    exploration_end: float = key(
        0.02,
        "final probability of a random action, also in evaluations that sample actions",
        minimum=0,
        maximum=1,
        fixed=SCHEDULE_FIXED,
    )
    exploration_steps: int = key(
        100_000,
        "environment steps until exploration_end; if not set: a fifth of run.steps, a tenth with a replay memory",
        minimum=1,
        fixed=SCHEDULE_FIXED,
        resolve=_fifth,
    )


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(EpsilonGreedyConfig):
    """[algorithm]: the keys of algorithms that learn the mean return of every action."""

    huber_loss: bool = key(True, "Huber loss with delta 1; false: squared error")


@dataclass(frozen=True, kw_only=True)
class A2CConfig(ActorCriticConfig):
    """[algorithm] with name = "a2c" (Mnih et al., 2016, synchronous)."""

    # The learning rate falls to 0, as in the paper: with a constant rate a good policy is often lost again.

    gae_lambda: float = with_default(0.95, ActorCriticConfig, "gae_lambda")
    learning_rate: float = with_default(1e-3, AlgorithmConfig, "learning_rate")
    learning_rate_schedule: str | tuple[tuple[int, float], ...] = with_default(
        "linear", AlgorithmConfig, "learning_rate_schedule"
    )
    normalize_advantages: bool = key(
        False,
        "normalize the advantages of a batch to mean 0 and standard deviation 1",
        fixed=ROUND_FIXED,
    )
    importance_clip: float = key(
        2.0, "with lag: maximum weight of a step, the learning policy over the one that acted; 0: no weights", minimum=0
    )
    vtrace: bool = key(False, "with lag: correct advantages and returns by the weights of later steps, too (V-trace)")


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    """[algorithm] with name = "ppo" (Schulman et al., 2017)."""

    name: str = with_default("ppo", AlgorithmConfig, "name")
    gae_lambda: float = with_default(0.95, ActorCriticConfig, "gae_lambda")
    learning_rate: float = with_default(3e-4, AlgorithmConfig, "learning_rate")
    normalize_advantages: bool = with_default(True, A2CConfig, "normalize_advantages")
    importance_clip: float = with_default(2.0, A2CConfig, "importance_clip")
    vtrace: bool = with_default(False, A2CConfig, "vtrace")
    epochs: int = key(10, "passes over the rollouts of a round", minimum=1, fixed=ROUND_FIXED)
    minibatches: int = key(
        32,
        "parts of a gradient worker's rollouts, one update each, in every epoch; if not set: of 64 steps together",
        minimum=1,
        fixed=ROUND_FIXED,
        resolve=_minibatches,
    )
    normalize_over: str = key(
        "minibatch",
        'advantages are normalized within each "minibatch", or over the whole "round" of all workers',
        choices=("minibatch", "round"),
        fixed=ROUND_FIXED,
    )
    clip_range: float = key(0.2, "clip the probability ratio to 1 - clip_range ... 1 + clip_range", above=0)
    clip_range_schedule: str | tuple[tuple[int, float], ...] = schedule_of(
        clip_range, "as learning_rate_schedule, for clip_range"
    )
    value_clip_range: float = key(
        0.0, "clip the change of a value within a round to this range in the value loss; 0: no clipping", minimum=0
    )
    target_kl: float = key(
        0.0,
        "skip the rest of a round once a minibatch's KL divergence exceeds 1.5 * target_kl; 0: never",
        minimum=0,
    )


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(ActorCriticConfig):
    """[algorithm] with name = "impala" (Espeholt et al., 2018)."""

    name: str = with_default("impala", AlgorithmConfig, "name")
    rho_clip: float = key(1.0, "V-trace: maximum importance weight of a temporal difference (rho-bar)", above=0)
    c_clip: float = key(1.0, "V-trace: maximum importance weight of a step in the trace (c-bar)", above=0)


@dataclass(frozen=True, kw_only=True)
class NStepQConfig(QLearningConfig, TargetConfig):
    """[algorithm] with name = "nstep-q" (n-step Q-learning, Mnih et al., 2016)."""

    # Chosen on CartPole: a target that is copied after 20 or 40 updates loses more policies than one that follows.

    name: str = with_default("nstep-q", AlgorithmConfig, "name")
    learning_rate: float = with_default(2e-3, AlgorithmConfig, "learning_rate")
    target_interval: int = with_default(1, TargetConfig, "target_interval")
    target_rate: float = with_default(0.05, TargetConfig, "target_rate")
    n_step: int = key(8, "rewards that a return sums before it adds the target network's value", minimum=1)


@dataclass(frozen=True, kw_only=True)
class PQNConfig(QLearningConfig):
    """[algorithm] with name = "pqn" (Gallici et al., 2025)."""

    # RAdam, epochs and minibatches are those of the authors; the other defaults were chosen on CartPole and Acrobot.

    name: str = with_default("pqn", AlgorithmConfig, "name")
    optimizer: str = with_default("radam", AlgorithmConfig, "optimizer")
    learning_rate: float = with_default(1e-3, AlgorithmConfig, "learning_rate")
    huber_loss: bool = with_default(False, QLearningConfig, "huber_loss")
    exploration_end: float = with_default(0.05, EpsilonGreedyConfig, "exploration_end")
    q_lambda: float = key(
        0.85, "lambda of Q(lambda): 0: one reward and the next value, 1: all rewards to the end", minimum=0, maximum=1
    )
    epochs: int = with_default(4, PPOConfig, "epochs")
    minibatches: int = with_default(4, PPOConfig, "minibatches", resolve=_minibatches)


@dataclass(frozen=True, kw_only=True)
class ReplayedValuesConfig(EpsilonGreedyConfig, TargetConfig, ReplayConfig):
    """[algorithm]: the keys of algorithms that learn action values from a replay memory: DQN, C51 and QR-DQN."""

    # Stable-Baselines3 has the values of Atari, which take a million steps: its rate is 1e-4, its target 10,000 steps
    # old, its batch 32, its updates one for 4 steps. Here they are between RL Zoo's and CleanRL's for classic control,
    # with the returns of three steps of Rainbow (Hessel et al. 2018): CartPole 500 instead of 235 to 500 (4 seeds).

    learning_rate: float = with_default(5e-4, AlgorithmConfig, "learning_rate")
    optimizer_epsilon: float = with_default(1e-8, AlgorithmConfig, "optimizer_epsilon")
    target_interval: int = with_default(200, TargetConfig, "target_interval")
    replay_capacity: int = with_default(1_000_000, ReplayConfig, "replay_capacity")
    batch_size: int = with_default(64, ReplayConfig, "batch_size")
    updates_per_step: str = with_default("1/2", ReplayConfig, "updates_per_step")
    learning_starts: int = with_default(1_000, ReplayConfig, "learning_starts", resolve=_warmup)
    n_step: int = with_default(3, ReplayConfig, "n_step")
    exploration_end: float = with_default(0.01, EpsilonGreedyConfig, "exploration_end")
    exploration_steps: int = with_default(50_000, EpsilonGreedyConfig, "exploration_steps", resolve=_tenth)
    exploration_spread: float = key(
        0.0,
        "the last environment acts with epsilon^(1 + this), the others with powers from 1 up to it (Ape-X: 7)",
        minimum=0,
        fixed=SCHEDULE_FIXED,
    )
    initial_errors: bool = key(
        False,
        "collectors compute the first TD errors of steps (Ape-X); false: new steps have the highest priority",
        fixed="rollouts have room for them or not",
    )
    double: bool = key(
        True, "the online network chooses the action whose value the target network gives (van Hasselt et al. 2016)"
    )
    dueling: int = key(
        0,
        "width of the hidden layers of two streams, state value and advantages (Wang et al. 2016); 0: no streams",
        minimum=0,
        fixed=LAYERS_FIXED,
    )


@dataclass(frozen=True, kw_only=True)
class DQNConfig(ReplayedValuesConfig, QLearningConfig):
    """[algorithm] with name = "dqn" (Mnih et al., 2015)."""

    name: str = with_default("dqn", AlgorithmConfig, "name")


@dataclass(frozen=True, kw_only=True)
class C51Config(ReplayedValuesConfig):
    """[algorithm] with name = "c51" (Bellemare et al., 2017)."""

    # The range of returns is that of CleanRL's C51 for classic control. The paper's, -10 to 10, is for Atari's signs of
    # rewards: CartPole's values of 100 would all be 10. `hive init` writes it for Atari.

    name: str = with_default("c51", AlgorithmConfig, "name")
    optimizer_epsilon: float = with_default(0.01 / 32, AlgorithmConfig, "optimizer_epsilon")
    double: bool = with_default(False, ReplayedValuesConfig, "double")
    atoms: int = key(51, "number of returns whose probabilities are learned", minimum=2, fixed=LAYERS_FIXED)
    v_min: float = key(-100.0, "the lowest of these returns; discounted returns must not be lower", fixed=LAYERS_FIXED)
    v_max: float = key(100.0, "the highest of these returns; discounted returns must not be higher", fixed=LAYERS_FIXED)


@dataclass(frozen=True, kw_only=True)
class QRDQNConfig(ReplayedValuesConfig):
    """[algorithm] with name = "qr-dqn" (Dabney et al., 2018)."""

    # SB3-Contrib has a learning rate of 5e-5 and 200 quantiles, those of the paper for Atari; RL Zoo 10 for CartPole.

    name: str = with_default("qr-dqn", AlgorithmConfig, "name")
    optimizer_epsilon: float = with_default(0.01 / 32, AlgorithmConfig, "optimizer_epsilon")
    clip_gradients: float = with_default(0.0, AlgorithmConfig, "clip_gradients")
    double: bool = with_default(False, ReplayedValuesConfig, "double")
    quantiles: int = key(50, "number of quantiles of the return that are learned", minimum=1, fixed=LAYERS_FIXED)


@dataclass(frozen=True, kw_only=True)
class AgentConfig(TargetConfig, ReplayConfig):
    """[algorithm]: the keys of agents of an actor and critics that learn from a replay memory."""

    # The defaults are those of Stable-Baselines3 where it has the same key. The target follows updates of the actor.

    learning_rate: float = with_default(1e-3, AlgorithmConfig, "learning_rate")
    optimizer_epsilon: float = with_default(1e-8, AlgorithmConfig, "optimizer_epsilon")
    clip_gradients: float = with_default(0.0, AlgorithmConfig, "clip_gradients")
    target_interval: int = with_default(1, TargetConfig, "target_interval")
    target_rate: float = with_default(0.005, TargetConfig, "target_rate")
    replay_capacity: int = with_default(1_000_000, ReplayConfig, "replay_capacity")
    learning_starts: int = with_default(100, ReplayConfig, "learning_starts")
    actor_learning_rate: float = key(
        0.0,
        "step size of the actor's optimizer, constant beside points of the schedule; 0: learning_rate",
        minimum=0,
    )
    critic_first: bool = key(
        False,
        "two updates per batch: of the critic, then of the actor with the new critic; false: one of both at once",
        fixed=ROUND_FIXED,
    )


@dataclass(frozen=True, kw_only=True)
class SACConfig(AgentConfig):
    """[algorithm] with name = "sac" (Haarnoja et al., 2018; for discrete actions Christodoulou, 2019)."""

    name: str = with_default("sac", AlgorithmConfig, "name")
    learning_rate: float = with_default(3e-4, AlgorithmConfig, "learning_rate")
    temperature: float = key(
        1.0, "weight of the entropy in the rewards; if learned, its initial value", above=0, fixed=LEARNED_FIXED
    )
    learn_temperature: bool = key(
        True, "the temperature holds the policy at the target entropy", fixed="it is a parameter of the network"
    )
    temperature_learning_rate: float = key(
        0.0, "step size of the temperature's optimizer, as actor_learning_rate; 0: learning_rate", minimum=0
    )
    target_entropy: float = key(-1.0, "box actions: target entropy in nats, for each element, scaled to -1 ... 1")
    target_entropy_share: float = key(
        0.98, "discrete actions: target entropy as a share of log(allowed actions)", above=0, maximum=1
    )


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(AgentConfig):
    """[algorithm] with name = "ddpg" (Lillicrap et al., 2016)."""

    name: str = with_default("ddpg", AlgorithmConfig, "name")
    exploration_noise: float = key(
        0.1,
        "standard deviation of the noise of actions in rollouts, where their bounds are -1 and 1",
        minimum=0,
        fixed="collectors act with it",
    )


@dataclass(frozen=True, kw_only=True)
class TD3Config(DDPGConfig):
    """[algorithm] with name = "td3" (Fujimoto et al., 2018)."""

    name: str = with_default("td3", AlgorithmConfig, "name")
    policy_delay: int = key(2, "batches of the critics for each batch of the actor and the target", minimum=1)
    target_noise: float = key(
        0.2, "standard deviation of the noise of the target's actions, scaled to -1 ... 1", minimum=0
    )
    target_noise_clip: float = key(0.5, "largest noise of the target's actions", minimum=0)


@dataclass(frozen=True, kw_only=True)
class BCConfig(ReplayConfig):
    """[algorithm] with name = "bc" (behaviour cloning, Pomerleau, 1988)."""

    # The weight of the entropy and the learning rate are those of `imitation` (Gleave et al. 2022); its batches have 32
    # steps. Larger ones make fewer updates of the same rows.

    name: str = with_default("bc", AlgorithmConfig, "name")
    learning_rate: float = with_default(1e-3, AlgorithmConfig, "learning_rate")
    optimizer_epsilon: float = with_default(1e-8, AlgorithmConfig, "optimizer_epsilon")
    replay_capacity: int = with_default(1_000_000, ReplayConfig, "replay_capacity")
    learning_starts: int = with_default(0, ReplayConfig, "learning_starts")
    entropy_weight: float = key(1e-3, "weight of the policy's entropy in the loss", minimum=0)
    network_of: str = key(
        "ppo",
        "whose network is learned, so that a run of it can begin with the weights: ppo (a2c, impala), or sac",
        choices=("ppo", "sac"),
        fixed=LAYERS_FIXED,
    )


ALGORITHMS: Mapping[str, type] = {
    "a2c": A2CConfig,
    "ppo": PPOConfig,
    "impala": IMPALAConfig,
    "nstep-q": NStepQConfig,
    "pqn": PQNConfig,
    "dqn": DQNConfig,
    "c51": C51Config,
    "qr-dqn": QRDQNConfig,
    "sac": SACConfig,
    "td3": TD3Config,
    "ddpg": DDPGConfig,
    "bc": BCConfig,
}
"""Name of an algorithm -> the dataclass of its [algorithm] table."""
