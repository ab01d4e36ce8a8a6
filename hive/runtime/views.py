"""The views of a run's shared memory that one process has: each slab and board, looked at through one object.

A view is made when it is first asked for and then kept. Actors that share a process share its views, which hold no
state of their own.

It opens nothing: the memory of a segment comes from `open_segment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hive.runtime.memory import BoardPlan, BoardView, Bytes, Layout, SlabPlan, SlabView
from hive.runtime.plan import Plan

__all__ = ["Views"]


class Views:
    """Slabs and boards by the name of their segment. `layouts`: of a channel's slots, by the name of the channel.

    A slab whose channel has no layout here has words and no slots: enough for who only counts.
    """

    def __init__(
        self, plan: Plan, open_segment: Callable[[str], Bytes], layouts: Mapping[str, Layout] | None = None
    ) -> None:
        self._plan = plan
        self._open = open_segment
        self._layouts = layouts or {}
        self._slabs: dict[str, SlabView] = {}
        self._boards: dict[str, BoardView] = {}

    def slab(self, segment: str) -> SlabView:
        """The slab in this segment. Raises KeyError for a segment that the plan does not have."""
        view = self._slabs.get(segment)
        if view is None:
            size = self._plan.segment[segment].plan
            assert isinstance(size, SlabPlan)
            layout = self._layouts.get(self._plan.channel_of[segment])
            view = self._slabs[segment] = SlabView(self._open(segment), size, layout)
        return view

    def board(self, segment: str) -> BoardView:
        """The board in this segment, with the commit word that it shares. Raises KeyError as `slab` does."""
        view = self._boards.get(segment)
        if view is None:
            planned = self._plan.segment[segment]
            assert isinstance(planned.plan, BoardPlan)
            shared = self.board(planned.commit_with) if planned.commit_with else None
            view = self._boards[segment] = BoardView(self._open(segment), planned.plan, shared)
        return view
