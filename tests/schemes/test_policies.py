"""Whole runs of several policies, inline: what they learn, that seeds and placements give their bytes, and resuming."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from small_agents import STEPS as MOST
from small_trainer import LIMIT_S, config_of

from hive.config import Config
from hive.errors import ConfigError
from hive.records import RunDirectory, list_checkpoints, policies_of, read_jsonl, write_resume_point
from hive.records.checkpoints.together import chosen_together, others_of, why_apart
from hive.runtime.supervise.outcome import Outcome
from hive.schemes import build
from hive.testing import run_inline

GAMES = ("small_agents:Together", "small_agents:InTurn")
TWO = {"policies__one": '"same"', "policies__two": '"other"'}


def config_for(game: str, **options: Any) -> Config:
    few = {"run__scheme": '"ppo"', "algorithm__epochs": 4, "algorithm__minibatches": 2, "checkpoint__every": "{}"}
    size = {"collection__envs": 4, "collection__rollout": 16, "run__steps": 1_000}
    return config_of(game, **{**few, **size, **options})


def finished(tmp_path: Path, config: Config, name: str = "run") -> tuple[RunDirectory, Outcome]:
    directory = RunDirectory.create(tmp_path, name)
    outcome: Outcome = run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert outcome.state == "finished", outcome.error
    return directory, outcome


def ends(directory: RunDirectory) -> dict[str, str]:
    """Digests of the last weights of all policies."""
    newest = {name: list_checkpoints(folder.checkpoints)[-1] for name, folder in policies_of(directory).items()}
    return {
        name: hashlib.sha256((found.path / "weights.safetensors").read_bytes()).hexdigest()
        for name, found in newest.items()
    }


@pytest.mark.rotates
@pytest.mark.parametrize("game", GAMES)
def test_each_policy_learns_its_own_game(tmp_path: Path, game: str) -> None:
    """Random guesses earn 4 of 8; one policy for both agents could earn no more than that in both."""
    options = {
        "run__steps": 16_000 if game == GAMES[1] else 8_000,
        "algorithm__learning_rate": 3e-3,
        "network__middleware": [32],
        "network__separate_networks": "true",
    }
    directory, _ = finished(tmp_path, config_for(game, **TWO, **options))
    for name, folder in policies_of(directory).items():
        newest = list_checkpoints(folder.checkpoints)[-1]
        assert newest.mean_return is not None
        assert newest.mean_return > 0.8 * MOST, name


@pytest.mark.rotates
@pytest.mark.parametrize("game", GAMES)
def test_every_placement_gives_the_same_weights_of_each(tmp_path: Path, game: str) -> None:
    found = []
    for number, options in enumerate(
        ({}, {"collection__workers": 0}, {"gradients__workers": 1, "run__carrier": '"zmq"'})
    ):
        found.append(ends(finished(tmp_path, config_for(game, **TWO, **options), f"run{number}")[0]))
    assert found[0] == found[1] == found[2]
    assert found[0]["one"] != found[0]["two"]


def test_two_by_two_gives_the_same_weights_twice(tmp_path: Path) -> None:
    options = {"collection__workers": 2, "gradients__workers": 2, "collection__communication": '"pipelined"'}
    first, second = (ends(finished(tmp_path, config_for(GAMES[1], **TWO, **options), name)[0]) for name in ("a", "b"))
    assert first == second


@pytest.mark.rotates
@pytest.mark.parametrize("game", GAMES)
def test_a_run_resumed_at_a_common_barrier_is_that_of_an_undisturbed_one(tmp_path: Path, game: str) -> None:
    steps = 2_400 if game == GAMES[1] else 1_200  # 100 episodes have ended before, so that a return can end the run
    options = {**TWO, "checkpoint__every": "{updates=16}", "checkpoint__keep": 1000, "run__steps": steps}
    config = config_for(game, **options)
    whole, _ = finished(tmp_path, config, "whole")
    part, _ = finished(tmp_path, config_for(game, **options, run__stop_at_return=-1.0), "part")
    first, others = chosen_together(part, others_of(part), True, print)
    assert first is not None
    assert 0 < first.update < list_checkpoints(whole.checkpoints)[-1].update
    assert why_apart(first, others) == ""
    for folder, chosen in {part: first, **others}.items():
        for newer in list_checkpoints(folder.checkpoints):
            if newer.update > chosen.update:
                newer.path.rename(folder.path / newer.path.name)
        write_resume_point(folder, chosen.update)
    run_inline(build(config, part.path), seconds=LIMIT_S)
    assert ends(part) == ends(whole)


def test_a_policy_with_another_algorithm_learns_from_a_replay_memory_beside_ppo(tmp_path: Path) -> None:
    dqn = "{name='dqn', learning_starts=128, replay_capacity=2048, batch_size=32, learning_rate=0.003}"
    options = {"policies__one": '"same"', "policies__two__agents": '"other"', "policies__two__algorithm": dqn}
    first, outcome = finished(tmp_path, config_for(GAMES[0], **options, run__steps=3_000), "one")
    second, _ = finished(tmp_path, config_for(GAMES[0], **options, run__steps=3_000), "two")
    assert ends(first) == ends(second)
    assert outcome.results["env_steps"] >= 3_000


def test_a_scripted_policy_acts_for_its_agents_and_is_no_data(tmp_path: Path) -> None:
    options = {
        "policies__two": '"other"',
        "policies__one__agents": '"same"',
        "policies__one__scripted": '"small_agents:honest"',
    }
    directory, outcome = finished(tmp_path, config_for(GAMES[1], **options))
    assert [*policies_of(directory)] == ["two"]
    assert outcome.results["info/return/same"] == MOST


def test_a_policy_of_another_run_acts_and_stays_as_it_is(tmp_path: Path) -> None:
    trained, _ = finished(tmp_path, config_for(GAMES[0], **TWO), "trained")
    options = {
        "policies__two": '"other"',
        "policies__one__agents": '"same"',
        "policies__one__weights": f'"{trained.path}"',
    }
    first, second = (ends(finished(tmp_path, config_for(GAMES[0], **options), name)[0]) for name in ("a", "b"))
    assert first == second


@pytest.mark.parametrize("game", GAMES)
def test_all_policies_are_evaluated_together_without_an_effect_on_training(tmp_path: Path, game: str) -> None:
    """Each policy gets the evaluations of its agents, from the same episodes, and keeps its own best policy."""
    watched = {"evaluation__every": "{steps=256}", "evaluation__episodes": 3, "evaluation__wait": "true"}
    directory, _ = finished(tmp_path, config_for(game, **TWO, **watched), "watched")
    without, _ = finished(tmp_path, config_for(game, **TWO), "without")
    assert ends(directory) == ends(without)
    one, two = (list(read_jsonl(folder.evaluations_file)) for folder in policies_of(directory).values())
    assert len(one) == len(two) > 2
    for first, second in zip(one, two, strict=True):
        assert first["steps"] == second["steps"]
        assert first["info/return/team"] == second["info/return/team"]
        assert (first["mean_return"], second["mean_return"]) == (first["info/return/same"], first["info/return/other"])
    assert all(any(folder.best.iterdir()) for folder in policies_of(directory).values())


def test_a_callback_sees_the_rounds_of_the_first_policy_and_ends_all_after_the_same_round(tmp_path: Path) -> None:
    options = {"run__callbacks": '["own_callbacks:StopsAfter"]', "run__steps": 10_000}
    directory, outcome = finished(tmp_path, config_for(GAMES[1], **TWO, **options))
    newest = [list_checkpoints(folder.checkpoints)[-1] for folder in policies_of(directory).values()]
    assert newest[0].update == newest[1].update
    assert outcome.reason == "enough"
    assert 0 < outcome.results["env_steps"] < 5_000
    shown = [row["counted"] for row in read_jsonl(directory.metrics_file) if "counted" in row]
    assert shown[-1] == 3


def test_evaluations_after_updates_are_refused_where_several_policies_count_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        build(config_for(GAMES[0], **TWO, evaluation__every="{updates=10}"), tmp_path)
    assert "evaluation.every" in str(caught.value)
    assert "steps" in caught.value.hint


@pytest.mark.parametrize("options", [{"collection__fraction_workers": 0.5, "collection__workers": 2}])
def test_what_several_policies_cannot_have_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is refused with several policies"):
        build(config_for(GAMES[0], **TWO, **options), tmp_path)


def test_stacks_of_turns_are_refused_with_a_replay_memory(tmp_path: Path) -> None:
    options = {"run__scheme": '"dqn"', "algorithm__learning_starts": 128, "env__frame_stack": 2}
    config = config_of(GAMES[1], **TWO, **options)
    with pytest.raises(ConfigError, match=r"env\.frame_stack is refused with dqn for agents that act in turn"):
        build(config, tmp_path)


def test_a_config_without_policies_trains_one_for_agents_of_equal_spaces(tmp_path: Path) -> None:
    directory, outcome = finished(tmp_path, config_for(GAMES[0]))
    assert [*policies_of(directory)] == ["agents"]
    assert {"info/return/same", "info/return/other", "info/return/team"} <= outcome.results.keys()
