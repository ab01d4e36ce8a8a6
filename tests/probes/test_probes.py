"""Every algorithm learns the values and actions that follow from arithmetic, in runs of a tenth of a second.

`scripts/mutants` shows that these tests fail for wrong signs, missing bootstraps, shifted rows and the like.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Parts
from learning import (
    ACTION_VALUES,
    ALGORITHMS,
    POLICIES,
    TABLE,
    Learned,
    configure,
    in_a_table,
    initial,
    learn,
    mean_return,
    train,
    trained,
)

from hive.training import evaluate

G = 0.5  # the discount factor, small so that values beyond the end of a rollout converge within a few updates

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_policy = pytest.mark.parametrize("algorithm", POLICIES)


def values_are(learned: Learned, expected: list[float], tolerance: float = 0.01) -> None:
    """The first states have these values; later states are never acted in."""
    np.testing.assert_allclose(learned.values[: len(expected)], expected, atol=tolerance)


def chooses(learned: Learned, state: int, action: int, share: float = 0.95) -> None:
    """A policy takes this action at least with this probability, and of action values it has the largest."""
    outputs = learned.outputs[0].numpy()[state]
    assert outputs.argmax() == action
    if len(learned.outputs) > 1:
        assert learned.probabilities[state, action] >= share


@pytest.mark.rotates
@every_algorithm
def test_the_value_of_a_constant_reward(tmp_path: Path, algorithm: str) -> None:
    learned = learn(tmp_path, algorithm, "ConstantReward", 8, algorithm__learning_rate=0.5)
    values_are(learned, [1.0])


@pytest.mark.full(reason="what it finds, other probes find too: see scripts/mutants", rotates=True)
@pytest.mark.rotates
@every_algorithm
def test_the_value_falls_until_the_last_step(tmp_path: Path, algorithm: str) -> None:
    """Episodes of five steps in rollouts of three: most rollouts end within one."""
    learned = learn(tmp_path, algorithm, "Countdown", 50, algorithm__discount=G, algorithm__learning_rate=0.6)
    values_are(learned, [sum(G**k for k in range(left)) for left in (5, 4, 3, 2, 1)])


@pytest.mark.rotates
@every_algorithm
def test_one_update_number_by_number(tmp_path: Path, algorithm: str) -> None:
    """Each environment visits states 0 1 2 3 4 0 and bootstraps from state 1, so all numbers follow from the initial V.

    With x the one-hot state and a 1 for the bias, the weights move by a rate times mean((R - V(s)) x).
    """
    own: Any = {
        "ppo": {"algorithm__minibatches": 1, "algorithm__gae_lambda": 1.0},
        "nstep-q": {"algorithm__n_step": 6},
        "pqn": {"algorithm__minibatches": 1, "algorithm__q_lambda": 1.0},
    }
    changes = {"algorithm__discount": G, "collection__rollout": 6, **own.get(algorithm, {})}
    config = in_a_table(algorithm, "Countdown", 1, **changes)
    before, rate = initial(config).values.astype(float), 1.0 if algorithm in POLICIES else 2.0
    visited = [0, 1, 2, 3, 4, 0]
    returns = [*(sum(G**k for k in range(left)) for left in (5, 4, 3, 2, 1)), 1.0 + G * before[1]]
    errors = np.asarray(returns) - before[visited]
    step = np.bincount(visited, errors, minlength=6) / 6.0 + errors.mean()
    np.testing.assert_allclose(train(tmp_path, config).values, before + rate * step, rtol=1e-5, atol=1e-6)


@pytest.mark.rotates
@every_algorithm
def test_credit_over_two_steps(tmp_path: Path, algorithm: str) -> None:
    """Random actions take different shares of the two branches, so action values need larger rounds."""
    policy, action_values = {"algorithm__learning_rate": 2.0}, {"collection__envs": 16}
    changes: Any = policy if algorithm in POLICIES else action_values
    learned = learn(
        tmp_path, algorithm, "Fork", 40, algorithm__discount=G, algorithm__learning_rate_schedule="linear", **changes
    )
    values_are(learned, [G, 2.0, 0.0], 0.06)


@pytest.mark.rotates
@every_algorithm
def test_choice_by_observation(tmp_path: Path, algorithm: str) -> None:
    policy: Any = {"algorithm__learning_rate": 6.0, "algorithm__value_loss_weight": 0.07}
    learned = learn(tmp_path, algorithm, "Choice", 30, **(policy if algorithm in POLICIES else {}))
    for state, action in enumerate((0, 1, 0)):
        chooses(learned, state, action)
    values_are(learned, [1.0, 1.0, 1.0], 0.05)


@pytest.mark.rotates
@every_algorithm
def test_choice_of_allowed_actions(tmp_path: Path, algorithm: str) -> None:
    """The environment raises if a forbidden arm is pulled, while the policy explores or is greedy."""
    policy: Any = {"algorithm__learning_rate": 6.0, "algorithm__value_loss_weight": 0.07}
    changes = policy if algorithm in POLICIES else {}
    config = in_a_table(algorithm, "MaskedArm", 40, env__action_mask="action_mask", **changes)
    learned = trained(tmp_path, config)
    for state, best in enumerate((0, 1)):
        mask = np.array([state == 0, 1, 1])
        assert learned({"state": state, "action_mask": mask}) == best
        assert learned({"state": state, "action_mask": np.array([0, 0, 1])}) == 2


@pytest.mark.rotates
@every_algorithm
def test_choice_by_each_part_of_an_observation(tmp_path: Path, algorithm: str) -> None:
    policy: Any = {"algorithm__learning_rate": 4.0, "algorithm__value_loss_weight": 0.05}
    changes = policy if algorithm in POLICIES else {"collection__envs": 64, "algorithm__learning_rate": 0.3}
    learned = trained(tmp_path, in_a_table(algorithm, "Parts", 100, **{"collection__envs": 32, **changes}))
    assert [int(learned(Parts.seen(state))) for state in range(8)] == list(range(8))


@pytest.mark.rotates
@every_algorithm
def test_choice_under_delay(tmp_path: Path, algorithm: str) -> None:
    """Four steps in rollouts of three: the reward reaches the first choice only through values."""
    policy: Any = {"algorithm__learning_rate": 10.0, "algorithm__value_loss_weight": 0.05}
    changes = policy if algorithm in POLICIES else {}
    learned = learn(tmp_path, algorithm, "Delay", 60, algorithm__discount=G, **changes)
    chooses(learned, 0, 1, 0.9)
    np.testing.assert_allclose(learned.values[[0, 2, 4, 6]], [G**3, G**2, G, 1.0], atol=0.03)


@pytest.mark.rotates
@every_algorithm
def test_truncation_against_termination(tmp_path: Path, algorithm: str) -> None:
    learned = learn(tmp_path, algorithm, "Ends", 40, algorithm__discount=G)
    values_are(learned, [1.0 / (1.0 - G), 1.0 / (1.0 - G), 1.0 + G, 1.0])


LARGE: dict[str, Any] = {
    "collection__envs": 32,
    "collection__rollout": 4,
    "algorithm__learning_rate_schedule": "linear",
}
"""Rounds of many samples and a falling rate, for what has to be averaged."""


@pytest.mark.rotates
@every_policy
def test_the_policy_that_reward_and_entropy_agree_on(tmp_path: Path, algorithm: str) -> None:
    """p maximises p + w H(p) where p = 1 / (1 + exp(-1 / w)), and is then the value of the state."""
    learned = learn(
        tmp_path,
        algorithm,
        "Bandit",
        40,
        **LARGE,
        algorithm__learning_rate=2.0,
        algorithm__value_loss_weight=0.25,
        algorithm__entropy_weight=0.5,
    )
    p = 1.0 / (1.0 + np.exp(-1.0 / 0.5))
    np.testing.assert_allclose(learned.probabilities[0], [1.0 - p, p], atol=0.04)
    values_are(learned, [p], 0.04)


OTHER = pytest.param("output", marks=pytest.mark.full(reason="the other kind of deviation", rotates=True))


@pytest.mark.parametrize("deviation", ["parameter", OTHER])
@pytest.mark.rotates
@every_policy
def test_the_continuous_action_that_reward_and_entropy_agree_on(tmp_path: Path, algorithm: str, deviation: str) -> None:
    """The mean is the target. The deviation s maximises -s^2 + w log s where s^2 = w / 2, and the value is -s^2."""
    learned = learn(
        tmp_path,
        algorithm,
        "Targets",
        40,
        **LARGE,
        algorithm__learning_rate=0.2,
        algorithm__value_loss_weight=1.0,
        algorithm__entropy_weight=0.5,
        network__action_deviation=deviation,
    )
    means, deviations = learned.gaussians
    np.testing.assert_allclose(means, [-1.0, 1.0], atol=0.15)
    np.testing.assert_allclose(deviations, 0.5, atol=0.08)
    values_are(learned, [-0.25, -0.25], 0.12)


@pytest.mark.parametrize("algorithm", ACTION_VALUES)
def test_the_values_of_two_arms(tmp_path: Path, algorithm: str) -> None:
    learned = learn(tmp_path, algorithm, "Bandit", 30, algorithm__learning_rate=0.5)
    np.testing.assert_allclose(learned.action_values[0], [0.0, 1.0], atol=0.01)


MEMORY: dict[str, Any] = {
    **TABLE,
    "collection.envs": 16,
    "collection.rollout": 7,
    "network.separate_networks": False,
    "algorithm.optimizer": "adam",
    "algorithm.learning_rate": 0.03,
    "algorithm.discount": 0.9,
    "algorithm.clip_gradients": 0.5,
}
"""Episodes of five steps in rollouts of seven: most rollouts begin and end within one."""

KINDS = [
    "lstm",
    pytest.param("gru", marks=pytest.mark.full(reason="the other kind of cell", rotates=True)),
    pytest.param("none", marks=pytest.mark.full(reason="shows that the probe needs a memory")),
]


@pytest.mark.parametrize("memory", KINDS)
@pytest.mark.rotates
@every_policy
def test_the_memory_of_the_first_observation(tmp_path: Path, algorithm: str, memory: str) -> None:
    """The last action of an episode must be the number that its first observation showed, which earns 1."""
    cells: Any = {} if memory == "none" else {"network.memory": memory, "network.memory_size": 8}
    parts: Any = {"algorithm.epochs": 2, "algorithm.minibatches": 2} if algorithm == "ppo" else {}
    rounds = 50 if algorithm == "ppo" else 100
    reached = mean_return(tmp_path, configure(algorithm, "Remember", rounds, {**MEMORY, **cells, **parts}))
    assert reached < 0.7 if memory == "none" else reached > 0.9


@pytest.mark.parametrize("frames", [3, pytest.param(2, marks=pytest.mark.full(reason="shows that it needs three"))])
@pytest.mark.rotates
@every_algorithm
def test_choice_by_an_earlier_observation(tmp_path: Path, algorithm: str, frames: int) -> None:
    """Greedy play earns 4 in an episode; without the frame two steps before, 3 on average."""
    own: Any = {"algorithm__learning_rate": 4.0, "algorithm__value_loss_weight": 0.05}
    own = own if algorithm in POLICIES else {"algorithm__learning_rate": 0.2, "algorithm__discount": 0.0}
    changes: Any = {"collection__envs": 16, "env__frame_stack": frames, **own}
    config = in_a_table(algorithm, "Recall", 150, **changes)
    played = evaluate(trained(tmp_path, config), config, episodes=32)
    assert played.mean_return < 3.6 if frames == 2 else played.mean_return == 4.0


WEIGHTS = [1.0, pytest.param(0.0, marks=pytest.mark.full(reason="shows that the lock is not opened by chance"))]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.rotates
@every_policy
def test_novelty_leads_to_a_reward_that_chance_does_not_find(tmp_path: Path, algorithm: str, weight: float) -> None:
    """20,000 steps are some 10,000 episodes by chance, of which in all likelihood none earns 1."""
    settings: Any = {
        **{name: value for name, value in TABLE.items() if not name.startswith(("algorithm.", "network."))},
        "collection.envs": 16,
        "collection.rollout": 32,
        "network.novelty_weight": weight,
        "run.seed": 2,  # with seed 1 PPO opens it by chance, late
        "algorithm.learning_rate": 5e-3 if algorithm != "ppo" else 1e-3,
        "algorithm.entropy_weight": 0.01,
    }
    reached = mean_return(tmp_path, configure(algorithm, "Lock", 40, settings))
    assert reached > 0.5 if weight else reached < 0.1


FROZEN: dict[str, Any] = {**LARGE, "collection__broadcast_interval": 1_000_000}
"""The initial policy acts in the whole run: both arms of a bandit with probability 1/2."""


@pytest.mark.parametrize("clip", [100.0, 1.0])
def test_impala_learns_from_another_policy(tmp_path: Path, clip: float) -> None:
    """Of a policy p and a behaviour m, V-trace has the value of the policy that is min(clip m, p), normalised."""
    learned = learn(
        tmp_path,
        "impala",
        "Bandit",
        60,
        **FROZEN,
        algorithm__learning_rate=2.0,
        algorithm__value_loss_weight=0.25,
        algorithm__entropy_weight=0.5,
        algorithm__rho_clip=clip,
        algorithm__c_clip=clip,
    )
    weights = np.minimum(0.5 * clip, learned.probabilities[0])
    assert 0.8 < learned.probabilities[0, 1] < 0.95
    values_are(learned, [weights[1] / weights.sum()], 0.02)


def test_ppo_stays_near_the_policy_that_acted(tmp_path: Path) -> None:
    """However often it repeats its epochs: beyond 1 + clip_range times the old probability nothing is gained.

    Without a correction of lag, which would clip around the newest policy instead.
    """
    own: Any = {"algorithm__minibatches": 1, "algorithm__epochs": 6, "algorithm__importance_clip": 0.0}
    changes: Any = {"algorithm__learning_rate": 0.1, **own}
    learned = learn(tmp_path, "ppo", "Bandit", 60, **FROZEN, **changes)
    assert learned.probabilities[0, 1] == pytest.approx(0.5 * (1.0 + 0.2), abs=0.02)


def test_nstep_q_adds_the_value_of_its_target_network(tmp_path: Path) -> None:
    """A target that never follows keeps its initial values, so every state is worth 1 + g max Q_initial."""
    changes: Any = {"algorithm__discount": G, "algorithm__n_step": 1, "algorithm__target_interval": 1_000_000}
    config = in_a_table("nstep-q", "Countdown", 40, algorithm__learning_rate=0.6, **changes)
    values_are(train(tmp_path, config), [*(1.0 + G * initial(config).values[1:5]), 1.0], 0.02)
