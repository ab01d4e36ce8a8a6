"""`hive check`: builds the topology of a config, draws it, and runs it briefly in this process.

    config -> topology -> 1,000 steps of one environment with random actions
           -> 200 environment steps of all actors, in a temporary folder; fewer where steps are slow
           -> the topology, drawn, and its lag -> warnings -> the command that starts the run

The results of the trial are printed first, because most checks are made for them, and the drawing is the longest part.

It finds errors that would end a run in its first seconds, and finds them in one process, where a debugger works. It
also warns of what a run accepts although it was probably not intended (hive.envs.examination). It starts no other
process and leaves no run behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.about import exact_lines, meaning_lines, memory_lines, network_lines
from hive.cli.parts.arguments import add_config_file, add_json, add_overrides, add_topology
from hive.cli.parts.check_environment import check_environment, frames_text, print_notes, print_warnings, unaccepted
from hive.cli.parts.drawing import lines_of, svg_of
from hive.cli.parts.json_output import environments_to_stderr
from hive.cli.parts.lag import (
    Lag,
    device_line,
    helper_line,
    hidden_line,
    host_lines,
    lag_data,
    lag_lines,
    lags_of,
)
from hive.cli.parts.sizes import Sizes, size_lines, sizes_of
from hive.cli.parts.trial import (
    GRACE_S,
    LIMIT_S,
    examine_environment,
    fewer_steps,
    run_trial,
    why_fewer,
    why_not_recorded,
)
from hive.config import Config, load_config
from hive.config.values import toml_text
from hive.errors import HiveError, UsageError
from hive.launch.control import print_to_stderr
from hive.launch.new_run import beginning_warnings
from hive.launch.tune import TUNABLE, table_lines, toml_lines, tune
from hive.paths import user_path
from hive.records.run_warnings import VIDEOS_OFF, RunWarning
from hive.records.summary import rounds_text
from hive.runtime import Topology
from hive.runtime.process.limits import check_limits
from hive.runtime.topology.plan import Plan
from hive.table import table_text
from hive.tuning import choose

if TYPE_CHECKING:  # imports NumPy and Gymnasium
    from hive.envs import Examination

REASON_WIDTH = 100  # characters in a line of the reasons for a placement


def add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        description="Check a config: build its environment, network and topology, draw the topology as text, report "
        "how old the policies are that it uses, and run it for a few steps in this process. No run is left behind.",
        epilog="example: hive check cartpole-ppo.toml --svg cartpole.svg",
    )
    add_config_file(check, nargs="?")
    add_overrides(check)
    check.add_argument(
        "--env", metavar="ID", help="examine only this environment, with the config's other keys if given"
    )
    add_topology(check)
    check.add_argument("--svg", type=user_path, metavar="FILE", help="also draw the topology as an SVG picture")
    check.add_argument(
        "--parameters", action="store_true", help="only print the names and shapes of the network's parameters"
    )
    check.add_argument("--draw", action="store_true", help="only draw the topology, do not run it")
    check.add_argument(
        "--round-trip",
        type=float,
        metavar="MS",
        help="the milliseconds of a message to another host and back: report the lag that hides them",
    )
    check.add_argument(
        "--tune", action="store_true", help="try where actors should compute, and print the keys; takes about 25 s"
    )
    add_json(check)
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Run `hive check`; return the exit code. Raises HiveError for every problem that it finds."""
    if options.env is not None:
        return check_environment(options)
    with environments_to_stderr(options.json) as stdout:
        code, data = _check(options, stdout)
    if data:
        print(json.dumps(data, indent=2))
    return code


@dataclass(frozen=True)
class Checked:
    """A config and what follows from it. lags: None for other topologies than the built-in one."""

    config: Config
    topology: Topology
    plan: Plan
    lags: list[Lag] | None
    sizes: Sizes


@dataclass(frozen=True)
class Tried:
    """The results of a trial, and of the examination of the environment; None of each that was not made.

    why: the trial has no results, or fewer steps than usual, because of this.
    """

    trial: Mapping[str, Any] | None = None
    examined: Examination | None = None
    why: str = ""


