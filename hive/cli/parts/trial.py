"""The trial of `hive check`: all actors run briefly in this process, and one environment with random actions."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from hive.config import Config
from hive.errors import ActorFailed, ConfigError, HiveError
from hive.launch.new_run import new_run
from hive.records import Summary, read_jsonl
from hive.records.run_warnings import GIVEN_DATA, facts_of, warnings_of
from hive.runtime import Topology
from hive.runtime.actor.error_location import HIVE, place_in

if TYPE_CHECKING:  # imports NumPy and Gymnasium
    from hive.envs import Examination

STEPS = 200  # environment steps of a trial: enough for every actor to do its work once

NO_VIDEOS = ("evaluation.videos=0",)  # a renderer that crashes would take this process with it

NO_HOSTS = ("collection.hosts=[]", "evaluation.hosts=[]")  # a trial takes place on this machine

NO_WARMUP = ("algorithm.learning_starts=0",)  # with a replay memory: updates from the first round on

ROUNDS = 30  # rounds of a trial that measures them

BUDGET_S = 4.0  # expected duration of the environments' part of a trial; with slower ones it has fewer steps

LEAST_STEPS = 8  # of such a trial: some networks, such as those with BatchNorm, refuse batches of a single row

LIMIT_S = 8.0  # maximum duration of a trial: with the start and EXAMINED_S, the command takes about 12 seconds at most

EXAMINED_STEPS = 1000  # steps of one environment with random actions: an episode of most environments

EXAMINED_S = 2.0  # maximum duration of these steps

GRACE_S = 10.0  # time to stop after LIMIT_S: one gradient of images takes seconds, and more on a busy machine

STUCK = (
    "a run ends such a call too, and shows its stack: the limits are supervision.phase_limit_s and, for construction "
    "and resets, env.start_limit_s"
)

POLL_S = 0.2  # interval in which a call that may be stuck is looked at


def call_limits(config: Config) -> dict[str, float]:
    """Return the seconds that a run allows for each kind of call of an environment."""
    env, start_s = config.env, config.start_limit_s
    reset_s = start_s if env.reset_limit_s is None else env.reset_limit_s
    step_s = config.supervision.phase_limit_s if env.step_limit_s is None else env.step_limit_s
    return {"construction": start_s, "reset": reset_s, "step": step_s, "close": step_s}


def examine_environment(config: Config, topology: Topology) -> Examination:
    """Play one environment of the config with random actions."""
    from hive.schemes import blueprint_of
    from hive.training.run_start import steps_between_barriers

    several = bool(blueprint_of(topology).environment.agents)
    from hive.envs.look import LOOK_S

    done = examined_in_time(config, EXAMINED_STEPS, EXAMINED_S, several=several, look_s=LOOK_S)
    done.begun_anew = steps_between_barriers(blueprint_of(topology))
    if config.env.rebuild and done.begun_anew:
        done.rebuilt = config.collectors * config.collection.envs
    return done


def examined_in_time(config: Config, steps: int, limit_s: float, *, several: bool, look_s: float) -> Examination:
    """Return what `examined` returns. End this process with an error if a call takes longer than a run allows."""
    from hive.envs import examined

    limits, thread, over = call_limits(config), threading.get_ident(), threading.Event()
    current = "construction", time.monotonic()

    def begin(call: str) -> None:
        nonlocal current
        current = call, time.monotonic()

    def watch() -> None:
        while not over.wait(POLL_S):
            call, since_s = current
            if time.monotonic() - since_s > limits[call]:
                _end_stuck(f"the {call} of `{config.env.id}` has not ended within {limits[call]:g} s", thread)

    if not config.env.is_apart:  # otherwise its processes are watched
        threading.Thread(target=watch, daemon=True).start()
    try:
        return examined(
            config.env,
            steps,
            limit_s,
            several=several,
            look_s=look_s,
            environments=config.collectors * config.collection.envs,
            beside=config.has_neighbours,
            limits=limits,
            begin=begin,
        )
    finally:
        over.set()


def fewer_steps(
    topology: Topology, examined: Examination, load: Callable[[Mapping[str, int]], Config]
) -> Mapping[str, int] | None:
    """Return other values of keys with which a trial fits BUDGET_S: none, {}, but where environments are slow.

    load: returns the config with further values. None: even LEAST_STEPS would take longer than LIMIT_S.
    """
    from hive.schemes import blueprint_of
    from hive.schemes.sizes import memory_of

    config, blueprint = load({}), blueprint_of(topology)
    collectors, envs, rollout = config.collectors, config.collection.envs, config.collection.rollout
    first_s = examined.first_s
    step_s, share_s = max(examined.pace_s, 1e-9), BUDGET_S / collectors
    rounds = -(-STEPS // blueprint.round_steps)
    if envs * (first_s + rounds * rollout * step_s) <= share_s:
        return {}
    few = max(1, min(envs, int(share_s / max(first_s, step_s))))
    least = -(-LEAST_STEPS // (collectors * few))
    short = min(max(least, int(share_s / (few * step_s))), rollout)
    if collectors * few * short * step_s > LIMIT_S:
        return None
    for number, length in ((few, short), (envs, short), (envs, min(2 * short, rollout))):
        steps = collectors * number * length
        keys = {"collection.envs": number, "collection.rollout": length, "run.steps": steps}
        try:
            changed = load(keys)
            if (parts := getattr(changed.algorithm, "minibatches", 1)) > 1:
                keys["algorithm.minibatches"] = max(min(parts, steps // LEAST_STEPS), 1)
                changed = load(keys)
        except ConfigError:
            continue
        if memory_of(changed, blueprint.environment, Path(config.run.name)) is not None:
            return keys
    return {}


def why_fewer(examined: Examination) -> str:
    """Return which part of an environment is slow."""
    if examined.first_s > examined.pace_s * LEAST_STEPS:
        return f"an environment takes {examined.first_s:.1f} s until its first step has ended"
    if examined.pace_s > 2 * examined.mean_step_s:
        return f"a reset takes {examined.mean_reset_s:.2g} s"
    return f"a step takes {examined.mean_step_s:.2g} s"


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


def run_trial(
    config: Config,
    file: Path | None,
    sets: list[str],
    *,
    measured: bool,
    fewer: Mapping[str, int],
    first_s: float = 0.0,
    late: Callable[[str], int],
) -> dict[str, Any]:
    """Run the topology inline for some steps or LIMIT_S seconds. Raises the error that the run fails with.

    measured: the trial is long enough to measure its rounds. fewer: of `fewer_steps`. first_s: further seconds, for the
    first calls of its environments. late: called in another thread, with the line that is executed, if the trial is
    slow and does not stop in GRACE_S; then this process ends with what it returns.
    """
    from hive.runtime.run.execute import run_inline

    round_steps = config.collectors * config.collection.envs * config.collection.rollout
    changed = [*NO_VIDEOS, *NO_HOSTS, *(NO_WARMUP if config.replay_shape else ()), "checkpoint.every={}"]
    changed.append(f"run.steps={ROUNDS * round_steps if measured else STEPS}")
    begun = time.monotonic()
    with _temporary_home() as folder:
        over, ending, stuck_s = threading.Event(), threading.Lock(), config.supervision.phase_limit_s
        drain = threading.Timer(LIMIT_S + first_s, os.kill, (os.getpid(), signal.SIGTERM))  # the run drains and ends
        watch = threading.Thread(
            target=_watch, args=(threading.get_ident(), over, ending, first_s, stuck_s, folder, late), daemon=True
        )
        try:
            changed += [f"{name}={value}" for name, value in fewer.items()]
            directory = new_run(file, [*sets, *changed], report=lambda text: None)
            drain.start()
            watch.start()
            run_inline(directory)
        finally:
            drain.cancel()
            with ending:
                over.set()
        summary = Summary.read(directory.summary_file)
        events = [*read_jsonl(directory.events_file)]
        faults = [event.get("text", "") for event in events if event.get("kind") == "not finite"]
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
        "given": facts_of(events).get(GIVEN_DATA, ""),
        "warnings": [warning.data for warning in warnings_of(events).values() if warning.kind == GIVEN_DATA],
    }


@contextlib.contextmanager
def _temporary_home() -> Iterator[str]:
    """Keep runs in a folder that is deleted at the end."""
    home = os.environ.get("HIVE_HOME")
    with tempfile.TemporaryDirectory(prefix="hive-check-") as folder:
        os.environ["HIVE_HOME"] = folder
        try:
            yield folder
        finally:
            os.environ.pop("HIVE_HOME")
            if home is not None:
                os.environ["HIVE_HOME"] = home


def _watch(
    thread: int,
    over: threading.Event,
    ending: threading.Lock,
    first_s: float,
    stuck_s: float,
    folder: str,
    late: Callable[[str], int],
) -> None:
    """End this process if `thread` is in a call where signal handlers cannot run, or in a very slow rollout.

    It is an error only if one call of hive lasts for `stuck_s`, after which a run would end it too. over: the trial has
    ended. ending: is kept, so that nothing follows the end.
    """
    if over.wait(LIMIT_S + first_s + GRACE_S):
        return
    call, since_s = _call_of(thread), time.monotonic()
    while not over.wait(POLL_S):
        if _call_of(thread) is not call and ending.acquire() and not over.is_set():  # it is slow
            place = place_in(sys._current_frames()[thread])
            shutil.rmtree(folder, ignore_errors=True)
            code = late(place)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        if time.monotonic() - since_s > stuck_s:
            shutil.rmtree(folder, ignore_errors=True)
            _end_stuck(f"the trial did not stop, and was in one call for {stuck_s:g} s", thread)


def _call_of(thread: int) -> FrameType | None:
    """Return the innermost call of hive in a thread."""
    frame: FrameType | None = sys._current_frames()[thread]
    while frame is not None and not frame.f_code.co_filename.startswith(HIVE):
        frame = frame.f_back
    return frame


def _end_stuck(text: str, thread: int) -> NoReturn:
    """End this process, whose main thread is stuck."""
    place = place_in(sys._current_frames()[thread])
    error = ActorFailed(text + (f"; it is in {place}" if place else ""), hint=STUCK)
    sys.stdout.flush()
    print(error.render(), file=sys.stderr, flush=True)
    os._exit(error.exit_code)
