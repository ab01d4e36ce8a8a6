"""Values that change over a run: constant, falling linearly, or falling along half a cosine."""

from __future__ import annotations

import math

from hive.config import SCHEDULES

__all__ = ["SCHEDULES", "scheduled"]


def scheduled(value: float, schedule: str, progress: float) -> float:
    """The value of a hyper-parameter after the share `progress` (0 to 1) of the run.

    linear: value * (1 - progress). cosine: value * (1 + cos(pi * progress)) / 2, the schedule of Loshchilov and Hutter
    (2017, "SGDR") without restarts. Both end at 0.
    """
    if schedule == "linear":
        return value * (1.0 - progress)
    if schedule == "cosine":
        return value * 0.5 * (1.0 + math.cos(math.pi * progress))
    return value
