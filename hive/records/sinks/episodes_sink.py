"""Writes the training episodes to `episodes.jsonl`, a line for each, in the order in which the run counts them.

    {"episode": 412, "steps": 40960, "updates": 320, "seconds": 1.204, "environment": 3, "return": 87.0, "length": 87}

`Episode` explains the values. Several agents have "agent", values of `env.info` the names `info/...`. Numbers are those
of the run's count: a learner that was killed before it sent some leaves a gap, and no number is there twice. A resumed
run continues after the episodes of its checkpoint (hive.records.checkpoints.set_aside).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive.records.sinks.sinks import Episode, JsonlSink, MetricsRecord


class EpisodesSink(JsonlSink):
    """Appends to a file. Raises RecordError if it cannot be opened."""

    def write(self, record: MetricsRecord) -> None:
        """Ignore it: metrics have files of their own."""

    def write_episodes(self, episodes: Sequence[Episode]) -> None:
        """Append a line for each."""
        self._writer.write_all([_line(episode) for episode in episodes])


def _line(episode: Episode) -> dict[str, Any]:
    return {
        "episode": episode.number,
        "steps": episode.steps,
        "updates": episode.updates,
        "seconds": round(episode.seconds, 3),
        "environment": episode.environment,
        **({} if episode.agent is None else {"agent": episode.agent}),
        "return": episode.episode_return,
        "length": episode.length,
        **{f"info/{name}": value for name, value in episode.info.items()},
    }
