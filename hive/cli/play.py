"""`hive play`: shows the policy of a run: in a window where there is a display, otherwise as a video.

    $ hive play cartpole-ppo-1                      # a window, in real time, until it is closed
    episode 1: return 500.0, 500 steps
    $ hive play cartpole-ppo-1 -o pole.gif          # a video, also without a display
    pole.gif: 10.0 s, 1 episode, return 500.0

Videos without `-o` go to `videos/` of the run, those of a file of `hive export` beside it. All policies of a run with
several play together, and the return is that of the team. With the same seed, `hive eval` plays the same episodes and
more.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hive.cli.parts.arguments import add_run, add_which, whole_number
from hive.cli.parts.playing import add_player, described, episode_text, played_as, recorded
from hive.errors import UsageError
from hive.launch.select_run import say_default
from hive.launch.sources import Source, enter_run, import_before_torch, players_and_config, sources
from hive.paths import user_path
from hive.records.documents import failure


def add_play(commands: Any) -> None:
    play = commands.add_parser(
        "play",
        description="Show the policy of a run: in a window where there is a display (Escape or q closes it), otherwise "
        "as a video in the run's videos/. RUN may also be a file of `hive export`, FILE.safetensors; its videos are "
        "beside it.",
        epilog="example: hive play cartpole-ppo-1 --which best -o pole.mp4",
    )
    add_run(play)
    add_which(play)
    play.add_argument(
        "--episodes",
        type=whole_number("number of episodes", 1),
        help="number of episodes (default: until the window is closed; in a video 1)",
    )
    play.add_argument("-o", "--output", type=user_path, metavar="FILE", help="record to FILE.mp4 or .gif instead")
    add_player(play)
    play.set_defaults(run=run_play)


def run_play(options: argparse.Namespace) -> int:
    """Run `hive play`; return the exit code."""
    if options.which == "all":
        raise UsageError("hive play shows one checkpoint", hint="use latest, best or the number of an update")
    from hive.records.sinks.videos import check_video_file

    if options.output is not None:
        check_video_file(options.output)  # before torch is imported
    from hive.envs.drawing.rendering import has_display

    (source,) = sources(options.run_name, options.which)
    enter_run(source)
    import_before_torch(source, options.set)
    seed = options.seed or 0
    if source.run is not None:
        say_default(options.run_name, source.run)
    if options.output is not None or not has_display():
        file = options.output or _default_file(source, seed)
        video = recorded(source, file, options, episodes=options.episodes or 1, seed=seed)
        print(described(video))
        return 0
    from hive.training import Episode, show

    policy, config = players_and_config(source, options.set)
    number = 0

    def ended(episode: Episode) -> None:
        nonlocal number
        number += 1
        cut = ", where it was cut (--max-steps)" if episode.cut else ""
        print(f"episode {number}: return {episode_text(episode)}, {episode.length:,} steps{cut}", flush=True)

    title = f"hive play {source.label}"
    how = {"episodes": options.episodes, "seed": seed, **played_as(options)}
    show(policy, config, title=title, ended=ended, **how)
    return 0


def _default_file(source: Source, seed: int) -> Path:
    """Return the file of a video: in the run's folder `videos`, which is made, or beside the file of a policy.

    Raises RecordError and UsageError.
    """
    from hive.records.sinks.videos import played_video, video_suffix

    suffix, update = video_suffix(), source.checkpoint.update
    if source.run is None:
        return played_video(source.checkpoint.path.parent, update, seed, suffix)
    videos = source.run.videos
    try:
        videos.mkdir(exist_ok=True)
    except OSError as error:
        raise failure("write", videos, error) from error
    return played_video(videos, update, seed, suffix)
