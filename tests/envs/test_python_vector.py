"""Single environments in a loop: the rows, the resets, and the environment that an error names."""

from __future__ import annotations

import asyncio
import math
import re
import signal
from typing import Any

import numpy as np
import pytest
from fake_environments import Boxed, Cells, Counting, Images, Reuses, Scripted, Walk, fakes
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from hive.envs.make import make_environment
from hive.envs.recipe import Recipe
from hive.envs.spaces.masked_space import MaskedSpace
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.python_vector import PythonVector
from hive.envs.vectors.resetting import report_resets
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.envs.wrappers import step_limit_of
from hive.errors import EnvironmentFailed


def started(environments: Any, room: int = 50) -> tuple[PythonVector, StepRow]:
    """A vector after its reset, and a row of it with `room` for finals."""
    vector = PythonVector("Fake-v0", environments)
    spec = observation_spec("Fake-v0", environments[0].observation_space)
    row = StepRow.allocate(spec, vector.count)
    vector.reset(range(vector.count), row.observations)
    finals = FinalObservations(np.zeros((room, *spec.shape), spec.dtype))
    fields = {name: getattr(row, name) for name in StepRow.__slots__ if name != "finals"}
    return vector, StepRow(**fields, finals=finals)


def stepped(vector: PythonVector, row: StepRow, steps: int) -> dict[str, np.ndarray]:
    """The rows of `steps` steps as arrays [T, B, ...]."""
    actions = np.zeros(vector.count, np.int64)
    rows: dict[str, list[Any]] = {name: [] for name in StepRow.__slots__ if name != "finals"}
    for _ in range(steps):
        vector.step(actions, row)
        for name, values in rows.items():
            values.append(getattr(row, name).copy())
    return {name: np.array(values) for name, values in rows.items()}


def test_reset_writes_the_first_observations() -> None:
    _, row = started(fakes(Counting, 3))
    assert row.observations.tolist() == [[0.0, 0.0]] * 3


def test_steps_without_an_end() -> None:
    rows = stepped(*started(fakes(Counting, 2)), steps=3)
    assert rows["observations"].tolist() == [[[0.0, t]] * 2 for t in (1, 2, 3)]
    assert rows["rewards"].tolist() == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert (rows["valid"] == 1).all()
    assert (rows["final_index"] == -1).all()
    for name in ("terminated", "truncated", "episode_returns", "episode_lengths"):
        assert not rows[name].any(), name


def test_terminated_resets_in_the_same_step_and_needs_no_final() -> None:
    vector, row = started(fakes(Counting, 1, terminates=3))
    rows = stepped(vector, row, 7)
    assert rows["terminated"][:, 0].tolist() == [0, 0, 1, 0, 0, 1, 0]
    assert not rows["truncated"].any()
    assert rows["observations"][:, 0].tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1]]
    assert rows["episode_returns"][:, 0].tolist() == [0, 0, 6, 0, 0, 6, 0]
    assert rows["episode_lengths"][:, 0].tolist() == [0, 0, 3, 0, 0, 3, 0]
    assert row.finals.count == 0
    assert (rows["valid"] == 1).all()


def test_truncated_keeps_the_true_last_observations() -> None:
    vector, row = started([Counting(truncates=2), Counting(truncates=3), Counting()])
    rows = stepped(vector, row, 6)
    assert rows["truncated"].T.tolist() == [[0, 1, 0, 1, 0, 1], [0, 0, 1, 0, 0, 1], [0] * 6]
    assert not rows["terminated"].any()
    assert row.finals.observations[: row.finals.count].tolist() == [[0, 2], [0, 3], [1, 2], [2, 2], [1, 3]]
    assert rows["final_index"].T.tolist() == [[-1, 0, -1, 2, -1, 3], [-1, -1, 1, -1, -1, 4], [-1] * 6]
    assert rows["observations"][1, 0].tolist() == [1, 0]
    assert rows["episode_returns"].T.tolist() == [[0, 3, 0, 3, 0, 3], [0, 0, 6, 0, 0, 6], [0] * 6]


def test_both_at_once_is_terminated() -> None:
    vector, row = started(fakes(Counting, 1, terminates=2, truncates=2))
    rows = stepped(vector, row, 2)
    assert rows["terminated"][:, 0].tolist() == [0, 1]
    assert not rows["truncated"].any()
    assert row.finals.count == 0


