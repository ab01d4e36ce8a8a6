"""Recurrent networks: an LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014) between layers and heads.

    observations ─ layers ─ cell, row after row ─ layers ─ heads
    recurrent_state ─────────┘       └──────────── recurrent_state

In a run the cell follows the layers of the observation and precedes the dense ones, as in SB3-Contrib; Coach has all
layers before it. The cell has torch's initial weights in both. With orthogonal weights and a bias of 1 in the forget
gate (Jozefowicz et al. 2015) PPO learned CartPole without velocities more slowly: the mean return after 25,000 steps
was 68 instead of 105, and 104 without that bias (64 cells, one seed).

The recurrent state is an input and an output, never an attribute of the network. Training on a batch therefore does
not affect acting, and a repeated prediction gives the same result. There are two kinds of input.

A mapping, to act and in scripts. The rows of a batch are T steps of B sequences, time-major: row t * B + b is step t of
sequence b. To act, pass one step: B rows and a state [B, ..]. The state after the last step, float32 [B, state_width],
follows the outputs of the heads.

    recurrent_state   float32 [B, state_width], the state before the first step: hidden values, then an LSTM's cell
                      values. Zeros at the beginning of an episode.
    episode_starts    uint8 [T * B], optional: 1 where a row is the first of an episode; the state before it is zeros.

`Sequences`, to train in a run: rows of several rollouts with their final observations. Only outputs of the heads are
returned, in the order of the rows, as from any other network.

Several steps are one call of torch's kernel for packed sequences, which makes one product for all inputs and one for
each step of all fragments. On one core it is five times as fast as a loop over the cell, forward and backward (128
steps of 8 sequences, 256 cells). Gradients do not flow into the input state: backpropagation through time ends at the
beginning of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.build.heads import Head, takes_features
from hive.networks.build.parameters import GRUMiddlewareParameters, LSTMMiddlewareParameters
from hive.networks.rows.inputs import EPISODE_STARTS, RECURRENT_STATE, Fragments, Sequences

RecurrentCell = nn.LSTMCell | nn.GRUCell
RecurrentInputs = Mapping[str, Tensor] | Sequences


class RecurrentNetwork(nn.Module):
    """Layers, a cell, an output module with a column for each number that a head takes, and the heads.

    Takes a mapping or Sequences, and returns the tuple that the module describes. `state_width` is 2 *
    cell.hidden_size with an LSTM, cell.hidden_size with a GRU.
    """

    def __init__(
        self, layers: Sequence[nn.Module], cell: RecurrentCell, output: nn.Module, heads: Sequence[Head], *, named: bool
    ) -> None:
        """named: the layers take a mapping from names to observations; otherwise they take the only one."""
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.cell = cell
        self.output = output
        self.heads = nn.ModuleList(heads)
        self.state_width = cell.hidden_size * (2 if isinstance(cell, nn.LSTMCell) else 1)
        self._named = named
        self._widths = [head.width for head in heads]
        self._output_layers = tuple(output) if isinstance(output, nn.Sequential) else (output,)
        last = self._output_layers[-1]
        self._take_features = takes_features(heads, last.in_features if isinstance(last, nn.Linear) else 0)

    def forward(self, inputs: RecurrentInputs) -> tuple[Tensor, ...]:
        if isinstance(inputs, Sequences):
            return self._outputs(self._over_fragments(self.layers(inputs.observation), inputs)[0])
        features, state = self.layers(self._observations(inputs)), inputs[RECURRENT_STATE]
        starts = inputs.get(EPISODE_STARTS)
        if torch.onnx.is_in_onnx_export() or len(features) == len(state):  # an exported policy makes one step
            if starts is not None:
                state = state * (1.0 - starts.to(torch.float32)).unsqueeze(1)
            hidden, state = _one_step(self.cell, features, state)
        else:
            hidden, state = self._over_steps(features, state, starts)
        return (*self._outputs(hidden), state)

    def _observations(self, inputs: Mapping[str, Tensor]) -> Any:
        if not isinstance(inputs, Mapping) or RECURRENT_STATE not in inputs:
            raise NetworkError(
                "a recurrent network is called without its state",
                hint=f"pass Sequences, or a mapping with `{RECURRENT_STATE}`, float32 [B, {self.state_width}]",
            )
        observations = {k: v for k, v in inputs.items() if k not in (RECURRENT_STATE, EPISODE_STARTS)}
        return observations if self._named else next(iter(observations.values()))

    def _outputs(self, hidden: Tensor) -> tuple[Tensor, ...]:
        features, columns = hidden, hidden
        for layer in self._output_layers:
            features, columns = columns, layer(columns)
        parts = zip(self.heads, columns.split_with_sizes(self._widths, -1), self._take_features, strict=True)
        return tuple(head(part, features) if takes else head(part) for head, part, takes in parts)

    def _over_steps(self, features: Tensor, state: Tensor, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the hidden values after every row, [N, cells], and the state after the last step, [B, state_width]."""
        columns = len(state)
        steps = len(features) // columns
        zeros = np.zeros((steps, columns), np.bool_)
        if starts is not None:
            begun = starts.numpy().reshape(zeros.shape) != 0
            zeros, state = begun, state * torch.from_numpy(~begun[:1].T).to(state.dtype)
        fragments = Fragments.between(zeros).sorted()
        hidden, ends = self._over_fragments(features, fragments.sequences(features, state))
        # The fragment that ends in the last row of each column.
        at_the_end = np.flatnonzero(fragments.last >= (steps - 1) * columns)
        order = at_the_end[np.argsort(fragments.column[at_the_end])]
        return hidden, ends.index_select(0, torch.from_numpy(order))

    def _over_fragments(self, features: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Return the hidden values of all rows, [N, cells], and the state at the end of each fragment, [K, S]."""
        rows, finals, after = sequences.rows, sequences.finals, sequences.after
        packed = features if rows is None else features.index_select(0, rows)
        hidden, ends = _all_steps(self.cell, packed, sequences.sizes, sequences.state)
        if finals is not None and after is not None:
            last, _ = _one_step(self.cell, features.index_select(0, finals), ends.index_select(0, after))
            hidden = torch.cat([hidden, last])
        return hidden if sequences.order is None else hidden.index_select(0, sequences.order), ends


class RecurrentNetworkPerHead(nn.Module):
    """Several recurrent networks, `branches`, for the same inputs; their states are concatenated to one."""

    def __init__(self, branches: Sequence[RecurrentNetwork]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self._widths = [branch.state_width for branch in branches]
        self.state_width = sum(self._widths)

    def forward(self, inputs: RecurrentInputs) -> tuple[Tensor, ...]:
        if isinstance(inputs, Sequences):
            states = inputs.state.split_with_sizes(self._widths, -1)
            return tuple(
                output
                for branch, state in zip(self.branches, states, strict=True)
                for output in branch(inputs.starting_from(state))
            )
        states = inputs[RECURRENT_STATE].split_with_sizes(self._widths, -1)
        results = [
            branch({**inputs, RECURRENT_STATE: state}) for branch, state in zip(self.branches, states, strict=True)
        ]
        return (*(output for result in results for output in result[:-1]), torch.cat([r[-1] for r in results], -1))


def recurrent_cell(parameters: LSTMMiddlewareParameters | GRUMiddlewareParameters, width: int) -> RecurrentCell:
    """Return a cell for `width` features, with torch's initial weights."""
    if isinstance(parameters, GRUMiddlewareParameters):
        return nn.GRUCell(width, parameters.number_of_gru_cells)
    return nn.LSTMCell(width, parameters.number_of_lstm_cells)


def _one_step(cell: RecurrentCell, rows: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden values [B, cells] and the state [B, S] after one step of B sequences."""
    if isinstance(cell, nn.GRUCell):
        hidden = cell(rows, state)
        return hidden, hidden
    hidden, memory = cell(rows, state.chunk(2, -1))
    return hidden, torch.cat([hidden, memory], -1)


def _all_steps(cell: RecurrentCell, rows: Tensor, sizes: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the hidden values [M, cells] of packed rows, and the state [K, S] after the last row of each fragment."""
    weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    # Further arguments: with biases, one layer, no dropout, whether a graph is made, one direction.
    options = (weights, True, 1, 0.0, torch.is_grad_enabled(), False)
    if isinstance(cell, nn.GRUCell):
        hidden, last = torch.gru(rows, sizes, state.unsqueeze(0), *options)
        return hidden, last[0]
    begin = tuple(part.contiguous().unsqueeze(0) for part in state.chunk(2, -1))
    hidden, last, memory = torch.lstm(rows, sizes, begin, *options)
    return hidden, torch.cat([last[0], memory[0]], -1)
