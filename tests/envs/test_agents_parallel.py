"""Environments whose agents act at once: what is seen, who acts, and the agent and environment that an error names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from agent_games import Episode, Meeting, Move
from gymnasium import spaces

from hive.envs.agents.bots import Bot, bot_of
from hive.envs.agents.interface import describe_agents
from hive.envs.agents.parallel import ParallelVector
from hive.envs.agents.table import seat_of, table_of
from hive.envs.recipe import Recipe
from hive.envs.vectors.rows import StepRow
from hive.errors import EnvironmentFailed
from hive.records.run_warnings import AGENTS_ALIKE, LATE_REWARDS

NAMES = ("a", "b")
GOES_ON = [Episode(NAMES, [Move("", {"a": 1.0}) for _ in range(8)] + [Move("", terminates=NAMES)])]
RECIPE = Recipe("games:Game")


class Seated:
    """A table of these environments after its reset, and a row of each seat."""

    def __init__(
        self,
        environments: Sequence[Any],
        policies: Sequence[Sequence[str]] = (NAMES,),
        recipe: Recipe = RECIPE,
        bots: Mapping[str, Any] | None = None,
    ) -> None:
        self.spec = describe_agents(recipe.id, environments[0], recipe)
        seats = [seat_of("policy", self.spec, agents) for agents in policies]
        table = table_of([recipe] * len(environments), environments, seats, bots)
        assert isinstance(table, ParallelVector)
        self.table = table
        self.rows = [StepRow.allocate(seat.seat.spec.observation, seat.count, len(seat.info)) for seat in table.seats]
        table.reset(range(len(environments)), [row.observations for row in self.rows])

    def step(self, *actions: Any) -> list[StepRow]:
        """Step once, with these actions of each seat, or with 0."""
        chosen = [
            np.zeros((seat.count, *seat.seat.spec.action.shape), seat.seat.spec.action.dtype)
            for seat in self.table.seats
        ]
        for own, given in zip(chosen, actions, strict=False):
            own[...] = given
        for row in self.rows:
            row.finals.count = 0
        self.table.step(chosen, self.rows)
        return self.rows

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()


class Odd(Meeting):
    """Returns something else from step `when`, or 0 from reset. change: of what it usually returns, in place or not."""

    def __init__(self, when: int, change: Any) -> None:
        super().__init__(NAMES, GOES_ON)
        self.when, self.change = when, change

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed)
        return self.change(self, *result) if self.when == 0 else result

    def step(self, actions: Mapping[str, Any]) -> Any:
        result = super().step(actions)
        return self.change(self, *result) if self.at == self.when else result


def without(place: int, agent: str) -> Any:
    """A change that leaves an agent out of one dictionary."""

    def change(environment: Any, *results: Any) -> Any:
        del results[place][agent]
        return results

    return change


def with_value(place: int, agent: str, value: Any) -> Any:
    def change(environment: Any, *results: Any) -> Any:
        results[place][agent] = value
        return results

    return change


def leaves(environment: Any, *results: Any) -> Any:
    environment.agents = ["a"]
    return results


def stranger(environment: Any, *results: Any) -> Any:
    environment.agents = [*environment.agents, "z"]
    results[0]["z"] = results[0]["a"]
    return results


def nobody(environment: Any, *results: Any) -> Any:
    environment.agents = []
    return results


def raises(environment: Any, *results: Any) -> Any:
    raise ValueError("no luck")


def truncated_unseen(environment: Any, *results: Any) -> Any:
    results[3]["b"] = True
    del results[0]["b"]
    return results


WRONG: dict[str, tuple[int, Any, str]] = {
    "no reward": (2, without(1, "b"), "no reward of the agent `b`"),
    "no termination": (2, without(2, "b"), "no entry in `terminations` or `truncations` of the agent `b`"),
    "no truncation": (2, without(3, "b"), "no entry in `terminations` or `truncations` of the agent `b`"),
    "no observation": (2, without(0, "b"), "no observation of the live agent `b`"),
    "no last observation": (2, truncated_unseen, "no last observation of the truncated agent `b`"),
    "leaves without an end": (2, leaves, "`agents` without `b`, which was neither terminated nor truncated"),
    "a stranger": (2, stranger, "the agent `z`, which is not in its `possible_agents`"),
    "a reward that is NaN": (2, with_value(1, "b", np.nan), "the reward nan, expected a finite number"),
    "a reward that is no number": (2, with_value(1, "b", "x"), "the reward 'x', expected a finite number"),
    "a reward of two numbers": (2, with_value(1, "b", [1.0, 2.0]), r"the reward [1.0, 2.0], expected a finite number"),
    "no reward but None": (2, with_value(1, "b", None), "the reward None, expected a finite number"),
    "an observation of another shape": (2, with_value(0, "b", np.zeros(2, np.float32)), "an observation of shape (2,)"),
    "an observation that is NaN": (2, with_value(0, "b", np.full(3, np.nan)), "an observation with nan in it"),
    "no observation but None": (2, with_value(0, "b", None), "an observation of type NoneType"),
    "four values": (2, lambda environment, *results: results[:4], "4 values from step"),
    "flags of two": (2, with_value(2, "b", np.zeros(2, bool)), "`terminations` array([False, False]) of the agent `b`"),
    "no dictionaries": (2, lambda environment, *results: tuple(map(list, results)), "from step, expected (obs"),
    "None from step": (2, lambda environment, *results: None, "an object of type NoneType from step"),
    "an error in step": (2, raises, "in step (env 1, step 2 of this collector)"),
    "no agent after reset": (0, nobody, "no agent after reset"),
    "one value from reset": (0, lambda environment, *results: results[0], "an object of type dict from reset"),
    "no first observation": (0, without(0, "b"), "no observation of the live agent `b`"),
    "a first observation of another shape": (0, with_value(0, "b", np.zeros(4)), "an observation of shape (4,)"),
    "an error in reset": (0, raises, "in reset (env 1, step 0 of this collector)"),
}
OF_AN_AGENT = re.compile("`b`|the reward|an observation (of|with)")


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_agent_and_the_environment(name: str) -> None:
    when, change, text = WRONG[name]
    environments = [Meeting(NAMES, GOES_ON), Odd(when, change)]
    with pytest.raises(EnvironmentFailed, match=re.escape(text)) as caught:
        Seated(environments).steps(3)
    message = str(caught.value)
    assert message.startswith("games:Game ")
    assert re.search(r"\(env 1, step \d of this collector\)", message), message
    if OF_AN_AGENT.search(text):
        assert "agent `b`" in message or "`agents` without `b`" in message
    assert caught.value.not_finite == ("nan" in text)


@pytest.mark.parametrize("reward", [np.nan, None, "x"])
def test_the_reward_of_a_bots_agent_is_checked_too(reward: Any) -> None:
    """It is part of the return of the team."""
    environments = [Meeting(NAMES, GOES_ON), Odd(2, with_value(1, "b", reward))]
    seated = Seated(environments, [("a",)], bots={"b": lambda: Bot("bot", lambda observation: 0)})
    seated.step()
    with pytest.raises(EnvironmentFailed, match=r"the reward .* agent `b` .*\(env 1, step 2"):
        seated.step()


@pytest.mark.parametrize("recipe", [Recipe("games:Game", agent_index=True), Recipe("games:Game", state=True)])
@pytest.mark.parametrize("when", [0, 2])
def test_an_observation_that_is_missing_beside_other_parts(recipe: Recipe, when: int) -> None:
    class Placed(Odd):
        def state(self) -> Any:
            return np.zeros(2, np.float32)

    with pytest.raises(EnvironmentFailed, match=r"an observation.* agent `b` \(env 1"):
        Seated([Placed(9, None), Placed(when, with_value(0, "b", None))], recipe=recipe).steps(2)


def test_a_state_that_raises() -> None:
    class Stateless(Meeting):
        def state(self) -> Any:
            if self.at:
                raise ValueError("lost")
            return np.zeros(2, np.float32)

    seated = Seated([Stateless(NAMES, GOES_ON)], recipe=Recipe("games:Game", state=True))
    with pytest.raises(EnvironmentFailed, match=r"games:Game raised ValueError: lost .* in state .*\(env 0, step 1"):
        seated.step()


def test_what_a_bot_raises() -> None:
    def fails(observation: Any) -> int:
        raise KeyError("plan")

    seated = Seated([Meeting(NAMES, GOES_ON)], [("a",)], bots={"b": lambda: Bot("careful", fails)})
    with pytest.raises(EnvironmentFailed, match="the policy `careful` raised KeyError: 'plan'"):
        seated.step()


def test_bots_are_made_for_each_environment_and_told_of_each_episode() -> None:
    made: list[Any] = []

    class Careful:
        def __init__(self) -> None:
            made.append(self)
            self.begun: list[int | None] = []

        def begin(self, seed: int | None) -> None:
            self.begun.append(seed)

        def __call__(self, observation: Any) -> int:
            return 2

    short = [Episode(NAMES, [Move("", {"b": 1.0}, terminates=NAMES)])]
    games = [Meeting(NAMES, short), Meeting(NAMES, short)]
    seated = Seated(games, [("a",)], bots={"b": lambda: bot_of("careful", Careful)})
    seated.step(1)
    seated.step(1)
    assert [one.begun for one in made] == [[0, None, None], [1, None, None]]
    assert games[0].log == [{"a": 1, "b": 2}] * 2
    assert [one.returns for one in seated.table.ended] == [{"a": 0.0, "b": 3.0}] * 4


def test_an_object_that_cannot_act_is_no_bot() -> None:
    with pytest.raises(EnvironmentFailed, match="the policy `p` is an object of type int that cannot be called"):
        bot_of("p", 3)


def test_agents_without_a_list_of_those_that_live() -> None:
    """Who has an observation acts next."""

    class Unlisted:
        def __init__(self, game: Meeting) -> None:
            self.game, self.possible_agents, self.reset = game, game.possible_agents, game.reset
            self.observation_space, self.action_space = game.observation_space, game.action_space

        def step(self, actions: Mapping[str, Any]) -> Any:
            observations, *rest = self.game.step(actions)
            return {agent: observations[agent] for agent in self.game.agents}, *rest

    episode = Episode(NAMES, [Move("", terminates=["a"]), Move("", {"b": 2.0}, terminates=["b"])])
    seated = Seated([Unlisted(Meeting(NAMES, [episode]))])
    (row,) = seated.step()
    assert (row.valid.tolist(), row.terminated.tolist()) == ([1, 1], [1, 0])
    (row,) = seated.step()
    assert (row.valid.tolist(), row.terminated.tolist()) == ([0, 1], [0, 1])


class Masked(Meeting):
    """Each agent has a mask, in its observation or in its info: after t moves agent i may take only action i + t."""

    def __init__(self, place: str) -> None:
        super().__init__(NAMES, [Episode(NAMES, [Move(""), Move("", {"a": 1.0}, truncates=NAMES)])])
        self.place = place

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        own = super().observation_space(agent)
        if self.place == "info":
            return own
        return spaces.Dict({"observation": own, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def mask(self, agent: str) -> Any:
        mask = np.zeros(3, np.int8)
        mask[(self.possible_agents.index(agent) + self.at) % 3] = 1
        return mask if self.agents else mask * 0  # no action is left at the end

    def observe(self, agent: str) -> Any:
        own = super().observe(agent)
        return own if self.place == "info" else {"observation": own, "action_mask": self.mask(agent)}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed)
        return observations, self.with_masks(infos)

    def step(self, actions: Mapping[str, Any]) -> Any:
        *results, infos = super().step(actions)
        return *results, self.with_masks(infos)

    def with_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
        return {agent: {**info, "action_mask": self.mask(agent)} for agent, info in infos.items()}


def test_a_padded_mask_is_refused() -> None:
    class Padded(Masked):
        def observation_space(self, agent: str) -> spaces.Space[Any]:
            own = super().observation_space(agent)
            return spaces.Dict({**own.spaces, "action_mask": spaces.MultiBinary(5)})  # type: ignore[attr-defined]

    for mask in (None, "action_mask"):
        with pytest.raises(EnvironmentFailed, match=r"has the shape \(5,\), and there are 3 actions") as caught:
            Seated([Padded("observation")], recipe=Recipe("games:Game", mask=mask))
        assert "without padding" in caught.value.hint


@pytest.mark.parametrize("place", ["observation", "info"])
def test_masks_of_each_agent(place: str) -> None:
    """By PettingZoo's convention a key of the observation; from the infos with env.action_mask = "info"."""
    seated = Seated([Masked(place)], recipe=Recipe("games:Game", mask="info" if place == "info" else None))
    mask = seated.spec.observation.mask
    assert mask is not None
    (row,) = seated.rows
    assert mask.view(row.observations).tolist() == [[1, 0, 0], [0, 1, 0]]
    seated.step([0, 1])
    assert mask.view(row.observations).tolist() == [[0, 1, 0], [0, 0, 1]]
    seated.step([1, 2])
    assert mask.view(row.observations).tolist() == [[1, 0, 0], [0, 1, 0]]  # of the next episode
    assert row.truncated.tolist() == [1, 1]
    assert mask.view(row.finals.observations[:2]).tolist() == [[1, 1, 1]] * 2  # no action follows


