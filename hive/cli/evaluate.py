"""`hive eval`: measures the policies of runs by playing whole episodes in this process, without exploration noise.

    RUN         CHECKPOINT  STEPS    EPISODES  RETURN        DEVIATION  MIN    MAX    LENGTH
    cartpole-1  001563      200,064  100       498.2 ± 1.3   6.8        441.0  500.0  498.2

`±` is a 95 % confidence interval of the mean return, by the central limit theorem. All policies play from the same
initial states, which `--seed` determines; with `--seeds 0..4` they play all episodes with each of these seeds. Runs are
only read: a live run continues, and may remove the checkpoints that are being measured, because they are read before.

`--video FILE` also records the first episodes (hive.training.evaluate.recording).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_json, add_overrides, add_runs, add_which, whole_number
from hive.cli.parts.control import print_to_stderr
from hive.cli.parts.json_output import environments_to_stderr
from hive.cli.parts.select_run import chosen_run
from hive.cli.parts.suggest import listed
from hive.errors import UsageError
from hive.paths import user_path
from hive.printable import obeyed, printable
from hive.records import Checkpoint, RunDirectory, best_of, held, list_checkpoints, run_state
from hive.records.return_text import return_text
from hive.table import table_text

if TYPE_CHECKING:
    from hive.config import Config
    from hive.policy.loaded import Policy
    from hive.training import Evaluation, Recording

EPISODES = 100
STALLED_S = 10.0  # interval between two lines about episodes that do not end
VIDEO_EPISODES = 1
MOST_VIDEO_EPISODES = (
    100  # more than a viewer watches; a video also has a limit of pictures (hive.records.sinks.videos)
)
HEAD = ("RUN", "CHECKPOINT", "STEPS", "EPISODES", "RETURN", "DEVIATION", "MIN", "MAX", "LENGTH")


def add_eval(commands: Any) -> None:
    evaluate = commands.add_parser(
        "eval",
        description="Play whole episodes with the policies of runs and print statistics of their returns. All policies "
        "play from the same initial states.",
        epilog="example: hive eval cartpole-ppo-1 --which best --episodes 20",
    )
    add_runs(evaluate)
    add_which(evaluate, every=True)
    evaluate.add_argument(
        "--episodes",
        type=whole_number("number of episodes", 1),
        default=EPISODES,
        help=f"number of episodes with each seed (default {EPISODES})",
    )
    evaluate.add_argument("--seeds", metavar="SEEDS", help="several seeds, as 0..4 or 1,2,7, whose episodes are joined")
    add_player(evaluate)
    evaluate.add_argument(
        "--video", type=user_path, metavar="FILE", help="record the first episodes to FILE.mp4 or .gif"
    )
    evaluate.add_argument(
        "--video-episodes",
        type=whole_number("number of episodes", 1, MOST_VIDEO_EPISODES),
        metavar="N",
        help=f"number of episodes in the video (default {VIDEO_EPISODES}, at most {MOST_VIDEO_EPISODES})",
    )
    add_json(evaluate, "one JSON array")
    evaluate.set_defaults(run=run_eval)


def add_player(command: argparse.ArgumentParser) -> None:
    """Add the options of how a policy is played: `--seed`, `--sample`, `--max-steps` and `--set`."""
    command.add_argument("--seed", type=whole_number("seed", 0), help="seed of the episodes (default 0)")
    command.add_argument(
        "--sample", action="store_true", help="sample actions as in training instead of taking the most likely ones"
    )
    command.add_argument(
        "--max-steps",
        type=whole_number("number of steps", 0),
        metavar="N",
        help="cut episodes that do not end within N steps; 0: none (default: evaluation.max_steps of the run, 100,000)",
    )
    add_overrides(command, "override a key of the run's config, such as env.options.NAME (repeatable)")


def run_eval(options: argparse.Namespace) -> int:
    """Run `hive eval`; return the exit code."""
    # All checkpoints are read before the first episode: a typing error costs no minutes, and a live run may remove
    # them.
    seeds = _seeds(options)
    runs = [chosen_run(text) for text in options.runs or [None]]
    chosen = [(run, checkpoint) for run in runs for checkpoint in held_checkpoints(run, options.which)]
    _check_video(options, len(chosen))
    video = None
    with environments_to_stderr(options.json):
        found = [(run, checkpoint, _play(run, checkpoint, options, seeds)) for run, checkpoint in chosen]
        if options.video is not None:
            ((run, checkpoint),) = chosen
            episodes = options.video_episodes or VIDEO_EPISODES
            video = recorded(run, checkpoint, options.video, options, episodes=episodes, seed=seeds[0])
    if options.json:
        print(json.dumps([_as_data(*one, options, seeds, video) for one in found], indent=2))
        return 0
    infos = list(dict.fromkeys(name for *_, (played, _) in found for name in played.info))
    rows = [[*_cells(*one), *(_share(one[2][0].info.get(name)) for name in infos)] for one in found]
    print(table_text([*HEAD, *(name.upper() for name in infos)], rows))
    if video is not None:
        print(described(video))
    return 0


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seeds is None:
        return [options.seed or 0]
    if options.seed is not None:
        raise UsageError("--seed and --seeds exclude each other")
    from hive.cli.parts.seed_sweep import seeds_of

    return list(dict.fromkeys(seeds_of(options.seeds)))  # a repeated seed would count its episodes twice


def _check_video(options: argparse.Namespace, checkpoints: int) -> None:
    """Raise UsageError if no video can be written, before any episode is played."""
    if options.video is None:
        if options.video_episodes is not None:
            raise UsageError("--video-episodes needs --video FILE")
        return
    if checkpoints > 1:
        raise UsageError(
            f"--video records one checkpoint, and {checkpoints} are selected", hint="name one run, without --which all"
        )
    from hive.records.sinks.videos import check_video_file

    check_video_file(options.video)


def held_checkpoints(run: RunDirectory, which: str) -> list[Checkpoint]:
    """Return what `checkpoints_of` finds, with the weights in memory, so that a live run may remove the files."""
    return held(lambda: checkpoints_of(run, which))


def checkpoints_of(run: RunDirectory, which: str) -> list[Checkpoint]:
    """Return a run's checkpoints that `which` selects ("latest", "best", "all" or a number), sorted by update.

    Raises RecordError if there is no best policy, and UsageError if there is no such checkpoint.
    """
    if which == "best":
        return [best_of(run)]
    there = list_checkpoints(run.checkpoints, verify=True)
    if not there:
        raise UsageError(f"{run.name} has no checkpoint", hint=_hint_without_checkpoint(run))
    if which == "all":
        return there
    if which == "latest":
        return there[-1:]
    if named := [checkpoint for checkpoint in there if checkpoint.path.name == which.zfill(6)]:
        return named
    names = listed(checkpoint.path.name for checkpoint in there)
    raise UsageError(f"{run.name} has no checkpoint `{which}`", hint=f"use latest, best, all, or one of {names}")


def _hint_without_checkpoint(run: RunDirectory) -> str:
    if run_state(run) == "running":
        return f"`hive save {run.name}` writes one now"
    return "it ended before the first one; checkpoint.every says how often one is written"


def policy_and_config(run: RunDirectory, checkpoint: Checkpoint, overrides: list[str]) -> tuple[Policy, Config]:
    """Return the policy of a checkpoint and the config of its run. It executes the config's user code, as `hive resume`
    does. Raises RecordError and ConfigError."""
    from hive.config import load_config
    from hive.policy.loaded import policy_of

    return policy_of(checkpoint, own_code=True), load_config(run.resolved_file, overrides)


def _play(
    run: RunDirectory, checkpoint: Checkpoint, options: argparse.Namespace, seeds: list[int]
) -> tuple[Evaluation, list[Evaluation]]:
    """Return the evaluation over all seeds, and that with each seed."""
    from hive.training import evaluate, joined

    policy, config = policy_and_config(run, checkpoint, options.set)
    name, played = f"{run.name} {checkpoint_name(run, checkpoint)}", []
    for number, seed in enumerate(seeds):
        before, total = number * options.episodes, len(seeds) * options.episodes
        with _progress_line(name, f"of {total} episodes", before) as progress:
            how = {"episodes": options.episodes, "seed": seed, **played_as(options)}
            played.append(evaluate(policy, config, **how, progress=progress))
    whole = joined(played)
    if whole.cut:
        limit = config.evaluation.max_steps if options.max_steps is None else options.max_steps
        what = f"{whole.cut} of {whole.episodes} episodes did not end within {limit:,} steps and count up to there"
        print_to_stderr(f"note: {name}: {what}; --max-steps changes this limit")
    return whole, played


def played_as(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `evaluate`, `record` and `show` that `add_player` declares, without the seed."""
    return {"sample": options.sample, "max_steps": options.max_steps}


