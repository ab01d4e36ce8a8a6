"""Callbacks: what they are called with, what they change and from when, what a failure costs, and rules of configs."""

from __future__ import annotations

import math
import os
import socket
import sys
import tempfile
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_trainer import LIMIT_S, config_of

import hive
from hive.errors import ActorFailed, CallbackFailed, ConfigError, HiveError, PlatformError, TopologyError, UsageError
from hive.integrations.optuna import Pruning
from hive.launch.resuming import prepare
from hive.records import RunDirectory, list_checkpoints, read_jsonl, read_resume_point
from hive.records.owner import give_up
from hive.runtime.process.spawning import CALLBACKS
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint, LearnerActor
from hive.training.callbacks import caller
from hive.training.callbacks.callback_actor import UserThread
from hive.training.callbacks.caller import Caller
from hive.training.callbacks.calling import restore
from hive.training.callbacks.changes import Changes, first_round
from hive.training.callbacks.events import Actions, Callback, EvaluationEvent, RoundEvent, handlers_of
from hive.training.callbacks.messages import CallbacksState
from hive.training.callbacks.rules import Curriculum, StopAtEvaluation, StopWhenNoBetter
from hive.training.callbacks.start import state_at_start
from hive.training.resume_barriers import NoBarriers, ResumeBarriers
from hive.training.update.evaluation_schedule import EvaluationSchedule

COUNTS: dict[str, Any] = {"env_steps": 0, "updates": 0, "seconds": 0.0, "mean_return_100": math.nan}
ROUND_STEPS = 16  # of the runs below: 2 environments, 8 steps


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))


def trained(*callbacks: Any, steps: int = 6 * ROUND_STEPS, **more: Any) -> hive.Result:
    """A run in this process, of rounds with one update."""
    tables: dict[str, Any] = {
        "env": {"id": "own_callbacks:Leveled", "info": ["level"], "options": {"length": 4}},
        "collection": {"envs": 2, "rollout": 8, "workers": 0, "communication": "synchronous"},
        "gradients": {"workers": 0},
        "record": {"every_s": 1e-6},
        "checkpoint": {"every": {"steps": 100 * ROUND_STEPS}},
        "evaluation": {"every": {"steps": 2 * ROUND_STEPS}, "episodes": 2},
        "run": {"scheme": "a2c", "steps": steps, "callbacks": list(callbacks), **more.pop("run", {})},
    }
    tables["env"] |= more.pop("env", {})
    return hive.train({**tables, **more}, inline=True, quiet=True)


def metrics(result: hive.Result, name: str) -> list[float]:
    return [line[name] for line in read_jsonl(Path(result.directory) / "metrics.jsonl") if name in line]


def state_of(result: hive.Result) -> CallbacksState:
    return CallbacksState.of(list_checkpoints(Path(result.directory) / "checkpoints")[-1].part("callbacks"))


# --- a run


def test_a_callback_follows_rounds_episodes_and_evaluations(capfd: pytest.CaptureFixture[str]) -> None:
    result = trained("own_callbacks:Follows")
    assert metrics(result, "rounds")[-1] == 6
    assert "mine/best" in {name for line in read_jsonl(Path(result.directory) / "metrics.jsonl") for name in line}
    assert [line["steps"] for line in read_jsonl(Path(result.directory) / "evaluations.jsonl")] == [32, 64, 96]
    assert f"ended: {6 * ROUND_STEPS} steps, True, 3 evaluations" in capfd.readouterr().out
    assert result.exact


def test_the_level_holds_from_the_next_round_and_the_next_episode_on() -> None:
    """Level n makes episodes of 4 + n steps. Round 3 ends with a reset, and sets it: round 4 begins with 4 steps."""
    result = trained("own_callbacks:Follows", steps=5 * ROUND_STEPS)
    longest = dict(zip(metrics(result, "rounds"), metrics(result, "longest"), strict=True))
    (level, weight) = (one for one in Changes(state_of(result).changes).changes)
    assert (level.first, weight.first, weight.value) == (3, 4, 0.5)
    assert [longest[n] for n in (2, 3, 4, 5)] == [4, 4, 4, 4 + level.value]


