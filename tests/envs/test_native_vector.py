"""Gymnasium's vectorized classes, in both reset modes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_environments import Boxed, Cells, Counting, Images, Walk
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from hive.envs.make import make_native
from hive.envs.recipe import Recipe
from hive.envs.spaces.observation import observation_spec
from hive.envs.vectors.native_vector import NativeVector
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.errors import ConfigError, EnvironmentFailed

NEXT, SAME = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP


class Answers(VectorEnv[Any, Any, Any]):
    """Two environments that return given values and store their seed."""

    single_observation_space = Counting.observation_space
    single_action_space = Counting.action_space
    num_envs = 2

    def __init__(self, mode: Any = NEXT, reset: Any = None, step: Any = None) -> None:
        self.metadata = {"autoreset_mode": mode} if mode else {}
        flags = np.zeros(2, np.bool_)
        self.answers = {
            "reset": (np.zeros((2, 2)), {}) if reset is None else reset,
            "step": (np.zeros((2, 2)), np.ones(2), flags, flags, {}) if step is None else step,
        }
        self.seeds: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        return self.answer("reset")

    def step(self, actions: Any) -> Any:
        return self.answer("step")

    def answer(self, method: str) -> Any:
        if isinstance(self.answers[method], BaseException):
            raise self.answers[method]
        return self.answers[method]


class Succeeds(Counting):
    """`info` of the last step: the number of the episode; of an episode with an even number, also `even`."""

    def step(self, action: Any) -> Any:
        *result, _ = super().step(action)
        if not any(result[2:]):
            return *result, {"number": 9, "even": 9}
        return *result, {"number": self.episode} | ({} if self.episode % 2 else {"even": True})


def synchronous(mode: AutoresetMode, *build: Callable[[], gymnasium.Env[Any, Any]]) -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv(list(build), autoreset_mode=mode)


def started(vector: VectorEnv[Any, Any, Any], room: int = 99) -> tuple[NativeVector, StepRow]:
    """A vector after its reset, and a row of it with `room` for finals."""
    native = NativeVector("Fake-v0", vector)
    spec = observation_spec("Fake-v0", vector.single_observation_space)
    row = StepRow.allocate(spec, native.count)
    native.reset(range(1, native.count + 1), row.observations)
    finals = FinalObservations(np.zeros((room, *spec.shape), spec.dtype))
    fields = {name: getattr(row, name) for name in StepRow.__slots__ if name != "finals"}
    return native, StepRow(**fields, finals=finals)


def stepped(vector: NativeVector, row: StepRow, steps: int) -> dict[str, np.ndarray]:
    """The rows of `steps` steps as arrays [T, B, ...]; the actions alternate."""
    rows: dict[str, list[Any]] = {name: [] for name in StepRow.__slots__ if name != "finals"}
    for t in range(steps):
        vector.step(np.full(vector.count, t % 2, np.int64), row)
        for name, values in rows.items():
            values.append(getattr(row, name).copy())
    return {name: np.array(values) for name, values in rows.items()}


def test_next_step_by_hand() -> None:
    vector, row = started(synchronous(NEXT, lambda: Counting(truncates=2), lambda: Counting(terminates=3)))
    assert row.observations.tolist() == [[0, 0], [0, 0]]
    rows = stepped(vector, row, 6)
    assert rows["valid"].T.tolist() == [[1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 1, 1]]
    assert rows["truncated"].T.tolist() == [[0, 1, 0, 0, 1, 0], [0] * 6]
    assert rows["terminated"].T.tolist() == [[0] * 6, [0, 0, 1, 0, 0, 0]]
    assert rows["observations"][:, 0].tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0]]
    assert rows["rewards"].T.tolist() == [[1, 2, 0, 1, 2, 0], [1, 2, 3, 0, 1, 2]]
    assert rows["episode_returns"].T.tolist() == [[0, 3, 0, 0, 3, 0], [0, 0, 6, 0, 0, 0]]
    assert rows["episode_lengths"].T.tolist() == [[0, 2, 0, 0, 2, 0], [0, 0, 3, 0, 0, 0]]
    assert rows["final_index"].T.tolist() == [[-1, 0, -1, -1, 1, -1], [-1] * 6]
    assert row.finals.observations[: row.finals.count].tolist() == [[0, 2], [1, 2]]


def test_same_step_by_hand() -> None:
    vector, row = started(synchronous(SAME, lambda: Counting(truncates=2), lambda: Counting(terminates=3)))
    rows = stepped(vector, row, 6)
    assert (rows["valid"] == 1).all()
    assert rows["truncated"].T.tolist() == [[0, 1, 0, 1, 0, 1], [0] * 6]
    assert rows["terminated"].T.tolist() == [[0] * 6, [0, 0, 1, 0, 0, 1]]
    assert rows["observations"][:, 0].tolist() == [[0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0]]
    assert rows["episode_returns"].T.tolist() == [[0, 3, 0, 3, 0, 3], [0, 0, 6, 0, 0, 6]]
    assert rows["episode_lengths"].T.tolist() == [[0, 2, 0, 2, 0, 2], [0, 0, 3, 0, 0, 3]]
    assert rows["final_index"].T.tolist() == [[-1, 0, -1, 1, -1, 2], [-1] * 6]
    assert row.finals.observations[: row.finals.count].tolist() == [[0, 2], [1, 2], [2, 2]]


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_both_at_once_is_terminated(mode: AutoresetMode) -> None:
    vector, row = started(synchronous(mode, lambda: Counting(terminates=2, truncates=2)))
    rows = stepped(vector, row, 2)
    assert rows["terminated"][:, 0].tolist() == [0, 1]
    assert not rows["truncated"].any()
    assert row.finals.count == 0


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_episodes_of_one_step(mode: AutoresetMode) -> None:
    vector, row = started(synchronous(mode, lambda: Counting(terminates=1)))
    rows = stepped(vector, row, 4)
    assert rows["valid"][:, 0].tolist() == ([1, 0, 1, 0] if mode is NEXT else [1] * 4)
    assert (rows["terminated"] == rows["valid"]).all()
    assert (rows["episode_lengths"] == rows["valid"]).all()


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_returns_are_the_sums_of_valid_rewards_for_random_ends(mode: AutoresetMode) -> None:
    vector, row = started(synchronous(mode, *[lambda: Walk(truncates=4)] * 4))
    rows = stepped(vector, row, 60)
    assert rows["terminated"].sum() > 8
    assert row.finals.count == rows["truncated"].sum() > 8
    for b in range(4):
        total, length = 0.0, 0
        for t in range(60):
            total += float(rows["rewards"][t, b])
            length += int(rows["valid"][t, b])
            ended = rows["terminated"][t, b] or rows["truncated"][t, b]
            assert rows["episode_returns"][t, b] == np.float32(total if ended else 0.0)
            assert rows["episode_lengths"][t, b] == (length if ended else 0)
            if ended:
                total, length = 0.0, 0


def test_cartpole_marks_exactly_the_steps_after_an_end() -> None:
    vector, row = started(make_native(Recipe("CartPole-v1", {"max_episode_steps": 25}), 6), room=200)
    rows = stepped(vector, row, 200)
    ended = rows["terminated"] | rows["truncated"]
    assert rows["terminated"].any()
    assert rows["truncated"].any()
    assert (rows["valid"][0] == 1).all()
    assert (rows["valid"][1:] == 1 - ended[:-1]).all()
    assert not rows["rewards"][rows["valid"] == 0].any()
    assert not (rows["terminated"] & rows["truncated"]).any()
    for b in range(6):
        last = int(np.flatnonzero(ended[:, b])[-1])
        rewards = rows["rewards"][: last + 1, b][rows["valid"][: last + 1, b] == 1]
        assert rewards.sum() == rows["episode_returns"][:, b].sum() == rows["episode_lengths"][:, b].sum()
    truncated = rows["truncated"] == 1
    finals = row.finals.observations[rows["final_index"][truncated]]
    assert finals.tolist() == rows["observations"][truncated].tolist()
    assert (rows["final_index"][~truncated] == -1).all()
    assert (rows["episode_lengths"][truncated] == 25).all()


def test_the_same_seeds_give_the_same_trajectories() -> None:
    vector, row = started(make_native(Recipe("CartPole-v1"), 4))
    runs = []
    for seeds in ([7, 8, 9, 10], [7, 8, 9, 10], [8, 8, 9, 10]):
        vector.reset(seeds, row.observations)
        runs.append((row.observations.tolist(), stepped(vector, row, 60)["observations"].tolist()))
    assert runs[0] == runs[1] != runs[2]


def test_a_reset_drops_open_episodes_and_pending_resets() -> None:
    vector, row = started(synchronous(NEXT, lambda: Counting(truncates=2), lambda: Counting(truncates=4)))
    stepped(vector, row, 2)
    vector.reset([1, 2], row.observations)
    rows = stepped(vector, row, 2)
    assert (rows["valid"] == 1).all()
    assert rows["episode_returns"].T.tolist() == [[0, 3], [0, 0]]


def test_seeds_of_64_bits_are_cut() -> None:
    answers = Answers()
    vector = NativeVector("Fake-v0", answers)
    vector.reset([2**63 + 5, 1], np.zeros((2, 2), np.float32))
    assert answers.seeds == [5]
    assert type(answers.seeds[0]) is int


def test_images_cells_and_boxes() -> None:
    vector, row = started(synchronous(NEXT, lambda: Images(truncates=1)))
    vector.step(np.array([[2, 3]], np.int64), row)
    assert (row.observations == 1).all()
    assert (row.finals.observations[0] == 1).all()
    assert row.finals.observations.dtype == np.uint8
    cells = synchronous(SAME, lambda: Cells(truncates=2))
    rows = stepped(*started(cells), 2)
    assert rows["observations"][:, 0].tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert [int(action) for action in cells.envs[0].actions] == [-1, 0]  # type: ignore[attr-defined]
    boxed = synchronous(SAME, Boxed)
    vector, row = started(boxed)
    vector.step(np.array([[-0.1, 5.0]], np.float32), row)
    assert boxed.envs[0].actions[0].tolist() == [-0.1, 2.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [None, NEXT, "NextStep", SAME, "SameStep"])
def test_modes_that_reset(mode: Any) -> None:
    flags = np.array([True, False])
    answer = (np.zeros((2, 2)), np.ones(2), flags, ~flags & False, {})
    rows = stepped(*started(Answers(mode, step=answer)), 2)
    assert rows["valid"].tolist() == [[1, 1], [1 if mode in (SAME, "SameStep") else 0, 1]]


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, "Disabled"])
def test_a_class_that_does_not_reset_is_refused(mode: Any) -> None:
    with pytest.raises(ConfigError, match="the vectorized class of `Fake-v0` does not reset itself") as caught:
        NativeVector("Fake-v0", Answers(mode))
    assert caught.value.hint == 'set env.vector = "python"'


YES, NO = np.ones(2, np.bool_), np.zeros(2, np.bool_)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ((np.zeros((2, 5)), np.ones(2), NO, NO, {}), "an observation of shape (5,), expected (2,) (env 0,"),
        ((np.zeros((3, 2)), np.ones(2), NO, NO, {}), "3 observations, expected 2 ("),
        ((np.float32(1), np.ones(2), NO, NO, {}), "an observation of shape (), expected (2,) (env 0,"),
        ((np.array([[0, 0], [0, np.nan]]), np.ones(2), NO, NO, {}), "an observation with nan in it (env 1,"),
        (
            (np.zeros((2, 2)), np.array([0, np.inf]), NO, NO, {}),
            "the reward np.float64(inf), expected a finite",
        ),
        ((np.zeros((2, 2)), 1.0, NO, NO, {}), "1 rewards, expected 2 ("),
        ((np.zeros((2, 2)), np.ones(2), NO[:1], NO, {}), "`terminated` of bool(1,), expected bool(2,) ("),
        (
            (np.zeros((2, 2)), np.ones(2), NO, np.ones(2), {}),
            "`truncated` of float64(2,), expected bool(2,) (",
        ),
        ((np.zeros((2, 2)), np.ones(2), (1, 0), NO, {}), "`terminated` of int64(2,), expected bool(2,) ("),
        ((np.zeros((2, 2)), np.ones(2), True, NO, {}), "`terminated` of bool(), expected bool(2,) ("),
        ((np.zeros((2, 2)), np.ones(2), NO, {}), "4 values from step, expected (observation, reward, "),
        ((np.zeros((2, 2)), np.ones(2), NO, YES, {}), "no `final_obs` in the info of a truncated episode ("),
    ],
)
def test_what_breaks_the_contract_is_named_and_permanent(step: Any, text: str) -> None:
    vector, row = started(Answers(SAME, step=step))
    with pytest.raises(EnvironmentFailed) as caught:
        stepped(vector, row, 1)
    assert str(caught.value).startswith(f"Fake-v0 returned {text}")
    assert str(caught.value).endswith("step 1 of this collector)")
    assert caught.value.permanent


@pytest.mark.parametrize("mode", [None, NEXT])
@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
def test_a_class_that_resets_in_the_same_step_without_saying_so_is_refused(mode: Any, name: str) -> None:
    answer = (np.zeros((2, 2)), np.ones(2), np.array([False, True]), NO, {name: np.ones((2, 2))})
    with pytest.raises(EnvironmentFailed, match=rf"`{name}` in the info .* \(env 1, step 1 ") as caught:
        stepped(*started(Answers(mode, step=answer)), 1)
    assert "SAME_STEP" in caught.value.hint


def test_lists_and_integers_are_converted() -> None:
    answer = ([np.zeros(2), np.ones(2)], [3, 4], [False, True], (True, False), {})
    vector, row = started(Answers(NEXT, step=answer))
    rows = stepped(vector, row, 2)
    assert rows["rewards"].tolist() == [[3, 4], [0, 0]]
    assert rows["terminated"].tolist() == [[0, 1], [0, 0]]
    assert rows["truncated"].tolist() == [[1, 0], [0, 0]]
    assert rows["observations"][0].tolist() == [[0, 0], [1, 1]]
    assert row.finals.observations[0].tolist() == [0, 0]


def test_a_missing_last_observation_is_named() -> None:
    last = np.array([np.zeros(2), None], object)
    answer = (np.zeros((2, 2)), np.ones(2), NO, YES, {"final_obs": last})
    with pytest.raises(EnvironmentFailed, match=r"an observation of type NoneType, .* \(env 1, step 1 "):
        stepped(*started(Answers(SAME, step=answer)), 1)


def test_a_reset_that_returns_something_else() -> None:
    with pytest.raises(EnvironmentFailed, match="an object of type ndarray from reset, expected") as caught:
        started(Answers(reset=np.zeros((2, 2))))
    assert caught.value.permanent
    with pytest.raises(EnvironmentFailed, match=r"an observation of shape \(3,\), expected \(2,\) \(env 0, step 0 "):
        started(Answers(reset=(np.zeros((2, 3)), {})))


def test_system_exit_becomes_an_error() -> None:
    """SystemExit would end the process with another exit code, without an explanation."""
    with pytest.raises(EnvironmentFailed, match=r"raised SystemExit: 3 \(.*\.py:\d+\) in reset"):
        started(Answers(reset=SystemExit(3)))
    with pytest.raises(EnvironmentFailed, match=r"raised SystemExit \(.*\.py:\d+\) in step"):
        stepped(*started(Answers(step=SystemExit())), 1)
    with pytest.raises(EnvironmentFailed, match=r"raised CancelledError \(.*\.py:\d+\) in reset"):
        started(Answers(reset=asyncio.CancelledError()))
    with pytest.raises(EnvironmentFailed, match=r"raised CancelledError \(.*\.py:\d+\) in step"):
        stepped(*started(Answers(step=asyncio.CancelledError())), 1)


def test_what_raises_is_named_and_not_permanent() -> None:
    error = ValueError("no fuel")
    with pytest.raises(EnvironmentFailed) as caught:
        started(Answers(reset=error))
    text = r"Fake-v0 raised ValueError: no fuel \(.*\.py:\d+\) in %s \(step %d of this collector\)"
    assert re.fullmatch(text % ("reset", 0), str(caught.value))
    with pytest.raises(EnvironmentFailed) as caught:
        stepped(*started(Answers(step=error)), 1)
    assert re.fullmatch(text % ("step", 1), str(caught.value))
    assert caught.value.__cause__ is error
    assert not caught.value.permanent


def test_closing() -> None:
    vector = synchronous(NEXT, Counting)
    NativeVector("Fake-v0", vector).close()
    assert vector.closed


@pytest.mark.parametrize("mode", [NEXT, SAME])
def test_chosen_values_of_info_at_the_ends_of_episodes(mode: AutoresetMode) -> None:
    vector = synchronous(mode, lambda: Succeeds(terminates=2), lambda: Succeeds(truncates=3))
    native = NativeVector("Fake-v0", vector, ["number", "even", "never"])
    row = StepRow.allocate(observation_spec("Fake-v0", Counting.observation_space), 2, 3)
    native.reset([1, 2], row.observations)
    rows = []
    for _ in range(9):
        row.finals.count = 0
        native.step(np.zeros(2, np.int64), row)
        assert np.isnan(row.infos[row.episode_lengths == 0]).all()
        rows += [(b, *row.infos[b].tolist()) for b in range(2) if row.episode_lengths[b]]
    assert np.isnan([values[3] for values in rows]).all()
    for b in range(2):
        numbers = [values[1] for values in rows if values[0] == b]
        assert numbers == [float(n) for n in range(len(numbers))]
        assert len(numbers) > 1
    assert all(values[2] == 1.0 if values[1] % 2 == 0 else np.isnan(values[2]) for values in rows)
