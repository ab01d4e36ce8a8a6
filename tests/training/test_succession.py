"""Successors of killed actors: tests of one actor on the slabs and boards that its predecessor left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simulation.fakes import LocalHost
from small_trainer import Arrays, Page, allocate, collector_of, config_of, worker_of

from hive.clock import RealClock
from hive.gradients import ENV_STEPS, EPISODES, ROLLOUTS, SAMPLES, clear
from hive.networks import aligned_block
from hive.runtime import Layout, Slot
from hive.runtime.carriers.boards import BoardReader, BoardWriter
from hive.runtime.carriers.slots import SlotReceiver, Slots, SlotSender
from hive.runtime.carriers.waiting import Waiter
from hive.runtime.memory.segments import PAGE, REASONS, BoardPlan, BoardView, SlabPlan, SlabView
from hive.training import Blueprint, Gradient, GradientWorkerActor, LearnerActor, Metrics, RolloutReady
from hive.training.run_start import write_first_state
from hive.training.update.learner import Count

DIED = REASONS.index("consumer_died")
WORKERS = 2


def notify_none(*actors: int) -> None:
    """Notify no process."""


def slab_of(layout: Layout, slots: int) -> SlabView:
    plan = SlabPlan(slots, layout.bytes)
    memory = aligned_block(plan.bytes + PAGE)
    plan.format(memory)
    return SlabView(memory, plan, layout)


def board_of(block_bytes: int, commit: BoardView | None = None) -> BoardView:
    plan = BoardPlan(3, block_bytes, 1, 1)
    memory = aligned_block(plan.bytes)
    plan.format(memory)
    return BoardView(memory, plan, commit)


class ActorContext:
    """Records the requests of an actor to its process."""

    resumed_ns = 0  # the run was never paused

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.over = ""

    def neighbors(self) -> list[Any]:
        return []

    def note(self, kind: str, text: str, fields: dict[str, Any]) -> None:
        self.notes.append((kind, text))

    def end_run(self, reason: str) -> None:
        self.over = reason


class Line:
    """The consumer of an outlet, which keeps all messages."""

    def __init__(self) -> None:
        self.sent: list[Metrics] = []

    async def send_many(self, messages: Sequence[Metrics]) -> None:
        self.sent.extend(messages)


class ActorFixture:
    """The blueprint and process that an actor without a run needs."""

    def __init__(self, **values: Any) -> None:
        self.blueprint = Blueprint(config_of("small_environments:OneState", **values))
        self.actor_context = ActorContext()
        self.page = Page()

    def make_actor(self, cls: type, incarnation: int) -> tuple[Any, Waiter]:
        """An actor without ports, not yet constructed, and its waiter."""
        actor = cls.__new__(cls)
        actor.name, actor.index, actor.incarnation = f"{cls.role_name()}-0", 0, incarnation
        actor.actor_context, actor.status, actor.log = self.actor_context, self.page.status, logging.getLogger("test")
        actor.clock = RealClock()
        return actor, Waiter(self.page.status, dedicated=False)


# --- the gradient worker


class WorkerFixture(ActorFixture):
    """Two collectors that collect when told to, and the place of gradient-worker-0, which is actor 7.

    It lags so far behind that the initial weights will do for all its gradients.
    """

    def __init__(self) -> None:
        super().__init__(gradients__communication='"pipelined"', gradients__max_lag=9)
        self.rollouts = [slab_of(self.blueprint.rollout_layout, slots=3) for _ in range(2)]
        self.gradients = slab_of(self.blueprint.gradient_layout(2), slots=6)
        self.weights = board_of(self.blueprint.state.bytes)
        write_first_state(
            self.blueprint,
            self.weights.blocks[self.weights.words.begin()],
            np.zeros(self.blueprint.optimizer_state_bytes, np.uint8),
        )
        self.weights.words.seal(0, 0)
        self.weights.words.publish(0)
        self.collectors = [collector_of(self.blueprint, producer) for producer in (0, 1)]

    def actor(self, incarnation: int, receiver: type[SlotReceiver] = SlotReceiver) -> GradientWorkerActor:
        actor, waiter = self.make_actor(GradientWorkerActor, incarnation)
        rollouts = LocalHost(dict(zip(("rollouts:0", "rollouts:1"), self.rollouts, strict=True)), incarnation)
        gradients = LocalHost({"gradients:7": self.gradients}, incarnation)
        rollouts.waiters = gradients.waiters = {7: waiter}
        carrier = Slots(self.blueprint.rollout_layout, slots=3)
        line = receiver(rollouts.end(carrier, (0, 1), (7,), 7, RolloutReady), carrier, dict(enumerate(self.rollouts)))
        actor.rollouts = GradientWorkerActor.rollouts.bind(line)
        actor.state = GradientWorkerActor.state.bind(BoardReader("weights", self.weights, 0, waiter))
        carrier = Slots(self.blueprint.gradient_layout(2), slots=6)
        sender = SlotSender(gradients.end(carrier, (7,), (9,), 7, Gradient), carrier, self.gradients)
        actor.gradients = GradientWorkerActor.gradients.bind(sender)
        actor.__init__(self.blueprint, Path())
        return actor  # type: ignore[no-any-return]

    def collect(self, producer: int, count: int = 1) -> None:
        """Collector `producer` makes its next rollouts."""
        slab = self.rollouts[producer]
        for _ in range(count):
            index = slab.words.reserve(producer, 0)
            rollout, sequence = slab.slots[index], slab.words.produced
            self.collectors[producer].collect(rollout, sequence=sequence, version=0)
            slab.words.commit(index, producer, 0)

    def claim(self, producer: int, sequence: int, incarnation: int = 0) -> None:
        assert self.rollouts[producer].words.claim(7, incarnation, sequence) >= 0

    def kill(self, incarnation: int = 0) -> None:
        """Reclaim the actor's slots and blocks, as the supervisor does after a confirmed exit."""
        for slab in self.rollouts:
            slab.words.recover(7, incarnation, False, DIED)
        self.gradients.words.recover(7, incarnation, True, DIED)

    def successor(self, gradients: int, late: Sequence[int] = (), incarnation: int = 1, **options: Any) -> list[Arrays]:
        """Run it until this many gradients exist and it waits; return these gradients.

        `late`: collectors that make a rollout when it first has nothing to do.
        """
        actor = self.actor(incarnation, **options)

        async def live() -> None:
            async with asyncio.timeout(2.0):
                living = asyncio.create_task(actor.run())
                await self.idle()
                for producer in late:
                    self.collect(producer)
                actor.rollouts.lines.waiter.wake()
                while len(self.made()) < gradients:
                    await asyncio.sleep(0)
                await self.idle()
                living.cancel()
                await asyncio.gather(living, return_exceptions=True)

        asyncio.run(live())
        return self.made()

    async def idle(self) -> None:
        while self.page.read().phase != "wait rollouts":
            await asyncio.sleep(0)

    def made(self) -> list[Arrays]:
        """The unclaimed gradients, in order."""
        words = self.gradients.words
        states = [words.state(index) for index in range(words.slots)]
        full = sorted((state[3], index) for index, state in enumerate(states) if state[0] == 3)
        return [self.gradients.slots[index] for _, index in full]

    def accounts(self) -> list[dict[str, Any]]:
        return [slab.counts() for slab in self.rollouts]


