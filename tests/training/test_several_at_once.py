"""Rollouts of agents that act at once: a row of every agent in each step, not valid while the agent is not there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from agent_games import Episode, Meeting, Move, Row, meeting_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import Table, row_at, table
from small_trainer import allocate, weights_of

from hive.algorithms.batches.advantages import generalized_advantages
from hive.envs.agents.alone import Alone
from hive.envs.agents.bots import Bot
from hive.envs.agents.parallel import ParallelVector
from hive.experience import Rollout

THREE = ("a", "b", "c")
EARLY_DEATH = Episode(
    THREE,
    [
        Move("", {"a": 1.0, "b": 2.0, "c": -1.0}, terminates=["b"]),
        Move("", {"a": 0.5, "c": 4.0}),
        Move("", {"a": -3.0}, truncates=["a"]),
        Move("", {"c": 8.0}, terminates=["c"]),
    ],
)
LATE_BIRTH = Episode(
    ("b",),
    [
        Move("", {"b": 1.0}, born=["c"]),
        Move("", {"c": 0.25}, born=["a"], terminates=["b"]),
        Move("", {"a": 2.0, "c": 1.0}, truncates=["a", "c"]),
    ],
)
ONE_STEP = Episode(THREE, [Move("", {"a": 1.0, "b": 5.0}, terminates=["a"], truncates=["b", "c"])])
GAMES = {
    "an early death": [EARLY_DEATH],
    "late births": [LATE_BIRTH, EARLY_DEATH],
    "a reset in each step": [ONE_STEP],
    "all": [EARLY_DEATH, ONE_STEP, LATE_BIRTH, ONE_STEP],
}


def games(name: str, count: int = 2) -> list[Meeting]:
    episodes = GAMES[name]
    return [Meeting(THREE, episodes[number % len(episodes) :] + episodes) for number in range(count)]


def bot() -> Bot:
    return Bot("bot", lambda observation: int(observation[1]) % 3)


def check(made: Table, policies: Sequence[Sequence[str]], rollouts: Sequence[Sequence[Rollout]]) -> list[Row | None]:
    """Every column has the rows of its agent in their steps; return them."""
    everything: list[Row | None] = []
    for agents, own in zip(policies, rollouts, strict=True):
        for number, game in enumerate(made.environments):
            for position, agent in enumerate(agents):
                column = number * len(agents) + position
                rows = [
                    row_at(rollout, t, column) if rollout.valid[t, column] else None
                    for rollout in own
                    for t in range(rollout.length)
                ]
                assert rows == meeting_rows(game, agent)
                everything += rows
    return everything


def check_absent(rollouts: Sequence[Rollout]) -> None:
    """Rows of agents that are not there say nothing."""
    for rollout in rollouts:
        absent = rollout.valid == 0
        for name in ("rewards", "terminated", "truncated", "episode_returns", "episode_lengths"):
            assert not getattr(rollout, name)[absent].any(), name
        assert (rollout.final_index[absent] == -1).all()
        assert not rollout.observations[:-1][absent].any()


@pytest.mark.parametrize("policies", [[THREE], [("a",), ("b", "c")], [("c", "a"), ("b",)], [("a",), ("b",), ("c",)]])
@pytest.mark.parametrize("name", GAMES)
def test_the_rows_of_rollouts_are_those_of_the_game(name: str, policies: list[tuple[str, ...]]) -> None:
    policies = [tuple(sorted(agents)) for agents in policies]
    made = table(games(name), policies, steps=5)
    rollouts = made.collect(4)
    rows = check(made, policies, rollouts)
    for own in rollouts:
        check_absent(own)
    assert any(row is None for row in rows) == (name != "a reset in each step")
    assert any(row is not None and row.truncated for row in rows)


@pytest.mark.parametrize("learning", [("a",), ("b", "c")])
def test_bots_act_and_have_no_rows(learning: tuple[str, ...]) -> None:
    made = table(games("all"), [learning], steps=5, bots={agent: bot for agent in THREE if agent not in learning})
    check(made, [learning], made.collect(4))
    for game in made.environments:
        for actions in game.log:
            others = {action for agent, action in actions.items() if agent not in learning}
            assert len(others) <= 1  # what the bots see differs in their positions alone


@pytest.mark.parametrize("name", GAMES)
def test_a_policy_of_all_agents_alone(name: str) -> None:
    """One policy needs no table: its rows are those of a vector whose environments have several rows each."""
    made = table(games(name), [THREE], steps=5)
    (blueprint,) = made.blueprints
    seated = made.seated(games(name))
    assert isinstance(seated, ParallelVector)
    vector = Alone(seated)
    assert (vector.count, vector.agents) == (6, 3)
    collector = blueprint.collector(0, vector=vector)
    collector.reset()
    collector.bind(weights_of(blueprint)[: blueprint.flat.block_bytes])
    rollouts = []
    for sequence in range(4):
        arrays = allocate(blueprint.rollout_layout)
        collector.collect(arrays, sequence=sequence, version=0)
        rollouts.append(Rollout(arrays))
    for number, game in enumerate(vector.environments):
        assert game.seeds[0] is not None
        for position, agent in enumerate(THREE):
            column = 3 * number + position
            rows = [row_at(r, t, column) if r.valid[t, column] else None for r in rollouts for t in range(r.length)]
            assert rows == meeting_rows(game, agent)
    assert len({game.seeds[0] for game in vector.environments}) == 2
    assert [rollout.env_steps for rollout in rollouts] == [10] * 4
    assert seated.ended == []


def test_env_steps_are_those_of_the_environments() -> None:
    made = table(games("an early death"), [("a",), ("b", "c")], steps=6)
    for own in made.collect(2):
        assert [rollout.env_steps for rollout in own] == [12, 12]
        assert all(rollout.samples < 6 * 2 * 2 for rollout in own)


@pytest.mark.parametrize("name", GAMES)
def test_advantages_end_with_each_agent(name: str) -> None:
    """Of an agent that died nothing follows, though its column goes on."""
    made = table(games(name), [THREE], steps=10)
    (rollout,) = made.collect(1)[0]
    values = [np.cos(row @ np.array([3.0, 1.7, 0.6])) for row in rollout.observations.reshape(-1, 3)]
    lasts = [np.cos(row @ np.array([3.0, 1.7, 0.6])) for row in rollout.final_observations]
    found, _ = generalized_advantages([rollout], np.array([*values, *lasts], np.float32), 0.5, 0.75)
    for number, game in enumerate(made.environments):
        for position, agent in enumerate(THREE):
            rows, carry = meeting_rows(game, agent), 0.0
            for t in reversed(range(10)):
                row = rows[t]
                if row is None:
                    continue
                if row.terminated or row.truncated:
                    carry = 0.0
                value, following = (
                    0.0 if seen is None else float(np.cos(np.array(seen) @ np.array([3.0, 1.7, 0.6])))
                    for seen in (row.observation, row.following)
                )
                carry = row.reward + 0.5 * following - value + 0.5 * 0.75 * carry
                assert found.reshape(10, -1)[t, number * 3 + position] == pytest.approx(carry, rel=1e-4, abs=1e-5)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    """Any agents at first; in each step some end and some are born, and at last all end."""
    live = list(draw(st.lists(st.sampled_from(THREE), min_size=1, unique=True)))
    first, unborn, moves = list(live), [name for name in THREE if name not in live], []
    while live:
        rewards = draw(st.dictionaries(st.sampled_from(live), st.sampled_from([-1.0, 0.5, 2.0])))
        born = draw(st.lists(st.sampled_from(unborn), max_size=1)) if unborn else []
        over = draw(st.lists(st.sampled_from(live), unique=True)) if len(moves) < 5 else live
        cut = [name for name in over if draw(st.booleans())]
        unborn = [name for name in unborn if name not in born] if len(moves) < 5 else []
        moves.append(Move("", rewards, [name for name in over if name not in cut], cut, born))
        live = [*(name for name in live if name not in over), *born]
    return Episode(first, moves)


@settings(max_examples=40)
@given(st.lists(st.lists(episodes(), min_size=1, max_size=3), min_size=1, max_size=2), st.integers(1, 5), st.booleans())
def test_random_games(drawn: list[list[Episode]], steps: int, with_bot: bool) -> None:
    learning = THREE[1:] if with_bot else THREE
    made = table([Meeting(THREE, own) for own in drawn], [learning], steps=steps, bots={"a": bot} if with_bot else None)
    rollouts = made.collect(3)
    check(made, [learning], rollouts)
    check_absent(rollouts[0])
