"""The settings of `bench throughput` that learn from a replay memory: tasks of `scripts/parity`, measured for speed.

    single         hive in one training process, synchronous
    1 collector    hive: 1 collector and a learner that makes the gradients, pipelined; the defaults of the schemes
    2 workers      hive: 1 collector, 2 gradient workers with half of a batch each, and a learner
    sb3 1 thread   Stable-Baselines3 with one thread of torch
    sb3            the same with torch's default, as many threads as cores

Network, batch and the order of steps and updates are those of the task (comparison.tasks), the same for hive and SB3.
Three numbers differ from the task. The budget has no end. The first update comes after at most START_STEPS steps. The
probability of random actions is at its end after as many steps: during the decrease SB3 would save the policy's cost.

The rate of hive is updates/s times steps per update: steps that wait in front of the learner do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from comparison.hive_cell import keys_of
from comparison.tasks import TASKS, ReplayTask

from benchmarks.contender import ENDLESS_STEPS, Contender, Measurement, Setting, sb3
from benchmarks.hive_run import measure_run

__all__ = ["OFF_POLICY", "ReplaySetting", "keys", "off_policy_contenders"]

START_STEPS = 1000  # environment steps before the first update, and until the final probability of random actions

ONE_PROCESS = ("collection.workers=0", "collection.communication=synchronous", "gradients.workers=0")
APART = ("collection.workers=1", "collection.communication=pipelined", "gradients.workers=0")
TWO = (*APART[:2], "gradients.workers=2")


@dataclass(frozen=True)
class ReplaySetting(Setting):
    """A task with a replay memory, whose learning does not matter."""

    task: ReplayTask

    @property
    def steps_per_update(self) -> Fraction:
        return Fraction(self.task.rollout, self.task.updates)


def _setting(name: str) -> ReplaySetting:
    task = TASKS[name]
    assert isinstance(task, ReplayTask), name
    updates = "1 update" if task.updates == 1 else f"{task.updates} updates"
    steps = "step" if task.rollout == 1 else f"{task.rollout} steps"
    title = f"{task.algorithm.upper()} on {task.env}: {updates} of {task.batch} steps after every {steps}"
    measured = replace(
        task,
        steps=ENDLESS_STEPS,
        learning_starts=min(task.learning_starts, START_STEPS),
        exploration_share=START_STEPS / ENDLESS_STEPS if task.exploration_share else 0.0,
    )
    return ReplaySetting(name, title, measured)


OFF_POLICY = tuple(_setting(name) for name in ("dqn-lunarlander", "dqn-cartpole", "sac-halfcheetah"))


def off_policy_contenders(peers: Sequence[str], cache: Path) -> list[Contender]:
    """Return the contenders of these settings in the order of measurement."""
    found = []
    for setting in OFF_POLICY:
        found.append(Contender(setting, "single", "hive single", _hive(setting, ONE_PROCESS)))
        found.append(Contender(setting, "1-collector", "hive 1 collector", _hive(setting, APART)))
        found.append(Contender(setting, "2-workers", "hive 2 workers", _hive(setting, TWO)))
        if "sb3" in peers:
            settings = setting.task.settings
            found.append(Contender(setting, "sb3-1-thread", "sb3 1 thread", sb3(settings, 1, cache)))
            found.append(Contender(setting, "sb3", "sb3", sb3(settings, 0, cache)))
    return found


def keys(setting: ReplaySetting, arrangement: Sequence[str] = APART) -> list[str]:
    """Return the keys of a run of hive, `KEY=VALUE`."""
    return [*keys_of(setting.task.settings, 1), *arrangement]


def _hive(setting: ReplaySetting, arrangement: Sequence[str]) -> Callable[[float], Measurement]:
    def measure(seconds: float) -> Measurement:
        found = measure_run("", seconds, keys(setting, arrangement))
        return {**found, "steps_per_s": float(found["updates_per_s"] * setting.steps_per_update)}

    return measure
