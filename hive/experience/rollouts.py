"""Rollouts: T steps of B environments in one slot of shared memory.

    header              [8] int64             the fields that HEADER names
    observations        [T+1, B, ...]         raw; row `length` is row 0 of the next rollout
    actions             [T, B, ...]
    log_probs           [T, B] float32        log pi(a|s) of the behaviour policy, if the algorithm requires it
    rewards             [T, B] float32
    terminated          [T, B] uint8          the episode ended: no reward follows
    truncated           [T, B] uint8          the episode was interrupted: bootstrap from its final observation
    valid               [T, B] uint8          0: a step that only reset the environment; no loss, no return, no count
    final_index         [T, B] int32          where truncated: index into `final_observations`, else -1
    episode_returns     [T, B] float32        return of the episode that ended in this step, else 0
    episode_lengths     [T, B] int32          its number of steps, else 0
    infos               [T, B, K] float32     chosen values of `info` where an episode ended, and last how it did
                                              (EPISODE_END): its length, negative where truncated; only if K > 0
    discounted          [T, B] float64        discounted sum of the episode's rewards so far, if rewards are normalized
    history             [k-1, B, ...]         with env.frame_stack = k: the observations before row 0, oldest first;
                                              zeros where the episode had not begun
    errors              [T, B] float32        with algorithm.initial_errors: absolute TD errors by the behaviour policy;
                                              NaN where the rollout does not contain what they require
    state               [B, S] float32        state of a recurrent policy before row 0; zeros where an episode begins
    final_observations  [T B, ...]            the true last observations of truncated episodes: the first `finals` rows

The header holds the version of the behaviour policy, the collector (`source`), the rollout's number (`sequence`) and
whether the environments were reset just before it (`begins`), so that row 0 does not continue the rollout before.
`env_steps` is the number of environment steps of a rollout whose rows belong to several agents of each environment; 0:
that of valid rows.

A rollout is shorter than T (`length`) only when its round was cut short (`collection.fraction_workers` below 1). Every
step may truncate every episode. Few do, so final observations are packed from the front and lie last: pages behind the
most that a slot ever held are never touched and take no memory (`hive.runtime.memory.segments`, *packed*).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.runtime import Layout, Packed

HEADER = ("version", "length", "finals", "source", "sequence", "begins", "env_steps")
VERSION, LENGTH, FINALS, SOURCE, SEQUENCE, BEGINS, ENV_STEPS = range(len(HEADER))
HEADER_WORDS = 8
EPISODE_END = "episode end"  # the last of a run's values of episodes: the length, negative if it was truncated


def expected_finals(steps: int, envs: int, max_episode_steps: int | None) -> int:
    """Return the number of truncations that a rollout is expected to have at most: what the time limit can cause.

    Without a declared time limit it is one per environment.
    """
    per_env = -(-steps // max_episode_steps) if max_episode_steps else 1
    return envs * min(per_env, steps)


def rollout_layout(
    steps: int,
    envs: int,
    observation: tuple[tuple[int, ...], str],
    action: tuple[tuple[int, ...], str],
    finals: int = 0,
    discounted: bool = False,
    infos: int = 0,
    state: int = 0,
    stack: int = 1,
    errors: bool = False,
) -> Layout:
    """Return the layout of rollouts of `steps` steps (T) of `envs` environments (B).

    `observation` and `action` are the (shape, dtype) of one environment. `finals` is the number of final observations
    that is expected (`expected_finals`); there is room for one of every step. `infos` is the number K of values of
    an episode, `state` the width S of a recurrent state, 0 for none, and `stack` the number k of observations that the
    policy sees.
    """
    (observation_shape, observation_dtype), (action_shape, action_dtype) = observation, action
    per_step = (steps, envs)
    return Layout(
        {
            "header": ("int64", (HEADER_WORDS,)),
            "observations": (observation_dtype, (steps + 1, envs, *observation_shape)),
            "actions": (action_dtype, (*per_step, *action_shape)),
            "log_probs": ("float32", per_step),
            "rewards": ("float32", per_step),
            "terminated": ("uint8", per_step),
            "truncated": ("uint8", per_step),
            "valid": ("uint8", per_step),
            "final_index": ("int32", per_step),
            "episode_returns": ("float32", per_step),
            "episode_lengths": ("int32", per_step),
            **({"infos": ("float32", (*per_step, infos))} if infos else {}),
            **({"errors": ("float32", per_step)} if errors else {}),
            **({"discounted": ("float64", per_step)} if discounted else {}),
            **({"history": (observation_dtype, (stack - 1, envs, *observation_shape))} if stack > 1 else {}),
            **({"state": ("float32", (envs, state))} if state else {}),
            "final_observations": (observation_dtype, (steps * envs, *observation_shape)),
        },
        Packed("header", FINALS, finals),
    )


def check_finals(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether the final observations are as many as the header and `final_index` say, and no index is beyond."""
    header = arrays["header"]
    length, finals = header.item(LENGTH), header.item(FINALS)
    index = arrays["final_index"]
    if not 0 <= length <= len(index):
        return False
    stored = index[:length][index[:length] >= 0]
    return finals == len(stored) == len(arrays["final_observations"]) and bool((stored < finals).all())


