"""The recorder writes metrics and evaluations as they arrive, checkpoints when they are due, and one at the end.

It also judges each line of metrics (hive.training.record.health) and logs the warnings that begin and end. A recorder
that is restarted judges the lines that it finds again (of a run of days, some thousands of them), and logs what differs
from the event log. Lines also get the numbers of failures of environments that processes step, from the files of their
collectors (hive.records.environments).

The learner pins the blocks of a checkpoint for the recorder, so they do not change while it writes and training
continues. In runs without an evaluator it also sends weights that may be the best policy. The recorder is stopped after
all other actors, when all metrics have arrived.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from hive.config import Config, is_reference, load_reference
from hive.errors import RecordError, VersionGone
from hive.plain_data import read_content
from hive.records import (
    JSON,
    JsonlSink,
    JsonlWriter,
    MetricsRecord,
    RunDirectory,
    Sink,
    SinkSet,
    Video,
    keep_until_pruned,
    list_checkpoints,
    read_jsonl,
    read_overview,
    remove_unfinished,
    retain,
    writing_checkpoint,
)
from hive.records.checkpoints.replay_chunks import RowsToSave
from hive.records.directory import POLICIES
from hive.records.environments import environments_of, failure_counts
from hive.records.jsonl import tail_jsonl
from hive.records.owner import Ownership
from hive.records.run_warnings import (
    LINES_LOST,
    NOT_SAVED,
    OF_LOOK,
    OF_SUPERVISOR,
    RECOVERED,
    RUNNING_STATISTICS,
    SINK_FAILED,
    WARNING,
    RunWarning,
    active,
    logged_warnings,
)
from hive.records.runs import LINES_BACK, folder_of_run
from hive.records.sinks.csv_sink import CsvSink
from hive.records.sinks.episodes_sink import EpisodesSink
from hive.records.sinks.new_videos import NewVideos
from hive.records.sinks.sink_thread import SinkThread
from hive.records.sinks.sinks import Episode, cause
from hive.records.sinks.tensorboard_sink import TensorBoardSink
from hive.records.sinks.wandb_sink import WandbSink
from hive.runtime import Actor, Bytes, Inlet, SharedIn, SharedOut, Subscription
from hive.runtime.process.user_code.setup import set_up
from hive.training.blueprint import Blueprint, blueprint_in
from hive.training.callbacks.messages import PART as CALLBACKS
from hive.training.callbacks.messages import CallbackState
from hive.training.messages import (
    CheckpointDue,
    EpisodesEnded,
    Evaluation,
    Improved,
    Metrics,
    OptimizerState,
    ReplayFloor,
    ReplayLedger,
    ReplayRows,
    Weights,
)
from hive.training.record.best_policy import BestPolicy, best_by
from hive.training.record.episode_list import EpisodeList
from hive.training.record.health import Health, HealthFacts
from hive.training.record.judged_evaluations import BALANCED, JudgedEvaluations
from hive.training.record.pinned_blocks import held_block, next_due
from hive.training.replay_floor import clear_floor, write_floor
from hive.training.run_start import first_gradient_round, round_shape, rounds_at, schedule_start
from hive.training.update.learner import RETURNS_KEPT, Count, mean_return

KEPT_TOGETHER = 3  # a recorder that is still writing skips a checkpoint which those of other policies have


class Recorder(Actor):
    """Writes metrics and episodes to the sinks of [record], `checkpoints/<turn>/` and `evaluations.jsonl`.

    If `improved` is connected, it also writes `best/<turn>/`.

    directory: that of the run. A sink that fails is dropped with a warning (RunSinks).
    """

    role = "recorder"
    numbered = False
    metrics = Inlet(Metrics)
    checkpoints = Inlet(CheckpointDue)
    evaluations = Inlet(Evaluation, optional=True)
    improved = Inlet(Improved, optional=True)
    episodes = Inlet(EpisodesEnded, optional=True)
    weights = Subscription(Weights)
    optimizer_state = Subscription(OptimizerState)
    memory = SharedIn(ReplayRows, optional=True)
    ledger = Subscription(ReplayLedger, optional=True)
    floor = SharedOut(ReplayFloor, optional=True)
    callback_state = Subscription(CallbackState, optional=True)

    def __init__(self, blueprint: Blueprint, directory: Path) -> None:
        self.blueprint = blueprint
        several = directory.parent.name == POLICIES
        self.directory = (RunDirectory.of_policy if several else RunDirectory.open)(directory)
        self.ownership = Ownership(RunDirectory(folder_of_run(self.directory.path)))
        remove_unfinished(self.directory.checkpoints)  # left by an incarnation that was killed
        self.sink_faults: list[str] = []
        # What failed, with its exception if there was one; also from the threads of the sinks.
        self.new_sink_faults: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
        self.sink_error: RecordError | None = None  # the first one, with `supervision.strict`
        self.sinks = RunSinks(blueprint.config, self.directory, self._sink_failed)
        self.best = BestPolicy(blueprint, self.directory, self.log) if self.improved.connected else None
        self.evaluated = JsonlWriter(self.directory.evaluations_file) if self.evaluations.connected else None
        evaluated = list(read_jsonl(self.directory.evaluations_file))
        self.evaluated_turns = {line.get("turn") for line in evaluated}
        self.judged = JudgedEvaluations(blueprint.config, evaluated)
        self.episode_list = EpisodeList.of(blueprint)
        self.judged_steps = 0  # environment steps of the last line of metrics
        self.health = Health(HealthFacts.of(blueprint.config, blueprint.environment, blueprint.collectors))
        self.unsaved = False  # whether the last checkpoint could not be written
        self.lost = 0  # lines that could not be written, in the last warning of them
        self.writing = asyncio.Lock()  # one checkpoint at a time: that with a replay memory lets other tasks run

    @classmethod
    def private_bytes(cls, parameters: Mapping[str, Any]) -> int:
        """Return the bytes of the policies that the learner sends."""
        return blueprint_in(parameters, lambda b: b.flat.block_bytes * (best_by(b) == "training"))

    async def setup(self) -> None:
        """Judge the metrics of earlier incarnations and of the run that is resumed."""
        for line in read_overview(self.directory.metrics_file):
            if {"steps", "updates", "seconds"} <= line.keys():  # else the line is damaged
                self.judged_steps = line["steps"]
                self.health.judge(self.judged_steps, line["updates"], line["seconds"], line)
        logged = {warning.kind for warning in active(logged_warnings(self.directory))}
        self.unsaved = NOT_SAVED in logged
        logged -= {NOT_SAVED, LINES_LOST, RUNNING_STATISTICS, *OF_SUPERVISOR}  # not the ones that metrics tell
        if self.incarnation or self.blueprint.environment.seen is None:
            logged -= {*OF_LOOK}  # the look has not been repeated
        held = self.health.active
        self._log_warnings(
            [held[kind] for kind in held.keys() - logged], sorted(logged - held.keys()), self.judged_steps
        )
        self._log_sink_faults()
        self._raise_sink_error()

    async def run(self) -> None:
        await asyncio.gather(
            self._record(),
            self._save_what_is_due(),
            self._record_evaluations(),
            self._record_episodes(),
            self._compare_improved(),
        )

    async def _record(self) -> None:
        async for message in self.metrics:
            self._write(message)

    async def _record_evaluations(self) -> None:
        while self.evaluated is not None:
            self._write_evaluation(await self.evaluations.receive(), self.evaluated)

    async def _record_episodes(self) -> None:
        while self.episodes.connected:
            self._write_episodes(await self.episodes.receive())

    async def _save_what_is_due(self) -> None:
        while True:
            due = await next_due(self.checkpoints, *self._held())
            await self._checkpoint(due)

    async def _compare_improved(self) -> None:
        while self.best is not None:
            self._compare(self.best, await self.improved.receive())

    def _compare(self, best: BestPolicy, *improved: Improved) -> None:
        """Offer the best of these turns, and of those that arrived during the last write, as the best policy."""
        queued = [*improved]
        while (message := self.improved.receive_nowait()) is not None:
            queued.append(message)
        if not queued:
            return
        chosen = max(queued, key=lambda message: (message.mean_return, message.balanced and message.turn))
        best.offer(
            chosen.weights,
            chosen.turn,
            updates=chosen.updates,
            env_steps=chosen.env_steps,
            mean_return=chosen.mean_return,
            episodes=RETURNS_KEPT,
            balanced=chosen.balanced,
        )

    def _write(self, message: Metrics) -> None:
        began, ended = self.health.judge(message.env_steps, message.updates, message.seconds, message.values)
        self.judged_steps = message.env_steps
        self._log_warnings(began, [warning.kind for warning in ended], message.env_steps)
        failures = failure_counts(chain.from_iterable(environments_of(self.directory).values()))
        values = {**message.values, **failures}
        self.sinks.write(MetricsRecord(message.updates, message.env_steps, message.seconds, values))
        self._log_sink_faults()
        if not self.lost:
            self._log_warnings(self._lost_lines(), [], 0)
        if self.sink_error is not None:
            self.end_run("a sink failed")  # `drain` saves the last state and raises the error

    def _sink_failed(self, text: str) -> None:
        """Take the warning of a sink, which is given while its exception, if there is one, is handled."""
        self.new_sink_faults.put((text, sys.exception()))

    def _raise_sink_error(self) -> None:
        if self.sink_error is not None:
            raise self.sink_error

    def _log_sink_faults(self) -> None:
        """Log what has failed since the last call, with what failed before: a warning has one text."""
        known = len(self.sink_faults)
        while not self.new_sink_faults.empty():
            text, error = self.new_sink_faults.get_nowait()
            self.sink_faults.append(text)
            if self.blueprint.config.supervision.strict and error is not None and self.sink_error is None:
                self.sink_error = RecordError(text, hint="without supervision.strict the run goes on without this sink")
                self.sink_error.__cause__, self.sink_error.permanent = error, True
        if len(self.sink_faults) == known:
            return
        for fault in self.sink_faults[known:]:
            self.log.warning("%s", fault)
        advice = "metrics.jsonl has all metrics; a resumed run makes the sinks again"
        self._log_warnings([RunWarning(SINK_FAILED, "; ".join(self.sink_faults), advice, self.judged_steps)], [], 0)

    def _lost_lines(self) -> list[RunWarning]:
        """Return the warning of the lines that could not be written, if there are more than in the last one."""
        lost = self.sinks.sinks.lost + (self.evaluated.lost if self.evaluated is not None else 0)
        if lost == self.lost:
            return []
        self.lost = lost
        text = f"lines of metrics, evaluations or episodes that could not be written: {lost:,}"
        return [RunWarning(LINES_LOST, text, "free space on the disk of the run directory", self.judged_steps)]

    def _log_warnings(self, began: Iterable[RunWarning], ended: Iterable[str], steps: int) -> None:
        for kind in ended:
            self.note(RECOVERED, f"{kind}: no longer so at {steps:,} steps", warning=kind, steps=steps)
        for warning in began:
            details = {"warning": warning.kind, "cause": warning.text, "advice": warning.advice}
            self.note(WARNING, warning.line, **details, steps=warning.first_steps)

    def _write_evaluation(self, message: Evaluation, lines: JsonlWriter) -> None:
        """Write a line of `evaluations.jsonl`, and the same numbers as metrics `evaluation/...`, once for each turn."""
        if message.turn in self.evaluated_turns:
            return  # its evaluator or the learner was killed, and it was made again
        result = {
            "mean_return": message.mean_return,
            "deviation": message.deviation,
            "min": message.min,
            "max": message.max,
            "mean_length": message.mean_length,
            "wall_s": message.wall_s,
        }
        infos = {f"info/{name}": value for name, value in message.info.items()}
        line = {
            "t": round(time.time(), 3),
            "turn": message.turn,
            "steps": message.env_steps,
            "updates": message.updates,
            "seconds": round(message.seconds, 3),
            "episodes": message.episodes,
            **result,
            **infos,
            **({BALANCED: True} if message.balanced else {}),
        }
        lost = lines.lost
        lines.write(line)
        if lines.lost == lost:
            self.evaluated_turns.add(message.turn)
        self.judged.take(line)
        values = {f"evaluation/{name}": value for name, value in {**result, **infos}.items()}
        self.sinks.write(MetricsRecord(message.updates, message.env_steps, message.seconds, values))

    def _write_episodes(self, *messages: EpisodesEnded) -> None:
        """Write these episodes, and those of all further messages that are here."""
        more = iter(self.episodes.receive_nowait, None) if self.episodes.connected else ()
        for message in (*messages, *more):
            self.sinks.write_episodes(self.episode_list.episodes(message))

    async def drain(self) -> None:
        """Write the remaining messages and the last checkpoint, then exit. All other actors have stopped before."""
        while (message := self.metrics.receive_nowait()) is not None:
            self._write(message)
        while self.evaluated is not None and (evaluation := self.evaluations.receive_nowait()) is not None:
            self._write_evaluation(evaluation, self.evaluated)
        self._write_episodes()
        while (due := self.checkpoints.receive_nowait()) is not None:
            await self._checkpoint(due)
        if self.best is not None:
            self._compare(self.best)
        steps = self.judged_steps
        self._log_warnings([*self.judged.at_end(steps), *self.health.at_end(steps), *self._lost_lines()], [], steps)
        await self._save()
        self._raise_sink_error()
        await super().drain()

    async def _save(self) -> None:
        """Save the final state, unless a checkpoint of this turn already exists.

        Raises RecordError if it cannot be saved: the run has then failed, whatever goal it reached.
        """
        turn = self.optimizer_state.latest
        if turn < 0:
            return
        async with self.writing:  # a checkpoint that is being written has pinned other blocks
            await self.weights.pin(turn)
            _, optimizer_state = await self.optimizer_state.pin(turn)
        views = self.blueprint.learner().views(optimizer_state)
        env_steps, episodes = (int(views["counters"][count]) for count in (Count.env_steps, Count.episodes))
        mean = mean_return(views["returns"], episodes)
        if (self.directory.checkpoints / f"{turn:06d}").exists():
            self._unpin()
            return
        ledger = -1
        if self.ledger.connected:
            ledger, _ = await self.ledger.pin()
        called = -1
        if self.callback_state.connected:
            called, _ = await self.callback_state.pin()
        if error := await self._checkpoint(CheckpointDue(turn, False, env_steps, mean, ledger, called), ended=True):
            raise RecordError(
                f"the final state, of {env_steps:,} steps, was not saved: {error}",
                hint="free space on the disk; `hive resume` then continues from the last checkpoint, if there is one",
            )

    def _held(self) -> list[Subscription[Any]]:
        """Return the ports whose blocks are pinned for a checkpoint, the weights last.

        The learner looks at the weights' pin before it holds the next turn, and all must be free then.
        """
        more = [port for port in (self.ledger, self.callback_state) if port.connected]
        return [*more, self.optimizer_state, self.weights]

    def _unpin(self) -> None:
        for port in self._held():
            port.unpin()

    async def _checkpoint(self, due: CheckpointDue, *, ended: bool = False) -> Exception | None:
        """Write the blocks of a turn, which are pinned for this actor, and unpin them. Return why it failed.

        ended: whether the learner has stopped, which then does not hold the leaves.
        """
        async with self.writing:
            self._write_episodes()  # those before the checkpoint, after which a resumed run continues
            try:
                return await self._write_checkpoint(due, ended)
            finally:
                if self.floor.connected:
                    clear_floor(self.floor.memory.view(np.int64))
                self._unpin()

    def _kept(self) -> int:
        """Return how many of the newest checkpoints stay: with several policies enough that all have a common one."""
        keep = self.blueprint.config.checkpoint.keep
        return keep if self.blueprint.barriers is None else max(keep, KEPT_TOGETHER)

    async def _write_checkpoint(self, due: CheckpointDue, ended: bool) -> Exception | None:
        blueprint, root, env_steps = self.blueprint, self.directory.checkpoints, due.env_steps
        name, first = f"{due.turn:06d}", first_gradient_round(blueprint)
        state: dict[str, JSON] = {
            "scheduled": due.scheduled,
            "env_steps": env_steps,
            "mean_return": due.mean_return,
            "env": blueprint.config.env.id,
            "info": list[JSON](blueprint.episode_values),
            "gradient_workers": blueprint.gradient_workers,
            "per_version": blueprint.per_version,
            "round_shape": list[JSON](round_shape(blueprint)),
            "schedule_start": schedule_start(blueprint),
            "policy": blueprint.policy(),
            **({"first_gradient_round": first} if blueprint.replays or first else {}),
            **({} if blueprint.barriers is None else {"round": rounds_at(blueprint, due.turn)}),
            **({"weight_files": dict[str, JSON](files)} if (files := blueprint.weight_files) else {}),
        }
        try:
            self.ownership.check()
            if (root / name).exists():  # the same turn was requested twice
                if due.by_hand:
                    keep_until_pruned(root / name)
                self.note("saved", f"checkpoint {name} already exists", path=str(root / name), by_hand=due.by_hand)
                return None
            weights, optimizer_state = held_block(self.weights, due.turn), held_block(self.optimizer_state, due.turn)
            state["updates"] = int(blueprint.learner().views(optimizer_state)["counters"][Count.updates])
            tensors = blueprint.flat.arrays(weights[: blueprint.flat.block_bytes])
            parts, rows = {"weights": weights, "optimizer_state": optimizer_state}, None
            if due.callbacks >= 0:
                called = read_content(held_block(self.callback_state, due.callbacks))
                parts[CALLBACKS], state[CALLBACKS] = np.frombuffer(called, np.uint8), True
            if self.ledger.connected and blueprint.config.checkpoint.replay:
                parts["replay_ledger"] = held_block(self.ledger, due.ledger)
                state["rounds"] = int(blueprint.ledger_layout.views(parts["replay_ledger"])["rollouts"].max())
                rows = self._rows(parts["replay_ledger"], ended)
            writing = writing_checkpoint(root, due.turn, tensors=tensors, parts=parts, state=state, replay=rows)
            for floor in writing:
                write_floor(self.floor.memory.view(np.int64), due.ledger, floor)
                await asyncio.sleep(0)  # metrics of a busy run do not wait for gigabytes
            if due.by_hand:
                keep_until_pruned(root / name)
            retain(root, self._kept(), keep_best=0)
            routine = not (due.by_hand or ended)  # views show no line of it: a fast run makes many
            text = f"checkpoint {name} at {env_steps:,} steps"
            self.note("saved", text, path=str(root / name), routine=routine, by_hand=due.by_hand)
            self._log_warnings([], [NOT_SAVED] if self.unsaved else [], env_steps)
            self.unsaved = False
        except (RecordError, VersionGone) as error:  # the run continues, e.g. on a full disk
            self.log.warning("%s", error)
            self.note("not saved", str(error), by_hand=due.by_hand)
            self._warn_unsaved(error, env_steps)
            return error
        return None

    def _rows(self, ledger: Bytes, ended: bool) -> RowsToSave:
        """Return the rows of the replay memory that belong to a ledger."""
        size, arrays = self.blueprint.replay.size, self.blueprint.memory_layout.views(self.memory.memory)
        held = arrays.pop("held_leaves")
        if not ended:
            arrays["leaves"] = held
        written = self.blueprint.ledger_layout.views(ledger)["written"].tolist()
        return RowsToSave(arrays, written, size.saved)

    def _warn_unsaved(self, error: Exception, env_steps: int) -> None:
        """Log the warning that checkpoints cannot be written, once until one is written again."""
        if self.unsaved or not isinstance(error, RecordError):
            return
        self.unsaved = True
        try:
            saved = list_checkpoints(self.directory.checkpoints)
        except RecordError:
            saved = []  # their folder was removed
        kept = f"the last good one is of update {saved[-1].update:,}" if saved else "0 checkpoints were written"
        advice = "free space on the disk of the run directory: the run goes on, and the next checkpoint is tried again"
        self._log_warnings([RunWarning(NOT_SAVED, f"{error}; {kept}", advice, env_steps)], [], env_steps)

    async def teardown(self) -> None:
        before = self.sink_error
        self.sinks.close()
        self._log_sink_faults()
        if self.evaluated is not None:
            self.evaluated.close()
        if before is None:
            self._raise_sink_error()


class RunSinks:
    """The sinks of `record.sinks`, which get the run's config, metrics and videos.

    `metrics.jsonl` and `metrics.csv` are written at once. Other sinks have threads, because they may be slow. Only a
    failure of `metrics.jsonl` raises; others cost one call of `warn`, from any thread.
    """

    def __init__(self, config: Config, directory: RunDirectory, warn: Callable[[str], None]) -> None:
        """Make the sinks and pass them the config. Raises RecordError if `metrics.jsonl` cannot be opened."""
        self.sinks = SinkSet([JsonlSink(directory.metrics_file)], warn)
        self.videos: NewVideos | None = NewVideos(directory.videos)
        self.last = MetricsRecord(0, 0, 0.0, {})
        self.warn = warn
        for name in config.record.sinks:
            if name == "csv":
                earlier = read_jsonl(directory.metrics_file)
                self.sinks.add("the CSV sink", lambda earlier=earlier: CsvSink(directory.csv_file, earlier))  # type: ignore[misc]
            elif name == "episodes":
                self.sinks.add("the sink of episodes", lambda: EpisodesSink(directory.episodes_file))
            elif make := _maker(name, directory):
                shown = f"the sink `{name}`"
                self.sinks.add(shown, lambda shown=shown, make=make: SinkThread(shown, make, warn))  # type: ignore[misc]
        self.sinks.write_config(config_tables(config))

    def write(self, record: MetricsRecord) -> None:
        """Write a record, and pass on the videos that appeared since the last one."""
        self.sinks.write(record)
        self.last = record
        self._pass_videos()

    def write_episodes(self, episodes: Sequence[Episode]) -> None:
        """Pass on training episodes."""
        self.sinks.write_episodes(episodes)

    def _pass_videos(self) -> None:
        if self.videos is None:
            return
        try:
            for path in self.videos.take():
                self.sinks.write_video(Video(path, self.last.updates, self.last.env_steps))
        except (OSError, RecordError) as error:
            self.videos = None
            self.warn(f"videos no longer reach the sinks: {cause(error)}")

    def close(self) -> None:
        """Pass on the last videos and close all sinks, which takes at most a few seconds for each."""
        self._pass_videos()
        self.sinks.close()


def config_tables(config: Config) -> dict[str, Mapping[str, Any]]:
    """Return the config as table -> key -> value, with the values that TOML has; `[custom.<group>]` is a table."""
    tables: dict[str, dict[str, Any]] = {}
    for entry in config.entries():
        table, _, name = entry.name.rpartition(".")
        tables.setdefault(table, {})[name] = list(entry.value) if isinstance(entry.value, tuple) else entry.value
    return {**tables}


def _next_step(directory: RunDirectory) -> int:
    """Return the environment step after those of all lines of metrics; the last lines may be of earlier evaluations."""
    lines = tail_jsonl(directory.metrics_file, LINES_BACK)
    return 1 + max((int(line["steps"]) for line in lines if "steps" in line), default=-1)


def _maker(name: str, directory: RunDirectory) -> Callable[[], Sink] | None:
    """Return the function that makes a sink that has a thread; None for the others."""
    if name == "tensorboard":
        folder = directory.path / "tensorboard"
        begins = _next_step(directory) if folder.exists() else None
        return lambda: TensorBoardSink(folder, begins)
    if name == "wandb":
        return lambda: WandbSink(directory.path)
    if is_reference(name):
        set_up()
        # The folder in which a user-defined sink writes: that of the run.
        return lambda: load_reference(name)(directory.path)
    return None
