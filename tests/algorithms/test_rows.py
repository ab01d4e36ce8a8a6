"""Rollouts of different sizes as one batch of rows, and back: every row carries its own number, so none can hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hive.algorithms.batches.rows import flat, input_rows, row_counts, unflat, values_of, weights
from hive.algorithms.losses.actor_critic import acted_rows
from hive.experience import FINALS, LENGTH, Rollout, rollout_layout


def numbered(
    start: int, steps: int, envs: int, cuts: tuple[tuple[int, int], ...] = (), length: int | None = None
) -> Rollout:
    """The observation of input row n of this rollout is `start + n`; `cuts` are its truncated (t, b)."""
    layout = rollout_layout(steps, envs, ((), "float32"), ((), "int64"), steps * envs)
    arrays: dict[str, NDArray[Any]] = layout.views(np.full(layout.bytes, 0xFF, np.uint8))  # NaN, -1, true
    length = steps if length is None else length
    arrays["header"][[LENGTH, FINALS]] = length, len(cuts)
    rows = (length + 1) * envs
    arrays["observations"][: length + 1] = np.arange(start, start + rows).reshape(length + 1, envs)
    arrays["final_observations"][: len(cuts)] = np.arange(start + rows, start + rows + len(cuts))
    for number, cut in enumerate(cuts):
        arrays["final_index"][cut] = number
    arrays["rewards"][:length] = arrays["observations"][:length]
    arrays["valid"][:length] = 1
    return Rollout(arrays)


def one() -> list[Rollout]:
    """Input rows 0..7: six acted, two that bootstrap."""
    return [numbered(0, 3, 2)]


def three() -> list[Rollout]:
    """Input rows 0..9 with two final ones, 10..12 of an empty rollout, 13..20 of a partial one with one final."""
    return [
        numbered(0, 3, 2, cuts=((0, 1), (2, 0))),
        numbered(10, 4, 3, length=0),
        numbered(13, 9, 1, cuts=((3, 0),), length=6),
    ]


ACTED = [*range(6), *range(13, 19)]  # indices of the acted rows of three()


def test_inputs_are_rows_then_final_observations_of_each_rollout() -> None:
    assert input_rows(one()).tolist() == list(range(8))
    assert input_rows(three()).tolist() == list(range(21))


def test_inputs_of_one_rollout_are_not_copied() -> None:
    rollouts = one()
    assert np.shares_memory(input_rows(rollouts).numpy(), rollouts[0].observations)


@pytest.mark.parametrize("trailing", [(), (4,)])
def test_acted_rows_are_those_with_an_action(trailing: tuple[int, ...]) -> None:
    outputs = torch.arange(21.0).reshape(-1, *(1 for _ in trailing)).expand(-1, *trailing)
    picked = acted_rows(outputs, row_counts(three()))
    assert picked.shape == (12, *trailing)
    assert torch.equal(picked, outputs[ACTED])
    assert torch.equal(acted_rows(outputs[:8], row_counts(one())), outputs[:6])


def test_gradients_go_to_acted_rows_alone() -> None:
    outputs = torch.zeros(21, requires_grad=True)
    (acted_rows(outputs, row_counts(three())) * torch.arange(1.0, 13.0)).sum().backward()
    expected = torch.zeros(21)
    expected[ACTED] = torch.arange(1.0, 13.0)
    assert outputs.grad is not None
    assert torch.equal(outputs.grad, expected)


def test_flat_has_the_order_of_acted_rows() -> None:
    rollouts = three()
    assert flat([rollout.rewards for rollout in rollouts]).tolist() == ACTED
    assert flat([np.zeros((3, 2, 5)), np.zeros((1, 4, 5))]).shape == (10, 5)


def test_flat_of_one_is_not_copied() -> None:
    (rollout,) = one()
    assert np.shares_memory(flat([rollout.rewards]), rollout.rewards)


@pytest.mark.parametrize("make", [one, three])
def test_unflat_undoes_flat_without_a_copy(make: Any) -> None:
    rollouts = make()
    rows = flat([rollout.rewards for rollout in rollouts])
    parts = unflat(rollouts, rows)
    assert len(parts) == len(rollouts)
    for part, rollout in zip(parts, rollouts, strict=True):
        np.testing.assert_array_equal(part, rollout.rewards)
        assert part.flags.c_contiguous
        assert np.shares_memory(part, rows) or not part.size


def test_values_of_states_and_their_successors() -> None:
    rollouts = three()
    values = np.arange(21, dtype=np.float32) * 10
    (first, mine, following), (_, empty, nothing), (_, last, after) = values_of(rollouts, values)
    assert first is rollouts[0]
    assert mine.tolist() == [[0, 10], [20, 30], [40, 50]]
    assert following.tolist() == [[20, 80], [40, 50], [90, 70]]  # 80 and 90 are of the two final observations
    assert empty.shape == nothing.shape == (0, 3)
    assert last[:, 0].tolist() == [130, 140, 150, 160, 170, 180]
    assert after[:, 0].tolist() == [140, 150, 160, 200, 180, 190]
    assert all(part.flags.c_contiguous for part in (mine, following, last, after))
    assert values.tolist() == list(range(0, 210, 10))


def test_values_may_be_a_column_of_the_outputs() -> None:
    """The native part takes contiguous arrays only."""
    column = np.arange(16, dtype=np.float32).reshape(8, 2)[:, 1]
    ((_, mine, following),) = values_of(one(), column)
    assert mine.tolist() == [[1, 3], [5, 7], [9, 11]]
    assert following.tolist() == [[5, 7], [9, 11], [13, 15]]
    assert mine.flags.c_contiguous


def test_weights_make_a_mean_over_the_valid_steps() -> None:
    rollouts = three()
    rollouts[0].valid[1, 0] = 0
    rollouts[2].valid[5, 0] = 7  # any value but 0 is true
    weight = weights(rollouts, 11)
    assert weight.dtype == torch.float32
    assert weight[2] == 0.0
    kept = [row for row in ACTED if row != 2]
    rows = torch.from_numpy(flat([rollout.rewards for rollout in rollouts]))
    assert (weight * rows).sum().item() == pytest.approx(np.mean(kept))
