from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hive.errors import TopologyError
from hive.runtime.actor.actor import Actor
from hive.runtime.actor.ports import Inlet, Outlet, Port, Publication, SlotInlet, SlotOutlet, Subscription, ports_of
from hive.runtime.wire.messages import Message


class Number(Message):
    value: int


class Weights(Message):
    pass


class Everything(Actor):
    numbers = SlotInlet(Number)
    doubled = SlotOutlet(Number)
    weights = Publication(Weights, optional=True)
    state = Subscription(Weights)


class Line:
    """A carrier that writes down what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.inbox = [Number(1), Number(2)]
        self.produced = 7
        self.latest = 6
        self.producers = (0, 2)

    async def send_many(self, messages: Sequence[Message]) -> None:
        self.calls.append(("send", *messages))

    async def receive_many(self, most: int) -> list[Message]:
        return [self.inbox.pop(0) for _ in range(min(most, len(self.inbox)))]

    def retire(self, slot: str, reason: str) -> None:
        self.calls.append(("retire", slot, reason))

    async def reserve(self) -> str:
        return "a slot"

    def commit(self, slot: str) -> int:
        self.calls.append(("commit", slot))
        return 8

    async def receive(self) -> Message:
        return self.inbox.pop(0)

    def receive_nowait(self) -> Message | None:
        return self.inbox.pop(0) if self.inbox else None

    async def claim(self, producer: int | None, sequence: int) -> tuple[str, int | None, int]:
        return ("claimed", producer, sequence)

    def begin(self) -> bytes:
        return b"block"

    def publish(self, version: int) -> None:
        self.calls.append(("publish", version))

    async def pin(self, version: int) -> tuple[int, bytes]:
        return (version, b"block")

    def unpin(self) -> None:
        self.calls.append(("unpin",))


# --- declarations


def test_a_port_knows_its_name_direction_and_message() -> None:
    assert {name: port.name for name, port in ports_of(Everything).items()} == {
        "numbers": "numbers",
        "doubled": "doubled",
        "weights": "weights",
        "state": "state",
    }
    assert [port.direction for port in ports_of(Everything).values()] == ["in", "out", "out", "in"]
    assert [port.optional for port in ports_of(Everything).values()] == [False, False, True, False]
    assert Everything.numbers.message is Number


def test_the_defaults_of_when_full() -> None:
    assert (Outlet(Number).pattern, Outlet(Number).when_full) == ("balance", "wait")
    broadcast = Outlet(Number, pattern="broadcast")
    assert (broadcast.pattern, broadcast.when_full) == ("broadcast", "drop_oldest")
    assert Outlet(Number, pattern="broadcast", when_full="wait").when_full == "wait"
    assert Outlet(Number, when_full="fail").when_full == "fail"


@pytest.mark.parametrize(
    "options", [{"pattern": "round"}, {"when_full": "drop"}, {"when_full": ""}, {"pattern": "wait"}]
)
def test_a_wrong_word_is_refused_where_it_is_written(options: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match=r"invalid outlet: pattern='.*', when_full=") as caught:
        Outlet(Number, **options)
    assert caught.value.hint == "patterns: balance, broadcast; when_full: wait, drop_oldest, fail"


@pytest.mark.parametrize("kind", [Outlet, Inlet, Publication, Subscription])
@pytest.mark.parametrize("message", [int, Number(1), "Number", None])
def test_a_port_carries_a_message_class(kind: type[Port[Any]], message: Any) -> None:
    with pytest.raises(TopologyError, match=r"a port carries a hive\.Message class, not "):
        kind(message)


def test_ports_are_inherited_replaced_and_removed() -> None:
    class Fewer(Everything):
        numbers = Inlet(Weights)
        doubled = None  # type: ignore[assignment]
        more = Outlet(Number)

    assert list(ports_of(Fewer)) == ["numbers", "weights", "state", "more"]
    assert ports_of(Fewer)["numbers"].message is Weights
    assert list(ports_of(Everything)) == ["numbers", "doubled", "weights", "state"]
    assert ports_of(Actor) == {}


# --- bound to a line


def test_binding_copies_the_declaration() -> None:
    line = Line()
    bound = Everything.doubled.bind(line)
    assert (bound.line, bound.name, bound.message, bound.connected) == (line, "doubled", Number, True)
    assert (Everything.doubled.line, Everything.doubled.connected) == (None, False)


async def test_an_outlet_sends_through_its_line() -> None:
    line = Line()
    outlet = Everything.doubled.bind(line)
    await outlet.send(Number(3))
    slot = await outlet.reserve()
    assert slot == "a slot"  # type: ignore[comparison-overlap]
    assert outlet.commit(slot) == 8
    assert outlet.produced == 7
    await outlet.send_many([Number(4), Number(5)])
    assert line.calls == [("send", Number(3)), ("commit", "a slot"), ("send", Number(4), Number(5))]
    with pytest.raises(TopologyError, match="port `doubled` carries Number, not Weights"):
        await outlet.send_many([Number(4), Weights()])  # type: ignore[list-item]
    assert len(line.calls) == 3


async def test_an_inlet_receives_from_its_line() -> None:
    line = Line()
    inlet = Everything.numbers.bind(line)
    assert await inlet.receive() == Number(1)
    assert inlet.receive_nowait() == Number(2)
    assert inlet.receive_nowait() is None
    assert await inlet.claim() == ("claimed", None, -1)  # type: ignore[comparison-overlap]
    assert await inlet.claim(2, 5) == ("claimed", 2, 5)  # type: ignore[comparison-overlap]
    assert inlet.lines is line  # type: ignore[comparison-overlap]
    assert inlet.producers == (0, 2)
    inlet.retire("a slot", "stale")  # type: ignore[arg-type]
    assert line.calls == [("retire", "a slot", "stale")]


async def test_an_inlet_receives_many_through_its_line() -> None:
    inlet = Everything.numbers.bind(Line())
    assert await inlet.receive_many(1) == [Number(1)]
    assert await inlet.receive_many() == [Number(2)]


async def test_an_inlet_is_iterated() -> None:
    seen = []
    async for message in Everything.numbers.bind(Line()):
        seen.append(message)
        if len(seen) == 2:
            break
    assert seen == [Number(1), Number(2)]


async def test_publications_and_subscriptions_are_the_ends_of_a_board() -> None:
    line = Line()
    publication, subscription = Everything.weights.bind(line), Everything.state.bind(line)
    assert publication.begin() == b"block"
    publication.publish(4)
    assert await subscription.pin() == (-1, b"block")
    assert await subscription.pin(3) == (3, b"block")
    subscription.unpin()
    assert publication.latest == subscription.latest == 6
    assert publication.board is subscription.board is line  # type: ignore[comparison-overlap]
    assert line.calls == [("publish", 4), ("unpin",)]


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("doubled", lambda port: port.send(Number(1)).send(None)),
        ("doubled", lambda port: port.reserve().send(None)),
        ("doubled", lambda port: port.commit(None)),
        ("doubled", lambda port: port.produced),
        ("doubled", lambda port: port.send_many([Number(1)]).send(None)),
        ("numbers", lambda port: port.receive().send(None)),
        ("numbers", lambda port: port.receive_nowait()),
        ("numbers", lambda port: port.__anext__().send(None)),
        ("numbers", lambda port: port.claim().send(None)),
        ("numbers", lambda port: port.lines),
        ("numbers", lambda port: port.producers),
        ("numbers", lambda port: port.retire(None)),
        ("numbers", lambda port: port.receive_many().send(None)),
        ("weights", lambda port: port.begin()),
        ("weights", lambda port: port.publish(1)),
        ("weights", lambda port: port.board),
        ("weights", lambda port: port.latest),
        ("state", lambda port: port.pin().send(None)),
        ("state", lambda port: port.unpin()),
        ("state", lambda port: port.board),
        ("state", lambda port: port.latest),
    ],
)
def test_a_port_that_is_not_connected_says_so_in_every_use(name: str, use: Any) -> None:
    with pytest.raises(TopologyError) as caught:
        use(getattr(Everything, name))
    assert str(caught.value) == f"port `{name}` is not connected"
    assert caught.value.hint.startswith("connect it in the topology function; ports work in setup() and run()")
