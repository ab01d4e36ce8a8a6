"""Short runs of examples, inline or in a simulation that kills processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulation import Faults, Simulation, simulate

import hive
from hive.config import Config, load_config
from hive.records import RunDirectory, Summary, home_folder

EXAMPLES = Path(__file__).parents[2] / "examples"
CARTPOLE = EXAMPLES / "cartpole.toml"

Topology = Callable[[Config], hive.Topology]


def short_run(topology: Topology, config: Path | Mapping[str, Any] | None, *sets: str) -> tuple[Summary, RunDirectory]:
    """Run a config, which must finish with balanced accounts and nothing in flight."""
    summary = hive.run(topology, config, sets=sets, name="short", inline=True, quiet=True)
    assert summary.state == "finished"
    for name, account in summary.channels.items():
        gone = account["consumed"] + sum(account["dropped"].values())
        assert (account["produced"] - gone, account["in_flight"]) == (0, 0), (name, account)
    return summary, RunDirectory.open(home_folder() / "short-1")


def bare_config(*sets: str) -> Config:
    """Return the config of a topology without environments."""
    return load_config("run.toml", ['run.topology = "mine.py"', *sets], text="")


def survived(topology: Topology, seed: int, *, deaths: int, after: int) -> Simulation:
    """Simulate the example with this many kills; it must still finish."""
    simulation = simulate(topology(bare_config()), seed, Faults(deaths=deaths, after=after))
    assert (simulation.wrong, simulation.errors) == ([], [])
    assert simulation.outcome is not None
    assert simulation.outcome.state == "finished", simulation.outcome
    return simulation
