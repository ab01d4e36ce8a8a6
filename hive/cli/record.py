"""`hive record`: plays an environment with the policy of a run, or with random actions, and writes its transitions.

    $ hive record Pendulum-v1 --policy pendulum-sac-1 -n 20000 -o expert.npz
    expert.npz: 20,000 transitions, 1.3 MB
    100 episodes, mean return -151.3

The file is one that `algorithm.replay_from` takes; hive.records.transitions describes it. Ctrl-C ends the play and
writes what there is.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_overrides, add_which, whole_number
from hive.cli.parts.playing import progress_line
from hive.cli.parts.transitions_file import checked_file, written_text
from hive.errors import UsageError
from hive.launch.sources import enter_run, policy_and_config, sources
from hive.paths import user_path
from hive.records.return_text import return_text

if TYPE_CHECKING:
    from hive.config import Config
    from hive.policy.loaded import Policy

STEPS = 10_000
INTERRUPTED = 130  # exit code of a command that Ctrl-C has ended


def add_record(commands: Any) -> None:
    record = commands.add_parser(
        "record",
        description="Play an environment with the policy of a run, or with random actions, and write the transitions "
        "to a file, from which algorithm.replay_from fills a replay memory.",
        epilog="example: hive record Pendulum-v1 --policy pendulum-sac-1 -n 20000 -o expert.npz",
    )
    record.add_argument(
        "env",
        nargs="?",
        help="a Gymnasium environment id, or package.module:Class (default: that of the run of --policy)",
    )
    record.add_argument(
        "--policy", metavar="RUN", help="the run whose policy plays, with its [env] (default: uniform random actions)"
    )
    add_which(record)
    record.add_argument(
        "-n",
        "--steps",
        type=whole_number("number of steps", 1),
        metavar="N",
        default=STEPS,
        help=f"number of transitions (default {STEPS:,})",
    )
    record.add_argument("-o", "--output", type=user_path, metavar="FILE", required=True, help="write to FILE.npz")
    record.add_argument(
        "--envs",
        type=whole_number("number of environments", 1),
        metavar="N",
        default=1,
        help="environments that are stepped together (default 1)",
    )
    record.add_argument("--seed", type=whole_number("seed", 0), default=0, help="seed of the episodes (default 0)")
    record.add_argument(
        "--sample", action="store_true", help="sample actions as in training instead of taking the most likely ones"
    )
    add_overrides(record, "override a key of the config, such as env.options.NAME (repeatable)")
    record.set_defaults(run=run_record)


def run_record(options: argparse.Namespace) -> int:
    """Run `hive record`; return the exit code."""
    if options.which == "all":
        raise UsageError("hive record plays one checkpoint", hint="use latest, best or the number of an update")
    if options.env is None and options.policy is None:
        raise UsageError("no environment was given", hint="hive record ENV, or hive record --policy RUN")
    file = checked_file(options.output)
    policy, config, label = _player(options)
    from hive.policy.transitions import fields_of  # these import torch, which takes a second
    from hive.records.transitions import write_transitions
    from hive.training.evaluate.recorded_transitions import play_transitions

    with progress_line(label, f"of {options.steps:,} transitions") as progress:
        how = {"envs": options.envs, "seed": options.seed, "sample": options.sample, "progress": progress}
        played = play_transitions(config, options.steps, policy, **how)
    spec = played.environment
    write_transitions(file, fields_of(played.transitions, spec.observation, spec.action))
    print(written_text(file, len(played.transitions)))
    count = len(played.returns)
    if count:
        mean = return_text(sum(played.returns) / count)
        print(f"{count:,} episode{'s' * (count != 1)}, mean return {mean}")
    else:
        print("no episode ended")
    return 0 if played.whole else INTERRUPTED


def _player(options: argparse.Namespace) -> tuple[Policy | None, Config, str]:
    """Return the policy that plays, None for random actions, the config with its [env], and a name for the progress."""
    env = [] if options.env is None else [f"env.id={json.dumps(options.env)}"]
    if options.policy is None:
        from hive.config import load_config
        from hive.envs import needed_wrappers, preset_for

        wrappers = json.dumps(needed_wrappers(options.env))
        sets = [f"env.preset={preset_for(options.env)}", f"env.wrappers={wrappers}"]  # as `hive init` sets them
        return None, load_config("run.toml", [*sets, *env, *options.set], text=""), options.env
    (source,) = sources(options.policy, options.which)
    enter_run(source)
    policy, config = policy_and_config(source, [*env, *options.set])
    return policy, config, source.label
