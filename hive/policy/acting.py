"""A network that acts for B rows, and what it remembers of each: its recurrent state and its last observations.

    acting = Acting(network, observation, distribution)
    acting.begin(B)                          every row is before an episode
    acting.see(observations)                 what the rows act on next
    outputs = acting.outputs(observations)   of all rows, or of those whose turn it is
    acting.forget(ended)                     these rows are before an episode again

Collectors, evaluators, recorders and loaded policies all act with it. Before an episode the state is zeros, and so are
the observations that a stack lacks. Rows that do not act keep what they remember.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import ObservationSpec
from hive.networks.act.distributions import ActionDistribution
from hive.networks.act.native_acting import NativeActing
from hive.networks.build.agents import AgentNetwork
from hive.networks.rows.inputs import Memory
from hive.networks.weights.dense import Dense

Rows = NDArray[np.int64] | slice
ALL = slice(None)


class Acting:
    """See the module.

    network: its first output, from observations, is what `distribution` makes actions of. place: makes the weights of
    a block those of the network; None: of a network whose weights stay. natively: whether it fills rollouts, with
    `native` where that chooses actions in native calls; None: torch or Python has a part in every action.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        observation: ObservationSpec,
        distribution: ActionDistribution,
        place: Callable[[NDArray[np.uint8]], None] | None = None,
        *,
        natively: bool = False,
    ) -> None:
        self.network = network
        self.observation = observation
        self.distribution = distribution
        self.native = NativeActing.of(network, distribution, observation) if natively else None
        self.weights: NDArray[np.uint8] | None = None  # set by `bind`
        self._place = place
        self._is_bound = True  # whether torch's network has them
        actor = network.actor if isinstance(network, AgentNetwork) else network
        dense = getattr(actor, "dense", None)
        self._dense = dense if isinstance(dense, Dense) else None  # a user's module may have what it calls so
        self.begin(0)

    @classmethod
    def of(cls, policy: Any) -> Acting:
        """Return what acts as a loaded policy does. policy: it has a network, an observation and a distribution."""
        return cls(policy.network, policy.observation, policy.distribution)

    def bind(self, weights: NDArray[np.uint8]) -> None:
        """Act with these weights from now on: uint8 [block_bytes], read in place."""
        self.weights, self._is_bound = weights, False
        if self.native is None or self.native.reads_buffers:
            self.bind_network()

    def bind_network(self) -> None:
        """Bind torch's network, too: native actions of a rollout of one step take less time than that."""
        if not self._is_bound and self._place is not None and self.weights is not None:
            self._place(self.weights)
            self._is_bound = True

    def begin(self, count: int) -> None:
        """Act for `count` rows, all before an episode."""
        spec = self.observation
        self.count = count
        self.memory = Memory.of(self.network, count)
        self.frames: NDArray[Any] | None = None  # [B, k, *shape], oldest first
        if spec.stack > 1:
            self.frames = np.zeros((count, spec.stack, *spec.shape), spec.dtype)
            self._seen = torch.from_numpy(self.frames)

    @property
    def remembers(self) -> bool:
        """Whether actions depend on more than the observations that `outputs` gets."""
        return self.memory is not None or self.frames is not None

    def see(self, observations: NDArray[Any], rows: Rows = ALL) -> None:
        """Add the observations [B, ...] of these rows to those that the policy sees."""
        if self.frames is not None:
            self.frames[rows, :-1] = self.frames[rows, 1:]
            self.frames[rows, -1] = observations[rows]

    def forget(self, ended: NDArray[np.bool_] | NDArray[np.int64]) -> None:
        """Forget the episodes of these rows: bool [B], or their numbers."""
        if self.memory is not None:
            self.memory.forget(ended)
        if self.frames is not None:
            self.frames[ended] = 0

    def outputs(
        self, observations: NDArray[Any], rows: NDArray[np.int64] | None = None, seen: torch.Tensor | None = None
    ) -> NDArray[np.float32]:
        """Return the policy's outputs [n, ...] for these rows of stored observations [B, ...], without gradients.

        rows: None: all. seen: a tensor of the memory of `observations`, if there is one.
        """
        if rows is None and not self.remembers and self._dense is not None:
            outputs = self._dense.act(observations)
            if outputs is not None:
                return outputs
        if seen is None:
            seen = torch.from_numpy(observations)
        inputs = seen if self.frames is None else self._seen
        if rows is not None:
            inputs = inputs[torch.from_numpy(rows)]
        found = self.network(inputs) if self.memory is None else self.memory(inputs, rows)
        return cast(torch.Tensor, found[0]).numpy()

    def actions(
        self,
        observations: NDArray[Any],
        rows: NDArray[np.int64] | None = None,
        noise: np.random.Generator | None = None,
    ) -> NDArray[Any]:
        """Return stored actions [n, ...] of these rows: the most likely ones, or with `noise` sampled ones."""
        outputs = self.outputs(observations, rows)
        if noise is None:
            return self.distribution.mode(torch.from_numpy(outputs)).numpy()
        drawn = self.distribution.draw_noise(noise, self.count)
        if rows is None:
            return self.distribution.sample_numpy(outputs, drawn)
        every = np.zeros((self.count, *outputs.shape[1:]), outputs.dtype)  # since exploration is by row
        every[rows] = outputs
        return self.distribution.sample_numpy(every, drawn)[rows]

    @property
    def remembered(self) -> list[NDArray[Any]]:
        """What the rows remember, [B, ...] each: the observations before the next one, the recurrent state."""
        history = [] if self.frames is None else [self.frames[:, 1:]]
        return history + ([] if self.memory is None else [self.memory.state.numpy()])

    def recall(self, remembered: list[NDArray[Any]]) -> None:
        """Continue from what `remembered` has returned."""
        for own, given in zip(self.remembered, remembered, strict=True):
            own[...] = given
