"""The learner's actor: claims gradients, lets the learner apply them, commits, publishes and retires.

One store commits a turn: the version of the optimizer state, published once weights and optimizer state are written.
hive.training.schedule decides which gradients a turn takes and which version is due. hive.training.actors explains how
a turn is recovered when its learner is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hive.algorithms.algorithm import Moments
from hive.algorithms.batches.advantages import merged
from hive.algorithms.parameters import update_parameter
from hive.config import load_reference
from hive.errors import NotFinite, TopologyError, VersionGone
from hive.gradients import ERROR, POLICY, ROLLOUTS, SAMPLES, VERSION
from hive.records.return_text import return_text
from hive.records.run_warnings import UNFINISHED
from hive.records.summary import NATIVE, NO_WORKER, ROUNDS
from hive.runtime import Actor, Inlet, Outlet, Publication, Slot, SlotInlet, endpoint
from hive.runtime.memory.segments import Arrays
from hive.runtime.memory.status import WAIT_IN
from hive.runtime.process.user_code.setup import set_up
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
from hive.training.record.best_policy import BestSchedule, is_balanced, latest_by_episode
from hive.training.resume_barriers import SaveSchedule
from hive.training.run_start import schedule_of, write_first_state
from hive.training.schedule import LATEST
from hive.training.update.ended_episodes import EndedEpisodes
from hive.training.update.evaluation_schedule import EvaluationSchedule
from hive.training.update.goal import SharedGoal, shared_goal
from hive.training.update.learner import PASSED, RETURNS_KEPT, Count, LearnerStep, mean_return
from hive.training.update.native_rounds import (
    CollectedParts,
    NativeRounds,
    NativeUpdates,
    Worker,
    native_obstacle,
    round_memory,
)
from hive.training.update.schedule_values import schedule_values
from hive.training.update.turn_metrics import StepRecord, TurnMetrics, Update, UpdateHook, end_values, info_means

SAVE_AGAIN_S = 0.05  # seconds between two attempts to save; a checkpoint takes the recorder tens of milliseconds
# Seconds between two looks for an evaluator that has released its weights, which nothing announces: short beside any
# evaluation, and a thousandth of a core.
EVALUATION_POLL_S = 0.005
EVALUATION_PHASE = "wait evaluation"
RESULT_S = 1.0  # seconds in which a result arrives once its evaluator has released the weights; it takes milliseconds
MOST_UNSENT = 1000  # episodes in one message: a few tens of kilobytes, and what a killed learner loses at most
MOST_SKIPPED = 100  # turns without an update in a row; by then nothing finite can be expected, as weights do not change


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
        self.exact = config.exact  # whether a run that is resumed from a scheduled checkpoint is bit-identical
        self.saves = SaveSchedule(config, self.schedule.barriers, self.clock)
        self.bests = BestSchedule()
        self.published: dict[
            int, tuple[int, int, int]
        ] = {}  # turn, updates and environment steps of behaviour versions
        self.acted_with = 0  # behaviour version of the newest rollouts
        self.status_counters = {name: self.status.counter(name) for name in RESULTS}
        self.info_counters = {name: self.status.counter(name) for name in info_counters(config.env.info)}
        self.totals: dict[str, float] = {}  # RESULTS of the last committed turn
        self.mean_return, self.averaged = math.nan, 0  # of the latest episodes; episodes when it was computed
        plain_bytes = 4 * blueprint.flat.parameter_elements
        self.report = TurnMetrics(self.blueprint.statistics, plain_bytes, self.config.network.reward_clip)
        self.evaluated = EvaluationSchedule.of(blueprint, self.schedule.barriers)
        self.evaluates = self.evaluated.has_any and self.evaluations_due.connected
        self.evaluation_wait = config.evaluation.wait and self.evaluates
        self.callbacks = self._callbacks()
        self.evaluation_skipped = False  # whether the last evaluation that fell due was skipped
        # Those since the last report, if a sink takes them, and those of the round, if a callback does.
        infos = len(config.env.info)
        self.ended = EndedEpisodes(infos) if blueprint.records_episodes else None
        self.ended_in_round = EndedEpisodes(infos) if self.callbacks and blueprint.wanted.episodes else None
        self.lists = [one for one in (self.ended, self.ended_in_round) if one is not None]
        self.goal: SharedGoal | None = None  # the end of a run with several policies
        self.judged = False  # whether there are enough episodes for a mean return
        self.rounds: NativeRounds | None = None  # with a gradient worker of this process
        self.native_updates, self.obstacle = 0, NATIVE  # how many, and why the others are made one by one
        self.skipped = 0  # consecutive turns that were not finite
        self.last_cause = ""  # `cause` of the last skipped turn
        self.begun_ns = 0  # time of the first steps, if they are counted as trained; 0: that of the first turn
        resume = blueprint.resume
        self.first_turn = resume.update if resume else 0
        self.first_updates = int(resume.state.get("updates", 0)) if resume else 0
        hook = config.run.update_hook
        if hook is not None:
            set_up()
        self.hook: UpdateHook | None = load_reference(hook) if hook is not None else None

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
        return CallbackSequence(self.blueprint, ports, barriers, self.learner, self._callback_counts, self._log_values)

    def _log_values(self, values: Mapping[str, float]) -> None:
        """Add numbers to the next metrics."""
        self.report.of_hook.update(values)

    async def setup(self) -> None:
        """Publish the first version of every board, or continue from the last committed turn."""
        optimizer_state, weights = self.optimizer_state.board, self.weights.board
        if optimizer_state.latest < 0:
            version = write_first_state(self.blueprint, weights.begin(), optimizer_state.begin())
            weights.seal(version)
            optimizer_state.publish(version)  # after the seal, as in `_turn`
            weights.notify()
        self.turn = optimizer_state.latest
        self.goal = shared_goal(self, in_order=not self.config.asynchronous)
        if self.incarnation == 0 and self.evaluates and (text := self.evaluated.rounding):
            self.note("evaluations", text)
        self._meet_worker()
        if self.callbacks is None or self.behaviour.board.latest < 0:
            self._publish_behaviour([])
        self._update_totals()
        # The rates of a restarted learner are those since its start.
        self.report.reported_s, self.report.reported_steps = self.totals["train_s"], self.totals["env_steps"]
        self.judged = self.totals["episodes"] >= RETURNS_KEPT
        if self.callbacks is not None:
            await self.callbacks.setup(self.turn)
            self.callbacks.begin_round(self._rounds_ended())

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
            self._publish_behaviour([])  # the gradients just retired may have been the last of a round
        training = self._train()
        stop_reason = await (training if self.goal is None else self.goal.until_over(training))
        self._check_updates()
        await self._evaluations_done()
        self._note_unfinished()
        if self.goal is not None:
            await self.goal.all_ended()
        if self.callbacks is not None:
            await self.callbacks.end(stop_reason, self._rounds_ended())
        self.end_run(stop_reason)

    async def _train(self) -> str:
        """Make turns until the run has reached its goal; return why it has."""
        claimed: list[Slot] = []
        await self._call_back()  # a predecessor may have been killed after a turn and before what follows it
        self._publish_behaviour([])
        stop_reason = await self._ends()
        while stop_reason is None:
            made = await self._turns_natively(claimed)
            if not made:
                await self._claim(claimed)
            if len(claimed) == self.schedule.gradients.turn_size:
                self._turn(claimed)  # commits
                for slot in claimed:  # after the commit: until then a killed learner's successor needs the gradients
                    self.gradients.retire(slot)
                claimed.clear()
                self._check_finite()  # after the retire: an error leaves no slot claimed
                made = 1
            if made:
                await self._evaluate()  # before the checkpoint, which a resumed run continues after this evaluation
                await self._call_back()
                stop_reason = await self._ends()
                await self._hand_over(force=stop_reason is not None)
            # After the commit: collectors get the weights of the newest turn. Also without a turn, as a dropped
            # gradient may have been the last of its round.
            self._publish_behaviour(claimed)
        return stop_reason

    async def _retire_applied(self) -> None:
        """Retire the gradients that a learner killed between commit and retire has left.

        They are already applied. Claimed again, they would be applied twice.
        """
        lines = self.gradients.lines
        for worker in lines.producers:
            for sequence in lines.waiting(worker):
                if sequence < self._optimizer_state()["applied"][worker]:
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
        await self._checkpoint()
        if self.improved.connected and self.schedule.gradients.may_end(self.turn):
            await self._offer_best()
        await self._report(force=force)
        if self.ended is not None and self.ended.held >= MOST_UNSENT:
            await self._send_episodes(self.ended)

    async def _send_episodes(self, ended: EndedEpisodes | None) -> None:
        if ended is not None and self.episodes.connected and (message := ended.take()) is not None:
            await self.episodes.send(message)

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
            self.report.window.append(StepRecord(step, [(step.samples, statistics)], 0, None))
        self.turn += len(updates.steps)
        self.native_updates += len(updates.steps)
        self.skipped = 0
        self.weights.board.notify()
        self._update_totals()
        await asyncio.sleep(0)  # between two calls the loop handles requests
        return len(updates.steps)

    def _native_updates(self) -> NativeUpdates | None:
        """Make updates of the offer, up to the first turn after which there is other work; None if it has none."""
        assert self.rounds is not None
        before, collected = self._optimizer_state()["counters"], self._collected()
        env_steps = (before if collected is None else collected["counters"]).item(Count.env_steps)
        times, following = self._times(before), self._following()
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
        return min(most, self.evaluated.until_next(self.turn)) if self.evaluates else most

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
        self._count_time(after["counters"])
        if self.blueprint.asks_for_moments:
            parts = [Moments(*slot.arrays["moments"].tolist()) for slot in claimed]
            if any(part.count for part in parts):
                self.blueprint.state.moments(weights_out)[:] = merged(parts)
        self.turn += 1
        weights.seal(self.turn)  # before the commit, which promises readers that the weights of this turn are complete
        optimizer_state.publish(self.turn)  # the commit: a learner killed before it leaves the state unchanged
        weights.notify()  # after the commit: a reader woken earlier would not find the version yet
        record = self._step_record(step, claimed, headers, lags)  # copies, as the slots are retired next
        self.report.window.append(record)
        self._update_totals()
        for listed in self.lists:
            listed.of_gradients(gradients, self.totals)
        if self.hook is not None and step.applied:
            self._call_hook(self.hook, record)
        self.skipped = self.skipped + 1 if step.cause else 0
        if step.cause:
            self.last_cause = step.cause
            self.note("skipped", f"turn {self.turn} was not applied: {_fault(step, claimed)}", turn=self.turn)

    def _collected(self) -> Arrays | None:
        """Return the counters and returns of what collectors have made, where gradients do not carry them."""
        return None

    def _learned(self, claimed: list[Slot], after: Arrays) -> None:
        """Use what else these gradients carry, before the turn is committed. after: its optimizer state."""

    def _more_values(self) -> dict[str, float]:
        """Return further metrics of this moment."""
        return {}

    def _step_record(
        self, step: LearnerStep, claimed: list[Slot], headers: list[list[int]], lags: list[int]
    ) -> StepRecord:
        """Copy from the slots what the metrics report of a turn."""
        policy = [header[POLICY] for header in headers if header[POLICY] >= 0]
        used = [lag for lag, header in zip(lags, headers, strict=True) if header[SAMPLES]]
        if not self.learner.codec.in_place:
            coded = [slot.arrays["coding"] for slot, header in zip(claimed, headers, strict=True) if header[SAMPLES]]
            self.report.compression_errors += [float(coding[ERROR]) for coding in coded]
            self.report.sent_bytes = self.learner.codec.sent_bytes(claimed[0].arrays)
        if "clipped" in claimed[0].arrays:
            self.report.clipped += sum(slot.arrays["clipped"] for slot in claimed)
        parts = [
            (header[SAMPLES], slot.arrays["statistics"].copy()) for slot, header in zip(claimed, headers, strict=True)
        ]
        self.acted_with = max(policy, default=self.acted_with)
        policy_lag = self.behaviour.latest - min(policy) if policy else None
        return StepRecord(step, parts, max(used, default=0), policy_lag)

    def _count_time(self, counters: NDArray[np.int64]) -> None:
        """Update the times of the beginning and of the last turn."""
        if not counters.item(Count.first_ns) and not self.begun_ns:
            counters[Count.first_steps] = counters[Count.env_steps]
        counters[Count.first_ns], counters[Count.last_ns] = self._times(counters)

    def _times(self, counters: NDArray[np.int64]) -> tuple[int, int]:
        """Return the time of the beginning, shifted by the pauses since the last turn, and the time now."""
        first, last = counters.item(Count.first_ns), counters.item(Count.last_ns)
        resumed, now_ns = self.actor_context.resumed_ns, self.clock.now_ns()
        if 0 < last < resumed:
            first += resumed - last
        return first or self.begun_ns or now_ns, now_ns

    def _call_hook(self, hook: UpdateHook, record: StepRecord) -> None:
        """Pass an update to the user's hook, and keep the numbers that it returns for the metrics."""
        totals, flat, step = self.totals, self.blueprint.flat, record.step
        statistics = dict(zip(self.blueprint.statistics, record.statistics.tolist(), strict=False))
        weights = flat.arrays(self.weights.board.read(self.turn)[: flat.block_bytes])
        for array in weights.values():
            array.flags.writeable = False
        counts = int(totals["updates"]), int(totals["env_steps"]), totals["mean_return_100"]
        found = hook(Update(*counts, step.norm, step.learning_rate, statistics, weights))
        if not isinstance(found, Mapping | None):
            raise TopologyError(
                f"run.update_hook returned {found!r}",
                hint="a hook returns a dictionary of numbers, or None; it cannot end a run (run.stop_at_return can)",
            )
        self.report.of_hook.update(found or {})

    def _check_finite(self) -> None:
        """Raise NotFinite at the first turn that is not finite, or after MOST_SKIPPED in a row, as configured."""
        stops = self.config.supervision.non_finite == "stop"
        if self.skipped >= (1 if stops else MOST_SKIPPED):
            why = '[supervision] non_finite = "stop"' if stops else f"{self.skipped} turns in a row"
            raise NotFinite(
                f"the {self.last_cause} of turn {self.turn} was not finite ({why})",
                hint=self._not_finite_hint(),
            )

    def _not_finite_hint(self) -> str:
        return (
            "lower algorithm.learning_rate, set algorithm.clip_gradients, or set network.normalize_rewards = true for "
            "large rewards; events.jsonl names the origin, and not-finite/ of the run holds the rollouts, inputs and "
            "weights"
        )

    def _check_updates(self) -> None:
        """Raise NotFinite if all turns of this run were skipped: it has reached its goal without any training."""
        turns, skipped = self.turn - self.first_turn, self.totals["skipped"]
        if turns and skipped and self.totals["updates"] == self.first_updates:
            why = f": the last was skipped because its {self.last_cause} was not finite" if self.last_cause else ""
            raise NotFinite(f"no update was made in {turns} turns{why}", hint=self._not_finite_hint())

    async def _checkpoint(self) -> None:
        """Hold this turn's blocks for the recorder if a checkpoint is due, unless it still writes the previous one."""
        if self.saves.due(self.turn):
            await self._evaluations_done()
            if not await self._hold(scheduled=self.exact):
                self.note("skipped", f"checkpoint {self.turn} was skipped: the previous one is still being written")
        elif self.saves.overdue(self.turn):
            await self._hold(scheduled=False)

    async def _hold(self, *, scheduled: bool, by_hand: bool = False) -> bool:
        """Hold this turn's blocks for the recorder and notify it. Return False while it still writes another turn."""
        await self._send_episodes(self.ended)  # before the checkpoint, after which a resumed run continues
        reader = len(self.gradients.producers)  # the recorder is the first reader after the workers
        # The weights first: their pin is the one that the recorder releases last, so it covers both blocks.
        if not self.weights.board.hold(reader, self.turn):
            return False
        self.saves.saved()
        self.optimizer_state.board.hold(0, self.turn)
        ledger = self._hold_more()
        called = -1
        if self.callbacks is not None:
            called = self.callback_state.board.latest
            self.callback_state.board.hold(0, called)
        totals = self.totals
        counts = int(totals["env_steps"]), float(totals["mean_return_100"])
        await self.checkpoints.send(CheckpointDue(self.turn, scheduled, *counts, ledger, called, by_hand))
        return True

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
        while not await self._hold(scheduled=False, by_hand=True):
            await asyncio.sleep(SAVE_AGAIN_S)

    async def _offer_best(self, *, last: bool = False) -> None:
        """Send a copy of the policy that has played the latest episodes to the recorder if none had higher returns.

        A copy, because the board keeps no version for longer. last: the run ends.
        """
        mean, balanced = self._mean_and_balance()
        if not self.bests.improved(self.turn, int(self.totals["episodes"]), mean, last=last, balanced=balanced):
            return
        version = self._played_version()
        if (counts := self._counts_of(version)) is not None:
            with contextlib.suppress(VersionGone):  # of asynchronous collectors that are far behind
                weights = self.behaviour.board.read(version).copy()
                await self.improved.send(Improved(*counts, mean, weights, balanced))

    def _mean_and_balance(self) -> tuple[float, bool]:
        """Return the mean return of the latest episodes, and whether it is `is_balanced`."""
        agents, episodes = len(self.blueprint.environment.agents), int(self.totals["episodes"])
        if agents > 1:
            latest = latest_by_episode(self._optimizer_state()["returns"], episodes, agents)
            if is_balanced(latest):
                return float(latest.mean()), True
        return self.totals["mean_return_100"], False

    def _played_version(self) -> int:
        """Return the behaviour version that has played the newest round whose episodes are counted."""
        version = self.schedule.collection.behaviour_version(self._newest_round())
        return self.acted_with if version == LATEST else version

    def _newest_round(self) -> int:
        """Return the round of the newest gradients."""
        barriers = self.schedule.barriers
        return barriers.round_of(max(self.turn * barriers.per_turn - 1, 0))

    def _counts_of(self, version: int) -> tuple[int, int, int] | None:
        """Return turn, updates and environment steps of a behaviour version; None if they are not known.

        A predecessor, or a native call, has published it if this learner has not. Then a round had all its steps, and
        no turn was skipped.
        """
        if (known := self.published.get(version)) is not None or self.config.asynchronous:
            return known
        barriers = self.schedule.barriers
        begin = barriers.warmup + version * barriers.interval
        turn = min(barriers.first_gradient(begin) // barriers.per_turn, self.turn)
        rounds = self._newest_round() + 1 - begin
        updates = int(self.totals["updates"]) - (self.turn - turn)
        env_steps = int(self.totals["env_steps"]) - rounds * self.blueprint.round_steps
        return turn, max(updates, 0), max(env_steps, 0)

    async def _evaluate(self) -> None:
        """Hold this turn's weights for the first free evaluator if an evaluation is due.

        While all of them play, it is skipped, or with `evaluation.wait` awaits one.
        """
        if not (self.evaluates and self.evaluated.is_due(self.turn)):
            return
        if self.evaluations.connected:
            await self._evaluate_and_follow()
            return
        if self.evaluation_wait:
            with self.status(EVALUATION_PHASE, WAIT_IN):
                await self._send_due()
            return
        if (free := self._free_evaluator()) is not None:
            self.evaluation_skipped = False
            await self.evaluations_due.send(self._due(free))
            return
        self.status.count("evaluations_skipped")
        if not self.evaluation_skipped:  # a slow evaluation may skip many: only the first is logged
            count = len(self._evaluators())
            still = "the previous one is" if count == 1 else f"the previous {count} are"
            self.note("skipped", f"evaluation {self.turn} was skipped: {still} still running")
        self.evaluation_skipped = True

    async def _evaluate_and_follow(self) -> None:
        """Have this turn's weights evaluated, wait for the result, and have callbacks follow it.

        An evaluation that was lost with its evaluator is made again: it depends on the weights alone.
        """
        assert self.callbacks is not None
        if self.callbacks.is_evaluated(self.turn):
            return
        evaluation: Evaluation | None = None
        with self.status(EVALUATION_PHASE, WAIT_IN):
            while evaluation is None:
                await self._send_due()
                evaluation = await self._result()
        await self.callbacks.follow_evaluation(evaluation, self._rounds_ended())

    async def _send_due(self) -> None:
        """Hold this turn's weights for a free evaluator, and tell it."""
        while (free := self._free_evaluator()) is None:
            await asyncio.sleep(EVALUATION_POLL_S)
        await self.evaluations_due.send(self._due(free))

    def _free_evaluator(self) -> int | None:
        """Hold this turn's weights for the first evaluator that plays nothing, and return its number."""
        board = self.weights.board
        return next((e for e, reader in enumerate(self._evaluators()) if board.hold(reader, self.turn)), None)

    def _due(self, evaluator: int) -> EvaluationDue:
        totals = self.totals
        counts = int(totals["updates"]), int(totals["env_steps"])
        return EvaluationDue(evaluator, self.turn, *counts, totals["train_s"])

    async def _result(self) -> Evaluation | None:
        """Return the evaluation of this turn; None once no evaluator plays it and its result has not arrived."""
        words, idle = self.weights.board.view.words, False
        while True:
            try:
                async with asyncio.timeout(RESULT_S):
                    while (evaluation := await self.evaluations.receive()).turn != self.turn:
                        pass  # of an earlier turn: it was made twice
                    return evaluation
            except TimeoutError:
                was_idle, idle = idle, not any(words.pinned(reader) for reader in self._evaluators())
                if idle and was_idle:
                    return None

    def _rounds_ended(self) -> int:
        """Return how many rounds have ended."""
        barriers = self.schedule.barriers
        return barriers.round_of(self.turn * barriers.per_turn)

    async def _call_back(self) -> None:
        """Have callbacks follow the end of a round."""
        if self.callbacks is None:
            return
        if self.evaluations.connected and self.evaluates and self.evaluated.is_due(self.turn):
            await self._evaluate_and_follow()  # a predecessor may have been killed before
        if self.schedule.barriers.ends_round(self.turn):
            episodes = None if self.ended_in_round is None else self.ended_in_round.take()
            await self.callbacks.follow_round(self.turn, self._rounds_ended(), episodes)

    def _callback_counts(self) -> dict[str, Any]:
        """Return the numbers that all events of callbacks have."""
        totals = self.totals
        return {
            "env_steps": int(totals["env_steps"]),
            "updates": int(totals["updates"]),
            "seconds": float(totals["train_s"]),
            "mean_return_100": float(totals["mean_return_100"]),
            "number_of_episodes": int(totals["episodes"]),
        }

    def _evaluators(self) -> range:
        """Return the evaluators as readers of the weights: the next ones after the recorder."""
        first = len(self.gradients.producers) + 1
        return range(first, first + self.blueprint.config.evaluation.workers)

    def _note_unfinished(self) -> None:
        """Log how many evaluations have not ended with the training, and so are lost."""
        words = self.weights.board.view.words
        playing = sum(words.pinned(reader) for reader in self._evaluators()) if self.evaluates else 0
        if playing:
            had = "1 evaluation had" if playing == 1 else f"{playing} evaluations had"
            text = f"{had} not ended with the training, and count for nothing (evaluation.wait = true awaits them)"
            self.note(UNFINISHED, text, routine=True)

    async def _evaluations_done(self) -> None:
        """With `evaluation.wait`, wait until no evaluator plays."""
        if not self.evaluation_wait:
            return
        words = self.weights.board.view.words
        while any(words.pinned(reader) for reader in self._evaluators()):
            with self.status(EVALUATION_PHASE, WAIT_IN):
                await asyncio.sleep(EVALUATION_POLL_S)

    def _publish_behaviour(self, claimed: list[Slot]) -> None:
        """Publish the newest behaviour version that is due, if it is not published yet.

        `claimed`: the gradients that wait for the next turn. Their rollouts are consumed, too.
        """

        def rollouts() -> int:
            pending = sum(int(slot.arrays["header"][ROLLOUTS]) for slot in claimed)
            return int(self._optimizer_state()["counters"][Count.rollouts]) + pending

        board = self.behaviour.board
        due = self.schedule.collection.version_due(board.latest, self.gradients.lines.first_left, rollouts)
        if due > board.latest:
            board.begin()[:] = self.weights.board.read(self.turn)[: self.blueprint.flat.block_bytes]
            board.publish(due)
            counters = self._optimizer_state()["counters"]
            self.published[due] = self.turn, counters.item(Count.updates), counters.item(Count.env_steps)
            for version in [old for old in self.published if old < due - self.config.collection.max_lag - 1]:
                del self.published[version]

    def _optimizer_state(self) -> Mapping[str, NDArray[Any]]:
        return self.learner.views(self.optimizer_state.board.read(self.turn))

    # --- counters and metrics

    def _counters(self) -> dict[str, float]:
        views = self._optimizer_state()
        counters: list[int] = views["counters"].tolist()
        if counters[Count.episodes] != self.averaged:  # most turns of a replay memory end no episode
            self.averaged = counters[Count.episodes]
            self.mean_return = mean_return(views["returns"], self.averaged)
        return {
            "updates": counters[Count.updates],
            "env_steps": counters[Count.env_steps],
            "frames": counters[Count.env_steps] * self.blueprint.environment.frame_skip,
            "episodes": counters[Count.episodes],
            "skipped": counters[Count.skipped],
            **{which.name: counters[which] for which in PASSED},
            "first_steps": counters[Count.first_steps],
            "train_s": (counters[Count.last_ns] - counters[Count.first_ns]) / 1e9,
            "mean_return_100": self.mean_return,
            "native_updates": self.native_updates,
        }

    def _update_totals(self) -> None:
        """Read the counters of the committed turn and copy them to the status page."""
        self.totals = self._counters()
        for name, value in self.totals.items():
            self.status.set(self.status_counters[name], value)
        if self.info_counters:
            means = self._info_means()
            for name, counter in self.info_counters.items():
                self.status.set(counter, means.get(name.removeprefix(INFO), math.nan))
        self.status.show_version(self.turn, 0)

    def _info_means(self) -> dict[str, float]:
        """Return the means of env.info over the latest episodes that have the values."""
        names, episodes = self.config.env.info, int(self.totals["episodes"])
        return info_means(names, self._optimizer_state()["infos"][: min(episodes, RETURNS_KEPT)]) if names else {}

    def _episode_values(self) -> dict[str, float]:
        """Return the metrics of the latest episodes besides their returns: means of env.info, and how they ended."""
        values, held = self._optimizer_state().get("infos"), min(int(self.totals["episodes"]), RETURNS_KEPT)
        if values is None:  # of a custom learner
            return {}
        means = {f"{INFO}{name}": mean for name, mean in self._info_means().items()}
        return means | end_values(values[:held, -1], self.blueprint.environment.max_episode_steps)

    def _stop_reason(self) -> str | None:
        """Return why the run has reached its goal, or None. It depends on the optimizer state alone.

        A successor within the last round also makes the other turns of this round first.
        """
        if self.callbacks is not None and self.callbacks.stop is not None:
            return self.callbacks.stop
        if not self.schedule.gradients.may_end(self.turn):
            return None
        run, totals = self.config.run, self.totals
        mean_return_100 = totals["mean_return_100"]
        judged = totals["episodes"] >= 100 and math.isfinite(mean_return_100)
        if judged and run.stop_at_return is not None and mean_return_100 >= run.stop_at_return:
            return f"mean return {return_text(mean_return_100)} >= {run.stop_at_return:g}"
        return f"{run.steps:,} steps" if totals["env_steps"] >= run.steps else None

    async def _ends(self) -> str | None:
        """Return why the run has reached its goal, or None; with several policies they end together."""
        reason = self._stop_reason()
        if self.goal is None:
            return reason
        if not self.schedule.gradients.may_end(self.turn):
            return None  # a callback may have asked for the end: all policies end the same round
        barriers = self.schedule.barriers
        rounds = barriers.round_of(self.turn * barriers.per_turn)
        has_steps = self.totals["env_steps"] >= self.config.run.steps
        if reason is not None and not has_steps:
            self.goal.end_after(barriers.common_end(rounds), reason)
        over = await self.goal.is_over(rounds, has_steps=has_steps)
        return self.goal.reason or reason if over else None

    async def _report(self, *, force: bool = False) -> None:
        """Send the metrics of the turns since the last report, every `record.every_s` seconds of training time.

        Also once the first mean return is known: hive.training.record.health compares later ones with it, and a fast
        run has learned before the first report is due. Nothing that affects training reads this clock.
        """
        totals, report = self.totals, self.report
        judged, self.judged = self.judged, totals["episodes"] >= RETURNS_KEPT
        if not force and judged == self.judged and totals["train_s"] - report.reported_s < self.config.record.every_s:
            return
        await self._send_episodes(self.ended)
        if values := report.take(totals, self._optimizer_state()["returns"], self._episode_values()):
            rollouts = int(self._optimizer_state()["counters"][Count.rollouts])
            values |= schedule_values(self.blueprint, self.learner.config, rollouts, int(totals["env_steps"]))
            values |= self._more_values()
            await self.metrics.send(
                Metrics(int(totals["updates"]), int(totals["env_steps"]), totals["train_s"], values)
            )

    async def teardown(self) -> None:
        if self.improved.connected and self.totals:
            await self._offer_best(last=True)
        await self._report(force=True)


RESULTS = (
    *("updates", "env_steps", "frames", "episodes", "skipped", *(which.name for which in PASSED)),
    *("first_steps", "train_s", "mean_return_100", "native_updates", "rounds"),
)
"""The learner's counters that summarize a run."""

INFO = "info/"  # begins the names of counters and metrics of env.info
COUNTER_BYTES = 23  # maximum size of the name of a counter (hive.runtime.memory.status)


def is_worker_of(actor: Actor, blueprint: Blueprint) -> bool:
    """Whether an actor of this process makes the gradients of this policy."""
    return hasattr(actor, "rounds") and getattr(actor, "blueprint", None) is blueprint


def info_counters(names: Sequence[str]) -> list[str]:
    """Return the learner's counters of env.info, of which views show the means. Longer names are only in metrics."""
    return [INFO + name for name in names if len((INFO + name).encode()) <= COUNTER_BYTES]


def _fault(step: LearnerStep, claimed: list[Slot]) -> str:
    """Describe the first value of a turn that was not finite, with its gradient worker."""
    if step.bad < 0:
        return f"its {step.cause} is not finite, though every gradient is"
    slot = claimed[step.bad]
    return f"the {step.cause} of gradient {slot.sequence} of gradient-worker-{slot.producer} is not finite"
