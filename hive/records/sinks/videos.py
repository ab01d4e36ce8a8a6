"""Writes videos, picture by picture: mp4 by ffmpeg, or gif by Pillow. A video appears complete or not at all.

    .mp4    H.264, which every browser plays; pictures go to a process of ffmpeg, so none is kept in memory
    .gif    256 colors, at most GIF_FPS pictures a second and GIF_SIDE pixels a side; kept in memory until the end

The optional package imageio-ffmpeg brings ffmpeg; the extra `video` installs both. A video has at most a fixed number
of pictures, because an episode may never end.

    videos/                            of a run
      play-000400-seed0.mp4            recorded by `hive play`
      000400-0.mp4                     episode 0 of the evaluation of update 400 (evaluation.videos)
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hive.distribution import pip_install
from hive.errors import RecordError, UsageError
from hive.records.atomic import FILES, Files, atomic_file
from hive.records.documents import failure

SUFFIXES = (".mp4", ".gif")
PACKAGES = {".mp4": ("imageio_ffmpeg", "imageio-ffmpeg"), ".gif": ("PIL", "pillow")}
"""Suffix -> the module that writes such a video, and its package."""

MP4_PICTURES = 40_000  # 13 minutes at 50 a second: longer than a viewer watches, and than most games of Atari at 15
GIF_PICTURES = 1_000  # 40 seconds; 230 MB at the largest size
GIF_FPS = 25.0  # browsers slow down gifs of more than 50, and files grow with the rate
GIF_SIDE = 480
CRF = "25"  # H.264's constant quality: sharp edges of drawn pictures at some 60 bytes a picture of CartPole
NICE = 10  # a tenth of the share of a process of normal priority; pictures wait for ffmpeg, so drawing slows down too

OF_EVALUATION = re.compile(r"\d{6,}-\d+\.(mp4|gif)")

GIF_UNIT_MS = 10  # resolution of the times in a gif


class _Encoder(Protocol):
    def add(self, pixels: NDArray[np.uint8]) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class VideoWriter:
    """A video that is being written. `pictures`: the number so far; `full`: whether the limit is reached."""

    def __init__(self, path: Path, temporary: Path, fps: float) -> None:
        self.path = path
        self.fps = fps
        self.pictures = 0
        self.limit = MP4_PICTURES if path.suffix == ".mp4" else int(GIF_PICTURES * max(1.0, fps / GIF_FPS))
        self._temporary = temporary
        self._encoder: _Encoder | None = None
        self._shape: tuple[int, ...] = ()
        self._abandoned = False

    @property
    def full(self) -> bool:
        return self.pictures >= self.limit

    def add(self, pixels: NDArray[np.uint8]) -> None:
        """Add a picture, uint8 [height, width, 3]; beyond the limit it is left out.

        Raises RecordError if it cannot be written, and if its size differs from that of the first one.
        """
        if self.full:
            return
        self._shape = self._shape or pixels.shape
        if pixels.shape != self._shape:
            raise RecordError(f"`{self.path}`: pictures of {self._shape[:2]} and of {pixels.shape[:2]} pixels")
        try:
            if self._encoder is None:
                encoder = _Mp4 if self.path.suffix == ".mp4" else _Gif
                self._encoder = encoder(self._temporary, pixels.shape[1], pixels.shape[0], self.fps)
            if self._abandoned:  # meanwhile, by another thread
                self._encoder.abandon()
            self._encoder.add(pixels)
        except (OSError, RuntimeError) as error:
            raise RecordError(f"`{self.path}` cannot be written: {_cause(error)}") from error
        self.pictures += 1

    def close(self) -> None:
        """Write the end of the video. Raises RecordError, also if it has no picture."""
        if self._encoder is None:
            raise RecordError(f"`{self.path}` would have no picture")
        try:
            self._encoder.close()
            self._encoder = None
        except (OSError, RuntimeError, ValueError) as error:
            raise RecordError(f"`{self.path}` cannot be written: {_cause(error)}") from error

    def abandon(self) -> None:
        """Stop writing, also while another thread is in `add` or `close`, which then raises. Never raises itself."""
        self._abandoned = True
        encoder, self._encoder = self._encoder, None
        if encoder is not None:
            encoder.abandon()


def check_video_file(path: Path) -> None:
    """Raise UsageError if no video can be written to `path`: a wrong suffix, a missing package or a missing folder."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"`{path}` is no name of a video", hint="let it end in .mp4 or .gif")
    module, package = PACKAGES[path.suffix]
    if importlib.util.find_spec(module) is None:
        other = ", or write a .gif" if path.suffix == ".mp4" and importlib.util.find_spec("PIL") else ""
        raise UsageError(f"{path.suffix} videos need {package}", hint=pip_install("video") + other)
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"`{path}` cannot be written: {'it is a folder' if path.is_dir() else 'no such folder'}")


