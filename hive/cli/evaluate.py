"""`hive eval`: measures the policies of runs by playing whole episodes in this process, without exploration noise.

    RUN         CHECKPOINT  STEPS    EPISODES  RETURN        DEVIATION  MIN    MAX    LENGTH
    cartpole-1  001563      200,064  100       498.2 ± 1.3   6.8        441.0  500.0  498.2

`±` is a 95 % confidence interval of the mean return, by the central limit theorem. All policies play from the same
initial states, which `--seed` determines; with `--seeds 0..4` they play all episodes with each of these seeds. RUN may
also be a file of `hive export`, FILE.safetensors, which plays the episodes of its run. Runs are only read: a live run
continues, and may remove the checkpoints that are being measured, because they are read before.

`--video FILE` also records the first episodes (hive.training.evaluate.recording).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_json, add_runs, add_which, whole_number
from hive.cli.parts.json_output import environments_to_stderr
from hive.cli.parts.playing import add_player, described, played_as, progress_line, recorded
from hive.errors import UsageError
from hive.launch.control import print_to_stderr
from hive.launch.sources import Source, cut_note, enter_run, import_before_torch, policies_and_config, sources
from hive.paths import user_path
from hive.records import Checkpoint
from hive.records.return_text import return_text
from hive.table import table_text

if TYPE_CHECKING:
    from hive.training import Evaluation, Recording

EPISODES = 100
VIDEO_EPISODES = 1
MOST_VIDEO_EPISODES = 100  # more than a viewer watches; hive.records.sinks.videos also limits the pictures


@dataclass(frozen=True)
class PlayedCheckpoint:
    """The evaluation of a checkpoint: over all seeds, and with each seed."""

    source: Source
    checkpoint: Checkpoint  # of its policy
    whole: Evaluation
    each: dict[int, Evaluation]
    policy: str = ""  # its name, in a run with several

    @property
    def name(self) -> str:
        """The name of the run or file, and the policy's."""
        return f"{self.source.name} {self.policy}".rstrip()


COLUMNS: Mapping[str, Callable[[PlayedCheckpoint], str]] = {
    "RUN": lambda row: row.name,
    "CHECKPOINT": lambda row: replace(row.source, checkpoint=row.checkpoint).checkpoint_name,
    "STEPS": lambda row: f"{row.whole.env_steps:,}",
    "EPISODES": lambda row: str(row.whole.episodes),
    "RETURN": lambda row: return_text(row.whole.mean_return) + _margin(row.whole),
    "DEVIATION": lambda row: return_text(row.whole.deviation),
    "MIN": lambda row: return_text(row.whole.min),
    "MAX": lambda row: return_text(row.whole.max),
    "LENGTH": lambda row: f"{row.whole.mean_length:.1f}",
}


def add_eval(commands: Any) -> None:
    evaluate = commands.add_parser(
        "eval",
        description="Play whole episodes with the policies of runs and print statistics of their returns. All policies "
        "play from the same initial states. RUN may also be a file of `hive export`, FILE.safetensors.",
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


def run_eval(options: argparse.Namespace) -> int:
    """Run `hive eval`; return the exit code."""
    # All checkpoints are read before the first episode: a mistake costs no minutes, and a live run may remove them.
    seeds = _seeds(options)
    chosen = [source for text in options.runs or [None] for source in sources(text, options.which)]
    if len({source.run.path for source in chosen if source.run is not None}) == 1:
        enter_run(chosen[0])
    _check_video(options, len(chosen))
    if options.video is not None:
        import_before_torch(chosen[0], options.set)
    video = None
    with environments_to_stderr(options.json):
        rows = [row for source in chosen for row in _measured(source, options, seeds)]
        if options.video is not None:
            (source,) = chosen
            episodes = options.video_episodes or VIDEO_EPISODES
            video = recorded(source, options.video, options, episodes=episodes, seed=seeds[0])
    if options.json:
        more: dict[str, Any] = {"sampled": options.sample}
        if video is not None:
            more["video"] = _video_data(video)
        print(json.dumps([_as_data(row) | more for row in rows], indent=2))
        return 0
    print(_table(rows))
    if video is not None:
        print(described(video))
    return 0


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seeds is None:
        return [options.seed or 0]
    if options.seed is not None:
        raise UsageError("--seed and --seeds exclude each other")
    from hive.cli.parts.seed_sweep import seeds_of

    return seeds_of(options.seeds)


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


def _measured(source: Source, options: argparse.Namespace, seeds: list[int]) -> list[PlayedCheckpoint]:
    """Play the episodes of all seeds; return a row of each policy."""
    from hive.training import evaluate, evaluate_together, joined

    policies, config = policies_and_config(source, options.set)
    each: dict[str, dict[int, Evaluation]] = {name: {} for name in policies}
    for number, seed in enumerate(seeds):
        before, total = number * options.episodes, len(seeds) * options.episodes
        with progress_line(source.label, f"of {total} episodes", before) as progress:
            how = {"episodes": options.episodes, "seed": seed, **played_as(options), "progress": progress}
            if len(policies) > 1:
                played = evaluate_together({name: policy for name, (policy, _) in policies.items()}, config, **how)
            else:
                played = {name: evaluate(policy, config, **how) for name, (policy, _) in policies.items()}
        for name, one in played.items():
            each[name][seed] = one
    rows = [
        PlayedCheckpoint(source, at, joined([*each[name].values()]), each[name], name)
        for name, (_, at) in policies.items()
    ]
    if what := cut_note(rows[0].whole, config, options.max_steps):
        print_to_stderr(f"note: {source.label}: {what}; --max-steps changes this limit")
    return rows


def _table(rows: Sequence[PlayedCheckpoint]) -> str:
    """Return the table of results, with a column for each value of `info`; most of these are shares."""
    names = dict.fromkeys(name for row in rows for name in row.whole.info)
    cells = [
        [
            *(cell(row) for cell in COLUMNS.values()),
            *(f"{row.whole.info[name]:.3g}" if name in row.whole.info else "" for name in names),
        ]
        for row in rows
    ]
    return table_text([*COLUMNS, *(name.upper() for name in names)], cells)


def _margin(played: Evaluation) -> str:
    return "" if math.isnan(played.interval) else f" ± {return_text(played.interval)}"


def _as_data(row: PlayedCheckpoint) -> dict[str, Any]:
    numbers = dataclasses.asdict(row.whole)
    del numbers["turn"], numbers["seconds"]  # only meaningful for evaluations during a run
    return {
        "run": row.source.name,
        **({"policy": row.policy} if row.policy else {}),
        "checkpoint": str(row.checkpoint.path),
        **numbers,
        "interval_95": _interval(row.whole),
        "seed": next(iter(row.each)),
        "seeds": [
            {"seed": seed, "episodes": it.episodes, "mean_return": it.mean_return, "interval_95": _interval(it)}
            for seed, it in row.each.items()
        ],
    }


def _video_data(video: Recording) -> dict[str, Any]:
    data = dataclasses.asdict(video) | {"path": str(video.path)}
    for episode in data["episodes"]:
        if not episode["returns"]:  # of one agent
            del episode["returns"]
    return data


def _interval(played: Evaluation) -> float | None:
    return None if math.isnan(played.interval) else played.interval