def test_two_runs_are_the_same() -> None:
    first, second = (trained("own_callbacks:Follows", steps=8 * ROUND_STEPS) for _ in range(2))
    assert first.weights_sha256 == second.weights_sha256
    assert state_of(first).states == state_of(second).states


@pytest.mark.parametrize("times", [1, 2])
def test_a_method_of_environments_that_is_called_again_makes_a_resume_inexact(times: int) -> None:
    result = trained({"name": "own_callbacks:Grows", "times": times}, env={"id": "own_callbacks:Growing"})
    directory = prepare(str(result.directory), exact=False, sets=["run.steps=1000"], report=lambda line: None)
    give_up(directory)
    point = read_resume_point(directory)
    assert point is not None
    assert ("callbacks called a method of environments" in point.why) == (times > 1)


def test_a_stop_ends_the_run_with_its_reason() -> None:
    result = trained({"name": "own_callbacks:Follows", "stop_after": 2})
    assert (result.stop_reason, result.env_steps, result.state) == ("enough rounds", 32, "finished")


def test_one_that_raises_is_dropped_and_said() -> None:
    result = trained("own_callbacks:Raises", "own_callbacks:Follows")
    (warning,) = [one for one in result.warnings if one["kind"] == "callback failed"]
    assert "`own_callbacks:Raises` failed: ValueError: my mistake (" in warning["text"]
    assert "a callback failed" in result.inexact
    assert metrics(result, "rounds")[-1] == 6, "the other one goes on"


async def test_a_thread_returns_raises_and_can_be_left_behind() -> None:
    thread = UserThread("test")
    assert await thread.run(lambda: 3, 10.0) == 3
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0, 10.0)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await thread.run(sys.exit, 10.0)
    released = threading.Event()
    with pytest.raises(TimeoutError):
        await thread.run(released.wait, 0.01)
    released.set()


def test_with_strict_supervision_the_run_fails() -> None:
    with pytest.raises(ActorFailed, match="my mistake"):
        trained("own_callbacks:Raises", supervision={"strict": True})


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        ("own_callbacks:Empty", "has none of the methods of a callback"),
        ({"name": "own_callbacks:Follows", "stop": 2}, "unexpected keyword argument 'stop'"),
        (None, "the run has no evaluations"),
    ],
)
def test_a_callback_that_cannot_be_is_refused_before_the_run(callback: Any, text: str) -> None:
    more = {} if callback else {"evaluation": {"every": {}}}
    with pytest.raises(hive.errors.HiveError, match=text):
        trained(callback or "own_callbacks:Follows", **more)


def test_an_object_is_called_in_this_process_and_gets_the_result() -> None:
    class Mine:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_round(self, event: Any) -> None:
            self.seen.append(event.number)
            if event.number == 2:
                event.stop("two are enough")

        def on_result(self, result: Any) -> None:
            self.seen.append(result.stop_reason)

    mine = Mine()
    result = trained(mine)
    assert mine.seen == [1, 2, "two are enough"]
    assert result.exact


class Quiet:
    def on_round(self, event: Any) -> None:
        pass


def test_a_resumed_run_never_calls_the_objects_of_an_earlier_program() -> None:
    result = trained(Quiet())
    (entry,) = hive.load_config(result.directory / "resolved.toml").run.callbacks
    assert set(entry) == {"name", "number", "handlers", "shown"}, "neither an address nor a secret"
    with pytest.raises(CallbackFailed, match=r"`Quiet` is an object of the program that started the run"):
        result.resume(steps=20 * ROUND_STEPS)
    with pytest.raises(CallbackFailed, match=r"`Quiet` is an object of the program"):
        Caller(0, ["on_round"], "Quiet")


def test_objects_need_a_folder_with_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(PlatformError, match=str(folder)):
        trained(Quiet())


