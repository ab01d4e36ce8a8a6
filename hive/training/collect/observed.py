"""Adds what a rollout has seen to the statistics of a network that normalises (hive.networks.rows.normalization)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from hive.envs import ObservationSpec
from hive.experience import Rollout
from hive.networks.rows.normalization import add_rows

__all__ = ["observe"]


def observe(rollout: Rollout, observation: ObservationSpec, out: Mapping[str, NDArray[Any]]) -> None:
    """Add the valid steps of a rollout to the moments that `out` has: "observed", "rewarded" and "novelty"."""
    valid = rollout.valid != 0
    if "observed" in out:
        add_rows(observation.numbers(rollout.observations[: rollout.length][valid]), out["observed"])
    if "rewarded" in out and rollout.discounted is not None:
        add_rows(rollout.discounted[valid], out["rewarded"])
    if "novelty" in out and rollout.novelty is not None:
        add_rows(rollout.novelty[valid], out["novelty"])
