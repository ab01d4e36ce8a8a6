"""The command line of `scripts/chaos`: runs of the given configs one after another, tables on stdout, JSON in a file.

For each config: a calm run of a few seconds for its rate, then the run under chaos, with a step target that this rate
would reach in the seconds of chaos. Chaos slows a run, so the run outlasts the chaos by a third or so and its last
steps are calm again; where the target comes first all the same, the report says how long the chaos was.

Exit codes: 0 all promises kept · 1 one was broken, or a run could not be started · 2 usage.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.machine import load_average, machine_facts

from chaotic.house import END_S, ChaosError, House, segments_of, wait_for_end
from chaotic.looks import Watched, wait_for_steps
from chaotic.promises import Outcome
from chaotic.report import document_of, text_of
from chaotic.strikes import SIGNALS, Rhythm
from chaotic.trial import Limits, Observation, Trial
from hive.errors import HiveError
from hive.records import RunDirectory, read_run_facts
from hive.records.documents import parse_object

__all__ = ["main", "parser", "sets_of", "target_of"]

ROLES = ("collector", "gradient-worker", "learner", "evaluator", "recorder", "fork-server")
SECONDS, SEED = 60.0, 1
PAUSE_S = (0.5, 2.0)
CALM_S = 3.0  # of a calm run, to learn its rate
WARM_S = 60.0  # for the first steps to come
BACK_MEAN_S = 0.3  # added to each pause where strikes are counted: half of them are found within half a second
SAMPLES = 200  # of memory and descriptors, in one chaos
LEAST_SAMPLE_S = 0.25  # a look at the memory of ten processes takes some 20 ms
ENDLESS = 10**12

SETS = (
    *("collection.workers=2", "gradients.workers=2"),
    *("evaluation.every={updates=100}", "evaluation.episodes=4", "checkpoint.every={updates=500}"),
    *("run.stop_at_return=1e12", "supervision.restarts=1000000", "supervision.window_s=1.0"),
)
"""Several of each, everybody there, no end but the target, restart limits lifted."""

EXAMPLES = """examples:
  scripts/chaos --config examples/cartpole.toml
  scripts/chaos --seconds 600 --config examples/cartpole.toml --config examples/pendulum.toml --json chaos.json
  scripts/chaos --only learner --kills 50 --beside --config examples/cartpole.toml
  scripts/chaos --config examples/cartpole.toml --set collection.communication=asynchronous --pause 0.1 0.5
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="chaos",
        description="Kills and stops the processes of training runs at random, and says what did not hold.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--config", type=Path, action="append", required=True, metavar="FILE", help="a run (repeat)")
    top.add_argument("--seconds", type=_above_0, help=f"of chaos in each run (default {SECONDS:g}, or all the kills)")
    top.add_argument("--seed", type=int, default=SEED, help="of the strikes and of the run (default %(default)s)")
    top.add_argument("--only", action="append", default=[], choices=ROLES, help="hits these roles alone (repeat)")
    top.add_argument("--kills", type=_count, default=0, metavar="N", help="ends the chaos after N strikes, all SIGKILL")
    top.add_argument(
        "--pause",
        type=_above_0,
        nargs=2,
        default=PAUSE_S,
        metavar=("LEAST", "MOST"),
        help="seconds between two strikes (default %(default)s)",
    )
    top.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of the runs, as for `hive up`")
    top.add_argument("--beside", action="store_true", help="also runs each to the same target undisturbed")
    top.add_argument("--json", type=Path, metavar="FILE", help="everything that was seen")
    top.add_argument(
        "--keep", action="store_true", help="keeps the runs' folder; one with a broken promise stays anyway"
    )
    return top


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got `{text}`")
    return int(text)