def video_suffix() -> str:
    """Return ".mp4" if ffmpeg's package is installed, else ".gif". Raises UsageError if Pillow is missing too."""
    for suffix in SUFFIXES:
        if importlib.util.find_spec(PACKAGES[suffix][0]) is not None:
            return suffix
    raise UsageError("videos need imageio-ffmpeg or pillow", hint=pip_install("video"))


def played_video(folder: Path, update: int, seed: int, suffix: str) -> Path:
    """Return the path of a video of `hive play`."""
    return folder / f"play-{update:06d}-seed{seed}{suffix}"


def evaluation_video(folder: Path, update: int, episode: int, suffix: str) -> Path:
    """Return the path of the video of an episode of an evaluation."""
    return folder / f"{update:06d}-{episode}{suffix}"


def surplus_videos(folder: Path, keep: int) -> list[Path]:
    """Return the videos of evaluations in a folder without the `keep` newest ones, oldest first.

    The newest are those written last, as a resumed run may begin with an earlier update. Raises RecordError if the
    folder cannot be read.
    """
    try:
        found = [(path.lstat().st_mtime_ns, path) for path in folder.iterdir() if OF_EVALUATION.fullmatch(path.name)]
    except FileNotFoundError:  # of the folder, or of a video that another evaluator has removed
        return []
    except OSError as error:
        raise failure("read", folder, error) from error
    return [path for _, path in sorted(found)][: max(len(found) - keep, 0)]


@contextmanager
def video_writer(path: Path, fps: float, files: Files = FILES) -> Iterator[VideoWriter]:
    """Yield the writer of a video, which becomes `path` when the block ends; nothing is left when it raises.

    fps: pictures per second, > 0. Raises RecordError if it cannot be written.
    """
    with atomic_file(path, files) as temporary:
        writer = VideoWriter(path, temporary, fps)
        try:
            yield writer
            writer.close()
        finally:
            writer.abandon()


class _Mp4:
    """A process of ffmpeg, of low priority and with one thread, so that a recording leaves the cores to the training.

    Not `imageio_ffmpeg.write_frames`, which hides ffmpeg's exit status: on a full disk the video would seem complete.
    """

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        import imageio_ffmpeg

        even = f"scale={width + width % 2}:{height + height % 2}"  # as H.264 with fewer colors than pixels requires
        given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:.6g}", "-i", "pipe:"]
        coded = ["-c:v", "libx264", "-preset", "veryfast", "-crf", CRF, "-pix_fmt", "yuv420p", "-vf", even]
        written = ["-threads", "1", "-movflags", "+faststart", "-f", "mp4", "-y", str(path)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (`close` closes it)
        try:
            self._process = subprocess.Popen(
                [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *given, *coded, *written],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C in a terminal reaches only the writer, which ends it
            )
        except BaseException:
            self._errors.close()
            raise
        with contextlib.suppress(OSError):  # it has already exited
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICE)

    def add(self, pixels: NDArray[np.uint8]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.ascontiguousarray(pixels).data)
        except BrokenPipeError:
            self.close()
            raise

    def close(self) -> None:
        """Wait until the video is complete. Raises OSError if it is not."""
        assert self._process.stdin is not None
        with self._errors:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            if status := self._process.wait():  # negative: the signal that killed it
                self._errors.seek(0)
                raise OSError(self._errors.read().decode(errors="replace") or f"ffmpeg exited with status {status}")

    def abandon(self) -> None:
        self._process.kill()
        with contextlib.suppress(OSError, ValueError):  # ValueError: `add` has closed it
            self.close()


class _Gif:
    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        self._path = path
        shrink = min(1.0, GIF_SIDE / max(width, height))
        self._size = max(1, round(width * shrink)), max(1, round(height * shrink))
        self._ms = 1000 / fps
        self._period = max(self._ms, 1000 / GIF_FPS)
        self._pictures: list[Any] = []
        self._given = 0
        self._kept: list[float] = []  # when each was taken, in ms

    def add(self, pixels: NDArray[np.uint8]) -> None:
        now, self._given = self._given * self._ms, self._given + 1
        if self._kept and now - self._kept[0] < len(self._kept) * self._period - self._ms / 2:
            return
        from PIL import Image

        picture = Image.fromarray(np.ascontiguousarray(pixels))
        if picture.size != self._size:
            picture = picture.resize(self._size, Image.Resampling.BILINEAR)
        self._pictures.append(picture.quantize(256, dither=Image.Dither.NONE))
        self._kept.append(now)

    def abandon(self) -> None:
        self._pictures.clear()

    def close(self) -> None:
        first, *others = self._pictures
        ends = [*self._kept[1:], self._given * self._ms]
        marks = [GIF_UNIT_MS * round(end / GIF_UNIT_MS) for end in [0.0, *ends]]
        times = [max(GIF_UNIT_MS, after - before) for before, after in itertools.pairwise(marks)]
        first.save(self._path, format="GIF", save_all=True, append_images=others, duration=times, loop=0)


def _cause(error: Exception) -> str:
    """Return the last line of an error: ffmpeg's own, after its whole output."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