def samples_of(gradients: Sequence[Arrays]) -> list[int]:
    return [int(gradient["header"][SAMPLES]) for gradient in gradients]


def gradient_of_one(fixture: WorkerFixture, producer: int) -> NDArray[np.float32]:
    """The gradient of the first rollout of that collector alone."""
    rollout, out = allocate(fixture.blueprint.rollout_layout), allocate(fixture.blueprint.gradient_layout(2))
    collector_of(fixture.blueprint, producer).collect(rollout, sequence=0, version=0)
    worker_of(fixture.blueprint).compute([rollout], out, sequence=0, version=0)
    gradient: NDArray[np.float32] = out["gradient"]
    return gradient


def test_the_first_incarnation_has_lost_nothing() -> None:
    fixture = WorkerFixture()
    fixture.collect(0, 2)
    fixture.collect(1, 2)
    assert samples_of(fixture.successor(2, incarnation=0)) == [32, 32]
    assert fixture.actor_context.notes == []


def test_unclaimed_rollouts_are_not_lost() -> None:
    fixture = WorkerFixture()
    fixture.collect(0, 2)
    fixture.collect(1, 2)
    fixture.kill()
    assert samples_of(fixture.successor(2)) == [32, 32]
    assert all(account["consumed"] == 2 for account in fixture.accounts())
    assert fixture.actor_context.notes == []


