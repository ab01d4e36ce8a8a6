"""Chooses where a trainer's actors compute: numbers of workers, environments of each, and what computes the network.

    placement.py  config -> Placements   the arrangements that are tried, and the keys of each
    choice.py     Trials -> Choice       the fastest one, with its reasons as a paragraph

Both are arithmetic without torch. `hive.launch.tune` makes the trials: short runs of each placement.
"""

from __future__ import annotations

from hive.tuning.choice import Choice, Trial, choose, described, fastest
from hive.tuning.placement import Placement, placements, variants

__all__ = ["Choice", "Placement", "Trial", "choose", "described", "fastest", "placements", "variants"]
