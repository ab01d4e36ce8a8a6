"""`hive check`: builds the topology of a config, draws it, and runs it briefly in this process.

    config -> topology -> 200 environment steps of all actors, in a temporary folder
           -> 1,000 steps of one environment with random actions
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
import shutil
import signal
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.arguments import add_config_file, add_json, add_overrides, add_topology
from hive.cli.check_environment import check_environment, frames_text
from hive.cli.control import print_to_stderr
from hive.cli.drawing import lines_of, svg_of
from hive.cli.json_output import environments_to_stderr
from hive.cli.lag import Lag, device_line, helper_line, hidden_line, host_lines, lag_data, lag_lines, lags_of
from hive.cli.new_run import new_run, random_beginning
from hive.cli.sizes import Sizes, size_lines, sizes_of
from hive.cli.tune import TUNABLE, table_lines, toml_lines, tune
from hive.config import Config, load_config
from hive.config.values import toml_text
from hive.errors import ActorFailed, HiveError, UsageError
from hive.paths import user_path
from hive.printable import printable
from hive.records import Summary, read_jsonl
from hive.runtime import Topology
from hive.runtime.actor.error_location import place_in
from hive.runtime.process.limits import check_limits
from hive.runtime.topology.plan import Plan
from hive.table import table_text

if TYPE_CHECKING:  # imports NumPy and Gymnasium
    from hive.envs import Examination

__all__ = ["add_check", "exact_lines", "memory_lines"]

STEPS = 200  # environment steps of a trial: enough for every actor to do its work once
NO_VIDEOS = ("evaluation.videos=0",)  # a renderer that crashes would take this process with it
NO_HOSTS = ("collection.hosts=[]", "evaluation.hosts=[]")  # a trial takes place on this machine
NO_WARMUP = ("algorithm.learning_starts=0",)  # with a replay memory: updates from the first round on
ROUNDS = 30  # rounds of a trial that measures them
LIMIT_S = 8.0  # maximum duration of a trial: with the start and EXAMINED_S, the command takes about 12 seconds at most
EXAMINED_STEPS = 1000  # steps of one environment with random actions: an episode of most environments
EXAMINED_S = 2.0  # maximum duration of these steps
REASON_WIDTH = 100  # characters in a line of the reasons for a placement
GRACE_S = 10.0  # time to stop after LIMIT_S: one gradient of images takes seconds, and more on a busy machine


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
        "--tune", action="store_true", help="measure where actors should compute, and print the keys; takes about 20 s"
    )
    add_json(check)
    check.set_defaults(run=run_check)


def run_check(options: argparse.Namespace) -> int:
    """Run `hive check`; return the exit code. Raises HiveError for every problem that it finds."""
    if options.env is not None:
        return check_environment(options)
    with environments_to_stderr(options.json):
        code, data = _check(options)
    if data:
        print(json.dumps(data, indent=2))
    return code


def _check(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Check a config; return the exit code and what `--json` prints. Without `--json` print it, and return no data."""
    # `build` imports the scheme by its name, because schemes need torch and the command line must load without it.
    from hive.runtime.topology.building import build
    from hive.schemes import check_memory

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
    directory = Path("runs") / config.run.name
    topology = build(config, directory, options.config)
    if options.parameters:
        return _parameters(topology, as_json=options.json)
    plan, lags = topology.plan(), lags_of(topology)
    sizes = sizes_of(topology, plan)
    if options.svg is not None:
        try:
            options.svg.write_text(svg_of(plan, config.run.name))
        except OSError as error:
            raise UsageError(f"cannot write `{options.svg}`: {error.strerror}") from None
    tried = None
    try:
        if not options.draw:
            check_memory(topology, config, directory)
            check_limits(plan)
            sets += [*NO_VIDEOS, *NO_HOSTS, *(NO_WARMUP if config.replay_shape else ())]
            round_steps = config.collectors * config.collection.envs * config.collection.rollout
            tried = _run_trial(options.config, sets, STEPS if options.round_trip is None else ROUNDS * round_steps)
        examined = None if tried is None or lags is None else _examine(config, topology)
    except HiveError:
        if not options.json:
            _print_topology(topology, plan, lags, sizes, config)
        raise
    unrecorded = _why_not_recorded(config)
    if options.json:
        lag = {"lag": None if lags is None else lag_data(lags)}
        videos = {"evaluation.videos": unrecorded} if unrecorded else {}
        data = _as_data(plan) | {"memory": asdict(sizes), "inexact": [*config.inexact, *plan.inexact]}
        code = 0 if examined is None or examined.failure is None else examined.failure.exit_code
        return code, data | lag | _trial_data(tried, examined, config) | videos
    if tried is not None:
        _print_trial(tried, examined, config)
    _print_topology(topology, plan, lags, sizes, config)
    if tried is not None and options.round_trip is not None:
        print(hidden_line(config, options.round_trip / 1e3, tried["updates"], tried["train_s"]))
    if warning := random_beginning(config):
        print(f"warning: {warning}")
    if unrecorded:
        print(f"warning: evaluation.videos: {unrecorded}")
    if tried is not None:
        _print_advice(examined, options, config)
    return 0, {}