def test_a_mask_that_is_missing_in_an_info() -> None:
    class Forgets(Masked):
        def with_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
            found = super().with_masks(infos)
            if self.at:
                del found["b"]["action_mask"]
            return found

    seated = Seated([Masked("info"), Forgets("info")], recipe=Recipe("games:Game", mask="info"))
    with pytest.raises(EnvironmentFailed, match='agent `b` of `games:Game` has an info without "action_mask"'):
        seated.step([0, 1, 0, 1])


@pytest.mark.parametrize("recipe", [RECIPE, Recipe("games:Game", agent_index=True)])
@pytest.mark.parametrize("steps", [1, 2])
def test_what_is_no_dictionary_where_one_is_expected(recipe: Recipe, steps: int) -> None:
    """Also as the last observation of a truncated agent."""

    class Flat(Masked):
        def observe(self, agent: str) -> Any:
            return super().observe(agent) if self.at < steps or agent == "a" else np.zeros(3, np.float32)

    seated = Seated([Masked("observation"), Flat("observation")], recipe=recipe)
    if steps == 2:
        seated.step([0, 1, 0, 1])
    with pytest.raises(EnvironmentFailed, match=r"an observation without its .* agent `b` \(env 1"):
        seated.step([steps - 1, steps] * 2)


def test_a_mask_that_allows_nothing() -> None:
    class Stuck(Masked):
        def mask(self, agent: str) -> Any:
            return super().mask(agent) * (agent == "a" or not self.at)

    seated = Seated([Masked("observation"), Stuck("observation")])
    with pytest.raises(EnvironmentFailed, match=r"an action mask that allows no action for agent `b` \(env 1"):
        seated.step([0, 1, 0, 1])


