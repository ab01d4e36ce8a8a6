"""The blueprint: what follows from a config and an environment, and how it says what does not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_environments import Warm
from small_trainer import Trainer, allocate, config_of
from torch import Tensor, nn

from hive.config import Config
from hive.envs import Box, Discrete, MultiDiscrete
from hive.errors import ConfigError, EnvironmentMissing, NetworkError, RecordError, TopologyError, UsageError
from hive.experience import FINALS, LENGTH, SEQUENCE, Purpose, Rollout, stream_seed
from hive.networks import Categorical, DiagonalGaussian, MultiCategorical, ValueHead, aligned_block, build_network
from hive.networks.act.bounded import ScaledActions
from hive.networks.build.configured import load_module
from hive.networks.build.network import NetworkPerHead, heads_of
from hive.records import Checkpoint, RunDirectory, checkpoint_at, write_checkpoint
from hive.training import Blueprint, Learner
from hive.training.run_start import (
    first_gradient_round,
    first_round,
    round_shape,
    schedule_start,
    write_first_state,
)
from hive.training.update.learner import Count


def config(kind: str = "Drift", **values: Any) -> Config:
    return config_of(f"small_environments:{kind}", **values)


def weights(blueprint: Blueprint) -> bytes:
    """The weights of a network that the blueprint makes now."""
    return b"".join(parameter.detach().numpy().tobytes() for parameter in blueprint.network().parameters())


@pytest.mark.parametrize(
    ("actions", "kind", "distribution"),
    [
        ("discrete", Discrete, Categorical(2)),
        ("multi-discrete", MultiDiscrete, MultiCategorical((2, 3))),
        ("box", Box, ScaledActions(DiagonalGaussian((2,)), (0.0, 0.0), (10.0, 10.0))),
    ],
)
def test_spaces_are_those_of_the_environment(actions: str, kind: type, distribution: Any) -> None:
    blueprint = Blueprint(config(env__options=f'{{actions="{actions}"}}'))
    assert isinstance(blueprint.environment.action, kind)
    assert blueprint.spaces.action is blueprint.environment.action
    assert blueprint.distribution == distribution
    assert blueprint.spaces.observations["observation"].shape == (3,)
    outputs = blueprint.network()(torch.zeros(5, 3))
    assert [tuple(output.shape) for output in outputs[:2]] == [(5, distribution.width), (5,)]


def test_every_network_begins_with_the_weights_of_the_run() -> None:
    blueprint, again, other = Blueprint(config()), Blueprint(config()), Blueprint(config(run__seed=2))
    assert weights(blueprint) == weights(blueprint) == weights(again)
    assert weights(blueprint) != weights(other)
    block = np.zeros(blueprint.flat.block_bytes, np.uint8)
    blueprint.flat.initialize_into(block)
    held = b"".join(array.tobytes() for array in blueprint.flat.arrays(block).values())
    assert held == weights(blueprint)


def test_initial_weights_are_drawn_from_their_own_stream() -> None:
    blueprint = Blueprint(config(run__seed=9))
    generator = torch.Generator().manual_seed(stream_seed(9, Purpose.initial_weights, 0, 0))
    network = build_network(blueprint.initial.parameters, blueprint.spaces, generator)
    expected = b"".join(parameter.detach().numpy().tobytes() for parameter in network.parameters())
    assert weights(blueprint) == expected


def test_networks_share_nothing() -> None:
    blueprint = Blueprint(config())
    before = weights(blueprint)
    with torch.no_grad():
        for parameter in blueprint.network().parameters():
            parameter.zero_()
    assert weights(blueprint) == before


def test_building_one_draws_from_no_global_generator() -> None:
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    Blueprint(config())
    assert torch.rand(1) == expected


def test_layouts_follow_the_config() -> None:
    blueprint = Blueprint(config("Picture", collection__envs=3, collection__rollout=5))
    fields = blueprint.rollout_layout.fields
    assert fields["observations"] == (np.uint8, (6, 3, 36, 36, 1))
    assert fields["actions"] == (np.int64, (5, 3))
    assert fields["final_observations"] == (np.uint8, (5 * 3, 36, 36, 1))
    gradient = blueprint.gradient_layout(4).fields
    assert gradient["gradient"][1] == (blueprint.flat.parameter_elements,)
    assert gradient["mask"][1] == (len(blueprint.flat.parameters),)
    assert gradient["episode_returns"][1] == (4 * 5 * 3,)
    assert gradient["statistics"][1] == (len(blueprint.statistics),)


def test_every_step_has_room_for_its_finals_and_those_of_a_declared_limit_are_expected() -> None:
    blueprint = Blueprint(config_of("CartPole-v1", collection__rollout=1200))
    assert blueprint.environment.max_episode_steps == 500
    assert blueprint.rollout_layout.fields["final_observations"][1] == (2 * 1200, 4)
    assert blueprint.rollout_layout.sparse_bytes == 2 * (1200 - 3) * 4 * 4


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_optimizer_state_is_that_of_the_learner(optimizer: str) -> None:
    made = config(algorithm__optimizer=optimizer)
    blueprint = Blueprint(made)
    learner = Learner(made.algorithm, blueprint.wrapper(), made.run.steps, infos=len(blueprint.episode_values))
    assert blueprint.optimizer_state_bytes == learner.layout.bytes


def test_layers_are_those_of_the_config() -> None:
    blueprint = Blueprint(config(network__middleware=[5, 7], network__activation="relu"))
    shapes = [shape for shape in blueprint.flat.shapes if len(shape) == 2]
    assert shapes == [(5, 3), (7, 5), (3, 7)]
    assert any(isinstance(module, torch.nn.ReLU) for module in blueprint.network().modules())


def test_separate_networks() -> None:
    blueprint = Blueprint(config(network__middleware=[5], network__separate_networks="true"))
    assert isinstance(blueprint.network(), NetworkPerHead)
    assert [shape for shape in blueprint.flat.shapes if len(shape) == 2] == [(5, 3), (2, 5), (5, 3), (1, 5)]


def test_a_network_of_your_own() -> None:
    from small_environments import Plain

    blueprint = Blueprint(config(network__module='"small_environments:Plain"'))
    assert isinstance(blueprint.network(), Plain)
    assert weights(blueprint) == weights(blueprint)


@pytest.mark.parametrize(
    ("reference", "cause"),
    [
        ("no_such_package.module:Net", "No module named 'no_such_package'"),
        ("small_environments:Nothing", "no attribute 'Nothing'"),
    ],
)
def test_a_module_that_is_not_there(reference: str, cause: str) -> None:
    with pytest.raises(NetworkError, match=cause) as caught:
        Blueprint(config(network__module=f'"{reference}"'))
    assert f"`{reference}`" in str(caught.value)
    assert "package.module:Class" in caught.value.hint


def test_a_module_that_breaks_the_contract() -> None:
    with pytest.raises(NetworkError, match="`Silent` returns Tensor, expected a tuple") as caught:
        Blueprint(config("OneState", network__module='"small_environments:Silent"'))
    assert "policy [N, 2]" in caught.value.hint


def test_a_network_that_learns_in_its_buffers_is_refused() -> None:
    """The buffers of BatchNorm in each gradient worker are not merged, and collectors would not receive them."""
    with pytest.raises(NetworkError, match=r"Running` changes its buffers .*: body\.2\.running_mean, ") as caught:
        Blueprint(config(network__module='"small_environments:Running"'))
    assert "LayerNorm" in caught.value.hint
    Blueprint(config(network__module='"small_environments:Normalising"'))


def test_a_buffer_that_only_numbers_change_is_found() -> None:
    with pytest.raises(NetworkError, match=r"Averaging` changes its buffers .*: mean"):
        Blueprint(config(network__module='"small_environments:Averaging"'))


class Centred(nn.Module):
    """Subtracts the mean of its batch from its features."""

    def __init__(self, spaces: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 8)

    def forward(self, observations: Tensor) -> Tensor:
        features = self.layer(observations)
        return features - features.mean(0)


def test_a_network_whose_rows_depend_on_each_other_is_refused() -> None:
    with pytest.raises(
        NetworkError, match=r"Centred` computes the outputs of an observation from the others"
    ) as caught:
        Blueprint(config("OneState", network__extractor='"test_blueprint:Centred"'))
    assert "dim=1 or -1" in caught.value.hint


class Counting(nn.Module):
    """Features that grow with the number of its passes."""

    def __init__(self, spaces: Any) -> None:
        super().__init__()
        self.layer, self.passes = nn.Linear(1, 8), 0

    def forward(self, observations: Tensor) -> Tensor:
        self.passes += 1
        features: Tensor = self.layer(observations) * self.passes
        return features


def test_a_policy_that_is_another_one_in_training_is_refused_where_the_two_are_compared() -> None:
    values = {"network__extractor": '"small_environments:Dropped"'}
    for scheme in ("a2c", "ppo"):
        with pytest.raises(NetworkError, match=r"nn\.Dropout makes .* another policy in training") as caught:
            Blueprint(config("OneState", run__scheme=f'"{scheme}"', **values))
        assert "probability to 0" in caught.value.hint
    Blueprint(config("OneState", network__extractor_options="{p = 0.0}", **values))
    Blueprint(config("OneState", run__scheme='"dqn"', **values))
    with pytest.raises(NetworkError, match="draws or counts"):
        Blueprint(config("OneState", network__extractor='"test_blueprint:Counting"'))


def test_a_network_that_keeps_numbers_outside_of_parameters_and_buffers_is_refused() -> None:
    for name, hint in (("Secret", "register_buffer"), ("Tied", "view of a weight")):
        with pytest.raises(NetworkError, match=f"{name}` computes with numbers that are neither parameters") as caught:
            Blueprint(config(network__module=f'"small_environments:{name}"'))
        assert hint in caught.value.hint


def test_layers_that_networks_share_are_refused() -> None:
    """A target network would freeze those of the online one, and each copy would have the weights of the last."""
    with pytest.raises(NetworkError, match=r"Common` shares `body\.1\.weight` with other networks"):
        Blueprint(config(network__module='"small_environments:Common"'))
    with pytest.raises(NetworkError, match=r"shares `.*` with other networks"):
        Blueprint(config(network__extractor='"small_environments:CommonFeatures"', run__scheme='"ppo"'))


def test_a_network_of_frozen_parameters_is_refused() -> None:
    with pytest.raises(NetworkError, match="`Rigid` has nothing to learn") as caught:
        Blueprint(config(network__module='"small_environments:Rigid"'))
    assert "requires_grad" in caught.value.hint


def test_user_defined_heads() -> None:
    blueprint = Blueprint(config(network__policy_head='"small_environments:Warm"'))
    policy, value = heads_of(blueprint.network()) or ()
    assert (type(policy), type(value)) == (Warm, ValueHead)
    with pytest.raises(NetworkError) as caught:
        Blueprint(config(network__value_head='"small_environments:Hot"'))
    assert str(caught.value).startswith("[network] value_head `small_environments:Hot` cannot be loaded")
    with pytest.raises(ConfigError, match=r"network\.policy_head.*network\.module.* replaces the heads too"):
        config(network__policy_head='"a:B"', network__module='"c:D"')


def test_load_module_finds_the_module_it_names() -> None:
    from small_environments import Silent

    assert load_module("small_environments:Silent") is Silent


def test_an_environment_that_is_not_there() -> None:
    with pytest.raises(EnvironmentMissing, match="no environment `CartPol-v1`"):
        Blueprint(config_of("CartPol-v1"))


def test_the_vector_has_the_environments_of_one_collector() -> None:
    vector = Blueprint(config(collection__envs=5)).vector()
    assert vector.count == 5
    vector.close()


# --- what it begins with


def begun(blueprint: Blueprint) -> tuple[dict[str, NDArray[Any]], NDArray[np.uint8], int]:
    """Its first weights by name, its first optimizer_state, and the turn."""
    state, optimizer_state = aligned_block(blueprint.state.bytes), aligned_block(blueprint.optimizer_state_bytes)
    turn = write_first_state(blueprint, state, optimizer_state)
    return blueprint.flat.arrays(state[: blueprint.flat.block_bytes]), optimizer_state, turn


def saved(folder: Path, blueprint: Blueprint, update: int = 7) -> Path:
    """A checkpoint of that network, of other weights than it begins with."""
    tensors = {name: array + 1.0 for name, array in begun(blueprint)[0].items()}
    return write_checkpoint(folder, update, tensors=tensors, parts={}, state={})


def test_a_run_can_begin_with_the_weights_of_another(tmp_path: Path) -> None:
    there = saved(tmp_path, Blueprint(config()))
    weights_now, optimizer_state, turn = begun(Blueprint(config(run__init_from=f'"{there}"', run__seed=5)))
    for name, array in begun(Blueprint(config()))[0].items():
        np.testing.assert_array_equal(weights_now[name], array + 1.0)
    assert turn == 0
    assert not optimizer_state.any()  # everything else starts at 0


def test_its_statistics_may_begin_anew(tmp_path: Path) -> None:
    values = {"network__normalize_observations": "true", "network__normalize_rewards": "true"}
    there = saved(tmp_path, Blueprint(config(**values)))
    own = begun(Blueprint(config(**values)))[0]
    for continues in (True, False):
        init = {"run__init_from": f'"{there}"', "run__init_statistics": json.dumps(continues)}
        found = begun(Blueprint(config(**values, **init)))[0]
        for name, array in own.items():
            is_statistic = name.startswith(("normalizer.", "reward_normalizer."))
            expected = array + 1.0 if continues or not is_statistic else array
            np.testing.assert_array_equal(found[name], expected)


def test_of_a_run_its_newest_checkpoint_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    run = RunDirectory.create(tmp_path, "other")
    saved(run.checkpoints, Blueprint(config(run__seed=3)), 5)
    saved(run.checkpoints, Blueprint(config(run__seed=4)), 9)
    for place in (str(run.path), "other-1", "other"):
        found = begun(Blueprint(config(run__init_from=f'"{place}"')))[0]
        for name, array in begun(Blueprint(config(run__seed=4)))[0].items():
            np.testing.assert_array_equal(found[name], array + 1.0)


def test_weights_of_another_network_are_refused_by_name(tmp_path: Path) -> None:
    there = saved(tmp_path, Blueprint(config(network__middleware="[8]")))
    with pytest.raises(RecordError, match=r"of .*000007 is float32\[8, 3\], this network has float32\[\d+, 3\]"):
        Blueprint(config(run__init_from=f'"{there}"', network__middleware="[9]"))  # before there is any process


def test_a_place_without_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    RunDirectory.create(tmp_path, "bare")
    with pytest.raises(RecordError, match="holds no complete checkpoint"):
        Blueprint(config(run__init_from='"bare-1"'))
    with pytest.raises(UsageError, match="no run"):
        Blueprint(config(run__init_from='"nowhere-1"'))


# --- schedules


PPO_RUN = {"run__scheme": '"ppo"', "run__steps": 1600, "algorithm__epochs": 1, "algorithm__minibatches": 2}


def resumed(folder: Path, state: dict[str, Any], **values: Any) -> Blueprint:
    """A run of 100 rounds of 16 steps, resumed from update 80: 40 rounds were collected with the settings above."""
    old = Blueprint(config(**PPO_RUN))
    parts = {"weights": aligned_block(old.state.bytes), "optimizer_state": aligned_block(old.optimizer_state_bytes)}
    folder.mkdir(exist_ok=True)
    write_checkpoint(folder, 80, tensors={}, parts=parts, state={"env_steps": 600, **state})
    return Blueprint(config(**{**PPO_RUN, **values}), checkpoint_at(str(folder / "000080")))


def progress(blueprint: Blueprint, sequence: int) -> float:
    arrays = {name: array.copy() for name, array in allocate(blueprint.rollout_layout).items()}
    arrays["header"][[SEQUENCE, LENGTH, FINALS]] = sequence, 0, 0
    return Rollout(arrays, blueprint.rounds, schedule_start(blueprint)).progress


def test_schedules_of_a_new_run_count_full_rounds() -> None:
    blueprint = Blueprint(config(**PPO_RUN, collection__workers=2))
    assert (blueprint.round_steps, blueprint.rounds, schedule_start(blueprint)) == (32, 50.0, 0.0)
    assert [progress(blueprint, sequence) for sequence in (0, 24, 49, 50)] == [0.02, 0.5, 1.0, 1.0]


def test_a_resumed_run_repeats_its_schedules(tmp_path: Path) -> None:
    """The numbers of its rollouts decide, although fewer steps were valid. A second resumption keeps the start."""
    undisturbed = Blueprint(config(**PPO_RUN))
    same = resumed(tmp_path, {"round_shape": round_shape(undisturbed), "schedule_start": 0.0})
    assert first_round(same) == 40
    assert [progress(same, n) for n in (40, 70, 99)] == [progress(undisturbed, n) for n in (40, 70, 99)]
    moved = resumed(tmp_path / "later", {"round_shape": round_shape(undisturbed), "schedule_start": -12.5})
    assert schedule_start(moved) == -12.5


@pytest.mark.parametrize(
    "values",
    [
        {},  # a checkpoint of a version of hive that did not save the shape of its rounds
        {"collection__workers": 4},
        {"collection__envs": 4},
        {"collection__rollout": 32},
        {"algorithm__epochs": 4},
        {"gradients__bootstrap_rounds": 2},
        {"gradients__workers": 2, "collection__workers": 2, "algorithm__normalize_over": '"round"'},
        {"gradients__communication": '"asynchronous"'},
    ],
)
def test_schedules_go_on_at_the_steps_of_the_checkpoint_in_rounds_of_another_shape(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    """600 of 1,600 steps are done, whatever number the first round has."""
    shape = {"round_shape": round_shape(Blueprint(config(**PPO_RUN))), "schedule_start": 0.0} if values else {}
    blueprint = resumed(tmp_path, shape, **values)
    first, steps = first_round(blueprint), blueprint.round_steps
    assert [progress(blueprint, first + n) for n in range(3)] == pytest.approx(
        [(600 + steps * (n + 1)) / 1600 for n in range(3)]
    )


@pytest.mark.parametrize(
    ("values", "rounds", "gradients"),
    [
        ({}, 6, 20),
        ({"collection__rollout": 32}, 1, 5),
        ({"collection__rollout": 4}, 12, 40),
        ({"algorithm__learning_starts": 640}, 6, 40),
        ({"algorithm__learning_starts": 16}, 6, 6),  # its warm-up has ended by now
        ({"algorithm__learning_starts": 16, "collection__rollout": 4}, 12, 12),
    ],
)
def test_a_run_that_was_saved_within_its_warm_up_continues_there(
    tmp_path: Path, values: dict[str, Any], rounds: int, gradients: int
) -> None:
    """6 of the 20 rounds of 16 steps were collected, which no turn has counted. What follows: the first gradient's."""
    warming = {"run__scheme": '"dqn"', "run__steps": 10_000, "algorithm__learning_starts": 320}
    (tmp_path / "000000" / "replay").mkdir(parents=True)
    state = {"env_steps": 0, "updates": 0, "rounds": 6, "round_shape": round_shape(Blueprint(config(**warming)))}
    checkpoint = Checkpoint(tmp_path / "000000", 0, state)
    blueprint = Blueprint(config(**{**warming, **values}), checkpoint)
    assert (first_round(blueprint), first_gradient_round(blueprint)) == (rounds, gradients)
    explores: Any = blueprint.distribution
    assert (explores.for_rollout(rounds).epsilon == 1.0) == (gradients > rounds)


