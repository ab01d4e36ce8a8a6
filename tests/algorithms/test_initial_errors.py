"""The first TD errors of a rollout's steps, against a loop over each step."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hive.algorithms.batches.initial_errors import n_step_errors
from hive.networks.rows.normalization import clipped_rewards

DISCOUNT = 0.9


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 5), st.sampled_from([0.0, 9.0]))
def test_errors_are_those_of_a_loop(seed: int, steps: int, n_step: int, scale: float) -> None:
    """scale: that of normalised rewards, which are clipped."""
    chance = np.random.default_rng(seed)
    shape = steps, 2
    terminated = chance.random(shape) < 0.15
    rollout = {
        "rewards": chance.normal(size=shape).astype(np.float32),
        "terminated": terminated.astype(np.uint8),
        "truncated": ((chance.random(shape) < 0.15) & ~terminated).astype(np.uint8),
        "valid": (chance.random(shape) < 0.9).astype(np.uint8),
        "actions": chance.integers(0, 3, shape),
    }
    values = chance.normal(size=(*shape, 3)).astype(np.float32)
    errors = n_step_errors(rollout, values, n_step, DISCOUNT, scale)
    learned = clipped_rewards(rollout["rewards"], np.float32(scale)) if scale else rollout["rewards"]
    for t, env in np.ndindex(shape):
        total, row = 0.0, t
        while row < min(t + n_step, steps):
            total += DISCOUNT ** (row - t) * float(learned[row, env])
            row += 1
            if rollout["terminated"][row - 1, env] or rollout["truncated"][row - 1, env]:
                break
        ended = bool(rollout["terminated"][row - 1, env])
        unknown = (
            bool(rollout["truncated"][row - 1, env]) or (not ended and row - t < n_step) or (not ended and row == steps)
        )
        if unknown or not rollout["valid"][t:row, env].all():  # those of an agent that has no more turns
            assert math.isnan(errors[t, env])
            continue
        if not ended:
            total += DISCOUNT**n_step * float(values[row, env].max())
        assert math.isclose(
            errors[t, env], abs(total - float(values[t, env, rollout["actions"][t, env]])), abs_tol=1e-5
        )