def test_agents_see_their_position_and_the_state() -> None:
    class Placed(Meeting):
        def state(self) -> Any:
            return np.array([self.number, self.at], np.float32)

    episode = Episode(NAMES, [Move("", terminates=["a"]), Move("", truncates=["b"])])
    recipe = Recipe("games:Game", agent_index=True, state=True)
    seated = Seated([Placed(NAMES, [episode])], recipe=recipe)
    spec = seated.spec.observation
    parts = {part.name: part for part in spec.parts}
    assert sorted(parts) == ["agent", "observation", "state"]
    (row,) = seated.rows

    def seen() -> list[list[float]]:
        names = ("agent", "observation", "state")
        return np.concatenate([parts[name].view(row.observations) for name in names], 1).tolist()

    number = seated.table.environments[0].number  # the state's space is read after a reset
    assert seen() == [[1, 0, number, 0, 0, number, 0], [0, 1, number, 0, 1, number, 0]]
    seated.step()
    assert seen()[1] == [0, 1, number, 1, 1, number, 1]
    seated.step()
    assert seen() == [[1, 0, number + 1, 0, 0, number + 1, 0], [0, 1, number + 1, 0, 1, number + 1, 0]]
    final = row.finals.observations[: row.finals.count]
    assert parts["state"].view(final).tolist() == [[number, 2]]  # that of the ended episode
    assert row.final_index.tolist() == [-1, 0]


