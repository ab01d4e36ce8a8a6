"""Evolution strategies: returns rise, and the policy is bit-identical whichever process is killed."""

from __future__ import annotations

import functools

import evolution
import numpy as np
import pytest
from short_runs import bare_config, short_run, survived

import hive
from hive.config import Config
from hive.testing import run_inline

HALF_WAY = 120.0  # the first generation has a mean of about 20


def half_way(config: Config) -> hive.Topology:
    t = evolution.topology(config)
    t["breeder"].parameters["goal"] = HALF_WAY
    return t


@functools.cache
def undisturbed() -> tuple[str, str]:
    outcome = run_inline(half_way(bare_config()))
    return outcome.reason, outcome.digest


def test_it_evolves_a_policy() -> None:
    summary, _ = short_run(evolution.topology, None, "custom.breeder.goal=400.0")
    words = summary.stop_reason.split()
    assert float(words[2]) >= 400.0
    assert 2 <= int(words[4]) <= 10


@pytest.mark.rotates
@pytest.mark.parametrize("seed", range(2))
def test_policies_are_bit_identical_after_kills(seed: int) -> None:
    outcome = survived(half_way, seed, deaths=4, after=300).outcome
    assert outcome is not None
    assert sum(outcome.restarts.values()) >= 3
    assert (outcome.reason, outcome.digest) == undisturbed()


def test_noise_follows_from_its_numbers() -> None:
    assert np.array_equal(evolution.noise(1, 2, 3), evolution.noise(1, 2, 3))
    assert not np.array_equal(evolution.noise(1, 2, 3), evolution.noise(1, 3, 2))
