"""Plays checkpoints of runs and files of `hive export`, for `hive eval`, `hive play`, `hive record` and `hive export`.

It has the options, the selection of checkpoints, videos, and the line of progress.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive.cli.parts.arguments import add_overrides, whole_number
from hive.launch.control import print_to_stderr
from hive.launch.sources import Source, players_and_config
from hive.printable import obeyed, printable
from hive.records.return_text import return_text

if TYPE_CHECKING:
    from hive.training import Episode, Recording

MOST_AGENTS = 8  # whose returns are shown one by one in a line
STALLED_S = 10.0  # interval between two lines about episodes that do not end


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


def played_as(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `evaluate`, `record` and `show` that `add_player` declares, without the seed."""
    return {"sample": options.sample, "max_steps": options.max_steps}


def recorded(source: Source, file: Path, options: argparse.Namespace, *, episodes: int, seed: int) -> Recording:
    """Record a checkpoint to `file`. Raises what `hive.training.record` raises."""
    from hive.training import record

    policy, config = players_and_config(source, options.set)
    with progress_line(source.label, "pictures recorded") as progress:
        return record(policy, config, file, episodes=episodes, seed=seed, **played_as(options), progress=progress)


def described(video: Recording) -> str:
    """Return one line about a video: `pole.mp4: 10.0 s, 1 episode, return 500.0`."""
    count = len(video.episodes)
    returns = ", ".join(return_text(episode.episode_return) for episode in video.episodes)
    if count == 1:
        returns = episode_text(video.episodes[0])
    what = f"{count} episode{'s' * (count != 1)}" + (f", return{'s' * (count != 1)} {returns}" if count else "")
    endless = sum(episode.cut for episode in video.episodes)
    cut = f"; {endless} did not end and {'was' if endless == 1 else 'were'} cut (--max-steps)" if endless else ""
    cut += "" if video.whole else "; it ends at its limit of pictures, in the middle of an episode"
    return f"{video.path}: {video.pictures / video.fps:.1f} s, {what}{cut}"


def episode_text(episode: Episode) -> str:
    """Return the return of an episode, and that of each agent where there are several: `0.5 (cross 1.5, circle -1)`."""
    each = ", ".join(f"{printable(agent)} {returned:.4g}" for agent, returned in episode.returns.items())
    text = return_text(episode.episode_return)
    return f"{text} ({each})" if 1 < len(episode.returns) <= MOST_AGENTS else text


@contextlib.contextmanager
def progress_line(name: str, what: str, before: int = 0) -> Iterator[Callable[[int], None]]:
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
