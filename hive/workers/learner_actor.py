"""The learner's actor: claims gradients, lets the learner apply them, commits, publishes, judges.

hive.workers.actors tells who uses which version, and what becomes of a turn whose learner dies. What makes a turn the
state is one store: the optimizer_state's version, published once weights and optimizer_state are both written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive.algorithms import Moments, merged, update_parameter
from hive.config import load_reference
from hive.errors import NotFinite
from hive.gradients import ERROR, POLICY, ROLLOUTS, SAMPLES, VERSION
from hive.runtime import Actor, Inlet, Outlet, Publication, Slot, endpoint
from hive.workers.blueprint import Blueprint
from hive.workers.hooks import Update, UpdateHook
from hive.workers.learner import Count, LearnerStep, mean_return, mean_statistics
from hive.workers.messages import CheckpointDue, EvaluationDue, Gradient, Metrics, OptimizerState, Weights
from hive.workers.saving import SaveSchedule

__all__ = ["RESULTS", "LearnerActor"]

SAVE_AGAIN_S = 0.05  # while the recorder writes another checkpoint, which takes tens of milliseconds
MOST_SKIPPED = 100  # turns in a row without an update: whatever comes is not finite, and the weights stay as they are


class LearnerActor(Actor):
    """Turn after turn: claims gradients, applies them, commits, publishes, judges."""

    role = "learner"
    gradients = Inlet(Gradient)
    weights = Publication(Weights)
    optimizer_state = Publication(OptimizerState)
    behaviour = Publication(Weights)
    metrics = Outlet(Metrics, pattern="broadcast")
    checkpoints = Outlet(CheckpointDue, pattern="broadcast")
    evaluations_due = Outlet(EvaluationDue, pattern="broadcast", optional=True)

    def __init__(self, blueprint: Blueprint) -> None:
        config = blueprint.config
        self.config = config
        self.blueprint = blueprint
        self.async_gradients = config.gradients.communication == "asynchronous"
        self.async_collection = config.collection.communication == "asynchronous"
        self.per_turn = config.gradients.bootstrap_rounds
        self.per_version = blueprint.per_version
        # Workers without a collector make gradients of nothing, or asynchronously none at all.
        self.shares = range(min(blueprint.gradient_workers, blueprint.collectors))
        self.behind = list(self.shares)  # those not seen yet to be through with the round of the next version
        self.algorithm = blueprint.algorithm()
        self.per_round = self.algorithm.gradients_per_round
        self.learner = blueprint.learner(self.status)
        self.saves = SaveSchedule(config, blueprint.barriers, self.clock)
        self.shown = {name: self.status.counter(name) for name in RESULTS}
        self.totals: dict[str, float] = {}  # what the optimizer_state counts
        self.window: list[StepRecord] = []  # since the last Metrics
        self.reported_s, self.reported_steps = 0.0, 0.0
        self.evaluating = config.evaluation.every.get("updates", 0) if self.evaluations_due.connected else 0
        self.skipping = False  # the evaluation that was due last
        self.skipped = 0  # turns in a row that were not finite
        hook = config.run.update_hook
        self.hook: UpdateHook | None = load_reference(hook) if hook is not None else None
        self.hook_metrics: dict[str, float] = {}  # by the hook, since the last Metrics
        self.errors: list[float] = []  # of compressed gradients, since then
        self.sent_bytes = 0  # of one of them

    async def setup(self) -> None:
        """Publishes the first version of everything, or takes up where the last incarnation committed."""
        optimizer_state, weights = self.optimizer_state.board, self.weights.board
        if optimizer_state.latest < 0:
            version = self.blueprint.initialize(weights.begin(), optimizer_state.begin())
            weights.seal(version)
            optimizer_state.publish(version)
            weights.notify()
        self.turn = optimizer_state.latest
        self._publish_behaviour([])
        self._show()

    async def run(self) -> None:
        lines = self.gradients.lines
        for worker in lines.producers:
            for done in lines.waiting(worker):
                if done < self._optimizer_state()["applied"][worker]:
                    lines.retire(await self.gradients.claim(worker, done))
        self._publish_behaviour([])  # what these were the last of may be due
        held: list[Slot] = []
        over = self._over()
        while over is None:
            await (self._claim_any(held) if self.async_gradients else self._claim_all(held))
            if len(held) == self.per_turn * (1 if self.async_gradients else len(lines.producers)):
                held.sort(key=lambda slot: (slot.producer, slot.sequence))
                self._turn(held)
                for slot in held:
                    lines.retire(slot)
                held.clear()
                self._judge_finite()
                over = self._over() if self.async_gradients or self.turn * self.per_turn % self.per_round == 0 else None
                await self._checkpoint()
                await self._evaluate()
                await self._report(force=over is not None)
            self._publish_behaviour(held)
        self.end_run(over)

    async def _claim_all(self, held: list[Slot]) -> None:
        """The next gradient of every worker."""
        workers = self.gradients.producers
        sequence = self.turn * self.per_turn + len(held) // len(workers)
        held += [await self.gradients.claim(worker, sequence) for worker in workers]

    async def _claim_any(self, held: list[Slot]) -> None:
        """The oldest gradient of anybody, unless it is too old."""
        slot = await self.gradients.claim()
        lag = self.turn - int(slot.arrays["header"][VERSION])
        if lag > self.config.gradients.max_lag and self.config.gradients.stale == "drop":
            self.status.count("stale")
            self.gradients.retire(slot, "stale")
        else:
            held.append(slot)

    def _turn(self, held: list[Slot]) -> None:
        """One turn and its commit: the optimizer_state's version is the word that makes both blocks the state."""
        weights, optimizer_state = self.weights.board, self.optimizer_state.board
        weights_out, optimizer_state_out = weights.begin(), optimizer_state.begin()
        headers: list[list[int]] = [slot.arrays["header"].tolist() for slot in held]
        lags = [self.turn - header[VERSION] for header in headers]
        gradients = [slot.arrays for slot in held]
        turn = self.learner.turn(
            gradients,
            weights.read(self.turn),
            optimizer_state.read(self.turn),
            weights_out,
            optimizer_state_out,
            [self._factor(lag) for lag in lags],
        )
        after = self.learner.views(optimizer_state_out)
        for slot in held:
            after["applied"][slot.producer] = slot.sequence + 1
        self._count_time(after["counters"])
        if self.algorithm.asks_for_moments:
            parts = [Moments(*slot.arrays["moments"].tolist()) for slot in held]
            if any(part.count for part in parts):
                self.blueprint.state.moments(weights_out)[:] = merged(parts)
        self.turn += 1
        weights.seal(self.turn)
        optimizer_state.publish(self.turn)
        weights.notify()
        taken = self._step_record(turn, held, headers, lags)
        self.window.append(taken)
        self._show()
        if self.hook is not None and turn.applied:
            self._call_hook(self.hook, taken)
        self.skipped = self.skipped + 1 if turn.cause else 0
        if turn.cause:
            self.note("skipped", f"turn {self.turn} was not applied: {_fault(turn, held)}", turn=self.turn)

    def _step_record(
        self, turn: LearnerStep, held: list[Slot], headers: list[list[int]], lags: list[int]
    ) -> StepRecord:
        """What there is to tell of a turn, taken from the slots before they are given back."""
        policy = [header[POLICY] for header in headers if header[POLICY] >= 0]
        used = [lag for lag, header in zip(lags, headers, strict=True) if header[SAMPLES]]
        if not self.learner.codec.in_place:
            coded = [slot.arrays["coding"] for slot, header in zip(held, headers, strict=True) if header[SAMPLES]]
            self.errors += [float(coding[ERROR]) for coding in coded]
            self.sent_bytes = self.learner.codec.sent_bytes(held[0].arrays)
        parts = [
            (header[SAMPLES], slot.arrays["statistics"].copy()) for slot, header in zip(held, headers, strict=True)
        ]
        policy_lag = self.behaviour.latest - min(policy) if policy else None
        return StepRecord(turn, parts, max(used, default=0), policy_lag)

    def _count_time(self, counters: NDArray[np.int64]) -> None:
        """Training time is from the first turn to the last one, less the pauses in between."""
        first, last = counters.item(Count.first_ns), counters.item(Count.last_ns)
        resumed, now_ns = self.actor_context.resumed_ns, self.clock.now_ns()
        if 0 < last < resumed:
            first += resumed - last
        counters[Count.first_ns], counters[Count.last_ns] = first or now_ns, now_ns

    def _call_hook(self, hook: UpdateHook, taken: StepRecord) -> None:
        """Shows an update to a user's own function; numbers that it returns go into the metrics."""
        now, flat, turn = self.totals, self.blueprint.flat, taken.turn
        statistics = dict(zip(self.algorithm.statistics, taken.statistics.tolist(), strict=False))
        weights = flat.arrays(self.weights.board.read(self.turn)[: flat.block_bytes])
        for array in weights.values():
            array.flags.writeable = False
        counts = int(now["updates"]), int(now["env_steps"]), now["mean_return_100"]
        self.hook_metrics.update(hook(Update(*counts, turn.norm, turn.learning_rate, statistics, weights)) or {})

    def _judge_finite(self) -> None:
        """Raises NotFinite where the run is to stop at the first, or has nothing else any more."""
        stops = self.config.supervision.non_finite == "stop"
        if self.skipped >= (1 if stops else MOST_SKIPPED):
            cause = self.window[-1].turn.cause
            why = '[supervision] non_finite = "stop"' if stops else f"{self.skipped} turns in a row"
            raise NotFinite(
                f"the {cause} of turn {self.turn} was not finite ({why})",
                hint="lower algorithm.learning_rate or set algorithm.clip_gradients; events.jsonl says where it came "
                "from, and what made it lies in not-finite/ of the run",
            )

    async def _checkpoint(self) -> None:
        """Holds this turn's blocks for the recorder, if a checkpoint is due and the last one is written."""
        if self.saves.due(self.turn):
            if not await self._hold(scheduled=self.config.exact):
                self.note("skipped", f"checkpoint {self.turn}: the one before is still being written")
        elif self.saves.overdue(self.turn):
            await self._hold(scheduled=False)

    async def _hold(self, *, scheduled: bool) -> bool:
        """Holds this turn's blocks for the recorder and tells it so; False while it still writes another one."""
        reader = len(self.gradients.producers)  # the recorder comes after the workers
        if not self.weights.board.hold(reader, self.turn):
            return False
        self.saves.saved()
        self.optimizer_state.board.hold(0, self.turn)
        now = self.totals
        await self.checkpoints.send(
            CheckpointDue(self.turn, scheduled, int(now["env_steps"]), float(now["mean_return_100"]))
        )
        return True

    @endpoint
    async def update_algorithm_parameter(self, name: str, value: object) -> None:
        """From the next turn on: this runs between two of them."""
        update_parameter(self.learner, name, value)

    @endpoint
    async def save(self) -> None:
        """A checkpoint of the last committed turn, whenever somebody asks. It changes nothing of what is learned."""
        while not await self._hold(scheduled=False):
            await asyncio.sleep(SAVE_AGAIN_S)

    async def _evaluate(self) -> None:
        """Holds this turn's weights for the evaluator, if an evaluation is due and the last one is done."""
        if not self.evaluating or self.turn % self.evaluating:
            return
        reader = len(self.gradients.producers) + 1  # the evaluator comes after the workers and the recorder
        if self.weights.board.hold(reader, self.turn):
            self.skipping = False
            now = self.totals
            await self.evaluations_due.send(
                EvaluationDue(self.turn, int(now["updates"]), int(now["env_steps"]), now["train_s"])
            )
            return
        self.status.count("evaluations_skipped")
        if not self.skipping:  # one line for as many as a slow evaluation takes
            self.note("skipped", f"evaluation {self.turn}: the one before is still being made")
        self.skipping = True

    def _factor(self, lag: int) -> float:
        """What a stale gradient still counts."""
        gradients = self.config.gradients
        stale = self.async_gradients and gradients.stale == "scale" and lag > gradients.max_lag
        return 1.0 / (1.0 + lag) if stale else 1.0

    def _publish_behaviour(self, held: list[Slot]) -> None:
        """The behaviour version that is due, if it is missing.

        Collectors that wait for it by number get it when every worker is through with the round, whatever became of
        its gradients: dropped ones count, and nobody is left behind. Otherwise rollouts are counted, with those `held`.
        """
        board = self.behaviour.board
        if not self.async_collection:
            due = self._version_due(self.per_round * self.config.collection.broadcast_interval)
        else:
            pending = sum(int(slot.arrays["header"][ROLLOUTS]) for slot in held)
            due = (int(self._optimizer_state()["counters"][Count.rollouts]) + pending) // self.per_version
        if due > board.latest:
            board.begin()[:] = self.weights.board.read(self.turn)[: self.blueprint.flat.block_bytes]
            board.publish(due)

    def _version_due(self, gradients: int) -> int:
        """The behaviour version that every worker is far enough for: each stands for so many gradients of a worker."""
        lines, latest = self.gradients.lines, self.behaviour.board.latest
        while self.behind and lines.first_left(self.behind[-1]) >= (latest + 1) * gradients:
            self.behind.pop()  # a worker never goes back: the next look begins with who was missing
        if self.behind:
            return latest
        self.behind = list(self.shares)
        return min(lines.first_left(worker) for worker in self.shares) // gradients

    def _optimizer_state(self) -> Mapping[str, NDArray[Any]]:
        return self.learner.views(self.optimizer_state.board.read(self.turn))

    # --- what others see

    def _counters(self) -> dict[str, float]:
        views = self._optimizer_state()
        counters: list[int] = views["counters"].tolist()
        return {
            "updates": counters[Count.updates],
            "env_steps": counters[Count.env_steps],
            "episodes": counters[Count.episodes],
            "skipped": counters[Count.skipped],
            "train_s": (counters[Count.last_ns] - counters[Count.first_ns]) / 1e9,
            "mean_return_100": mean_return(views["returns"], counters[Count.episodes]),
        }

    def _show(self) -> None:
        self.totals = self._counters()
        for name, value in self.totals.items():
            self.status.set(self.shown[name], value)
        self.status.show_version(self.turn, 0)

    def _over(self) -> str | None:
        """Whether the run has reached its goal, judged at round ends from what gradients carried, in their order."""
        run, now = self.config.run, self.totals
        if run.stop_at_return is not None and now["episodes"] >= 100 and now["mean_return_100"] >= run.stop_at_return:
            return f"mean return {now['mean_return_100']:.1f} >= {run.stop_at_return:g}"
        return f"{run.steps:,} steps" if now["env_steps"] >= run.steps else None

    async def _report(self, *, force: bool = False) -> None:
        """Metrics of the turns since the last report, if it is time. Nothing that decides looks at this clock."""
        now = self.totals
        since = now["train_s"] - self.reported_s
        if not force and since < self.config.record.every_s:
            return
        window = [taken for taken in self.window if taken.counts]
        if not window:
            return
        values = {
            "return/mean_100": now["mean_return_100"],
            "episodes": now["episodes"],
            "learner/gradient_norm": float(np.mean([taken.turn.norm for taken in window])),
            "learner/learning_rate": window[-1].turn.learning_rate,
            **lag_values("gradient", [taken.gradient_lag for taken in window]),
            **lag_values("policy", [taken.policy_lag for taken in self.window if taken.policy_lag is not None]),
            "learner/skipped": now["skipped"],
            "rate/env_steps_per_s": (now["env_steps"] - self.reported_steps) / since if since > 0 else 0.0,
            "rate/updates_per_s": sum(taken.turn.applied for taken in window) / since if since > 0 else 0.0,
        }
        means = np.mean([taken.statistics for taken in window], axis=0)
        values |= {f"learner/{name}": float(mean) for name, mean in zip(self.algorithm.statistics, means, strict=False)}
        if self.errors:
            values["gradients/compression_ratio"] = 4 * self.blueprint.flat.parameter_elements / self.sent_bytes
            values["gradients/compression_error"] = float(np.mean(self.errors))
            self.errors.clear()
        values |= self.hook_metrics
        self.hook_metrics = {}
        self.window.clear()
        self.reported_s, self.reported_steps = now["train_s"], now["env_steps"]
        await self.metrics.send(Metrics(int(now["updates"]), int(now["env_steps"]), now["train_s"], values))

    async def teardown(self) -> None:
        await self._report(force=True)