def test_a_gradient_worker_gives_its_algorithm_the_progress_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, seen = Trainer(config(**PPO_RUN | {"run__steps": 48})), []
    gradients = trainer.worker.algo.gradients

    def recorded(rollouts: Any, noise: Any) -> Any:
        seen.append([rollout.progress for rollout in rollouts])
        return gradients(rollouts, noise)

    monkeypatch.setattr(trainer.worker.algo, "gradients", recorded)
    for number in range(4):
        trainer.collectors[0].bind(trainer.weights[trainer.turns % 2])
        trainer.collectors[0].collect(trainer.rollouts[0], sequence=number, version=trainer.turns)
        trainer.learn()
        trainer.learn()
    assert seen == [[pytest.approx(1 / 3)], [pytest.approx(2 / 3)], [1.0], [1.0]]


@pytest.mark.parametrize(("collectors", "rollouts"), [(1, 7), (2, 14), (4, 28)])
def test_an_optimizer_state_of_other_numbers_of_workers_is_restored(
    tmp_path: Path, collectors: int, rollouts: int
) -> None:
    """Counters, returns and moments are kept, gradients are renumbered, and the behaviour version does not go back."""
    old = Blueprint(config(gradients__workers=3, collection__workers=1))
    state, optimizer_state = aligned_block(old.state.bytes), aligned_block(old.optimizer_state_bytes)
    write_first_state(old, state, optimizer_state)
    views = old.learner().views(optimizer_state)
    views["counters"][[Count.updates, Count.rollouts, Count.episodes]] = 6, 7, 40
    views["applied"][:] = 3, 4, 5
    views["returns"][:] = np.arange(100)
    views["moments"][:] = 0.5
    parts = {"weights": state, "optimizer_state": optimizer_state}
    own = {"gradient_workers": 3, "per_version": 1, "info": [*old.episode_values]}
    write_checkpoint(tmp_path, 6, tensors={}, parts=parts, state=own)
    new = Blueprint(
        config(gradients__workers=2, collection__workers=collectors), checkpoint_at(str(tmp_path / "000006"))
    )
    now = new.learner().views(begun(new)[1])
    assert now["applied"].tolist() == [6, 6]
    assert now["counters"][[Count.updates, Count.rollouts, Count.episodes]].tolist() == [6, rollouts, 40]
    np.testing.assert_array_equal(now["returns"], np.arange(100))
    assert (now["moments"] == 0.5).all()