def _check(options: argparse.Namespace, stdout: int) -> tuple[int, dict[str, Any]]:
    """Check a config; return the exit code and what `--json` prints. Without `--json` print it, and return no data."""
    # `build` imports the scheme by its name, because schemes need torch and the command line must load without it.
    from hive.runtime.topology.building import build

    if options.config is None and options.topology is None:
        raise UsageError(
            "no config given", hint="hive check CONFIG, hive check --env ID, or hive check --topology FILE.py"
        )
    sets = list(options.set)
    if options.topology is not None:
        sets.append(f"run.topology={json.dumps(options.topology)}")
    config = load_config(options.config or "run.toml", sets, text=None if options.config else "")
    if options.tune:
        return _tune(config, options)
    sets += [f"{name}={toml_text(config.value(name))}" for name in config.automatic]  # only `hive up` measures them
    topology = build(config, Path("runs") / config.run.name, options.config)
    if options.parameters:
        return _parameters(topology, as_json=options.json)
    plan = topology.plan()
    checked = Checked(config, topology, plan, lags_of(topology), sizes_of(topology, plan))
    if options.svg is not None:
        _write_picture(options.svg, plan, config)
    try:
        tried = Tried() if options.draw else _try(checked, options, sets, stdout)
    except HiveError:
        if not options.json:
            _print_topology(checked)
        raise
    return _data(checked, tried) if options.json else _print(checked, tried, options)


def _try(checked: Checked, options: argparse.Namespace, sets: list[str], stdout: int) -> Tried:
    """Play the environment, and run the topology briefly. Raises HiveError for what would end a run."""
    from hive.schemes import check_memory

    config, topology = checked.config, checked.topology
    check_memory(topology, config)
    check_limits(checked.plan)
    measured = options.round_trip is not None
    examined = None if checked.lags is None else examine_environment(config, topology)
    fewer: Mapping[str, int] | None = {}
    if examined is not None and not measured:
        file, text = options.config or "run.toml", None if options.config else ""

        def load(more: Mapping[str, int]) -> Config:
            return load_config(file, [*sets, *(f"{key}={value}" for key, value in more.items())], text=text)

        fewer = fewer_steps(topology, examined, load)
    slow = "" if examined is None else f"because {why_fewer(examined)}"
    if fewer is None:
        return Tried(None, examined, f"none, {slow}")

    def late(place: str) -> int:
        """Print the check without the results of its trial; return the exit code."""
        why = f"not finished within {LIMIT_S + GRACE_S:g} s, because it is slow" + (f" (in {place})" if place else "")
        return _finished(checked, Tried(None, examined, why), options, stdout)

    evaluators = config.evaluation.workers * config.evaluation.envs if config.evaluation.every else 0
    envs = config.collectors * fewer.get("collection.envs", config.collection.envs) + evaluators
    first_s = 0.0 if examined is None else envs * examined.first_s
    trial = run_trial(config, options.config, sets, measured=measured, fewer=fewer, first_s=first_s, late=late)
    return Tried(trial, examined, f"fewer steps, {slow}" if fewer else "")


def _finished(checked: Checked, tried: Tried, options: argparse.Namespace, stdout: int) -> int:
    """Print a check whose trial does not end; return the exit code."""
    try:
        code, data = _data(checked, tried) if options.json else _print(checked, tried, options)
    except HiveError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    if data:
        os.write(stdout, f"{json.dumps(data, indent=2)}\n".encode())
    return code


def _data(checked: Checked, tried: Tried) -> tuple[int, dict[str, Any]]:
    config, plan = checked.config, checked.plan
    failure = None if tried.examined is None else tried.examined.failure
    data = _plan_data(plan) | {"memory": asdict(checked.sizes), "inexact": [*config.inexact, *plan.inexact]}
    data |= {"lag": None if checked.lags is None else lag_data(checked.lags)} | _trial_data(tried, config)
    if unrecorded := why_not_recorded(config):
        data["evaluation.videos"] = unrecorded
    return 0 if failure is None else failure.exit_code, data


def _print(checked: Checked, tried: Tried, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    config, trial = checked.config, tried.trial
    unrecorded = why_not_recorded(config)
    _print_trial(tried, config)
    _print_topology(checked, trial)
    if trial is not None and options.round_trip is not None:
        print(hidden_line(config, options.round_trip / 1e3, trial["updates"], trial["train_s"]))
    warnings = beginning_warnings(config)
    warnings += [RunWarning(VIDEOS_OFF, f"evaluation.videos: {unrecorded}", "", 0)] if unrecorded else []
    if trial is not None:
        warnings += [RunWarning.of(data) for data in trial["warnings"]]
        print_notes([trial["given"]] if trial["given"] else [])
    print_warnings(warnings, config)
    if not options.draw:
        _print_advice(tried.examined, options, config)
    return 0, {}


def _write_picture(path: Path, plan: Plan, config: Config) -> None:
    try:
        path.write_text(svg_of(plan, config.run.name))
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror}") from None