def _above_0(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 86400.0:
        raise argparse.ArgumentTypeError(f"expected seconds, above 0 and below a day, got `{text}`")
    return seconds


def sets_of(options: argparse.Namespace) -> list[str]:
    """The overrides of every run; those of the command line come last and win."""
    return [*SETS, f"run.seed={options.seed}", *options.set]


def seconds_of(options: argparse.Namespace) -> float:
    """How long the chaos lasts at most."""
    if options.seconds is not None:
        return float(options.seconds)
    return options.kills * (sum(options.pause) / 2 + BACK_MEAN_S) * 2 if options.kills else SECONDS


def target_of(options: argparse.Namespace, rate: float) -> int:
    """Environment steps of a run under chaos: see the module. Strikes that are counted must all find it running."""
    if options.kills:
        return int(rate * options.kills * (sum(options.pause) / 2 + BACK_MEAN_S))
    return int(rate * seconds_of(options))


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def calm_rate(house: House, config: Path, sets: list[str]) -> float:
    """Steps per second of a run that nobody disturbs. Raises HiveError, ChaosError."""
    directory = house.up(config, [*sets, f"run.steps={ENDLESS}"])
    watched = Watched(directory)
    first = wait_for_steps(watched, 1, WARM_S)
    begun = time.monotonic()
    time.sleep(CALM_S)
    last = wait_for_steps(watched, first["env_steps"] + 1, WARM_S)
    rate = (last["env_steps"] - first["env_steps"]) / (time.monotonic() - begun)
    watched.close()
    house.down(directory)
    return rate


def summary_of(directory: RunDirectory) -> dict[str, Any] | None:
    """Of a run that has ended in order."""
    return parse_object(directory.summary_file.read_bytes()) if directory.summary_file.exists() else None


def undisturbed(house: House, config: Path, sets: list[str], limit_s: float) -> dict[str, Any] | None:
    """The summary of a run that nobody disturbs. Raises ChaosError."""
    directory = house.up(config, sets)
    if not wait_for_end(read_run_facts(directory), limit_s):
        house.down(directory)
    return summary_of(directory)


def under_chaos(house: House, config: Path, options: argparse.Namespace) -> Outcome:
    """Calibrates, runs, looks at what is left. Raises HiveError, ChaosError."""
    sets, seconds = sets_of(options), seconds_of(options)
    rate = calm_rate(house, config, sets)
    target = target_of(options, rate)
    sets.append(f"run.steps={target}")
    say(f"{config}: {rate:,.0f} steps/s when calm; now up to {seconds:.0f} s of chaos and {target:,} steps")
    directory = house.up(config, sets)
    facts = read_run_facts(directory)
    segments = segments_of(facts.pid)
    signals = (signal.SIGKILL,) if options.kills else SIGNALS
    rhythm = Rhythm(options.seed, tuple(options.pause), signals, options.only)
    limits = Limits(seconds, options.kills, max(seconds / SAMPLES, LEAST_SAMPLE_S))
    seen: Observation = Trial(directory, rhythm, limits).run()
    if seen.hung:
        house.down(directory)
    elif not wait_for_end(facts, END_S):
        seen.hung = f"its supervisor did not end within {END_S:.0f} s"
    left = house.left_behind(segments)
    beside = undisturbed(house, config, sets, 2 * seconds + END_S) if options.beside else None
    return Outcome(str(config), sets, target, rate, seen, summary_of(directory), left, options.kills, beside)


def chaos(options: argparse.Namespace) -> int:
    if options.json is not None and not options.json.parent.is_dir():
        raise ChaosError(f"there is no folder for `{options.json}`")
    for config in options.config:
        if not config.is_file():
            raise ChaosError(f"there is no config `{config}`")
    machine = machine_facts()
    say(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load_before']}, hive at {machine['commit']}")
    outcomes, house, broken = [], House(), True
    try:
        for config in options.config:
            outcomes.append(under_chaos(house, config.resolve(), options))
            print(text_of(outcomes[-1]), end="\n\n", flush=True)
        machine["load_after"] = load_average()
        document = document_of(outcomes, {key: str(value) for key, value in vars(options).items()}, machine)
        broken = bool(document["broken"])
        if options.json is not None:
            options.json.write_text(json.dumps(document, indent=2) + "\n")
        for line in document["broken"]:
            print(f"broken: {line}")
    finally:
        house.close(keep=broken or options.keep)
        if broken or options.keep:
            say(f"the runs lie in {house.home}")
    return 1 if broken else 0


def main(arguments: list[str] | None = None) -> NoReturn:
    """The `chaos` command."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the runs end with it
    options = parser().parse_args(arguments)
    try:
        sys.exit(chaos(options))
    except (ChaosError, HiveError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
