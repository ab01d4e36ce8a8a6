"""The command line of `scripts/chaos`: runs of the given configs one after another, tables on stdout, JSON in a file.

For each config, a calm run of a few seconds measures the rate. The run under chaos gets the step target that this rate
would reach in the seconds of chaos. Chaos slows a run, so the run lasts about a third longer than the chaos and ends
with calm steps. If it reaches the target earlier, the report shows how long the chaos lasted.

With `--ends N` whole runs are ended instead, at random moments (chaotic.ends).

Exit codes: 0 all promises kept · 1 one was broken, or a run could not be started · 2 usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.harness import begin, count, duration, say, write_document
from benchmarks.machine import load_average
from benchmarks.programs import BenchError

from chaotic.ends import FORMS, ends
from chaotic.promises import Outcome
from chaotic.report import document_of, text_of
from chaotic.sandbox import END_S, Sandbox, segments_of, wait_for_end
from chaotic.strikes import SIGNALS, Rhythm
from chaotic.trial import Limits, Observation, Trial
from chaotic.watched import Watched, wait_for_steps
from hive.errors import HiveError
from hive.records import RunDirectory, read_run_facts
from hive.records.documents import parse_object

ROLES = ("collector", "gradient-worker", "learner", "evaluator", "recorder", "fork-server")
SECONDS, SEED = 60.0, 1
PAUSE_S = (0.5, 2.0)
CALM_S = 3.0  # seconds over which the rate of a calm run is measured
WARM_S = 60.0  # time limit in seconds for the first steps
BACK_MEAN_S = 0.3  # mean seconds to recover, added to each pause to estimate how long N strikes take
SAMPLES = 200  # samples of memory and descriptors in each run under chaos
LEAST_SAMPLE_S = 0.25  # least seconds between samples: reading the memory of ten processes takes some 20 ms
ENDLESS = 10**12  # environment steps: more than any run reaches

SETS = (
    *("collection.workers=2", "gradients.workers=2"),
    *("evaluation.every={updates=100}", "evaluation.episodes=4", "checkpoint.every={updates=500}"),
    *("run.stop_at_return=1e12", "supervision.restarts=1000000", "supervision.window_s=1.0"),
)
"""Keys of every run: two of each worker, every role present, ended only by the target, no limit of restarts."""

EXAMPLES = """examples:
  scripts/chaos --config examples/cartpole.toml
  scripts/chaos --seconds 600 --config examples/cartpole.toml --config examples/pendulum.toml --json chaos.json
  scripts/chaos --only learner --kills 50 --beside --config examples/cartpole.toml
  scripts/chaos --config examples/cartpole.toml --set collection.communication=asynchronous --pause 0.1 0.5
  scripts/chaos --config examples/cartpole.toml --ends 100 --form up --form script
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="chaos",
        description="Kills and stops processes of training runs at random, and reports broken promises.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--config", type=Path, action="append", required=True, metavar="FILE", help="config of a run (repeat)"
    )
    top.add_argument(
        "--seconds", type=duration, help=f"duration of chaos in each run (default {SECONDS:g}, or enough for --kills)"
    )
    top.add_argument("--seed", type=int, default=SEED, help="seed of strikes and runs (default %(default)s)")
    top.add_argument("--only", action="append", default=[], choices=ROLES, help="strike only this role (repeat)")
    top.add_argument("--kills", type=count, default=0, metavar="N", help="end the chaos after N kills; no SIGSTOP")
    top.add_argument(
        "--pause",
        type=duration,
        nargs=2,
        default=PAUSE_S,
        metavar=("LEAST", "MOST"),
        help="seconds between two strikes (default %(default)s)",
    )
    top.add_argument("--ends", type=count, default=0, metavar="N", help="end N runs in each form; no strikes")
    top.add_argument("--form", action="append", default=[], choices=FORMS, help="with --ends: this form only (repeat)")
    top.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key, as for `hive up`")
    top.add_argument("--beside", action="store_true", help="also run each config to the same target without strikes")
    top.add_argument("--json", type=Path, metavar="FILE", help="write all observations to this file")
    top.add_argument("--keep", action="store_true", help="keep the runs' folder; a broken promise always keeps it")
    return top


def sets_of(options: argparse.Namespace) -> list[str]:
    """Return the overrides of every run. Those of the command line come last and take precedence."""
    return [*SETS, f"run.seed={options.seed}", *options.set]


def seconds_of(options: argparse.Namespace) -> float:
    """Return the maximum duration of the chaos in seconds."""
    if options.seconds is not None:
        return float(options.seconds)
    return options.kills * (sum(options.pause) / 2 + BACK_MEAN_S) * 2 if options.kills else SECONDS