def _print_topology(topology: Topology, plan: Plan, lags: list[Lag] | None, sizes: Sizes, config: Config) -> None:
    """Draw the topology, and print what follows from it. `lags` is None for other topologies than the built-in one."""
    for name in config.automatic:
        print(f'{name} = "auto": `hive up` measures it; this check has the default, {config.value(name)}')
    about = []
    if lags is not None:
        about = [
            *lag_lines(lags, config),
            *helper_line(config),
            *device_line(config),
            *memory_lines(config),
            *meaning_lines(topology),
            *network_lines(topology),
        ]
    print("\n".join([*lines_of(plan), *size_lines(sizes), *about, *host_lines(config), *exact_lines(config, plan)]))


def _tune(config: Config, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Measure the config; print rates, the choice, its reasons and the keys to write into the config."""
    found = tune(config, config.automatic or TUNABLE, print_to_stderr, lossy=True)
    if options.json:
        data = {"costs": asdict(found.costs), "keys": found.choice.values, "reasons": found.choice.reasons}
        rates = [{"steps_per_s": rate.steps_per_s, **asdict(rate.placement)} for rate in found.rates]
        trials = [{**asdict(trial.placement), "steps_per_s": trial.steps_per_s} for trial in found.trials]
        return 0, data | {"predicted": rates, "tried": trials}
    print("\n".join([*table_lines(found), "", textwrap.fill(found.choice.reasons, REASON_WIDTH), ""]))
    print("\n".join(toml_lines(found.choice.values) or ["nothing to change: the config has the fastest placement"]))
    return 0, {}


def _parameters(topology: Topology, *, as_json: bool) -> tuple[int, dict[str, Any]]:
    """Print the parameters of the network, or return them for JSON. Raises UsageError for a custom topology."""
    from hive.networks.naming import parameter_rows
    from hive.schemes import blueprint_of

    rows = parameter_rows(blueprint_of(topology).sketch)
    if as_json:
        return 0, {"parameters": [{"name": name, "shape": shape, "frozen": frozen} for name, shape, frozen in rows]}
    cells = [[name, " x ".join(map(str, shape)) or "1", "frozen" * frozen] for name, shape, frozen in rows]
    print(table_text(["PARAMETER", "SHAPE", ""], cells))
    return 0, {}


def meaning_lines(topology: Topology) -> list[str]:
    """Return lines about what the environment's spaces mean to the networks; none for other topologies."""
    from hive.envs.meaning import explained
    from hive.schemes import blueprint_of

    return [f"{name}: {text}" for name, text in explained(blueprint_of(topology).environment)]


def network_lines(topology: Topology) -> list[str]:
    """Return lines about weights of files, frozen parameters, and what only the critic sees."""
    from hive.networks.naming import frozen_text
    from hive.schemes import blueprint_of

    blueprint = blueprint_of(topology)
    network = blueprint.config.network
    lines = [
        f"weights of {module or 'the network'}: sha256 {sha256}" for module, sha256 in blueprint.weight_files.items()
    ]
    if network.frozen:
        lines.append(f"frozen: {frozen_text(blueprint.sketch)}")
    if network.critic_parts:
        observation = blueprint.environment.observation.without(network.critic_parts)
        seen, hidden = (", ".join(part.name for part in parts) for parts in (observation.parts, observation.hidden))
        lines.append(f"the policy sees {seen}; only the critic also sees {hidden}")
    return lines


def memory_lines(config: Config) -> list[str]:
    """Return the line about the policy's memory; none for a policy without one."""
    network = config.network
    if network.memory == "none":
        return []
    cells = f"{network.memory} of {network.memory_size:,} cells"
    which = f"one {cells} for the policy and one for the value" if network.separate_networks else f"one {cells}"
    return [f"memory: {which}; gradients flow back through a rollout of {config.collection.rollout} steps"]


def exact_lines(config: Config, plan: Plan) -> list[str]:
    """Return whether two runs with the same seed are bit-identical, and why not, one line for each cause."""
    causes = [*config.inexact, *plan.inexact]
    if not causes:
        return ["exact: the same seed gives bit-identical weights, also after a pause or `hive resume --exact`"]
    return [f"not exact: {cause}" for cause in causes]


def _print_trial(tried: Mapping[str, Any], examined: Examination | None, config: Config) -> None:
    """Print the results of the trial and of the environment's examination."""
    done = f"{tried['env_steps']:,} steps, {tried['updates']:,} updates"
    print(f"trial in this process: {done} in {tried['wall_s']:.1f} s")
    if examined is not None:
        ended = f"{examined.episodes:,} episode{'s' * (examined.episodes != 1)} ended"
        print(f"random actions in `{config.env.id}`: {examined.steps:,} steps, {ended}")
        if examined.frame_skip > 1:
            print(frames_text(examined.frame_skip, config.run.steps))


def _print_advice(examined: Examination | None, options: argparse.Namespace, config: Config) -> None:
    """Print the warnings of the environment's examination, and the command that starts the run.

    Raises EnvironmentFailed for what the environment did that would end the run.
    """
    if examined is not None:
        for warning in examined.warnings(config.env.id):
            print(f"warning: {printable(warning)}")
        if examined.failure is not None:
            raise examined.failure
    words = ["hive", "up", *([str(options.config)] if options.config else [])]
    words += ["--topology", options.topology] if options.topology else []
    words += [word for text in options.set for word in ("-s", text)]
    print(f"next: {shlex.join(words)}")


def _trial_data(tried: Mapping[str, Any] | None, examined: Examination | None, config: Config) -> dict[str, Any]:
    """Return the results for JSON. It has no entry for parts of the check that were not made."""
    data: dict[str, Any] = {} if tried is None else {"tried": tried}
    if examined is not None:
        warnings = examined.warnings(config.env.id)
        counts = {"steps": examined.steps, "episodes": examined.episodes, "frame_skip": examined.frame_skip}
        error = {} if examined.failure is None else {"error": str(examined.failure)}
        data["environment"] = {**counts, "warnings": warnings, **error}
    return data


def _examine(config: Config, topology: Topology) -> Examination:
    """Play one environment of the config with random actions."""
    from hive.envs import examine, wrappers_of
    from hive.schemes import blueprint_of

    env = config.env
    limit = threading.Timer(EXAMINED_S + GRACE_S, _give_up, (threading.get_ident(), ""))
    limit.start()
    try:
        asked = env.id, env.options, wrappers_of(env), env.preset
        done = examine(*asked, kind=env.vector, info=env.info, steps=EXAMINED_STEPS, limit_s=EXAMINED_S)
    finally:
        limit.cancel()
    done.begun_anew = blueprint_of(topology).steps_between_barriers
    return done


def _why_not_recorded(config: Config) -> str:
    """Return why `evaluation.videos` will record nothing on this machine, as far as that is known without drawing."""
    from hive.envs.rendering import check_pictures
    from hive.records.videos import video_suffix

    if not config.evaluation.videos:
        return ""
    try:
        video_suffix()
        check_pictures(config.evaluation_env)
    except HiveError as error:
        return "; ".join(filter(None, (str(error), error.hint)))
    return ""


def _run_trial(config: Path | None, sets: list[str], steps: int) -> dict[str, Any]:
    """Run the topology inline for `steps` steps or LIMIT_S seconds. Raises the error that the run fails with."""
    from hive.runtime.run.execute import run_inline

    home, begun = os.environ.get("HIVE_HOME"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hive-check-") as folder:
        os.environ["HIVE_HOME"] = folder
        limits = [
            threading.Timer(LIMIT_S, os.kill, (os.getpid(), signal.SIGTERM)),  # the run drains and ends
            threading.Timer(LIMIT_S + GRACE_S, _give_up, (threading.get_ident(), folder)),
        ]
        try:
            directory = new_run(config, [*sets, f"run.steps={steps}", "checkpoint.every={}"], report=lambda text: None)
            for limit in limits:
                limit.start()
            run_inline(directory)
        finally:
            for limit in limits:
                limit.cancel()
            os.environ.pop("HIVE_HOME")
            if home is not None:
                os.environ["HIVE_HOME"] = home
        summary = Summary.read(directory.summary_file)
        faults = [
            event.get("text", "") for event in read_jsonl(directory.events_file) if event.get("kind") == "not finite"
        ]
    if faults and not summary.updates:
        raise ActorFailed(
            f"no gradient could be applied: {faults[-1].partition('; its rollouts, inputs and weights')[0]}",
            hint="look for a division by zero, a logarithm of zero, or initial weights that are too large",
        )
    if summary.error:
        text, _, hint = summary.error.partition("\n\nhint: ")
        raise ActorFailed(text, hint="" if folder in hint else hint)
    return {
        "state": summary.state,
        "env_steps": summary.env_steps,
        "updates": summary.updates,
        "wall_s": round(time.monotonic() - begun, 3),
        "train_s": summary.train_s,
    }


def _give_up(thread: int, folder: str) -> None:
    """End this process because `thread` is in a call where signal handlers cannot run, or in a very slow rollout."""
    place = place_in(sys._current_frames()[thread])
    error = ActorFailed(
        f"the trial did not stop within {GRACE_S:g} s" + (f"; it was in {place}" if place else ""),
        hint="it is slow or hangs: `hive check --env ID` measures a step, and the trial ends after a whole rollout of "
        "collection.rollout steps; `hive up` allows a step supervision.phase_limit_s seconds, and then shows its stack",
    )
    sys.stdout.flush()
    print(error.render(), file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(error.exit_code)


def _as_data(plan: Plan) -> dict[str, Any]:
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