class StepRecord(NamedTuple):
    """One turn, and what the learner tells of it besides."""

    turn: LearnerStep
    parts: list[tuple[int, NDArray[np.float64]]]  # (samples, statistics) of each gradient: most turns are told together
    gradient_lag: int
    policy_lag: int | None  # of the rollouts that it was the first to use

    @property
    def counts(self) -> bool:
        """Whether it is part of any mean. Others brought moments, or nothing: the rest of a round cut short."""
        return self.turn.applied or bool(self.turn.cause)

    @property
    def statistics(self) -> NDArray[np.float64]:
        return mean_statistics(self.parts)


RESULTS = ("updates", "env_steps", "episodes", "skipped", "train_s", "mean_return_100")


def _fault(turn: LearnerStep, held: list[Slot]) -> str:
    """What was not finite in it, and who made that."""
    if turn.bad < 0:
        return f"its {turn.cause} is not finite, though every gradient is"
    slot = held[turn.bad]
    return f"the {turn.cause} of gradient {slot.sequence} of gradient-worker-{slot.producer} is not finite"


LAGS_SHOWN = 8  # buckets of a lag histogram; the last one holds what is beyond


def lag_values(name: str, lags: list[int]) -> dict[str, float]:
    """A histogram of lags as metrics: lag/policy_0 ... lag/policy_8, shares of all, with mean and maximum."""
    if not lags:
        return {}
    counts = np.bincount(np.minimum(lags, LAGS_SHOWN), minlength=1) / len(lags)
    shares = {f"lag/{name}_{lag}": float(share) for lag, share in enumerate(counts) if share}
    return {f"lag/{name}_mean": float(np.mean(lags)), f"lag/{name}_max": float(max(lags)), **shares}
