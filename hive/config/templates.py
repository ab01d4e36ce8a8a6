"""Writes the config that `hive init` starts a user with: few keys, each with the reason for its value.

A key is written if its value differs from its default beside the other keys. The names of scheme, environment and
budget are always written. `hive config` shows all other keys.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hive.config.load import load_config
from hive.config.policies import POLICIES
from hive.config.rendering import COMMENT_COLUMN, sections
from hive.config.schema import Config
from hive.config.values import toml_text

LINE = 120  # longest line of the text in front of the keys

ALWAYS = {
    "run.scheme": "algorithm, and how the processes work together",
    "run.steps": "environment steps after which the run is finished",
    "env.id": "Gymnasium id, package.module:Class, or ./library.so:Name",
}

EVALUATIONS = 20  # proposed for a run: each takes as long as its episodes, and has a video

WATCHED = """
# {count} evaluations with a video of each, which `hive web` shows: remove the `# ` below.
# [evaluation]
# every = {{ steps = {steps:_} }}
# videos = 1                       # needs pip install 'hive-trainer[video]'
"""

# Reasons for tuned values: what the key does to learning. Keys that are not listed have the text of `hive config`.
REASONS: Mapping[str, str] = {
    **ALWAYS,
    "env.preset": "the usual preprocessing: 4 frames a step, 84 x 84 gray pixels, signs of rewards",
    "env.frame_stack": "several frames show what moves, and where to",
    "env.scale_actions": "the source's policy acts in the units of the environment",
    "network.separate_networks": "policy and value share the convolutions",
    "collection.envs": "environments side by side",
    "collection.rollout": "steps of each environment in a round, {samples:,} together",
    "algorithm.learning_rate_schedule": "to 0 at run.steps, so that late updates keep a good policy",
    "algorithm.discount": "rewards of about the next {horizon:,} steps count",
    "algorithm.gae_lambda": "lower: less noise, more trust in the value function",
    "algorithm.epochs": "times that each step is learned from",
    "algorithm.minibatches": "updates per epoch, each from {batch:,} steps",
    "algorithm.clip_range": "how far one round may move the policy's probabilities",
    "algorithm.clip_range_schedule": "to 0 at run.steps: the policy settles",
    "algorithm.value_clip_range": "how far one round may move a value",
    "algorithm.entropy_weight": "reward for randomness; 0: the policy explores enough without it",
    "algorithm.updates_per_step": "updates per environment step",
    "algorithm.learning_starts": "steps with random actions before the first update",
    "algorithm.target_rate": "the target network is a copy of the online one",
    "algorithm.double": "the target network chooses the next action, as in the first DQN",
    "algorithm.exploration_end": "final probability of a random action",
    "algorithm.exploration_steps": "environment steps until exploration_end",
    "algorithm.optimizer": "the optimizer for which these settings were tuned",
    "network.activation": "the activation function with which these settings were tuned",
    "network.middleware": "widths of the dense layers: room for a complex policy",
    "network.initialization": "initial weights as those of torch.nn.Linear",
    "network.initial_deviation": "smaller first actions than with the default",
    "network.normalize_observations": "so that no element dominates by its scale",
    "network.normalize_rewards": "so that values are of order 1, whatever the size of the rewards",
}


@dataclass(frozen=True)
class Setting:
    """A key that a starting config sets, by its full name, and the reason for its value.

    written: also where the value is the default.
    """

    name: str
    value: Any
    reason: str
    written: bool = False


@dataclass(frozen=True)
class PolicyRow:
    """A row of [policies] that a starting config has: a policy, the patterns of its agents, its own keys of [network].

    reason: the comment of its line.
    """

    name: str
    agents: str | list[str]
    network: Mapping[str, Any]
    reason: str

    @property
    def line(self) -> str:
        """The line of TOML."""
        value: Any = {"agents": self.agents, "network": dict(self.network)} if self.network else self.agents
        return f"{f'{self.name} = {toml_text(value)}':<{COMMENT_COLUMN - 1}} # {self.reason}"


def reasoned(keys: Mapping[str, Any], env_id: str, scheme: str) -> list[Setting]:
    """Return tuned values as settings, with the reasons of REASONS."""
    config = _load(env_id, scheme, keys)
    samples = config.collection.workers * config.collection.envs * config.collection.rollout
    numbers = {
        "samples": samples,
        "batch": samples // getattr(config.algorithm, "minibatches", 1),
        "horizon": round(1 / max(1 - config.algorithm.discount, 1e-6)),
    }
    docs = {entry.name: entry.doc for entry in config.entries()}
    reasons = docs | {name: reason.format_map(numbers) for name, reason in REASONS.items()}
    return [Setting(name, value, reasons[name]) for name, value in keys.items()]


def template(
    env_id: str,
    scheme: str,
    settings: list[Setting],
    origin: str,
    *,
    policies: Sequence[PolicyRow] = (),
    evaluates: bool = True,
    notes: Sequence[str] = (),
) -> str:
    """Return a short, working config. Raises ConfigError if the environment's name or the scheme is invalid.

    origin: a sentence about where the settings come from. policies: the rows of [policies]. evaluates: whether runs of
    this environment can have evaluations. notes: what the settings do not have of their source, a paragraph each.
    """
    config = _load(env_id, scheme, {setting.name: setting.value for setting in settings})
    reasons = {setting.name: setting.reason for setting in settings}
    written = {setting.name for setting in settings if setting.written}
    rows = []
    for entry in config.entries():
        default = config.unset[entry.name]  # which may follow from the other settings
        if entry.name in reasons and entry.changed:
            instead = "none" if default is None else toml_text(default)
            rows.append((entry.name, entry.value, f"{reasons[entry.name]}; default {instead}"))
        elif entry.name in written:
            rows.append((entry.name, entry.value, f"{reasons[entry.name]}, hive's default"))
        elif entry.name in ALWAYS:
            rows.append((entry.name, entry.value, ALWAYS[entry.name]))
    lines = textwrap.wrap(origin, LINE, initial_indent="# ", subsequent_indent="# ")
    for note in notes:
        lines += textwrap.wrap(note, LINE, initial_indent="# ", subsequent_indent="#   ")
    opening = "\n".join(lines) + (
        "\n# Start it with `hive up FILE`. Other keys have their defaults: `hive config FILE` shows all of them.\n"
    )
    named = "\n".join(["", f"[{POLICIES}]", *(row.line for row in policies), ""]) if policies else ""
    watched = WATCHED.format(count=EVALUATIONS, steps=max(config.run.steps // EVALUATIONS, 1))
    watched = watched if evaluates and not config.evaluation.every else ""
    return opening + "\n" + sections(rows) + named + watched


def _load(env_id: str, scheme: str, keys: Mapping[str, Any]) -> Config:
    given = {"run.scheme": scheme, "env.id": env_id, **keys}
    return load_config("template", text="".join(f"{name} = {toml_text(value)}\n" for name, value in given.items()))