# --- with a replay memory


def replaying(**values: Any) -> Blueprint:
    """The blueprint of a run of DQN with rounds of 16 steps."""
    small = {"run__scheme": '"dqn"', "run__steps": 1_000, "algorithm__learning_starts": 0}
    return Blueprint(config(**{**small, **values}))


def test_what_cannot_be_combined_with_a_replay_memory_is_refused_without_a_file_too() -> None:
    """Also with the algorithm of a user, which has the keys of the scheme's."""
    small = config(run__scheme='"dqn"', run__steps=1_000, algorithm__learning_starts=0)
    changed = dataclasses.replace(small, network=dataclasses.replace(small.network, novelty_weight=0.5))
    with pytest.raises(TopologyError, match=r"novelty_weight is refused: dqn would draw the novelty") as caught:
        Blueprint(changed)
    assert caught.value.hint == "use ppo, a2c or impala"
    own = {
        "algorithm__name": '"hive.algorithms:DQN"',
        "gradients__bootstrap_rounds": 2,
        "algorithm__updates_per_step": 1,
    }
    with pytest.raises(TopologyError, match=r"bootstrap_rounds is refused: hive\.algorithms:DQN draws a batch"):
        replaying(**own)


def test_a_batch_must_be_divisible_among_the_gradient_workers() -> None:
    with pytest.raises(TopologyError, match="batch_size = 32 cannot be divided among 3 gradient workers") as caught:
        replaying(gradients__workers=3, algorithm__batch_size=32)
    assert caught.value.hint == "set it to 30 or 33"
    assert replaying(gradients__workers=3, algorithm__batch_size=33).replay.size.batch == 11


