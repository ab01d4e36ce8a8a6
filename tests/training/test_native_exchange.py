"""Rounds that follow within a native call: weights for rollouts, with the bytes of the path through Python.

Collectors of a run have processes of their own. Here they share one, where native code would wait for them in vain. So
the learner lets them run ahead, which a lag allows, and the next rollouts are there when it asks for them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_native_rounds import AGENT, DQN, both

from hive.runtime.process.channel_ends import ChannelEnds
from hive.training import Blueprint
from hive.training.update import native_rounds
from hive.training.update.ended_episodes import EndedEpisodes
from hive.training.update.replay_learner import ReplayLearnerActor
from hive.training.update.replay_memory import ReplayMemory

AHEAD = {
    "collection__communication": '"pipelined"',
    "collection__max_lag": 3,
    "algorithm__learning_rate_schedule": '"constant"',
}
DRIFT = {**DQN, "env__options": "{truncates=24}"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("small_environments:Drift", DRIFT),
    "past its points": (
        "small_environments:Drift",
        {**DRIFT, "algorithm__learning_rate_schedule": "[[0, 1e-2], [128, 1e-3]]"},
    ),
    "several collectors": ("small_environments:Drift", {**DRIFT, "run__scheme": '"apex"', "collection__workers": 3}),
    "priorities": (
        "small_environments:Drift",
        {**DRIFT, "algorithm__priority_exponent": 0.6, "algorithm__initial_errors": "true", "algorithm__n_step": 3},
    ),
    "info": ("small_environments:Succeeds", {**DQN, "env__options": "{truncates=24}", "env__info": '["number"]'}),
    "parts": ("small_environments:Mixed", DRIFT),
    "sac of one step": ("Pendulum-v1", {**AGENT, "run__scheme": '"sac"', "collection__rollout": 1, "run__steps": 96}),
    "checkpoints": ("small_environments:Drift", {**DRIFT, "checkpoint__every": "{updates=24}"}),
    "evaluations": (
        "small_environments:Drift",
        {**DRIFT, "evaluation__every": "{updates=7}", "evaluation__wait": "true", "evaluation__episodes": 1},
    ),
}


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rollouts that Python appends, one number for each call."""
    monkeypatch.setattr(native_rounds, "CALL_S", 1e-3)  # waits in vain
    monkeypatch.setattr(ChannelEnds, "pages_of", lambda self, actors: [self.context.pages.page(a) for a in actors])
    found: list[int] = []
    admit, let_admit = ReplayMemory.admit, ReplayLearnerActor._admit

    async def late(self: ReplayLearnerActor) -> None:
        for _ in range(64):  # more turns of the loop than the collectors need for the rollouts that they may make
            await asyncio.sleep(0)
        await let_admit(self)

    def counted(self: ReplayMemory, rollouts: Any, *more: Any) -> None:
        found.append(len(rollouts))
        admit(self, rollouts, *more)

    monkeypatch.setattr(ReplayMemory, "admit", counted)
    monkeypatch.setattr(ReplayLearnerActor, "_admit", late)
    return found


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[float, ...]]]:
    """The episodes that the learner of each run lists: number, return, length, column, updates, steps and a value."""
    monkeypatch.setattr(Blueprint, "records_episodes", True)
    found: list[list[tuple[float, ...]]] = []
    make, add = EndedEpisodes.__init__, EndedEpisodes.of_arrays

    def made(self: EndedEpisodes, infos: int) -> None:
        make(self, infos)
        found.append([])

    def added(self: EndedEpisodes, *arrays: Any) -> None:
        add(self, *arrays)
        of = self._parts[-1]
        columns: list[Any] = [of.returns, of.lengths, of.columns, of.updates, of.env_steps, of.infos.sum(axis=1)]
        found[-1] += [(of.first + n, *map(float, row)) for n, row in enumerate(zip(*columns, strict=True))]

    monkeypatch.setattr(EndedEpisodes, "__init__", made)
    monkeypatch.setattr(EndedEpisodes, "of_arrays", added)
    return found


@pytest.mark.parametrize("case", ["several collectors", "info"])
def test_episodes_that_end_within_a_call_are_listed_as_by_python(
    tmp_path: Path, case: str, admitted: list[int], listed: list[list[tuple[float, ...]]]
) -> None:
    env, values = CASES[case]
    both(tmp_path, env, **{**AHEAD, **values})
    one, native = listed
    assert one == native
    assert [episode[0] for episode in one] == [*range(1, len(one) + 1)]
    assert len(one) > 3


@pytest.mark.rotates
@pytest.mark.parametrize("case", CASES)
def test_rounds_within_a_call_have_the_bytes_of_updates_one_by_one(
    tmp_path: Path, case: str, admitted: list[int]
) -> None:
    env, values = CASES[case]
    one, native = both(tmp_path, env, **{**AHEAD, **values})
    by_python = sum(admitted) - one.outcome.channels["rollouts"]["consumed"]
    assert by_python < native.outcome.channels["rollouts"]["consumed"]  # the others were appended in native calls
    assert np.array_equal(one.memory, native.memory)
