"""Measures a config and chooses its placement (hive.tuning): for "auto" in a config, and for `hive check --tune`.

    config -> costs, measured by a child process -> predicted rates -> short runs of the best -> Choice

A run with "auto" is measured before it starts. Its directory records the numbers in `resolved.toml` and the reasons in
`tuning.json`, and `hive resume` uses these numbers.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive.cli.parts.starting import connect, start
from hive.config import SCHEMES, Config, load_config, render, resolved
from hive.config.values import toml_text
from hive.cores import cores as available_cores
from hive.errors import ActorFailed, ConfigError, HiveError
from hive.records import RunDirectory, read_jsonl, read_object, write_bytes, write_json
from hive.runtime.process.command import supervisor_environment
from hive.table import Column, TableCell, lay_out, text_lines
from hive.tuning import (
    COSTS_FILE,
    GIVEN_FILE,
    Choice,
    Costs,
    Placement,
    Rate,
    Trial,
    choose,
    described,
    finalists,
    means,
    predictions,
    unconfirmed,
)

TUNABLE = ("collection.workers", "gradients.workers")  # keys that may be "auto", and that `hive check --tune` chooses
MEASURE_S = 120.0  # longest measurement: it takes some 5 s; one gradient of images by a slow core takes seconds more
TRIAL_S = 3.0  # seconds of a trial after its first metrics
PATIENCE_S = 30.0  # seconds until a trial must have shown two rounds, besides the time predicted for some rounds
START_S = 120.0  # seconds that its actors may take to start: wide layers take seconds in every process
ROUNDS = 8  # that number: the first two are pipelined, and metrics come with a round
POLL_S = 0.1  # interval between two looks at the metrics of a trial
METRICS_S = 0.2  # interval between two lines of them
SHOWN_RATES = 8  # predicted placements in a table


@dataclass(frozen=True)
class Tuning:
    """All that was measured for a choice."""

    costs: Costs
    rates: Sequence[Rate]
    trials: Sequence[Trial]
    choice: Choice


def decide(config: Config, report: Callable[[str], object]) -> Choice:
    """Choose the values of the keys that are "auto" in the config. Raises as `tune`."""
    report(f"measuring where to compute ({' and '.join(config.automatic)}): about 15 s")
    return tune(config, config.automatic, report, lossy=False).choice


def tune(config: Config, automatic: tuple[str, ...], report: Callable[[str], object], *, lossy: bool) -> Tuning:
    """Measure the costs of a config, try the best placements and choose one.

    automatic: the keys to choose. lossy: whether compression, which changes what is learned, may be chosen.

    Raises ConfigError for a custom topology or scheme, and the error of an environment or a network that fails.
    """
    if config.run.topology is not None or config.run.scheme not in SCHEMES:
        raise ConfigError(
            "a custom topology or scheme cannot be measured: only the parts of hive's own trainer are known",
            hint=f'give numbers of workers instead of "auto": {", ".join(f"{key} = 1" for key in automatic)}',
        )
    from hive.training import environment_of  # imports torch
    from hive.training.crew import crew_needed

    if crew_needed(environment_of(config), config) is not None:
        raise ConfigError(
            "several policies, and agents that act in turn, cannot be measured",
            hint=f'give numbers of workers instead of "auto": {", ".join(f"{key} = 1" for key in automatic)}',
        )
    cores = available_cores()
    config = _without_side_effects(config)
    with tempfile.TemporaryDirectory(prefix="hive-tune-") as name:
        folder = Path(name)
        costs = _measured(config, folder)
        rates = predictions(config, costs, automatic, cores)
        tried = finalists(config, costs, rates, lossy=lossy)
        trials: list[Trial] = []
        steps = config.collectors * config.collection.envs * config.collection.rollout
        round_s = steps / rates[0].steps_per_s / costs.at_hand
        if len(tried) > 1:
            trials += [_tried(config, placement, folder, round_s, report) for placement in tried]
            while again := unconfirmed(trials):
                trials += [_tried(config, placement, folder, round_s, report) for placement in again]
    return Tuning(costs, rates, trials, choose(config, costs, rates, trials, cores))


def _without_side_effects(config: Config) -> Config:
    """Return the config without what other runs would do outside of their directory, and without its goal."""
    run = dataclasses.replace(config.run, name="trial", update_hook=None, stop_at_return=None, replay_folder=None)
    return dataclasses.replace(
        config,
        run=run,
        record=dataclasses.replace(config.record, sinks=("jsonl",), every_s=METRICS_S),
        evaluation=dataclasses.replace(config.evaluation, every={}, videos=0),
        checkpoint=dataclasses.replace(config.checkpoint, every={}, autosave_s=0.0),
    )


def _measured(config: Config, folder: Path) -> Costs:
    """Measure the costs in a child process. Raises its error."""
    write_bytes(folder / GIVEN_FILE, resolved(config))
    output = folder / "output.txt"
    try:
        with output.open("wb") as out:
            command = [sys.executable, "-P", "-m", "hive.tuning", str(folder)]
            code = subprocess.run(
                command,
                env=supervisor_environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=MEASURE_S,
            ).returncode
    except subprocess.TimeoutExpired:
        raise ActorFailed(
            f"the parts of a round could not be measured within {MEASURE_S:g} s",
            hint="give numbers of workers; `hive check` shows where a slow environment spends its time",
        ) from None
    if code:
        lines = output.read_text(errors="replace").strip().splitlines()
        raise ActorFailed(f"the measurement ended with code {code}: {lines[-1] if lines else 'no output'}")
    found = read_object(folder / COSTS_FILE)
    if "error" in found:
        error = HiveError(str(found["error"]), hint=str(found["hint"]))
        error.exit_code = int(found["exit_code"])
        raise error
    return Costs.of(found)


def _tried(
    config: Config, placement: Placement, folder: Path, round_s: float, report: Callable[[str], object]
) -> Trial:
    """Run a placement for TRIAL_S seconds, and report its rate."""
    trial = _run(config, placement, folder, PATIENCE_S + ROUNDS * round_s)
    report(f"tried {described(placement)}: {trial.error or f'{trial.steps_per_s:,.0f} steps/s'}")
    return trial


def _run(config: Config, placement: Placement, folder: Path, limit_s: float) -> Trial:
    values = {**{name: config.value(name) for name in config.automatic}, **placement.values(config)}
    sets = [f"{name}={toml_text(value)}" for name, value in values.items()]
    try:
        made = load_config("trial.toml", sets, text=render(config))
        directory = RunDirectory.create(folder, "trial")
        write_bytes(directory.config_file, render(made).encode())
        write_bytes(directory.resolved_file, resolved(made))
        return Trial(placement, _steps_per_s(directory, limit_s))
    except HiveError as error:
        return Trial(placement, 0.0, str(error).splitlines()[0])


def _steps_per_s(directory: RunDirectory, limit_s: float) -> float:
    """Run a trial; return its environment steps per second. Raises ActorFailed without two rounds in `limit_s`."""
    process = start(directory)
    try:
        with closing(connect(directory, process)) as client:
            begun = time.monotonic()
            while client.status()["state"] == "starting" and time.monotonic() - begun < START_S:
                time.sleep(POLL_S)
            begun = time.monotonic()
            seen: list[tuple[float, float]] = []
            while process.poll() is None and time.monotonic() - begun < limit_s:
                seen = [(float(line["seconds"]), float(line["steps"])) for line in read_jsonl(directory.metrics_file)]
                if len(seen) > 1 and seen[-1][0] - seen[0][0] >= TRIAL_S:
                    break
                time.sleep(POLL_S)
            if process.poll() is None:
                client.down("trial", now=True)
                process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:  # after an error or Ctrl-C: all processes of the run end with their supervisor
            process.kill()
            process.wait()
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        raise ActorFailed(f"no two rounds were trained within {limit_s:.0f} s")
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


def write_choice(directory: RunDirectory, choice: Choice) -> None:
    """Record the choice in the run's directory."""
    write_json(directory.tuning_file, {"values": choice.values, "reasons": choice.reasons})