def target_of(options: argparse.Namespace, rate: float) -> int:
    """Return the environment steps of a run under chaos; see the module. With --kills it outlasts all N strikes."""
    if options.kills:
        return int(rate * options.kills * (sum(options.pause) / 2 + BACK_MEAN_S))
    return int(rate * seconds_of(options))


def calm_rate(sandbox: Sandbox, config: Path, sets: list[str]) -> float:
    """Return the steps per second of a run without strikes. Raises HiveError, BenchError."""
    directory = sandbox.up(config, [*sets, f"run.steps={ENDLESS}"])
    watched = Watched(directory)
    first = wait_for_steps(watched, 1, WARM_S)
    begun = time.monotonic()
    time.sleep(CALM_S)
    last = wait_for_steps(watched, first["env_steps"] + 1, WARM_S)
    rate = (last["env_steps"] - first["env_steps"]) / (time.monotonic() - begun)
    watched.close()
    sandbox.down(directory)
    return rate


def summary_of(directory: RunDirectory) -> dict[str, Any] | None:
    """Return the run's summary; None if the run did not end in order."""
    return parse_object(directory.summary_file.read_bytes()) if directory.summary_file.exists() else None


def undisturbed(sandbox: Sandbox, config: Path, sets: list[str], limit_s: float) -> dict[str, Any] | None:
    """Return the summary of a run without strikes; None if it did not end in time. Raises BenchError."""
    directory = sandbox.up(config, sets)
    if not wait_for_end(read_run_facts(directory), limit_s):
        sandbox.down(directory)
    return summary_of(directory)


def under_chaos(sandbox: Sandbox, config: Path, options: argparse.Namespace) -> Outcome:
    """Measure the calm rate, run under chaos, check what is left behind. Raises HiveError, BenchError."""
    sets, seconds = sets_of(options), seconds_of(options)
    rate = calm_rate(sandbox, config, sets)
    target = target_of(options, rate)
    sets.append(f"run.steps={target}")
    say(f"{config}: {rate:,.0f} steps/s when calm; now up to {seconds:.0f} s of chaos and {target:,} steps")
    directory = sandbox.up(config, sets)
    facts = read_run_facts(directory)
    segments = segments_of(facts.pid)
    signals = (signal.SIGKILL,) if options.kills else SIGNALS
    rhythm = Rhythm(options.seed, tuple(options.pause), signals, options.only)
    limits = Limits(seconds, options.kills, max(seconds / SAMPLES, LEAST_SAMPLE_S))
    seen: Observation = Trial(directory, rhythm, limits).run()
    if seen.hung:
        sandbox.down(directory)
    elif not wait_for_end(facts, END_S):
        seen.hung = f"its supervisor did not end within {END_S:.0f} s"
    left = sandbox.left_behind(segments)
    beside = undisturbed(sandbox, config, sets, 2 * seconds + END_S) if options.beside else None
    return Outcome(str(config), sets, target, rate, seen, summary_of(directory), left, options.kills, beside)


def ended(options: argparse.Namespace) -> int:
    """End runs instead of striking actors; return the exit code. Raises BenchError."""
    found = [
        ends(config.resolve(), options.form or FORMS, options.ends, options.seed, options.set)
        for config in options.config
    ]
    write_document(options.json, {"chaos": "runs ended at random moments", "configs": found})
    return 1 if any(one["broken"] for one in found) else 0


def chaos(options: argparse.Namespace) -> int:
    for config in options.config:
        if not config.is_file():
            raise BenchError(f"the config `{config}` does not exist")
    machine = begin(options.json)
    outcomes, sandbox, broken = [], Sandbox(), True
    try:
        for config in options.config:
            outcomes.append(under_chaos(sandbox, config.resolve(), options))
            print(text_of(outcomes[-1]), end="\n\n", flush=True)
        machine["load_after"] = load_average()
        document = document_of(outcomes, {key: str(value) for key, value in vars(options).items()}, machine)
        broken = bool(document["broken"])
        write_document(options.json, document)
        for line in document["broken"]:
            print(f"broken: {line}")
    finally:
        sandbox.close(keep=broken or options.keep)
        if broken or options.keep:
            say(f"the runs are in {sandbox.home}")
    return 1 if broken else 0


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `chaos` command."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled like Ctrl-C, so that the runs end too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # `&` in a script ignores it, which commands would inherit
    options = parser().parse_args(arguments)
    try:
        sys.exit(ended(options) if options.ends else chaos(options))
    except (BenchError, HiveError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
