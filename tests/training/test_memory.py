"""A recurrent policy acts and is trained with the same states: across resets, truncations and rollouts.

If a state were not cleared, not carried over, or of another step, the probabilities of the actions would differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray
from small_environments import Drift
from small_trainer import Trainer, allocate, collector_of, config_of, same_bytes, weights_of

from hive.algorithms.batches.fragments import ActedFragments
from hive.algorithms.batches.rows import batches, flat, input_rows, network_input, row_counts
from hive.algorithms.losses.actor_critic import acted_rows
from hive.envs import VectorEnvironment
from hive.envs.vectors.native_vector import NativeVector
from hive.errors import TopologyError
from hive.experience import FINALS, LENGTH, Rollout
from hive.training import Blueprint, Collector, EvaluationDue, Evaluator

ENVS, STEPS, EVERY = 3, 24, 5
# Large weights of the policy's outputs, because with the usual small ones actions hardly depend on the state.
MEMORY: dict[str, Any] = {
    "run__scheme": '"ppo"',
    "collection__envs": ENVS,
    "collection__rollout": STEPS,
    "network__memory": '"lstm"',
    "network__memory_size": 8,
    "network__policy_gain": 3.0,
    "algorithm__minibatches": 3,
    "algorithm__epochs": 1,
    "env__options": f"{{truncates={EVERY}}}",
}
KINDS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"network__memory": '"gru"'},
    "separate": {"network__separate_networks": "true"},
    "normalised": {"network__normalize_observations": "true", "network__normalize_rewards": "true"},
    "parts": {"env__id": "small_environments:Parts"},
    "parts, normalised": {"env__id": "small_environments:Parts", "network__normalize_observations": "true"},
    "stacked": {"env__frame_stack": 3},
    "box": {"env__options": f"{{truncates={EVERY}, actions='box'}}"},
}
OF_ONE_KIND = ("box", "parts", "parts, normalised")  # `next_step_vector` has other actions or observations
Arrays = Mapping[str, NDArray[Any]]


def blueprint_of(**values: Any) -> Blueprint:
    id = values.pop("env__id", "small_environments:Drift")
    return Blueprint(config_of(id, **{**MEMORY, **values}))


def next_step_vector() -> VectorEnvironment:
    """A vector whose environments reset in the step after the end of their episodes."""
    count = [lambda: Drift(truncates=EVERY)] * ENVS
    return NativeVector("Drift", SyncVectorEnv(count, autoreset_mode=AutoresetMode.NEXT_STEP))


def collect(blueprint: Blueprint, collector: Collector, rollouts: int, **options: Any) -> list[Rollout]:
    collector.bind(weights_of(blueprint)[: blueprint.flat.block_bytes])
    made = []
    for sequence in range(rollouts):
        arrays = allocate(blueprint.rollout_layout)
        collector.collect(arrays, sequence=sequence, version=0, **options)
        made.append(Rollout(arrays))
    return made


def collector_with(blueprint: Blueprint, vector: VectorEnvironment | None) -> Collector:
    collector = collector_of(blueprint, log_probs=True)
    if vector is not None:
        collector.rebuild(vector, 0)
    return collector


def largest_change(blueprint: Blueprint, rollouts: list[Rollout]) -> float:
    """Between the log probabilities of the actions when they were taken and those that training computes."""
    network = collector_of(blueprint).policy
    with torch.no_grad():
        outputs = network(network_input(rollouts, input_rows(rollouts)))[0]
    actions = torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
    now = blueprint.distribution.log_prob(acted_rows(outputs, row_counts(rollouts)), actions).numpy()
    valid = flat([rollout.valid for rollout in rollouts]) != 0
    return float(np.abs(now - flat([rollout.log_probs for rollout in rollouts]))[valid].max())


SAME, NEXT = "same step", "next step"
CASES = [*((kind, SAME) for kind in KINDS), *((kind, NEXT) for kind in KINDS if kind not in OF_ONE_KIND)]


@pytest.mark.parametrize(("kind", "resets"), CASES)
def test_training_computes_the_probabilities_that_acting_had(kind: str, resets: str) -> None:
    blueprint = blueprint_of(**KINDS[kind])
    collector = collector_with(blueprint, next_step_vector() if resets == "next step" else None)
    rollouts = collect(blueprint, collector, 3)
    assert all(len(rollout.final_observations) > 1 for rollout in rollouts)
    assert any(rollout.terminated.any() for rollout in rollouts)
    assert all(bool((rollout.valid == 0).any()) == (resets == "next step") for rollout in rollouts)
    assert largest_change(blueprint, rollouts) < 1e-5
    assert largest_change(blueprint, rollouts[1:2]) < 1e-5


def test_a_rollout_begins_with_the_state_that_the_last_one_ended_in() -> None:
    blueprint = blueprint_of()
    first, second = collect(blueprint, collector_of(blueprint, log_probs=True), 2)
    assert first.state is not None
    assert second.state is not None
    assert not first.state.any()
    ended = first.starts()[-1]
    assert second.state.any(1).tolist() == (~ended).tolist()
    assert 0 < ended.sum() < ENVS
    kept = second.state.copy()
    second.state[:] = 0.0
    assert largest_change(blueprint, [second]) > 1e-2
    second.state[:] = kept
    second.terminated[:], second.truncated[:] = 0, 0
    assert largest_change(blueprint, [second]) > 1e-2


def test_a_short_rollout_is_continued() -> None:
    """A round that ends early, and final observations that fill their room."""
    blueprint = blueprint_of()
    rollouts = collect(blueprint, collector_of(blueprint, log_probs=True), 3, enough=lambda steps: steps == 7)
    assert [rollout.length for rollout in rollouts] == [7, 7, 7]
    assert largest_change(blueprint, rollouts) < 1e-5


def test_a_reset_begins_with_zeros_and_repeats_the_rollout() -> None:
    blueprint = blueprint_of()
    collector = collector_of(blueprint, log_probs=True)
    made = [allocate(blueprint.rollout_layout) for _ in range(3)]
    collector.bind(weights_of(blueprint)[: blueprint.flat.block_bytes])
    for arrays in (*made[:2], made[2]):
        if arrays is made[2]:
            collector.rebuild(blueprint.vector(), 0)
        collector.collect(arrays, sequence=0, version=0)
    assert same_bytes(cut(made[0]), cut(made[2]))
    assert not same_bytes(cut(made[0]), cut(made[1]))


def cut(arrays: Arrays) -> Arrays:
    """Without the rows that were not written."""
    length, finals = arrays["header"][[LENGTH, FINALS]]
    ends = {"header": 5, "state": ENVS, "final_observations": finals, "observations": length + 1}
    return {name: array[: ends.get(name, length)].copy() for name, array in arrays.items()}


def test_values_of_final_observations_follow_the_state_before_the_reset() -> None:
    blueprint = blueprint_of()
    rollouts = collect(blueprint, collector_of(blueprint, log_probs=True), 2)
    network = collector_of(blueprint).policy
    start = 0
    with torch.no_grad():
        values = network(network_input(rollouts, input_rows(rollouts)))[1]
        for rollout in rollouts:
            start += (rollout.length + 1) * ENVS
            assert rollout.state is not None
            state, starts = torch.from_numpy(rollout.state), torch.from_numpy(rollout.starts())
            for step in range(rollout.length):
                state = state * ~starts[step].unsqueeze(1)
                rows = torch.from_numpy(rollout.observations[step])
                *_, state = network({"observation": rows, "recurrent_state": state})
                for env in np.flatnonzero(rollout.final_index[step] >= 0):
                    number = rollout.final_index[step, env]
                    last = torch.from_numpy(rollout.final_observations[number : number + 1])
                    _, value, _ = network({"observation": last, "recurrent_state": state[env : env + 1]})
                    assert abs(float(values[start + number] - value[0])) < 1e-6
            start += len(rollout.final_observations)
    assert start == len(values)


@pytest.mark.parametrize("resets", ["same step", "next step", "in any row"])
def test_a_minibatch_has_all_valid_rows_of_some_environments(resets: str) -> None:
    blueprint = blueprint_of()
    collector = collector_with(blueprint, next_step_vector() if resets == "next step" else None)
    rollouts = collect(blueprint, collector, 2)
    if resets == "in any row":  # a failed environment, or an agent whose turn it was not: no end comes before
        for rollout in rollouts:
            rollout.valid[np.random.default_rng(1).random(rollout.valid.shape) < 0.3] = 0
    valid = flat([rollout.valid for rollout in rollouts]) != 0
    numbers = [np.arange(ENVS) + number * ENVS for number in (0, 1)]
    columns = [np.tile(own, (rollout.length, 1)) for own, rollout in zip(numbers, rollouts, strict=True)]
    environments = flat(columns)[valid]
    rows = acted_rows(input_rows(rollouts), row_counts(rollouts))[torch.from_numpy(valid)]
    assert ActedFragments(rollouts).columns == 2 * ENVS
    seen = []
    for numbers, sequences in batches(rollouts, rows, 1, 3):
        assert torch.equal(sequences.observation, rows[numbers])
        assert len(np.unique(environments[numbers])) == 2
        seen += numbers.tolist()
    assert sorted(seen) == list(range(len(rows)))


def test_the_first_minibatch_of_ppo_finds_the_acting_policy() -> None:
    trainer = Trainer(blueprint_of().config, collectors=2)
    for collector in trainer.collectors:
        collector.log_probs = True
    trainer.round()
    statistics = dict(zip(trainer.worker.algo.statistics, trainer.gradient["statistics"], strict=True))
    assert abs(statistics["kl"]) < 1e-7
    assert statistics["clipped"] == 0


def test_more_minibatches_than_environments_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"algorithm\.minibatches is 4, but .* only 3 environments"):
        blueprint_of(algorithm__minibatches=4)
    blueprint_of(algorithm__minibatches=4, collection__workers=2)
    with pytest.raises(TopologyError, match=r"algorithm\.minibatches is 4"):
        blueprint_of(algorithm__minibatches=4, collection__workers=2, gradients__workers=2)


def test_an_evaluation_begins_every_episode_with_zeros() -> None:
    """So what was played before has no influence: one environment after three episodes, and three at once."""

    class Same(Drift):
        def reset(self, **_: Any) -> Any:
            return super().reset(seed=1)

    due = EvaluationDue(0, 0, 0, 0, 0.0)
    returns = {}
    for envs in (1, 3):
        blueprint = blueprint_of(**KINDS["box"], evaluation__episodes=3, evaluation__envs=envs)
        evaluator = Evaluator.of_run(blueprint)
        evaluator.play.table.vector.close()
        evaluator.play.table.vector = same_vector(Same, envs)
        evaluator.bind(weights_of(blueprint)[: blueprint.flat.block_bytes])
        played = evaluator.evaluate(due)
        returns[envs] = played.mean_return, played.deviation
    assert returns[1][1] < 1e-6
    assert returns[1] == pytest.approx(returns[3], abs=1e-5)


def same_vector(cls: Any, envs: int) -> VectorEnvironment:
    makers = [lambda: cls("box", EVERY)] * envs
    return NativeVector("Same", SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP))
