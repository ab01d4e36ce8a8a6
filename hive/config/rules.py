"""Rules between keys: a key's value may be restricted by other keys. To add a rule, add it to RULES.

A rule can only be broken by a key that the file or `--set` gives, because all defaults obey all rules, and those of a
scheme yield to what is given (hive.config.formulas). The error shows every key that the rule involves
(hive.config.load).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.algorithms import ALGORITHMS, AgentConfig
from hive.config.each import are_each, evaluator_indices, has_placeholders, outside, training_indices
from hive.config.keys import is_reference, keys_of
from hive.config.refusals import KEYS, REPLAYING, VALUES, Refusal
from hive.config.schema import HEAD, EnvConfig, NetworkConfig
from hive.config.values import closest, shown
from hive.printable import printable


@dataclass(frozen=True)
class Rule:
    """A restriction of the key `name` by the keys `others`.

    breach: is called with the values of `name` and `others`, in this order. It returns "" if they agree, otherwise the
        end of an error text, with `{0}`, `{1}` in place of the others: "{0} requires at least 2".
    """

    name: str
    others: tuple[str, ...]
    breach: Callable[..., str]


@dataclass(frozen=True)
class Idle(Rule):
    """A rule by which a given value of the key `name` has no effect, though it is not the default.

    Defaults need not obey it, and configs of earlier runs may break it. breach: of the values of `others` alone.
    """


APART = ("reset_limit_s", "step_limit_s", "memory_limit", "restarts", "window_s", "on_failure")
"""Keys of [env] about processes of environments."""
APART_BY = "env.processes", "env.command", "env.connect"
"""Keys that give environments such processes."""


def _apart_breach(name: str) -> Callable[..., str]:
    default = keys_of(EnvConfig)[name].default

    def breach(value: object, processes: str, command: tuple[str, ...], connect: str | None) -> str:
        return "" if value == default or processes != "0" or command or connect is not None else NOT_APART

    return breach


NOT_APART = 'has no effect with {0}: only processes of their own can be limited; set env.processes = "each"'


def _helpers_breach(helpers: int | None, processes: str, command: tuple[str, ...], connect: str | None) -> str:
    if not helpers or (processes == "0" and not command and connect is None):
        return ""
    return "with processes of their own the collector steps no environment, so there is nothing to help with"


def _lag_breach(max_lag: int, communication: str) -> str:
    if communication == "synchronous":
        return "{0} requires 0" if max_lag else ""
    return "" if max_lag else "{0} requires at least 1"


def _slots_breach(slots: int, communication: str, max_lag: int) -> str:
    """Require max_lag + 2 slots: the consumer holds one, and max_lag + 1 rollouts are in flight.

    Asynchronous collection has no such minimum: fewer slots only reduce the lag.
    """
    least = max_lag + 2
    return "" if communication == "asynchronous" or slots >= least else f"{{0}} with {{1}} requires at least {least}"


def _ownership_breach(ownership: str, collectors: int, gradient_workers: int) -> str:
    """Require that each gradient worker can own the same number of collectors."""
    if ownership == "pool" or gradient_workers == 0 or collectors % gradient_workers == 0:
        return ""
    return "{0} is not a multiple of {1}"


def _evaluation_breach(envs: int, episodes: int) -> str:
    return "{0} leaves some environments without an episode" if envs > episodes else ""


NO_EVALUATIONS = "there are no evaluations: set evaluation.every, for example to {{ steps = 10_000 }}"


def _stop_breach(goal: float | None, every: Mapping[str, Any]) -> str:
    """Require evaluations where a goal of them is set, which may be 0."""
    return NO_EVALUATIONS if goal is not None and not every else ""


def _no_better_breach(times: int, every: Mapping[str, Any]) -> str:
    return NO_EVALUATIONS if times and not every else ""


def _times_breach(times: int, goal: float | None) -> str:
    return "{0} is not set" if times > 1 and goal is None else ""


def _best_by_breach(best_by: str, info: tuple[str, ...], env: Mapping[str, Any]) -> str:
    """Require a value that evaluations have. Those of several agents also have their returns, `return/NAME`."""
    name = best_by.removeprefix("info/")
    if name == best_by or name in env.get("info", info) or name.startswith("return/"):
        return ""
    return f"{{0}} has no {json.dumps(printable(name))}"


def _curriculum_breach(stages: tuple[Any, ...], hosts: tuple[str, ...]) -> str:
    return "{0}: environments on other hosts cannot be changed" if stages and hosts else ""


def _videos_breach(videos: int, every: Mapping[str, Any], episodes: int) -> str:
    if videos and not every:
        return NO_EVALUATIONS
    return "{1} is less" if videos > episodes else ""


def _keep_videos_breach(keep: int, videos: int) -> str:
    return "{0} of one evaluation would not be kept" if keep < videos else ""


def _fraction_breach(fraction: float, communication: str) -> str:
    return "{0} has no rounds that could end early" if communication == "asynchronous" and fraction < 1 else ""


def _hosts_breach(hosts: tuple[str, ...], cores: Mapping[str, int], workers: int, fraction: float = 1.0) -> str:
    """Require known hosts, an actor for each, and full rollouts: a round's stop word does not reach other hosts."""
    if not hosts:
        return ""
    if unknown := [name for name in hosts if name != HEAD and name not in cores]:
        return f"{{0}} has no `{printable(unknown[0])}`"
    if len({*hosts}) < len(hosts):
        return "names a host twice"
    if workers < len(hosts):
        return f"{{1}} is too low: {len(hosts)} hosts have one each"
    return "{2} cannot end a round early on other hosts" if fraction < 1 else ""


