"""How the policies of a run do: the return and the updates of each, for all views of a run with several.

    a live run      the counters of its learners; the supervisor's status has them as `policies`
    an ended run    the last lines of the metrics of each policy; its summary has them

A run with one policy, whether of one agent or of many, has none: its totals say all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hive.errors import RecordError
from hive.records.directory import RunDirectory
from hive.records.return_text import return_text
from hive.records.runs import last_training_line, policies_of, policy_rows

LEARNER = "learner-{}"  # the actor that trains policy 0, 1, ...
SHOWN = 4  # policies in a line


@dataclass(frozen=True)
class PolicyStanding:
    """A policy, and how it does. mean_return: over its last 100 episodes; None before the first."""

    name: str
    agents: list[str]
    algorithm: str
    updates: int
    mean_return: float | None

    @property
    def data(self) -> dict[str, Any]:
        """It as data for JSON."""
        return asdict(self)


def standings(
    run: RunDirectory, counters: Mapping[str, Mapping[str, float]] | None = None
) -> tuple[PolicyStanding, ...]:
    """Return how the policies of a run do, in their order; () for a run without several, and for damaged files.

    counters: of the actors of a live run, by name; None: read the files.
    """
    try:
        rows, folders = policy_rows(run), policies_of(run)
        found = []
        for number, row in enumerate(rows if len(rows) > 1 else ()):
            name, folder = row["name"], folders[row["name"]]
            if counters is None:
                line = last_training_line(folder)
                values = {"updates": line.get("updates", 0), "mean_return_100": line.get("return/mean_100")}
            else:
                values = dict(counters.get(LEARNER.format(number), {}))
            mean = values.get("mean_return_100")
            known = mean is not None and math.isfinite(mean) and bool(values.get("episodes", 1))
            updates = int(values.get("updates", 0))
            found.append(PolicyStanding(name, row["agents"], row["algorithm"], updates, mean if known else None))
        return tuple(found)
    except (RecordError, LookupError, TypeError, ValueError):
        return ()


def returns_text(policies: Sequence[PolicyStanding], shown: int = SHOWN) -> str:
    """Return the policies with their mean returns: `cross 0.3, circle -0.3`."""
    texts = [f"{policy.name} {return_text(policy.mean_return)}" for policy in policies[:shown]]
    return ", ".join([*texts, *(["…"] if len(policies) > shown else [])])