def test_a_replay_memory_must_hold_a_transition_of_each_environment() -> None:
    sizes = {"collection__workers": 2, "collection__envs": 2, "algorithm__n_step": 3}
    with pytest.raises(TopologyError, match=r"replay_capacity = 11 has no room for .*n_step = 3 steps") as caught:
        replaying(**sizes, algorithm__replay_capacity=11)
    assert caught.value.hint == "set it to 12 or more"
    assert replaying(**sizes, algorithm__replay_capacity=12).replay.size.kept == 3


@pytest.mark.parametrize(("starts", "warmup"), [(0, 0), (1, 1), (16, 1), (17, 2), (984, 62)])
def test_the_warmup_is_whole_rounds(starts: int, warmup: int) -> None:
    assert replaying(algorithm__learning_starts=starts).warmup == warmup


def test_a_run_that_ends_in_its_warmup_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"learning_starts = 1000 leaves no updates in run\.steps = 1000") as caught:
        replaying(algorithm__learning_starts=1_000)
    assert caught.value.hint == "raise run.steps, or lower algorithm.learning_starts"


@pytest.mark.parametrize(("ratio", "updates"), [("1/16", 1), ("1/4", 4), ("1", 16), ("20", 320), ("3/8", 6)])
def test_updates_of_a_round_follow_from_the_ratio(ratio: str, updates: int) -> None:
    assert replaying(algorithm__updates_per_step=f'"{ratio}"').gradients_per_round == updates