def _carrier_breach(carrier: str, decentralized: bool) -> str:
    """Require slots where gradient workers read each other's gradients in place."""
    return "{0} reads the gradients of other workers in place" if carrier == "zmq" and decentralized else ""


def _decentralized_breach(decentralized: bool, communication: str) -> str:
    """Require a fixed order of gradients: replicas stay equal only if all reduce the same ones in the same order."""
    return "{0} has no fixed order of gradients" if communication == "asynchronous" and decentralized else ""


def _top_k_breach(top_k: float, compression: str) -> str:
    return "{0} sends all elements" if top_k < 1 and compression != "top-k" else ""


def _wrappers_breach(wrappers: tuple[Any, ...], vector: str) -> str:
    return "{0} has no single environments to wrap" if wrappers and vector == "native" else ""


def _mask_breach(mask: str | None, vector: str) -> str:
    return "{0} has no single environments to wrap" if mask and vector == "native" else ""


def _program_breach(program: Any, preset: str, wrappers: tuple[Any, ...], vector: str) -> str:
    """Require that nothing changes or vectorizes single environments in Python where there are none."""
    if not program:
        return ""
    if preset != "none":
        return "{0} is for environments in Python, not for a program"
    if wrappers:
        return "{1}: a program has no environments in Python to wrap"
    return "{2}: a program has no compiled or vectorized form" if vector == "native" else ""


def _mask_of_program_breach(mask: str | None, command: tuple[str, ...], connect: str | None) -> str:
    is_program = command or connect is not None
    return (
        "a program gives its mask as a part of its observations: name that part"
        if is_program and mask == "info"
        else ""
    )


def _rebuild_breach(rebuild: bool, command: tuple[str, ...], connect: str | None) -> str:
    return "a program is started once, and reset at checkpoints" if rebuild and (command or connect is not None) else ""


def _curriculum_of_program_breach(stages: tuple[Any, ...], command: tuple[str, ...], connect: str | None) -> str:
    return "a program has its options from its start" if stages and (command or connect is not None) else ""


def _single_breach(value: Any, vector: str) -> str:
    """Require single environments where they differ, or where resets have options."""
    return "{0} has no single environments that could differ" if value and vector == "native" else ""


def _placeholder_breach(options: Mapping[str, Any], vector: str) -> str:
    return _single_breach(has_placeholders(options), vector)


def _each_breach(
    each: tuple[Any, ...],
    workers: int,
    gradient_workers: int,
    envs: int,
    every: Mapping[str, Any],
    evaluators: int,
    evaluator_envs: int,
) -> str:
    """Require indices that environments of collectors or evaluators have."""
    training = training_indices(workers or max(gradient_workers, 1), envs)
    evaluated = evaluator_indices(training, evaluators, evaluator_envs)
    found = outside(each, [training, evaluated] if every else [training])
    if found is None:
        return ""
    text = f"index {found} is none of the environments: those of collectors are {_numbered(training)} ({{0}}, {{2}})"
    return text + (f", those of evaluators {_numbered(evaluated)} ({{4}}, {{5}})" if every else "")


