"""Environments whose agents act in turn: turns and completed rows one by one, and what an error names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from agent_games import Episode, Move, TurnGame
from gymnasium import spaces

from hive.envs.agents.bots import Bot
from hive.envs.agents.interface import acts_in_turn, describe_agents, has_agents
from hive.envs.agents.table import seat_of, table_of
from hive.envs.agents.turns import MOST_EPISODES, Completed, Game, TurnsVector
from hive.envs.make import make_any
from hive.envs.recipe import Recipe
from hive.envs.vectors.attributes import set_attributes
from hive.errors import EnvironmentFailed
from hive.records.run_warnings import AGENTS_ALIKE, LATE_REWARDS, REWARDS_AGAIN

NAMES = ("a", "b")
RECIPE = Recipe("games:Game")
WON = Episode(NAMES, [Move("a"), Move("b", {"a": 0.5}), Move("a", {"a": 1.0, "b": -1.0}, terminates=NAMES)])


def seated(
    environments: Sequence[Any],
    policies: Sequence[Sequence[str]] = (NAMES,),
    recipe: Recipe = RECIPE,
    bots: Mapping[str, Any] | None = None,
) -> TurnsVector:
    """A table of these environments after its reset."""
    spec = describe_agents(recipe.id, environments[0], recipe)
    assert spec.takes_turns
    seats = [seat_of("policy", spec, agents) for agents in policies]
    made = table_of([recipe] * len(environments), environments, seats, bots)
    assert isinstance(made, TurnsVector)
    made.reset(range(len(environments)))
    return made


def one(game: Any, **options: Any) -> Game:
    (found,) = seated([game], **options).games
    return found


def seen(game: Game) -> tuple[int, int, list[float]]:
    return game.turn.seat, game.turn.column, game.turn.observation.tolist()


def test_turn_by_turn() -> None:
    game = one(TurnGame(NAMES, [WON]))
    assert (seen(game), game.completed) == ((0, 0, [0, 0, 0]), [])
    game.act(0)
    assert (seen(game), game.completed) == ((0, 1, [0, 1, 1]), [])
    game.act(1)
    assert seen(game) == (0, 0, [0, 2, 0])
    assert game.completed == [Completed(0, 0, 1.0, False, False, None)]
    game.act(2)
    assert seen(game) == (0, 0, [1, 0, 0])  # the next episode
    assert game.completed == [Completed(0, 0, 3.0, True, False, None), Completed(0, 1, -3.0, True, False, None)]
    assert game.turns == 3


def test_episodes_that_ended_have_the_returns_of_all() -> None:
    table = seated(
        [TurnGame(NAMES, [WON]), TurnGame(NAMES, [WON])], [("b",)], bots={"a": lambda: Bot("a", lambda _: 1)}
    )
    for game in table.games:
        game.act(0)
    assert [(one.number, one.returns, one.steps, one.cut) for one in table.ended] == [
        (number, {"a": 0.5 + 2.0, "b": -2.0}, 3, False) for number in (0, 1)
    ]
    assert table.env_steps == 2 * (3 + 1)  # the bot has begun the next episode


def test_a_cut_game_counts_the_rewards_that_wait_for_a_turn() -> None:
    moves = [Move("a"), Move("b", {"a": 1.0}), Move("a", {"a": 2.0, "b": 4.0}), Move("b", terminates=NAMES)]
    table = seated([TurnGame(NAMES, [Episode(NAMES, moves)])])
    for _ in range(3):
        table.games[0].act(0)
    table.cut(0)
    assert [(one.returns, one.cut) for one in table.ended] == [({"a": 3.0, "b": 4.0}, True)]


def test_a_game_that_refuses_a_reset_is_constructed_again_and_told() -> None:
    class Refuses(TurnGame):
        def reset(self, seed: int | None = None, options: Any = None) -> None:
            if self.at:
                raise RuntimeError("not over")
            super().reset(seed)

    spec = describe_agents(RECIPE.id, TurnGame(NAMES, [WON]), RECIPE)
    first, again = (Refuses(NAMES, [WON]) for _ in range(2))
    table = table_of([RECIPE], [first], [seat_of("policy", spec, NAMES)], construct=lambda number: again)
    assert isinstance(table, TurnsVector)
    for _ in range(2):
        table.reset([0])
        table.games[0].act(0)
    assert (first.closed, first.at, again.at) == (True, 1, 1)
    assert "RuntimeError: not over" in table.refused


def test_an_attribute_is_given_before_the_next_reset() -> None:
    table = seated([TurnGame(NAMES, [Episode(NAMES, [Move("a", terminates=NAMES)])])])
    set_attributes(table, {"deads": "last"})
    assert table.environments[0].deads == "first"
    table.games[0].act(0)
    assert table.environments[0].deads == "last"


def test_two_policies_have_columns_of_their_own() -> None:
    table = seated([TurnGame(NAMES, [WON]), TurnGame(NAMES, [WON])], [("b",), ("a",)])
    first, second = table.games
    assert (seen(first)[:2], seen(second)[:2]) == ((1, 0), (1, 1))
    second.act(0)
    assert seen(second)[:2] == (0, 1)


class Odd(TurnGame):
    """Does something else once `when` moves were made. doing: what; before: the call that it changes."""

    def __init__(self, before: str, when: int, doing: Any) -> None:
        super().__init__(NAMES, [WON])
        self.before, self.when, self.doing = before, when, doing

    def _may(self, call: str) -> bool:
        return call == self.before and self.at == self.when

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        super().reset(seed)
        if self.before == "reset":
            self.doing(self)

    def step(self, action: Any) -> None:
        super().step(action)
        if self._may("step"):
            self.doing(self)

    def last(self, observe: bool = True) -> Any:
        result = super().last()
        return self.doing(self, *result) if self._may("last") else result


def fails(game: Any, *results: Any) -> Any:
    raise ValueError("no luck")


def picks_a_stranger(game: Any) -> None:
    for table in (game.terminations, game.truncations):
        table["z"] = False
    game._cumulative_rewards["z"], game.infos["z"] = 0.0, {}
    game.possible_agents, game.agent_selection = [*NAMES, "z"], "z"


def vanishes(game: Any) -> None:
    game.agents = []


def revives(game: Any) -> None:
    """The dead agent b begins another life."""
    game._cumulative_rewards["b"] = 0.0
    game.terminations["b"] = game.truncations["b"] = False
    game.agents, game.agent_selection = ["a", "b"], "b"


WRONG: dict[str, tuple[str, int, Any, str]] = {
    "an error in reset": ("reset", 0, fails, r"raised ValueError: no luck .* in reset"),
    "an error in step": ("step", 2, fails, r"raised ValueError: no luck .* in step"),
    "an error in last": ("last", 2, fails, r"raised ValueError: no luck .* in last"),
    "four values": ("last", 1, lambda game, *results: results[:4], r"4 values from last, expected \(observation"),
    "no tuple": ("last", 1, lambda game, *results: None, "an object of type NoneType from last"),
    "a stranger": ("step", 1, picks_a_stranger, "the turn of the agent `z`, which is not in its `possible_agents`"),
    "no end": ("step", 1, vanishes, "no end of the agent `a`, which has acted"),
    "a reward that is NaN": (
        "last",
        2,
        lambda game, *results: (results[0], np.nan, *results[2:]),
        "the reward nan, expected a finite number for agent `a`",
    ),
    "a reward that is no number": (
        "last",
        2,
        lambda game, *results: (results[0], None, *results[2:]),
        "the reward None, expected a finite number for agent `a`",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_environment_and_the_agent(name: str) -> None:
    before, when, doing, text = WRONG[name]

    def play() -> None:
        table = seated([TurnGame(NAMES, [WON]), Odd(before, when, doing)])
        for _ in range(3):
            for game in table.games:
                game.act(0)

    with pytest.raises(EnvironmentFailed, match=f"^games:Game .*{text}.*env 1") as caught:
        play()
    assert caught.value.not_finite == ("nan" in text)


def test_the_reward_of_a_bots_agent_is_checked_too() -> None:
    change = WRONG["a reward that is NaN"][2]
    with pytest.raises(EnvironmentFailed, match=r"the reward nan, .* agent `a` \(env 0"):
        one(Odd("last", 2, change), policies=[("b",)], bots={"a": lambda: Bot("a", lambda _: 0)}).act(0)


def test_an_agent_that_ended_may_begin_another_life() -> None:
    """Its return is that of the life, and the episode's that of both."""
    moves = [
        Move("b", {"b": 1.0}),
        Move("a", {"b": 2.0}, terminates=["b"]),
        Move("b", {"b": 4.0}),
        Move("a", terminates=NAMES),
    ]
    environment = Odd("step", 2, lambda game: "b" in game.agents or revives(game))
    environment.episodes = [Episode(NAMES, moves)]
    table = seated([environment])
    (game,) = table.games
    lives = []
    for _ in range(4):
        game.act(0)
        ended = [done for done in game.completed if done.terminated and done.column == 1]
        lives += [(done.reward, *table.seats[0].ended(1)[:1]) for done in ended]
    assert lives == [(3.0, 3.0), (4.0, 4.0)]
    assert table.ended[0].returns["b"] == 7.0