def test_no_token_is_sent_to_a_socket_that_could_be_another_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening, path = socket.socket(socket.AF_UNIX), tmp_path / "callbacks"
    with listening:
        listening.bind(str(path))
        listening.listen()
        monkeypatch.setenv(CALLBACKS, f"{path}|token")
        path.parent.chmod(0o755)
        with pytest.raises(CallbackFailed, match="open to other users"):
            Caller(0, ["on_round"], "Quiet")
        path.parent.chmod(0o700)
        monkeypatch.setattr(caller, "_check_private", lambda path: None)
        monkeypatch.setattr(os, "getuid", lambda: 65534)
        with pytest.raises(CallbackFailed, match="a process of user"):
            Caller(0, ["on_round"], "Quiet")
        listening.setblocking(False)
        connection, _ = listening.accept()
        with connection:
            assert connection.recv(1) == b"", "nothing was sent"


def test_a_method_that_is_never_called_is_refused() -> None:
    class Other:
        def on_rollout_end(self) -> None:
            pass

        def on_round(self, event: Any) -> None:
            pass

    with pytest.raises(TopologyError, match="`on_rollout_end`, which hive never calls"):
        trained(Other())


def test_an_object_without_a_method_is_refused() -> None:
    with pytest.raises(TopologyError, match="`Empty` has none of the methods"):
        hive.train("ppo", env="CartPole-v1", callbacks=[__import__("own_callbacks").Empty()])


