"""Commands about configs: `init`, `config`, `check`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hive.config import SCHEMES, load_config, render, template
from hive.errors import UsageError
from hive.runtime.plan import Plan

__all__ = ["add_file_commands"]


def add_file_commands(commands: Any) -> None:
    init = commands.add_parser(
        "init",
        help="write a config for an environment",
        description="Writes a commented config that works.",
        epilog="example: hive init CartPole-v1 -o cartpole.toml",
    )
    init.add_argument("env", help="an environment id, or package.module:Class")
    init.add_argument(
        "--scheme", default="a2c", metavar="NAME", help=f"{', '.join(SCHEMES)} or package.module:function (default a2c)"
    )
    init.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to; never overwritten")
    init.set_defaults(run=run_init)
    config = commands.add_parser(
        "config",
        help="every key of a config, with its origin",
        description="Shows the resolved config.",
        epilog="example: hive config cartpole.toml -s collection.workers=4",
    )
    _add_config(config)
    config.add_argument("--json", action="store_true", help="one JSON object: key -> {value, origin}")
    config.set_defaults(run=run_config)
    check = commands.add_parser(
        "check",
        help="build everything, start nothing",
        description="Checks config, environment, network and topology, and draws it.",
        epilog="example: hive check cartpole.toml",
    )
    _add_config(check)
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=run_check)


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", type=Path)
    command.add_argument(
        "-s", "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeat)"
    )


def run_init(options: argparse.Namespace) -> int:
    from hive.envs import describe

    describe(options.env, {})
    if options.output.exists():
        raise UsageError(f"`{options.output}` is there already", hint="choose another name with -o")
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


def run_check(options: argparse.Namespace) -> int:
    """Builds the topology in this process, by name: the schemes need torch, the command line does not."""
    from hive.runtime.building import build

    config = load_config(options.config, options.set)
    topology = build(config, Path("runs") / config.run.name, options.config)
    plan = topology.plan()
    if options.json:
        print(json.dumps(_as_data(plan), indent=2))
        return 0
    print(
        f"{len(plan.actors)} actors in {len(plan.processes)} processes, {plan.bytes / 2**20:.1f} MiB of shared memory"
    )
    for process, numbers in plan.processes.items():
        print(f"  {process:<20} {', '.join(plan.actors[n].name for n in numbers)}")
    sizes = {s.name: s for s in plan.segments}
    for channel in plan.channels:
        arrow = {"slab": "══>", "message": "──>", "board": "▒▒>"}[channel.carrier]
        detail = channel.carrier
        if channel.segments:
            segment = sizes[channel.segments[0]]
            unit = "slots" if segment.kind == "slab" else "blocks"
            detail += f", {len(channel.segments)} x {segment.count} {unit} of {segment.item_bytes / 1024:.1f} KiB"
        print(f"  {channel.source} {arrow} {', '.join(channel.targets) or '(its successor)'}   {detail}")
    return 0


def _as_data(plan: Plan) -> dict[str, Any]:
    sizes = {s.name: s.plan.bytes for s in plan.segments}
    return {
        "processes": {name: [plan.actors[n].name for n in numbers] for name, numbers in plan.processes.items()},
        "channels": [
            {
                "name": c.name,
                "carrier": c.carrier,
                "source": c.source,
                "targets": list(c.targets),
                "bytes": sum(sizes[s] for s in c.segments),
            }
            for c in plan.channels
        ],
        "bytes": plan.bytes,
    }
