"""Chooses where a trainer's actors compute: numbers of workers, environments of each, and what computes the network.

    measure.py    config -> Costs        seconds of the parts of one round, timed in the real objects, in one process
    placement.py  config -> Placements   the arrangements that may be chosen, and the keys of each
    rates.py      Costs -> Rate          environment steps per second that the costs predict for a placement
    choice.py     Rates, trials -> Choice, with its reasons as a paragraph

`python -m hive.tuning FOLDER` measures in a process of its own, so that torch and the environments leave no state in
the caller. `hive.cli.parts.tune` starts it, tries the best placements in short runs, and records the choice. Everything
but `measure.py` is arithmetic without torch.
"""

from __future__ import annotations

from hive.tuning.choice import Choice, Trial, choose, described, fastest, finalists, means, predictions, unconfirmed
from hive.tuning.costs import COSTS_FILE, GIVEN_FILE, CostLine, Costs
from hive.tuning.placement import WHOLESALE_PARAMETERS, Placement, placements
from hive.tuning.rates import Rate, predict

__all__ = [
    "COSTS_FILE",
    "GIVEN_FILE",
    "WHOLESALE_PARAMETERS",
    "Choice",
    "CostLine",
    "Costs",
    "Placement",
    "Rate",
    "Trial",
    "choose",
    "described",
    "fastest",
    "finalists",
    "means",
    "placements",
    "predict",
    "predictions",
    "unconfirmed",
]
