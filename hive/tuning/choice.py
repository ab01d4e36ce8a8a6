"""Chooses a placement from predictions and short real runs, and gives the reasons as a paragraph.

The default placement is kept unless another one was really faster by more than noise in runs of both. So a wrong
prediction costs at most a faster placement that is not tried, never a slower run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hive.config import Config, ReplayConfig
from hive.config.values import toml_text
from hive.tuning.costs import Costs
from hive.tuning.placement import WHOLESALE_PARAMETERS, Placement, placements
from hive.tuning.rates import Rate, predict

NOISE = 0.25  # a placement predicted this much slower than the default may in fact be faster, and is tried
UNSURE_S = 300e-6  # seconds of a round, besides, that handovers between processes may take on a busy machine
EQUAL = 0.02  # predicted gain that is none: more processes are not tried for it
SLACK = 0.05  # least gain in the trials over the default: two runs of seconds differ by less
CLOSE = 1.0  # gain below which a second run of both must confirm it: other work on the machine comes and goes
MOST_TRIED = 2  # placements beside the default that are tried: each run takes some five seconds
LAG_PAYS = 0.15  # least predicted gain of a round of lag that is mentioned: it costs some return
TORCH_GAIN = 0.9  # largest share of the native gradient's time at which torch is considered


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


def predictions(config: Config, costs: Costs, automatic: tuple[str, ...], cores: int) -> list[Rate]:
    """Return the predicted rates of all placements, the default one first and the others from fast to slow."""
    default, *others = placements(config, automatic, cores)
    if config.network.backend == "auto" and 0 < costs.torch_gradient < TORCH_GAIN * costs.gradient.at(1.0):
        others += [dataclasses.replace(placement, backend="torch") for placement in (default, *others)]
    rates = [predict(config, costs, placement, cores) for placement in others]
    # Fewer processes come first among equally fast placements.
    rates.sort(key=lambda rate: (-rate.steps_per_s, rate.placement.processes))
    return [predict(config, costs, default, cores), *rates]


def finalists(config: Config, costs: Costs, rates: Sequence[Rate], *, lossy: bool) -> list[Placement]:
    """Return the placements to try, the default one first; only this if no other can be faster.

    lossy: whether compressed gradients, which change what is learned, may be among them.
    """
    default, *others = rates
    steps = config.collectors * config.collection.envs * config.collection.rollout
    slowest = steps / default.steps_per_s / (1 - NOISE) + UNSURE_S  # seconds of a round
    fast = [rate for rate in others if steps / rate.steps_per_s <= slowest and not _has_simpler(rate, rates)]
    # The model knows least about handovers, so the placement without any is tried before the second fastest.
    fast[1:] = sorted(fast[1:], key=lambda rate: rate.placement.processes > 1)
    found = [rate.placement for rate in fast][:MOST_TRIED]
    if shared := next((placement for placement in found if placement.gradient_workers > 1), None):
        if costs.parameters >= WHOLESALE_PARAMETERS and _may_decentralize(config):
            found.append(dataclasses.replace(shared, decentralized=True))
        if costs.parameters >= WHOLESALE_PARAMETERS and lossy:
            found.append(dataclasses.replace(shared, compression="bf16"))
    return [default.placement, *found]


def _has_simpler(rate: Rate, rates: Sequence[Rate]) -> bool:
    """Return whether a placement with fewer processes is predicted to be as fast."""
    fewer = (other for other in rates if other.placement.processes < rate.placement.processes)
    return any(other.steps_per_s * (1 + EQUAL) >= rate.steps_per_s for other in fewer)


def _may_decentralize(config: Config) -> bool:
    """Return whether the config allows decentralized updates (hive.config.rules, Blueprint)."""
    asynchronous = config.gradients.communication == "asynchronous"
    return not asynchronous and config.run.carrier == "slots" and not isinstance(config.algorithm, ReplayConfig)


def choose(config: Config, costs: Costs, rates: Sequence[Rate], trials: Sequence[Trial], cores: int) -> Choice:
    """Return the fastest placement of the trials, or the default one if it is not slower by more than noise.

    trials: of the finalists, the default one first, some of them several times; none if only the default was left.
    """
    default = rates[0].placement
    chosen = fastest(trials) if trials else default
    sentences = [
        _measured(config, costs, default, cores),
        _why(config, rates, trials, chosen),
        _changes(config, chosen, default),
        _computes(costs, chosen),
        _left_out(costs),
        _lag(config, costs, chosen, cores),
    ]
    return Choice(chosen, chosen.values(config), " ".join(filter(None, sentences)))


def means(trials: Sequence[Trial]) -> dict[Placement, float]:
    """Return the mean steps per second of each placement over its trials, in their order; 0 if one of them failed."""
    runs: dict[Placement, list[Trial]] = {}
    for trial in trials:
        runs.setdefault(trial.placement, []).append(trial)
    return {
        placement: 0.0 if any(one.error for one in own) else sum(one.steps_per_s for one in own) / len(own)
        for placement, own in runs.items()
    }


def fastest(trials: Sequence[Trial]) -> Placement:
    """Return the fastest placement; the first, which is the default, unless it is slower by more than SLACK."""
    rates = means(trials)
    default, best = trials[0].placement, max(rates, key=lambda placement: rates[placement])
    return best if rates[best] > rates[default] * (1 + SLACK) else default


def unconfirmed(trials: Sequence[Trial]) -> list[Placement]:
    """Return the placements that should run once more: the fastest, if it is close to the default, and the default.

    Each runs at most twice. The default is last, so that a machine that gets slower favors neither.
    """
    rates, default, best = means(trials), trials[0].placement, fastest(trials)
    if best == default or rates[best] >= rates[default] * (1 + CLOSE):
        return []
    runs = [trial.placement for trial in trials]
    return [placement for placement in (best, default) if runs.count(placement) < 2] if runs.count(best) < 2 else []


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


def _measured(config: Config, costs: Costs, default: Placement, cores: int) -> str:
    total = default.collectors * default.envs
    environment = costs.environment.at(total)
    sleeps = f", of which {1 - costs.busy:.0%} is waiting" if costs.busy < 0.9 else ""
    environments = f"{total} environment{'s' * (total != 1)}"
    busy = (
        f" Other processes had {1 - costs.at_hand:.0%} of the measured core; predictions are for free cores."
        if costs.at_hand < 0.8
        else ""
    )
    return (
        f"One step of {environments} takes {_time(environment)}{sleeps}, the policy's part of it "
        f"{_time(costs.policy.at(total))}; a round of {total * config.collection.rollout:,} steps needs "
        f"{costs.gradients} gradient{'s' * (costs.gradients != 1)} of {_time(costs.gradient.at(1.0))}, an update "
        f"{_time(costs.update.at(1))}, on {cores} core{'s' * (cores != 1)}.{busy}"
    )


def _why(config: Config, rates: Sequence[Rate], trials: Sequence[Trial], chosen: Placement) -> str:
    """Return what limits the chosen placement, and what the trials showed."""
    by_placement = {rate.placement: rate for rate in rates}
    rate = by_placement.get(chosen, rates[0])
    collect, train = _time(rate.collect), _time(rate.train)
    limits = {
        "collect": f"collecting a round takes {collect} and training on it {train}",
        "train": f"training on a round takes {train} and collecting it {collect}",
        "cores": f"the work of a round keeps all cores busy for {_time(rate.cores)}",
    }
    limit = limits[rate.limit]
    if not chosen.collection_workers:
        limit = (
            f"collecting a round takes {collect} and training on it {train}, one after the other, without a handover"
        )
    text = f"Chosen: {described(chosen)}: {limit}"
    if not trials:
        return f"{text}. No other placement is predicted to be faster, or as fast with fewer processes."
    done = [f"{described(placement)}: {mean:,.0f}" for placement, mean in means(trials).items() if mean]
    failed = [f"{described(one.placement)} has no rate ({one.error})" for one in trials if one.error]
    kept = ""
    if chosen == trials[0].placement:
        kept = f" The default stays unless another placement is faster by more than {SLACK:.0%}."
    runs = f" Short runs made, in steps per second: {'; '.join(done)}." if done else ""
    return f"{text}.{runs}{kept}" + "".join(f" {text[0].upper()}{text[1:]}." for text in failed)


def _lag(config: Config, costs: Costs, chosen: Placement, cores: int) -> str:
    """Return how much faster a synchronous run would be with a round of lag, if it is worth a word."""
    collection = config.collection
    if collection.communication != "synchronous" or isinstance(config.algorithm, ReplayConfig):
        return ""
    lagged = dataclasses.replace(
        config, collection=dataclasses.replace(collection, communication="pipelined", max_lag=1)
    )
    gain = predict(lagged, costs, chosen, cores).steps_per_s / predict(config, costs, chosen, cores).steps_per_s
    if gain < 1 + LAG_PAYS:
        return ""
    return (
        f'collection.communication = "pipelined" would collect while it trains, {gain:.1f} times as fast by '
        "prediction, with a policy that is one round older; what that costs is in the guide (learning.md)."
    )


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


def _computes(costs: Costs, chosen: Placement) -> str:
    """Return why the networks compute natively or by torch, if both could."""
    if not costs.torch_gradient:
        return ""
    native, torch = _time(costs.gradient.at(1.0)), _time(costs.torch_gradient)
    by = "torch" if chosen.backend == "torch" else "native code"
    return f"Networks compute by {by}: a gradient takes {native} natively and {torch} by torch."


def _left_out(costs: Costs) -> str:
    if costs.parameters >= WHOLESALE_PARAMETERS:
        return ""
    return (
        f"Compression and decentralized updates are not considered: with {costs.parameters:,} parameters, fewer than "
        f"{WHOLESALE_PARAMETERS // 1_000_000} million, both are slower than plain gradients."
    )


def _time(seconds: float) -> str:
    """Return a duration with three digits and its unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
