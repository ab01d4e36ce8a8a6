"""Tries placements of a config and chooses one (hive.tuning): for "auto" in a config, and for `hive check --tune`.

    config -> placements -> a run of three seconds of each -> Choice

A run with "auto" is measured before it starts. Its directory records the numbers in `resolved.toml` and the reasons in
`tuning.json`, and `hive resume` uses these numbers.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hive.config import SCHEMES, Config, ReplayConfig, load_config, render, resolved
from hive.config.values import toml_text
from hive.cores import cores as available_cores
from hive.errors import ActorFailed, ConfigError, HiveError
from hive.launch.starting import connect, start
from hive.records import RunDirectory, read_jsonl, read_object, write_bytes, write_json
from hive.table import Column, TableCell, lay_out, text_lines
from hive.tuning import Choice, Placement, Trial, choose, described, fastest, placements, variants

TUNABLE = ("collection.workers", "gradients.workers")  # keys that may be "auto", and that `hive check --tune` chooses
TRIAL_S = 3.0  # seconds of a trial after its first metrics
LIMIT_S = 120.0  # seconds until a trial must have trained two rounds: those of slow environments take minutes
START_S = 120.0  # seconds that its actors may take to start: wide layers take seconds in every process
STOP_S = 30.0  # seconds that its processes may take to end
POLL_S = 0.1  # interval between two looks at the metrics of a trial
METRICS_S = 0.2  # interval between two lines of them


def decide(config: Config, report: Callable[[str], object]) -> Choice:
    """Choose the values of the keys that are "auto" in the config. Raises as `tune`."""
    report(f"trying where to compute ({' and '.join(config.automatic)}): about 25 s")
    trials = tune(config, config.automatic, report, lossy=False)
    return choose(config, trials)


def tune(config: Config, automatic: tuple[str, ...], report: Callable[[str], object], *, lossy: bool) -> list[Trial]:
    """Return a trial of each placement of a config, the default one first, and of variants of the fastest.

    automatic: the keys to choose. lossy: whether compression, which changes what is learned, may be tried.

    Raises ConfigError for a custom topology or scheme, the error of an environment or a network that fails, and
    ActorFailed if no placement trains.
    """
    hint = f'give numbers of workers instead of "auto": {", ".join(f"{key} = 1" for key in automatic)}'
    if config.run.topology is not None or config.run.scheme not in SCHEMES:
        what = "a custom topology or scheme cannot be measured: only the parts of hive's own trainer are known"
        raise ConfigError(what, hint=hint)
    from hive.training import Blueprint, environment_of  # imports torch
    from hive.training.crew import crew_needed

    environment = environment_of(config)
    if crew_needed(environment, config) is not None:
        raise ConfigError("several policies, and agents that act in turn, cannot be measured", hint=hint)
    parameters = Blueprint(config, None, None if environment.agents else environment).flat.count
    config = _without_side_effects(config)
    with tempfile.TemporaryDirectory(prefix="hive-tune-") as name:
        folder = Path(name)
        trials = [_tried(config, one, folder, report) for one in placements(config, automatic, available_cores())]
        others = variants(config, fastest(trials), parameters, lossy=lossy)
        trials += [_tried(config, one, folder, report) for one in others]
    if not any(one.steps_per_s for one in trials):
        raise ActorFailed(f"no placement trains: {trials[0].error}", hint=hint)
    return trials


def _without_side_effects(config: Config) -> Config:
    """Return the config without what other runs would do outside of their directory, and without its goal."""
    run = dataclasses.replace(config.run, name="trial", update_hook=None, stop_at_return=None, replay_folder=None)
    algorithm = config.algorithm
    if isinstance(algorithm, ReplayConfig):  # its updates are to be measured, too
        algorithm = dataclasses.replace(algorithm, learning_starts=0)
    return dataclasses.replace(
        config,
        run=run,
        algorithm=algorithm,
        record=dataclasses.replace(config.record, sinks=("jsonl",), every_s=METRICS_S),
        evaluation=dataclasses.replace(config.evaluation, every={}, videos=0),
        checkpoint=dataclasses.replace(config.checkpoint, every={}, autosave_s=0.0),
    )


def _tried(config: Config, placement: Placement, folder: Path, report: Callable[[str], object]) -> Trial:
    """Run a placement for TRIAL_S seconds, and report its rate."""
    values = {**{name: config.value(name) for name in config.automatic}, **placement.values(config)}
    sets = [f"{name}={toml_text(value)}" for name, value in values.items()]
    try:
        made = load_config("trial.toml", sets, text=render(config))
        directory = RunDirectory.create(folder, "trial")
        write_bytes(directory.config_file, render(made).encode())
        write_bytes(directory.resolved_file, resolved(made))
        trial = Trial(placement, _steps_per_s(directory))
    except HiveError as error:
        trial = Trial(placement, 0.0, str(error).splitlines()[0])
    report(f"tried {described(placement)}: {trial.error or f'{trial.steps_per_s:,.0f} steps/s'}")
    return trial


def _steps_per_s(directory: RunDirectory) -> float:
    """Run a trial; return its environment steps per second. Raises ActorFailed without two rounds in LIMIT_S."""
    process = start(directory)
    try:
        with closing(connect(directory, process)) as client:
            begun = time.monotonic()
            while client.status()["state"] == "starting" and time.monotonic() - begun < START_S:
                time.sleep(POLL_S)
            begun = time.monotonic()
            seen: list[tuple[float, float]] = []
            while process.poll() is None and time.monotonic() - begun < LIMIT_S:
                seen = [(float(line["seconds"]), float(line["steps"])) for line in read_jsonl(directory.metrics_file)]
                if len(seen) > 1 and seen[-1][0] - seen[0][0] >= TRIAL_S:
                    break
                time.sleep(POLL_S)
            if process.poll() is None:
                client.down("trial", now=True)
                process.wait(STOP_S)
    finally:
        if process.poll() is None:  # after an error or Ctrl-C: all processes of the run end with their supervisor
            process.kill()
            process.wait()
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        raise ActorFailed(f"no two rounds were trained within {LIMIT_S:.0f} s")
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


def table_lines(trials: Sequence[Trial], chosen: Placement) -> list[str]:
    """Return the table of rates, the chosen placement marked."""
    columns: list[Column[Trial]] = [
        Column("", lambda trial: TableCell("*" if trial.placement == chosen else "")),
        Column("steps/s", lambda trial: TableCell("failed" if trial.error else f"{trial.steps_per_s:,.0f}")),
        Column("placement", lambda trial: TableCell(described(trial.placement)), left=True),
    ]
    return [*text_lines(lay_out(columns, {str(n): trial for n, trial in enumerate(trials)}))]


def toml_lines(values: dict[str, Any]) -> list[str]:
    """Return the lines of a config that set these values."""
    lines: list[str] = []
    table = ""
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        lines += [f"[{section}]"] * (section != table) + [f"{key} = {toml_text(value)}"]
        table = section
    return lines