def test_episodes_of_one_step() -> None:
    vector, row = started(fakes(Counting, 2, truncates=1))
    rows = stepped(vector, row, 3)
    assert (rows["truncated"] == 1).all()
    assert (rows["episode_lengths"] == 1).all()
    assert rows["observations"][:, 0].tolist() == [[1, 0], [2, 0], [3, 0]]
    assert row.finals.observations[:6, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_finals_without_room_are_refused() -> None:
    vector, row = started(fakes(Counting, 2, truncates=1), room=1)
    with pytest.raises(IndexError):
        stepped(vector, row, 1)


def test_an_environment_that_writes_over_its_observation() -> None:
    vector, row = started([Reuses(truncates=2), Reuses(truncates=2)])
    rows = stepped(vector, row, 3)
    assert rows["observations"][:, 1].tolist() == [[0, 1], [1, 0], [1, 1]]
    assert row.finals.observations[:2].tolist() == [[0, 2], [0, 2]]


def test_returns_are_the_sums_of_rewards_for_random_ends() -> None:
    vector, row = started([Walk(truncates=4) for _ in range(5)])
    rows = stepped(vector, row, 60)
    ended = (rows["terminated"] | rows["truncated"]).astype(bool)
    assert rows["terminated"].sum() > 10
    assert rows["truncated"].sum() > 10
    for b in range(5):
        total, length = 0.0, 0
        for t in range(60):
            total, length = total + float(rows["rewards"][t, b]), length + 1
            assert rows["episode_lengths"][t, b] == (length if ended[t, b] else 0)
            assert rows["episode_returns"][t, b] == np.float32(total if ended[t, b] else 0.0)
            if ended[t, b]:
                total, length = 0.0, 0
    assert row.finals.count == rows["truncated"].sum() == (rows["final_index"] >= 0).sum()


def test_float16_rewards_are_summed_exactly() -> None:
    environment = Scripted(when=2, reward=np.float16(2048.0))
    environment.ends = (3, 0)
    rows = stepped(*started([environment]), 3)
    assert rows["episode_returns"][2].tolist() == [1 + 2048 + 3]


def test_the_same_seeds_give_the_same_trajectories() -> None:
    vector, row = started([Walk(truncates=6) for _ in range(3)])
    vector.reset([5, 6, 5], row.observations)
    first, one = row.observations.copy(), stepped(vector, row, 30)
    vector.reset([5, 6, 5], row.observations)
    assert row.observations.tolist() == first.tolist()
    two = stepped(vector, row, 30)
    for name in ("observations", "rewards", "terminated", "truncated", "episode_returns", "episode_lengths"):
        assert one[name].tolist() == two[name].tolist(), name
    assert one["observations"][:, 0].tolist() == one["observations"][:, 2].tolist()
    assert one["observations"][:, 0].tolist() != one["observations"][:, 1].tolist()


def test_a_reset_drops_open_episodes() -> None:
    vector, row = started(fakes(Counting, 1, truncates=3))
    stepped(vector, row, 2)
    vector.reset([0], row.observations)
    rows = stepped(vector, row, 3)
    assert rows["episode_returns"][:, 0].tolist() == [0, 0, 6]
    assert rows["episode_lengths"][:, 0].tolist() == [0, 0, 3]


def test_discrete_actions_arrive_as_the_space_samples_them() -> None:
    environments = fakes(Cells, 2)
    vector, row = started(environments)
    assert row.observations.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 2
    vector.step(np.array([0, 2], np.int64), row)
    assert [environment.actions for environment in environments] == [[-1], [1]]
    assert type(environments[0].actions[0]) is type(environments[0].action_space.sample()) is np.int64
    assert row.observations.tolist() == [[0.0, 1.0, 0.0, 0.0]] * 2


def test_multi_discrete_actions_and_images() -> None:
    environments = fakes(Images, 2, truncates=2)
    vector, row = started(environments)
    actions = np.array([[0, 3], [2, 1]], np.int64)
    vector.step(actions, row)
    assert environments[0].actions[0].tolist() == [1, 5]
    assert all(environment.action_space.contains(environment.actions[0]) for environment in environments)
    assert row.observations.dtype == np.uint8
    assert (row.observations == 1).all()
    vector.step(actions, row)
    assert (row.observations == 0).all()
    assert (row.finals.observations[:2] == 2).all()


def test_box_actions_are_clipped_copies() -> None:
    environments = fakes(Boxed, 2)
    vector, row = started(environments)
    actions = np.array([[-0.1, -50.0], [0.05, 50.0]], np.float32)
    vector.step(actions, row)
    given = [environment.actions[0] for environment in environments]
    assert given[0].tolist() == [-0.1, -50.0]
    assert given[1].tolist() == [float(np.float32(0.05)), 2.0]
    assert all(environment.action_space.contains(environment.actions[0]) for environment in environments)
    given[0][:] = 7.0
    assert actions[0].tolist() == [np.float32(-0.1), -50.0]


def test_cartpole_keeps_its_time_limit_apart_from_its_falls() -> None:
    environments = [make_environment(Recipe("CartPole-v1", {"max_episode_steps": 12})) for _ in range(8)]
    vector, row = started(environments, room=200)
    rows = stepped(vector, row, 100)  # Pushed left all the time, a pole falls after 8 to 11 steps.
    lengths = rows["episode_lengths"][rows["terminated"] == 1]
    assert len(lengths) > 50
    assert lengths.max() < 12
    alternating = np.arange(8) % 2
    vector.reset(range(8), row.observations)
    seen = []
    for t in range(24):
        vector.step((alternating + t) % 2, row)
        seen.append((row.truncated.sum(), row.terminated.sum()))
    assert seen[11] == seen[23] == (8, 0)
    last = row.finals.observations[row.final_index]
    assert last.shape == (8, 4)
    assert (np.abs(last[:, 2]) < 0.21).all()
    assert (np.abs(row.observations) <= 0.05).all(), "the row holds the next episode's first observation"


class Silent(TimeLimit):
    """Not Gymnasium's own: whatever it does must be done."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 0.0, terminated, truncated, info


def limited(wrapper: type[TimeLimit], *limits: int, **options: int) -> list[Any]:
    """Counting environments, each with its limit; they have a spec, as those from a registry do."""
    environments = fakes(Counting, len(limits), **options)
    for environment in environments:
        environment.spec = EnvSpec("Fake-v0")
    return [wrapper(environment, limit) for environment, limit in zip(environments, limits, strict=True)]


def test_gymnasiums_time_limit_is_counted_here() -> None:
    environments = limited(TimeLimit, 3, 3, terminates=3)
    environments[1].unwrapped.ends = (0, 2)
    vector, row = started(environments)
    stepped(vector, row, 2)
    vector.reset([0, 0], row.observations)
    row.finals.count = 0
    rows = stepped(vector, row, 6)
    assert rows["terminated"].T.tolist() == [[0, 0, 1, 0, 0, 1], [0] * 6]
    assert rows["truncated"].T.tolist() == [[0] * 6, [0, 1, 0, 1, 0, 1]]
    environments = limited(TimeLimit, 3, 3)
    rows = stepped(*started(environments), 7)
    assert rows["truncated"].T.tolist() == [[0, 0, 1, 0, 0, 1, 0]] * 2
    assert rows["episode_returns"][2].tolist() == [6, 6]
    assert len(environments[0].unwrapped.actions) == 7
    assert environments[0]._elapsed_steps == 0, "it is reset, but not stepped"


def test_other_time_limits_count_themselves() -> None:
    rows = stepped(*started(limited(TimeLimit, 2, 3)), 4)
    assert rows["truncated"].T.tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]
    rows = stepped(*started(limited(Silent, 2, 2)), 4)
    assert rows["truncated"].T.tolist() == [[0, 1, 0, 1]] * 2
    assert not rows["rewards"].any()
    specless = [TimeLimit(Counting(), 2) for _ in range(2)]
    assert stepped(*started(specless), 4)["truncated"].T.tolist() == [[0, 1, 0, 1]] * 2


@pytest.mark.parametrize("limits", [(2, 2), (2, 3), (math.inf, math.inf)])
def test_a_limit_may_be_changed_after_its_spec_was_read(limits: tuple[Any, Any]) -> None:
    environments = limited(TimeLimit, 7, 7)
    for environment, limit in zip(environments, limits, strict=True):
        assert environment.spec.max_episode_steps == 7
        environment._max_episode_steps = limit
        assert step_limit_of(environment) == (None if limit == math.inf else limit)
    rows = stepped(*started(environments), 6)
    assert rows["truncated"].sum(0).tolist() == [6 // limit for limit in limits]


@pytest.mark.parametrize("form", [list, iter])
def test_results_of_five_in_another_form(form: Any) -> None:
    result = (np.array([5.0, 6.0]), 2.0, False, True, {})
    environment = Scripted(when=1, result=form(result))
    rows = stepped(*started([Counting(), environment]), 1)
    assert rows["rewards"].tolist() == [[1.0, 2.0]]
    assert rows["truncated"].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("options", "when", "text"),
    [
        ({"observation": np.zeros(5)}, 0, "returned an observation of shape (5,), expected (2,)"),
        ({"observation": np.array([0.0, np.nan])}, 2, "returned an observation with nan in it"),
        ({"observation": np.zeros((2, 1))}, 2, "returned an observation of shape (2, 1), expected (2,)"),
        ({"reward": float("nan")}, 2, "returned the reward nan, expected a finite number"),
        ({"reward": None}, 2, "returned the reward None, expected a finite number"),
        (
            {"result": np.zeros(2)},
            0,
            "returned an object of type ndarray from reset, expected (observation, info)",
        ),
        (
            {"result": (np.zeros(2), 1.0, False, {})},
            2,
            "returned 4 values from step, expected (observation, reward, terminated, truncated, info)",
        ),
        (
            {"result": 7},
            2,
            "returned an object of type int from step, expected (observation, reward, terminated, truncated, info)",
        ),
    ],
)
def test_what_breaks_the_contract_is_named_and_permanent(options: dict[str, Any], when: int, text: str) -> None:
    environments = [Counting(), Counting(), Scripted(when, **options)]
    with pytest.raises(EnvironmentFailed) as caught:
        stepped(*started(environments), 2)
    assert str(caught.value) == f"Fake-v0 {text} (env 2, step {when} of this collector)"
    assert caught.value.permanent


@pytest.mark.parametrize(("when", "method"), [(0, "reset"), (2, "step")])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_exceptions_that_end_programs_become_errors(when: int, method: str, error: BaseException, text: str) -> None:
    """Each would end the process or the actor's task without an explanation."""
    with pytest.raises(
        EnvironmentFailed, match=rf"raised {text} \(.*\.py:\d+\) in {method} \(env 0, step {when} "
    ) as caught:
        stepped(*started([Scripted(when, result=error)]), 3)
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(("when", "method"), [(0, "reset"), (2, "step")])
def test_keyboard_interrupt_is_an_error_where_ctrl_c_does_not_raise_it(
    when: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector = [Scripted(when, result=KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):  # in a script it may be Ctrl-C
        stepped(*started(vector), 3)
    monkeypatch.setattr("signal.getsignal", lambda number: signal.SIG_IGN)  # as in the processes of a run
    with pytest.raises(EnvironmentFailed, match=rf"raised KeyboardInterrupt \(.*\) in {method} \(env 0, step {when} "):
        stepped(*started([Scripted(when, result=KeyboardInterrupt())]), 3)


@pytest.mark.parametrize(("when", "method"), [(0, "reset"), (1, "step"), (3, "step")])
def test_what_raises_is_named_and_not_permanent(when: int, method: str) -> None:
    error = ValueError("no fuel")
    environments = [Counting(), Scripted(when, result=error), Counting()]
    with pytest.raises(EnvironmentFailed) as caught:
        stepped(*started(environments), 3)
    place = rf"\(env 1, step {when} of this collector\)"
    assert re.fullmatch(rf"Fake-v0 raised ValueError: no fuel \(.*\.py:\d+\) in {method} {place}", str(caught.value))
    assert caught.value.__cause__ is error
    assert not caught.value.permanent


def test_a_reset_that_raises_in_the_middle_of_a_run() -> None:
    environment = Scripted(when=-1, result=OSError("lost"))
    environment.ends = (1, 0)
    vector, row = started([Counting(), environment])
    stepped(vector, row, 4)
    environment.when = 0
    with pytest.raises(EnvironmentFailed, match=r"raised OSError: lost \(.*\) in reset \(env 1, step 5 of this"):
        stepped(vector, row, 1)


def test_a_last_observation_with_nan_is_named_too() -> None:
    environment = Scripted(when=2, observation=np.array([np.nan, 0.0]))
    environment.ends = (0, 2)
    with pytest.raises(EnvironmentFailed, match=r"an observation with nan in it \(env 0, step 2 "):
        stepped(*started([environment, Counting()]), 2)


class Closing(Counting):
    """Two doors and a number, the last of which is `last` in each episode."""

    observation_space = MaskedSpace(
        {"seen": spaces.Box(-9, 9, (1,), np.float64), "doors": spaces.MultiBinary(2)}, ("doors",), (2,)
    )

    def __init__(self, last: Any, **ends: int) -> None:
        super().__init__(**ends)
        self.last = last

    def observation(self) -> Any:
        return self.last if self.at in self.ends and self.at else {"seen": [self.at], "doors": [1, 0]}


@pytest.mark.parametrize("episodes", [1, 2])
@pytest.mark.parametrize("last", [{"seen": [3.0], "doors": [0, 0]}, {"seen": [np.nan], "doors": [1, 0]}, None])
def test_a_last_observation_that_no_action_follows_may_be_anything(last: Any, episodes: int) -> None:
    """An environment that has played its episodes rests on it, while others go on."""
    vector, row = started([Closing(last, terminates=3), Closing(last, terminates=5)])
    vector.play(np.full(2, episodes))
    rows = stepped(vector, row, 5 * episodes)
    assert rows["valid"].sum(0).tolist() == [3 * episodes, 5 * episodes]
    assert rows["episode_lengths"].sum(0).tolist() == [3 * episodes, 5 * episodes]
    assert vector.observation.mask is not None
    assert vector.observation.mask.view(rows["observations"]).any(-1).all()


def test_closing_closes_each() -> None:
    environments = fakes(Counting, 3)
    started(environments)[0].close()
    assert all(environment.closed for environment in environments)


SCREEN, LIST = np.zeros(2), [0.0, 0.0]


class Screen(Counting):
    """Returns one array or list of its module from every call of every environment, in the form `form`."""

    forms: Any = (lambda seen: seen, lambda seen: seen[::1], lambda seen: (seen, {"eye": seen}), lambda seen: seen)

    def __init__(self, form: int, late: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.form, self.late = self.forms[form], late
        self.screen = LIST if form == 3 else SCREEN
        if form == 2:
            box = self.observation_space
            self.observation_space = spaces.Tuple((box, spaces.Dict(eye=box)))

    def observation(self) -> Any:
        if self.late and self.at == 0:  # only what `step` returns is shared
            return self.form(np.array([self.episode, 0.0]))
        self.screen[:] = self.episode, self.at
        return self.form(self.screen)


class Own(Screen):
    """The same with arrays of its own."""

    def observation(self) -> Any:
        return self.form(np.array([self.episode, self.at], np.float64))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("form", range(4))
def test_observations_in_one_buffer_are_copied_before_the_next_environment_writes(form: int, late: bool) -> None:
    def played(kind: Any) -> dict[str, np.ndarray]:
        environments = [kind(form, late, truncates=2), kind(form, late, terminates=3), kind(form, late, truncates=5)]
        vector, row = started(environments)
        first = row.observations.copy()
        rows = stepped(vector, row, steps=40)  # longer than it is watched
        return {**rows, "first": first, "finals": row.finals.observations.copy()}

    expected = played(Own)
    for name, values in played(Screen).items():
        assert np.array_equal(values, expected[name]), name


def test_observations_are_copied_for_the_first_steps_only_where_no_memory_is_shared() -> None:
    views = np.zeros((2, 2))

    class Row(Counting):
        """Returns its own row of a common array."""

        index = -1

        def observation(self) -> Any:
            views[self.index] = self.episode, self.at
            return views[self.index]

    environments = [Row(), Row()]
    for index, environment in enumerate(environments):
        environment.index = index
    vector, row = started(environments)
    copies = []
    for _ in range(70):
        copies.append(vector._buffers.copies)
        stepped(vector, row, steps=1)
    assert [step for step, copied in enumerate(copies) if copied] == [*range(17), 32, 64]
    vector.reset([0, 1], row.observations)
    assert vector._buffers.copies


def test_memory_that_is_shared_from_a_later_step_on_is_found() -> None:
    class Later(Counting):
        """Draws on one screen when it is opened."""

        def observation(self) -> Any:
            if self.at < 20:
                return super().observation()
            SCREEN[:] = self.number, self.at
            return SCREEN

    environments = fakes(Later)
    for number, environment in enumerate(environments):
        environment.number = number
    rows = stepped(*started(environments), steps=40)
    assert rows["observations"][33:, :, 0].tolist() == [[0.0, 1.0]] * 7


def test_every_reset_is_reported() -> None:
    """So each has the limit of a phase for itself, also where many episodes end in the same step."""
    beats: list[int] = []
    report_resets(lambda: beats.append(1))
    try:
        vector = PythonVector("Counting", [Counting(terminates=1) for _ in range(3)])
        row = StepRow.allocate(vector.observation, 3)
        vector.reset([0, 1, 2], row.observations)
        vector.step(np.zeros(3, np.int64), row)
    finally:
        report_resets(lambda: None)
    assert len(beats) == 6
