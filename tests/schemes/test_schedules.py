"""Whole runs of PPO with schedules and a KL stop: repeated, resumed, decentralized, and with rounds of another size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import OUTPUTS, PARTS, check_end, modes, train
from small_trainer import LIMIT_S, config_of

import hive.algorithms.ppo
from hive.algorithms.batches.rows import progress_of
from hive.algorithms.parameters import Progress
from hive.experience import Rollout
from hive.records import RunDirectory, list_checkpoints, remove_folder, write_json
from hive.schemes import build
from hive.testing import run_inline

STEPS = 640
FALLING = {
    "algorithm__learning_rate_schedule": '"cosine"',
    "algorithm__entropy_weight_schedule": '"cosine"',
    "algorithm__clip_range_schedule": '"cosine"',
}
BY_POINTS = {
    "algorithm__learning_rate_schedule": "[[0, 0.05], [400, 0.01], [401, 0.02]]",
    "algorithm__entropy_weight_schedule": "[[100, 0.02], [500, 0.0]]",
    "algorithm__clip_range_schedule": "[[0, 0.1], [640, 0.3]]",
}
PPO: dict[str, Any] = {
    "run__steps": STEPS,
    "algorithm__epochs": 3,
    "algorithm__minibatches": 2,
    "algorithm__target_kl": 0.003,
    "algorithm__value_clip_range": 0.5,
    "algorithm__entropy_weight": 0.01,
    **FALLING,
}
TWO = modes("synchronous", "synchronous", 2, 2)
RUNS: dict[str, dict[str, Any]] = {
    "synchronous": TWO,
    "synchronous, by round": {**TWO, "algorithm__normalize_over": '"round"'},
    "pipelined": modes("pipelined", "pipelined", 2, 2),
    "decentralized": {**TWO, "gradients__decentralized": "true"},
    "pipelined, deviations are outputs": {**modes("pipelined", "pipelined", 2, 2), **OUTPUTS},
    "pipelined, dictionary of actions": {**modes("pipelined", "pipelined", 2, 2), **PARTS},
}


def test_two_workers_stop_by_divergence_and_repeat(tmp_path: Path) -> None:
    """Some updates are skipped, and not all; each option changes the weights."""
    run = train(tmp_path, "ppo", **PPO, **TWO)
    check_end(run)
    last = list_checkpoints(run.directory.checkpoints)[-1]
    assert 20 < run.results["updates"] < last.update
    assert train(tmp_path, "ppo", **PPO, **TWO).outcome.digest == run.outcome.digest
    without = [
        {"algorithm__target_kl": 0.0},
        {"algorithm__value_clip_range": 0.0},
        *({key: '"constant"'} for key in FALLING),
    ]
    digests = {train(tmp_path, "ppo", **{**PPO, **TWO, **values}).outcome.digest for values in without}
    assert len(digests | {run.outcome.digest}) == len(without) + 1


def test_decentralized_workers_follow_the_same_schedules(tmp_path: Path) -> None:
    assert (
        train(tmp_path, "ppo", **PPO, **RUNS["decentralized"]).outcome.digest
        == train(tmp_path, "ppo", **PPO, **TWO).outcome.digest
    )


FULL = pytest.mark.full(reason="the noise of a rollout is drawn in the same way", rotates=True)


@pytest.mark.rotates
@pytest.mark.parametrize("name", [pytest.param(name, marks=[FULL] if "dictionary" in name else []) for name in RUNS])
def test_a_resumed_run_is_the_run_that_went_on(tmp_path: Path, name: str) -> None:
    """From its first cut and a late one: a checkpoint holds all that schedules and the ends of rounds depend on."""
    options = {"run__scheme": '"ppo"', "algorithm__learning_rate": 0.05, **PPO, **RUNS[name]}
    config = config_of("small_environments:Drift", **options, checkpoint__every="{updates=20}", checkpoint__keep=1000)
    directory = RunDirectory.create(tmp_path, "test")
    whole = run_inline(build(config, directory.path), seconds=LIMIT_S)
    scheduled = [found.update for found in list_checkpoints(directory.checkpoints) if found.scheduled]
    assert len(scheduled) >= 3
    for update in (scheduled[-2], scheduled[0]):
        for checkpoint in list_checkpoints(directory.checkpoints):
            if checkpoint.update > update:
                remove_folder(checkpoint.path)
        write_json(directory.resume_file, {"update": update, "exact": True})
        resumed = run_inline(build(config, directory.path), seconds=LIMIT_S)
        assert resumed.digest == whole.digest != ""
        assert resumed.results["updates"] == whole.results["updates"]


def by_points(folder: Path, **values: Any) -> str:
    """Train by points of all schedules, or go on with the run in this folder; return the digest of the weights."""
    options = {"run__scheme": '"ppo"', **PPO, **BY_POINTS, **values}
    del options["algorithm__entropy_weight"]
    config = config_of("small_environments:Drift", **options, checkpoint__every="{updates=20}", checkpoint__keep=1000)
    path = folder / "test-1"
    directory = RunDirectory(path) if path.is_dir() else RunDirectory.create(folder, "test")
    digest = run_inline(build(config, directory.path), seconds=LIMIT_S).digest
    last = [found for found in list_checkpoints(directory.checkpoints) if found.scheduled][-1]
    for checkpoint in list_checkpoints(directory.checkpoints):
        if checkpoint.update > last.update:
            remove_folder(checkpoint.path)
    write_json(directory.resume_file, {"update": last.update, "exact": True})
    return digest


def test_points_are_the_same_in_every_placement_and_do_not_follow_the_end_of_the_run(tmp_path: Path) -> None:
    """A run of half the steps, which is then continued, has the values of the whole run."""
    folders = [tmp_path / name for name in ("one", "decentralized", "half", "native", "apart")]
    for folder in folders:
        folder.mkdir()
    by_points(folders[2], **TWO, run__steps=STEPS // 2)
    whole = by_points(folders[0], **TWO)
    assert by_points(folders[1], **RUNS["decentralized"]) == whole != ""
    assert by_points(folders[2], **TWO) == whole
    placed = [modes("synchronous", "synchronous", 2, workers) for workers in (0, 1)]
    assert by_points(folders[3], **placed[0]) == by_points(folders[4], **placed[1]) != ""


def test_more_collectors_do_not_end_the_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 40 rounds is resumed at its half, in rounds of four times the size."""
    seen: list[float] = []

    def recorded(rollouts: Sequence[Rollout]) -> Progress:
        progress = progress_of(rollouts)
        seen.append(progress.share)
        assert progress.env_steps == pytest.approx(progress.share * STEPS) or progress.share == 1.0
        return progress

    monkeypatch.setattr(hive.algorithms.ppo, "progress_of", recorded)
    options = {"run__scheme": '"ppo"', **PPO, "algorithm__target_kl": 0.0, **modes("synchronous", "synchronous", 1, 1)}
    config = config_of("small_environments:Drift", **options, checkpoint__every="{updates=120}", checkpoint__keep=1000)
    directory = RunDirectory.create(tmp_path, "test")
    run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert seen[:40] == pytest.approx([(number + 1) / 40 for number in range(40)])
    half = next(found for found in list_checkpoints(directory.checkpoints) if found.update == 120)
    for checkpoint in list_checkpoints(directory.checkpoints):
        if checkpoint.update > half.update:
            remove_folder(checkpoint.path)
    write_json(directory.resume_file, {"update": half.update, "exact": False})
    seen.clear()
    more = config_of("small_environments:Drift", **{**options, "collection__workers": 4})
    run_inline(build(more, directory.path), seconds=LIMIT_S)
    steps = int(half.state["env_steps"])
    assert seen == pytest.approx([min(1.0, (steps + 64 * (number + 1)) / STEPS) for number in range(len(seen))])
    assert len(seen) >= 5
