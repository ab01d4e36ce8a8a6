"""Networks with an LSTM or a GRU: the state as input and output, and equality with one long batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from hive.compat.coach.torch_architecture import TorchArchitecture
from hive.compat.coach.wrapper import NetworkWrapper
from hive.envs.spaces.actions import Discrete
from hive.envs.spaces.observation import ObservationSpec
from hive.errors import NetworkError
from hive.networks import GRUMiddlewareParameters, HeadParameters, LSTMMiddlewareParameters, NetworkParameters, Spaces
from hive.networks.rows.recurrent import RecurrentNetwork, recurrent_cell

STEPS, SEQUENCES, CELLS = 5, 3, 6
SPACES = Spaces({"observation": ObservationSpec((4,), "float32")}, Discrete(2))
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((STEPS, SEQUENCES, 4), dtype=np.float32)
BATCH = ROWS.reshape(-1, 4)
KINDS: dict[str, Any] = {
    "lstm": LSTMMiddlewareParameters(widths=(8,), number_of_lstm_cells=CELLS),
    "gru": GRUMiddlewareParameters(widths=(8,), number_of_gru_cells=CELLS),
}

every_kind = pytest.mark.parametrize("kind", KINDS)


def architecture(spaces: Spaces = SPACES, kind: str = "lstm", **parameters: Any) -> TorchArchitecture:
    parameters = {"middleware_parameters": KINDS[kind], **parameters}
    return TorchArchitecture(NetworkParameters(**parameters), spaces, "main/online")


def step_by_step(network: TorchArchitecture, starts: np.ndarray | None = None) -> list[np.ndarray]:
    """All outputs and the last state, of one prediction a step, the state carried by hand."""
    state = network.initial_state(SEQUENCES)
    policies, values = [], []
    for step, row in enumerate(ROWS):
        if starts is not None:
            state = state * (1 - starts[step])[:, None].astype(np.float32)
        policy, value, state = network.predict({"observation": row, "recurrent_state": state})
        policies.append(policy)
        values.append(value)
    return [np.concatenate(policies), np.concatenate(values), state]


@every_kind
def test_a_batch_of_steps_is_the_steps_one_by_one(kind: str) -> None:
    network = architecture(kind=kind)
    at_once = network.predict({"observation": BATCH, "recurrent_state": network.initial_state(SEQUENCES)})
    for one, other in zip(at_once, step_by_step(network), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@every_kind
def test_the_state_matters_and_is_reset_at_the_start_of_an_episode(kind: str) -> None:
    network = architecture(kind=kind)
    starts = np.zeros((STEPS, SEQUENCES), np.uint8)
    starts[2, 1] = 1
    inputs = {"observation": BATCH, "recurrent_state": network.initial_state(SEQUENCES)}
    plain, begun = network.predict(inputs), network.predict({**inputs, "episode_starts": starts.reshape(-1)})
    for one, other in zip(begun, step_by_step(network, starts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    differs = np.abs(begun[1] - plain[1]).reshape(STEPS, SEQUENCES) > 1e-7
    assert differs.any(axis=0).tolist() == [False, True, False]
    assert differs[:, 1].tolist() == [False, False, True, True, True]


@every_kind
def test_the_cell_is_torchs(kind: str) -> None:
    cell = recurrent_cell(KINDS[kind], 4)
    layer = torch.nn.LSTM(4, CELLS) if kind == "lstm" else torch.nn.GRU(4, CELLS)
    layer.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    network = RecurrentNetwork([], cell, torch.nn.Identity(), [], named=False)
    features = torch.from_numpy(ROWS)
    zeros = torch.zeros(SEQUENCES, network.state_width)
    rows, state = network._over_steps(features.reshape(-1, 4), zeros, None)
    expected, last = layer(features)
    torch.testing.assert_close(rows.view(STEPS, SEQUENCES, CELLS), expected)
    torch.testing.assert_close(state, torch.cat([part[0] for part in last], -1) if kind == "lstm" else last[0])


@every_kind
@pytest.mark.parametrize("dense_last", [False, True])
def test_dense_layers_are_before_or_after_the_cell(kind: str, dense_last: bool) -> None:
    network = architecture(middleware_parameters=dataclasses.replace(KINDS[kind], dense_last=dense_last)).module
    assert network.cell.input_size == (4 if dense_last else 8)
    layers = [layer for layer in network.output.modules() if isinstance(layer, torch.nn.Linear)]
    assert [layer.in_features for layer in layers] == ([CELLS, 8] if dense_last else [CELLS])


def test_it_learns_a_task_that_needs_memory() -> None:
    """The target of every step is the first observation's sign; later observations are zero."""
    network = architecture(heads_parameters=[HeadParameters("value")], learning_rate=0.02)
    signs = np.float32([1.0, -1.0, 1.0])
    rows = np.zeros((STEPS, SEQUENCES, 4), np.float32)
    rows[0, :, 0] = signs
    inputs = {"observation": rows.reshape(-1, 4), "recurrent_state": network.initial_state(SEQUENCES)}
    targets = np.tile(signs, STEPS)
    losses = [network.train_on_batch(inputs, targets)[0] for _ in range(150)]
    assert losses[-1] < 0.02 < 0.5 < losses[0]


@pytest.mark.parametrize("separate", [False, True])
def test_several_inputs_and_separate_networks(separate: bool) -> None:
    spaces = Spaces({"b": ObservationSpec((3,), "uint8"), "a": ObservationSpec((4,), "float32")}, Discrete(2))
    network = architecture(spaces, use_separate_networks_per_head=separate)
    assert network.state_width == 2 * CELLS * (2 if separate else 1)
    inputs = {
        "a": BATCH,
        "b": np.ones((len(BATCH), 3), np.uint8),
        "recurrent_state": network.initial_state(SEQUENCES),
        "output_0_0": np.zeros(len(BATCH), np.int64),
    }
    policy, value, state = network.predict(inputs)
    assert (policy.shape, value.shape, state.shape) == ((15, 2), (15,), (SEQUENCES, network.state_width))
    total, losses, *_ = network.train_on_batch(inputs, [value + 1, value + 1])
    assert np.isfinite(total)
    assert len(losses) == 2
    if separate:
        assert not np.allclose(state[:, : 2 * CELLS], state[:, 2 * CELLS :])


def test_inputs_of_one_network_are_not_run_together() -> None:
    """Rows of a recurrent batch belong together: two pairs are two calls."""
    network = architecture()
    pairs: list[Any] = [
        (network, {"observation": ROWS[0], "recurrent_state": network.initial_state(SEQUENCES)}),
        (network, {"observation": ROWS[1], "recurrent_state": network.initial_state(SEQUENCES)}),
    ]
    outputs = TorchArchitecture.parallel_predict(None, pairs)
    expected = [output for _, inputs in pairs for output in network.predict(inputs)]
    assert all(np.array_equal(one, other) for one, other in zip(outputs, expected, strict=True))


def test_inputs_that_do_not_fit_are_refused() -> None:
    middleware = LSTMMiddlewareParameters(number_of_lstm_cells=CELLS)
    copies = NetworkWrapper(NetworkParameters(middleware_parameters=middleware), False, False, "main", SPACES)
    with pytest.raises(NetworkError, match="cannot be split into batches"):
        copies.train_in_batches({"observation": BATCH}, [np.zeros(15, np.float32)] * 2)
