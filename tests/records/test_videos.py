"""Videos: they appear whole or not at all, keep their speed, and have limits."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hive.errors import RecordError, UsageError
from hive.records.sinks import videos
from hive.records.sinks.videos import check_video_file, evaluation_video, surplus_videos, video_writer

Image = pytest.importorskip("PIL.Image", reason="needs the extra video")


def picture(shade: int, height: int = 8, width: int = 12) -> np.ndarray:
    return np.full((height, width, 3), shade, np.uint8)


@pytest.mark.parametrize(("fps", "kept"), [(10.0, 20), (50.0, 10), (60.0, 9)])
def test_a_gif_lasts_as_long_as_the_episode(tmp_path: Path, fps: float, kept: int) -> None:
    """Pictures beyond 25 a second are left out; times are whole hundredths of a second."""
    path = tmp_path / "a.gif"
    with video_writer(path, fps) as writer:
        for shade in range(20):
            writer.add(picture(12 * shade))
    with Image.open(path) as gif:
        times = []
        for number in range(gif.n_frames):
            gif.seek(number)
            times.append(gif.info["duration"])
        assert (gif.size, gif.n_frames) == ((12, 8), kept)
    assert sum(times) == pytest.approx(20_000 / fps, abs=10)
    assert list(tmp_path.iterdir()) == [path]


def write(path: Path, *pictures: np.ndarray) -> None:
    with video_writer(path, 10.0) as writer:
        for one in pictures:
            writer.add(one)


def test_nothing_is_left_of_a_video_that_fails(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"pictures of \(8, 12\) and of \(9, 12\)"):
        write(tmp_path / "a.gif", picture(0), picture(0, height=9))
    with pytest.raises(RecordError, match="would have no picture"):
        write(tmp_path / "a.gif")
    assert not list(tmp_path.iterdir())


def test_pictures_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "GIF_PICTURES", 3)
    with video_writer(tmp_path / "a.gif", 10.0) as writer:
        for shade in range(5):
            writer.add(picture(50 * shade))
        assert (writer.full, writer.pictures) == (True, 3)


def test_mistakes_are_found_before_anything_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("a.avi", "no name of a video"), ("no/a.gif", "no such folder")):
        with pytest.raises(UsageError, match=text):
            check_video_file(tmp_path / name)
    monkeypatch.setitem(videos.PACKAGES, ".mp4", ("no_such_module", "imageio-ffmpeg"))
    with pytest.raises(UsageError, match="mp4 videos need imageio-ffmpeg") as error:
        check_video_file(tmp_path / "a.mp4")
    assert error.value.hint == "pip install 'hive-trainer[video]', or write a .gif"
    assert videos.video_suffix() == ".gif"


@pytest.mark.full(reason="starts ffmpeg")
def test_an_mp4_has_the_pictures_and_the_speed(tmp_path: Path) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    path = tmp_path / "a.mp4"
    with video_writer(path, 15.0) as writer:
        for shade in range(30):
            writer.add(picture(8 * shade, height=64, width=64))
    assert ffmpeg.count_frames_and_secs(str(path)) == (30, 2.0)
    decode = [ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    done = subprocess.run(decode, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    shades = np.frombuffer(done.stdout, np.uint8).reshape(30, 64 * 64).mean(1)
    assert shades[0] < 10
    assert shades[-1] == pytest.approx(232, abs=6)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("pictures", [1, 500], ids=["at the end", "while it is written"])
def test_what_ffmpeg_reports_is_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: int) -> None:
    """As on a full disk, where ffmpeg has written a part. 500 pictures fill the pipe."""
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    fake = tmp_path / "ffmpeg"
    fake.write_text('#!/bin/sh\nhead -c 100 > /dev/null\necho "a.mp4: No space left on device" >&2\nexit 1\n')
    fake.chmod(0o700)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(fake))
    with pytest.raises(RecordError, match=r"cannot be written: a\.mp4: No space left on device"):
        write(tmp_path / "a.mp4", *[picture(0, 64, 64)] * pictures)
    assert list(tmp_path.iterdir()) == [fake]


def test_an_ffmpeg_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "none"))
    with pytest.raises(RecordError, match=r"a\.mp4` cannot be written: .*No such file"):
        write(tmp_path / "a.mp4", picture(0))


def test_surplus_videos_are_the_oldest_of_evaluations(tmp_path: Path) -> None:
    """By the time of writing: a resumed run may begin with an earlier update."""
    names = ["000900-0.mp4", "000900-1.mp4", "000400-0.gif", "play-000100-seed0.mp4"]
    for at, name in enumerate(names):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(at, at))
    assert evaluation_video(tmp_path, 900, 1, ".mp4").name == names[1]
    assert [path.name for path in surplus_videos(tmp_path, 2)] == names[:1]
    assert [path.name for path in surplus_videos(tmp_path, 0)] == names[:3]
    assert surplus_videos(tmp_path, 9) == surplus_videos(tmp_path / "none", 1) == []
