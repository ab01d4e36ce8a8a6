"""Environments that draw from global generators: each collector, rollout, reset and construction has its own draws."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import Arrays, allocate, config_of, same_bytes, weights_of

import hive
from hive.experience import Rollout
from hive.runtime.process.user_code.guest import Guest
from hive.training import Blueprint, Evaluator, Trainer
from hive.training.messages import EvaluationDue

DRAWS = "small_environments:Drawing"


@pytest.fixture
def blueprint() -> Blueprint:
    return Blueprint(config_of(DRAWS))


def rollouts(blueprint: Blueprint, numbers: Any, source: int = 0, incarnation: int = 0, start: int = 0) -> list[Arrays]:
    """Rollouts of a new collector, in a process whose generators are in any state."""
    disturb()
    collector = blueprint.collector(source, incarnation)
    disturb()
    collector.bind(weights_of(blueprint))
    collector.reset(start)
    made = []
    for number in numbers:
        disturb()
        arrays = allocate(blueprint.rollout_layout)
        collector.collect(arrays, sequence=number, version=0)
        made.append(arrays)
    return made


def disturb() -> None:
    seed = np.random.default_rng().integers(2**32)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(int(seed))
    torch.default_generator.manual_seed(int(seed))


def drawn(arrays: Arrays) -> np.ndarray[Any, Any]:
    """What the steps of a rollout drew."""
    return Rollout(arrays).observations[1:, :, :3]


def test_a_second_run_draws_the_same(blueprint: Blueprint) -> None:
    first, second = (rollouts(blueprint, range(3)) for _ in range(2))
    assert all(same_bytes(one, other) for one, other in zip(first, second, strict=True))
    assert len({drawn(arrays).tobytes() for arrays in first}) == 3


def test_steps_follow_from_the_number_of_the_rollout_not_from_the_past(blueprint: Blueprint) -> None:
    (alone,) = rollouts(blueprint, [2])
    assert np.array_equal(drawn(alone), drawn(rollouts(blueprint, range(3))[2]))


def test_no_two_collectors_draw_the_same(blueprint: Blueprint) -> None:
    seen = np.concatenate([Rollout(rollouts(blueprint, [0], source)[0]).observations.ravel() for source in range(4)])
    built = 4 * 2  # of each environment, in every observation
    assert len(np.unique(seen)) == 4 * 2 * 9 * 3 + built


@pytest.mark.parametrize("other", [{"incarnation": 1}, {"start": 4}])
def test_a_restart_and_a_barrier_begin_with_other_numbers(blueprint: Blueprint, other: dict[str, int]) -> None:
    first, again = (Rollout(rollouts(blueprint, [0], **given)[0]).observations[0] for given in ({}, other))
    assert not np.intersect1d(first[:, :3], again[:, :3]).size


def test_another_seed_is_another_run() -> None:
    first, other = (Blueprint(config_of(DRAWS, run__seed=seed)) for seed in (1, 2))
    assert not np.intersect1d(*(rollouts(b, [0])[0]["observations"].ravel() for b in (first, other))).size


def test_compiled_environments_cost_no_seeds() -> None:
    blueprint = Blueprint(config_of("CartPole-v1"))
    collector = blueprint.collector(0)
    collector.bind(weights_of(blueprint))
    before = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]  # noqa: NPY002
    collector.reset()
    collector.collect(allocate(blueprint.rollout_layout), sequence=0, version=0)
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before  # type: ignore[index]  # noqa: NPY002


def test_an_evaluation_follows_from_its_seed_and_turn_whatever_happens_between_its_steps() -> None:
    blueprint = Blueprint(config_of(DRAWS, evaluation__every="{updates=1}", evaluation__episodes=6, evaluation__envs=2))
    played = []
    for turn in (3, 3, 4):
        evaluator = Evaluator.of_run(blueprint)
        evaluator.begin(EvaluationDue(turn, turn, 0, 0, 0.0))
        seen = [evaluator.play.rows[0].observations.tolist()]
        while evaluator.step() is None:
            seen.append(evaluator.play.rows[0].observations.tolist())
            disturb()
        played.append(seen)
    assert played[0] == played[1]
    assert played[0][1] != played[2][1]


def seed_script() -> None:
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    torch.default_generator.manual_seed(5)


def draw() -> tuple[float, ...]:
    return np.random.rand(), random.random(), torch.rand(()).item()  # noqa: NPY002


def test_a_script_keeps_its_generators_and_a_guest_its_own() -> None:
    seed_script()
    expected = [draw() for _ in range(4)]
    guest, inside = Guest(), []
    seed_script()
    with guest:
        inside += [draw(), draw()]
    assert [draw(), draw()] == expected[:2]
    with guest:
        inside += [draw(), draw()]
    assert inside == expected
    assert [draw(), draw()] == expected[2:]


def test_neither_a_trainer_nor_an_inline_run_disturbs_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    seed_script()
    expected = draw()
    seed_script()
    config = config_of(DRAWS, run__steps=16)
    trainer = Trainer(config)
    trainer.train()
    trainer.close()
    hive.train(config, inline=True, quiet=True)
    assert draw() == expected
