"""The learner's actor of a run with a replay memory.

    for state version v:   admit    the rollouts of all rounds up to that of turn v     -> rows, ledger
                                    (asynchronously: as many rollouts, and up to max_lag rounds more)
                           draw     the plans whose gradients are made on version v     -> plans
                           claim    the gradients of turn v, as any learner does
                           learn    their errors as priorities; the optimizer's step    -> version v + 1

Each step is complete before the next begins, and its completion is a version of a board: the ledger's, a plan's, the
state's. A successor finds the last complete one and repeats the next (hive.training.update.replay_memory). Slots of
rollouts are retired after their ledger, as slots of gradients are after their state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from hive import _native
from hive.algorithms.parameters import is_steady
from hive.experience import Rollout
from hive.networks.rows.normalization import MOMENTS_OF
from hive.records.run_warnings import FACT, GIVEN_DATA
from hive.runtime import WAIT_OUT, CachedViews, Publication, SharedIn, SharedOut, Slot, SlotInlet
from hive.runtime.memory.segments import Arrays
from hive.training.blueprint import Blueprint
from hive.training.messages import ReplayFloor, ReplayLedger, ReplayPlan, ReplayRows, RolloutReady
from hive.training.replay_floor import read_floor
from hive.training.run_start import write_first_ledger
from hive.training.update.learner import Count
from hive.training.update.learner_actor import LearnerActor
from hive.training.update.native_exchange import exchange_of
from hive.training.update.native_rounds import CollectedParts, NativeUpdates, replay_memory
from hive.training.update.replay_memory import REPLAY_VALUES, ReplayMemory
from hive.training.update.saves import SAVE_AGAIN_S


class ReplayLearnerActor(LearnerActor):
    """Keeps rollouts in the replay memory, draws the plans of gradients, and makes turns of the gradients."""

    rollouts = SlotInlet(RolloutReady)
    memory = SharedOut(ReplayRows)
    ledger = Publication(ReplayLedger)
    plans = Publication(ReplayPlan)
    floor = SharedIn(ReplayFloor)

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__(blueprint)
        collection = blueprint.config.collection
        self.saves.exact &= blueprint.config.checkpoint.replay
        self.as_ready = collection.communication == "asynchronous"
        self.rounds_early = collection.max_lag if self.as_ready else 0  # rounds that are appended before their turns
        self.replay: ReplayMemory = blueprint.replay.memory(self.memory.memory)
        self.size = blueprint.replay.size
        self.ledger_views, self.plan_views = CachedViews(blueprint.ledger_layout), CachedViews(blueprint.plan_layout)
        self.phase = self.status.phase("replay")
        self.waits = self.status.phase("wait ledger", WAIT_OUT)
        self.held: tuple[int, list[int]] | None = None  # ledger last held for the recorder, and the first rows it needs
        self.replay_counters = {name: self.status.counter(name) for name in REPLAY_VALUES}
        self.per_batch = blueprint.gradients_per_batch
        self.normalizes = any(name in blueprint.ledger_layout.fields for name in MOMENTS_OF)
        self.exchange: _native.Exchange | None = None  # with collectors, once all of them have joined
        self.handed_episodes = -1  # those of the last round whose end was handed over

    async def setup(self) -> None:
        """Publish the first ledger, or continue from the last one."""
        await super().setup()
        board = self.ledger.board
        if board.latest < 0:
            weights = self.weights.board.read(self.turn)
            version = write_first_ledger(self.blueprint, self.replay, self.ledger_views(board.begin()), weights)
            board.publish(version)
            if self.blueprint.gives_rows and (rows := int(self._ledger()["counters"][Count.given])):
                place = self.blueprint.replay.config.replay_from
                self.note("given", f"{rows:,} transitions of {place} entered the replay memory", rows=rows)
                self._report_given()
        else:
            self.replay.forget_unfinished(self._ledger())
        self.time.begun_ns = self.clock.now_ns()  # the steps before the first update are among those that rates count

    def _report_given(self) -> None:
        """Tell what the given transitions are, and what is probably wrong with them."""
        if (report := self.blueprint.given) is not None:
            self.note(FACT, report.text, fact=GIVEN_DATA)
            for warning in report.warnings[:1]:  # a name has one text; the others are told once it is mended
                fields = warning.event
                self.note(fields.pop("kind"), fields.pop("text"), **fields)

    async def _retire_applied(self) -> None:
        await super()._retire_applied()
        lines, admitted = self.rollouts.lines, self._ledger()["rollouts"]
        for producer in lines.producers:
            for sequence in lines.waiting(producer):
                if sequence < admitted[producer]:
                    lines.retire(await self.rollouts.claim(producer, sequence))

    async def _claim(self, claimed: list[Slot]) -> None:
        if not claimed:
            await self._admit()
            self._draw()
        await super()._claim(claimed)

    async def _turns_natively(self, claimed: list[Slot]) -> int:
        if self.rounds is None or claimed or self.rounds.produced > self.turn:
            return 0
        await self._admit()
        made = await super()._turns_natively(claimed)
        if self.lists and self.exchange is not None and (found := self.exchange.take_ended()) is not None:
            returns, lengths, columns, infos, updates, env_steps = found
            counted = {"episodes": self._ledger()["counters"].item(Count.episodes), "env_steps": env_steps}
            for listed in self.lists:
                listed.of_arrays(
                    returns, lengths, columns, infos, {**self.results.totals, **counted, "updates": updates}
                )
        return made

    def _native_updates(self) -> NativeUpdates | None:
        return super()._native_updates() if self.replay.holds_enough(self._ledger()) else None

    def _replay_memory(self) -> dict[str, Any]:
        return replay_memory(self.replay, self.plans.board, self.blueprint.plan_layout, self.per_batch)

    def _collected_parts(self) -> CollectedParts:
        return CollectedParts(self.learner, self.weights.board)

    def _following(self) -> dict[str, Any] | None:
        """Go on with further rounds, unless the end of this one has work for the learner.

        Then each round has another learning rate or other statistics of rows, a save is overdue, or an episode has
        ended, so that the policy may be the best so far. No call that begins within a round may pass over its end.
        """
        schedule = self.learner.config.learning_rate_schedule
        steady = is_steady(schedule, self.results.totals["env_steps"]) and not self.as_ready and not self.normalizes
        ended = self._ledger()["counters"].item(Count.episodes) != self.handed_episodes
        # Native code calls no callbacks, does not count steps of several agents, and appends every rollout.
        wanted = self.blueprint.wanted
        followed = self.callbacks is not None and (wanted.rounds or bool(wanted.entries))
        uncounted = self.end.goal is not None or self.blueprint.environment.agents or not self.replay.keeps_steps
        if not steady or ended or self.saves.schedule.late or followed or uncounted:
            return None
        if self.exchange is None:
            ports = (
                self.rollouts,
                self.behaviour,
                self.blueprint.flat.block_bytes,
                self.ledger,
                self.blueprint.ledger_layout,
            )
            phases = self.rollouts.lines.phase, self.phase
            self.exchange = exchange_of(*ports, self.replay.writer_keys(), self.status, phases)
        if self.exchange is None:
            return None
        barriers = self.schedule.barriers
        steps = {"updates": barriers.per_round, "rounds": barriers.interval, "last_env_steps": self.config.run.steps}
        return {"exchange": self.exchange, **steps}

    async def _hand_over(self, *, force: bool) -> None:
        await super()._hand_over(force=force)
        if self.schedule.gradients.may_end(self.turn):
            self.handed_episodes = int(self.results.totals["episodes"])

    async def _admit(self) -> None:
        """Append the rollouts that the next turn requires: as many as all rounds up to its own have."""
        barriers, collectors = self.schedule.barriers, len(self.rollouts.producers)
        needed = (barriers.rounds_after(self.turn) + 1) * collectors
        most = needed + self.rounds_early * collectors
        while (admitted := self.ledger.board.latest) < most:
            slots = await self._claim_rollouts(admitted, needed, most)
            if not slots:
                return
            rollouts = [Rollout(slot.arrays) for slot in slots]
            await self._until_saved(rollouts)
            self.status.enter(self.phase)
            board = self.ledger.board
            before, after = self._ledger(), self.ledger_views(board.begin())
            self.replay.admit(rollouts, before, after, self._largest_leaf())
            board.publish(admitted + len(slots))
            if self.lists:
                self._list(rollouts)
            for slot in slots:
                self.rollouts.retire(slot)
            self.status.enter(self.status.runtime)

    def _list(self, rollouts: Sequence[Rollout]) -> None:
        """Add the episodes of rollouts that were just appended. The next turn counts them."""
        counters = self._ledger()["counters"]
        first_ns, now_ns = self.time.times(self.results.state["counters"])
        counted = {"episodes": counters.item(Count.episodes), "env_steps": counters.item(Count.env_steps)}
        for listed in self.lists:
            listed.of_rollouts(rollouts, {**self.results.totals, **counted, "train_s": (now_ns - first_ns) / 1e9})

    async def _claim_rollouts(self, admitted: int, needed: int, most: int) -> list[Slot]:
        """Claim the next round; or, of asynchronous collectors, what has arrived, and wait only for what is needed."""
        producers = self.rollouts.producers
        if not self.as_ready:
            return [await self.rollouts.claim(producer, admitted // len(producers)) for producer in producers]
        slots = [await self.rollouts.claim()] if admitted < needed else []
        waiting = self.rollouts.lines.waiting
        ready = sorted((sequence, producer) for producer in producers for sequence in waiting(producer))
        for sequence, producer in ready[: most - admitted - len(slots)]:  # oldest first: none is left behind
            slots.append(await self.rollouts.claim(producer, sequence))
        return slots

    async def _until_saved(self, rollouts: Sequence[Rollout]) -> None:
        """Wait until the recorder has read the rows that these rollouts overwrite, if it is writing a checkpoint."""
        written = self._ledger()["written"]
        overwritten = {one.source: int(written[one.source]) + one.length + 1 - self.size.rows for one in rollouts}
        while any(overwritten[source] >= first for source, first in enumerate(self._needed()) if source in overwritten):
            self.status.enter(self.waits)
            await asyncio.sleep(SAVE_AGAIN_S)
        self.status.enter(self.status.runtime)

    def _needed(self) -> Sequence[int]:
        """Return the first row of each source that the recorder still needs; none if it writes no checkpoint."""
        if not self.ledger.board.view.words.pinned(0):
            return ()
        if self.held is None:  # held by the learner's predecessor
            return [0] * self.size.sources
        ledger, first_held = self.held
        first = read_floor(self.floor.memory.view(np.int64), ledger)
        return first_held if first is None else first

    def _draw(self) -> None:
        """Draw the plans of the gradients that are made on this version."""
        schedule, board = self.schedule.gradients, self.plans.board
        number = max(board.latest + 1, self.turn // self.per_batch)
        while schedule.state_version(number * self.per_batch) <= self.turn:
            self.replay.draw(number, self._ledger(), self.plan_views(board.begin()))
            board.publish(number)
            number += 1

    def _collected(self) -> Arrays:
        return self._ledger()

    def _learned(self, claimed: list[Slot], after: Arrays) -> None:
        """Set the priorities of the rows that the gradients were made of."""
        plan = self.plan_views(self.plans.board.read(self.turn // self.per_batch))
        largest, saturated = self.replay.learn(plan, [slot.arrays["errors"] for slot in claimed])
        counters = after["counters"]
        counters[Count.largest_leaf] = max(int(counters[Count.largest_leaf]), largest, self.replay.first_leaf)
        counters[Count.saturated] += saturated

    def _more_values(self) -> dict[str, float]:
        board = self.plans.board
        draws = (self.turn // self.per_batch) * self.blueprint.replay.config.batch_size
        plan = self.plan_views(board.read(board.latest))
        values = self.replay.describe(self._ledger(), plan, draws)
        for name, value in values.items():
            self.status.set(self.replay_counters[name], value)
        return values

    def _ledger(self) -> Arrays:
        board = self.ledger.board
        return self.ledger_views(board.read(board.latest))

    def _largest_leaf(self) -> int:
        return int(self.results.state["counters"][Count.largest_leaf])

    def _hold_more(self) -> int:
        version = self.ledger.board.latest
        if self.blueprint.config.checkpoint.replay:
            self.replay.hold_leaves()
            self.ledger.board.hold(0, version)
            self.held = version, self.size.first_rows(self._ledger()["written"])
        return version