def test_rewards_after_the_last_turn_count_and_are_told() -> None:
    class Late(TurnGame):
        def _move(self, agent: str, action: int) -> None:
            if self.at == 2:
                self._cumulative_rewards["b"] += 10.0
            super()._move(agent, action)

    episode = Episode(NAMES, [Move("b"), Move("a", {"b": 1.0}, terminates=["b"]), Move("a", terminates=["a"])])
    table = seated([Late(NAMES, [episode])])
    for _ in range(3):
        table.games[0].act(0)
    assert table.ended[0].returns == {"a": 0.0, "b": 11.0}
    assert [one.kind for one in table.notices.warnings()] == [LATE_REWARDS]


class Kept(TurnGame):
    """Has the rewards of each step, too. clears: whether it forgets those of the agent that acts."""

    clears = False

    def _move(self, agent: str, action: int) -> None:
        sums = {**self._cumulative_rewards}
        super()._move(agent, action)
        before = sums if not self.clears else {**sums, agent: 0.0}
        self.rewards = {one: total - before.get(one, 0.0) for one, total in self._cumulative_rewards.items()}
        if not self.clears:
            self.rewards[agent] += sums[agent]
            self._cumulative_rewards[agent] += sums[agent]


class Cleared(Kept):
    clears = True


@pytest.mark.parametrize("kind", [Kept, Cleared])
def test_rewards_that_are_never_cleared_are_told(kind: type[Kept]) -> None:
    turns = [Move(agent, {"a": 1.0, "b": -1.0}) for agent in "ababab"]
    table = seated([kind(NAMES, [Episode(NAMES, [*turns, Move("a", terminates=NAMES)])])])
    for _ in range(7):
        table.games[0].act(0)
    assert [one.kind for one in table.notices.warnings()] == [REWARDS_AGAIN] * (kind is Kept)


