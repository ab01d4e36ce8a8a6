"""Writes a config from a file of rl-baselines3-zoo, for `hive init ENV --from ppo.yml`."""

from __future__ import annotations

from pathlib import Path

from hive.config import load_config, template
from hive.config.zoo.draft import Actions, Draft, Note
from hive.config.zoo.entries import ZooEntry, read_entry
from hive.config.zoo.environment import translate_environment
from hive.config.zoo.learning import translate_learning
from hive.envs import Box, EnvironmentSpec, Recipe, describe, needed_wrappers, preset_for
from hive.errors import UsageError

UNIT = {-1.0, 1.0}  # the bounds that every element of an action has, where no scale has to be left out


def config_from_zoo(env_id: str, file: Path, scheme: str | None) -> tuple[str, list[Note]]:
    """Return the text of a config with the settings of the file, and notes on what has no exact translation.

    scheme: as given; None: that of the file's name. Raises the errors of `read_entry` and `describe`, ConfigError for
    settings that hive cannot have, and UsageError for an environment of several agents.
    """
    atari = preset_for(env_id) == "atari"
    entry = read_entry(file, env_id, scheme, atari=atari)
    draft = Draft(entry)
    translate_environment(draft, atari=atari)
    _add_needed(draft, env_id, atari=atari)
    keys = {name.partition(".")[2]: setting.value for name, setting in draft.settings.items()}
    keys = {name: keys[name] for name in ("preset", "wrappers", "options") if name in keys}
    spec = describe(Recipe(env_id, **keys))
    if spec.agents:
        raise UsageError(f"`{env_id}` has several agents, and the Zoo's settings are for one", hint="leave out --from")
    translate_learning(draft, _actions(spec))
    text = template(
        env_id, entry.scheme, [*draft.settings.values()], _origin(entry), notes=[str(note) for note in draft.notes]
    )
    from hive.schemes.sizes import check_settings  # imports torch, which takes a second

    check_settings(load_config("template", text=text), spec)
    return text, draft.notes


def _add_needed(draft: Draft, env_id: str, *, atari: bool) -> None:
    """Add the preset or wrappers without which hive cannot use an environment, where the file names none."""
    if atari and "env.preset" not in draft.settings:
        draft.add("env.preset", "atari", "the usual frames, starts and rewards of these games")
    needed = needed_wrappers(env_id)
    if needed and "env.wrappers" not in draft.settings:
        draft.add("env.wrappers", needed, "hive takes no texts, so they are left out")


def _actions(spec: EnvironmentSpec) -> Actions:
    if not isinstance(spec.action, Box):
        return Actions(0, unit=True)
    return Actions(len(spec.action.low), unit={*spec.action.low, *spec.action.high} == UNIT)


def _origin(entry: ZooEntry) -> str:
    policy = entry.values.get("policy")
    chosen = f" Its network follows from the spaces, as that of `{policy}` does." if isinstance(policy, str) else ""
    return f"{entry.origin}{chosen}"
