"""Rows as sequences: where episodes cut them, and that a network computes them as one step after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.networks import (
    GRUMiddlewareParameters,
    LSTMMiddlewareParameters,
    NetworkParameters,
    Spaces,
    build_network,
)
from hive.networks.rows.inputs import RECURRENT_STATE, Fragments, Sequences, state_width_of

STEPS, COLUMNS, WIDTH = 7, 4, 3
RNG = np.random.default_rng(3)
STARTS = RNG.random((STEPS, COLUMNS)) < 0.3
FINALS = [(2, 1), (5, 0), (6, 3)]  # step and column of the row that each of these final observations follows
for step, column in FINALS[:2]:
    STARTS[step + 1, column] = True
ROWS = RNG.standard_normal((STEPS * COLUMNS + len(FINALS), WIDTH), dtype=np.float32)
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": {"middleware_parameters": LSTMMiddlewareParameters(widths=(5,), number_of_lstm_cells=6)},
    "gru": {"middleware_parameters": GRUMiddlewareParameters(widths=(5,), number_of_gru_cells=6)},
    "separate": {
        "middleware_parameters": LSTMMiddlewareParameters(widths=(), number_of_lstm_cells=6),
        "use_separate_networks_per_head": True,
    },
    "normalised": {"middleware_parameters": LSTMMiddlewareParameters(), "normalize_observations": True},
}


def network_of(kind: str) -> Any:
    spaces = Spaces({"observation": ObservationSpec((WIDTH,), "float32")}, Discrete(2))
    network = build_network(NetworkParameters(**NETWORKS[kind]), spaces, torch.Generator().manual_seed(0))
    if kind == "normalised":
        network.normalizer.shift.fill_(0.5)
        network.normalizer.scale.fill_(2.0)
    return network


def sequences_of(state: Tensor) -> Sequences:
    finals = STEPS * COLUMNS + np.arange(len(FINALS))
    follow = np.array([step * COLUMNS + column for step, column in FINALS])
    fragments = Fragments.between(STARTS).sorted()
    return fragments.sequences(torch.from_numpy(ROWS), state, (finals, follow))


def one_by_one(network: Any, state: Tensor) -> tuple[Tensor, ...]:
    """The same by a call of the network for each step, with the states set to zeros at the starts."""
    outputs, states = [], []
    for step in range(STEPS):
        if step:
            state = state * torch.from_numpy(~STARTS[step]).unsqueeze(1)
        rows = torch.from_numpy(ROWS[step * COLUMNS : (step + 1) * COLUMNS])
        *result, state = network({"observation": rows, RECURRENT_STATE: state})
        outputs.append(result)
        states.append(state)
    before = torch.stack([states[step][column] for step, column in FINALS])
    *result, _ = network({"observation": torch.from_numpy(ROWS[STEPS * COLUMNS :]), RECURRENT_STATE: before})
    return tuple(torch.cat(parts) for parts in zip(*outputs, result, strict=True))


def gradients(network: Any, outputs: tuple[Tensor, ...]) -> list[Tensor]:
    network.zero_grad()
    sum((output * torch.linspace(-1, 2, output.numel()).view(output.shape)).sum() for output in outputs).backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


@pytest.mark.parametrize("kind", NETWORKS)
def test_all_rows_at_once_are_the_steps_one_by_one(kind: str) -> None:
    """Outputs and gradients, over episode starts and final observations."""
    network = network_of(kind)
    state = torch.randn(COLUMNS, state_width_of(network), generator=torch.Generator().manual_seed(1))
    at_once, steps = network(sequences_of(state)), one_by_one(network, state)
    for one, other in zip(at_once, steps, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    for one, other in zip(gradients(network, at_once), gradients(network, steps), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_rows_are_cut_where_an_episode_starts() -> None:
    starts = np.array([[1, 0], [0, 0], [1, 0], [1, 0]], np.bool_)
    fragments = Fragments.between(starts, row=10, column=5)
    assert fragments.first.tolist() == [10, 14, 16, 11]
    assert fragments.length.tolist() == [2, 1, 1, 4]
    assert fragments.last.tolist() == [12, 14, 16, 17]
    assert fragments.column.tolist() == [5, 5, 5, 6]
    assert fragments.continues.tolist() == [1, 0, 0, 1]


def test_packed_rows_are_step_by_step_of_the_longest_first() -> None:
    fragments = Fragments.between(np.array([[1, 0], [0, 0], [1, 0], [1, 0]], np.bool_)).sorted()
    rows, sizes = fragments.packed()
    assert sizes.tolist() == [4, 2, 1, 1]
    assert rows.tolist() == [1, 0, 4, 6, 3, 2, 5, 7]


def test_rows_without_a_start_are_not_reordered() -> None:
    sequences = Fragments.between(np.zeros((3, 2), np.bool_)).sorted().sequences(torch.zeros(6, 1), torch.ones(2, 4))
    assert (sequences.rows, sequences.order, sequences.finals) == (None, None, None)
    assert sequences.sizes.tolist() == [2, 2, 2]
    assert bool((sequences.state == 1).all())


def test_a_fragment_begins_with_the_stored_state_or_with_zeros() -> None:
    state = torch.arange(1.0, 3.0).unsqueeze(1)
    fragments = Fragments.between(np.array([[1, 1], [0, 1]], np.bool_))
    assert fragments.initial(state).tolist() == [[1.0], [2.0], [0.0]]


def test_a_tensor_instead_of_sequences_is_refused() -> None:
    with pytest.raises(Exception, match="called without its state"):
        network_of("lstm")(torch.zeros(2, WIDTH))
