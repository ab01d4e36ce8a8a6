"""Data-parallel training: it learns, and results are bit-identical whichever process is killed."""

from __future__ import annotations

import functools

import data_parallel
import numpy as np
import pytest
import torch
from short_runs import bare_config, short_run, survived

import hive
from hive.config import Config
from hive.testing import run_inline

EASY = 0.6  # share of right answers, reached within 60 steps; guessing gives a third


def easy(config: Config) -> hive.Topology:
    t = data_parallel.topology(config)
    t["trainer"].parameters["goal"] = EASY
    return t


@functools.cache
def undisturbed() -> tuple[str, str]:
    outcome = run_inline(easy(bare_config()))
    return outcome.reason, outcome.digest


def test_it_learns_what_the_arms_are() -> None:
    summary, _ = short_run(data_parallel.topology, None)
    share, steps = float(summary.stop_reason.split("%")[0]), int(summary.stop_reason.split()[-2])
    assert share >= 98.0
    assert steps < 500
    produced = summary.channels["gradients"]["produced"]
    assert produced - sum(summary.channels["gradients"]["dropped"].values()) == 2 * steps


@pytest.mark.parametrize("seed", range(2))
def test_weights_are_bit_identical_after_kills(seed: int) -> None:
    outcome = survived(easy, seed, deaths=4, after=150).outcome
    assert outcome is not None
    assert sum(outcome.restarts.values()) >= 3
    assert (outcome.reason, outcome.digest) == undisturbed()


def test_the_parameters_come_from_the_config() -> None:
    summary, _ = short_run(data_parallel.topology, None, f"custom.trainer.goal={EASY}", "custom.workers.batch=16")
    assert 60.0 <= float(summary.stop_reason.split("%")[0]) < 90.0


def test_points_follow_from_their_seed() -> None:
    (points, arms), (again, _), (others, _) = (data_parallel.spirals(100, *seed) for seed in ((1, 2), (1, 2), (1, 3)))
    assert torch.equal(points, again)
    assert not torch.equal(points, others)
    assert points.dtype == torch.float32
    assert set(np.unique(arms)) == {0, 1, 2}
