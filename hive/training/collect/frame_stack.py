"""The last k observations of each environment, for a policy that sees them all (`env.frame_stack = k`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hive.envs import ObservationSpec, StepRow

__all__ = ["FrameStack"]


class FrameStack:
    """`frames` [B, k, *shape], oldest first; zeros for observations before the beginning of an episode.

    seen: a tensor of the same memory.
    """

    def __init__(self, observation: ObservationSpec, first: NDArray[Any]) -> None:
        """first: the first observations of B episodes, [B, *shape]."""
        self.frames = np.zeros((len(first), observation.stack, *observation.shape), observation.dtype)
        self.frames[:, -1] = first
        self.seen = torch.from_numpy(self.frames)

    @classmethod
    def of(cls, observation: ObservationSpec, first: NDArray[Any]) -> FrameStack | None:
        """Return a stack that begins with `first`, or None for a policy that sees one observation."""
        return cls(observation, first) if observation.stack > 1 else None

    def push(self, row: StepRow) -> None:
        """Add the observations of a step. Where an episode ended, they are the only ones of the next episode."""
        frames = self.frames
        frames[:, :-1] = frames[:, 1:]
        frames[row.ended] = 0
        frames[:, -1] = row.observations
