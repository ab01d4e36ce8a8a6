"""A tap in the trainer's metrics: it receives each report before the recorder, adds to it, and may end the run.

    learner ── metrics ──> tap ── metrics ──> recorder ──> metrics.jsonl, TensorBoard

`Topology.insert` puts an actor into a channel of the built-in trainer without a change at either end. This one keeps
the best mean return, adds it to every report as `tap/best`, writes a line into the event log when it improves, and ends
the run when it has not improved for `patience` steps: early stopping for any algorithm. An actor that only reads needs
no `insert`: `t.connect(t["learner"].metrics, mine.metrics)` adds it as a consumer of the broadcast.

    python examples/tap.py                                          CartPole-v1: ends at a mean return of 499.9, in 23 s
    hive up examples/pendulum.toml --topology examples/tap.py       or any other config
"""

from __future__ import annotations

import math
from pathlib import Path

import hive


class Tap(hive.Actor):
    """Passes metrics on with two more values, and ends the run when the mean return stops improving."""

    reports = hive.Inlet(hive.Metrics)
    passed = hive.Outlet(hive.Metrics, pattern="broadcast")

    def __init__(self, patience: int = 20_000) -> None:
        self.patience = patience

    async def run(self) -> None:
        best, when = -math.inf, 0
        async for report in self.reports:
            mean_return = report.values["return/mean_100"]  # NaN before the first episode has ended
            if mean_return > best:
                best, when = mean_return, report.env_steps
                self.note("best", f"mean return {best:.1f} at {report.env_steps:,} steps")
            values = report.values | {"tap/best": best, "tap/best_at": when}
            await self.passed.send(hive.Metrics(report.updates, report.env_steps, report.seconds, values))
            if report.env_steps - when >= self.patience:
                self.end_run(f"no mean return above {best:.1f} for {self.patience:,} steps")


def topology(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    t.insert(t["learner"].metrics, t.add(Tap, last=True), "reports", "passed")
    return t


if __name__ == "__main__":
    example = Path(__file__).with_name("cartpole.toml")
    hive.run(topology, example, sets=["run.stop_at_return=500", "record.every_s=0.25"])
