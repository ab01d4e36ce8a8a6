"""Plans: a topology as data, and the cycles that it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from hive.errors import TopologyError
from hive.runtime import Board, Layout, Messages, Slots
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import Inlet, Outlet
from hive.runtime.carriers.carrier import PlanChannel, PlanSegment
from hive.runtime.memory.segments import BoardPlan, SlabPlan
from hive.runtime.topology.plan import Plan, PlanActor, check_cycles
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message, decode, encode, type_set


def actors(*processes: str) -> tuple[PlanActor, ...]:
    """An actor for each name of a process."""
    return tuple(PlanActor(f"a-{i}", "a", i, process, True, False) for i, process in enumerate(processes))


def channel(producers: tuple[int, ...], consumers: tuple[int, ...], window: int = 1, **changes: Any) -> PlanChannel:
    carrier = changes.pop("carrier", Messages(window=window))
    values: dict[str, Any] = {"pattern": "balance", "when_full": "wait", **changes}
    return PlanChannel(
        name="c", carrier=carrier.kind, options=carrier.options(), source="a.out", targets=("a.inn",),
        producers=producers, consumers=consumers, segments=(), **values,
    )  # fmt: skip


def plan_of(*channels: PlanChannel, count: int = 5, segments: tuple[PlanSegment, ...] = ()) -> Plan:
    return Plan(actors(*(f"p{i}" for i in range(count))), channels, segments, "", (), "", 0)


SLAB = PlanSegment("rollouts:a-0", "slab", 3, 1000, 0, 0, "")
BOARD = PlanSegment("weights", "board", 8, 100, 5, 2, "")


def test_a_plan_is_a_message() -> None:
    plan = plan_of(channel((0, 1), (2,)), segments=(SLAB, BOARD))
    assert decode(encode(plan), type_set([Plan])) == plan


def test_processes_hold_their_actors_in_order() -> None:
    plan = Plan(actors("own", "shared", "other", "shared"), (), (), "", (), "", 0)
    assert plan.processes == {"own": [0], "shared": [1, 3], "other": [2]}


def test_sizes_of_segments() -> None:
    assert SLAB.plan == SlabPlan(3, 1000)
    assert BOARD.plan == BoardPlan(8, 100, 5, 2)
    assert plan_of(segments=(SLAB, BOARD)).bytes == SLAB.plan.bytes + BOARD.plan.bytes
    assert plan_of().bytes == 0


# --- cycles


def cycle_in(*channels: PlanChannel) -> str:
    """Return the cycle for which a plan is refused, or ""."""
    try:
        check_cycles(plan_of(*channels))
    except TopologyError as error:
        text = str(error)
        assert text.startswith('a cycle of channels with when_full="wait" can deadlock: ')
        return text.rpartition(": ")[2]
    return ""


def test_a_way_back_without_room_is_a_cycle() -> None:
    there, back = channel((0, 1), (2,)), channel((2, 3), (0,))
    assert cycle_in(there) == ""
    assert cycle_in(there, back) == "a-0 -> a-2 -> a-0"


def test_a_longer_way_round_is_named_whole() -> None:
    ways = [channel((number, 4), ((number + 1) % 4,)) for number in range(4)]
    assert cycle_in(*ways) == "a-0 -> a-1 -> a-2 -> a-3 -> a-0"
    assert cycle_in(*ways[:3]) == ""


def test_an_actor_that_sends_to_itself() -> None:
    assert cycle_in(channel((0, 1), (0,))) == "a-0 -> a-0"


def test_a_cycle_that_does_not_begin_at_the_first_actor() -> None:
    assert cycle_in(channel((0, 4), (1,)), channel((1, 4), (2,)), channel((2, 4), (1,))) == "a-1 -> a-2 -> a-1"


@pytest.mark.parametrize(
    "way_out",
    [
        channel((2, 3), (0,), window=2),
        channel((2, 3), (0,), when_full="drop_oldest"),
        channel((2, 3), (0,), when_full="fail"),
        channel((2, 3), (0,), carrier=Slots(Layout({}))),
        channel((2, 3), (0,), carrier=Board(8)),
    ],
)
def test_one_channel_with_room_breaks_the_cycle(way_out: PlanChannel) -> None:
    assert cycle_in(channel((0, 1), (2,)), way_out) == ""


def test_two_paths_to_the_same_actor_are_not_a_cycle() -> None:
    ways = [channel((0, 4), (1,)), channel((0, 4), (2,)), channel((1, 4), (3,)), channel((2, 4), (3,))]
    assert cycle_in(*ways) == ""


class Report(Message):
    text: str


class Relay(Actor):
    inn = Inlet(Report)
    out = Outlet(Report)


def test_a_topology_refuses_a_cycle_with_a_hint() -> None:
    def notify(window: int) -> Topology:
        t = Topology()
        one, other = t.add(Relay, group="one", count=2), t.add(Relay, group="other", count=2)
        t.connect(one.out, other.inn, Messages(window=window))
        t.connect(other.out, one.inn, Messages(window=window))
        return t

    with pytest.raises(TopologyError, match=r"relay-0 -> relay-[23] -> relay-0") as caught:
        notify(1).plan()
    assert caught.value.hint.startswith("give its channels a window of at least their number of producers")
    assert len(notify(2).plan().channels) == 2