def test_a_function_of_an_event_is_called_at_each_round_where_it_was_given(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []
    rounds: list[int] = []

    def watch(event: RoundEvent, since: int = 0) -> None:
        seen.append(event.env_steps - since)
        event.log(mine=event.number)

    class Counts:
        def __call__(self, event: RoundEvent) -> None:
            rounds.append(event.number)

    stops = lambda event: event.number == 4 and event.stop("enough")  # noqa: E731
    result = trained(watch, Counts(), stops, "own_callbacks:watch", {"name": "own_callbacks:watch", "word": "twice"})
    assert seen == [n * ROUND_STEPS for n in range(1, 5)]
    assert rounds == [1, 2, 3, 4]
    assert metrics(result, "mine")[-1] == 4
    assert result.stop_reason == "enough"
    out = capfd.readouterr().out
    assert (out.count("watched 16"), out.count("twice 16")) == (1, 1)
    assert result.exact, "False of a lambda says nothing"


async def waits(event: RoundEvent) -> None: ...


@pytest.mark.parametrize(
    ("callback", "what"),
    [
        (lambda _locals, _globals: True, "function of 2 arguments"),
        (waits, "coroutine"),
        ("own_callbacks:nothing", "none of the methods"),
    ],
)
def test_a_function_of_another_form_is_refused_with_the_form(callback: Any, what: str) -> None:
    with pytest.raises(HiveError, match=what) as caught:
        trained(callback)
    assert "async" in caught.value.hint or "one argument, the event" in caught.value.hint


def test_false_which_ends_runs_of_other_trainers_is_told() -> None:
    def watch(event: RoundEvent) -> bool:
        return event.number < 2

    result = trained(watch)
    assert "event.stop" in result.warnings[0]["text"]


# --- events


def test_handlers_are_the_methods_that_a_class_overrides() -> None:
    class One(Callback):
        def on_end(self, event: Any) -> None:
            pass

    assert handlers_of(One) == ("on_end",)
    assert handlers_of(One()) == ("on_end",)
    assert len(handlers_of(lambda: One())) == 4, "what a function makes is not known"


@pytest.mark.parametrize(
    "act",
    [
        lambda event: event.env.set("level", object()),
        lambda event: event.env.set("", 1),
        lambda event: event.log(a="text"),
        lambda event: event.log({f"a{n}": 1.0 for n in range(300)}),
    ],
)
def test_an_action_that_cannot_be_carried_out_is_refused_where_it_is_asked_for(act: Any) -> None:
    with pytest.raises(UsageError):
        act(RoundEvent(number=1, **COUNTS))


# --- changes


def test_changes_hold_from_their_round_on_and_are_forgotten_once_replaced() -> None:
    changes = Changes()
    changes.add(3, "attribute", "level", 1)
    changes.add(5, "attribute", "level", 2)
    changes.add(5, "option", "length", 9)
    assert [changes.at(n).attributes for n in (2, 3, 5)] == [{}, {"level": 1}, {"level": 2}]
    changes.forget_before(4)
    assert len(changes.changes) == 3
    changes.forget_before(5)
    assert [list(one) for one in changes.changes] == [[5, "attribute", "level", 2], [5, "option", "length", 9]]


def test_an_option_that_has_its_value_again_before_it_holds_constructs_nothing() -> None:
    """Else a resumed run would construct environments for round 7, which the run itself has not done."""
    changes = Changes()
    for first, value in ((5, 1), (7, 9), (7, 1), (7, 1)):
        changes.add(first, "option", "length", value)
    assert changes.at(7) == changes.at(5)
    changes.add(7, "option", "length", 8)
    assert (changes.at(7).built, changes.at(7).options) == (7, {"length": 8})


def test_an_array_replaces_one_of_the_same_round() -> None:
    changes = Changes()
    for values in ([1, 2], [3, 4], [3, 4]):
        changes.add(5, "attribute", "levels", np.array(values))
    assert [one.tolist() for one in changes.at(5).attributes.values()] == [[3, 4]]


@pytest.mark.parametrize(
    ("interval", "lag", "warmup", "rounds", "first"),
    [(1, 0, 0, 1, 1), (1, 0, 0, 7, 7), (1, 2, 0, 7, 9), (4, 0, 0, 7, 8), (4, 1, 0, 8, 12), (1, 0, 5, 6, 6)],
)
def test_no_rollout_of_the_first_round_of_a_change_can_have_begun(
    interval: int, lag: int, warmup: int, rounds: int, first: int
) -> None:
    barriers = ResumeBarriers(0, per_round=4, per_turn=1, interval=interval, lag=lag, warmup=warmup)
    found = first_round(barriers, rounds)
    assert found == first
    published = barriers.version(rounds - 1)  # before the end of this round
    assert barriers.version(found) - lag > published
    assert barriers.version(found - 1) - lag <= published, "and no later than needed"


def test_without_order_a_change_holds_at_once() -> None:
    assert first_round(NoBarriers(0, 1, 1, 1, 4), 9) == 0


# --- rules


def evaluated(value: float, *, is_best: bool = False) -> tuple[EvaluationEvent, Actions]:
    event = EvaluationEvent(
        episodes=1, mean_return=value, deviation=0, min=0, max=0, mean_length=1, value=value, is_best=is_best, **COUNTS
    )
    return event, event._actions


def test_successive_evaluations_end_a_run() -> None:
    rule = StopAtEvaluation(10.0, 3, "mean return")
    stops = []
    for value in (10, 11, 9, 10, 12, 13):
        event, actions = evaluated(value)
        rule.on_evaluation(event)
        stops.append(actions.stop)
    assert stops[:5] == [None] * 5
    assert stops[5] == "evaluation: mean return 13.0 >= 10 in 3 successive evaluations"


def test_evaluations_that_are_no_better_end_a_run() -> None:
    rule = StopWhenNoBetter(2, "is_success")
    stops = []
    for is_best in (True, False, True, False, False):
        event, actions = evaluated(1.0, is_best=is_best)
        rule.on_evaluation(event)
        stops.append(actions.stop)
    assert stops == [None, None, None, None, "no better is_success in 2 successive evaluations"]


@dataclass
class Progress:
    env_steps: int
    episodes: int
    mean: float


def test_stages_of_a_curriculum_begin_by_steps_and_by_returns_of_the_stage_before() -> None:
    """Its options hold from the second round after it on, so 120 episodes of round 3 are of the stage before."""
    rule = Curriculum([{"steps": 100, "options": {"a": 1}}, {"return": 5, "options": {"b": 2}}], delay=1)
    found = []
    for number, (steps, episodes) in enumerate(((90, 500), (100, 550), (200, 670), (250, 769), (300, 770)), start=1):
        counts = {**COUNTS, "env_steps": steps, "number_of_episodes": episodes, "mean_return_100": 9.0}
        event = RoundEvent(number=number, **counts)
        rule.on_round(event)
        found.append([change[1:] for change in event._actions.changes])
    assert found == [[], [("a", 1)], [], [], [("b", 2)]]


def test_a_stage_that_cannot_be_built_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"stage 1 of env.curriculum: .* unexpected keyword argument 'lenght'"):
        trained(env={"curriculum": [{"steps": 32, "options": {"lenght": 8}}]})


