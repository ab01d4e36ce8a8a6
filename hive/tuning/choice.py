"""Chooses a placement from short real runs, and gives the reasons as a paragraph.

The default placement is kept unless another one was faster by more than SLACK in a run of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hive.config import Config
from hive.config.values import toml_text
from hive.tuning.placement import Placement

SLACK = 0.1  # least gain over the default: two runs of three seconds may differ by less for other reasons


@dataclass(frozen=True)
class Trial:
    """A short run of one placement. steps_per_s: 0 if it did not train; `error` is then the reason."""

    placement: Placement
    steps_per_s: float
    error: str = ""


@dataclass(frozen=True)
class Choice:
    """The chosen placement: the keys that it sets, and why."""

    placement: Placement
    values: dict[str, Any]
    reasons: str

    @property
    def sets(self) -> list[str]:
        """The keys as overrides `KEY=VALUE`."""
        return [f"{name}={toml_text(value)}" for name, value in self.values.items()]


def fastest(trials: Sequence[Trial]) -> Placement:
    """Return the fastest placement; the first, which is the default, unless it is slower by more than SLACK."""
    best = max(trials, key=lambda trial: trial.steps_per_s)
    return (best if best.steps_per_s > trials[0].steps_per_s * (1 + SLACK) else trials[0]).placement


def choose(config: Config, trials: Sequence[Trial]) -> Choice:
    """Return the fastest placement of the trials, of which the first is that of the default one."""
    default, chosen = trials[0].placement, fastest(trials)
    done = [f"{described(one.placement)}: {one.steps_per_s:,.0f}" for one in trials if not one.error]
    runs = f"Chosen: {described(chosen)}. Short runs made, in steps per second: {'; '.join(done)}."
    kept = f"The default stays unless another placement is faster by more than {SLACK:.0%}." * (chosen == default)
    failed = [f"No rate for {described(one.placement)}: {one.error}." for one in trials if one.error]
    sentences = [runs, kept, *failed, _changes(config, chosen, default)]
    return Choice(chosen, chosen.values(config), " ".join(filter(None, sentences)))


def described(placement: Placement) -> str:
    """Return the placement in words: "2 collectors x 8 environments, gradients in the learner"."""
    collectors, workers = placement.collection_workers, placement.gradient_workers
    each = f"{placement.envs} environment{'s' * (placement.envs != 1)}"
    made = f"{workers} gradient worker{'s' * (workers != 1)}" if workers else "the learner"
    if collectors:
        text = f"{collectors} collector{'s' * (collectors != 1)} x {each}, gradients in {made}"
    elif workers:
        text = f"{made} that collect{'s' * (workers == 1)} from {each} each"
    else:
        text = f"one process for all parts, {each}"
    extra = [", decentralized"] * placement.decentralized
    extra += [f", {placement.compression}"] * (placement.compression != "none")
    extra += [", torch"] * (placement.backend == "torch")
    return text + "".join(extra)


def _changes(config: Config, chosen: Placement, default: Placement) -> str:
    """Return how results differ from those of the default placement."""
    if chosen == default:
        return ""
    lag = f"The lag of {config.collection.communication} collection stays as it is."
    parts = []
    if chosen.collectors != default.collectors:
        parts.append(
            f"the same {chosen.collectors * chosen.envs} environments and steps of a round are divided among "
            f"{chosen.collectors} collectors, whose random numbers are others"
        )
        if config.collection.communication == "asynchronous":
            steps = chosen.envs * config.collection.rollout
            parts.append(f"a gradient is made of one rollout, now of {steps:,} steps")
    if max(chosen.gradient_workers, 1) != max(default.gradient_workers, 1):
        parts.append(
            f"a gradient is the mean of {max(chosen.gradient_workers, 1)} workers, each with a share of the rows"
        )
    if chosen.backend != default.backend:
        parts.append("torch's sums round differently from native ones")
    if chosen.compression != default.compression:
        parts.append(f"gradients are rounded to {chosen.compression}")
    if not parts:
        return f"Weights stay those of the default placement, bit for bit. {lag}"
    return f"Weights differ from those of the default placement: {'; '.join(parts)}. {lag}"