@pytest.mark.parametrize("claimed", [0, 1])
def test_one_of_two_rollouts_was_claimed(claimed: int) -> None:
    """It was lost with the killed worker; its round is made of the other rollout, which is not wasted."""
    fixture = WorkerFixture()
    fixture.collect(0, 2)
    fixture.collect(1, 2)
    fixture.claim(claimed, 0)
    fixture.kill()
    made = fixture.successor(2)
    assert samples_of(made) == [16, 32]
    lost = {"produced": 2, "consumed": 1, "dropped": {"consumer_died": 1}, "in_flight": 0}
    kept = {"produced": 2, "consumed": 2, "dropped": {}, "in_flight": 0}
    assert fixture.accounts() == ([lost, kept] if claimed == 0 else [kept, lost])
    assert [kind for kind, _ in fixture.actor_context.notes] == ["lost"]
    alone = gradient_of_one(fixture, 1 - claimed)
    assert np.array_equal(made[0]["gradient"], alone)


def test_a_run_that_was_saved_within_a_round_blames_no_predecessor() -> None:
    fixture = WorkerFixture()
    fixture.collect(0)
    fixture.collect(1)
    fixture.claim(0, 0)
    fixture.kill()
    fixture.successor(1, incarnation=0)
    ((_, text),) = fixture.actor_context.notes
    assert "saved within a round" in text


def test_both_were_claimed_and_the_gradient_was_being_written() -> None:
    """Nothing of the round is left: its gradient is one of zero samples, so that the learner need not know."""
    fixture = WorkerFixture()
    for producer in (0, 1):
        fixture.collect(producer)
        fixture.claim(producer, 0)
    fixture.gradients.words.reserve(7, 0)
    fixture.kill()
    (lost,) = fixture.successor(1)
    assert lost["header"][[SAMPLES, EPISODES]].tolist() == [0, 0]
    assert not lost["mask"].any()
    assert [account["dropped"] for account in fixture.accounts()] == [{"consumer_died": 1}] * 2
    assert fixture.gradients.counts()["produced"] == 1


def test_the_gradient_was_there_and_its_rollouts_not_yet_given_back() -> None:
    """The next round is the first that the successor makes."""
    fixture = WorkerFixture()
    for producer in (0, 1):
        fixture.collect(producer, 2)
        fixture.claim(producer, 0)
    fixture.gradients.words.commit(fixture.gradients.words.reserve(7, 0), 7, 0)
    fixture.made()[0]["header"][SAMPLES] = 5
    fixture.kill()
    assert samples_of(fixture.successor(2)) == [5, 32]
    assert fixture.actor_context.notes == []


def test_a_successor_is_killed_as_well() -> None:
    """With the other rollout of the round claimed: then nothing of it is left."""
    fixture = WorkerFixture()
    fixture.collect(0, 2)
    fixture.collect(1, 2)
    fixture.claim(0, 0)
    fixture.kill()
    fixture.claim(1, 0, incarnation=1)
    fixture.kill(incarnation=1)
    assert samples_of(fixture.successor(2, incarnation=2)) == [0, 32]


def test_a_rollout_of_the_round_that_comes_later_is_waited_for() -> None:
    """Collector-0's was lost before collector-1 had made its own. Unclaimed, it would occupy a slot forever."""
    fixture = WorkerFixture()
    fixture.collect(0)
    fixture.claim(0, 0)
    fixture.kill()
    assert samples_of(fixture.successor(1, late=[1])) == [16]
    assert fixture.accounts()[1] == {"produced": 1, "consumed": 1, "dropped": {}, "in_flight": 0}


