"""Commands for configs: `init` and `config`. (`check` is in `hive.cli.check`.)"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hive.config import SCHEMES, load_config, render, template
from hive.errors import UsageError

__all__ = ["add_config", "add_init"]


def add_init(commands: Any) -> None:
    init = commands.add_parser(
        "init",
        description="Write a short config for an environment, with the most common keys, each with a comment.",
        epilog="example: hive init CartPole-v1 -o cartpole.toml",
    )
    init.add_argument("env", help="a Gymnasium environment id, or package.module:Class")
    init.add_argument(
        "--scheme", default="a2c", metavar="NAME", help=f"{', '.join(SCHEMES)} or package.module:function (default a2c)"
    )
    init.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="file to write; an existing file is never overwritten",
    )
    init.set_defaults(run=run_init)


def add_config(commands: Any) -> None:
    config = commands.add_parser(
        "config",
        description="Show every key of a config: its value, where the value comes from, and what the key means.",
        epilog="example: hive config cartpole.toml -s collection.workers=4",
    )
    config.add_argument("config", type=Path, help="a TOML file")
    config.add_argument(
        "-s",
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the config (repeatable)",
    )
    config.add_argument("--json", action="store_true", help="print one JSON object: key -> {value, origin}")
    config.set_defaults(run=run_config)


def run_init(options: argparse.Namespace) -> int:
    from hive.envs import describe

    describe(options.env, {})
    if options.output.exists():
        raise UsageError(f"`{options.output}` already exists", hint="choose another name with -o")
    try:
        options.output.write_text(template(options.env, options.scheme))
    except OSError as error:
        raise UsageError(f"cannot write `{options.output}`: {error.strerror}") from None
    print(options.output)
    return 0


def run_config(options: argparse.Namespace) -> int:
    config = load_config(options.config, options.set)
    if options.json:
        print(
            json.dumps(
                {entry.name: {"value": entry.value, "origin": entry.origin} for entry in config.entries()}, indent=2
            )
        )
    else:
        print(render(config), end="")
    return 0