def recorded(
    run: RunDirectory, checkpoint: Checkpoint, file: Path, options: argparse.Namespace, *, episodes: int, seed: int
) -> Recording:
    """Record a checkpoint to `file`. Raises what `hive.training.record` raises."""
    from hive.training import record

    policy, config = policy_and_config(run, checkpoint, options.set)
    with _progress_line(f"{run.name} {checkpoint_name(run, checkpoint)}", "pictures recorded") as progress:
        return record(policy, config, file, episodes=episodes, seed=seed, **played_as(options), progress=progress)


def described(video: Recording) -> str:
    """Return one line about a video: `pole.mp4: 10.0 s, 1 episode, return 500.0`."""
    count = len(video.episodes)
    returns = ", ".join(return_text(episode.episode_return) for episode in video.episodes)
    what = f"{count} episode{'s' * (count != 1)}" + (f", return{'s' * (count != 1)} {returns}" if count else "")
    endless = sum(episode.cut for episode in video.episodes)
    cut = f"; {endless} did not end and {'was' if endless == 1 else 'were'} cut (--max-steps)" if endless else ""
    cut += "" if video.whole else "; it ends at its limit of pictures, in the middle of an episode"
    return f"{video.path}: {video.pictures / video.fps:.1f} s, {what}{cut}"


