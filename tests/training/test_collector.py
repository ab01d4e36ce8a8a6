"""The collector: what a rollout holds, and that it follows from (seed, source, sequence) and weights."""

from __future__ import annotations

import gc
import itertools
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import Arrays, Page, allocate, collector_of, config_of, same_bytes, weights_of

from hive.envs import EnvContext, HelpedVector, Helping, ObservationSpec, StepRow, configured_vector
from hive.errors import EnvironmentFailed
from hive.experience import FINALS, LENGTH, VERSION, Purpose, Rollout, stream, stream_seeds
from hive.networks import Categorical
from hive.runtime.memory.segments import PAGE, Segment
from hive.runtime.memory.status import BUSY, RUNTIME
from hive.runtime.supervise.diagnostics import ENVIRONMENT
from hive.training import Blueprint, Collector, initial_network
from hive.training.collect.collector import PREPARED_SLOTS

STEPS, ENVS = 8, 2  # of the rollouts in the small config


def blueprint_of(kind: str = "Drift", **values: Any) -> Blueprint:
    return Blueprint(config_of(f"small_environments:{kind}", **values))


def collected(collector: Collector, blueprint: Blueprint, sequences: Sequence[int]) -> list[Arrays]:
    """One rollout each, in memory of its own."""
    made = []
    for sequence in sequences:
        arrays = allocate(blueprint.rollout_layout)
        collector.collect(arrays, sequence=sequence, version=sequence // 2)
        made.append(arrays)
    return made


class Recorded:
    """A vector of two environments that records the seeds of its resets and does nothing."""

    count = 2

    def __init__(self) -> None:
        self.seeds: list[list[int]] = []
        self.closed = False

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        self.seeds.append(list(seeds))
        observations[:] = len(self.seeds)

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        row.observations[:] = 0

    def close(self) -> None:
        self.closed = True


def recorded(vector: Recorded, **options: Any) -> Collector:
    networks = Blueprint(config_of("small_environments:OneState")).wrapper()
    return Collector(vector, ObservationSpec((1,), "float32"), networks, Categorical(2), seed=4, **options)


@pytest.mark.parametrize("actions", ["discrete", "multi-discrete", "box"])
def test_the_same_rollouts_are_the_same_bytes(actions: str) -> None:
    blueprint = blueprint_of(env__options=f'{{actions="{actions}", truncates=5}}')
    first = collected(collector_of(blueprint, 3), blueprint, range(4))
    torch.rand(3)
    np.random.default_rng()
    second = collected(collector_of(blueprint, 3), blueprint, range(4))
    assert all(same_bytes(one, other) for one, other in zip(first, second, strict=True))


def test_other_seeds_and_sources_make_other_rollouts() -> None:
    blueprint = blueprint_of()
    variants: list[dict[str, Any]] = [{}, {"source": 1}, {"seed": 2}, {"incarnation": 1}]
    made = [
        collected(collector_of(blueprint, **variant), blueprint, [0])[0]["observations"].tobytes()
        for variant in variants
    ]
    assert len(set(made)) == len(variants)


def test_a_rollout_begins_where_the_last_one_ended() -> None:
    blueprint = blueprint_of(env__options="{truncates=5}")
    made = [Rollout(arrays) for arrays in collected(collector_of(blueprint), blueprint, range(5))]
    for before, after in itertools.pairwise(made):
        assert np.array_equal(before.observations[before.length], after.observations[0])


def test_memory_that_is_used_again_changes_nothing() -> None:
    """As in a slab, whose few slots come round."""
    blueprint = blueprint_of(env__options="{truncates=5}")
    fresh = [Rollout(arrays) for arrays in collected(collector_of(blueprint), blueprint, range(6))]
    slots, again = [allocate(blueprint.rollout_layout) for _ in range(2)], collector_of(blueprint)
    for sequence, expected in enumerate(fresh):
        again.collect(slots[sequence % 2], sequence=sequence, version=sequence // 2)
        got = Rollout(slots[sequence % 2])
        for name in ("observations", "actions", "rewards", "final_index", "final_observations", "valid"):
            assert np.array_equal(getattr(got, name), getattr(expected, name))


def test_the_header() -> None:
    blueprint = blueprint_of("OneState", env__options="{truncates=3}")
    arrays = collected(collector_of(blueprint), blueprint, [6])[0]
    assert arrays["header"][[VERSION, LENGTH, FINALS]].tolist() == [3, STEPS, 4]


def test_rows_hold_the_environments_transitions() -> None:
    blueprint = blueprint_of("Chain", collection__envs=1, collection__rollout=30)
    rollout = Rollout(collected(collector_of(blueprint), blueprint, [0])[0])
    state = 2
    for t in range(rollout.length):
        assert rollout.observations[t, 0].tolist() == np.eye(5)[state].tolist()
        state += 1 if rollout.actions[t, 0] else -1
        ended = state in (0, 4)
        assert rollout.rewards[t, 0] == np.float32({0: 0.2, 4: 1.0}.get(state, 0.0))
        assert rollout.terminated[t, 0] == ended
        assert (rollout.truncated[t, 0], rollout.valid[t, 0]) == (0, 1)
        state = 2 if ended else state
    assert rollout.terminated.sum() >= 2


def test_episodes_go_on_over_the_ends_of_rollouts() -> None:
    blueprint = blueprint_of("OneState", env__options="{truncates=20}")
    made = [Rollout(arrays) for arrays in collected(collector_of(blueprint), blueprint, range(5))]
    ends = [[(int(t), float(r.episode_returns[t, b]), int(r.episode_lengths[t, b]))
             for t, b in np.argwhere(r.truncated)] for r in made]  # fmt: skip
    assert ends == [[], [], [(3, 20.0, 20)] * 2, [], [(7, 20.0, 20)] * 2]


def test_a_rollout_has_its_length_though_every_step_truncates_every_episode() -> None:
    blueprint = blueprint_of(env__options="{truncates=1}")
    assert blueprint.environment.max_episode_steps is None
    made = [Rollout(arrays) for arrays in collected(collector_of(blueprint), blueprint, range(3))]
    assert [rollout.length for rollout in made] == [STEPS] * 3
    for before, after in itertools.pairwise(made):
        assert np.array_equal(before.observations[STEPS], after.observations[0])
    for rollout in made:
        kept = (rollout.truncated == 1) & (rollout.terminated == 0)
        assert (rollout.final_index >= 0).tolist() == kept.tolist()
        assert sorted(rollout.final_index[kept]) == list(range(len(rollout.final_observations)))
        assert rollout.samples == STEPS * ENVS


@pytest.mark.parametrize(("truncates", "most"), [(10**9, 0), (1000, 2 * 4), (1, 2 * 4000)])
def test_pages_behind_the_most_finals_of_a_rollout_are_never_touched(truncates: int, most: int) -> None:
    blueprint = blueprint_of("OneState", env__options=f"{{truncates={truncates}}}", collection__rollout=4000)
    layout = blueprint.rollout_layout
    segment = Segment.create("rollout", layout.bytes)
    try:
        rollout = layout.views(segment.memory)
        collector = collector_of(blueprint)
        for sequence in range(2):
            collector.collect(rollout, sequence=sequence, version=0)
        finals = Rollout(rollout).final_observations
        assert len(finals) == most
        touched = os.fstat(segment.fd).st_blocks * 512
        assert touched <= layout.dense_bytes + finals.nbytes + 2 * PAGE
        assert layout.bytes >= layout.dense_bytes + 7 * PAGE
    finally:
        segment.close()


def test_the_true_last_observation_of_a_truncated_episode_is_kept() -> None:
    """Not that of the next episode, which the row after shows."""
    blueprint = blueprint_of("Picture", env__options="{truncates=3}")
    rollout = Rollout(collected(collector_of(blueprint), blueprint, [0])[0])
    assert rollout.final_observations.dtype == np.uint8
    for t, b in np.argwhere(rollout.truncated):
        assert (rollout.final_observations[rollout.final_index[t, b]] == 3).all()
        assert (rollout.observations[t + 1, b] == 0).all()
    assert rollout.truncated.any()


def test_actions_are_those_of_the_noise_of_the_rollout() -> None:
    """Gumbel-max by hand, from the stream of (seed, action, source, sequence)."""
    blueprint = blueprint_of()
    arrays = collected(collector_of(blueprint, 2), blueprint, [5])[0]
    noise = stream(1, Purpose.action, 2, 5).random((STEPS, ENVS, 2), np.float32).astype(np.float64)
    with torch.no_grad():
        logits = blueprint.network()(torch.from_numpy(arrays["observations"][:-1].reshape(-1, 3)))[0]
    scores = logits.numpy().reshape(STEPS, ENVS, 2) - np.log(-np.log(noise))
    assert np.array_equal(arrays["actions"], scores.argmax(-1))


def test_actions_of_a_box_are_mean_and_noise_unclipped() -> None:
    blueprint = blueprint_of(env__options='{actions="box"}')  # with bounds of -10 and 10, the scale of the policy
    arrays = collected(collector_of(blueprint), blueprint, [1])[0]
    noise = stream(1, Purpose.action, 0, 1).standard_normal((STEPS, ENVS, 2), np.float32)
    with torch.no_grad():
        outputs = blueprint.network()(torch.from_numpy(arrays["observations"][:-1].reshape(-1, 3)))[0]
    mean, log_std = np.split(outputs.numpy().reshape(STEPS, ENVS, 4), 2, axis=-1)
    np.testing.assert_allclose(arrays["actions"], 10 * (mean + np.exp(log_std) * noise), rtol=1e-5, atol=1e-5)
    assert np.abs(arrays["actions"]).max() > 10


def test_noise_follows_from_the_number_not_from_the_past() -> None:
    """Where nothing else differs from step to step, rollout 3 is the same with and without 0, 1 and 2."""
    blueprint = blueprint_of("OneState")
    in_turn = collected(collector_of(blueprint), blueprint, range(4))
    alone = collected(collector_of(blueprint), blueprint, [3])
    assert np.array_equal(in_turn[3]["actions"], alone[0]["actions"])
    assert len({arrays["actions"].tobytes() for arrays in in_turn}) == 4


def test_a_longer_rollout_begins_with_the_noise_of_a_shorter_one() -> None:
    short, long = (blueprint_of("OneState", collection__rollout=steps) for steps in (4, 12))
    few, many = (collected(collector_of(b), b, [0])[0]["actions"] for b in (short, long))
    assert np.array_equal(few, many[:4])


def test_environments_start_alike_however_they_are_dealt_out() -> None:
    """Four of one collector, or two each of two: an environment's seed is that of its number in the run."""
    whole, halves = blueprint_of(collection__envs=4), blueprint_of(collection__envs=2)
    together = collected(collector_of(whole), whole, [0])[0]["observations"][0]
    apart = [collected(collector_of(halves, source), halves, [0])[0]["observations"][0] for source in (0, 1)]
    assert np.array_equal(together, np.concatenate(apart))
    assert len({row.tobytes() for row in together}) == 4


@pytest.mark.parametrize(("source", "incarnation"), [(0, 0), (3, 0), (3, 2)])
def test_seeds_of_the_environments(source: int, incarnation: int) -> None:
    vector = Recorded()
    recorded(vector, source=source, incarnation=incarnation).reset()
    assert vector.seeds == [stream_seeds(4, Purpose.environment, 2 * source, 2, incarnation)]


def test_a_reset_starts_over() -> None:
    """As at a resume barrier: the next rollout begins with the first observations of new episodes."""
    vector = Recorded()
    collector, arrays = recorded(vector, source=0), allocate(blueprint_of("OneState").rollout_layout)
    for expected in (1, 2):
        collector.reset()
        collector.collect(arrays, sequence=0, version=0)
        assert (arrays["observations"][0] == expected).all()
    collector.collect(arrays, sequence=1, version=0)
    assert (arrays["observations"][0] == 0).all()


def test_the_first_rollout_after_a_reset_says_so() -> None:
    blueprint = blueprint_of()
    collector = collector_of(blueprint)
    made = collected(collector, blueprint, [0, 1])
    collector.reset(2)
    made += collected(collector, blueprint, [2, 3])
    assert [Rollout(arrays).begins for arrays in made] == [True, False, True, False]


def test_it_acts_with_the_weights_that_are_bound() -> None:
    blueprint = blueprint_of("OneState", collection__rollout=64, network__middleware=[])
    collector, weights = collector_of(blueprint), weights_of(blueprint)
    biases = blueprint.flat.arrays(weights)["trunk.0.bias"]
    for wanted in (0, 1):
        biases[:2] = 0.0
        biases[wanted] = 100.0
        before = weights.copy()
        collector.bind(weights)
        arrays = collected(collector, blueprint, [wanted])[0]
        assert (arrays["actions"] == wanted).all()
        assert np.array_equal(weights, before)


def test_it_acts_in_evaluation_mode_and_writes_no_buffers() -> None:
    """Neither dropout nor BatchNorm's statistics are of the acting policy."""
    blueprint = blueprint_of(network__module='"small_environments:Normalising"')
    weights, collector = weights_of(blueprint), collector_of(blueprint)
    before = weights.copy()
    collector.bind(weights)
    collected(collector, blueprint, [0])
    assert not any(module.training for module in collector.policy.modules())
    assert np.array_equal(weights, before)


def test_randomness_in_the_policy_belongs_to_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a network draws while it acts follows from the rollout's number. (A2C refuses it.)"""
    monkeypatch.setattr(initial_network, "varies", lambda *_: "")
    blueprint = blueprint_of("OneState", network__module='"small_environments:Shaky"')
    first = collected(collector_of(blueprint), blueprint, [2])[0]
    torch.rand(5)
    second = collected(collector_of(blueprint), blueprint, [1, 2])
    assert np.array_equal(first["actions"], second[1]["actions"])
    assert not np.array_equal(first["actions"], second[0]["actions"])


def test_noise_in_the_weights_explores_and_follows_from_the_number() -> None:
    """Without epsilon the actions of one collector differ from those of the means, and repeat with the number."""
    greedy = {"algorithm__exploration_start": 0.0, "algorithm__exploration_end": 0.0, "algorithm__learning_starts": 0}
    noisy, plain = (
        blueprint_of(run__scheme='"dqn"', network__noisy_deviation=deviation, **greedy) for deviation in (5.0, 0.0)
    )
    first, again, means = (
        collected(collector_of(blueprint), blueprint, [0, 1])[1] for blueprint in (noisy, noisy, plain)
    )
    assert same_bytes(first, again)
    assert (first["actions"] != means["actions"]).any()


@pytest.fixture
def _vectorised() -> Iterator[None]:
    vector = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
    gymnasium.register("Vectorised-v0", vector_entry_point=vector)
    yield
    del gymnasium.registry["Vectorised-v0"]


@pytest.mark.usefixtures("_vectorised")
def test_steps_that_only_reset_are_marked() -> None:
    """Gymnasium's own vectorised CartPole resets in the step after an end."""
    blueprint = Blueprint(config_of("Vectorised-v0", collection__rollout=100))
    rollout = Rollout(collected(collector_of(blueprint), blueprint, [0])[0])
    ended = (rollout.terminated | rollout.truncated)[:-1].astype(bool)
    assert ended.any()
    assert np.array_equal(rollout.valid[1:] == 0, ended)
    assert rollout.samples == 100 * ENVS - ended.sum()
    assert not rollout.rewards[rollout.valid == 0].any()


class Failing(Recorded):
    """Pays 1 in every step but in each fifth, in which the environments fail: its row has no end and is not valid."""

    steps = 0  # so far

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        super().step(actions, row)
        self.steps += 1
        row.valid[:] = row.rewards[:] = self.steps % 5 > 0
        row.terminated[:] = row.truncated[:] = row.episode_lengths[:] = 0
        row.final_index[:] = -1


@pytest.mark.parametrize("steps", [5, 8])
def test_the_rewards_of_a_lost_episode_are_in_no_later_sum(steps: int) -> None:
    """Also where the next rollout begins after the row of the failure."""
    changes = {"network__normalize_rewards": "true", "collection__rollout": steps}
    blueprint = Blueprint(config_of("small_environments:OneState", **changes))
    collector = recorded(Failing(), source=0, discount=0.5)
    collector.bind(weights_of(blueprint)[: blueprint.flat.block_bytes])
    collector.reset()
    sums = np.concatenate([arrays["discounted"] for arrays in collected(collector, blueprint, range(3))])
    expected = [1.0, 1.5, 1.75, 1.875, 0.0]
    assert sums[:, 0].tolist() == [expected[t % 5] for t in range(len(sums))]


@pytest.mark.parametrize("when", [1, 5])
def test_errors_of_environments_pass_through(when: int) -> None:
    page, blueprint = Page(), blueprint_of("Fails", env__options=f"{{when={when}}}")
    collector = collector_of(blueprint, status=page.status)
    with pytest.raises(EnvironmentFailed, match="the motor is stuck") as caught:
        collected(collector, blueprint, [0])
    assert not caught.value.permanent
    assert page.read().phase == ENVIRONMENT


def test_it_shows_what_it_does() -> None:
    page, blueprint = Page(), blueprint_of()
    collector = collector_of(blueprint, status=page.status)
    started = page.read()
    assert started.position is None
    collected(collector, blueprint, [0])
    shown = page.read()
    for phase in ("policy", "env"):
        assert shown.spent_ns[phase][0] == BUSY
        assert shown.spent_ns[phase][1] > started.spent_ns[phase][1]
    assert shown.progress - started.progress == 1 + 2 * STEPS + 1, "noise, steps, and what is hive's own"
    assert shown.kind == RUNTIME
    assert shown.position == (0, 2 * STEPS + 1), "two phases a step, after that of the noise"


def test_cached_rollouts_are_released() -> None:
    """A loop that brings new memory for every rollout does not fill the machine."""
    blueprint = blueprint_of("OneState", collection__rollout=1, collection__envs=1)
    collector, seen = collector_of(blueprint), []
    for sequence in range(2 * PREPARED_SLOTS):
        arrays = collected(collector, blueprint, [sequence])[0]
        seen.append(weakref.ref(arrays["rewards"]))
    del arrays
    gc.collect()
    assert sum(ref() is not None for ref in seen) <= PREPARED_SLOTS


def test_collecting_begins_with_a_reset() -> None:
    blueprint = blueprint_of()
    collector = blueprint.collector(0)
    rollout = allocate(blueprint.rollout_layout)
    with pytest.raises(RuntimeError, match=r"^no episode has begun: call reset\(\) before the first collect\(\)$"):
        collector.collect(rollout, sequence=0, version=0)
    collector.reset()
    collector.bind(weights_of(blueprint))
    collector.collect(rollout, sequence=0, version=0)
    assert rollout["header"][LENGTH] == STEPS


def test_closing_closes_the_environments() -> None:
    vector = Recorded()
    recorded(vector, source=0).close()
    assert vector.closed


# --- helpers


def helped(blueprint: Blueprint, chosen: bool) -> Collector:
    """A collector with a helper, whoever chose that."""
    made, environment = blueprint.config.env, blueprint.environment
    helping = Helping(
        lambda first, count, options, seeds: configured_vector(made, count, first),
        lambda: None,
        1,
        chosen,
        environment.observation,
        environment.action,
    )
    vector = HelpedVector(helping, ENVS)
    vector.make_environments([EnvContext(number) for number in range(ENVS)])
    collector = Collector(
        vector,
        environment.observation,
        blueprint.wrapper(),
        blueprint.distribution,
        seed=blueprint.config.run.seed,
        source=0,
    )
    collector.reset()
    return collector


@pytest.mark.parametrize("kind", ["Drift", "Lottery"])
def test_helpers_that_hive_chose_change_no_byte(kind: str) -> None:
    """An environment that draws global random numbers is stepped without them, from the first rollout on."""
    blueprint = blueprint_of(kind)
    expected = collected(collector_of(blueprint), blueprint, range(4))
    with closing(helped(blueprint, chosen=True)) as collector:
        found = collected(collector, blueprint, range(4))
        assert isinstance(collector.vector, HelpedVector) == (kind == "Drift")
    for mine, theirs in zip(found, expected, strict=True):
        assert same_bytes(mine, theirs)


def test_helpers_that_the_user_chose_stay_and_their_draws_are_known() -> None:
    blueprint = blueprint_of("Lottery")
    with closing(helped(blueprint, chosen=False)) as collector:
        collected(collector, blueprint, range(2))
        assert isinstance(collector.vector, HelpedVector)
        assert collector.vector.drew