def _evaluation_each_breach(
    table: Mapping[str, Any], workers: int, gradient_workers: int, envs: int, evaluators: int, evaluator_envs: int
) -> str:
    """Require indices that environments of evaluators have."""
    each = table.get("each", ())
    if not isinstance(each, list | tuple) or not are_each(each):
        return ""
    training = training_indices(workers or max(gradient_workers, 1), envs)
    evaluated = evaluator_indices(training, evaluators, evaluator_envs)
    if (found := outside(each, [evaluated])) is None:
        return ""
    follow = (
        f"those of evaluators are {_numbered(evaluated)} ({{3}}, {{4}}) and follow those of collectors ({{0}}, {{2}})"
    )
    return f"index {found} is none of the environments of evaluations: {follow}"


def _numbered(indices: range) -> str:
    return f"{indices.start} to {indices.stop - 1}"


def _evaluation_env_breach(table: Mapping[str, Any]) -> str:
    """Require keys of [env], with values that are allowed there."""
    keys = keys_of(EnvConfig)
    for name, value in table.items():
        if name not in keys:
            close = closest(name, keys)
            return f"[env] has no key `{printable(name)}`" + (f", did you mean `{close}`?" if close else "")
        if keys[name].fault(value) is not None:
            return f"{name}: expected {keys[name].expected()}, got {shown(value)}".replace("{", "{{").replace("}", "}}")
    return ""


def _clock_breach(every: Mapping[str, Any], collection: str, gradients: str) -> str:
    """Require a schedule in numbers for deterministic runs: their resume barriers must not depend on a clock."""
    if "seconds" not in every or "asynchronous" in (collection, gradients):
        return ""
    return "{0} with {1} requires {{ steps = N }} or {{ updates = N }}"


def _options_breach(options: Mapping[str, Any], name: str) -> str:
    return "" if not options or is_reference(name) else "{0} takes no options: its keys belong in [algorithm]"


def _head_breach(head: str | None, module: str | None) -> str:
    return "{0} replaces the heads too" if head is not None and module is not None else ""


def _gain_breach(gain: str) -> Callable[[float, str], str]:
    """Return the breach of a gain: only orthogonal weights have one."""
    usual = keys_of(NetworkConfig)[gain].default
    return lambda value, initialization: "{0} has no gains" if value != usual and initialization == "uniform" else ""


def _ignored_breach(name: str) -> Callable[[Any, str | None], str]:
    """Return the breach of a key of [network] with a custom network or head, which does not read it."""
    usual = keys_of(NetworkConfig)[name].default
    return lambda value, custom: "{0} ignores it" if value != usual and custom is not None else ""


def _refusal_breach(row: Refusal) -> Callable[[Any, str], str]:
    """Return the breach of a key that algorithms refuse."""
    return lambda value, name: f"{{0}} {row.text}" if name in row.algorithms and row.is_refused(value) else ""


def _extractor_breach(options: Mapping[str, Any], extractor: str | None) -> str:
    return "there is no network.extractor to take them" if options and extractor is None else ""


def _value_breach(widths: tuple[int, ...] | None, separate: bool, algorithm: str) -> str:
    """Require a network of the value's own: critics are separate networks in any case."""
    if widths is None:
        return ""
    if algorithm in VALUES:
        return "{1} has no network beside that of its action values: network.middleware has its widths"
    known = ALGORITHMS.get(algorithm)
    shares = not separate and known is not None and not issubclass(known, AgentConfig)
    return "{0} lets policy and value share these layers" if shares else ""


def _noise_breach(steps: int, distribution: str) -> str:
    return "{0} draws its noise in every step" if steps and distribution != "gsde" else ""


def _layer_breach(distribution: str, middleware: tuple[int, ...]) -> str:
    return "{0} leaves no layer for its noise" if distribution == "gsde" and not middleware else ""


