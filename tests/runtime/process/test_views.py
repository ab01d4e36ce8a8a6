"""Views: one for each slab and board of a process, over shared memory."""

from __future__ import annotations

import pytest
from simulation.fakes import LocalMemory

from hive.runtime import Actor, Board, Inlet, Layout, Message, Outlet, Publication, Slots, Subscription, Topology, Zmq
from hive.runtime.memory.segments import Bytes
from hive.runtime.process.views import Views
from hive.runtime.topology.plan import Plan

LAYOUT = Layout({"row": ("float32", (4,))})


class Row(Message):
    """The message of a slab."""


class Weights(Message):
    """The message of a board."""


class Source(Actor):
    rows = Outlet(Row)
    weights = Publication(Weights)
    moments = Publication(Weights)


class Sink(Actor):
    rows = Inlet(Row)
    weights = Subscription(Weights)
    moments = Subscription(Weights)


class Memory:
    """The segments of a small plan, with a count of how often each was opened."""

    def __init__(self) -> None:
        t = Topology()
        source, sink = t.add(Source), t.add(Sink, count=2)
        t.connect(source.rows, sink.rows, Slots(LAYOUT, slots=3))
        t.connect(source.weights, sink.weights, Board(64))
        t.connect(source.moments, sink.moments, Board(64, commit_with="weights"))
        self.plan: Plan = t.plan()
        self.opened: list[str] = []
        self.areas = LocalMemory(self.plan).areas

    def open(self, name: str) -> Bytes:
        self.opened.append(name)
        return self.areas[name]

    def views(self) -> Views:
        return Views(self.plan, self.open)


def test_a_view_is_created_on_first_use_and_cached() -> None:
    memory = Memory()
    views = memory.views()
    assert memory.opened == []
    assert views.slab("rows:source-0") is views.slab("rows:source-0")
    assert views.board("weights") is views.board("weights")
    assert memory.opened == ["rows:source-0", "weights"]


def test_two_processes_see_the_same_memory() -> None:
    memory = Memory()
    here, there = (memory.views().slab("rows:source-0") for _ in range(2))
    here.slots[2]["row"][:] = 7.0
    here.words.commit(here.words.reserve(0, 0), 0, 0)
    assert there.slots[2]["row"].tolist() == [7.0] * 4
    assert there.counts() == {"produced": 1, "consumed": 0, "dropped": {}, "in_flight": 1}


def test_slots_whose_contents_travel_have_only_words_in_the_segment() -> None:
    t = Topology()
    t.connect(t.add(Source).rows, t.add(Sink).rows, Zmq(LAYOUT, slots=3))
    t.publish(t["source"].weights, Board(64))
    t.publish(t["source"].moments, Board(64))
    t.connect(t["source"].weights, t["sink"].weights)
    t.connect(t["source"].moments, t["sink"].moments)
    view = Views(t.plan(), LocalMemory(t.plan()).open).slab("rows:source-0")
    assert (len(view.slots), view.words.slots) == (0, 3)
    mine, theirs = view.with_slots(LAYOUT), view.with_slots(LAYOUT)
    mine.slots[1]["row"][:] = 7.0
    assert theirs.slots[1]["row"].tolist() == [0.0] * 4
    mine.words.commit(mine.words.reserve(0, 0), 0, 0)
    assert theirs.counts()["produced"] == 1


def test_a_board_shares_the_commit_word_that_its_plan_names() -> None:
    views = Memory().views()
    weights, moments = views.board("weights"), views.board("moments")
    moments.words.seal(moments.words.begin(), 1)
    weights.words.seal(weights.words.begin(), 1)
    assert moments.latest == -1, "sealed, and not committed"
    weights.words.publish(1)
    assert (weights.latest, moments.latest) == (1, 1)


def test_an_unknown_segment_has_no_view() -> None:
    views = Memory().views()
    for of in (views.slab, views.board):
        with pytest.raises(KeyError, match="rewards"):
            of("rewards")