def steps_in(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return `Rollout(arrays).env_steps` without building a Rollout."""
    counted = arrays["header"].item(ENV_STEPS)
    return counted if counted > 0 else samples_in(arrays)


def samples_in(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return `Rollout(arrays).samples` without building a Rollout."""
    return int(np.count_nonzero(arrays["valid"][: arrays["header"].item(LENGTH)]))


class Rollout:
    """The arrays of a rollout of T steps of B environments, cut to its length without copying. T is `length`.

    observations [T+1, B, ...], actions [T, B, ...]: as stored. log_probs, rewards, episode_returns: float32 [T, B].
    terminated, truncated, valid: uint8 [T, B], 0 or 1. episode_lengths: int32 [T, B], in steps. final_index: int32
    [T, B], where truncated the row of `final_observations` [F, ...], else -1. None where the run has no such array:
    infos float32 [T, B, K], discounted float64 [T, B], errors float32 [T, B], history [k-1, B, ...], state float32
    [B, S]. version: of the policy that acted. source, sequence: the collector, and its number of the rollout. begins:
    whether the environments were reset just before it. progress: the share of the run that is done, from 0 to 1.
    run_steps: environment steps of full rounds that are done, this one included.

    rounds: rollouts that one collector makes in the whole run, for `progress`; infinite if the run has no end.
    start: the number from which they are counted, not always whole (`Blueprint.schedule_start`). round_steps:
    environment steps of a full round, for `run_steps`; 0 if there are no rounds.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]],
        rounds: float = math.inf,
        start: float = 0.0,
        round_steps: int = 0,
    ) -> None:
        header = arrays["header"]
        self.version = int(header[VERSION])
        self.source, self.sequence = int(header[SOURCE]), int(header[SEQUENCE])
        self.begins = bool(header[BEGINS])
        self._env_steps = int(header[ENV_STEPS])
        # The share of the run that is done with this rollout. It follows from the rollout's number, not from a clock or
        # a counter of steps, so that a resumed run repeats it exactly.
        done = self.sequence + 1 - start
        self.progress = min(1.0, done / rounds)
        self.run_steps = done * round_steps
        self.length = length = int(header[LENGTH])
        self.observations = arrays["observations"][: length + 1]
        self.actions = arrays["actions"][:length]
        self.log_probs = arrays["log_probs"][:length]
        self.rewards = arrays["rewards"][:length]
        self.terminated = arrays["terminated"][:length]
        self.truncated = arrays["truncated"][:length]
        self.valid = arrays["valid"][:length]
        self.final_index = arrays["final_index"][:length]
        self.final_observations = arrays["final_observations"][: int(header[FINALS])]
        self.episode_returns = arrays["episode_returns"][:length]
        self.episode_lengths = arrays["episode_lengths"][:length]
        self.infos = arrays["infos"][:length] if "infos" in arrays else None
        self.discounted = arrays["discounted"][:length] if "discounted" in arrays else None
        self.errors = arrays["errors"][:length] if "errors" in arrays else None
        self.history = arrays.get("history")
        self.state = arrays.get("state")
        self.lagged = False
        """Whether an older policy than that of the round's first gradient made it."""
        self.novelty: NDArray[np.float32] | None = None
        """[T, B]: that of each step's next observation, computed in the gradient worker; None without novelty."""

    @staticmethod
    def write_header(
        arrays: Mapping[str, NDArray[Any]],
        version: int,
        length: int,
        finals: int,
        source: int,
        sequence: int,
        begins: bool = False,
        env_steps: int = 0,
    ) -> None:
        """Write the header of a rollout, once its other arrays are written; for the words see the module."""
        header = arrays["header"]
        header[VERSION], header[LENGTH], header[FINALS] = version, length, finals
        header[SOURCE], header[SEQUENCE], header[BEGINS], header[ENV_STEPS] = source, sequence, begins, env_steps

    @property
    def samples(self) -> int:
        """The number of valid steps of all environments."""
        return int(np.count_nonzero(self.valid))

    @property
    def env_steps(self) -> int:
        """The number of environment steps: valid steps, but one for all agents of an environment that act at once."""
        return self._env_steps if self._env_steps > 0 else self.samples

    def starts(self) -> NDArray[np.bool_]:
        """Return which rows are the first of an episode, bool [T+1, B]. Row 0 never is: `state` is zeros there.

        A step that only resets its environment, and its row, count as an episode of their own.
        """
        starts = np.zeros((self.length + 1, self.rewards.shape[1]), np.bool_)
        starts[1:] = (self.terminated != 0) | (self.truncated != 0) | (self.valid == 0)
        return starts

    def episodes(self) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Return (returns float32, lengths int32) of the N episodes that ended, [N] each, by step, then environment."""
        ended = self.episode_lengths > 0
        return self.episode_returns[ended], self.episode_lengths[ended]

    def episode_columns(self) -> NDArray[np.int32]:
        """Return the columns of these episodes, [N] int32, counted over the whole run: source * B + column."""
        column = np.nonzero(self.episode_lengths > 0)[1]
        numbered: NDArray[np.int32] = (self.source * self.episode_lengths.shape[1] + column).astype(np.int32)
        return numbered

    def episode_infos(self) -> NDArray[np.float32]:
        """Return the chosen values of `info` of these episodes, [N, K] float32; NaN where an episode had none."""
        if self.infos is None:
            return np.zeros((int(np.count_nonzero(self.episode_lengths)), 0), np.float32)
        return self.infos[self.episode_lengths > 0]