def test_agents_that_always_see_the_same_are_told() -> None:
    class Blind(TurnGame):
        def observe(self, agent: str) -> Any:
            return np.zeros(3, np.float32)

    for kind, policies, told in (
        (Blind, [NAMES], [AGENTS_ALIKE]),
        (TurnGame, [NAMES], []),
        (Blind, [["a"], ["b"]], []),
    ):
        episode = Episode(NAMES, [*(Move(agent) for agent in "ab" * 20), Move("a", terminates=NAMES)])
        table = seated([kind(NAMES, [episode])], policies)
        for _ in range(40):
            table.games[0].act(0)
        assert [one.kind for one in table.notices.warnings()] == told


@pytest.mark.parametrize("name", ["agents", "agent_selection"])
def test_what_a_turn_needs(name: str) -> None:
    environment = Odd("step", 1, lambda game: delattr(game, name))
    game = one(environment)
    with pytest.raises(EnvironmentFailed, match=f"games:Game raised AttributeError.*{name}.*env 0"):
        game.act(0)


def test_an_environment_that_never_gives_a_turn_to_who_learns() -> None:
    alone = Episode(NAMES, [Move("a", terminates=NAMES)])
    with pytest.raises(EnvironmentFailed, match=f"{MOST_EPISODES:,} episodes in which no agent that learns had a turn"):
        one(TurnGame(NAMES, [alone]), policies=[("b",)], bots={"a": lambda: Bot("a", lambda _: 0)})


def test_an_observation_of_another_shape_names_its_agent() -> None:
    class Flat(TurnGame):
        def observe(self, agent: str) -> Any:
            return np.zeros(2) if agent == "b" else super().observe(agent)

    table = seated([TurnGame(NAMES, [WON]), Flat(NAMES, [WON])])
    game = table.games[1]
    game.act(0)
    out = np.zeros((4, 3), np.float32)
    with pytest.raises(
        EnvironmentFailed, match=r"an observation of shape \(2,\), expected \(3,\) for agent `b` \(env 1"
    ):
        table.seats[0].checks.one(game.turn.column, game.turn.observation, out)


