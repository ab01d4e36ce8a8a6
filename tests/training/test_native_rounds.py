"""Rounds of updates in one native call: the bytes of updates one by one, and what else a turn does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_trainer import LIMIT_S, config_of

from hive.algorithms import PPO as PPOAlgorithm
from hive.learning.described import describes
from hive.records import RunDirectory, read_jsonl
from hive.records.summary import ROUNDS
from hive.runtime import Slot, Topology
from hive.runtime.memory.status import read_status
from hive.runtime.supervise.accounting import holds
from hive.runtime.supervise.supervisor import Journal, Supervisor
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint
from hive.training.update.learner import Count
from hive.training.update.learner_actor import LearnerActor

TIMES = [Count.first_ns, Count.last_ns]

PPO = {"algorithm__name": '"ppo"', "run__scheme": '"ppo"', "collection__rollout": 16, "run__steps": 256}
DQN = {
    "run__scheme": '"dqn"',
    "collection__rollout": 8,
    "run__steps": 256,
    "algorithm__batch_size": 16,
    "algorithm__learning_starts": 32,
    "algorithm__updates_per_step": '"1/2"',
    "algorithm__replay_capacity": 128,
    "collection__envs": 1,
    "algorithm__target_interval": 3,
}

C51 = {"run__scheme": '"c51"', "algorithm__atoms": 5, "algorithm__v_min": -10, "algorithm__v_max": 10}
QR_DQN = {"run__scheme": '"qr-dqn"', "algorithm__quantiles": 4}

AGENT = {
    **{name: value for name, value in DQN.items() if name != "algorithm__target_interval"},
    "network__middleware": [8, 8],
    "algorithm__updates_per_step": 1,
}

MIXED, BOX = "small_environments:Mixed", {"env__options": '{actions="box"}'}
MASKED = "small_environments:Parts"
NORMALIZED = {"network__normalize_observations": "true", "network__normalize_rewards": "true"}
CRITIC_FIRST = {"algorithm__critic_first": "true"}
SAC_OF_CHOICES = {"run__scheme": '"sac"', "algorithm__priority_exponent": 0.6, "algorithm__clip_gradients": 0.5}


class Run:
    """A finished run: its last weights and optimizer state, and what its learner did."""

    def __init__(self, folder: Path, native: bool, env: str, change: Callable[[Topology], None], **values: Any) -> None:
        config = config_of(env, gradients__native_rounds=str(native).lower(), **values)
        self.directory = RunDirectory.create(folder, "test")
        topology = build(config, self.directory.path)
        change(topology)
        seen: list[Supervisor] = []
        self.events: list[tuple[str, str]] = []

        def watch(supervisor: Supervisor) -> None:
            supervisor.effects.journal = Journal(
                lambda kind, text, fields: self.events.append((kind, text)), lambda *_: ""
            )
            seen.append(supervisor)

        self.outcome = run_inline(topology, watch=watch, seconds=LIMIT_S)
        assert all(holds(account) and account["in_flight"] == 0 for account in self.outcome.channels.values())
        self.supervisor = seen[0]
        self.memory = self._replay()
        self.weights, self.optimizer_state = (self._newest(name).copy() for name in ("weights", "optimizer_state"))
        number = next(n for n, a in enumerate(self.supervisor.state.plan.actors) if a.name == "learner-0")
        self.counters = dict(read_status(self.supervisor.memory.pages, number).counters)

    def _replay(self) -> NDArray[np.uint8] | None:
        """The replay memory, without the leaves that a checkpoint copies."""
        segments = [segment.name for segment in self.supervisor.state.plan.segments]
        return self.supervisor.memory.views.buffer("memory").copy() if "memory" in segments else None

    def _newest(self, name: str) -> NDArray[np.uint8]:
        board = self.supervisor.memory.views.board(name)
        return board.blocks[board.words.find(board.latest)]


def unchanged(topology: Topology) -> None:
    """Run the topology as it is."""


def both(folder: Path, env: str, change: Callable[[Topology], None] = unchanged, **values: Any) -> tuple[Run, Run]:
    """Make the same run one by one and natively; the results and accounts are equal."""
    for name in ("one", "native"):
        (folder / name).mkdir()
    one = Run(folder / "one", False, env, change, **values)
    native = Run(folder / "native", True, env, change, **values)
    assert one.counters["native_updates"] == 0
    assert np.array_equal(one.weights, native.weights)
    counters = 16 * 8
    for run in (one, native):
        counts = run.optimizer_state[:counters].view(np.int64)
        assert 0 < counts[Count.first_ns] < counts[Count.last_ns]
        counts[TIMES] = 0
    assert np.array_equal(one.optimizer_state, native.optimizer_state)
    consumed = [run.outcome.channels["gradients"]["consumed"] for run in (one, native)]
    assert consumed[0] == consumed[1]
    return one, native


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("CartPole-v1", PPO),
    "points": (
        "CartPole-v1",
        {
            **PPO,
            "algorithm__learning_rate_schedule": "[[0, 1e-2], [96, 1e-3], [97, 5e-3]]",
            "algorithm__clip_range_schedule": "[[32, 0.3], [200, 0.05]]",
            "algorithm__entropy_weight_schedule": "[[0, 0.0], [256, 0.1]]",
        },
    ),
    "sac by points": (
        "Pendulum-v1",
        {
            **AGENT,
            "run__scheme": '"sac"',
            "algorithm__learning_rate_schedule": "[[0, 1e-2], [128, 1e-3]]",
            "algorithm__actor_learning_rate": 3e-3,
        },
    ),
    "whole batches": ("CartPole-v1", {**PPO, "algorithm__epochs": 5, "algorithm__minibatches": 1}),
    "clipped values": (
        "CartPole-v1",
        {**PPO, "algorithm__value_clip_range": 0.2, "algorithm__normalize_over": '"round"'},
    ),
    "shared layers": ("CartPole-v1", {**PPO, "network__separate_networks": "false", "network__middleware": [8, 8]}),
    "layer norm": ("CartPole-v1", {**PPO, "network__layer_norm": "true", "network__activation": '"silu"'}),
    "gaussian": ("Pendulum-v1", PPO),
    "normalized": (
        "Pendulum-v1",
        {**PPO, "network__normalize_observations": "true", "network__normalize_rewards": "true"},
    ),
    "target_kl": ("CartPole-v1", {**PPO, "algorithm__target_kl": 1e-3, "algorithm__learning_rate": 0.01}),
    "weight decay": ("CartPole-v1", {**PPO, "algorithm__optimizer": '"adamw"', "algorithm__weight_decay": 0.1}),
    "rmsprop": ("CartPole-v1", {**PPO, "algorithm__optimizer": '"rmsprop"', "algorithm__momentum": 0.5}),
    "sgd": ("CartPole-v1", {**PPO, "algorithm__optimizer": '"sgd"', "algorithm__clip_gradients": 0}),
    "more rows than parts": ("CartPole-v1", {**PPO, "collection__rollout": 2, "algorithm__minibatches": 8}),
    "pqn": ("CartPole-v1", {**PPO, "algorithm__name": '"pqn"', "run__scheme": '"pqn"'}),
    "dqn": ("CartPole-v1", DQN),
    "double": ("CartPole-v1", {**DQN, "algorithm__double": "true", "algorithm__huber_loss": "false"}),
    "prioritized": ("CartPole-v1", {**DQN, "algorithm__priority_exponent": 0.6, "algorithm__n_step": 3}),
    "soft target": ("CartPole-v1", {**DQN, "algorithm__target_rate": 0.05, "algorithm__target_interval": 1}),
    "c51": ("CartPole-v1", {**DQN, **C51}),
    "double c51": ("CartPole-v1", {**DQN, **C51, "algorithm__double": "true", "algorithm__n_step": 3}),
    "prioritized c51": ("CartPole-v1", {**DQN, **C51, "algorithm__priority_exponent": 0.5}),
    "qr-dqn": ("CartPole-v1", {**DQN, **QR_DQN, "algorithm__n_step": 2}),
    "double qr-dqn": (
        "CartPole-v1",
        {**DQN, **QR_DQN, "algorithm__double": "true", "algorithm__priority_exponent": 0.6},
    ),
    "dueling": ("CartPole-v1", {**DQN, "algorithm__dueling": 6}),
    "joined streams": ("CartPole-v1", {**DQN, **QR_DQN, "algorithm__dueling": 6, "algorithm__double": "true"}),
    "noisy": ("CartPole-v1", {**DQN, "network__noisy_deviation": 0.5, "algorithm__double": "true"}),
    "noisy pqn": (
        "CartPole-v1",
        {**PPO, "algorithm__name": '"pqn"', "run__scheme": '"pqn"', "network__noisy_deviation": 0.5},
    ),
    "rainbow": ("CartPole-v1", {**DQN, **C51, "run__scheme": '"rainbow"', "algorithm__dueling": 6}),
    "sac": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"'}),
    "sac of one step": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"', "collection__rollout": 1, "run__steps": 96}),
    "fixed temperature": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"', "algorithm__learn_temperature": "false"}),
    "clipped groups": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"', "algorithm__clip_gradients": 0.1}),
    "discrete sac": ("CartPole-v1", {**AGENT, "run__scheme": '"sac"', "algorithm__n_step": 2}),
    "prioritized discrete sac": (
        "CartPole-v1",
        {**AGENT, **SAC_OF_CHOICES, "algorithm__learn_temperature": "false"},
    ),
    "td3": ("Pendulum-v1", {**AGENT, "run__scheme": '"td3"'}),
    "ddpg": ("Pendulum-v1", {**AGENT, "run__scheme": '"ddpg"', "algorithm__priority_exponent": 0.6}),
    "sac, critic first": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"', **CRITIC_FIRST}),
    "discrete sac, critic first": (
        "CartPole-v1",
        {**AGENT, **SAC_OF_CHOICES, **CRITIC_FIRST, "algorithm__target_rate": 0.1},
    ),
    "td3, critic first": (
        "Pendulum-v1",
        {**AGENT, "run__scheme": '"td3"', **CRITIC_FIRST, "algorithm__policy_delay": 3, "algorithm__n_step": 2},
    ),
    "ddpg, critic first": (
        "Pendulum-v1",
        {**AGENT, "run__scheme": '"ddpg"', **CRITIC_FIRST, "algorithm__priority_exponent": 0.6},
    ),
    "normalized dqn": ("CartPole-v1", {**DQN, **NORMALIZED, "algorithm__n_step": 3}),
    "normalized observations": ("CartPole-v1", {**DQN, "network__normalize_observations": "true"}),
    "normalized sac of one step": (
        "Pendulum-v1",
        {**AGENT, **NORMALIZED, "run__scheme": '"sac"', "collection__rollout": 1, "run__steps": 96},
    ),
    "normalized from the first row": ("CartPole-v1", {**DQN, **NORMALIZED, "algorithm__learning_starts": 0}),
    "normalized, critic first": (
        "Pendulum-v1",
        {**AGENT, **NORMALIZED, **CRITIC_FIRST, "run__scheme": '"td3"', "algorithm__learning_starts": 0},
    ),
    "normalized rewards of two bytes": (
        "small_environments:Levels",
        {**DQN, "network__normalize_rewards": "true"},
    ),
    "frame stack": ("CartPole-v1", {**DQN, "env__frame_stack": 3, "algorithm__double": "true"}),
    "normalized frame stack": (
        "CartPole-v1",
        {**DQN, **C51, **NORMALIZED, "env__frame_stack": 2, "algorithm__n_step": 2},
    ),
    "ppo, frame stack": ("CartPole-v1", {**PPO, "env__frame_stack": 3, "network__normalize_observations": "true"}),
    "pqn, frame stack": (
        "CartPole-v1",
        {**PPO, "algorithm__name": '"pqn"', "run__scheme": '"pqn"', "env__frame_stack": 2},
    ),
    "sac, frame stack": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"', "env__frame_stack": 2}),
    "discrete sac, frame stack": ("CartPole-v1", {**AGENT, **SAC_OF_CHOICES, "env__frame_stack": 2}),
    "normalized td3, frame stack": (
        "Pendulum-v1",
        {**AGENT, **NORMALIZED, **CRITIC_FIRST, "run__scheme": '"td3"', "env__frame_stack": 2},
    ),
    "ppo of parts": (MIXED, PPO),
    "normalized ppo of parts": (MIXED, {**PPO, "network__normalize_observations": "true"}),
    "dqn of parts": (MIXED, {**DQN, "algorithm__double": "true", "algorithm__n_step": 2}),
    "normalized rainbow of parts": (MIXED, {**DQN, **C51, **NORMALIZED, "run__scheme": '"rainbow"'}),
    "sac of parts": (MIXED, {**AGENT, **BOX, "run__scheme": '"sac"'}),
    "normalized td3 of parts": (MIXED, {**AGENT, **BOX, **NORMALIZED, "run__scheme": '"td3"'}),
    "discrete sac of parts": (MIXED, {**AGENT, **SAC_OF_CHOICES}),
    "ppo of one choice": ("small_environments:Cell", PPO),
    "dqn of one choice": ("small_environments:Cell", DQN),
    "sac of one choice": ("small_environments:Cell", {**AGENT, **BOX, "run__scheme": '"sac"'}),
    "ppo with masks": (MASKED, PPO),
    "normalized ppo with masks": (MASKED, {**PPO, "network__normalize_observations": "true"}),
    "ppo with masks, frame stack": (MASKED, {**PPO, "env__frame_stack": 2}),
    "pqn with masks": (MASKED, {**PPO, "algorithm__name": '"pqn"', "run__scheme": '"pqn"'}),
    "dqn with masks": (MASKED, {**DQN, "algorithm__double": "true", "algorithm__n_step": 2}),
    "normalized rainbow with masks": (MASKED, {**DQN, **C51, **NORMALIZED, "run__scheme": '"rainbow"'}),
    "qr-dqn with masks": (MASKED, {**DQN, **QR_DQN, "algorithm__dueling": 6}),
    "sac with masks": (MASKED, {**AGENT, **SAC_OF_CHOICES}),
    "one update a round": ("CartPole-v1", {**DQN, "collection__rollout": 2}),
}


@pytest.mark.rotates
@pytest.mark.parametrize("case", CASES)
def test_a_round_in_one_call_has_the_bytes_of_updates_one_by_one(tmp_path: Path, case: str) -> None:
    env, values = CASES[case]
    one, native = both(tmp_path, env, **values)
    assert native.counters["native_updates"] > 0
    assert native.counters["updates"] == one.counters["updates"]
    for name in ("adopted", "reduced", "applied"):
        assert native.counters[name] == native.counters["updates"]
    if "algorithm__learning_starts" in values:  # with a replay memory the worker makes none
        assert native.counters["native_updates"] == native.outcome.channels["gradients"]["consumed"]


OBSTACLES: dict[str, dict[str, Any]] = {
    "gradients.native_rounds = false": {"gradients__native_rounds": "false"},
    "gradients.workers": {"gradients__workers": 1},
    "gradients.max_lag": {"gradients__communication": '"pipelined"'},
    "gradients.bootstrap_rounds": {"gradients__bootstrap_rounds": 2},
    "gradients.compression": {"gradients__compression": '"bf16"'},
    "collection.max_lag": {"collection__communication": '"pipelined"'},
    "network: some of its layers": {"network__backend": '"torch"'},
    "network.memory": {"network__memory": '"lstm"', "network__memory_size": 4},
    "a round": {"algorithm__epochs": 2},
    "algorithm.name": {"run__scheme": '"a2c"', "algorithm__name": '"a2c"', "algorithm__epochs": None},
}


@pytest.mark.parametrize("why", OBSTACLES)
def test_the_status_names_what_keeps_rounds_from_native_calls(tmp_path: Path, why: str) -> None:
    values = {**PPO, "run__steps": 96, "algorithm__epochs": 4, **OBSTACLES[why]}
    native = values.pop("gradients__native_rounds", "true") == "true"
    values = {name: value for name, value in values.items() if value is not None}
    run = Run(tmp_path, native, "CartPole-v1", unchanged, **values)
    assert ROUNDS[int(run.counters["rounds"])].startswith(why)
    assert run.outcome.results["rounds"] == run.counters["rounds"]  # which summary.json has as text
    first_round = 19  # of pipelined rollouts, which no older policy makes
    assert run.counters["native_updates"] <= (first_round if why == "collection.max_lag" else 0)


def test_a_subclass_and_a_wrapper_of_an_algorithm_do_not_inherit_its_description(tmp_path: Path) -> None:
    class Mine(PPOAlgorithm):
        def reconfigure(self, config: Any) -> None:
            """May compute another loss."""
            super().reconfigure(config)

    config = config_of("CartPole-v1", **PPO)
    assert describes(Blueprint(config).algorithm())
    assert not describes(Mine(config.algorithm, Blueprint(config).distribution))
    novel = Run(tmp_path, True, "CartPole-v1", unchanged, **PPO, network__novelty_weight=0.5)
    assert ROUNDS[int(novel.counters["rounds"])].startswith("algorithm.name")


def test_an_update_that_is_not_finite_is_made_and_named_by_the_worker(tmp_path: Path) -> None:
    """Gradients overflow in the middle of rounds; both ways skip the same turns and say the same of them."""
    values = {
        **PPO,
        "algorithm__learning_rate": 1e20,
        "algorithm__clip_gradients": 0,
        "supervision__non_finite": '"skip"',
    }
    one, native = both(tmp_path, "CartPole-v1", **values)
    assert one.counters["skipped"] == native.counters["skipped"] > 0
    assert [text for kind, text in native.events if kind == "skipped"] == [
        text for kind, text in one.events if kind == "skipped"
    ]


def test_the_rest_of_a_round_that_target_kl_ends_has_no_samples(tmp_path: Path) -> None:
    """The worker makes the first and the last gradient of a round, and the one that finds the policy too far."""
    env, values = CASES["target_kl"]
    one, native = both(tmp_path, env, **values)
    gradients, rounds = native.outcome.channels["gradients"]["consumed"], 8
    assert native.counters["updates"] == one.counters["updates"] <= gradients - rounds
    assert native.counters["skipped"] == 0
    assert gradients - 3 * rounds <= native.counters["native_updates"] < gradients - 2 * rounds


def test_turns_that_other_actors_wait_for_end_a_call(tmp_path: Path) -> None:
    """Evaluations within a round are those of updates one by one."""
    every = {"evaluation__every": "{updates=3}", "evaluation__episodes": 1, "evaluation__wait": "true"}
    one, native = both(tmp_path, "CartPole-v1", **PPO, **every)
    lines = [
        [(line["turn"], line["mean_return"]) for line in read_jsonl(run.directory.evaluations_file)]
        for run in (one, native)
    ]
    assert lines[0] == lines[1] != []
    assert native.counters["native_updates"] > 0


class LeavesOne(LearnerActor):
    """Ends its first incarnation's wait as a kill would: the last gradient of a round is committed, and not applied."""

    async def run(self) -> None:
        assert self.rounds is not None
        per_round = self.blueprint.gradients_per_round
        while not (self.turn == per_round - 1 and not await self._turns_natively([])):
            if not await self._turns_natively([]):
                claimed: list[Slot] = []
                await self._claim(claimed)
                self._turn(claimed)
                self.gradients.retire(claimed[0])
        while self.rounds.produced < per_round:  # the worker makes the last gradient of the round, and nobody takes it
            await asyncio.sleep(0)
        assert self.turn == per_round - 1
        await super().run()


def test_a_gradient_that_a_predecessor_left_is_taken_before_an_offer_is_waited_for(tmp_path: Path) -> None:
    """The collectors wait for the turn of this gradient, and the worker for them: there will be no offer."""

    def change(topology: Topology) -> None:
        topology["learner"].cls = LeavesOne

    run = Run(tmp_path, True, "CartPole-v1", change, **PPO)
    assert run.outcome.reason == "256 steps"
    assert run.counters["native_updates"] > 0
