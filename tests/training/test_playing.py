"""How good a trained policy is: whole episodes, the same ones for all, and only in an environment that is its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_trainer import config_of, weights_of

import hive
from hive.config import Config
from hive.errors import EnvironmentFailed, UsageError
from hive.policy.loaded import Policy
from hive.records import write_checkpoint
from hive.training import Blueprint, Evaluation, evaluate
from hive.training.evaluate.playing import joined


def saved(root: Path, config: Config, *, wanted: int | None = None) -> Policy:
    """An untrained policy of that environment from a checkpoint; one that always takes action `wanted`."""
    blueprint = Blueprint(config)
    arrays = blueprint.flat.arrays(weights_of(blueprint))
    if wanted is not None:
        for array in arrays.values():
            array[...] = 0.0
        arrays["trunk.0.bias"][:2] = [wanted == 0, wanted == 1]
    state = {"policy": blueprint.policy(), "updates": 7, "env_steps": 64}
    return hive.load(str(write_checkpoint(root, 7 + (wanted or 0), tensors=arrays, parts={}, state=state)))


def numbers(played: Evaluation) -> tuple[Any, ...]:
    return played.episodes, played.mean_return, played.deviation, played.min, played.max, played.mean_length


def bandit(**values: Any) -> Config:
    return config_of("small_environments:Bandit", network__middleware=[], **values)


def test_two_policies_play_the_same_episodes(tmp_path: Path) -> None:
    """Action 1 earns in context 1 only, action 0 in the other: together 1 in each episode."""
    zero, one = (evaluate(saved(tmp_path, bandit(), wanted=wanted), bandit(), episodes=200) for wanted in (0, 1))
    assert zero.mean_return + one.mean_return == pytest.approx(1.0)
    assert 0.3 < zero.mean_return < 0.7
    assert (zero.episodes, zero.updates, zero.env_steps) == (200, 7, 64)


def test_the_seed_decides(tmp_path: Path) -> None:
    config = config_of("small_environments:Drift")
    policy = saved(tmp_path, config)
    one, again, other = (evaluate(policy, config, episodes=5, seed=seed) for seed in (0, 0, 1))
    assert numbers(one) == numbers(again) != numbers(other)


def test_actions_may_be_drawn(tmp_path: Path) -> None:
    """The first action is preferred by a logit of 1 only: drawn, it is taken in 73 of 100 episodes."""
    policy = saved(tmp_path, bandit(), wanted=0)
    likeliest, drawn = (evaluate(policy, bandit(), episodes=400, sample=sample) for sample in (False, True))
    assert likeliest.mean_return != drawn.mean_return


def test_it_reports_its_progress_and_makes_no_more_environments_than_episodes(tmp_path: Path) -> None:
    config = config_of("small_environments:OneState", env__options="{truncates=3}")
    told: list[int] = []
    played = evaluate(saved(tmp_path, config), config, episodes=3, envs=2, progress=told.append)
    assert told == [0, 0, 2, 2, 2]
    assert (played.episodes, played.mean_return, played.mean_length) == (3, 3.0, 3.0)


def test_options_of_the_environment_may_be_others(tmp_path: Path) -> None:
    policy = saved(tmp_path, config_of("small_environments:OneState", env__options="{truncates=3}"))
    longer = config_of("small_environments:OneState", env__options="{truncates=9}")
    assert evaluate(policy, longer, episodes=2).mean_return == 9.0


@pytest.mark.parametrize(
    ("id", "options", "text"),
    [
        (
            "small_environments:Launch",
            "{}",
            r"observations .* of `small_environments:Launch` differ in shape: \(3,\) and",
        ),
        (
            "small_environments:Drift",
            '{actions="box"}',
            "the actions .* of `small_environments:Drift` differ in kind: Discrete and",
        ),
    ],
)
def test_an_environment_of_other_spaces_is_refused(tmp_path: Path, id: str, options: str, text: str) -> None:
    policy = saved(tmp_path, config_of("small_environments:Drift"))
    with pytest.raises(UsageError, match=text) as error:
        evaluate(policy, config_of(id, env__options=options))
    assert "trained with" in error.value.hint


def test_an_environment_that_fails_is_named_and_closed(tmp_path: Path) -> None:
    policy = saved(tmp_path, config_of("small_environments:Fails", env__options="{when=99}"))
    with pytest.raises(EnvironmentFailed, match="Fails"):
        evaluate(policy, config_of("small_environments:Fails", env__options="{when=3}"), episodes=2)


def test_several_evaluations_are_joined_in_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Evaluation(7, 6, 96, 1.5, 2, 4.0, 0.0, 4.0, 4.0, 9.0, 1.0, {"luck": 1.0, "won": 0.0}, 1, True)
    other = Evaluation(7, 6, 96, 1.5, 6, 8.0, 0.0, 8.0, 8.0, 1.0, 2.0, {"won": 1.0}, 0, False)
    one, other = replace(one, counted={"luck": 2, "won": 1}), replace(other, counted={"won": 3})
    numbers = (7, 6, 96, 1.5, 8, 7.0, 3.0**0.5, 4.0, 8.0, 3.0, 3.0)
    info, counted = {"luck": 1.0, "won": 0.75}, {"luck": 2, "won": 4}
    assert joined([one, other]) == Evaluation(*numbers, info, 1, False, counted)

    class More(Evaluation):
        longest: int = 0

    monkeypatch.setitem(joined.__globals__, "Evaluation", More)
    with pytest.raises(KeyError, match="longest"):
        joined([one, other])