def test_a_curriculum_makes_environments_with_its_options() -> None:
    stages = [{"steps": 2 * ROUND_STEPS, "options": {"length": 8}}]
    result = trained(env={"curriculum": stages}, steps=8 * ROUND_STEPS)
    assert metrics(result, "curriculum/stage")[-1] == 1
    assert result.episodes == 2 * (2 * 2 + 6), "2 environments: 2 rounds of 2 episodes, 6 rounds of one"
    assert [event["kind"] for event in read_jsonl(Path(result.directory) / "events.jsonl")].count("changed") == 1


@pytest.mark.parametrize(
    ("sets", "text"),
    [
        (["run.stop_at_evaluation=0"], "there are no evaluations"),
        (["run.stop_when_no_better=3"], "there are no evaluations"),
        (["run.stop_after_evaluations=3"], "run.stop_at_evaluation"),
        (['evaluation.best_by="info/success"'], "success"),
        (["env.curriculum=[{steps = 3}]"], "an array of"),
        (["env.curriculum=[{steps = 3, options = {a = 1}}, {steps = 2, options = {a = 1}}]"], "increasing steps"),
        (['run.callbacks=["no reference"]'], "an array of"),
    ],
)
def test_keys_that_do_not_fit_are_refused(sets: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        hive.load_config("x.toml", sets, text='[env]\nid = "CartPole-v1"\n')


# --- a run that is resumed with another config


def begun(result: hive.Result, *sets: str) -> CallbacksState:
    """The state with which a run continues."""
    folder = Path(result.directory)
    config = hive.load_config(folder / "resolved.toml", list(sets))
    return state_at_start(Blueprint(config, list_checkpoints(folder / "checkpoints")[-1]))


def held(state: CallbacksState) -> dict[str, Any]:
    """What callbacks have changed and holds in the end, by its name."""
    values = Changes(state.changes).at(10**9)
    return {**values.options, **values.keys}


def test_a_key_or_option_that_a_resume_changes_replaces_what_a_callback_has_set() -> None:
    result = trained("own_callbacks:Sets")
    assert begun(result).packed() == state_of(result).packed(), "an exact resume continues from the same"
    assert held(begun(result, "run.steps=1000")) == {"length": 8, "entropy_weight": 0.5}
    assert held(begun(result, "algorithm.entropy_weight=0.2")) == {"length": 8}
    assert held(begun(result, "env.options={length = 6}")) == {"entropy_weight": 0.5}


def test_what_hive_set_has_changed_before_a_callback_is_no_change_of_a_resume(tmp_path: Path) -> None:
    class Changed(LearnerActor):
        async def setup(self) -> None:
            await super().setup()
            await self.update_algorithm_parameter("algorithm.entropy_weight", 0.2)

    sets = {"run__callbacks": '["own_callbacks:Sets"]', "run__steps": 6 * ROUND_STEPS, "env__options": "{length = 4}"}
    config = config_of("own_callbacks:Leveled", **sets)
    directory = RunDirectory.create(tmp_path, "test")
    topology = build(config, directory.path)
    topology["learner"].cls = Changed
    run_inline(topology, seconds=LIMIT_S)
    checkpoint = list_checkpoints(directory.checkpoints)[-1]
    states = [
        state_at_start(
            Blueprint(config_of("own_callbacks:Leveled", **sets, algorithm__entropy_weight=weight), checkpoint)
        )
        for weight in (0.2, config.algorithm.entropy_weight)
    ]
    assert [held(state).get("entropy_weight") for state in states] == [0.5, None]


STAGES = (
    "{steps = 32, options = {length = 8}}",
    "{steps = 64, options = {length = 9}}",
    "{return = 99, options = {length = 5}}",
)


@pytest.mark.parametrize(
    ("sets", "stage", "length"),
    [
        (["run.steps=1000"], 2, 9),
        (["env.options={length = 6}"], 2, 9),
        ([f"env.curriculum=[{', '.join(STAGES)}]"], 2, 9),
        ([f"env.curriculum=[{STAGES[0]}, {STAGES[2]}]"], 1, 8),
        ([f"env.curriculum=[{STAGES[1]}]"], 0, None),
        (["env.curriculum=[]"], 0, None),
    ],
)
def test_a_resume_takes_back_the_stages_that_it_changes(sets: list[str], stage: int, length: int | None) -> None:
    result = trained(env={"curriculum": [{"steps": n, "options": {"length": m}} for n, m in ((32, 8), (64, 9))]})
    state = begun(result, *sets)
    assert held(state).get("length") == length
    rule = Curriculum([])
    restore(rule, state.states["env.curriculum"])
    assert (rule.stage, rule.begins) == (stage, 4 if stage == 2 else 0)
    rule.on_round(RoundEvent(number=7, **{**COUNTS, "number_of_episodes": 500}))
    assert (rule.episodes == 500) == (stage < 2), "only later episodes tell whether the next stage is due"


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("run.stop_after_evaluations=9", {"run.stop_at_evaluation", "run.stop_when_no_better", "best"}),
        ("run.stop_at_evaluation=1.0", {"run.stop_when_no_better", "best"}),
        ('evaluation.best_by="info/level"', set()),
        ("evaluation.max_steps=3", set()),
        ("evaluation.env={options = {length = 9}}", set()),
    ],
)
def test_evaluations_count_anew_after_another_goal_or_measure(change: str, kept: set[str]) -> None:
    rules = {"stop_at_evaluation": 0.0, "stop_after_evaluations": 5, "stop_when_no_better": 5}
    state = begun(trained(run=rules), change)
    assert {*state.states, *(["best"] if state.best is not None else [])} == kept