def _gsde_breach(text: str, allowed: Any) -> Callable[[str, Any], str]:
    """Return the breach of gSDE with another value of a key than the allowed one."""
    return lambda distribution, value: text if distribution == "gsde" and value != allowed else ""


def _no_lag_breach(max_lag: int, interval: int) -> str:
    without = "it has no effect without lag, which it corrects: {0}, {1}; leave it out"
    return "" if max_lag or interval > 1 else without


def _no_clip_breach(clip: float) -> str:
    return "" if clip else "it has no effect: {0} turns all weights off"


def _no_priorities_breach(exponent: float) -> str:
    return (
        "" if exponent else "it has no effect without priorities, {0}: set algorithm.priority_exponent, or leave it out"
    )


def _divergences_breach(name: str) -> str:
    return "" if name != "c51" else "the priorities of {0} are divergences, which are no errors: leave it out"


def _fixed_temperature_breach(learns: bool) -> str:
    return "" if learns else "it has no effect with {0}: algorithm.temperature stays as it is"


def _no_noise_breach(noise: float) -> str:
    return "" if noise else "it has no effect with {0}: there is no noise to limit"


def _no_rmsprop_breach(optimizer: str) -> str:
    return "" if optimizer == "rmsprop" else "it has no effect with {0}: leave it out"


def _no_pool_breach(algorithm: str) -> str:
    replays = algorithm in REPLAYING
    return "it has no effect with {0}: its learner takes all rollouts; leave it out" if replays else ""


def _no_replicas_breach(workers: int) -> str:
    return "" if workers else "it has no effect without gradient workers: set gradients.workers, or leave it out"


def _own_rewards_breach(normalizes: bool) -> str:
    return "" if normalizes else "it has no effect with {0}: rewards stay as they are"


def _no_run_breach(place: str | None) -> str:
    return "" if place is not None else "it has no effect without run.init_from"


PROGRAMS = ("env.command", "env.connect")
GAINS = ("hidden_gain", "policy_gain", "value_gain")
IGNORED = {
    "module": (
        "extractor",
        "value_middleware",
        "memory",
        "initialization",
        *GAINS,
        "action_deviation",
        "initial_deviation",
        "noisy_deviation",
        "precision",
    ),
    "extractor": ("precision",),
    "policy_head": ("policy_gain", "action_deviation", "initial_deviation"),
    "value_head": ("value_gain",),
}
"""Key of [network] for custom code -> the keys of [network] that this code does not read."""

GSDE = {
    "network.module": ("{0} has no known layer for its noise", None),
    "network.policy_head": ("{0} does not compute its noise", None),
    "network.action_deviation": ("{0} does not apply to it: its deviations are always parameters", "parameter"),
}
"""Key -> why another value than the second cannot be combined with gSDE."""

TRAINING = "collection.workers", "gradients.workers", "collection.envs"
EVALUATORS = "evaluation.workers", "evaluation.envs"
"""Keys that say which indices environments have."""

