"""The curriculum: the lock opens with it, and not without it."""

from __future__ import annotations

import curriculum
import pytest
from short_runs import short_run

import hive
from hive.records import read_jsonl
from hive.schemes import build

SHORT = "env.options={digits=6}"  # the lock that the evaluator plays: 1 in 4096 by chance


def test_the_lock_is_opened_level_by_level() -> None:
    summary, directory = short_run(curriculum.topology, curriculum.CONFIG, SHORT)
    assert summary.stop_reason.startswith("a lock of 6 digits is open")
    assert summary.env_steps < 60_000
    levels = [int(e["text"].split()[-1]) for e in read_jsonl(directory.events_file) if e["kind"] == "level"]
    assert levels == sorted(levels)
    assert levels[-1] == 6
    assert len(levels) > 1


def test_without_a_curriculum_there_is_nothing_to_learn() -> None:
    summary, _ = short_run(lambda config: build(config), curriculum.CONFIG, "run.steps=8_000")
    assert summary.episodes > 400
    assert summary.mean_return_100 == 0.0


def test_the_lock() -> None:
    lock = curriculum.Lock(digits=2)
    seen, _ = lock.reset()
    assert (len(seen), seen.argmax()) == (curriculum.DIGITS + 1, 0)
    first, second = lock.code[:2]
    assert lock.step(first)[1:4] == (0.0, False, False)
    assert lock.step(second)[1:4] == (1.0, True, False)
    lock.reset()
    assert lock.step((first + 1) % curriculum.CHOICES)[1:4] == (0.0, True, False)


@pytest.mark.parametrize(("length", "expected"), [(1.0, 1), (3.0, 3), (16.0, 16)])
def test_the_level_is_one_more_than_is_known(length: float, expected: int) -> None:
    told: list[int] = []

    class Evaluator(hive.Actor):
        evaluations = hive.Outlet(hive.Evaluation, pattern="broadcast")

        async def run(self) -> None:
            numbers = dict.fromkeys(("turn", "updates", "env_steps", "episodes"), 1)
            means = dict.fromkeys(("seconds", "mean_return", "deviation", "min", "max", "wall_s"), 0.0)
            await self.evaluations.send(hive.Evaluation(**numbers, **means, mean_length=length))

    class Collector(hive.Actor):
        levels = hive.Inlet(curriculum.SetLevel)

        async def run(self) -> None:
            told.append((await self.levels.receive()).digits)
            self.end_run("told")

    t = hive.Topology()
    teacher = t.add(curriculum.Curriculum)
    t.connect(t.add(Evaluator).evaluations, teacher.evaluations)
    t.connect(teacher.levels, t.add(Collector).levels)
    hive.testing.run_inline(t, seconds=10)
    assert told == [expected]
