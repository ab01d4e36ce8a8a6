"""Videos of a run while it trains: they can be played, survive a kill, and a renderer that crashes turns them off."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive.records import read_jsonl

if TYPE_CHECKING:
    from conftest import House

ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
pytest.importorskip("pygame", reason="needs the extra video")

pytestmark = pytest.mark.full(reason="starts runs that record")

# Almost no learning, so that episodes stay short.
RECORDED = """workers = 2
[algorithm]
learning_rate = 1e-9
[evaluation]
every = { updates = 50 }
episodes = 4
videos = 2
keep_videos = 8
"""
CRASHING = """
[run]
scheme = "a2c"
steps = 100_000_000
name = "crash"
[env]
id = "crashing_renderer:Crashing"
[evaluation]
every = { updates = 20 }
episodes = 2
videos = 1
"""


def videos_of(house: House, run: str) -> list[Path]:
    return sorted((house.home / run / "videos").glob("*.mp4"))


def turn_of(video: Path) -> int:
    return int(video.name.partition("-")[0])


def pictures_in(video: Path) -> int:
    """The number of pictures that ffmpeg decodes, without a complaint."""
    command = [ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(video), "-f", "framecrc", "-"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return sum(not line.startswith("#") for line in done.stdout.splitlines())


def test_a_killed_evaluator_comes_back_and_records_again(house: House) -> None:
    done = house.hive("up", house.cartpole(more=RECORDED), "-d")
    assert done.returncode == 0, done.stderr
    house.until(lambda: len(videos_of(house, "cart-1")) >= 2)
    mark, pid = house.home / "cart-1" / "videos" / ".drawing-0", house.ps("cart-1")["evaluator-0"]["pid"]
    house.until(mark.exists, poll_s=0.001)
    os.kill(pid, signal.SIGKILL)
    house.until(lambda: house.ps("cart-1")["evaluator-0"]["restarts"] == 1)
    turn = house.ps("cart-1")["learner-0"]["version"]
    house.until(lambda: sum(turn_of(video) > turn for video in videos_of(house, "cart-1")) >= 2)
    down = house.hive("down", "cart-1")
    assert down.returncode == 0, down.stderr
    summary, videos = house.ended("cart-1"), videos_of(house, "cart-1")
    assert {name for name, times in summary["restarts"].items() if times} == {"evaluator-0"}
    assert 2 <= len(videos) <= 8
    assert all(pictures_in(video) >= 9 for video in videos)  # an episode of CartPole has 8 steps at least
    kept = {path.name for path in (house.home / "cart-1" / "videos").iterdir()} - {video.name for video in videos}
    assert kept == {".passed"}  # neither parts of videos nor marks
    evaluated = {line["turn"] for line in read_jsonl(house.home / "cart-1" / "evaluations.jsonl")}
    assert {turn_of(video) for video in videos} <= evaluated


def test_a_renderer_that_crashes_turns_videos_off_after_one_restart(house: House) -> None:
    done = house.hive("up", house.config(CRASHING), "-d")
    assert done.returncode == 0, done.stderr
    house.until(lambda: house.ps("crash-1")["evaluator-0"]["restarts"] == 1)
    turn = house.ps("crash-1")["learner-0"]["version"]
    evaluations = house.home / "crash-1" / "evaluations.jsonl"
    house.until(lambda: sum(line["turn"] > turn for line in read_jsonl(evaluations)) >= 5)
    assert house.hive("down", "crash-1").returncode == 0
    assert house.ended("crash-1")["restarts"]["evaluator-0"] == 1
    off = [event["text"] for event in house.events("crash-1") if event["kind"] == "videos off"]
    assert len(off) == 1
    assert "evaluator-0 exited while it drew its first picture" in off[0]
    assert videos_of(house, "crash-1") == []