RULES = (
    *(Rule(f"env.{name}", APART_BY, _apart_breach(name)) for name in APART),
    Rule("collection.helpers", APART_BY, _helpers_breach),
    Rule("collection.max_lag", ("collection.communication",), _lag_breach),
    Rule("gradients.max_lag", ("gradients.communication",), _lag_breach),
    Rule("collection.slots", ("collection.communication", "collection.max_lag"), _slots_breach),
    Rule("collection.ownership", ("collection.workers", "gradients.workers"), _ownership_breach),
    Rule("collection.fraction_workers", ("collection.communication",), _fraction_breach),
    Rule("run.carrier", ("gradients.decentralized",), _carrier_breach),
    Rule("collection.hosts", ("hosts.cores", "collection.workers", "collection.fraction_workers"), _hosts_breach),
    Rule("gradients.decentralized", ("gradients.communication",), _decentralized_breach),
    Rule("gradients.top_k", ("gradients.compression",), _top_k_breach),
    Rule("checkpoint.every", ("collection.communication", "gradients.communication"), _clock_breach),
    Rule("env.wrappers", ("env.vector",), _wrappers_breach),
    Rule("env.action_mask", ("env.vector",), _mask_breach),
    Rule("env.action_mask", ("env.command", "env.connect"), _mask_of_program_breach),
    Rule("env.curriculum", ("env.command", "env.connect"), _curriculum_of_program_breach),
    Rule("env.rebuild", ("env.command", "env.connect"), _rebuild_breach),
    *(Rule(name, ("env.preset", "env.wrappers", "env.vector"), _program_breach) for name in PROGRAMS),
    Rule("env.reset_options", ("env.vector",), _single_breach),
    Rule("env.each", ("env.vector",), _single_breach),
    Rule("env.options", ("env.vector",), _placeholder_breach),
    Rule("env.each", (*TRAINING, "evaluation.every", *EVALUATORS), _each_breach),
    Rule("network.policy_head", ("network.module",), _head_breach),
    Rule("network.value_head", ("network.module",), _head_breach),
    *(Rule(f"network.{gain}", ("network.initialization",), _gain_breach(gain)) for gain in GAINS),
    *(
        Rule(f"network.{name}", (f"network.{custom}",), _ignored_breach(name))
        for custom, names in IGNORED.items()
        for name in names
    ),
    Rule("network.extractor_options", ("network.extractor",), _extractor_breach),
    Rule("network.value_middleware", ("network.separate_networks", "algorithm.name"), _value_breach),
    *(Rule(row.what, ("algorithm.name",), _refusal_breach(row)) for row in KEYS),
    Rule("network.noise_steps", ("network.action_distribution",), _noise_breach),
    Rule("network.action_distribution", ("network.middleware",), _layer_breach),
    *(Rule("network.action_distribution", (key,), _gsde_breach(*breach)) for key, breach in GSDE.items()),
    Rule("algorithm.options", ("algorithm.name",), _options_breach),
    Rule("evaluation.hosts", ("hosts.cores", "evaluation.workers"), _hosts_breach),
    Rule("evaluation.env", (), _evaluation_env_breach),
    Rule("evaluation.env", (*TRAINING, *EVALUATORS), _evaluation_each_breach),
    Rule("evaluation.envs", ("evaluation.episodes",), _evaluation_breach),
    Rule("evaluation.best_by", ("env.info", "evaluation.env"), _best_by_breach),
    Rule("run.stop_at_evaluation", ("evaluation.every",), _stop_breach),
    Rule("run.stop_after_evaluations", ("run.stop_at_evaluation",), _times_breach),
    Rule("run.stop_when_no_better", ("evaluation.every",), _no_better_breach),
    Rule("env.curriculum", ("collection.hosts",), _curriculum_breach),
    Rule("evaluation.videos", ("evaluation.every", "evaluation.episodes"), _videos_breach),
    Rule("evaluation.keep_videos", ("evaluation.videos",), _keep_videos_breach),
)
"""All rules, in the order in which they are checked."""

IDLE = (
    Idle("algorithm.vtrace", ("collection.max_lag", "collection.broadcast_interval"), _no_lag_breach),
    Idle("algorithm.vtrace", ("algorithm.importance_clip",), _no_clip_breach),
    Idle("algorithm.importance_exponent", ("algorithm.priority_exponent",), _no_priorities_breach),
    Idle("algorithm.initial_errors", ("algorithm.priority_exponent",), _no_priorities_breach),
    Idle("algorithm.initial_errors", ("algorithm.name",), _divergences_breach),
    Idle("algorithm.target_entropy", ("algorithm.learn_temperature",), _fixed_temperature_breach),
    Idle("algorithm.target_entropy_share", ("algorithm.learn_temperature",), _fixed_temperature_breach),
    Idle("algorithm.target_noise_clip", ("algorithm.target_noise",), _no_noise_breach),
    Idle("algorithm.rmsprop_decay", ("algorithm.optimizer",), _no_rmsprop_breach),
    Idle("network.reward_clip", ("network.normalize_rewards",), _own_rewards_breach),
    Idle("run.init_statistics", ("run.init_from",), _no_run_breach),
    Idle("collection.ownership", ("algorithm.name",), _no_pool_breach),
    Idle("gradients.decentralized", ("gradients.workers",), _no_replicas_breach),
)
"""Keys that others leave without an effect. What depends on the environment is in hive.algorithms.making."""
