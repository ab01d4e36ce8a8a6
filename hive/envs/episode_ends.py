"""Judges which flag ends the episodes of an environment: `truncated` at failures, `terminated` at a time limit.

A truncated episode counts as interrupted: the value of its last observation is added to its return. So failures that
are returned as truncated cost nothing, and a limit that is returned as terminated makes the value of a state depend on
a time that observations do not show. What random actions did is suspicious if all episodes ended by one flag, and

    truncated    after numbers of steps that vary, although no declared limit explains them
    terminated   after always the same number of steps, with a reward like all others

Tasks of these forms exist: data that end, games of so many moves. So episodes are played that begin with one seed and
differ in their actions. Ends that depend on the actions are no limits. An end that does not is a limit unless the
actions have no effect on what follows, or the observations tell the time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hive.envs.random_play import Player, play
from hive.records.run_warnings import FAILURES_TRUNCATED, LIMIT_TERMINATED

SEEDS = range(4)  # of the episodes that are compared
FIRST, AGAIN, OTHER = 0, 0, 1  # seeds of their actions
LONGER = 10  # times the longest episode so far, after which one is given up
LEAST_LIMIT = 20  # steps: shorter episodes that are always equally long are those of bandits and card games
MOST_NUMBERS = 256  # numbers of an observation; larger ones are pictures, which may show a clock
TELLS = 0.9  # share of the variance of the time that a linear function of observations explains where they tell it
SAME = 0.01  # share of a number's variance that is left between episodes at the same time where it is a clock


class EndsWarning(NamedTuple):
    """Why the flags are probably wrong, and what to do: as of `hive.records.run_warnings.RunWarning`."""

    kind: str
    cause: str
    advice: str


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode. length: negative if it was truncated. observations: float64 [n, numbers]. rewards: [n]."""

    length: int
    observations: NDArray[np.float64]
    rewards: NDArray[np.float64]

    def equals(self, other: PlayedEpisode) -> bool:
        """Return whether both are the same, step by step."""
        same = self.length == other.length
        return same and all(map(np.array_equal, (self.observations, self.rewards), (other.observations, other.rewards)))


def judge_ends(player: Player, ends: Sequence[int], limit: int | None, limit_s: float) -> EndsWarning | None:
    """Return what is probably wrong with the flags of one environment.

    ends: the lengths of its episodes, negative where they were truncated. limit: the declared one. limit_s: maximum
    duration of the episodes that are compared; there are none if nothing is suspicious. Raises EnvironmentFailed.
    """
    lengths = {abs(end) for end in ends}
    all_truncated, all_terminated = all(end < 0 for end in ends), all(end > 0 for end in ends)
    played = _Play(player, LONGER * max(lengths, default=0), time.monotonic() + limit_s)
    if ends and all_truncated and any(length != limit for length in lengths) and (len(ends) == 1 or len(lengths) > 1):
        return _failures(played, ends)
    seen = player.vector.observation
    is_read = all(one.dtype == "float32" for one in seen.inputs) and seen.numbers_each <= MOST_NUMBERS
    if all_terminated and len(lengths) == 1 and min(lengths) >= LEAST_LIMIT and is_read:
        return _limit(played, min(lengths), len(ends))
    return None


def _failures(played: _Play, ends: Sequence[int]) -> EndsWarning | None:
    """Judge episodes that were all truncated."""
    depend = False
    for seed in SEEDS:
        first, again, other = (played(seed, actions, keeps=False) for actions in (FIRST, AGAIN, OTHER))
        if first is None or again is None or other is None:
            break
        if first.length != again.length or max(first.length, other.length) > 0:
            return None  # by chance, or one has terminated
        depend |= first.length != other.length
    if not depend:
        return None
    lengths = [-end for end in ends]
    among = f"after {min(lengths):,} to {max(lengths):,} steps" if len(ends) > 1 else f"after {lengths[0]:,} steps"
    cause = (
        f"no episode terminated, and {len(ends):,} were truncated {among}, which depends on the actions: truncated "
        "means interrupted, so the value of the last observation is added, and failing costs nothing"
    )
    advice = "let `step` return terminated where the task has failed or is solved, and truncated only at a time limit"
    return EndsWarning(FAILURES_TRUNCATED, cause, advice)


def _limit(episode: _Play, limit: int, count: int) -> EndsWarning | None:
    """Judge episodes that all terminated after `limit` steps."""
    played: list[PlayedEpisode] = []
    has_effect = False
    for seed in SEEDS:
        first, again, other = (episode(seed, actions) for actions in (FIRST, AGAIN, OTHER))
        if first is None or again is None or other is None:
            break
        if not first.equals(again) or {first.length, other.length} != {limit}:
            return None
        played += [first, other]
        has_effect |= not np.array_equal(first.observations, other.observations)
    if len(played) < 4 or not has_effect or _ends_pay(played) or _tells_time(played):
        return None
    cause = (
        f"{count + len(played):,} episodes terminated after exactly {limit:,} steps, whatever the actions were, with a "
        "reward like all others: this looks like a time limit, and terminated means that nothing follows, so the same "
        "observation is worth less the later it comes"
    )
    advice = "let `step` return truncated at a time limit, or set env.options.max_episode_steps instead of it"
    return EndsWarning(LIMIT_TERMINATED, cause, advice)


def _ends_pay(played: Sequence[PlayedEpisode]) -> bool:
    """Return whether last rewards are others than those before them."""
    before = np.concatenate([one.rewards[:-1] for one in played])
    last = np.array([one.rewards[-1] for one in played])
    return bool((last < before.min()).any() or (last > before.max()).any())


def _tells_time(played: Sequence[PlayedEpisode]) -> bool:
    """Return whether observations tell the time: one of their numbers, or a linear function of all of them."""
    seen = np.stack([one.observations for one in played])  # [episodes, steps, numbers]
    whole = seen.var((0, 1))
    if ((whole > 0) & (seen.var(0).mean(0) < SAME * whole)).any():
        return True
    scaled = np.where(whole > 0, (seen - seen.mean((0, 1))) / np.sqrt(np.where(whole > 0, whole, 1.0)), 0.0)
    features = np.concatenate([scaled, np.ones((*scaled.shape[:2], 1))], axis=2)
    steps, half = np.arange(seen.shape[1], dtype=np.float64), len(played) // 2
    known, new = features[:half].reshape(-1, features.shape[2]), features[half:]
    weights = np.linalg.lstsq(known, np.tile(steps, half), rcond=1e-6)[0]
    error = float(((new @ weights - steps) ** 2).mean())
    return error < (1.0 - TELLS) * float(steps.var())


class _Play:
    """Plays single episodes of at most `most` steps until `end_s`."""

    def __init__(self, player: Player, most: int, end_s: float) -> None:
        self._player = player
        self._most = most
        self._end_s = end_s

    def __call__(self, seed: int, actions: int, *, keeps: bool = True) -> PlayedEpisode | None:
        """Play an episode; None if it does not end in time. keeps: whether its observations are."""
        row, observation = self._player.row, self._player.vector.observation
        seen: list[NDArray[Any]] = []
        rewards: list[float] = []
        for number in play([self._player], [seed], actions=actions, steps=self._most):
            if number:
                rewards.append(float(row.rewards[0]))
                if length := int(row.episode_lengths[0]):
                    return PlayedEpisode(-length if row.truncated[0] else length, _rows(seen), np.array(rewards))
            if keeps:
                seen.append(observation.numbers(row.observations).reshape(-1).astype(np.float64))
            if time.monotonic() >= self._end_s:
                break
        return None


def _rows(seen: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.stack(seen) if seen else np.zeros((0, 0))
