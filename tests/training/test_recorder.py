"""The recorder behind a source of our own: what was sent is written, and the last weights are saved."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import LIMIT_S, config_of

from hive.errors import RecordError
from hive.experience import EPISODE_END
from hive.records import RunDirectory, best_policy, newest_checkpoint, read_jsonl, writing_checkpoint
from hive.records.atomic import check_folder
from hive.records.checkpoints.weights import load_weights
from hive.records.environments import EnvironmentRow, write_environments
from hive.records.run_warnings import STARTS_REPEAT, RunWarning, warnings_of
from hive.records.tail import LINE_BYTES
from hive.runtime import Actor, Board, Outlet, Publication, Topology
from hive.runtime.supervise.supervisor import Journal, Outcome, Supervisor
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint, Evaluation, Metrics, OptimizerState, Recorder, Weights
from hive.training.messages import CheckpointDue, Improved
from hive.training.record import recorder
from hive.training.record.pinned_blocks import LOST_AFTER_S
from hive.training.replay_floor import NO_LEDGER
from hive.training.update.learner import Count


class Source(Actor):
    """A learner's place: publishes versions whose every byte is the version, sends as many metrics, ends the run.

    The versions in `due` it holds for the recorder, as checkpoints that are due.
    """

    metrics = Outlet(Metrics, pattern="broadcast")
    checkpoints = Outlet(CheckpointDue, pattern="broadcast")
    weights = Publication(Weights)
    optimizer_state = Publication(OptimizerState)

    def __init__(self, versions: list[int], due: list[int], blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.versions = versions
        self.due = due

    def publish(self, version: int) -> None:
        """Commit weights that are all `version`, with an optimizer state of zeros."""
        self.weights.begin()[:] = version
        self.optimizer_state.begin()[:] = 0
        self.weights.board.seal(version)
        self.optimizer_state.publish(version)

    async def run(self) -> None:
        for version in self.versions:
            self.publish(version)
            if version in self.due and self.weights.board.hold(0, version):
                self.optimizer_state.board.hold(0, version)
                await self.checkpoints.send(CheckpointDue(version, True, 10 * version, float(version)))
            await self.metrics.send(Metrics(version, 10 * version, version / 4, {"return/mean_100": -1.0 * version}))
        self.end_run("all is said")


class Improving(Source):
    """Offers each version with its number as the mean return, the newest first."""

    improved = Outlet(Improved, pattern="broadcast")

    async def run(self) -> None:
        layout = self.blueprint.learner().layout
        for version in self.versions:
            self.weights.begin()[:] = version
            block = self.optimizer_state.begin()
            block[:] = 0
            layout.views(block)["counters"][Count.episodes] = 99
            self.weights.board.seal(version)
            self.optimizer_state.publish(version)
        weights = np.zeros(self.blueprint.flat.block_bytes, np.uint8)
        await self.improved.send_many(
            [Improved(n, n, 16 * n, float(n), weights + np.uint8(n)) for n in reversed(self.versions[:-1])]
        )
        self.end_run("all is said")


class Judge(Actor):
    """Replaces the evaluator: sends the given evaluations."""

    evaluations = Outlet(Evaluation, pattern="broadcast")

    def __init__(self, found: list[Evaluation]) -> None:
        self.found = found

    async def run(self) -> None:
        for evaluation in self.found:
            await self.evaluations.send(evaluation)


def follow(supervisor: Supervisor, events: list[Any]) -> None:
    """Appends each event of a run: kind, text and fields."""
    supervisor.effects.journal = Journal(lambda kind, text, fields: events.append((kind, text, fields)), lambda _: "")


class RecorderFixture:
    """A run directory and the actors that a recorder reads from."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.directory = RunDirectory.create(folder, "test")
        self.blueprint = Blueprint(config_of("small_environments:OneState", **values))

    def run(
        self,
        versions: list[int],
        cls: type[Recorder] = Recorder,
        due: tuple[int, ...] = (),
        source_of: type[Source] = Source,
        found: list[Evaluation] | None = None,
        **options: Any,
    ) -> Outcome:
        t = Topology()
        source = t.add(source_of, group="source", versions=versions, due=list(due), blueprint=self.blueprint)
        recorder = t.add(cls, last=True, blueprint=self.blueprint, directory=self.directory.path)
        t.connect(source.optimizer_state, recorder.optimizer_state, Board(self.blueprint.optimizer_state_bytes))
        t.connect(source.weights, recorder.weights, Board(self.blueprint.state.bytes, commit_with="optimizer_state"))
        t.connect(source.metrics, recorder.metrics)
        t.connect(source.checkpoints, recorder.checkpoints)
        if issubclass(source_of, Improving):
            t.connect(source.improved, recorder.improved)
        if found is not None:
            t.connect(t.add(Judge, found=found).evaluations, recorder.evaluations)
        return run_inline(t, seconds=LIMIT_S, **options)

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.directory.checkpoints.iterdir())


