"""Topologies: names, connections, the plan as data, and every refusal with its text."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hive.errors import TopologyError
from hive.runtime import Board, Messages, SlotInlet, SlotOutlet, Slots, Zmq
from hive.runtime.actor.actor import Actor, Handle, endpoint
from hive.runtime.actor.ports import Inlet, Outlet, Publication, Subscription
from hive.runtime.carriers.boards import MAX_BLOCKS
from hive.runtime.carriers.carrier import PlanChannel, PlanSegment
from hive.runtime.carriers.slots import MAX_SLOTS
from hive.runtime.memory.segments import BoardPlan, Layout, SlabPlan
from hive.runtime.topology.groups import Group
from hive.runtime.topology.plan import Plan, PlanActor
from hive.runtime.topology.planning import MAX_ACTORS
from hive.runtime.topology.topology import Topology
from hive.runtime.wire.messages import Message, decode, encode, type_set


class Rollout(Message):
    rewards: np.ndarray


class Report(Message):
    text: str


class Weights(Message):
    pass


LAYOUT = Layout({"rewards": ("float32", (4, 2))})


class Collector(Actor):
    rollouts = Outlet(Rollout)
    reports = Outlet(Report, pattern="broadcast", optional=True)
    weights = Subscription(Weights)

    def __init__(self, size: int = 1) -> None: ...


class Learner(Actor):
    rollouts = Inlet(Rollout)
    weights = Publication(Weights)
    moments = Publication(Weights, optional=True)

    @endpoint
    async def version(self) -> int:
        return 0


class Logger(Actor):
    reports = Inlet(Report, optional=True)
    weights = Subscription(Weights, optional=True)


class Source(Actor):
    out = Outlet(Report)


class Sink(Actor):
    inn = Inlet(Report)


class Relay(Actor):
    inn = Inlet(Report)
    out = Outlet(Report)


def trainer() -> Topology:
    """Three collectors, two loggers and a learner, with a channel of every carrier."""
    t = Topology()
    collectors = t.add(Collector, count=3, size=5)
    learner = t.add(Learner, restart=False)
    loggers = t.add(Logger, count=2, process="logs", last=True)
    t.connect(collectors.rollouts, learner.rollouts, Slots(LAYOUT, slots=3, by_share=True, on_death="reoffer"))
    t.connect(learner.weights, collectors.weights, Board(100, keep=2))
    t.connect(learner.weights, loggers.weights)
    t.publish(learner.moments, Board(200, commit_with="weights"))
    t.connect(collectors.reports, loggers.reports, Messages(window=4))
    return t


def refusal(build: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(TopologyError) as caught:
        build()
    return str(caught.value), caught.value.hint


# --- groups and names


def test_numbers_continue_within_a_role() -> None:
    t = Topology()
    assert t.add(Source).names == ["source-0"]
    assert t.add(Source, count=3).names == ["source-1", "source-2", "source-3"]
    assert t.add(Source, count=0, group="nobody").names == []
    assert t.add(Source, group="more").names == ["source-4"]
    assert list(t.groups) == ["source", "sources", "nobody", "more"]


def test_classes_of_one_role_share_its_numbers() -> None:
    class Special(Source):
        role = "source"

    t = Topology()
    assert t.add(Source, count=2).names + t.add(Special).names == ["source-0", "source-1", "source-2"]


def test_an_actor_that_is_not_numbered_is_called_after_its_role() -> None:
    class Recorder(Actor):
        numbered = False

    t = Topology()
    assert t.add(Recorder).names == ["recorder"]
    assert refusal(lambda: t.add(Recorder, group="again"))[0] == "two actors are called `recorder`"
    assert refusal(lambda: t.add(type("Others", (Recorder,), {}), count=2))[0] == "two actors are called `others`"


def test_a_role_that_looks_like_a_numbered_name() -> None:
    class Odd(Actor):
        role = "source-0"
        numbered = False

    t = Topology()
    t.add(Source)
    text, hint = refusal(lambda: t.add(Odd))
    assert (text, hint) == ("two actors are called `source-0`", "set another `role` on one of their classes")


def test_groups_are_found_by_their_key() -> None:
    t = trainer()
    assert t["collectors"].cls is Collector
    assert t["collectors"].parameters == {"size": 5}
    assert "learner" in t
    assert "learners" not in t
    text, hint = refusal(lambda: t["learners"])
    assert text == "no group `learners` in this topology"
    assert hint == "it has: collectors, learner, loggers"


def test_a_group_gives_ports_handles_and_processes() -> None:
    t = trainer()
    collectors = t["collectors"]
    assert str(collectors.rollouts) == "collectors.rollouts"
    assert collectors.rollouts.port is Collector.rollouts
    assert collectors.processes == ["collector-0", "collector-1", "collector-2"]
    assert t["loggers"].processes == ["logs", "logs"]
    handle = t["learner"].handle()
    assert isinstance(handle, Handle)
    assert handle._name == "learner-0"
    assert callable(handle.version)
    with pytest.raises(IndexError):
        t["learner"].handle(1)


def test_a_missing_port_of_a_group() -> None:
    t = trainer()
    with pytest.raises(AttributeError) as caught:
        t["collectors"].rollout  # noqa: B018
    assert str(caught.value) == "`Collector` has no port `rollout`; it has: rollouts, reports, weights"
    with pytest.raises(AttributeError, match="`Actor` has no port `x`; it has: none"):
        Topology().add(Actor).x  # noqa: B018


def test_actors_of_a_group_may_go_to_different_processes() -> None:
    t = Topology()
    t.add(Source, count=2)
    t.connect(t["sources"].out, t.add(Sink, count=2, process=["source-1", "elsewhere"]).inn)
    assert t.plan().processes == {"source-0": [0], "source-1": [1, 2], "elsewhere": [3]}
    text, _ = refusal(lambda: t.add(Sink, group="more", count=3, process=["a", "b"]))
    assert text == "`more` has 3 actors and a list of 2 processes"


def test_groups_can_be_copied() -> None:
    group = trainer()["learner"]
    assert copy.copy(group).names == ["learner-0"]
    assert isinstance(group, Group)


@pytest.mark.parametrize("name", ["names", "processes", "handle", "key", "run", "status", "log", "note", "end_run"])
def test_a_port_may_not_take_a_name_of_groups_or_actors(name: str) -> None:
    cls = type("Greeter", (Actor,), {name: Inlet(Report)})
    text, hint = refusal(lambda: Topology().add(cls))
    assert text == f"the port `{name}` of Greeter has the name of an attribute of every group or actor"
    assert hint == "give the port another name"


class Counting(Actor):
    def __init__(self, count: int) -> None:
        """Takes what `Topology.add` takes."""


class Placed(Actor):
    def __init__(self, size: int, process: str = "here") -> None:
        """The same."""


class Grouped(Actor):
    def __init__(self, *, group: str = "") -> None:
        """The same."""


class Lasting(Actor):
    def __init__(self, size: int = 1, *, last: bool, **more: int) -> None:
        """The same."""


class Restarted(Actor):
    def __init__(self, *sizes: int, restart: bool = True) -> None:
        """The same."""


class Heir(Counting):
    """Inherits the constructor."""


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        *((Counting, "count"), (Placed, "process"), (Grouped, "group"), (Lasting, "last")),
        *((Restarted, "restart"), (Heir, "count")),
    ],
)
def test_a_constructor_may_not_take_a_name_that_adding_takes(cls: type[Actor], name: str) -> None:
    """Also if it has a default: otherwise its value would be ignored without an error."""
    t = Topology()
    text, hint = refusal(lambda: t.add(cls))
    assert text == f"the constructor of {cls.__name__} has a parameter `{name}`, which Topology.add uses itself"
    assert hint == "give the parameter another name"
    assert not t.groups


def test_other_parameters_of_constructors() -> None:
    class Tank(Actor):
        def __init__(self, parameters: int, counts: int = 0, *, name: str = "", **count: int) -> None:
            """Takes what nobody else does."""

    given = {"parameters": 1, "name": "x", "more": 2}
    assert Topology().add(Tank, **given).parameters == given


def test_refused_arguments_of_add() -> None:
    t = Topology()
    t.add(Source)
    assert refusal(lambda: t.add(Source)) == ("two groups are called `source`", "pass group=... to one of them")
    assert refusal(lambda: t.add(Sink, count=-1))[0] == "`sinks` cannot have -1 actors"
    long = type("Long", (Actor,), {"role": "x" * 39})
    text, hint = refusal(lambda: t.add(long))
    assert text == f"the name `{'x' * 39}-0` is longer than 40 bytes"
    assert hint == "set a shorter `role` on the class"
    assert t.add(type("Fits", (Actor,), {"role": "x" * 38})).names == ["x" * 38 + "-0"]
    assert list(t.groups) == ["source", "x" * 38], "what was refused is not there"


# --- connections


def test_refused_arguments_of_connect() -> None:
    t = trainer()
    collectors, learner, loggers = t["collectors"], t["learner"], t["loggers"]
    pair = "connect an Outlet to an Inlet, a Publication to a Subscription, or a SharedOut to a SharedIn"
    assert refusal(lambda: t.connect(learner.rollouts, learner.moments)) == (
        "`learner.rollouts` (Inlet) cannot be connected to `learner.moments` (Publication)",
        pair,
    )
    assert refusal(lambda: t.connect(learner.moments, t.add(Sink).inn))[0] == (
        "`learner.moments` (Publication) cannot be connected to `sink.inn` (Inlet)"
    )
    wrong = type("Wrong", (Actor,), {"rollouts": Inlet(Report)})
    assert refusal(lambda: t.connect(collectors.rollouts, t.add(wrong).rollouts))[0] == (
        "`collectors.rollouts` carries Rollout, `wrong.rollouts` accepts Report"
    )
    again = t.add(Learner, group="again")
    assert refusal(lambda: t.connect(collectors.rollouts, again.rollouts)) == (
        "`collectors.rollouts` is balanced over one group of consumers and cannot be connected twice",
        'use pattern="broadcast"',
    )
    assert refusal(lambda: t.connect(again.weights, loggers.weights)) == (
        "`loggers.weights` is connected to two sources",
        "declare a second port; each accepts one source",
    )
    assert refusal(lambda: t.connect(collectors.reports, loggers.reports))[0] == (
        "`collectors.reports` is connected to `loggers` twice"
    )
    assert refusal(lambda: t.connect(trainer()["learner"].weights, loggers.weights))[0] == (
        "`learner.weights` belongs to another topology"
    )


def test_a_board_has_one_writer() -> None:
    t = Topology()
    learners, logger = t.add(Learner, count=2), t.add(Logger)
    assert refusal(lambda: t.connect(learners.weights, logger.weights, Board(8))) == (
        "`learners.weights` is a Publication and has 2 writers",
        "its memory has exactly one writer",
    )


@pytest.mark.parametrize(
    "outlet",
    [Outlet(Rollout, pattern="broadcast"), Outlet(Rollout, when_full="fail"), Outlet(Rollout, when_full="drop_oldest")],
)
def test_a_slab_balances_and_waits(outlet: Outlet[Rollout]) -> None:
    t = Topology()
    source = t.add(type("Maker", (Actor,), {"rollouts": outlet}))
    learner = t.add(Learner)
    assert refusal(lambda: t.connect(source.rollouts, learner.rollouts, Slots(LAYOUT))) == (
        '`maker.rollouts` is carried by slots, which requires pattern="balance" and when_full="wait"',
        "connect it without a carrier; it then sends messages",
    )
    t.connect(source.rollouts, learner.rollouts)


def test_names_of_channels() -> None:
    t = Topology()
    first, second = t.add(Source, group="a"), t.add(Source, group="b")
    t.connect(first.out, t.add(Sink, group="x").inn)
    t.connect(second.out, t.add(Sink, group="y").inn)
    assert [channel.name for channel in t.plan().channels] == ["out", "b.out"]
    third, sink = t.add(Source, group="c"), t.add(Sink, group="z")
    for taken in ("out", "b.out", "status"):
        assert refusal(lambda name=taken: t.connect(third.out, sink.inn, name=name)) == (
            f"two channels are called `{taken}`",
            "pass another name=... to connect",
        )
    assert refusal(lambda: t.connect(third.out, sink.inn, name="x" * 17)) == (
        f"the channel name `{'x' * 17}` is longer than 16 bytes",
        "pass name=... to connect",
    )
    t.connect(third.out, sink.inn, name="x" * 16)
    assert [channel.name for channel in t.plan().channels] == ["out", "b.out", "x" * 16]


def test_publishing_without_subscribers() -> None:
    t = Topology()
    learner = t.add(Learner)
    refused = "`learner.{}` is not a publication, or is already connected"
    assert refusal(lambda: t.publish(learner.rollouts, Board(8)))[0] == refused.format("rollouts")
    t.publish(learner.moments, Board(8))
    assert refusal(lambda: t.publish(learner.moments, Board(8)))[0] == refused.format("moments")
    assert (
        refusal(lambda: t.publish(learner.weights, Board(8), name="moments"))[0] == "two channels are called `moments`"
    )


# --- the plan


def test_the_plan_of_a_trainer() -> None:
    plan = trainer().plan()
    assert plan.actors == (
        PlanActor("collector-0", "collectors", 0, "collector-0", True, False, source=True),
        PlanActor("collector-1", "collectors", 1, "collector-1", True, False, source=True),
        PlanActor("collector-2", "collectors", 2, "collector-2", True, False, source=True),
        PlanActor("learner-0", "learner", 0, "learner-0", False, False, serves=True, endpoints=("version",)),
        PlanActor("logger-0", "loggers", 0, "logs", True, True),
        PlanActor("logger-1", "loggers", 1, "logs", True, True),
    )
    assert plan.processes == {
        "collector-0": [0],
        "collector-1": [1],
        "collector-2": [2],
        "learner-0": [3],
        "logs": [4, 5],
    }
    slabs = ("rollouts:collector-0", "rollouts:collector-1", "rollouts:collector-2")
    assert plan.channels == (
        PlanChannel("rollouts", "slots", Slots(LAYOUT, 3, by_share=True, on_death="reoffer").options(), "balance",
                    "wait", "collectors.rollouts", ("learner.rollouts",), (0, 1, 2), (3,), slabs),
        PlanChannel("weights", "board", {"block_bytes": 100, "keep": 2, "commit_with": ""}, "broadcast", "drop_oldest",
                    "learner.weights", ("collectors.weights", "loggers.weights"), (3,), (0, 1, 2, 4, 5), ("weights",)),
        PlanChannel("moments", "board", {"block_bytes": 200, "keep": 1, "commit_with": "weights"}, "broadcast",
                    "drop_oldest", "learner.moments", (), (3,), (), ("moments",)),
        PlanChannel("reports", "messages", {"window": 4}, "broadcast", "drop_oldest", "collectors.reports",
                    ("loggers.reports",), (0, 1, 2), (4, 5), ()),
    )  # fmt: skip
    assert plan.segments == (
        *(PlanSegment(name, "slab", 3, LAYOUT.bytes, 0, 0, "") for name in slabs),
        PlanSegment("weights", "board", 8, 100, 5, 2, ""),
        PlanSegment("moments", "board", 2, 200, 0, 1, "weights"),
    )


def test_the_same_topology_gives_the_same_plan() -> None:
    assert trainer().plan() == trainer().plan()


def test_numbers_lead_back_to_groups() -> None:
    t = trainer()
    found = [(t.actor_of(number)[0].key, t.actor_of(number)[1]) for number in range(6)]
    assert found == [
        ("collectors", 0),
        ("collectors", 1),
        ("collectors", 2),
        ("learner", 0),
        ("loggers", 0),
        ("loggers", 1),
    ]
    with pytest.raises(IndexError):
        t.actor_of(6)


def test_a_carrier_in_a_plan_is_the_one_that_was_connected() -> None:
    """Also after the plan has travelled as a message, as it does to the supervisor."""
    t = trainer()
    plan = decode(encode(t.plan()), type_set([Plan]))
    assert isinstance(plan, Plan)
    for channel, connected in zip(plan.channels, t.channels.values(), strict=True):
        assert type(channel.description) is type(connected.carrier)
        assert channel.description.options() == connected.carrier.options()


def test_results_and_digest() -> None:
    t = trainer()
    assert (t.plan().results_actor, t.plan().results, t.plan().digest_segment, t.plan().digest_bytes) == ("", (), "", 0)
    t.results(t["learner"], "updates", "env_steps")
    t.digest(t["learner"].weights, 64)
    plan = t.plan()
    assert (plan.results_actor, plan.results) == ("learner-0", ("updates", "env_steps"))
    assert (plan.digest_segment, plan.digest_bytes) == ("weights", 64)


def test_a_digest_may_be_set_before_the_connection() -> None:
    t = Topology()
    learner = t.add(type("Lone", (Actor,), {"weights": Publication(Weights)}))
    t.digest(learner.weights, 8)
    assert refusal(t.plan)[0] == "port `weights` (Publication) of `lone` is not connected"
    t.publish(learner.weights, Board(8), name="state")
    assert t.plan().digest_segment == "state"


# --- what a plan refuses


def test_limits_on_the_number_of_actors() -> None:
    assert refusal(Topology().plan) == ("the topology has no actors", "add one with topology.add(...)")
    t = Topology()
    t.add(Actor, count=MAX_ACTORS)
    assert len(t.plan().actors) == 1000
    t.add(Actor)
    assert refusal(t.plan)[0] == "the topology has 1001 actors; the maximum is 1000"


def test_every_port_is_connected_or_optional() -> None:
    t = Topology()
    t.add(Sink, group="drain")
    assert refusal(t.plan) == (
        "port `inn` (Inlet) of `drain` is not connected",
        "connect it with topology.connect(...), or declare it optional in Sink",
    )
    t = Topology()
    t.add(Logger)
    assert t.plan().channels == ()
    t.add(Source, count=0)
    assert len(t.plan().actors) == 1, "a group of nobody needs no connection"


def connected(carrier: Any = None, **options: Any) -> Topology:
    t = Topology()
    t.connect(t.add(Source).out, t.add(Sink).inn, carrier, **options)
    return t


def test_sizes_are_checked() -> None:
    assert refusal(lambda: slab_of(1)) == (
        "channel `rollouts` has 1 slots per producer",
        "the minimum is 2: one to write and one to read",
    )
    refused = refusal(lambda: connected(Messages(window=0)))
    assert refused == ("channel `out` has a window of 0 messages", "the minimum is 1")
    assert connected(Messages(window=1)).plan().channels[0].options == {"window": 1}
    board = Topology()
    lone = board.add(type("Lone", (Actor,), {"weights": Publication(Weights)}))
    logger = board.add(Logger)
    assert refusal(lambda: board.connect(lone.weights, logger.weights, Board(0))) == (
        "the publication `lone.weights` has blocks of 0 bytes",
        "pass hive.Board(block_bytes) with the size of its data",
    )


class InPlace(Actor):
    written = SlotOutlet(Rollout, optional=True)
    read = SlotInlet(Rollout, optional=True)
    sent = Outlet(Rollout, optional=True)


@pytest.mark.parametrize(
    ("port", "carrier", "text", "hint"),
    [
        ("written", None, "(SlotOutlet) needs a carrier", "connect it with hive.Slots(layout)"),
        ("written", Messages(), "(SlotOutlet) cannot be carried by Messages", "connect it with hive.Slots(layout)"),
        (
            "sent",
            Board(8),
            "(Outlet) cannot be carried by Board",
            "connect it with hive.Messages() or hive.Slots(layout)",
        ),
    ],
)
def test_a_carrier_that_does_not_fit_the_port_is_refused_with_the_way_out(
    port: str, carrier: Any, text: str, hint: str
) -> None:
    t = Topology()
    one, other = t.add(InPlace, group="one"), t.add(InPlace, group="other")
    assert refusal(lambda: t.connect(getattr(one, port), other.read, carrier)) == (f"`one.{port}` {text}", hint)
    assert refusal(lambda: t.connect(one.sent, other.read)) == (
        "`other.read` (SlotInlet) needs a carrier",
        "connect it with hive.Slots(layout)",
    )
    assert t.channels == {}, "what was refused leaves nothing behind"


def test_shared_slots_cannot_travel() -> None:
    t = Topology()
    one, other = t.add(InPlace, group="one"), t.add(InPlace, group="other")
    assert refusal(lambda: t.connect(one.written, other.read, Zmq(LAYOUT, shared=True))) == (
        "`one.written` is shared, so its producers read each other's slots in place, which zmq cannot carry",
        "connect it with hive.Slots",
    )


def test_a_second_target_has_the_carrier_of_the_first() -> None:
    t = trainer()
    late = t.add(Logger, group="late")
    assert refusal(lambda: t.connect(t["learner"].weights, late.weights, Board(99)))[1] == "leave this one out"
    t.connect(t["learner"].weights, late.weights)


def slab_of(slots: int) -> Topology:
    t = Topology()
    maker = t.add(type("Maker", (Actor,), {"rollouts": Outlet(Rollout)}))
    taker = t.add(type("Taker", (Actor,), {"rollouts": Inlet(Rollout)}))
    t.connect(maker.rollouts, taker.rollouts, Slots(LAYOUT, slots=slots))
    return t


def test_the_limit_on_slots_is_that_of_the_native_part() -> None:
    """The plan refuses a size before the native part would."""
    plan = slab_of(MAX_SLOTS).plan()
    memory = np.zeros(plan.segments[0].plan.bytes, np.uint8)
    plan.segments[0].plan.format(memory)
    with pytest.raises(ValueError, match=f"a slab has 1 to {MAX_SLOTS} slots"):
        SlabPlan(MAX_SLOTS + 1, 64).format(np.zeros(SlabPlan(MAX_SLOTS + 1, 64).bytes, np.uint8))
    text, hint = refusal(lambda: slab_of(MAX_SLOTS + 1))
    assert text == "channel `rollouts` needs a slab of 4097 slots; the maximum is 4096"
    assert hint == "connect it with fewer slots; in a config, lower slots, max_lag or bootstrap_rounds"


def board_of(keep: int) -> Topology:
    t = Topology()
    lone = t.add(type("Lone", (Actor,), {"weights": Publication(Weights)}))
    t.connect(lone.weights, t.add(Logger).weights, Board(8, keep=keep))
    return t


def test_the_limit_on_blocks_is_that_of_the_native_part() -> None:
    plan = board_of(MAX_BLOCKS - 2).plan()
    control = np.zeros(plan.segments[0].plan.offset, np.uint8)
    plan.segments[0].plan.format(control)
    with pytest.raises(ValueError, match=f"a board has at most {MAX_BLOCKS} blocks"):
        BoardPlan(MAX_BLOCKS + 1, 8, 1, 1).format(np.zeros(BoardPlan(MAX_BLOCKS + 1, 8, 1, 1).offset, np.uint8))
    text, hint = refusal(board_of(MAX_BLOCKS - 1).plan)
    assert text == "channel `weights` needs a board of 65537 blocks; the maximum is 65536"
    assert hint == "connect it with a smaller keep=...; in a config, lower max_lag"


@pytest.mark.parametrize("other", ["missing", "rollouts", "reports"])
def test_a_board_commits_with_a_board(other: str) -> None:
    t = trainer()
    t.publish(t.add(type("Lone", (Actor,), {"state": Publication(Weights)})).state, Board(8, commit_with=other))
    assert refusal(t.plan)[0] == f"channel `state` commits with `{other}`, which is not a board of this topology"


def test_messages_that_cannot_be_encoded_are_refused_before_any_actor_starts() -> None:
    class Odd(Message):
        tags: set[str]

    t = Topology()
    t.connect(t.add(type("A", (Actor,), {"o": Outlet(Odd)})).o, t.add(type("B", (Actor,), {"i": Inlet(Odd)})).i)
    text, _ = refusal(t.plan)
    assert text.startswith("channel `o` cannot carry its messages: ")
    assert "Odd.tags: a message cannot carry set[str]; use int, float" in text


def test_a_digest_needs_a_connected_publication() -> None:
    t = Topology()
    learner = t.add(Learner)
    t.digest(learner.moments, 8)
    t.connect(learner.weights, t.add(Logger).weights, Board(8))
    t.connect(t.add(type("Maker", (Actor,), {"rollouts": Outlet(Rollout)})).rollouts, learner.rollouts)
    assert refusal(t.plan)[0] == "the digest needs `learner.moments`, which is not connected"


# --- changing a topology


class Many(Message):
    value: int


class Feeder(Actor):
    out = Outlet(Many)
    wide = Outlet(Many, pattern="broadcast", optional=True)


class Eater(Actor):
    inn = Inlet(Many)

    def __init__(self, size: int = 1) -> None: ...


class Between(Actor):
    inn = Inlet(Many)
    out = Outlet(Many)


def pair() -> Topology:
    t = Topology()
    source, target = t.add(Feeder), t.add(Eater, count=2)
    t.connect(source.out, target.inn, Messages(window=5))
    return t


def test_a_class_can_be_replaced_by_one_with_the_same_ports() -> None:
    class Better(Eater):
        """Better."""

    class Another(Actor):
        inn = Inlet(Many)

        def __init__(self, size: int) -> None: ...

    t = pair()
    group = t.replace("eaters", Better, size=3)
    assert (group.cls, group.names, group.parameters) == (Better, ["eater-0", "eater-1"], {"size": 3})
    t.replace(t["eaters"], Another)
    assert t["eaters"].cls is Another
    t.plan()


@pytest.mark.parametrize("port", [None, Inlet(Rollout), Outlet(Many)])
def test_a_class_without_a_connected_port_is_refused(port: Any) -> None:
    t, other = pair(), type("Other", (Actor,), {} if port is None else {"inn": port})
    with pytest.raises(TopologyError, match=r"cannot replace Eater: it has no port `inn` \(Inlet of Many\)"):
        t.replace("eaters", other)
    assert t["eaters"].cls is Eater


def test_an_actor_can_be_inserted_into_a_channel() -> None:
    t = pair()
    t.insert(t["feeder"].out, t.add(Between), "inn", "out")
    ways = {channel.source: (channel.targets, channel.description) for channel in t.plan().channels}
    five = Messages(window=5)
    assert ways == {"feeder.out": (("between.inn",), five), "between.out": (("eaters.inn",), five)}


def test_an_actor_can_be_inserted_into_a_channel_with_a_layout() -> None:
    t = pair()
    assert [str(ref) for ref in t.disconnect(t["feeder"].out)] == ["eaters.inn"]
    t.connect(t["feeder"].out, t["eaters"].inn, Slots(Layout({"value": ("int64", ())}), slots=3))
    t.insert(t["feeder"].out, t.add(Between), "inn", "out")
    plan = t.plan()
    assert {channel.carrier for channel in plan.channels} == {"slots"}
    assert {(segment.name, segment.count) for segment in plan.segments} == {
        ("out:feeder-0", 3),
        ("between.out:between-0", 3),
    }


def test_an_unconnected_port_cannot_be_disconnected_or_split() -> None:
    t = pair()
    with pytest.raises(TopologyError, match=r"`feeder\.wide` is not connected"):
        t.disconnect(t["feeder"].wide)
    with pytest.raises(TopologyError, match=r"`feeder\.wide` is not connected"):
        t.insert(t["feeder"].wide, t.add(Between), "inn", "out")


class Numbered(Actor):
    out = SlotOutlet(Many)


class NumberedBetween(Actor):
    role = "between"
    inn = SlotInlet(Many)
    out = SlotOutlet(Many)


class NumberedEater(Actor):
    inn = SlotInlet(Many)


def in_order(producers: int, *, by_share: bool = True) -> Topology:
    """Numbered producers and one consumer."""
    t = Topology()
    carrier = Slots(Layout({"value": ("int64", ())}), by_share=by_share)
    t.connect(t.add(Numbered, count=producers, group="numbered").out, t.add(NumberedEater).inn, carrier)
    return t


def test_one_actor_behind_several_numbered_producers_is_refused_with_the_count_that_fits() -> None:
    t = in_order(3)
    between = t.add(NumberedBetween)
    assert refusal(lambda: t.insert(t["numbered"].out, between, "inn", "out")) == (
        "`numbered.out` has 3 producers whose messages are numbered one by one, and `between` has 1 actor",
        "add it with count=3: one actor behind each producer",
    )
    assert [str(c.source) for c in t.channels.values()] == ["numbered.out"], "what was refused changes nothing"
    t.insert(t["numbered"].out, t.add(NumberedBetween, count=3, group="three"), "inn", "out")
    free = in_order(3, by_share=False)
    free.insert(free["numbered"].out, free.add(NumberedBetween), "inn", "out")


def test_what_an_inserted_actor_had_claimed_is_offered_to_its_successor() -> None:
    t = in_order(1)
    t.insert(t["numbered"].out, t.add(NumberedBetween), "inn", "out")
    halves = {channel.source: channel.options["on_death"] for channel in t.plan().channels}
    assert halves == {"numbered.out": "reoffer", "between.out": "drop"}


@pytest.mark.parametrize(("inlet", "outlet", "missing"), [("in", "out", "in"), ("inn", "passed", "passed")])
def test_an_inserted_actor_has_the_ports_that_are_named(inlet: str, outlet: str, missing: str) -> None:
    t = pair()
    between = t.add(Between)
    text, _ = refusal(lambda: t.insert(t["feeder"].out, between, inlet, outlet))
    assert text == f"Between has no port `{missing}`; it has: inn, out"
    assert [str(c.source) for c in t.channels.values()] == ["feeder.out"]


class Plain(Actor):
    def run(self) -> None:  # type: ignore[override]
        """Not awaitable."""


def test_a_method_that_is_awaited_must_be_async() -> None:
    text, hint = refusal(lambda: Topology().add(Plain))
    assert text == "`run` of Plain is a plain function"
    assert hint.startswith("write `async def run(self) -> None`")


class Sized(Actor):
    def __init__(self, size: int, unit: str = "") -> None: ...


@pytest.mark.parametrize(
    ("cls", "parameters", "fault"),
    [
        (Sized, {}, "Sized: missing a required argument: 'size'"),
        (Sized, {"size": 1, "weight": 2}, "Sized: got an unexpected keyword argument 'weight'"),
        (Source, {"size": 1}, "Source: got an unexpected keyword argument 'size'"),
    ],
)
def test_parameters_that_do_not_fit_the_constructor_are_refused_before_any_actor_starts(
    cls: type[Actor], parameters: dict[str, Any], fault: str
) -> None:
    t = Topology()
    group = t.add(cls, group="mine", **parameters)
    if cls is Source:
        t.connect(group.out, t.add(Sink).inn)
    text, hint = refusal(t.plan)
    assert text == f"`mine` cannot be built, because its parameters do not fit {fault}"
    assert hint == f"the parameters that it was added with: {', '.join(parameters) or 'none'}"


def test_parameters_may_be_completed_after_the_group_was_added() -> None:
    """As [custom] of a config does."""
    t = Topology()
    group = t.add(Sized)
    group.parameters["size"] = 3
    t.plan()