class TwoKinds(Meeting):
    """The speaker sees three numbers and says one of two words, the listener sees a pixel and moves by a number."""

    def __init__(self) -> None:
        names = ("speaker", "listener")
        super().__init__(names, [Episode(names, [Move("", {"listener": 1.0}), Move("", truncates=names)])])
        self.taken: list[Any] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 255, (1,), np.uint8) if agent == "listener" else super().observation_space(agent)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-2.0, 2.0, (2,), np.float64) if agent == "listener" else spaces.Discrete(2, start=5)

    def observe(self, agent: str) -> Any:
        return np.array([10 * self.number + self.at], np.uint8) if agent == "listener" else super().observe(agent)

    def step(self, actions: Mapping[str, Any]) -> Any:
        self.taken.append((int(actions["speaker"]), actions["listener"].tolist(), actions["listener"].dtype))
        return super().step(dict.fromkeys(actions, 0))


def test_two_seats_with_different_spaces() -> None:
    games = [TwoKinds(), TwoKinds()]
    seated = Seated(games, [("speaker",), ("listener",)])
    speaker, listener = seated.rows
    assert (speaker.observations.shape, listener.observations.dtype) == ((2, 3), np.uint8)
    seated.step([1, 0], [[0.5, -1.0], [1.0, 0.25]])
    assert [game.taken for game in games] == [[(6, [0.5, -1.0], np.float64)], [(5, [1.0, 0.25], np.float64)]]
    assert (speaker.rewards.tolist(), listener.rewards.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert (speaker.observations.tolist(), listener.observations.tolist()) == ([[0, 1, 0]] * 2, [[1]] * 2)
    seated.step()
    assert listener.finals.observations[:2].tolist() == [[2], [2]]
    assert speaker.finals.observations[:2].tolist() == [[0, 2, 0]] * 2
    assert listener.observations.tolist() == [[10], [10]]


def test_only_what_an_agent_sees_after_a_truncation_is_kept() -> None:
    episode = Episode(NAMES, [Move("", {"a": 1.0}, terminates=["a"], truncates=["b"])])
    seated = Seated([Meeting(NAMES, [episode])])
    (row,) = seated.step([2, 0])
    assert (row.terminated.tolist(), row.truncated.tolist()) == ([1, 0], [0, 1])
    assert (row.rewards.tolist(), row.episode_returns.tolist()) == ([3.0, 0.0], [3.0, 0.0])
    assert (row.final_index.tolist(), row.finals.count) == ([-1, 0], 1)
    assert row.finals.observations[0].tolist() == [0.0, 1.0, 1.0]
    assert row.observations.tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]


