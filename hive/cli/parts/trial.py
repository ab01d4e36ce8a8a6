"""The trial of `hive check`: all actors run briefly in this process, and one environment with random actions."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.new_run import new_run
from hive.config import Config
from hive.errors import ActorFailed, HiveError
from hive.records import Summary, read_jsonl
from hive.runtime import Topology
from hive.runtime.actor.error_location import place_in

if TYPE_CHECKING:  # imports NumPy and Gymnasium
    from hive.envs import Examination

STEPS = 200  # environment steps of a trial: enough for every actor to do its work once

NO_VIDEOS = ("evaluation.videos=0",)  # a renderer that crashes would take this process with it

NO_HOSTS = ("collection.hosts=[]", "evaluation.hosts=[]")  # a trial takes place on this machine

NO_WARMUP = ("algorithm.learning_starts=0",)  # with a replay memory: updates from the first round on

ROUNDS = 30  # rounds of a trial that measures them

LIMIT_S = 8.0  # maximum duration of a trial: with the start and EXAMINED_S, the command takes about 12 seconds at most

EXAMINED_STEPS = 1000  # steps of one environment with random actions: an episode of most environments

EXAMINED_S = 2.0  # maximum duration of these steps

GRACE_S = 10.0  # time to stop after LIMIT_S: one gradient of images takes seconds, and more on a busy machine


def examine_environment(config: Config, topology: Topology) -> Examination:
    """Play one environment of the config with random actions."""
    from hive.envs import examine, recipe_of
    from hive.schemes import blueprint_of
    from hive.training.run_start import steps_between_barriers

    limit = threading.Timer(EXAMINED_S + GRACE_S, _give_up, (threading.get_ident(), ""))
    limit.start()
    try:
        several = bool(blueprint_of(topology).environment.agents)
        done = examine(recipe_of(config.env), EXAMINED_STEPS, EXAMINED_S, several=several)
    finally:
        limit.cancel()
    done.begun_anew = steps_between_barriers(blueprint_of(topology))
    return done


def why_not_recorded(config: Config) -> str:
    """Return why `evaluation.videos` will record nothing on this machine, as far as that is known without drawing."""
    from hive.envs.drawing.rendering import check_pictures
    from hive.records.sinks.videos import video_suffix

    if not config.evaluation.videos:
        return ""
    try:
        video_suffix()
        check_pictures(config.evaluation_env)
    except HiveError as error:
        return "; ".join(filter(None, (str(error), error.hint)))
    return ""


def run_trial(config: Config, file: Path | None, sets: list[str], *, measured: bool) -> dict[str, Any]:
    """Run the topology inline for some steps or LIMIT_S seconds. Raises the error that the run fails with.

    measured: the trial is long enough to measure its rounds.
    """
    from hive.runtime.run.execute import run_inline

    round_steps = config.collectors * config.collection.envs * config.collection.rollout
    changed = [*NO_VIDEOS, *NO_HOSTS, *(NO_WARMUP if config.replay_shape else ()), "checkpoint.every={}"]
    changed.append(f"run.steps={ROUNDS * round_steps if measured else STEPS}")
    home, begun = os.environ.get("HIVE_HOME"), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hive-check-") as folder:
        os.environ["HIVE_HOME"] = folder
        limits = [
            threading.Timer(LIMIT_S, os.kill, (os.getpid(), signal.SIGTERM)),  # the run drains and ends
            threading.Timer(LIMIT_S + GRACE_S, _give_up, (threading.get_ident(), folder)),
        ]
        try:
            directory = new_run(file, [*sets, *changed], report=lambda text: None)
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
        "rounds": summary.rounds if summary.updates else "",  # before its first gradient the learner does not know
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
