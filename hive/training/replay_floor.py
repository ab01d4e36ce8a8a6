"""Which rows of a replay memory a checkpoint still needs, in a block that the recorder writes and the learner reads.

The ledger that the rows belong to is written after them, and read before and after them. So the learner never takes the
rows of an earlier checkpoint, or of an attempt that failed, for those of this one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NO_LEDGER = -1

Words = NDArray[np.int64]  # [1 + S] of S sources: `hive.training.messages.ReplayFloor`


def write_floor(words: Words, ledger: int, first: Sequence[int]) -> None:
    """Write the first row of each source that the checkpoint of this ledger still needs."""
    words[1:] = first
    words[0] = ledger


def clear_floor(words: Words) -> None:
    """Note that no checkpoint is being written: the next one may be of the same ledger."""
    words[0] = NO_LEDGER


def read_floor(words: Words, ledger: int) -> Sequence[int] | None:
    """Return the first row of each source that the checkpoint of this ledger still needs; None if it has not begun."""
    if int(words[0]) != ledger:
        return None
    first: list[int] = words[1:].tolist()
    return first if int(words[0]) == ledger else None
