"""`hive export`: writes the policy of a run to a file for other programs, and says what the file takes and returns.

cartpole-1.onnx: the policy of cartpole-1 after 1,146 updates, 146,688 steps (20.7 kB)
inputs   observation float32 [batch, 4]
outputs  action int64 [batch] · logits float32 [batch, 2]
equal to hive on 1,000 random observations: the largest difference is 2.3e-07
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_json, add_policy, add_run, add_which
from hive.distribution import pip_install
from hive.errors import UsageError
from hive.launch.select_run import chosen_policy, chosen_run
from hive.launch.sources import Source, checkpoints_of, enter_run, sources
from hive.paths import user_path
from hive.printable import printable
from hive.records.checkpoints.policy_files import is_policy_file
from hive.records.export_files import WEIGHTS, check_export_file

if TYPE_CHECKING:
    from hive.policy.exporting import Exported
    from hive.policy.graph import Port


def add_export(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        description="Write the policy of a run to a file for other programs: the whole policy as ONNX, from raw "
        "observations to actions, or its weights with a description as safetensors.",
        epilog="example: hive export cartpole-ppo-1 -o cartpole.onnx --which best",
    )
    add_run(export)
    export.add_argument(
        "-o",
        "--output",
        type=user_path,
        metavar="FILE",
        help="file to write, FILE.onnx or FILE.safetensors; an existing file is never overwritten (default: RUN.onnx, "
        "with --policy RUN-POLICY.onnx)",
    )
    add_which(export)
    add_policy(export)
    add_json(export)
    export.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> int:
    """Run `hive export`; return the exit code."""
    if options.which == "all":
        raise UsageError("a file holds one policy", hint="use --which latest, best, or the number of an update")
    if options.output is not None:
        check_export_file(options.output)
    source, policy = _source(options)
    enter_run(source)
    stem = source.name.removesuffix(WEIGHTS)
    output = options.output or Path(f"{stem}-{policy}.onnx" if options.policy else f"{stem}.onnx")
    check_export_file(output)
    from hive.policy.exporting import export

    done = export(source.checkpoint.path, output, own_code=True)  # executes its user code, as `hive resume`
    if options.json:
        print(json.dumps({**dataclasses.asdict(done), "path": str(done.path), **_ports(done)}, indent=2))
        return 0
    facts = done.facts
    what = "policy" if done.outputs else "weights of the policy"
    what += f" `{policy}`" if policy else ""
    progress = f"{facts['update']:,} updates, {facts['env_steps']:,} steps"
    print(f"{printable(str(done.path))}: the {what} of {printable(source.name)} after {progress} ({_size(done.bytes)})")
    if not done.outputs:
        return 0
    print(f"inputs   {_listed(done.inputs)}")
    print(f"outputs  {_listed(done.outputs)}")
    if done.difference is None:
        print(f"not compared with hive: onnxruntime is not installed ({pip_install('export')})")
    else:
        print(
            f"equal to hive on {done.compared:,} random observations: the largest difference is {done.difference:.1e}"
        )
    return 0


def _source(options: argparse.Namespace) -> tuple[Source, str]:
    """Return the checkpoint of a run, or the policy of a file, and the name of the policy, "" of the only one."""
    if options.run_name is not None and is_policy_file(options.run_name):
        (source,) = sources(options.run_name, options.which)
        name = source.checkpoint.exported.name if source.checkpoint.exported else ""
        if options.policy not in (None, name):
            raise UsageError(f"`{options.run_name}` holds the policy `{name}`" if name else "the file holds one policy")
        return source, name
    run = chosen_run(options.run_name)
    policy, folder = chosen_policy(run, options.policy)
    (checkpoint,) = checkpoints_of(folder, options.which)
    return Source(checkpoint, run), policy


def _ports(done: Exported) -> dict[str, Any]:
    return {"inputs": [port.described() for port in done.inputs], "outputs": [p.described() for p in done.outputs]}


def _listed(ports: Sequence[Port]) -> str:
    """Return `observation float32 [batch, 4] · ...`."""
    shapes = [(port, ", ".join(map(str, ("batch", *port.shape)))) for port in ports]
    return " · ".join(f"{printable(port.name)} {port.dtype} [{shape}]" for port, shape in shapes)


def _size(count: int) -> str:
    """Return a number of bytes: `20.7 kB`."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