def test_a_rollout_that_comes_while_it_looks_is_not_taken_for_lost() -> None:
    fixture = WorkerFixture()
    fixture.collect(0)

    class Looks(SlotReceiver):
        def first_left(self, producer: int) -> int:
            found = super().first_left(producer)
            if producer == 1 and not self.views[1].words.produced:
                fixture.collect(1)
            return found

    assert samples_of(fixture.successor(1, receiver=Looks)) == [32]
    assert [account["in_flight"] for account in fixture.accounts()] == [0, 0]


# --- the learner


class LearnerFixture(ActorFixture):
    """Six gradients of each of two workers lie ready, of 16 samples and one episode each, for actor 9."""

    def __init__(self, turns: int = 5, bootstrap_rounds: int = 1, **values: Any) -> None:
        super().__init__(
            run__steps=turns * bootstrap_rounds * WORKERS * 16,
            collection__workers=WORKERS,
            gradients__workers=WORKERS,
            gradients__bootstrap_rounds=bootstrap_rounds,
            algorithm__learning_rate=0.05,
            **values,
        )
        self.gradients = [slab_of(self.blueprint.gradient_layout(2), slots=6) for _ in range(WORKERS)]
        self.optimizer_state = board_of(self.blueprint.optimizer_state_bytes)
        self.weights = board_of(self.blueprint.state.bytes, self.optimizer_state)
        self.behaviour = board_of(self.blueprint.flat.block_bytes)
        self.metrics = Line()
        for worker, slab in enumerate(self.gradients):
            for number in range(slab.words.slots):
                index = slab.words.reserve(20 + worker, 0)
                generator, arrays = np.random.default_rng([worker, number]), slab.slots[index]
                clear(arrays, version=number // bootstrap_rounds)
                arrays["header"][[SAMPLES, ENV_STEPS, EPISODES, ROLLOUTS]] = 16, 16, 1, 1
                arrays["gradient"][:] = 0.1 * generator.standard_normal(arrays["gradient"].shape)
                arrays["episode_returns"][0] = 10 * number + worker
                slab.words.commit(index, 20 + worker, 0)

    def live(
        self,
        cls: type[LearnerActor] = LearnerActor,
        incarnation: int = 0,
        receiver: type[SlotReceiver] = SlotReceiver,
    ) -> LearnerActor:
        """A learner's life, from its setup to its end; raises what ends it."""
        actor, waiter = self.make_actor(cls, incarnation)
        views, workers = dict(enumerate(self.gradients)), range(WORKERS)
        host = LocalHost({f"gradients:{worker}": views[worker] for worker in workers}, incarnation)
        host.waiters = {9: waiter}
        carrier = Slots(self.blueprint.gradient_layout(2), slots=6)
        line = receiver(host.end(carrier, workers, (9,), 9, Gradient), carrier, views)
        actor.gradients = cls.gradients.bind(line)
        for name in ("optimizer_state", "weights", "behaviour"):
            setattr(actor, name, getattr(cls, name).bind(BoardWriter(getattr(self, name), notify_none)))
        actor.metrics = cls.metrics.bind(self.metrics)
        actor.__init__(self.blueprint)

        async def run() -> None:
            async with asyncio.timeout(2.0):
                await actor.setup()
                await actor.run()

        asyncio.run(run())
        return actor  # type: ignore[no-any-return]

    def kill(self) -> None:
        """Reclaim the actor's slots and blocks, as the supervisor does after a confirmed exit."""
        for slab in self.gradients:
            slab.words.recover(9, 0, True, DIED)
        for board in (self.optimizer_state, self.weights, self.behaviour):
            board.words.recover_writer()


class Killed(Exception):
    """Stands for SIGKILL within one process."""


class DiesBeforeTheCommit(LearnerActor):
    """Killed in its third turn, with both blocks half written."""

    def _turn(self, claimed: Any) -> None:
        if self.turn == 2:
            self.weights.board.begin()[:] = 0xEE
            self.optimizer_state.board.begin()[:] = 0xEE
            raise Killed
        super()._turn(claimed)


class DiesBetweenTheBlocks(LearnerActor):
    """Killed in its third turn, after the weights are sealed and before the optimizer state commits them."""

    def _turn(self, claimed: Any) -> None:
        if self.turn == 2:
            self.weights.board.begin()[:] = 0xEE
            self.weights.board.seal(3)
            raise Killed
        super()._turn(claimed)


class DiesAfterTheCommit(LearnerActor):
    """Killed after the commit of its third turn, before it retires a gradient."""

    def _turn(self, claimed: Any) -> None:
        super()._turn(claimed)
        if self.turn == 3:
            raise Killed


class DiesWhileItFrees(LearnerActor):
    """Killed after its third turn, with one of its gradients retired."""

    def _turn(self, claimed: Any) -> None:
        super()._turn(claimed)
        if self.turn == 3:
            self.gradients.retire(claimed[0])
            raise Killed


class DiesBeforeItPublishes(LearnerActor):
    """After its third turn, all of it given back, the behaviour version not yet out."""

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        publish = self.versions.publish

        def killed(turn: int, claimed: Sequence[Slot] = ()) -> None:
            if turn == 3:
                raise Killed
            publish(turn, claimed)

        self.versions.publish = killed  # type: ignore[method-assign]


def state_of(fixture: LearnerFixture, actor: LearnerActor) -> tuple[bytes, bytes, NDArray[np.float32], list[int]]:
    """Weights, moments, returns and the counters that are no times."""
    views = actor.learner.layout.views(
        fixture.optimizer_state.blocks[fixture.optimizer_state.words.find(fixture.optimizer_state.latest)]
    )
    weights = fixture.weights.blocks[fixture.weights.words.find(fixture.optimizer_state.latest)].tobytes()
    return weights, views["moments"].tobytes(), views["returns"].copy(), views["counters"][: Count.first_ns].tolist()


@pytest.mark.parametrize(
    "death",
    [DiesBeforeTheCommit, DiesBetweenTheBlocks, DiesAfterTheCommit, DiesWhileItFrees, DiesBeforeItPublishes],
)
def test_a_learner_that_is_killed_loses_nothing(death: type[LearnerActor]) -> None:
    """Wherever it was in its third turn, its successor ends with the bytes of one that was not killed."""
    whole, broken = LearnerFixture(), LearnerFixture()
    expected = state_of(whole, whole.live())
    with pytest.raises(Killed):
        broken.live(death)
    broken.kill()
    found = state_of(broken, broken.live(incarnation=1))
    assert found[:2] == expected[:2]
    assert np.array_equal(found[2], expected[2])
    assert found[3] == expected[3] == [5, 10, 160, 10, 0]
    assert broken.behaviour.latest == whole.behaviour.latest == 5
    for slab in broken.gradients:
        assert slab.counts() == {"produced": 6, "consumed": 5, "dropped": {}, "in_flight": 1}
    assert broken.actor_context.over == whole.actor_context.over == "160 steps"


def test_a_learner_killed_within_the_last_round_is_followed_by_one_that_completes_it() -> None:
    """The goal is reached in the fourth turn, and a round has three: the run ends after the sixth."""
    rounds = {"run__scheme": '"ppo"', "algorithm__epochs": 3, "algorithm__minibatches": 1}
    whole, broken = LearnerFixture(turns=4, **rounds), LearnerFixture(turns=4, **rounds)
    expected = state_of(whole, whole.live())

    class DiesInTheLastRound(LearnerActor):
        def _turn(self, claimed: Any) -> None:
            super()._turn(claimed)
            if self.turn == 4:
                raise Killed

    with pytest.raises(Killed):
        broken.live(DiesInTheLastRound)
    broken.kill()
    found = state_of(broken, broken.live(incarnation=1))
    assert found[3] == expected[3] == [6, 12, 192, 12, 0]
    assert found[:2] == expected[:2]


def test_the_rates_of_a_successor_are_those_since_its_start() -> None:
    """Not the updates of a moment divided by the training time of the whole run."""
    fixture, begun = LearnerFixture(), []

    class Watched(DiesAfterTheCommit):
        async def setup(self) -> None:
            await super().setup()
            totals = self.results.totals
            begun.append(
                (
                    self.reports.turns.reported_s - totals["train_s"],
                    self.reports.turns.reported_steps,
                    totals["env_steps"],
                )
            )

    with pytest.raises(Killed):
        fixture.live(Watched)
    fixture.kill()
    fixture.live(Watched, incarnation=1)
    assert [late for late, _, _ in begun] == [0.0, 0.0]
    assert begun[1][1] == begun[1][2] > 0


def test_a_successor_after_the_end_only_ends_the_run() -> None:
    fixture = LearnerFixture()
    fixture.live()
    fixture.kill()
    fixture.actor_context.over = ""
    actor = fixture.live(incarnation=1)
    assert (fixture.actor_context.over, actor.turn) == ("160 steps", 5)
    assert [slab.counts()["consumed"] for slab in fixture.gradients] == [5, 5]


def test_a_turn_takes_gradients_in_order_of_worker_then_sequence() -> None:
    """Two rounds of two workers; the order is that of the sum, and so of its bits."""
    seen: list[list[tuple[int, int]]] = []

    class Watched(LearnerActor):
        def _turn(self, claimed: Any) -> None:
            super()._turn(claimed)
            seen.append([(slot.producer, slot.sequence) for slot in claimed])

    fixture = LearnerFixture(bootstrap_rounds=2)
    fixture.blueprint.config = config_of(
        "small_environments:OneState", run__steps=3 * 64, gradients__bootstrap_rounds=2
    )
    fixture.live(Watched)
    assert seen == [[(0, 2 * n), (0, 2 * n + 1), (1, 2 * n), (1, 2 * n + 1)] for n in range(3)]


def test_behaviour_versions_are_due_by_rounds_not_by_updates() -> None:
    """Two rounds an update: a version is published after every round, also between updates."""
    published: list[tuple[int, int]] = []

    class Watched(LearnerActor):
        def __init__(self, blueprint: Blueprint) -> None:
            super().__init__(blueprint)
            publish = self.versions.publish

            def noted(turn: int, claimed: Sequence[Slot] = ()) -> None:
                publish(turn, claimed)
                if (now := (self.behaviour.latest, turn)) not in published:
                    published.append(now)

            self.versions.publish = noted  # type: ignore[method-assign]

    fixture = LearnerFixture(turns=3, bootstrap_rounds=2)
    fixture.live(Watched)
    assert published == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)]
    board = fixture.behaviour
    newest, state = board.blocks[board.words.find(6)], fixture.weights.blocks[fixture.weights.words.find(3)]
    assert np.array_equal(newest, state[: len(newest)])


def test_only_unfinished_workers_are_looked_at() -> None:
    """With as many workers as cores, asking all of them after every gradient would be most of what a learner does."""
    asked: list[int] = []

    class Counts(SlotReceiver):
        def first_left(self, producer: int) -> int:
            asked.append(producer)
            return super().first_left(producer)

    class Looks(LearnerActor):
        async def _claim(self, claimed: list[Slot]) -> None:
            for _ in range(100):  # as often as gradients come, where a learner takes them one by one
                self.versions.publish(self.turn, claimed)
            await super()._claim(claimed)

    fixture = LearnerFixture()
    fixture.live(Looks, receiver=Counts)
    assert fixture.behaviour.latest == 5
    assert 5 * 100 <= len(asked) < 5 * 100 + 6 * 3 * WORKERS


def test_metrics_are_means_over_the_turns_since_the_last() -> None:
    fixture = LearnerFixture()
    fixture.live()
    (only,) = fixture.metrics.sent
    assert (only.updates, only.env_steps) == (5, 160)
    assert only.values["lag/gradient_mean"] == 0.0
    assert only.values["return/mean_100"] == pytest.approx(np.mean([10 * n + w for n in range(5) for w in (0, 1)]))
