"""`hive init`: writes a commented config that works."""

from __future__ import annotations

import argparse
import itertools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.config import (
    ALGORITHMS,
    DEFAULT_SCHEME,
    SCHEMES,
    ActorCriticConfig,
    Setting,
    load_config,
    reasoned,
    template,
    tuned,
    tuned_tasks,
)
from hive.config.syntax import hint_for_python
from hive.errors import UsageError
from hive.launch.control import print_to_stderr
from hive.paths import user_path
from hive.table import table_text

if TYPE_CHECKING:  # imports NumPy
    from hive.envs import EnvironmentSpec, Recipe

LARGE_BYTES = 1 << 16  # of one observation: the rounds of `hive init`, 2,048 steps in three slots, are then 400 MiB

NUMBER_BYTES = 4  # of a weight for each value of a discrete space, and of an element of a one-hot vector


def add_init(commands: Any) -> None:
    init = commands.add_parser(
        "init",
        description="Write a short config for an environment: tuned settings if hive has some, with their source,\n"
        "otherwise settings chosen by its observations and actions. Each key has a comment with the reason.\n"
        "With --from, the settings that a file of rl-baselines3-zoo has for the environment, in hive's keys.",
        epilog="\n".join(
            [
                "schemes:",
                *(f"  {name:8} {scheme.text}" for name, scheme in SCHEMES.items()),
                "",
                "example: hive init CartPole-v1",
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    init.add_argument("env", nargs="?", help="a Gymnasium environment id, or package.module:Class")
    init.add_argument(
        "--scheme",
        metavar="NAME",
        help="a scheme of the list below, or package.module:function (default: the best one that has tuned settings, "
        "or ppo)",
    )
    init.add_argument(
        "--from",
        dest="zoo_file",
        type=user_path,
        metavar="FILE",
        help="hyper-parameters of rl-baselines3-zoo, as ppo.yml, whose name says the scheme; what has no translation "
        "is printed and is in the config's comments",
    )
    init.add_argument(
        "-o",
        "--output",
        type=user_path,
        metavar="FILE",
        help="file to write; an existing file is never overwritten (default: a free name of "
        "environment and algorithm, as cartpole-ppo.toml, then cartpole-ppo-2.toml)",
    )
    init.add_argument("--list", action="store_true", help="list the environments with tuned settings and their sources")
    init.set_defaults(run=run_init)


def run_init(options: argparse.Namespace) -> int:
    if options.list:
        print(table_text(("environment", "scheme", "steps", "source"), list(_tuned_rows())))
        return 0
    if options.env is None:
        raise UsageError("no environment was given", hint="`hive init --list` lists those with tuned settings")
    if options.env.endswith(".py"):
        raise UsageError(f"`{options.env}` is a Python file; expected an environment", hint=_hint_for_file(options.env))
    notes: Sequence[object] = ()
    if options.zoo_file is None:
        text = _starting_config(options.env, options.scheme)
    else:
        from hive.cli.parts.from_zoo import config_from_zoo

        text, notes = config_from_zoo(options.env, options.zoo_file, options.scheme)
    file = _written(text, options.output)
    print(file)
    for note in notes:
        print_to_stderr(str(note))
    print(f"next: {shlex.join(['hive', 'check', str(file)])}, {shlex.join(['hive', 'up', str(file)])}")
    return 0


def _written(text: str, given: Path | None) -> Path:
    """Write a config to the given file, or to the first free one of those named as its runs; return the file.

    Raises UsageError if the given file exists, or none can be written.
    """
    name = load_config("template", text=text).run.name
    numbered = (Path(f"{name}{f'-{n}' if n > 1 else ''}.toml") for n in itertools.count(1))
    for output in numbered if given is None else [given]:
        try:
            with output.open("x", encoding="utf-8") as file:
                file.write(text)
            return output
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"cannot write `{output}`: {error.strerror}") from None
    raise UsageError(f"`{given}` already exists", hint="choose another name with -o, or leave it out for a free one")


def _hint_for_file(name: str) -> str:
    """Return the commands for what a Python file seems to define."""
    path = Path(name)
    return hint_for_python(name, path.read_bytes()) if path.is_file() else "an environment is `module:Class`"


def _tuned_rows() -> Iterator[tuple[str, str, str, str]]:
    for env_id, schemes in tuned_tasks().items():
        for scheme, entry in schemes.items():
            yield env_id, scheme, f"{entry.keys['run.steps']:,}", entry.source


def _starting_config(env_id: str, scheme: str | None) -> str:
    """Return the text of a config, with tuned settings if there are some for this environment and scheme."""
    from hive.envs import Recipe, describe, needed_wrappers, preset_for, settings_by_spaces, spaces_text
    from hive.envs.spaces.masks import info_has_mask

    preset, wrappers = preset_for(env_id), needed_wrappers(env_id)
    known = tuned(env_id)
    scheme = scheme or next(iter(known), DEFAULT_SCHEME)
    defaults = SCHEMES[scheme].defaults if scheme in SCHEMES else {}
    index, state = bool(defaults.get("env.agent_index")), bool(defaults.get("env.state"))
    recipe = Recipe(env_id, preset=preset, wrappers=wrappers, agent_index=index, state=state)
    spec = describe(recipe)
    if spec.agents:
        return _of_agents(recipe, scheme, spec)
    if scheme in known:
        origin = f"Tuned settings: {known[scheme].source}."
        return template(env_id, scheme, reasoned(known[scheme].keys, env_id, scheme), origin)
    others = f" of this scheme (but of {', '.join(known)})" if known else ""
    origin = f"No tuned settings{others}: chosen by the spaces ({spaces_text(spec)})."
    masked = info_has_mask(Recipe(env_id))
    settings = settings_by_spaces(spec, scheme, preset, wrappers=wrappers, info_has_mask=masked)
    text = template(env_id, scheme, settings, origin)
    if index or state:
        from hive.training.policies import check_has_agents  # imports torch, which takes a second

        check_has_agents(load_config("template", text=text))
    if scheme in SCHEMES and (_may_be_refused(scheme) or _may_be_large(spec)):
        from hive.schemes.sizes import check_settings  # imports torch, which takes a second

        check_settings(load_config("template", text=text), spec)
    return text


def _of_agents(recipe: Recipe, scheme: str, spec: EnvironmentSpec) -> str:
    """Return the text of a config for an environment of several agents."""
    from hive.envs import agents_text, describe, policies_by_spaces, settings_by_spaces
    from hive.envs.agents.examining import see_the_same

    alike = []
    if see_the_same(recipe):
        alike = [Setting("env.agent_index", True, "they always see the same, and may have to act differently")]
        spec = describe(replace(recipe, agent_index=True))
    settings, policies = [*alike, *settings_by_spaces(spec, scheme)], policies_by_spaces(spec, scheme)
    origin = f"No tuned settings: chosen by the spaces ({agents_text(spec)})."
    evaluates = not (policies or spec.takes_turns)
    text = template(recipe.id, scheme, settings, origin, policies=policies, evaluates=evaluates)
    if scheme in SCHEMES:
        from hive.schemes.sizes import check_settings  # these import torch, which takes a second
        from hive.training.policies import Policies

        for policy in Policies.of(load_config("template", text=text), spec).learning:
            check_settings(policy.config, policy.seat.spec)
    return text


def _may_be_refused(scheme: str) -> bool:
    """Return whether the algorithm of a scheme serves only some kinds of actions."""
    algorithm = SCHEMES[scheme].defaults.get("algorithm.name", "a2c")
    return not issubclass(ALGORITHMS[algorithm], ActorCriticConfig)


def _may_be_large(spec: EnvironmentSpec) -> bool:
    """Return whether the default settings may need gigabytes for these spaces."""
    from hive.envs.spaces.actions import choices_of

    values = [sum(one.counts) for one in spec.observation.inputs] + [sum(choices_of(spec.action) or ())]
    return max(spec.observation.bytes, *(NUMBER_BYTES * count for count in values)) >= LARGE_BYTES
