"""`hive config`: shows every key of a config and where its value comes from."""

from __future__ import annotations

import argparse
import json
from typing import Any

from hive.cli.parts.arguments import add_config_file, add_json, add_overrides
from hive.config import (
    load_config,
    render,
)


def add_config(commands: Any) -> None:
    config = commands.add_parser(
        "config",
        description="Show every key of a config: its value, where the value comes from, and what the key means.",
        epilog="example: hive config cartpole-ppo.toml -s collection.workers=4",
    )
    add_config_file(config)
    add_overrides(config)
    config.add_argument(
        "--changed", action="store_true", help="only keys whose values are not their defaults: a short config"
    )
    add_json(config, "one JSON object: key -> {value, origin}")
    config.set_defaults(run=run_config)


def run_config(options: argparse.Namespace) -> int:
    config = load_config(options.config, options.set)
    if options.json:
        entries = [entry for entry in config.entries() if entry.changed or not options.changed]
        print(json.dumps({entry.name: {"value": entry.value, "origin": entry.origin} for entry in entries}, indent=2))
    else:
        print(render(config, changed=options.changed), end="")
    return 0
