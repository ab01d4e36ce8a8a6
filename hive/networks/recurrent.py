"""Recurrent networks: an LSTM (Hochreiter and Schmidhuber 1997) between the layers and the heads.

    observations ─ layers ─ LSTM cell, row after row ─ heads
    recurrent_state ─────────┘          └──────────── recurrent_state

The recurrent state is an input and an output, never an attribute of the network. Training on a batch therefore does
not affect acting, and a repeated prediction gives the same result. The rows of a batch are T steps of B sequences,
time-major: row t * B + b is step t of sequence b. To act, pass one step: B rows and a state [B, ..].

    recurrent_state   float32 [B, state_width], the state before the first step: hidden values, then cell values.
                      Zeros at the beginning of an episode.
    episode_starts    uint8 [T * B], optional: 1 where a row is the first of an episode; the state before it is zeros.

The state after the last step, float32 [B, state_width], follows the outputs of the heads. Gradients do not flow into
the input state: backpropagation through time ends at the beginning of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hive.networks.heads import Head
from hive.networks.parameters import LSTMMiddlewareParameters

__all__ = ["EPISODE_STARTS", "RECURRENT_STATE", "RecurrentNetwork", "RecurrentNetworkPerHead", "lstm_cell"]

RECURRENT_STATE = "recurrent_state"
EPISODE_STARTS = "episode_starts"

# Initial bias of the forget gate, with which the cell remembers before it is trained (Jozefowicz et al. 2015, "An
# Empirical Exploration of Recurrent Network Architectures", 2.2).
FORGET_BIAS = 1.0


class RecurrentNetwork(nn.Module):
    """Layers, an LSTM cell, one linear layer for all heads, and the heads.

    Takes the mapping and returns the tuple that the module describes. `state_width` is 2 * cell.hidden_size.
    """

    def __init__(
        self, layers: Sequence[nn.Module], cell: nn.LSTMCell, output: nn.Module, heads: Sequence[Head], *, named: bool
    ) -> None:
        """named: the layers take a mapping from names to observations; otherwise they take the only one."""
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.cell = cell
        self.output = output
        self.heads = nn.ModuleList(heads)
        self.state_width = 2 * cell.hidden_size
        self._named = named
        self._widths = [head.width for head in heads]

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        observations = {k: v for k, v in inputs.items() if k not in (RECURRENT_STATE, EPISODE_STARTS)}
        features = self.layers(observations if self._named else next(iter(observations.values())))
        remembered, state = self._remember(features, inputs[RECURRENT_STATE], inputs.get(EPISODE_STARTS))
        columns = self.output(remembered).split_with_sizes(self._widths, -1)
        return (*(head(part) for head, part in zip(self.heads, columns, strict=True)), state)

    def _remember(self, features: Tensor, state: Tensor, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the hidden values after every row, [N, cells], and the state after the last step, [B, 2 * cells]."""
        hidden, cell = state.chunk(2, -1)
        steps = features.reshape(-1, len(state), features.shape[-1])
        kept = None if starts is None else (1.0 - starts.to(torch.float32)).view(len(steps), -1, 1)
        rows = []
        for step, row in enumerate(steps):
            if kept is not None:
                hidden, cell = hidden * kept[step], cell * kept[step]
            hidden, cell = self.cell(row, (hidden, cell))
            rows.append(hidden)
        return torch.cat(rows), torch.cat([hidden, cell], -1)


class RecurrentNetworkPerHead(nn.Module):
    """Several recurrent networks, `branches`, for the same inputs; their states are concatenated to one."""

    def __init__(self, branches: Sequence[RecurrentNetwork]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self._widths = [branch.state_width for branch in branches]
        self.state_width = sum(self._widths)

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        states = inputs[RECURRENT_STATE].split_with_sizes(self._widths, -1)
        results = [
            branch({**inputs, RECURRENT_STATE: state}) for branch, state in zip(self.branches, states, strict=True)
        ]
        return (*(output for result in results for output in result[:-1]), torch.cat([r[-1] for r in results], -1))


def lstm_cell(parameters: LSTMMiddlewareParameters, width: int, *, orthogonal: bool = True) -> nn.LSTMCell:
    """Returns an LSTM cell for `width` features: orthogonal weights per gate, biases 1 in the forget gate, else 0.

    orthogonal: False keeps the initial values of torch.nn.LSTMCell.
    """
    cells = parameters.number_of_lstm_cells
    cell = nn.LSTMCell(width, cells)
    if not orthogonal:
        return cell
    with torch.no_grad():
        for weight in (cell.weight_ih, cell.weight_hh):
            for gate in weight.chunk(4):
                nn.init.orthogonal_(gate)
        for bias in (cell.bias_ih, cell.bias_hh):
            bias.zero_()
        cell.bias_ih[cells : 2 * cells] = FORGET_BIAS  # torch's order of the gates: input, forget, cell, output
    return cell
