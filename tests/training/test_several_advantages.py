"""Advantages, returns and drawn targets of agents that act in turn, against sums over the own turns of each agent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from agent_games import Episode, Move, Row, TurnGame, turn_rows
from numpy.typing import NDArray
from small_tables import Table, table

from hive import _native
from hive.algorithms.batches.advantages import generalized_advantages, returns_by, vtrace_advantages
from hive.algorithms.batches.initial_errors import n_step_errors
from hive.algorithms.batches.rows import flat
from hive.experience import Replay, Rollout, replay_layout

NAMES = ("a", "b", "c")
EPISODES = [
    Episode(
        ("a", "b"),
        [
            Move("a", {"a": 1.0, "b": 0.5}),
            Move("b", {"a": -2.0}),
            Move("b", {"b": 1.0}, born=["c"]),
            Move("a", {"b": 0.25, "c": 3.0}),
            Move("c", {"a": 1.0}),
            Move("b", {"c": -1.0}, terminates=["a"]),
            Move("b", {"b": 1.0}),
            Move("c", {"c": 0.5, "b": 2.0}, truncates=["b"]),
            Move("c", {"c": 1.5}, terminates=["c"]),
        ],
    ),
    Episode(NAMES, [Move("c"), Move("a", {"c": 4.0}), Move("b", {"a": 1.0}), Move("a", truncates=NAMES)]),
]
DISCOUNT, LAMBDA = 0.5, 0.75


def collected(steps: int, rollouts: int) -> tuple[Table, list[Rollout]]:
    games = [TurnGame(NAMES, EPISODES), TurnGame(NAMES, EPISODES[::-1])]
    made = table(games, [NAMES], steps=steps)
    return made, made.collect(rollouts)[0]


def value_of(observation: Sequence[float]) -> float:
    """The value of what an agent sees: any number that differs from most others."""
    number, at, position = observation
    return math.sin(3.0 * number + 1.7 * at + 0.6 * position)


def values_of_rows(rollout: Rollout) -> NDArray[np.float32]:
    """As of a network, of all rows and final observations."""
    rows = [*rollout.observations.reshape(-1, 3), *rollout.final_observations]
    return np.array([value_of(row) for row in rows], np.float32)


def parts_of(made: Table, rollouts: Sequence[Rollout]) -> list[list[list[Row]]]:
    """The rows of the games, as the rollouts divide them: by rollout, then by column."""
    columns = [rows for game in made.environments for rows in turn_rows(game, NAMES).values()]
    left = [iter(rows) for rows in columns]
    parts = [[[next(left[b]) for _ in range(int(rollout.valid[:, b].sum()))] for b in range(6)] for rollout in rollouts]
    assert all(next(rest, None) is None for rest in left)
    return parts


def expected_advantages(rows: Sequence[Row], ratios: Sequence[float], gae_lambda: float) -> list[float]:
    """Of the rows of one agent in one rollout, each corrected by the ratios of those after it."""
    found, excess = [0.0] * len(rows), 0.0
    for t in reversed(range(len(rows))):
        row = rows[t]
        following = 0.0 if row.following is None else value_of(row.following)
        delta = row.reward + DISCOUNT * following - value_of(row.observation)
        going = not (row.terminated or row.truncated)
        found[t] = delta + DISCOUNT * gae_lambda * excess * going
        excess = min(1.0, ratios[t]) * found[t]
    return found


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 40])
def test_advantages_count_the_own_turns(steps: int) -> None:
    made, rollouts = collected(steps, 40 // steps)
    parts = parts_of(made, rollouts)
    assert sum(len(rows) for columns in parts for rows in columns) > 30
    for rollout, columns in zip(rollouts, parts, strict=True):
        values = values_of_rows(rollout)
        advantages, returns = generalized_advantages([rollout], values, DISCOUNT, LAMBDA)
        for b, rows in enumerate(columns):
            expected = expected_advantages(rows, [1.0] * len(rows), LAMBDA)
            own = advantages.reshape(-1, 6)[: len(rows), b]
            assert own == pytest.approx(expected, rel=1e-4, abs=1e-5)
            targets = [expected[t] + value_of(row.observation) for t, row in enumerate(rows)]
            assert returns.reshape(-1, 6)[: len(rows), b] == pytest.approx(targets, rel=1e-4, abs=1e-5)


def test_of_whole_episodes_they_are_the_discounted_rewards() -> None:
    """With gae_lambda = 1 and no truncation: r_0 + discount r_1 + ... of the agent's own turns."""
    made, (rollout,) = collected(40, 1)
    values = values_of_rows(rollout)
    _, returns = generalized_advantages([rollout], values, DISCOUNT, 1.0)
    rows = turn_rows(made.environments[0], NAMES)["c"]
    end = next(t for t, row in enumerate(rows) if row.terminated)
    expected = sum(DISCOUNT**t * row.reward for t, row in enumerate(rows[: end + 1]))
    assert returns.reshape(-1, 6)[0, 2] == pytest.approx(expected)