@pytest.mark.parametrize(
    ("ratio", "made", "legal", "steps"),
    [
        ("1/6", "2.66667", '"1/8" or "3/16"', 48),
        ("1/32", "0.5", '"1/16"', 32),
        ("5/3", "26.6667", '"13/8" or "27/16"', 48),
    ],
)
def test_a_fraction_of_an_update_is_refused_with_the_nearest_values(
    ratio: str, made: str, legal: str, steps: int
) -> None:
    with pytest.raises(
        TopologyError, match=f"{ratio} makes {made} updates of a round of 16 environment steps"
    ) as caught:
        replaying(algorithm__updates_per_step=f'"{ratio}"')
    hint = str(caught.value.hint)
    assert hint.startswith(f"set it to {legal}, or make a round a multiple of {steps} steps")


@pytest.mark.parametrize(
    ("lag", "updates", "mode", "ahead"),
    [(0, 1, "synchronous", 1), (3, 1, "pipelined", 4), (3, 2, "pipelined", 3), (3, 4, "pipelined", 2)],
)
def test_the_ring_has_room_for_the_rounds_that_a_lag_lets_ahead(lag: int, updates: int, mode: str, ahead: int) -> None:
    lagging = {"gradients__max_lag": lag} if lag else {}
    made = replaying(
        gradients__communication=f'"{mode}"', algorithm__updates_per_step=f'"{updates}/16"', **lagging
    ).replay.size
    assert made.rounds_ahead == ahead
    assert made.rows > made.kept + ahead * (made.steps + 1) + made.n_step + made.stack - 2
