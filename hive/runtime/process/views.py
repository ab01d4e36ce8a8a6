"""Give one process access to the slabs and boards of a run's shared memory.

A view is created on first use and then cached. Actors that share a process share its views, which hold no state.
Views open nothing themselves: the memory of a segment comes from `open_segment`.
"""

from __future__ import annotations

from collections.abc import Callable

from hive.runtime.carriers.slots import Slots
from hive.runtime.memory.segments import BoardPlan, BoardView, BufferPlan, Bytes, SlabPlan, SlabView
from hive.runtime.topology.plan import Plan


class Views:
    """Slabs and boards by the name of their segment."""

    def __init__(self, plan: Plan, open_segment: Callable[[str], Bytes]) -> None:
        self._plan = plan
        self._open = open_segment
        self._slabs: dict[str, SlabView] = {}
        self._buffers: dict[str, Bytes] = {}
        self._boards: dict[str, BoardView] = {}

    def slab(self, segment: str) -> SlabView:
        """Return the view of the slab in this segment. Raises KeyError if the plan has no such segment."""
        view = self._slabs.get(segment)
        if view is None:
            size = self._plan.segment[segment].plan
            carrier = self._plan.channel_of[segment].description
            assert isinstance(size, SlabPlan)
            assert isinstance(carrier, Slots)
            layout = carrier.layout if size.slot_bytes else None  # else the contents lie elsewhere
            view = self._slabs[segment] = SlabView(self._open(segment), size, layout)
        return view

    def buffer(self, segment: str) -> Bytes:
        """Return the memory of a segment that is neither a slab nor a board. Raises KeyError as `slab` does."""
        memory = self._buffers.get(segment)
        if memory is None:
            plan = self._plan.segment[segment].plan
            assert isinstance(plan, BufferPlan)
            memory = self._buffers[segment] = self._open(segment)[: plan.bytes]  # without the rest of its last page
        return memory

    def board(self, segment: str) -> BoardView:
        """Return the view of the board in this segment, with its shared commit word. Raises KeyError as `slab` does."""
        view = self._boards.get(segment)
        if view is None:
            planned = self._plan.segment[segment]
            assert isinstance(planned.plan, BoardPlan)
            shared = self.board(planned.commit_with) if planned.commit_with else None
            view = self._boards[segment] = BoardView(self._open(segment), planned.plan, shared)
        return view
