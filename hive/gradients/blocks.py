"""Gradients on their way from a gradient worker to the learner: one slot each.

    header            [8] int64                      what HEADER names
    moments           [3] float64                    count, sum and sum of squares of advantages, where asked for
    gradient          [parameter_elements] float32   the flat gradient of the mean loss over `samples`; compressed, the
                                                     fields of its codec stand here (hive.gradients.codecs)
    mask              [parameters] uint8             0: this parameter had no gradient; its range is zero
    statistics        [n] float64                    means over the samples, in the order the algorithm names them
    episode_returns   [E] float32                    of the episodes that ended in these rollouts
    episode_lengths   [E] int32
    observed          [1 + 2 n] float64              where observations are normalised: count, means and sums of squared
                                                     distances of a round's (hive.networks.normalization)

The header says on which state version it was made, how many samples it is the mean of, how many environment steps and
rollouts the learner is to count with it (a round's are counted once, however many gradients it is made into), which
version of the policy acted (the oldest), its own number, and what in it is not finite, if anything: such a gradient is
never applied. A gradient of zero samples weighs nothing. `GradAccumulator.adopt` takes a slot for its reduction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.gradients.codecs import PLAIN, Codec
from hive.runtime import Layout

__all__ = [
    "CAUSE",
    "CAUSES",
    "ENV_STEPS",
    "EPISODES",
    "POLICY",
    "ROLLOUTS",
    "SAMPLES",
    "SEQUENCE",
    "VERSION",
    "clear",
    "gradient_layout",
    "put_episodes",
]

HEADER = ("version", "samples", "episodes", "env_steps", "rollouts", "policy", "sequence", "cause")
VERSION, SAMPLES, EPISODES, ENV_STEPS, ROLLOUTS, POLICY, SEQUENCE, CAUSE = range(len(HEADER))
CAUSES = ("", "observation", "reward", "weight", "loss", "gradient")  # what was not finite, by `cause` in the header
HEADER_WORDS = 8

Arrays = Mapping[str, NDArray[Any]]


def gradient_layout(
    parameter_elements: int,
    parameters: int,
    statistics: int,
    episodes: int,
    codec: Codec = PLAIN,
    observed: int = 0,
    rewarded: int = 0,
) -> Layout:
    """The layout of one gradient slot; `episodes` is the most that can end in the rollouts it is made of.

    observed, rewarded: the length of the Moments of observations and of discounted rewards, 0 for none.
    """
    return Layout(
        {
            "header": ("int64", (HEADER_WORDS,)),
            "moments": ("float64", (3,)),
            **codec.fields(parameter_elements),
            "mask": ("uint8", (parameters,)),
            "statistics": ("float64", (max(statistics, 1),)),
            "episode_returns": ("float32", (episodes,)),
            "episode_lengths": ("int32", (episodes,)),
            **({"observed": ("float64", (observed,))} if observed else {}),
            **({"rewarded": ("float64", (rewarded,))} if rewarded else {}),
        }
    )


def clear(arrays: Arrays, version: int, sequence: int = 0) -> None:
    """Makes the slot gradient `sequence` of its worker, of zero samples."""
    arrays["header"][:] = 0
    arrays["header"][SEQUENCE] = sequence
    arrays["header"][VERSION] = version
    arrays["header"][POLICY] = -1
    arrays["moments"][:] = 0.0
    arrays["mask"][:] = 0
    arrays["statistics"][:] = 0.0
    for name in ("observed", "rewarded"):
        if name in arrays:
            arrays[name][:] = 0.0


def put_episodes(arrays: Arrays, episodes: Sequence[tuple[NDArray[np.float32], NDArray[np.int32]]]) -> None:
    """Appends finished episodes, in the order given."""
    count = 0
    for returns, lengths in episodes:
        arrays["episode_returns"][count : count + len(returns)] = returns
        arrays["episode_lengths"][count : count + len(lengths)] = lengths
        count += len(returns)
    arrays["header"][EPISODES] = count
