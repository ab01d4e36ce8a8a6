"""Counts the episodes of a collector that resume barriers cut, and finds out whether any longer one ever ends.

At a barrier all environments are reset, so the episodes that are open there end without a return. That is a fact, and
costs little where episodes are short. Episodes that are longer than the way from one barrier to the next never end:
what they are worth stays unknown, although shorter ones end beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hive.experience.rollouts import LENGTH
from hive.records.run_warnings import EPISODES_CUT, FACT, RECOVERED, WARNING
from hive.runtime import Actor

SHARE = 0.5  # of the steps between two barriers: an episode that was cut after so many would rarely end at all
ENOUGH = 10  # times the longest episode: advised steps of each environment between two barriers


class CutEpisodes:
    """Sees the rollouts of `actor`, a collector. period: steps of each environment between barriers; 0: none."""

    def __init__(self, actor: Actor, period: int) -> None:
        self._actor = actor
        self._period = period
        self._open: Any = 0  # [B]: steps of the running episodes
        self._ended = self._longest = self._count = self._barriers = 0
        self._is_warned = False

    def see(self, rollout: Mapping[str, NDArray[Any]]) -> None:
        """Count on with the next rollout."""
        if not self._period:
            return
        length = rollout["header"].item(LENGTH)
        lengths = rollout["episode_lengths"][:length]
        if not np.count_nonzero(lengths):
            self._open = self._open + length
            return
        ends = lengths != 0
        since = np.argmax(ends[::-1], axis=0)
        self._open = np.where(ends.any(axis=0), since, self._open + length)
        self._ended = max(self._ended, int(lengths.max()))
        if self._is_warned and self._ended > self._longest:
            self._is_warned = False
            self._actor.note(RECOVERED, f"{EPISODES_CUT}: a longer one has ended", warning=EPISODES_CUT, steps=0)

    def forget(self) -> None:
        """Begin anew: the environments were made again, which is no barrier."""
        self._open = 0

    def cut(self) -> None:
        """Count the episodes that are open now, at a barrier."""
        cut = np.atleast_1d(self._open)
        cut, self._open = cut[cut > 0], 0
        self._barriers += 1
        if not len(cut):
            return
        self._count += len(cut)
        self._longest = max(self._longest, int(cut.max()))
        if not self._barriers & (self._barriers - 1):  # at the 1st, 2nd, 4th, 8th ... barrier
            what = f"{self._barriers:,} scheduled checkpoints cut {self._count:,} episodes of {self._actor.name}"
            self._actor.note(FACT, f"{what}, the longest after {self._longest:,} steps", fact=EPISODES_CUT)
        if self._ended < self._longest >= SHARE * self._period and not self._is_warned:
            self._is_warned = True
            ended = f"the longest that has ended has {self._ended:,}" if self._ended else "none has ended"
            cause = (
                f"episodes of {self._longest:,} steps and more were cut at scheduled checkpoints, where all begin "
                f"anew, here after {self._period:,} steps of each environment; {ended}"
            )
            advice = f"make checkpoint.every at least {ENOUGH} times as long as the longest episodes"
            self._actor.note(
                WARNING, f"{EPISODES_CUT}: {cause}; {advice}", warning=EPISODES_CUT, cause=cause, advice=advice, steps=0
            )
