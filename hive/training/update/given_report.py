"""What is told of the transitions of `algorithm.replay_from`: what is used of them, and what is probably wrong.

A file does not say in which units its numbers are, who ended its episodes, and which steps follow each other. So it is
compared with the spaces, with itself, and with the first rollout of the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hive.config import EnvConfig
from hive.config.values import toml_text
from hive.envs import Box, EnvironmentSpec
from hive.records.run_warnings import GIVEN_DATA, RunWarning
from hive.records.transition_axes import Axes
from hive.training.update.given_rows import Given, GivenRows

LEAST_ROWS = 50  # fewer rows, or first rows of an environment, say nothing about means
UNIT = 0.02  # how near to -1 and 1 the extremes of scaled actions come
WIDER = 1.5  # bounds of that size and more are not those of scaled actions
STANDARD = 0.1  # a mean within this of 0, and a deviation within this of 1, are those of a normalizer
APART = 3.0  # deviations or factors by which the environment's numbers must differ from that
MOST_JUDGED = 100_000  # rows that are judged, the newest; a file may have hundreds of millions


@dataclass(frozen=True)
class GivenReport:
    """text: the facts. warnings: of the file. mean, deviation: float64, of its flat observations; None for integers."""

    text: str
    warnings: tuple[RunWarning, ...]
    mean: NDArray[np.float64] | None = None
    deviation: NDArray[np.float64] | None = None

    def normalized(self, observations: NDArray[np.generic]) -> RunWarning | None:
        """Return the warning that the file has normalized numbers, and the environment others.

        observations: [..., *shape] of the first rollout, in stored form.
        """
        if self.mean is None or self.deviation is None:
            return None
        seen = observations.reshape(-1, len(self.mean)).astype(np.float64)
        if len(seen) < LEAST_ROWS:
            return None
        mean, deviation = seen.mean(0), seen.std(0)
        standard = (np.abs(self.mean) < STANDARD) & (np.abs(self.deviation - 1.0) < STANDARD)
        other = (np.abs(mean) > APART) | (deviation > APART) | ((deviation > 0) & (deviation < 1.0 / APART))
        if not len(mean) or not (standard & other).sum() > len(mean) / 2:
            return None
        at = int(np.flatnonzero(standard & other)[0])
        cause = (
            f"observations of the file have a mean of {self.mean[at]:.2g} and a deviation of {self.deviation[at]:.2g}, "
            f"those of the environment {mean[at]:.3g} and {deviation[at]:.3g}: they were recorded inside a normalizer"
        )
        return RunWarning(GIVEN_DATA, cause, "give the environment's own numbers; hive normalizes them itself", 0)


def report_of(
    given: Given, rows: GivenRows, environment: EnvironmentSpec, n_step: int, env: EnvConfig | None = None
) -> GivenReport:
    """Judge transitions. n_step: steps that an update of the algorithm sums. env: the table [env] of the run."""
    judged = given.transitions.observations[-MOST_JUDGED:]
    mean = deviation = None
    if judged.dtype.kind == "f" and len(judged) >= LEAST_ROWS:
        flat = judged.reshape(len(judged), -1).astype(np.float64)
        mean, deviation = flat.mean(0), flat.std(0)
    warnings = (*_axes(given), *_actions(given, environment), *_resets(given), *_sequences(given, n_step))
    return GivenReport("; ".join([*_facts(given, rows), *_source(given.env, env)]), warnings, mean, deviation)


def _facts(given: Given, rows: GivenRows) -> list[str]:
    """Return one fact for each property of the transitions: rows used, left out, ends, ranges."""
    found = given.transitions
    read, terminated, truncated = len(found), int(found.terminated.sum()), int(found.truncated.sum())
    parts = [f"{given.place}: {read:,} transitions, of which {read - terminated - truncated:,} are continued"]
    parts.append(f"{terminated:,} terminated and {truncated:,} truncated")
    if given.left_out:
        whole = read + given.left_out
        parts.append(f"{given.left_out:,} of {whole:,} rows left out, because they have no next observation")
    if rows.count < read:
        parts.append(f"the newest {rows.count:,} of {read:,} used, as many as algorithm.replay_capacity holds")
    if given.unread:
        parts.append(f"arrays that are not read: {', '.join(given.unread)}")
    if given.axes is Axes.SWAPPED:
        parts.append("read as [B, T], because each next observation is the following one along the second axis")
    return parts


def _source(source: EnvConfig | None, env: EnvConfig | None) -> Iterator[str]:
    """Return in which keys of [env] the run that the transitions are from differs, as one sentence."""
    if source is None or env is None:
        return
    pairs = [(f"env.{name}", getattr(source, name), getattr(env, name)) for name in ("id", "options")]
    differ = [f"{name} = {toml_text(its)}, here {toml_text(own)}" for name, its, own in pairs if its != own]
    yield f"the run that made them had {'; '.join(differ)}" if differ else "made with the same env.id and env.options"


def _axes(given: Given) -> Iterator[RunWarning]:
    """Warn of arrays [B, T] whose rows are read as [T, B]."""
    if given.axes is Axes.PROBABLY_SWAPPED:
        cause = (
            "along the second axis of the file's arrays observations change little, and along the first one they jump: "
            "they look like [B, T], and rows follow each other along the first of [T, B]"
        )
        yield RunWarning(GIVEN_DATA, cause, "swap the first two axes of all arrays", 0)


def _actions(given: Given, environment: EnvironmentSpec) -> Iterator[RunWarning]:
    """Warn of actions that are a policy's, scaled to -1 and 1, where the environment's reach further."""
    action = environment.action
    if not isinstance(action, Box) or len(given.transitions) < LEAST_ROWS:
        return
    flat = given.transitions.actions[-MOST_JUDGED:].reshape(-1, len(action.low))
    low, high = flat.min(0), flat.max(0)
    unit = (np.abs(low + 1.0) < UNIT) & (np.abs(high - 1.0) < UNIT)
    wider = (np.array(action.low) <= -WIDER) & (np.array(action.high) >= WIDER) & np.isfinite(action.high)
    if (unit & wider).any():
        at = int(np.flatnonzero(unit & wider)[0])
        cause = (
            f"actions of the file reach from -1 to 1, those of the environment from {action.low[at]:g} to "
            f"{action.high[at]:g}: they are scaled, as in the replay buffers of other trainers"
        )
        yield RunWarning(GIVEN_DATA, cause, "give the environment's own actions", 0)


def _resets(given: Given) -> Iterator[RunWarning]:
    """Warn of truncated rows whose next observation is the first one of the following episode."""
    found = given.transitions
    cut = np.flatnonzero(found.truncated[:-1][-MOST_JUDGED:]) + max(len(found) - 1 - MOST_JUDGED, 0)
    cut = cut[found.environments[cut] == found.environments[cut + 1]]
    if len(cut) < 3:
        return
    after, first = found.next_observations[cut], found.observations[cut + 1]
    same = (after == first).reshape(len(cut), -1).all(1)
    if same.sum() > len(cut) / 2 and not (first == first[0]).all():
        cause = (
            f"in {int(same.sum()):,} of {len(cut):,} truncated rows the next observation is the first one of the next "
            "episode, as vectors with automatic resets return it: values would be bootstrapped from there"
        )
        yield RunWarning(GIVEN_DATA, cause, "write the last observation of the episode into next_observations", 0)


def _sequences(given: Given, n_step: int) -> Iterator[RunWarning]:
    """Warn of rows none of which continues another, where updates sum several."""
    found = given.transitions
    if n_step > 1 and len(found) >= LEAST_ROWS and not (found.terminated + found.truncated == 0).any():
        cause = f"algorithm.n_step = {n_step}, and no row of the file continues another one"
        yield RunWarning(GIVEN_DATA, cause, "write rows in the order of time, or set algorithm.n_step = 1", 0)
