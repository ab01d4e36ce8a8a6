"""Rollouts of agents that act in turn: the rows of each agent are those that plain Python computes from the game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from agent_games import Episode, Move, Row, TurnGame, turn_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import Table, column_rows, table

from hive.envs.agents.bots import Bot
from hive.experience import Rollout

TWO, THREE = ("a", "b"), ("a", "b", "c")
ALTERNATE = Episode(
    TWO,
    [
        Move("a", {"a": 0.5}),
        Move("b", {"a": -0.25, "b": 0.25}),
        Move("a"),
        Move("b"),
        Move("a", {"a": 1.0, "b": -1.0}, terminates=TWO),
    ],
)
AGAIN = Episode(TWO, [Move("a"), Move("a", {"a": 2.0}), Move("b"), Move("b"), Move("a", {"b": 1.0}, truncates=TWO)])
OTHER_FIRST = Episode(TWO, [Move("b", {"a": 8.0, "b": 1.0}), Move("a"), Move("b", {"a": 1.0}, terminates=TWO)])
EARLY_DEATH = Episode(
    THREE,
    [
        Move("a"),
        Move("b"),
        Move("c", {"a": -4.0, "c": 4.0}, terminates=["a"]),
        Move("b", {"c": 1.0}),
        Move("c", {"b": 0.5}, truncates=["b"]),
        Move("c"),
        Move("c", {"c": 3.0}, terminates=["c"]),
    ],
)
LATE_BIRTH = Episode(
    ("a",),
    [
        Move("a", {"a": 1.0}, born=["b"]),
        Move("a", {"b": 16.0}),
        Move("b", {"b": 2.0}),
        Move("a", {"b": 1.0}, born=["c"]),
        Move("b", terminates=["a"]),
        Move("c", {"b": 4.0}, terminates=["b"]),
        Move("c", truncates=["c"]),
    ],
)
NEVER_ACTS = Episode(THREE, [Move("a", {"c": 1.0}, terminates=["c"]), Move("b"), Move("a", {"b": 1.0}, truncates=TWO)])
GAMES: dict[str, tuple[Sequence[str], list[Episode]]] = {
    "alternate": (TWO, [ALTERNATE]),
    "twice in a row": (TWO, [AGAIN]),
    "rewards before the first turn": (TWO, [OTHER_FIRST, ALTERNATE]),
    "an early death": (THREE, [EARLY_DEATH]),
    "late births": (THREE, [LATE_BIRTH, EARLY_DEATH]),
    "an end before the first turn": (THREE, [NEVER_ACTS, LATE_BIRTH]),
}


def games(name: str, count: int = 2, deads: str = "first") -> list[TurnGame]:
    names, episodes = GAMES[name]
    return [TurnGame(names, episodes[number % len(episodes) :] + episodes, deads) for number in range(count)]


def bot() -> Bot:
    return Bot("bot", lambda observation: int(observation[1]) % 3)


def check(made: Table, policies: Sequence[Sequence[str]], rollouts: Sequence[Sequence[Rollout]]) -> list[Row]:
    """Every column has the rows of its agent, all of them; return them."""
    learning = [agent for agents in policies for agent in agents]
    everything: list[Row] = []
    for agents, own in zip(policies, rollouts, strict=True):
        for number, game in enumerate(made.environments):
            expected = turn_rows(game, learning)
            for position, agent in enumerate(agents):
                rows = column_rows(own, number * len(agents) + position)
                assert rows == expected[agent]
                everything += rows
    return everything


@pytest.mark.rotates
@pytest.mark.parametrize("deads", ["first", "last", "never"])
@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 16])
def test_the_rows_of_rollouts_are_those_of_the_game(name: str, deads: str, steps: int) -> None:
    policies = [GAMES[name][0]]
    made = table(games(name, deads=deads), policies, steps=steps)
    assert len(check(made, policies, made.collect(40 // steps))) > 30


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("steps", [1, 3])
def test_each_policy_has_the_rows_of_its_own_agents(name: str, steps: int) -> None:
    policies = [[agent] for agent in GAMES[name][0]]
    made = table(games(name), policies, steps=steps)
    check(made, policies, made.collect(40 // steps))


def test_the_loser_learns_its_last_reward_after_the_last_move_of_the_other() -> None:
    made = table(games("alternate", 1), [TWO], steps=12)
    (rollout,), (game,) = made.collect(1)[0], made.environments
    rows = column_rows([rollout], 1)
    last = next(row for row in rows if row.terminated)
    winner = 1 + game.log[4]
    assert (last.observation, last.reward, last.length) == ((0.0, 3.0, 1.0), -1.0 * winner, 2)
    assert [row.observation[1] for row in rows[:3]] == [1.0, 3.0, 1.0]  # only its own turns


@pytest.mark.parametrize("steps", [1, 3, 16])
def test_discounted_sums_are_those_of_the_own_turns(steps: int) -> None:
    """A column that an agent left unfilled ends no episode, in which its next turn is in a later rollout."""
    made = table(games("late births"), [THREE], steps=steps, network__normalize_rewards="true")
    (rollouts,) = made.collect(40 // steps)
    discount, seen = made.blueprints[0].config.algorithm.discount, 0
    for column in range(rollouts[0].rewards.shape[1]):
        total = 0.0
        for rollout in rollouts:
            assert rollout.discounted is not None
            for t in np.flatnonzero(rollout.valid[:, column]):
                total = total * discount + float(rollout.rewards[t, column])
                assert rollout.discounted[t, column] == pytest.approx(total)
                seen += 1
                if rollout.terminated[t, column] or rollout.truncated[t, column]:
                    total = 0.0
    assert seen > 30


def test_rewards_before_the_first_turn_are_in_the_return_alone() -> None:
    made = table(games("rewards before the first turn", 1), [TWO], steps=12)
    (rollout,), (game,) = made.collect(1)[0], made.environments
    first, last = 1 + game.log[0], 1 + game.log[2]
    row = column_rows([rollout], 0)[0]
    assert (row.terminated, row.reward, row.returned) == (True, 1.0 * last, 8.0 * first + 1.0 * last)


@pytest.mark.parametrize("learning", [["a"], ["b"], ["c"], ["a", "c"]])
@pytest.mark.parametrize("name", ["an early death", "late births", "an end before the first turn"])
def test_bots_act_and_have_no_rows(name: str, learning: list[str]) -> None:
    """Whole episodes may pass between two turns of an agent that learns, and it may end in them without a turn."""
    bots = {agent: bot for agent in THREE if agent not in learning}
    made = table(games(name), [learning], steps=3, bots=bots)
    check(made, [learning], made.collect(9))


@pytest.mark.parametrize("learning", [["a", "b"], ["b"]])
def test_the_returns_of_all_agents_are_in_one_row_of_each_episode(learning: list[str]) -> None:
    """Whoever acts for them, and the return of the team with them."""
    bots = {agent: bot for agent in TWO if agent not in learning}
    made = table(games("rewards before the first turn", 1), [learning], steps=9, bots=bots)
    (rollout,), (game,) = made.collect(1)[0], made.environments
    assert rollout.infos is not None
    assert made.blueprints[0].config.env.info == ("return/a", "return/b", "return/team")
    found = [infos.tolist() for infos in rollout.episode_infos() if not np.isnan(infos[:-1]).all()]
    log, expected = iter(game.log), []
    for number in range(len(found)):
        returns = dict.fromkeys(TWO, 0.0)
        for move, action in zip(game.episodes[number % 2].moves, log, strict=False):
            for agent, reward in move.rewards.items():
                returns[agent] += reward * (1 + action)
        expected.append([*returns.values(), sum(returns.values())])
    assert [values for *values, end in found] == expected
    assert all(end > 0 for *_, end in found), "terminated"
    assert len(found) > 2


def test_env_steps_are_turns_also_of_bots() -> None:
    made = table(games("alternate", 2), [["a"]], steps=4, bots={"b": bot})
    (rollouts,) = made.collect(3)
    logged = sum(len(game.log) for game in made.environments)
    assert sum(rollout.env_steps for rollout in rollouts) == logged > sum(rollout.samples for rollout in rollouts)


def test_nothing_is_kept_of_episodes_that_have_ended() -> None:
    """A run makes millions of them."""
    made = table(games("alternate"), [TWO], steps=16)
    made.collect(3)
    assert made.collector.vector.ended == []


def test_a_reset_at_a_barrier_drops_what_waits() -> None:
    made = table(games("alternate", 1), [TWO], steps=1)
    made.collect(2)
    made.collector.rebuild(made.seated(games("rewards before the first turn", 1)), 3)
    (rollouts,) = made.collect(4)
    assert [rollout.begins for rollout in rollouts] == [True, False, False, False]
    check(made, [TWO], [rollouts])


@st.composite
def episodes(draw: st.DrawFn, names: Sequence[str], deads: str) -> Episode:
    """Any agents at first, any order of turns; all end at last, some of them before."""
    live = list(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    first, unborn, moves, over = list(live), [name for name in names if name not in live], [], []
    for _ in range(draw(st.integers(1, 8))):
        mover = draw(st.sampled_from(live))
        born = draw(st.lists(st.sampled_from(unborn), max_size=1)) if unborn else []
        unborn = [name for name in unborn if name not in born]
        told = [*live, *born, *(over if deads == "last" else ())]
        rewards = draw(st.dictionaries(st.sampled_from(told), st.sampled_from([-1.0, 0.5, 2.0])))
        others = [name for name in live if len(live) > 1]
        ended = draw(st.lists(st.sampled_from(others), max_size=len(others) - 1, unique=True)) if others else []
        cut = [name for name in ended if draw(st.booleans())]
        live = [name for name in [*live, *born] if name not in ended]
        over += ended
        moves.append(Move(mover, rewards, [name for name in ended if name not in cut], cut, born))
    end = Move(live[0], {live[-1]: 1.0}, live[:1], live[1:])
    return Episode(first, [*moves, end])


@st.composite
def random_games(draw: st.DrawFn) -> tuple[list[TurnGame], list[str], int]:
    """Games of the same agents, who of them learns, and the steps of a rollout."""
    names, deads = THREE[: draw(st.integers(1, 3))], draw(st.sampled_from(["first", "last"]))
    own = st.lists(episodes(names, deads), min_size=1, max_size=3)
    made = [TurnGame(names, draw(own), deads) for _ in range(draw(st.integers(1, 2)))]
    learning = draw(st.lists(st.sampled_from(names), min_size=1, unique=True).map(sorted))
    return made, learning, draw(st.integers(1, 4))


@settings(max_examples=40)
@given(random_games())
def test_random_games(drawn: Any) -> None:
    """Nothing is lost or invented: the rewards of the rows, and what came before the first, are the return."""
    made, learning, steps = drawn
    for game in made:  # an agent that learns has a turn in some episode, or none is ever made
        game.episodes.append(Episode(learning, [*map(Move, learning), Move(learning[0], terminates=learning)]))
    bots = {name: bot for name in THREE if name not in learning}
    own = table(made, [learning], steps=steps, bots=bots)
    (rollouts,) = own.collect(8)
    check(own, [learning], [rollouts])
    for number, game in enumerate(made):
        for position, agent in enumerate(learning):
            check_sums(game, agent, column_rows(rollouts, number * len(learning) + position))


def check_sums(game: TurnGame, agent: str, rows: Sequence[Row]) -> None:
    """The returns of its episodes are the rewards of their rows and those before its first turn."""
    log, number, ended = iter(game.log), 0, [at for at, row in enumerate(rows) if row.length]
    for begin, end in zip([0, *(at + 1 for at in ended)], ended, strict=False):
        before = after = 0.0
        acted = False
        while not acted:  # episodes in which it has no turn have no rows
            before = after = 0.0
            for move, action in zip(game.episodes[number % len(game.episodes)].moves, log, strict=False):
                acted |= move.agent == agent
                reward = move.rewards.get(agent, 0.0) * (1 + action)
                before, after = before + reward * (not acted), after + reward * acted
            number += 1
        assert sum(row.reward for row in rows[begin : end + 1]) == after
        assert (rows[end].returned, rows[end].length) == (before + after, end + 1 - begin)