def test_every_metric_is_a_line(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    outcome = fixture.run([0, 1, 2, 3])
    assert outcome.channels["metrics"] == {"produced": 4, "consumed": 4, "dropped": {}, "in_flight": 0}
    lines = list(read_jsonl(fixture.directory.metrics_file))
    assert [{name: line[name] for name in line if name != "t"} for line in lines] == [
        {"steps": 10 * n, "updates": n, "seconds": n / 4, "return/mean_100": -1.0 * n} for n in range(4)
    ]


def test_failures_of_environments_are_metrics(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    for collector, failures in ((0, 0), (1, 3)):
        row = EnvironmentRow(8 + collector, 0, 0, "running", failures, 100)
        write_environments(fixture.directory, f"collector-{collector}", [row])
    fixture.run([0])
    (line,) = read_jsonl(fixture.directory.metrics_file)
    counts = {name: value for name, value in line.items() if name.startswith("environments/")}
    assert counts == {"environments/failures": 3, "environments/9/failures": 3}


class Failing(Source):
    """Its policy varies its actions in versions 1 and 2, then no longer, again in 5 and 6, and so on."""

    async def run(self) -> None:
        for version in self.versions:
            self.publish(version)
            values = {"episodes": 1.0, "return/mean_100": 5.0, "learner/entropy": 0.5 if version % 4 in (1, 2) else 0.0}
            await self.metrics.send(Metrics(200 * version, 1000 * version, float(version), values))
        self.end_run("all is said")


def warnings_in(events: list[tuple[str, str, dict[str, Any]]]) -> list[tuple[str, str, int]]:
    return [(kind, of["warning"], of["steps"]) for kind, _, of in events if kind in ("warning", "recovered")]


def test_warnings_are_logged_and_known_again_after_a_restart(tmp_path: Path) -> None:
    """A recorder that finds metrics judges them again. It logs what the event log lacks, and ends what no longer is."""
    fixture, events = RecorderFixture(tmp_path), list[tuple[str, str, dict[str, Any]]]()

    def run(versions: list[int]) -> list[tuple[str, str, int]]:
        events.clear()

        def look(supervisor: Supervisor) -> None:
            supervisor.effects.journal = Journal(
                lambda kind, text, fields: events.append((kind, text, fields)), lambda _: ""
            )

        fixture.run(versions, source_of=Failing, watch=look)
        with fixture.directory.events_file.open("a") as file:
            file.writelines(json.dumps({"kind": kind, "text": text, **of}) + "\n" for kind, text, of in events)
        return warnings_in(events)

    assert run([1, 2, 3, 4]) == [("warning", "entropy gone", 3000)]
    logged = events[[kind for kind, *_ in events].index("warning")]
    assert logged[1].startswith("entropy gone: the policy hardly varies its actions (entropy 0 of 0.69 nats); raise ")
    assert logged[2]["advice"] == "raise algorithm.entropy_weight or lower algorithm.learning_rate"
    assert run([]) == []  # logged before
    whole = fixture.directory.events_file.read_text()
    fixture.directory.events_file.write_text("")
    assert run([]) == [("warning", "entropy gone", 3000)]  # killed before it was logged
    assert run([5, 6, 7, 8]) == [("recovered", "entropy gone", 5000)]  # begins again after a minute
    fixture.directory.events_file.write_text(whole)
    assert run([]) == [("recovered", "entropy gone", 8000)]


@pytest.mark.parametrize(("seen", "ended"), [(None, []), ((), [("recovered", STARTS_REPEAT, 0)])])
def test_a_warning_of_a_look_ends_only_where_a_look_was_repeated(tmp_path: Path, seen: Any, ended: list[Any]) -> None:
    fixture, events = RecorderFixture(tmp_path), list[tuple[str, str, dict[str, Any]]]()
    fixture.blueprint.environment = dataclasses.replace(fixture.blueprint.environment, seen=seen)
    warning = RunWarning(STARTS_REPEAT, "all begin alike", "draw", 0)
    fixture.directory.events_file.write_text(json.dumps(warning.event) + "\n")

    def look(supervisor: Supervisor) -> None:
        supervisor.effects.journal = Journal(lambda *event: events.append(event), lambda _: "")

    fixture.run([], watch=look)
    assert warnings_in(events) == ended


class Slow(Recorder):
    """Writes nothing while the run lasts."""

    async def run(self) -> None:
        await asyncio.Event().wait()


def test_messages_left_at_the_end_are_written(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    fixture.run([0, 1, 2, 3], Slow, virtual=True)  # the source waits for its last acknowledgements
    assert [line["updates"] for line in read_jsonl(fixture.directory.metrics_file)] == [0, 1, 2, 3]


class ByHand(Source):
    """Requests turn 1 as a checkpoint, then again as `hive save` does, then turns 2 to 4 as checkpoints."""

    async def run(self) -> None:
        for version, by_hand in ((1, False), (1, True), (2, False), (3, False), (4, False)):
            if self.weights.latest < version:
                self.publish(version)
            while not self.weights.board.hold(0, version):
                await asyncio.sleep(0)
            self.optimizer_state.board.hold(0, version)
            await self.checkpoints.send(CheckpointDue(version, False, 10, 1.0, by_hand=by_hand))
        while not self.weights.board.hold(0, 4):
            await asyncio.sleep(0)
        self.end_run("all is said")


def test_a_checkpoint_that_was_saved_by_hand_outlives_newer_ones(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path, checkpoint__keep=1)
    events: list[Any] = []
    fixture.run([], source_of=ByHand, watch=lambda supervisor: follow(supervisor, events))
    assert fixture.checkpoints() == ["000001", "000004"]
    assert [fields["by_hand"] for kind, _, fields in events if kind == "saved"] == [False, True, False, False, False]
    assert (fixture.directory.checkpoints / "000001" / "KEEP").exists()


class Breaking:
    """A sink that fails at its first record."""

    def __init__(self, folder: Path) -> None:
        pass

    def write(self, record: object) -> None:
        raise OSError("its disk is gone")

    def close(self) -> None:
        pass


class TooLong(Source):
    """Sends three records, of which two are longer than a line may be."""

    async def run(self) -> None:
        for version, length in enumerate((LINE_BYTES - 20, 1, LINE_BYTES - 20)):
            await self.metrics.send(Metrics(version, version, 0.0, {f"learner/{'x' * length}": 1.0}))
        self.publish(0)
        self.end_run("all is said")


def test_lines_that_cannot_be_written_are_a_warning_with_their_number(tmp_path: Path) -> None:
    fixture, events = RecorderFixture(tmp_path), list[Any]()
    fixture.run([], source_of=TooLong, watch=lambda supervisor: follow(supervisor, events))
    assert len([*read_jsonl(fixture.directory.metrics_file)]) == 1
    causes = [fields["cause"] for _, _, fields in events if fields.get("warning") == "lines lost"]
    assert [cause.rpartition(" ")[2] for cause in causes] == ["1", "2"], "the first time, and at the end"


class Unclosable(Breaking):
    def write(self, record: object) -> None:
        pass

    def close(self) -> None:
        raise ValueError("not now")


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        ("test_recorder:Breaking", "is dropped: OSError: its disk is gone"),
        ("test_recorder:Unclosable", "did not close: ValueError: not now"),
        ("no_such_module:Sink", "is dropped: there is no module `no_such_module`"),
    ],
)
def test_a_sink_that_fails_is_a_warning_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, fault: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    events: list[dict[str, Any]] = []

    def listen(supervisor: Supervisor) -> None:
        supervisor.effects.journal = Journal(
            lambda kind, text, fields: events.append({"kind": kind, **fields}), lambda *of: ""
        )

    fixture = RecorderFixture(tmp_path, record__sinks=["jsonl", "csv", sink])
    assert fixture.run([1, 2, 3], watch=listen).state == "finished"
    (warning,) = warnings_of(events).values()
    assert (warning.kind, warning.last_steps) == ("sink failed", None)
    assert warning.text.startswith(f"the sink `{sink}` {fault}")
    assert len([*read_jsonl(fixture.directory.metrics_file)]) == 3


@pytest.mark.parametrize(
    ("sink", "fault"),
    [
        ("test_recorder:Breaking", "is dropped: OSError: its disk is gone"),
        ("test_recorder:Unclosable", "did not close: ValueError: not now"),
        ("no_such_module:Sink", "is dropped: there is no module `no_such_module`"),
    ],
)
def test_a_strict_run_fails_with_the_error_of_a_sink_when_it_has_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: str, fault: str
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    fixture = RecorderFixture(tmp_path, record__sinks=["jsonl", sink], supervision__strict="true")
    with pytest.raises(RecordError, match=re.escape(f"the sink `{sink}` {fault}")) as caught:
        fixture.run([*range(50)])
    assert caught.value.__cause__ is not None
    assert fixture.checkpoints() or sink.startswith("no_such_module")  # which fails before the run begins


class Insistent(Source):
    """Asks twice for the same checkpoint."""

    async def run(self) -> None:
        self.weights.begin()[:] = 1
        self.optimizer_state.begin()[:] = 0
        self.weights.board.seal(1)
        self.optimizer_state.publish(1)
        for scheduled in (True, False):
            while not self.weights.board.hold(0, 1):
                await asyncio.sleep(0)
            self.optimizer_state.board.hold(0, 1)
            await self.checkpoints.send(CheckpointDue(1, scheduled, 10, 1.0))
        while not self.weights.board.hold(0, 1):
            await asyncio.sleep(0)
        self.end_run("all is said")


def test_a_checkpoint_that_is_there_already_stays_as_it_is(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    fixture.run([], source_of=Insistent)
    assert fixture.checkpoints() == ["000001"]
    newest = newest_checkpoint(fixture.directory.checkpoints)
    assert newest is not None
    assert newest.scheduled


def test_the_last_weights_are_saved_under_their_version(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    assert fixture.run([0, 5, 42]).state == "finished"
    assert fixture.checkpoints() == ["000042"]
    folder = fixture.directory.checkpoints / "000042"
    check_folder(folder)
    weights, state = load_weights(folder)
    assert np.isnan(state.pop("mean_return"))
    assert state.pop("policy") == fixture.blueprint.policy()
    assert state == {
        "update": 42,
        "checkpoint_format": 2,
        "env": "small_environments:OneState",
        "info": [EPISODE_END],
        "scheduled": False,
        "env_steps": 0,
        "updates": 0,
        "gradient_workers": 1,
        "per_version": 1,
        "round_shape": [16, 1, 1],
        "schedule_start": 0.0,
    }
    assert {name: array.shape for name, array in weights.items()} == dict(fixture.blueprint.flat.describe())
    assert all((array.view(np.uint8) == 42).all() for array in weights.values())


def test_buffers_are_saved_with_the_parameters(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path, network__module='"small_environments:Normalising"')
    fixture.run([3])
    weights, _ = load_weights(fixture.directory.checkpoints / "000003")
    network = fixture.blueprint.network()
    assert {*weights} == {*network.state_dict()}


def test_nothing_published_is_nothing_saved(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    assert fixture.run([]).state == "finished"
    assert fixture.checkpoints() == []
    assert list(read_jsonl(fixture.directory.metrics_file)) == []


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    left = fixture.directory.checkpoints / ".000001.hive-tmp"
    left.mkdir()
    (left / "weights.safetensors").write_bytes(b"half")
    fixture.run([2])
    assert fixture.checkpoints() == ["000002"]


def test_a_checkpoint_that_is_there_stays(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    fixture.run([2])
    file = fixture.directory.checkpoints / "000002" / "DONE"
    before = file.stat().st_mtime_ns
    assert fixture.run([2]).state == "finished"
    assert file.stat().st_mtime_ns == before


def test_a_due_checkpoint_is_written_unchanged_and_kept(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path, checkpoint__keep=2)
    fixture.run([1, 2, 3, 4, 5], due=(3,))
    assert fixture.checkpoints() == ["000003", "000005"]
    newest = newest_checkpoint(fixture.directory.checkpoints)
    checkpoint = newest_checkpoint(fixture.directory.checkpoints, scheduled_only=True)
    assert newest is not None
    assert checkpoint is not None
    assert (newest.update, newest.scheduled) == (5, False)
    assert (checkpoint.update, checkpoint.state["env_steps"], checkpoint.mean_return) == (3, 30, 3.0)
    assert set(checkpoint.part("weights")) == {3}
    assert len(checkpoint.part("optimizer_state")) == fixture.blueprint.optimizer_state_bytes


def test_checkpoints_of_a_schedule_are_marked_as_routine_and_the_last_is_not(tmp_path: Path) -> None:
    events: list[tuple[str, Any]] = []

    def listen(supervisor: Supervisor) -> None:
        supervisor.effects.journal = Journal(lambda kind, text, of: events.append((text, of)), lambda *of: "")

    RecorderFixture(tmp_path).run([1, 2, 3, 4, 5], due=(3,), watch=listen)
    assert [(text.partition(" at ")[0], of["routine"]) for text, of in events if "routine" in of] == [
        ("checkpoint 000003", True),
        ("checkpoint 000005", False),
    ]


def test_old_checkpoints_go(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path, checkpoint__keep=1)
    for version in (1, 2, 3):
        fixture.run([version])
    assert fixture.checkpoints() == ["000003"]


def test_tensorboard_is_a_sink(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    fixture = RecorderFixture(tmp_path, record__sinks=["jsonl", "tensorboard"])
    fixture.run([1])
    assert list((fixture.directory.path / "tensorboard").glob("events.*"))
    assert len(list(read_jsonl(fixture.directory.metrics_file))) == 1


def test_it_needs_a_run_directory(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    fixture.directory = RunDirectory(tmp_path / "elsewhere")
    with pytest.raises(RecordError, match="elsewhere` is not a run directory"):
        fixture.run([1])


# --- checkpoints and what gets lost


class LosesAMessage(Source):
    """Holds each version that it can; the message of the first is lost."""

    async def run(self) -> None:
        for version in self.versions:
            self.publish(version)
            if self.weights.board.hold(0, version):
                assert self.optimizer_state.board.hold(0, version)
                if version != self.versions[0]:
                    await self.checkpoints.send(CheckpointDue(version, True, 10 * version, float(version)))
            await asyncio.sleep(1.1 * LOST_AFTER_S)  # looks are between two versions
        self.end_run("all is said")


def test_a_lost_message_does_not_cost_the_checkpoints_after_it(tmp_path: Path) -> None:
    """It was killed, and the learner held a turn for it before it was back."""
    fixture = RecorderFixture(tmp_path, checkpoint__keep=9)
    fixture.run([1, 2, 3, 4, 5, 6], source_of=LosesAMessage, virtual=True)
    assert fixture.checkpoints() == ["000003", "000004", "000005", "000006"]


class HoldsNothing(Source):
    """Says that version 1 is held when it has been overwritten."""

    async def run(self) -> None:
        for version in self.versions:
            self.publish(version)
        await self.checkpoints.send(CheckpointDue(1, True, 10, 1.0))
        self.end_run("all is said")


def test_an_overwritten_turn_is_not_saved(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    assert fixture.run(list(range(1, 10)), source_of=HoldsNothing, virtual=True).state == "finished"
    assert fixture.checkpoints() == ["000009"]


# --- evaluations

FOUND = [Evaluation(n, n - 1, 16 * n, n / 4, 10, 20.0 + n, 2.5, 10.0, 30.0, 21.5, 0.125) for n in (2, 4)]
RESULT = {"deviation": 2.5, "min": 10.0, "max": 30.0, "mean_length": 21.5, "wall_s": 0.125}


@pytest.mark.parametrize("cls", [Recorder, Slow])
def test_every_evaluation_is_a_line_and_a_metric(tmp_path: Path, cls: type[Recorder]) -> None:
    fixture = RecorderFixture(tmp_path)
    outcome = fixture.run([], cls, found=FOUND, virtual=True)
    assert outcome.channels["evaluations"]["produced"] == 2
    lines, metrics = (list(read_jsonl(f)) for f in (fixture.directory.evaluations_file, fixture.directory.metrics_file))
    assert all(line.pop("t") > 0 for line in (*lines, *metrics))
    for n, line, metric in zip((2, 4), lines, metrics, strict=True):
        axes = {"steps": 16 * n, "updates": n - 1, "seconds": n / 4}
        result = {"mean_return": 20.0 + n, **RESULT}
        assert line == {"turn": n, "episodes": 10, **axes, **result}
        assert metric == {**axes, **{f"evaluation/{name}": value for name, value in result.items()}}


def test_without_an_evaluator_there_is_no_file(tmp_path: Path) -> None:
    fixture = RecorderFixture(tmp_path)
    fixture.run([1])
    assert not fixture.directory.evaluations_file.exists()


def test_a_checkpoint_that_is_written_needs_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, ledgers = RunDirectory.create(tmp_path, "test"), list[int]()
    unpin = Recorder._unpin

    def unpinned(recorder: Recorder) -> None:
        ledgers.append(int(recorder.floor.memory.view(np.int64)[0]))
        unpin(recorder)

    monkeypatch.setattr(Recorder, "_unpin", unpinned)
    values = {"run__steps": 64, "algorithm__learning_starts": 16, "algorithm__replay_capacity": 64}
    config = config_of("small_environments:OneState", run__scheme='"dqn"', checkpoint__every="{updates=1}", **values)
    run_inline(build(config, directory.path), seconds=LIMIT_S)
    assert {*ledgers} == {NO_LEDGER}


# --- the best policy


@pytest.mark.parametrize("cls", [Recorder, Slow])
def test_of_the_turns_that_improved_the_best_is_kept(tmp_path: Path, cls: type[Recorder]) -> None:
    fixture = RecorderFixture(tmp_path)
    fixture.run([1, 2, 3, 4], cls, source_of=Improving, virtual=True)
    best = best_policy(fixture.directory.best)
    assert best is not None
    assert (best.update, best.mean_return) == (3, 3.0)
    assert all((array.view(np.uint8) == 3).all() for array in best.tensors().values())
    assert {name: best.state[name] for name in ("by", "episodes", "env_steps", "updates")} == {
        "by": "training",
        "episodes": 100,
        "env_steps": 48,
        "updates": 3,
    }


@pytest.mark.parametrize(
    ("failures", "kinds"),
    [(1, ["not saved", "warning", "saved", "recovered"]), (2, ["not saved", "warning", "not saved"])],
)
def test_checkpoints_that_cannot_be_written_are_one_warning_until_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, kinds: list[str]
) -> None:
    fixture = RecorderFixture(tmp_path)
    written: list[int] = []

    def write(root: Path, turn: int, **parts: Any) -> Iterator[tuple[int, ...]]:
        written.append(turn)
        if len(written) <= failures:
            raise RecordError("cannot write `checkpoints`: no space left on device")
        yield from writing_checkpoint(root, turn, **parts)

    monkeypatch.setattr(recorder, "writing_checkpoint", write)
    events: list[tuple[str, str, Any]] = []

    watch = functools.partial(follow, events=events)
    if failures == 1:
        fixture.run([1, 2, 3, 4, 5], due=(2,), watch=watch)
    else:  # the last one, too
        with pytest.raises(RecordError, match=r"the final state, of .* steps, was not saved: cannot write"):
            fixture.run([1, 2, 3, 4, 5], due=(2,), watch=watch)
    told = [(kind, text) for kind, text, _ in events if kind in ("warning", "recovered", "saved", "not saved")]
    assert [kind for kind, _ in told] == kinds
    assert "no space left on device; 0 checkpoints were written; free space on the disk" in told[1][1]