@contextlib.contextmanager
def _progress_line(name: str, what: str, before: int = 0) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows a count, added to `before`.

    On a terminal it is a line that is removed at the end. Otherwise a line is printed every STALLED_S seconds in which
    the count does not change, so that an episode that does not end is noticed.
    """
    last, live = -1, sys.stderr.isatty()
    begun_s = shown_s = time.monotonic()

    def show(done: int) -> None:
        nonlocal last, begun_s, shown_s
        now_s = time.monotonic()
        if done != last:
            last, begun_s = done, now_s
            shown_s = now_s if not live else 0.0
        if now_s - shown_s < (1.0 if live else STALLED_S):
            return
        shown_s = now_s
        still = f", and none more for {now_s - begun_s:.0f} s" if now_s - begun_s >= 1.0 else ""
        if now_s - begun_s >= STALLED_S:  # the most likely action of a policy may change nothing, for ever
            still += " (--max-steps cuts episodes, --sample plays as in training)"
        line = f"{printable(name)}: {before + done} {what}{still}"
        if live:
            obeyed(sys.stderr).write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        else:
            print_to_stderr(line)

    try:
        yield show
    finally:
        if live:
            obeyed(sys.stderr).write("\r\x1b[K")


def checkpoint_name(run: RunDirectory, checkpoint: Checkpoint) -> str:
    """Return the name of a checkpoint: "001563", or "best/001563" for the best policy."""
    return f"best/{checkpoint.path.name}" if checkpoint.path.parent == run.best else checkpoint.path.name


def _cells(run: RunDirectory, checkpoint: Checkpoint, results: tuple[Evaluation, list[Evaluation]]) -> list[str]:
    played, _ = results
    interval = "" if math.isnan(played.interval) else f" ± {return_text(played.interval)}"
    return [
        run.name,
        checkpoint_name(run, checkpoint),
        f"{played.env_steps:,}",
        str(played.episodes),
        f"{return_text(played.mean_return)}{interval}",
        *map(return_text, (played.deviation, played.min, played.max)),
        f"{played.mean_length:.1f}",
    ]


def _share(mean: float | None) -> str:
    """Return the mean of a value of `info`; most are shares."""
    return "" if mean is None else f"{mean:.3g}"


def _as_data(
    run: RunDirectory,
    checkpoint: Checkpoint,
    results: tuple[Evaluation, list[Evaluation]],
    options: argparse.Namespace,
    seeds: list[int],
    video: Recording | None,
) -> dict[str, Any]:
    played, each = results
    numbers = dataclasses.asdict(played)
    del numbers["turn"], numbers["seconds"]  # only meaningful for evaluations during a run
    return {
        "run": run.name,
        "checkpoint": str(checkpoint.path),
        **numbers,
        "interval_95": _interval(played),
        "seed": seeds[0],
        "seeds": [
            {"seed": seed, "episodes": one.episodes, "mean_return": one.mean_return, "interval_95": _interval(one)}
            for seed, one in zip(seeds, each, strict=True)
        ],
        "sampled": options.sample,
        **({} if video is None else {"video": video_data(video)}),
    }


def _interval(played: Evaluation) -> float | None:
    return None if math.isnan(played.interval) else played.interval


def video_data(video: Recording) -> dict[str, Any]:
    """Return a recording for JSON."""
    return {**dataclasses.asdict(video), "path": str(video.path)}
