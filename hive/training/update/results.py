"""The results of a run so far: the counters of the last committed turn, for the status page, metrics and callbacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hive.runtime import Publication, Status
from hive.runtime.memory.segments import Arrays
from hive.training.blueprint import Blueprint
from hive.training.messages import OptimizerState
from hive.training.update.learner import PASSED, RETURNS_KEPT, Count, Learner, mean_return
from hive.training.update.turn_metrics import end_values, info_means

RESULTS = (
    *("updates", "env_steps", "frames", "episodes", "skipped", *(which.name for which in PASSED)),
    *("first_steps", "train_s", "mean_return_100", "native_updates", "rounds"),
)
"""The learner's counters that summarize a run."""

INFO = "info/"  # begins the names of counters and metrics of env.info
COUNTER_BYTES = 23  # maximum size of the name of a counter (hive.runtime.memory.status)


class Results:
    """Reads the optimizer state of each turn once it is committed, and shows its counters on the status page.

    state: its fields. totals: RESULTS without "rounds", by name; both are those of the turn of the last `update`.
    native_updates: how many of the updates were made in native calls; the learner's actor counts them.
    """

    def __init__(
        self, blueprint: Blueprint, learner: Learner, optimizer_state: Publication[OptimizerState], status: Status
    ) -> None:
        self.blueprint = blueprint
        self.learner = learner
        self.optimizer_state = optimizer_state
        self.status = status
        self.counters = {name: status.counter(name) for name in RESULTS}
        self.info_counters = {name: status.counter(name) for name in info_counters(blueprint.config.env.info)}
        self.state: Arrays = {}
        self.totals: dict[str, float] = {}
        self.native_updates = 0
        self.mean_return, self.averaged = math.nan, 0  # of the latest episodes; episodes when it was computed

    def update(self, turn: int) -> None:
        """Read the counters of the committed turn and copy them to the status page."""
        self.state = self.learner.views(self.optimizer_state.board.read(turn))
        self.totals = self._counters()
        for name, value in self.totals.items():
            self.status.set(self.counters[name], value)
        if self.info_counters:
            means = self._info_means()
            for name, counter in self.info_counters.items():
                self.status.set(counter, means.get(name.removeprefix(INFO), math.nan))
        self.status.show_version(turn, 0)

    def _counters(self) -> dict[str, float]:
        counters: list[int] = self.state["counters"].tolist()
        if counters[Count.episodes] != self.averaged:  # most turns of a replay memory end no episode
            self.averaged = counters[Count.episodes]
            self.mean_return = mean_return(self.state["returns"], self.averaged)
        return {
            "updates": counters[Count.updates],
            "env_steps": counters[Count.env_steps],
            "frames": counters[Count.env_steps] * self.blueprint.environment.frame_skip,
            "episodes": counters[Count.episodes],
            "skipped": counters[Count.skipped],
            **{which.name: counters[which] for which in PASSED},
            "first_steps": counters[Count.first_steps],
            "train_s": (counters[Count.last_ns] - counters[Count.first_ns]) / 1e9,
            "mean_return_100": self.mean_return,
            "native_updates": self.native_updates,
        }

    def of_event(self) -> dict[str, Any]:
        """Return the numbers that all events of callbacks have."""
        totals = self.totals
        return {
            "env_steps": int(totals["env_steps"]),
            "updates": int(totals["updates"]),
            "seconds": float(totals["train_s"]),
            "mean_return_100": float(totals["mean_return_100"]),
            "number_of_episodes": int(totals["episodes"]),
        }

    def episode_values(self) -> dict[str, float]:
        """Return the metrics of the latest episodes besides their returns: means of env.info, and how they ended."""
        values, held = self.state.get("infos"), min(int(self.totals["episodes"]), RETURNS_KEPT)
        if values is None:  # of a custom learner
            return {}
        means = {f"{INFO}{name}": mean for name, mean in self._info_means().items()}
        return means | end_values(values[:held, -1], self.blueprint.environment.max_episode_steps)

    def _info_means(self) -> dict[str, float]:
        """Return the means of env.info over the latest episodes that have the values."""
        names, episodes = self.blueprint.config.env.info, int(self.totals["episodes"])
        return info_means(names, self.state["infos"][: min(episodes, RETURNS_KEPT)]) if names else {}


def info_counters(names: Sequence[str]) -> list[str]:
    """Return the learner's counters of env.info, of which views show the means. Longer names are only in metrics."""
    return [INFO + name for name in names if len((INFO + name).encode()) <= COUNTER_BYTES]
