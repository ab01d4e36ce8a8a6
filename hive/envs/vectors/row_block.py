"""The memory of one row of B environments that several processes share, each of which writes its own columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive import _native
from hive.envs.spaces.actions import ActionSpec
from hive.envs.spaces.observation import ObservationSpec
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.plain_data import pack, read_content, unpack, write_content
from hive.runtime.memory.segments import Layout, Segment

COPIED = ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths", "final_index")
REFUSED_BYTES = 200  # of the error of a reset
CHANGES_BYTES = 1 << 17  # for what callbacks have changed, twice as much as they may send


class RowBlock:
    """Views of all of the memory, and of the columns of one process.

    count: rows of a step. infos: values of `info` of each. processes: those with a row word, which write columns.
    gate: where the collector sleeps while all of them step.
    segment: the memory, if it exists already; its descriptor stays open, for processes that are executed.

    arrays: words, seeds, actions and the fields of a `StepRow`; changes, as in `write_changes`. Of each process: doing,
    what it does now; step_ns, the time of its last step; generators, a seed of its global generators, to be used when
    `seedings` has changed; drew, whether it has drawn from one. plays: episodes that the environment of each row still
    plays, -1 without a limit, and how often they were changed. refused: the text of
    `hive.envs.vectors.vector.refused`, zeros for none.
    """

    def __init__(
        self,
        observation: ObservationSpec,
        action: ActionSpec,
        count: int,
        infos: int,
        processes: int,
        segment: Segment | None = None,
    ) -> None:
        layout = Layout(
            {
                "words": ("uint8", (processes + 1, _native.ROW_WORD_BYTES)),
                "doing": ("int64", (processes, 3)),
                "step_ns": ("int64", (processes,)),
                "generators": ("uint64", (processes,)),
                "seedings": ("int64", (1,)),
                "drew": ("uint8", (processes,)),
                "plays": ("int64", (count + 1,)),
                "refused": ("uint8", (processes, REFUSED_BYTES)),
                "seeds": ("uint64", (count,)),
                "actions": (np.dtype(action.dtype).name, (count, *action.shape)),
                "observations": (np.dtype(observation.dtype).name, (count, *observation.shape)),
                "finals": (np.dtype(observation.dtype).name, (count, *observation.shape)),
                "rewards": ("float32", (count,)),
                "terminated": ("uint8", (count,)),
                "truncated": ("uint8", (count,)),
                "valid": ("uint8", (count,)),
                "episode_returns": ("float32", (count,)),
                "episode_lengths": ("int32", (count,)),
                "final_index": ("int32", (count,)),
                "infos": ("float32", (count, infos)),
                "changes": ("uint8", (CHANGES_BYTES,)),
            }
        )
        self.segment = Segment.create("rows", layout.bytes) if segment is None else segment
        self.arrays = layout.views(self.segment.memory)
        self.infos = infos
        if segment is None:
            self.write_changes({}, {})
            self.arrays["plays"][:count] = -1
        self.gate = _native.RowGate(self.segment.memory, processes)
        self.words = [_native.RowWord(self.segment.memory, number) for number in range(processes)]

    def write_changes(self, options: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        """Write what callbacks have changed, for other processes to read."""
        write_content(pack([dict(options), dict(attributes)]), self.arrays["changes"])

    def read_changes(self) -> list[dict[str, Any]]:
        """Return the options and the attributes."""
        found: list[dict[str, Any]] = unpack(read_content(self.arrays["changes"]))
        return found

    def row(self, first: int, end: int) -> StepRow:
        """Return the row of columns `first` to `end`, which has its own finals."""
        columns = {name: self.arrays[name][first:end] for name in ("observations", *COPIED, "infos")}
        return StepRow(finals=FinalObservations(self.arrays["finals"][first:end]), **columns)

    def copy_to(self, row: StepRow, starts: NDArray[np.int64]) -> None:
        """Copy all columns into `row`. starts: of each column the first one of its process, [B]."""
        arrays = self.arrays
        np.copyto(row.observations, arrays["observations"])
        for name in COPIED:
            np.copyto(getattr(row, name), arrays[name])
        if self.infos:
            np.copyto(row.infos, arrays["infos"])
        for index in np.flatnonzero(arrays["truncated"]):  # one process would add them in this order
            if row.final_index[index] >= 0:
                final = arrays["finals"][starts[index] + row.final_index[index]]
                row.final_index[index] = row.finals.add(final)
