"""The costs of the parts of one round. `hive.tuning.measure` measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIVEN_FILE = "given.toml"  # the config to measure, in the folder of a measurement
COSTS_FILE = "costs.json"  # its Costs


@dataclass(frozen=True)
class CostLine:
    """Seconds of a part as a straight line: a fixed cost, and a cost of each unit."""

    fixed: float
    each: float

    @classmethod
    def through(cls, few: tuple[float, float], many: tuple[float, float]) -> CostLine:
        """Return the line through two measurements (units, seconds), neither part of which is negative.

        Equal numbers of units, or fewer seconds for more units, which only noise can give, make all of it a fixed cost.
        """
        (less, quick), (more, slow) = few, many
        if more <= less or slow <= quick:
            return cls(slow, 0.0)
        each = min((slow - quick) / (more - less), slow / more)
        return cls(slow - each * more, each)

    def at(self, units: float) -> float:
        """Return the seconds of this number of units."""
        return self.fixed + self.each * units


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a round on one core.

    environment: one step of the environments of one collector, by their number. busy: share of that time in which it
    uses a core; the rest is sleep or a device. policy: what else a collector does for this step, by the same number.
    gradient: one gradient, by the share of the round's data that it is made of. gradients: a worker's gradients of a
    round of all data, or of one rollout. update: one update, by the number of gradients that it averages. publish: a
    copy of the weights for collectors. at_hand: share of a core that the measurement had; other processes had the rest.
    torch_gradient, torch_policy: seconds of a gradient of the whole round, and of a
    step of all environments, if torch computes instead of native code; 0 where it was not measured. parameters: of the
    network.
    """

    environment: CostLine
    busy: float
    policy: CostLine
    gradient: CostLine
    gradients: int
    update: CostLine
    publish: float
    parameters: int
    at_hand: float = 1.0
    torch_gradient: float = 0.0
    torch_policy: float = 0.0

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Costs:
        """Return the costs that `dataclasses.asdict` has made a mapping of."""
        lines = {name: CostLine(**found[name]) for name in ("environment", "policy", "gradient", "update")}
        return cls(**{**found, **lines})