@pytest.mark.parametrize("steps", [2, 7, 40])
def test_vtrace_corrects_by_the_own_turns(steps: int) -> None:
    made, rollouts = collected(steps, 40 // steps)
    generator = np.random.default_rng(3)
    for rollout, columns in zip(rollouts, parts_of(made, rollouts), strict=True):
        log_ratios = generator.normal(0.0, 0.7, rollout.rewards.shape).astype(np.float32)
        values = values_of_rows(rollout)
        advantages, _ = vtrace_advantages([rollout], values, DISCOUNT, LAMBDA, flat([log_ratios]))
        for b, rows in enumerate(columns):
            expected = expected_advantages(rows, np.exp(log_ratios[: len(rows), b]).tolist(), LAMBDA)
            assert advantages.reshape(-1, 6)[: len(rows), b] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def expected_target(rows: Sequence[Row], t: int, n_step: int) -> tuple[float, float, tuple[float, ...] | None]:
    """The rewards of up to n own turns from the t-th on, the factor of the value after them, and what is seen there."""
    total, factor = 0.0, 1.0
    for row in rows[t : t + n_step]:
        total += factor * row.reward
        factor *= DISCOUNT
        if row.terminated or row.truncated:
            break
    return total, 0.0 if row.following is None else factor, row.following


@pytest.mark.parametrize("n_step", [1, 2, 3])
@pytest.mark.parametrize("steps", [2, 7, 40])
def test_n_step_returns_of_rollouts(steps: int, n_step: int) -> None:
    made, rollouts = collected(steps, 40 // steps)
    for rollout, columns in zip(rollouts, parts_of(made, rollouts), strict=True):
        options = {"discount": DISCOUNT, "n": n_step}
        _, returns = returns_by(_native.n_step_returns, [rollout], values_of_rows(rollout), **options)
        for b, rows in enumerate(columns):
            for t in range(len(rows)):
                total, factor, following = expected_target(rows, t, n_step)
                expected = total + (factor * value_of(following) if following else 0.0)
                assert returns.reshape(-1, 6)[t, b] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("steps", [1, 3, 7])
def test_targets_that_a_replay_memory_gathers(steps: int, n_step: int) -> None:
    """A target ends where its rollout has no further row of the agent, with the value of what it saw next."""
    made, rollouts = collected(steps, 40 // steps)
    layout = replay_layout(1, 100, 6, ((3,), "float32"), ((), "int64"))
    memory, written = Replay(layout.views(np.zeros(layout.bytes, np.uint8))), 0
    for rollout in rollouts:
        written = memory.append(0, written, rollout)
    parts, tried = parts_of(made, rollouts), 0
    for b in range(6):
        held = {number * steps + t: row for number, part in enumerate(parts) for t, row in enumerate(part[b])}
        for first, row in held.items():
            rows = list(itertools.takewhile(bool, (held.get(first + k) for k in range(n_step))))
            if first + n_step > written:
                continue
            batch = memory.gather(np.array([first * 6 + b]), n_step=n_step, discount=DISCOUNT)
            total, factor, following = expected_target([one for one in rows if one], 0, n_step)
            assert (tuple(batch.observations[0].tolist()), batch.actions[0]) == (row.observation, row.action)
            assert (batch.returns[0], batch.discounts[0]) == (pytest.approx(total), pytest.approx(factor))
            if following is not None:
                assert tuple(batch.next_observations[0].tolist()) == following
            tried += 1
    assert tried > 20


@pytest.mark.parametrize("n_step", [1, 2, 3])
@pytest.mark.parametrize("steps", [7, 12])
def test_first_errors_are_those_of_own_turns_or_unknown(steps: int, n_step: int) -> None:
    made, rollouts = collected(steps, 40 // steps)
    known = gaps = 0
    for rollout, columns in zip(rollouts, parts_of(made, rollouts), strict=True):
        values = values_of_rows(rollout)[: steps * 6].reshape(steps, 6, 1).repeat(3, -1)  # the same of all actions
        names = ("rewards", "terminated", "truncated", "valid", "actions")
        errors = n_step_errors({name: getattr(rollout, name) for name in names}, values, n_step, DISCOUNT)
        for b, rows in enumerate(columns):
            gaps += len(rows) < steps and not (rows[-1].terminated or rows[-1].truncated)
            assert np.isnan(errors[len(rows) :, b]).all()
            for t, row in enumerate(rows):
                part = rows[t : t + n_step]
                end = next((one for one in part if one.terminated or one.truncated), None)
                if np.isnan(errors[t, b]):
                    assert end.truncated if end else len(part) < n_step or t + n_step == steps
                    continue
                total, factor, following = expected_target(rows, t, n_step)
                target = total + (factor * value_of(following) if following else 0.0)
                assert errors[t, b] == pytest.approx(abs(target - value_of(row.observation)), rel=1e-4, abs=1e-5)
                known += 1
    assert min(known - 10, gaps) > 0
