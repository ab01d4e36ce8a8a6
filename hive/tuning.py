"""Chooses where a trainer's actors compute: numbers of workers, environments of each, and what computes the network.

    placements(config)       the arrangements that `hive.launch.tune` tries in short runs
        default              that of the config, whose helpers step environments on spare cores
        one process          nothing is handed over, which pays for cheap environments and small networks
        all cores            each core collects from a share of the environments and computes the gradient of that
        many                 several collectors on each core, which pays where environments wait
    choose(config, trials)   the fastest one, with the reasons as a paragraph

The total number of environments and so the steps of a round stay those of the config: more collectors have fewer
environments each. Everything else that decides what is learned (lag, minibatches, rollout) stays as it is. The default
placement is kept unless another one was faster by more than SLACK in a run of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hive.config import Config, PPOConfig, ReplayConfig
from hive.config.values import toml_text

# Below this size of the network, compressed gradients and decentralized updates were slower than plain ones in all of
# hive's measurements: a codec and a second optimizer cost more than the memory traffic that they save.
WHOLESALE_PARAMETERS = 25_000_000
TORCH_PARAMETERS = 100_000  # a guess: smaller networks are not tried with torch, whose calls cost more than the rest
COLLECTORS_PER_CORE = 8  # collectors of "many" for each core, at most: each is a process
SLACK = 0.1  # least gain over the default: two runs of three seconds may differ by less for other reasons


@dataclass(frozen=True)
class Placement:
    """One arrangement: the two numbers of workers, the environments of each collector, and how gradients travel."""

    collection_workers: int
    gradient_workers: int
    envs: int
    decentralized: bool = False
    compression: str = "none"
    backend: str = "auto"

    @property
    def collectors(self) -> int:
        """Number of collectors, also of those that share the processes of gradient workers."""
        return self.collection_workers or max(self.gradient_workers, 1)

    def values(self, config: Config) -> dict[str, Any]:
        """Return the keys whose values in the config this placement changes, or which are "auto"."""
        mine = {
            "collection.workers": self.collection_workers,
            "collection.envs": self.envs,
            "gradients.workers": self.gradient_workers,
            "gradients.decentralized": self.decentralized,
            "gradients.compression": self.compression,
            "network.backend": self.backend,
        }
        return {name: new for name, new in mine.items() if name in config.automatic or config.value(name) != new}


def default_placement(config: Config) -> Placement:
    """Return the placement of the config, in which keys that are "auto" have their defaults."""
    collection, gradients = config.collection, config.gradients
    return Placement(
        collection.workers,
        gradients.workers,
        collection.envs,
        gradients.decentralized,
        gradients.compression,
        config.network.backend,
    )


def placements(config: Config, automatic: tuple[str, ...], cores: int) -> list[Placement]:
    """Return the at most four placements that are tried for the keys `automatic`, the default one first."""
    default = default_placement(config)
    total = config.collectors * config.collection.envs
    found = [default]
    for collectors, workers in _numbers(config, automatic, total, cores):
        envs, rest = divmod(total, collectors or max(workers, 1))
        made = replace(default, collection_workers=collectors, gradient_workers=workers, envs=envs)
        if envs and not rest and made not in found and _is_possible(config, made):
            found.append(made)
    return found


def _numbers(config: Config, automatic: tuple[str, ...], total: int, cores: int) -> list[tuple[int, int]]:
    """Return the numbers of collectors and of gradient workers beside the default ones."""
    collectors, workers = config.collection.workers, config.gradients.workers
    if "collection.workers" not in automatic:  # each gradient worker has as many of the collectors
        return [(collectors, 0), (collectors, _divisor(collectors, cores))] if collectors else []
    each, many = _divisor(total, cores), _divisor(total, COLLECTORS_PER_CORE * cores)
    if "gradients.workers" not in automatic:
        return [(0, workers), (each, workers), (many, workers)]
    return [(0, 0), (0, each), (many, 0)]


def _divisor(total: int, most: int) -> int:
    """Return the largest number up to `most` that divides a total into equal parts."""
    return max(n for n in range(1, most + 1) if total % n == 0)


def variants(config: Config, placement: Placement, parameters: int, *, lossy: bool) -> list[Placement]:
    """Return other ways to compute in a placement, for networks of so many parameters.

    lossy: whether compressed gradients, which change what is learned, may be among them.
    """
    found = []
    if config.network.backend == "auto" and parameters >= TORCH_PARAMETERS:
        found.append(replace(placement, backend="torch"))
    if placement.gradient_workers > 1 and parameters >= WHOLESALE_PARAMETERS:
        if _may_decentralize(config):
            found.append(replace(placement, decentralized=True))
        if lossy:
            found.append(replace(placement, compression="bf16"))
    return found


def _may_decentralize(config: Config) -> bool:
    """Return whether the config allows decentralized updates (hive.config.rules, Blueprint)."""
    asynchronous = config.gradients.communication == "asynchronous"
    return not asynchronous and config.run.carrier == "slots" and not isinstance(config.algorithm, ReplayConfig)


def _is_possible(config: Config, made: Placement) -> bool:
    """Return whether every gradient worker has an equal share, and sequences and batches can be divided."""
    workers, collection, algorithm = max(made.gradient_workers, 1), config.collection, config.algorithm
    asynchronous = collection.communication == "asynchronous"
    owned = not asynchronous or collection.ownership == "gradient_worker"
    if owned and made.collectors % workers:
        return False
    all_together = config.gradients.communication != "asynchronous"  # every update needs a rollout for each worker
    if asynchronous and all_together and collection.slots * made.collectors < workers:
        return False
    if made.decentralized and not made.gradient_workers:
        return False
    if isinstance(algorithm, ReplayConfig):
        return algorithm.batch_size % workers == 0
    if isinstance(algorithm, PPOConfig) and config.network.memory != "none":
        share = 1 if asynchronous else made.collectors // workers
        return algorithm.minibatches <= share * made.envs
    return True


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