def test_masks_at_each_turn_and_none_after_a_truncation() -> None:
    class Masked(TurnGame):
        def observation_space(self, agent: str) -> spaces.Space[Any]:
            mask = spaces.Box(0, 1, (3,), np.int8)
            return spaces.Dict({"observation": super().observation_space(agent), "action_mask": mask})

        def observe(self, agent: str) -> Any:
            mask = np.zeros(3, np.int8)
            mask[self.at % 3] = self.at < 2  # none is left at the end
            return {"observation": super().observe(agent), "action_mask": mask}

    table = seated([Masked(NAMES, [Episode(NAMES, [Move("a"), Move("b", truncates=NAMES)])])])
    (game,), (seat,) = table.games, table.seats
    spec = seat.seat.spec.observation
    assert spec.mask is not None
    out = np.zeros((2, *spec.shape), spec.dtype)
    seat.store(out)
    assert spec.mask.view(out).tolist() == [[1, 1, 1]] * 2  # of agents without a turn
    for turn, mask in enumerate(([1, 0, 0], [0, 1, 0], [1, 0, 0])):
        seat.checks.one(game.turn.column, game.turn.observation, out)
        assert spec.mask.view(out)[turn % 2].tolist() == mask
        game.act(turn % 2)
        if turn == 1:
            finals = [done.final["action_mask"].tolist() for done in game.completed]
            assert finals == [[1, 1, 1]] * 2


def test_agents_see_their_position_and_the_state() -> None:
    class Placed(TurnGame):
        def state(self) -> Any:
            return np.array([self.at], np.float32)

    episode = Episode(NAMES, [Move("a"), Move("b", truncates=NAMES)])
    game = one(Placed(NAMES, [episode]), recipe=Recipe("games:Game", agent_index=True, state=True))
    assert (game.turn.observation["agent"], game.turn.observation["state"].tolist()) == (0, [0])
    game.act(0)
    assert (game.turn.observation["agent"], game.turn.observation["state"].tolist()) == (1, [1])
    game.act(0)
    assert [(done.final["agent"], done.final["state"].tolist()) for done in game.completed] == [(0, [2]), (1, [2])]


def test_what_an_environment_of_agents_is() -> None:
    assert has_agents(TurnGame(NAMES, [WON]))
    assert acts_in_turn(TurnGame(NAMES, [WON]))
    assert not has_agents(object())


class TestPettingZoo:
    """Games that others wrote."""

    def test_tic_tac_toe(self) -> None:
        """The first player wins by 0, 1, 2; its opponent learns of it in its own last row."""
        pytest.importorskip("pettingzoo.classic.tictactoe_v3")
        recipe = Recipe("pettingzoo.classic:tictactoe_v3")
        table = seated([make_any(recipe)], [("player_1", "player_2")], recipe)
        (game,) = table.games
        found = []
        for action in (0, 3, 1, 4, 2):
            assert game.turn.observation["action_mask"][action] == 1
            game.act(action)
            found.append([(done.column, done.reward, done.terminated) for done in game.completed])
        assert found[:-1] == [[], [(0, 0.0, False)], [(1, 0.0, False)], [(0, 0.0, False)]]
        assert sorted(found[-1]) == [(0, 1.0, True), (1, -1.0, True)]
        assert game.turn.column == 0
        assert table.ended[0].returns == {"player_1": 1.0, "player_2": -1.0}
        table.close()

    def test_an_illegal_move_ends_the_game(self) -> None:
        """PettingZoo's wrapper gives the loser -1 and ends the game for both."""
        pytest.importorskip("pettingzoo.classic.tictactoe_v3")
        recipe = Recipe("pettingzoo.classic:tictactoe_v3")
        (game,) = seated([make_any(recipe)], [("player_1", "player_2")], recipe).games
        game.act(0)
        game.act(0)
        assert {(done.column, done.reward, done.terminated) for done in game.completed} == {
            (0, 0.0, True),
            (1, -1.0, True),
        }


def test_an_environment_that_gives_turns_to_the_ended_for_ever_is_refused() -> None:
    class Endless(TurnGame):
        def step(self, action: Any) -> None:
            if action is not None:
                super().step(action)

    game = one(Endless(NAMES, [WON]))
    for action in range(2):
        game.act(action)
    with pytest.raises(EnvironmentFailed, match="turns of ended agents only, such as `a`, without removing them"):
        game.act(2)


def test_an_environment_that_has_played_its_episodes_is_neither_stepped_nor_reset() -> None:
    first, second = games = [TurnGame(NAMES, [WON]) for _ in range(2)]
    made = seated(games)
    made.play([1, 2])
    for _ in range(2 * len(WON.moves)):
        for game in made.games:
            if game.left:
                game.act(0)
    assert [game.left for game in made.games] == [0, 0]
    assert (len(first.log), len(second.log)) == (3, 6)
    assert [one.number for one in made.ended] == [0, 1, 1]
    assert (first.seeds, second.seeds) == ([0], [1, None])
    made.reset([5, 6])
    assert [game.left for game in made.games] == [-1, -1]
