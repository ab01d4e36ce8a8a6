"""Stacks from rollouts that store each observation once, against the stacks that the policy saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hive.algorithms.batches.frames import StackedRows
from hive.algorithms.batches.rows import acted_inputs, evaluated, input_rows, network_input, row_counts
from hive.envs import FinalObservations, ObservationSpec, StepRow
from hive.experience import FINALS, LENGTH, Rollout, rollout_layout
from hive.networks import Categorical
from hive.policy.acting import Acting

STEPS, ENVS, STACK = 7, 3, 4
SEEN = ObservationSpec((2,), "float32", stack=STACK)


def collected(rng: np.random.Generator, count: int) -> tuple[list[Rollout], list[Any]]:
    """Return rollouts of random episodes, and what a policy saw in all rows of each, finals included."""
    rollouts, saw = [], []
    number = iter(range(1, 10**6))

    def some(envs: int) -> Any:
        return np.array([[next(number), -1] for _ in range(envs)], np.float32)

    current = some(ENVS)
    stack = Acting(torch.nn.Identity(), SEEN, Categorical(2))
    stack.begin(ENVS)
    stack.see(current)
    assert stack.frames is not None
    for _ in range(count):
        layout = rollout_layout(STEPS, ENVS, ((2,), "float32"), ((), "int64"), STEPS * ENVS, stack=STACK)
        arrays: dict[str, Any] = {name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.fields.items()}
        arrays["history"][...] = stack.frames[:, :-1].swapaxes(0, 1)
        arrays["observations"][0] = current
        finals = FinalObservations(arrays["final_observations"])
        seen, last = [stack.frames.copy()], []
        names = ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths", "final_index")
        length = int(rng.integers(1, STEPS + 1))
        for t in range(length):
            row = StepRow(arrays["observations"][t + 1], finals=finals, **{name: arrays[name][t] for name in names})
            row.valid[:] = rng.random(ENVS) > 0.1
            row.terminated[:] = (rng.random(ENVS) < 0.15) & row.valid
            row.truncated[:] = (rng.random(ENVS) < 0.15) & row.valid & (row.terminated == 0)
            row.final_index[:] = -1
            for env in np.flatnonzero(row.truncated):
                final = some(1)[0]
                row.final_index[env] = finals.add(final)
                last.append(np.concatenate([stack.frames[env, 1:], final[None]]))
            row.observations[...] = some(ENVS)
            stack.forget(row.ended)
            stack.see(row.observations)
            seen.append(stack.frames.copy())
        current = arrays["observations"][length].copy()
        arrays["header"][LENGTH], arrays["header"][FINALS] = length, finals.count
        rollouts.append(Rollout(arrays))
        saw += [*np.concatenate(seen), *last]
    return rollouts, saw


@pytest.mark.parametrize("seed", range(5))
def test_stacks_are_those_that_the_policy_saw(seed: int) -> None:
    rollouts, saw = collected(np.random.default_rng(seed), 4)
    frames = input_rows(rollouts)
    np.testing.assert_array_equal(frames.tensor().numpy(), np.stack(saw))
    assert len(frames) == sum(row_counts(rollouts))


def test_parts_of_the_stacks_are_those_of_all() -> None:
    rollouts, saw = collected(np.random.default_rng(1), 3)
    rows, every = input_rows(rollouts), torch.from_numpy(np.stack(saw))
    assert isinstance(rows, StackedRows)
    torch.testing.assert_close(network_input(rollouts, rows), every)
    chosen = torch.tensor([3, 0, 3])
    torch.testing.assert_close(rows.index_select(0, chosen), every[chosen])
    acted = acted_inputs(rows, row_counts(rollouts))
    kept = torch.arange(len(acted)) % 2 == 0
    torch.testing.assert_close(acted[kept].index_select(0, torch.tensor([1])), acted.index_select(0, torch.tensor([2])))
    (sums,) = evaluated(lambda some: (some.flatten(1).sum(1),), rollouts, rows)
    np.testing.assert_allclose(sums, every.flatten(1).sum(1))


def test_values_do_not_depend_on_how_many_stacks_are_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts, saw = collected(np.random.default_rng(2), 2)
    monkeypatch.setattr("hive.algorithms.batches.rows.STACKS", 4)
    calls = []

    def counted(some: torch.Tensor) -> tuple[torch.Tensor]:
        calls.append(len(some))
        return (some.flatten(1).sum(1),)

    (sums,) = evaluated(counted, rollouts, input_rows(rollouts))
    np.testing.assert_allclose(sums, np.stack(saw).sum((1, 2)))
    assert max(calls) == 4


def test_a_rollout_stores_each_observation_once() -> None:
    """With Atari's shapes a rollout without unexpected truncations is at most 1.1 times one frame per step."""
    steps, envs = 128, 16
    layout = rollout_layout(steps, envs, ((84, 84), "uint8"), ((), "int64"), 2 * envs, stack=4)
    assert layout.bytes - layout.sparse_bytes < 1.1 * steps * envs * 84 * 84