def test_agents_that_are_all_gone_without_a_flag_are_truncated() -> None:
    def empties(environment: Any, *results: Any) -> Any:
        environment.agents = []
        return results

    seated = Seated([Odd(2, empties)])
    seated.step()
    (row,) = seated.step()
    assert (row.terminated.tolist(), row.truncated.tolist()) == ([0, 0], [1, 1])
    assert row.finals.observations[:2].tolist() == [[0.0, 2.0, 0.0], [0.0, 2.0, 1.0]]
    assert row.observations.tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]]


def test_both_flags_are_a_termination() -> None:
    episode = Episode(NAMES, [Move("", terminates=NAMES, truncates=NAMES)])
    (row,) = Seated([Meeting(NAMES, [episode])]).step()
    assert (row.terminated.tolist(), row.truncated.tolist()) == ([1, 1], [0, 0])


@pytest.mark.parametrize(
    ("place", "last"),
    [
        ("info", np.zeros(3)),  # without a mask after the step of the end
        ("info", np.full(3, np.nan)),
        ("info", None),
        ("observation", {"observation": np.zeros(3), "action_mask": [0, 0, 0]}),
        ("observation", {"observation": np.zeros(3), "action_mask": [1, 1, 1]}),
        ("observation", None),
    ],
)
def test_what_keeps_the_dead_among_its_agents(place: str, last: Any) -> None:
    class Keeps(Masked):
        def observe(self, agent: str) -> Any:
            return last if agent in self.over else super().observe(agent)

        def step(self, actions: Mapping[str, Any]) -> Any:
            self.agents = [agent for agent in actions if agent not in self.over]
            results = super().step({agent: actions[agent] for agent in self.agents})
            self.over |= {agent for flags in results[2:4] for agent, ended in flags.items() if ended}
            self.agents = list(NAMES) if self.over < {*NAMES} else []
            zeros = dict.fromkeys(NAMES, 0.0)
            flags = {agent: agent in self.over for agent in NAMES}
            observations = {agent: self.observe(agent) for agent in NAMES}
            return observations, {**zeros, **results[1]}, flags, dict.fromkeys(NAMES, False), results[4]

        def begin(self, seed: int | None) -> Episode:
            self.over: set[str] = set()
            return super().begin(seed)

    episode = Episode(NAMES, [Move("", {"b": 1.0}, terminates=["a"]), Move(""), Move("", {"b": 4.0}, terminates=["b"])])
    game = Keeps(place)
    game.episodes = [episode]
    seated = Seated([game], recipe=Recipe("games:Game", mask="info" if place == "info" else None))
    rows = [[seated.step()[0].valid.tolist(), seated.rows[0].terminated.tolist()] for _ in range(4)]
    assert rows == [[[1, 1], [1, 0]], [[0, 1], [0, 0]], [[0, 1], [0, 1]], [[1, 1], [1, 0]]]


