"""What the learner sends to the recorder while it trains: metrics of the turns since the last report, and episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hive.config import load_reference
from hive.errors import TopologyError
from hive.gradients import ERROR, SAMPLES
from hive.runtime import Outlet, Publication, Slot
from hive.runtime.process.user_code.setup import set_up
from hive.training.blueprint import Blueprint
from hive.training.messages import EpisodesEnded, Metrics, Weights
from hive.training.update.ended_episodes import EndedEpisodes
from hive.training.update.learner import RETURNS_KEPT, Count, Learner, LearnerStep
from hive.training.update.results import Results
from hive.training.update.schedule_values import schedule_values
from hive.training.update.turn_metrics import StepRecord, TurnMetrics, Update, UpdateHook

MOST_UNSENT = 1000  # episodes in one message: a few tens of kilobytes, and what a killed learner loses at most


@dataclass
class Reports:
    """Records turns and sends reports of them; has the user's hook follow each update.

    ended: the episodes since the last report, None if no sink takes them. more_values: returns further metrics of a
    moment.
    """

    blueprint: Blueprint
    learner: Learner
    results: Results
    weights: Publication[Weights]
    metrics: Outlet[Metrics]
    episodes: Outlet[EpisodesEnded]
    ended: EndedEpisodes | None
    more_values: Callable[[], dict[str, float]]

    def __post_init__(self) -> None:
        config, plain_bytes = self.blueprint.config, 4 * self.blueprint.flat.parameter_elements
        self.turns = TurnMetrics(self.blueprint.statistics, plain_bytes, config.network.reward_clip)
        self.judged = False  # whether there are enough episodes for a mean return
        hook = config.run.update_hook
        if hook is not None:
            set_up()
        self.hook: UpdateHook | None = load_reference(hook) if hook is not None else None

    def begin(self) -> None:
        """Begin to report: the rates of a restarted learner are those since its start."""
        totals = self.results.totals
        self.turns.reported_s, self.turns.reported_steps = totals["train_s"], totals["env_steps"]
        self.judged = totals["episodes"] >= RETURNS_KEPT

    def add(self, step: LearnerStep, claimed: list[Slot], lags: list[int], policy_lag: int | None) -> StepRecord:
        """Copy from the slots what the metrics report of a turn.

        lags: of each gradient, in turns. policy_lag: as of StepRecord.
        """
        turns, codec = self.turns, self.learner.codec
        samples = [slot.arrays["header"].item(SAMPLES) for slot in claimed]
        used = [lag for lag, count in zip(lags, samples, strict=True) if count]
        if not codec.in_place:
            coded = [slot.arrays["coding"] for slot, count in zip(claimed, samples, strict=True) if count]
            turns.compression_errors += [float(coding[ERROR]) for coding in coded]
            turns.sent_bytes = codec.sent_bytes(claimed[0].arrays)
        if "clipped" in claimed[0].arrays:
            turns.clipped += sum(slot.arrays["clipped"] for slot in claimed)
        parts = [(count, slot.arrays["statistics"].copy()) for slot, count in zip(claimed, samples, strict=True)]
        record = StepRecord(step, parts, max(used, default=0), policy_lag)
        turns.window.append(record)
        return record

    def call_hook(self, record: StepRecord, turn: int) -> None:
        """Pass the update of a turn to the user's hook, and keep the numbers that it returns for the metrics."""
        if self.hook is None or not record.step.applied:
            return
        totals, flat, step = self.results.totals, self.blueprint.flat, record.step
        statistics = dict(zip(self.blueprint.statistics, record.statistics.tolist(), strict=False))
        weights = flat.arrays(self.weights.board.read(turn)[: flat.block_bytes])
        for array in weights.values():
            array.flags.writeable = False
        counts = int(totals["updates"]), int(totals["env_steps"]), totals["mean_return_100"]
        found = self.hook(Update(*counts, step.norm, step.learning_rate, statistics, weights))
        if not isinstance(found, Mapping | None):
            raise TopologyError(
                f"run.update_hook returned {found!r}",
                hint="a hook returns a dictionary of numbers, or None; it cannot end a run (run.stop_at_return can)",
            )
        self.log(found or {})

    def log(self, values: Mapping[str, float]) -> None:
        """Add numbers to the next metrics."""
        self.turns.of_hook.update(values)

    async def send(self, *, force: bool = False) -> None:
        """Send the metrics of the turns since the last report, every `record.every_s` seconds of training time.

        Also once the first mean return is known: hive.training.record.health compares later ones with it, and a fast
        run has learned before the first report is due. Nothing that affects training reads this clock. Episodes are
        sent with the metrics, and as soon as there are MOST_UNSENT.
        """
        totals, turns = self.results.totals, self.turns
        judged, self.judged = self.judged, totals["episodes"] >= RETURNS_KEPT
        is_late = totals["train_s"] - turns.reported_s >= self.blueprint.config.record.every_s
        if not (force or judged != self.judged or is_late):
            if self.ended is not None and self.ended.held >= MOST_UNSENT:
                await self.send_episodes()
            return
        await self.send_episodes()
        if values := turns.take(totals, self.results.state["returns"], self.results.episode_values()):
            rollouts = int(self.results.state["counters"][Count.rollouts])
            values |= schedule_values(self.blueprint, self.learner.config, rollouts, int(totals["env_steps"]))
            values |= self.more_values()
            await self.metrics.send(
                Metrics(int(totals["updates"]), int(totals["env_steps"]), totals["train_s"], values)
            )

    async def send_episodes(self) -> None:
        """Send the episodes that have ended since the last call."""
        if self.ended is not None and self.episodes.connected and (message := self.ended.take()) is not None:
            await self.episodes.send(message)
