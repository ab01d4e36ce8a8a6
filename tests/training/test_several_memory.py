"""Policies that remember, of agents that act in turn: training computes what acting had, whatever a rollout cuts.

If a state or an earlier frame were of another turn, agent or episode, the probabilities of the actions would differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from agent_games import Episode, Meeting, Move, TurnGame
from small_tables import Table, column_rows, table

from hive.algorithms.batches.rows import flat, input_rows, network_input, row_counts
from hive.algorithms.losses.actor_critic import acted_rows
from hive.envs.agents.bots import Bot
from hive.experience import Rollout

NAMES = ("a", "b", "c")
LONG = Episode(
    NAMES,
    [
        *(Move(agent) for agent in "abacbaabc"),
        Move("a", truncates=["a"]),
        *(Move(agent) for agent in "bccbcb"),
        Move("c", terminates=["b"]),
        Move("c"),
        Move("c", terminates=["c"]),
    ],
)
BORN = Episode(
    ("b",), [Move("b", born=["a"]), *(Move(agent) for agent in "abab"), Move("b", terminates=["b"], truncates=["a"])]
)
MEMORY: dict[str, Any] = {"network__memory": '"lstm"', "network__memory_size": 6}
STACK: dict[str, Any] = {"env__frame_stack": 3}
KINDS: dict[str, dict[str, Any]] = {"lstm": MEMORY, "stacked": STACK, "both": {**MEMORY, **STACK}}
GAIN = {"network__policy_gain": 3.0}  # with the usual small weights actions hardly depend on what is remembered


class Noisy:
    """Makes what is seen small enough, and different in every turn."""

    def observe(self, agent: str) -> Any:
        position = self.possible_agents.index(agent)  # type: ignore[attr-defined]
        return np.sin(np.float32([3.0 * self.number, 1.7 * self.at + position, position]))  # type: ignore[attr-defined]


class NoisyTurns(Noisy, TurnGame):
    pass


class NoisyMeeting(Noisy, Meeting):
    pass


def turn_table(kind: str, steps: int, learning: Sequence[str] = NAMES) -> Table:
    games = [NoisyTurns(NAMES, [LONG, BORN]), NoisyTurns(NAMES, [BORN, LONG], deads="last")]
    bots = {name: lambda: Bot("bot", lambda observation: 1) for name in NAMES if name not in learning}
    return table(games, [learning], steps=steps, bots=bots, log_probs=True, **KINDS[kind], **GAIN)


def largest_change(made: Table, rollouts: Sequence[Rollout], policy: int = 0) -> float:
    """Between the log probabilities of the actions when they were taken and those that training computes."""
    network, distribution = made.collector.members[policy].policy, made.blueprints[policy].distribution
    with torch.no_grad():
        outputs = network(network_input(rollouts, input_rows(rollouts)))[0]
    actions = torch.from_numpy(flat([rollout.actions for rollout in rollouts]))
    now = distribution.log_prob(acted_rows(outputs, row_counts(rollouts)), actions).numpy()
    valid = flat([rollout.valid for rollout in rollouts]) != 0
    return float(np.abs(now - flat([rollout.log_probs for rollout in rollouts]))[valid].max())


@pytest.mark.rotates
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 24])
@pytest.mark.parametrize("learning", [NAMES, ("b",), ("a", "c")])
def test_training_computes_the_probabilities_that_acting_had(kind: str, steps: int, learning: Sequence[str]) -> None:
    made = turn_table(kind, steps, learning)
    (rollouts,) = made.collect(max(2, 24 // steps))
    for rollout in rollouts:
        if rollout.samples:
            assert largest_change(made, [rollout]) < 1e-5


def test_a_state_is_that_before_the_action_that_waits() -> None:
    """The last action of a column has no result yet: the next rollout begins with it, and with what preceded it."""
    made = turn_table("lstm", 3)
    (rollouts,) = made.collect(8)
    carried = changed = 0
    for rollout in rollouts[1:]:
        assert rollout.state is not None
        carried += int((rollout.state.any(1) & (rollout.valid[0] != 0)).sum())
        kept = rollout.state.copy()
        rollout.state[:] = 0.0
        changed += largest_change(made, [rollout]) > 1e-3
        rollout.state[:] = kept
    assert min(carried, changed) > 3


@pytest.mark.parametrize("steps", [1, 3])
def test_memory_does_not_depend_on_where_rollouts_end(steps: int) -> None:
    """Where the actions are the same, so are their probabilities in one long rollout: these games go on as they do."""
    ((whole,),) = turn_table("both", 30).collect(1)
    (rollouts,) = turn_table("both", steps).collect(12 // steps)
    same = 0
    for column in range(6):
        pairs = zip(column_rows(rollouts, column), column_rows([whole], column), strict=False)
        found = np.concatenate([one.log_probs[one.valid[:, column] != 0, column] for one in rollouts])
        for t, (cut, long) in enumerate(pairs):
            assert cut.observation == long.observation
            if cut.action == long.action:
                assert found[t] == pytest.approx(whole.log_probs[t, column], abs=1e-5)
                same += 1
    assert same > 10


@pytest.mark.parametrize("kind", KINDS)
def test_agents_that_act_at_once_and_are_born_and_die(kind: str) -> None:
    steps = [Move("", born=["c"]), Move(""), Move("", truncates=["a"]), Move("", terminates=["c"]), Move("")]
    episode = Episode(("a", "b"), [*steps, Move("", terminates=["b"])])
    late = Episode(("b", "c"), [Move(""), Move("", born=["a"]), Move("", terminates=["b"]), Move("", truncates="ac")])
    games = [NoisyMeeting(NAMES, [episode, late]), NoisyMeeting(NAMES, [late])]
    policies = [["a", "c"], ["b"]]
    made = table(games, policies, steps=7, log_probs=True, **KINDS[kind], **GAIN)
    for number, rollouts in enumerate(made.collect(3)):
        for part in (*([rollout] for rollout in rollouts), rollouts):
            assert largest_change(made, part, number) < 1e-5