def recorded_sets(directory: RunDirectory) -> list[str]:
    """Return the overrides `KEY=VALUE` that were chosen for this run; none for a run without "auto"."""
    if not directory.tuning_file.exists():
        return []
    values = read_object(directory.tuning_file).get("values")
    return [f"{name}={json.dumps(value)}" for name, value in values.items()] if isinstance(values, dict) else []


def table_lines(tuning: Tuning) -> list[str]:
    """Return the table of predicted and tried rates, the chosen placement marked."""
    tried = means(tuning.trials)
    rates = {rate.placement: rate for rate in tuning.rates}

    def predicted(placement: Placement) -> str:
        return f"{rates[placement].steps_per_s:,.0f}" if placement in rates else "–"

    def measured(placement: Placement) -> str:
        return "" if placement not in tried else f"{tried[placement]:,.0f}" if tried[placement] else "failed"

    columns: list[Column[Placement]] = [
        Column("", lambda placement: TableCell("*" if placement == tuning.choice.placement else "")),
        Column("predicted", lambda placement: TableCell(predicted(placement))),
        Column("short run", lambda placement: TableCell(measured(placement))),
        Column("environment steps per second", lambda placement: TableCell(described(placement)), left=True),
    ]
    placements = dict.fromkeys((*list(rates)[:SHOWN_RATES], *tried))
    return [*text_lines(lay_out(columns, {str(n): placement for n, placement in enumerate(placements)}))]


def toml_lines(values: dict[str, Any]) -> list[str]:
    """Return the lines of a config that set these values."""
    lines: list[str] = []
    table = ""
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        lines += [f"[{section}]"] * (section != table) + [f"{key} = {toml_text(value)}"]
        table = section
    return lines
