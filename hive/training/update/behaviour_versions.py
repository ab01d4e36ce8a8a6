"""The behaviour versions of a run: when the weights that collectors act with are published, and what is known of them.

The newest weights become a version once the rounds before it are consumed (hive.training.schedule). The version that
has played the latest episodes may be the best policy of the run; it is offered to the recorder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from hive.errors import VersionGone
from hive.gradients import POLICY, ROLLOUTS
from hive.runtime import Outlet, Publication, Slot, SlotInlet
from hive.training.blueprint import Blueprint
from hive.training.messages import Gradient, Improved, Weights
from hive.training.record.best_policy import BestSchedule, is_balanced, latest_by_episode
from hive.training.schedule import LATEST, Schedule
from hive.training.update.learner import Count
from hive.training.update.results import Results


@dataclass
class BehaviourVersions:
    """Publishes the versions. results: of the newest turn."""

    blueprint: Blueprint
    schedule: Schedule
    gradients: SlotInlet[Gradient]
    weights: Publication[Weights]
    behaviour: Publication[Weights]
    results: Results

    def __post_init__(self) -> None:
        self.published: dict[int, tuple[int, int, int]] = {}  # turn, updates and environment steps of versions
        self.acted_with = 0  # version of the newest rollouts

    def publish(self, turn: int, claimed: Sequence[Slot] = ()) -> None:
        """Publish the newest version that is due, if it is not published yet, with the weights of this turn.

        claimed: the gradients that wait for the next turn. Their rollouts are consumed, too.
        """
        counters = self.results.state["counters"]

        def rollouts() -> int:
            pending = sum(int(slot.arrays["header"][ROLLOUTS]) for slot in claimed)
            return int(counters[Count.rollouts]) + pending

        board = self.behaviour.board
        due = self.schedule.collection.version_due(board.latest, self.gradients.lines.first_left, rollouts)
        if due > board.latest:
            board.begin()[:] = self.weights.board.read(turn)[: self.blueprint.flat.block_bytes]
            board.publish(due)
            self.published[due] = turn, counters.item(Count.updates), counters.item(Count.env_steps)
            oldest = due - self.blueprint.config.collection.max_lag - 1
            for version in [old for old in self.published if old < oldest]:
                del self.published[version]

    def lag(self, headers: Sequence[Sequence[int]]) -> int | None:
        """Return by how many versions the rollouts of a turn are behind at most; None if it is their second turn.

        headers: of its gradients.
        """
        policy = [header[POLICY] for header in headers if header[POLICY] >= 0]
        self.acted_with = max(policy, default=self.acted_with)
        return self.behaviour.latest - min(policy) if policy else None

    def played(self, turn: int) -> int:
        """Return the version that has played the newest round whose episodes are counted."""
        version = self.schedule.collection.behaviour_version(self._newest_round(turn))
        return self.acted_with if version == LATEST else version

    def _newest_round(self, turn: int) -> int:
        """Return the round of the newest gradients."""
        barriers = self.schedule.barriers
        return barriers.round_of(max(turn * barriers.per_turn - 1, 0))

    def counts_of(self, version: int, turn: int) -> tuple[int, int, int] | None:
        """Return turn, updates and environment steps of a version; None if they are not known. turn: the newest.

        A predecessor, or a native call, has published it if this learner has not. Then a round had all its steps, and
        no turn was skipped.
        """
        if (known := self.published.get(version)) is not None or self.blueprint.config.asynchronous:
            return known
        barriers, totals = self.schedule.barriers, self.results.totals
        begin = barriers.warmup + version * barriers.interval
        first = min(barriers.first_gradient(begin) // barriers.per_turn, turn)
        rounds = self._newest_round(turn) + 1 - begin
        updates = int(totals["updates"]) - (turn - first)
        env_steps = int(totals["env_steps"]) - rounds * self.blueprint.round_steps
        return first, max(updates, 0), max(env_steps, 0)


class BestOffers:
    """Offers the policies that have played with the highest returns to the recorder."""

    def __init__(self, versions: BehaviourVersions, improved: Outlet[Improved]) -> None:
        self.versions = versions
        self.results = versions.results
        self.improved = improved
        self.schedule = BestSchedule()

    async def offer(self, turn: int, *, last: bool = False) -> None:
        """Send a copy of the policy that has played the latest episodes to the recorder if none had higher returns.

        A copy, because the board keeps no version for longer. last: the run ends.
        """
        mean, balanced = self._mean_and_balance()
        episodes = int(self.results.totals["episodes"])
        if not self.schedule.improved(turn, episodes, mean, last=last, balanced=balanced):
            return
        version = self.versions.played(turn)
        if (counts := self.versions.counts_of(version, turn)) is not None:
            with contextlib.suppress(VersionGone):  # of asynchronous collectors that are far behind
                weights = self.versions.behaviour.board.read(version).copy()
                await self.improved.send(Improved(*counts, mean, weights, balanced))

    def _mean_and_balance(self) -> tuple[float, bool]:
        """Return the mean return of the latest episodes, and whether it is `is_balanced`."""
        agents, episodes = len(self.results.blueprint.environment.agents), int(self.results.totals["episodes"])
        if agents > 1:
            latest = latest_by_episode(self.results.state["returns"], episodes, agents)
            if is_balanced(latest):
                return float(latest.mean()), True
        return self.results.totals["mean_return_100"], False