def test_rewards_after_the_end_count_in_returns_and_are_told() -> None:
    """The one who opens the door ends, and is paid when another reaches the goal."""

    class Pays(Meeting):
        def step(self, actions: Mapping[str, Any]) -> Any:
            observations, rewards, *rest = super().step(actions)
            return observations, {"a": 0.0, "z": 1.0, **rewards} | ({} if self.agents else {"a": 10.0}), *rest

    episode = Episode(NAMES, [Move("", terminates=["a"]), Move(""), Move("", {"b": 1.0}, terminates=["b"])])
    seated = Seated([Pays(NAMES, [episode])])
    seated.steps(2)
    assert seated.table.notices.warnings() == []
    (row,) = seated.step()
    assert (row.rewards.tolist(), row.valid.tolist()) == ([0.0, 1.0], [0, 1])
    assert seated.table.ended[0].returns == {"a": 10.0, "b": 1.0}
    (warning,) = seated.table.notices.warnings()
    assert (warning.kind, "`a` got the reward 10" in warning.text) == (LATE_REWARDS, True)


def test_a_reward_of_the_dead_must_be_a_number() -> None:
    class Pays(Meeting):
        def step(self, actions: Mapping[str, Any]) -> Any:
            observations, rewards, *rest = super().step(actions)
            return observations, {"a": None, **rewards}, *rest

    episode = Episode(NAMES, [Move("", terminates=["a"]), Move("", terminates=["b"])])
    seated = Seated([Pays(NAMES, [episode])])
    seated.step()
    with pytest.raises(EnvironmentFailed, match=r"the reward None, .* agent `a` \(env 0, step 2"):
        seated.step()


