"""Population-based training: the worst member copies the best, and the population learns."""

from __future__ import annotations

import population
from short_runs import CARTPOLE, short_run

import hive
from hive.records import read_jsonl
from hive.testing import run_inline

LEARNED = 45.0  # an untrained policy has a mean return of about 20


def test_the_population_learns() -> None:
    short = f"run.stop_at_return={LEARNED}", "custom.members.updates=10"
    summary, directory = short_run(population.topology, CARTPOLE, *short)
    assert summary.stop_reason.endswith(f">= {LEARNED:g}")
    assert summary.mean_return_100 is not None
    assert summary.mean_return_100 >= LEARNED
    assert summary.env_steps > 0
    assert any(event["kind"] == "exploited" for event in read_jsonl(directory.events_file))


def test_the_worst_member_copies_the_best() -> None:
    answers: dict[str, object] = {}

    class Asker(hive.Actor):
        def __init__(self, known: hive.Handle) -> None:
            self.known = known

        async def run(self) -> None:
            answers["nobody"] = await self.known.last("a")
            answers["alone"] = await self.known.report("a", 10.0, 1e-3, b"a")
            answers["better"] = await self.known.report("b", 20.0, 1e-2, b"b")
            answers["worst"] = await self.known.report("a", 15.0, 1e-3, b"a2")
            answers["last"] = await self.known.last("a")
            self.end_run("asked")

    t = hive.Topology()
    t.add(Asker, known=t.add(population.Population, seed=1).handle())
    assert run_inline(t, seconds=10).reason == "asked"
    assert (answers["nobody"], answers["alone"], answers["better"]) == (None, [10.0 / 1e4, b"a"], [1e-2, b"b"])
    rate, state = answers["worst"]  # type: ignore[misc]
    assert (round(rate, 6) in (0.008, 0.0125), state) == (True, b"b")
    assert answers["last"] == answers["worst"]
