"""The learner's actor: claims gradients, lets the learner apply them, commits, publishes and retires.

One store commits a turn: the version of the optimizer state, published once weights and optimizer state are written.
hive.training.schedule decides which gradients a turn takes and which version is due. hive.training.actors explains how
a turn is recovered when its learner is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from hive.algorithms.algorithm import Moments
from hive.algorithms.batches.advantages import merged
from hive.algorithms.parameters import update_parameter
from hive.gradients import VERSION
from hive.records.summary import NATIVE, NO_WORKER, ROUNDS
from hive.runtime import Actor, Inlet, Outlet, Publication, Slot, SlotInlet, endpoint
from hive.runtime.memory.segments import Arrays
from hive.runtime.memory.status import WAIT_IN
from hive.training.blueprint import Blueprint, blueprint_in
from hive.training.callbacks.messages import CallbackAnswer, CallbackEvents, CallbackState, RunChanges
from hive.training.callbacks.sequence import CallbackPorts, CallbackSequence
from hive.training.messages import (
    CheckpointDue,
    EpisodesEnded,
    Evaluation,
    EvaluationDue,
    Gradient,
    Improved,
    Metrics,
    OptimizerState,
    Weights,
)
from hive.training.resume_barriers import SaveSchedule
from hive.training.run_start import schedule_of, write_first_state
from hive.training.update.behaviour_versions import BehaviourVersions, BestOffers
from hive.training.update.ended_episodes import EndedEpisodes
from hive.training.update.evaluations import Evaluations
from hive.training.update.finite_check import FiniteCheck
from hive.training.update.goal import shared_goal
from hive.training.update.learner import Count
from hive.training.update.native_rounds import (
    CollectedParts,
    NativeRounds,
    NativeUpdates,
    Worker,
    native_obstacle,
    round_memory,
)
from hive.training.update.reports import Reports
from hive.training.update.results import Results
from hive.training.update.run_end import RunEnd
from hive.training.update.saves import SAVE_AGAIN_S, Saves
from hive.training.update.training_time import TrainingTime
from hive.training.update.turn_metrics import StepRecord


class LearnerActor(Actor):
    """Makes one turn after another until the run reaches its goal: claim, apply, commit, retire, publish.

    weights: the state of every turn. optimizer_state: counters and moments of every turn; its version is the commit.
    behaviour: the weights that collectors act with, one version per round or per `broadcast_interval` rounds.
    """

    role = "learner"
    gradients = SlotInlet(Gradient)
    weights = Publication(Weights)
    optimizer_state = Publication(OptimizerState)
    behaviour = Publication(Weights)
    metrics = Outlet(Metrics, pattern="broadcast")
    checkpoints = Outlet(CheckpointDue, pattern="broadcast")
    improved = Outlet(Improved, pattern="broadcast", optional=True)
    episodes = Outlet(EpisodesEnded, pattern="broadcast", optional=True)
    evaluations_due = Outlet(EvaluationDue, pattern="broadcast", optional=True)
    evaluations = Inlet(Evaluation, optional=True)
    callback_events = Publication(CallbackEvents, optional=True)
    callback_answers = SlotInlet(CallbackAnswer, optional=True)
    callback_state = Publication(CallbackState, optional=True)
    changes = Publication(RunChanges, optional=True)

    def __init__(self, blueprint: Blueprint) -> None:
        config = blueprint.config
        self.config = config
        self.blueprint = blueprint
        self.schedule = schedule_of(blueprint)
        self.learner = blueprint.learner(self.status)
        self.results = Results(blueprint, self.learner, self.optimizer_state, self.status)
        self.time = TrainingTime(self.clock, self.actor_context)
        # The episodes since the last report, if a sink takes them, and those of the round, if a callback does.
        infos, wanted = len(config.env.info), self.callback_state.connected and blueprint.wanted.episodes
        ended = EndedEpisodes(infos) if blueprint.records_episodes else None
        self.ended_in_round = EndedEpisodes(infos) if wanted else None
        self.lists = [one for one in (ended, self.ended_in_round) if one is not None]
        self.reports = Reports(
            *(blueprint, self.learner, self.results, self.weights, self.metrics, self.episodes, ended),
            more_values=self._more_values,
        )
        self.callbacks = self._callbacks()
        barriers, recorder = self.schedule.barriers, len(self.gradients.producers)  # the first reader after the workers
        self.evaluating = Evaluations(
            *(blueprint, barriers, self.weights, self.evaluations_due, self.evaluations, recorder + 1),
            *(self.callbacks, self.results, self.status, self.note),
        )
        self.saves = Saves(
            SaveSchedule(config, barriers, self.clock),
            config.exact,
            *(self.weights, self.optimizer_state, self.callback_state, self.checkpoints, recorder),
            *(self.evaluating, self.reports),
            hold_more=self._hold_more,
            note=self.note,
        )
        self.versions = BehaviourVersions(
            *(blueprint, self.schedule, self.gradients, self.weights, self.behaviour, self.results)
        )
        self.best = BestOffers(self.versions, self.improved)
        goal = shared_goal(self, in_order=not config.asynchronous)
        self.end = RunEnd(config, self.schedule, self.results, self.callbacks, goal)
        self.finite = FiniteCheck(blueprint, self.note)
        self.rounds: NativeRounds | None = None  # with a gradient worker of this process
        self.obstacle = NATIVE  # why updates are made one by one

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of a gradient, and of the initial weights, which all processes share."""
        return blueprint_in(parameters, lambda b: b.flat.parameter_bytes + b.flat.block_bytes)

    def _callbacks(self) -> CallbackSequence | None:
        """Return the sequence of callbacks; None without callbacks."""
        if not self.callback_state.connected:
            return None
        ports = CallbackPorts(self.callback_events, self.callback_answers, self.callback_state, self.changes)
        barriers = self.schedule.barriers
        return CallbackSequence(self.blueprint, ports, barriers, self.learner, self.results.of_event, self.reports.log)

    async def setup(self) -> None:
        """Publish the first version of every board, or continue from the last committed turn."""
        optimizer_state, weights = self.optimizer_state.board, self.weights.board
        if optimizer_state.latest < 0:
            version = write_first_state(self.blueprint, weights.begin(), optimizer_state.begin())
            weights.seal(version)
            optimizer_state.publish(version)  # after the seal, as in `_turn`
            weights.notify()
        self.turn = optimizer_state.latest
        self.results.update(self.turn)
        if self.incarnation == 0:
            self.evaluating.note_rounding()
        self._meet_worker()
        if self.callbacks is None or self.behaviour.board.latest < 0:
            self.versions.publish(self.turn)
        self.reports.begin()
        if self.callbacks is not None:
            await self.callbacks.setup(self.turn)
            self.callbacks.begin_round(self.schedule.barriers.rounds_after(self.turn))

    def _meet_worker(self) -> None:
        """Make rounds natively with the gradient worker of this process, if the config allows it."""
        self._show_rounds(native_obstacle(self.blueprint))
        workers = [actor for actor in self.actor_context.neighbors() if is_worker_of(actor, self.blueprint)]
        if self.obstacle == NATIVE and len(workers) == 1:
            worker = cast(Worker, workers[0])
            boards = self.weights.board, self.optimizer_state.board
            seed = self.config.run.seed
            memory = round_memory(
                self.learner, self.status, *boards, self.gradients, worker, seed, self._replay_memory()
            )
            collected = self._collected_parts()
            self.rounds = worker.rounds = NativeRounds(memory, worker, self.learner, seed, collected=collected)
        elif self.obstacle == NATIVE:
            self._show_rounds(NO_WORKER)

    def _show_rounds(self, obstacle: str) -> None:
        """Show how the updates of a round are made, one of ROUNDS."""
        self.obstacle = obstacle
        self.status.set(self.status.counter("rounds"), ROUNDS.index(obstacle))

    def _replay_memory(self) -> dict[str, Any] | None:
        """Return the memory of plans and priorities for native rounds; None without a replay memory."""
        return None

    def _collected_parts(self) -> CollectedParts | None:
        return None

    async def run(self) -> None:
        await self._retire_applied()
        if self.callbacks is None:  # else what holds from the next round on may not be known yet
            self.versions.publish(self.turn)  # the gradients just retired may have been the last of a round
        training, goal = self._train(), self.end.goal
        stop_reason = await (training if goal is None else goal.until_over(training))
        self.finite.check_end(self.turn, self.results.totals["skipped"], self.results.totals["updates"])
        await self.evaluating.all_done()
        self.evaluating.note_unfinished()
        if goal is not None:
            await goal.all_ended()
        if self.callbacks is not None:
            await self.callbacks.end(stop_reason, self.schedule.barriers.rounds_after(self.turn))
        self.end_run(stop_reason)

    async def _train(self) -> str:
        """Make turns until the run has reached its goal; return why it has."""
        claimed: list[Slot] = []
        await self._call_back()  # a predecessor may have been killed after a turn and before what follows it
        self.versions.publish(self.turn)
        stop_reason = await self.end.reached(self.turn)
        while stop_reason is None:
            made = await self._turns_natively(claimed)
            if not made:
                await self._claim(claimed)
            if len(claimed) == self.schedule.gradients.turn_size:
                self._turn(claimed)  # commits
                for slot in claimed:  # after the commit: until then a killed learner's successor needs the gradients
                    self.gradients.retire(slot)
                claimed.clear()
                self.finite.check(self.turn)  # after the retire: an error leaves no slot claimed
                made = 1
            if made:
                # Before the checkpoint, which a resumed run continues after this evaluation.
                await self.evaluating.request(self.turn)
                await self._call_back()
                stop_reason = await self.end.reached(self.turn)
                await self._hand_over(force=stop_reason is not None)
            # After the commit: collectors get the weights of the newest turn. Also without a turn, as a dropped
            # gradient may have been the last of its round.
            self.versions.publish(self.turn, claimed)
        return stop_reason

    async def _retire_applied(self) -> None:
        """Retire the gradients that a learner killed between commit and retire has left.

        They are already applied. Claimed again, they would be applied twice.
        """
        lines = self.gradients.lines
        for worker in lines.producers:
            for sequence in lines.waiting(worker):
                if sequence < self.results.state["applied"][worker]:
                    lines.retire(await self.gradients.claim(worker, sequence))

    async def _claim(self, claimed: list[Slot]) -> None:
        """Claim the gradients that are next, and drop those that are too old."""
        for wanted in self.schedule.gradients.claims(self.turn, len(claimed)):
            slot = await self.gradients.claim(wanted.producer, wanted.sequence)
            if wanted.max_lag is not None and self.turn - slot.arrays["header"][VERSION] > wanted.max_lag:
                self.status.count("stale")
                self.gradients.retire(slot, "stale")
            else:
                claimed.append(slot)

    async def _hand_over(self, *, force: bool) -> None:
        """Hand the turn to the recorder and the evaluator where it is due, before the next turn can overwrite it."""
        await self.saves.request(self.turn)
        if self.improved.connected and self.schedule.gradients.may_end(self.turn):
            await self.best.offer(self.turn)
        await self.reports.send(force=force)

    async def _turns_natively(self, claimed: list[Slot]) -> int:
        """Make turns of the gradients that a worker of this process offers, in one native call; return how many."""
        if self.rounds is None or claimed or self.rounds.produced > self.turn:
            return 0
        while (updates := self._native_updates() if self.rounds.has_offer else None) is None:
            # The worker makes a gradient only after an answer of 0; after any other it offers the rest of its round.
            if self.rounds.has_offer and not self.rounds.answer():
                if self.rounds.obstacle != self.obstacle:
                    self._show_rounds(self.rounds.obstacle)
                return 0
            with self.status("wait gradients", WAIT_IN):
                await self.rounds.offered()
        for step, statistics in zip(updates.steps, updates.statistics, strict=True):
            self.reports.turns.window.append(StepRecord(step, [(step.samples, statistics)], 0, None))
        self.turn += len(updates.steps)
        self.results.native_updates += len(updates.steps)
        self.finite.skipped = 0
        self.weights.board.notify()
        self.results.update(self.turn)
        await asyncio.sleep(0)  # between two calls the loop handles requests
        return len(updates.steps)

    def _native_updates(self) -> NativeUpdates | None:
        """Make updates of the offer, up to the first turn after which there is other work; None if it has none."""
        assert self.rounds is not None
        before, collected = self.results.state["counters"], self._collected()
        env_steps = (before if collected is None else collected["counters"]).item(Count.env_steps)
        times, following = self.time.times(before), self._following()
        return self.rounds.make(self.turn, self._most_native(following), env_steps, times, collected, following)

    def _following(self) -> dict[str, Any] | None:
        """Return what a native call needs to go on with the rounds after this one; None: it may not."""
        return None

    def _most_native(self, following: dict[str, Any] | None) -> int:
        """Return how many turns may be made before the learner has other work: at the end of a round, at the latest.

        With `following` at the end of the first round that it cannot go on after.
        """
        per_round = self.blueprint.gradients_per_round
        most = per_round - self.turn % per_round
        if following is not None and self.rounds is not None:
            while most < self.rounds.pace and not self.schedule.barriers.is_checkpoint(self.turn + most):
                most += per_round
        return self.evaluating.until_next(self.turn, most)

    def _turn(self, claimed: list[Slot]) -> None:
        """Make one turn of the claimed gradients and commit it."""
        # Sums of floats depend on their order: (worker, sequence) order makes them independent of timing.
        claimed.sort(key=lambda slot: (slot.producer, slot.sequence))
        weights, optimizer_state = self.weights.board, self.optimizer_state.board
        weights_out, optimizer_state_out = weights.begin(), optimizer_state.begin()
        headers: list[list[int]] = [slot.arrays["header"].tolist() for slot in claimed]
        lags = [self.turn - header[VERSION] for header in headers]
        gradients = [slot.arrays for slot in claimed]
        step = self.learner.turn(
            gradients,
            weights.read(self.turn),
            optimizer_state.read(self.turn),
            weights_out,
            optimizer_state_out,
            [self.schedule.gradients.factor(lag) for lag in lags],
            self._collected(),
        )
        after = self.learner.views(optimizer_state_out)
        self._learned(claimed, after)
        for slot in claimed:  # in the block, so the commit covers both the weights and which gradients made them
            after["applied"][slot.producer] = slot.sequence + 1
        self.time.count(after["counters"])
        if self.blueprint.asks_for_moments:
            parts = [Moments(*slot.arrays["moments"].tolist()) for slot in claimed]
            if any(part.count for part in parts):
                self.blueprint.state.moments(weights_out)[:] = merged(parts)
        self.turn += 1
        weights.seal(self.turn)  # before the commit, which promises readers that the weights of this turn are complete
        optimizer_state.publish(self.turn)  # the commit: a learner killed before it leaves the state unchanged
        weights.notify()  # after the commit: a reader woken earlier would not find the version yet
        # The record copies, as the slots are retired next.
        record = self.reports.add(step, claimed, lags, self.versions.lag(headers))
        self.results.update(self.turn)
        for listed in self.lists:
            listed.of_gradients(gradients, self.results.totals)
        self.reports.call_hook(record, self.turn)
        self.finite.add(self.turn, step, claimed)

    def _collected(self) -> Arrays | None:
        """Return the counters and returns of what collectors have made, where gradients do not carry them."""
        return None

    def _learned(self, claimed: list[Slot], after: Arrays) -> None:
        """Use what else these gradients carry, before the turn is committed. after: its optimizer state."""

    def _more_values(self) -> dict[str, float]:
        """Return further metrics of this moment."""
        return {}

    def _hold_more(self) -> int:
        """Hold for the recorder what else belongs to a checkpoint; return the version of its ledger, or -1."""
        return -1

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """Change one hyper-parameter from the next turn on. Endpoints run between two turns."""
        update_parameter(self.learner, name, value)

    @endpoint
    async def save(self) -> None:
        """Save a checkpoint of the last committed turn, which is kept, without any effect on training."""
        while not await self.saves.hold(self.turn, scheduled=False, by_hand=True):
            await asyncio.sleep(SAVE_AGAIN_S)

    async def _call_back(self) -> None:
        """Have callbacks follow the end of a round."""
        if self.callbacks is None:
            return
        await self.evaluating.follow(self.turn)  # a predecessor may have been killed before
        if self.schedule.barriers.ends_round(self.turn):
            episodes = None if self.ended_in_round is None else self.ended_in_round.take()
            await self.callbacks.follow_round(self.turn, self.schedule.barriers.rounds_after(self.turn), episodes)

    async def teardown(self) -> None:
        if self.improved.connected and self.results.totals:
            await self.best.offer(self.turn, last=True)
        await self.reports.send(force=True)


def is_worker_of(actor: Actor, blueprint: Blueprint) -> bool:
    """Whether an actor of this process makes the gradients of this policy."""
    return hasattr(actor, "rounds") and getattr(actor, "blueprint", None) is blueprint