# --- Optuna


class Trial:
    """Prunes at the second report."""

    def __init__(self) -> None:
        self.reports: list[tuple[float, int]] = []

    def report(self, value: float, step: int) -> None:
        self.reports.append((value, step))

    def should_prune(self) -> bool:
        return len(self.reports) == 2


def test_pruning_reports_evaluations_and_ends_the_run() -> None:
    pruning = Pruning(Trial())
    events = [EvaluationEvent(**{**evaluated(2.0)[0].__dict__, "env_steps": steps}) for steps in (10, 20)]
    for event in events:
        pruning.on_evaluation(event)
    assert handlers_of(pruning) == ("on_evaluation",)
    assert pruning.trial.reports == [(2.0, 10), (2.0, 20)]
    assert events[1]._actions.stop == "pruned by Optuna at 20 steps"


def test_a_run_that_was_stopped_is_no_trial_that_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    class TrialPruned(Exception):
        pass

    monkeypatch.setitem(sys.modules, "optuna", types.SimpleNamespace(TrialPruned=TrialPruned))
    pruning = Pruning(Trial())
    pruning.on_result(types.SimpleNamespace(state="finished", stop_reason="100 steps"))
    with pytest.raises(TrialPruned, match="hive down"):
        pruning.on_result(types.SimpleNamespace(state="stopped", stop_reason="hive down"))


def test_pruning_by_returns_reports_now_and_then() -> None:
    pruning = Pruning(Trial(), metric="return", every=100)
    for steps in (50, 120, 180):
        pruning.on_round(RoundEvent(number=1, **{**COUNTS, "env_steps": steps, "mean_return_100": 3.0}))
    assert handlers_of(pruning) == ("on_round",)
    assert pruning.trial.reports == [(3.0, 120)]
    with pytest.raises(UsageError, match="unknown metric `loss`"):
        Pruning(Trial(), metric="loss")


# --- when


@pytest.mark.parametrize(("steps", "turns"), [(100, [4, 8, 10]), (50, [2, 4, 6, 8, 10]), (30, [2, 4, 6, 8, 10])])
def test_evaluations_by_steps_are_at_ends_of_rounds(steps: int, turns: list[int]) -> None:
    """Rounds of 60 steps and two turns: 100 steps are reached at 120, 200 at 240, 300 at 300."""
    barriers = ResumeBarriers(0, per_round=2, per_turn=1, interval=1, lag=0)
    schedule = EvaluationSchedule(barriers, steps=steps, round_steps=60)
    assert [turn for turn in range(11) if schedule.is_due(turn)] == turns
    assert f"every {steps} steps, and made at the end of that round of 60 steps" in schedule.rounding
    for turn in range(10):
        assert turn + schedule.until_next(turn) == next(due for due in [*turns, 99] if due > turn)
