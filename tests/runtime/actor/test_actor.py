from __future__ import annotations

import copy
from typing import Any

import pytest

from hive.errors import TopologyError
from hive.runtime.actor.actor import CALL_DEADLINE_S, Actor, Handle, endpoint, endpoints_of


class Counter(Actor):
    def __init__(self, start: int = 0) -> None:
        self.count = start

    @endpoint
    async def add(self, more: int) -> int:
        self.count += more
        return self.count

    @endpoint
    async def reset(self) -> None:
        self.count = 0

    async def secret(self) -> None:
        """Not an endpoint."""


class Better(Counter):
    @endpoint
    async def double(self) -> int:
        self.count *= 2
        return self.count

    async def reset(self) -> None:
        """An endpoint no more: it is not marked here."""


class Host:
    """What a process offers its actor."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def cancel(self) -> None:
        self.calls.append(("cancel",))

    def end_run(self, reason: str) -> None:
        self.calls.append(("end_run", reason))

    def restart_actor(self, name: str, reason: str) -> None:
        self.calls.append(("restart_actor", name, reason))

    def note(self, kind: str, text: str, fields: dict[str, Any]) -> None:
        self.calls.append(("note", kind, text, fields))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("Collector", "collector"),
        ("GradientWorker", "gradient-worker"),
        ("GWorker", "gworker"),
        ("Stage2Learner", "stage2-learner"),
        ("EvaluatorV2", "evaluator-v2"),
        ("lower", "lower"),
    ],
)
def test_the_role_follows_from_the_class_name(name: str, role: str) -> None:
    assert type(name, (Actor,), {}).role_name() == role  # type: ignore[attr-defined]


def test_a_role_of_ones_own() -> None:
    class CollectorActor(Actor):
        role = "collector"

    class Special(CollectorActor):
        pass

    assert CollectorActor.role_name() == Special.role_name() == "collector"


def test_endpoints_are_what_is_marked() -> None:
    assert endpoints_of(Actor) == set()
    assert endpoints_of(Counter) == {"add", "reset"}
    assert endpoints_of(Better) == {"add", "double"}


def test_an_endpoint_is_asynchronous() -> None:
    with pytest.raises(TypeError, match=r"endpoint `.*wrong` must be `async def`"):

        @endpoint  # type: ignore[type-var]
        def wrong(self: Any) -> int:
            return 1


async def test_a_marked_method_is_still_a_method() -> None:
    counter = Counter(3)
    assert await counter.add(4) == 7
    await counter.reset()
    assert counter.count == 0


async def test_an_actor_need_not_define_anything() -> None:
    actor = Actor()
    await actor.setup()
    await actor.run()
    await actor.teardown()
    assert Actor.numbered


async def test_an_actor_uses_its_actor_context() -> None:
    actor, host = Actor(), Host()
    actor.actor_context = host  # type: ignore[assignment]
    await actor.drain()
    actor.end_run("goal reached")
    actor.restart_actor(Handle("worker-1", Actor), "the worst")
    actor.note("episode", "a record", mean_return=5.0)
    assert host.calls == [
        ("cancel",),
        ("end_run", "goal reached"),
        ("restart_actor", "worker-1", "the worst"),
        ("note", "episode", "a record", {"mean_return": 5.0}),
    ]


def test_a_handle_used_before_the_run_says_so() -> None:
    handle = Handle("counter-0", Counter)
    for call in (lambda: handle.call("add", 1), lambda: handle.add(1)):
        with pytest.raises(TopologyError) as caught:
            call()
        assert str(caught.value) == "`counter-0` is not running yet"
        assert "cannot be called while the topology is built" in caught.value.hint


async def test_a_bound_handle_calls() -> None:
    calls: list[Any] = []

    async def call(name: str, method: str, arguments: tuple[Any, ...], deadline_s: float) -> str:
        calls.append((name, method, arguments, deadline_s))
        return "answer"

    handle = Handle("counter-0", Counter)
    bound = handle.bound(call)
    assert await bound.add(1, 2) == "answer"
    assert await bound.add(1, deadline_s=0.5) == "answer"
    assert await bound.call("anything", deadline_s=2.0) == "answer"
    assert calls == [
        ("counter-0", "add", (1, 2), CALL_DEADLINE_S),
        ("counter-0", "add", (1,), 0.5),
        ("counter-0", "anything", (), 2.0),
    ]
    with pytest.raises(TopologyError):
        await handle.add(1)


def test_a_handle_knows_the_endpoints_of_its_class() -> None:
    handle = Handle("counter-0", Counter)
    for name in ("secret", "count", "missing"):
        with pytest.raises(AttributeError) as caught:
            getattr(handle, name)
        assert str(caught.value) == f"`counter-0` has no endpoint `{name}`; it has: add, reset"
    with pytest.raises(AttributeError, match="it has: none"):
        Handle("actor-0", Actor).anything  # noqa: B018
    assert not hasattr(handle, "_private")


def test_handles_can_be_copied() -> None:
    """Parameters of actors are copied by some users' code; a handle must not answer for `__copy__`."""
    assert copy.copy(Handle("counter-0", Counter))._name == "counter-0"