def _print_topology(checked: Checked, trial: Mapping[str, Any] | None = None) -> None:
    """Draw the topology, and print what follows from it, and what a trial has shown of it."""
    config, topology, plan = checked.config, checked.topology, checked.plan
    for name in config.automatic:
        print(f'{name} = "auto": `hive up` measures it; this check has the default, {config.value(name)}')
    lines = [*lines_of(plan), *size_lines(checked.sizes)]
    if checked.lags is not None:
        lines += [*lag_lines(checked.lags, config), *helper_line(config, topology), *device_line(config)]
        lines += [f"rounds: {rounds_text(trial['rounds'], config.algorithm.name)}"] if trial and trial["rounds"] else []
        lines += [*memory_lines(config), *meaning_lines(topology), *network_lines(topology)]
    print("\n".join([*lines, *host_lines(config), *exact_lines(config, plan)]))


def _tune(config: Config, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Try placements of the config; print rates, the choice, its reasons and the keys to write into the config."""
    trials = tune(config, config.automatic or TUNABLE, print_to_stderr, lossy=True)
    choice = choose(config, trials)
    if options.json:
        tried = [{**asdict(one.placement), "steps_per_s": one.steps_per_s} for one in trials]
        return 0, {"keys": choice.values, "reasons": choice.reasons, "tried": tried}
    print("\n".join([*table_lines(trials, choice.placement), "", textwrap.fill(choice.reasons, REASON_WIDTH), ""]))
    print("\n".join(toml_lines(choice.values) or ["nothing to change: the config has the fastest placement"]))
    return 0, {}


def _parameters(topology: Topology, *, as_json: bool) -> tuple[int, dict[str, Any]]:
    """Print the parameters of the network, or return them for JSON. Raises UsageError for a custom topology."""
    from hive.networks.build.naming import parameter_rows
    from hive.schemes import blueprint_of

    rows = parameter_rows(blueprint_of(topology).sketch)
    if as_json:
        return 0, {"parameters": [{"name": name, "shape": shape, "frozen": frozen} for name, shape, frozen in rows]}
    cells = [[name, " x ".join(map(str, shape)) or "1", "frozen" * frozen] for name, shape, frozen in rows]
    print(table_text(["PARAMETER", "SHAPE", ""], cells))
    return 0, {}


def _print_trial(tried: Tried, config: Config) -> None:
    """Print the results of the trial and of the environment's examination."""
    trial, examined = tried.trial, tried.examined
    if trial is not None:
        done = f"{trial['env_steps']:,} steps, {trial['updates']:,} updates in {trial['wall_s']:.1f} s"
        print(f"trial in this process: {done}" + (f" ({tried.why})" if tried.why else ""))
    elif tried.why:
        print(f"trial in this process: {tried.why}")
    if examined is not None:
        ended = f"{examined.episodes:,} episode{'s' * (examined.episodes != 1)} ended"
        ended += f" ({examined.ends})" if examined.ends else ""
        first = f"; {calls}, as compilation does" if (calls := examined.first_calls()) else ""
        print(f"random actions in `{config.env.id}`: {examined.steps:,} steps, {ended}{first}")
        if examined.frame_skip > 1:
            print(frames_text(examined.frame_skip, config.run.steps))


def _print_advice(examined: Examination | None, options: argparse.Namespace, config: Config) -> None:
    """Print the warnings of the environment's examination, and the command that starts the run.

    Raises EnvironmentFailed for what the environment did that would end the run.
    """
    if examined is not None:
        print_warnings(examined.warnings(config.env.id), config)
        print_notes(examined.notes(config.env.id))
        if examined.failure is not None:
            raise examined.failure
    words = ["hive", "up", *([str(options.config)] if options.config else [])]
    words += ["--topology", options.topology] if options.topology else []
    words += [word for text in options.set for word in ("-s", text)]
    print(f"next: {shlex.join(words)}")


def _trial_data(tried: Tried, config: Config) -> dict[str, Any]:
    """Return the results for JSON. It has no entry for parts of the check that were not made."""
    data: dict[str, Any] = {} if tried.trial is None else {"tried": tried.trial}
    if tried.why:
        data["tried"] = {**(tried.trial or {}), "why": tried.why}
    if (examined := tried.examined) is not None:
        warnings = [warning.line for warning in unaccepted(examined.warnings(config.env.id), config)]
        counts = {"steps": examined.steps, "episodes": examined.episodes, "frame_skip": examined.frame_skip}
        error = {} if examined.failure is None else {"error": str(examined.failure)}
        data["environment"] = {**counts, "warnings": warnings, **error}
    return data


def _plan_data(plan: Plan) -> dict[str, Any]:
    sizes = {s.name: s.plan.bytes - s.sparse_bytes for s in plan.segments}
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
        "most_bytes": plan.most_bytes,
    }