class Revives(Meeting):
    """Agents that end stand up in the same step, until the last move. falls: who ends in each step."""

    def __init__(self, falls: Sequence[str], last: Move | None = None) -> None:
        self.falls = falls
        names = tuple("abc")
        moves = [Move("", dict.fromkeys(names, 1.0), terminates=ended) for ended in falls]
        super().__init__(names, [Episode(names, [*moves, last or Move("", terminates=names)])])

    def step(self, actions: Mapping[str, Any]) -> Any:
        assert {*actions} == {*self.agents}
        results = super().step(actions)
        if self.at <= len(self.falls):
            self.agents = list(self.possible_agents)
        return results


def test_an_agent_that_is_born_again_in_the_step_in_which_it_ended_acts_in_the_next() -> None:
    seated = Seated([Revives(["b", "", "b", "ab", ""])], [tuple("abc")])
    rows = [[row.valid.tolist(), row.terminated.tolist()] for _ in range(6) for row in seated.step()]
    assert [valid for valid, _ in rows] == [[1, 1, 1]] * 6
    assert [ended for _, ended in rows] == [[0, 1, 0], [0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    (episode,) = seated.table.ended
    assert (episode.steps, episode.returns) == (6, {"a": 5.0, "b": 5.0, "c": 5.0})
    assert seated.table.environments[0].number == 1


def test_all_agents_may_be_born_again_at_once_but_not_for_ever() -> None:
    seated = Seated([Revives(["b", "", "abc", "", "abc", "abc", ""])], [tuple("abc")])
    seated.steps(5)
    assert not seated.table.ended  # b has shown that agents live on
    seated.step()
    assert [one.steps for one in seated.table.ended] == [6]  # nobody has, twice


def test_who_has_not_been_seen_to_live_on_is_reset() -> None:
    seated = Seated([Revives(["abc", ""])], [tuple("abc")])
    seated.steps(1)
    assert [one.steps for one in seated.table.ended] == [1]
    seated = Seated([Revives(["b", ""], Move("", truncates=tuple("abc")))], [tuple("abc")])
    seated.steps(3)
    assert [one.steps for one in seated.table.ended] == [3]


def test_agents_that_always_see_the_same_are_told() -> None:
    class Blind(Meeting):
        def observe(self, agent: str) -> Any:
            return super().observe("a")

    def told(*policies: Sequence[str], steps: int = 40, game: type = Blind, **options: Any) -> list[str]:
        seated = Seated([game(NAMES, GOES_ON) for _ in range(2)], policies, Recipe("games:Game", **options))
        seated.steps(steps)
        return [one.kind for one in seated.table.notices.warnings()]

    assert told(NAMES) == [AGENTS_ALIKE]
    assert (
        told(NAMES, steps=5) == told(["a"], ["b"]) == told(NAMES, game=Meeting) == told(NAMES, agent_index=True) == []
    )


class Rllib(Meeting):
    """Has the form of RLlib: flags of those that end, one for all, no rewards of 0, and `agents` never changes."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        self.agents = list(actions)
        observations, rewards, *flags, infos = super().step(actions)
        flags = [{agent: True for agent, flag in one.items() if flag} for one in flags]
        flags = [{**one, "__all__": bool(one) and not self.agents} for one in flags]
        self.agents = list(self.possible_agents)
        return observations, {agent: reward for agent, reward in rewards.items() if reward}, *flags, infos


def test_flags_and_rewards_in_the_form_of_rllib() -> None:
    moves = [Move("", {"b": 1.0}), Move("", terminates=["a"]), Move(""), Move("", {"b": 2.0}, truncates=["b"])]
    seated = Seated([Rllib(NAMES, [Episode(NAMES, moves)])])
    rows = [
        [one.tolist() for one in (row.valid, row.rewards, row.terminated, row.truncated)]
        for _ in range(4)
        for row in seated.step()
    ]
    assert rows[0] == [[1, 1], [0.0, 1.0], [0, 0], [0, 0]]
    assert rows[1] == [[1, 1], [0.0, 0.0], [1, 0], [0, 0]]
    assert rows[2] == [[0, 1], [0.0, 0.0], [0, 0], [0, 0]]
    assert rows[3] == [[0, 1], [0.0, 2.0], [0, 0], [0, 1]]
    assert [one.returns for one in seated.table.ended] == [{"a": 0.0, "b": 3.0}]


class Told(Meeting):
    """Every agent that ends has an info with the moves so far, and `won` if it is the last."""

    def step(self, actions: Mapping[str, Any]) -> Any:
        *results, infos = super().step(actions)
        for agent in infos:
            if "moves" in infos[agent] and not self.agents:
                infos[agent]["won"] = 1.0 + self.possible_agents.index(agent)
        return *results, infos


@pytest.mark.parametrize(
    ("ends", "values"),
    [
        (["ab"], [{"moves": 1.0, "won": 1.5}]),  # the mean of both
        (["a", "b"], [{"moves": 2.0, "won": 2.0}]),
        (["b", "", "a"], [{"moves": 3.0, "won": 1.0}]),
    ],
)
@pytest.mark.parametrize("policies", [(NAMES,), (("a",), ("b",)), (("a",),)])
def test_an_episode_has_one_value_of_info_whoever_is_there_at_its_end(
    ends: list[str], values: Any, policies: Sequence[Sequence[str]]
) -> None:
    game = Told(NAMES, [Episode(NAMES, [Move("", terminates=one) for one in ends])])
    bots = {"b": lambda: Bot("bot", lambda observation: 0)} if policies == (("a",),) else None
    recipe = Recipe("games:Game", info=("moves", "won"))
    seated = Seated([game], policies, recipe, bots)
    rows = [row for _ in range(2 * len(ends)) for row in seated.step()]
    assert all(len(one.infos) == len(policies) for one in seated.table.ended)
    if policies == (NAMES,) or ends == ["a", "b"]:
        assert [one.infos["a"] for one in seated.table.ended] == values * 2
    assert rows


class TestPettingZoo:
    """Environments that others wrote, with random actions."""

    def test_simple_tag(self) -> None:
        pytest.importorskip("pettingzoo")
        mpe2 = pytest.importorskip("mpe2.simple_tag_v3")
        environments = [mpe2.parallel_env(max_cycles=5) for _ in range(2)]
        agents = tuple(environments[0].possible_agents)
        seated = Seated(environments, [agents[:-1], agents[-1:]])
        generator = np.random.default_rng(0)
        rows = [seated.step(*(generator.integers(0, 5, row.rewards.shape) for row in seated.rows)) for _ in range(11)]
        assert all(row.valid.all() for row in rows[-1])
        assert [one.steps for one in seated.table.ended] == [5] * 4
        assert {*seated.table.ended[0].returns} == {*agents}
        seated.table.close()


def test_an_environment_that_has_played_its_episodes_is_neither_stepped_nor_reset() -> None:
    short = [Episode(NAMES, [Move("", {"a": 1.0}), Move("", terminates=NAMES)])]
    first, second = games = [Meeting(NAMES, short) for _ in range(2)]
    seated = Seated(games)
    seated.table.play([1, 2])
    seated.steps(3)
    assert seated.rows[0].valid.tolist() == [0, 0, 1, 1]
    assert seated.rows[0].rewards.tolist() == [0, 0, 1, 0]
    seated.steps(3)
    assert (len(first.log), len(second.log)) == (2, 4)
    assert (first.seeds, second.seeds) == ([0], [1, None])
