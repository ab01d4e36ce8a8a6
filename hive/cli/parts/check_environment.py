"""`hive check --env`: describes one environment, and what hive will do with it, in a user's words.

    spaces -> 1,000 steps of random actions -> two of it, alone and in turn -> settings, storage and network

It builds nothing but environments and one network, and leaves no files.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import time
from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hive.cli.parts.json_output import environments_to_stderr
from hive.cli.parts.trial import call_limits, examined_in_time
from hive.config import DEFAULT_SCHEME, Config, EnvConfig, load_config, reasoned, tuned
from hive.config.each import FIELDS, indices_of
from hive.config.references import give_setup
from hive.config.values import toml_text
from hive.errors import ConfigError, EnvironmentFailed, HiveError
from hive.hash_seed import SEED, VARIABLE
from hive.printable import printable
from hive.records.run_warnings import RunWarning

if TYPE_CHECKING:  # imports Gymnasium
    from hive.envs import EnvironmentSpec, Examination
    from hive.training import Blueprint

STEPS = 1000  # steps of random actions
REPEATED_STEPS = 200  # of each equally seeded environment
VECTOR = 256  # compiled environments that are stepped at once to measure their cost
VECTOR_S = 0.1  # duration of that
SHOWN = 100  # characters of an entry of env.each
MOST_EACH = 4  # entries of env.each that are shown
LIMIT_S = 5.0  # maximum duration of each of the two
TUNED = "tuned: "  # begins the origin of tuned settings, which suit the environment's rewards
LARGE_REWARD = 10.0  # values of this size and more slow down learning where rewards are not normalized
LAYERS = {
    "Embedding": "embedding tables",
    "Convolution": "convolutions",
    "Linear": "dense layers",
    "LSTM": "LSTM",
    "GRU": "GRU",
}
NUMBER_BYTES = {"float32": 4, "uint8": 1}


class Report(NamedTuple):
    """Lines about an environment, name -> text; its warnings and notes; and what would end a run."""

    facts: dict[str, Any]
    warnings: list[RunWarning]
    notes: list[str]
    failure: EnvironmentFailed | None


def check_environment(options: argparse.Namespace) -> int:
    """Print the report; return the exit code. Raises HiveError for an environment that hive cannot use."""
    with environments_to_stderr(options.json):
        facts, found, notes, failure = _report(options)
    warnings = [warning.line for warning in found]
    if options.json:
        error = {} if failure is None else {"error": str(failure), "hint": failure.hint}
        print(
            json.dumps(
                {"environment": options.env, "facts": facts, "warnings": warnings, "notes": notes, **error}, indent=2
            )
        )
        return 0 if failure is None else failure.exit_code
    print(f"environment `{printable(options.env)}`")
    width = max(map(len, facts)) + 2
    for name, text in facts.items():
        print(f"  {name:<{width}}{printable(text)}")
    for warning in warnings:
        print(f"warning: {printable(warning)}")
    print_notes(notes)
    if failure is not None:  # what would end a run
        raise failure
    if options.config or not options.set:  # `hive init` takes no overrides
        following = ["hive", "check", str(options.config)] if options.config else ["hive", "init", options.env]
        print(f"next: {shlex.join(following)}")
    return 0


def unaccepted(warnings: Iterable[RunWarning], config: Config) -> list[RunWarning]:
    """Return the warnings that the config does not accept."""
    return [warning for warning in warnings if warning.kind not in config.run.accept]


def print_warnings(warnings: Iterable[RunWarning], config: Config) -> None:
    """Print the warnings that the config does not accept."""
    for warning in unaccepted(warnings, config):
        print(f"warning: {printable(warning.line)}")


def print_notes(notes: Iterable[str]) -> None:
    """Print what is only worth knowing."""
    for note in notes:
        print(f"note: {printable(note)}")


def _report(options: argparse.Namespace) -> Report:
    """Return the report on the environment."""
    from hive.envs import configured_spec, needed_wrappers, preset_for
    from hive.training.run_start import steps_between_barriers

    sets = [f"env.id={json.dumps(options.env)}", *options.set]
    if options.config is None:
        wrappers = json.dumps(needed_wrappers(options.env))
        sets[:0] = [f"env.preset={preset_for(options.env)}", f"env.wrappers={wrappers}"]  # as `hive init` sets them
    given = load_config(options.config or "run.toml", sets, text=None if options.config else "")
    give_setup(given.run.setup)
    spec = configured_spec(given.env)
    config, origin = (given, str(options.config)) if options.config else _chosen(spec, options.env, sets)
    env = config.env
    if env.action_mask != given.env.action_mask:  # chosen by the spaces, and a run of `hive init`'s config has it
        spec = configured_spec(env)
    done = examined_in_time(config, STEPS, LIMIT_S, several=bool(spec.agents), look_s=LIMIT_S)
    if spec.agents:
        return _report_agents(config, origin, spec, done)
    facts: dict[str, Any] = _spaces(spec) | _each(env)
    facts |= _played(done, spec)
    blueprint = _blueprint(config)
    done.begun_anew = steps_between_barriers(blueprint)
    notes = done.notes(env.id) + _reward_notes(done, config, origin)
    if done.failure is None:
        facts |= _compiled(env, spec) | _looked(done)
        notes += _salt_notes(config) if done.looked is not None and not done.looked.differs else []
    if spec.frame_skip > 1:
        facts["frames"] = frames_text(spec.frame_skip, config.run.steps).removeprefix("frames: ")
    found = unaccepted(done.warnings(env.id), config)
    return Report(facts | _use(blueprint, origin, spec), found, notes, done.failure)


def _report_agents(config: Config, origin: str, spec: EnvironmentSpec, done: Examination) -> Report:
    """Return the same as `_report`, of an environment of several agents."""
    from hive.training.policies import Policies

    facts, id = dict(done.agents), config.env.id
    warnings, notes = unaccepted(done.warnings(id), config), done.notes(id)
    try:
        policies = Policies.of(config, spec)
    except ConfigError as error:
        return Report(facts | _each(config.env), warnings, [*notes, f"{error}; {error.hint}"], done.failure)
    for policy in policies.learning:
        facts[f"policy {policy.name}"] = f"learns to act for {', '.join(policy.seat.agents)}"
    for name, row in config.policies.items():
        if not row.learns:
            agents = ", ".join(agent for agent, make in policies.bots.items() if make.args == (row,))
            facts[f"policy {name}"] = f"acts for {agents}: {row.scripted or row.weights}"
    blueprint = _blueprint(config)
    facts |= _use(blueprint, origin, blueprint.environment) | _each(config.env)
    return Report(facts, warnings, notes, done.failure)


def _each(env: EnvConfig) -> dict[str, str]:
    """Return the line about the environments that have options of their own."""
    texts = []
    for entry in env.each:
        own = [toml_text({name: entry[name]}) for name in FIELDS if entry.get(name)]
        texts.append(f"{', '.join(map(str, indices_of(entry)))}: {', '.join(own)}"[:SHOWN])
    if len(texts) > MOST_EACH:
        texts[MOST_EACH:] = [f"and {len(texts) - MOST_EACH} more entries"]
    return {"env.each": "; ".join(texts)} if texts else {}


def frames_text(skip: int, steps: int) -> str:
    """Return a line about an environment that makes `skip` frames a step, in a run of `steps` steps."""
    return f"frames: {skip} a step: the {steps:,} steps of run.steps are {skip * steps:,} frames"


def _chosen(spec: EnvironmentSpec, id: str, sets: list[str]) -> tuple[Config, str]:
    """Return the config that `hive init` would write, with `sets`, and where its settings come from."""
    from hive.envs import Recipe, settings_by_spaces
    from hive.envs.spaces.masks import info_has_mask

    schemes = tuned(id)
    plain = load_config("run.toml", sets, text="")
    scheme = next(iter(schemes), DEFAULT_SCHEME)
    if plain.origin("run.scheme") == "--set":
        scheme = plain.run.scheme
    if scheme in schemes:
        settings, origin = reasoned(schemes[scheme].keys, id, scheme), f"{TUNED}{schemes[scheme].source}"
    else:
        settings = settings_by_spaces(
            spec,
            scheme,
            plain.env.preset,
            info_has_mask=info_has_mask(
                Recipe(id, plain.env.options, reset_options=plain.env.reset_options, each=plain.env.each)
            ),
        )
        origin = "chosen by the spaces"
    chosen = {"run.scheme": scheme, **{setting.name: setting.value for setting in settings}}
    text = "".join(f"{name} = {toml_text(value)}\n" for name, value in chosen.items())
    return load_config("run.toml", sets, text=text), origin


def _spaces(spec: EnvironmentSpec) -> dict[str, str]:
    from hive.envs import spaces_text

    observed, _, acted = spaces_text(spec).partition(" observed, ")
    kind = f"{spec.observation.dtype} {list(spec.observation.shape)}"
    return {"observations": f"{observed}, stored as {kind}", "actions": acted, **_meanings(spec)}


def _meanings(spec: EnvironmentSpec) -> dict[str, str]:
    """Return the lines about what parts of the spaces mean to a network."""
    from hive.envs.spaces.meaning import space_meanings

    return {
        f"{name}, as seen" if not name.startswith("action") else name + ", scaled": text
        for name, text in space_meanings(spec)
    }


def _played(done: Examination, spec: EnvironmentSpec) -> dict[str, str]:
    """Return the lines about rewards, episodes and costs; none if no step was made."""
    if not done.steps:
        return {}
    rewards = np.array(done.rewards) + 0.0  # -0.0 becomes 0.0
    low, high = rewards.min(), rewards.max()
    size = f"always {low:g}" if low == high else f"{low:g} to {high:g}, mean {rewards.mean():.3g}"
    zero = float((rewards == 0).mean())
    text = size + (f"; {zero:.{0 if 0.01 <= zero <= 0.99 else 1}%} are 0" if 0 < zero < 1 else "")
    lines = {"rewards": f"{text} ({done.steps:,} steps of random actions)", "episodes": _episodes(done)}
    if spec.max_episode_steps is not None:
        lines["episodes"] += f"; limited to {spec.max_episode_steps:,} steps"
    step, reset = done.mean_step_s, done.mean_reset_s
    rate = f"{1 / step:,.0f}" if step < 0.1 else f"{1 / step:.2g}"
    lines["cost"] = f"{_duration(step)} a step, {_duration(reset)} a reset: at most {rate} steps/s a collector"
    if first := done.first_calls():
        lines["first calls"] = f"{first}, as compilation does, which is not in the cost"
    return lines


def _looked(done: Examination) -> dict[str, str]:
    """Return the lines about a look at two environments."""
    if (looked := done.looked) is None:
        return {"same seed": f"not compared, because a construction takes {_duration(done.make_s)}"}
    differs = "gives other results" if looked.differs else "gives the same observations, rewards and ends"
    return {"same seed": differs, "looked at": looked.scope}


def _compiled(env: EnvConfig, spec: EnvironmentSpec) -> dict[str, str]:
    """Return the line about the cost of a compiled environment, which a run steps many at once; none for others."""
    from hive.envs import StepRow, make_compiled, recipe_of

    recipe = recipe_of(env)
    if recipe.preset != "none" or recipe.wrappers or env.is_apart:
        return {}
    vector = make_compiled(recipe, VECTOR)
    if vector is None:  # another kind is never built so often: each of a simulator's may take seconds and gigabytes
        return {}
    row = StepRow.allocate(spec.observation, VECTOR)
    vector.reset(range(VECTOR), row.observations)
    actions = np.zeros((VECTOR, *spec.action.shape), spec.action.dtype)
    steps, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < VECTOR_S:
        row.finals.count = 0
        vector.step(actions, row)
        steps += VECTOR
    vector.close()
    rate = f"at most {steps / took:,.0f} steps/s a collector"
    return {"cost": f"{took / steps * 1e9:,.3g} ns a step, compiled, {VECTOR} at once: {rate}"}


def _episodes(done: Examination) -> str:
    if not done.episodes:
        return "none ended"
    lengths, returns = np.array(done.lengths), np.array(done.returns)
    return (
        f"{done.episodes:,} ended, after {lengths.min():,} to {lengths.max():,} steps (mean {lengths.mean():.0f}), "
        f"with returns from {returns.min():.4g} to {returns.max():.4g} (mean {returns.mean():.4g}); {done.ends}"
    )


def _salt_notes(config: Config) -> list[str]:
    """Return what an environment does otherwise in an interpreter with another hash seed, as one sentence."""
    from hive.envs import salted

    try:
        found = salted(config.env, REPEATED_STEPS, LIMIT_S, call_limits(config))
    except HiveError:  # it cannot be played apart
        return []
    if not found:
        return []
    return [
        f"`{config.env.id}`: an interpreter with another hash seed gets another {found}, as from the order of a set of "
        f"texts; runs and commands of hive have {VARIABLE}={SEED}: start programs that play its policies as "
        f"`{VARIABLE}={SEED} python ...`, or sort what is made of sets"
    ]


def _reward_notes(done: Examination, config: Config, origin: str) -> list[str]:
    rewards = np.array([reward for reward in done.rewards if np.isfinite(reward)])
    found = []
    if len(rewards) and not rewards.any():
        found.append(
            f"`{config.env.id}`: all {len(rewards):,} rewards of random actions were 0; if a policy finds none either, "
            "there is nothing to learn from"
        )
    scaled = config.network.normalize_rewards or (config.env.preset == "atari" and _clips(config.env.options))
    if len(rewards) and np.abs(rewards).max() > LARGE_REWARD and not scaled and not origin.startswith(TUNED):
        size = f"{np.abs(rewards).max():g}"
        found.append(f"`{config.env.id}`: rewards up to {size} are large; set network.normalize_rewards = true")
    return found


def _clips(options: Mapping[str, Any]) -> bool:
    return bool(options.get("clip_rewards", True))


def _blueprint(config: Config) -> Blueprint:
    """Return the blueprint of a run with this config. Raises MemoryShort if that needs too much memory."""
    from hive.schemes.sizes import check_settings
    from hive.training import Blueprint

    # Nothing but the first weights depends on these, and their files need not exist here.
    blueprint = Blueprint(dataclasses.replace(config, run=dataclasses.replace(config.run, init_from=None)))
    check_settings(blueprint.config, blueprint.environment)
    return blueprint


def _use(blueprint: Blueprint, origin: str, spec: EnvironmentSpec) -> dict[str, str]:
    """Return the lines about what hive does with the environment: settings, storage and network."""
    config, collection = blueprint.config, blueprint.config.collection
    network = blueprint.sketch
    kinds = [type(module).__name__ for module in network.modules()]
    layers = ", ".join(f"{kinds.count(kind)} {name}" for kind, name in LAYERS.items() if kind in kinds)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    observation = prod(spec.observation.shape) * NUMBER_BYTES[spec.observation.dtype]
    plain = load_config("run.toml", [f"env.id={json.dumps(config.env.id)}", f"run.scheme={config.run.scheme}"], text="")
    differing = [
        name
        for name in config.differences(plain)
        if not name.startswith("run.") and config.origin(name) != "default"  # which follows from another key
    ]
    changed = ", ".join(f"{name} = {toml_text(config.value(name))}" for name in differing)
    heads = " and ".join(head if isinstance(head, str) else head.name for head in blueprint.heads)
    layout = blueprint.rollout_layout
    return {
        "settings": f"scheme {config.run.scheme}, {origin}" + (f": {changed}" if changed else ""),
        "storage": f"{_size(observation)} an observation, {_size(layout.bytes - layout.sparse_bytes)} a rollout of "
        f"{collection.rollout:,} x {collection.envs:,} steps ({_size(layout.bytes)} if each truncates an episode)",
        "network": f"{layers}, heads {heads}, {parameters:,} parameters",
    }


def _duration(seconds: float) -> str:
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def _size(count: int) -> str:
    for unit in ("bytes", "KiB"):
        if count < 1024:
            return f"{count:,.4g} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:,.4g} MiB"
