"""The slots in which gradients travel from a gradient worker to the learner, one gradient each.

    header            [8] int64                      the words of HEADER, see below
    moments           [3] float64                    count, sum and sum of squares of advantages, if requested
    norm              [1] float64                    that of the gradient before compression, which is then finite;
                                                     0: the learner computes it and looks for NaN and infinity
    gradient          [parameter_elements] float32   the flat gradient of the mean loss over `samples`; a compressed
                                                     slot has the fields of its codec here (hive.gradients.codecs)
    mask              [parameters] uint8             0: this parameter had no gradient; its range is zero
    statistics        [n] float64                    means over the samples, in the order the algorithm names them
    episode_returns   [E] float32                    returns of the episodes that ended in these rollouts
    episode_lengths   [E] int32                      their lengths, in environment steps
    episode_infos     [E, K] float32                 only if K > 0: their values, as `infos` of a rollout
    episode_columns   [E] int32                      only if episodes are listed: their columns, source * B + column
    observed          [1 + 2 n] float64              only if observations are normalized: count, means and sums of
                                                     squared distances of a round's (hive.networks.rows.normalization)
    errors            [N] float32                    only with a replay memory: absolute TD errors of the rows of its
                                                     plan, in order; NaN: this gradient computes none
    clipped           [4] float64                    only if rewards are normalized: those of a round, the clipped ones,
                                                     the sizes of the others, and of these before they were clipped
    rewarded, novelty [3] float64                    only if rewards are normalized, or with novelty: those of the
                                                     discounted rewards and of the novelties

The words of the header:

    version      the state version on which the gradient was computed
    samples      how many samples the gradient is the mean of; with 0 it has no weight
    episodes     how many entries of episode_returns and episode_lengths are in use
    env_steps, rollouts   what the learner adds to its counters; one gradient of a round carries both, the others 0
    policy       the oldest version of the policy that acted in the rollouts
    sequence     the number of the gradient among those of its worker
    cause        index into CAUSES; a gradient with a cause is never applied

`GradAccumulator.adopt` adds a slot to a reduction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hive.gradients.codecs import PLAIN, Codec
from hive.runtime import Layout
from hive.runtime.memory.segments import Arrays

HEADER = ("version", "samples", "episodes", "env_steps", "rollouts", "policy", "sequence", "cause")
VERSION, SAMPLES, EPISODES, ENV_STEPS, ROLLOUTS, POLICY, SEQUENCE, CAUSE = range(len(HEADER))
CAUSES = ("", "observation", "reward", "weight", "loss", "gradient")  # names of the non-finite quantity; "": none
HEADER_WORDS = 8

NORMALIZED = ("observed", "rewarded", "novelty", "clipped")  # fields for what normalizers need and do, see above


def gradient_layout(
    parameter_elements: int,
    parameters: int,
    statistics: int,
    episodes: int,
    codec: Codec = PLAIN,
    infos: int = 0,
    normalized: Mapping[str, int] | None = None,
    errors: int = 0,
    columns: bool = False,
) -> Layout:
    """Return the layout of one gradient slot.

    parameter_elements: the length of a flat gradient; parameters: the number of parameters; statistics: of statistics.
    episodes: the greatest number of episodes that can end in the rollouts of one gradient.
    infos: the number of values of `info` for each episode; 0: no such field.
    normalized: which of the fields NORMALIZED there are, and their lengths.
    errors: the number of rows of a replay memory that a gradient is made of; 0: no such field.
    columns: whether there is a field for the columns in which episodes ended.
    """
    return Layout(
        {
            "header": ("int64", (HEADER_WORDS,)),
            "moments": ("float64", (3,)),
            "norm": ("float64", (1,)),
            **codec.fields(parameter_elements),
            "mask": ("uint8", (parameters,)),
            "statistics": ("float64", (max(statistics, 1),)),
            "episode_returns": ("float32", (episodes,)),
            "episode_lengths": ("int32", (episodes,)),
            **({"episode_infos": ("float32", (episodes, infos))} if infos else {}),
            **({"episode_columns": ("int32", (episodes,))} if columns else {}),
            **{name: ("float64", (length,)) for name, length in (normalized or {}).items()},
            **({"errors": ("float32", (errors,))} if errors else {}),
        }
    )


def clear(arrays: Arrays, version: int, sequence: int = 0) -> None:
    """Initialize a slot as gradient `sequence` of its worker, made on state `version`, with zero samples."""
    arrays["header"][:] = version, 0, 0, 0, 0, -1, sequence, 0
    arrays["moments"][:] = 0.0
    arrays["norm"][:] = 0.0
    arrays["mask"][:] = 0
    arrays["statistics"][:] = 0.0
    for name in NORMALIZED:
        if name in arrays:
            arrays[name][:] = 0.0
    if "errors" in arrays:
        arrays["errors"][:] = np.nan


def put_episodes(
    arrays: Arrays,
    episodes: Sequence[tuple[NDArray[np.float32], NDArray[np.int32]]],
    infos: Sequence[NDArray[np.float32]] = (),
    columns: Sequence[NDArray[np.int32]] = (),
) -> None:
    """Write the returns float32 [n] and lengths int32 [n] of finished episodes, one group after the other.

    infos: for each group the values of `info` float32 [n, K], columns: their columns int32 [n], if the slot has a field
    for them.
    """
    for name, groups in (("episode_infos", infos), ("episode_columns", columns)):
        if name in arrays and groups:  # a share may have no rollouts: those of a round that a kill has lost
            values = np.concatenate(groups)
            arrays[name][: len(values)] = values
    count = 0
    for returns, lengths in episodes:
        arrays["episode_returns"][count : count + len(returns)] = returns
        arrays["episode_lengths"][count : count + len(lengths)] = lengths
        count += len(returns)
    arrays["header"][EPISODES] = count
